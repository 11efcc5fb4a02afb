"""NVIDIA's GPUs through the CUDA driver; kernels are compiled by NVRTC."""

from tinyweb.native_runtimes.cuda.runtime import CudaRuntime, devices

__all__ = ["CudaRuntime", "devices"]

"""GPUs, and processors through PoCL, by way of OpenCL: the package `pyopencl` and the driver that is there."""

from tinyweb.native_runtimes.opencl.device import devices
from tinyweb.native_runtimes.opencl.runtime import OpenClRuntime

__all__ = ["OpenClRuntime", "devices"]

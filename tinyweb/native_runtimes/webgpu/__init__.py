"""The GPU through WebGPU, natively: wgpu, or Dawn if TINYWEB_WEBGPU=dawn."""

from tinyweb.native_runtimes.webgpu.runtime import WebGpuRuntime

__all__ = ["WebGpuRuntime"]

"""OpenCL devices: which there are, what they can do, and kernels built for them."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from tinyweb.errors import DeviceError
from tinyweb.graph.gpu_targets import opencl_target
from tinyweb.graph.target import Target

OPTIONS = ("-cl-std=CL1.2",)
ROUNDED = "-cl-fp32-correctly-rounded-divide-sqrt"


@dataclass(frozen=True)
class Opened:
    """A device with a context and a queue."""

    cl: Any  # the package
    context: Any
    queue: Any
    device: Any
    name: str
    target: Target
    options: tuple[str, ...]
    is_processor: bool


def open_device(index: int = 0) -> Opened:
    """The `index`-th device of all platforms; DeviceError that says what is missing."""
    cl = _package()
    found = devices(cl)
    if index >= len(found):
        raise DeviceError(
            f"there is no device OPENCL:{index}: OpenCL has {len(found)}, "
            f"OPENCL:0 to OPENCL:{len(found) - 1} ({', '.join(_name(d) for d in found)})"
        )
    device = found[index]
    context = cl.Context([device])
    target, options = describe(cl, device)
    processor = bool(device.type & cl.device_type.CPU)
    return Opened(cl, context, cl.CommandQueue(context), device, _name(device), target, options, processor)


def _package() -> Any:
    try:
        return importlib.import_module("pyopencl")
    except ImportError as error:
        raise DeviceError(f"OpenCL needs the Python package pyopencl ({error}): install tinyweb[opencl]") from error


def devices(cl: Any) -> list[Any]:
    """All devices that kernels can run on, GPUs first."""
    try:
        platforms = cl.get_platforms()
    except cl.Error as error:
        raise DeviceError(
            f"OpenCL has no driver here ({error}): install that of the GPU, or PoCL, which runs on processors "
            "(Debian: pocl-opencl-icd; or the package pocl-binary-distribution)"
        ) from error
    found = [d for p in platforms for d in p.get_devices() if d.available and d.compiler_available]
    if not found:
        names = ", ".join(p.name.strip() for p in platforms)
        raise DeviceError(f"OpenCL has a driver ({names}), but no device: is it plugged in, and may you use it?")
    return sorted(found, key=lambda d: not d.type & cl.device_type.GPU)


def _name(device: Any) -> str:
    return str(device.name).strip()


def describe(cl: Any, device: Any) -> tuple[Target, tuple[str, ...]]:
    """What programs for a device may use, and the options that they are compiled with."""
    extensions = set(device.extensions.split())
    rounded = bool(device.single_fp_config & cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT)
    largest = list(device.max_work_item_sizes)
    target = opencl_target(
        f16="cl_khr_fp16" in extensions,
        f64="cl_khr_fp64" in extensions,
        ieee=rounded,
        shared_bytes=int(device.local_mem_size),
        max_invocations=min(int(device.max_work_group_size), 256),
        max_workgroup=(min(largest[0], 256), min(largest[1], 256), min(largest[2], 64)),
        max_binding_bytes=int(device.max_mem_alloc_size),
    )
    return target, (*OPTIONS, *((ROUNDED,) if rounded else ()))


def build(opened: Opened, name: str, source: str) -> Any:
    """The kernel `name`; DeviceError with the head of the compiler's log."""
    try:
        program = opened.cl.Program(opened.context, source).build(options=list(opened.options), cache_dir=False)
        return opened.cl.Kernel(program, name)
    except opened.cl.Error as error:
        raise DeviceError(f"kernel {name} was refused by the OpenCL compiler of {opened.name}:\n{error}") from error

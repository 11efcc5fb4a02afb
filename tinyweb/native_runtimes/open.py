"""Open a runtime by the name of its device: a kind (`CPU`), or one of several of a kind (`CPU:1`, `OPENCL:2`)."""

from __future__ import annotations

import importlib

from tinyweb.errors import DeviceError
from tinyweb.native_runtimes.protocol import Runtime

# device -> (module, class); imported on use, so that one device's libraries are not needed for another
RUNTIMES: dict[str, tuple[str, str]] = {
    "CPU": ("tinyweb.native_runtimes.cpu", "CpuRuntime"),
    "DISK": ("tinyweb.native_runtimes.cpu.mapped", "DiskRuntime"),
    "WASM": ("tinyweb.native_runtimes.wasm", "WasmRuntime"),
    "WEBGPU": ("tinyweb.native_runtimes.webgpu", "WebGpuRuntime"),
    "OPENCL": ("tinyweb.native_runtimes.opencl", "OpenClRuntime"),
    "HIP": ("tinyweb.native_runtimes.hip", "HipRuntime"),
    "CUDA": ("tinyweb.native_runtimes.cuda", "CudaRuntime"),
    "INTERPRETER": ("tinyweb.native_runtimes.interpreter", "InterpreterRuntime"),
}
MAX_DEVICES = 64  # of a kind: more is a typing mistake


def parse_device(name: str) -> tuple[str, int]:
    """The kind and the number of a device's name: `"cpu"` and `"CPU:0"` are ("CPU", 0).

    DeviceError for an unknown kind and for a number that is none, or beyond 63.
    """
    kind, colon, number = name.strip().upper().partition(":")
    if kind not in RUNTIMES:
        raise DeviceError(
            f"unknown device {name!r}: choose one of {', '.join(RUNTIMES)}, or the n-th of a kind as CPU:n "
            "(TINYWEB_DEVICE or device=)"
        )
    if not colon:
        return kind, 0
    if not (number.isascii() and number.isdecimal()) or len(number) > 4 or int(number) >= MAX_DEVICES:
        raise DeviceError(
            f"device {name!r}: behind the colon stands which {kind} it is, a number from 0 to {MAX_DEVICES - 1} "
            f"({kind}:0 is {kind})"
        )
    return kind, int(number)


def device_name(name: str) -> str:
    """The one spelling of a device's name: capitals, and no number for the first of its kind. DeviceError as
    `parse_device`."""
    kind, number = parse_device(name)
    return f"{kind}:{number}" if number else kind


def open_runtime(name: str) -> Runtime:
    """A new runtime for device `name`: one of RUNTIMES, in any case, and maybe a number (`CPU:1`).

    DeviceError if there is no such device, or if it cannot be used here: the message says why.
    """
    kind, number = parse_device(name)
    module, class_name = RUNTIMES[kind]
    runtime: Runtime = getattr(importlib.import_module(module), class_name)(index=number)
    runtime.name = device_name(name)
    return runtime

"""Open a runtime by the name of its device."""

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
    "INTERPRETER": ("tinyweb.native_runtimes.interpreter", "InterpreterRuntime"),
}


def open_runtime(name: str) -> Runtime:
    """A new runtime for device `name` (one of RUNTIMES, in any case).

    DeviceError if there is no such device, or if it cannot be used here: the message says why.
    """
    if name.upper() not in RUNTIMES:
        raise DeviceError(f"unknown device {name!r}: choose one of {', '.join(RUNTIMES)}")
    module, kind = RUNTIMES[name.upper()]
    runtime: Runtime = getattr(importlib.import_module(module), kind)()
    return runtime

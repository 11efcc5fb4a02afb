"""OpenCL devices: which there are, what they can do, and kernels built for them."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from tinyweb.errors import DeviceError, ToolchainError
from tinyweb.graph.gpu_targets import opencl_target
from tinyweb.graph.target import Target
from tinyweb.native_runtimes.runs import Runs, Stuck, some_of
from tinyweb.toolchain import cache_entry, keep, sealed, unsealed

OPTIONS = ("-cl-std=CL1.2",)
ROUNDED = "-cl-fp32-correctly-rounded-divide-sqrt"
MOST_THREADS = 256  # of a workgroup: some drivers allow more than their registers are enough for
VARIABLE = "TINYWEB_OPENCL_SECONDS"
LOG_LINES = 6  # of a compiler's log that a message shows


class Lost(Exception):
    """What was queued has failed: neither the queue nor its memory may be used any more. `names`: its kernels."""

    def __init__(self, names: tuple[str, ...], said: str):
        super().__init__(said)
        self.names = names


@dataclass(frozen=True)
class Opened:
    """A device with a context and a queue that works in order."""

    cl: Any  # the package
    context: Any
    queue: Any
    runs: Runs
    device: Any
    name: str
    target: Target
    options: tuple[str, ...]
    is_processor: bool

    @contextmanager
    def speaking(self, what: str) -> Iterator[None]:
        """Errors of the driver as ours: MemoryError where there is none left, Lost after a kernel has failed, else
        DeviceError.
        """
        try:
            yield
        except Stuck as stuck:
            raise DeviceError(
                f"{some_of(stuck.names)} on {self.name} has not ended after {stuck.seconds:g} s ({VARIABLE}): the "
                "device can be used again when it has, if it ever does"
            ) from None
        except self.cl.MemoryError as error:
            raise MemoryError(f"{what}: OpenCL has no memory left on {self.name} ({_first(error)})") from error
        except self.cl.Error as error:
            if "INVALID_COMMAND_QUEUE" in str(error):
                raise Lost(self.runs.names, _first(error)) from error
            raise DeviceError(
                f"{what}: the OpenCL driver of {self.name} reports {_first(error)}; if that repeats, start Python anew"
            ) from error

    def finish(self) -> None:
        """Return when all that was queued has happened. DeviceError after TINYWEB_OPENCL_SECONDS, by default 120."""
        with self.speaking("waiting for kernels"):
            self.runs.wait()


class Markers(Runs):
    """Markers in an OpenCL queue."""

    def __init__(self, cl: Any, queue: Any) -> None:
        super().__init__(VARIABLE)
        self._cl, self._queue = cl, queue

    def _new_event(self) -> list[Any]:
        return []

    def _record(self, event: list[Any]) -> None:
        event[:] = [self._cl.enqueue_marker(self._queue)]
        self._queue.flush()

    def _happened(self, event: list[Any]) -> bool:
        status = event[0].command_execution_status
        if status < 0:
            try:
                event[0].wait()  # raises what has gone wrong
            except self._cl.Error as error:
                raise Lost(self.names, _first(error)) from error
        return bool(status == self._cl.command_execution_status.COMPLETE)


def open_device(index: int = 0) -> Opened:
    """The `index`-th device of all platforms. DeviceError that says what is missing."""
    cl = _package()
    found = _devices(cl)
    if index >= len(found):
        names = ", ".join(f"OPENCL:{i} ({_name(d)})" for i, d in enumerate(found))
        raise DeviceError(f"there is no device OPENCL:{index}: OpenCL finds {names}")
    device = found[index]
    try:
        context = cl.Context([device])
        queue = cl.CommandQueue(context, device)
    except cl.Error as error:
        raise DeviceError(f"OpenCL cannot open {_name(device)} ({_first(error)}): is another driver needed?") from error
    target, options = describe(cl, device)
    processor = bool(device.type & cl.device_type.CPU)
    return Opened(cl, context, queue, Markers(cl, queue), device, _name(device), target, options, processor)


def devices() -> list[str]:
    """What drivers call the devices, by number. DeviceError if there are none."""
    return [_name(d) for d in _devices(_package())]


def _package() -> Any:
    try:
        return importlib.import_module("pyopencl")
    except (ImportError, OSError) as error:
        raise DeviceError(f"OpenCL needs the Python package pyopencl ({error}): install tinyweb[opencl]") from error


def _devices(cl: Any) -> list[Any]:
    """All devices that kernels can be compiled for: GPUs, then other accelerators, then processors."""
    try:
        platforms = cl.get_platforms()
    except cl.Error as error:
        raise DeviceError(
            f"OpenCL finds no driver ({_first(error)}): install that of the GPU, or PoCL, which runs on processors "
            "(Debian: pocl-opencl-icd)"
        ) from error
    found: list[Any] = []
    for platform in platforms:
        with suppress(cl.Error):  # a driver without devices
            found += [d for d in platform.get_devices() if d.available and d.compiler_available]
    if not found:
        names = ", ".join(p.name.strip() for p in platforms)
        raise DeviceError(f"OpenCL has a driver ({names}), but it finds no device that this user may use")
    kinds = cl.device_type
    return sorted(found, key=lambda d: (not d.type & kinds.GPU, bool(d.type & kinds.CPU)))


def _name(device: Any) -> str:
    return str(device.name).strip()


def _first(error: Exception) -> str:
    """What an error says, in one line."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def describe(cl: Any, device: Any) -> tuple[Target, tuple[str, ...]]:
    """What programs for a device may use, and the options that they are compiled with."""
    extensions = set(device.extensions.split())
    rounded = bool(device.single_fp_config & cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT)
    most = [min(int(size), limit) for size, limit in zip(device.max_work_item_sizes, (MOST_THREADS, MOST_THREADS, 64))]
    target = opencl_target(
        f16="cl_khr_fp16" in extensions,
        f64="cl_khr_fp64" in extensions,
        ieee=rounded,
        shared_bytes=int(device.local_mem_size),
        max_invocations=min(int(device.max_work_group_size), MOST_THREADS),
        max_workgroup=(most[0], most[1], most[2]),
        max_binding_bytes=int(device.max_mem_alloc_size),
    )
    return target, (*OPTIONS, *((ROUNDED,) if rounded else ()), *os.environ.get("TINYWEB_OPENCL_OPTIONS", "").split())


def build(opened: Opened, names: Sequence[str], source: str) -> list[Any]:
    """The kernels of a source, from disk where the same driver has compiled it before. DeviceError with the head of
    the compiler's log.
    """
    cl, device = opened.cl, opened.device
    key = [source, *opened.options, opened.name, device.version, device.driver_version, device.platform.version]
    entry = cache_entry(key, ".clbin")
    with suppress(OSError, cl.Error):
        binary = unsealed(entry.read_bytes())  # a driver may run what is damaged
        if binary is not None:
            os.utime(entry)
            built = cl.Program(opened.context, [device], [binary]).build(options=list(opened.options))
            return [cl.Kernel(built, name) for name in names]
    try:
        program = cl.Program(opened.context, source).build(options=list(opened.options), cache_dir=False)
        kernels = [cl.Kernel(program, name) for name in names]
    except cl.Error as error:
        many = f" or {len(names) - 1} more with it" if len(names) > 1 else ""
        raise DeviceError(
            f"kernel {names[0]}{many} was refused by the OpenCL compiler of {opened.name}:\n{shortened(str(error))}"
        ) from error
    with suppress(ToolchainError, cl.Error):  # a folder that cannot be written, or a driver that gives nothing away
        keep(entry, sealed(bytes(program.get_info(cl.program_info.BINARIES)[0])))
    return kernels


def shortened(log: str) -> str:
    """The lines of a compiler's log that tell what is wrong, or its first ones."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    telling = [line for line in lines if "error:" in line.lower()]
    return "\n".join((telling or lines)[:LOG_LINES])

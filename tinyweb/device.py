"""Devices: opened runtimes, the memory of buffers, and running what the scheduler made.

`Device.DEFAULT` is the device of new tensors: `TINYWEB_DEVICE` if set, else CPU. `Device["WEBGPU"]` opens one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from tinyweb.errors import DeviceError
from tinyweb.graph.ir import Ops, UOp, toposort
from tinyweb.graph.lower import lower
from tinyweb.graph.optimize import optimize
from tinyweb.graph.program import Program
from tinyweb.graph.schedule import KernelCall, Schedule, nbytes
from tinyweb.native_runtimes.open import open_runtime
from tinyweb.native_runtimes.protocol import Executable, Handle, Launch, Runtime

NAMES = ("CPU", "WASM", "WEBGPU", "INTERPRETER")


class Memory:
    """Device memory that is freed with its last user."""

    def __init__(self, runtime: Runtime, size: int):
        self.runtime, self.nbytes = runtime, size
        self.handle: Handle = runtime.allocate(size)

    def __del__(self) -> None:
        # a failed allocation leaves no handle; at interpreter exit the runtime may be gone before its memory
        if hasattr(self, "handle") and self.runtime is not None:
            self.runtime.free(self.handle)


class OpenDevice:
    """A runtime together with everything compiled for it."""

    def __init__(self, name: str):
        self.name = name
        self.runtime = open_runtime(name)
        self.compiled: dict[UOp, tuple[Program, Executable]] = {}

    def memory(self, buffer: UOp) -> Memory:
        """The memory behind a BUFFER, allocated (zeroed) on first use. It hangs on the node and dies with it."""
        found: Memory | None = buffer.__dict__.get("memory")
        if found is None:
            found = buffer.__dict__["memory"] = Memory(self.runtime, nbytes(buffer))
        elif found.runtime is not self.runtime:
            raise DeviceError(
                f"a buffer on {found.runtime.name} was used on {self.name}: move the tensor with .to('{self.name}')"
            )
        return found

    def compile(self, kernels: Iterable[UOp]) -> None:
        """Optimise, lower and compile what is not compiled yet, all of it in one go."""
        missing = [k for k in dict.fromkeys(kernels) if k not in self.compiled]
        if missing:
            target = self.runtime.target
            programs = [lower(optimize(k, target), target) for k in missing]
            for k, p, e in zip(missing, programs, self.runtime.compile(programs), strict=True):
                self.compiled[k] = (p, e)

    def run(self, schedule: Schedule, variables: Mapping[str, int]) -> None:
        """Carry a schedule out."""
        self.compile(c.kernel for c in schedule.calls)
        pools = [Memory(self.runtime, size) for size in schedule.memory.pool_bytes]
        place = {b: pools[p] for b, p in schedule.memory.pool_of.items()}
        self.launch(schedule.calls, place, variables)

    def launch(self, calls: Sequence[KernelCall], place: Mapping[UOp, Memory], variables: Mapping[str, int]) -> None:
        """Run compiled calls with some buffers placed in given memory, the others in their own."""
        launches = [
            Launch(self.compiled[c.kernel][1], tuple((place.get(b) or self.memory(b)).handle for b in c.buffers))
            for c in calls
        ]
        self.runtime.run(launches, variables)


class _Devices:
    """All devices by name; `Device["CPU"]` opens on first use."""

    def __init__(self) -> None:
        self._open: dict[str, OpenDevice] = {}

    @property
    def DEFAULT(self) -> str:
        return self.canonical(os.environ.get("TINYWEB_DEVICE") or "CPU")

    def canonical(self, name: str) -> str:
        upper = name.upper()
        if upper not in NAMES:
            raise DeviceError(f"unknown device {name!r}: choose one of {', '.join(NAMES)} (TINYWEB_DEVICE or device=)")
        return upper

    def __getitem__(self, name: str) -> OpenDevice:
        name = self.canonical(name)
        if name not in self._open:
            self._open[name] = OpenDevice(name)
        return self._open[name]


Device = _Devices()


@dataclass
class Recorder:
    """Collects schedules instead of running them."""

    schedules: list[tuple[str, Schedule]] = field(default_factory=list)
    variables: dict[str, int] = field(default_factory=dict)
    refreshed: list[tuple[UOp, Callable[[], bytes]]] = field(default_factory=list)


_recorder: ContextVar[Recorder | None] = ContextVar("recorder", default=None)


@contextmanager
def recording() -> Iterator[Recorder]:
    """Within this context `realize` schedules but runs nothing."""
    recorder = Recorder()
    token = _recorder.set(recorder)
    try:
        yield recorder
    finally:
        _recorder.reset(token)


def is_recording() -> bool:
    """Whether a jit or an export records here: values are not known then."""
    return _recorder.get() is not None


def on_replay(buffer: UOp, data: Callable[[], bytes]) -> None:
    """`buffer`, which has just been filled from the host, holds what differs from call to call (a random counter).

    Within a recording, replays of the plan call `data` and put the bytes into the buffer before they launch; the first
    run of a jit, which follows its trace, uses what the buffer holds. Outside of a recording nothing happens.
    """
    recorder = _recorder.get()
    if recorder is not None:
        recorder.refreshed.append((buffer, data))


def bindings(nodes: Iterable[UOp]) -> dict[str, int]:
    """The values of all bound variables below `nodes`, those in shapes included."""
    found: dict[str, int] = {}

    def note(u: UOp) -> None:
        for x in toposort([u]):
            if x.op is Ops.BIND:
                name, value = x.src[0].arg[0], x.src[1].arg
                if found.setdefault(name, value) != value:
                    raise ValueError(f"Variable {name} is bound to both {found[name]} and {value} in one computation")
            elif isinstance(x.arg, tuple) and x.op is not Ops.VARIABLE:
                for part in x.arg:
                    for size in part if isinstance(part, tuple) else (part,):
                        if isinstance(size, UOp):
                            note(size)

    note(UOp(Ops.SINK, src=tuple(nodes)))
    return found


def execute(schedule: Schedule, device: str, variables: Mapping[str, int]) -> None:
    """Run a schedule, or record it where a recorder listens."""
    recorder = _recorder.get()
    if recorder is None:
        Device[device].run(schedule, variables)
    else:
        recorder.schedules.append((device, schedule))
        recorder.variables.update(variables)

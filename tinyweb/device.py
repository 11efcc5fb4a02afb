"""Devices: opened runtimes, the memory of buffers, and running what the scheduler made.

`Device.DEFAULT` is the device of new tensors: `TINYWEB_DEVICE` if set, else CPU. `Device["WEBGPU"]` opens one. A name
may list several, as `CPU,CPU:1`: tensors there are whole on each of them, or divided among them.
"""

from __future__ import annotations

import functools
import gc
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from tinyweb.dtype import DType, dtypes
from tinyweb.errors import DeviceError
from tinyweb.graph.ir import Ops, Spread, UOp
from tinyweb.graph.lower import program_for
from tinyweb.graph.program import Program
from tinyweb.graph.schedule import KernelCall, Schedule, at_origin, nbytes, new_buffer, part_of, whole_of
from tinyweb.graph.schedule.indexing import fits
from tinyweb.graph.schedule.views import walk
from tinyweb.graph.target import Target
from tinyweb.memory import BUFFERS, Buffer, SpreadBuffer, reserve
from tinyweb.native_runtimes.open import device_name, open_runtime
from tinyweb.native_runtimes.protocol import Executable, Handle, Replay
from tinyweb.schedules import remembered

SPARE = 4  # times what is laid out anew that must be free
# programs that stay compiled although nobody refers to their kernels, and their nodes: some 100 MB
MOST, MOST_NODES = 512, 1 << 17


def check_indices(kernel: UOp) -> None:
    """NotImplementedError for a kernel that counts further than 32 bits reach."""
    data: set[UOp] = set()  # indices that are data are checked against the size of what they index
    for u in kernel.toposort():
        computed = u.op is Ops.LOAD or (u.op is Ops.CAST and u.dtype is dtypes.index)
        if computed or any(s in data for s in u.src):
            data.add(u)
        elif u.dtype is dtypes.index:
            fits(max(u.vmax, -u.vmin))


@contextmanager
def uncollected() -> Iterator[None]:
    """Within this context no cycles of garbage are looked for: nodes are many, refer to older ones only, and go by the
    count of their references."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@dataclass(frozen=True)
class Prepared:
    """Launches that run again and again, and the memory that belongs to them."""

    memory: tuple[Buffer, ...]
    written: tuple[Buffer, ...]
    launch: Replay

    def run(self, handles: Sequence[Handle], variables: Mapping[str, int]) -> None:
        """Run with this memory for what varies."""
        for b in self.written:
            b.change()
        self.launch(handles, variables)

    def __call__(self, variables: Mapping[str, int]) -> None:
        """Run once, where all memory is known."""
        self.run((), variables)


class Kept:
    """What a call computes in every run alike, as long as nobody writes to what it reads."""

    def __init__(self, device: OpenDevice, call: KernelCall, place: Mapping[UOp, Buffer]):
        written = call.written
        self.sources = tuple(place[b] for b in call.buffers if b not in written)
        self.memory = place[call.buffers[0]]
        self.fill = device.replay([call], place, ())
        self.versions: list[int | None] = []
        for b in self.sources:
            b.version = b.version or 0

    def refresh(self) -> None:
        """Compute it anew if something has changed."""
        now = [b.version for b in self.sources]
        if now != self.versions:
            self.fill({})
            self.versions = now


class OpenDevice:
    """A runtime together with what is compiled for it: kernels that schedules, plans or calls under way refer to, and
    the last ones that were compiled.
    """

    def __init__(self, name: str):
        self.name = name
        self.runtime = open_runtime(name)
        self.compiled: WeakKeyDictionary[UOp, tuple[Program, Executable]] = WeakKeyDictionary()
        self._recent: deque[tuple[UOp, int]] = deque()  # kernels, and the nodes of their programs
        self.kept: WeakValueDictionary[tuple[object, ...], Kept] = WeakValueDictionary()

    def memory(self, buffer: UOp, zeroed: bool = True) -> Buffer:
        """The memory behind a BUFFER, allocated on first use: with zeros, unless what uses it writes all of it."""
        if buffer.src:
            part: Buffer = spread_memory(buffer.src[0], zeroed).parts[buffer.arg.part]
            return part
        entry = BUFFERS.entries.get(id(buffer))  # for every buffer of every launch: no call where it is there
        found = BUFFERS.get(buffer) if entry is None or entry.buffer is None else entry.buffer
        if found is None:
            found = Buffer(self.runtime, buffer.arg.size, buffer.dtype, zeroed)
            BUFFERS.set(buffer, found)
        elif found.runtime is not self.runtime:
            raise DeviceError(
                f"a buffer on {found.device} was used on {self.name}: move the tensor with .to('{self.name}')"
            )
        return found

    def compile(self, kernels: Iterable[UOp]) -> None:
        """Optimise, lower and compile what is not compiled yet, all of it in one go."""
        missing = [k for k in dict.fromkeys(kernels) if k not in self.compiled]
        if missing:
            for k in missing:
                check_indices(k)
            target = self.runtime.target
            programs: list[Program] = []
            placed = [self._placed(k) for k in missing]
            begin = getattr(self.runtime, "beginning", None)
            made: dict[UOp, Program] = {}

            def lowered() -> Iterator[Program]:
                for k, _ in placed:
                    if k not in made:
                        made[k] = program_for(k, target, remembered(k, target))
                    programs.append(made[k])
                    yield programs[-1]

            with uncollected():
                executables = self.runtime.compile(lowered())
            for k, (_, starts), p, e in zip(missing, placed, programs, executables, strict=True):
                self.compiled[k] = (p, begin(e, starts) if begin and starts else e)
                self._recent.append((k, len(p.uops)))
            while len(self._recent) > MOST or sum(nodes for _, nodes in list(self._recent)) > MOST_NODES:
                self._recent.popleft()

    def _placed(self, kernel: UOp) -> tuple[UOp, tuple[int, ...]]:
        """What is compiled of a kernel, and where in its memory that begins; what search has found is for it alone."""
        if not hasattr(self.runtime, "beginning") or remembered(kernel, self.runtime.target) is not None:
            return kernel, ()
        return at_origin(kernel)

    def prepare(self, schedule: Schedule, variables: Mapping[str, int]) -> Callable[[], None]:
        """Compile a schedule and take its memory; returns what runs it. MemoryError where that does not fit."""
        own = {b for c in schedule.calls for b in c.buffers if b not in schedule.memory.pool_of}
        new = sum(nbytes(b) for b in own if b not in BUFFERS)
        reserve(self.runtime, new + sum(schedule.memory.pool_bytes), "a computation")
        self.compile(c.kernel for c in schedule.calls)
        zeroed, sizes = schedule.memory.zeroed_pools, schedule.memory.pool_bytes
        pools = [Buffer(self.runtime, size, dtypes.uint8, p in zeroed) for p, size in enumerate(sizes)]
        place = {b: pools[p] for b, p in schedule.memory.pool_of.items()}
        for call in schedule.calls:
            whole = call.written_whole()
            for b in call.buffers:
                if b not in place:
                    place[b] = self.memory(b, zeroed=b not in whole)
        return functools.partial(self.replay(schedule.calls, place, ()), variables)

    def replay(self, calls: Sequence[KernelCall], place: Mapping[UOp, Buffer], varying: Sequence[UOp]) -> Prepared:
        """What runs compiled calls, as often as one likes: some buffers are placed in given memory, `varying` are the
        memory that a run is given, in that order, the others lie in their own.
        """
        memory = {b: place.get(b) or self.memory(b) for c in calls for b in c.buffers if b not in varying}
        fixed = tuple(dict.fromkeys(memory.values()))
        number: dict[object, int] = {m: i for i, m in enumerate((*fixed, *varying))}
        slots = [tuple(number[memory.get(b, b)] for b in c.buffers) for c in calls]
        executables = [self.compiled[c.kernel][1] for c in calls]
        written = tuple(dict.fromkeys(memory[b] for c in calls for b in c.written if b in memory))
        return Prepared(fixed, written, self.runtime.prepare(executables, slots, [m.handle for m in fixed]))

    def keep(self, calls: Sequence[KernelCall], frozen: Iterable[UOp]) -> tuple[list[KernelCall], list[Kept]]:
        """Compile the calls of kernels that may lay out anew what is in `frozen` memory. They get the memory for that,
        and what fills it is returned; what is laid out alike of the same memory is shared by all who ask.
        """
        frozen, free = set(frozen), self.runtime.free_bytes()
        if self.runtime.target.family == "vectors" and (free is None or sum(map(nbytes, frozen)) * SPARE < free):
            calls = [c.freeze(frozen) for c in calls]
        self.compile(c.kernel for c in calls)
        self.compile(layout.kernel for c in calls for layout in self.compiled[c.kernel][0].layouts)
        out, kept = [], []
        for c in calls:
            more: list[UOp] = []
            every: list[UOp] = []
            for layout in self.compiled[c.kernel][0].layouts:
                sources = tuple((*c.buffers, *every)[s] for s in layout.sources)
                key = (layout.kernel, *(self.memory(b) for b in sources))
                found = self.kept.get(key)
                if found is None:
                    param = layout.kernel.src[0].src[0]
                    buffer = new_buffer(param.arg.size, param.dtype)
                    memory = {b: self.memory(b, zeroed=b is not buffer) for b in (buffer, *sources)}
                    found = self.kept[key] = Kept(self, KernelCall(layout.kernel, (buffer, *sources)), memory)
                else:
                    buffer = new_buffer(found.memory.size, found.memory.dtype)
                    BUFFERS.set(buffer, found.memory)
                every.append(buffer)
                if layout.read:
                    more.append(buffer)
                kept.append(found)
            out.append(replace(c, buffers=(*c.buffers, *more)))
        return out, kept


def spread_memory(buffer: UOp, zeroed: bool = True) -> SpreadBuffer:
    """The memory behind a BUFFER on several devices, allocated on first use."""
    found = BUFFERS.get(buffer)
    if found is None:
        parts = (part_of(buffer, i) for i in range(len(buffer.arg.spread.devices)))
        runtimes = (Device[d].runtime for d in buffer.arg.spread.devices)
        memory = tuple(Buffer(r, p.arg.size, p.dtype, zeroed) for r, p in zip(runtimes, parts))
        found = SpreadBuffer(memory, buffer.arg.size)
        BUFFERS.set(buffer, found)
    assert isinstance(found, SpreadBuffer)
    return found


class OpenGroup:
    """Several devices that hold tensors together. `runtime` is that of the first."""

    def __init__(self, name: str, devices: tuple[str, ...]):
        self.name, self.devices = name, devices
        self.runtime = Device[devices[0]].runtime

    def memory(self, buffer: UOp, zeroed: bool = True) -> Buffer:
        """The memory behind a BUFFER on these devices, allocated on first use."""
        if buffer.arg.spread is None or buffer.arg.spread.devices != self.devices:
            raise DeviceError(
                f"a buffer on other devices was used on {self.name}: move the tensor with .to() or .shard()"
            )
        return spread_memory(buffer, zeroed)


class _Devices:
    """All devices by name; `Device["CPU"]` opens on first use."""

    def __init__(self) -> None:
        self._open: dict[str, OpenDevice] = {}
        self._groups: dict[str, OpenGroup] = {}

    @property
    def DEFAULT(self) -> str:
        return self.canonical(os.environ.get("TINYWEB_DEVICE") or "CPU")

    def canonical(self, name: str) -> str:
        """The one spelling of a name; of several devices, which commas divide, in their order."""
        names = [device_name(n) for n in name.split(",")]
        if len({*names}) < len(names):
            raise DeviceError(f"{name!r} names a device twice: several devices are different ones, as CPU,CPU:1")
        return ",".join(names)

    def members(self, name: str | Sequence[str]) -> tuple[str, ...]:
        """The devices that a name, or a list of names, stands for: one, or several. DeviceError for none."""
        names = name if isinstance(name, str) else ",".join(name)
        if not names:
            raise DeviceError(f"no device in {name!r}: name one or several, as 'CPU' or ['CPU', 'CPU:1']")
        return tuple(self.canonical(names).split(","))

    def new_buffer(self, name: str, size: int, dtype: DType) -> UOp:
        """A BUFFER on a device; on several, all of it on each."""
        members = self.members(name)
        return new_buffer(size, dtype, Spread(members, 0) if len(members) > 1 else None)

    def place(self, name: str) -> OpenDevice | OpenGroup:
        """Where tensors of a device's name have their memory: it, or a group of several."""
        if name in self._open:  # for every call of what is recorded: names are read where they are new
            return self._open[name]
        name = self.canonical(name)
        if "," not in name:
            return self[name]
        if name not in self._groups:
            self._groups[name] = OpenGroup(name, self.members(name))
        return self._groups[name]

    def __getitem__(self, name: str) -> OpenDevice:
        if name in self._open:
            return self._open[name]
        name = self.canonical(name)
        if "," in name:
            raise DeviceError(f"{name} are several devices, and one is needed here")
        if name not in self._open:
            self._open[name] = OpenDevice(name)
        return self._open[name]


Device = _Devices()


@dataclass
class Recorder:
    """Collects schedules instead of running them.

    What began before the recording, storages of tensors (numbered below `first_storage`) and buffers, is outside of it:
    replays find it in memory. `written` are storages from outside that are updated in place within, with the tensors
    that are views of them and what these were before; `outside` is their memory, which may have been taken only then.
    `scratch`: memory of loops, which no result but what is returned needs afterwards. `host_steps`: what the host does
    between launches, with the number of schedules before it; None where a replay has no host.
    """

    first_storage: int
    target: Target | None = None  # what the schedules are for, if not the device they are recorded on
    first_buffer: int = field(default_factory=lambda: int(new_buffer(0, dtypes.bool).arg.id))
    written: dict[int, list[tuple[Any, UOp]]] = field(default_factory=dict)
    outside: set[UOp] = field(default_factory=set)
    produced: set[UOp] = field(default_factory=set)  # buffers that the schedules write
    scratch: set[UOp] = field(default_factory=set)
    schedules: list[tuple[str, Schedule]] = field(default_factory=list)
    variables: dict[str, int] = field(default_factory=dict)
    refreshed: list[tuple[UOp, Callable[[], bytes]]] = field(default_factory=list)
    host_steps: list[tuple[int, Any]] | None = None

    def is_outside(self, storage: int) -> bool:
        """Whether a storage is what it was before the recording."""
        return storage < self.first_storage and storage not in self.written

    def is_filled_within(self, buffer: UOp) -> bool:
        """Whether the recorded function itself filled a buffer from the host."""
        return self.is_within(buffer) and buffer not in self.produced

    def is_within(self, buffer: UOp) -> bool:
        """Whether a buffer began in the recording."""
        return bool(buffer.arg.id >= self.first_buffer) and buffer not in self.outside

    def add(self, device: str, schedule: Schedule, variables: Mapping[str, int]) -> None:
        self.schedules.append((device, schedule))
        self.variables.update(variables)
        self.produced.update(schedule.results, *(map(whole_of, c.written) for c in schedule.calls))


_recorder: ContextVar[Recorder | None] = ContextVar("recorder", default=None)


@contextmanager
def recording(first_storage: int, target: Target | None = None) -> Iterator[Recorder]:
    """Within this context `realize` schedules, for `target` where one is given, but runs nothing."""
    recorder = Recorder(first_storage, target)
    token = _recorder.set(recorder)
    try:
        yield recorder
    finally:
        _recorder.reset(token)


current_recorder: Callable[[], Recorder | None] = _recorder.get


@contextmanager
def not_recording() -> Iterator[None]:
    """Within this context schedules run, although a recorder listens outside of it."""
    token = _recorder.set(None)
    try:
        yield
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
        for x in walk([u], ()):
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


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Within this context Ctrl-C waits: memory and what is known of it change together."""
    if threading.current_thread() is not threading.main_thread():
        yield  # interrupts are the main thread's
        return
    caught: list[tuple[int, FrameType | None]] = []
    usual = signal.getsignal(signal.SIGINT)
    if usual is None:  # not Python's to change
        yield
        return
    signal.signal(signal.SIGINT, lambda number, frame: caught.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
    if caught and callable(usual):
        usual(*caught[0])

"""A schedule of several devices: each device's graph is scheduled for its target, and copies stand between the calls.

Calls and copies are brought into one order: of each device as many as can run, then the copies that can. So kernels of
different devices that wait for the same copies run side by side, where launches return before they end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from tinyweb.graph.ir import Ops, Spread, UOp, numel_max, toposort
from tinyweb.graph.schedule.calls import KernelCall, copy_call
from tinyweb.graph.schedule.memory_plan import plan_memory
from tinyweb.graph.schedule.schedule import Schedule, build, new_buffer
from tinyweb.graph.schedule.segments import Built
from tinyweb.graph.schedule.spread import Devices, Parts, Resolver, part_of
from tinyweb.graph.target import Target


@dataclass(eq=False)
class _Step:
    """A call or a copy, and the steps that it comes after."""

    buffers: tuple[UOp, ...]
    written: set[UOp]
    device: str
    kernel: UOp | None = None  # None: a copy
    source: str = ""
    after: list[_Step] = field(default_factory=list)


def spread_of(value: UOp, devices: Devices) -> Spread:
    """How memory of a value's own lies on several devices: as the value is divided."""
    return _spread(Resolver(new_buffer).parts(value, devices), devices)


def check_place(view: UOp, devices: Devices) -> None:
    """ValueError for a view of memory on several devices into which nothing can be written."""
    resolver = Resolver(new_buffer)
    resolver.check_place(resolver.parts(view, devices))


def _spread(p: Parts, devices: Devices) -> Spread:
    outer = 0 if p.axis is None else p.outer * numel_max(p.nodes[0].shape[: p.axis])
    return Spread(devices, outer, tuple(numel_max(v.shape) // outer for v in p.nodes) if outer else ())


def schedule_across(roots: Sequence[UOp], devices: Devices, target_of: Callable[[str], Target]) -> Schedule:
    """Schedule `roots` (see `schedule`) of one or several devices, with all that other devices compute for them.

    Results on several devices are BUFFERs that are spread. Every call has a device, and copies are CopyCalls.
    """
    resolver = Resolver(new_buffer)
    results: list[UOp] = []
    wanted: dict[str, list[tuple[UOp, UOp | None]]] = {}  # by device: roots, and the memory that they are to end in
    for root in roots:
        value = root if root.op is Ops.ASSIGN else root.src[0]
        parts = resolver.parts(value, devices)
        if root.op is Ops.ASSIGN:
            results.append(root.buffer)
            for d, v in zip(devices, parts.nodes):
                wanted.setdefault(d, []).append((v, None))
            continue
        spread = _spread(parts, devices) if len(devices) > 1 else None
        result = new_buffer(numel_max(root.shape), root.dtype, spread)
        results.append(result)
        for i, (d, v) in enumerate(zip(devices, parts.nodes)):
            memory = result if spread is None else part_of(result, i)
            wanted.setdefault(d, []).append((v if v.op is Ops.CONTIGUOUS else _contiguous(v), memory))
    return _Across(resolver, wanted, target_of).schedule(tuple(results))


def _contiguous(u: UOp) -> UOp:
    return UOp(Ops.CONTIGUOUS, u.dtype, (u,))


class _Across:
    def __init__(
        self,
        resolver: Resolver,
        wanted: dict[str, list[tuple[UOp, UOp | None]]],
        target_of: Callable[[str], Target],
    ) -> None:
        self.home: dict[UOp, str] = {}  # the device of temporaries
        self.built: dict[str, Built] = {}
        self.extra: list[tuple[str, UOp, UOp]] = []  # copies of results that are the same value
        self.sent: list[tuple[UOp, UOp, str, str]] = []  # landing, memory, device, source
        for t in resolver.transfers:
            wanted.setdefault(t.source, [])
        written = {u.buffer for rs in wanted.values() for u in toposort(r for r, _ in rs) if u.op is Ops.ASSIGN}
        written |= {u.buffer for u in toposort(t.value for t in resolver.transfers) if u.op is Ops.ASSIGN}
        for d, asked in wanted.items():
            sent = [t for t in resolver.transfers if t.source == d]
            direct = [t for t in sent if t.value.op is Ops.BUFFER and t.value not in written]
            others = [t for t in sent if t not in direct]
            values = [t.value if t.value.op is Ops.CONTIGUOUS else _contiguous(t.value) for t in others]
            built = build([*(r for r, _ in asked), *values], target_of(d))
            named: dict[UOp, UOp] = {}
            for (_, memory), found in zip(asked, built.results):
                if memory is not None and named.setdefault(found, memory) is not memory:
                    self.extra.append((d, memory, named[found]))
            self.sent += [(t.landing, t.value, t.target, d) for t in direct]
            for t, found in zip(others, built.results[len(asked) :]):
                self.sent.append((t.landing, named.get(found, found), t.target, d))
                if found not in named:
                    self.home[found] = d
            calls = [(kernel, tuple(named.get(b, b) for b in buffers)) for kernel, buffers in built.calls]
            self.built[d] = replace(built, calls=calls)
            self.home.update(dict.fromkeys(built.temporaries, d))
        self.home.update((landing, target) for landing, _, target, _ in self.sent)

    def schedule(self, results: tuple[UOp, ...]) -> Schedule:
        calls = tuple(self._calls())
        memory = plan_memory([c.buffers for c in calls], tuple(self.home), self.home)
        return Schedule(calls, results, memory)

    def _steps(self) -> list[_Step]:
        """All of it, each device's in an order that is right for it."""
        steps: list[_Step] = []
        for d, built in self.built.items():
            for kernel, buffers in built.calls:
                stored = {buffers[s.src[0].arg.slot] for s in kernel.src}
                steps.append(_Step(buffers, stored, d, kernel))
        for d, to, of in self.extra:
            steps.append(_Step((to, of), {to}, d, source=d))
        copies = [_Step((to, of), {to}, target, source=d) for to, of, target, d in self.sent]
        arrival = {s.buffers[0]: s for s in copies}
        writers: dict[UOp, list[_Step]] = {}
        readers: dict[UOp, list[_Step]] = {}
        for s in (*steps, *copies):
            for b in dict.fromkeys(s.buffers):
                s.after += writers.get(b, [])
                if b in arrival and arrival[b] is not s:
                    s.after.append(arrival[b])
                if b in s.written and b not in arrival:
                    s.after += readers.get(b, [])
            for b in dict.fromkeys(s.buffers):
                if b in s.written:
                    writers.setdefault(b, []).append(s)
                readers.setdefault(b, []).append(s)
        return [*steps, *copies]

    def _calls(self) -> Iterable[KernelCall]:
        waiting = self._steps()
        done: set[_Step] = set()
        while waiting:
            before = len(done)
            for d in self.built:
                ready: list[_Step] = []
                for s in waiting:
                    if s.kernel is not None and s.device == d and done.issuperset(s.after):
                        ready.append(s)
                        done.add(s)
                kernels = [(s.kernel, s.buffers) for s in ready if s.kernel is not None]
                yield from self.built[d].finished(kernels, d)
            moving = [s for s in waiting if s.kernel is None and done.issuperset(s.after)]
            done.update(moving)
            for s in moving:
                yield copy_call(s.buffers[0], s.buffers[1], s.device, s.source)
            waiting = [s for s in waiting if s not in done]
            assert len(done) > before, "calls and copies wait for each other"

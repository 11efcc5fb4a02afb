"""Trace and replay: `jit` compiles a function of tensors once, `capture` records what a computation would launch.

step = jit(lambda x, pos: model(x, pos).realize())
step(x, start_pos.bind(3))        # traced, scheduled and compiled
step(y, start_pos.bind(4))        # only launched
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from types import MethodType
from typing import Any, Generic, TypeVar
from weakref import ref

from tinyweb.across import allocate_pools, homes, keep, replay
from tinyweb.array.core import TensorCore, live_tensors, realize_all
from tinyweb.array.host_steps import HostStep
from tinyweb.array.realize import due, forget_due
from tinyweb.array.storage import Storage, next_number, replace_all
from tinyweb.device import Device, current_recorder, is_recording, recording
from tinyweb.graph.ir import UOp
from tinyweb.graph.schedule import CopyCall, KernelCall, MemoryPlan, nbytes, new_buffer, part_of, whole_of
from tinyweb.graph.schedule.memory_plan import plan_memory
from tinyweb.graph.schedule.views import view_base
from tinyweb.graph.target import Target
from tinyweb.memory import BUFFERS
from tinyweb.traced import NOTHING, Arguments, Traced, flattened, mapped

T = TypeVar("T")
MOST_TRACES = 256  # of a function: each has memory of its own


@dataclass(frozen=True)
class Plan:
    """What a captured computation launches, on any target: kernels with their buffers, in order.

    Buffers are those of the tensors it read and wrote, plus `temporaries`, which share the pools of `memory`. In a plan
    of several devices each call has one, and CopyCalls stand between; `device` has the results. `host_steps`: each with
    the number of calls before it.
    """

    calls: tuple[KernelCall, ...]
    memory: MemoryPlan
    device: str
    refreshed: tuple[tuple[UOp, Callable[[], bytes]], ...] = ()  # buffers that every replay fills anew from the host
    host_steps: tuple[tuple[int, HostStep], ...] = ()

    def parts(self) -> list[Plan]:
        """What is launched before, between and after the steps of the host."""
        ends = [0, *(at for at, _ in self.host_steps), len(self.calls)]
        return [dataclasses.replace(self, calls=self.calls[a:b], host_steps=()) for a, b in pairwise(ends)]

    @property
    def temporaries(self) -> tuple[UOp, ...]:
        return tuple(self.memory.pool_of)

    @property
    def pool_bytes(self) -> tuple[int, ...]:
        return self.memory.pool_bytes

    @property
    def variables(self) -> list[UOp]:
        """The VARIABLEs that launches need values for, by name."""
        found = {v for k in {c.kernel for c in self.calls} for v in k.variables()}
        return sorted(found, key=lambda v: str(v.arg[0]))

    @property
    def kernels(self) -> list[UOp]:
        """The distinct kernels, in order of first use."""
        return list(dict.fromkeys(c.kernel for c in self.calls if not isinstance(c, CopyCall)))

    @property
    def copies(self) -> list[tuple[str, str, int]]:
        """What moves between different devices: from where, to where, and bytes."""
        copies = (c for c in self.calls if isinstance(c, CopyCall) and c.source != c.device)
        return [(c.source, c.device, nbytes(c.buffers[0])) for c in copies]


def capture(
    function: Callable[[], Any], target: Target | None = None, *, across: bool = False, host_steps: bool = False
) -> Plan:
    """Run `function`, which computes (or returns) tensors, and record instead of executing. What becomes a kernel is
    decided for `target`; by default for the device. `host_steps`: who replays it carries out work of the host, too.

    Memory that the function updates in place is not touched; its tensors look afterwards as if it had been. Pending
    values from outside that the function uses are computed first, and are no part of the plan. RuntimeError if the
    function reads a value; ValueError if it uses several devices, unless the plan may go `across` them. A function that
    raises leaves no trace.
    """
    plan = _record("capture", function, target, host_steps).plan
    if not across and (devices := sorted({c.device for c in plan.calls} - {""})):
        raise ValueError(f"capture: the computation uses several devices: {', '.join(devices)}")
    return plan


def repeat(step: Callable[[], Sequence[TensorCore]], count: int, scratch: Sequence[TensorCore] = ()) -> None:
    """Call `step`, which updates memory in place and returns the tensors that are to be computed, `count` times: what
    it launches is worked out once, and launched again and again. In a recording the launches are recorded.

    `scratch`: tensors that lie in memory of their own, which nothing needs afterwards but what the recorded function
    returns. NotImplementedError, or whatever `step` raises, before anything was launched.
    """
    recorder = current_recorder()
    if recorder is None:
        run = jit(step)
        for _ in range(count):
            run()
        return
    begun = len(recorder.schedules)
    steps_before = list(recorder.host_steps or [])
    realize_all([*step(), *due()])
    if steps_before != (recorder.host_steps or []):
        raise NotImplementedError("a loop of many steps has a result whose shape depends on values")
    recorder.schedules += recorder.schedules[begun:] * (count - 1)
    recorder.scratch |= {view_base(t.uop) for t in scratch}


@dataclass
class _Record:
    plan: Plan
    result: Any
    variables: dict[str, int]
    produced: set[UOp]  # memory that came into being within


def _record(
    method: str, function: Callable[[], Any], target: Target | None = None, host_steps: bool = False
) -> _Record:
    if is_recording():
        raise RuntimeError(f"{method}: another capture is going on: call it outside of the recorded function")
    grads = [(ref(t), t.grad) for t in live_tensors() if t.requires_grad]
    with recording(next_number(), target) as recorder:
        recorder.host_steps = [] if host_steps else None
        try:
            result = function()
            # updates of memory from outside belong to the plan, whether or not they are returned
            updated = [t for held in recorder.written.values() for weak, _ in held if (t := weak()) is not None]
            realize_all([*_tensors(result), *updated, *due()])
        except BaseException:
            for tensors in recorder.written.values():
                for held, uop in tensors:
                    if (t := held()) is not None:
                        t.uop = uop
            for leaf, grad in grads:
                if (t := leaf()) is not None:
                    t.grad = grad
            raise
        finally:
            forget_due(recorder)
    devices = list(dict.fromkeys(d for d, _ in recorder.schedules))
    calls = tuple(c for _, s in recorder.schedules for c in s.calls)
    home: dict[UOp, str] | None = None
    if len(devices) > 1 or any(c.device for c in calls):
        calls = tuple(
            c if c.device else dataclasses.replace(c, device=d) for d, s in recorder.schedules for c in s.calls
        )
        home = homes(calls)
    temporaries = dict.fromkeys(b for _, s in recorder.schedules for b in s.temporaries)
    scratch = (recorder.scratch & recorder.produced) - {view_base(t.uop) for t in _tensors(result)}
    temporaries |= dict.fromkeys(b for c in calls for b in c.buffers if whole_of(b) in scratch)
    memory = plan_memory([c.buffers for c in calls], tuple(temporaries), home)
    device = devices[-1] if devices else next((t.device for t in _tensors(result)), Device.DEFAULT)
    begins = list(accumulate((len(s.calls) for _, s in recorder.schedules), initial=0))
    steps = tuple((begins[n], step) for n, step in recorder.host_steps or ())
    plan = Plan(calls, memory, device, tuple(recorder.refreshed), steps)
    produced = {b for b in recorder.produced if recorder.is_within(b)}
    return _Record(plan, result, recorder.variables, produced)


class jit(Generic[T]):
    """A function of tensors that is traced on its first call for given shapes and replayed afterwards.

    Arguments and results may be nested in lists, tuples, dicts and dataclasses. Tensors may have any memory of their
    shapes, views too; bound Variables may have any value; everything else is part of the key: another value is another
    trace, of which the last 256 are kept. What the function uses from outside (weights, caches, a counter) it finds in
    memory: updates in place of it and of arguments happen on every replay. Python code in the function runs only while
    it is traced.

    Each call returns new tensors. What was computed lies in memory of its own; an argument, or memory from outside,
    that the function returns is that very memory, as it would be without jit.

    `freeze`: what sums read of memory from outside that the function does not write (weights) is laid out once, in
    memory of its own: a call takes less time, and the function up to as many bytes more as those weights have.

    RuntimeError if the function reads values (`.item()`) or calls `capture`; a jit called within another is part of it.
    """

    def __init__(self, function: Callable[..., T], freeze: bool = True):
        self.function, self.freeze = function, freeze
        self.traces: dict[Any, Traced] = {}
        functools.update_wrapper(self, function)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """A method: the instance is part of the key."""
        return self if instance is None else MethodType(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> T:
        if current_recorder() is not None:
            return self.function(*args, **kwargs)
        given, key = NOTHING, ()
        if args or kwargs:
            given = Arguments()
            key = given.keys(args, kwargs)
        traced = self.traces.get(key)
        first = traced is None
        if traced is None:
            traced = self.traces[key] = self._trace(args, dict(sorted(kwargs.items())), given)
            for oldest in list(self.traces)[:-MOST_TRACES]:
                self.traces.pop(oldest, None)
        result: T = traced.call(given, first)
        return result

    def _trace(self, args: Any, kwargs: Any, given: Arguments) -> Traced:
        inputs = [new_buffer(b.arg.size, b.dtype, b.arg.spread) for b in given.buffers]
        at = {view_base(view): t.device for t, view in zip(given.tensors, given.views, strict=True)}
        home = {stand_in: at[b] for stand_in, b in zip(inputs, given.buffers, strict=True)}
        table = dict(zip(given.buffers, inputs, strict=True))
        storages = {id(b): Storage(b) for b in inputs}
        stand_ins: dict[int, TensorCore] = {}
        for t, view in zip(given.tensors, given.views, strict=True):
            stand_in = replace_all([view], table)[0]
            stand_ins[id(t)] = type(t)._wrap(stand_in, t.device, storages[id(view_base(stand_in))])
            stand_ins[id(t)].requires_grad = t.requires_grad
        args, kwargs = mapped((args, kwargs), lambda t: stand_ins[id(t)] if isinstance(t, TensorCore) else t)
        record = _record("jit", lambda: self.function(*args, **kwargs))
        plan = record.plan
        result, found = flattened(record.result)
        temporary = plan.memory.pool_of
        used = {whole_of(b) for c in plan.calls for b in c.buffers if b not in temporary}
        written = {whole_of(b) for c in plan.calls for b in c.written if b not in temporary}
        frozen = used - written - record.produced - {*inputs, *(b for b, _ in plan.refreshed)}
        calls, kept = keep(plan.device, plan.calls, frozen if self.freeze else set())
        pools = allocate_pools(plan.memory, plan.device)
        whole: set[UOp] = set()
        touched: set[UOp] = set()
        for call in plan.calls:
            whole |= call.written_whole() - touched
            touched.update(call.buffers)
        made = {r.base: r.device for r in found if r.base in record.produced and r.base not in inputs}
        fresh, home = list(made), home | made
        whole |= {b for b in fresh if b.arg.spread and whole.issuperset(part_of(b, i) for i in _places(b))}
        for b in (*inputs, *fresh):
            # each call has memory of its own in their place
            BUFFERS.withdraw(b, "a tensor from the inside of a jit function is used outside of it: return it instead")
        record.result = None
        placed = {b: pools[p] for b, p in plan.memory.pool_of.items()}
        varying = [b for b in (*inputs, *fresh) if b in used]
        run = replay(plan.device, calls, placed, varying)
        return Traced(
            record, inputs, list(storages.values()), result, found, fresh,
            home, run, used, written, whole, kept,
        )  # fmt: skip


def _places(buffer: UOp) -> range:
    return range(len(buffer.arg.spread.devices))


def _tensors(value: Any) -> Iterator[TensorCore]:
    found: list[TensorCore] = []
    mapped(value, lambda t: found.append(t) if isinstance(t, TensorCore) else None)
    return iter(found)


__all__ = ["Plan", "capture", "jit", "nbytes", "repeat"]

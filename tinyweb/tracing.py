"""Trace and replay: `jit` compiles a function of tensors once, `capture` records what a computation would launch.

step = jit(lambda x, pos: model(x, pos).realize())
step(x, start_pos.bind(3))        # traced, scheduled and compiled
step(y, start_pos.bind(4))        # only launched
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from types import MethodType
from typing import Any, Generic, TypeVar
from weakref import ref

from tinyweb.across import allocate_pools, duplicate, homes, keep, replay
from tinyweb.array.core import TensorCore, live_tensors, realize_all
from tinyweb.array.host_steps import HostStep
from tinyweb.array.realize import due, forget_due, own, settle
from tinyweb.array.storage import (
    Storage,
    bound_size,
    drop_history,
    memory_view,
    next_number,
    owns_memory,
    readers_beside_memory,
    replace_all,
)
from tinyweb.device import Device, Kept, Prepared, bindings, current_recorder, is_recording, recording
from tinyweb.graph.ir import Ops, ParamArg, Size, UOp
from tinyweb.graph.schedule import CopyCall, KernelCall, MemoryPlan, nbytes, new_buffer, part_of, whole_of
from tinyweb.graph.schedule.indexing import unbound
from tinyweb.graph.schedule.memory_plan import plan_memory
from tinyweb.graph.schedule.views import view_base
from tinyweb.graph.target import Target
from tinyweb.memory import BUFFERS, Buffer
from tinyweb.native_runtimes.protocol import Handle

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


@dataclass(frozen=True)
class _Result:
    """A tensor that a traced function returned: a view of memory."""

    kind: type[TensorCore]
    view: UOp
    base: UOp  # the BUFFER
    storage: Storage
    device: str
    symbolic: bool  # whether the view has bounds that are known when it is called


@dataclass
class _Traced:
    record: _Record
    inputs: list[UOp]  # BUFFERs that stand for the arguments' memory
    storages: list[Storage]  # of the tensors that stand for the arguments
    result: Any  # with a _Result for each tensor
    fresh: list[UOp]  # memory that each call has of its own for results
    homes: dict[UOp, str]  # the devices of `inputs` and `fresh`
    varying: list[UOp]  # … of which the plan reads or writes these
    replay: Prepared
    used: set[UOp]  # memory that the plan reads or writes, temporaries aside
    written: set[UOp]
    whole: set[UOp]  # of what it writes, what it writes all of before it reads any
    kept: list[Kept]  # what it reads that is laid out before the first run
    seen: int = -1  # changes to what that is made of, when it was last looked at

    @functools.cached_property
    def shares(self) -> bool:
        """Whether the plan writes arguments, or memory from outside that an argument may be."""
        return not self.written <= self.record.produced

    @functools.cached_property
    def writes_arguments(self) -> bool:
        return not self.written.isdisjoint(self.inputs)


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
        self.traces: dict[Any, _Traced] = {}
        functools.update_wrapper(self, function)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """A method: the instance is part of the key."""
        return self if instance is None else MethodType(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> T:
        if is_recording():
            return self.function(*args, **kwargs)
        given = _Arguments()
        kwargs = dict(sorted(kwargs.items())) if kwargs else kwargs
        key = (*[given.key(a) for a in args], given.key(kwargs) if kwargs else None)
        traced = self.traces.get(key)
        first = traced is None
        if traced is None:
            traced = self.traces[key] = self._trace(args, kwargs, given)
            for oldest in list(self.traces)[:-MOST_TRACES]:
                self.traces.pop(oldest, None)
        return self._replay(traced, given, first)  # type: ignore[no-any-return]

    def _trace(self, args: Any, kwargs: Any, given: _Arguments) -> _Traced:
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
        args, kwargs = _map((args, kwargs), lambda t: stand_ins[id(t)] if isinstance(t, TensorCore) else t)
        record = _record("jit", lambda: self.function(*args, **kwargs))
        plan = record.plan
        result = _map(record.result, _result)
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
        made = {r.base: r.device for r in _results(result) if r.base in record.produced and r.base not in inputs}
        fresh, home = list(made), home | made
        whole |= {b for b in fresh if b.arg.spread and whole.issuperset(part_of(b, i) for i in _places(b))}
        for b in (*inputs, *fresh):
            # each call has memory of its own in their place
            BUFFERS.withdraw(b, "a tensor from the inside of a jit function is used outside of it: return it instead")
        record.result = None
        placed = {b: pools[p] for b, p in plan.memory.pool_of.items()}
        varying = [b for b in (*inputs, *fresh) if b in used]
        run = replay(plan.device, calls, placed, varying)
        return _Traced(
            record, inputs, list(storages.values()), result, fresh, home, varying, run, used, written, whole, kept
        )

    def _replay(self, traced: _Traced, given: _Arguments, first: bool) -> Any:
        buffers, home = given.buffers, traced.homes
        if traced.shares and buffers:
            buffers = self._arguments(traced, given)
        table = dict(zip(traced.inputs, buffers, strict=True)) if buffers else {}
        if traced.writes_arguments:
            for stand_in, b in table.items():
                if stand_in in traced.written:
                    Device.place(home[stand_in]).memory(b).change()
            for t, b in zip(given.tensors, map(view_base, given.views), strict=True):
                if any(b is actual and stand_in in traced.written for stand_in, actual in table.items()):
                    drop_history(t)
        if readers_beside_memory():
            changed = {table.get(b, b) for b in traced.written - traced.record.produced}
            settle({table.get(b, b) for b in traced.used}, changed)
        for b in traced.fresh:
            table[b] = new_buffer(b.arg.size, b.dtype, b.arg.spread)
        handles: Sequence[Handle] = ()
        if traced.varying:
            handles = [Device.place(home[b]).memory(table[b], b not in traced.whole).handle for b in traced.varying]
        if not first:
            for buffer, data in traced.record.plan.refreshed:
                memory = BUFFERS.get(buffer)
                assert memory is not None  # on_replay is told of what has been filled
                memory.fill(memoryview(data()))
        if traced.kept and traced.seen != Buffer.changes:
            for k in traced.kept:
                k.refresh()
            traced.seen = Buffer.changes
        variables = traced.record.variables
        traced.replay.run(handles, {**variables, **given.values} if given.values else variables)
        storages = dict(zip(map(id, traced.storages), given.storages, strict=True)) if buffers else {}
        return _rebuilt(traced.result, table, storages, given.values)

    def _arguments(self, traced: _Traced, given: _Arguments) -> list[UOp]:
        """The memory of a call's arguments; where the plan updates it as other memory, a copy."""
        buffers = list(given.buffers)
        for i, (stand_in, b) in enumerate(zip(traced.inputs, buffers, strict=True)):
            if b in traced.used and (b in traced.written or stand_in in traced.written):
                # the plan does not know that these are one memory
                if stand_in in traced.written:
                    raise ValueError(
                        "jit: an argument that is updated in place is memory the function also uses itself"
                    )
                buffers[i] = duplicate(b, traced.homes[stand_in])
        return buffers


def _places(buffer: UOp) -> range:
    return range(len(buffer.arg.spread.devices))


def _result(value: Any) -> Any:
    if not isinstance(value, TensorCore):
        return value
    view = memory_view(value.uop)
    assert view is not None
    symbolic = _with_bounds(view, None, unbound) is not view
    return _Result(type(value), view, view_base(view), value.storage, value.device, symbolic)


def _results(value: Any) -> list[_Result]:
    found: list[_Result] = []
    _map(value, lambda r: found.append(r) if isinstance(r, _Result) else None)
    return found


def _rebuilt(value: Any, table: dict[UOp, UOp], storages: dict[int, Storage], values: dict[str, int]) -> Any:
    """The results of this call for those of the trace; `storages` grows by those of new memory."""
    if type(value) is list:  # what most functions return
        return [_rebuilt(v, table, storages, values) for v in value]
    if type(value) is not _Result:
        return _map(value, lambda v: _rebuilt(v, table, storages, values) if type(v) is _Result else v)
    base = table.get(value.base)
    if base is None:
        storage = value.storage  # memory from outside
    elif (found := storages.get(id(value.storage))) is not None:
        storage = found
    else:
        storage = storages[id(value.storage)] = Storage(base if value.storage.memory is value.base else None)
    view = value.view
    if base is not None or value.symbolic:
        view = _with_bounds(view, base, lambda s: bound_size(s, values))
    return value.kind._wrap(view, value.device, storage, (base or value.base) is not storage.memory)


class _Arguments:
    """What a call is given: tensors and the memory they are views of, and the values of variables."""

    def __init__(self) -> None:
        self.tensors: list[TensorCore] = []
        self.views: list[UOp] = []  # of the tensors
        self.buffers: list[UOp] = []  # distinct ones
        self.storages: list[Storage] = []  # of the buffers
        self.values: dict[str, int] = {}

    def key(self, value: Any) -> Any:
        """Equal for calls that one trace serves."""
        if isinstance(value, TensorCore):
            return self._tensor(value)
        if isinstance(value, UOp) and value.op is Ops.BIND:
            self._bind(value.src[0].arg[0], value.src[1].arg)
            return value.src[0]
        if isinstance(value, dict):
            return (type(value), tuple((k, self.key(v)) for k, v in value.items()))
        if isinstance(value, list | tuple):
            return (type(value), tuple(self.key(v) for v in value))
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = dataclasses.fields(value)
            return (type(value), tuple((f.name, self.key(getattr(value, f.name))) for f in fields))
        try:
            hash(value)
        except TypeError:
            raise TypeError(
                f"jit: an argument of type {type(value).__name__} can be neither traced nor compared: pass tensors, "
                "numbers, bound Variables, and lists, tuples, dicts and dataclasses of them"
            ) from None
        return (type(value), value)

    def _tensor(self, t: TensorCore) -> Any:
        view: UOp | None = t.uop
        buffer = view_base(t.uop)
        if buffer is not t.storage.memory:
            if not owns_memory(t):
                own(t)
            view = memory_view(t.uop)
            assert view is not None
            buffer = view_base(view)
        assert view is not None
        form, bound = view.__dict__.get("form") or _form(view, buffer)
        for name, number in bound.items():
            self._bind(name, number)
        if buffer not in self.buffers:
            self.buffers.append(buffer)
            self.storages.append(t.storage)
        self.tensors.append(t)
        self.views.append(view)
        return (type(t), t.device, t.requires_grad, self.buffers.index(buffer), form, buffer.arg.spread)

    def _bind(self, name: str, value: int) -> None:
        if self.values.setdefault(name, value) != value:
            raise ValueError(f"Variable {name} is bound to both {self.values[name]} and {value} in one call")


def _form(view: UOp, buffer: UOp) -> tuple[UOp, dict[str, int]]:
    """A view of any memory of that size, and the values of the variables in it. Kept on the node: most calls of a
    function are given what other calls were given."""
    any_memory = UOp(Ops.PARAM, buffer.dtype, (), ParamArg(0, buffer.arg.size))
    found = view.__dict__["form"] = (_with_bounds(view, any_memory, lambda s: s), bindings([view]))
    return found


def _with_bounds(view: UOp, base: UOp | None, bind: Callable[[Size], Size]) -> UOp:
    """A view, of `base` if that is given, whose symbolic bounds have lost their values, and got those of `bind`."""
    chain = []
    while view.op not in (Ops.BUFFER, Ops.PARAM):
        chain.append(view)
        view = view.src[0]
    view = view if base is None else base
    for v in reversed(chain):
        arg = v.arg
        if v.op is Ops.SHRINK:
            arg = tuple(tuple(s if isinstance(s, int) else bind(unbound(s)) for s in pair) for pair in v.arg)
        view = v if view is v.src[0] and arg is v.arg else UOp(v.op, v.dtype, (view,), arg)
    return view


def _map(value: Any, change: Callable[[Any], Any]) -> Any:
    """The same structure of lists, tuples, dicts and dataclasses with its leaves changed."""
    if isinstance(value, dict):
        filled = copy.copy(value)
        for k, v in value.items():
            filled[k] = _map(v, change)
        return filled
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_map(v, change) for v in value))
    if isinstance(value, list | tuple):
        return type(value)(_map(v, change) for v in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type | _Result):
        changed: Any = copy.copy(value)
        for f in dataclasses.fields(value):
            object.__setattr__(changed, f.name, _map(getattr(value, f.name), change))
        return changed
    return change(value)


def _tensors(value: Any) -> Iterator[TensorCore]:
    found: list[TensorCore] = []
    _map(value, lambda t: found.append(t) if isinstance(t, TensorCore) else None)
    return iter(found)


__all__ = ["Plan", "capture", "jit", "nbytes", "repeat"]

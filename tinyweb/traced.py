"""Calls of a traced function: what they are given, the memory they take, what they return.

What can be decided once is decided when the function is traced; a call of a few elements takes no longer than that.
"""

from __future__ import annotations

import copy
import dataclasses
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from sys import getrefcount
from typing import Any, Protocol

from tinyweb.across import duplicate
from tinyweb.array.core import TensorCore
from tinyweb.array.realize import own, settle
from tinyweb.array.storage import Storage, bound_size, drop_history, memory_view, owns_memory, readers_beside_memory
from tinyweb.device import Device, Kept, OpenDevice, Prepared, bindings
from tinyweb.graph.ir import Ops, ParamArg, Size, UOp
from tinyweb.graph.schedule import nbytes, new_buffer
from tinyweb.graph.schedule.indexing import unbound
from tinyweb.graph.schedule.views import view_base
from tinyweb.memory import BUFFERS, Buffer
from tinyweb.native_runtimes.protocol import Handle

# results that nobody holds any more are written again, if they are small: bytes, and calls whose results are kept
SMALL, SPARE = 1 << 16, 2

Form = tuple[UOp, dict[str, int]]  # a view of any memory of a size, and the values of the variables in it
_handle = attrgetter("handle")


@dataclass(frozen=True)
class Result:
    """A tensor that a traced function returned: a view of memory."""

    kind: type[TensorCore]
    view: UOp
    base: UOp  # the BUFFER
    storage: Storage
    device: str
    symbolic: bool  # whether the view has bounds that are known when it is called


class Record(Protocol):
    """What was recorded of it."""

    plan: Any
    variables: dict[str, int]
    produced: set[UOp]  # memory that came into being within


class _Memory:
    """The memory of one call's results: `views` for those that are the same in all calls, else None. `counts`: the
    references to each of `parts` while no tensor, and nothing that is made of one, needs them."""

    __slots__ = ("buffers", "counts", "handles", "memory", "parts", "views")

    def __init__(self, buffers: list[UOp], memory: list[Buffer], views: list[UOp | None]) -> None:
        self.buffers, self.memory, self.views = buffers, memory, views
        self.handles: list[Handle] = list(map(_handle, memory))
        self.parts = (*buffers, *memory, *(v for v in views if v is not None and v not in buffers))
        self.counts: tuple[int, ...] = ()

    def count(self) -> None:
        """Nobody else refers to it now."""
        self.counts = tuple(map(getrefcount, self.parts))


@dataclass
class Traced:
    """A function's trace for arguments of one form: how it is called."""

    record: Record
    inputs: list[UOp]  # BUFFERs that stand for the arguments' memory
    storages: list[Storage]  # of the tensors that stand for the arguments
    result: Any  # with a Result for each tensor
    results: list[Result]  # these
    fresh: list[UOp]  # memory that each call has of its own for results
    homes: dict[UOp, str]  # the devices of `inputs` and `fresh`
    replay: Prepared
    used: set[UOp]  # memory that the plan reads or writes, temporaries aside
    written: set[UOp]
    whole: set[UOp]  # of what it writes, what it writes all of before it reads any
    kept: list[Kept]  # what it reads that is laid out before the first run
    seen: int = -1  # changes to what that is made of, when it was last looked at

    def __post_init__(self) -> None:
        self.variables = self.record.variables
        self.refreshed: tuple[tuple[UOp, Callable[[], bytes]], ...] = self.record.plan.refreshed
        self.shares = not self.written <= self.record.produced  # an argument may be memory that the plan writes
        self.writes_arguments = not self.written.isdisjoint(self.inputs)
        devices = {b: Device.place(self.homes[b]) for b in (*self.inputs, *self.fresh)}
        self.given = [
            (i, d.runtime if isinstance(d, OpenDevice) else None, d.memory, b not in self.whole)
            for i, b in enumerate(self.inputs)
            if b in self.used and (d := devices[b])
        ]
        self.taken = [(i, devices[b].memory, b not in self.whole) for i, b in enumerate(self.fresh) if b in self.used]
        # zeros are cheap to have in memory that the host writes itself
        self.reuses = (
            len(self.taken) == len(self.fresh)
            and all(b.arg.spread is None for b in self.fresh)
            and sum(map(nbytes, self.fresh)) <= SMALL
            and all(devices[b].runtime.target.family == "vectors" for b in self.fresh if b not in self.whole)
        )
        self.zeros = [
            (k, memoryview(bytes(nbytes(self.fresh[i]))))
            for k, (i, _, zeroed) in enumerate(self.taken)
            if self.reuses and zeroed
        ]
        self.spare: deque[_Memory] = deque()
        number = {b: i for i, b in enumerate((*self.inputs, *self.fresh))}
        given = {id(s): i for i, s in enumerate(self.storages)}
        new = dict.fromkeys(id(r.storage) for r in self.results if r.base in number and id(r.storage) not in given)
        shared = {s: i for i, s in enumerate(new)}
        # of each result: its memory among those of the call, its storage among the arguments' or the new ones, and
        # whether that owns the memory
        self.places = [
            (r, number.get(r.base), given.get(id(r.storage)), shared.get(id(r.storage)), r.storage.memory is r.base)
            for r in self.results
        ]
        self.new_storages = len(shared)
        self.forms = [form_of(r.view, r.base) if _is_fixed(r.view) else None for r in self.results]
        kind = type(self.result)
        self.flat = kind if kind in (list, tuple) and all(type(r) is Result for r in self.result) else None

    def call(self, given: Arguments, first: bool) -> Any:
        """Launch, and return new tensors. `first`: right after the trace, which has filled what replays refresh."""
        buffers = given.buffers
        if self.shares and buffers:
            buffers = self._arguments(given)
        if self.writes_arguments:
            self._change(given, buffers)
        if readers_beside_memory():
            table = dict(zip(self.inputs, buffers, strict=True))
            changed = {table.get(b, b) for b in self.written - self.record.produced}
            settle({table.get(b, b) for b in self.used}, changed)
        held, spare = None, self.spare
        for _ in range(len(spare)):
            try:
                candidate = spare.popleft()
            except IndexError:
                break  # another thread has taken it
            if tuple(map(getrefcount, candidate.parts)) == candidate.counts:
                held = candidate
                for k, zeros in self.zeros:
                    held.memory[k].runtime.copy_in(held.handles[k], zeros)
                break
            spare.append(candidate)
        if held is None:
            held = self._take()
            held.count()
        handles: list[Handle] = []
        entries = BUFFERS.entries
        for i, runtime, memory, zeroed in self.given:
            entry = entries.get(id(buffers[i]))
            found = None if entry is None else entry.buffer
            if found is None or found.runtime is not runtime:
                found = memory(buffers[i], zeroed)
            handles.append(found.handle)
        handles += held.handles
        if not first:
            for buffer, data in self.refreshed:
                memory_of = BUFFERS.get(buffer)
                assert memory_of is not None  # on_replay is told of what has been filled
                memory_of.fill(memoryview(data()))
        if self.kept and self.seen != Buffer.changes:
            for layout in self.kept:
                layout.refresh()
            self.seen = Buffer.changes
        replay, values = self.replay, given.values
        for b in replay.written:
            b.change()
        for b in held.memory:
            if b.version is not None:
                b.change()
        replay.launch(handles, {**self.variables, **values} if values else self.variables)

        bases = [*buffers, *held.buffers]
        storages: list[Storage | None] = [None] * self.new_storages
        tensors: list[TensorCore] = []
        for (r, at, argument, new, owned), view in zip(self.places, held.views):
            base, storage = r.base, r.storage  # memory from outside
            if at is not None:
                base = bases[at]
                if argument is not None:
                    storage = given.storages[argument]
                elif new is not None:
                    known = storages[new]
                    storage = storages[new] = Storage(base if owned else None) if known is None else known
            if view is None:
                view = r.view
                if at is not None or r.symbolic:
                    view = with_bounds(view, base, lambda s: bound_size(s, values))
            tensors.append(r.kind._wrap(view, r.device, storage, base is not storage.memory))
        if self.reuses:
            spare.append(held)
            if len(spare) > SPARE:
                spare.popleft()
        if self.flat is not None:
            return tensors if self.flat is list else tuple(tensors)
        if type(self.result) is Result:
            return tensors[0]
        rest = iter(tensors)
        return mapped(self.result, lambda v: next(rest) if type(v) is Result else v)

    def _take(self) -> _Memory:
        """New memory for the results of a call."""
        buffers = [new_buffer(b.arg.size, b.dtype, b.arg.spread) for b in self.fresh]
        views: list[UOp | None] = []
        for (r, at, *_), form in zip(self.places, self.forms):
            view, i = None, -1 if at is None else at - len(self.inputs)
            if i >= 0 and form is not None:
                view = with_bounds(r.view, buffers[i], unbound)
                view_base(view)
                view.__dict__["form"] = form  # it may be the next call's argument
            views.append(view)
        return _Memory(buffers, [memory(buffers[i], zeroed) for i, memory, zeroed in self.taken], views)

    def _change(self, given: Arguments, buffers: Sequence[UOp]) -> None:
        """Say that arguments are about to be updated in place."""
        updated = [b for stand_in, b in zip(self.inputs, buffers, strict=True) if stand_in in self.written]
        for stand_in, b in zip(self.inputs, buffers, strict=True):
            if stand_in in self.written:
                Device.place(self.homes[stand_in]).memory(b).change()
        for t, b in zip(given.tensors, map(view_base, given.views), strict=True):
            if b in updated:
                drop_history(t)

    def _arguments(self, given: Arguments) -> list[UOp]:
        """The memory of a call's arguments; where the plan updates it as other memory, a copy."""
        buffers = list(given.buffers)
        for i, (stand_in, b) in enumerate(zip(self.inputs, buffers, strict=True)):
            if b in self.used and (b in self.written or stand_in in self.written):
                # the plan does not know that these are one memory
                if stand_in in self.written:
                    raise ValueError(
                        "jit: an argument that is updated in place is memory the function also uses itself"
                    )
                buffers[i] = duplicate(b, self.homes[stand_in])
        return buffers


class Arguments:
    """What a call is given: tensors and the memory they are views of, and the values of variables."""

    __slots__ = ("buffers", "places", "storages", "tensors", "values", "views")

    def __init__(self) -> None:
        self.tensors: list[TensorCore] = []
        self.views: list[UOp] = []  # of the tensors
        self.buffers: list[UOp] = []  # distinct ones
        self.places: dict[UOp, int] = {}  # of the buffers
        self.storages: list[Storage] = []  # of the buffers
        self.values: dict[str, int] = {}

    def keys(self, values: Sequence[Any], named: dict[str, Any]) -> tuple[Any, ...]:
        """Equal for calls that one trace serves."""
        found: list[Any] = []
        for t in values:
            if not isinstance(t, TensorCore):
                found.append(self._key(t))
                continue
            view = t.uop
            buffer = view.__dict__.get("view_base", view)
            form: Form | None = view.__dict__.get("form")
            if form is None or buffer is not t.storage.memory:
                view, buffer, form = _in_memory(t)
            for name, number in form[1].items():
                self._bind(name, number)
            index = self.places.setdefault(buffer, len(self.buffers))
            if index == len(self.buffers):
                self.buffers.append(buffer)
                self.storages.append(t.storage)
            self.tensors.append(t)
            self.views.append(view)
            found.append((type(t), t.device, t.requires_grad, index, form[0], buffer.arg.spread))
        found.append(self._key(dict(sorted(named.items()))) if named else None)
        return tuple(found)

    def _key(self, value: Any) -> Any:
        if isinstance(value, TensorCore):
            return self.keys((value,), {})[0]
        if isinstance(value, UOp) and value.op is Ops.BIND:
            self._bind(value.src[0].arg[0], value.src[1].arg)
            return value.src[0]
        if isinstance(value, dict):
            return (type(value), tuple((k, self._key(v)) for k, v in value.items()))
        if isinstance(value, list | tuple):
            return (type(value), tuple(self._key(v) for v in value))
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = dataclasses.fields(value)
            return (type(value), tuple((f.name, self._key(getattr(value, f.name))) for f in fields))
        try:
            hash(value)
        except TypeError:
            raise TypeError(
                f"jit: an argument of type {type(value).__name__} can be neither traced nor compared: pass tensors, "
                "numbers, bound Variables, and lists, tuples, dicts and dataclasses of them"
            ) from None
        return (type(value), value)

    def _bind(self, name: str, value: int) -> None:
        if self.values.setdefault(name, value) != value:
            raise ValueError(f"Variable {name} is bound to both {self.values[name]} and {value} in one call")


NOTHING = Arguments()  # of a call without any


def _in_memory(t: TensorCore) -> tuple[UOp, UOp, Form]:
    """A tensor's view of memory, which it is given if it has none, the memory, and its form."""
    view: UOp | None = t.uop
    buffer = view_base(t.uop)
    if buffer is not t.storage.memory:
        if not owns_memory(t):
            own(t)
        view = memory_view(t.uop)
        assert view is not None
        buffer = view_base(view)
    assert view is not None
    return view, buffer, view.__dict__.get("form") or form_of(view, buffer)


def form_of(view: UOp, buffer: UOp) -> Form:
    """A view of any memory of that size, and the values of the variables in it. Kept on the node: most calls of a
    function are given what other calls were given."""
    any_memory = UOp(Ops.PARAM, buffer.dtype, (), ParamArg(0, buffer.arg.size))
    found = view.__dict__["form"] = (with_bounds(view, any_memory, lambda s: s), bindings([view]))
    return found


def _is_fixed(view: UOp) -> bool:
    """Whether no variable is in a view's bounds: it is the same in every call."""
    while view.op is not Ops.BUFFER:
        if view.op is Ops.SHRINK and not all(isinstance(s, int) for pair in view.arg for s in pair):
            return False
        view = view.src[0]
    return True


def with_bounds(view: UOp, base: UOp | None, bind: Callable[[Size], Size]) -> UOp:
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


def flattened(value: Any) -> tuple[Any, list[Result]]:
    """What a traced function returned with a Result for each tensor, and these."""
    found: list[Result] = []

    def result(value: Any) -> Any:
        if not isinstance(value, TensorCore):
            return value
        view = memory_view(value.uop)
        assert view is not None
        symbolic = with_bounds(view, None, unbound) is not view
        found.append(Result(type(value), view, view_base(view), value.storage, value.device, symbolic))
        return found[-1]

    return mapped(value, result), found


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """The same structure of lists, tuples, dicts and dataclasses with its leaves changed."""
    if isinstance(value, dict):
        filled = copy.copy(value)
        for k, v in value.items():
            filled[k] = mapped(v, change)
        return filled
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(mapped(v, change) for v in value))
    if isinstance(value, list | tuple):
        return type(value)(mapped(v, change) for v in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type | Result):
        changed: Any = copy.copy(value)
        for f in dataclasses.fields(value):
            object.__setattr__(changed, f.name, mapped(getattr(value, f.name), change))
        return changed
    return change(value)

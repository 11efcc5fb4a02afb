"""The schedule language: named actions on a kernel.

An action is checked (ScheduleError says what is wrong), prints as one line, and goes to JSON and back. Axes are named
as in the kernel; Split(axis) leaves `axis.0` (outer) and `axis.1` (inner). A schedule is a tuple of actions, applied
in order.

What search tries are the steps that each action proposes for a kernel: `candidates(kernel, target)` gives short tuples
of actions. They may be illegal; an action without that method is only varied where a heuristic uses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from functools import cache
from typing import Any, ClassVar, get_args, get_origin, get_type_hints

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import AxisKind, Ops, Space, UOp, as_index, axis_size, below, size_add, substitute
from tinyweb.graph.optimize.action import Action, Schedule
from tinyweb.graph.optimize.divide import Divide, reduced_in_parts
from tinyweb.graph.optimize.errors import ScheduleError, find_axis
from tinyweb.graph.optimize.fuse import Fuse
from tinyweb.graph.optimize.hoist import Hoist
from tinyweb.graph.optimize.instructions import INSTRUCTIONS
from tinyweb.graph.optimize.merge import Merge
from tinyweb.graph.optimize.online import Online
from tinyweb.graph.optimize.prefetch import Prefetch
from tinyweb.graph.optimize.reuse import Reuse
from tinyweb.graph.optimize.rewrite import loops_of, ranges_of, renamed, renumber, replace_range, updates_in_place
from tinyweb.graph.optimize.stage import Stage
from tinyweb.graph.optimize.tensorize import Factor, RFactor, Tensorize
from tinyweb.graph.optimize.whole_row import WholeRow
from tinyweb.graph.symbolic import divides, simplify
from tinyweb.graph.target import Target

MAX_LANES = 256
MAX_THREADS = 1024
LAST_THREADS = 3  # dimension of threads; those from the third on are the hardware's third
MAX_ACTIONS = 64  # of a schedule that is read
MAX_NAME = 80  # characters of an axis' name that is read
BLOCKS = (16, 32, 64, 128, 256)  # steps of a loop whose data may stay cached
TILES = (2, 4, 6, 8, 16, 32)  # lanes along one axis
GROUPS = (4, 8, 16, 32, 64, 128, 256)  # threads along one axis


def dimension(dim: int) -> str:
    """The name of a hardware dimension."""
    return "xyz"[dim] if 0 <= dim < 3 else str(dim)


@dataclass(frozen=True)
class Split(Action):
    """Axis i of size n becomes i.0 of size ceil(n / factor) and, inside it, i.1 of size `factor`: i = i.0 * factor +
    i.1.

    Where the factor does not divide the size, what lies beyond it is gated off (and not read: see replace_range).
    With `overlap` the last block of an output axis begins earlier instead and does some elements again; nothing is
    gated.
    """

    axis: str
    factor: int
    overlap: bool = False

    @property
    def outer(self) -> str:
        """The axis of blocks."""
        return f"{self.axis}.0"

    @property
    def inner(self) -> str:
        """The axis of a block's steps."""
        return f"{self.axis}.1"

    def apply(self, kernel: UOp) -> UOp:
        r = find_axis(kernel, self.axis)
        size = axis_size(r)
        f = self.factor
        self.require(f >= 1, "the factor must be at least 1")
        self.require_loop(r)
        blocks = -(-size // f) if isinstance(size, int) else simplify(as_index(size_add(size, f - 1)) // f)
        outer = renamed(r, self.outer, blocks)
        inner = renamed(r, self.inner, f)
        # a loop of one block or none is no loop any more: where there is none, what would be stored is gated
        some = r.arg.reduce or as_index(blocks).vmax > 1
        whole = size % f == 0 if isinstance(size, int) else divides(size, f) and some
        if self.overlap and not whole:
            again = not r.arg.reduce and as_index(size).vmin >= f and not updates_in_place(kernel)
            which = f"outputs, at least {f} of them, that are not updated in place"
            self.require(again, f"blocks may overlap only of {which}")
            start = (outer * f).minimum(as_index(size) + -f)
            return replace_range(kernel, r, start + inner, (outer, inner), None)
        # the halves have one order, and nest by their names
        divided = [u for u in kernel.toposort() if u.op in (Ops.FLOORDIV, Ops.MOD) and u.src[0] is r] if whole else []
        table = {u: simplify(u.replace(src=(outer * f + inner, u.src[1]))) for u in divided}
        # what is the same for a block does not vary with its steps
        kernel = substitute(kernel, table)
        return replace_range(kernel, r, outer * f + inner, (outer, inner), None if whole else as_index(size))

    @staticmethod
    def candidates(kernel: UOp, target: Target) -> Iterator[Schedule]:
        """Blocks of a loop, as they are and with the blocks around all other loops of their kind."""
        loops = _loops_left(kernel)
        for r in loops:
            others = [o.arg.name for o in loops if o is not r and o.arg.reduce == r.arg.reduce]
            for f in _factors(r, BLOCKS):
                split = Split(r.arg.name, f)
                yield (split,)
                if others:
                    yield split, Reorder((f"{r.arg.name}.0", *others))


@dataclass(frozen=True)
class Peel(Action):
    """A reduced axis i of size n becomes whole blocks i.0, i.1 of `factor` steps, and a reduction of its own over the
    n mod factor steps i.2 that are left. Unlike after a split nothing is gated, so that blocks can be vectors.
    """

    axis: str
    factor: int

    def apply(self, kernel: UOp) -> UOp:
        r = find_axis(kernel, self.axis)
        size = as_index(axis_size(r))
        f = self.factor
        self.require(f >= 1, "the factor must be at least 1")
        self.require(r.arg.reduce and r.arg.kind is AxisKind.LOOP, "the axis must be a loop that is reduced")
        if divides(size, f):
            return Split(self.axis, f).apply(kernel)
        # a loop that runs once at most is no loop any more, and would be walked even where it is empty
        long = size.vmax >= f if size.op is Ops.CONST else size.vmax >= 2 * f and f >= 3
        self.require(long, f"the axis may be too short for blocks of {f}")
        outer, inner = renamed(r, f"{self.axis}.0", simplify(size // f)), renamed(r, f"{self.axis}.1", f)
        rest, start = renamed(r, f"{self.axis}.2", simplify(size % f)), simplify(size // f * f)
        blocks = (outer, inner), outer * f + inner, UOp.const(f - 1, dtypes.index) < size
        return reduced_in_parts(self, kernel, r, [blocks, ((rest,), rest + start, start < size)])


@dataclass(frozen=True)
class Reorder(Action):
    """The named axes, outermost first, take each other's places in the nest; the others stay where they are."""

    axes: tuple[str, ...]

    def apply(self, kernel: UOp) -> UOp:
        chosen = [find_axis(kernel, a) for a in self.axes]
        self.require(len(set(chosen)) == len(chosen), "an axis is named twice")
        self.require(len({r.arg.reduce for r in chosen}) <= 1, "output axes and reduced axes nest apart")
        order, waiting = ranges_of(kernel), list(chosen)
        return renumber(kernel, [waiting.pop(0) if r in chosen else r for r in order])

    @staticmethod
    def candidates(kernel: UOp, target: Target) -> Iterator[Schedule]:
        """Each loop outermost, and innermost, among those of its kind."""
        loops = _loops_left(kernel)
        for reduce in (False, True):
            names = [r.arg.name for r in loops if r.arg.reduce == reduce]
            for i, name in enumerate(names):
                rest = names[:i] + names[i + 1 :]
                if i > 0:
                    yield (Reorder((name, *rest)),)
                if i < len(rest):
                    yield (Reorder((*rest, name)),)


@dataclass(frozen=True)
class Bind(Action):
    """The axis is carried out by `kind`: grid, thread, vector or unroll; `dim` is the hardware dimension (0 = x).
    Threads that have a reduced axis combine their results.
    """

    axis: str
    kind: AxisKind
    dim: int = 0

    def __str__(self) -> str:
        where = f".{dimension(self.dim)}" if self.kind in (AxisKind.GRID, AxisKind.THREAD) else ""
        return f"bind({self.axis}, {self.kind.name.lower()}{where})"

    def apply(self, kernel: UOp) -> UOp:
        r = find_axis(kernel, self.axis)
        size, kind = axis_size(r), self.kind
        self.require(kind not in (AxisKind.LOOP, AxisKind.ORDERED), "an axis is a loop unless it is bound")
        of_instruction = kind in (AxisKind.DOT, AxisKind.TILE)
        self.require(not of_instruction, "an axis becomes that of an instruction by tensorize")
        self.require_loop(r)
        hardware = kind in (AxisKind.GRID, AxisKind.THREAD)
        most = 0 if not hardware else 2 if kind is AxisKind.GRID else LAST_THREADS
        self.require(0 <= self.dim <= most, f"dimension {self.dim} does not exist")
        if kind is AxisKind.GRID:
            self.require(not r.arg.reduce, "workgroups cannot reduce together")
        elif not isinstance(size, int):
            raise ScheduleError(f"{self}: the size must be constant; split the axis first")
        elif kind is AxisKind.THREAD:
            others = [o for o in ranges_of(kernel) if o.arg.kind is AxisKind.THREAD and o.arg.dim == self.dim]
            for o in others:
                name, n = o.arg.name, axis_size(o)
                self.require(n == size, f"axis {name} has that dimension with size {n}, not {size}")
            self.require(size <= MAX_THREADS, f"{size} threads are more than {MAX_THREADS}")
            clash = _bound_together(kernel, r, others)
            if clash is not None:
                raise ScheduleError(f"{self}: axis {clash.arg.name} of the same value has that dimension already")
        else:
            self.require(size <= MAX_LANES, f"{size} lanes are more than {MAX_LANES}; split the axis first")
        for u in loops_of(kernel).stages if kind is not AxisKind.GRID else ():
            shared, threads = u.arg.space is Space.SHARED, kind is AxisKind.THREAD
            fixed = r in u.ranges and (shared or not threads)
            self.require(not fixed, "what was staged depends on the axis; bind it before the stage")
            filled = threads and shared and r.arg.reduce and _reduces(u.src[0], r)
            self.require(not filled, "the axis is reduced while threads fill memory together")
        bound = r.replace(arg=r.arg.__class__(r.arg.name, r.arg.order, kind, r.arg.reduce, self.dim))
        return replace_range(kernel, r, bound, (bound,), None)

    @staticmethod
    def candidates(kernel: UOp, target: Target) -> Iterator[Schedule]:
        """Lanes, threads and workers for what is left as loops: all of an axis, or the inner part of it."""
        for r in _loops_left(kernel):
            name = r.arg.name
            for kind in (AxisKind.VECTOR, AxisKind.UNROLL):
                yield from _inner(r, kind, 0, TILES)
            for steps in sorted({INSTRUCTIONS[i].steps for i in target.instructions} if r.arg.reduce else ()):
                if steps in _factors(r, (steps,)):
                    split = Split(name, steps)
                    found = (t for (t,) in Tensorize.candidates(split.apply(kernel), target))
                    yield from ((split, t) for t in found if isinstance(t, Tensorize) and t.axis == split.inner)
            if not r.arg.reduce:
                for dim in range(target.grid_dims):
                    yield (Bind(name, AxisKind.GRID, dim),)
            for dim in target.thread_dims:
                yield from _inner(r, AxisKind.THREAD, dim, GROUPS)


def _loops_left(kernel: UOp) -> list[UOp]:
    """Axes that are not bound yet, from the outside in; not those that fill staged memory."""
    loops = loops_of(kernel)
    filling = {r for u in loops.stages for r in u.src[1:]}
    return [r for r in loops.ranges if r.arg.kind is AxisKind.LOOP and r not in filling]


def _factors(r: UOp, among: Sequence[int]) -> list[int]:
    """Those of `among` that are smaller than the axis."""
    size = axis_size(r)
    return [f for f in among if f < (size if isinstance(size, int) else size.vmax)]


def _inner(r: UOp, kind: AxisKind, dim: int, among: Sequence[int]) -> Iterator[Schedule]:
    """The inner part of an axis bound, or all of it."""
    name, size = r.arg.name, axis_size(r)
    if isinstance(size, int) and size <= among[-1]:
        yield (Bind(name, kind, dim),)
    for f in _factors(r, among):
        split, bind = inner_part(name, f, kind, dim)
        yield split, bind
        if not divides(as_index(size), f) and kind is not AxisKind.THREAD:
            yield (Peel(name, f) if r.arg.reduce else Split(name, f, overlap=True)), bind


def inner_part(axis: str, factor: int, kind: AxisKind, dim: int = 0) -> tuple[Split, Bind]:
    """The inner `factor` steps of an axis, bound."""
    split = Split(axis, factor)
    return split, Bind(split.inner, kind, dim)


def _reduces(value: UOp, r: UOp) -> bool:
    """Whether a value that is staged is reduced over `r` while it is computed."""
    inside = below([value], lambda u: u.op not in (Ops.STAGE, Ops.RUNNING))
    return any(u.op is Ops.REDUCE and r in u.src[1:] for u in inside)


def _bound_together(kernel: UOp, r: UOp, others: Sequence[UOp]) -> UOp | None:
    """Of `others`, one that occurs in the same index or value as `r`: one thread index cannot stand for both."""
    if not others:
        return None
    for u in kernel.toposort():
        used = u.ranges.union(u.src[1:]) if u.op is Ops.REDUCE else u.ranges
        if r in used:
            for o in others:
                if o in used:
                    return o
    return None


ACTIONS: dict[str, type[Action]] = {
    a.name: a for a in (
        Split, Peel, Divide, Fuse, Reorder, Bind, Hoist, Stage, Online, RFactor, Factor, Tensorize,
        Prefetch, Reuse, WholeRow, Merge,
    )
}  # fmt: skip


def to_json(schedule: Iterable[Action]) -> list[dict[str, Any]]:
    """The schedule as JSON values."""
    return [{"action": a.name} | {k: _plain(v) for k, v in asdict(a).items()} for a in schedule]


def from_json(data: Sequence[Mapping[str, Any]]) -> Schedule:
    """The schedule that `to_json` wrote; ScheduleError naming what is not an action."""
    if not isinstance(data, list | tuple) or len(data) > MAX_ACTIONS:
        raise ScheduleError(f"a schedule is a list of at most {MAX_ACTIONS} actions")
    return tuple(_action(current) for entry in data for current in _current(entry))


def _current(entry: Any) -> list[Any]:
    """An entry as what it is called now: files keep what earlier versions found."""
    if not isinstance(entry, dict) or entry.get("action") != "group_reduce":
        return [entry]
    axis, factor, dim = entry.get("axis"), entry.get("factor"), entry.get("dim", 0)
    bind = {"action": "bind", "axis": f"{axis}.1", "kind": "thread", "dim": dim}
    return [{"action": "split", "axis": axis, "factor": factor}, bind]


def _action(entry: Any) -> Action:
    """One action, its fields checked against the types they are declared with."""
    kind = ACTIONS.get(str(entry.get("action"))) if isinstance(entry, dict) else None
    try:
        if kind is None:
            raise TypeError
        types = _fields(kind.name)
        given = {name: _read(value, types[name]) for name, value in entry.items() if name != "action"}
        return kind(**given)
    except (KeyError, TypeError, ValueError):
        raise ScheduleError(f"not an action of a schedule: {str(entry)[:200]}") from None


@cache
def _fields(action: str) -> dict[str, Any]:
    """The types of the fields of a kind of action, by name."""
    return {n: t for n, t in get_type_hints(ACTIONS[action]).items() if get_origin(t) is not ClassVar}


def _read(value: Any, kind: Any) -> Any:
    """A JSON value as a field of that type; TypeError, KeyError or ValueError where it is none."""
    if get_origin(kind) is tuple:
        if not isinstance(value, list | tuple) or len(value) > MAX_ACTIONS:
            raise TypeError
        return tuple(_read(v, get_args(kind)[0]) for v in value)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind[str(value).upper()]
    if type(value) is not kind:
        raise TypeError
    if (kind is int and abs(value) >= 1 << 31) or (kind is str and len(value) > MAX_NAME):
        raise ValueError
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.name.lower()
    return list(value) if isinstance(value, tuple) else value

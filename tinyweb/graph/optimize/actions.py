"""The schedule language: named actions on a kernel.

An action is checked (ScheduleError says what is wrong), prints as one line, and goes to JSON and back. Axes are named
as in the kernel; Split(axis) leaves `axis.0` (outer) and `axis.1` (inner). A schedule is a tuple of actions, applied
in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import AxisKind, KernelInfo, Ops, Space, UOp, as_index, axis_size, below, size_add, substitute
from tinyweb.graph.ir.kernel_spec import kernel_spec
from tinyweb.graph.ir.spec import verify
from tinyweb.graph.optimize.action import Action, Schedule, ScheduleError, find_axis
from tinyweb.graph.optimize.divide import Divide, reduced_in_parts
from tinyweb.graph.optimize.fuse import Fuse
from tinyweb.graph.optimize.hoist import Hoist
from tinyweb.graph.optimize.merge import Merge, prepared
from tinyweb.graph.optimize.online import Online
from tinyweb.graph.optimize.prefetch import Prefetch
from tinyweb.graph.optimize.reuse import Reuse
from tinyweb.graph.optimize.rewrite import loops_of, ranges_of, renamed, renumber, replace_range, updates_in_place
from tinyweb.graph.optimize.stage import Stage
from tinyweb.graph.optimize.tensorize import Factor, RFactor, Tensorize
from tinyweb.graph.optimize.whole_row import WholeRow
from tinyweb.graph.symbolic import divides, simplify

MAX_LANES = 256
MAX_THREADS = 1024
LAST_THREADS = 3  # dimension of threads; those from the third on are the hardware's third
MAX_ACTIONS = 64  # of a schedule that is read
MAX_NAME = 80  # characters of an axis' name that is read


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
    nodes = kernel.toposort() if others else ()
    used = (u.ranges.union(u.src[1:]) if u.op is Ops.REDUCE else u.ranges for u in nodes)
    return next((o for ranges in used if r in ranges for o in others if o in ranges), None)


ACTIONS: dict[str, type[Action]] = {
    a.name: a for a in (
        Split, Peel, Divide, Fuse, Reorder, Bind, Hoist, Stage, Online, RFactor, Factor, Tensorize,
        Prefetch, Reuse, WholeRow, Merge,
    )
}  # fmt: skip


# -- schedules applied to kernels --------------------------------------------------------------------------------------
def apply(kernel: UOp, schedule: Iterable[Action]) -> UOp:
    """The kernel after all actions; ScheduleError at the first that does not fit.

    Reductions that can share a loop are merged first: actions then name the ranges of the first of them.
    """
    whole = prepared(kernel)
    verify("merging reductions", whole, kernel_spec)
    actions = tuple(schedule)
    return finished(kernel, applied(whole, actions), actions)


def applied(kernel: UOp, actions: Iterable[Action]) -> UOp:
    """A prepared kernel, or what earlier actions have made of one, after further ones."""
    for action in actions:
        kernel = action.apply(kernel)
        verify(str(action), kernel, kernel_spec)
    return kernel


def finished(kernel: UOp, scheduled: UOp, actions: Iterable[Action]) -> UOp:
    """What `apply` returns once all actions have made `scheduled` of `kernel`."""
    info = kernel.arg if isinstance(kernel.arg, KernelInfo) else KernelInfo()
    lines = (*info.schedule, *(str(a) for a in actions))
    out = simplify(scheduled).replace(arg=KernelInfo(info.name, lines))
    verify("optimize", out, kernel_spec)
    return out


# -- JSON --------------------------------------------------------------------------------------------------------------
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
        types = _types(kind.name)
        given = {name: _read(value, types[name]) for name, value in entry.items() if name != "action"}
        return kind(**given)
    except (KeyError, TypeError, ValueError):
        raise ScheduleError(f"not an action of a schedule: {str(entry)[:200]}") from None


@cache
def _types(action: str) -> dict[str, Any]:
    """The types of the fields of a kind of action, by name."""
    return get_type_hints(ACTIONS[action])


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

"""The builder of schedules: actions are applied as they are chosen, and give back the axes that they leave.

A heuristic is written as a recipe of such steps. Whether a step is legal is what its action says of the kernel as it is
by then; a step that may fail is attempted, and the kernel stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TypeAlias, TypeVar

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import AxisKind, Ops, Size, Space, UOp, as_index, axis_size, size_max, users
from tinyweb.graph.optimize.action import Action, Schedule, ScheduleError, find_axis
from tinyweb.graph.optimize.actions import Bind, Peel, Reorder, Split, applied
from tinyweb.graph.optimize.analysis import Analysis
from tinyweb.graph.optimize.cost import threads_of
from tinyweb.graph.optimize.fuse import fuses
from tinyweb.graph.optimize.hoist import Hoist
from tinyweb.graph.optimize.instructions import INSTRUCTIONS, Instruction
from tinyweb.graph.optimize.rewrite import loops_of, ranges_of
from tinyweb.graph.optimize.stage import stages_of, whole_value
from tinyweb.graph.symbolic import const_factor, divides
from tinyweb.graph.target import Target

# elements: fewer are done sooner by one worker than the others are woken
WORTH_SHARING = 1 << 15
BLOCKS_PER_WORKER = 4
AGAIN = 8  # vectors of outputs, at least, of which the last may begin earlier

Mark: TypeAlias = tuple[Analysis, UOp, Schedule]
Choices: TypeAlias = Mapping[str, int]
T = TypeVar("T")


class Builder:
    """A schedule in the making: `k` is the kernel before it, `kernel` what the actions have made of it. `chosen`: which
    of a recipe's options it is to take, where it takes the first that fits otherwise.
    """

    def __init__(self, k: Analysis, target: Target, chosen: Choices = MappingProxyType({})):
        self.k, self.kernel, self.target = k, k.kernel, target
        self.actions: Schedule = ()
        self.chosen, self.offered = chosen, dict[str, int]()  # … and how many there were

    def options(self, what: str, every: Sequence[T]) -> Sequence[T]:
        """What a recipe may take, best first: all, or the one that was chosen."""
        self.offered[what] = max(self.offered.get(what, 0), len(every))
        number = self.chosen.get(what)
        return every if number is None else every[number : number + 1]

    # -- actions -----------------------------------------------------------------------------------------------
    def do(self, *actions: Action) -> None:
        """Apply them; ScheduleError, and nothing has happened, where one of them does not fit."""
        self.kernel, self.actions = applied(self.kernel, actions), (*self.actions, *actions)

    def attempt(self, *actions: Action) -> bool:
        """Apply all of them or, where one does not fit, none; whether they were."""
        try:
            self.do(*actions)
        except ScheduleError:
            return False
        return True

    def legal(self, *actions: Action) -> bool:
        """Whether they could be applied."""
        mark = self.mark()
        fits = self.attempt(*actions)
        self.back(mark)
        return fits

    def mark(self) -> Mark:
        """A state to go back to."""
        return self.k, self.kernel, self.actions

    def back(self, mark: Mark) -> None:
        self.k, self.kernel, self.actions = mark

    def follow(self, recipe: Callable[[], bool]) -> bool:
        """All of a recipe or, where it is not for the kernel or an action does not fit, nothing; whether it was all."""
        mark = self.mark()
        try:
            if recipe():
                return True
        except ScheduleError:
            pass
        self.back(mark)
        return False

    def first(self, options: Iterable[T], recipe: Callable[[T], bool]) -> bool:
        """Follow a recipe with the first of the options that it fits with; whether there is one."""
        return any(self.follow(partial(recipe, option)) for option in options)

    def rewrite(self, *actions: Action) -> None:
        """Actions after which the kernel is a different one to analyse, and has no axis bound yet."""
        self.do(*actions)
        self.k = Analysis(self.kernel)

    def fuse(self) -> None:
        """Make one axis of those that are walked over as one."""
        if actions := fuses(self.kernel):
            self.rewrite(*actions)

    def delinearize(self, among: Callable[[Analysis], Iterable[UOp]], least: int = 2) -> None:
        """An axis i becomes i // n and i % n, for each n of `least` steps or more that something `among` the kernel's
        nodes divides it by: choices are then of whole axes, loads follow one, and the groups of a convolution are one.
        """
        found: list[tuple[int, UOp]] = []
        for u in {x for root in among(self.k) for x in root.toposort()}:
            if u.op in (Ops.FLOORDIV, Ops.MOD) and u.src[0] in self.k.outputs and u.src[1].op is Ops.CONST:
                n, size = int(u.src[1].arg), self.k.exact(u.src[0])
                found += [(n, u.src[0])] if isinstance(size, int) and least <= n < size and size % n == 0 else []
        n, r = max(found, key=lambda f: (f[0], f[1].arg.order), default=(0, None))
        if r is not None and self.attempt(Split(r.arg.name, n)):
            self.rewrite()
            self.delinearize(among, least)

    @property
    def shares(self) -> bool:
        """Whether there is work for all workers, who may store side by side."""
        apart = all(self.target.stores_apart(s.src[0].dtype) for s in self.k.stores)
        return self.target.parallel_threads > 1 and self.k.work >= WORTH_SHARING and apart

    def instructions(self, together: bool = False, held: bool = False) -> list[Instruction]:
        """What the target does in one step, best first: each worker or thread alone, or threads together, in shared
        memory or (`held`) in their registers."""
        of_target = map(INSTRUCTIONS.__getitem__, self.target.instructions)
        return [i for i in of_target if (i.together, i.fragments is not None) == (together, held)]

    # -- axes --------------------------------------------------------------------------------------------------
    def has(self, axis: str) -> bool:
        """Whether there is an axis of that name."""
        return any(r.arg.name == axis for r in ranges_of(self.kernel))

    def exact(self, axis: str) -> Size:
        return axis_size(find_axis(self.kernel, axis, stays=True))

    def size(self, axis: str) -> int:
        """The largest size of an axis."""
        return size_max(self.exact(axis))

    def left(self, r: UOp) -> str:
        """What is a loop still of an axis of the kernel before the schedule; "" where nothing is."""
        name, filled = r.arg.name, {o for u in loops_of(self.kernel).stages for o in u.src[1:]}
        mine = (o for o in ranges_of(self.kernel) if o.arg.name == name or o.arg.name.startswith(f"{name}."))
        return next((o.arg.name for o in mine if o.arg.kind is AxisKind.LOOP and o not in filled), "")

    def threads(self) -> dict[int, int]:
        """How many threads a workgroup has, by dimension."""
        return threads_of(self.kernel)

    def steps(self, r: UOp) -> int:
        """Of what is left of an axis; 1 where nothing is."""
        return self.size(loop) if (loop := self.left(r)) else 1

    def split(self, axis: str, factor: int) -> tuple[str, str]:
        """The blocks of an axis, and the steps of one."""
        action = Split(axis, factor)
        self.do(action)
        return action.outer, action.inner

    def blocks(self, axis: str, factor: int) -> tuple[str, str]:
        """The same of blocks of which a shorter last one begins earlier where it may; else what lies beyond the end is
        gated."""
        size, shifted = self.exact(axis), Split(axis, factor, overlap=True)
        if isinstance(size, int) and size % factor and self.attempt(shifted):
            return shifted.outer, shifted.inner
        return self.split(axis, factor)

    def bind(self, axis: str, kind: AxisKind, dim: int = 0) -> None:
        self.do(Bind(axis, kind, dim))

    def reorder(self, *axes: str) -> None:
        """These axes, outermost first, take each other's places in the nest."""
        self.do(Reorder(axes))

    def tile(self, axis: str, factor: int, kind: AxisKind, dim: int = 0) -> str:
        """The inner `factor` of an axis is bound; what is left of it as a loop, or "".

        Lanes of a last, shorter block: it begins earlier where that is legal; of a reduction it is peeled off. Else,
        and for threads, what lies beyond the end is gated.
        """
        exact = self.exact(axis)
        if factor == exact:
            self.bind(axis, kind, dim)
            return ""
        if factor <= 1:
            return axis
        blocks = Split(axis, factor)
        lanes = kind in (AxisKind.VECTOR, AxisKind.UNROLL) and not divides(as_index(exact), factor)
        if not (lanes and (self.attempt(Peel(axis, factor)) or self.attempt(Split(axis, factor, overlap=True)))):
            self.do(blocks)
        self.bind(blocks.inner, kind, dim)
        return blocks.outer

    def vector(self, axis: UOp | None, width: int) -> str:
        """Vectors along an axis, if there is one; what is left of it as a loop, or ""."""
        return self.tile(axis.arg.name, width, AxisKind.VECTOR) if axis is not None else ""

    @property
    def aligned(self) -> bool:
        """Whether vectors are only loaded and stored at multiples of their width, as by threads."""
        return self.target.has_threads

    def width(self, accesses: list[UOp], r: UOp, limit: int) -> int:
        """The widest vector up to `limit` in which an access follows an axis: one that divides it, or that need not be
        aligned and leaves little over.
        """
        k, lanes, name = self.k, self.target.vector_lanes, r.arg.name
        factor, width = const_factor(k.exact(r)), limit
        while width > 1:
            divides = factor % width == 0
            narrow = factor % (width // 2) == 0 and width // 2 * 2 >= lanes
            if (divides or not self.aligned) and any(k.follows(a, r, width, self.aligned) for a in accesses):
                if divides:
                    return width
                # what is left over costs scalar steps; of several vectors of outputs, what is done again
                worth = width <= max(lanes, 8) and not narrow and (k.size(r) >= 4 * width or not r.arg.reduce)
                worth |= not r.arg.reduce and k.size(r) >= AGAIN * width
                if worth and self.legal(Peel(name, width) if r.arg.reduce else Split(name, width, overlap=True)):
                    return width
            width //= 2
        return 1

    def vector_axis(self, loads: list[UOp], limits: Iterable[tuple[UOp, int]], most: int) -> tuple[UOp | None, int]:
        """The axis that most loads follow in most lanes, of axes with the widest vector along each, and the vector's
        width; `most`: lanes that count.
        """
        found: list[tuple[tuple[int, int], UOp | None, int]] = [((0, 0), None, 1)]
        for r, limit in limits:
            if (width := self.width(loads, r, limit)) > 1:
                lanes = min(width, most)
                loads_at_once, traffic = self.k.merit(loads, r, lanes, self.aligned)
                found.append(((loads_at_once * lanes, traffic), r, width))
        return max(found, key=lambda one: one[0])[1:]

    def stored_axis(self, axes: Iterable[UOp], limit: Callable[[list[UOp]], int]) -> tuple[UOp | None, int]:
        """The axis that stores follow in the widest vectors, up to a limit for these stores, and their width."""
        best, found = None, 1
        for r in axes if not self.k.pointer_chasing else ():
            follow = [s for s in self.k.stores if self.k.contiguous(s, r)]
            if follow and (width := self.width(follow, r, limit(follow))) > found:
                best, found = r, width
        return best, found

    def hoist(self, axis: str, at: str) -> Callable[[str], str]:
        """A reduced loop goes around a step of `at`; how its sums' axes are called inside of it."""
        self.do(Hoist(axis, at))
        return lambda name: f"acc.{name}"

    def stage(self, loads: Iterable[UOp], at: str, space: Space = Space.REGISTER, pad: int = 0) -> bool:
        """Stage those of the loads that the kernel takes, and no others of their parameters; whether there are any.

        SHARED memory holds what is but converted as it is, where the target reads such types.
        """
        loads = list(loads)
        others = [u for u in self.k.summed if u not in loads]
        raw = space is Space.SHARED and all(self._narrow(u) for u in loads)
        return any([self.attempt(s) for s in stages_of(loads, others, at, space, pad, raw)])

    def _narrow(self, load: UOp) -> bool:
        """Whether a load of half floats, which the target computes with, is but cast before it meets other values."""
        value = whole_value(load, users([self.k.kernel]))
        half = load.dtype is dtypes.float16 and load.dtype in self.target.arithmetic
        return half and value.op is Ops.CAST and value.src[0] is load

    def loops(self, axes: Iterable[UOp]) -> list[str]:
        """What is left of axes as loops."""
        return [left for r in axes if (left := self.left(r))]

    def share(self, *axes: str) -> bool:
        """Loops over the workers, where there is work for all of them; whether there is."""
        for axis in axes if self.shares else ():
            self.bind(axis, AxisKind.GRID)
        return self.shares

    def grid(self, axes: Iterable[str]) -> None:
        """Loops over the workgroups, the longest first; the last ones share a dimension if need be."""
        for i, axis in enumerate(sorted(axes, key=self.size, reverse=True)):
            self.bind(axis, AxisKind.GRID, min(i, self.target.grid_dims - 1))

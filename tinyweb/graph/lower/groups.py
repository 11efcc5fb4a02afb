"""Which REDUCEs and STAGEs are carried out in one loop, and that no two of those loops are the same RANGE."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count

from tinyweb.graph.ir import AxisKind, Ops, Space, UOp, is_lane, nest_key, nested, substitute
from tinyweb.graph.lower.constructors import is_const


class Groups:
    """A kernel's REDUCEs, and STAGEs that a workgroup fills together, by what they share a loop or barriers with."""

    def __init__(self, kernel: UOp):
        self.kernel = kernel
        self.order = kernel.toposort()
        self.depth: dict[UOp, int] = {}
        self.groups: dict[tuple[object, ...], list[UOp]] = {}
        self.carried = {u.src[0]: u for u in self.order if is_carried(u)}
        joint = self._depths({})
        if joint:
            self._depths(joint)
        for u in self.order:
            if u in self.carried:
                # by its STAGE, which is part of the key: the loops over the block are shared as well
                key = (merge_key(u, self.depth[u] - 1), self.carried[u].src[1:])
                self.groups.setdefault(key, []).append(u)
            elif u.op is Ops.REDUCE:
                self.groups.setdefault(merge_key(u, self.depth[u] - 1), []).append(u)
            elif is_shared(u):
                self.groups.setdefault(stage_key(u, self.depth[u]), []).append(u)

    def _depths(self, at_least: dict[UOp, int]) -> dict[UOp, int]:
        """How many REDUCEs lie below each other in every node; and how deep those of joint loops must lie: a maximum
        and the sums that are rescaled with it are one group."""
        joint: dict[UOp, int] = {}
        members: dict[UOp, list[UOp]] = {}
        for u in self.order:
            if u.op is Ops.RUNNING:
                # a step's value needs no more than what the step reduces
                self.depth[u] = max(self.depth[u.src[0].src[0]], *(self.depth[s] for s in u.src[1:]))
                continue
            below = max((self.depth[s] for s in u.src), default=0)
            if u.op is Ops.REDUCE:
                below = max(below, at_least.get(u, 0)) + 1
                if u.src[0].op is Ops.RESCALE:
                    for x in maxima(u.src[0].src[1]):
                        members.setdefault(x, [x]).append(u)
            elif is_shared(u):
                below += 1
            self.depth[u] = below
        for group in members.values():
            deepest = max(self.depth[u] for u in group) - 1
            joint |= dict.fromkeys(group, deepest)
        return joint

    def nests(self) -> Iterator[tuple[list[UOp], set[UOp]]]:
        """What is carried out together in loops of its own, and those loops."""
        for members in self.groups.values():
            units = [self.carried.get(u, u) for u in members if not is_shared(u)]
            loops = {r for u in members if u.op is Ops.REDUCE for r in u.src[1:]}
            yield units, loops | {r for u in units if u.op is Ops.STAGE for r in u.src[1:]}
        for u in self.order:
            if u.op is Ops.STAGE and not is_shared(u) and u.src[0] not in self.carried:
                yield [u], set(u.src[1:])

    def separated(self) -> UOp | None:
        """The kernel with loops of their own for some that share a RANGE with others and no place; None if all differ.

        Sums that were merged part ways when one of them waits for shared memory that the other does not read, or does
        not depend on a loop further out.
        """
        first: dict[UOp, int] = {}
        for number, (units, bound) in enumerate(self.nests()):
            loops = [r for r in bound if r.op is Ops.RANGE and not is_lane(r) and not is_const(r.src[0], 1)]
            if any(first.setdefault(r, number) != number for r in loops):
                names = {r.arg.name for r in self.order if r.op is Ops.RANGE}
                prefix = next(p for p in (f"apart{i}." for i in count(1)) if not any(n.startswith(p) for n in names))
                own: dict[UOp, UOp] = {}
                for r in nested(loops):  # how many steps one has may follow from the step of one further out
                    steps = tuple(substitute(s, own) for s in r.src)
                    own[r] = r.replace(src=steps, arg=replace(r.arg, name=prefix + r.arg.name))
                return substitute(self.kernel, {u: _over(u, own) for u in units})
        return None


def _over(unit: UOp, own: dict[UOp, UOp]) -> UOp:
    """A unit of `nests` over other loops. A loop of the same name that ends further in is not this one: reductions that
    the unit needs stay as they are, or they would share its new loops as they did the old."""
    heads = {unit, unit.src[0]} if is_carried(unit) else {unit}
    ended = {x: x for x in unit.toposort() if x not in heads and own.keys().isdisjoint(x.ranges)}
    return substitute(unit, ended | own)


def groups_of(kernel: UOp) -> Groups:
    """The groups of the kernel, after those that cannot share a loop have been given loops of their own."""
    groups = Groups(kernel)
    while (other := groups.separated()) is not None:
        groups = Groups(other)
    return groups


def free_loops(u: UOp) -> list[UOp]:
    """The serial loops a node depends on, outermost first."""
    return nested(r for r in u.ranges if r.arg.kind is AxisKind.LOOP)


def loops_among(ranges: Sequence[UOp]) -> list[UOp]:
    """The ranges that are not lanes, outermost first."""
    return nested(r for r in ranges if not is_lane(r))


def is_carried(u: UOp) -> bool:
    """Whether a STAGE holds the sums of a reduction over loops that nest outside of the STAGE's own."""
    if u.op is not Ops.STAGE or u.src[0].op is not Ops.REDUCE or u.arg.space is not Space.REGISTER:
        return False
    loops, block = u.src[0].src[1:], loops_among(u.src[1:])
    plain = all(r.op is Ops.RANGE and r.arg.kind is AxisKind.LOOP for r in loops)
    return plain and bool(block) and max(map(nest_key, loops)) < nest_key(block[0])


def merge_key(u: UOp, depth: int) -> tuple[object, ...]:
    """REDUCEs with equal keys share their loops: independent of each other, in one place, over equal ranges."""
    bound = tuple(sorted(u.src[1:], key=_bound_key))
    if u.src[0].op is Ops.RESCALE:
        bound = tuple(r for r in bound if r.op is Ops.RANGE)  # threads part ways in the loop that all have in common
    return (depth, tuple(free_loops(u)), bound)


def is_shared(u: UOp) -> bool:
    """Whether a node is a STAGE that a workgroup fills together."""
    return u.op is Ops.STAGE and u.arg.space is Space.SHARED


def stage_key(u: UOp, depth: int) -> tuple[object, ...]:
    """Shared memories with equal keys are filled together, between the same barriers."""
    return (Ops.STAGE, depth, tuple(free_loops(u)), u.arg.slots - u.arg.lag)


def _bound_key(r: UOp) -> tuple[int, str]:
    return nest_key(r) if r.op is Ops.RANGE else (-1, str(r.arg))


def maxima(factor: UOp) -> list[UOp]:
    """The REDUCEs whose steps a factor of a RESCALE refers to."""
    found: dict[UOp, None] = {}
    for u in factor.toposort():
        if u.op is Ops.RUNNING:
            found[u.src[0]] = None
    return list(found)

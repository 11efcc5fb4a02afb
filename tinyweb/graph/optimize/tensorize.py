"""Tensorize: a part of a sum becomes an instruction of the processor; RFactor and Factor move axes of such sums."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from math import prod
from operator import mul

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import AxisKind, Ops, Space, UOp, nest_key, nested, row_major, substitute, users
from tinyweb.graph.optimize.action import Action, ScheduleError, find_axis
from tinyweb.graph.optimize.instructions import (
    INSTRUCTIONS,
    Instruction,
    Match,
    loaded,
    shifted_by,
    unify,
    unsigned_shift,
)
from tinyweb.graph.optimize.rewrite import filling, loops_of, replace_range, stage_of
from tinyweb.graph.optimize.stage import walked_inside
from tinyweb.graph.symbolic import divides, simplify, split_by

LARGEST = 1 << 31  # what integer sums must stay below


@dataclass(frozen=True)
class Tensorize(Action):
    """All that is reduced over an axis are sums that an instruction computes, the axis being its first.

    Where an operand is unsigned and what stands there is not, a constant is added to it, and as many times the sum of
    the other factors is subtracted: that sum is computed once for a step of loop `at`. If there is one, 4-bit integers
    with a sign or less a zero point become 0 … 15 for any instruction, as words of them are taken apart. Sums of
    threads together go to shared memory, of which each thread then reads its own.
    """

    axis: str
    instruction: str
    at: str = ""

    def apply(self, kernel: UOp) -> UOp:
        instruction = INSTRUCTIONS.get(self.instruction)
        if instruction is None:
            raise ScheduleError(f"{self}: there is no such instruction, but {', '.join(INSTRUCTIONS)}")
        r = find_axis(kernel, self.axis)
        self.require_loop(r)
        reduces = [u for u in kernel.toposort() if u.op is Ops.REDUCE and r in u.src[1:]]
        matches = {u: m for u in reduces if (m := unify(instruction, u, r)) is not None}
        self.require(matches and len(matches) == len(reduces), f"the instruction takes {instruction}")
        staged = any(r in u.ranges for u in loops_of(kernel).stages)
        self.require(not staged, "what was staged depends on the axis; tensorize before the stage")
        if self.at and not instruction.words and not instruction.unsigned_bytes:
            matches = {u: replace(m, shifts=_unsigned(m, instruction)) for u, m in matches.items()}
        shifted = {u: m for u, m in matches.items() if any(m.shifts)}
        if instruction.words:
            return self._of_words(kernel, r, matches)
        kernel = self._shifted(kernel, shifted) if shifted else kernel
        if instruction.together:
            kernel = substitute(kernel, {u: _together(u, m.tile) for u, m in matches.items()})
        bound = r.replace(arg=replace(r.arg, kind=AxisKind.DOT))
        return replace_range(kernel, r, bound, (bound,), None)

    def _of_words(self, kernel: UOp, r: UOp, matches: dict[UOp, Match]) -> UOp:
        """The kernel with the axis gone: the operands are memory of words."""
        table: dict[UOp, UOp] = {}
        for u, match in matches.items():
            dot = UOp(Ops.DOT, u.dtype, (*(self._word(f, r) for f in match.factors), UOp.const(0, u.dtype)))
            rest = tuple(x for x in u.src[1:] if x is not r)
            table[u] = u.replace(src=(dot, *rest)) if rest else dot
        kernel = substitute(kernel, table)
        slots = [u.arg.slot for u in kernel.toposort() if u.op is Ops.PARAM]
        self.require(len(set(slots)) == len(slots), "an operand is read elsewhere, too")
        return kernel

    def _word(self, factor: UOp, r: UOp) -> UOp:
        """What a factor has for all steps of the axis."""
        load, steps = factor.src[0] if factor.op is Ops.CAST else factor, r.src[0].arg
        memory = load.src[0] if load.op is Ops.LOAD and len(load.src) == 2 else load
        whole = memory.op is Ops.PARAM and memory.dtype is dtypes.int8 and memory.arg.size % steps == 0
        self.require(whole, "an operand is no memory of whole words")
        parts = split_by(load.src[1], r)
        if parts is None or parts[0] != 1 or not divides(parts[1], steps):
            raise ScheduleError(f"{self}: an operand is no word of memory")
        words = memory.replace(dtype=dtypes.uint32, arg=replace(memory.arg, size=memory.arg.size // steps))
        return words.load(simplify(parts[1] // steps))

    def _shifted(self, kernel: UOp, matches: dict[UOp, Match]) -> UOp:
        """Σ a · b as Σ (a + s) · b − s · Σ b."""
        at = find_axis(kernel, self.at, stays=True)
        self.require_place(at)
        table: dict[UOp, UOp] = {}
        kept: dict[tuple[int, tuple[UOp, ...]], UOp] = {}
        for u, match in matches.items():
            (a, b), (shift, other) = match.factors, match.shifts
            if not shift:
                (a, b), (shift, other) = (b, a), (other, shift)
            staged = any(x.op is Ops.LOAD and x.src[0].op is not Ops.PARAM for x in a.toposort())
            self.require(not other and not staged, "one operand is shifted, which is read of a parameter")
            shifted = shift, (b, *u.src[1:])
            if shifted not in kept:
                kept[shifted] = self._kept(b, -shift, u, at, f"raised{len(kept)}")
            table[u] = kept[shifted] + u.replace(src=(shifted_by(a, shift) * b, *u.src[1:]))
        return substitute(kernel, table)

    def _kept(self, other: UOp, factor: int, u: UOp, at: UOp, name: str) -> UOp:
        """The sums of what the shifted operand is multiplied with, times a factor, kept for a step of `at`."""
        ranges = nested(r for r in other.ranges if r not in u.src)
        tile = [r for r in ranges if walked_inside(r, at)]
        self.require_small(tile)
        tile.sort(key=lambda r: (r.arg.kind is AxisKind.VECTOR, nest_key(r)))
        copies = {}
        for i, r in enumerate((*tile, *u.src[1:])):
            kind = AxisKind.LOOP
            if r.arg.name == self.axis:
                kind = AxisKind.DOT
            elif r in u.src or (r is tile[-1] and r.arg.kind is AxisKind.VECTOR):
                kind = r.arg.kind
            copies[r] = filling(r, f"{name}.{r.arg.name}", i, kind)
        value = substitute(other * factor, copies)
        total = u.replace(src=(value, *(copies[r] for r in u.src[1:])))
        return stage_of(total, [copies[r] for r in tile]).load(row_major(tile)) if tile else total


def _together(u: UOp, tile: tuple[UOp, ...]) -> UOp:
    """A tile of sums in shared memory, and the element of it at hand."""
    kinds = AxisKind.UNROLL, AxisKind.VECTOR
    axes = [replace(r.arg, name=f"acc.{r.arg.name}", kind=k, reduce=True, dim=0) for r, k in zip(tile, kinds)]
    copies = {r: r.replace(arg=axis) for r, axis in zip(tile, axes)}
    return stage_of(substitute(u, copies), copies.values(), Space.SHARED).load(row_major(tile))


def _unsigned(match: Match, instruction: Instruction) -> tuple[int, ...]:
    """The shifts of a match, 4-bit integers being 0 … 15: those of one operand, unsigned or that varies most."""
    found = {i: up for i, f in enumerate(match.factors) if (up := unsigned_shift(f)) is not None}
    if not found:
        return match.shifts
    one = max(found, key=lambda i: (not instruction.operands[i].is_signed, len(match.factors[i].ranges), -i))
    return tuple(found[i] if i == one else s for i, s in enumerate(match.shifts))


def products(reduce: UOp) -> tuple[UOp, UOp] | None:
    """The two loads of a REDUCE that adds up products of small integers in int32, the narrower one first."""
    value = reduce.src[0]
    if reduce.arg is not Ops.ADD or reduce.dtype is not dtypes.int32 or value.op is not Ops.MUL:
        return None
    found = [x for s in value.src if (x := loaded(s)) is not None]
    if len(found) != 2:
        return None
    a, b = sorted(found, key=lambda u: u.dtype.bits)
    return (a, b)


@dataclass(frozen=True)
class RFactor(Action):
    """An axis of integer sums inside of a float sum goes to the float sum: Σ s · float(Σ v) becomes Σ Σ s · float(v).

    Each lane of the axis then has a sum of its own until the end, instead of being added up in every step of the outer
    sum. Only of integers that cannot overflow; where they are beyond 2²⁴, both ways round to float32, at other places.
    """

    axis: str

    def apply(self, kernel: UOp) -> UOp:
        r = find_axis(kernel, self.axis)
        inner = [u for u in kernel.toposort() if u.op is Ops.REDUCE and r in u.src[1:]]
        self.require(inner, "the axis is not reduced")
        above = users([kernel])
        changed: dict[UOp, UOp] = {}
        outer: dict[UOp, None] = {}
        for u in inner:
            steps = prod(s.src[0].vmax for s in u.src[1:])
            integers = u.arg is Ops.ADD and u.dtype.is_int
            exact = integers and max(-u.src[0].vmin, u.src[0].vmax) * steps < LARGEST
            self.require(exact, "it must be an axis of a sum of integers that cannot overflow")
            self.require(len(u.src) > 2, "no integer sum would be left inside")
            changed[u] = u.replace(src=tuple(s for s in u.src if s is not r))
            outer[self._float_sum(u, above)] = None
        table = {o: o.replace(src=(substitute(o.src[0], changed), *o.src[1:], r)) for o in outer}
        return substitute(kernel, table)

    def _float_sum(self, u: UOp, above: dict[UOp, list[UOp]]) -> UOp:
        """The sum that an integer sum is a term of, up to factors."""
        node = u
        while len(above[node]) == 1:
            (user,) = above[node]
            if user.op is Ops.REDUCE and user.arg is Ops.ADD and user.dtype is dtypes.float32:
                return user
            scaled = user.op is Ops.MUL and user.dtype is dtypes.float32 and user.src[0] is not user.src[1]
            cast = user.op is Ops.CAST and user.dtype is dtypes.float32 and node is u
            if not (scaled or cast):
                break
            node = user
        raise ScheduleError(f"{self}: the integer sum is no term of a sum of floats")


@dataclass(frozen=True)
class Factor(Action):
    """The axes of float sums are summed apart from the factors that do not vary along them: Σ Σ s · x · v becomes
    Σ s · Σ x · v.
    """

    axes: tuple[str, ...]

    def apply(self, kernel: UOp) -> UOp:
        axes = [find_axis(kernel, a) for a in self.axes]
        table: dict[UOp, UOp] = {}
        factors = False
        for u in kernel.toposort():
            sums = u.op is Ops.REDUCE and u.arg is Ops.ADD and u.dtype.is_float
            if not sums or not set(axes) <= set(u.src[1:]):
                continue
            parts = _factors(u.src[0])
            inside, outside = ([x for x in parts if x.ranges.isdisjoint(axes) == same] for same in (False, True))
            rest = tuple(r for r in u.src[1:] if r not in axes)
            if inside and (outside or rest):  # without factors too, so that sums that share a loop go on doing so
                value = reduce(mul, [*outside, u.replace(src=(reduce(mul, inside), *axes))])
                table[u] = u.replace(src=(value, *rest)) if rest else value
                factors = factors or bool(outside)
        self.require(factors, "no factor of a sum of floats is the same along them, and another is not")
        return substitute(kernel, table)


def _factors(value: UOp) -> list[UOp]:
    return [x for s in value.src for x in _factors(s)] if value.op is Ops.MUL else [value]

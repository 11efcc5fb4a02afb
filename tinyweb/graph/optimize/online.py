"""Online softmax: sums weighted by exponentials in one pass over blocks, the scores staged block by block.

A softmax followed by a weighted sum reads its scores three times: for the maximum m, for the sum of exp(s - m), and for
the sum of exp(s - m) · v. Kept up to date block by block, with what has been summed multiplied by exp(old m - new m)
whenever the maximum grows, all three are one pass (Milakov and Gimelshein, Online normalizer calculation for softmax,
2018; Dao et al., FlashAttention, 2022).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import prod

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import (
    AxisKind,
    Fragments,
    Ops,
    Space,
    StageArg,
    UOp,
    as_index,
    below,
    is_lane,
    nested,
    row_major,
    substitute,
)
from tinyweb.graph.ir.fragments import ROW_BYTES
from tinyweb.graph.optimize.action import Action, ScheduleError, find_axis
from tinyweb.graph.optimize.instructions import INSTRUCTIONS
from tinyweb.graph.optimize.rewrite import along_row, filling, gate_loads, replace_in_order, split_dim, stage_of
from tinyweb.graph.schedule.attention import Softmax, Weighted, is_minus_infinity, softmaxes
from tinyweb.graph.symbolic import clauses, divides, simplify, split_by
from tinyweb.graph.symbolic.compare import negated
from tinyweb.graph.symbolic.rules import holds

LEAST_ORDERED = -0x7F800001  # -inf as `ordered` has it
MAX_SCORES = 256  # of a block that one thread computes
MAX_BLOCK = 1024  # scores
WEIGHT_DIGITS = 20  # of weights that are rounded to half floats: their sum has more digits than these
MODERATE = 1e30  # of constants of scores
ALIGNED = 4  # keys: blocks begin at a multiple of so many


@dataclass(frozen=True)
class Online(Action):
    """The softmax whose maximum runs over `axis`, and the sums it weights, go through the row in blocks of `block`.

    Weights of a block lie in `space`. In REGISTER memory scores lie beside them, `together` computed side by side, as
    lanes of vectors if they are `vector`, and weights are vectors. For SHARED memory each thread keeps scores of its
    own: `across` threads of dimension x and `split` of dimension y, or z where y is bound to rows of scores, share a
    block, and each of the `split` sums its part of it; they combine their sums after the last block. Rows that are
    threads have weights each. Of a vector axis of the sums, `columns` lanes are summed at a time (0: all), so that a
    block's sums stay in registers. Blocks that a mask leaves nothing of are not walked. With an
    `instruction` whose matrices subgroups hold in registers, keys of a block are columns of its sums, and weights are
    rounded to the type of its operands, for a sum over the whole block: through SHARED memory, or in REGISTER memory
    of the threads that have them, where sums lie as operands do. Axis i becomes i.0 over blocks, and inside of it i.sum
    over a block's weights. Axes that only the sums vary over must be bound before.
    """

    axis: str
    block: int
    space: Space
    together: int = 1
    columns: int = 0
    across: int = 1
    split: int = 1
    vector: bool = False
    instruction: str = ""

    def apply(self, kernel: UOp) -> UOp:
        kernel = simplify(kernel)  # equal scores are told by their canonical form
        row, block, threads = find_axis(kernel, self.axis), self.block, self.across * self.split
        register = self.space is Space.REGISTER and not self.instruction
        kept = self.space in (Space.SHARED, Space.REGISTER)
        self.require(kept, "scores are kept in shared or register memory")
        equal = min(self.across, self.split) >= 1 and block % threads == 0 and (threads == 1 or not register)
        self.require(equal, "threads that share scores share a block in equal parts")
        whole = 1 <= block <= MAX_BLOCK and self.together >= 1 and block % self.together == 0
        self.require(whole, f"blocks have 1 to {MAX_BLOCK} scores, a multiple of those computed together")
        softmax = next((s for s in softmaxes(kernel) if s.row is row), None)
        if softmax is None:
            raise ScheduleError(f"{self}: no softmax with a weighted sum has its maximum over that axis")
        for r in (row, *(s.row for s in softmax.sums)):
            self.require_loop(r)
        for r in softmax.columns:
            fixed = r.arg.kind is not AxisKind.LOOP or (register and r.src[0].op is Ops.CONST)
            self.require(fixed, f"axis {r.arg.name} of the sums is a loop; bind it before")
        self._require_matrices()
        shared = (0, self.across > 1 or self.instruction), (split_dim(softmax.rows), self.split > 1)
        taken = {d for d, several in shared if several}
        rows = any(r.arg.kind is AxisKind.THREAD and r.arg.dim in taken for r in softmax.rows)
        self.require(not rows, "threads that share scores must work on the same rows")
        self.require(register or block <= threads * MAX_SCORES, f"a thread keeps at most {MAX_SCORES} scores")
        return _Steps(self, softmax).rewrite(kernel)

    def _require_matrices(self) -> None:
        """Of keys that are columns of an instruction's sums."""
        if not self.instruction:
            return
        f = self.fragments
        if f is None:
            raise ScheduleError(f"{self}: subgroups hold no matrices of that instruction in registers")
        self.require(self.across == self.split == 1, "threads share keys as the instruction's sums lie")
        alike = (i for i in INSTRUCTIONS.values() if i.operands == INSTRUCTIONS[self.instruction].operands)
        chained = self.space is Space.SHARED or any(i.fragments is not None and f.chains(i.fragments) for i in alike)
        self.require(chained, "weights go through shared memory: sums lie otherwise than operands")
        self.require(self.block % f.sums.shape[1] == 0, f"blocks are matrices of {f.sums.shape[1]} keys")
        self.require(all(d.of != "y" for d in f.sums.second), "columns of the sums are not a thread's own")

    @property
    def fragments(self) -> Fragments | None:
        """How subgroups hold the matrices, if they do."""
        instruction = INSTRUCTIONS.get(self.instruction)
        return None if instruction is None else instruction.fragments


class _Steps:
    """Builds the pass over blocks."""

    def __init__(self, action: Online, softmax: Softmax):
        self.action, self.softmax = action, softmax
        self.dtype = dtypes.float64 if softmax.score.dtype is dtypes.float64 else dtypes.float32
        self.lowest = UOp.const(-math.inf, self.dtype)
        row, block = softmax.row, action.block
        self.size = row.src[0]
        begin, end = visible(softmax.score, row)
        self.walked = self.size if end is None else self.size.minimum(end)
        mine = visible(softmax.score, row, threads=True)[1]
        self.summed = self.size if mine is None else self.size.minimum(mine)
        self.ends = _bounds(softmax.score, row)[1]
        # vectors of keys begin where those of the whole row do
        self.first = UOp.const(0, dtypes.index) if begin is None else begin // ALIGNED * ALIGNED
        blocks = simplify((self.walked - self.first + (block - 1)).maximum(0) // block)
        # loops over columns: all of their sums are made, and wait in registers until these loops come
        self.inner = {
            r: r.replace(arg=replace(r.arg, name=f"{r.arg.name}.sum", kind=AxisKind.UNROLL, reduce=True))
            for r in softmax.columns
            if r.arg.kind is AxisKind.LOOP
        }
        # around those loops no other is left where there is one block
        self.once = bool(self.inner) and blocks.op is Ops.CONST and blocks.arg == 1
        self.step = UOp.const(0, dtypes.index) if self.once else self._range("0", blocks)
        self.last = self.size + -1
        if self.size.vmin < 1 and blocks.vmax < 2:  # where a loop of one block or none is gone, so may the last key be
            self.last = self.last.maximum(0)
        self.whole = begin is None and divides(self.size, block)
        self.fragments = action.fragments

    def _range(self, suffix: str, size: UOp | int, kind: AxisKind = AxisKind.LOOP, dim: int = 0) -> UOp:
        return along_row(self.softmax.row, suffix, size, kind, dim)

    def _at(self, index: UOp) -> UOp:
        """Where in the row a score of the block at hand is."""
        return self.first + self.step * self.action.block + index

    def rewrite(self, kernel: UOp) -> UOp:
        action, softmax = self.action, self.softmax
        private = action.space is Space.REGISTER and self.fragments is None
        # vectors run along the keys, or along rows where these are vectors already
        vectors = private and not any(r.arg.kind is AxisKind.VECTOR for r in softmax.rows)
        lanes = AxisKind.VECTOR if vectors else AxisKind.LOOP
        begin, teams, mine = self._parts()
        # threads compare scores as integers, which takes one operation where NaN takes more
        shared = action.space is Space.SHARED and self.fragments is None
        encode, decode = (
            (lambda u: u, lambda u: u) if not shared or self.dtype is not dtypes.float32 else (ordered, from_ordered)
        )
        if private:
            scores, place = self._scores(), self._range("max", action.block, lanes)
            block = UOp(Ops.REDUCE, self.dtype, (scores.load(place), place), Ops.MAX)
            # once more for the weights, which come after the maximum
            own = [self._range("weight", action.block, lanes)]
            score = scores.load(own[0])
        else:
            own = [*teams, *mine]
            score = self._score(row_major(own))
            block = UOp(Ops.REDUCE, encode(score).dtype, (encode(score), *own), Ops.MAX)
        maximum = now = block
        factor = UOp.const(1.0, self.dtype)
        if not self.once:
            largest = UOp(Ops.REDUCE, block.dtype, (block, self.step), Ops.MAX)
            maximum = decode(largest)
            before = decode(UOp(Ops.RUNNING, block.dtype, (largest, self.step), False))
            now = decode(UOp(Ops.RUNNING, block.dtype, (largest, self.step), True))
            # what is equal is not subtracted: infinities have no distance
            factor = before.equal(now).where(factor, self._exponential(before, now))
        # … and of scores that are all -inf nothing
        weight = self._exponential(score, now.equal(-math.inf).where(UOp.const(0.0, self.dtype), now))
        weights = stage_of(weight, own, action.space) if self.fragments is None else self._rounded(weight, own)
        # only what exists, for a thread's own rows, is summed: nothing is multiplied by a weight of 0 not asked for
        each = action.block // action.split
        rest: UOp | int = each
        if self.fragments is None and (not self.whole or self.walked is not self.size):
            rest = as_index(each).minimum((self.summed - self._at(begin)).maximum(0))
        table: dict[UOp, UOp] = {softmax.maximum: maximum.cast(softmax.maximum.dtype)}
        nothing = maximum.equal(-math.inf)
        for i, s in enumerate(softmax.sums):
            name = f"sum{i}" if i else "sum"
            alone = s.alone  # weights of what is beyond the row are 0
            place = self._range(name, action.block, AxisKind.VECTOR) if alone and vectors else self._range(name, rest)
            loops = [*([] if self.once else [self.step]), *teams]
            if alone and not private:  # each thread adds up its own
                beside = [r for r in mine if is_lane(r)]
                value = UOp(Ops.REDUCE, self.dtype, (weight, *beside), Ops.ADD) if beside else weight
                loops += [r for r in mine if r not in beside]
            else:
                value = s.value if alone else self._walked_value(s)
                value = substitute(value, {s.exponential: weights.load(begin + place).cast(s.exponential.dtype)})
                value = self._inside(value, s.row) if self.fragments is not None else value
                value = substitute(value, {s.row: self._at(begin + place)} | self.inner).cast(self.dtype)
                value = self._in_parts(UOp(Ops.REDUCE, self.dtype, (value, place), Ops.ADD), i)
            total = value if self.once else UOp(Ops.RESCALE, self.dtype, (value, factor))
            total = UOp(Ops.REDUCE, self.dtype, (total, *loops), Ops.ADD) if loops else total
            if s.less.op is Ops.MAX:
                total = total * (softmax.maximum - s.less).alu(Ops.EXP).cast(self.dtype)
            elif softmax.plain:
                total = nothing.where(UOp.const(math.nan, self.dtype), total)
            for divisor in s.divisors:
                total = self._divided(total, divisor)
            table[s.reduce] = self._stored_later(s.of_row(total)).cast(s.reduce.dtype)
        return replace_in_order(kernel, table)

    def _walked_value(self, s: Weighted) -> UOp:
        """A weighted value without its condition, where that says no more than that the walk has not ended."""
        if self.fragments is not None or s.value.op is not Ops.WHERE:
            return s.value
        row = self.softmax.row
        bounds = [_bound(simplify(substitute(c, {s.row: row})), row) for c in clauses(s.value.src[0])]
        return s.value.src[1] if all(b is not None and b[1] and b[0] in self.ends for b in bounds) else s.value

    def _exponential(self, x: UOp, less: UOp) -> UOp:
        """exp(x - less). Of what is rounded to a narrow type no more digits are asked for than sums of all weights
        take."""
        if self.fragments is None:
            return (x - less).alu(Ops.EXP)
        log2e = math.log2(math.e)
        distance = x * log2e - less * log2e if _is_moderate(self.softmax) else (x - less) * log2e
        return UOp(Ops.EXP2, self.dtype, (distance,), WEIGHT_DIGITS)

    def _divided(self, total: UOp, divisor: UOp) -> UOp:
        """By the sum of a row's exponentials, which is 1 at least: one division serves all columns."""
        whole = divisor.src[0] if divisor.op is Ops.CAST else divisor
        divisor = divisor.cast(self.dtype)
        if any(whole is s.reduce and s.alone for s in self.softmax.sums):
            return total * UOp.const(1.0, self.dtype).alu(Ops.DIV, divisor)
        return total.alu(Ops.DIV, divisor)

    def _stored_later(self, total: UOp) -> UOp:
        """The sums of all columns that are loops, staged, and of them the one at hand."""
        lanes = [r for r in self.inner.values() if r in total.ranges]
        if not lanes:
            return total
        return stage_of(total, lanes).load(row_major(r for r, lane in self.inner.items() if lane in lanes))

    def _in_parts(self, total: UOp, number: int) -> UOp:
        """A block's sum, part by part of its lanes, where there are more than are summed at a time: of the innermost
        axis as many as fit, and so on outwards."""
        lanes = [r for r in nested(total.ranges) if is_lane(r) and r not in self.softmax.rows]
        left = self.action.columns
        if not left or prod(r.src[0].arg for r in lanes) <= left:
            return total
        table: dict[UOp, UOp] = {}
        ranges: list[UOp] = []
        for axis, r in enumerate(reversed(lanes)):
            size = r.src[0].arg
            self.action.require(len(lanes) > 1 or size % left == 0, f"{size} columns are not divided by {left}")
            width = size if size <= left else math.gcd(size, left)
            left //= width
            name = f"part{number}{f'.axis{axis}' if axis else ''}"
            own = [self._range(name, size // width)] if width < size else []
            table[r] = own[0] * width if own else UOp.const(0, dtypes.index)
            if width > 1:
                own.append(lane := self._range(f"{name}.1", width, r.arg.kind))
                table[r] = table[r] + lane if width < size else lane
            ranges[:0] = own
        return stage_of(substitute(total, table), ranges).load(row_major(lanes))

    def _parts(self) -> tuple[UOp, list[UOp], list[UOp]]:
        """How threads share a block: where the part at hand begins, the threads with a part each, and within a part the
        threads that compute its scores and the lanes of each."""
        action = self.action
        if self.fragments is not None:
            return UOp.const(0, dtypes.index), [], self._columns(self.fragments)
        each = action.block // action.split
        dim = split_dim(self.softmax.rows)
        teams = [self._range("split", action.split, AxisKind.THREAD, dim)] if action.split > 1 else []
        begin = teams[0] * each if teams else UOp.const(0, dtypes.index)
        mine = [self._range("key", action.across, AxisKind.THREAD)] if action.across > 1 else []
        return begin, teams, [*mine, self._range("key.1", each // action.across, AxisKind.VECTOR)]

    def _columns(self, fragments: Fragments) -> list[UOp]:
        """The keys of a block as columns of an instruction's sums: the digits that threads and vectors have, innermost
        first, and outside of them lanes."""
        out: list[UOp] = []
        left = self.action.block
        for i, d in enumerate(fragments.sums.second):
            if d.of != "e" or i == 0:
                kind = AxisKind.VECTOR if d.of == "e" else AxisKind.THREAD
                out.insert(0, self._range(f"key.{i + 1}", d.size, kind))
                left //= d.size
        return [self._range("key", left, AxisKind.UNROLL), *out] if left > 1 else out

    def _rounded(self, weight: UOp, own: Sequence[UOp]) -> UOp:
        """Weights as the instruction takes them: in shared memory a row of a block's keys after the other, or where
        they are."""
        operand = INSTRUCTIONS[self.action.instruction].operands[0]
        pad = ROW_BYTES * 8 // operand.bits if self.action.space is Space.SHARED else 0
        return UOp(Ops.STAGE, operand, (weight.cast(operand), *own), StageArg(self.action.space, pad, len(own)))

    def _inside(self, value: UOp, row: UOp) -> UOp:
        """`value`, which reads nothing beyond the row's end: zeros stand there."""
        return value if self.whole else gate_loads(value, row, row, self.step, row < self.size)

    def _scores(self) -> UOp:
        """The scores of a block, staged."""
        block, together = self.action.block, self.action.together
        ranges = [index := self._range("score", block // together)]
        if together > 1:
            kind = AxisKind.VECTOR if self.action.vector else AxisKind.UNROLL
            ranges.append(inner := self._range("score.1", together, kind))
            index = index * together + inner
        return stage_of(self._score(index), ranges, self.action.space)

    def _score(self, index: UOp) -> UOp:
        """A score of a block; beyond the row there are none."""
        softmax = self.softmax
        at = self._at(index)
        # vectors of neighbours, and matrices, leave out what does not exist
        gated = self.action.vector or self.fragments is not None
        score = self._inside(softmax.score, softmax.row) if gated else softmax.score
        inside = at if self.whole or gated else at.minimum(self.last)
        score = substitute(score, {softmax.row: inside}).cast(self.dtype)
        score = substitute(score, {u: self._once(u) for u in self._fixed(softmax.score)})
        return score if self.whole else (at < self.size).where(score, self.lowest)

    def _fixed(self, score: UOp) -> list[UOp]:
        """Factors of a score that do not vary along the row but take work: they are computed once. Not those that are
        read as they are needed."""
        out: dict[UOp, None] = {}
        row = self.softmax.row
        for u in score.toposort():
            if u.op is not Ops.REDUCE or row not in u.ranges or u.arg is not Ops.ADD:
                continue
            bound = set(u.src[1:])
            for x in below(u.src[:1], lambda x: row in x.ranges and x.op in (Ops.MUL, Ops.CAST)):
                flat = bound <= x.ranges and not any(s.op is Ops.REDUCE for s in x.toposort())
                constant = all(r.src[0].op is Ops.CONST for r in bound)
                read = x.src[0] if self.fragments is not None and x.op is Ops.CAST else x
                if row not in x.ranges and read.op is not Ops.LOAD and flat and constant:
                    out[x] = None
        return list(out)

    def _once(self, value: UOp) -> UOp:
        """`value`, staged."""
        bound = nested(r for r in value.ranges if r in self.softmax.inner)
        copies = {r: filling(r, f"{r.arg.name}.fixed", r.arg.order, r.arg.kind) for r in bound}
        return stage_of(substitute(value, copies), copies.values(), self.action.space).load(row_major(bound))


def _is_moderate(softmax: Softmax) -> bool:
    """Whether scores, times a small number, stay within their type: they are made of products and of no numbers near
    the least float, which masks have that are added or chosen."""
    floats = [u for u in softmax.score.toposort() if u.dtype.is_float]
    masks = (u for u in floats if u.op is Ops.LOAD and u.ranges.isdisjoint(softmax.inner))
    large = (u for u in floats if u.op is Ops.CONST and MODERATE < abs(u.arg) < math.inf)
    return not any(masks) and not any(large)


def visible(score: UOp, row: UOp, threads: bool = False) -> tuple[UOp | None, UOp | None]:
    """The first step of `row` and the one behind the last beyond which all scores are -inf, as far as they are known.
    They vary over loops and the grid, and hold for all lanes and threads; or vary over `threads` too."""
    bounds = _bounds(score, row, threads)
    begin, end = (reduce(merge, some) if some else None for some, merge in zip(bounds, (UOp.maximum, UOp.minimum)))
    return (
        simplify(begin.maximum(0)) if begin is not None else None,
        simplify(end.maximum(0)) if end is not None else None,
    )


def _bounds(score: UOp, row: UOp, threads: bool = False) -> tuple[list[UOp], list[UOp]]:
    """What each condition of a score says of the first step, and of the one behind the last."""
    bounds: tuple[list[UOp], list[UOp]] = ([], [])
    score = simplify(score)  # comparisons in their canonical form
    while score.op is Ops.CAST or (score.op is Ops.WHERE and score.dtype.is_float):
        if score.op is Ops.WHERE:
            condition, a, b = score.src
            masked = is_minus_infinity(a)
            if masked == is_minus_infinity(b):
                break
            for clause in clauses(simplify(condition.logical_not()) if masked else condition):
                if (found := _bound(clause, row)) is not None and (own := _of_all(*found, threads)) is not None:
                    bounds[found[1]].append(own)
            score = b if masked else a
        else:
            score = score.src[0]
    return bounds


def _bound(clause: UOp, row: UOp) -> tuple[UOp, bool] | None:
    """The first step of a row for which a comparison of integers, or its contrary, holds, or (True) the one behind the
    last. Nothing is loaded to know it."""
    contrary = negated(clause)
    comparison = clause if contrary is None else contrary
    if comparison.op is not Ops.LESS or not all(holds(dtypes.index, s) for s in comparison.src):
        return None
    less, more = (s.cast(dtypes.index) for s in comparison.src)
    parts = split_by(simplify(more - less), row)
    if parts is None or parts[0] not in (1, -1) or any(u.op is Ops.LOAD for u in parts[1].toposort()):
        return None
    # ± row + rest is above 0, or is not
    at = -parts[1] + 1 if parts[0] == 1 else parts[1]
    return at, (parts[0] == -1) == (contrary is None)


def _of_all(bound: UOp, last: bool, threads: bool) -> UOp | None:
    """A bound that holds for all lanes, and for all threads, unless these are to have bounds of their own."""
    for r in bound.ranges:
        if r.arg.kind in (AxisKind.LOOP, AxisKind.GRID) or (threads and r.arg.kind is AxisKind.THREAD):
            continue
        rises = _rises(bound, r)
        if rises is None or r.src[0].op is not Ops.CONST:
            return None
        bound = substitute(bound, {r: r.src[0] + -1 if rises == last else UOp.const(0, dtypes.index)})
    return bound


def _rises(u: UOp, r: UOp) -> bool | None:
    """Whether an index grows with a range, or falls; None if neither is known."""
    if u is r:
        return True
    parts = [s for s in u.src if r in s.ranges]
    if u.op is Ops.MUL and len(parts) == 1:
        (factor,) = (s for s in u.src if s is not parts[0])
        rises = _rises(parts[0], r)
        return None if factor.op is not Ops.CONST or rises is None else rises == (factor.arg > 0)
    if u.op not in (Ops.ADD, Ops.MAX):
        return None
    ways = {_rises(s, r) for s in parts}
    return ways.pop() if len(ways) == 1 else None


def ordered(score: UOp) -> UOp:
    """float32 as int32 in the same order: of negative numbers all bits but the sign are inverted. NaN with a sign is
    the least; weights are NaN of themselves."""
    bits = score.bitcast(dtypes.int32)
    return bits ^ (bits.alu(Ops.SHR, 31) & 0x7FFFFFFF)


def from_ordered(u: UOp) -> UOp:
    """`ordered` undone; what is less than -inf, as nothing is before the first block, is -inf."""
    u = u.maximum(LEAST_ORDERED)
    return (u ^ (u.alu(Ops.SHR, 31) & 0x7FFFFFFF)).bitcast(dtypes.float32)

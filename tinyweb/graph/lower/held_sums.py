"""Sums that a subgroup's threads compute together, each with a fragment of every matrix in its registers.

A kernel says of each thread which sums are its own, and reads an operand where they are. What the instruction wants of
a thread are other elements of the same matrix: the operand's expression with the numbers of its row (or column) and of
its step put in place of the axes that have their digits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import (
    Axis,
    AxisKind,
    BufferArg,
    Digit,
    Layout,
    MatrixArg,
    Ops,
    RowsArg,
    Space,
    UOp,
    is_lane,
    lane_count,
    substitute,
)
from tinyweb.graph.ir.fragments import REGISTER_BYTES, ROW_BYTES
from tinyweb.graph.lower.constructors import index_const, tile_index
from tinyweb.graph.optimize.instructions import Instruction, Match
from tinyweb.graph.symbolic import divides, simplify, split_by
from tinyweb.graph.target import Target

ROWS = 8  # of each of the matrices that are loaded for registers


class HeldSums:
    """A tile of such sums in `count` registers: `index` is where the lanes of one instruction's lie, `element` where
    the sum at hand does, `product` what a step adds. `lanes`: those that are reduced, the instruction's steps `dot`
    among them. `name`: of the axis of an instruction's sums.
    """

    def __init__(
        self, u: UOp, instruction: Instruction, match: Match, operands: Sequence[UOp], lanes: list[UOp], target: Target,
        name: str,
    ):  # fmt: skip
        f, self.target, self.match = instruction.fragments, target, match
        assert f is not None
        self.fragments, self.sums = f, (f.sums.first, f.sums.second)
        self.threads = [
            UOp(Ops.SPECIAL, dtypes.index, (index_const(n),), ("thread", dim)) for dim, n in enumerate(f.threads)
        ]
        (dot,) = (r for r in lanes if r.arg.kind is AxisKind.DOT)
        self.blocks = dict(self._blocks())
        raw = [_in_memory(x, t) for x, t in zip(operands, instruction.operands)]
        (a, of_a), (b, of_b) = (self._operand(i, raw[i], layout, dot) for i, layout in enumerate((f.a, f.b)))
        value = UOp(Ops.DOT, u.dtype, (a, b, UOp.const(0, u.dtype)), f)
        self.product = UOp(Ops.REDUCE, u.dtype, (value, *of_a, *of_b, *(r for r in lanes if r is not dot)), Ops.ADD)
        held = {r for axes in match.digits for r in axes}
        further = [r for x in raw for r in x.lanes if r not in held and r not in lanes]
        tiles, number = tile_index([*dict.fromkeys(further), *self.blocks.values()])
        size = f.sums.size
        self.within = _lanes(name, size, AxisKind.TILE, size)
        self.count, self.index = number * size, tiles * size + self.within
        back = {block: r // (lane_count(r) // lane_count(block)) for r, block in self.blocks.items()}
        self.element = simplify(substitute(tiles * size, back) + self._element())

    def spread(self, value: UOp) -> UOp:
        """What varies over the lanes of the sums, for those that `index` has."""
        taken: dict[UOp, int] = {}
        lane_of: dict[UOp, UOp] = {}
        for axes, digits in zip(self.match.digits, self.sums):
            for r, d in zip(axes, digits):
                if d.of == "e":
                    part = self.within // d.step % d.size * taken.get(r, 1)
                    lane_of[r] = lane_of[r] + part if r in lane_of else part
                    taken[r] = taken.get(r, 1) * d.size
        for r, block in self.blocks.items():
            part = block * taken.get(r, 1)
            lane_of[r] = lane_of[r] + part if r in lane_of else part
        return _elsewhere(value, lane_of)

    def _blocks(self) -> list[tuple[UOp, UOp]]:
        """Lanes of which an instruction takes a part, and those of the parts."""
        out = []
        for axes, digits in zip(self.match.digits, self.sums):
            for r in dict.fromkeys(r for r in axes if is_lane(r)):
                size = lane_count(r) // prod(d.size for x, d in zip(axes, digits) if x is r)
                if size > 1:
                    axis = Axis(r.arg.name, r.arg.order, AxisKind.UNROLL)
                    out.append((r, UOp(Ops.RANGE, dtypes.index, (index_const(size),), axis)))
        return out

    def _element(self) -> UOp:
        """Which of a thread's sums in an instruction's fragment the one at hand is."""
        place, taken = index_const(0), dict.fromkeys(self.blocks, 1)
        for axes, digits in zip(self.match.digits, self.sums):
            for r, d in zip(axes, digits):
                if d.of == "e":
                    place = place + r // taken.get(r, 1) % d.size * d.step
                    taken[r] = taken.get(r, 1) * d.size
        return place

    def _operand(self, i: int, value: UOp, layout: Layout, dot: UOp) -> tuple[UOp, tuple[UOp, ...]]:
        """What a thread's fragment of an operand has, and the lanes of its elements: of the first registers, or parts
        of them, then those in one."""
        if self.fragments.reads(i):
            return self._in_shared_memory(i, value, layout, dot), ()
        x, y, *z = (_lanes(f"{name}.{i}", n, AxisKind.LOOP) for name, n in zip("xyz", self.fragments.threads))
        run = layout.run
        outer, inner = (_lanes(f"{name}.{i}", n, AxisKind.DOT) for name, n in (("e", layout.size // run), ("f", run)))
        number, step = layout.place(x, y, outer * run + inner, *z)
        table = {dot: step, **self._axes(number, self.match.digits[i], self.sums[i])}
        value = _elsewhere(value, table)
        rows = self._rows(value, layout, x, y, outer, inner)
        if rows is not None:
            return rows, ()
        lanes = tuple(r for r in (outer, inner) if r.src[0].arg > 1)
        own = {r: index_const(0) for r in (outer, inner) if r not in lanes} | dict(zip((x, y), self.threads))
        for r, d in zip(self.match.digits[i], self.sums[i]):
            own |= {n: r % d.size for n in z if d.of == "z"}
        return substitute(value, own), lanes

    def _in_shared_memory(self, i: int, value: UOp, layout: Layout, dot: UOp) -> UOp:
        """An operand as a matrix that the instruction reads there: where it begins, and how far it is from a row, and
        from a step, to the next."""
        memory, index = value.src
        digits, table, taken = list[UOp](), dict[UOp, UOp](), dict[UOp, int]()
        for n, (r, d) in enumerate(zip(self.match.digits[i], self.sums[i])):
            digits.append(_lanes(f"digit{n}", d.size, AxisKind.LOOP))
            part = digits[-1] * taken.get(r, 1)
            table[r], taken[r] = table[r] + part if r in table else part, taken.get(r, 1) * d.size
        for r in table:
            beyond = r // taken[r] if r.op is Ops.SPECIAL else self.blocks.get(r)
            if beyond is not None:
                table[r] = table[r] + beyond * taken[r]
        index = simplify(substitute(index, table))
        strides = []
        for r in (*digits, dot):
            stride, index = split_by(index, r) or (None, index)
            strides.append(stride)
        *rows, step = strides
        below = [prod(d.size for d in self.sums[i][:n]) for n in range(len(rows))]
        if not isinstance(step, int) or not isinstance(rows[0], int) or rows != [rows[0] * n for n in below]:
            raise ValueError("a matrix that an instruction reads in shared memory does not lie there in rows")
        return UOp(Ops.LOAD, value.dtype, (memory, simplify(index)), MatrixArg(*layout.shape, rows[0], step))

    def _axes(self, number: UOp, axes: Sequence[UOp], digits: Sequence[Digit]) -> dict[UOp, UOp]:
        """What stands for the axes of a row or column, given its number."""
        out: dict[UOp, UOp] = {}
        below, taken = 1, dict.fromkeys(axes, 1)
        for r, d in zip(axes, digits):
            digit = number // below % d.size * taken[r]
            out[r] = out[r] + digit if r in out else digit
            below, taken[r] = below * d.size, taken[r] * d.size
        beyond = {
            r: r // taken[r] if r.op is Ops.SPECIAL else self.blocks[r]
            for r in out
            if r in self.blocks or r.op is Ops.SPECIAL
        }
        return {r: v + beyond[r] * taken[r] if r in beyond else v for r, v in out.items()}

    def _rows(self, value: UOp, layout: Layout, x: UOp, y: UOp, outer: UOp, inner: UOp) -> UOp | None:
        """The registers of a fragment loaded as whole rows of matrices in shared memory, each thread naming one; None
        where the operand is nothing of that kind."""
        if not self.target.loads_rows or value.op is not Ops.LOAD or len(value.src) > 2:
            return None
        memory, index = value.src
        nbytes, count = value.dtype.bits // 8, layout.size
        matrices = count * nbytes // REGISTER_BYTES
        shared = memory.buffer.op is Ops.BUFFER and memory.buffer.arg.space is Space.SHARED
        if not shared or self.fragments.threads != (4, ROWS) or layout.run * nbytes != REGISTER_BYTES or matrices != 4:
            return None
        mine = self.threads[0] + self.threads[1] * 4
        row, matrix = mine % ROWS, mine // ROWS
        for transposed in (False, True):
            along = [(y, 1)] if transposed else [(x, layout.run), (inner, 1)]
            if transposed and layout.run != 2:
                continue
            at: UOp | None = index
            for r, step in along:
                parts = None if at is None or lane_count(r) == 1 else split_by(at, r)
                at = at if lane_count(r) == 1 else parts[1] if parts is not None and parts[0] == step else None
            if at is None:
                continue
            place = {x: row // 2, inner: row % 2} if transposed else {y: row}
            at = simplify(substitute(at, {**place, outer: matrix}))
            if divides(at, ROW_BYTES // nbytes):
                return UOp(Ops.LOAD, value.dtype, (memory, at), RowsArg(count, transposed))
        return None


def _lanes(name: str, size: int, kind: AxisKind, dim: int = 0) -> UOp:
    return UOp(Ops.RANGE, dtypes.index, (index_const(size),), Axis(name, 1 << 20, kind, dim=dim))


def _elsewhere(value: UOp, table: Mapping[UOp, UOp]) -> UOp:
    """A value with what stands for its axes, simplified. Memory stays what it is: only where it is read changes."""
    memories = {u.src[0]: None for u in value.toposort() if u.op is Ops.LOAD}
    kept = {
        m: UOp(Ops.BUFFER, m.dtype, (), BufferArg(Space.REGISTER, -1 - i, m.buffer.arg.size))
        for i, m in enumerate(memories)
    }
    return substitute(simplify(substitute(value, {**table, **kept})), {b: m for m, b in kept.items()})


def _in_memory(factor: UOp, dtype: DType) -> UOp:
    """A factor in the type that an instruction takes: what is loaded as it lies in memory, unless it is widened."""
    value = factor.src[0] if factor.op is Ops.CAST else factor
    value = value.replace(dtype=value.src[0].dtype) if value.op is Ops.LOAD else value
    return factor if factor.dtype is dtype and value.dtype.bits < dtype.bits else value

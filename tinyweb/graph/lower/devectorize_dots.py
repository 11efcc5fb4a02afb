"""Sums of products of small integers as instructions of the target."""

from __future__ import annotations

from math import prod

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import AxisKind, MatrixArg, Ops, PlanesArg, RowsArg, UOp, lane_count
from tinyweb.graph.lower.constructors import lane, lanes_of, splat, stack
from tinyweb.graph.lower.devectorize_base import Chunk, Expansion, Point, chunk_at, chunks, points
from tinyweb.graph.lower.memory_access import SIGNS
from tinyweb.graph.optimize.instructions import (
    DOT_PAIRS,
    DOT_STEPS,
    FIELD,
    loaded,
    sign_shift,
    unsigned_shift,
    upper_planes,
)
from tinyweb.graph.symbolic import divides, simplify


class Dots(Expansion):
    """Which sums are instructions, and their operands as vectors."""

    def _dot_axes(self, u: UOp, along: UOp | None) -> tuple[UOp, ...]:
        """The DOT axis of a sum of products, if an instruction serves whole chunks of the VECTOR axis `along`. Of
        integers below 8 bits that are multiplied with bytes, also the axis of those in a byte.
        """
        dot = next((r for r in u.src[1:] if r.arg.kind is AxisKind.DOT), None)
        if dot is not None and along is not None and self.target.has_threads:
            return (dot,) if along.arg.kind is AxisKind.TILE else ()
        factors = small_factors(u.src[0])
        if dot is None or along is None or not factors or not self.target.dot_lanes:
            return ()
        steps, width = lane_count(dot), chunks(along, self.target)[0].width
        if width % 4 or (steps == DOT_PAIRS and width > 16):
            return ()
        tile = along.arg.kind is AxisKind.TILE
        if not tile and steps not in (DOT_STEPS, DOT_PAIRS):
            return ()
        halves = None
        for factor in factors:
            if factor.op is Ops.CONST and not tile:
                continue
            load = _load(factor)
            strides = self._affine_of(load.src[1])[1]
            if len(load.src) > 2 or self._is_variables(load.src[0].buffer):
                return ()
            if steps != DOT_PAIRS and load.src[0].dtype is dtypes.int16:
                return ()
            # smaller integers as words: the same one of each half word's four, or all of each byte
            bits = load.src[0].dtype.bits
            packed, word, in_byte = bits < 8, 32 // bits, 8 // bits
            if packed and (steps not in (DOT_STEPS, DOT_PAIRS) or (steps == DOT_PAIRS and bits != 4)):
                return ()
            of_bytes = packed and steps == DOT_STEPS
            step = (in_byte if of_bytes else FIELD) if packed else 1
            if strides.get(dot) != step:
                return ()
            if packed and (strides.get(along) != steps * step or not self.memory.has_words(load.src[0].buffer)):
                return ()
            if packed and not divides(simplify(self._affine_of(load.src[1])[0]), word):
                return ()
            if of_bytes:
                halves = next((r for r in u.src[1:] if strides.get(r) == 1 and lane_count(r) == in_byte), None)
                if halves is None:
                    return ()
            upper = upper_planes(factor)
            if upper and (
                halves is None or not all(self._words_beside(p, in_byte, (along, dot, halves)) for p in upper)
            ):
                return ()
            further = [(s, lane_count(r)) for r, s in strides.items() if r not in (along, dot, halves) and s % word]
            most = sum(s * (n - 1) for s, n in further)
            if packed and (any(s < 0 for s, _ in further) or most >= (1 if of_bytes else step)):
                return ()
        return (dot,) if halves is None else (dot, halves)

    def _words_beside(self, plane: UOp, in_byte: int, axes: tuple[UOp, UOp, UOp]) -> bool:
        """Whether words of an upper plane have the bits of all integers of a word of the lowest, which has so many in
        a byte, in the same bytes, those of one beside each other; `axes`: of words, bytes, and integers in one.
        """
        base, strides = self._affine_of(plane.src[1])
        word = 32 // plane.src[0].dtype.bits
        whole = len(plane.src) == 2 and self.memory.has_words(plane.src[0].buffer) and divides(simplify(base), word)
        further = [(s, lane_count(r)) for r, s in strides.items() if r not in axes and s % word]
        within = all(s % in_byte == 0 for s, _ in further) and sum(s * (n - 1) for s, n in further) < word // 4
        return whole and within and tuple(strides.get(r) for r in axes) == (word, word // 4, 1)

    def _plane_words(self, a: UOp, point: Point, along: UOp, dot: UOp) -> tuple[tuple[UOp, ...], PlanesArg]:
        """The words of each plane of integers, and where in them these are."""
        chunk, planes = chunk_at(point, along), (_load(a), *upper_planes(a))
        bits, words, places = tuple(p.src[0].dtype.bits for p in planes), [], []
        for plane in planes:
            start, word = (
                self._index({**point, along: chunk.first, dot: 0}, plane.src[1]),
                32 // plane.src[0].dtype.bits,
            )
            field = start.offset % word
            memory = self._place(plane.src[0])
            words.append(self.memory.raw(memory, plane.src[0].dtype, start.at(-field), chunk.width * word))
            places.append(field * bits[0] // 8)
        return tuple(words), PlanesArg(bits, tuple(places))

    def _dot_operand(self, factor: UOp, point: Point, along: UOp, dot: UOp) -> tuple[UOp, int | None]:
        """The elements for each lane of a chunk, for pairs int16. Those below 8 bits are the words they lie in, without
        signs; for pairs also which of each half word's four.
        """
        pairs, chunk = lane_count(dot) == DOT_PAIRS, chunk_at(point, along)
        if factor.op is Ops.CONST:
            kind = dtypes.int16 if pairs else dtypes.int8
            return splat(UOp.const(factor.arg, kind), chunk.width * lane_count(dot)), None
        memory, index = _load(factor).src[:2]
        if memory.buffer.dtype.bits < 8:
            start, word = self._index({**point, along: chunk.first, dot: 0}, index), 32 // memory.buffer.dtype.bits
            field = start.offset % word
            words = self.memory.raw(self._place(memory), memory.buffer.dtype, start.at(-field), chunk.width * word)
            if sign_shift(_load(factor)):
                words = words ^ splat(UOp.const(SIGNS, dtypes.uint32), lanes_of(words))
            return words, field if pairs else None
        elements = self._dot_elements(memory, index, point, along, dot)
        return (elements.cast(dtypes.int16) if pairs else elements), None

    def _dot_elements(self, memory: UOp, index: UOp, point: Point, along: UOp, dot: UOp) -> UOp:
        """The elements for each lane of a chunk; of an operand of a matrix instruction each of its rows once."""
        chunk, steps = chunk_at(point, along), lane_count(dot)
        lanes = range(chunk.first, chunk.first + chunk.width)
        places = [self._index({**point, along: i, dot: 0}, index) for i in lanes]
        if along.arg.kind is AxisKind.TILE:
            rows = along.arg.dim  # of the second operand, which varies first
            places = places[::rows] if places[0] == places[1] else places[:rows]
        count = steps * len(places)
        if places == [places[0].at(i) for i in range(0, count, steps)]:
            return self.memory.raw(self._place(memory), memory.buffer.dtype, places[0], count)
        parts = {p: self.memory.raw(self._place(memory), memory.buffer.dtype, p, steps) for p in places}
        return stack([lane(parts[p], k) for p in places for k in range(steps)])

    def _matrices(self, value: UOp, total: UOp, point: Point, dot: UOp, along: UOp) -> UOp:
        """Two matrices that a subgroup reads and multiplies."""
        chunk, columns = chunk_at(point, along), along.arg.dim
        operands, sizes = [], (chunk.width // columns, columns)
        for factor, (n, step) in zip(value.src, zip(sizes, (columns, 1))):
            load = _uncast(factor)
            start, arg = self._matrix(load.src[1], {**point, dot: 0}, (along, step), (dot, 1), n * lane_count(dot))
            place = self._place(load.src[0])
            operands.append(UOp(Ops.LOAD, place.dtype, (place, start), arg))
        return UOp(Ops.DOT, value.dtype, (*operands, total), sizes)

    def _held(self, u: UOp, point: Point, start: UOp | None) -> UOp:
        """Matrices of which each thread of a subgroup has a fragment, multiplied step by step."""
        a, b, zero = u.src[0].src
        total = splat(zero if start is None else start, u.src[0].arg.sums.size)
        for at in points([r for r in u.src[1:] if r.arg.kind is not AxisKind.DOT]):
            operands = [self._fragment(x, {**point, **at}) for x in (a, b)]
            total = UOp(Ops.DOT, u.dtype, (*operands, total), u.src[0].arg)
        return total

    def _fragment(self, value: UOp, point: Point) -> UOp:
        """A thread's elements of an operand: those beside each other in vectors."""
        if isinstance(value.arg, RowsArg | MatrixArg):
            return self.value(value, point)
        elements = [r for r in value.lanes if r.arg.kind is AxisKind.DOT]
        inner = [r for r in elements if r.arg.name.startswith("f")]
        along = {r: Chunk(0, lane_count(r)) for r in inner}
        parts = [
            splat(self.value(value, {**point, **at, **along}), prod(map(lane_count, inner)))
            for at in points([r for r in elements if r not in inner])
        ]
        return stack([lane(p, i) for p in parts for i in range(lanes_of(p))])

    def _matrix(
        self, index: UOp, point: Point, row: tuple[UOp, int], column: tuple[UOp, int], size: int
    ) -> tuple[UOp, MatrixArg]:
        """Where a matrix begins in memory, and its layout; `row`, `column`: an axis and its steps to the next one."""
        first = {**point, row[0]: 0, column[0]: 0}
        start, below, beside = (
            self._index({**first, **at}, index) for at in ({}, {row[0]: row[1]}, {column[0]: column[1]})
        )
        columns = row[1] if row[0] is column[0] else lane_count(column[0])
        assert start.base is below.base is beside.base
        steps = below.offset - start.offset, beside.offset - start.offset
        return start.index, MatrixArg(size // columns, columns, *steps)


def small_factors(value: UOp) -> tuple[UOp, ...]:
    """The factors of a product of small integers, narrow memory first: loads, those below 8 bits as 0 …, or a constant.

    Empty where it is no such product.
    """
    found = [_uncast(s) for s in value.src] if value.op is Ops.MUL else []
    return tuple(sorted(found, key=lambda f: (_bits(f), not _any_byte(f)))) if all(_bits(f) for f in found) else ()


def _bits(factor: UOp) -> int:
    """How wide the integers in memory are that a factor of a dot stands for; 0 for what is none."""
    if factor.op is Ops.CONST:
        return 8 if dtypes.int8.min <= factor.arg <= dtypes.int8.max else 0
    if _any_byte(factor):
        return 8
    found = loaded(factor)
    return found.src[0].dtype.bits if found is not None and unsigned_shift(factor) in (None, 0) else 0


def _any_byte(factor: UOp) -> bool:
    """Whether a factor is bytes without a sign, in memory or staged so."""
    return factor.op is Ops.LOAD and factor.src[0].dtype is dtypes.uint8


def _load(factor: UOp) -> UOp:
    if _any_byte(factor):
        return factor
    found = loaded(factor)
    assert found is not None
    return found


def _uncast(value: UOp) -> UOp:
    return value.src[0] if value.op is Ops.CAST else value

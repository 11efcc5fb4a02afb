"""Small constructors for program nodes: they fold what is constant at once, so that written-out indices stay short."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import Ops, UOp, lane_count

EXACT, LARGEST = (dtypes.int32, dtypes.float32), 1 << 24  # types that have all integers up to this one


def index_const(value: int) -> UOp:
    return UOp.const(value, dtypes.index)


def is_const(u: UOp, value: Any = None) -> bool:
    return u.op is Ops.CONST and (value is None or u.arg == value)


def make(op: Ops, dtype: DType, src: Sequence[UOp], arg: Any = None) -> UOp:
    """An elementwise node of integers or bools, folded where its sources are constant or neutral."""
    if len(src) == 2 and dtype.kind != "float" and src[0].dtype.kind != "float":
        a, b = src
        if a.op is Ops.CONST and b.op is Ops.CONST:
            folded = _fold(op, a, b)
            if folded is not None:
                return UOp.const(folded, dtype)
        if op is Ops.ADD:
            if is_const(a, 0):
                return b
            if is_const(b, 0):
                return a
            if b.op is Ops.CONST and a.op is Ops.ADD and a.src[1].op is Ops.CONST:
                return make(Ops.ADD, dtype, (a.src[0], UOp.const(a.src[1].arg + b.arg, dtype)))
        elif op is Ops.MUL:
            if is_const(a, 0) or is_const(b, 1):
                return a
            if is_const(b, 0) or is_const(a, 1):
                return b
        elif op is Ops.AND and dtype.kind == "bool":
            if is_const(a, True) or is_const(b, False):
                return b
            if is_const(b, True) or is_const(a, False):
                return a
        elif op is Ops.OR and dtype.kind == "bool":
            if is_const(a, False) or is_const(b, True):
                return b
            if is_const(b, False) or is_const(a, True):
                return a
        elif (op in (Ops.SHL, Ops.SHR) and is_const(b, 0)) or (op is Ops.FLOORDIV and is_const(b, 1)):
            return a
        elif op is Ops.MOD and is_const(b, 1):
            return UOp.const(0, dtype)
    elif op is Ops.WHERE and src[0].op is Ops.CONST:
        return src[1] if src[0].arg else src[2]
    elif op is Ops.CAST and is_const(a := src[0]) and a.dtype.is_int and dtype in EXACT and abs(a.arg) <= LARGEST:
        return UOp.const(a.arg, dtype)
    return UOp(op, dtype, tuple(src), arg)


def _fold(op: Ops, a: UOp, b: UOp) -> int | bool | None:
    function = _FOLDS.get(op)
    if function is None or (op in (Ops.FLOORDIV, Ops.MOD) and b.arg == 0):
        return None
    out: int | bool = function(a.arg, b.arg)
    return out


_FOLDS: dict[Ops, Callable[[Any, Any], Any]] = {
    Ops.ADD: operator.add, Ops.MUL: operator.mul, Ops.LESS: operator.lt, Ops.EQUAL: operator.eq, Ops.AND: operator.and_,
    Ops.OR: operator.or_, Ops.XOR: operator.xor, Ops.FLOORDIV: operator.floordiv, Ops.MOD: operator.mod, Ops.MAX: max,
    Ops.SHR: operator.rshift,
}  # fmt: skip


def add(a: UOp, b: UOp) -> UOp:
    return make(Ops.ADD, a.dtype, (a, b))


def both(a: UOp | None, b: UOp | None) -> UOp | None:
    """The conjunction of two gates, where None is true."""
    if a is None or b is None:
        return a if b is None else b
    return a if a is b else make(Ops.AND, dtypes.bool, (a, b))


def splat(u: UOp, width: int) -> UOp:
    """A scalar as a vector of `width` equal lanes."""
    return u if width == 1 or u.shape else UOp(Ops.STACK, u.dtype, (u,) * width)


def repeated(u: UOp) -> UOp | None:
    """The scalar that every lane of a value is; None where they differ."""
    if not u.shape:
        return u
    return u.src[0] if u.op is Ops.STACK and len(set(u.src)) == 1 else None


def stack(lanes: Sequence[UOp]) -> UOp:
    """A vector of scalars; the lanes of one whole vector in order are that vector."""
    if len(lanes) == 1:
        return lanes[0]
    first = lanes[0]
    if first.op is Ops.LANE and first.src[0].shape == (len(lanes),):
        vector = first.src[0]
        if all(u.op is Ops.LANE and u.src[0] is vector and u.arg == i for i, u in enumerate(lanes)):
            return vector
    return UOp(Ops.STACK, first.dtype, tuple(lanes))


def vector(values: Sequence[float], dtype: DType) -> UOp:
    """A vector of constants."""
    return stack([UOp.const(v, dtype) for v in values])


def lanes_of(u: UOp) -> int:
    """The number of lanes of a program's value: 1 for a scalar."""
    shape = u.shape
    width = shape[0] if shape else 1
    assert isinstance(width, int)
    return width


def lane(vector: UOp, i: int) -> UOp:
    """One scalar of a vector."""
    if vector.op is Ops.STACK:
        return vector.src[i]
    if vector.shape == ():
        return vector
    return UOp(Ops.LANE, vector.dtype, (vector,), i)


def pick(lanes: Iterable[tuple[UOp, int]]) -> UOp:
    """A vector of lanes of others: one shuffle, where they are of two."""
    return stack([UOp(Ops.LANE, v.dtype, (v,), i) for v, i in lanes])


def transposed(rows: Sequence[UOp]) -> list[UOp]:
    """The columns of 4, 8 or 16 rows of 4, 8 or 16 lanes, by shuffles of two vectors that processors have as one
    instruction: first within quads of lanes, then of whole quads.
    """
    count = lanes_of(rows[0]) // 4

    def unpack(a: UOp, b: UOp, unit: int) -> tuple[UOp, UOp]:
        """Units of both in turn: those of the lower half of each quad, and of the upper half."""
        starts = [[4 * q + h + u for q in range(count) for u in range(0, 2, unit)] for h in (0, 2)]
        low, high = (pick((v, i + k) for i in half for v in (a, b) for k in range(unit)) for half in starts)
        return low, high

    def quads(vectors: list[UOp], chosen: list[int]) -> UOp:
        """The chosen quads of each of the vectors."""
        return pick((v, 4 * q + k) for v in vectors for q in chosen for k in range(4))

    columns: list[list[UOp]] = [[], [], [], []]  # of each quad: the vectors with the quads of four rows each
    for i in range(0, len(rows), 4):
        (a, b), (c, d) = unpack(rows[i], rows[i + 1], 1), unpack(rows[i + 2], rows[i + 3], 1)
        for j, v in enumerate((*unpack(a, c, 2), *unpack(b, d, 2))):
            columns[j].append(v)
    out: list[UOp] = []
    pair = min(count, 2)
    for q in range(count):
        for parts in columns:
            if len(parts) < 4:
                out.append(quads(parts, [q]))
            else:
                near = [q // pair * pair + i for i in range(pair)]
                out.append(quads([quads(parts[:2], near), quads(parts[2:], near)], [q % pair, q % pair + pair]))
    return out


def tile_index(lanes: Sequence[UOp]) -> tuple[UOp, int]:
    """Row-major index of a lane in a tile, the last axis fastest, and the tile's number of lanes."""
    index, size = index_const(0), 1
    for r in reversed(lanes):
        index = add(make(Ops.MUL, dtypes.index, (r, index_const(size))), index)
        size *= lane_count(r)
    return index, size


def flatten(parts: list[tuple[UOp, int]]) -> UOp:
    """Row-major index over hardware indices, the last fastest."""
    index = index_const(0)
    for part, size in parts:
        index = add(make(Ops.MUL, dtypes.index, (index, index_const(size))), part)
    return index

"""What every part of devectorisation asks: chunks of lanes, points of a tile, and where an index leads at one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import NamedTuple, TypeAlias

from tinyweb.graph.ir import AxisKind, Ops, Space, UOp, lane_count, substitute, toposort
from tinyweb.graph.lower.constructors import index_const
from tinyweb.graph.lower.memory_access import Memory, Place
from tinyweb.graph.symbolic import simplify, split_by
from tinyweb.graph.target import Target


class Chunk(NamedTuple):
    """Lanes `first … first+width-1` of a VECTOR axis, together."""

    first: int
    width: int


Point: TypeAlias = "Mapping[UOp, int | Chunk]"
Affine: TypeAlias = "tuple[UOp, dict[UOp, int]]"  # base, stride of each lane that the base does not depend on


class Expansion:
    """A tile's values and memory at points. What a value becomes there is said by the class that derives from this."""

    def __init__(self, target: Target, arrays: frozenset[UOp]):
        self.target, self.arrays = target, arrays
        self.memory = Memory(target)
        self._values: dict[tuple[UOp, tuple[int | Chunk, ...]], UOp] = {}
        self._effects: dict[UOp, tuple[UOp, ...]] = {}
        self._affine: dict[UOp, Affine] = {}
        self._computed: dict[UOp, bool] = {}
        self._orders: dict[UOp, list[tuple[UOp, tuple[UOp, ...]]]] = {}
        self._register_lanes: dict[UOp, UOp | None] = {}  # REGISTER buffer -> the VECTOR axis its elements lie along
        self._bases: dict[tuple[UOp, tuple[int | Chunk, ...]], UOp] = {}
        self._transposed: dict[tuple[UOp, ...], list[UOp]] = {}

    def value(self, root: UOp, point: Point) -> UOp:
        """A value at a point: a scalar, or a vector of the lanes of a chunk."""
        raise NotImplementedError

    def _place(self, memory: UOp) -> UOp:
        return self._effects[memory][0]

    def _is_variables(self, buffer: UOp) -> bool:
        return buffer.op is Ops.BUFFER and buffer.arg.space is Space.REGISTER and buffer not in self.arrays

    def _affine_of(self, index: UOp) -> Affine:
        """The index as a constant stride for each lane it is linear in, and what is left without those."""
        if index not in self._affine:
            if self._is_computed(index):
                return self._affine.setdefault(index, (index, {}))
            base, strides = index, {}
            for r in index.lanes:
                parts = split_by(base, r)
                if parts is not None:
                    strides[r], base = parts[0], parts[1]
            self._affine[index] = (simplify(base), strides)
        return self._affine[index]

    def _is_computed(self, index: UOp) -> bool:
        """Whether an index is read from what loops of this kernel computed: those must stay the nodes they are."""
        if index not in self._computed:
            self._computed[index] = any(u.op is Ops.AFTER for u in toposort([index]))
        return self._computed[index]

    def _index(self, point: Point, index: UOp) -> Place:
        """An index at a point without chunks."""
        base, strides = self._affine_of(index)
        offset = sum(stride * at for r, stride in strides.items() if isinstance(at := point[r], int))
        lanes = base.lanes
        key = (base, tuple(point[r] for r in lanes))
        if key not in self._bases:
            numbers = {r: at for r in lanes if isinstance(at := point[r], int)}
            if lanes and not self._is_computed(index):
                base, numbers = simplify(substitute(base, {r: index_const(at) for r, at in numbers.items()})), {}
            self._bases[key] = self.value(base, numbers)
        base = self._bases[key]
        if base.op is Ops.ADD and base.src[1].op is Ops.CONST:
            base, offset = base.src[0], base.src[1].arg + offset
        return Place(index_const(0), base.arg + offset) if base.op is Ops.CONST else Place(base, offset)


def chunk_at(point: Point, axis: UOp) -> Chunk:
    """The lanes of an axis that stay together at a point."""
    chunk = point[axis]
    assert isinstance(chunk, Chunk)
    return chunk


def points(axes: list[UOp]) -> Iterator[Point]:
    """Every assignment of numbers to the axes, the last fastest."""
    for numbers in product(*(range(lane_count(r)) for r in axes)):
        yield dict(zip(axes, numbers))


def chunks(axis: UOp, target: Target) -> list[Chunk]:
    """A VECTOR axis in parts as wide as the target's vectors (a power of two) that divide it; a matrix as a whole."""
    size = lane_count(axis)
    width = size if axis.arg.kind is AxisKind.TILE else 1
    while width * 2 <= target.max_vector and size % (width * 2) == 0:
        width *= 2
    return [Chunk(i, width) for i in range(0, size, width)]

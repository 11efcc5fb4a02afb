"""Loads of tiles: runs of neighbours, blocks that are transposed in registers, every other element, gates."""

from __future__ import annotations

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import AxisKind, MatrixArg, Ops, RowsArg, UOp, lane_count
from tinyweb.graph.lower.constructors import both, index_const, lane, pick, splat, stack, transposed
from tinyweb.graph.lower.devectorize_base import Chunk, Expansion, Point, chunk_at, chunks
from tinyweb.graph.lower.memory_access import Run
from tinyweb.graph.symbolic import divides, simplify, split_by

QUAD = 4  # rows and columns of what is transposed in registers, at least


class Loads(Expansion):
    """What a LOAD becomes at a point."""

    def _load(self, u: UOp, point: Point) -> UOp:
        memory, index = u.src[:2]
        gate = u.src[2] if len(u.src) > 2 else None
        buffer = memory.buffer
        if isinstance(u.arg, RowsArg | MatrixArg):
            place = self._place(memory)
            return u.replace(dtype=place.dtype, src=(place, self._index(point, index).index))
        axis = next((r for r in u.lanes if isinstance(point[r], Chunk)), None)
        if self._is_variables(buffer):
            return self._load_register(u, buffer, point, axis)
        if axis is None:
            # (not integers: an index and the gate of what it reads are to be one and the same load)
            along = self._vector_in_memory(u) if self.target.has_threads and u.dtype.is_float else None
            if along is not None and isinstance(at := point[along], int):
                # what is read lane by lane is read as the vector it lies in
                width = chunks(along, self.target)[0].width
                return lane(self.value(u, {**point, along: Chunk(at // width * width, width)}), at % width)
            return self._load_run(u, point, None, None if gate is None else self.value(gate, point))
        if axis in index.lanes and self._affine_of(index)[1].get(axis) != 1:
            return (
                self._load_transposed(u, point, axis)
                or self._load_alternate(u, point, axis)
                or self._load_lanes(u, point, axis)
            )
        if gate is None or axis not in gate.lanes:
            return self._load_run(u, point, axis, None if gate is None else self.value(gate, point))
        uniform = self._uniform(gate, axis, point)
        if uniform is not None:
            return self._load_run(u, point, axis, uniform)
        if index.vmin >= 0 and index.vmax < buffer.arg.size:
            # reading too much does no harm where all of it is inside the buffer
            loaded = self._load_run(u, point, axis, None)
            chunk = chunk_at(point, axis)
            zero = splat(self._nothing(u), chunk.width)
            return UOp(Ops.WHERE, zero.dtype, (self.value(gate, point), splat(loaded, chunk.width), zero))
        return self._load_masked(u, point, axis) or self._load_lanes(u, point, axis)

    def _nothing(self, u: UOp) -> UOp:
        """What a load has that reads nothing: 0, or the bits of it where floats are moved as they lie in bytes."""
        moved = u.dtype.is_float and u.dtype is u.src[0].buffer.dtype
        return UOp.const(0, self._place(u.src[0]).buffer.dtype if moved else u.dtype)

    def _load_masked(self, u: UOp, point: Point, axis: UOp) -> UOp | None:
        """Lanes that lie side by side with a gate for each, in one load; None where the target has none."""
        memory, index, gate = u.src
        chunk, buffer = chunk_at(point, axis), memory.buffer
        plain = self.target.masked_loads and u.dtype.bits == 32 == buffer.dtype.bits
        if not plain or axis not in index.lanes or chunk.width < QUAD or chunk.width & (chunk.width - 1):
            return None
        start = self._index({**point, axis: chunk.first}, index)
        if self.memory.alignment(start) < chunk.width:
            return None
        return UOp(Ops.LOAD, u.dtype, (self._place(memory), start.index, self.value(gate, point)), chunk.width)

    def _vector_in_memory(self, u: UOp) -> UOp | None:
        """The axis of lanes along which what a LOAD reads lies side by side, in the buffer's own vectors."""
        index, gates = u.src[1], u.src[2:]
        for r in sorted(index.lanes, key=lambda r: r.arg.kind is not AxisKind.VECTOR):
            if r.arg.kind is not AxisKind.TILE and self._affine_of(index)[1].get(r) == 1:
                width = chunks(r, self.target)[0].width
                start = self._index({o: 0 for o in index.lanes}, index)
                whole = width > 1 and self.memory.alignment(start) % width == 0
                return r if whole and not any(r in g.lanes for g in gates) else None
        return None

    def _load_lanes(self, u: UOp, point: Point, axis: UOp) -> UOp:
        chunk = chunk_at(point, axis)
        return self._load_repeated(u, point, axis) or stack(
            [self.value(u, {**point, axis: chunk.first + i}) for i in range(chunk.width)]
        )

    def _load_repeated(self, u: UOp, point: Point, axis: UOp) -> UOp | None:
        """A chunk of which several lanes each have the same one of a few neighbours: these in one load. None where it
        is not so.
        """
        memory, index = u.src[:2]
        chunk = chunk_at(point, axis)
        plain = not self.target.has_threads and len(u.src) == 2 and u.dtype is memory.buffer.dtype
        if not plain or u.dtype.bits != 32:
            return None
        places = [self._index({**point, axis: chunk.first + i}, index) for i in range(chunk.width)]
        few = list(dict.fromkeys(places))
        count = len(few)
        if not 1 < count < chunk.width or count & (count - 1) or few != [few[0].at(i) for i in range(count)]:
            return None
        loaded = self._loaded(u, Run(few[0], count), 0, count, None)
        return stack([lane(loaded, few.index(p)) for p in places])

    def _load_transposed(self, u: UOp, point: Point, axis: UOp) -> UOp | None:
        """A chunk whose lanes lie apart, where steps of an UNROLL axis lie side by side: a block is loaded along these,
        and transposed in registers. None where there is none.
        """
        beside = self._beside(u.src[1], u.src[0].buffer)
        chunk = chunk_at(point, axis)
        if beside is None or len(u.src) > 2 or chunk.width < QUAD:
            return None
        at, blocks = point[beside], self._blocks(beside)
        assert isinstance(at, int)
        along = max((c for c in blocks if c.first <= at), key=lambda c: c.first)
        rows = [self.value(u, {**point, axis: chunk.first + i, beside: along}) for i in range(chunk.width)]
        return self._columns(tuple(rows))[at - along.first]

    def _load_alternate(self, u: UOp, point: Point, axis: UOp) -> UOp | None:
        """Every other element, out of two vectors: where another lane takes those between, the two that both read, else
        the second ends with the last one. None where it is not so.
        """
        memory, index = u.src[:2]
        chunk, gate, strides = chunk_at(point, axis), u.src[2] if len(u.src) > 2 else None, self._affine_of(index)[1]
        pair = next((r for r, s in strides.items() if s == 1 and r is not axis and lane_count(r) == 2), None)
        woven = gate is None and pair is not None and isinstance(point[pair], int)
        plain = u.dtype.bits == 32 == memory.buffer.dtype.bits and chunk.width >= QUAD
        if self.target.has_threads or strides.get(axis) != 2 or not (woven or plain):
            return None
        if gate is not None and (gate := self._uniform(gate, axis, point)) is None:
            return None
        if gate is not None and gate.op is Ops.CONST:
            if not gate.arg:
                return UOp.const(0, u.dtype)
            gate = None
        first = point[pair] if woven and pair is not None else 0
        assert isinstance(first, int)
        begin = {**point, axis: chunk.first, **({pair: 0} if woven and pair is not None else {})}
        start, width = self._index(begin, index), chunk.width
        second = width if woven else width - 1
        low, high = (self._loaded(u, Run(start.at(i), width), 0, width, gate) for i in (0, second))
        picked = range(first, width, 2)
        return pick([*((low, i) for i in picked), *((high, i + (not woven)) for i in picked)])

    def _beside(self, index: UOp, buffer: UOp) -> UOp | None:
        """The UNROLL axis whose steps lie side by side in memory, if blocks of them can be transposed in registers."""
        strides = self._affine_of(index)[1]
        beside = next((r for r, stride in strides.items() if stride == 1 and r.arg.kind is AxisKind.UNROLL), None)
        plain = not self.target.has_threads and buffer.dtype.bits >= 8 and buffer.dtype is not dtypes.bool
        return (
            beside if plain and beside is not None and lane_count(beside) >= QUAD <= self.target.vector_lanes else None
        )

    def _blocks(self, beside: UOp) -> list[Chunk]:
        """An axis in parts as wide as the target's vectors, or as powers of two below; the last may overlap."""
        count, width = lane_count(beside), QUAD
        while 2 * width <= min(count, self.target.vector_lanes):
            width *= 2
        return [Chunk(min(i, count - width), width) for i in range(0, count, width)]

    def _columns(self, rows: tuple[UOp, ...]) -> list[UOp]:
        if rows not in self._transposed:
            self._transposed[rows] = transposed(rows)
        return self._transposed[rows]

    def _load_run(self, u: UOp, point: Point, axis: UOp | None, gate: UOp | None) -> UOp:
        index = u.src[1]
        # lanes far away from this chunk may be read with it only where the gate covers them
        chunk_only = gate is not None and axis is not None and axis in u.src[2].lanes
        if gate is not None and gate.op is Ops.CONST:
            if not gate.arg:
                return self._nothing(u)
            gate = None
        if axis is None or axis not in index.lanes:
            return self._loaded(u, Run(self._index(point, index)), 0, 1, gate)
        chunk = chunk_at(point, axis)
        run, before = self._run_along(u, point, axis)
        if chunk_only:
            return self._loaded(u, Run(run.start.at(before + chunk.first), chunk.width), 0, chunk.width, gate)
        return self._loaded(u, run, before + chunk.first, chunk.width, gate)

    def _loaded(self, u: UOp, run: Run, first: int, width: int, gate: UOp | None) -> UOp:
        """Some elements of a run in the memory that a LOAD reads."""
        memory = u.src[0]
        return self.memory.load(self._place(memory), memory.buffer.dtype, u.dtype, run, first, width, gate)

    def _run_along(self, u: UOp, point: Point, axis: UOp) -> tuple[Run, int]:
        """The neighbouring elements that all lanes of the axis read, and how many lie before those of `point`.

        On a GPU lanes of other axes that read on from there belong to them: elements of one word share its load.
        """
        index, gates = u.src[1], u.src[2:]
        count, before, start = lane_count(axis), 0, {**point, axis: 0}
        strides = self._affine_of(index)[1] if self.target.has_threads else {}
        further = {stride: r for r, stride in strides.items() if r.arg.kind is AxisKind.UNROLL}
        while (r := further.get(count)) is not None and not any(r in g.lanes for g in gates):
            at = start[r]
            assert isinstance(at, int)
            before, start[r] = before + at * count, 0
            count *= lane_count(r)
        return Run(self._index(start, index), count), before

    def _load_register(self, u: UOp, buffer: UOp, point: Point, axis: UOp | None) -> UOp:
        """Registers are always accessed in the chunks they were stored in."""
        place = self._place(u.src[0])
        along = self._register_lanes[buffer]
        if axis is not None and axis is not along:
            return self._load_lanes(u, point, axis)
        if along is None:
            return UOp(Ops.LOAD, u.dtype, (place, self._index(point, u.src[1]).index), 1)
        if along not in point:  # an element that other axes say the number of
            start, width = self._index(point, u.src[1]), chunks(along, self.target)[0].width
            first = start.at(-(start.offset % width))
            return lane(UOp(Ops.LOAD, u.dtype, (place, first.index), width), start.offset % width)
        at = point[along]
        if isinstance(at, Chunk):
            start = self._index({**point, along: at.first}, u.src[1])
            return UOp(Ops.LOAD, u.dtype, (place, start.index), at.width)
        width = chunks(along, self.target)[0].width
        start = self._index({**point, along: at // width * width}, u.src[1])
        return lane(UOp(Ops.LOAD, u.dtype, (place, start.index), width), at % width)

    # -- gates -------------------------------------------------------------------------------------------------
    def _uniform(self, gate: UOp, axis: UOp, point: Point) -> UOp | None:
        """The gate as one scalar, where it is provably the same for all lanes of the chunk of `axis`."""
        if axis not in gate.lanes:
            return self.value(gate, point)
        if gate.op is Ops.AND:
            a, b = self._uniform(gate.src[0], axis, point), self._uniform(gate.src[1], axis, point)
            return None if a is None or b is None else both(a, b)
        chunk = chunk_at(point, axis)
        core = gate
        if core.op is Ops.XOR and core.src[1].op is Ops.CONST:
            core = core.src[0]
        if core.op is not Ops.LESS or not core.src[0].dtype.is_int:
            return None
        if all(axis not in s.lanes or axis in self._affine_of(s)[1] for s in core.src):
            # what is known of the first lane and of the last, and alike, is so for all between
            first, last = (self.value(gate, {**point, axis: chunk.first + i}) for i in (0, chunk.width - 1))
            if first is last and first.op is Ops.CONST:
                return first
        # a < b with the axis in a: true for all or none if the distance b - a at lane 0 is a multiple of the width
        parts = split_by(simplify(core.src[1] - core.src[0]), axis)
        if parts is None or parts[0] not in (1, -1):
            return None
        distance = parts[1] if parts[0] == -1 else index_const(1) - parts[1]
        if not divides(simplify(distance), chunk.width):
            return None
        return self.value(gate, {**point, axis: chunk.first})

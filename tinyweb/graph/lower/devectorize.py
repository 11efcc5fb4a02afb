"""Tiles expanded into the target's registers and vectors: the one step whose cost grows with the unroll factors.

Each effect is carried out for every lane it depends on. One VECTOR axis per effect stays together, in chunks of at most
`target.max_vector` lanes; all other lanes become single values. A value is emitted once per assignment of the lanes it
depends on: a `Point` gives each lane range a number, or a `Chunk` of the vector axis.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import ELEMENTWISE, AxisKind, Ops, Space, UOp, is_lane, lane_count, substitute, toposort
from tinyweb.graph.lower.constructors import both, index_const, lane, lanes_of, make, pick, splat, stack, transposed
from tinyweb.graph.lower.decompose import floor_division
from tinyweb.graph.lower.memory_access import Memory, Place, Run
from tinyweb.graph.optimize.instructions import DOT_PAIRS, DOT_STEPS, FIELD, NIBBLES, RAISE, SMALL
from tinyweb.graph.symbolic import divides, simplify, split_by
from tinyweb.graph.target import Target


@dataclass(frozen=True)
class Chunk:
    """Lanes `first … first+width-1` of a VECTOR axis, together."""

    first: int
    width: int


WORD = 8  # 4-bit integers of a word
QUAD = 4  # rows and columns of what is transposed in registers, at least

Point: TypeAlias = "Mapping[UOp, int | Chunk]"
Affine: TypeAlias = "tuple[UOp, dict[UOp, int]]"  # base, stride of each lane that the base does not depend on


def devectorize(sink: UOp, target: Target, arrays: frozenset[UOp] = frozenset()) -> tuple[UOp, Memory]:
    """The effects below `sink` without lanes; and what was found out about memory on the way.

    REGISTER buffers are variables, whole vectors of them where they have a VECTOR axis; those in `arrays` are memory.
    """
    devectorizer = _Devectorizer(target, arrays)
    (out,) = devectorizer.effects(sink)
    return out, devectorizer.memory


class _Devectorizer:
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

    # -- effects -----------------------------------------------------------------------------------------------
    def effects(self, root: UOp) -> tuple[UOp, ...]:
        """What an effect (or memory, or a loop) becomes: several effects, where it had lanes."""
        for u in self._effect_order(root):
            if u in self._effects:
                continue
            if u.op is Ops.STORE:
                self._effects[u] = self._store(u)
            elif u.op in (Ops.PARAM, Ops.BUFFER):
                self._effects[u] = (self.memory.declare(u),)
            elif u.op is Ops.RANGE:
                self._effects[u] = (u.replace(src=(self.value(u.src[0], {}),)),)
            else:
                src = tuple(e for s in u.src for e in self._dependency(s))
                self._effects[u] = (u.replace(dtype=src[0].dtype if u.op is Ops.AFTER else u.dtype, src=src),)
        return self._effects[root]

    def _dependency(self, u: UOp) -> tuple[UOp, ...]:
        """What must have happened: effects, or values that must have been read."""
        if u in self._effects:
            return self._effects[u]
        return tuple(dict.fromkeys(self.value(u, point) for point in _points(list(u.lanes))))

    def _effect_order(self, root: UOp) -> list[UOp]:
        """Effects, memory and loops below an effect, sources first. A value's loads lead to the memory they read."""
        done: dict[UOp, None] = {}
        seen: set[UOp] = set()
        stack: list[tuple[UOp, bool]] = [(root, False)]
        while stack:
            u, expanded = stack.pop()
            if expanded:
                done[u] = None
            elif u not in seen:
                seen.add(u)
                stack.append((u, True))
                stack.extend((s, False) for s in reversed(u.src) if s not in seen)
        kinds = (Ops.STORE, Ops.PARAM, Ops.BUFFER, Ops.AFTER, Ops.END, Ops.BARRIER, Ops.SINK)
        return [u for u in done if u.op in kinds or (u.op is Ops.RANGE and not is_lane(u))]

    def _place(self, memory: UOp) -> UOp:
        return self._effects[memory][0]

    def _store(self, u: UOp) -> tuple[UOp, ...]:
        memory, index, value = u.src[:3]
        gate = u.src[3] if len(u.src) > 3 else None
        lanes = tuple(dict.fromkeys(r for s in u.src[1:] for r in s.lanes))
        axis = self._statement_axis(memory.buffer, index, lanes)
        if self._is_variables(memory.buffer):
            self._register_lanes[memory.buffer] = axis
        where = self._place(memory)
        out: list[UOp] = []
        if axis is None and gate is None and (pair := self._interleaved(index, lanes)) is not None:
            axis, beside = pair
            for point in _points([r for r in lanes if r not in pair]):
                for c in _chunks(axis, self.target):
                    vectors = [self._vector(value, {**point, axis: c, **at}, axis) for at in _points([beside])]
                    mixed = [lane(v, i) for i in range(c.width) for v in vectors]
                    start = self._index({**point, axis: c.first, beside: 0}, index)
                    parts = [stack(mixed[i : i + c.width]) for i in range(0, len(mixed), c.width)]
                    out += self.memory.store(where, memory.buffer.dtype, start, parts, None)
            return tuple(out)
        if axis is not None and gate is None and self._affine_of(index)[1].get(axis) != 1:
            across = self._beside(index, memory.buffer)
            if across is not None and _chunks(axis, self.target)[0].width >= QUAD and not self.memory.partial_updates:
                # lanes that lie apart, but steps side by side: what is stored is transposed in registers
                for point in _points([r for r in lanes if r not in (axis, across)]):
                    for c, along in product(_chunks(axis, self.target), self._blocks(across)):
                        steps = range(along.first, along.first + along.width)
                        vectors = [self._vector(value, {**point, axis: c, across: j}, axis) for j in steps]
                        for i, column in enumerate(self._columns(tuple(vectors))):
                            start = self._index({**point, axis: c.first + i, across: along.first}, index)
                            out += self.memory.store(where, memory.buffer.dtype, start, [column], None)
                return tuple(out)

        def here() -> UOp:
            """The memory; where parts of words are updated, behind the last update, which may have been of one word."""
            return where.after(*out[-1:]) if self.memory.partial_updates else where

        for point in _points([r for r in lanes if r is not axis]):
            if axis is None:
                condition = None if gate is None else self.value(gate, point)
                out += self.memory.store(
                    here(), memory.buffer.dtype, self._index(point, index), [self.value(value, point)], condition
                )
                continue
            chunks: list[Point] = [{**point, axis: c} for c in _chunks(axis, self.target)]
            together = self._affine_of(index)[1].get(axis) == 1
            if together and gate is not None and axis in gate.lanes:
                flat = [self._uniform(gate, axis, p) for p in chunks]
                together = len(set(flat)) == 1 and flat[0] is not None
                # one gate for the whole run, or every chunk by itself
                if not together and all(g is not None for g in flat):
                    for p, g in zip(chunks, flat):
                        start = self._index({**p, axis: _first(p[axis])}, index)
                        out += self.memory.store(here(), memory.buffer.dtype, start, [self._vector(value, p, axis)], g)
                    continue
            if together:
                condition = None if gate is None else self.value(gate, {**point, axis: 0})
                start = self._index({**point, axis: 0}, index)
                values = [self._vector(value, p, axis) for p in chunks]
                out += self.memory.store(here(), memory.buffer.dtype, start, values, condition)
                continue
            for p in chunks:
                chunk = p[axis]
                assert isinstance(chunk, Chunk)
                vector = self._vector(value, p, axis)
                for i in range(chunk.width):
                    single = {**point, axis: chunk.first + i}
                    condition = None if gate is None else self.value(gate, single)
                    out += self.memory.store(
                        here(), memory.buffer.dtype, self._index(single, index), [lane(vector, i)], condition
                    )
        return tuple(out)

    def _is_variables(self, buffer: UOp) -> bool:
        return buffer.op is Ops.BUFFER and buffer.arg.space is Space.REGISTER and buffer not in self.arrays

    def _vector(self, value: UOp, point: Point, axis: UOp) -> UOp:
        """The value with as many lanes as `point` has of the axis, also where it does not depend on it."""
        chunk = point[axis]
        assert isinstance(chunk, Chunk)
        return splat(self.value(value, point), chunk.width)

    def _statement_axis(self, buffer: UOp, index: UOp, lanes: Iterable[UOp]) -> UOp | None:
        """The VECTOR axis that stays together in a store: the one its elements lie along, else the innermost."""
        vectors = [r for r in lanes if r.arg.kind is AxisKind.VECTOR and _chunks(r, self.target)[0].width > 1]
        strides = self._affine_of(index)[1]
        together = [r for r in vectors if strides.get(r) == 1]
        if buffer.op is Ops.BUFFER:
            return together[0] if together else None
        return together[0] if together else (vectors[-1] if vectors else None)

    def _interleaved(self, index: UOp, lanes: Iterable[UOp]) -> tuple[UOp, UOp] | None:
        """A VECTOR axis between whose elements those of an UNROLL axis lie: vectors are stored element by element in
        turn.
        """
        strides = self._affine_of(index)[1]
        beside = next((r for r in lanes if r.arg.kind is AxisKind.UNROLL and strides.get(r) == 1), None)
        if beside is None or self.memory.partial_updates:
            return None
        vector = next(
            (r for r in lanes if strides.get(r) == lane_count(beside) and r.arg.kind is AxisKind.VECTOR), None
        )
        return (vector, beside) if vector is not None and _chunks(vector, self.target)[0].width > 1 else None

    # -- values ------------------------------------------------------------------------------------------------
    def value(self, root: UOp, point: Point) -> UOp:
        """The node for `root` at `point`: a scalar, or a vector if `root` depends on an axis that `point` gives a
        Chunk.
        """
        values = self._values
        order = self._orders.get(root)
        everything = order or [(u, u.lanes) for u in self._value_order(root)]
        for u, lanes in everything:
            key = (u, tuple([point[r] for r in lanes]))
            if key not in values:
                values[key] = self._expand(u, point)
        if order is None:
            # what has no lanes is known from now on
            self._orders[root] = [(u, lanes) for u, lanes in everything if lanes or u is root]
        return self._known(root, point)

    def _value_order(self, root: UOp) -> list[UOp]:
        """Nodes of one value that are not known yet, sources first; loads and sums over lanes look after their sources
        themselves.
        """
        done: dict[UOp, None] = {}
        stack: list[tuple[UOp, bool]] = [(root, False)]
        while stack:
            u, expanded = stack.pop()
            if u in done:
                continue
            if expanded or u.op in (Ops.LOAD, Ops.REDUCE, Ops.RANGE):
                done[u] = None
                continue
            stack.append((u, True))
            _, summand = self._chain(u)
            for s in reversed(u.src):
                if s not in done and s is not summand and (s, ()) not in self._values:
                    stack.append((s, False))
        return list(done)

    def _chain(self, u: UOp) -> tuple[UOp | None, UOp | None]:
        """acc and the sum in `acc + sum over lanes`, of integers in either order: a chain that starts at acc."""
        if u.op is Ops.ADD:
            for acc, total in (u.src, u.src[::-1]) if u.dtype.is_int else (u.src,):
                if acc.op is Ops.LOAD and total.op is Ops.REDUCE and total.arg is Ops.ADD:
                    return acc, total
        return None, None

    def _known(self, u: UOp, point: Point) -> UOp:
        return self._values[(u, tuple([point[r] for r in u.lanes]))]

    def _expand(self, u: UOp, point: Point) -> UOp:
        if u.op is Ops.CONST or u.op is Ops.VARIABLE:
            return u
        if u.op is Ops.RANGE:
            if not is_lane(u):
                return self._effects[u][0]
            at = point[u]
            if isinstance(at, int):
                return index_const(at)
            return stack([index_const(at.first + i) for i in range(at.width)])
        if u.op is Ops.LOAD:
            return self._load(u, point)
        if u.op is Ops.REDUCE:
            return self._reduce(u, point, None)
        acc, summand = self._chain(u)
        if acc is not None and summand is not None:
            start = self._known(acc, point)
            if start.shape and not any(isinstance(point[r], Chunk) for r in summand.lanes):
                # one sum beside a vector: a chain per lane would be the same work again and again
                return u.replace(src=(start, splat(self._reduce(summand, point, None), lanes_of(start))))
            return self._reduce(summand, point, start)
        src = [self._known(s, point) for s in u.src]
        width = max(lanes_of(s) for s in src) if src else 1
        if width > 1 and (u.dtype is dtypes.index or u.op in (Ops.FLOORDIV, Ops.MOD)):
            # lane by lane: indices mostly fold to constants, and bounds are known of scalars
            return stack([self._scalar(u, [lane(splat(s, width), i) for s in src]) for i in range(width)])
        if width > 1:
            if u.op is Ops.WHERE and src[0].shape and self.target.language == "wgsl":
                axis = next(r for r in u.src[0].lanes if isinstance(point[r], Chunk))
                src[0] = self._uniform(u.src[0], axis, point) or src[0]
            return u.replace(src=tuple(splat(s, width) for s in src))
        if u.op in ELEMENTWISE:
            return self._scalar(u, src)
        return u.replace(src=tuple(src))

    def _scalar(self, u: UOp, src: list[UOp]) -> UOp:
        # divisions last, because what is known of index arithmetic is known of floor division alone
        if u.op in (Ops.FLOORDIV, Ops.MOD) and (src[0].vmin < 0 or src[1].vmin <= 0):
            return floor_division(u, src[0], src[1])
        return make(u.op, u.dtype, src, u.arg)

    def _reduce(self, u: UOp, point: Point, start: UOp | None) -> UOp:
        """A reduction over lanes: vectors first as a whole, then their lanes in pairs."""
        inner, axes = u.src[0], list(u.src[1:])
        vector = next((r for r in axes if r.arg.kind is AxisKind.VECTOR and _chunks(r, self.target)[0].width > 1), None)
        outer_chunk = [r for r in u.lanes if isinstance(point[r], Chunk)]
        along = vector if vector is not None else outer_chunk[0] if outer_chunk else None
        dot = self._dot_axes(u, along) if vector is None or not outer_chunk else ()
        for r in dot:
            axes.remove(r)
        if start is not None and start.shape and vector is None and not outer_chunk:
            raise AssertionError("a vector accumulator for a scalar sum")
        if vector is not None and outer_chunk:
            axis = outer_chunk[0]
            chunk = point[axis]
            assert isinstance(chunk, Chunk)
            lanes = [
                self._reduce(u, {**point, axis: chunk.first + i}, None if start is None else lane(start, i))
                for i in range(chunk.width)
            ]
            return stack(lanes)
        if vector is None:
            total = start
            for at in _points(axes):
                total = self._combine(u, total, inner, {**point, **at}, dot, along)
            assert total is not None
            return total
        sums: UOp | None = None
        for at in _points([r for r in axes if r is not vector]):
            for c in _chunks(vector, self.target):
                sums = self._combine(u, sums, inner, {**point, **at, vector: c}, dot, along)
        assert sums is not None
        count = _chunks(vector, self.target)[0].width
        lanes = [lane(sums, i) for i in range(count)]
        while len(lanes) > 1:
            half = len(lanes) // 2
            lanes = [UOp(u.arg, u.dtype, (a, b)) for a, b in zip(lanes[:half], lanes[half:])] + lanes[2 * half :]
        return lanes[0] if start is None else UOp(u.arg, u.dtype, (start, lanes[0]))

    def _combine(
        self, u: UOp, total: UOp | None, inner: UOp, point: Point, dot: tuple[UOp, ...] = (), along: UOp | None = None
    ) -> UOp:
        if dot and along is not None:
            a, b = _small_factors(inner)
            first = {**point, **dict.fromkeys(dot, 0)}
            words, field = self._dot_operand(a, first, along, dot[0])
            halves = [{**first, r: i} for r in dot[1:] for i in range(NIBBLES)] or [first]
            others = [self._dot_operand(b, half, along, dot[0])[0] for half in halves]
            before = splat(UOp.const(0, u.dtype) if total is None else total, lanes_of(others[0]) // lane_count(dot[0]))
            return UOp(Ops.DOT, u.dtype, (words, *others, before), field)
        if total is None:
            return self.value(inner, point)
        if u.arg is Ops.ADD and inner.op is Ops.MUL and u.dtype.is_float:
            src = [self.value(s, point) for s in inner.src]
            op, parts = Ops.MULADD, (*src, total)
        else:
            op, parts = u.arg, (total, self.value(inner, point))
        width = max(lanes_of(s) for s in parts)
        return UOp(op, u.dtype, tuple(splat(s, width) for s in parts))

    # -- dots --------------------------------------------------------------------------------------------------
    def _dot_axes(self, u: UOp, along: UOp | None) -> tuple[UOp, ...]:
        """The DOT axis of a sum of products, if an instruction serves whole chunks of the VECTOR axis `along`. Where
        4-bit integers are raised, also the axis of the two in a byte.
        """
        dot = next((r for r in u.src[1:] if r.arg.kind is AxisKind.DOT), None)
        factors = _small_factors(u.src[0])
        if dot is None or along is None or not factors or not self.target.instructions:
            return ()
        steps, width = lane_count(dot), _chunks(along, self.target)[0].width
        if width % 4 or (steps == DOT_PAIRS and width > 16):
            return ()
        halves = None
        for factor in factors:
            if factor.op is Ops.CONST:
                continue
            raised = _raised(factor)
            load = raised or factor
            strides = self._affine_of(load.src[1])[1]
            if len(load.src) > 2 or self._is_variables(load.src[0].buffer):
                return ()
            if steps != DOT_PAIRS and load.src[0].dtype is dtypes.int16:
                return ()
            # 4-bit integers as words: the same one of each half word's four, or both of each byte
            packed = load.src[0].dtype.bits < 8
            if packed and steps != (DOT_STEPS if raised else DOT_PAIRS):
                return ()
            step = (NIBBLES if raised else FIELD) if packed else 1
            if strides.get(dot) != step:
                return ()
            if packed and (strides.get(along) != steps * step or not self.memory.has_words(load.src[0].buffer)):
                return ()
            if packed and not divides(simplify(self._affine_of(load.src[1])[0]), WORD):
                return ()
            if raised:
                halves = next((r for r in u.src[1:] if strides.get(r) == 1 and lane_count(r) == NIBBLES), None)
                if halves is None:
                    return ()
            further = [(s, lane_count(r)) for r, s in strides.items() if r not in (along, dot, halves) and s % WORD]
            most = sum(s * (n - 1) for s, n in further)
            if packed and (any(s < 0 for s, _ in further) or most >= (1 if raised else step)):
                return ()
        return (dot,) if halves is None else (dot, halves)

    def _dot_operand(self, factor: UOp, point: Point, along: UOp, dot: UOp) -> tuple[UOp, int | None]:
        """The elements for each lane of a chunk, for pairs int16. 4-bit ones are the words they lie in; for pairs also
        which of each half word's four.
        """
        pairs, chunk = lane_count(dot) == DOT_PAIRS, point[along]
        assert isinstance(chunk, Chunk)
        if factor.op is Ops.CONST:
            kind = dtypes.int16 if pairs else dtypes.int8
            return splat(UOp.const(factor.arg, kind), chunk.width * lane_count(dot)), None
        raised = _raised(factor)
        memory, index = (raised or factor).src[:2]
        if memory.buffer.dtype.bits < 8:
            start = self._index({**point, along: chunk.first, dot: 0}, index)
            field = start.offset % WORD
            words = self._place(memory), memory.buffer.dtype, start.at(-field), chunk.width * WORD
            return self.memory.raw(*words), field if pairs else None
        elements = self._dot_elements(memory, index, point, along, dot)
        return (elements.cast(dtypes.int16) if pairs else elements), None

    def _dot_elements(self, memory: UOp, index: UOp, point: Point, along: UOp, dot: UOp) -> UOp:
        stride = self._affine_of(index)[1].get(along) if along in index.lanes else 0
        chunk, steps = point[along], lane_count(dot)
        assert isinstance(chunk, Chunk)
        if stride == steps:
            start = self._index({**point, along: chunk.first, dot: 0}, index)
            count = chunk.width * steps
            return self.memory.raw(self._place(memory), memory.buffer.dtype, start, count)
        parts = [
            self.memory.raw(
                self._place(memory), memory.buffer.dtype, self._index({**point, along: i, dot: 0}, index), steps
            )
            for i in range(chunk.first, chunk.first + (1 if stride == 0 else chunk.width))
        ]
        return stack([lane(p, k) for p in parts * (chunk.width // len(parts)) for k in range(steps)])

    # -- loads -------------------------------------------------------------------------------------------------
    def _load(self, u: UOp, point: Point) -> UOp:
        memory, index = u.src[:2]
        gate = u.src[2] if len(u.src) > 2 else None
        buffer = memory.buffer
        axis = next((r for r in u.lanes if isinstance(point[r], Chunk)), None)
        if self._is_variables(buffer):
            return self._load_register(u, buffer, point, axis)
        if axis is None:
            # (not integers: an index and the gate of what it reads are to be one and the same load)
            along = self._vector_in_memory(u) if self.target.has_threads and u.dtype.is_float else None
            if along is not None and isinstance(at := point[along], int):
                # what is read lane by lane is read as the vector it lies in
                width = _chunks(along, self.target)[0].width
                return lane(self.value(u, {**point, along: Chunk(at // width * width, width)}), at % width)
            return self._load_run(u, point, None, None if gate is None else self.value(gate, point))
        if axis in index.lanes and self._affine_of(index)[1].get(axis) != 1:
            return (
                self._load_transposed(u, point, axis)
                or self._load_woven(u, point, axis)
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
            chunk = point[axis]
            assert isinstance(chunk, Chunk)
            zero = splat(UOp.const(0, u.dtype), chunk.width)
            return UOp(Ops.WHERE, u.dtype, (self.value(gate, point), splat(loaded, chunk.width), zero))
        return self._load_lanes(u, point, axis)

    def _vector_in_memory(self, u: UOp) -> UOp | None:
        """The VECTOR axis along which what a LOAD reads lies side by side, in the buffer's own vectors."""
        index, gates = u.src[1], u.src[2:]
        for r in index.lanes:
            if r.arg.kind is AxisKind.VECTOR and self._affine_of(index)[1].get(r) == 1:
                width = _chunks(r, self.target)[0].width
                start = self._index({o: 0 for o in index.lanes}, index)
                whole = width > 1 and self.memory.alignment(start) % width == 0
                return r if whole and not any(r in g.lanes for g in gates) else None
        return None

    def _load_lanes(self, u: UOp, point: Point, axis: UOp) -> UOp:
        chunk = point[axis]
        assert isinstance(chunk, Chunk)
        return stack([self.value(u, {**point, axis: chunk.first + i}) for i in range(chunk.width)])

    def _load_transposed(self, u: UOp, point: Point, axis: UOp) -> UOp | None:
        """A chunk whose lanes lie apart, where steps of an UNROLL axis lie side by side: a block is loaded along these,
        and transposed in registers. None where there is none.
        """
        beside = self._beside(u.src[1], u.src[0].buffer)
        chunk = point[axis]
        assert isinstance(chunk, Chunk)
        if beside is None or len(u.src) > 2 or chunk.width < QUAD:
            return None
        at, blocks = point[beside], self._blocks(beside)
        assert isinstance(at, int)
        along = max((c for c in blocks if c.first <= at), key=lambda c: c.first)
        rows = [self.value(u, {**point, axis: chunk.first + i, beside: along}) for i in range(chunk.width)]
        return self._columns(tuple(rows))[at - along.first]

    def _load_alternate(self, u: UOp, point: Point, axis: UOp) -> UOp | None:
        """Every other element, out of two vectors, the second of which ends with the last one."""
        memory, index = u.src[:2]
        chunk, gate = point[axis], u.src[2] if len(u.src) > 2 else None
        assert isinstance(chunk, Chunk)
        plain = not self.target.has_threads and u.dtype.bits == 32 == memory.buffer.dtype.bits
        if not plain or self._affine_of(index)[1].get(axis) != 2 or chunk.width < QUAD:
            return None
        if gate is not None and (gate := self._uniform(gate, axis, point)) is None:
            return None
        if gate is not None and gate.op is Ops.CONST:
            if not gate.arg:
                return UOp.const(0, u.dtype)
            gate = None
        start, width = self._index({**point, axis: chunk.first}, index), chunk.width
        low, high = (
            self.memory.load(self._place(memory), u.dtype, u.dtype, Run(start.at(i), width), 0, width, gate)
            for i in (0, width - 1)
        )
        half = range(0, width, 2)
        return pick([*((low, i) for i in half), *((high, i + 1) for i in half)])

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

    def _load_woven(self, u: UOp, point: Point, axis: UOp) -> UOp | None:
        """Every second element, where another lane takes those between: what both read is loaded in whole vectors.
        None where it is not so.
        """
        if len(u.src) > 2 or self.target.has_threads:
            return None
        strides, chunk = self._affine_of(u.src[1])[1], point[axis]
        pair = next((r for r, s in strides.items() if s == 1 and r is not axis and lane_count(r) == 2), None)
        if strides.get(axis) != 2 or pair is None or not isinstance(first := point[pair], int):
            return None
        assert isinstance(chunk, Chunk)
        start = self._index({**point, axis: chunk.first, pair: 0}, u.src[1])
        place, width = self._place(u.src[0]), chunk.width
        halves = [
            self.memory.load(place, u.src[0].buffer.dtype, u.dtype, Run(start.at(i * width), width), 0, width, None)
            for i in range(2)
        ]
        picked = range(first, 2 * width, 2)
        return stack([lane(halves[i // width], i % width) for i in picked])

    def _load_run(self, u: UOp, point: Point, axis: UOp | None, gate: UOp | None) -> UOp:
        memory, index = u.src[:2]
        # lanes far away from this chunk may be read with it only where the gate covers them
        chunk_only = gate is not None and axis is not None and axis in u.src[2].lanes
        if gate is not None and gate.op is Ops.CONST:
            if not gate.arg:
                return UOp.const(0, u.dtype)
            gate = None
        chunk = None if axis is None or axis not in index.lanes else point[axis]
        if isinstance(chunk, Chunk):
            assert axis is not None
            run, before = self._run_along(u, point, axis)
            if chunk_only:
                run = Run(run.start.at(before + chunk.first), chunk.width)
                return self.memory.load(self._place(memory), memory.buffer.dtype, u.dtype, run, 0, chunk.width, gate)
            return self.memory.load(
                self._place(memory), memory.buffer.dtype, u.dtype, run, before + chunk.first, chunk.width, gate
            )
        run = Run(self._index(point, index))
        return self.memory.load(self._place(memory), memory.buffer.dtype, u.dtype, run, 0, 1, gate)

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
        at = None if along is None else point[along]
        if along is None or at is None:
            return UOp(Ops.LOAD, u.dtype, (place, self._index(point, u.src[1]).index), 1)
        if isinstance(at, Chunk):
            start = self._index({**point, along: at.first}, u.src[1])
            return UOp(Ops.LOAD, u.dtype, (place, start.index), at.width)
        width = _chunks(along, self.target)[0].width
        start = self._index({**point, along: at // width * width}, u.src[1])
        return lane(UOp(Ops.LOAD, u.dtype, (place, start.index), width), at % width)

    # -- indices -----------------------------------------------------------------------------------------------
    def _affine_of(self, index: UOp) -> Affine:
        """The index as a constant stride for each lane it is linear in, and what is left without those."""
        if index not in self._affine:
            if self._is_computed(index):
                return self._affine.setdefault(index, (index, {}))
            base, strides = index, {}
            for r in index.lanes:
                parts = split_by(base, r)
                if parts is not None and isinstance(parts[0], int):
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
        return Place(index_const(0), base.arg + offset) if base.op is Ops.CONST else Place(base, offset)

    # -- gates -------------------------------------------------------------------------------------------------
    def _uniform(self, gate: UOp, axis: UOp, point: Point) -> UOp | None:
        """The gate as one scalar, where it is provably the same for all lanes of the chunk of `axis`."""
        if axis not in gate.lanes:
            return self.value(gate, point)
        if gate.op is Ops.AND:
            a, b = self._uniform(gate.src[0], axis, point), self._uniform(gate.src[1], axis, point)
            return None if a is None or b is None else both(a, b)
        chunk = point[axis]
        assert isinstance(chunk, Chunk)
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


def _small_factors(value: UOp) -> tuple[UOp, ...]:
    """The factors of a product of small integers, 4-bit memory first: loads, loads that are raised, or a constant.

    Empty where it is no such product.
    """
    found = [_uncast(s) for s in value.src] if value.op is Ops.MUL else []
    return tuple(sorted(found, key=_bits)) if all(_bits(f) for f in found) else ()


def _bits(factor: UOp) -> int:
    """How wide the integers in memory are that a factor of a dot stands for; 0 for what is none."""
    if factor.op is Ops.CONST:
        return 8 if dtypes.int8.min <= factor.arg <= dtypes.int8.max else 0
    load = _raised(factor) or factor
    return load.src[0].dtype.bits if load.op is Ops.LOAD and load.src[0].dtype in SMALL else 0


def _raised(factor: UOp) -> UOp | None:
    """The load of 4-bit integers that a factor raises."""
    if factor.op is not Ops.ADD or factor.src[1].op is not Ops.CONST or factor.src[1].arg != RAISE:
        return None
    load = _uncast(factor.src[0])
    return load if load.op is Ops.LOAD and load.src[0].dtype is dtypes.int4 else None


def _uncast(value: UOp) -> UOp:
    return value.src[0] if value.op is Ops.CAST else value


def _first(at: int | Chunk) -> int:
    return at.first if isinstance(at, Chunk) else at


def _points(axes: list[UOp]) -> Iterator[Point]:
    """Every assignment of numbers to the axes, the last fastest."""
    for numbers in product(*(range(lane_count(r)) for r in axes)):
        yield dict(zip(axes, numbers))


def _chunks(axis: UOp, target: Target) -> list[Chunk]:
    """A VECTOR axis in parts that are as wide as the target's vectors (a power of two) and divide it."""
    size = lane_count(axis)
    width = 1
    while width * 2 <= target.max_vector and size % (width * 2) == 0:
        width *= 2
    return [Chunk(i, width) for i in range(0, size, width)]

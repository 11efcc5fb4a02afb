"""Tiles expanded into the target's registers and vectors: the one step whose cost grows with the unroll factors.

Each effect is carried out for every lane it depends on. One VECTOR axis per effect stays together, in chunks of at most
`target.max_vector` lanes; all other lanes become single values. A value is emitted once per assignment of the lanes it
depends on: a `Point` gives each lane range a number, or a `Chunk` of the vector axis.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from math import prod
from typing import Any

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import ELEMENTWISE, AxisKind, Fragments, Ops, RowsArg, UOp, in_order, is_lane, lane_count
from tinyweb.graph.lower.constructors import index_const, lane, lanes_of, make, splat, stack
from tinyweb.graph.lower.decompose import floor_division
from tinyweb.graph.lower.devectorize_base import Chunk, Point, chunk_at, chunks, points
from tinyweb.graph.lower.devectorize_dots import Dots, small_factors
from tinyweb.graph.lower.devectorize_loads import QUAD, Loads
from tinyweb.graph.lower.formats import looked_up
from tinyweb.graph.lower.memory_access import MIDDLE, Memory
from tinyweb.graph.optimize.instructions import upper_planes
from tinyweb.graph.symbolic import const_factor
from tinyweb.graph.target import Target

CHAIN, FEW_SUMS = 4, 2  # instructions that wait for each other, and vectors of sums beside them that do not


def devectorize(sink: UOp, target: Target, arrays: frozenset[UOp] = frozenset()) -> tuple[UOp, Memory]:
    """The effects below `sink` without lanes; and what was found out about memory on the way.

    REGISTER buffers are variables, whole vectors of them where they have a VECTOR axis; those in `arrays` are memory.
    """
    devectorizer = _Devectorizer(target, arrays)
    (out,) = devectorizer.effects(sink)
    return out, devectorizer.memory


def _ahead(store: UOp) -> UOp:
    """A store whose value may arrive later, where memory is but copied, 4 to 16 bytes of it, all or none (zeros)."""
    value, gates = store.src[2], (*store.src[2].src[2:], *store.src[3:])
    copied = value.op is Ops.LOAD and value.src[0].op is Ops.PARAM and value.dtype is value.src[0].dtype
    copied = copied and len(value.src) < 4 and all(lanes_of(g) == 1 for g in gates)
    return store.replace(arg="ahead") if copied and value.dtype.nbytes(value.arg) in (4, 8, 16) else store


class _Devectorizer(Loads, Dots):
    # -- effects -----------------------------------------------------------------------------------------------
    def effects(self, root: UOp) -> tuple[UOp, ...]:
        """What an effect (or memory, or a loop) becomes: several effects, where it had lanes."""
        self.memory.wordwise = self._wordwise(root)
        for u in self._effect_order(root):
            if u in self._effects:
                continue
            if u.op is Ops.STORE:
                self._effects[u] = self._store(u) if u.arg is None else tuple(map(_ahead, self._store(u)))
            elif u.op in (Ops.PARAM, Ops.BUFFER):
                self._effects[u] = (self.memory.declare(u),)
            elif u.op is Ops.RANGE:
                self._effects[u] = (u.replace(src=(self.value(u.src[0], {}),)),)
            else:
                src = tuple(e for s in u.src for e in self._dependency(s))
                self._effects[u] = (u.replace(dtype=src[0].dtype if u.op is Ops.AFTER else u.dtype, src=src),)
        return self._effects[root]

    def _wordwise(self, root: UOp) -> frozenset[UOp]:
        """Parameters of bytes that are read four side by side at least, to be computed with: their words are loaded,
        whose bits are floats in fewer steps than bytes.
        """
        if not self.target.has_threads or self.target.convert_cost <= 1:
            return frozenset()
        nodes = root.toposort()
        found = {u for u in nodes if u.op is Ops.PARAM and u.dtype.bits == 8 and u.dtype.is_int}
        for u in nodes:
            if u.op is Ops.STORE or (u.op is Ops.LOAD and not self._reads_words(u)):
                found.discard(u.src[0].buffer)
        return frozenset(u for u in found if u.arg.size % 4 == 0)

    def _reads_words(self, load: UOp) -> bool:
        if load.dtype.bits != 32 or isinstance(load.arg, RowsArg):
            return False
        base, strides = self._affine_of(load.src[1])
        along = [r for r, step in strides.items() if step == 1 and r.arg.kind is AxisKind.VECTOR]
        whole = any(chunks(r, self.target)[0].width % 4 == 0 for r in along)
        return whole and all(n % 4 == 0 for n in (const_factor(base) or 0, *strides.values()) if n != 1)

    def _dependency(self, u: UOp) -> tuple[UOp, ...]:
        """What must have happened: effects, or values that must have been read."""
        if u in self._effects:
            return self._effects[u]
        return tuple(dict.fromkeys(self.value(u, point) for point in points(list(u.lanes))))

    def _effect_order(self, root: UOp) -> list[UOp]:
        """Effects, memory and loops below an effect, sources first. A value's loads lead to the memory they read."""
        kinds = (Ops.STORE, Ops.PARAM, Ops.BUFFER, Ops.AFTER, Ops.END, Ops.BARRIER, Ops.SINK)
        return [u for u in root.toposort() if u.op in kinds or (u.op is Ops.RANGE and not is_lane(u))]

    def _store(self, u: UOp) -> tuple[UOp, ...]:
        memory, index, value = u.src[:3]
        gate = u.src[3] if len(u.src) > 3 else None
        lanes = tuple(dict.fromkeys(r for s in u.src[1:] for r in s.lanes))
        axis = self._statement_axis(memory.buffer, index, lanes)
        tile = next((r for r in lanes if r.arg.kind is AxisKind.TILE), None)
        if self._is_variables(memory.buffer):
            self._register_lanes[memory.buffer] = tile or axis
        where, out = self._place(memory), list[UOp]()

        def put(at: Point, values: list[UOp], condition: UOp | None = None) -> None:
            out.extend(self.memory.store(where, memory.buffer.dtype, self._index(at, index), values, condition))

        if tile is not None:
            (whole,), columns = chunks(tile, self.target), tile.arg.dim
            for at in points([r for r in lanes if r is not tile]):
                first, arg = self._matrix(index, {**at, tile: whole}, (tile, columns), (tile, 1), whole.width)
                sums = splat(self.value(value, {**at, tile: whole}), whole.width)
                in_registers = self._is_variables(memory.buffer)
                out.append(UOp(Ops.STORE, dtypes.void, (where, first, sums), None if in_registers else arg))
            return tuple(out)
        if axis is None and gate is None and (pair := self._interleaved(index, lanes)) is not None:
            axis, beside = pair
            for point in points([r for r in lanes if r not in pair]):
                for c in chunks(axis, self.target):
                    vectors = [self._vector(value, {**point, axis: c, **at}, axis) for at in points([beside])]
                    mixed = [lane(v, i) for i in range(c.width) for v in vectors]
                    parts = [stack(mixed[i : i + c.width]) for i in range(0, len(mixed), c.width)]
                    put({**point, axis: c.first, beside: 0}, parts)
            return tuple(out)
        if axis is not None and gate is None and self._affine_of(index)[1].get(axis) != 1:
            across = self._beside(index, memory.buffer)
            if across is not None and chunks(axis, self.target)[0].width >= QUAD:
                # lanes that lie apart, but steps side by side: what is stored is transposed in registers
                for point in points([r for r in lanes if r not in (axis, across)]):
                    for c, along in product(chunks(axis, self.target), self._blocks(across)):
                        steps = range(along.first, along.first + along.width)
                        vectors = [self._vector(value, {**point, axis: c, across: j}, axis) for j in steps]
                        for i, column in enumerate(self._columns(tuple(vectors))):
                            put({**point, axis: c.first + i, across: along.first}, [column])
                return tuple(out)

        for point in points([r for r in lanes if r is not axis]):
            if axis is None:
                put(point, [self.value(value, point)], None if gate is None else self.value(gate, point))
                continue
            runs: list[Point] = [{**point, axis: c} for c in chunks(axis, self.target)]
            together = self._affine_of(index)[1].get(axis) == 1
            if together and gate is not None and axis in gate.lanes:
                flat = [self._uniform(gate, axis, p) for p in runs]
                together = len(set(flat)) == 1 and flat[0] is not None
                # one gate for the whole run, or every chunk by itself
                if not together and all(g is not None for g in flat):
                    for p, g in zip(runs, flat):
                        put({**p, axis: chunk_at(p, axis).first}, [self._vector(value, p, axis)], g)
                    continue
            if together:
                begin = {**point, axis: 0}
                condition = None if gate is None else self.value(gate, begin)
                put(begin, [self._vector(value, p, axis) for p in runs], condition)
                continue
            for p in runs:
                chunk = chunk_at(p, axis)
                vector = self._vector(value, p, axis)
                for i in range(chunk.width):
                    single = {**point, axis: chunk.first + i}
                    put(single, [lane(vector, i)], None if gate is None else self.value(gate, single))
        return tuple(out)

    def _vector(self, value: UOp, point: Point, axis: UOp) -> UOp:
        """The value with as many lanes as `point` has of the axis, also where it does not depend on it."""
        chunk = chunk_at(point, axis)
        return splat(self.value(value, point), chunk.width)

    def _statement_axis(self, buffer: UOp, index: UOp, lanes: Iterable[UOp]) -> UOp | None:
        """The VECTOR axis that stays together in a store: the one its elements lie along, else the innermost."""
        vectors = [r for r in lanes if r.arg.kind is AxisKind.VECTOR and chunks(r, self.target)[0].width > 1]
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
        if beside is None:
            return None
        vector = next(
            (r for r in lanes if strides.get(r) == lane_count(beside) and r.arg.kind is AxisKind.VECTOR), None
        )
        return (vector, beside) if vector is not None and chunks(vector, self.target)[0].width > 1 else None

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

        def sources(u: UOp) -> Sequence[UOp]:
            if u.op in (Ops.LOAD, Ops.REDUCE, Ops.RANGE):
                return ()
            _, summand = self._chain(u)
            return [s for s in u.src if s is not summand and (s, ()) not in self._values]

        return in_order([root], sources)

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
            held = isinstance(summand.src[0].arg, Fragments)
            if start.shape and not held and not any(isinstance(point[r], Chunk) for r in summand.lanes):
                # one sum beside a vector: a chain per lane would be the same work again and again
                return u.replace(src=(start, splat(self._reduce(summand, point, None), lanes_of(start))))
            return self._reduce(summand, point, start)
        src = [self._known(s, point) for s in u.src]
        width = max(lanes_of(s) for s in src) if src else 1
        constant = u.op in ELEMENTWISE and all(x.op is Ops.CONST for s in src for x in (s.src or (s,)))
        # of sums that threads hold several have the same factor
        apart = self.target.has_threads and any(r.arg.kind is AxisKind.TILE for r in u.lanes)
        if width > 1 and (constant or apart or u.dtype is dtypes.index or u.op in (Ops.FLOORDIV, Ops.MOD)):
            # lane by lane: indices mostly fold to constants, and bounds are known of scalars
            return stack([self._scalar(u, [lane(splat(s, width), i) for s in src]) for i in range(width)])
        if u.op is Ops.ADD and u.dtype is dtypes.int32 and src[1].op is Ops.CONST and src[1].arg == -MIDDLE:
            raw = src[0].src[0] if src[0].op is Ops.CAST else src[0]
            if (centred := self.memory.centred.get(raw)) is not None:
                return centred
        if u.op is Ops.LOOKUP:
            return looked_up(src[0], u.arg.numbers, width)
        if width > 1:
            if u.op is Ops.WHERE and src[0].shape and self.target.has_threads:
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
        if inner.op is Ops.DOT and isinstance(inner.arg, Fragments):
            return self._held(u, point, start)
        vector = next((r for r in axes if r.arg.kind is AxisKind.VECTOR and chunks(r, self.target)[0].width > 1), None)
        outer_chunk = [r for r in u.lanes if isinstance(point[r], Chunk)]
        along = vector if vector is not None else outer_chunk[0] if outer_chunk else None
        dot = self._dot_axes(u, along) if vector is None or not outer_chunk else ()
        for r in dot:
            axes.remove(r)
        if start is not None and start.shape and vector is None and not outer_chunk:
            raise AssertionError("a vector accumulator for a scalar sum")
        if vector is not None and outer_chunk:
            axis = outer_chunk[0]
            chunk = chunk_at(point, axis)
            lanes = [
                self._reduce(u, {**point, axis: chunk.first + i}, None if start is None else lane(start, i))
                for i in range(chunk.width)
            ]
            return stack(lanes)
        if vector is None:
            steps = list(points(axes))
            # dots wait for the one before: where no other sums are beside, the second half has one of its own
            apart = len(steps) // 2 if dot and along is not None and self._waits(u, along, len(steps)) else 0
            total, beside = start, None
            for at in steps[: len(steps) - apart]:
                total = self._combine(u, total, inner, {**point, **at}, dot, along)
            for at in steps[len(steps) - apart :]:
                beside = self._combine(u, beside, inner, {**point, **at}, dot, along)
            assert total is not None
            return total if beside is None else UOp(Ops.ADD, u.dtype, (total, beside))
        sums: UOp | None = None
        for at in points([r for r in axes if r is not vector]):
            for c in chunks(vector, self.target):
                whole = {**point, **at, vector: c}
                if self.target.has_threads and u.arg is Ops.ADD and inner.op is Ops.MUL and u.dtype.is_float:
                    # a thread's lanes are numbers of its own: one after the other they need no sums of sums
                    factors = [splat(self.value(s, whole), c.width) for s in inner.src]
                    for i in range(c.width):
                        a, b = (lane(f, i) for f in factors)
                        start = a * b if start is None else UOp(Ops.MULADD, u.dtype, (a, b, start))
                    continue
                sums = self._combine(u, sums, inner, whole, dot, along)
        if sums is None and start is not None:
            return start
        assert sums is not None
        count = chunks(vector, self.target)[0].width
        lanes = [lane(sums, i) for i in range(count)]
        while len(lanes) > 1:
            half = len(lanes) // 2
            lanes = [UOp(u.arg, u.dtype, (a, b)) for a, b in zip(lanes[:half], lanes[half:])] + lanes[2 * half :]
        return lanes[0] if start is None else UOp(u.arg, u.dtype, (start, lanes[0]))

    def _waits(self, u: UOp, along: UOp, steps: int) -> bool:
        """Whether instructions of a sum follow each other in a chain, and there are few such sums side by side."""
        plain = not self.target.has_threads and along.arg.kind is not AxisKind.TILE
        width = chunks(along, self.target)[0].width
        return plain and steps >= CHAIN and prod(lane_count(r) for r in u.lanes) <= FEW_SUMS * width

    def _combine(
        self, u: UOp, total: UOp | None, inner: UOp, point: Point, dot: tuple[UOp, ...] = (), along: UOp | None = None
    ) -> UOp:
        if dot and along is not None:
            if total is not None and self.target.has_threads:
                return self._matrices(inner, total, point, dot[0], along)
            a, b = small_factors(inner)
            first = {**point, **dict.fromkeys(dot, 0)}
            operand: tuple[UOp, ...]
            arg: Any
            if upper_planes(a):
                operand, arg = self._plane_words(a, first, along, dot[0])
            else:
                words, arg = self._dot_operand(a, first, along, dot[0])
                operand = (words,)
            halves = [{**first, r: i} for r in dot[1:] for i in range(lane_count(r))] or [first]
            others = [self._dot_operand(b, half, along, dot[0])[0] for half in halves]
            chunk = chunk_at(point, along)
            before = splat(UOp.const(0, u.dtype) if total is None else total, chunk.width)
            columns = along.arg.dim
            if a.op is Ops.LOOKUP:
                arg = a.arg
            if along.arg.kind is AxisKind.TILE:
                arg = (chunk.width // columns, columns)
            return UOp(Ops.DOT, u.dtype, (*operand, *others, before), arg)
        if total is None:
            return self.value(inner, point)
        if u.arg is Ops.ADD and inner.op is Ops.MUL and u.dtype.is_float:
            src = [self.value(s, point) for s in inner.src]
            op, parts = Ops.MULADD, (*src, total)
        else:
            op, parts = u.arg, (total, self.value(inner, point))
        width = max(lanes_of(s) for s in parts)
        return UOp(op, u.dtype, tuple(splat(s, width) for s in parts))

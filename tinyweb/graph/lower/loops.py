"""REDUCEs and output ranges become loops, accumulators and, over threads, exchanges through shared memory.

Before: a kernel whose GRID and THREAD ranges are SPECIALs already. After: effects. A REDUCE over LOOP ranges is a
REGISTER buffer with one element per lane of its tile, set to the identity outside of the loops and updated inside;
one over threads goes through a SHARED buffer. What remains of REDUCE are sums over lanes alone (VECTOR and UNROLL
ranges): devectorizing does those. Tiles are still one node: an accumulator's index is an expression in the lane ranges.

A STAGE of a REDUCE whose loops nest outside of the STAGE's is carried out in that order: the staged memory is the
accumulator, a whole block of sums that every step of the reduction walks over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import (
    ELEMENTWISE,
    Axis,
    AxisKind,
    BufferArg,
    Ops,
    Space,
    UOp,
    identity,
    is_lane,
    lane_count,
    nest_key,
    nested,
    substitute,
    users,
)
from tinyweb.graph.ir.uop import on_node
from tinyweb.graph.lower.constructors import add, both, flatten, index_const, is_const, make, tile_index
from tinyweb.graph.lower.exchange import Exchange
from tinyweb.graph.lower.groups import free_loops, groups_of, is_shared, loops_among, merge_key, stage_key
from tinyweb.graph.lower.steps import first_steps, steps_before
from tinyweb.graph.optimize.instructions import Instruction, Match, matrix_of
from tinyweb.graph.symbolic import clauses, simplify
from tinyweb.graph.target import Target

# independent accumulators hide the latency of an addition; below this many, unrolled lanes stay apart
ENOUGH_ACCUMULATORS = 4
# up to this many rounds in which a workgroup fills shared memory are unrolled: their loads do not wait for each other
UNROLLED_ROUNDS = 8


def lower_loops(kernel: UOp, target: Target, workgroup: tuple[int, int, int]) -> tuple[UOp, frozenset[UOp]]:
    """A SINK of effects that carries out the kernel's stores; and the REGISTER buffers that are arrays, not
    variables.
    """
    reduces = _Reduces(kernel, target, workgroup)
    stores = reduces.run()
    return close_output_loops(stores), frozenset(reduces.arrays)


def close_output_loops(stores: Sequence[UOp]) -> UOp:
    """One END per output range; stores that share a range share its loop."""
    pending = list(stores)
    while loops := {r for p in pending for r in free_loops(p)}:
        inner = max(loops, key=nest_key)
        closed = [p for p in pending if inner in p.ranges]
        end = UOp(Ops.END, dtypes.void, (*closed, inner))
        pending = [end if p is closed[0] else p for p in pending if p is closed[0] or p not in closed]
    return UOp(Ops.SINK, dtypes.void, tuple(pending))


def close_loops(effects: Sequence[UOp], loops: Sequence[UOp]) -> tuple[UOp, ...]:
    """Effects in one nest of loops (outermost first), after its end."""
    ends = tuple(effects)
    for r in reversed(loops):
        ends = (UOp(Ops.END, dtypes.void, (*ends, r)),)
    return ends


@dataclass(frozen=True)
class _Running:
    """A REDUCE that is also asked for within its loop: its accumulator, and its value before and after a step."""

    memory: UOp
    index: UOp
    inside: UOp
    before: UOp
    after: UOp


class _Reduces:
    """Rebuilds a kernel's values from the sources up, group of merged REDUCEs by group."""

    def __init__(self, kernel: UOp, target: Target, workgroup: tuple[int, int, int]):
        self.target, self.workgroup = target, workgroup
        self.done: dict[UOp, UOp] = {}
        self.arrays: set[UOp] = set()
        self.buffers = 0
        self.exchange = Exchange(target, workgroup, self._buffer)
        groups = groups_of(kernel)
        self.kernel, self.order, self.depth = groups.kernel, groups.order, groups.depth
        self.groups, self.carried = groups.groups, groups.carried
        self.running: dict[UOp, _Running] = {}  # REDUCEs that others refer to step by step
        self.before = steps_before(self.kernel)
        self.first = first_steps(self.kernel, self.before)
        self.users = users([self.kernel])
        self.tiles: dict[UOp, tuple[UOp, dict[UOp, UOp]]] = {}  # where the sums of an instruction for matrices are
        self.updates: list[tuple[UOp, UOp, UOp]] = []  # of registers that hold what the step before has stored

    def run(self) -> list[UOp]:
        # a group's members have one depth, and all they need is less deep: depth by depth, groups are complete
        for u in sorted(self.order, key=lambda u: (self.depth[u], u.op is not Ops.REDUCE and not is_shared(u))):
            self._visit(u)
        stores = [self.done[s] for s in self.kernel.src]
        return [*stores, *(memory.store(index, self.done[value]) for memory, index, value in self.updates)]

    def _visit(self, u: UOp) -> None:
        if u in self.done or u in self.carried:
            return
        if u.op is Ops.STAGE and u.src[0] in self.carried:
            self._carry(self.groups[merge_key(u.src[0], self.depth[u] - 1), u.src[1:]])
            return
        if u.op is Ops.REDUCE:
            group = self.groups[merge_key(u, self.depth[u] - 1)]
            for member, value in zip(group, self._lower_group(group)):
                self.done[member] = value
            return
        if u.op is Ops.STAGE:
            if is_shared(u):
                self.done |= self._stage_shared(self.groups[stage_key(u, self.depth[u])])
            else:
                self.done[u] = self._stage_in_registers(u)
            return
        if u.op is Ops.RUNNING:
            self.done[u] = self._running(u)
            return
        if u in self.before:
            self.done[u] = self._kept_from_before(u, *self.before[u])
            return
        if u in self.first:
            load = self.first[u]
            self.done[u] = self.done[load]
            return
        if u.op is Ops.LOAD and u.src[0].op is Ops.STAGE:
            memory, index = self.done[u.src[0]], self.done[u.src[1]]
            self.done[u] = u.replace(src=(memory, self._place(u.src[0], index), *(self.done[s] for s in u.src[2:])))
            return
        self.done[u] = u.with_sources(tuple(self.done[s] for s in u.src))

    def _buffer(self, space: Space, dtype: DType, size: int) -> UOp:
        self.buffers += 1
        return UOp(Ops.BUFFER, dtype, (), BufferArg(space, self.buffers - 1, size))

    def _outer(self, u: UOp) -> list[UOp]:
        """The serial loops a node of the kernel depends on, outermost first."""
        return [self.done.get(r, r) for r in free_loops(u)]

    # -- one group ---------------------------------------------------------------------------------------------
    def _lower_group(self, group: list[UOp]) -> list[UOp]:
        first = group[0]
        bound = tuple(self.done.get(r, r) for r in first.src[1:])  # sizes may be reduced values
        joint = any(u.src[0].op is Ops.RESCALE for u in group)
        loops = [r for r in bound if r.op is Ops.RANGE and r.arg.kind is AxisKind.LOOP and not is_const(r.src[0], 1)]
        loops.sort(key=nest_key)
        threads = sorted((r for r in bound if r.op is Ops.SPECIAL), key=lambda r: -int(r.arg[1]))
        outer = self._outer(first)
        updates: list[UOp] = []
        results: list[tuple[UOp, UOp]] = []  # accumulator, its index
        kept_lanes: list[list[UOp]] = []
        values: list[UOp] = []
        for u in group:
            if not loops and u.src[0].op is Ops.RESCALE:
                values.append(self.done[u.src[0].src[0]])
                continue
            if u in self.running:
                run = self.running[u]
                updates.append(run.inside.store(run.index, run.after))
                results.append((run.memory, run.index))
                kept_lanes.append([])
                continue
            if u.src[0].op is Ops.RESCALE:
                inner, factor = (self.done[s] for s in u.src[0].src)
                acc, index = self._accumulator(u, self.done[u.src[0]], [])
                inside = acc.after(acc.after(*outer).store(index, identity(u.arg, u.dtype)), *loops)
                total = UOp(Ops.MULADD, u.dtype, (inside.load(index), factor, inner))
                updates.append(inside.store(index, total))
                results.append((acc, index))
                kept_lanes.append([])
                continue
            lanes = [r for r in bound if is_lane(r) and r in self.done[u.src[0]].lanes]
            idle = prod(lane_count(r) for r in bound if is_lane(r) and r not in lanes)
            value = self._repeated(u, self.done[u.src[0]], idle)
            matrix = matrix_of(self.target.instructions, u)
            if matrix is not None and idle == 1:
                update, result = self._matrices(u, *matrix, lanes, outer, loops)
                updates.append(update)
                results.append(result)
                kept_lanes.append([])
                continue
            if not loops:
                values.append(self._over_lanes(u, value, lanes))
                continue
            kept = self._kept(value, lanes)
            kept_lanes.append(kept)
            inner = self._over_lanes(u, value, [r for r in lanes if r not in kept])
            acc, index = self._accumulator(u, inner, kept)
            init = acc.after(*outer).store(index, identity(u.arg, u.dtype))
            inside = acc.after(init, *loops)
            updates.append(inside.store(index, accumulate(u.arg, inside.load(index), inner)))
            results.append((acc, index))
        if updates:
            ends = close_loops(updates, loops)
            for u, (acc, index), kept in zip(group, results, kept_lanes):
                values.append(self._over_lanes(u, acc.after(*ends).load(index), kept))
        if joint:
            threads = sorted({r for u in group for r in u.src[1:] if r.op is Ops.SPECIAL}, key=lambda r: -int(r.arg[1]))
            apart: dict[tuple[UOp, ...], list[int]] = {}
            for i, u in enumerate(group):
                apart.setdefault(tuple(t for t in threads if t in u.src[1:]), []).append(i)
            for among, members in apart.items():
                if among:
                    parts = [group[i] for i in members], [values[i] for i in members]
                    for i, value in zip(members, self._exchange(*parts, list(among), outer)):
                        values[i] = value
            return values
        return self._exchange(group, values, threads, outer) if threads else values

    def _matrices(
        self, u: UOp, instruction: Instruction, match: Match, lanes: list[UOp], outer: list[UOp], loops: list[UOp]
    ) -> tuple[UOp, tuple[UOp, UOp]]:
        """Sums that an instruction for matrices adds to, whose elements are the lanes of one vector: the effect, and
        the accumulator with the index of a sum in it.
        """
        value = UOp(Ops.MUL, u.dtype, tuple(self.done[f] for f in match.factors))  # in the instruction's order
        sizes = [lane_count(r) for r in instruction.tile]
        axis = Axis(f"tile.{match.tile[-1].arg.name}", 1 << 20, AxisKind.TILE, dim=sizes[-1])
        within = UOp(Ops.RANGE, dtypes.index, (index_const(prod(sizes)),), axis)
        # memory stays what it is: only where it is read varies with the lanes
        table = {x.src[0]: x.src[0] for x in value.toposort() if x.op is Ops.LOAD}
        back, blocks, element, lane_of = {}, [], index_const(0), {}
        for i, (r, n) in enumerate(zip(match.tile, sizes)):
            blocks.append(r.replace(src=(index_const(lane_count(r) // n),), arg=replace(r.arg, kind=AxisKind.UNROLL)))
            lane_of[r] = blocks[-1] * n + within // prod(sizes[i + 1 :]) % n
            back[blocks[-1]], element = r // n, element * n + r % n
        tiles, count = tile_index([*(r for r in value.lanes if r not in (*lanes, *match.tile)), *blocks])
        index = tiles * prod(sizes) + within
        acc = self._buffer(Space.REGISTER, u.dtype, count * prod(sizes))
        inner = UOp(Ops.REDUCE, u.dtype, (substitute(value, table | lane_of), *lanes), u.arg)
        inside = acc.after(acc.after(*outer).store(index, identity(u.arg, u.dtype)), *loops)
        self.tiles[u] = index, lane_of
        update = inside.store(index, accumulate(u.arg, inside.load(index), inner))
        return update, (acc, substitute(index, {**back, within: element}))

    def _running(self, u: UOp) -> UOp:
        """A REDUCE before or after the current step of its loop."""
        reduce, loop = u.src
        if reduce not in self.running:
            value = self.done[reduce.src[0]]
            if is_const(loop.src[0], 1):
                return value if u.arg else identity(reduce.arg, reduce.dtype)
            memory, index = self._accumulator(reduce, value, [])
            init = memory.after(*self._outer(reduce)).store(index, identity(reduce.arg, reduce.dtype))
            inside = memory.after(init, loop)
            before = inside.load(index)
            after = UOp(reduce.arg, reduce.dtype, (before, value))
            self.running[reduce] = _Running(memory, index, inside, before, after)
        return self.running[reduce].after if u.arg else self.running[reduce].before

    def _kept_from_before(self, u: UOp, loop: UOp, value: UOp) -> UOp:
        """What the step of `loop` before this one has stored, in registers; in the first what replaces it there."""
        memory, index = self._accumulator(u, u, [])
        outer = [r for r in self._outer(u) if r is not loop]
        inside = memory.after(memory.after(*outer).store(index, self.first.get(u, UOp.const(0, u.dtype))), loop)
        self.updates.append((inside, index, value))
        return inside.load(index)

    def _repeated(self, u: UOp, value: UOp, times: int) -> UOp:
        """A value that does not vary over some of the reduced lanes counts once for each of them."""
        if times == 1 or u.arg is Ops.MAX:
            return value
        if u.arg is Ops.ADD:
            return value * UOp.const(times, value.dtype)
        out = value
        for _ in range(times - 1):
            out = out * value
        return out

    def _over_lanes(self, u: UOp, value: UOp, lanes: list[UOp]) -> UOp:
        return UOp(Ops.REDUCE, u.dtype, (value, *lanes), u.arg) if lanes else value

    def _kept(self, value: UOp, lanes: list[UOp]) -> list[UOp]:
        """The reduced lanes that have accumulators of their own during the loop; the others are added up in each
        step.
        """
        vectors = [r for r in lanes if r.arg.kind is AxisKind.VECTOR and self.target.max_vector > 1]
        kept = [] if self.target.has_threads else vectors[:1]  # threads are lanes already
        width = min(prod(lane_count(r) for r in kept), self.target.max_vector)
        chains = prod(lane_count(r) for r in value.lanes if r not in lanes)
        chains = chains * prod(lane_count(r) for r in kept) // width
        for r in lanes:
            if r not in kept and r.arg.kind is not AxisKind.DOT and chains * lane_count(r) <= ENOUGH_ACCUMULATORS:
                kept.append(r)
                chains *= lane_count(r)
        return kept

    def _accumulator(self, u: UOp, inner: UOp, kept: list[UOp]) -> tuple[UOp, UOp]:
        """A REGISTER buffer with an element per lane of `inner`, the VECTOR axis innermost, and the index of a lane
        in it.
        """
        lanes = list(inner.lanes)
        # of several, the innermost: the one along memory, where the result is stored
        vectors = [r for r in kept if r.arg.kind is AxisKind.VECTOR] or [
            r for r in reversed(lanes) if r.arg.kind is AxisKind.VECTOR
        ]
        if vectors:
            lanes.remove(vectors[0])
            lanes.append(vectors[0])
        index, size = tile_index(lanes)
        return self._buffer(Space.REGISTER, u.dtype, size), index

    # -- staging -----------------------------------------------------------------------------------------------
    def _stage_in_registers(self, u: UOp) -> UOp:
        """Fills an invocation's own memory with a value for every step of the STAGE's ranges: that memory, filled."""
        value, ranges, outer = self.done[u.src[0]], list(u.src[1:]), self._outer(u)
        index, size = staged_index(u, {})
        memory = self._buffer(Space.REGISTER, u.dtype, size * self._copies(u))
        self.arrays.add(memory)
        end = memory.after(*outer).store(self._place(u, index), value)
        return memory.after(*close_loops([end], loops_among(ranges)))

    def _own(self, u: UOp) -> tuple[list[UOp], list[UOp]]:
        """The lanes, and of shared memory the threads, that a STAGE varies over beside its ranges, which have memory
        of their own: around each element, as vectors lie, and around the whole of it."""
        if u.src[0] in self.carried:
            return [], []
        lanes = [r for r in self.done[u.src[0]].lanes if r not in u.src[1:]]
        if is_shared(u):
            return [], [*lanes, *self._threads_of(u)]
        vector = [r for r in lanes if r.arg.kind is AxisKind.VECTOR]
        return vector, [r for r in lanes if r not in vector]

    def _threads_of(self, u: UOp) -> list[UOp]:
        """The thread indices that a value of the kernel varies over."""
        return sorted((t for t in specials_of(u) if t.arg[0] == "thread"), key=lambda t: int(t.arg[1]))

    def _copies(self, u: UOp) -> int:
        return prod(lane_count(r) for lanes in self._own(u) for r in lanes)

    def _place(self, u: UOp, index: UOp) -> UOp:
        """Where the lane at hand has the element `index` of a STAGE."""
        inside, around = self._own(u)
        (inner, width), (outer, _) = tile_index(inside), tile_index(around)
        size = staged_index(u, {})[1] * width
        place = add(make(Ops.MUL, dtypes.index, (index, index_const(width))), inner)
        return add(make(Ops.MUL, dtypes.index, (outer, index_const(size))), place)

    def _stage_shared(self, group: list[UOp]) -> dict[UOp, UOp]:
        """Shared memories, filled by all threads together; those read in one place between one pair of barriers."""
        outer = self._outer(group[0])
        # what the previous step of an enclosing loop still reads must not be overwritten
        fresh: tuple[UOp, ...] = (UOp(Ops.BARRIER, dtypes.void, tuple(outer)),) if outer else ()
        memories = [self._buffer(Space.SHARED, u.dtype, staged_index(u, {})[1] * self._copies(u)) for u in group]
        fills = [self._fill(u, m, fresh) for u, m in zip(group, memories)]
        # what the first thread alone computes it does in one loop
        alone = [f for u, f in zip(group, fills) if not u.src[1:]]
        loops = nested({r for f in alone for r in free_loops(f) if r not in outer})
        fills = [*(f for f in fills if f not in alone), *close_loops(alone, loops)]
        filled = UOp(Ops.BARRIER, dtypes.void, tuple(fills))
        return {u: memory.after(filled) for u, memory in zip(group, memories)}

    def _fill(self, u: UOp, memory: UOp, fresh: tuple[UOp, ...]) -> UOp:
        """Stores a value for every step of a STAGE's ranges: each thread its own where threads are among them, else all
        threads in rounds, neighbours beside each other."""
        mine_alone = [r for r in u.src[1:] if r.op is Ops.SPECIAL]
        known = [*mine_alone, *self._threads_of(u)]
        threads = [
            (UOp(Ops.SPECIAL, dtypes.index, (index_const(n),), ("thread", d)), n)
            for d, n in enumerate(self.workgroup)
            if n > 1 and all(t.arg[1] != d for t in known)
        ]
        if u.src[0] in self.tiles:
            sums, (tile, lane_of) = self.done[u.src[0]], self.tiles[u.src[0]]
            place = substitute(self._place(u, staged_index(u, {})[0]), lane_of)
            return memory.after(*fresh).store(place, sums.src[0].load(tile))
        if mine_alone or not u.src[1:]:
            place, idle = self._place(u, staged_index(u, {})[0]), None
            for t, _ in threads:
                idle = both(idle, t.equal(0))
            return memory.after(*fresh).store(simplify(place), self.done[u.src[0]], idle)
        steps = loops_among(u.src[1:])
        count = prod(lane_count(r) for r in steps)
        mine = flatten([(t, n) for t, n in reversed(threads)])
        team = prod(n for _, n in threads)
        rounds = -(-count // team)
        # the loops of what is reduced on the way are not written out
        loops = rounds > UNROLLED_ROUNDS or any(x.op is Ops.END for x in self.done[u.src[0]].toposort())
        kind = AxisKind.LOOP if loops else AxisKind.UNROLL
        axis = Axis(f"fill{memory.arg.id}", 1 << 20, kind, reduce=True)
        round_ = UOp(Ops.RANGE, dtypes.index, (index_const(rounds),), axis) if rounds > 1 else index_const(0)
        flat = add(make(Ops.MUL, dtypes.index, (round_, index_const(team))), mine)
        # simplified, as all that other fills may have below them: it must stay the same node when they are
        gate = simplify(flat < count) if count % team else None
        inside = flat if gate is None else flat.minimum(count - 1)
        table: dict[UOp, UOp] = {}
        for r in reversed(steps):
            table[r] = inside % lane_count(r)
            inside = inside // lane_count(r)
        value = simplify(substitute(self.done[u.src[0]], table))
        store = memory.after(*fresh).store(simplify(self._place(u, staged_index(u, table)[0])), value, gate)
        return store if rounds == 1 or is_lane(round_) else UOp(Ops.END, dtypes.void, (store, round_))

    def _carry(self, reduces: Sequence[UOp]) -> None:
        """Reductions into memory, the loops over the block of sums inside of those that are reduced."""
        stages = [self.carried[u] for u in reduces]
        outer, block = self._outer(stages[0]), loops_among(stages[0].src[1:])
        loops = loops_among(reduces[0].src[1:])
        zero = {r: r.replace(arg=replace(r.arg, name=f"zero.{r.arg.name}")) for r in block}
        memories: list[UOp] = []
        clear: list[UOp] = []
        for u, stage in zip(reduces, stages):
            index, size = staged_index(stage, {})
            memories.append(self._buffer(Space.REGISTER, u.dtype, size))
            clear.append(memories[-1].after(*outer).store(substitute(index, zero), identity(u.arg, u.dtype)))
        self.arrays.update(memories)
        cleared = close_loops(clear, list(zero.values()))
        updates: list[UOp] = []
        for u, stage, memory in zip(reduces, stages, memories):
            index, _ = staged_index(stage, {})
            inside = memory.after(*cleared, *loops, *block)
            updates.append(inside.store(index, accumulate(u.arg, inside.load(index), self.done[u.src[0]])))
        ends = close_loops(updates, [*loops, *block])
        for stage, memory in zip(stages, memories):
            self.done[stage] = memory.after(*ends)

    # -- threads -----------------------------------------------------------------------------------------------
    def _exchange(self, group: list[UOp], values: list[UOp], threads: list[UOp], outer: list[UOp]) -> list[UOp]:
        # of exchanges that follow from each other, each has a loop of its own
        first = "_".join([f"first{self.depth[group[0]]}", *(str(t.arg[1]) for t in threads)])
        return self.exchange.combined(
            group, values, threads, outer, first if self._is_for_first(group, threads) else ""
        )

    def _is_for_first(self, group: list[UOp], threads: list[UOp]) -> bool:
        """Whether sums go to stores alone, which the first of the threads carries out, be it to tell the others."""
        above, seen = list(group), set(group)
        while above:
            for u in self.users[above.pop()]:
                if u.op is Ops.STORE:
                    if len(u.src) < 4 or not {simplify(t.equal(0)) for t in threads} <= set(clauses(u.src[3])):
                        return False
                elif is_shared(u) and not u.src[1:]:
                    continue
                elif u.op not in ELEMENTWISE:
                    return False
                elif u not in seen:
                    seen.add(u)
                    above.append(u)
        return not self.updates and not self.before


def specials_of(u: UOp) -> frozenset[UOp]:
    """The hardware indices that a value varies over: not those it is reduced or staged over."""
    return on_node(u, "_specials", _specials_of)


def _specials_of(u: UOp) -> frozenset[UOp]:
    if u.op is Ops.SPECIAL:
        return frozenset((u,))
    found: frozenset[UOp] = frozenset().union(*(specials_of(s) for s in u.src))
    return found.difference(u.src[1:]) if u.op in (Ops.REDUCE, Ops.STAGE) else found


def accumulate(op: Ops, acc: UOp, value: UOp) -> UOp:
    """One step of a reduction; a product added up is one MULADD."""
    if op is Ops.ADD and value.op is Ops.MUL and value.dtype.is_float:
        return UOp(Ops.MULADD, acc.dtype, (*value.src, acc))
    return UOp(op, acc.dtype, (acc, value))


def staged_index(u: UOp, table: Mapping[UOp, UOp]) -> tuple[UOp, int]:
    """Where a STAGE keeps the value for a step of its ranges (renamed by `table`), and its elements in all."""
    ranges = u.src[1:]
    strides, size = u.arg.strides([lane_count(r) for r in ranges])
    index = index_const(0)
    for r, stride in zip(ranges, strides):
        index = add(index, make(Ops.MUL, dtypes.index, (table.get(r, r), index_const(stride))))
    return index, size

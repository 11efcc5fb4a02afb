"""STAGEs become memory and what fills it: an invocation's own, or a workgroup's, by all its threads together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import (
    Axis,
    AxisKind,
    BufferArg,
    Ops,
    Products,
    Space,
    Swizzle,
    UOp,
    is_lane,
    lane_count,
    nested,
    specials_of,
    substitute,
)
from tinyweb.graph.lower.constructors import add, both, flatten, index_const, is_const, make, tile_index
from tinyweb.graph.lower.groups import free_loops, is_shared, loops_among
from tinyweb.graph.symbolic import simplify
from tinyweb.graph.target import Target

# up to this many rounds in which a workgroup fills shared memory are unrolled: their loads do not wait for each other
UNROLLED_ROUNDS = 8


def close_loops(
    effects: Sequence[UOp], loops: Sequence[UOp], last: Mapping[UOp, tuple[UOp, ...]] | None = None,
    begun: Sequence[UOp] | None = None,
) -> tuple[UOp, ...]:  # fmt: skip
    """Effects in one nest of loops (outermost first), after its end. `last`: what is done at the end of their steps,
    or behind what they have `begun`."""
    ends = tuple(effects)
    for r in reversed(loops):
        more = (last or {}).get(r, ())
        ends = (*ends, *more) if begun is None else (*(begun if r is loops[-1] else ()), *more, *ends)
        ends = (UOp(Ops.END, dtypes.void, (*ends, r)),)
    return ends


def staged_index(u: UOp, table: Mapping[UOp, UOp]) -> tuple[UOp, int]:
    """Where a STAGE keeps the value for a step of its ranges (renamed by `table`), and its elements in all."""
    # of threads' registers each has its own elements
    alone = u.arg.space is Space.REGISTER
    ranges = [r for r in u.src[1:] if r.op is Ops.RANGE or not alone]
    strides, size = u.arg.strides([lane_count(r) for r in ranges])
    index = index_const(0)
    for r, stride in zip(ranges, strides):
        index = add(index, make(Ops.MUL, dtypes.index, (table.get(r, r), index_const(stride))))
    return index, size


class Staging:
    """What a kernel's values have become so far, and the memory of its STAGEs."""

    def __init__(self, target: Target, workgroup: tuple[int, int, int]):
        self.target, self.workgroup = target, workgroup
        self.done: dict[UOp, UOp] = {}
        self.arrays: set[UOp] = set()
        self.buffers = 0
        self.carried: dict[UOp, UOp] = {}  # REDUCEs whose sums are staged memory, and the STAGEs
        self.tiles: dict[UOp, tuple[UOp, dict[UOp, UOp]]] = {}  # where the sums of an instruction for matrices are
        self.last: dict[UOp, tuple[UOp, ...]] = {}  # what is done at the end of each step of a loop
        self.slots: dict[UOp, UOp] = {}  # shared memory that is filled ahead, and the loop whose steps it has
        self.late: frozenset[UOp] = frozenset()  # … of which the step before the present one is read

    def _buffer(self, space: Space, dtype: DType, size: int, swizzle: Swizzle | None = None) -> UOp:
        self.buffers += 1
        return UOp(Ops.BUFFER, dtype, (), BufferArg(space, self.buffers - 1, size, swizzle=swizzle))

    def _shared_memory(self, u: UOp, slots: int = 1) -> UOp:
        """What a STAGE in SHARED memory lies in."""
        size, sizes = staged_index(u, {})[1] * self._copies(u), [lane_count(r) for r in u.src[1:]]
        row = prod(sizes[len(sizes) - u.arg.row :])
        swizzle = Swizzle(u.arg.swizzle, row, size // row) if u.arg.swizzle else None
        return self._buffer(Space.SHARED, u.dtype, size * slots, swizzle)

    def _outer(self, u: UOp) -> list[UOp]:
        """The serial loops a node of the kernel depends on, outermost first."""
        return [self.done.get(r, r) for r in free_loops(u)]

    def _stage_in_registers(self, u: UOp) -> UOp:
        """Fills an invocation's own memory with a value for every step of the STAGE's ranges: that memory, filled."""
        value, ranges, outer = self.done[u.src[0]], [r for r in u.src[1:] if r.op is Ops.RANGE], self._outer(u)
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
            return [], [*lanes, *reversed(self._threads_of(u))]
        vector = [r for r in lanes if r.arg.kind is AxisKind.VECTOR]
        return vector, [r for r in lanes if r not in vector]

    def _threads_of(self, u: UOp) -> list[UOp]:
        """The thread indices that a value of the kernel varies over."""
        return sorted((t for t in specials_of(u) if t.arg[0] == "thread"), key=lambda t: int(t.arg[1]))

    def _own_index(self, u: UOp, index: UOp) -> UOp:
        """Where a thread has the element `index` of a STAGE in registers that is divided among threads, which it has:
        the digits of the number that are not a thread's."""
        if u.arg.space is not Space.REGISTER or all(r.op is Ops.RANGE for r in u.src[1:]):
            return index
        below, table = 1, {}
        for r in reversed(u.src[1:]):
            table[r], below = index // below % lane_count(r), below * lane_count(r)
        return simplify(staged_index(u, table)[0])

    def _copies(self, u: UOp) -> int:
        return prod(lane_count(r) for lanes in self._own(u) for r in lanes)

    def _place(self, u: UOp, index: UOp) -> UOp:
        """Where the lane at hand has the element `index` of a STAGE."""
        inside, around = self._own(u)
        (inner, width), (outer, _) = tile_index(inside), tile_index(around)
        size = staged_index(u, {})[1] * width
        place = add(make(Ops.MUL, dtypes.index, (index, index_const(width))), inner)
        place = add(make(Ops.MUL, dtypes.index, (outer, index_const(size))), place)
        return place if u not in self.slots else add(self.slots[u] % u.arg.slots * (size * self._copies(u)), place)

    def _stage_shared(self, group: list[UOp]) -> dict[UOp, UOp]:
        """Shared memories, filled by all threads together; those read in one place between one pair of barriers."""
        outer = self._outer(group[0])
        if group[0].arg.slots > 1 and outer and all(self._is_ahead(u) for u in group):
            return self._stage_ahead(group, outer)
        # what the previous step of an enclosing loop still reads must not be overwritten
        fresh: tuple[UOp, ...] = (UOp(Ops.BARRIER, dtypes.void, tuple(outer)),) if outer else ()
        memories = [self._shared_memory(u) for u in group]
        fills = [self._fill(u, m, fresh) for u, m in zip(group, memories)]
        # what the first thread alone computes it does in one loop
        alone = [f for u, f in zip(group, fills) if not u.src[1:]]
        loops = nested({r for f in alone for r in free_loops(f) if r not in outer})
        fills = [*(f for f in fills if f not in alone), *close_loops(alone, loops)]
        filled = UOp(Ops.BARRIER, dtypes.void, tuple(fills))
        return {u: memory.after(filled) for u, memory in zip(group, memories)}

    def _is_ahead(self, u: UOp) -> bool:
        """Whether a STAGE is but read of parameters, by all threads in rounds, so that it can be filled earlier."""
        made = any(x.op is Ops.AFTER for x in self.done[u.src[0]].toposort())
        return bool(u.arg.slots > 1 and u.src[1:]) and not made and not self._threads_of(u)

    def _stage_ahead(self, group: list[UOp], outer: list[UOp]) -> dict[UOp, UOp]:
        """Shared memories that hold several steps of the innermost loop: in each step it is waited for the one that is
        read now, and at its end the one that was read before is filled with what is read later."""
        *around, loop = outer
        size = loop.src[0]
        self.slots |= dict.fromkeys(group, loop)
        memories = [self._shared_memory(u, u.arg.slots) for u in group]
        ahead = group[0].arg.slots - 1 - group[0].arg.lag  # steps

        def filled(step: UOp, after: tuple[UOp, ...]) -> UOp:
            inside = simplify(step < size)
            at = {loop: step if is_const(inside, 1) else step.minimum(size + -1)}
            # what is computed behind the last step goes where nothing is read: a branch would wait for its loads
            gates = (None if is_const(inside, 1) or u.src[0].op is not Ops.LOAD else inside for u in group)
            fills = [self._fill(u, m, after, at, step, gate) for u, m, gate in zip(group, memories, gates)]
            return UOp(Ops.BARRIER, dtypes.void, tuple(fills), "sent")

        sent = UOp(Ops.BARRIER, dtypes.void, tuple(around)) if around else None
        # what is read of the step before the first is nothing
        nothing = [
            self._fill(u, m, () if sent is None else (sent,), None, index_const(u.arg.slots - 1), None, True)
            for u, m in zip(group, memories)
            if u in self.late
        ]
        for i in range(ahead):
            sent = filled(index_const(i), () if sent is None else (sent,))
        assert sent is not None
        arrived = UOp(Ops.BARRIER, dtypes.void, (sent, *nothing, loop), ahead - 1)
        last = filled(loop + ahead, (arrived,))
        lag = max(u.arg.lag for u in group)
        if lag and not self.late.intersection(group):
            last = UOp(Ops.BARRIER, dtypes.void, (last,), Products(lag))
        self.last[loop] = (*self.last.get(loop, ()), last)
        return {u: memory.after(arrived) for u, memory in zip(group, memories)}

    def _fill(
        self, u: UOp, memory: UOp, fresh: tuple[UOp, ...], at: Mapping[UOp, UOp] | None = None,
        slot: UOp | None = None, only: UOp | None = None, zeros: bool = False,
    ) -> UOp:  # fmt: skip
        """Stores a value, or zeros, for every step of a STAGE's ranges: each thread its own where threads are among
        them, else all threads in rounds, neighbours beside each other. `at`: with what stands for loops around it, in a
        slot, `only` where that is there."""
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
        # what is filled ahead is filled in several places, each in a loop of its own
        name = f"fill{memory.arg.id}" if slot is None or slot.op is not Ops.CONST else f"fill{memory.arg.id}.{slot.arg}"
        axis = Axis(name, 1 << 20, kind, reduce=True)
        round_ = UOp(Ops.RANGE, dtypes.index, (index_const(rounds),), axis) if rounds > 1 else index_const(0)
        flat = add(make(Ops.MUL, dtypes.index, (round_, index_const(team))), mine)
        # simplified, as all that other fills may have below them: it must stay the same node when they are
        gate = simplify(flat < count) if count % team else None
        inside = flat if gate is None else flat.minimum(count - 1)
        table: dict[UOp, UOp] = {}
        for r in reversed(steps):
            table[r] = inside % lane_count(r)
            inside = inside // lane_count(r)
        value = UOp.const(0, u.dtype) if zeros else self.done[u.src[0]]
        value = simplify(substitute(value, {**table, **(at or {})}))
        place = self._place(u, staged_index(u, table)[0])
        place = place if slot is None else substitute(place, {self.slots[u]: slot})
        store = memory.after(*fresh).store(simplify(place), value, both(gate, only))
        store = store if slot is None or zeros else store.replace(arg="ahead")
        return store if rounds == 1 or is_lane(round_) else UOp(Ops.END, dtypes.void, (store, round_))

"""REDUCEs and output ranges become loops, accumulators and, over threads, exchanges through shared memory.

Before: a kernel whose GRID and THREAD ranges are SPECIALs already. After: effects. A REDUCE over LOOP ranges is a
REGISTER buffer with one element per lane of its tile, set to the identity outside of the loops and updated inside;
one over threads goes through a SHARED buffer. What remains of REDUCE are sums over lanes alone (VECTOR and UNROLL
ranges): devectorizing does those. Tiles are still one node: an accumulator's index is an expression in the lane ranges.

A STAGE of a REDUCE whose loops nest outside of the STAGE's is carried out in that order: the staged memory is the
accumulator, a whole block of sums that every step of the reduction walks over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import (
    ELEMENTWISE,
    Axis,
    AxisKind,
    Ops,
    Space,
    UOp,
    identity,
    is_lane,
    lane_count,
    nest_key,
    substitute,
    users,
)
from tinyweb.graph.ir.shared_matrices import BEGUN
from tinyweb.graph.lower.constructors import index_const, is_const, tile_index
from tinyweb.graph.lower.exchange import Exchange
from tinyweb.graph.lower.groups import free_loops, groups_of, is_shared, loops_among, merge_key, stage_key
from tinyweb.graph.lower.held_sums import HeldSums
from tinyweb.graph.lower.last_found import last_found
from tinyweb.graph.lower.shared_results import share_results
from tinyweb.graph.lower.staging import Staging, close_loops, staged_index
from tinyweb.graph.lower.steps import first_steps, steps_before
from tinyweb.graph.optimize.instructions import Instruction, Match, matrix_of
from tinyweb.graph.symbolic import clauses, simplify
from tinyweb.graph.target import Target

# independent accumulators hide the latency of an addition; below this many, unrolled lanes stay apart
ENOUGH_ACCUMULATORS = 4


def lower_loops(kernel: UOp, target: Target, workgroup: tuple[int, int, int]) -> tuple[UOp, frozenset[UOp]]:
    """A SINK of effects that carries out the kernel's stores; and the REGISTER buffers that are arrays, not
    variables.
    """
    reduces = _Reduces(kernel, target, workgroup)
    return close_output_loops(share_results(reduces.run(), reduces.exchange.buffer)), frozenset(reduces.arrays)


def close_output_loops(stores: Sequence[UOp]) -> UOp:
    """One END per output range; stores that share a range share its loop."""
    pending = list(stores)
    while loops := {r for p in pending for r in free_loops(p)}:
        inner = max(loops, key=nest_key)
        closed = [p for p in pending if inner in p.ranges]
        end = UOp(Ops.END, dtypes.void, (*closed, inner))
        pending = [end if p is closed[0] else p for p in pending if p is closed[0] or p not in closed]
    return UOp(Ops.SINK, dtypes.void, tuple(pending))


@dataclass(frozen=True)
class _Running:
    """A REDUCE that is also asked for within its loop: its accumulator, and its value before and after a step."""

    memory: UOp
    index: UOp
    inside: UOp
    before: UOp
    after: UOp


@dataclass(frozen=True)
class _Sums:
    """What a step of a REDUCE's loops does, its accumulator, the index of a sum in it, and lanes that are added up
    after the loops."""

    updates: tuple[UOp, ...]
    memory: UOp
    index: UOp
    lanes: Sequence[UOp] = ()


@dataclass(frozen=True)
class _Late:
    """The factors of a product: weights that a step has stored in registers, and values in a slot of shared memory."""

    factors: tuple[UOp, ...]
    weights: UOp
    values: UOp
    slots: int

    def at(self, weights: UOp, values: UOp, at: UOp, step: UOp) -> list[UOp]:
        """The same of other memory, at another step."""
        out = []
        for f, memory in zip(self.factors, (weights, values)):
            load = f.src[0] if f.op is Ops.CAST else f
            other = load.replace(src=(memory, simplify(substitute(load.src[1], {step: at}))))
            out.append(f.replace(src=(other,)) if f.op is Ops.CAST else other)
        return out


def _summed(u: UOp) -> UOp:
    """The sums of a step that a total is made of."""
    return u.src[0].src[0] if u.src[0].op is Ops.RESCALE else u


class _Reduces(Staging):
    """Rebuilds a kernel's values from the sources up, group of merged REDUCEs by group."""

    def __init__(self, kernel: UOp, target: Target, workgroup: tuple[int, int, int]):
        super().__init__(target, workgroup)
        self.exchange = Exchange(target, workgroup, self._buffer)
        groups = groups_of(kernel)
        self.kernel, self.order, self.depth = groups.kernel, groups.order, groups.depth
        self.groups = groups.groups
        self.carried |= groups.carried
        self.running: dict[UOp, _Running] = {}  # REDUCEs that others refer to step by step
        self.before = steps_before(self.kernel)
        self.first = first_steps(self.kernel, self.before)
        self.users = users([self.kernel])
        # sums that are rescaled: their registers, the index of one, and the end of a step
        self.joined: dict[UOp, tuple[UOp, UOp, tuple[UOp, ...]]] = {}
        self.begun: list[UOp] = []  # products of a step that go on while threads do
        self.ended: dict[UOp, Callable[[tuple[UOp, ...]], tuple[UOp, ...]]] = {}  # … and what follows those of the last
        self.products = 0
        self.late = frozenset(self._late())
        self.updates: list[tuple[UOp, UOp, UOp]] = []  # of registers that hold what the step before has stored

    def run(self) -> list[UOp]:
        # a group's members have one depth, and all they need is less deep: depth by depth, groups are complete
        for u in sorted(self.order, key=lambda u: (self.depth[u], u.op is not Ops.REDUCE and not is_shared(u))):
            self._visit(u)
        if self.last:
            raise ValueError("shared memory is filled ahead for a loop that reduces nothing")
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
            memory, index = self.done[u.src[0]], self._own_index(u.src[0], self.done[u.src[1]])
            self.done[u] = u.replace(src=(memory, self._place(u.src[0], index), *(self.done[s] for s in u.src[2:])))
            return
        self.done[u] = u.with_sources(tuple(self.done[s] for s in u.src))

    # -- one group ---------------------------------------------------------------------------------------------
    def _lower_group(self, group: list[UOp]) -> list[UOp]:
        first = group[0]
        bound = tuple(self.done.get(r, r) for r in first.src[1:])  # sizes may be reduced values
        joint = any(u.src[0].op is Ops.RESCALE for u in group)
        loops = [r for r in bound if r.op is Ops.RANGE and r.arg.kind is AxisKind.LOOP and not is_const(r.src[0], 1)]
        loops.sort(key=nest_key)
        threads = sorted((r for r in bound if r.op is Ops.SPECIAL), key=lambda r: -int(r.arg[1]))
        outer = self._outer(first)
        made = [self._member(u, bound, outer, loops) for u in group]
        sums = {u: p for u, p in zip(group, made) if isinstance(p, _Sums)}
        # products that were begun in the step before are waited for last
        updates = [e for _, p in sorted(sums.items(), key=lambda x: _summed(x[0]) in self.ended) for e in p.updates]
        last = {r: self.last.pop(r) for r in loops if r in self.last} if updates else {}
        # of two products in a step the copies of later ones are asked for while the first goes on
        begun = [e for e in self.begun if loops and loops[-1] in e.ranges] if joint else None
        ends = close_loops(updates, loops, last, begun) if updates else ()
        self.joined |= {u: (p.memory, p.index, ends) for u, p in sums.items() if self._rescaled(u) is not None}
        done = {u: self.ended[_summed(u)](ends) if loops and _summed(u) in self.ended else ends for u in group}
        values = [
            self._over_lanes(u, p.memory.after(*done[u]).load(p.index), p.lanes) if isinstance(p, _Sums) else p
            for u, p in zip(group, made)
        ]
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

    def _member(self, u: UOp, bound: tuple[UOp, ...], outer: list[UOp], loops: list[UOp]) -> UOp | _Sums:
        """A REDUCE of a group: its value, or what a step of the loops does for it."""
        rescaled = u.src[0].op is Ops.RESCALE
        if rescaled and not loops:
            return self.done[u.src[0].src[0]]
        if u in self.running:
            run = self.running[u]
            return _Sums((run.inside.store(run.index, run.after),), run.memory, run.index)
        if rescaled and (joined := self.joined.get(u.src[0].src[0])) is not None:
            acc, index, ends = joined
            return _Sums(ends, acc, index)
        if rescaled:
            inner, factor = (self.done[s] for s in u.src[0].src)
            acc, index = self._accumulator(u, self.done[u.src[0]], [])
            inside = acc.after(acc.after(*outer).store(index, identity(u.arg, u.dtype)), *loops)
            total = UOp(Ops.MULADD, u.dtype, (inside.load(index), factor, inner))
            return _Sums((inside.store(index, total),), acc, index)
        lanes = [r for r in bound if is_lane(r) and r in self.done[u.src[0]].lanes]
        idle = prod(lane_count(r) for r in bound if is_lane(r) and r not in lanes)
        value = self._repeated(u, self.done[u.src[0]], idle)
        matrix = matrix_of(self.target.instructions, u)
        if matrix is not None and idle == 1:
            held = matrix[0].fragments is not None
            updates, result = (self._held if held else self._matrices)(u, *matrix, lanes, outer, loops)
            return _Sums(updates, *result)
        if not loops:
            return self._over_lanes(u, value, lanes)
        found = last_found(value, loops) if u.arg is Ops.MAX else None
        kept = lanes if found else self._kept(value, lanes)
        inner = self._over_lanes(u, value, [r for r in lanes if r not in kept])
        acc, index = self._accumulator(u, inner, kept)
        inside = acc.after(acc.after(*outer).store(index, identity(u.arg, u.dtype)), *loops)
        sums = inside.load(index)
        total = found[0].where(found[1], sums) if found else accumulate(u.arg, sums, inner)
        return _Sums((inside.store(index, total),), acc, index, kept)

    def _matrices(
        self, u: UOp, instruction: Instruction, match: Match, lanes: list[UOp], outer: list[UOp], loops: list[UOp]
    ) -> tuple[tuple[UOp, ...], tuple[UOp, UOp]]:
        """Sums that an instruction for matrices adds to, whose elements are the lanes of one vector: the effects, and
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
        return (update,), (acc, substitute(index, {**back, within: element}))

    def _held(
        self, u: UOp, instruction: Instruction, match: Match, lanes: list[UOp], outer: list[UOp], loops: list[UOp]
    ) -> tuple[tuple[UOp, ...], tuple[UOp, UOp]]:
        """The same of sums that the threads of a subgroup have in their registers."""

        def of(operands: Sequence[UOp]) -> HeldSums:
            # sums of several products are told apart by their name
            self.products += 1
            return HeldSums(u, instruction, match, operands, lanes, self.target, f"tile{self.products}")

        rescaled = self._rescaled(u)
        if rescaled is not None and (late := self._late_operands(match, rescaled[0])) is not None:
            return self._held_late(u, of, late, *rescaled, outer)
        sums = of([self.done[f] for f in match.factors])
        acc, zero = self._buffer(Space.REGISTER, u.dtype, sums.count), identity(u.arg, u.dtype)
        if rescaled is None and not loops:
            update = acc.after(*outer).store(sums.index, sums.product)
            if sums.fragments.shared:
                self.begun.append(update)
            return (update,), (acc, sums.element)
        if rescaled is None:
            begun = acc.after(*outer).store(sums.index, zero)
        else:  # what earlier steps have summed is multiplied, and goes on growing
            step, factor = rescaled
            before = acc.after(acc.after(*(r for r in outer if r is not step)).store(sums.index, zero), step)
            begun = before.store(sums.index, before.load(sums.index) * sums.spread(self._once(factor, outer)))
        inside = acc.after(begun, *loops)
        return (inside.store(sums.index, inside.load(sums.index) + sums.product),), (acc, sums.element)

    def _held_late(
        self, u: UOp, of: Callable[[Sequence[UOp]], HeldSums], late: _Late, step: UOp, factor: UOp, outer: list[UOp]
    ) -> tuple[tuple[UOp, ...], tuple[UOp, UOp]]:
        """The same a step later: the products of the step before are begun behind this one's first, and go on while
        weights are made of those; they are waited for before sums are rescaled, and weights replaced. Those of the last
        step come behind the loop, and in the first there are none."""
        around, size = [r for r in outer if r is not step], step.src[0]
        weights, fill = late.weights.buffer, late.weights.src[1]
        none = weights.after(*around).store(fill.src[1], UOp.const(0, weights.dtype))
        sums = of(late.at(weights.after(none, step), late.values, step + (late.slots - 1), step))
        acc = self._buffer(Space.REGISTER, u.dtype, sums.count)
        first = tuple(e for e in self.begun if step in e.ranges)
        begun = (UOp(Ops.BARRIER, dtypes.void, first, BEGUN),) if first else ()
        inside = acc.after(acc.after(*around).store(sums.index, identity(u.arg, u.dtype)), step, *begun)
        added = inside.store(sums.index, inside.load(sums.index) + sums.product)
        self.begun.append(added)
        waited = acc.after(added)
        scaled = waited.store(sums.index, waited.load(sums.index) * sums.spread(self._once(factor, outer)))

        def ended(ends: tuple[UOp, ...]) -> tuple[UOp, ...]:
            last = of(late.at(weights.after(*ends), late.values.buffer.after(*ends), size + (late.slots - 1), step))
            memory = acc.after(*ends)
            return (memory.store(last.index, memory.load(last.index) + last.product),)

        self.ended[u] = ended
        return (scaled, fill.replace(src=(weights.after(added), *fill.src[1:]))), (acc, sums.element)

    def _once(self, factor: UOp, outer: list[UOp]) -> UOp:
        """What sums are rescaled with, in registers: it is computed for rows, and read for each of their sums."""
        memory, index = self._accumulator(factor, factor, [])
        return memory.after(memory.after(*outer).store(index, factor)).load(index)

    def _late_operands(self, match: Match, step: UOp) -> _Late | None:
        """The operands of a product that can wait for the next step: weights in registers, and what is still in shared
        memory then."""
        first, second = (f.src[0] if f.op is Ops.CAST else f for f in match.factors)
        if second.op is not Ops.LOAD or second.src[0] not in self.late or self.slots.get(second.src[0]) is not step:
            return None
        weights, values = self.done[first.src[0]], self.done[second.src[0]]
        return _Late(tuple(self.done[f] for f in match.factors), weights, values, second.src[0].arg.slots)

    def _late(self) -> Iterator[UOp]:
        """What is staged for products that can wait for the next step."""
        for u in self.order:
            found = matrix_of(self.target.instructions, u) if u.op is Ops.REDUCE else None
            fragments = None if found is None or self._total(u) is None else found[0].fragments
            if found is None or fragments is None or not fragments.first_held:
                continue
            first, second = (f.src[0] if f.op is Ops.CAST else f for f in found[1].factors)
            held = first.op is Ops.LOAD and first.src[0].op is Ops.STAGE and first.src[0].arg.space is Space.REGISTER
            if (
                held
                and second.src[0].arg.lag == 1
                and all(r.op is not Ops.RANGE or is_lane(r) for r in first.src[0].src[1:])
            ):
                yield second.src[0]

    def _total(self, u: UOp) -> tuple[UOp, UOp] | None:
        """The RESCALE and the REDUCE over one loop that are all that sums of a step are for."""
        above = self.users[u]
        totals = self.users[above[0]] if len(above) == 1 else []
        alone = len(totals) == 1 and above[0].op is Ops.RESCALE and u is above[0].src[0] and len(totals[0].src) == 2
        return (above[0], totals[0]) if alone else None

    def _rescaled(self, u: UOp) -> tuple[UOp, UOp] | None:
        """The loop over whose steps sums that a subgroup holds are added up and nothing else done with them, and what
        earlier sums are multiplied with."""
        found = matrix_of(self.target.instructions, u) if u.op is Ops.REDUCE else None
        total = self._total(u)
        if found is None or found[0].fragments is None or total is None:
            return None
        step = self.done.get(total[1].src[1], total[1].src[1])
        return None if is_const(step.src[0], 1) else (step, self.done[total[0].src[1]])

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

    def _over_lanes(self, u: UOp, value: UOp, lanes: Sequence[UOp]) -> UOp:
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


def accumulate(op: Ops, acc: UOp, value: UOp) -> UOp:
    """One step of a reduction; a product added up is one MULADD."""
    if op is Ops.ADD and value.op is Ops.MUL and value.dtype.is_float:
        return UOp(Ops.MULADD, acc.dtype, (*value.src, acc))
    return UOp(op, acc.dtype, (acc, value))

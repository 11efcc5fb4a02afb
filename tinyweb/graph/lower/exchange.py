"""What threads have reduced each, combined: through SHARED memory, or in subgroups where the target has them."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import Axis, AxisKind, Neighbours, Ops, Space, UOp, identity
from tinyweb.graph.ir.program_spec import combines_as_neighbours, combines_in_subgroups
from tinyweb.graph.lower.constructors import add, flatten, index_const, make, tile_index
from tinyweb.graph.optimize.cost import FLAT_EXCHANGE, FLAT_IN_LOOP, exchange_step
from tinyweb.graph.symbolic import simplify
from tinyweb.graph.target import Target

SMALLEST_SUBGROUP = 4


class Exchange:
    """The exchanges of one kernel, whose workgroup has so many threads in each dimension; `buffer` makes memory."""

    def __init__(self, target: Target, workgroup: tuple[int, int, int], buffer: Callable[[Space, DType, int], UOp]):
        self.target, self.workgroup, self.buffer = target, workgroup, buffer
        self.count = 0  # of rounds: their loops have names of their own

    def combined(
        self, group: list[UOp], values: list[UOp], threads: list[UOp], outer: list[UOp], first: str
    ) -> list[UOp]:
        """Every thread's partial result, through shared memory, into the sum that every thread reads; or the first one
        alone, in a loop of that name.
        """
        shape = [int(t.src[0].arg) for t in threads]
        count = prod(shape)
        known = all(combines_as_neighbours(u.arg, u.dtype) for u in group)
        if known and self._are_neighbours(threads, count):
            return [UOp(Ops.SUBGROUP, u.dtype, (v,), Neighbours(u.arg, count)) for u, v in zip(group, values)]
        mine = flatten([(t, n) for t, n in zip(threads, shape)])
        others = [
            (UOp(Ops.SPECIAL, dtypes.index, (index_const(n),), ("thread", d)), n) for d, n in enumerate(self.workgroup)
        ]
        others = [(t, n) for t, n in others if n > 1 and t not in threads]
        # neighbours are sure to be in one subgroup only where the workgroup has one dimension
        neighbours = self.target.subgroups and not others and len(threads) == 1 and count >= SMALLEST_SUBGROUP
        if neighbours and all(combines_in_subgroups(u.arg, u.dtype) for u in group):
            return self._over_subgroups(group, values, mine, count, outer)
        team, teams = flatten(others), prod(n for _, n in others)
        # what an earlier round of the enclosing loops still reads must not be overwritten
        fresh: tuple[UOp, ...] = (UOp(Ops.BARRIER, dtypes.void, tuple(outer)),) if outer else ()
        if not first and known and self._are_rows(threads, shape):
            rows = flatten(list(zip(threads[:-1], shape[:-1]))), prod(shape[:-1])
            return self._over_rows(group, values, rows, (threads[-1], shape[-1]), (team, teams), fresh)
        tiles = [list(v.lanes) for v in values]
        step, some = 1, None
        if count > (FLAT_IN_LOOP if outer else FLAT_EXCHANGE):
            step = exchange_step(count)
            # as many threads add up parts; the others take no step of a loop
            some = _entered(f"part{self.count}", index_const(1) - mine // step)
            values = self._round(group, values, tiles, fresh, (team, teams), (mine, count), mine % step, step, some)
            count = step
        alone = _entered(first, index_const(1) - mine) if first else None
        return self._round(group, values, tiles, fresh, (team, teams), (mine, count), None, 1, alone, some)

    def _are_neighbours(self, threads: list[UOp], count: int) -> bool:
        """Whether threads are all of a workgroup along its first dimension, and read each other's registers."""
        first = [t.arg[1] for t in threads] == [0] and count == self.workgroup[0]
        return first and count <= self.target.neighbours and count & (count - 1) == 0

    def _are_rows(self, threads: list[UOp], shape: list[int]) -> bool:
        """Whether they are several rows of such neighbours, no more than a row has threads."""
        rows = prod(shape[:-1])
        return 1 < rows <= shape[-1] and rows & (rows - 1) == 0 and self._are_neighbours(threads[-1:], shape[-1])

    def _over_rows(
        self, group: list[UOp], values: list[UOp], rows: tuple[UOp, int], mine: tuple[UOp, int], team: tuple[UOp, int],
        fresh: tuple[UOp, ...],
    ) -> list[UOp]:  # fmt: skip
        """Each row of neighbours combines its threads' results, and again what all rows have of these in memory."""
        (row, count), (place, size) = rows, mine
        stores, places = [], []
        for u, value in zip(group, values):
            index, tile = tile_index(value.lanes)
            shared = self.buffer(Space.SHARED, u.dtype, tile * team[1] * count)
            base = add(make(Ops.MUL, dtypes.index, (index, index_const(team[1]))), team[0])
            base = make(Ops.MUL, dtypes.index, (base, index_const(count)))
            own = UOp(Ops.SUBGROUP, u.dtype, (value,), Neighbours(u.arg, size))
            stores.append(shared.after(*fresh).store(add(base, row), own, place.equal(0)))
            places.append((shared, base))
        arrived = UOp(Ops.BARRIER, dtypes.void, tuple(stores))
        parts = [shared.after(arrived).load(add(base, simplify(place % count))) for shared, base in places]
        return [UOp(Ops.SUBGROUP, u.dtype, (v,), Neighbours(u.arg, count)) for u, v in zip(group, parts)]

    def _over_subgroups(
        self, group: list[UOp], values: list[UOp], mine: UOp, count: int, outer: list[UOp]
    ) -> list[UOp]:
        """Each subgroup combines its threads' results; what those are together, every thread adds up by itself.

        Neighbours are in one subgroup, whose size is known only when it runs.
        """
        size = UOp(Ops.SUBGROUP_SIZE, dtypes.index, ())
        slots = -(-count // SMALLEST_SUBGROUP)
        fresh: tuple[UOp, ...] = (UOp(Ops.BARRIER, dtypes.void, tuple(outer)),) if outer else ()
        self.count += 1
        stores, places = [], []
        for u, value in zip(group, values):
            index, tile = tile_index(value.lanes)
            shared = self.buffer(Space.SHARED, u.dtype, tile * slots)
            base = make(Ops.MUL, dtypes.index, (index, index_const(slots)))
            together = UOp(Ops.SUBGROUP, u.dtype, (value,), u.arg)
            stores.append(shared.after(*fresh).store(add(base, mine // size), together, (mine % size).equal(0)))
            places.append((shared, base, index, tile))
        arrived = UOp(Ops.BARRIER, dtypes.void, tuple(stores))
        subgroups = simplify((size + (count - 1)) // size)
        round_ = UOp(Ops.RANGE, dtypes.index, (subgroups,), Axis(f"round_{self.count}", 1 << 20))
        updates, sums = [], []
        for u, (shared, base, index, tile) in zip(group, places):
            acc = self.buffer(Space.REGISTER, u.dtype, tile)
            init = acc.after(*outer, arrived).store(index, identity(u.arg, u.dtype))
            inside = acc.after(init, round_)
            part = shared.after(arrived).load(add(base, round_))
            updates.append(inside.store(index, UOp(u.arg, u.dtype, (inside.load(index), part))))
            sums.append((acc, index))
        end = UOp(Ops.END, dtypes.void, (*updates, round_))
        out = [acc.after(end).load(index) for acc, index in sums]
        return out

    def _round(
        self, group: list[UOp], values: list[UOp], tiles: list[list[UOp]], fresh: tuple[UOp, ...],
        team: tuple[UOp, int], mine: tuple[UOp, int], residue: UOp | None, step: int, readers: UOp | None,
        writers: UOp | None = None,
    ) -> list[UOp]:  # fmt: skip
        """Writes `mine[1]` values per team and reads every `step`-th of them back, starting at `residue`, combined: in
        the loops that only `writers` and `readers` enter."""
        count = mine[1]
        stores, places = [], []
        self.count += 1
        for u, value, lanes in zip(group, values, tiles):
            index, size = tile_index(lanes)
            shared = self.buffer(Space.SHARED, u.dtype, size * team[1] * count)
            base = add(index * team[1], team[0]) if team[1] > 1 else index
            base = make(Ops.MUL, dtypes.index, (base, index_const(count)))
            stores.append(shared.after(*fresh).store(add(base, mine[0]), value))
            places.append((shared, base))
        if writers is not None:
            stores = [UOp(Ops.END, dtypes.void, (*stores, writers))]
        arrived = UOp(Ops.BARRIER, dtypes.void, tuple(stores))
        out = []
        for u, (shared, base) in zip(group, places):
            reads = -(-count // step)
            round_ = UOp(
                Ops.RANGE,
                dtypes.index,
                (index_const(reads),),
                Axis(f"round_{self.count}.{step}", 1 << 20, AxisKind.UNROLL, True),
            )
            position = round_ * step if residue is None else round_ * step + residue
            inside = position < count if count % step else None
            memory = shared.after(arrived) if readers is None else shared.after(arrived, readers)
            value = memory.load(add(base, position), inside)
            if inside is not None and u.arg is not Ops.ADD:
                value = inside.where(value, identity(u.arg, u.dtype))
            out.append(UOp(Ops.REDUCE, u.dtype, (value, round_), u.arg))
        return out


def in_every_thread(count: int) -> int:
    """How many partial results of so many threads each of them puts together."""
    return count if count <= FLAT_EXCHANGE else exchange_step(count)


def _entered(name: str, steps: UOp) -> UOp:
    """A loop that only the threads enter for which `steps` is 1."""
    return UOp(Ops.RANGE, dtypes.index, (simplify(steps),), Axis(name, 1 << 21))

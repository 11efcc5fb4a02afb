"""Native code and WASM: vectors along memory, tiles of registers, blocks of rows for the workers."""

from __future__ import annotations

from tinyweb.graph.ir import AxisKind, Ops, Space, UOp, users
from tinyweb.graph.optimize.actions import Action, Bind, Peel, Reorder, Split
from tinyweb.graph.optimize.analysis import Analysis
from tinyweb.graph.optimize.apply import apply_legal
from tinyweb.graph.optimize.hoist import Hoist
from tinyweb.graph.optimize.stage import Stage, stages_of, whole_value
from tinyweb.graph.symbolic import const_factor
from tinyweb.graph.target import Target

# fewer elements than this are done sooner by one worker than the others are woken
WORTH_SHARING = 1 << 15
BLOCKS_PER_WORKER = 4
REPEATED = 64  # bodies of reductions that unrolling makes, one after the other: more are slow to compile
SUMMED, SUMMED_VECTOR, ROWS_TOGETHER = 2048, 32, 8  # sums that stay near, lanes of one, rows added at a time
STAGED = 6144  # elements of float32 that stay in the first-level cache beside what they are multiplied with


def schedule_for_c(k: Analysis, target: Target) -> list[Action]:
    """Actions for a kernel on a processor."""
    plan = _Plan(k, target)
    if k.heavy is None:
        plan.elementwise(k.outputs)
        plan.share()
    else:
        plan.reduction(k.heavy)
    return plan.actions


def schedule_shared(k: Analysis, target: Target) -> list[Action]:
    """The longest axis over the workers, and nothing else."""
    plan = _Plan(k, target)
    r = max(k.outputs, key=k.size, default=None)
    return [Bind(r.arg.name, AxisKind.GRID)] if r is not None and plan.worth_sharing() else []


class _Plan:
    def __init__(self, k: Analysis, target: Target):
        self.k, self.target, self.lanes = k, target, target.vector_lanes
        self.actions: list[Action] = []
        self.left = {
            r: (r.arg.name, k.size(r)) for r in k.outputs
        }  # what is left of an output axis as a loop: name, size

    # -- steps -------------------------------------------------------------------------------------------------
    def tile(self, r: UOp, factor: int, kind: AxisKind) -> None:
        """The inner `factor` of an axis becomes lanes."""
        name, exact = r.arg.name, self.k.exact(r)
        if factor <= 1:
            return
        if exact == factor:
            self.actions.append(Bind(name, kind))
            self.left.pop(r, None)
            return
        if const_factor(exact) % factor == 0:
            self.actions.append(Split(name, factor))
        elif r.arg.reduce and self.may_peel(r, factor):
            self.actions.append(Peel(name, factor))
        elif r.arg.reduce:
            self.actions.append(Split(name, factor))  # one body, gated
        else:
            # the last block begins earlier: that needs a full block, and no element that is updated twice
            self.actions.append(Split(name, factor, overlap=self.may_overlap(r, factor)))
        self.actions.append(Bind(f"{name}.1", kind))
        if r in self.left:
            self.left[r] = (f"{name}.0", -(-self.k.size(r) // factor))

    def may_peel(self, r: UOp, factor: int) -> bool:
        """No reduction inside depends on the axis, and of a symbolic one there may be several whole blocks."""
        long_enough = isinstance(self.k.exact(r), int) or (factor > 2 and self.k.size(r) >= 2 * factor)
        return long_enough and not any(r in u.ranges for u in self.k.reduces)

    def may_overlap(self, r: UOp, factor: int) -> bool:
        exact = self.k.exact(r)
        return isinstance(exact, int) and exact >= factor and not self.k.in_place

    def width(self, accesses: list[UOp], r: UOp, limit: int) -> int:
        """The vector to walk an axis in, as far as the accesses follow it: whole vectors, or narrower ones that
        divide it.
        """
        size, factor = self.k.size(r), const_factor(self.k.exact(r))
        width = limit
        while width > 1:
            divides = factor % width == 0
            # what is left over costs scalar steps
            ragged = width <= max(self.lanes, 8) and (size >= 4 * width if r.arg.reduce else self.may_overlap(r, width))
            narrow = factor % (width // 2) == 0 and width // 2 * 2 >= self.lanes and not divides
            if (divides or (ragged and not narrow)) and any(self.k.follows(a, r, width, False) for a in accesses):
                return width
            width //= 2
        return 1

    def unrolled(self, r: UOp, most: int) -> int:
        """How often to unroll an axis: a divisor of its size if there is one that is not much smaller than `most`."""
        exact = self.k.exact(r)
        if isinstance(exact, int):
            if exact <= most:
                return exact
            for f in range(most, most // 2, -1):
                if exact % f == 0:
                    return f
        return most

    # -- kinds of kernels --------------------------------------------------------------------------------------
    def elementwise(self, axes: list[UOp]) -> None:
        """A vector along the axis that the stores follow."""
        k, best, width = self.k, None, 1
        if k.chases:
            return
        widest = max((u.dtype.bits for u in k.nodes if u.op is Ops.LOAD), default=32)
        limit = min(self.lanes * 2 if widest <= 32 else self.lanes, self.target.max_vector)
        for r in axes:
            follow = [s for s in k.stores if k.contiguous(s, r)]
            fits = self.width(follow, r, limit) if follow else 1
            if fits > width:
                best, width = r, fits
        if best is not None:
            self.tile(best, width, AxisKind.VECTOR)

    def rows_added_up(self, heavy: UOp) -> bool:
        """A vector times a matrix, or a sum of rows: rows are read as they lie, a few at a time, and added to sums that
        stay near. Along columns every load would be on another page.
        """
        k = self.k
        free, bound = [r for r in k.outputs if k.size(r) > 1], k.reduced
        if len(free) != 1 or len(bound) != 1 or len(k.reduces) != 1:
            return False
        column, row = free[0], bound[0]
        size, most = k.exact(column), 1
        while isinstance(size, int) and 2 * most * SUMMED_VECTOR <= SUMMED and size % (2 * most * SUMMED_VECTOR) == 0:
            most *= 2
        followed = [u for u in k.loads_of(heavy) if column in u.ranges]
        if most < 4 or k.exact(row) != k.size(row) or k.size(row) % ROWS_TOGETHER or not followed:
            return False
        if k.size(row) > ROWS_TOGETHER * 1024:  # that many additions one after another lose digits
            return False
        if not self.worth_sharing() or not all(k.contiguous(u, column) and row in u.ranges for u in followed):
            return False
        workers = self.target.parallel_threads
        while most > 4 and k.size(column) // (most * SUMMED_VECTOR) < workers:
            most //= 2
        i, r = column.arg.name, row.arg.name
        self.actions += [
            Split(i, most * SUMMED_VECTOR),
            Split(f"{i}.1", SUMMED_VECTOR),
            Bind(f"{i}.1.1", AxisKind.VECTOR),
            Bind(f"{i}.0", AxisKind.GRID),
            Split(r, ROWS_TOGETHER),
            Hoist(f"{r}.0", f"{i}.0"),
            Bind(f"{r}.1", AxisKind.UNROLL),
        ]
        return True

    def reduction(self, heavy: UOp) -> None:
        k = self.k
        if self.rows_added_up(heavy):
            return
        loads = k.loads_of(heavy)
        bound = [r for r in k.reduced if r in heavy.src[1:]]
        free = [r for r in k.outputs if r in heavy.ranges]
        axis, width = self.vector_axis(loads, bound, free)
        if axis is not None:
            self.tile(axis, width, AxisKind.VECTOR)
        # half of the registers hold sums; reductions that were merged have sums of their own
        together = sum(u.src[1:] == heavy.src[1:] for u in k.reduces)
        budget = self.target.vector_registers // 2 // max(width // self.lanes, 1) // together
        budget = min(budget, REPEATED // len(k.reduces))
        main = max(loads, key=lambda u: k.volume(u.src[1].ranges), default=None)
        rows = [r for r in free if r is not axis and main is not None and r in main.src[1].ranges]
        others = [r for r in free if r is not axis and r not in rows]
        # unrolling an axis reuses what does not depend on it: the main load over the others
        for group, most in ((others, 4 if axis in free else 2), (rows, 4)):
            r = max(group, key=k.size, default=None)
            if r is not None and budget > 1:
                factor = self.unrolled(r, min(most, budget))
                self.tile(r, factor, AxisKind.UNROLL)
                budget //= max(factor, 1)
        done = set(bound)
        for u in k.reduces:
            rest = [r for r in u.src[1:] if r not in done]
            if rest:
                inner, narrow = self.vector_axis(k.loads_of(u), rest, [])
                if inner is not None:
                    self.tile(inner, narrow, AxisKind.VECTOR)
                done.update(rest)
        apart = [r for r in k.outputs if not any(r in u.ranges for u in k.reduces)]
        if apart and axis not in k.outputs:
            self.elementwise(apart)
        row = max((r for r in rows if r in self.left), key=lambda r: self.left[r][1], default=None)
        again = [r for r in others if r in self.left and self.left[r][1] > 1]
        if main is not None and row is not None and again and self.left[row][1] > 1:
            self.rows_first(heavy, row)
        else:
            self.share()

    def vector_axis(self, loads: list[UOp], bound: list[UOp], free: list[UOp]) -> tuple[UOp | None, int]:
        """The axis that most loads follow, and the vector's width along it."""
        best: tuple[tuple[int, int], UOp | None, int] = ((0, 0), None, 1)
        # elements of 4 bits are unpacked by whole words
        narrow = any(u.src[0].dtype.bits < 8 for u in loads)
        for r in [*bound, *free]:
            width = self.width(
                loads, r, (max(self.lanes, 8) if narrow else self.lanes) if r in bound else min(4 * self.lanes, 64)
            )
            if width > 1 and (merit := self.k.merit(loads, r, min(width, self.lanes), False)) > best[0]:
                best = (merit, r, width)
        return best[1], best[2]

    # -- the nest ----------------------------------------------------------------------------------------------
    def rows_first(self, heavy: UOp, row: UOp) -> None:
        """The large operand is read once: a block of its rows stays near while all that is multiplied with it passes
        by.
        """
        k, (name, size) = self.k, self.left[row]
        loops = [self.left[r][0] for r in k.outputs if r in self.left and r is not row]
        shared = self.worth_sharing() and size >= self.target.parallel_threads
        self.actions.append(Bind(name, AxisKind.GRID) if shared else Reorder((name, *loops)))
        unrolled = -(-k.size(row) // size)
        # what has to be converted is converted once per block
        narrow: dict[UOp, int] = {}
        for around, u in ((r, u) for r in k.reduces if r.src[1:] == heavy.src[1:] for u in k.loads_of(r)):
            if row in u.src[1].ranges and u.src[0].dtype.bits < 32 and not k.kernel_stores(u):
                walked = (r for r in around.ranges.union(around.src[1:]) if r in self.left and r is not row)
                if all(r in u.ranges for r in walked):
                    continue  # read once: nothing is gained
                tile = [r for r in u.src[1].ranges if r not in self.left]
                whole = not any(r in self.left for r in u.src[1].ranges if r is not row)
                if whole and all(isinstance(k.exact(r), int) for r in tile):
                    narrow[u] = k.volume(tile) * unrolled
        largest = max(narrow.values(), default=0)
        chosen = [u for u, elements in narrow.items() if elements == largest]
        stages = stages_of(chosen, (u for u in k.summed if u not in chosen), name, Space.REGISTER)
        if largest * len(stages) <= STAGED:
            self.stage(stages)

    def worth_sharing(self) -> bool:
        # two workers must not update parts of one byte
        parts = any(s.src[0].dtype.bits < 8 for s in self.k.stores)
        return self.target.parallel_threads > 1 and self.k.work >= WORTH_SHARING and not parts

    def share(self) -> None:
        """The grid: the outermost loop that gives every worker enough, in few blocks where something is computed once
        per block.
        """
        k = self.k
        if not self.worth_sharing():
            return
        blocks = self.target.parallel_threads * BLOCKS_PER_WORKER
        candidates = [(r, *self.left[r]) for r in k.outputs if r in self.left]
        outermost = [c for c in candidates if all(c[0] in u.ranges for u in k.reduces)]
        enough = [c for c in outermost if c[2] >= blocks]
        if enough:
            self.actions.append(Bind(enough[0][1], AxisKind.GRID))
            return
        heavy = [c for c in candidates if k.heavy is None or c[0] in k.heavy.ranges]
        if not heavy:
            return
        r, name, size = max(heavy, key=lambda c: c[2])
        if size <= 1:
            return
        factor = 1 if all(r in u.ranges for u in k.reduces) else max(size // blocks, 1)
        if factor > 1:
            self.actions.append(Split(name, factor))
            name += ".0"
        self.actions.append(Bind(name, AxisKind.GRID))
        if factor > 1 and k.heavy is not None:
            self.stage_inputs(k.heavy, r, name)

    def stage_inputs(self, heavy: UOp, row: UOp, at: str) -> None:
        """What is computed from the input for every row alike is computed once per block."""
        k, above = self.k, users([self.k.kernel])
        for u in k.loads_of(heavy):
            value = whole_value(u, above)
            shared = row not in value.ranges and value is not u and not any(r in self.left for r in value.ranges)
            if (
                shared
                and all(isinstance(k.exact(r), int) for r in value.ranges)
                and k.volume(value.ranges) <= STAGED // 2
            ):
                self.stage(stages_of([u], (x for x in k.summed if row in x.ranges), at, Space.REGISTER))
                return

    def stage(self, stages: list[Stage]) -> None:
        """Stages that fit, after all other actions."""
        kernel = self.k.kernel
        if stages:
            for action in self.actions:
                kernel = action.apply(kernel)
        self.actions += apply_legal(kernel, stages)[0]

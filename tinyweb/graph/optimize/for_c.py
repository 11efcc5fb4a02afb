"""Native code and WASM: vectors along memory, tiles of registers, blocks of rows for the workers."""

from __future__ import annotations

from tinyweb.graph.ir import AxisKind, Ops, UOp
from tinyweb.graph.optimize.actions import Action, Bind, Split
from tinyweb.graph.optimize.analysis import Analysis
from tinyweb.graph.target import Target

# fewer elements than this are done sooner by one worker than the others are woken
WORTH_SHARING = 1 << 15
BLOCKS_PER_WORKER = 4


def schedule_for_c(k: Analysis, target: Target) -> list[Action]:
    """Actions for a kernel on a processor."""
    plan = _Plan(k, target)
    if k.heavy is None:
        plan.elementwise(k.outputs)
    else:
        plan.reduction(k.heavy)
    plan.share()
    return plan.actions


class _Plan:
    def __init__(self, k: Analysis, target: Target):
        self.k, self.target = k, target
        self.actions: list[Action] = []
        self.left: dict[UOp, tuple[str, int]] = {r: (r.arg.name, k.size(r)) for r in k.outputs}  # loop left of an axis: name, size

    def tile(self, r: UOp, factor: int, kind: AxisKind) -> None:
        """The inner `factor` of an axis becomes lanes."""
        if factor <= 1:
            return
        if self.k.exact(r) == factor:
            self.actions.append(Bind(r.arg.name, kind))
            self.left.pop(r, None)
            return
        self.actions += [Split(r.arg.name, factor), Bind(f"{r.arg.name}.1", kind)]
        if r in self.left:
            self.left[r] = (f"{r.arg.name}.0", -(-self.k.size(r) // factor))

    def elementwise(self, axes: list[UOp]) -> UOp | None:
        """A vector along the axis that most stores and loads follow; that axis."""
        accesses = [u for u in self.k.nodes if u.op in (Ops.LOAD, Ops.STORE)]
        best, width = None, 1
        for r in axes:
            follow = [s for s in self.k.stores if self.k.contiguous(s, r)]
            fits = self.k.width(follow, r, self.target.max_vector) if follow else 1
            if fits > width:
                best, width = r, fits
        if best is None:
            return None
        # values of few bits fill a register with more lanes, but they are mostly converted to wider ones
        widest = max((u.dtype.bits for u in accesses if u.op is Ops.LOAD), default=32)
        width = min(width, self.target.vector_lanes * 2 if widest <= 32 else self.target.vector_lanes)
        self.tile(best, width, AxisKind.VECTOR)
        return best

    def reduction(self, heavy: UOp) -> None:
        k, lanes = self.k, self.target.vector_lanes
        loads = k.loads_of(heavy)
        bound = [r for r in k.reduced if r in heavy.src[1:]]
        free = [r for r in k.outputs if r in heavy.ranges]
        axis, width = self._vector_axis(loads, bound, free)
        registers = 32 if lanes >= 16 else 16
        used = max(width // lanes, 1)
        if axis is not None:
            self.tile(axis, width, AxisKind.VECTOR)
        budget = registers // 2 // used
        main = max(loads, key=k.traffic, default=None)
        rows = [r for r in free if r is not axis and main is not None and r in main.src[1].ranges]
        others = [r for r in free if r is not axis and r not in rows]
        # unrolling an axis reuses what does not depend on it; the main load is reused over the others
        for group, most in ((others, 4 if axis in free else 2), (rows, 4)):
            r = max(group, key=k.size, default=None)
            if r is not None and budget > 1:
                factor = self._factor(r, min(most, budget))
                self.tile(r, factor, AxisKind.UNROLL)
                budget //= max(factor, 1)
        for u in k.reduces:
            if u is not heavy:
                self._other_reduction(u, set(bound))
        apart = [r for r in k.outputs if not any(r in u.ranges for u in k.reduces)]
        if apart and axis not in k.outputs:
            self.elementwise(apart)

    def _vector_axis(self, loads: list[UOp], bound: list[UOp], free: list[UOp]) -> tuple[UOp | None, int]:
        """The axis that most of the memory traffic follows, and the vector's width along it."""
        k, lanes = self.k, self.target.vector_lanes
        best: tuple[int, UOp | None, int] = (0, None, 1)
        for r in [*bound, *free]:
            limit = min(lanes if r in bound else 4 * lanes, 64)
            width = k.width(loads, r, limit)
            follow = sum(k.traffic(u) for u in loads if k.nearly_contiguous(u, r, width)) if width > 1 else 0
            if follow * min(width, lanes) > best[0]:
                best = (follow * min(width, lanes), r, width)
        return best[1], best[2]

    def _factor(self, r: UOp, most: int) -> int:
        """How often to unroll an axis: a divisor of its size if there is one that is not much smaller than `most`."""
        size = self.k.exact(r)
        if isinstance(size, int):
            if size <= most:
                return size
            for f in range(most, most // 2, -1):
                if size % f == 0:
                    return f
        return most

    def _other_reduction(self, u: UOp, done: set[UOp]) -> None:
        """A smaller reduction in the kernel: a vector along what it reads."""
        k = self.k
        bound = [r for r in u.src[1:] if r not in done]
        loads = k.loads_of(u)
        axis, width = self._vector_axis(loads, bound, [])
        if axis is not None and not any(isinstance(a, Split | Bind) and a.axis == axis.arg.name for a in self.actions):
            self.tile(axis, width, AxisKind.VECTOR)
        done.update(bound)

    def share(self) -> None:
        """The grid: the outermost loop that gives every worker enough, in few blocks where something is computed once per block."""
        k, workers = self.k, self.target.parallel_threads
        if workers <= 1 or k.work < WORTH_SHARING or _updates_parts(k):
            return
        blocks = workers * BLOCKS_PER_WORKER
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
        whole = all(r in u.ranges for u in k.reduces)
        factor = 1 if whole else max(size // blocks, 1)
        if factor > 1:
            self.actions.append(Split(name, factor))
            name += ".0"
        self.actions.append(Bind(name, AxisKind.GRID))


def _updates_parts(k: Analysis) -> bool:
    """Whether a store changes a part of a byte: two workers must not do that to one byte."""
    return any(s.src[0].dtype.bits < 8 for s in k.stores)

"""GPUs: outputs over workgroups and threads, vectors along memory, reductions shared by the threads of a workgroup."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from tinyweb.graph.ir import AxisKind, Ops, UOp
from tinyweb.graph.optimize.actions import Action, Bind, GroupReduce, Split
from tinyweb.graph.optimize.analysis import Analysis
from tinyweb.graph.target import Target

WORKGROUP = 64  # threads: a multiple of every subgroup size in use, small enough to have many workgroups
LARGE_WORKGROUP = 256
FULL = 1 << 13  # threads that keep a GPU busy; with fewer, reductions are shared
ALONG = 16  # threads side by side along a row that a reduction reads: their loads are neighbours in memory
MATRIX = 16  # rows from which a product of matrices is worth tiles of registers


def schedule_for_gpu(k: Analysis, target: Target) -> list[Action]:
    """Actions for a kernel on a GPU."""
    plan = _Plan(k, target)
    if k.heavy is None:
        plan.elementwise()
    else:
        plan.reduction(k.heavy)
    plan.grid()
    return plan.actions


class _Plan:
    def __init__(self, k: Analysis, target: Target):
        self.k, self.target = k, target
        self.actions: list[Action] = []
        # what is left of an axis as a loop: its name and (largest) size
        self.left: dict[UOp, tuple[str, int]] = {r: (r.arg.name, k.size(r)) for r in [*k.outputs, *k.reduced]}
        self.grouped: dict[int, list[UOp]] = {}  # reduced axes over the threads of a dimension
        self.threads = 1
        self.dims = 0
        self.most = min(LARGE_WORKGROUP, target.max_invocations)

    # -- steps -------------------------------------------------------------------------------------------------
    def tile(self, r: UOp, factor: int, kind: AxisKind, dim: int = 0) -> None:
        """The inner `factor` of what is left of an axis is bound."""
        name, size = self.left[r]
        if factor <= 1 and kind is not AxisKind.THREAD:
            return
        exact = self.k.exact(r)
        if name == r.arg.name and exact == factor:
            self.actions.append(Bind(name, kind, dim))
            del self.left[r]
            return
        self.actions += [Split(name, factor), Bind(f"{name}.1", kind, dim)]
        self.left[r] = (f"{name}.0", -(-size // factor))

    def spread(self, axes: Iterable[UOp], wanted: int) -> None:
        """Output axes over threads, one dimension each, until the workgroup has about `wanted` threads."""
        for r in axes:
            room = min(wanted // self.threads, self.target.max_workgroup[min(self.dims, 2)])
            if room <= 1 or self.dims > 2:
                return
            if r not in self.left or self.left[r][1] <= 1:
                continue
            count = fitting(self.left[r][1], room)
            self.tile(r, count, AxisKind.THREAD, self.dims)
            self.threads *= count
            self.dims += 1

    def share(self, heavy: UOp, count: int, dims: int) -> int:
        """All reductions over at most `count` threads in up to `dims` dimensions, made for the heavy one; their
        number.
        """
        parts: list[tuple[int, int]] = []  # dimension, threads in it
        done: set[UOp] = set()
        loads = self.k.loads_of(heavy)
        for r in self.along(loads, [r for r in heavy.src[1:] if r in self.left]):
            if count < 2 or len(parts) == dims:
                break
            part = fitting(self.left[r][1], count)
            if part > 1:
                self._group(r, part, self.dims)
                parts.append((self.dims, part))
                self.dims += 1
                count //= part
        done.update(heavy.src[1:])
        for u in self.k.reduces:
            bound = [r for r in u.src[1:] if r in self.left and r not in done]
            for dim, part in parts if bound else []:
                r = max(bound, key=lambda r: self.left[r][1])
                if not self._meets(r, dim):
                    self._group(r, part, dim)
            done.update(bound)
        total = prod(part for _, part in parts)
        self.threads *= total
        return total

    def _meets(self, r: UOp, dim: int) -> bool:
        """Whether an axis over the threads of that dimension occurs in one value with `r`: they share one index."""
        others = [o for o in self.grouped.get(dim, []) if o is not r]
        used = [u.ranges.union(u.src[1:]) for u in self.k.reduces] if others else []
        return any(r in found and any(o in found for o in others) for found in used)

    def _group(self, r: UOp, count: int, dim: int) -> None:
        self.grouped.setdefault(dim, []).append(r)
        name, size = self.left[r]
        self.actions.append(GroupReduce(name, count, dim))
        self.left[r] = (f"{name}.0", -(-size // count))

    def along(self, loads: list[UOp], axes: list[UOp]) -> list[UOp]:
        """Axes in the order in which neighbouring threads should walk them: those that the loads follow first."""
        main = max(loads, key=self.k.traffic, default=None)
        return sorted(axes, key=lambda r: distance(self.k, main, r)) if main is not None else axes

    def grid(self) -> None:
        """All output loops that are left, over up to three dimensions; the last ones share one if need be."""
        loops = [(r, *self.left[r]) for r in self.k.outputs if r in self.left]
        loops.sort(key=lambda entry: -entry[2])
        for i, (_, name, _size) in enumerate(loops):
            self.actions.append(Bind(name, AxisKind.GRID, min(i, self.target.grid_dims - 1)))

    # -- kinds of kernels --------------------------------------------------------------------------------------
    def elementwise(self) -> None:
        """A vector along the axis that the stores follow, threads along it first."""
        self.vector_along_stores(self.k.outputs)
        self.spread(self.by_nearness(self.k.outputs), WORKGROUP)

    def vector_along_stores(self, axes: list[UOp]) -> UOp | None:
        """The axis, if there was one."""
        k = self.k
        best, width = None, 1
        if k.chases:
            return None
        for r in axes:
            follow = [s for s in k.stores if k.contiguous(s, r)]
            # a word of packed elements is stored as a whole where the vector covers it
            narrow = min((s.src[0].dtype.bits for s in follow), default=32)
            fits = k.width(follow, r, max(self.target.max_vector, 32 // narrow)) if follow else 1
            if fits > width:
                best, width = r, fits
        if best is not None:
            self.tile(best, width, AxisKind.VECTOR)
        return best

    def by_nearness(self, axes: Iterable[UOp]) -> list[UOp]:
        """Axes in the order in which neighbouring threads should walk them: those that stores follow first."""
        main = max(self.k.stores, key=lambda s: self.k.volume(s.src[1].ranges))
        return sorted(axes, key=lambda r: distance(self.k, main, r))

    def reduction(self, heavy: UOp) -> None:
        k = self.k
        rows = [r for r in k.outputs if r in heavy.ranges]
        apart = [r for r in k.outputs if not any(r in u.ranges for u in k.reduces)]
        if apart and k.volume(apart) > 1:
            self.row_kernel(heavy, rows, apart)
            return
        loads = k.loads_of(heavy)
        bound = [r for r in heavy.src[1:] if r.op is Ops.RANGE]
        axis, width = self.vector_axis(loads, bound, rows)
        follow = [u for u in loads if axis in rows and k.follows(u, axis, width)]
        main = max(follow or loads, key=lambda u: k.volume(u.src[1].ranges), default=None)
        reused = [r for r in rows if main is not None and r not in main.src[1].ranges]
        outputs, steps = k.volume(rows), k.volume(bound)
        if axis is not None:
            self.tile(axis, width, AxisKind.VECTOR)
            if axis in bound:
                steps //= width
                if axis in self.left and any(u.src[0].dtype.bits < 8 for u in loads):  # the other half of a word
                    self.tile(axis, fitting_divisor(self.left[axis][1], 2), AxisKind.UNROLL)
            else:
                outputs //= width
        if k.volume(reused) >= MATRIX and outputs >= FULL:
            self.matrix(rows, reused, axis)
            return
        # with few outputs, several threads share each reduction
        count = 1
        while outputs * count < FULL and count * 4 <= steps and count < self.most:
            count *= 2
        if axis in bound and steps >= 2 * ALONG:
            count = max(count, ALONG)
        if count >= 4:
            # several rows to a thread, where there are plenty, share what is read and computed of the input
            serves = [r for r in rows if r is not axis and any(r not in u.src[1].ranges for u in loads)]
            self.unroll(serves, outputs * count, FULL // 2)
            if axis in rows:
                self.spread([axis], WORKGROUP // 4)
            self.share(heavy, min(count, max(self.most // self.threads, 1)), 2 - self.dims)
            self.spread([r for r in self.by_nearness(rows) if r is not axis], max(WORKGROUP, self.threads))
            return
        self.unroll([r for r in reused if r is not axis], outputs, FULL // 4)
        self.spread(self.by_nearness(rows), WORKGROUP)

    def unroll(self, axes: list[UOp], threads: int, enough: int) -> None:
        """The longest of the axes, up to four times, as long as enough threads are left."""
        r = max((r for r in axes if r in self.left), key=self.k.size, default=None)
        factor = 1
        while r is not None and factor < 4 and threads >= 2 * factor * enough and self.left[r][1] % (2 * factor) == 0:
            factor *= 2
        if r is not None:
            self.tile(r, factor, AxisKind.UNROLL)

    def matrix(self, rows: list[UOp], reused: list[UOp], axis: UOp | None) -> None:
        """A tile of 4 by 4 outputs per thread, 8 by 8 threads: what each thread loads serves four outputs."""
        other = max((r for r in rows if r not in reused and r is not axis), key=self.k.size, default=None)
        token = max((r for r in reused if r is not axis), key=self.k.size, default=None)
        for r in (other, token):
            if r is not None and r in self.left:
                self.tile(r, min(4, self.left[r][1]), AxisKind.UNROLL)
        first = axis if axis in rows else other
        near = [r for r in (first, token, other) if r is not None]
        for r in dict.fromkeys(near):
            self.spread([r], min(self.threads * 8, WORKGROUP))

    def row_kernel(self, heavy: UOp, rows: list[UOp], apart: list[UOp]) -> None:
        """A workgroup per row or a few: its threads reduce together, then write the row together."""
        k = self.k
        length = max(k.volume(apart), k.volume(set(heavy.src[1:])))
        for u in k.reduces:
            bound = [r for r in u.src[1:] if r in self.left and self.left[r][0] == r.arg.name]
            axis, width = self.vector_axis(k.loads_of(u), bound, [])
            if axis is not None:
                self.tile(axis, width, AxisKind.VECTOR)
        along = self.vector_along_stores(apart)
        if along is not None:
            length //= 4
        count = 4
        while count < self.most and count * 2 <= length:
            count *= 2
        if k.volume(rows) * count > FULL:
            count = min(count, WORKGROUP)
        count = self.share(heavy, count, 1)
        for r in self.by_nearness(r for r in apart if r in self.left)[:1]:
            if count > 1:
                self.tile(r, count, AxisKind.THREAD, 0)
        for r in apart:
            self.left.pop(r, None)  # loops: on the grid, every workgroup would reduce the row again
        self.spread(self.by_nearness(rows), WORKGROUP)

    def vector_axis(self, loads: list[UOp], bound: list[UOp], rows: list[UOp]) -> tuple[UOp | None, int]:
        """The axis that most loads follow, and the vector's width along it."""
        best: tuple[tuple[int, int], UOp | None, int] = ((0, 0), None, 1)
        for r in [*bound, *rows]:
            width = self.k.width(loads, r, self.target.max_vector)
            if width > 1 and (merit := self.k.merit(loads, r, width)) > best[0]:
                best = (merit, r, width)
        return best[1], best[2]


def distance(k: Analysis, access: UOp, r: UOp) -> int:
    """Elements between neighbours along an axis; much where the access does not follow it."""
    parts = k.split(access, r)
    return abs(parts[0]) if parts is not None and parts[0] else 1 << 40


def fitting(size: int, room: int) -> int:
    """How many threads an axis of that size should have, at most `room`: a power of two that wastes little."""
    count = 1
    while count * 2 <= room and count < size:
        count *= 2
    exact = count
    while exact > 1 and size % exact:
        exact //= 2
    # gating off up to a quarter of the threads is better than having half as many
    waste = -size % count / size
    return count if exact == count or waste <= 0.25 or exact * 2 < count else exact


def fitting_divisor(size: int, factor: int) -> int:
    return factor if size % factor == 0 else 1

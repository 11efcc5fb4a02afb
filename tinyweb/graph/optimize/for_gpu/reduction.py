"""Reductions: matrix times vector, sums of rows, and rows that are reduced and then written."""

from __future__ import annotations

from tinyweb.graph.ir import AxisKind, Ops, UOp
from tinyweb.graph.optimize.for_gpu.matrix import MATRIX, product, tile_of_registers
from tinyweb.graph.optimize.for_gpu.plan import LARGE_WORKGROUP, WORKGROUP, Plan, fitting, fitting_divisor

FULL = 1 << 13  # threads that keep a GPU busy; with fewer, reductions are shared
SHARED_GROUPS = 8  # groups of a row from which it is worth having threads share them
LONG = 1 << 12  # vectors of a row from which a large workgroup has enough to do
ALONG = 16  # threads side by side along a row that a reduction reads: their loads are neighbours in memory


def reduction(plan: Plan, heavy: UOp) -> None:
    k = plan.k
    rows = [r for r in k.outputs if r in heavy.ranges]
    apart = [r for r in k.outputs if not any(r in u.ranges for u in k.reduces)]
    if apart and k.volume(apart) > 1:
        row_kernel(plan, heavy, rows, apart)
        return
    if product(plan, heavy, rows):
        return
    loads = k.loads_of(heavy)
    bound = [r for r in heavy.src[1:] if r.op is Ops.RANGE]
    axis, width = plan.vector_axis(loads, bound, rows)
    follow = [u for u in loads if axis in rows and k.follows(u, axis, width)]
    main = max(follow or loads, key=lambda u: k.volume(u.src[1].ranges), default=None)
    reused = [r for r in rows if main is not None and r not in main.src[1].ranges]
    outputs, steps = k.volume(rows), k.volume(bound)
    groups = list(dict.fromkeys(r for u in k.reduces for r in u.src[1:] if r in heavy.ranges))
    narrow = 32
    if axis is not None:
        plan.tile(axis, width, AxisKind.VECTOR)
        if axis in bound:
            steps //= width
            narrow = max((u for u in loads if k.follows(u, axis, width)), key=k.traffic).src[0].dtype.bits
            if axis in plan.left and narrow < 32:
                # four words at a time, if that leaves enough steps for threads; at least the other half of a word
                words = fitting_divisor(plan.left[axis][1], 32 // narrow)
                while words > 1 and steps * k.volume(groups) < ALONG * words and (words > 2 or narrow >= 8):
                    words //= 2
                plan.tile(axis, words, AxisKind.UNROLL)
                steps //= words
        else:
            outputs //= width
    if k.volume(reused) >= MATRIX and outputs >= FULL:
        tile_of_registers(plan, rows, reused, axis)
        return
    serves = [r for r in rows if any(r not in u.src[1].ranges for u in loads)]
    if groups and axis in bound:
        # sums of sums, as over groups of weights: the threads of a row share the groups
        count = WORKGROUP if plan.target.subgroups else ALONG
        outer = max(groups, key=k.size)
        part = fitting(k.size(outer), count)
        if part >= SHARED_GROUPS:
            plan.unroll(serves, outputs * part, FULL // 2, 8 if narrow < 16 else 4)
            plan.group(outer, part)
            if not plan.target.subgroups or part < WORKGROUP // 2:
                plan.spread(plan.by_nearness(rows), max(WORKGROUP, part))
            return
    if plan.target.subgroups and axis in bound and steps >= 2 * ALONG:
        # a workgroup for a row or a few: it is combined without threads waiting for each other
        plan.unroll(serves, outputs * WORKGROUP, FULL, 8 if narrow < 16 else 4)
        longest = max((r for r in bound if r in plan.left), key=lambda r: plan.left[r][1])
        plan.group(longest, fitting(plan.left[longest][1], LARGE_WORKGROUP if steps >= LONG else WORKGROUP))
        return
    # with few outputs, several threads share each reduction
    count = 1
    while outputs * count < FULL and count * 4 <= steps and count < plan.most:
        count *= 2
    if axis in bound and steps >= 2 * ALONG:
        count = max(count, ALONG)
    if count >= 4:
        # several rows to a thread, where there are plenty, share what is read and computed of the input
        plan.unroll([r for r in serves if r is not axis], outputs * count, FULL // 2)
        if axis in rows:
            plan.spread([axis], WORKGROUP // 4)
        plan.share(heavy, min(count, max(plan.most // plan.threads, 1)), 2 - plan.dims)
        plan.spread([r for r in plan.by_nearness(rows) if r is not axis], max(WORKGROUP, plan.threads))
        return
    plan.unroll([r for r in reused if r is not axis], outputs, FULL // 4)
    plan.spread(plan.by_nearness(rows), WORKGROUP)


def row_kernel(plan: Plan, heavy: UOp, rows: list[UOp], apart: list[UOp]) -> None:
    """A workgroup per row or a few: its threads reduce together, then write the row together."""
    k = plan.k
    length = max(k.volume(apart), k.volume(set(heavy.src[1:])))
    for u in k.reduces:
        bound = [r for r in u.src[1:] if r in plan.left and plan.left[r][0] == r.arg.name]
        axis, width = plan.vector_axis(k.loads_of(u), bound, [])
        if axis is not None:
            plan.tile(axis, width, AxisKind.VECTOR)
    along = plan.vector_along_stores(apart)
    if along is not None:
        length //= 4
    count = 4
    while count < plan.most and count * 2 <= length:
        count *= 2
    if k.volume(rows) * count > FULL:
        count = min(count, WORKGROUP)
    count = plan.share(heavy, count, 1)
    for r in plan.by_nearness(r for r in apart if r in plan.left)[:1]:
        if count > 1:
            plan.tile(r, count, AxisKind.THREAD, 0)
    for r in apart:
        plan.left.pop(r, None)  # loops: on the grid, every workgroup would reduce the row again
    plan.spread(plan.by_nearness(rows), WORKGROUP)

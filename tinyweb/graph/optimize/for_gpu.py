"""GPUs: vectors along memory, threads along what neighbours read, reductions shared among threads."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import pairwise, product
from math import gcd, prod

from tinyweb.graph.ir import ELEMENTWISE, AxisKind, Ops, UOp, is_lane, nested
from tinyweb.graph.optimize.action import Schedule
from tinyweb.graph.optimize.actions import Bind, Reorder, Split, inner_part
from tinyweb.graph.optimize.analysis import Analysis, even, largest_divisor, power_of_two
from tinyweb.graph.optimize.builder import Builder
from tinyweb.graph.optimize.cost import exchange_bytes, exchanged
from tinyweb.graph.optimize.divide import Divide
from tinyweb.graph.optimize.for_matrices import grid_of_tiles, product_in_registers
from tinyweb.graph.optimize.for_product import LARGE_WORKGROUP, MATRIX, by_stride, in_flight, most, product_in_threads
from tinyweb.graph.optimize.fuse import Fuse
from tinyweb.graph.optimize.instructions import INSTRUCTIONS
from tinyweb.graph.optimize.merge import Merge
from tinyweb.graph.optimize.reuse import FUNCTIONS, Reuse
from tinyweb.graph.optimize.rewrite import ranges_of
from tinyweb.graph.optimize.tensorize import Factor, Tensorize
from tinyweb.graph.symbolic import borders

WORKGROUP = 64  # threads: a multiple of every subgroup size in use, small enough to have many workgroups
SHARED_GROUPS = 8  # groups of a row from which it is worth having threads share them
MOST_REPEATED = 8  # outputs, or vectors of them, that a thread has
KEPT = (32, 256)  # elements of a row that a thread keeps: in registers, or in an array where its row is too long
WIDE = 128  # bits of the widest load
SPARSE = 4  # so many times fewer threads do where more would compute, or read, alike what one of them may keep
EXCHANGED = 2  # steps of a sum for an operation of what threads exchange of it
IN_FLIGHT = 4  # loads of a thread before it needs the first of them
CHOSEN = 3  # values to choose from, from which an element in SPARE may rather be computed twice
SPARE = 4
NARROW = 32  # elements of a row that a thread may have alone: what neighbours read lies in the same lines of memory
SMALL_WINDOW = 4  # steps of a reduction that are written out
LONG = 1 << 12  # vectors of a row from which a large workgroup has enough to do
ALONG = 16  # threads side by side along a row that a reduction reads: their loads are neighbours in memory
WRITTEN = 160  # steps of a thread's windows that are written out, at most


def schedule_for_gpu(b: Builder) -> bool:
    """Any kernel on a GPU."""
    if b.k.dominant is None:
        elementwise(b)
    else:
        reduction(b, b.k.dominant)
    return True


def schedule_threads(b: Builder) -> bool:
    """A thread for each output."""
    bind_threads(b, by_stride(b.k, b.k.outputs), WORKGROUP)
    b.grid(b.loops(b.k.outputs))
    return True


# -- kinds of kernels -------------------------------------------------------------------------------------------
def elementwise(b: Builder) -> None:
    """A vector along the axis that the stores follow, threads along it first."""
    divided = divide(b)
    outputs = [r for r in b.k.outputs if r.arg.name not in divided]
    for axes in ([r] for r in b.k.outputs if r not in outputs):
        b.vector(*stored_axis(b, axes))
    b.vector(*stored_axis(b, outputs))
    for name in divided:  # of few places it is known of each what is chosen there
        if b.has(name) and b.size(name) <= SMALL_WINDOW:
            b.attempt(Bind(name, AxisKind.UNROLL))
    bind_threads(b, by_stride(b.k, outputs), WORKGROUP)
    b.grid(b.loops(r for r in outputs if not repeat(b, r)))


def divide(b: Builder) -> list[str]:
    """What is joined along an axis: a thread has places in all of the parts, and chooses nothing. The parts' axes."""
    b.delinearize(chosen)
    parts: list[str] = []
    for name in [r.arg.name for r in b.k.outputs]:
        k = b.k
        r = next((o for o in k.outputs if o.arg.name == name), None)
        at = borders(k.nodes, r) if r is not None else ()
        blocks = blocks_of(b, r, at, CHOSEN if not parts else sys.maxsize) if r is not None and at else 0
        if r is None or not blocks:
            continue
        names = [*(o.arg.name for o in k.outputs if o is not r), r.arg.name]
        order = (Reorder(tuple(names)),) if k.outputs[-1] is not r else ()
        if b.legal(*(actions := (*order, Divide(r.arg.name, at, blocks)))):
            b.rewrite(*actions)
            parts += [f"{r.arg.name}.{i}" for i in range(len(at) + 1)]
    return parts


def chosen(k: Analysis) -> Iterable[UOp]:
    return (w.src[0] for w in k.nodes if w.op is Ops.WHERE)


def multiplied(k: Analysis) -> Iterable[UOp]:
    return k.dominant.src[:1] if k.dominant is not None and k.dominant.src[0].op is Ops.MUL else ()


def blocks_of(b: Builder, r: UOp, at: tuple[int, ...], choices: int) -> int:
    """Blocks that each part between borders of an axis is cut into, a thread for each, such that least is done twice,
    which is for parts with a common divisor nothing: of such the most, or the fewest where all would compute something
    alike; 0 where a choice costs less, as fewer `choices` do.
    """
    k, size = b.k, b.k.size(r)
    sizes, along = [end - start for start, end in pairwise((0, *at, size))], any(k.contiguous(s, r) for s in k.stores)
    conditions = [u.src[0] for u in k.nodes if u.op is Ops.WHERE and r in u.src[0].ranges]
    chosen = 1 + sum(not any(x.op is Ops.LOAD for x in c.toposort()) for c in conditions)
    functions = sum(u.op in FUNCTIONS and r in u.ranges for u in k.nodes)
    chosen = 1 if 0 < functions < chosen else chosen  # a function of what was chosen is dear to do twice
    spare, part = size // SPARE if chosen >= choices else 0, gcd(*sizes)
    alike = any(u.op in ELEMENTWISE and u.dtype.is_float and u.ranges and r not in u.ranges for u in k.nodes)
    enough = b.target.busy_threads // SPARSE * size // max(k.volume(k.outputs), 1)
    for lanes in (b.target.vector_lanes, 1) if along and part % b.target.vector_lanes == 0 else (1,):
        found = []  # what is computed, and blocks
        for blocks in {part // lanes, *(-(-max(sizes) // (lanes * n)) for n in range(1, NARROW))}:
            steps = sum(-(-n // (lanes * blocks)) for n in sizes)
            near = not along or blocks * lanes >= NARROW or (size <= NARROW and chosen >= CHOSEN)
            busy = blocks >= enough and near
            if busy and steps <= NARROW and blocks * steps * lanes <= size + spare:
                found.append((blocks * steps * lanes, blocks if alike else -blocks))
        if found:
            return abs(min(found)[1])
    return 0


def repeat(b: Builder, r: UOp) -> bool:
    """Some steps of an axis to a thread, if functions do not vary along it and enough threads are left; whether all."""
    k, steps = b.k, b.steps(r)
    functions = [u for u in k.kernel.toposort() if u.op in FUNCTIONS and u.src[-1].op is not Ops.CONST]
    if all(r in u.src[-1].ranges for u in functions):
        return False
    spare = k.volume(k.outputs) // (b.target.vector_lanes * b.target.busy_threads // SPARSE)
    factor = largest_divisor(steps, min(spare, MOST_REPEATED))
    if 1 < factor < steps:
        b.split(b.left(r), factor)
    return 1 < factor == steps


def reduction(b: Builder, dominant: UOp) -> None:
    """Matrix times vector, sums of rows, and rows that are reduced and then written."""
    if product_in_registers(b):
        grid_of_tiles(b, b.loops(b.k.outputs))
        return
    b.delinearize(multiplied)
    if actions := instructions(b, b.k.dominant or dominant):
        b.rewrite(*actions)
    dominant = b.k.dominant or dominant
    k = b.k
    rows = [r for r in k.outputs if r in dominant.ranges]
    if k.volume(k.apart) > 1:
        row_kernel(b, dominant, rows, k.apart)
        return
    if not product_in_threads(b):
        dominant = scaled_later(b, dominant)
        sums(b, dominant, rows)
    b.grid(b.loops(b.k.outputs))


def scaled_later(b: Builder, dominant: UOp) -> UOp:
    """What scales a sum, as a norm does, is summed beside it, so that no load waits for it. What the sum is then."""
    axes, below = [r for r in dominant.src[1:] if r.op is Ops.RANGE], {*dominant.src[0].toposort()}
    scales = [u for u in b.k.reduces if u in below and u.ranges.isdisjoint(axes)]
    names, mark = tuple(r.arg.name for r in axes), b.mark()
    if not scales or not b.attempt(Factor(names)):
        return dominant
    for u in scales:
        mine = [r.arg.name for r in u.src[1:]]
        for r in axes[:0:-1] if len(mine) == 1 else ():
            if b.attempt(split := Split(mine[0], b.size(r.arg.name))):
                mine[:1] = [split.outer, split.inner]
        if not b.attempt(Merge(tuple(mine), names)):
            b.back(mark)
            return dominant
    b.rewrite()
    return b.k.dominant or dominant


def instructions(b: Builder, dominant: UOp) -> Schedule:
    """Steps of the sums that are an instruction's."""
    for name, r in product(b.target.instructions, dominant.src[1:]):
        split = Split(r.arg.name, INSTRUCTIONS[name].steps)
        if b.legal(*(actions := (split, Tensorize(split.inner, name)))):
            return actions
    return ()


def row_kernel(b: Builder, dominant: UOp, rows: list[UOp], apart: list[UOp]) -> None:
    """A workgroup per row or a few: its threads reduce together, then write the row together."""
    k = b.k
    along, width = stored_axis(b, apart)
    found = dict(vector_axis(b, k.loads_of(u), list(u.src[1:])) for u in k.reduces)
    # what is written of a row, and kept for that, lies in the vectors that are reduced
    alike = {r for r in found if r is not None and along is not None and k.exact(r) == k.exact(along)}
    width = min([width, *(found[r] for r in alike)])
    for u in k.reduces:
        for r in u.src[1:]:
            if r in found and b.left(r) == r.arg.name:
                b.tile(r.arg.name, width if r in alike else found[r], AxisKind.VECTOR)
        for r in u.src[1:] if k.volume({*u.src[1:]}) <= SMALL_WINDOW else ():
            if b.left(r) and k.constant(r):
                b.bind(b.left(r), AxisKind.UNROLL)
    b.vector(along, width)
    # threads keep what they have computed of a row, if that is few elements, for what else they need of it
    b.first((*KEPT, 0), lambda kept: row_of_threads(b, dominant, rows, apart, width, kept // width) or not kept)
    bind_threads(b, by_stride(k, rows), WORKGROUP)
    # what else is apart stays a loop: on the grid, every workgroup would reduce the row again
    b.grid(b.loops(r for r in k.outputs if r not in apart))


def row_of_threads(b: Builder, dominant: UOp, rows: list[UOp], apart: list[UOp], width: int, kept: int) -> bool:
    """Threads for a row, each with at most `kept` vectors that it keeps, if any; whether it does."""
    k = b.k
    length = max(k.volume(apart), k.volume(set(dominant.src[1:]))) // width
    # rows whose elements lie among those of others are read by neighbouring threads, if these keep what they compute
    loads = k.loads_of(dominant)
    lies = any(k.contiguous(u, r) for u in loads for r in (*dominant.src[1:], *apart))
    lies = lies or length * width * ALONG > KEPT[0] * most(b)
    beside = [r for r in rows if not lies and k.size(r) >= ALONG and any(k.contiguous(u, r) for u in loads)]
    bind_threads(b, beside[:1], ALONG)
    dim, teams = len(b.threads()), threads(b)
    # no more than keep all busy: each of them takes part in every exchange, and computes what the row has but once
    enough = 1 if beside or length * width <= NARROW else ALONG
    count, busy = min(enough, 4), b.target.busy_threads
    while count * 2 * teams <= most(b) and count * 2 <= length:
        if count >= enough and k.volume(rows) * count >= busy and (not kept or count * kept >= length):
            break
        count *= 2
    count = share(b, dominant, count, 1) if count > 1 else 1
    along = next((r for r in by_stride(k, apart) if b.left(r)), None)
    if count > 1 and along is not None:
        b.bind(b.split(b.left(along), count)[1], AxisKind.THREAD, dim)
    if along is None or k.volume(apart) > kept * width * count:
        return False
    for left in b.loops([*dict.fromkeys(r for u in k.reduces for r in u.src[1:]), along]):
        if b.size(left) * width <= KEPT[0]:  # registers have no addresses
            b.attempt(Bind(left, AxisKind.UNROLL))
    return b.attempt(Reuse(along.arg.name, 1))


def sums(b: Builder, dominant: UOp, rows: list[UOp]) -> None:
    """Reductions that are no products of matrices: vectors along memory, as many threads for each as keep all busy."""
    k, t = b.k, b.target
    loads = k.loads_of(dominant)
    bound = [r for r in dominant.src[1:] if r.op is Ops.RANGE]
    axis, width = vector_axis(b, loads, [*bound, *rows])
    follow = [u for u in loads if axis in rows and k.follows(u, axis, width)]
    main = max(follow or loads, key=lambda u: k.volume(u.src[1].ranges), default=None)
    reused = [r for r in rows if main is not None and r not in main.src[1].ranges]
    outputs, steps = k.volume(rows), k.volume(bound)
    groups = list(dict.fromkeys(r for u in k.reduces for r in u.src[1:] if r in dominant.ranges))
    narrow, apart = 32, False
    if axis is not None:
        left = b.vector(axis, width)
        if axis in bound:
            steps //= width
            largest = max((u for u in loads if k.follows(u, axis, width)), key=k.traffic)
            narrow = largest.src[0].dtype.bits
            # words of a row that lie among those of others are read by neighbouring threads, not four by one
            apart = t.subgroups and b.width([largest], axis, WIDE // narrow) * narrow < min(WIDE, k.size(axis) * narrow)
            if left and narrow < 32:
                # four words at a time, if that leaves enough steps for threads; at least the other half of a word
                whole = min(32 // narrow, max(WIDE // narrow // width, 1))
                words = power_of_two(b.size(left), max(32 // narrow // width, 1) if apart else whole)
                while words > 1 and steps * k.volume(groups) < ALONG * words and (words > 2 or narrow >= 8):
                    words //= 2
                b.tile(left, words, AxisKind.UNROLL)
                steps //= words
            lanes = [r for r in ranges_of(b.kernel) if is_lane(r)]
            if k.volume(reused) * width <= k.volume(lanes):
                b.attempt(Factor(tuple(r.arg.name for r in lanes)))
            if apart:
                steps //= beside(b, largest, [r for r in bound if r is not axis], steps)
        else:
            outputs //= width
    if axis in bound:
        vectors_apart(b, dominant)
    # what the operand with most memory is read for comes first
    serves = [r for r in rows if r is not axis and any(r not in u.src[1].ranges for u in loads)]
    serves.sort(key=lambda r: (r in reused, k.size(r)), reverse=True)
    if groups and axis in bound:
        # sums of sums, as over groups of weights: the threads of a row share the groups
        outer = max(groups, key=k.size)
        part = even(k.size(outer), WORKGROUP if t.subgroups else ALONG)
        if part >= SHARED_GROUPS:
            unroll(b, serves, reused, outputs * part, t.busy_threads // 2, 8 if narrow < 16 else 4)
            group(b, [outer], part)
            if not t.subgroups or part < WORKGROUP // 2:
                bind_threads(b, by_stride(k, rows), max(WORKGROUP, part))
            return
    if t.subgroups and axis in bound and steps >= 2 * ALONG:
        # a workgroup for a row or a few: it is combined without threads waiting for each other
        if apart:
            join(b, bound)
        unroll(b, serves, reused, outputs * WORKGROUP, t.busy_threads, 8 if narrow < 16 else 4)
        longest = max((r for r in bound if b.left(r)), key=b.steps)
        group(b, [longest], LARGE_WORKGROUP if steps >= LONG else WORKGROUP)
        load_ahead(b, longest)
        return
    # few outputs, and neighbours in memory, are shared by threads that have enough for what they add to the exchange
    count, few = 1, ALONG if axis in bound and steps >= 2 * ALONG else 1
    elements = steps * (width if axis in bound else 1)
    while (outputs * count < t.busy_threads or count < few) and count * 8 <= steps and count < most(b):
        if exchanged(2 * count) * EXCHANGED > elements:
            break
        count *= 2
    if count < 4:
        outputs //= window(b, follow or loads, bound, rows, outputs)
        for r in bound if k.volume(bound) <= SMALL_WINDOW else ():
            if b.left(r) and k.constant(r):
                b.bind(b.left(r), AxisKind.UNROLL)
        unroll(b, [r for r in reused if r is not axis], reused, outputs, t.busy_threads)
        bind_threads(b, by_stride(k, rows), WORKGROUP)
        return
    # several rows to a thread, where there are plenty, share what is read, and neighbours what follows from their sums
    follows = count <= t.neighbours and any(u.op in FUNCTIONS and u not in dominant.toposort() for u in k.nodes)
    unroll(b, serves, reused, outputs * count, t.busy_threads // (4 if follows else 2))
    if axis in rows:
        bind_threads(b, [axis], WORKGROUP // 4)
    share(b, dominant, min(count, max(most(b) // threads(b), 1)), 2 - len(b.threads()))
    bind_threads(b, [r for r in by_stride(k, rows) if r is not axis], max(WORKGROUP, threads(b)))


def vectors_apart(b: Builder, dominant: UOp) -> None:
    """Vectors for the sums that others are scaled by, as those of a norm: what they read is read as vectors alone."""
    mine = {*dominant.src[1:], *dominant.ranges}
    for u in b.k.reduces:
        if mine.isdisjoint(u.src[1:]):
            axis, width = vector_axis(b, b.k.loads_of(u), [r for r in u.src[1:] if b.left(r) == r.arg.name])
            if axis is not None and b.size(axis.arg.name) % (width * LARGE_WORKGROUP) == 0:
                b.tile(axis.arg.name, width, AxisKind.VECTOR)


def beside(b: Builder, load: UOp, axes: list[UOp], steps: int) -> int:
    """A thread has the words that lie beside its own, as those of other groups, if enough threads are left: one load
    for as many as are loaded at once. Their number.
    """
    word = 32 // load.src[0].dtype.bits
    for r in axes:
        count = power_of_two(b.size(r.arg.name), WIDE // 32) if b.left(r) == r.arg.name else 1
        while count > 1 and (steps < WORKGROUP * count or (b.k.in_blocks(load, r, count) or (0,))[0] != word):
            count //= 2
        if count > 1:
            b.tile(r.arg.name, count, AxisKind.UNROLL)
            return count
    return 1


def load_ahead(b: Builder, r: UOp) -> None:
    """Some steps of a thread's loop written out, where it has few rows: all of a short one whose vectors fit."""
    lanes = [o for o in ranges_of(b.kernel) if is_lane(o)]
    rows = prod(int(o.src[0].arg) for o in lanes if o.arg.kind is AxisKind.UNROLL and not o.arg.reduce)
    width = max(b.target.vector_lanes, *(int(o.src[0].arg) for o in lanes if o.arg.kind is AxisKind.VECTOR), 0)
    if (left := b.left(r)) and isinstance(size := b.exact(left), int):
        short = size <= IN_FLIGHT and 2 * size * rows * width <= b.target.thread_registers
        in_flight(b, left, size if short else IN_FLIGHT // rows)


def join(b: Builder, bound: list[UOp]) -> None:
    """One axis of loops of which the inner ones are too short for a workgroup, such as those over groups and over the
    words of a group: neighbouring threads then have neighbours in memory.
    """
    outer, *inner = [name for r in nested(bound) if (name := b.left(r))]
    if inner and prod(map(b.size, inner)) < WORKGROUP:
        b.attempt(*(Fuse(outer, name) for name in inner))


def window(b: Builder, loads: list[UOp], bound: list[UOp], rows: list[UOp], outputs: int) -> int:
    """Outputs of a thread that lie side by side, where the windows they are made of overlap: what lies in several is
    loaded once. Their number.
    """
    count, written, enough = 1, 1, b.target.busy_threads // 2
    for r, q in product(by_stride(b.k, rows), bound):
        overlap = any(b.k.slides(u, r, q) for u in loads)
        if not overlap or not b.left(r) or b.left(q) != q.arg.name or not b.k.constant(q):
            continue
        steps = power_of_two(b.k.size(r), 4)
        if steps > 1 and written * steps * b.k.size(q) <= WRITTEN and outputs >= count * steps * enough:
            b.tile(b.left(r), steps, AxisKind.UNROLL)
            b.bind(q.arg.name, AxisKind.UNROLL)
            count, written = count * steps, written * steps * b.k.size(q)
    return count


# -- vectors and lanes ------------------------------------------------------------------------------------------
def stored_axis(b: Builder, axes: list[UOp]) -> tuple[UOp | None, int]:
    """The axis that stores follow, and the vector's width along it."""
    # a word of packed elements is stored as a whole where the vector covers it
    return b.stored_axis(axes, lambda follow: max(widest(b, follow), 32 // min(s.src[0].dtype.bits for s in follow)))


def vector_axis(b: Builder, loads: list[UOp], axes: list[UOp]) -> tuple[UOp | None, int]:
    """The axis that most loads follow, and the vector's width along it."""
    limit = widest(b, loads)
    return b.vector_axis(loads, ((r, limit) for r in axes), limit)


def widest(b: Builder, accesses: list[UOp]) -> int:
    """Elements of a vector that is loaded, or stored, at once."""
    bits = max((u.src[0].dtype.bits for u in accesses), default=32)
    return min(b.target.max_vector, max(WIDE // bits, 1))


def unroll(b: Builder, axes: Iterable[UOp], reused: list[UOp], threads: int, busy: int, most: int = 4) -> None:
    """The axes in turn, all of a short one or up to `most` steps, as long as enough threads are left: as many as keep
    all busy, and fewer where others would read the larger operand again, as along `reused` ones.
    """
    room = MATRIX
    for r in axes:
        size, factor, enough = b.steps(r), 1, busy // SPARSE if r in reused else busy
        if size <= room and threads >= size * enough:
            factor = size
        while factor < min(most, room) and threads >= 2 * factor * enough and size % (2 * factor) == 0:
            factor *= 2
        if factor > 1:
            b.tile(b.left(r), factor, AxisKind.UNROLL)
        threads, room = threads // factor, room // factor


# -- threads ----------------------------------------------------------------------------------------------------
def threads(b: Builder) -> int:
    return prod(b.threads().values())


def bind_threads(b: Builder, axes: Iterable[UOp], wanted: int) -> None:
    """Output axes over threads, one dimension each, until the workgroup has about `wanted` threads."""
    for r in axes:
        dim = len(b.threads())
        room = min(wanted // threads(b), b.target.max_workgroup[min(dim, 2)])
        if room <= 1 or dim > 2:
            return
        if b.steps(r) > 1:
            b.tile(b.left(r), even(b.steps(r), room), AxisKind.THREAD, dim)


def share(b: Builder, dominant: UOp, count: int, dims: int) -> int:
    """All reductions over at most `count` threads in up to `dims` dimensions, made for the dominant one: as many as can
    exchange their results through shared memory; their number.
    """
    mark, axes = b.mark(), [r for r in dominant.src[1:] if b.left(r)]
    # neighbouring threads are neighbours in what most is read of
    main = max(b.k.loads_of(dominant), key=b.k.traffic, default=None)
    while (total := group(b, axes if main is None else by_stride(b.k, axes, main), count, dims)) > 1:
        if sum(stage.total() for stage in exchange_bytes(b.kernel)) <= b.target.shared_bytes:
            break
        b.back(mark)
        count //= 2
    return total


def group(b: Builder, axes: list[UOp], count: int, dims: int = 1) -> int:
    """Reduced axes over up to `count` threads in dimensions of their own, and other reductions, outer ones first,
    unless one value varies over both; the number of threads.
    """
    parts = dict[int, int]()  # threads by dimension
    for r in axes:
        part = even(b.steps(r), count)
        if part > 1 and len(parts) < dims:
            parts[dim := len(b.threads())] = part
            b.do(*inner_part(b.left(r), part, AxisKind.THREAD, dim))
            count //= part
    done = set(axes)
    for u in reversed(b.k.reduces):
        bound = [r for r in u.src[1:] if b.left(r)]
        if bound and done.isdisjoint(u.src[1:]):
            joined = [
                b.attempt(*inner_part(b.left(max(bound, key=b.steps)), part, AxisKind.THREAD, dim))
                for dim, part in parts.items()
            ]
            done.update(u.src[1:] if any(joined) else ())
    return prod(parts.values())

"""GPUs: vectors along memory, threads along what neighbours read, tiles of registers fed from shared memory.

Products of matrices, convolutions among them: each thread computes a tile of outputs, so that what it loads serves
several multiplications. The threads of a workgroup read both operands from shared memory, where blocks of them are
brought together: of A, the operand that does not vary along the columns, transposed, so that both are read as vectors
(the tiling of Volkov and Demmel 2008, as in CUTLASS).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tinyweb.graph.ir import TRANSCENDENTAL, AxisKind, Ops, Space, UOp, nested
from tinyweb.graph.optimize.actions import GroupReduce
from tinyweb.graph.optimize.analysis import Analysis, power_of_two
from tinyweb.graph.optimize.builder import Builder
from tinyweb.graph.optimize.cost import FULL, excess, exchange_bytes

WORKGROUP = 64  # threads: a multiple of every subgroup size in use, small enough to have many workgroups
LARGE_WORKGROUP = 256
SUBGROUP = 32  # threads that hardware issues together, as most has it
SHARED_GROUPS = 8  # groups of a row from which it is worth having threads share them
LONG = 1 << 12  # vectors of a row from which a large workgroup has enough to do
MOST_REPEATED = 8  # outputs, or vectors of them, that a thread has
FUNCTIONS = TRANSCENDENTAL | {Ops.DIV, Ops.RECIPROCAL, Ops.SQRT}
MOST_IDLE = 16  # of so many threads one may have nothing to do
SMALL_WINDOW = 4  # steps of a reduction that are written out
ALONG = 16  # threads side by side along a row that a reduction reads: their loads are neighbours in memory
MATRIX = 16  # rows from which a product of matrices is worth tiles of registers
LANES = 4  # of the vectors in shared memory
PAD = 4  # elements between the columns of the transposed operand: threads that fill them side by side do not collide
ENOUGH = 128  # workgroups that keep a GPU busy
DEPTHS = (16, 8, 4)  # steps of the reduction in shared memory at a time
# (threads, vectors of each thread) along the rows and along the columns, from the largest tile on
TILES = (((16, 2), (16, 2)), ((8, 2), (16, 2)), ((8, 2), (8, 2)), ((8, 1), (8, 2)), ((8, 1), (8, 1)))


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
    b.grid(loops(b, b.k.outputs))
    return True


# -- kinds of kernels -------------------------------------------------------------------------------------------
def elementwise(b: Builder) -> None:
    """A vector along the axis that the stores follow, threads along it first."""
    vector_along_stores(b, b.k.outputs)
    bind_threads(b, by_stride(b.k, b.k.outputs), WORKGROUP)
    b.grid(loops(b, (r for r in b.k.outputs if not repeat(b, r))))


def repeat(b: Builder, r: UOp) -> bool:
    """Some steps of an axis to a thread, if functions do not vary along it and enough threads are left; whether all."""
    k, steps = b.k, b.steps(r)
    functions = [u for u in k.kernel.toposort() if u.op in FUNCTIONS and u.src[-1].op is not Ops.CONST]
    if all(r in u.src[-1].ranges for u in functions):
        return False
    spare = k.volume(k.outputs) // (LANES * FULL)
    factor = max((f for f in range(1, min(spare, MOST_REPEATED) + 1) if steps % f == 0), default=1)
    if 1 < factor < steps:
        b.split(b.left(r), factor)
    return 1 < factor == steps


def reduction(b: Builder, dominant: UOp) -> None:
    """Matrix times vector, sums of rows, and rows that are reduced and then written."""
    k = b.k
    rows = [r for r in k.outputs if r in dominant.ranges]
    apart = [r for r in k.outputs if not any(r in u.ranges for u in k.reduces)]
    if apart and k.volume(apart) > 1:
        row_kernel(b, dominant, rows, apart)
        return
    if not product(b, dominant, rows):
        sums(b, dominant, rows)
    b.grid(loops(b, k.outputs))


def row_kernel(b: Builder, dominant: UOp, rows: list[UOp], apart: list[UOp]) -> None:
    """A workgroup per row or a few: its threads reduce together, then write the row together."""
    k = b.k
    length = max(k.volume(apart), k.volume(set(dominant.src[1:])))
    for u in k.reduces:
        axis, width = vector_axis(b, k.loads_of(u), [r for r in u.src[1:] if b.left(r) == r.arg.name], [])
        if axis is not None:
            b.tile(axis.arg.name, width, AxisKind.VECTOR)
    if vector_along_stores(b, apart):
        length //= 4
    # no more than keep all busy: each of them takes part in every exchange, and computes what the row has but once
    count = 4
    while count < most(b) and count * 2 <= length and (count < ALONG or k.volume(rows) * count < FULL):
        count *= 2
    count = share(b, dominant, count, 1)
    for r in by_stride(k, (r for r in apart if b.left(r)))[:1] if count > 1 else ():
        b.tile(b.left(r), count, AxisKind.THREAD)
    bind_threads(b, by_stride(k, rows), WORKGROUP)
    # what else is apart stays a loop: on the grid, every workgroup would reduce the row again
    b.grid(loops(b, (r for r in k.outputs if r not in apart)))


def sums(b: Builder, dominant: UOp, rows: list[UOp]) -> None:
    """Reductions that are no products of matrices: vectors along memory, as many threads for each as keep all busy."""
    k, t = b.k, b.target
    loads = k.loads_of(dominant)
    bound = [r for r in dominant.src[1:] if r.op is Ops.RANGE]
    axis, width = vector_axis(b, loads, bound, rows)
    follow = [u for u in loads if axis in rows and k.follows(u, axis, width)]
    main = max(follow or loads, key=lambda u: k.volume(u.src[1].ranges), default=None)
    reused = [r for r in rows if main is not None and r not in main.src[1].ranges]
    outputs, steps = k.volume(rows), k.volume(bound)
    groups = list(dict.fromkeys(r for u in k.reduces for r in u.src[1:] if r in dominant.ranges))
    narrow = 32
    if axis is not None:
        left = b.tile(axis.arg.name, width, AxisKind.VECTOR)
        if axis in bound:
            steps //= width
            narrow = max((u for u in loads if k.follows(u, axis, width)), key=k.traffic).src[0].dtype.bits
            if left and narrow < 32:
                # four words at a time, if that leaves enough steps for threads; at least the other half of a word
                words = power_of_two(b.size(left), 32 // narrow)
                while words > 1 and steps * k.volume(groups) < ALONG * words and (words > 2 or narrow >= 8):
                    words //= 2
                b.tile(left, words, AxisKind.UNROLL)
                steps //= words
        else:
            outputs //= width
    if k.volume(reused) >= MATRIX and outputs >= FULL:
        tile_of_registers(b, rows, reused, axis)
        return
    serves = [r for r in rows if any(r not in u.src[1].ranges for u in loads)]
    if groups and axis in bound:
        # sums of sums, as over groups of weights: the threads of a row share the groups
        outer = max(groups, key=k.size)
        part = fitting(k.size(outer), WORKGROUP if t.subgroups else ALONG)
        if part >= SHARED_GROUPS:
            unroll(b, serves, outputs * part, FULL // 2, 8 if narrow < 16 else 4)
            group(b, outer, part)
            if not t.subgroups or part < WORKGROUP // 2:
                bind_threads(b, by_stride(k, rows), max(WORKGROUP, part))
            return
    if t.subgroups and axis in bound and steps >= 2 * ALONG:
        # a workgroup for a row or a few: it is combined without threads waiting for each other
        unroll(b, serves, outputs * WORKGROUP, FULL, 8 if narrow < 16 else 4)
        longest = max((r for r in bound if b.left(r)), key=b.steps)
        group(b, longest, fitting(b.steps(longest), LARGE_WORKGROUP if steps >= LONG else WORKGROUP))
        return
    # with few outputs, several threads share each reduction
    count = 1
    while outputs * count < FULL and count * 4 <= steps and count < most(b):
        count *= 2
    if axis in bound and steps >= 2 * ALONG:
        count = max(count, ALONG)
    if count < 4:
        for r in bound if k.volume(bound) <= SMALL_WINDOW else ():
            if b.left(r):
                b.bind(b.left(r), AxisKind.UNROLL)
        unroll(b, [r for r in reused if r is not axis], outputs, FULL // 4)
        bind_threads(b, by_stride(k, rows), WORKGROUP)
        return
    # several rows to a thread, where there are plenty, share what is read and computed of the input
    unroll(b, [r for r in serves if r is not axis], outputs * count, FULL // 2)
    if axis in rows:
        bind_threads(b, [axis], WORKGROUP // 4)
    share(b, dominant, min(count, max(most(b) // threads(b), 1)), 2 - len(b.threads()))
    bind_threads(b, [r for r in by_stride(k, rows) if r is not axis], max(WORKGROUP, threads(b)))


def tile_of_registers(b: Builder, rows: list[UOp], reused: list[UOp], axis: UOp | None) -> None:
    """A tile of 4 by 4 outputs per thread, 8 by 8 threads: what each thread loads serves four outputs."""
    other = max((r for r in rows if r not in reused and r is not axis), key=b.k.size, default=None)
    token = max((r for r in reused if r is not axis), key=b.k.size, default=None)
    for r in (other, token):
        if r is not None and b.left(r):
            b.tile(b.left(r), min(4, b.steps(r)), AxisKind.UNROLL)
    near = [r for r in (axis if axis in rows else other, token, other) if r is not None]
    for r in dict.fromkeys(near):
        bind_threads(b, [r], min(threads(b) * 8, WORKGROUP))


# -- products of matrices ---------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Product:
    """The output axes of a product: those one operand has (the one stored side by side first), and those the other."""

    columns: list[UOp]
    rows: list[UOp]


@dataclass(frozen=True)
class Side:
    """A workgroup's part of one operand's axes: threads and the vectors of each; and how many such parts there are."""

    axis: UOp
    threads: int
    vectors: int
    further: tuple[UOp, int] | None  # another axis, of which each thread takes so many steps
    groups: int
    again: float  # elements computed, over those that there are


def product_of(k: Analysis, dominant: UOp, outputs: list[UOp]) -> Product | None:
    """How a reduction multiplies two operands that do not share their output axes; None if it does not."""
    loads = [u for u in k.loads_of(dominant) if u.src[1].ranges.intersection(dominant.src[1:])]
    order = by_stride(k, outputs)
    with_near = [u for u in loads if order and order[0] in u.src[1].ranges]
    others = [u for u in loads if u not in with_near]
    if not with_near or not others:
        return None
    b, a = (max(us, key=lambda u: k.volume(u.src[1].ranges)).src[1].ranges for us in (with_near, others))
    columns, rows = [r for r in order if r in b and r not in a], [r for r in order if r in a and r not in b]
    if not columns or columns[0] is not order[0] or not rows:
        return None
    return Product(columns, sorted(rows, key=k.size, reverse=True))


def product(b: Builder, dominant: UOp, outputs: list[UOp]) -> bool:
    """Blocks of both operands in shared memory, the largest tiles of which there are enough; whether this was a product
    that is worth it.
    """
    k, found = b.k, product_of(b.k, dominant, outputs)
    if found is None or k.in_place:  # blocks at the end overlap
        return False
    axes = found.columns[0], found.rows[0]
    if any(not isinstance(k.exact(r), int) for r in (*axes, *dominant.src[1:])):
        return False
    if min(k.volume(found.columns), k.volume(found.rows)) < MATRIX or min(map(k.size, axes)) < MATRIX // 2:
        return False
    tile = tile_of(b, found, k.volume([r for r in outputs if r not in found.rows and r not in found.columns]))
    if tile is None:
        return False
    rows, columns = tile
    mark = b.mark()
    for depth in DEPTHS:
        cut(b, columns, 0)
        cut(b, rows, 1)
        at = block(b, dominant, depth)
        if at and stage(b, at, dominant, columns.axis):
            return True
        b.back(mark)
    return False


def tile_of(b: Builder, found: Product, batches: int) -> tuple[Side, Side] | None:
    chosen: tuple[Side, Side] | None = None
    for (row_threads, row_vectors), (column_threads, vectors) in TILES:
        if len(b.k.reduces) > 1 and row_vectors > 1:
            continue  # each further sum needs a tile of registers of its own
        if row_threads * column_threads > most(b):
            continue
        fitting = [
            (rows, columns)
            for rows in sides(b.k, found.rows, row_threads, row_vectors)
            # threads that the rows have no use for go along the columns
            for columns in sides(b.k, found.columns, row_threads * column_threads // rows.threads, vectors)
            or sides(b.k, found.columns, column_threads, vectors)
        ]
        if fitting:
            chosen = min(fitting, key=lambda tile: (_idle(*tile), tile[0].groups * tile[1].groups))
            if chosen[0].groups * chosen[1].groups * batches >= ENOUGH:
                break
    return chosen


def _idle(rows: Side, columns: Side) -> float:
    """What is computed over what is wanted: outputs twice; and by threads that a subgroup lacks, which count half, for
    hardware with narrower ones does not have to wait for them.
    """
    threads = rows.threads * columns.threads
    return rows.again * columns.again * (1 + -(-threads // SUBGROUP) * SUBGROUP / threads)


def sides(k: Analysis, axes: list[UOp], threads: int, vectors: int) -> list[Side]:
    """The axes cut into tiles of about threads · vectors vectors; none where too much of the tiles would be idle."""
    near, size = axes[0], k.size(axes[0])
    lots = -(-size // LANES)
    rest = k.volume(axes[1:])
    if lots >= threads * vectors:
        few = -(-lots // (threads * vectors))
        # more tiles of fewer threads may leave less for the last one, which begins earlier, to compute again
        cuts = ((groups, -(-lots // (groups * vectors))) for groups in range(few, 2 * few + 1))
        return [Side(near, n, vectors, None, g * rest, g * n * vectors * LANES / size) for g, n in cuts]
    again = lots * LANES / size
    if lots > threads and lots % vectors == 0 and lots // vectors >= threads // 2:
        return [Side(near, lots // vectors, vectors, None, rest, again)]
    if lots > threads or lots * 2 < threads:
        return []
    for r in axes[1:]:
        if (steps := power_of_two(k.size(r), vectors)) > 1:
            return [Side(near, lots, 1, (r, steps), rest // steps, again)]
    return [Side(near, lots, 1, None, rest, again)]


def cut(b: Builder, s: Side, dim: int) -> None:
    """A tile's lanes, threads and vectors. The last tile begins earlier instead of reaching beyond the end."""
    name, whole = s.axis.arg.name, s.threads * s.vectors
    size = b.size(name)
    if size % LANES and size >= whole * LANES:
        # what is stored is not aligned anyhow: nothing is gated
        _, inner = b.split(name, whole * LANES, shift=True)
        inner = b.tile(inner, LANES, AxisKind.VECTOR)
    else:
        inner = b.tile(name, LANES, AxisKind.VECTOR)
        _, inner = b.split(inner, whole, shift=True)
    if vectors := b.tile(inner, s.threads, AxisKind.THREAD, dim):
        b.bind(vectors, AxisKind.UNROLL)
    if s.further is not None:
        b.tile(s.further[0].arg.name, s.further[1], AxisKind.UNROLL)


def block(b: Builder, dominant: UOp, depth: int) -> str:
    """The reduced loops cut so that about `depth` steps lie inside of one loop; that loop, or "" if there is none."""
    inside = 1
    for r in reversed(nested(dominant.src[1:])):
        size, name = b.k.size(r), str(r.arg.name)
        if inside * size <= depth:
            inside *= size
        elif depth // inside > 1:
            # of about as many steps those that fill the last block best
            about = depth // inside
            factors = range(-(-about // 2), about * 5 // 4 + 1)
            return b.split(name, min(factors, key=lambda f: (-(-size // f) * f, abs(about - f))))[0]
        else:
            return name if inside > 1 else ""
    return ""


def stage(b: Builder, at: str, dominant: UOp, columns: UOp) -> bool:
    """Shared memory for what the threads read alike; whether there is something, and enough of it."""
    k = b.k
    loads = {x: None for r in k.reduces if r.src[1:] == dominant.src[1:] for x in k.loads_of(r)}
    operands: dict[tuple[UOp, bool], list[UOp]] = {}
    for u in sorted(loads, key=k.traffic, reverse=True):
        operands.setdefault((u.src[0], columns in u.ranges), []).append(u)
    staged = [
        b.stage(operand, at, Space.SHARED, 0 if any(k.contiguous(u, columns) for u in operand) else PAD)
        for operand in operands.values()
    ]
    return any(staged) and not excess(b.kernel, b.target)


# -- vectors and lanes ------------------------------------------------------------------------------------------
def vector_along_stores(b: Builder, axes: list[UOp]) -> bool:
    """Whether there was such an axis."""
    k, best, width = b.k, None, 1
    for r in axes if not k.pointer_chasing else ():
        follow = [s for s in k.stores if k.contiguous(s, r)]
        # a word of packed elements is stored as a whole where the vector covers it
        narrow = min((s.src[0].dtype.bits for s in follow), default=32)
        fits = k.width(follow, r, max(b.target.max_vector, 32 // narrow)) if follow else 1
        if fits > width:
            best, width = r, fits
    if best is not None:
        b.tile(best.arg.name, width, AxisKind.VECTOR)
    return best is not None


def vector_axis(b: Builder, loads: list[UOp], bound: list[UOp], rows: list[UOp]) -> tuple[UOp | None, int]:
    """The axis that most loads follow, and the vector's width along it."""
    best: tuple[tuple[int, int], UOp | None, int] = ((0, 0), None, 1)
    for r in [*bound, *rows]:
        width = b.k.width(loads, r, b.target.max_vector)
        if width > 1 and (merit := b.k.merit(loads, r, width)) > best[0]:
            best = (merit, r, width)
    return best[1], best[2]


def unroll(b: Builder, axes: list[UOp], threads: int, enough: int, most: int = 4) -> None:
    """The longest of the axes, up to `most` times, as long as enough threads are left."""
    r = max((r for r in axes if b.left(r)), key=b.k.size, default=None)
    factor = 1
    while r is not None and factor < most and threads >= 2 * factor * enough and b.steps(r) % (2 * factor) == 0:
        factor *= 2
    if r is not None:
        b.tile(b.left(r), factor, AxisKind.UNROLL)


# -- threads ----------------------------------------------------------------------------------------------------
def most(b: Builder) -> int:
    """Threads of a workgroup."""
    return min(LARGE_WORKGROUP, b.target.max_invocations)


def threads(b: Builder) -> int:
    count = 1
    for n in b.threads().values():
        count *= n
    return count


def loops(b: Builder, axes: Iterable[UOp]) -> list[str]:
    """What is left of axes."""
    return [left for r in axes if (left := b.left(r))]


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
    mark = b.mark()
    while (total := _share(b, dominant, count, dims)) > 1 and exchange_bytes(b.kernel) > b.target.shared_bytes:
        b.back(mark)
        count //= 2
    return total


def _share(b: Builder, dominant: UOp, count: int, dims: int) -> int:
    k, parts = b.k, dict[int, int]()  # threads by dimension
    for r in along(k, k.loads_of(dominant), [r for r in dominant.src[1:] if b.left(r)]):
        part = b.steps(r) if b.steps(r) <= count else fitting(b.steps(r), count)
        if part > 1 and len(parts) < dims:
            dim = len(b.threads())
            b.group(b.left(r), part, dim)
            parts[dim] = part
            count //= part
    done = set(dominant.src[1:])
    total = 1
    for part in parts.values():
        total *= part
    for u in k.reduces:
        bound = [r for r in u.src[1:] if r not in done and b.left(r)]
        for dim, part in parts.items() if bound else ():
            _join(b, max(bound, key=b.steps), part, dim)
        done.update(bound)
    return total


def group(b: Builder, r: UOp, count: int) -> None:
    """A reduced axis over `count` threads in a dimension of their own; and other reductions, outer ones first."""
    k, dim = b.k, len(b.threads())
    b.group(b.left(r), count, dim)
    joined = [r]
    for u in reversed(k.reduces):
        bound = [o for o in u.src[1:] if b.left(o)]
        if bound and not any(o in joined for o in u.src[1:]):
            other = max(bound, key=b.steps)
            if _join(b, other, count, dim):
                joined.append(other)


def _join(b: Builder, r: UOp, count: int, dim: int) -> bool:
    """Another reduced axis over threads that there are, unless one value varies over both."""
    return b.attempt(GroupReduce(b.left(r), count, dim))


def along(k: Analysis, loads: list[UOp], axes: list[UOp]) -> list[UOp]:
    """Axes in the order in which neighbouring threads should walk them: those that the loads follow first."""
    main = max(loads, key=k.traffic, default=None)
    return sorted(axes, key=lambda r: distance(k, main, r)) if main is not None else axes


def by_stride(k: Analysis, axes: Iterable[UOp]) -> list[UOp]:
    """Axes in the order in which neighbouring threads should walk them: those that stores follow first."""
    main = max(k.stores, key=lambda s: k.volume(s.src[1].ranges))
    return sorted(axes, key=lambda r: distance(k, main, r))


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


def even(size: int, room: int) -> int:
    """The threads of an output axis, at most `room`: a power of two, or what shares the axis out evenly if that would
    leave many of them idle.
    """
    count = fitting(size, room)
    return count if -size % count * MOST_IDLE <= size else -(-size // -(-size // min(room, size)))

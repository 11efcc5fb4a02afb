"""Native code and WASM: vectors along memory, tiles of registers, blocks of rows for the workers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from math import gcd

from tinyweb.graph.ir import AxisKind, Ops, Space, UOp, as_index
from tinyweb.graph.optimize.action import find_axis
from tinyweb.graph.optimize.actions import Bind, Peel, Split
from tinyweb.graph.optimize.analysis import Analysis, fewest_steps
from tinyweb.graph.optimize.builder import BLOCKS_PER_WORKER, WORTH_SHARING, Builder
from tinyweb.graph.optimize.cost import staged_bytes
from tinyweb.graph.optimize.divide import MOST_PARTS, Divide
from tinyweb.graph.optimize.merge import merges
from tinyweb.graph.optimize.reuse import Reuse
from tinyweb.graph.optimize.rewrite import ranges_of
from tinyweb.graph.optimize.tensorize import Factor
from tinyweb.graph.symbolic import borders, substitute_ranges

REPEATED = 64  # bodies of reductions that unrolling makes, one after the other: more are slow to compile
# sums in the first-level cache, the fewest and the most of a row that are worth it; lanes of one, rows at a time
SUMMED, NARROWEST, WIDEST, SUMMED_VECTOR, ROWS_TOGETHER = 2048, 128, 512, 32, 8
UNEVEN = 8  # columns for each one that is done again, at least
EACH = 32  # columns' time that a block takes beside its own: rows are begun anew
LONGEST = 1024  # additions to one sum: more, one after another, lose digits
SHORT = 4  # steps that a part of a divided axis has at least, on average
SIDE, LINE = 8, 16  # elements of a block that is transposed: along what is stored, and along what is read
STAGED = 6144  # elements of float32 that stay in the first-level cache beside what they are multiplied with


def schedule_for_c(b: Builder) -> bool:
    """Any kernel on a processor."""
    b.fuse()
    divide(b)
    if b.k.dominant is None:
        lanes = b.target.vector_lanes
        b.delinearize(partial(scattered, lanes=lanes), lanes)
        elementwise(b, b.k.outputs, 2 * b.target.vector_lanes)
        share(b)
    elif not sum_of_rows(b, b.k.dominant) and not windows(b, b.k.dominant):
        reduction(b, b.k.dominant)
    return True


# -- kinds of kernels -------------------------------------------------------------------------------------------
def divide(b: Builder) -> None:
    """What is joined along an axis, padded or rotated becomes loops over the parts, each with vectors of its own."""

    def worth(r: UOp) -> tuple[int, ...]:
        size = b.size(r.arg.name)
        most, width = min(MOST_PARTS, size // SHORT), gcd(size, 2 * b.target.vector_lanes)
        # whole vectors have one quotient, as blocks of a scan: text for each block would be nothing but longer
        at = borders(b.kernel.toposort(), r, most, width if width >= b.target.vector_lanes else 1)
        return at if len(at) < most else ()

    if b.k.in_place or b.k.pointer_chasing:
        return
    for name in [r.arg.name for r in b.k.reduced]:
        if at := worth(find_axis(b.kernel, name)):
            b.attempt(Divide(name, at))
    b.rewrite()
    k = b.k
    gates = {r for u in k.nodes if u.op is Ops.LOAD for gate in u.src[2:] for r in gate.ranges}
    along = {r for s in k.stores for r in k.outputs if k.contiguous(s, r)}
    apart = [r for r in k.apart if r in gates or r in along]
    found = [(r, at) for r in sorted(apart, key=lambda r: r not in along) if (at := worth(r))]
    if not found:
        return
    r, at = found[0]
    blocks = b.target.parallel_threads * BLOCKS_PER_WORKER
    if not b.shares or k.reduces or any(k.size(o) >= blocks for o in k.outputs[: k.outputs.index(r)]):
        b.rewrite(Divide(r.arg.name, at))
    else:
        b.rewrite(Divide(r.arg.name, at, blocks), Bind(f"{r.arg.name}.block", AxisKind.GRID))


def scattered(k: Analysis, lanes: int) -> Iterable[UOp]:
    """Indices of loads that no vectors follow; none where lanes would wait for each other."""
    plain = not k.in_place and not k.pointer_chasing
    loads = (u for u in k.nodes if u.op is Ops.LOAD and plain)
    return (s for u in loads if not any(k.follows(u, r, lanes, False) for r in k.outputs) for s in u.src[1:])


def elementwise(b: Builder, axes: list[UOp], most: int) -> None:
    """In each part of the outputs a vector along the axis that stores follow, of at most so many lanes of 32 bits."""
    loops = list(dict.fromkeys(frozenset(s.ranges).intersection(axes) for s in b.k.stores))
    for mine in loops:
        vectors(b, [r for r in axes if r in mine and sum(r in other for other in loops) == 1], most)


def vectors(b: Builder, axes: list[UOp], most: int) -> None:
    k = b.k
    widest = max((u.dtype.bits for u in k.nodes if u.op is Ops.LOAD), default=32)
    limit = min(most if widest <= 32 else b.target.vector_lanes, b.target.max_vector)
    best, width = b.stored_axis(axes, lambda follow: limit)
    if best is None:
        return
    across = read_across(k, best, width, axes)
    b.tile(best.arg.name, min(width, SIDE) if across is not None else width, AxisKind.VECTOR)
    if across is not None:
        b.tile(across.arg.name, min(LINE, k.size(across)), AxisKind.UNROLL)


def read_across(k: Analysis, along: UOp, width: int, axes: list[UOp]) -> UOp | None:
    """The axis that loads follow and stores do not, as in a transposition: blocks are loaded in whole cache lines along
    it, and transposed in registers.
    """
    loads = [
        u for u in k.nodes if u.op is Ops.LOAD and along in u.src[1].ranges and not k.follows(u, along, width, False)
    ]
    for r in axes:
        if r is not along and k.constant(r) and k.size(r) >= SIDE and any(k.contiguous(u, r) for u in loads):
            return r
    return None


def sum_of_rows(b: Builder, dominant: UOp) -> bool:
    """A vector, or few of them, times a matrix, or a sum of rows: rows are read as they lie, a few at a time, and added
    to sums that stay in the first-level cache. Along columns every load would be on another page. Sums of what the
    vector is made of, as a norm's, come before.
    """
    k, loads = b.k, b.k.loads_of(dominant)
    free, bound = [r for r in k.outputs if k.size(r) > 1], dominant.src[1:]
    columns = [r for r in free if any(k.contiguous(u, r) for u in loads)]
    before = [u for u in k.reduces if u is not dominant]
    if not columns or len(free) > 2 or len(bound) != 1 or k.work < WORTH_SHARING:
        return False
    if any(bound[0] in u.src[1:] or not u.ranges.isdisjoint(k.outputs) for u in before):
        return False
    column, row = max(columns, key=k.size), bound[0]
    followed, others = [u for u in loads if column in u.ranges], [r for r in free if r is not column]
    if not all(k.contiguous(u, column) and row in u.ranges and u.ranges.isdisjoint(others) for u in followed):
        return False
    if not k.constant(*free, row):
        return False
    rest = k.size(row) % ROWS_TOGETHER
    if before and rest:  # both parts would read what comes before
        return False
    together = max((unrolled(k, r, REPEATED // ROWS_TOGETHER) for r in others), default=1)
    width = b.target.vector_lanes if others else SUMMED_VECTOR  # of each row one is enough
    block = _summed_columns(b, column, min(SUMMED // k.volume(others), WIDEST))
    if block < NARROWEST or not ROWS_TOGETHER <= k.size(row) <= ROWS_TOGETHER * LONGEST:
        return False
    outside, inside = b.blocks(column.arg.name, block)
    vectors = b.tile(inside, width, AxisKind.VECTOR)
    if left := [name for r in others if (name := b.tile(r.arg.name, together, AxisKind.UNROLL))]:
        b.reorder(outside, *left, vectors)
    b.share(outside)
    rows = row.arg.name
    b.do(Peel(rows, ROWS_TOGETHER) if rest else Split(rows, ROWS_TOGETHER))
    b.hoist(f"{rows}.0", outside)
    for step in (f"{rows}.1", f"{rows}.2")[: 1 + (rest > 0)]:
        b.bind(step, AxisKind.UNROLL)
    along_rows(b, before, set(bound))
    return True


def _summed_columns(b: Builder, column: UOp, most: int) -> int:
    """Columns whose sums are in the cache at once, with which the busiest thread is done soonest; 0 where the last
    ones, which begin earlier, would do much again."""
    size, threads = b.k.size(column), b.target.parallel_threads
    widths = [w for i in range(most.bit_length() - 1, -1, -1) if (w := 1 << i) >= NARROWEST]
    found = [w for w in widths if size >= w and -(-size // w) * w * UNEVEN <= size * (UNEVEN + 1)]
    width = min(found, key=lambda w: -(-size // (w * threads)) * (w + EACH), default=0)
    return width if width and b.legal(Split(column.arg.name, width, overlap=True)) else 0


def windows(b: Builder, dominant: UOp) -> bool:
    """Small windows over rows with a border, or of every other element: whole rows are written out in vectors, so that
    what lies outside is known of each vector, and is gated in none but the first and the last.
    """
    k, bound = b.k, dominant.src[1:]
    row = next((r for r in k.outputs if all(k.contiguous(s, r) for s in k.stores)), None)
    if row is None or k.in_place or any(u.src[1:] != bound or row not in u.ranges for u in k.reduces):
        return False
    loads = [u for u in k.loads_of(dominant) if row in u.src[1].ranges]
    gated = any(row in gate.ranges for u in loads for gate in u.src[2:])
    steps = {step if (step := k.step(u, row)) < 2 or u.src[0].dtype.bits == 32 else 0 for u in loads}
    if not steps or not steps <= {1, 2} or not (gated or 2 in steps):
        return False
    if not k.constant(row, *bound):
        return False
    lanes = b.target.vector_lanes  # whole vectors, of which the last may begin earlier: fewer to compute
    width = lanes if k.size(row) >= lanes else b.width(k.stores, row, lanes)
    if width < 4:
        return False
    # the steps of a window along the row come first: with them gates are constant
    along = [q.arg.name for q in sorted(bound, key=lambda q: min(k.step(u, q) or k.work for u in loads))]
    parts, taps = [row.arg.name], b.size(along[0])
    if -(-k.size(row) // width) * taps > REPEATED and gated:  # too long to be written out: but for its ends
        at = _ends(k, row, bound, [gate for u in loads for gate in u.src[2:]], width)
        if not at:
            return False
        parts = [f"{row.arg.name}.{i}" for i in range(len(at) + 1)]
        b.rewrite(Divide(row.arg.name, at))
    for part in parts:
        mine = [f"{q}.{part}" for q in along] if len(parts) > 1 else along
        mine = [q for q in mine if b.has(q)]  # where all of a part lies outside nothing is summed
        whole = next(r for r in b.k.outputs if r.arg.name == part)
        bodies = -(-b.k.size(whole) // width)
        if bodies * taps <= REPEATED:
            if left := b.tile(part, width, AxisKind.VECTOR):
                b.bind(left, AxisKind.UNROLL)
        else:
            bodies = 4  # vectors of sums: as many as steps of the arithmetic are under way
            follow = [s for s in b.k.stores if whole in s.ranges]
            b.tile(part, b.width(follow, whole, min(bodies * lanes, b.target.max_vector)), AxisKind.VECTOR)
        for q in mine:
            bodies *= b.size(q)
            if bodies <= REPEATED:
                b.bind(q, AxisKind.UNROLL)
    share(b)
    return True


def _ends(k: Analysis, row: UOp, bound: Sequence[UOp], gates: Sequence[UOp], width: int) -> tuple[int, ...]:
    """Where the part of a row begins and ends, by whole vectors, in which no window is at a border; () if none is."""
    size, found = k.size(row), set[int]()
    for place in ({q: 0 for q in bound}, {q: k.size(q) - 1 for q in bound}):
        found.update(*(borders(substitute_ranges(g, place).toposort(), row) for g in gates))
    first = max((-(-b // width) * width for b in found if 2 * b <= size), default=0)
    last = size - max((-(-(size - b) // width) * width for b in found if 2 * b > size), default=0)
    if last - first < width:
        return ()
    inside = row.replace(src=(as_index(last - first),))
    if any(inside in substitute_ranges(g, {row: inside + first}).ranges for g in gates):
        return ()
    return tuple(b for b in (first, last) if 0 < b < size)


def reduction(b: Builder, dominant: UOp) -> None:
    """A vector along what most loads follow, a tile of sums in registers, the largest operand read once."""
    k, lanes = b.k, b.target.vector_lanes
    loads = k.loads_of(dominant)
    bound = [r for r in k.reduced if r in dominant.src[1:]]
    free = [r for r in k.outputs if r in dominant.ranges]
    axis, width = vector_axis(b, loads, bound, free)
    if (left := b.vector(axis, width)) and axis in bound:
        b.attempt(Factor((left,)))
    # half of the registers hold sums; reductions that are merged, or parts of which will be, have sums of their own
    table = merges(b.kernel) if len(k.reduces) > 1 else {}
    loops_of = {u: [table.get(r, r) for r in u.src[1:]] for u in k.reduces}
    together = sum(loops == loops_of[dominant] for loops in loops_of.values())
    budget = b.target.vector_registers // 2 // max(width // lanes, 1) // together
    budget = min(budget, REPEATED // len(k.reduces))
    apart = k.apart
    main = max(loads, key=lambda u: k.volume(u.src[1].ranges), default=None)
    rows = [r for r in free if r is not axis and main is not None and r in main.src[1].ranges]
    others = [r for r in free if r is not axis and r not in rows]
    # unrolling an axis reuses what does not depend on it: the main load over the others
    cached = max(b.target.cache_bytes // (4 * k.volume(apart)), 1)  # rows that are written once they are reduced
    alone = 8 if axis in free and not others else 4  # as many as steps of the arithmetic are under way
    for group, most in ((others, 4 if axis in free else 2), (rows, min(cached, alone))):
        r = max(group, key=lambda r: (any(r not in u.ranges for u in loads), k.size(r)), default=None)
        if r is not None and budget > 1:
            factor = unrolled(k, r, min(most, budget))
            b.tile(r.arg.name, factor, AxisKind.UNROLL)
            budget //= max(factor, 1)
    along_rows(b, k.reduces, set(bound))
    written, mark = [] if axis in k.outputs else apart, b.mark()
    elementwise(b, written, width)
    if not reused(b, apart):
        b.back(mark)
        elementwise(b, written, 2 * lanes)
    # no reduction is computed again for every step of a loop that it does not depend on
    loops = [r for r in k.outputs if b.left(r)]
    nest = sorted(loops, key=lambda r: r in apart)
    if nest != loops:
        b.reorder(*map(b.left, nest))
    row = max((r for r in rows if b.left(r)), key=b.steps, default=None)
    if row is not None and b.steps(row) > 1 and any(b.steps(r) > 1 for r in others):
        rows_first(b, dominant, row)
    else:
        share(b)
        at = next((r.arg.name for r in ranges_of(b.kernel) if r.arg.kind in (AxisKind.GRID, AxisKind.LOOP)), "")
        b.stage((u for u in loads if axis in bound and axis not in u.ranges and u.dtype.bits < 32), at)


def along_rows(b: Builder, reduces: Sequence[UOp], done: set[UOp]) -> None:
    """Vectors along what reductions go over, where that is not `done` yet."""
    for u in reduces:
        rest = [r for r in u.src[1:] if r not in done]
        b.vector(*vector_axis(b, b.k.loads_of(u), rest, []))
        done.update(rest)


def reused(b: Builder, apart: list[UOp]) -> bool:
    """Whether something of a row, which stays cached, is computed once for sums over it and for what is stored."""
    some = [b.attempt(Reuse(r.arg.name)) for r in apart]
    return any(some) and staged_bytes(b.kernel, Space.REGISTER) <= b.target.cache_bytes


# -- vectors and registers --------------------------------------------------------------------------------------
def vector_axis(b: Builder, loads: list[UOp], bound: list[UOp], free: list[UOp]) -> tuple[UOp | None, int]:
    """The axis that most loads follow, and the vector's width along it."""
    lanes = b.target.vector_lanes
    # elements of 4 bits are unpacked by whole words; others, if once, by vectors of their own
    once = (u.dtype.bits for u in loads if u.dtype.bits < 8 or u.ranges.issuperset(free))
    longest = max(lanes, 8) if any(bits < 32 for bits in once) else lanes
    along, across = [(r, longest) for r in bound], [(r, min(4 * lanes, 64)) for r in free]
    # where both are as good: sums side by side, unless what is stored lies along other axes
    return b.vector_axis(loads, [*along, *across] if b.k.apart else [*across, *along], lanes)


def unrolled(k: Analysis, r: UOp, most: int) -> int:
    """How often to unroll an axis: a divisor of its size if there is one that is not much smaller than `most`, else
    what makes few blocks and leaves little to be done again."""
    exact = k.exact(r)
    if not isinstance(exact, int):
        return most
    factors = [exact] if exact <= most else range(most, most // 2, -1)
    return fewest_steps(exact, [f for f in factors if exact % f == 0] or factors, each=1)


# -- the nest ---------------------------------------------------------------------------------------------------
def rows_first(b: Builder, dominant: UOp, row: UOp) -> None:
    """The large operand is read once: a block of its rows stays cached while all that is multiplied with it is read."""
    k, block = b.k, b.left(row)
    unrolled = -(-k.size(row) // b.size(block))
    loops = {r for r in k.outputs if b.left(r) and r is not row}
    if b.shares and b.size(block) >= b.target.parallel_threads:
        b.bind(block, AxisKind.GRID)
    else:
        b.reorder(block, *(b.left(r) for r in k.outputs if r in loops))
    # what has to be converted is converted once per block
    narrow: dict[UOp, int] = {}
    for u in (u for r in k.reduces if r.src[1:] == dominant.src[1:] for u in k.loads_of(r)):
        if row in u.src[1].ranges and u.src[0].dtype.bits < 32 and not k.kernel_stores(u):
            tile = [r for r in u.src[1].ranges if r is not row and r not in loops]
            if loops.isdisjoint(u.src[1].ranges) and k.constant(*tile):
                narrow[u] = k.volume(tile) * unrolled
    largest = max(narrow.values(), default=0)
    chosen = [u for u, elements in narrow.items() if elements == largest]
    if largest * len({(u.src[0], u.ranges) for u in chosen}) <= STAGED:
        b.stage(chosen, block)


def share(b: Builder) -> None:
    """The grid: the outermost loop that gives every worker enough, in few blocks where something is computed once per
    block.
    """
    k = b.k
    if not b.shares or any(r.arg.kind is AxisKind.GRID for r in ranges_of(b.kernel)):
        return
    blocks = b.target.parallel_threads * BLOCKS_PER_WORKER
    loops = [r for r in k.outputs if b.left(r)]
    outermost = [r for r in loops if all(r in u.ranges for u in k.reduces)]
    for r in outermost:
        if b.steps(r) >= blocks:
            b.bind(b.left(r), AxisKind.GRID)
            return
    row = max((r for r in loops if k.dominant is None or r in k.dominant.ranges), key=b.steps, default=None)
    if row is None or b.steps(row) <= 1:
        return
    block, factor = b.left(row), b.steps(row) // blocks
    if row not in outermost and factor > 1:
        block, _ = b.split(block, factor)
    b.bind(block, AxisKind.GRID)

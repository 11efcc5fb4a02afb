"""Products of matrices and convolutions on GPUs, by tiles in shared memory and in registers.

Each thread computes a tile of outputs, so that what it loads serves several multiplications. The threads of a workgroup
read both operands from shared memory, where blocks of them are brought together: of A, the operand that does not vary
along the columns, transposed, so that both are read as vectors (the tiling of Volkov and Demmel 2008, as in CUTLASS).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import inf, prod
from typing import TypeVar

from tinyweb.graph.ir import AxisKind, Ops, Space, UOp, is_lane, lane_count, nested, size_max
from tinyweb.graph.optimize.analysis import Analysis, fewest_steps, largest_divisor, power_of_two
from tinyweb.graph.optimize.builder import Builder
from tinyweb.graph.optimize.cost import MAX_TILE, excess
from tinyweb.graph.optimize.fuse import Fuse
from tinyweb.graph.optimize.instructions import Instruction, matrix_of
from tinyweb.graph.optimize.rewrite import ranges_of
from tinyweb.graph.optimize.tensorize import Tensorize
from tinyweb.graph.symbolic import divides

T = TypeVar("T")

LARGE_WORKGROUP = 256
SUBGROUP = 32  # threads that hardware issues together, as most has it
MATRIX = 16  # rows from which a product of matrices is worth tiles of registers
LANES = 4  # of the vectors in shared memory
PAD = 4  # elements between the columns of the transposed operand: threads that fill them side by side do not collide
DIVIDED = 1.1  # what tiles whose positions are divided again may cost
MATRICES = (4, 2, 1)  # of sums along the rows that a subgroup keeps; of steps that are in shared memory at a time
DEPTHS = (32, 16, 8, 4)  # steps of the reduction in shared memory at a time
ROOMY = 128 << 10  # bytes of shared memory in which several workgroups have the deepest blocks
ENOUGH = 128  # workgroups that keep a GPU busy
MOST_IDLE = 2  # what tiles compute over what is wanted, if others compute less
LITTLE_IDLE = 1.2  # … where tiles of all sizes are too few to keep a GPU busy: none is worth more for what it shares
LITTLE_PADDED = 1.25  # … of threads' tiles: all are computed at once then, and smaller ones are done sooner
# (threads, vectors of each thread) along the rows and along the columns
TILES = (((8, 4), (16, 2)), ((16, 2), (16, 2)), ((8, 2), (16, 2)), ((8, 2), (8, 2)), ((8, 1), (8, 2)), ((8, 1), (8, 1)))


# -- what every product is asked --------------------------------------------------------------------------------
@dataclass(frozen=True)
class Product:
    """A sum of products: the output axes that one operand has alone (the one stored side by side first), those that
    the other has alone (the longest first), and how many such products there are."""

    k: Analysis
    sum: UOp
    columns: list[UOp]
    rows: list[UOp]
    batches: int

    @property
    def axes(self) -> tuple[UOp, UOp]:
        """The row and the column that tiles have parts of."""
        return self.rows[0], self.columns[0]

    @property
    def sizes(self) -> tuple[int, int]:
        row, column = map(self.k.size, self.axes)
        return row, column


def product_of(k: Analysis) -> Product | None:
    """What the dominant reduction multiplies, if those are operands that each have enough axes for themselves."""
    dominant = k.dominant
    if dominant is None:
        return None
    outputs = [r for r in k.outputs if r in dominant.ranges]
    loads = [u for u in k.loads_of(dominant) if u.src[1].ranges.intersection(dominant.src[1:])]
    # what all of them vary along are products of their own
    order = [r for r in by_stride(k, outputs) if any(r not in u.src[1].ranges for u in loads)]
    operands: tuple[list[UOp], list[UOp]] = ([], [])
    for u in loads if order else ():
        operands[order[0] not in u.src[1].ranges].append(u)
    if not all(operands):
        return None
    b, a = (max(us, key=lambda u: k.volume(u.src[1].ranges)).src[1].ranges for us in operands)
    # the nearest of those that have vectors first
    columns = sorted((r for r in order if r in b and r not in a), key=lambda r: k.size(r) < LANES)
    rows = sorted((r for r in order if r in a and r not in b), key=k.size, reverse=True)
    if min(k.volume(columns), k.volume(rows)) < MATRIX:
        return None
    return Product(k, dominant, columns, rows, k.volume([r for r in outputs if r not in columns + rows]))


def preference(groups: float, idle: float, size: int, little: float = LITTLE_IDLE) -> tuple[bool, bool, int]:
    """How good a tile is, the least being best: one that leaves little idle; of which there are enough to keep a GPU
    busy; of those the largest, for what it shares, of others the smallest."""
    few = groups < ENOUGH
    return idle > (little if few else MOST_IDLE), few, size if few else -size


def padded(sizes: tuple[int, ...], tile: tuple[int, ...]) -> float:
    """What tiles compute of axes, with the padding of the last ones, over what is wanted."""
    return prod(-(-n // w) * w / n for n, w in zip(sizes, tile))


def of_lines(b: Builder, p: Product, tiles: Callable[[Product], list[tuple[float, T]]]) -> Product:
    """The product after lines of an image have become one axis, where tiles of single ones compute more that nobody
    asks for than dividing positions again costs. `tiles`: those of a product, each with what it computes over what is
    wanted, best first."""
    for axes in (p.columns, p.rows):
        fuse, mark = lines(b, axes), b.mark()
        if fuse is not None:
            b.rewrite(fuse)
            fused = product_of(b.k)
            again = [next((idle for idle, _ in tiles(one)), inf) for one in (fused, p) if one is not None]
            if fused is not None and again[0] * DIVIDED < again[1]:
                return of_lines(b, fused, tiles)
            b.back(mark)
    return p


def lines(b: Builder, axes: list[UOp]) -> Fuse | None:
    """What makes one axis of the lines of an image: the next axis in memory of those of an operand, and its first."""
    k, inner = b.k, axes[0]
    store = max(k.stores, key=lambda s: k.volume(s.src[1].ranges))
    outer = next((r for r in axes[1:] if k.step(store, r) == k.step(store, inner) * k.size(inner)), None)
    fuse = Fuse(outer.arg.name, inner.arg.name) if outer is not None else None
    return fuse if fuse is not None and b.legal(fuse) else None


# -- tiles of threads -------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Side:
    """A workgroup's part of one operand's axes: threads along the first and the vectors of each, and how many such
    parts there are; of another axis threads.
    """

    axis: UOp
    along: int
    vectors: int
    groups: int
    again: float  # elements computed, over those that there are
    beside: tuple[UOp, int] | None = None

    @property
    def threads(self) -> int:
        return self.along * (self.beside[1] if self.beside else 1)


def product_in_threads(b: Builder) -> bool:
    """Blocks of both operands in shared memory for threads, the largest tiles of which there are enough; whether this
    was a product that is worth it.
    """
    p = product_of(b.k)
    if p is None or not b.k.constant(*p.sum.src[1:]):
        return False
    if b.first(b.instructions(together=True), partial(product_of_subgroups, b, p)):
        return True
    p = of_lines(b, p, partial(_tiles, b))
    depths = DEPTHS if b.target.shared_bytes >= ROOMY else DEPTHS[1:]

    def fits(option: tuple[tuple[float, tuple[Side, Side]], int]) -> bool:
        (_, (rows, columns)), depth = option
        cut(b, columns, 0)
        cut(b, rows, 1)
        if at := block(b, p.sum, depth):
            write_out(b, at)
        return at != "" and stage(b, at, p)

    return b.first(product(b.options("tile", _tiles(b, p)), b.options("depth", depths)), fits)


def _tiles(b: Builder, p: Product) -> list[tuple[float, tuple[Side, Side]]]:
    """Tiles of rows and of columns, and what they leave idle, best first."""
    found: list[tuple[tuple[bool, bool, int], float, tuple[Side, Side]]] = []
    for (row_threads, row_vectors), (column_threads, vectors) in TILES:
        # each further sum needs a tile of registers of its own
        sums = row_vectors * vectors * LANES**2
        if (len(p.k.reduces) > 1 and row_vectors > 1) or row_threads * column_threads > most(b):
            continue
        # the other half is for operands and addresses: where a compiler writes out loops, of several steps
        if sums * 2 > b.target.thread_registers + (b.target.unroll_steps > 1):
            continue
        fitting = [
            (rows, columns)
            for rows in sides(p.k, p.rows, row_threads, row_vectors)
            # threads that the rows have no use for go along the columns
            for columns in sides(p.k, p.columns, row_threads * column_threads // rows.threads, vectors, 2)
            or sides(p.k, p.columns, column_threads, vectors, 2)
        ]
        if fitting:
            tile = min(fitting, key=lambda tile: (_idle(*tile), tile[0].groups * tile[1].groups))
            # threads that take all registers are half as many at a time
            groups = prod(s.groups for s in tile) * p.batches / (1 + (sums * 2 > b.target.thread_registers))
            again, size = tile[0].again * tile[1].again, sums * prod(s.threads * s.vectors for s in tile)
            found.append((preference(groups, again, size, LITTLE_PADDED), _idle(*tile), tile))
    return [(idle, tile) for _, idle, tile in sorted(found, key=lambda one: one[0])]


def _idle(rows: Side, columns: Side) -> float:
    """What is computed over what is wanted: outputs twice; and by threads that a subgroup lacks, which count half, for
    hardware with narrower ones does not have to wait for them.
    """
    threads = rows.threads * columns.threads
    return rows.again * columns.again * (1 + -(-threads // SUBGROUP) * SUBGROUP / threads)


def sides(k: Analysis, axes: list[UOp], threads: int, vectors: int, dims: int = 1) -> list[Side]:
    """The axes cut into tiles of about threads · vectors vectors; none where too much of the tiles would be idle."""
    first, size = axes[0], k.size(axes[0])
    lots, rest = -(-size // LANES), k.volume(axes[1:])
    other = max(axes[1:], key=k.size, default=first)
    count = largest_divisor(k.size(other), threads // lots) if dims > 1 and other is not first else 1
    if count > 1:
        return [Side(first, lots, 1, rest // count, lots * LANES / size, beside=(other, count))]
    vectors = vectors if lots > threads else 1
    few = -(-lots // (threads * vectors))
    # more tiles of fewer threads may leave less for the last one, which begins earlier, to compute again
    cuts = ((groups, -(-lots // (groups * vectors))) for groups in range(few, 2 * few + 1))
    return [
        Side(first, n, vectors, g * rest, g * n * vectors * LANES / size)
        for g, n in cuts
        if 2 * n >= threads or few > 1
    ]


def cut(b: Builder, s: Side, dim: int) -> None:
    """A tile's lanes, threads and vectors."""
    inner = b.tile(s.axis.arg.name, LANES, AxisKind.VECTOR)
    if inner:
        _, inner = b.blocks(inner, s.along * s.vectors)
    if inner and (vectors := b.tile(inner, s.along, AxisKind.THREAD, dim)):
        b.bind(vectors, AxisKind.UNROLL)
    if s.beside is not None:
        _, inner = b.blocks(s.beside[0].arg.name, s.beside[1])
        b.bind(inner, AxisKind.THREAD, 2)


def block(b: Builder, dominant: UOp, depth: int) -> str:
    """The reduced loops cut so that about `depth` steps lie inside of one loop; that loop, or "" if there is none."""
    inside = 1
    for r in reversed(nested(dominant.src[1:])):
        size, name = b.k.size(r), str(r.arg.name)
        if inside * size <= depth:
            inside *= size
        elif depth // inside > 1:
            # of about as many steps those that fill the last block best, or all of a short axis
            about = depth // inside
            factors = [*range(-(-about // 2), about * 5 // 4 + 1), *([size] if size < 2 * about else [])]
            return b.split(name, fewest_steps(size, sorted(factors, key=lambda f: abs(about - f))))[0]
        else:
            return name if inside > 1 else ""
    return ""


def write_out(b: Builder, at: str) -> None:
    """Some steps of the innermost loop inside of `at` stand side by side, where compilers leave loops as they are; not
    of one that conditions may end.
    """
    inner = [r for r in ranges_of(b.kernel) if r.arg.reduce and r.arg.kind is AxisKind.LOOP][-1]
    sums = prod(lane_count(r) for r in ranges_of(b.kernel) if is_lane(r) and not r.arg.reduce)
    name, most = inner.arg.name, min(b.target.unroll_steps, MAX_TILE // sums)
    size, ends = b.exact(name), any(u.op is Ops.WHERE and inner in u.src[0].ranges for u in b.kernel.toposort())
    if name != at and isinstance(size, int) and not ends:
        b.tile(name, largest_divisor(size, most), AxisKind.UNROLL)


def stage(b: Builder, at: str, p: Product, pad: int = PAD) -> bool:
    """Shared memory for what the threads read alike; whether there is something, and enough of it."""
    k, column = p.k, p.columns[0]
    loads = {x: None for r in k.reduces if r.src[1:] == p.sum.src[1:] for x in k.loads_of(r)}
    operands: dict[tuple[UOp, bool], list[UOp]] = {}
    for u in sorted(loads, key=k.traffic, reverse=True):
        operands.setdefault((u.src[0], column in u.ranges), []).append(u)
    staged = [
        b.stage(operand, at, Space.SHARED, 0 if any(k.contiguous(u, column) for u in operand) else pad)
        for operand in operands.values()
    ]
    return any(staged) and not excess(b.kernel, b.target)


def product_of_subgroups(b: Builder, p: Product, instruction: Instruction) -> bool:
    """Matrices that the threads of a subgroup multiply together, of operands in shared memory; whether it fits."""
    steps = p.sum.src[-1]

    def fits(matrices: tuple[int, int]) -> bool:
        sizes = lane_count(instruction.tile[0]) * matrices[0], b.target.subgroup_threads
        depth = matrices[1] * instruction.steps
        whole = divides(steps.src[0], depth) and all(n <= size for n, size in zip(sizes, p.sizes))
        if not whole or len(p.k.reduces) > 1 or not p.k.constant(*p.axes):
            return False
        (_, _), (_, column) = (b.blocks(r.arg.name, n) for r, n in zip(p.axes, sizes))
        b.bind(column, AxisKind.THREAD)
        at, inner = b.split(steps.arg.name, depth)
        b.do(Tensorize(b.split(inner, instruction.steps)[1], instruction.name))
        staged = stage(b, at, p, pad=0)
        reduces = (u for u in b.kernel.toposort() if u.op is Ops.REDUCE)
        return staged and any(matrix_of([instruction.name], u) for u in reduces)  # both operands are in shared memory

    return b.first(product(MATRICES, MATRICES), fits)


# -- what other recipes for GPUs ask too ------------------------------------------------------------------------
def most(b: Builder) -> int:
    """Threads of a workgroup."""
    return min(LARGE_WORKGROUP, b.target.max_invocations)


def by_stride(k: Analysis, axes: Iterable[UOp], main: UOp | None = None) -> list[UOp]:
    """Axes in the order in which neighbouring threads should walk them: those that an access, or the largest store,
    follows first.
    """
    access = main if main is not None else max(k.stores, key=lambda s: k.volume(s.src[1].ranges))
    return sorted(axes, key=lambda r: abs(k.step(access, r)) or 1 << 40)


def in_flight(b: Builder, axis: str, count: int) -> None:
    """Some steps of a thread's loop written out, all of them where it has no more, so that what they load is waited for
    together."""
    size = b.exact(axis)
    steps = size if size == count else power_of_two(size_max(size), count)
    if isinstance(steps, int) and steps > 1:
        # where the length varies, what is beyond it is gated: what is left over would be waited for step by step
        b.bind(b.split(axis, steps)[1] if steps != size else axis, AxisKind.UNROLL)

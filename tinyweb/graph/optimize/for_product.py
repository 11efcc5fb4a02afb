"""Products of matrices and convolutions on GPUs, by tiles in shared memory and in registers.

Each thread computes a tile of outputs, so that what it loads serves several multiplications. The threads of a workgroup
read both operands from shared memory, where blocks of them are brought together: of A, the operand that does not vary
along the columns, transposed, so that both are read as vectors (the tiling of Volkov and Demmel 2008, as in CUTLASS).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from math import prod

from tinyweb.graph.ir import AxisKind, Ops, Space, UOp, is_lane, lane_count, nested
from tinyweb.graph.optimize.actions import Reorder
from tinyweb.graph.optimize.analysis import Analysis, fewest_steps, largest_divisor
from tinyweb.graph.optimize.builder import Builder
from tinyweb.graph.optimize.cost import MAX_TILE, excess
from tinyweb.graph.optimize.for_matrices import ENOUGH, LITTLE_IDLE, choices, held_product, idle, idle_steps, of_loads
from tinyweb.graph.optimize.fuse import Fuse
from tinyweb.graph.optimize.instructions import Instruction, matrix_of
from tinyweb.graph.optimize.rewrite import ranges_of
from tinyweb.graph.optimize.tensorize import Tensorize
from tinyweb.graph.symbolic import divides

LARGE_WORKGROUP = 256
SUBGROUP = 32  # threads that hardware issues together, as most has it
MATRIX = 16  # rows from which a product of matrices is worth tiles of registers
LANES = 4  # of the vectors in shared memory
PAD = 4  # elements between the columns of the transposed operand: threads that fill them side by side do not collide
DIVIDED = 1.1  # what tiles whose positions are divided again may cost
MATRICES = (4, 2, 1)  # of sums along the rows that a subgroup keeps; of steps that are in shared memory at a time
DEPTHS = (32, 16, 8, 4)  # steps of the reduction in shared memory at a time
ROOMY = 128 << 10  # bytes of shared memory in which several workgroups have the deepest blocks
# (threads, vectors of each thread) along the rows and along the columns, from the largest tile on
TILES = (((8, 4), (16, 2)), ((16, 2), (16, 2)), ((8, 2), (16, 2)), ((8, 2), (8, 2)), ((8, 1), (8, 2)), ((8, 1), (8, 1)))


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


def product_of(k: Analysis, dominant: UOp, outputs: list[UOp]) -> tuple[list[UOp], list[UOp]]:
    """The output axes that one operand of a product has (the one stored side by side first), and those the other has;
    none where a reduction does not multiply operands that share none.
    """
    loads = [u for u in k.loads_of(dominant) if u.src[1].ranges.intersection(dominant.src[1:])]
    # what all of them vary along are products of their own
    order = [r for r in by_stride(k, outputs) if any(r not in u.src[1].ranges for u in loads)]
    operands: tuple[list[UOp], list[UOp]] = ([], [])
    for u in loads if order else ():
        operands[order[0] not in u.src[1].ranges].append(u)
    if not all(operands):
        return [], []
    b, a = (max(us, key=lambda u: k.volume(u.src[1].ranges)).src[1].ranges for us in operands)
    columns, rows = [r for r in order if r in b and r not in a], [r for r in order if r in a and r not in b]
    columns.sort(key=lambda r: k.size(r) < LANES)  # the nearest of those that have vectors first
    return columns, sorted(rows, key=k.size, reverse=True)


def matrix_product(b: Builder, dominant: UOp, outputs: list[UOp]) -> bool:
    """Blocks of both operands in shared memory, the largest tiles of which there are enough; whether this was a product
    that is worth it.
    """
    k, both = b.k, product_of(b.k, dominant, outputs)
    if not all(both) or not k.constant(*dominant.src[1:]):
        return False
    if min(map(k.volume, both)) < MATRIX:
        return False
    batches = k.volume([r for r in outputs if r not in both[0] + both[1]])
    for instruction in b.instructions(together=True):
        if subgroup_product(b, dominant, *both, instruction):
            return True
    tile = tile_of(b, *both, batches)
    if tile is None:
        return False
    if fused_columns(b, both[0], tile):
        assert b.k.dominant is not None
        return matrix_product(b, b.k.dominant, [r for r in b.k.outputs if r in b.k.dominant.ranges])
    rows, columns = tile

    def fits(depth: int) -> bool:
        cut(b, columns, 0)
        cut(b, rows, 1)
        if at := block(b, dominant, depth):
            write_out(b, at)
        return at != "" and stage(b, at, dominant, columns.axis)

    return b.first(b.options("depth", DEPTHS if b.target.shared_bytes >= ROOMY else DEPTHS[1:]), fits)


def product_in_registers(b: Builder, dominant: UOp, outputs: list[UOp]) -> bool:
    """Matrices that subgroups multiply in their registers, where the target does; whether this was such a product."""
    held = [i for i in b.instructions(held=True) if of_loads(dominant, i) and not i.first_held]
    held.sort(key=lambda i: i.operands[0].bits)  # those that nothing is widened for
    return b.first(
        b.options("instruction", choices(held)), lambda i: of_window(b, dominant, i) or whole(b, dominant, i)
    )


def whole(b: Builder, dominant: UOp, instructions: tuple[Instruction, ...]) -> bool:
    """… by these instructions, of the steps of the innermost axis. Lines of an image become one axis where tiles of
    single ones would compute more that nobody asks for."""
    k, (both, batches) = b.k, operands(b.k, dominant)
    if not all(both) or min(map(k.volume, both)) < MATRIX:
        return False
    for fuse in filter(None, (lines(b, axes) for axes in both)):
        mark = b.mark()
        b.rewrite(fuse)
        if b.k.dominant is not None:
            fused, _ = operands(b.k, b.k.dominant)
            if all(fused) and idle(b.k, fused, batches, instructions) * DIVIDED < idle(k, both, batches, instructions):
                return whole(b, b.k.dominant, instructions)
        b.back(mark)
    return held_product(b, dominant, *both, batches, instructions)


def operands(k: Analysis, dominant: UOp) -> tuple[tuple[list[UOp], list[UOp]], int]:
    """Columns and rows of a product, and how many such products there are."""
    outputs = [r for r in k.outputs if r in dominant.ranges]
    both = product_of(k, dominant, outputs)
    return both, k.volume([r for r in outputs if r not in both[0] + both[1]])


def lines(b: Builder, axes: list[UOp]) -> Fuse | None:
    """What makes one axis of the lines of an image: the next axis in memory of those of an operand, and its first."""
    k, inner = b.k, axes[0]
    store = max(k.stores, key=lambda s: k.volume(s.src[1].ranges))
    outer = next((r for r in axes[1:] if k.step(store, r) == k.step(store, inner) * k.size(inner)), None)
    if outer is None or not k.constant(outer, inner):
        return None
    fuse = Fuse(outer.arg.name, inner.arg.name)
    return fuse if b.legal(fuse) else None


def of_window(b: Builder, dominant: UOp, instructions: tuple[Instruction, ...]) -> bool:
    """… of the steps of all axes as one, where the innermost one is too short for the instruction, as the window of a
    convolution is: in the order in which they lie in memory, that of the operand with fewest axes first."""
    k, axes = b.k, list(dominant.src[1:])
    if len(axes) == 1 or not k.constant(*axes) or idle_steps(k.size(axes[-1]), instructions[0]) <= LITTLE_IDLE:
        return False
    loads = sorted(k.loads_of(dominant), key=lambda u: len(u.src[1].ranges))
    orders = dict.fromkeys(tuple(sorted(axes, key=lambda r: -abs(k.step(u, r)))) for u in loads)

    def fused(order: tuple[UOp, ...]) -> bool:
        names = [r.arg.name for r in order]
        if not b.attempt(Reorder(tuple(names)), *(Fuse(names[0], name) for name in names[1:])):
            return False
        b.rewrite()
        return b.k.dominant is not None and whole(b, b.k.dominant, instructions)

    return b.first(orders, fused)


def fused_columns(b: Builder, along: list[UOp], tile: tuple[Side, Side]) -> bool:
    """Whether the lines of an image became one axis, as tiles of single ones would compute more that nobody asks for
    than dividing positions again costs."""
    fuse, mark = lines(b, along), b.mark()
    if fuse is None:
        return False
    b.rewrite(fuse)
    if b.k.dominant is not None:
        both, batches = operands(b.k, b.k.dominant)
        fused = tile_of(b, *both, batches) if all(both) else None
        if fused is not None and _idle(*fused) * DIVIDED < _idle(*tile):
            return True
    b.back(mark)
    return False


def subgroup_product(b: Builder, dominant: UOp, along: list[UOp], down: list[UOp], instruction: Instruction) -> bool:
    """Matrices that the threads of a subgroup multiply together, of operands in shared memory; whether it fits."""
    k, steps, axes = b.k, dominant.src[-1], (down[0], along[0])

    def fits(sizes: tuple[int, int]) -> bool:
        matrices, depth = sizes
        sizes = lane_count(instruction.tile[0]) * matrices, b.target.subgroup_threads
        whole = divides(steps.src[0], depth * instruction.steps) and all(k.size(r) >= n for r, n in zip(axes, sizes))
        if not whole or len(k.reduces) > 1 or not k.constant(*axes):
            return False
        (_, _), (_, column) = (b.blocks(r.arg.name, n) for r, n in zip(axes, sizes))
        b.bind(column, AxisKind.THREAD)
        at, inner = b.split(steps.arg.name, depth * instruction.steps)
        b.do(Tensorize(b.split(inner, instruction.steps)[1], instruction.name))
        staged = stage(b, at, dominant, along[0], pad=0)
        reduces = (u for u in b.kernel.toposort() if u.op is Ops.REDUCE)
        return staged and any(matrix_of([instruction.name], u) for u in reduces)  # both operands are in shared memory

    return b.first(product(MATRICES, MATRICES), fits)


def tile_of(b: Builder, along: list[UOp], down: list[UOp], batches: int) -> tuple[Side, Side] | None:
    """The tile of axes of columns and of rows."""
    chosen: tuple[Side, Side] | None = None
    for (row_threads, row_vectors), (column_threads, vectors) in b.options("tile", TILES):
        # each further sum needs a tile of registers of its own
        sums = row_vectors * vectors * LANES**2
        if (len(b.k.reduces) > 1 and row_vectors > 1) or row_threads * column_threads > most(b):
            continue
        # the other half is for operands and addresses: where a compiler writes out loops, of several steps
        if sums * 2 > b.target.thread_registers + (b.target.unroll_steps > 1):
            continue
        fitting = [
            (rows, columns)
            for rows in sides(b.k, down, row_threads, row_vectors)
            # threads that the rows have no use for go along the columns
            for columns in sides(b.k, along, row_threads * column_threads // rows.threads, vectors, 2)
            or sides(b.k, along, column_threads, vectors, 2)
        ]
        if fitting:
            chosen = min(fitting, key=lambda tile: (_idle(*tile), tile[0].groups * tile[1].groups))
            # threads that take all registers are half as many at a time
            if chosen[0].groups * chosen[1].groups * batches >= ENOUGH * (1 + (sums * 2 > b.target.thread_registers)):
                break
    return chosen


def _idle(rows: Side, columns: Side) -> float:
    """What is computed over what is wanted: outputs twice; and by threads that a subgroup lacks, which count half, for
    hardware with narrower ones does not have to wait for them.
    """
    threads = rows.threads * columns.threads
    return rows.again * columns.again * (1 + -(-threads // SUBGROUP) * SUBGROUP / threads)


def sides(k: Analysis, axes: list[UOp], threads: int, vectors: int, dims: int = 1) -> list[Side]:
    """The axes cut into tiles of about threads · vectors vectors; none where too much of the tiles would be idle."""
    first, size = axes[0], k.size(axes[0])
    lots = -(-size // LANES)
    rest, again = k.volume(axes[1:]), lots * LANES / size
    if lots >= threads * vectors:
        few = -(-lots // (threads * vectors))
        # more tiles of fewer threads may leave less for the last one, which begins earlier, to compute again
        cuts = ((groups, -(-lots // (groups * vectors))) for groups in range(few, 2 * few + 1))
        return [Side(first, n, vectors, g * rest, g * n * vectors * LANES / size) for g, n in cuts]
    if lots > threads and lots % vectors == 0 and lots // vectors >= threads // 2:
        return [Side(first, lots // vectors, vectors, rest, again)]
    if lots > threads:
        return []
    other = max(axes[1:], key=k.size, default=first)
    if lots * 2 <= threads and dims > 1 and other is not first:
        count = largest_divisor(k.size(other), threads // lots)
        if count > 1:
            return [Side(first, lots, 1, rest // count, again, beside=(other, count))]
    if lots * 2 < threads:
        return []
    return [Side(first, lots, 1, rest, again)]


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


def stage(b: Builder, at: str, dominant: UOp, columns: UOp, pad: int = PAD) -> bool:
    """Shared memory for what the threads read alike; whether there is something, and enough of it."""
    k = b.k
    loads = {x: None for r in k.reduces if r.src[1:] == dominant.src[1:] for x in k.loads_of(r)}
    operands: dict[tuple[UOp, bool], list[UOp]] = {}
    for u in sorted(loads, key=k.traffic, reverse=True):
        operands.setdefault((u.src[0], columns in u.ranges), []).append(u)
    staged = [
        b.stage(operand, at, Space.SHARED, 0 if any(k.contiguous(u, columns) for u in operand) else pad)
        for operand in operands.values()
    ]
    return any(staged) and not excess(b.kernel, b.target)


# -- what other recipes for GPUs ask too
def most(b: Builder) -> int:
    """Threads of a workgroup."""
    return min(LARGE_WORKGROUP, b.target.max_invocations)


def by_stride(k: Analysis, axes: Iterable[UOp], main: UOp | None = None) -> list[UOp]:
    """Axes in the order in which neighbouring threads should walk them: those that an access, or the largest store,
    follows first.
    """
    access = main if main is not None else max(k.stores, key=lambda s: k.volume(s.src[1].ranges))
    return sorted(axes, key=lambda r: abs(k.step(access, r)) or 1 << 40)

"""Products of matrices on GPUs whose subgroups multiply matrices in registers (tensor cores, matrix cores).

A workgroup is several subgroups side by side along rows and columns, each with a tile of several matrices, whose sums
stay in registers; or one or two warpgroups along rows, whose instructions read operands in shared memory. Blocks of
both operands go through shared memory, as they lie in memory, for all subgroups; what is done with the sums is done by
the thread that has them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import product
from math import inf, prod
from operator import itemgetter

from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import ELEMENTWISE, TRANSCENDENTAL, AxisKind, Digit, Ops, Space, UOp, below
from tinyweb.graph.ir.shared_matrices import BITS_IN_EITHER_ORDER
from tinyweb.graph.optimize.analysis import Analysis
from tinyweb.graph.optimize.builder import Builder
from tinyweb.graph.optimize.cost import excess
from tinyweb.graph.optimize.instructions import Instruction
from tinyweb.graph.optimize.stage import SWIZZLES, stages_of
from tinyweb.graph.optimize.tensorize import Tensorize

# subgroups along rows and along columns, and matrices of each of them
TILES = (
    ((2, 4), (4, 4)), ((2, 2), (4, 4)), ((2, 2), (2, 4)), ((2, 2), (2, 2)), ((1, 4), (2, 2)), ((1, 4), (1, 2)),
    ((1, 2), (1, 2)), ((1, 2), (1, 1)), ((1, 1), (1, 1)),
)  # fmt: skip
# warpgroups along rows, and matrices of each along rows, of instructions for 64 rows
WARPGROUPS = (2, 1), (2, 2), (1, 1), (1, 2)
FEWEST_ROWS = 64  # that they are worth
ENOUGH = 128  # workgroups that keep a GPU busy
FURTHER_TILES = (  # for search
    ((4, 2), (4, 4)), ((2, 2), (4, 8)), ((2, 2), (8, 4)), ((2, 4), (2, 4)), ((4, 2), (2, 4)), ((2, 4), (4, 2)),
)  # fmt: skip
# bytes of an operand's row, and blocks of such rows, that are in shared memory at a time, of which instructions still
# read so many that the step before began; without copies ahead the last
BLOCKS = ((128, 4, 0), (128, 3, 0), (64, 4, 0), (64, 3, 0), (64, 2, 0), (64, 1, 0))
READ_BLOCKS = ((128, 4, 1), (128, 3, 1), (64, 4, 1), (64, 3, 1), (128, 2, 0), (128, 1, 0))
FURTHER_READ_BLOCKS = ((64, 8, 1), (64, 6, 1), (128, 6, 1), (128, 4, 2), (128, 3, 0), (64, 2, 0))  # for search
FURTHER_BLOCKS = ((256, 3, 0), (256, 2, 0), (128, 2, 0), (64, 6, 0), (32, 4, 0))  # for search
PADS = (16, 0, 32)  # bytes behind each row: rows side by side begin in other banks
GROUPS = (1, 4, 8, 16)  # workgroups along the rows that come before the next along the columns; 1: all
MOST_WRITTEN = 4096  # operations on its sums that are written out for a thread
FUNCTION = 32  # operations that a function is made of
MOST_IDLE = 4  # what is computed beyond the ends, over what is wanted, at most
MOST_IDLE_ROWS = 2  # … by instructions for many rows
LITTLE_IDLE = 1.2  # … where tiles of all sizes are too few to keep a GPU busy: none is worth more for what it shares
MOST_IDLE_STEPS = 2  # the same of an instruction's steps: a window of three would take sixteen
SUBGROUPS = (2, 3)  # dimensions of a workgroup that they lie along: columns, rows


def choices(instructions: list[Instruction]) -> list[tuple[Instruction, ...]]:
    """Those that are chosen between by the size of tiles, together; others one by one."""
    shared: dict[tuple[DType, ...], tuple[Instruction, ...]] = {}
    for i in instructions:
        key = i.operands if i.shared else ()
        shared[key] = (*shared.get(key, ()), i)
    return [*(c for key, c in shared.items() if key), *((i,) for i in shared.get((), ()))]


def held_product(
    b: Builder, dominant: UOp, along: list[UOp], down: list[UOp], batches: int, instructions: tuple[Instruction, ...]
) -> bool:
    """Matrices that subgroups multiply in their registers: the largest tiles of which there are enough; whether they
    fit."""
    k, axes = b.k, (down[0], along[0])
    if not all(u.src[1:] == dominant.src[1:] and of_loads(u, instructions[0]) for u in k.reduces):
        return False
    if not k.constant(*axes):
        return False
    # what is computed of the sums for each of the stores
    after = (
        u for s in k.stores for u in below([s.src[2]], lambda u: u not in k.reduces) if u.dtype is not dtypes.index
    )
    written = sum(FUNCTION if u.op in TRANSCENDENTAL else u.op in ELEMENTWISE for u in after)

    def fits(choice: Choice) -> bool:
        instruction, (_, matrices) = choice
        assert instruction.fragments is not None
        sums = len(k.reduces) * prod(matrices) * instruction.fragments.sums.size
        # the other half is for operands and addresses
        few = 2 * sums <= b.target.thread_registers + 1 and sums * written <= MOST_WRITTEN
        return few and _with_tile(b, dominant, axes, *choice)

    return b.first(b.options("tile", _tiles(k, (along, down), batches, instructions)), fits)


def idle(k: Analysis, both: tuple[list[UOp], list[UOp]], batches: int, instructions: tuple[Instruction, ...]) -> float:
    """What the tiles of a product's columns and rows compute over what is wanted, of those that are chosen first."""
    sizes = k.size(both[1][0]), k.size(both[0][0])
    tiles = _tiles(k, both, batches, instructions)[:1]
    return next((_again(sizes, extent(tile, i)) for i, tile in tiles), inf)


def of_loads(reduce: UOp, instruction: Instruction) -> bool:
    """Whether a sum is of products of memory in an instruction's types, or in half floats, which are widened to them
    by one operation."""

    def loaded(factor: UOp, dtype: DType) -> bool:
        value = factor.src[0] if factor.op is Ops.CAST else factor
        widened = factor.dtype is dtype and value.dtype.is_float and value.dtype.bits == 16
        return value.op is Ops.LOAD and (value.dtype is dtype or widened)

    value = reduce.src[0]
    return value.op is Ops.MUL and all(map(loaded, value.src, instruction.operands))


Tile = tuple[tuple[int, int], tuple[int, int]]
Choice = tuple[Instruction, Tile]


def _tiles(
    k: Analysis, both: tuple[list[UOp], list[UOp]], batches: int, instructions: tuple[Instruction, ...]
) -> list[Choice]:
    """Tiles of columns and rows that leave not too much idle, best first: of those with enough workgroups the largest;
    those for search alone come last."""
    read, sizes = instructions[0].shared, (k.size(both[1][0]), k.size(both[0][0]))
    batches *= prod(map(k.volume, both)) // prod(sizes)
    tiles = [((groups, 1), (matrices, 1)) for groups, matrices in WARPGROUPS] if read else [*TILES, *FURTHER_TILES]
    found: list[tuple[tuple[float, ...], Choice]] = []
    for order, (i, tile) in enumerate(product(instructions, tiles) if not read or sizes[0] >= FEWEST_ROWS else ()):
        whole = extent(tile, i)
        groups, again = prod(-(-n // w) for n, w in zip(sizes, whole)), _again(sizes, whole)
        few = groups * batches < ENOUGH
        if again <= (MOST_IDLE_ROWS if read else MOST_IDLE):
            size = prod(whole) if few else -prod(map(min, sizes, whole))
            # smaller tiles come first, where one leaves less idle
            wide = again > (LITTLE_IDLE if few else MOST_IDLE_ROWS)
            further, last = not read and order >= len(TILES), 0 if few and not read else again
            found.append(((further, wide, few, size, last, order), (i, tile)))
    return [choice for _, choice in sorted(found, key=itemgetter(0))]


def _again(sizes: tuple[int, int], tile: tuple[int, int]) -> float:
    """What tiles compute of rows and columns over what is wanted."""
    return prod(-(-n // w) * w / n for n, w in zip(sizes, tile))


def idle_steps(steps: int, instruction: Instruction) -> float:
    """Steps that an instruction computes over those that there are."""
    return -(-steps // instruction.steps) * instruction.steps / steps


def extent(tile: Tile, instruction: Instruction) -> tuple[int, int]:
    """Rows and columns of a workgroup's tile."""
    assert instruction.fragments is not None
    rows, columns = instruction.fragments.sums.shape
    return tile[0][0] * tile[1][0] * rows, tile[0][1] * tile[1][1] * columns


def _with_tile(b: Builder, dominant: UOp, axes: tuple[UOp, UOp], instruction: Instruction, tile: Tile) -> bool:
    fragments, k = instruction.fragments, b.k
    assert fragments is not None
    if not k.constant(dominant.src[-1]):
        return False
    whole = extent(tile, instruction)
    for i, (r, digits) in enumerate(zip(axes, (fragments.sums.first, fragments.sums.second))):
        several = tile[0][i] if tile[0][i] > 1 or not fragments.shared else 0
        bind_tile(b, r, whole[i], digits, bool(i), several, SUBGROUPS[not i])
    ahead = (*BLOCKS, *FURTHER_BLOCKS) if b.target.copies_ahead else BLOCKS[-1:]
    blocks = (*READ_BLOCKS, *FURTHER_READ_BLOCKS) if fragments.shared else ahead
    return b.first(b.options("blocks", blocks), partial(_with_blocks, b, dominant, instruction))


def _with_blocks(b: Builder, dominant: UOp, instruction: Instruction, blocks: tuple[int, int, int]) -> bool:
    """Of so many bytes along the steps so many blocks in shared memory at a time, and of these some that are read."""
    k, steps, size, (row_bytes, slots, lag) = b.k, dominant.src[-1], instruction.steps, blocks
    if idle_steps(k.size(steps), instruction) > MOST_IDLE_STEPS:
        return False
    depth = max(row_bytes * 8 // instruction.operands[0].bits // size, 1)
    # what is read beyond the last step is multiplied too; to wait for a block takes half a step
    depths = [depth >> i for i in range(depth.bit_length())]
    idle = {n: -(-k.size(steps) // (n * size)) * n * size / k.size(steps) for n in depths}
    depth = min(depths, key=lambda n: (idle[n] > max(LITTLE_IDLE, idle[1]), idle[n] * (1 + 1 / (2 * n))))
    at, inner = b.split(steps.arg.name, depth * size)
    # steps are a loop: sums of one are independent of each other, which those of a chain of steps are not
    _, step = b.split(inner, size)
    b.do(Tensorize(step, instruction.name))
    loads = [u for u in k.summed if u.src[1].ranges.intersection(dominant.src[1:])]
    if instruction.shared:
        if instruction.operands[0].bits != BITS_IN_EITHER_ORDER and any(k.step(u, steps) != 1 for u in loads):
            return False
        stages = stages_of(loads, (), at, Space.SHARED, 0, raw=True)
        kinds = [replace(s, slots=slots, lag=lag) for s in stages]
        fits = all(any(b.attempt(replace(s, swizzle=n)) for n in SWIZZLES) for s in kinds)
        return fits and not excess(b.kernel, b.target)
    pad = b.options("pad", PADS)[0] * 8 // instruction.operands[0].bits
    for stage in stages_of(loads, (), at, Space.SHARED, pad, raw=True):
        b.attempt(replace(stage, slots=slots))
    return not excess(b.kernel, b.target)


def grid_of_tiles(b: Builder, axes: list[str]) -> None:
    """Workgroups, in groups of rows of tiles where that is chosen: those that run side by side share what they read."""
    together = b.options("group", GROUPS)[0]
    if together == 1 or len(axes) != 2 or b.size(axes[0]) % together:
        b.grid(axes)
        return
    outer, inner = b.split(axes[0], together)
    b.reorder(outer, axes[1], inner)
    for axis in (outer, axes[1], inner):
        b.bind(axis, AxisKind.GRID)


def bind_tile(
    b: Builder, r: UOp, whole: int, digits: tuple[Digit, ...], vector: bool, subgroups: int = 0, dim: int = 0
) -> None:
    """A tile of so many steps of an axis bound, in parts for subgroups along a dimension, if any: of the digits of an
    instruction's sums a thread's to its dimension, others to lanes, beside each other in memory to a vector."""
    _, axis = b.blocks(r.arg.name, whole)
    for i, d in enumerate(digits):
        if d.of == "e" and i > 0 and all(further.of == "e" for further in digits[i:]):
            continue
        axis, inner = b.split(axis, d.size)
        if d.of == "e":
            b.bind(inner, AxisKind.VECTOR if vector and i == 0 else AxisKind.UNROLL)
        else:
            b.bind(inner, AxisKind.THREAD, "xyz".index(d.of))
    outer, axis = b.split(axis, b.size(axis) // subgroups) if subgroups else ("", axis)
    b.bind(axis, AxisKind.UNROLL)
    if outer:
        b.bind(outer, AxisKind.THREAD, dim)

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
from math import prod

from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import ELEMENTWISE, TRANSCENDENTAL, AxisKind, Digit, Ops, Space, UOp, below
from tinyweb.graph.ir.shared_matrices import BITS_IN_EITHER_ORDER
from tinyweb.graph.optimize.actions import Reorder
from tinyweb.graph.optimize.builder import Builder
from tinyweb.graph.optimize.cost import excess
from tinyweb.graph.optimize.for_product import ENOUGH, LITTLE_IDLE, Product, of_lines, padded, preference, product_of
from tinyweb.graph.optimize.fuse import Fuse
from tinyweb.graph.optimize.instructions import Instruction
from tinyweb.graph.optimize.stage import SWIZZLES, stages_of
from tinyweb.graph.optimize.tensorize import Tensorize

# subgroups along rows and along columns, and matrices of each of them
TILES = (
    ((2, 4), (4, 4)), ((2, 2), (4, 4)), ((2, 2), (2, 4)), ((2, 2), (2, 2)), ((1, 4), (2, 2)), ((1, 4), (1, 2)),
    ((1, 2), (1, 2)), ((1, 2), (1, 1)), ((1, 1), (1, 1)), ((4, 2), (4, 4)), ((2, 2), (4, 8)), ((2, 2), (8, 4)),
    ((2, 4), (2, 4)), ((4, 2), (2, 4)), ((2, 4), (4, 2)),
)  # fmt: skip
# … of many rows, for operands that are computed on the way to shared memory: once for all of them
TALL = (((4, 1), (2, 4)), ((4, 1), (2, 2)), ((4, 1), (1, 2)))
# the same of warpgroups, whose instructions are for 64 rows
WARPGROUPS = (((2, 1), (1, 1)), ((2, 1), (2, 1)), ((1, 1), (1, 1)), ((1, 1), (2, 1)))
MATRIX_UNITS = 4  # of a multiprocessor (NVIDIA's partitions of it, AMD's SIMD units), each for one subgroup at a time
# multiply-adds of matrices in the time in which an element is computed of codes and scales, and in which one is loaded
COMPUTED, LOADED = 64, 32
FEWEST_ROWS = 64  # that they are worth
# bytes of an operand's row, and blocks of such rows, that are in shared memory at a time, of which instructions still
# read so many that the step before began; several only where copies arrive later
BLOCKS = (
    (128, 4, 0), (128, 3, 0), (64, 4, 0), (64, 3, 0), (64, 2, 0), (64, 1, 0),
    (256, 3, 0), (256, 2, 0), (128, 2, 0), (64, 6, 0), (32, 4, 0),
)  # fmt: skip
READ_BLOCKS = (
    (128, 4, 1), (128, 3, 1), (64, 4, 1), (64, 3, 1), (128, 2, 0), (128, 1, 0),
    (64, 8, 1), (64, 6, 1), (128, 6, 1), (128, 4, 2), (128, 3, 0), (64, 2, 0),
)  # fmt: skip
PADS = (16, 0, 32)  # bytes behind each row: rows side by side begin in other banks
GROUPS = (1, 4, 8, 16)  # workgroups along the rows that come before the next along the columns; 1: all
MOST_WRITTEN = 4096  # operations on its sums that are written out for a thread
FUNCTION = 32  # operations that a function is made of
MOST_PADDED = 4  # what is computed beyond the ends, over what is wanted, at most
MOST_PADDED_READ = 2  # … by instructions for many rows
MOST_IDLE_STEPS = 2  # the same of an instruction's steps: a window of three would take sixteen
LONG = 512  # bytes along the steps of one axis from which blocks are asked for ahead
SUBGROUPS = (2, 3)  # dimensions of a workgroup that they lie along: columns, rows


Tile = tuple[tuple[int, int], tuple[int, int]]
Choice = tuple[Instruction, Tile]


def product_in_registers(b: Builder) -> bool:
    """Matrices that subgroups multiply in their registers, where the target does; whether this was such a product."""
    dominant = b.k.dominant
    if dominant is None or not dominant.ranges.issuperset(b.k.outputs):
        return False
    held = [i for i in b.instructions(held=True) if of_loads(dominant, i) and not i.first_held]
    held.sort(key=lambda i: i.operands[0].bits)  # those that nothing is widened for
    return b.first(b.options("instruction", alternatives(held)), lambda i: of_window(b, i) or of_matrices(b, i))


def alternatives(instructions: list[Instruction]) -> list[tuple[Instruction, ...]]:
    """Those that are chosen between by the size of tiles, together; others one by one."""
    shared: dict[tuple[DType, ...], tuple[Instruction, ...]] = {}
    for i in instructions:
        key = i.operands if i.shared else ()
        shared[key] = (*shared.get(key, ()), i)
    return [*(c for key, c in shared.items() if key), *((i,) for i in shared.get((), ()))]


def of_loads(reduce: UOp, instruction: Instruction) -> bool:
    """Whether a sum is of products of what can be read, or computed on the way to shared memory, in an instruction's
    types."""
    value = reduce.src[0]
    return value.op is Ops.MUL and None not in map(read_for, value.src, instruction.operands)


def read_for(factor: UOp, dtype: DType) -> UOp | None:
    """The load that a factor is, of a type or of half floats, which are widened to it by one operation; or, where a
    factor is computed and rounded to half floats, the one that reads most memory of those that vary as it does. None
    for any other."""
    value = factor.src[0] if factor.op is Ops.CAST else factor
    if value.op is Ops.LOAD:
        widened = factor.dtype is dtype and value.dtype.is_float and value.dtype.bits == 16
        return value if value.dtype is dtype or widened else None
    # instructions for wider ones are hardly faster than what computes an operand
    halves = value.dtype is dtype and dtype.is_float and dtype.bits == 16
    parts = list(below([value], lambda u: u.op in ELEMENTWISE)) if halves else []
    if not all(u.op in ELEMENTWISE or u.op in (Ops.LOAD, Ops.CONST) for u in parts):
        return None
    whole = (u for u in parts if u.op is Ops.LOAD and u.ranges == value.ranges)
    return max(whole, key=lambda u: u.src[0].dtype.nbytes(u.src[0].arg.size), default=None)


def as_it_lies(factor: UOp, dtype: DType) -> bool:
    """Whether what is read for a factor is all there is to it."""
    return read_for(factor, dtype) is (factor.src[0] if factor.op is Ops.CAST else factor)


def computed(reduce: UOp, instruction: Instruction, column: UOp | None = None) -> list[bool]:
    """Of both operands, that of `column` last, whether they are computed on the way to shared memory."""
    factors = sorted(reduce.src[0].src, key=lambda f: column in f.ranges)
    return [not as_it_lies(f, t) for f, t in zip(factors, instruction.operands)]


def of_window(b: Builder, instructions: tuple[Instruction, ...]) -> bool:
    """The steps of all axes as one, where the innermost one is too short for the instruction, as the window of a
    convolution is, or for a few blocks of which some are asked for ahead, as a group of weights is: in the order in
    which they lie in memory, that of the operand with fewest axes first."""
    k, dominant = b.k, b.k.dominant
    axes = list(dominant.src[1:]) if dominant is not None else []
    if dominant is None or len(axes) == 1 or not k.constant(*axes):
        return False
    steps, i = k.size(axes[-1]), instructions[0]
    few = steps * i.operands[0].bits < 8 * LONG and (b.target.copies_ahead or any(computed(dominant, i)))
    if idle_steps(steps, i) <= LITTLE_IDLE and not few:
        return False
    loads = sorted(k.loads_of(dominant), key=lambda u: len(u.src[1].ranges))
    orders = dict.fromkeys(tuple(sorted(axes, key=lambda r: -abs(k.step(u, r)))) for u in loads)

    def fused(order: tuple[UOp, ...]) -> bool:
        first, *others = (r.arg.name for r in order)
        b.rewrite(Reorder((first, *others)), *(Fuse(first, name) for name in others))
        return of_matrices(b, instructions)

    return b.first(orders, fused)


def of_matrices(b: Builder, instructions: tuple[Instruction, ...]) -> bool:
    """The largest tiles of matrices of which there are enough; whether they fit."""

    p = product_of(b.k)
    if p is None:
        return False
    p = of_lines(b, p, partial(_tiles, instructions))
    k = p.k
    if not all(u.src[1:] == p.sum.src[1:] and of_loads(u, instructions[0]) for u in k.reduces):
        return False
    if not k.constant(*p.axes, p.sum.src[-1]):
        return False
    # what is computed of the sums for each of the stores
    after = (
        u for s in k.stores for u in below([s.src[2]], lambda u: u not in k.reduces) if u.dtype is not dtypes.index
    )
    written = sum(FUNCTION if u.op in TRANSCENDENTAL else u.op in ELEMENTWISE for u in after)

    def fits(option: tuple[float, Choice]) -> bool:
        instruction, (_, matrices) = choice = option[1]
        assert instruction.fragments is not None
        sums = len(k.reduces) * prod(matrices) * instruction.fragments.sums.size
        # the other half is for operands and addresses
        few = 2 * sums <= b.target.thread_registers + 1 and sums * written <= MOST_WRITTEN
        return few and _with_tile(b, p, *choice)

    return b.first(b.options("tile", _tiles(instructions, p)), fits)


def _tiles(instructions: tuple[Instruction, ...], p: Product) -> list[tuple[float, Choice]]:
    """Tiles of columns and rows that leave not too much idle, and how much, best first."""
    read, sizes = instructions[0].shared, p.sizes
    batches = p.batches * p.k.volume(p.rows[1:] + p.columns[1:])
    made = computed(p.sum, instructions[0], p.columns[0])
    found: list[tuple[tuple[float, ...], float, Choice]] = []
    tiles = (TILES + TALL * any(made)) if not read else WARPGROUPS if sizes[0] >= FEWEST_ROWS else ()
    for i, tile in product(instructions, tiles):
        whole = extent(tile, i)
        groups, idle = prod(-(-n // w) for n, w in zip(sizes, whole)) * batches, padded(sizes, whole)
        if idle <= (MOST_PADDED_READ if read else MOST_PADDED):
            best: tuple[float, ...] = preference(groups, idle, prod(map(min, sizes, whole)))
            if any(made):
                each = sum((LOADED + COMPUTED * c) * n for c, n in zip(made, whole))
                subgroups = prod(tile[0]) * (MATRIX_UNITS if read else 1)
                best = ((prod(whole) + each) * max(1 / subgroups, groups / (ENOUGH * MATRIX_UNITS)),)
            found.append((best, idle, (i, tile)))
    return [(idle, choice) for _, idle, choice in sorted(found, key=lambda one: one[:2])]


def idle_steps(steps: int, instruction: Instruction) -> float:
    """Steps that an instruction computes over those that there are."""
    return padded((steps,), (instruction.steps,))


def extent(tile: Tile, instruction: Instruction) -> tuple[int, int]:
    """Rows and columns of a workgroup's tile."""
    assert instruction.fragments is not None
    rows, columns = instruction.fragments.sums.shape
    return tile[0][0] * tile[1][0] * rows, tile[0][1] * tile[1][1] * columns


def _with_tile(b: Builder, p: Product, instruction: Instruction, tile: Tile) -> bool:
    fragments = instruction.fragments
    assert fragments is not None
    whole = extent(tile, instruction)
    for i, (r, digits) in enumerate(zip(p.axes, (fragments.sums.first, fragments.sums.second))):
        several = tile[0][i] if tile[0][i] > 1 or not fragments.shared else 0
        bind_tile(b, r, whole[i], digits, bool(i), several, SUBGROUPS[not i])
    blocks = READ_BLOCKS if fragments.shared else [x for x in BLOCKS if x[1] == 1 or b.target.copies_ahead]
    return b.first(b.options("blocks", blocks), partial(_with_blocks, b, p, instruction))


def _with_blocks(b: Builder, p: Product, instruction: Instruction, blocks: tuple[int, int, int]) -> bool:
    """Of so many bytes along the steps so many blocks in shared memory at a time, and of these some that are read."""
    k, steps, size, (row_bytes, slots, lag) = p.k, p.sum.src[-1], instruction.steps, blocks
    if idle_steps(k.size(steps), instruction) > MOST_IDLE_STEPS:
        return False
    depth = max(row_bytes * 8 // instruction.operands[0].bits // size, 1)
    # what is read beyond the last step is multiplied too; to wait for a block takes half a step
    idle = {n: padded((k.size(steps),), (n * size,)) for n in (depth >> i for i in range(depth.bit_length()))}
    depth = min(idle, key=lambda n: (idle[n] > max(LITTLE_IDLE, idle[1]), idle[n] * (1 + 1 / (2 * n))))
    at, inner = b.split(steps.arg.name, depth * size)
    # steps are a loop: sums of one are independent of each other, which those of a chain of steps are not
    b.do(Tensorize(b.split(inner, size)[1], instruction.name))
    loads: dict[bool, list[UOp]] = {True: [], False: []}  # as they lie in memory, or for what is computed on the way
    for f, dtype in (one for u in k.reduces for one in zip(u.src[0].src, instruction.operands)):
        if (load := read_for(f, dtype)) is not None:
            loads[as_it_lies(f, dtype)].append(load)
    bits, read = instruction.operands[0].bits, instruction.shared
    if read and bits != BITS_IN_EITHER_ORDER and any(k.step(u, steps) != 1 for u in loads[True] + loads[False]):
        return False
    pad = 0 if read else b.options("pad", PADS)[0] * 8 // bits
    kinds = [
        replace(s, slots=slots, lag=lag)
        for raw in (True, False)
        for s in stages_of(loads[raw], loads[not raw], at, Space.SHARED, pad, raw)
    ]
    fits = [any(b.attempt(replace(s, swizzle=n)) for n in (SWIZZLES if read else (0,))) for s in kinds]
    return (all(fits) or not (read or loads[False])) and not excess(b.kernel, b.target)


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

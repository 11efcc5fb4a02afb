"""Attention on GPUs whose subgroups multiply matrices in registers (tensor cores, matrix cores).

Subgroups of a workgroup have rows of queries, and walk over blocks of keys together. The scores of a block are sums
that threads hold, and so is what their weights sum; weights become an operand of that second product. Both products
read keys and values from shared memory, into which blocks are copied as they lie (Dao, FlashAttention-2, 2023).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import product

from tinyweb.graph.ir import AxisKind, Fragments, Space, UOp
from tinyweb.graph.ir.fragments import REGISTER_BYTES
from tinyweb.graph.optimize.builder import Builder
from tinyweb.graph.optimize.cost import excess
from tinyweb.graph.optimize.for_matrices import PADS, bind_tile
from tinyweb.graph.optimize.for_product import padded, preference
from tinyweb.graph.optimize.instructions import Instruction
from tinyweb.graph.optimize.online import Online
from tinyweb.graph.optimize.rewrite import loads_summed, ranges_of
from tinyweb.graph.optimize.stage import SWIZZLES, Stage, axes_of, stages_of
from tinyweb.graph.optimize.tensorize import Tensorize
from tinyweb.graph.schedule.attention import Softmax
from tinyweb.graph.target import Target

SUBGROUPS = 2  # the dimension of a workgroup that they lie along
WARPGROUPS = 3  # … and that warpgroups do
LEAST = 16  # queries from which matrices are worth it
LEAST_READ = 64  # … by instructions that read operands in shared memory
# subgroups of a workgroup, and matrices of queries that each has
TILES = ((4, 2), (4, 1), (2, 1), (1, 1))
READ_TILES = ((2, 1), (1, 1))  # the same of warpgroups
BLOCKS = ((64, 2), (32, 2), (16, 2), (64, 1), (32, 1), (16, 1))  # keys of a block, and blocks in shared memory
# … and of these so many of values that the step before has left, whose products go on beside those of keys
READ_BLOCKS = ((128, 2, 1), (64, 2, 1), (128, 2, 0), (64, 2, 0), (32, 2, 0), (128, 1, 0), (64, 1, 0), (32, 1, 0))
WRITTEN_OUT = 16  # steps of a score's product
IDLE = 1.25  # what is computed beyond the end, over what is wanted
SLOWER = 1.4  # the time of instructions that read operands in registers, over that of others
# of a thread for addresses and what else belongs to no matrix, where whole rows are loaded, and where elements are
REGISTERS = (64, 80)
FURTHER = 4  # … for each instruction after the first that a step's sums are divided among


@dataclass(frozen=True)
class Shape:
    """Instructions of both products, subgroups (or warpgroups) of a workgroup, matrices of rows that each has, keys of
    a block, how many blocks are there at a time, and how many more of values, whose product is later by so many."""

    instructions: tuple[Instruction, Instruction]
    subgroups: int
    matrices: int
    block: int
    slots: int
    lag: int = 0

    @property
    def fragments(self) -> tuple[Fragments, Fragments]:
        """How threads hold what both multiply."""
        first, second = (i.fragments for i in self.instructions)
        assert first is not None and second is not None
        return first, second

    @property
    def rows(self) -> int:
        """Of a workgroup's tile."""
        return self.subgroups * self.matrices * self.fragments[0].sums.shape[0]

    @property
    def chains(self) -> bool:
        """Whether threads have weights as the second product takes them."""
        first, second = self.fragments
        return first.chains(second)

    def registers(self, columns: int, target: Target) -> int:
        """Of a thread: sums of both products, operands of two steps, or weights, and what else there is."""
        first, second = self.fragments
        sums = [f.sums.size * -(-n // f.sums.shape[1]) for f, n in zip(self.fragments, (self.block, columns))]
        bits = self.instructions[0].operands[0].bits
        if first.shared:
            operands = sums[0] * bits // (8 * REGISTER_BYTES) if second.first_held else 0
            further = -(-columns // second.sums.shape[1]) - 1
            return self.matrices * (sum(sums) + operands + FURTHER * further) + REGISTERS[0]
        a, b = (-(-n.size * bits // (8 * REGISTER_BYTES)) for n in (first.a, first.b))
        return self.matrices * (sum(sums) + 2 * a) + 2 * b + REGISTERS[not target.loads_rows]


def held_softmax(b: Builder, softmax: Softmax, row: UOp | None) -> bool:
    """Both products of an attention by matrices in registers; whether they are such products and fit."""
    k, columns, inner = b.k, softmax.columns, softmax.inner
    plain = row is not None and len(columns) == len(inner) == 1
    if row is None or not plain or not k.constant(row, *columns, *inner):
        return False
    if k.size(row) < LEAST or sum(not s.alone for s in softmax.sums) != 1:
        return False
    types = {u.dtype for u in k.summed}
    others = k.volume([r for r in k.outputs if r is not row and r not in columns])
    held = [i for i in b.instructions(held=True) if i.operands[0] in types]
    sizes = k.size(row), k.size(softmax.row), k.size(columns[0])
    shapes = b.options("shape", _shapes(b, held, sizes, others))
    fitting = (s for s in shapes if s.registers(sizes[2], b.target) <= b.target.thread_registers)
    return b.first(fitting, partial(_with_shape, b, softmax, row))


def _shapes(b: Builder, held: list[Instruction], sizes: tuple[int, int, int], others: int) -> list[Shape]:
    """Best first: those that compute little beyond the last row and key, of these the largest tiles of which there are
    enough workgroups. `sizes`: rows, keys and columns."""
    found: list[Shape] = []
    (rows, keys, columns), ahead = sizes, b.target.copies_ahead
    least = min(x[0] for x in READ_BLOCKS)
    blocks = [x for x in READ_BLOCKS if (ahead or x[1] == 1) and x[0] < max(2 * keys, least + 1)]
    # a loop over two blocks is written out by compilers, which then find no registers for both steps' products
    blocks.sort(key=lambda x: x[2] > 0 and -(-keys // x[0]) == 2)
    for tile, (block, slots, lag) in product(READ_TILES if rows >= LEAST_READ else (), blocks):
        read = [
            _narrowest([i for i in held if i.shared and i.first_held == h], n) for h, n in enumerate((block, columns))
        ]
        if read[0] is not None and read[1] is not None and block % read[0].columns == 0:
            found.append(Shape((read[0], read[1]), *tile, block, slots, lag))
    kinds = product((i for i in held if not i.shared), TILES, (x for x in BLOCKS if ahead or x[1] == 1))
    found += [Shape((i, i), *tile, *block) for i, tile, block in kinds]

    def cost(shape: Shape) -> tuple[float, ...]:
        idle = padded((rows, keys), (shape.rows, shape.block))
        slower = 1 if shape.fragments[0].shared else SLOWER
        groups = -(-rows // shape.rows) * others
        return max(idle, IDLE) * slower, *preference(groups, padded((rows,), (shape.rows,)), shape.rows)

    return sorted(found, key=cost)


def _narrowest(instructions: list[Instruction], columns: int) -> Instruction | None:
    """That computes least beyond so many columns, the widest of them."""
    return min(instructions, key=lambda i: (-(-columns // i.columns) * i.columns, -i.columns), default=None)


def _with_shape(b: Builder, softmax: Softmax, row: UOp, shape: Shape) -> bool:
    k, (first, second) = b.k, shape.fragments
    along = (
        (shape.subgroups if shape.subgroups > 1 else 0, WARPGROUPS) if first.shared else (shape.subgroups, SUBGROUPS)
    )
    bind_tile(b, row, shape.rows, first.sums.first, False, *along)
    (column,), beside = softmax.columns, second.sums.shape[1]
    bind_tile(b, column, -(-k.size(column) // beside) * beside, second.sums.second, True)
    b.grid(b.loops(k.outputs))
    name = softmax.row.arg.name
    space = Space.REGISTER if shape.chains else Space.SHARED
    b.do(Online(name, shape.block, space, instruction=shape.instructions[0].name))
    summed = next(f"{name}.sum{i or ''}" for i, s in enumerate(softmax.sums) if not s.alone)
    for axis, instruction in zip((softmax.inner[0].arg.name, summed), shape.instructions):
        steps, step = b.split(axis, instruction.steps)
        b.do(Tensorize(step, instruction.name))
        # registers have no numbers; and the first of products that are written out finds no sums yet
        if (axis is summed and shape.chains) or (instruction.shared and b.size(steps) <= WRITTEN_OUT):
            b.bind(steps, AxisKind.UNROLL)
    return _staged(b, softmax, shape) and not excess(b.kernel, b.target)


def _staged(b: Builder, softmax: Softmax, shape: Shape) -> bool:
    """Keys and values in shared memory for a block, queries for all of them where there are more; whether they are."""
    instruction, read = shape.instructions[0], shape.instructions[0].shared
    pad = 0 if read else b.options("pad", PADS)[0] * 8 // instruction.operands[0].bits
    name = softmax.row.arg.name
    operands = [u for u in loads_summed(b.kernel) if u.dtype is instruction.operands[0]]
    of_keys, of_rows = ([u for u in operands if (name in axes_of(u)) == keys] for keys in (True, False))
    grid = next((r.arg.name for r in ranges_of(b.kernel) if r.arg.kind is AxisKind.GRID), "")
    swizzles = SWIZZLES if read else (0,)
    for stage in stages_of(of_rows, of_keys, grid, Space.SHARED, pad, raw=True):
        if not any(b.attempt(replace(stage, swizzle=n)) for n in swizzles) and read:
            return False
    stages: dict[Stage, None] = {}
    for u in of_keys:  # each by itself: keys and values may lie in one memory, as in a cache
        others = [x for x in operands if axes_of(x) != axes_of(u)]
        lag = 0 if softmax.inner[0].arg.name in axes_of(u) else shape.lag
        for stage in stages_of([u], others, f"{name}.0", Space.SHARED, pad, raw=True):
            stages[replace(stage, slots=shape.slots + lag, lag=lag)] = None
    # rows are loaded at once however they lie, or a thread wants the steps of values side by side
    turns = (False,) if b.target.loads_rows else (True, False)
    kinds = list(product(turns, swizzles))
    return all([any(b.attempt(replace(s, turned=t, swizzle=n)) for t, n in kinds) for s in stages])

"""Attention on GPUs whose subgroups multiply matrices in registers (tensor cores, matrix cores).

Subgroups of a workgroup have rows of queries, and walk over blocks of keys together. The scores of a block are sums
that threads hold, and so is what their weights sum; weights become an operand of that second product. Both products
read keys and values from shared memory, into which blocks are copied as they lie (Dao, FlashAttention-2, 2023).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from math import prod

from tinyweb.graph.ir import AxisKind, Space, UOp
from tinyweb.graph.ir.fragments import REGISTER_BYTES
from tinyweb.graph.optimize.builder import Builder
from tinyweb.graph.optimize.cost import excess
from tinyweb.graph.optimize.for_matrices import ENOUGH, PADS, bind_tile
from tinyweb.graph.optimize.instructions import Instruction
from tinyweb.graph.optimize.online import Online
from tinyweb.graph.optimize.rewrite import loads_summed, ranges_of
from tinyweb.graph.optimize.stage import Stage, axes_of, stages_of
from tinyweb.graph.optimize.tensorize import Tensorize
from tinyweb.graph.schedule.attention import Softmax
from tinyweb.graph.target import Target

SUBGROUPS = 2  # the dimension of a workgroup that they lie along
LEAST = 16  # queries from which matrices are worth it
# subgroups of a workgroup, and matrices of queries that each has
TILES = ((4, 2), (4, 1), (2, 1), (1, 1))
BLOCKS = ((64, 2), (32, 2), (64, 1), (32, 1), (16, 1))  # keys of a block, and blocks in shared memory
IDLE = 1.25  # what is computed beyond the end, over what is wanted
# of a thread for addresses and what else belongs to no matrix, where whole rows are loaded, and where elements are
REGISTERS = (64, 80)


@dataclass(frozen=True)
class Shape:
    """Subgroups of a workgroup, matrices of rows that each has, keys of a block, and how many blocks are there at a
    time."""

    subgroups: int
    matrices: int
    block: int
    slots: int


def held_softmax(b: Builder, softmax: Softmax, row: UOp | None) -> bool:
    """Both products of an attention by matrices in registers; whether they are such products and fit."""
    k, columns, inner = b.k, softmax.columns, softmax.inner
    plain = row is not None and len(columns) == len(inner) == 1
    if row is None or not plain or not all(isinstance(k.exact(r), int) for r in (row, *columns, *inner)):
        return False
    if k.size(row) < LEAST or sum(s.value is not s.exponential for s in softmax.sums) != 1:
        return False
    mark, types = b.mark(), {u.dtype for u in k.summed}
    others = k.volume([r for r in k.outputs if r is not row and r not in columns])
    held = b.options("instruction", [i for i in b.instructions(held=True) if i.operands[0] in types and not i.shared])
    shapes = b.options("shape", _shapes(b, k.size(row), others))
    for instruction, shape in product(held, shapes):
        if _registers(k.size(columns[0]), shape, instruction, b.target) > b.target.thread_registers:
            continue
        if _with_shape(b, softmax, row, instruction, shape):
            return True
        b.back(mark)
    return False


def _shapes(b: Builder, rows: int, others: int) -> list[Shape]:
    """Best first: of tiles with few rows beyond the end, and with enough workgroups, the largest."""
    blocks = BLOCKS if b.target.copies_ahead else tuple(x for x in BLOCKS if x[1] == 1)

    def order(i: int) -> tuple[bool, bool, int]:
        whole = LEAST * prod(TILES[i])
        groups = -(-rows // whole)
        few = groups * others < ENOUGH
        return groups * whole > IDLE * rows, few, -i if few else i

    return [Shape(*TILES[i], *block) for i, block in product(sorted(range(len(TILES)), key=order), blocks)]


def _registers(columns: int, shape: Shape, instruction: Instruction, target: Target) -> int:
    """Of a thread: sums of both products, operands of two steps, and what else there is."""
    f = instruction.fragments
    assert f is not None
    beside = f.sums.shape[1]
    sums = f.sums.size * (-(-columns // beside) + shape.block // beside)
    a, b = (-(-n.size * instruction.operands[0].bits // (8 * REGISTER_BYTES)) for n in (f.a, f.b))
    return shape.matrices * (sums + 2 * a) + 2 * b + REGISTERS[not target.loads_rows]


def _with_shape(b: Builder, softmax: Softmax, row: UOp, instruction: Instruction, shape: Shape) -> bool:
    f, k = instruction.fragments, b.k
    assert f is not None
    whole = shape.subgroups * shape.matrices * f.sums.shape[0]
    bind_tile(b, row, whole, f.sums.first, False, shape.subgroups, SUBGROUPS)
    (column,), beside = softmax.columns, f.sums.shape[1]
    bind_tile(b, column, -(-k.size(column) // beside) * beside, f.sums.second, True)
    b.grid([b.left(r) for r in k.outputs if b.left(r)])
    name = softmax.row.arg.name
    space = Space.REGISTER if f.chains else Space.SHARED
    if not b.attempt(Online(name, shape.block, space, instruction=instruction.name)):
        return False
    summed = next(f"{name}.sum{i or ''}" for i, s in enumerate(softmax.sums) if s.value is not s.exponential)
    for axis in (softmax.inner[0].arg.name, summed):
        steps, step = b.split(axis, instruction.steps)
        if not b.attempt(Tensorize(step, instruction.name)):
            return False
        if axis is summed and f.chains:  # registers have no numbers
            b.bind(steps, AxisKind.UNROLL)
    return _staged(b, softmax, instruction, shape) and not excess(b.kernel, b.target)


def _staged(b: Builder, softmax: Softmax, instruction: Instruction, shape: Shape) -> bool:
    """Keys and values in shared memory for a block, queries for all of them where there are more; whether they are."""
    pad = b.options("pad", PADS)[0] * 8 // instruction.operands[0].bits
    name = softmax.row.arg.name
    operands = [u for u in loads_summed(b.kernel) if u.dtype is instruction.operands[0]]
    of_keys, of_rows = ([u for u in operands if (name in axes_of(u)) == keys] for keys in (True, False))
    grid = next((r.arg.name for r in ranges_of(b.kernel) if r.arg.kind is AxisKind.GRID), "")
    for stage in stages_of(of_rows, of_keys, grid, Space.SHARED, pad, raw=True):
        b.attempt(stage)
    stages: dict[Stage, None] = {}
    for u in of_keys:  # each by itself: keys and values may lie in one memory, as in a cache
        others = [x for x in operands if axes_of(x) != axes_of(u)]
        stages |= dict.fromkeys(stages_of([u], others, f"{name}.0", Space.SHARED, pad, raw=True))
    # rows are loaded at once however they lie, or a thread wants the steps of values side by side
    turns = (False,) if b.target.loads_rows else (True, False)
    return all([any(b.attempt(replace(s, slots=shape.slots, turned=t)) for t in turns) for s in stages])

"""Matrix products and convolutions on a processor: a tile of registers, packed panels, blocks for the caches.

The nest is Goto and van de Geijn's (Anatomy of High-Performance Matrix Multiplication): workers take blocks of the
output; a block walks over the reduction in steps whose panels of one operand stay in the second-level cache; within a
step, strips of the other operand stay in the first while all panels pass by. Both the tile, the cheapest in a block
of all there is, and the block, which the busiest worker is done with soonest, are priced by the same few cycles.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import gcd, prod

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import AxisKind, Ops, UOp, lane_count, nested, users
from tinyweb.graph.optimize.action import MAX_STAGED
from tinyweb.graph.optimize.analysis import Analysis
from tinyweb.graph.optimize.builder import Builder
from tinyweb.graph.optimize.instructions import Instruction
from tinyweb.graph.optimize.stage import whole_value
from tinyweb.graph.optimize.tensorize import Tensorize
from tinyweb.graph.symbolic import const_factor, divides

LEAST_WORK = 1 << 15  # multiplications; below, packing and blocks cost more than they save
# steps of the reduction, for each register, between two additions to a block's sums: a strip stays in the first cache,
# and larger tiles leave more time to bring panels from the second
DEEPEST = 16
DEEP_ENOUGH = 128
# cycles of a simple model: what a step of the innermost loop costs beside its arithmetic; an element that comes in
# order from the second-level cache, that a block brings near, that is packed in runs or one by one, that is converted
# on the way; one that is stored alone, to a cache line that the next rows of the tile fill, or to a line of its own
STEP, NEAR, FETCH, RUN, SINGLE, CONVERTED, SCATTER, LINE = 0.8, 0.125, 0.5, 0.4, 1.5, 0.5, 1.0, 12
WAYS = 8  # of the first-level cache: it holds no more panels' lines that are filled together
WAY = 4096  # bytes: addresses so far apart are in one set
LINE_NEAR = 16 * NEAR  # a line of which a step takes a few elements
TALL, WIDE = 512, 128  # rows and columns for which what is packed once is used at most
SMALL = 4  # rows of a tile whose operands are read as they lie


@dataclass(frozen=True)
class Tile:
    """`rows` × `columns` sums in registers."""

    row: UOp
    column: UOp
    rows: int
    columns: int


@dataclass(frozen=True)
class Cycles:
    """What a tile takes: for a multiplication and addition, and for bringing an element of its rows' and its columns'
    operand into a strip and a panel."""

    product: float
    row: float
    column: float


def schedule_contraction(b: Builder, instruction: Instruction | None = None) -> bool:
    """Kernels whose reductions multiply what varies along some output axes with what varies along others, and that are
    worth it; of integers with tiles for an instruction.
    """
    b.fuse()
    plan = Contraction(b, instruction)
    if not plan.fits():
        return False
    tile = min(plan.tiles(), key=plan.price, default=None)
    return tile is not None and plan.price(tile) <= plan.price_in_place() and nest(b, plan, tile)


class Contraction:
    """Which tiles of registers there are, and what they cost."""

    def __init__(self, b: Builder, instruction: Instruction | None):
        self.k, self.target = b.k, b.target
        # rows and steps that a tile has multiples of; vectors of operands for each vector of a row's sums and each row
        self.instruction, self.unit, self.depth, self.held, self.row_held = instruction, 1, 1, 1, 0.0
        if instruction is not None:
            self.depth = instruction.steps
            self.held = instruction.steps * instruction.operands[-1].bits // dtypes.int32.bits
            for r in instruction.tile[:1]:
                self.unit, self.row_held = lane_count(r), 1 / lane_count(r)
        k, dominant = b.k, b.k.dominant
        self.bound = [r for r in k.reduced if dominant is not None and r in dominant.src[1:]]
        self.loads = list(dict.fromkeys(u for r in k.reduces for u in k.loads_of(r)))
        self.touched = {r: [u for u in self.loads if r in u.ranges] for r in k.outputs}
        self.steps = k.volume(self.bound)
        above = users([k.kernel])
        self.value = {u: whole_value(u, above) for u in self.loads}

    def fits(self) -> bool:
        k, dominant = self.k, self.k.dominant
        if dominant is None or k.volume(dominant.ranges | set(dominant.src[1:])) < LEAST_WORK:
            return False
        if any(u.src[1:] != dominant.src[1:] or u.arg is not Ops.ADD for u in k.reduces):
            return False
        if any(r not in dominant.ranges for r in k.outputs) or any(s.src[0].dtype.bits < 8 for s in k.stores):
            return False
        if not k.constant(*self.bound):
            return False
        # what is loaded to know where to load is not brought along
        return not any(x.op is Ops.LOAD for u in self.loads for x in u.src[1].toposort())

    # -- which axes, which tile --------------------------------------------------------------------------------
    def apart(self, r: UOp) -> list[UOp]:
        """The output axes along which what varies along an axis is used again, for other loads."""
        mine = self.touched[r]
        return [o for o in self.k.outputs if mine and self.touched[o] and not any(u in mine for u in self.touched[o])]

    def operand(self, along: UOp) -> list[UOp]:
        """What varies along an axis and may be staged."""
        return sorted((u for u in self.touched[along] if not self.k.kernel_stores(u)), key=self.k.traffic)

    def tiles(self) -> Iterator[Tile]:
        """Those whose sums, and a row of what they are multiplied with, are in registers; smaller ones come first."""
        k, lanes = self.k, self.target.vector_lanes
        for c in k.outputs:
            size, rows_of = k.exact(c), self.apart(c)
            if not isinstance(size, int) or k.volume(rows_of) < SMALL:
                continue
            for r, vectors in product(rows_of, range(1, self.target.vector_registers // 6 + 1)):
                columns = vectors * lanes
                if size % columns and (size < columns or k.in_place or vectors > 2):
                    continue
                free = self.target.vector_registers - 1 - self.held * vectors
                most = min(self.target.tile_sums // vectors, int(free / (vectors + self.row_held)))
                for rows in range(max(2, self.unit), min(most // len(k.reduces), k.size(r)) + 1, self.unit):
                    yield Tile(r, c, rows, columns)

    # -- what it costs -----------------------------------------------------------------------------------------
    def cycles(self, tile: Tile) -> Cycles:
        step, row = self.step(tile.rows, tile.columns // self.target.vector_lanes), 0.0
        if self.must_pack(tile):
            row = 0.0 if self.frozen(tile.row) else self.packing(self.bound[-1], SMALL)
        elif self.far(tile):
            step += LINE_NEAR
        elif any(self.crowded(u, tile.row, tile.rows) for u in self.touched[tile.row]):
            step += LINE_NEAR * tile.rows  # rows push each other's lines out before these are used up
        return Cycles(step / (tile.rows * tile.columns), row, self.packing(tile.column, tile.columns))

    def price(self, tile: Tile) -> float:
        """Cycles for a multiplication and addition of an output, in as large a block as there may be."""
        k, waste, cycles = self.k, 1.0, self.cycles(tile)
        for r, n in ((tile.row, tile.rows), (tile.column, tile.columns)):
            if k.constant(r):
                waste *= -(-k.size(r) // n) * n / k.size(r)
        rows, columns = min(k.volume(self.apart(tile.column)), TALL), min(k.volume(self.apart(tile.row)), WIDE)
        return waste * cycles.product + cycles.column / rows + cycles.row / columns + self.storing(tile) / self.steps

    def step(self, rows: int, columns: int, broadcast: bool = True) -> float:
        """Cycles of a step of the reduction for that many vectors of sums: loads overlap with arithmetic, not fully."""
        t = self.target
        loads = rows * (t.broadcast_cost if broadcast else t.load_cost) + columns * t.load_cost
        arithmetic = rows * columns * t.product_cost
        return max(arithmetic, loads) + min(arithmetic, loads) / 4 + STEP

    def storing(self, tile: Tile) -> float:
        """Cycles that a result costs which is not stored in vectors."""
        k = self.k
        if all(k.contiguous(s, tile.column) for s in k.stores):
            return 0.0
        beside = all(k.contiguous(s, tile.row) and not self.crowded(s, tile.column, tile.columns) for s in k.stores)
        return SCATTER if beside else LINE

    def packing(self, along: UOp, width: int) -> float:
        """Cycles to bring an element into a panel, in each call."""
        loads = [u for u in self.loads if along in u.ranges]
        if all(u.src[0].arg.frozen for u in loads):
            return 0.0
        converted = 0.0 if all(u.dtype in self.target.arithmetic for u in loads) else CONVERTED
        return converted + (RUN if all(self.k.follows(u, along, width, False) for u in loads) else SINGLE)

    def price_in_place(self) -> float:
        """The same without packed operands: a smaller tile, and operands that are read as they lie for each of them."""
        k = self.k

        def price(rows: int, broadcast: bool, brought: float) -> float:
            converted = 0.0 if all(u.dtype is dtypes.float32 for u in self.loads) else self.target.product_cost
            step = self.step(rows, 2, broadcast) + (rows + 2) * converted
            return step / (2 * rows * self.target.vector_lanes) + brought / rows

        for r in self.bound:
            if self.vectors(r) and all(k.contiguous(u, r) for u in self.loads):
                return price(SMALL, False, NEAR)
        for c in k.outputs:
            if self.vectors(c) and self.touched[c] and all(k.contiguous(u, c) for u in self.touched[c]):
                return price(max(min(SMALL // len(k.reduces), k.volume(self.apart(c))), 1), True, FETCH / 2)
        return 1.0

    def vectors(self, r: UOp) -> bool:
        """Whether little of an axis is left over by whole vectors."""
        return const_factor(self.k.exact(r)) % self.target.vector_lanes == 0 or (
            self.k.size(r) >= 4 * self.target.vector_lanes
        )

    # -- how an operand lies -----------------------------------------------------------------------------------
    def crowded(self, access: UOp, along: UOp, count: int) -> bool:
        """Whether the lines of so many steps along an axis meet in sets of the first-level cache, which have fewer
        ways: they are gone before the next rows come."""
        apart = abs(self.k.step(access, along)) * access.src[0].dtype.nbytes(1)
        return apart > 0 and count > WAYS * (WAY // gcd(apart, WAY))

    def frozen(self, along: UOp) -> bool:
        """Whether the operand that varies along an axis is laid out before the first call."""
        return all(u.src[0].arg.frozen for u in self.touched[along])

    def turned(self, along: UOp) -> bool:
        """Whether an operand lies otherwise than the instruction takes it: not step after step."""
        step = self.bound[-1]
        return self.instruction is not None and any(not self.k.contiguous(u, step) for u in self.touched[along])

    def must_pack(self, tile: Tile) -> bool:
        """Whether the rows' operand is not read in runs of float32 where it lies."""
        step = self.bound[-1]
        for u in self.touched[tile.row]:
            plain = self.value[u] is u and len(u.src) == 2 and u.dtype is dtypes.float32
            if not plain or not any(self.k.contiguous(u, r) for r in (step, tile.row)):
                return True
        # what comes from further away for each of several panels
        return self.far(tile) and self.k.volume(self.apart(tile.row)) > tile.columns

    def far(self, tile: Tile) -> bool:
        """Whether the steps of the rows' operand, where it lies, take lines that are gone before the next rows come."""
        step = self.bound[-1]
        return any(
            not self.k.contiguous(u, step) and self.crowded(u, step, self.k.size(step)) for u in self.touched[tile.row]
        )


# -- the nest -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Side:
    """How blocks take the tiles along an axis, and steps of a further one where they take all of these tiles."""

    axis: UOp
    width: int
    lanes: AxisKind
    further: UOp | None
    tiles: int = 1
    steps: int = 1

    @property
    def count(self) -> int:
        """Rows, or columns, of a block."""
        return self.tiles * self.width * self.steps

    def blocks(self, k: Analysis) -> int:
        """Into which the axis is divided."""
        return -(-k.size(self.axis) // (self.tiles * self.width))

    def parts(self, k: Analysis) -> list[Side]:
        """Every number of tiles that even blocks may have, the largest first."""
        most, size = -(-k.size(self.axis) // self.width), 1 if self.further is None else k.size(self.further)
        tiles = sorted({-(-most // blocks) for blocks in range(1, most + 1)}, reverse=True)
        further = [n for n in range(2, size + 1) if size % n == 0]
        some = tiles if k.constant(self.axis) else [most]
        return [replace(self, tiles=n) for n in some] + [replace(self, tiles=most, steps=n) for n in further]

    def loops(self, b: Builder, grid: list[str]) -> list[str]:
        """The loops inside of a block; what is outside goes to the grid."""
        found = []
        if self.further is not None:
            name = self.further.arg.name
            if self.steps == 1:
                grid.append(name)
            elif self.steps == b.size(name):
                found.append(name)
            else:
                outside, inside = b.split(name, self.steps)
                grid.append(outside)
                found.append(inside)
        if b.k.constant(self.axis):
            outside, inside = b.blocks(self.axis.arg.name, min(self.tiles * self.width, b.k.size(self.axis)))
            grid.append(outside)
        else:
            inside = self.axis.arg.name
        left = b.tile(inside, self.width, self.lanes)
        return [*found, left] if left else found


def nest(b: Builder, plan: Contraction, tile: Tile) -> bool:
    """Blocks of tiles over the workers; in a block, steps of the reduction whose operands are packed."""
    k, fixed = b.k, b.k.constant(tile.row)
    depth = _depth(plan) if fixed else None
    staged = plan.steps if depth is None else plan.steps // k.size(plan.bound[0]) * depth
    further_row = _longest(b, tile, plan.apart(tile.column) if fixed else [])
    # what a third operand alone varies along is reused either way
    further_column = _longest(b, tile, [c for c in plan.apart(tile.row) if c is not further_row] if fixed else [])
    down = Side(tile.row, tile.rows, AxisKind.UNROLL, further_row)
    across = Side(tile.column, tile.columns, AxisKind.VECTOR, further_column)
    block = _block(plan, plan.cycles(tile), down, across, staged)
    if block is None:
        return False
    grid = [r.arg.name for r in k.outputs if r not in (tile.row, tile.column, further_row, further_column)]
    rows, columns = (side.loops(b, grid) for side in block)
    b.reorder(*grid, *rows, *columns)
    for axis_name in grid:
        b.bind(axis_name, AxisKind.GRID)
    at, row_loops = grid[-1], rows[-1:]
    if depth is not None and rows + columns:
        blocks, _ = b.split(plan.bound[0].arg.name, depth)
        called = b.hoist(blocks, at)
        at, row_loops = blocks, [called(name) for name in row_loops]
    if plan.instruction is not None:
        innermost = nested(r for u in b.kernel.toposort() if u.op is Ops.REDUCE for r in u.src[1:])[-1]
        if not divides(innermost.src[0], plan.depth):
            return False
        b.do(Tensorize(b.split(innermost.arg.name, plan.depth)[1], plan.instruction.name))
    if rows or plan.turned(tile.column) or plan.frozen(tile.column):
        b.stage(plan.operand(tile.column), at)
    ragged = depth is not None and k.size(plan.bound[0]) % depth != 0  # loads would be gated
    if (row_loops and (plan.must_pack(tile) or ragged)) or plan.turned(tile.row):
        b.stage(plan.operand(tile.row), row_loops[0] if row_loops else at)
    return True


def _longest(b: Builder, tile: Tile, axes: list[UOp]) -> UOp | None:
    """The largest axis beside the tile's that a block may take steps of."""
    return max((r for r in axes if r not in (tile.row, tile.column) and b.k.constant(r)), key=b.k.size, default=None)


def _depth(plan: Contraction) -> int | None:
    """How much of the first reduced axis a step takes; None if it is not split."""
    first, *rest = plan.bound
    inner, size = plan.k.volume(rest), plan.k.size(first)
    deepest = DEEPEST * plan.target.vector_registers
    most = max(deepest // inner, 1)
    if (plan.steps <= deepest * 3 // 2 and size <= deepest) or size <= most:
        return None
    least = max(DEEP_ENOUGH // inner, 1)
    fitting = [d for d in range(most, least - 1, -1) if size % d == 0]
    whole = [d for d in fitting if rest or d % plan.depth == 0]
    return next(iter(whole + fitting), -(-size // -(-size // most)))


def _block(plan: Contraction, cycles: Cycles, rows: Side, columns: Side, steps: int) -> tuple[Side, Side] | None:
    """Of both sides what the busiest worker is done with soonest; `steps` of the reduction are staged at a time."""
    k, workers, reduces = plan.k, plan.target.parallel_threads, len(plan.k.reduces)
    rest = prod(k.size(r) for r in k.outputs if r not in (rows.axis, columns.axis))

    def fits(down: Side, across: Side) -> bool:
        panels = across.count * steps
        sums = down.count * across.count if k.constant(down.axis) else 0
        return max(panels, sums) <= MAX_STAGED and 4 * (panels + sums) * reduces <= plan.target.cache_bytes

    def time(down: Side, across: Side) -> float:
        one = down.count * across.count * cycles.product * reduces
        # more panels than the first-level cache has ways push each other out while they are filled
        crowded = across.tiles * across.steps > WAYS
        one += down.count * (FETCH + min(cycles.row, RUN)) + across.count * (FETCH * (1 + crowded) + cycles.column)
        blocks = down.blocks(k) * across.blocks(k) * -(-rest // (down.steps * across.steps))
        # the last blocks are never shared out evenly
        return (-(-blocks // workers) + (workers > 1) / 4) * one

    found = [(d, a) for d, a in product(rows.parts(k), columns.parts(k)) if fits(d, a)]
    return min(found, key=lambda block: time(*block), default=None)

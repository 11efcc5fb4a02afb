"""Matrix products and convolutions on a processor: a tile of registers, packed panels, blocks for the caches.

The nest is Goto and van de Geijn's (Anatomy of High-Performance Matrix Multiplication): workers take blocks of the
output; a block walks over the reduction in steps whose panels of one operand stay in the second-level cache; within a
step, strips of the other operand stay in the first while all panels pass by. Which output axes become the tile's rows
and columns, and how large tiles and blocks are, is what costs the fewest cycles in a simple model of the processor.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
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
SMALL = 4  # rows of a tile whose operands are read as they lie
LATENCY = 4  # of an addition


@dataclass(frozen=True)
class Tile:
    """`rows` × `columns` sums in registers."""

    row: UOp
    column: UOp
    rows: int
    columns: int


def schedule_contraction(b: Builder, instruction: Instruction | None = None) -> bool:
    """Kernels whose reductions multiply what varies along some output axes with what varies along others, and that are
    worth it; of integers with tiles for an instruction.
    """
    b.fuse()
    plan = Contraction(b, instruction)
    if not plan.fits():
        return False
    tile = min(plan.tiles(), key=lambda t: (plan.cost(t), t.rows + t.columns / b.target.vector_lanes), default=None)
    if tile is None or plan.cost(tile) > plan.cost_in_place():
        return False
    return nest(b, plan, tile)


class Contraction:
    """What a tile of registers costs."""

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
    def apart(self, r: UOp, c: UOp) -> bool:
        return (
            bool(self.touched[r]) and bool(self.touched[c]) and not any(u in self.touched[c] for u in self.touched[r])
        )

    def rows_of(self, tile: Tile) -> list[UOp]:
        """The output axes along which what the columns load is used again."""
        return [r for r in self.k.outputs if self.apart(r, tile.column)]

    def columns_of(self, tile: Tile) -> list[UOp]:
        return [c for c in self.k.outputs if self.apart(tile.row, c)]

    def operand(self, along: UOp) -> list[UOp]:
        """What varies along an axis and may be staged."""
        return sorted((u for u in self.touched[along] if not self.k.kernel_stores(u)), key=self.k.traffic)

    def tiles(self) -> Iterator[Tile]:
        k, lanes = self.k, self.target.vector_lanes
        for c, r in product(k.outputs, k.outputs):
            size = k.exact(c)
            if not self.apart(r, c) or not isinstance(size, int) or k.size(r) < 2:
                continue
            for vectors in range(1, self.target.vector_registers // 6 + 1):
                columns = vectors * lanes
                if size % columns and (size < columns or k.in_place or vectors > 2):
                    continue
                # a row of the tile, what it is multiplied with and the sums are in registers
                free = self.target.vector_registers - 1 - self.held * vectors
                most = min(self.target.tile_sums // vectors, int(free / (vectors + self.row_held)))
                for rows in range(max(2, self.unit), min(most // len(k.reduces), k.size(r)) + 1, self.unit):
                    tile = Tile(r, c, rows, columns)
                    if k.volume(self.rows_of(tile)) >= 4:
                        yield tile

    def cost(self, tile: Tile) -> float:
        """Cycles for one multiplication and addition of an output, about."""
        k, vectors = self.k, tile.columns // self.target.vector_lanes
        waste, step = 1.0, max(self.step(tile.rows, vectors), LATENCY / len(k.reduces))
        for r, n in ((tile.row, tile.rows), (tile.column, tile.columns)):
            size = k.exact(r)
            if isinstance(size, int):
                waste *= -(-size // n) * n / size
        cost = waste * step / (tile.rows * tile.columns)
        if not all(k.contiguous(s, tile.column) for s in k.stores):
            beside = all(k.contiguous(s, tile.row) and not self.crowded(s, tile.column, tile.columns) for s in k.stores)
            cost += (SCATTER if beside else LINE) / self.steps
        reuse = min(k.volume(self.rows_of(tile)), 512)
        cost += self.packing(tile.column, tile.columns) / reuse
        if self.must_pack(tile):
            if not self.frozen(tile.row):
                cost += self.packing(self.bound[-1], 4) / min(k.volume(self.columns_of(tile)), 128)
        elif self.far(tile):
            cost += LINE_NEAR / (tile.rows * tile.columns)
        return cost

    def crowded(self, access: UOp, along: UOp, count: int) -> bool:
        """Whether the lines of so many steps along an axis meet in sets of the first-level cache, which have fewer
        ways: they are gone before the next rows come."""
        apart = abs(self.k.step(access, along)) * access.src[0].dtype.nbytes(1)
        return apart > 0 and count > WAYS * (WAY // gcd(apart, WAY))

    def step(self, rows: int, columns: int, broadcast: bool = True) -> float:
        """Cycles of a step of the reduction for that many vectors of sums: loads overlap with arithmetic, not fully."""
        t = self.target
        loads = rows * (t.broadcast_cost if broadcast else t.load_cost) + columns * t.load_cost
        arithmetic = rows * columns * t.product_cost
        return max(arithmetic, loads) + min(arithmetic, loads) / 4 + STEP

    def cost_in_place(self) -> float:
        """The same without packed operands: a smaller tile, and operands that are read as they lie for each of them."""
        k, lanes = self.k, self.target.vector_lanes
        converted = 0.0 if all(u.dtype is dtypes.float32 for u in self.loads) else self.target.product_cost
        for r in self.bound:
            if self.vectors(r) and all(k.contiguous(u, r) for u in self.loads):
                step = self.step(SMALL, 2, False) + (SMALL + 2) * converted
                return step / (2 * SMALL * lanes) + NEAR / SMALL
        for c in k.outputs:
            if self.vectors(c) and self.touched[c] and all(k.contiguous(u, c) for u in self.touched[c]):
                reuse = k.volume([r for r in k.outputs if self.apart(r, c)])
                rows = max(min(SMALL // len(k.reduces), reuse), 1)  # wide vectors
                step = self.step(rows, 2) + (rows + 2) * converted
                return step / (2 * rows * lanes) + FETCH / 2 / rows
        return 1.0

    def vectors(self, r: UOp) -> bool:
        """Whether little of an axis is left over by whole vectors."""
        return const_factor(self.k.exact(r)) % self.target.vector_lanes == 0 or (
            self.k.size(r) >= 4 * self.target.vector_lanes
        )

    def packing(self, along: UOp, width: int) -> float:
        """Cycles to bring an element into a panel, in each call."""
        loads = [u for u in self.loads if along in u.ranges]
        if self.frozen(along):
            return 0.0
        converted = 0.0 if all(u.dtype in self.target.arithmetic for u in loads) else CONVERTED
        return converted + (RUN if all(self.k.follows(u, along, width, False) for u in loads) else SINGLE)

    def frozen(self, along: UOp) -> bool:
        """Whether the operand that varies along an axis is laid out before the first call."""
        return all(u.src[0].arg.frozen for u in self.touched.get(along, self.loads))

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
        return self.far(tile) and self.k.volume(self.columns_of(tile)) > tile.columns

    def far(self, tile: Tile) -> bool:
        """Whether the steps of the rows' operand, where it lies, take lines that are gone before the next rows come."""
        step = self.bound[-1]
        return any(
            not self.k.contiguous(u, step) and self.crowded(u, step, self.k.size(step)) for u in self.touched[tile.row]
        )


@dataclass(frozen=True)
class Block:
    """What one worker computes at a time: tiles down and across, and steps of the largest further axis either way."""

    strips: int
    panels: int
    down: int = 1
    across: int = 1


def nest(b: Builder, plan: Contraction, tile: Tile) -> bool:
    """Blocks of tiles over the workers; in a block, steps of the reduction whose operands are packed."""
    k = b.k
    symbolic = not k.constant(tile.row)
    further_row = _longest(k, [] if symbolic else [r for r in plan.rows_of(tile) if r is not tile.row])
    taken = (tile.column, further_row)  # what a third operand alone varies along is reused either way
    further_column = _longest(k, [] if symbolic else [c for c in plan.columns_of(tile) if c not in taken])
    depth = _depth(plan, symbolic)
    staged = plan.steps if depth is None else plan.steps // k.size(plan.bound[0]) * depth
    block = _block(plan, tile, further_row, further_column, staged)
    if block is None:
        return False
    mine = (tile.row, tile.column, further_row, further_column)
    grid = [r.arg.name for r in k.outputs if r not in mine]
    inner: list[list[str]] = []
    for further, count, axis, n, tiles, lanes in (
        (further_row, block.down, tile.row, tile.rows, block.strips, AxisKind.UNROLL),
        (further_column, block.across, tile.column, tile.columns, block.panels, AxisKind.VECTOR),
    ):
        loops: list[str] = []
        if further is not None:
            _part(b, further.arg.name, count, grid, loops)
        if symbolic and axis is tile.row:
            loops.append(b.tile(axis.arg.name, n, lanes))
        else:
            steps = n if tiles == 1 else min(n * tiles, k.size(axis))
            outside, steps_of = b.blocks(axis.arg.name, steps)
            grid.append(outside)
            loops += [left] if (left := b.tile(steps_of, n, lanes)) else []
        inner.append(loops)
    rows, columns = inner
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


def _part(b: Builder, axis: str, count: int, grid: list[str], loops: list[str]) -> None:
    """Blocks of `count` steps of an axis, which divides it: what is outside of a block, and inside."""
    if count == b.size(axis) > 1:
        loops.append(axis)
    elif count == 1:
        grid.append(axis)
    else:
        outside, inside = b.split(axis, count)
        grid.append(outside)
        loops.append(inside)


def _longest(k: Analysis, axes: list[UOp]) -> UOp | None:
    """The largest axis beside the tile's that a block may take steps of."""
    return max(filter(k.constant, axes), key=k.size, default=None)


def _depth(plan: Contraction, symbolic: bool) -> int | None:
    """How much of the first reduced axis a step takes; None if it is not split."""
    first, *rest = plan.bound
    inner, size = plan.k.volume(rest), plan.k.size(first)
    deepest = DEEPEST * plan.target.vector_registers
    most = max(deepest // inner, 1)
    if symbolic or (plan.steps <= deepest * 3 // 2 and size <= deepest) or size <= most:
        return None
    least = max(DEEP_ENOUGH // inner, 1)
    fitting = [d for d in range(most, least - 1, -1) if size % d == 0]
    whole = [d for d in fitting if rest or d % plan.depth == 0]
    return next(iter(whole + fitting), -(-size // -(-size // most)))


def _block(
    plan: Contraction, tile: Tile, further_row: UOp | None, further_column: UOp | None, steps: int
) -> Block | None:
    """The block with which the busiest worker is done soonest; `steps` of the reduction are staged at a time."""
    k, target = plan.k, plan.target
    symbolic = not k.constant(tile.row)
    down, across = (-(-k.size(r) // n) for r, n in ((tile.row, tile.rows), (tile.column, tile.columns)))
    others = prod(k.size(r) for r in k.outputs if r not in (tile.row, tile.column))
    vectors = tile.columns // target.vector_lanes
    work = plan.steps * max(plan.step(tile.rows, vectors), LATENCY) * len(k.reduces)
    pack_column = plan.steps * tile.columns * (FETCH + plan.packing(tile.column, tile.columns))
    conflicts = plan.steps * tile.columns * FETCH  # filling more panels at once than there are ways
    pack_row = plan.steps * tile.rows * (FETCH + (RUN if plan.must_pack(tile) and not plan.frozen(tile.row) else 0))
    workers = target.parallel_threads
    best: tuple[float, Block] | None = None
    strips_of = [down] if symbolic else _shares(down)
    further = _divisors(k, further_row), _divisors(k, further_column)
    for strips, panels, q, p in product(strips_of, _shares(across), *further):
        if (q > 1 and strips < down) or (p > 1 and panels < across):
            continue  # further steps only of what is whole
        panel = panels * p * tile.columns * steps
        sums = 0 if symbolic else strips * q * panels * p * tile.rows * tile.columns
        if max(panel, sums) > MAX_STAGED or 4 * (panel + sums) * len(k.reduces) > target.cache_bytes:
            continue
        count = -(-down // strips) * -(-across // panels) * -(-others // (q * p))
        one = strips * q * panels * p * work + panels * p * pack_column + strips * q * pack_row
        if panels * p > WAYS:
            one += panels * p * conflicts
        # the last blocks are never shared out evenly
        time = -(-count // workers) * one + one * (workers > 1) / 4
        if best is None or time < best[0]:
            best = (time, Block(strips, panels, q, p))
    return None if best is None else best[1]


def _divisors(k: Analysis, r: UOp | None) -> list[int]:
    return [1] if r is None else [n for n in range(1, k.size(r) + 1) if k.size(r) % n == 0]


def _shares(tiles: int) -> list[int]:
    """Tiles per block, for 1, 2, … blocks; each number once."""
    return sorted({-(-tiles // blocks) for blocks in range(1, tiles + 1)}, reverse=True)

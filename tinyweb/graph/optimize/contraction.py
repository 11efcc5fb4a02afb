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
from math import prod

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import AxisKind, Ops, Space, UOp, users
from tinyweb.graph.optimize.actions import Action, Bind, Reorder, Split
from tinyweb.graph.optimize.analysis import Analysis
from tinyweb.graph.optimize.apply import apply_legal
from tinyweb.graph.optimize.hoist import Hoist
from tinyweb.graph.optimize.stage import MAX_STAGED, stages_of, whole_value
from tinyweb.graph.target import Target

LEAST_WORK = 1 << 15  # multiplications; below, packing and blocks cost more than they save
DEEPEST = 256  # steps of the reduction between two additions to a block's sums: a strip stays in the first cache
DEEP_ENOUGH = 128
# cycles of a simple model: what a step of the innermost loop costs beside its arithmetic, an element that a block
# brings near, that is packed in runs or one by one, and one that is stored alone
STEP, FETCH, RUN, SINGLE, SCATTER = 0.8, 0.5, 0.4, 1.5, 1.5
LATENCY = 4  # of an addition


@dataclass(frozen=True)
class Tile:
    """`rows` × `columns` sums in registers."""

    row: UOp
    column: UOp
    rows: int
    columns: int


def schedule_contraction(k: Analysis, target: Target) -> list[Action] | None:
    """Actions for a kernel whose reductions multiply what varies along some output axes with what varies along others;
    None if it has no such reductions, or too small ones.
    """
    plan = _Contraction(k, target)
    if not plan.fits():
        return None
    tile = min(plan.tiles(), key=plan.cost, default=None)
    if tile is None or plan.cost(tile) > 1 / target.vector_lanes:  # twice what the arithmetic alone takes
        return None
    return _Nest(plan, tile).actions()


class _Contraction:
    def __init__(self, k: Analysis, target: Target):
        self.k, self.target = k, target
        heavy = k.heavy
        self.bound = [r for r in k.reduced if heavy is not None and r in heavy.src[1:]]
        self.loads = list(dict.fromkeys(u for r in k.reduces for u in k.loads_of(r)))
        self.touched = {r: [u for u in self.loads if r in u.ranges] for r in k.outputs}
        self.steps = k.volume(self.bound)
        above = users([k.kernel])
        self.value = {u: whole_value(u, above) for u in self.loads}

    def fits(self) -> bool:
        k, heavy = self.k, self.k.heavy
        if heavy is None or k.volume(heavy.ranges | set(heavy.src[1:])) < LEAST_WORK:
            return False
        if any(u.src[1:] != heavy.src[1:] or u.arg is not Ops.ADD for u in k.reduces):
            return False
        if any(r not in heavy.ranges for r in k.outputs) or any(s.src[0].dtype.bits < 8 for s in k.stores):
            return False
        if any(not isinstance(k.exact(r), int) for r in self.bound):
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

    def tiles(self) -> Iterator[Tile]:
        k, lanes = self.k, self.target.vector_lanes
        sums = self.target.tile_sums // len(k.reduces)
        for c, r in product(k.outputs, k.outputs):
            size, width = k.exact(c), lanes * 2
            if not self.apart(r, c) or not isinstance(size, int) or k.size(r) < 2:
                continue
            for columns in (width, width // 2):
                if size % columns and (size < columns or k.in_place):
                    continue
                for rows in range(2, min(sums // (columns // lanes), 8, k.size(r)) + 1):
                    tile = Tile(r, c, rows, columns)
                    if k.volume(self.rows_of(tile)) >= 4:
                        yield tile

    def cost(self, tile: Tile) -> float:
        """Cycles for one multiplication and addition of an output, about."""
        k, vectors = self.k, tile.columns // self.target.vector_lanes
        loads = (tile.rows + vectors) * self.target.load_cost
        step = max(tile.rows * vectors / 2, loads, LATENCY / len(k.reduces)) + STEP
        waste = 1.0
        for r, n in ((tile.row, tile.rows), (tile.column, tile.columns)):
            size = k.exact(r)
            if isinstance(size, int):
                waste *= -(-size // n) * n / size
        cost = waste * step / (tile.rows * tile.columns)
        if not all(k.contiguous(s, tile.column) for s in k.stores):
            cost += SCATTER / self.steps
        reuse = min(k.volume(self.rows_of(tile)), 512)
        cost += self.packing(tile.column, tile.columns) / reuse
        if self.must_pack(tile):
            cost += self.packing(self.bound[-1], 4) / min(k.volume(self.columns_of(tile)), 128)
        return cost

    def packing(self, along: UOp, width: int) -> float:
        loads = [u for u in self.loads if along in u.ranges]
        return RUN if all(self.k.follows(u, along, width, False) for u in loads) else SINGLE

    def must_pack(self, tile: Tile) -> bool:
        """Whether the rows' operand is not read in runs of float32 where it lies."""
        for u in self.touched[tile.row]:
            plain = self.value[u] is u and len(u.src) == 2 and u.dtype is dtypes.float32
            if not plain or not self.k.contiguous(u, self.bound[-1]):
                return True
        return False


@dataclass(frozen=True)
class Block:
    """What one worker computes at a time: tiles down and across, and steps of the largest further axis either way."""

    strips: int
    panels: int
    down: int = 1
    across: int = 1


class _Nest:
    """The nest around a tile: names of what is left of each axis as the actions go on."""

    def __init__(self, plan: _Contraction, tile: Tile):
        self.plan, self.k, self.tile = plan, plan.k, tile
        self.out: list[Action] = []
        self.grid: list[str] = []
        self.symbolic = not isinstance(self.k.exact(tile.row), int)
        self.further_row = self.further([r for r in plan.rows_of(tile) if r is not tile.row])
        taken = (tile.column, self.further_row)  # what a third operand alone varies along is reused either way
        self.further_column = self.further([c for c in plan.columns_of(tile) if c not in taken])

    def further(self, axes: list[UOp]) -> UOp | None:
        """The largest axis beside the tile's that a block may take steps of."""
        known = [r for r in axes if isinstance(self.k.exact(r), int)]
        return None if self.symbolic else max(known, key=self.k.size, default=None)

    def actions(self) -> list[Action] | None:
        plan, k, tile = self.plan, self.k, self.tile
        depth = self.depth()
        block = self.block(plan.steps if depth is None else plan.steps // k.size(plan.bound[0]) * depth)
        if block is None:
            return None
        mine = (tile.row, tile.column, self.further_row, self.further_column)
        self.grid = [r.arg.name for r in k.outputs if r not in mine]
        rows = self.steps(self.further_row, block.down) + self.tiles(tile.row, tile.rows, block.strips, AxisKind.UNROLL)
        columns = self.steps(self.further_column, block.across)
        columns += self.tiles(tile.column, tile.columns, block.panels, AxisKind.VECTOR)
        self.out.append(Reorder((*self.grid, *rows, *columns)))
        self.out += [Bind(name, AxisKind.GRID) for name in self.grid]
        at, near = self.grid[-1], rows[-1:]
        if depth is not None and rows + columns:
            first = plan.bound[0].arg.name
            self.out += [Split(first, depth), Hoist(f"{first}.0", at)]
            at, near = f"{first}.0", [f"acc.{name}" for name in near]
        kernel = k.kernel
        for action in self.out:
            kernel = action.apply(kernel)
        if rows:
            kernel = self.stage(kernel, plan.touched[tile.column], at)
        if columns and near and (plan.must_pack(tile) or self.ragged(depth)):
            self.stage(kernel, plan.touched[tile.row], near[0])
        return self.out

    def ragged(self, depth: int | None) -> bool:
        """Whether loads of the rows' operand would be gated."""
        return depth is not None and self.k.size(self.plan.bound[0]) % depth != 0

    def steps(self, r: UOp | None, count: int) -> list[str]:
        """Blocks of `count` steps of an axis, which divides it; the loop inside a block, if there is one."""
        if r is None:
            return []
        name = r.arg.name
        if count == self.k.size(r) > 1:
            return [name]
        if count > 1:
            self.out.append(Split(name, count))
        self.grid.append(name if count == 1 else f"{name}.0")
        return [f"{name}.1"] if count > 1 else []

    def tiles(self, r: UOp, n: int, count: int, lanes: AxisKind) -> list[str]:
        """Blocks of `count` tiles of `n`; the loop over a block's tiles, if there is one."""
        name, size = r.arg.name, self.k.exact(r)
        if not isinstance(size, int):
            self.out += [Split(name, n), Bind(f"{name}.1", lanes)]
            return [f"{name}.0"]
        overlap, block = not self.k.in_place, n if count == 1 else min(n * count, size)
        self.out.append(Split(name, block, overlap=overlap and size % block != 0))
        self.grid.append(f"{name}.0")
        if count == 1:
            self.out.append(Bind(f"{name}.1", lanes))
            return []
        self.out += [Split(f"{name}.1", n, overlap=overlap and block % n != 0), Bind(f"{name}.1.1", lanes)]
        return [f"{name}.1.0"]

    def stage(self, kernel: UOp, loads: list[UOp], at: str) -> UOp:
        """Stages of those loads that the kernel, as the actions have made it, takes; the kernel after them."""
        mine = sorted((u for u in loads if not self.k.kernel_stores(u)), key=lambda u: u.src[0].arg.slot)
        others = (u for u in self.plan.loads if u not in loads)
        stages, kernel = apply_legal(kernel, stages_of(mine, others, at, Space.REGISTER))
        self.out += stages
        return kernel

    def depth(self) -> int | None:
        """How much of the first reduced axis a step takes; None if it is not split."""
        first, *rest = self.plan.bound
        inner, size = self.k.volume(rest), self.k.size(first)
        most = max(DEEPEST // inner, 1)
        if self.symbolic or (self.plan.steps <= DEEPEST * 3 // 2 and size <= DEEPEST) or size <= most:
            return None
        for depth in range(most, max(DEEP_ENOUGH // inner, 1) - 1, -1):
            if size % depth == 0:
                return depth
        return -(-size // -(-size // most))

    def block(self, steps: int) -> Block | None:
        """The block with which the busiest worker is done soonest; `steps` of the reduction are staged at a time."""
        plan, k, tile = self.plan, self.k, self.tile
        down, across = (-(-k.size(r) // n) for r, n in ((tile.row, tile.rows), (tile.column, tile.columns)))
        others = prod(k.size(r) for r in k.outputs if r not in (tile.row, tile.column))
        vectors = tile.columns // plan.target.vector_lanes
        work = plan.steps * max(tile.rows * vectors / 2, LATENCY) * len(k.reduces)
        pack_column = plan.steps * tile.columns * (FETCH + plan.packing(tile.column, tile.columns))
        pack_row = plan.steps * tile.rows * (FETCH + (RUN if plan.must_pack(tile) else 0))
        workers = plan.target.parallel_threads
        best: tuple[float, Block] | None = None
        strips_of = [down] if self.symbolic else _shares(down)
        for strips, panels, q, p in product(
            strips_of, _shares(across), self.divisors(self.further_row), self.divisors(self.further_column)
        ):
            if (q > 1 and strips < down) or (p > 1 and panels < across):
                continue  # further steps only of what is whole
            panel = panels * p * tile.columns * steps
            sums = 0 if self.symbolic else strips * q * panels * p * tile.rows * tile.columns
            if max(panel, sums) > MAX_STAGED or 4 * (panel + sums) * len(k.reduces) > plan.target.near_bytes:
                continue
            count = -(-down // strips) * -(-across // panels) * -(-others // (q * p))
            one = strips * q * panels * p * work + panels * p * pack_column + strips * q * pack_row
            # the last blocks are never shared out evenly
            time = -(-count // workers) * one + one * (workers > 1) / 4
            if best is None or time < best[0]:
                best = (time, Block(strips, panels, q, p))
        return None if best is None else best[1]

    def divisors(self, r: UOp | None) -> list[int]:
        return [1] if r is None else [n for n in range(1, self.k.size(r) + 1) if self.k.size(r) % n == 0]


def _shares(tiles: int) -> list[int]:
    """Tiles per block, for 1, 2, … blocks; each number once."""
    return sorted({-(-tiles // blocks) for blocks in range(1, tiles + 1)}, reverse=True)

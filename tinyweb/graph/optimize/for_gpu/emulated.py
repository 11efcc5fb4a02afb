"""Products of matrices where a processor emulates a GPU: the tile of a thread, by what it saves and what it costs.

Such a processor has one memory, a barrier there costs as much as a load, and a load as much as dozens of additions:
large tiles, and several steps of the reduction in one statement, are fast. But each element of a tile is text of its
own, and the adapter's compiler takes milliseconds for a statement: a tile that saves little must be small.
"""

from __future__ import annotations

import math
from itertools import product

from tinyweb.graph.ir import TRANSCENDENTAL, AxisKind, Ops, UOp
from tinyweb.graph.optimize.analysis import Analysis
from tinyweb.graph.optimize.for_gpu.plan import Plan, fitting_divisor

TILES = (4, 8, 16)  # rows, and columns, of a thread; shorter axes are taken as they are
WIDEST = 20  # columns that are taken as they are, where they are no multiple of the tiles
STEPS = (1, 2, 4)  # of the reduction, in one statement
RUNS = 16  # of a kernel, in which a tile must have paid for its compilation
# Milliseconds on SwiftShader, about. Of a million multiply-adds, and of what comes with each of them:
SUM, LOAD, NARROW, STEP = 0.3, 4.5, 12.0, 0.9
# To compile a vector's multiply-add, a load, an operation on the result, a function of it:
TEXT_SUM, TEXT_LOAD, TEXT_OP, TEXT_FUNCTION = 2.0, 4.0, 1.0, 15.0
FUNCTIONS = TRANSCENDENTAL | {Ops.DIV, Ops.RECIPROCAL}


def emulated_tile(plan: Plan, heavy: UOp, columns: UOp, rows: UOp) -> bool:
    """Bind a tile of outputs and some steps of the reduction; whether the axes have room for one."""
    k = plan.k
    if min(k.size(columns), k.size(rows)) < TILES[0]:
        return False
    steps = max((r for r in heavy.src[1:] if r in plan.left), key=k.size)
    longest = fitting_divisor(k.size(steps), STEPS[-1])
    tiles = list(product(factors(k, columns, WIDEST), factors(k, rows), [n for n in STEPS if n <= longest]))
    if not tiles:
        return False
    costs = Costs(k, heavy, columns, rows)
    width, height, depth = min(tiles, key=lambda tile: costs.of(*tile))
    plan.tile_overlapping(columns, width, AxisKind.VECTOR)
    plan.tile_overlapping(rows, height, AxisKind.UNROLL)
    plan.tile(steps, depth, AxisKind.UNROLL)
    for r, threads in ((columns, 4), (rows, 8)):
        if r in plan.left and (count := fitting_divisor(plan.left[r][1], threads)) > 1:
            plan.spread([r], plan.threads * count)  # none of them idle
    if plan.threads < 4:
        plan.spread(plan.by_nearness(plan.k.outputs), 8)
    return True


def factors(k: Analysis, r: UOp, whole: int = 0) -> list[int]:
    """Lengths of a tile along an axis, up to `whole` all of it; what is computed in place must not overlap."""
    size = k.size(r)
    found = [n for n in TILES if n <= size and (size % n == 0 or not k.in_place)]
    return [*found, size] if size <= whole else found


class Costs:
    """Of a product by its tile: the time to compile it and to run it often."""

    def __init__(self, k: Analysis, heavy: UOp, columns: UOp, rows: UOp):
        self.k, self.columns, self.rows = k, columns, rows
        self.sums = sum(u.src[1:] == heavy.src[1:] for u in k.reduces)
        self.millions = self.sums * k.volume(heavy.ranges | set(heavy.src[1:])) / 1e6
        # what each column, and each row, reads anew
        self.column_load = self.row_load = 0.0
        for u in k.loads_of(heavy):
            cost = (LOAD if u.src[0].dtype.bits >= 32 else NARROW) * (2 if len(u.src) > 2 else 1)
            if columns in u.src[1].ranges:
                self.column_load = max(self.column_load, cost)
            elif rows in u.src[1].ranges:
                self.row_load = max(self.row_load, cost)
        self.finish = 0.0
        stack, seen = list(k.kernel.src), set()
        while stack:
            u = stack.pop()
            if u in seen or u.op is Ops.REDUCE:
                continue
            seen.add(u)
            if u.dtype.is_float and u.op is not Ops.CONST:
                self.finish += TEXT_FUNCTION if u.op in FUNCTIONS else TEXT_OP
            stack.extend(u.src)

    def of(self, width: int, height: int, depth: int) -> float:
        """Milliseconds of compiling and of RUNS runs with a tile of `width` columns, `height` rows, `depth` steps."""
        k, vectors = self.k, width // math.gcd(width, 4) * height
        waste = 1.0
        for r, n in ((self.columns, width), (self.rows, height)):
            waste *= math.ceil(k.size(r) / n) * n / k.size(r)
        run = SUM + self.row_load / width + self.column_load / height + STEP / depth
        text = vectors * (depth * self.sums * TEXT_SUM + self.finish) + depth * (width + height) * TEXT_LOAD
        return text + RUNS * self.millions * waste * run

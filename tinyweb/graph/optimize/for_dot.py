"""Products of integer matrices on processors with integer dots.

With many columns of int16 lanes lie along rows of the weights: blocks of rows are widened and turned once, and one
instruction scales a group's sums in all lanes. Else they lie along the groups, and their sums stay apart until the end.
"""

from __future__ import annotations

from math import gcd

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import AxisKind, Ops, Space, UOp
from tinyweb.graph.optimize.actions import Action, Bind, Reorder, Split
from tinyweb.graph.optimize.analysis import Analysis
from tinyweb.graph.optimize.builder import Builder
from tinyweb.graph.optimize.contraction import schedule_contraction
from tinyweb.graph.optimize.errors import ScheduleError
from tinyweb.graph.optimize.fuse import Fuse
from tinyweb.graph.optimize.hoist import Hoist
from tinyweb.graph.optimize.instructions import (
    DOT2_I16,
    DOT4_I8,
    DOT8_U4_I8,
    DOT_PAIRS,
    DOT_STEPS,
    NIBBLES,
    Instruction,
)
from tinyweb.graph.optimize.rewrite import ranges_of
from tinyweb.graph.optimize.stage import Stage, stages_of
from tinyweb.graph.optimize.tensorize import Spread, Tensorize, products
from tinyweb.graph.symbolic import const_factor, divides
from tinyweb.graph.target import Target

# fewer products than this are done sooner by one worker than the others are woken
WORTH_SHARING = 1 << 15
ROWS, COLUMNS = 4, 2  # of a tile: their sums stay in registers
VECTORS = 2  # of rows, in a tile with lanes along them
SUMS = 8  # vectors of them in such a tile
MOST_VECTORS = 4  # of a group's sums side by side
WORTH_TURNING = 32  # columns from which such a block of rows, which is gathered element by element, is worth it
TOGETHER = 8  # rows whose sums are finished together
DEAR = (Ops.EXP2, Ops.LOG2, Ops.SIN, Ops.DIV, Ops.RECIPROCAL, Ops.WHERE)
ROWS_ALONE = 1  # of a single column: memory is read in one stream from end to end, which is what bounds it


def schedule_for_dots(b: Builder) -> bool:
    """Kernels whose work are sums of products of small integers."""
    actions = _along_memory(b.k, b.target)
    if actions:
        b.do(*actions)
    return bool(actions) or _in_pairs(b)


def _along_memory(k: Analysis, target: Target) -> list[Action] | None:
    """Dots of what lies side by side in memory, such as groups inside a sum of floats."""
    dots = [u for u in k.reduces if products(u) is not None]
    if not target.dot_lanes or not dots or k.heavy not in dots or any(u.src[1:] != dots[0].src[1:] for u in dots):
        return None
    pairs = [pair for u in dots if (pair := products(u)) is not None]
    halves = any(load.dtype is dtypes.int16 for pair in pairs for load in pair)
    # the narrower operand, or the larger one, are the weights: their rows go to the workers
    a, b = pairs[0] if halves else sorted(pairs[0], key=lambda u: -k.volume(u.src[1].ranges))
    free = [r for r in k.outputs if r in dots[0].ranges]
    rows = max((r for r in free if r in a.src[1].ranges), key=k.size, default=None)
    columns = max((r for r in free if r in b.src[1].ranges and r not in a.src[1].ranges), key=k.size, default=None)
    shared = {min(pair, key=lambda u: k.volume(u.src[1].ranges)).src[0] for pair in pairs}
    # even and odd 4-bit weights of bytes apart; field by field of half words where instructions want pairs of int16
    apart = not halves and all(pair[0].dtype is dtypes.int4 for pair in pairs) and len(dots[0].src) == 3
    widened = not halves and columns is None and target.instructions[0] == DOT2_I16.name and len(shared) == 1
    raised = apart and not widened
    loads = (x for u in k.reduces if u not in dots for x in k.loads_of(u))
    scales = [x for x in loads if x.dtype is dtypes.float16 and columns not in x.src[1].ranges]
    if rows is None or (halves and columns is None):
        return None
    if len(dots) == len(k.reduces) and not _along_reduction(k, pairs, columns):
        return None
    weights = [pair[0] for pair in pairs if halves and pair[0].dtype is not dtypes.int16]
    if halves and columns is not None and k.size(columns) >= WORTH_TURNING:
        along_rows = _along_rows(k, target, dots, rows, columns, [*weights, *scales])
        if along_rows is not None:
            return along_rows
    actions = _tile(k, columns, COLUMNS) if columns is not None else []
    tiled = _tile(k, rows, (ROWS if len(dots) == 1 else ROWS // 2) if columns is not None else ROWS_ALONE)
    actions += tiled
    row = f"{rows.arg.name}.0" if len(tiled) > 1 else rows.arg.name
    finish = _finish(k, dots, rows) if widened else []
    if finish:
        actions, row = [finish[0]], f"{rows.arg.name}.0"
    actions += _shared(k, target, row, columns if len(tiled) > 1 else None, actions)
    if halves:
        # what many columns are multiplied with is widened once; and so are its scales
        actions += _stages(k, [*weights, *scales], row)
    actions += finish[1:]
    converted: list[Action] = []
    if columns is None:
        # a row's scales are converted together, several by one instruction
        at = f"acc.{rows.arg.name}.1" if finish else row
        converted = _stages(k, scales, at)
    lanes: list[Action] | None
    if raised:
        lanes = _raised_lanes(k, target, dots, row)
    else:
        lanes = _lanes(k, target, dots[0], DOT2_I16 if halves or widened else DOT4_I8, apart)
        if lanes and widened:
            # what all rows are multiplied with is widened once for all of them
            lanes += stages_of([b], (x for x in k.summed if rows in x.ranges), row, Space.REGISTER)
    if lanes is None:
        return None
    # once lanes have left the integer sums, scales are no part of a lane's sums
    own = next((i + 1 for i, a in enumerate(lanes) if isinstance(a, Spread)), 0)
    for stages in (converted, []):
        whole = [*actions, *lanes[:own], *stages, *lanes[own:]]
        if _legal(k.kernel, whole):
            return whole
    return None


def _along_reduction(k: Analysis, pairs: list[tuple[UOp, UOp]], columns: UOp | None) -> bool:
    """Whether dots along memory serve sums of integers that are in no sum of floats: not many columns, which a tile of
    sums is better for, and operands that lie along what is reduced.
    """
    if columns is not None and k.size(columns) >= COLUMNS * ROWS:
        return False
    inner = k.reduces[0].src[-1]
    return all(k.contiguous(load, inner) for pair in pairs for load in pair)


def _in_pairs(b: Builder) -> bool:
    """A contraction of small integers: as one of floats, with its operands staged in 16 bits, and products of pairs."""
    k = b.k
    small = [u for u in k.reduces if u.dtype is dtypes.int32 and u.src[0].op is Ops.MUL]
    if DOT2_I16.name not in b.target.instructions or not k.reduces or len(small) < len(k.reduces):
        return False
    start = b.mark()
    if not schedule_contraction(b):
        return False
    whole = b.actions
    b.back(start)
    b.do(*(a for a in whole if not isinstance(a, Stage)))
    inner = [r for r in ranges_of(b.kernel) if r.arg.reduce and any(r in u.src[1:] for u in b.kernel.toposort())]
    if not inner or not divides(inner[-1].src[0], DOT_PAIRS):
        return False
    _, pair = b.split(inner[-1].arg.name, DOT_PAIRS)
    return b.attempt(Tensorize(pair, DOT2_I16.name), *(a for a in whole if isinstance(a, Stage)))


def _shared(k: Analysis, target: Target, row: str, columns: UOp | None, tiled: list[Action]) -> list[Action]:
    """Blocks of rows go to the workers; with one worker they are the outer loop, if columns have blocks too."""
    if target.parallel_threads > 1 and k.work >= WORTH_SHARING:
        return [Bind(row, AxisKind.GRID)]
    if columns is not None and tiled and isinstance(tiled[0], Split):
        return [Reorder((row, f"{columns.arg.name}.0"))]
    return []


def _along_rows(
    k: Analysis, target: Target, dots: list[UOp], rows: UOp, columns: UOp, staged: list[UOp]
) -> list[Action] | None:
    """A tile of vectors of rows and of single columns; what is `staged` is widened once for a block of rows."""
    r, name = dots[0].src[-1], rows.arg.name
    steps, size = k.exact(r), k.exact(rows)
    if len(dots[0].src) != 2 or not isinstance(steps, int) or steps % DOT_PAIRS or not isinstance(size, int):
        return None
    for vectors in (VECTORS, 1):
        block = target.dot_lanes * vectors
        if size <= block or (size % block and k.in_place):
            continue
        row, lane = f"{name}.0", f"{name}.1"
        actions = _tile(k, columns, max(SUMS // (vectors * len(dots)), 1))
        shared = _shared(k, target, row, columns, actions)
        actions += [Split(name, block, overlap=size % block > 0), *shared]
        if vectors > 1:
            actions += [Split(lane, target.dot_lanes), Bind(f"{lane}.0", AxisKind.UNROLL)]
            lane = f"{lane}.1"
        actions += [
            Bind(lane, AxisKind.VECTOR),
            Split(r.arg.name, DOT_PAIRS),
            Tensorize(f"{r.arg.name}.1", DOT2_I16.name),
        ]
        actions += _stages(k, staged, row)
        if _legal(k.kernel, actions):
            return actions
    return None


def _lanes(k: Analysis, target: Target, dot: UOp, instruction: Instruction, apart: bool) -> list[Action] | None:
    """Steps of the innermost axis become an instruction, as many as there are lanes stay apart until the end.

    `apart`: the axes are bytes and the two integers in one, of which two bytes make a half word: each of its integers
    is done after another, with those at its place in all the lanes.
    """
    r, together = dot.src[1], instruction.steps
    size, name = k.exact(r), r.arg.name
    field = NIBBLES if apart else 1
    if len(dot.src) != (3 if apart else 2) or not isinstance(size, int) or size % (together * field):
        return None
    steps, lanes = size // (together * field), target.dot_lanes
    while lanes > 4 and steps % lanes:
        lanes //= 2
    if steps % lanes:
        return None
    actions: list[Action] = []
    if apart:
        other = dot.src[2].arg.name
        actions = [Split(name, field), Bind(f"{name}.1", AxisKind.UNROLL), Bind(other, AxisKind.UNROLL)]
        name = f"{name}.0"
    if steps > MOST_VECTORS * lanes:  # the rest of a long group is a loop
        steps = lanes * gcd(steps // lanes, MOST_VECTORS)
        actions.append(Split(name, steps * together))
        name = f"{name}.1"
    actions.append(Split(name, together))
    vector = f"{name}.0"
    if steps > lanes:
        actions += [Split(vector, lanes), Bind(f"{vector}.0", AxisKind.UNROLL)]
        vector = f"{vector}.1"
    apart_from = [Spread(vector)] if any(u.dtype.is_float for u in k.reduces) else []
    return [*actions, Bind(vector, AxisKind.VECTOR), *apart_from, Tensorize(f"{name}.1", instruction.name)]


def _raised_lanes(k: Analysis, target: Target, dots: list[UOp], row: str) -> list[Action] | None:
    """Lanes are the words of a group's 4-bit integers, and of several groups where one has less than a vector's; a dot
    takes the low halves of a word's bytes and the high ones.
    """
    outer = {u.src[1:] for u in k.reduces if u not in dots}
    ranges = outer.pop() if len(outer) == 1 else ()
    size, groups = k.exact(dots[0].src[1]), k.exact(ranges[0]) if len(ranges) == 1 else None
    if not isinstance(size, int) or size % DOT_STEPS or not isinstance(groups, int):
        return None
    name, other = (r.arg.name for r in dots[0].src[1:])
    lane = f"{name}.0"
    actions: list[Action] = [Split(name, DOT_STEPS), Bind(other, AxisKind.UNROLL), Spread(lane)]
    words = size // DOT_STEPS
    joined = gcd(groups, max(target.dot_lanes // words, 1))
    if joined > 1:
        axis = ranges[0].arg.name
        actions += [Split(axis, joined), Fuse(f"{axis}.1", lane)]
        lane = f"{axis}.1"
    if joined * words % 4:
        return None
    return [*actions, Bind(lane, AxisKind.VECTOR), Tensorize(f"{name}.1", DOT8_U4_I8.name, row)]


def _finish(k: Analysis, dots: list[UOp], rows: UOp) -> list[Action]:
    """Where much is done with a row's sums, those of a block of rows wait for each other: it is done in vectors then.

    The sums themselves stay one row after the other, each complete before the next.
    """
    sums = {u.src[1:] for u in k.reduces if u not in dots}
    if len(sums) != 1 or len(ranges := sums.pop()) != 1 or const_factor(k.exact(rows)) % TOGETHER or k.in_place:
        return []
    made: set[UOp] = set(dots)
    for u in k.nodes:
        if u not in made and any(s in made for s in u.src):
            made.add(u)
    if not any(u.op in DEAR for u in made) or not all(k.contiguous(s, rows) for s in k.stores):
        return []
    axis, row, steps = ranges[0].arg.name, rows.arg.name, k.exact(ranges[0])
    if not isinstance(steps, int):
        return []
    return [
        Split(row, TOGETHER),
        Split(axis, steps),
        Hoist(f"{axis}.0", f"{row}.0"),
        Bind(f"{row}.1", AxisKind.VECTOR),
    ]


def _stages(k: Analysis, loads: list[UOp], at: str) -> list[Action]:
    return [*stages_of(loads, (u for u in k.summed if u not in loads), at, Space.REGISTER)]


def _tile(k: Analysis, r: UOp, factor: int) -> list[Action]:
    name, size = r.arg.name, k.exact(r)
    if factor == 1:
        return []
    if isinstance(size, int) and size <= factor:
        return [Bind(name, AxisKind.UNROLL)]
    whole = const_factor(size) % factor == 0
    overlap = not whole and isinstance(size, int) and not k.in_place
    return [Split(name, factor, overlap=overlap), Bind(f"{name}.1", AxisKind.UNROLL)]


def _legal(kernel: UOp, actions: list[Action]) -> bool:
    try:
        for action in actions:
            kernel = action.apply(kernel)
    except ScheduleError:
        return False
    return True

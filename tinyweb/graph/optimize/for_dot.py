"""Products of integer matrices on processors with integer dots: lanes along the groups, tiles of rows and columns."""

from __future__ import annotations

from tinyweb.graph.ir import AxisKind, UOp
from tinyweb.graph.optimize.actions import Action, Bind, Split
from tinyweb.graph.optimize.analysis import Analysis
from tinyweb.graph.optimize.errors import ScheduleError
from tinyweb.graph.optimize.tensorize import DOT_STEPS, Spread, dot_operands
from tinyweb.graph.symbolic import const_factor
from tinyweb.graph.target import Target

# fewer products than this are done sooner by one worker than the others are woken
WORTH_SHARING = 1 << 15
ROWS, COLUMNS = 4, 2  # of a tile: their sums stay in registers
ROWS_ALONE = 1  # of a single column: memory is read in one stream from end to end, which is what bounds it


def schedule_for_dots(k: Analysis, target: Target) -> list[Action] | None:
    """Actions for a kernel whose work are dots of integers, in groups inside a sum of floats; None for others."""
    dots = [u for u in k.reduces if dot_operands(u) is not None]
    if not target.dot_lanes or not dots or k.heavy not in dots or any(u.src[1:] != dots[0].src[1:] for u in dots):
        return None
    actions = _lanes(k, target, dots[0])
    if actions is None:
        return None
    a, b = sorted(dot_operands(dots[0]) or (), key=lambda u: -k.volume(u.src[1].ranges))
    free = [r for r in k.outputs if r in dots[0].ranges]
    rows = max((r for r in free if r in a.src[1].ranges), key=k.size, default=None)
    columns = max((r for r in free if r in b.src[1].ranges and r not in a.src[1].ranges), key=k.size, default=None)
    if columns is not None:
        actions += _tile(k, columns, COLUMNS)
    if rows is not None:
        tiled = _tile(k, rows, ROWS if columns is not None else ROWS_ALONE)
        actions += tiled
        if target.parallel_threads > 1 and k.work >= WORTH_SHARING:
            actions.append(Bind(f"{rows.arg.name}.0" if len(tiled) > 1 else rows.arg.name, AxisKind.GRID))
    return actions if _legal(k.kernel, actions) else None


def _lanes(k: Analysis, target: Target, dot: UOp) -> list[Action] | None:
    """Four steps of the innermost axis become a dot, as many as there are lanes stay apart until the end."""
    r = dot.src[-1]
    size, name = k.exact(r), r.arg.name
    if len(dot.src) != 2 or not isinstance(size, int) or size % DOT_STEPS:
        return None
    steps, lanes = size // DOT_STEPS, target.dot_lanes
    while lanes > 4 and steps % lanes:
        lanes //= 2
    if steps % lanes or steps > 4 * lanes:
        return None
    actions: list[Action] = [Split(name, DOT_STEPS)]
    vector = f"{name}.0"
    if steps > lanes:
        actions += [Split(vector, lanes), Bind(f"{vector}.0", AxisKind.UNROLL)]
        vector = f"{vector}.1"
    return [*actions, Bind(vector, AxisKind.VECTOR), Spread(vector), Bind(f"{name}.1", AxisKind.DOT)]


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

"""The interpreter: as many outputs as possible at once, since each step of a loop costs a walk through the program."""

from __future__ import annotations

from tinyweb.graph.ir import AxisKind
from tinyweb.graph.optimize.builder import Builder

# elements computed again and again because their reduction does not depend on an axis of the grid
AFFORDABLE = 1 << 26


def schedule_for_numpy(b: Builder) -> bool:
    """All output axes on the grid, or only those that every reduction depends on where the rest would cost too much."""
    k, axes = b.k, b.k.outputs
    steps = [k.volume(set(u.src[1:])) for u in k.reduces]
    if steps and k.volume(axes) * max(steps) > AFFORDABLE:
        axes = [r for r in axes if all(r in u.ranges for u in k.reduces)]
    for r in axes:
        b.bind(r.arg.name, AxisKind.GRID)
    return True

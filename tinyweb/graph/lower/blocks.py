"""Long sums of floats become sums of sums over blocks, so that rounding errors do not grow with the length.

The error of n additions one after another is up to n units, of blocked ones (Higham, Accuracy and Stability of
Numerical Algorithms, 4.2) about the longest loop's steps: here 256 + 64.
"""

from __future__ import annotations

from tinyweb.graph.ir import AxisKind, Ops, Space, UOp, nested, rebuild
from tinyweb.graph.optimize.action import ScheduleError
from tinyweb.graph.optimize.actions import Peel

LONGEST = 256  # steps that are added up one after another
# the same where a workgroup's tiles fill the registers with sums: a second set of them would halve the threads at work
LONGEST_OF_TILES = 1024
BLOCK = 64


def block_sums(kernel: UOp) -> UOp:
    """The kernel with loops of its long sums split, and a sum per block inside the sum of blocks."""
    blocks: set[str] = set()
    left_alone: set[str] = set()  # where a reduction inside depends on the loop
    while (long := _long_loop(kernel, left_alone)) is not None:
        try:
            kernel = Peel(long.arg.name, BLOCK).apply(kernel)
            blocks.add(f"{long.arg.name}.1")
        except ScheduleError:
            left_alone.add(long.arg.name)
    return _nest(kernel, blocks) if blocks else kernel


def _loops(u: UOp) -> list[UOp]:
    return nested(r for r in u.src[1:] if r.arg.kind is AxisKind.LOOP)


def _long_loop(kernel: UOp, left_alone: set[str]) -> UOp | None:
    nodes = kernel.toposort()
    carried = {u.src[0] for u in nodes if u.op is Ops.STAGE}  # each step adds a block's sum already
    tiles = any(u.op is Ops.STAGE and u.arg.space is Space.SHARED for u in nodes)
    for u in nodes:
        if u.op is Ops.REDUCE and u.arg is Ops.ADD and u.dtype.is_float and u not in carried:
            for r in _loops(u):
                if r.src[0].vmax > (LONGEST_OF_TILES if tiles else LONGEST) and r.arg.name not in left_alone:
                    return r
    return None


def _nest(kernel: UOp, blocks: set[str]) -> UOp:
    """Each loop of a blocked reduction gets accumulators of its own; unrolled lanes stay with the innermost loop."""

    def with_blocks(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        loops = _loops(u) if u.op is Ops.REDUCE else []
        if not any(r.arg.name in blocks for r in loops):
            return None
        value, bound = src[0], list(u.src[1:])
        unrolled = [r for r in bound if r.arg.kind is AxisKind.UNROLL]
        for r in reversed(loops[1:]):
            value = UOp(Ops.REDUCE, u.dtype, (value, r, *unrolled), u.arg)
            bound = [b for b in bound if b is not r and b not in unrolled]
            unrolled = []
        return u.with_sources((value, *bound))

    return rebuild(kernel.toposort(), with_blocks)[kernel]

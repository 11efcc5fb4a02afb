"""Roughly how long a program will take, without running it: this orders what search times first.

Counted is what the innermost loops do, in vectors of the target, and nothing is known of caches: schedules that differ
in their tiles are told apart, those that differ in their blocks are not.
"""

from __future__ import annotations

from math import prod

from tinyweb.graph.ir import ELEMENTWISE, Ops, Size, Space, UOp, size_max
from tinyweb.graph.program import Program
from tinyweb.graph.target import Target

SLOW = {Ops.DIV: 8.0, Ops.SQRT: 8.0, Ops.RECIPROCAL: 8.0, Ops.FLOORDIV: 12.0, Ops.MOD: 12.0}
FREE = frozenset({Ops.CONST, Ops.PARAM, Ops.BUFFER, Ops.VARIABLE, Ops.SPECIAL, Ops.AFTER, Ops.END})


def workgroups(program: Program) -> int:
    """The largest size of a program's grid."""
    return prod(map(size_max, program.grid))


def estimate(program: Program, target: Target) -> float:
    """Steps of the slowest worker (or of all threads of a GPU in turns), in arbitrary units."""
    width, trips, steps = max(target.vector_lanes, 1), 1.0, 0.0
    above: list[float] = []
    indexed = _indexed(program)
    held, once = 0, 0.0
    for u in program.uops:
        if u.op is Ops.RANGE:
            above.append(trips)
            steps += trips
            trips *= _usual(u.src[0])
            steps += 2 * trips
        elif u.op is Ops.END:
            trips = above.pop()
        elif u.op is Ops.SPECIAL and not target.thread_dims:
            once, steps = steps, 0.0  # each worker does so much before its loop over the grid
        elif u.op is Ops.BUFFER and u.arg.space is Space.REGISTER and u not in indexed:
            held += -(-u.arg.size // width)
        elif u.op not in FREE:
            steps += trips * _cost(u, width, indexed)
    groups = workgroups(program)
    if target.thread_dims:
        crowded = 1.0 + 0.01 * max(held - 32, 0)
        busy = target.busy_threads
        return steps * crowded * max(groups * prod(program.workgroup), busy) / busy
    # what does not fit into registers is written and read again in every step
    crowded = 1.0 + 0.15 * max(held - target.vector_registers + 3, 0)
    return once + steps * crowded * -(-groups // max(target.parallel_threads, 1))


def _usual(size: Size) -> float:
    """Half of what a symbolic loop may have."""
    largest = size_max(size)
    return float(largest) if isinstance(size, int) or size.op is Ops.CONST else max(largest / 2, 1.0)


def _indexed(program: Program) -> set[UOp]:
    """Register memory that lies on the stack: some index of it is not a constant."""
    return {
        u.src[0].buffer
        for u in program.uops
        if u.op in (Ops.LOAD, Ops.STORE) and u.src[0].buffer.op is Ops.BUFFER and u.src[1].op is not Ops.CONST
    }


def _cost(u: UOp, width: int, indexed: set[UOp]) -> float:
    shape = (u.src[2] if u.op is Ops.STORE else u).shape
    vectors = -(-shape[0] // width) if shape and isinstance(shape[0], int) else 1
    if u.op in (Ops.LOAD, Ops.STORE):
        memory = u.src[0].buffer
        if memory.op is Ops.BUFFER and memory.arg.space is Space.REGISTER and memory not in indexed:
            return 0.0
        gated = len(u.src) > (2 if u.op is Ops.LOAD else 3)
        return vectors * (2.0 if u.op is Ops.LOAD else 3.0) + (2.0 if gated else 0.0)
    if u.op is Ops.STACK:
        return 1.0 if len(set(u.src)) == 1 else float(len(u.src))
    if u.op is Ops.BARRIER:
        return 30.0
    if u.op is Ops.SUBGROUP:
        return 10.0
    if u.op in ELEMENTWISE or u.op is Ops.LANE:
        # index arithmetic runs beside the rest
        usual = 0.3 if u.dtype.kind == "index" else 1.0
        return vectors * SLOW.get(u.op, usual)
    return 1.0

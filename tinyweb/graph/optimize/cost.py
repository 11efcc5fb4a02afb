"""What can be said of a schedule without running it: whether it fits the target, and roughly how long it will take.

The estimate orders what search times first. It counts what the innermost loops do, in vectors of the target, and
knows nothing of caches: schedules that differ in their tiles it tells apart, those that differ in their blocks not.
"""

from __future__ import annotations

from math import prod

from tinyweb.graph.ir import ELEMENTWISE, AxisKind, Ops, Size, Space, UOp, size_max
from tinyweb.graph.optimize.rewrite import loops_of
from tinyweb.graph.program import Program
from tinyweb.graph.target import Target

MAX_TILE = 512  # elements of one node: every one of them is emitted
MAX_STAGED_BYTES = 1 << 19  # of register memory, which lies on a worker's stack
FULL = 1 << 13  # threads that keep a GPU busy
FLAT_EXCHANGE = 8  # up to this many partial results are read by every thread at once; more are combined in two steps
FLAT_IN_LOOP = 16  # the same where that is done again and again, and each barrier counts
SLOW = {Ops.DIV: 8.0, Ops.SQRT: 8.0, Ops.RECIPROCAL: 8.0, Ops.FLOORDIV: 12.0, Ops.MOD: 12.0}
FREE = frozenset({Ops.CONST, Ops.PARAM, Ops.BUFFER, Ops.VARIABLE, Ops.SPECIAL, Ops.AFTER, Ops.END})


def exchange_step(count: int) -> int:
    """How many values the second of two steps combines, where so many are exchanged."""
    return 1 << (((count - 1).bit_length() + 1) // 2)


def refusal(kernel: UOp, target: Target) -> str:
    """Why a scheduled kernel is not worth lowering for the target, or cannot be; empty where nothing speaks against
    it.
    """
    tile = max((_elements(u) for u in kernel.toposort()), default=1)
    if tile > MAX_TILE:
        return f"a tile of {tile} elements is more than {MAX_TILE}"
    return excess(kernel, target)


def excess(kernel: UOp, target: Target) -> str:
    """What a scheduled kernel asks for that the target does not have; empty where it fits."""
    loops = loops_of(kernel)
    threads: dict[int, int] = {}
    for r in loops.ranges:
        if r.arg.kind is AxisKind.THREAD:
            threads[r.arg.dim] = max(threads.get(r.arg.dim, 1), r.src[0].vmax)
        if r.arg.kind is AxisKind.GRID and r.arg.dim >= target.grid_dims:
            return f"{target.name} has no dimension {r.arg.dim} of the grid"
    if threads and not target.has_threads:
        return f"{target.name} has no threads"
    if prod(threads.values()) > target.max_invocations or any(n > target.max_workgroup[d] for d, n in threads.items()):
        return f"a workgroup of {prod(threads.values())} threads is more than {target.name} has"
    staged = {Space.REGISTER: 0, Space.SHARED: 0}
    for u in loops.stages:
        staged[u.arg.space] += u.dtype.nbytes(u.arg.strides([r.src[0].vmax for r in u.src[1:]])[1])
    if staged[Space.SHARED] > target.shared_bytes:
        return f"{staged[Space.SHARED]} bytes of shared memory are more than {target.name} has"
    if staged[Space.REGISTER] > MAX_STAGED_BYTES:
        return f"{staged[Space.REGISTER]} bytes staged by one worker are more than {MAX_STAGED_BYTES}"
    if target.language == "c" and any(s.src[0].dtype.bits < 8 for s in kernel.src) and _shares_grid(loops.ranges):
        return "two workers would update parts of one byte"
    return ""


def exchange_bytes(kernel: UOp) -> int:
    """Of shared memory, through which threads exchange what they have reduced, at most."""
    threads = {r.arg.dim: r.src[0].vmax for r in loops_of(kernel).ranges if r.arg.kind is AxisKind.THREAD}
    total = 0
    for u in kernel.toposort():
        dims = {r.arg.dim for r in u.src[1:] if r.arg.kind is AxisKind.THREAD} if u.op is Ops.REDUCE else ()
        if dims:
            count, teams = (prod(n for d, n in threads.items() if (d in dims) == mine) for mine in (True, False))
            second = exchange_step(count) if count > FLAT_EXCHANGE else 0
            total += u.dtype.nbytes(_elements(u) * teams * (count + second))
    return total


def _elements(u: UOp) -> int:
    return prod(r.src[0].vmax for r in u.lanes)


def _shares_grid(ranges: tuple[UOp, ...]) -> bool:
    return any(r.arg.kind is AxisKind.GRID and r.src[0].vmax > 1 for r in ranges)


def workgroups(program: Program) -> int:
    """The largest size of a program's grid."""
    return prod(map(size_max, program.grid))


def estimate(program: Program, target: Target) -> float:
    """Steps of the slowest worker (or of all threads of a GPU in turns), in arbitrary units."""
    width, trips, steps = max(target.vector_lanes, 1), 1.0, 0.0
    above: list[float] = []
    indexed = _indexed(program)
    held = 0
    for u in program.uops:
        if u.op is Ops.RANGE:
            above.append(trips)
            steps += trips
            trips *= _usual(u.src[0])
            steps += 2 * trips
        elif u.op is Ops.END:
            trips = above.pop()
        elif u.op is Ops.BUFFER and u.arg.space is Space.REGISTER and u not in indexed:
            held += -(-u.arg.size // width)
        elif u.op not in FREE:
            steps += trips * _cost(u, width, indexed)
    limit = target.vector_registers
    # what does not fit into registers is written and read again in every step
    crowded = 1.0 + 0.15 * max(held - limit + 3, 0) if target.language == "c" else 1.0 + 0.01 * max(held - 32, 0)
    groups = workgroups(program)
    if target.has_threads:
        threads = groups * prod(program.workgroup)
        return steps * crowded * max(threads, FULL) / FULL
    workers = max(target.parallel_threads, 1)
    return steps * crowded * -(-groups // workers)


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

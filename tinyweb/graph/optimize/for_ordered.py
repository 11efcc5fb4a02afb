"""Schedules of scans and scatters: rows side by side, in vectors where they lie so in memory."""

from __future__ import annotations

from tinyweb.graph.ir import AxisKind, UOp
from tinyweb.graph.optimize.analysis import largest_divisor, power_of_two
from tinyweb.graph.optimize.builder import WORTH_SHARING, Builder
from tinyweb.graph.optimize.divide import Partition, scatters, serial_axes
from tinyweb.graph.optimize.for_gpu import schedule_threads
from tinyweb.graph.symbolic import const_factor

CHAINS = 8  # steps of independent rows that hide each other's latency
THREADS = 1 << 6  # fewer leave a GPU waiting for each step; more parts walk over more that is not theirs


def schedule_ordered(b: Builder) -> bool:
    """Kernels with an ordered axis."""
    k = b.k
    serial = serial_axes(k.kernel)
    if not serial:
        return False
    free = [r for r in k.outputs if k.size(r) > 1]
    if b.target.thread_dims:
        return _over_threads(b, serial[0], k.volume(free))
    workers = b.target.parallel_threads
    shared = workers > 1 and k.volume([*free, *serial]) >= WORTH_SHARING
    loops = {r: r.arg.name for r in free}
    column = next((r for r in free if all(k.contiguous(s, r) for s in k.stores)), None)
    if column is not None:
        lanes = power_of_two(const_factor(k.exact(column)), 2 * b.target.vector_lanes)
        loops[column] = name = b.tile(column.arg.name, lanes, AxisKind.VECTOR)
        if shared and name and scatters(k.kernel) and b.size(name) >= 2 * workers:
            # a step goes on through all that a worker has of the row that an index names
            loops[column], _ = b.split(name, -(-b.size(name) // workers))
    elif free:
        divisors = {r: largest_divisor(const_factor(k.exact(r)), CHAINS) for r in free}
        row = max(free, key=lambda r: (divisors[r], k.size(r)))
        chains = divisors[row]
        loops[row] = b.tile(row.arg.name, min(chains if chains > 2 else CHAINS, k.size(row)), AxisKind.UNROLL)
    longest = max((name for name in loops.values() if name), key=b.size, default="")
    if shared and longest and b.size(longest) > 1:
        b.bind(longest, AxisKind.GRID)
    return True


def _over_threads(b: Builder, serial: UOp, outputs: int) -> bool:
    """A thread for each row; of a scatter into few rows, for each part of a row."""
    places = max(s.src[0].arg.size for s in b.k.stores)
    parts = 1
    while 2 * parts * outputs <= min(THREADS, places):
        parts *= 2
    if not scatters(b.k.kernel) or parts == 1:
        return False
    b.rewrite(Partition(serial.arg.name, parts))
    return schedule_threads(b)

"""Schedules of scans and scatters: rows side by side, in vectors where they lie so in memory."""

from __future__ import annotations

from tinyweb.graph.ir import AxisKind, Ops, UOp
from tinyweb.graph.optimize.analysis import largest_divisor, power_of_two
from tinyweb.graph.optimize.builder import WORTH_SHARING, Builder
from tinyweb.graph.optimize.rewrite import ranges_of
from tinyweb.graph.symbolic import const_factor

CHAINS = 8  # steps of independent rows that hide each other's latency


def schedule_ordered(b: Builder) -> bool:
    """Kernels with an ordered axis."""
    k = b.k
    serial = [r for r in ranges_of(k.kernel) if r.arg.kind is AxisKind.ORDERED]
    if not serial:
        return False
    free = [r for r in k.outputs if k.size(r) > 1]
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


def scatters(kernel: UOp) -> bool:
    """Whether all that is stored lies where an index in memory says."""
    return all(any(u.op is Ops.LOAD for u in store.src[1].toposort()) for store in kernel.src)

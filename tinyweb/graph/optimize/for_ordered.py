"""Schedules of scans and scatters: rows side by side, in vectors where they lie so in memory."""

from __future__ import annotations

from tinyweb.graph.ir import AxisKind, UOp
from tinyweb.graph.optimize.actions import Action, Bind, Split
from tinyweb.graph.optimize.analysis import Analysis
from tinyweb.graph.optimize.for_gpu import schedule_threads
from tinyweb.graph.optimize.partition import Partition, scatters, serial_axes
from tinyweb.graph.symbolic import const_factor
from tinyweb.graph.target import Target

CHAINS = 8  # steps of independent rows that hide each other's latency
WORTH_SHARING = 1 << 15  # steps from which waking the other workers pays
THREADS = 1 << 12  # that keep a GPU busy with memory


def schedule_ordered(k: Analysis, target: Target) -> list[Action] | None:
    """None for kernels without an ordered axis."""
    serial = serial_axes(k.kernel)
    if not serial:
        return None
    free = [r for r in k.outputs if k.size(r) > 1]
    if target.has_threads:
        return _over_threads(k, serial[0], k.volume(free), target)
    shared = target.parallel_threads > 1 and k.volume([*free, *serial]) >= WORTH_SHARING
    actions: list[Action] = []
    loops = {r: (r.arg.name, k.size(r)) for r in free}
    column = next((r for r in free if all(k.contiguous(s, r) for s in k.stores)), None)
    if column is not None:
        lanes = 1
        while lanes < 2 * target.vector_lanes and const_factor(k.exact(column)) % (2 * lanes) == 0:
            lanes *= 2
        name, count = column.arg.name, k.size(column) // lanes
        if lanes > 1:
            actions += [Split(name, lanes), Bind(f"{name}.1", AxisKind.VECTOR)]
            name += ".0"
        if shared and scatters(k.kernel) and count >= 2 * target.parallel_threads:
            # a step goes on through all that a worker has of the row that an index names
            actions.append(Split(name, -(-count // target.parallel_threads)))
            name, count = f"{name}.0", target.parallel_threads
        loops[column] = (name, count)
    elif free:
        row = max(free, key=lambda r: (_divisor(k.exact(r), CHAINS), k.size(r)))
        chains = _divisor(k.exact(row), CHAINS)
        chains = min(chains if chains > 2 else CHAINS, k.size(row))
        actions += [Split(row.arg.name, chains), Bind(f"{row.arg.name}.1", AxisKind.UNROLL)]
        loops[row] = (f"{row.arg.name}.0", -(-k.size(row) // chains))
    name, count = max(loops.values(), key=lambda entry: entry[1], default=("", 1))
    if shared and count > 1:
        actions.append(Bind(name, AxisKind.GRID))
    return actions


def _over_threads(k: Analysis, serial: UOp, outputs: int, target: Target) -> list[Action] | None:
    """A thread for each row; of a scatter into few rows, for each part of a row."""
    places = max(s.src[0].arg.size for s in k.stores)
    parts = 1
    while 2 * parts * outputs <= min(THREADS, places):
        parts *= 2
    if not scatters(k.kernel) or parts == 1:
        return None
    partition = Partition(serial.arg.name, parts)
    return [partition, *schedule_threads(Analysis(partition.apply(k.kernel)), target)]


def _divisor(size: int | UOp, most: int) -> int:
    """The largest number up to `most` that is sure to divide a size."""
    factor = const_factor(size)
    return next(f for f in range(most, 0, -1) if factor % f == 0)

"""Loop-invariant code motion out of the loop over the grid: arrays that every step would fill alike are filled once.

On targets without threads a program is the body of a loop, whose variable is the SPECIAL of the grid. What stands
before that node is carried out once for each call, what stands behind it in every step.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinyweb.graph.ir import Ops, UOp, toposort


def once_per_call(uops: Sequence[UOp]) -> tuple[UOp, ...]:
    """The program with all that fills such arrays, loops included, before the index of the grid; the rest behind it.

    An array is a buffer whose index is no constant. It is filled alike where neither a store to it nor a loop around
    one depends on the grid or on memory that the program changes.
    """
    grid = next((u for u in uops if u.op is Ops.SPECIAL), None)
    if grid is None:
        return tuple(uops)
    accesses = [u for u in uops if u.op in (Ops.LOAD, Ops.STORE)]
    stores = [u for u in accesses if u.op is Ops.STORE]
    arrays = {u.src[0].buffer for u in accesses if u.src[0].buffer.op is Ops.BUFFER}
    end_of = {u.src[-1]: u for u in uops if u.op is Ops.END}
    fills = {u: [u, *(end_of[r] for r in u.ranges if r in end_of)] for u in stores}
    varying = arrays
    while varying:
        alike = _alike(uops, arrays, {u.src[0].buffer for u in stores})
        varying = arrays & {u.src[0].buffer for u in stores if any(part not in alike for part in fills[u])}
        arrays -= varying
    first = set(grid.toposort())
    first.update(toposort(part for u in stores if u.src[0].buffer in arrays for part in fills[u]))
    return (*(u for u in uops if u in first and u is not grid), grid, *(u for u in uops if u not in first))


def _alike(uops: Sequence[UOp], arrays: set[UOp], written: set[UOp]) -> set[UOp]:
    """Nodes that are the same in every step if `arrays` are."""
    found: set[UOp] = set()
    for u in uops:
        varies = (
            u.op is Ops.SPECIAL
            or (u.op is Ops.BUFFER and u not in arrays)
            or (u.op is Ops.PARAM and u in written)
            or (u.op is Ops.STORE and u.src[0].buffer not in arrays)
        )
        if not varies and found.issuperset(u.src):
            found.add(u)
    return found

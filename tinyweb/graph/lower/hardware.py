"""GRID and THREAD ranges become the hardware's indices.

Several GRID ranges of one dimension are flattened, the highest order varying fastest; THREAD ranges of one dimension
share one index and must have one size. Dimensions of threads from the third on are flattened into the hardware's third,
the lowest varying fastest. A store that does not depend on such an index is carried out where the index
is 0. A grid longer than the target allows is spread over a further dimension and gated.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import (
    AxisKind,
    Ops,
    Size,
    UOp,
    as_index,
    axis_size,
    nested,
    rebuild,
    size_add,
    size_max,
    size_mul,
    substitute,
)
from tinyweb.graph.lower.constructors import both, index_const
from tinyweb.graph.symbolic import simplify
from tinyweb.graph.target import Target


@dataclass(frozen=True)
class Launch:
    """How many workgroups of how many threads."""

    grid: tuple[Size, Size, Size]
    workgroup: tuple[int, int, int]


def bind_hardware(kernel: UOp, target: Target) -> tuple[UOp, Launch]:
    """The kernel with its GRID and THREAD ranges replaced by SPECIAL nodes; ValueError where the target cannot."""
    ranges = nested(u for u in kernel.toposort() if u.op is Ops.RANGE)
    grids: dict[int, list[UOp]] = {}
    threads: dict[int, list[UOp]] = {}
    for r in ranges:
        if r.arg.kind is AxisKind.GRID:
            if r.arg.reduce:
                raise ValueError(f"axis {r.arg.name} is reduced and cannot be bound to the grid")
            if r.arg.dim >= target.grid_dims:
                raise ValueError(
                    f"axis {r.arg.name}: there is no grid dimension {r.arg.dim}; {target.name} has {target.grid_dims}"
                )
            grids.setdefault(r.arg.dim, []).append(r)
        elif r.arg.kind is AxisKind.THREAD:
            threads.setdefault(r.arg.dim, []).append(r)
    workgroup = _workgroup(threads, target)
    ordered = [r for r in ranges if r.arg.kind is AxisKind.ORDERED]
    kernel = substitute(kernel, {r: r.replace(arg=replace(r.arg, kind=AxisKind.LOOP)) for r in ordered})
    kernel = _gate_idle(kernel, grids, threads)

    grid: list[Size] = [1, 1, 1]
    table: dict[UOp, UOp] = {}
    for dim, members in grids.items():
        total: Size = 1
        for r in members:
            total = size_mul(total, axis_size(r))
        grid[dim] = total
    used = {dim: UOp(Ops.SPECIAL, dtypes.index, (as_index(grid[dim]),), ("grid", dim)) for dim in grids}
    excess, grid = _within_limits(used, grid, target)
    for dim, members in grids.items():
        flat = excess.get(dim, (used[dim], None))[0]
        if len(members) == 1:
            table[members[0]] = flat
            continue
        for i, r in reversed(list(enumerate(members))):
            table[r] = flat % as_index(axis_size(r)) if i else flat
            if i:
                flat = flat // as_index(axis_size(r))
    rest, beyond = UOp(Ops.SPECIAL, dtypes.index, (index_const(workgroup[2]),), ("thread", 2)), 1
    for dim, members in sorted(threads.items()):
        size = axis_size(members[0])
        assert isinstance(size, int)
        index = UOp(Ops.SPECIAL, dtypes.index, (index_const(size),), ("thread", dim))
        if dim >= 2:
            index, beyond = rest if size == workgroup[2] else rest // beyond % size, beyond * size
        table |= dict.fromkeys(members, index)
    # a REDUCE over a THREAD range now names the SPECIAL: what combines the threads' partial results looks for it
    kernel = substitute(kernel, table)
    for flat, gate in excess.values():
        if gate is not None:
            kernel = _gate_users(kernel, flat, gate)
    return kernel, Launch((grid[0], grid[1], grid[2]), workgroup)


def _workgroup(threads: dict[int, list[UOp]], target: Target) -> tuple[int, int, int]:
    if threads and not target.has_threads:
        raise ValueError(
            f"axis {next(iter(threads.values()))[0].arg.name} is bound to threads, which {target.name} does not have"
        )
    out = [1, 1, 1]
    for dim, members in threads.items():
        sizes = {axis_size(r) for r in members}
        size = next(iter(sizes))
        if len(sizes) > 1 or not isinstance(size, int):
            names = ", ".join(r.arg.name for r in members)
            raise ValueError(f"axes {names} share thread dimension {dim} and must have one constant size")
        place = min(dim, 2)
        out[place] *= size
        if out[place] > target.max_workgroup[place]:
            raise ValueError(
                f"axis {members[0].arg.name}: {out[place]} threads in dimension {place} are more than the "
                f"{target.max_workgroup[place]} of {target.name}"
            )
    if out[0] * out[1] * out[2] > target.max_invocations:
        raise ValueError(
            f"a workgroup of {out[0]}x{out[1]}x{out[2]} has more threads than {target.name}'s {target.max_invocations}"
        )
    return out[0], out[1], out[2]


def _gate_idle(kernel: UOp, grids: dict[int, list[UOp]], threads: dict[int, list[UOp]]) -> UOp:
    """Stores that do not vary with a hardware index happen once: where that index is 0."""
    groups = [[r] for members in grids.values() for r in members] + list(threads.values())
    stores = []
    for store in kernel.src:
        gate = store.src[3] if len(store.src) > 3 else None
        free = store.src[1].ranges if gate is None else store.src[1].ranges | gate.ranges
        for group in groups:
            if not free.intersection(group):
                gate = both(gate, group[0].equal(0))
        stores.append(store.src[0].store(store.src[1], store.src[2], gate))
    return kernel.replace(src=tuple(stores))


def _within_limits(
    used: dict[int, UOp], grid: list[Size], target: Target
) -> tuple[dict[int, tuple[UOp, UOp | None]], list[Size]]:
    """For each dimension that is too long: the index over two dimensions, and the gate that it is inside."""
    out: dict[int, tuple[UOp, UOp | None]] = {}
    grid = list(grid)
    spare = [d for d in range(target.grid_dims) if d not in used]
    for dim in used:
        longest = size_max(grid[dim])
        if longest <= target.max_grid:
            continue
        rows = -(-longest // target.max_grid)
        if not spare or rows > target.max_grid:
            raise ValueError(
                f"grid dimension {dim} may need {longest} workgroups; {target.name} allows {target.max_grid} "
                f"in each of {target.grid_dims} dimensions"
            )
        other = spare.pop(0)
        total = grid[dim]
        width = -(-total // rows) if isinstance(total, int) else simplify(as_index(size_add(total, rows - 1)) // rows)
        grid[dim], grid[other] = width, rows
        x = UOp(Ops.SPECIAL, dtypes.index, (as_index(width),), ("grid", dim))
        y = UOp(Ops.SPECIAL, dtypes.index, (index_const(rows),), ("grid", other))
        flat = y * as_index(width) + x
        exact = isinstance(total, int) and isinstance(width, int) and width * rows == total
        out[dim] = (flat, None if exact else flat < as_index(total))
    return out, grid


def _gate_users(kernel: UOp, flat: UOp, gate: UOp) -> UOp:
    """The kernel with `gate` on all stores, and on all loads whose index depends on `flat`."""
    depends: set[UOp] = {flat}

    def gated(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if not depends.isdisjoint(u.src):
            depends.add(u)
        if u.op is Ops.STORE:
            return u.with_sources(_with_gate(src, 3, gate))
        return u.with_sources(_with_gate(src, 2, gate)) if u.op is Ops.LOAD and u.src[1] in depends else None

    return rebuild(kernel.toposort(), gated)[kernel]


def _with_gate(src: tuple[UOp, ...], position: int, gate: UOp) -> tuple[UOp, ...]:
    joined = both(src[position] if len(src) > position else None, gate)
    return src[:position] if joined is None else (*src[:position], joined)

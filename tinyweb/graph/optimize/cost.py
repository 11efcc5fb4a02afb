"""What a scheduled kernel asks of a target: lanes, threads, memory of a workgroup and of a worker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import prod

from tinyweb.dtype import DType
from tinyweb.graph.ir import AxisKind, Ops, Space, UOp
from tinyweb.graph.optimize.rewrite import loops_of
from tinyweb.graph.target import Target

MAX_TILE = 512  # elements of one node: every one of them is emitted
MAX_STAGED_BYTES = 1 << 19  # of register memory, which lies on a worker's stack
FLAT_EXCHANGE = 8  # up to this many partial results are read by every thread at once; more are combined in two steps
FLAT_IN_LOOP = 16  # the same where that is done again and again, and each barrier counts


def exchange_step(count: int) -> int:
    """How many values the second of two steps combines, where so many are exchanged."""
    return 1 << (((count - 1).bit_length() + 1) // 2)


def exchanged(count: int) -> int:
    """Operations of as many threads that each combine what all of them have."""
    step = exchange_step(count)
    return count * (count if count <= FLAT_EXCHANGE else step + -(-count // step))


def refusal(kernel: UOp, target: Target) -> str:
    """Why a scheduled kernel is not worth lowering for the target, or cannot be; empty where nothing speaks against
    it.
    """
    # the steps of an instruction are no elements of their own
    tile = max(_volume(r for r in u.lanes if r.arg.kind is not AxisKind.DOT) for u in kernel.toposort())
    if tile > MAX_TILE:
        return f"a tile of {tile} elements is more than {MAX_TILE}"
    return excess(kernel, target)


def excess(kernel: UOp, target: Target) -> str:
    """What a scheduled kernel asks for that the target does not have; empty where it fits."""
    loops = loops_of(kernel)
    threads = threads_of(kernel)
    for r in loops.ranges:
        if r.arg.kind is AxisKind.GRID and r.arg.dim >= target.grid_dims:
            return f"{target.name} has no dimension {r.arg.dim} of the grid"
    if threads and not target.thread_dims:
        return f"{target.name} has no threads"
    sizes = [prod(n for d, n in threads.items() if min(d, 2) == dim) for dim in range(3)]
    if prod(sizes) > target.max_invocations or any(n > most for n, most in zip(sizes, target.max_workgroup)):
        return f"a workgroup of {prod(threads.values())} threads is more than {target.name} has"
    if (staged := staged_bytes(kernel, Space.SHARED)) > target.shared_bytes:
        return f"{staged} bytes of shared memory are more than {target.name} has"
    if (staged := staged_bytes(kernel, Space.REGISTER)) > MAX_STAGED_BYTES:
        return f"{staged} bytes staged by one worker are more than {MAX_STAGED_BYTES}"
    shared = any(r.arg.kind is AxisKind.GRID and r.src[0].vmax > 1 for r in loops.ranges)
    if shared and not all(target.stores_apart(s.src[0].dtype) for s in kernel.src):
        return "two workers would update parts of one byte"
    return ""


def threads_of(kernel: UOp) -> dict[int, int]:
    """How many threads a workgroup has, by dimension."""
    return {r.arg.dim: r.src[0].vmax for r in loops_of(kernel).ranges if r.arg.kind is AxisKind.THREAD}


def staged_bytes(kernel: UOp, space: Space) -> int:
    """Of what is staged in a space, each lane and thread that is none of a STAGE's own having memory for itself."""
    total = 0
    for u in (u for u in loops_of(kernel).stages if u.arg.space is space):
        threads = [r for r in u.ranges if r.arg.kind is AxisKind.THREAD and space is Space.SHARED]
        _, size = u.arg.strides([r.src[0].vmax for r in u.src[1:]])
        total += u.dtype.nbytes(size * _volume([*u.lanes, *threads]) * u.arg.slots)
    return total


def exchange_bytes(kernel: UOp) -> list[Counter[DType]]:
    """Of shared memory of each type, through which threads exchange what they have reduced, at most: of reductions that
    need nothing of such others, of those that need their results, and so on. Those of a stage may share their loops.
    """
    threads, found, stages = threads_of(kernel), list[Counter[DType]](), dict[UOp, int]()
    for u in kernel.toposort():
        dims = {r.arg.dim for r in u.src[1:] if r.arg.kind is AxisKind.THREAD} if u.op is Ops.REDUCE else ()
        stage = stages[u] = max((stages[s] for s in u.src), default=0) + bool(dims)
        if dims:
            count, teams = (prod(n for d, n in threads.items() if (d in dims) == mine) for mine in (True, False))
            second = exchange_step(count) if count > FLAT_EXCHANGE else 0
            found += [Counter()] * (stage - len(found))
            found[stage - 1] += Counter({u.dtype: u.dtype.nbytes(_volume(u.lanes) * teams * (count + second))})
    return found


def _volume(ranges: Iterable[UOp]) -> int:
    return prod(r.src[0].vmax for r in ranges)

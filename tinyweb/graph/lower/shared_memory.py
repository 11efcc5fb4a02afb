"""Shared memories of a workgroup that are not needed at the same time lie in one place."""

from __future__ import annotations

from collections.abc import Sequence

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import DescribedArg, Ops, Space, UOp
from tinyweb.graph.schedule.memory_plan import plan_memory

ALIGNMENT = 16  # bytes at which a memory begins: of the widest vector
DESCRIBED = 1024  # … where instructions read it by descriptors


def share_memory(uops: Sequence[UOp], limit: int) -> tuple[UOp, ...]:
    """The program with SHARED buffers of one type that live one after the other in one buffer.

    A life is a number of stretches of the program, which lie between barriers outside of all loops. Where more than
    `limit` bytes would be needed, stretches end behind loops too, and barriers are added where memory changes hands.
    """
    out = _shared(uops, False)
    return out if sum(shared_places(out).values()) <= limit else _shared(uops, True)


def is_described(uops: Sequence[UOp]) -> bool:
    """Whether instructions of a program read shared memory by descriptors."""
    return any(isinstance(u.arg, DescribedArg) for u in uops)


def shared_places(uops: Sequence[UOp]) -> dict[UOp, int]:
    """The bytes of each shared memory of a program, those up to where the next may begin included."""
    buffers = [u for u in uops if _is_shared(u)]
    alignment = DESCRIBED if buffers and is_described(uops) else ALIGNMENT
    return {u: -(-u.dtype.nbytes(u.arg.size) // alignment) * alignment for u in buffers}


def shared_bytes(uops: Sequence[UOp]) -> int:
    """Bytes that the shared memories of a program have."""
    return sum(u.dtype.nbytes(u.arg.size) for u in uops if _is_shared(u))


def _is_shared(u: UOp) -> bool:
    return u.op is Ops.BUFFER and u.arg.space is Space.SHARED


def _shared(uops: Sequence[UOp], behind_loops: bool) -> tuple[UOp, ...]:
    uses: list[dict[UOp, None]] = [{}]
    open_: dict[int, UOp] = {}  # stretches that begin without a barrier, behind the end of a loop
    depth = 0
    for u in uops:
        if u.op is Ops.BARRIER and u.arg == "sent":
            continue
        depth += (u.op is Ops.RANGE) - (u.op is Ops.END)
        if u.op in (Ops.LOAD, Ops.STORE) and _is_shared(u.src[0].buffer):
            uses[-1][u.src[0].buffer] = None
        elif not depth and (u.op is Ops.BARRIER or (behind_loops and u.op is Ops.END)):
            if not uses[-1]:  # the stretch that has just begun
                if u.op is Ops.BARRIER:
                    open_.pop(len(uses) - 1, None)
                continue
            if u.op is Ops.END:
                open_[len(uses)] = u
            uses.append({})
    table: dict[UOp, UOp] = {}
    buffers = [u for u in uops if _is_shared(u)]
    for dtype in {b.dtype for b in buffers}:
        plan = plan_memory([tuple(s) for s in uses], [b for b in buffers if b.dtype is dtype])
        largest: dict[int, UOp] = {}
        for b in sorted(plan.pool_of, key=lambda b: (-b.arg.size, b.arg.id)):
            table[b] = largest.setdefault(plan.pool_of[b], b)
    if all(a is b for a, b in table.items()):
        return tuple(uops)
    needed = _barriers(uses, table, open_)
    out: dict[UOp, None] = {}
    for u in uops:
        if u not in table:
            src = tuple(table.get(s, s) for s in u.src)
            table[u] = u if src == u.src else u.replace(src=src)
        out[table[u]] = None
        if u in needed:
            out[UOp(Ops.BARRIER, dtypes.void, (table[u],))] = None
    return tuple(out)


def _barriers(uses: Sequence[dict[UOp, None]], table: dict[UOp, UOp], open_: dict[int, UOp]) -> set[UOp]:
    """The loops behind which memory changes hands without a barrier on the way."""
    last: dict[UOp, tuple[UOp, int]] = {}  # what has a place, and the last stretch in which it was used
    needed: set[UOp] = set()
    for i, stretch in enumerate(uses):
        for b in stretch:
            before, at = last.get(table[b], (b, i))
            if before is not b and all(j in open_ for j in range(at + 1, i + 1)):
                needed.add(open_[i])
        last.update({table[b]: (b, i) for b in stretch})
    return needed

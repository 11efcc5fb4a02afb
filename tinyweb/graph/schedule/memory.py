"""The memory plan: temporaries whose lifetimes do not overlap share a pool."""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass

from tinyweb.graph.ir import UOp


@dataclass(frozen=True)
class MemoryPlan:
    """`pool_of[buffer]` is the pool a temporary lives in (at its start); `pool_bytes[pool]` its size."""

    pool_of: dict[UOp, int]
    pool_bytes: tuple[int, ...]


def nbytes(buffer: UOp) -> int:
    """Bytes of a BUFFER, rounded up to whole 32-bit words as every runtime allocates them."""
    return -(-buffer.dtype.nbytes(buffer.arg.size) // 4) * 4


def _is_free(taken: list[tuple[int, int]], first: int, last: int) -> bool:
    """Whether none of the spans, which are apart and in order, meets first … last."""
    i = bisect_right(taken, (last, math.inf))
    return i == 0 or taken[i - 1][1] < first


def plan_memory(uses: Sequence[Sequence[UOp]], temporaries: Sequence[UOp]) -> MemoryPlan:
    """`uses[i]` are the buffers call i touches. A temporary lives from its first to its last use, both included.

    Largest first, each into the pool that fits with the least waste (greedy best fit, Pisarchyk and Lee 2020).
    """
    life: dict[UOp, tuple[int, int]] = {}
    wanted = set(temporaries)
    for i, buffers in enumerate(uses):
        for b in buffers:
            if b in wanted:
                life[b] = (life.get(b, (i, i))[0], i)
    pools: list[tuple[int, list[tuple[int, int]]]] = []  # bytes, and when it is taken, in order
    pool_of: dict[UOp, int] = {}
    for b in sorted(life, key=lambda b: (-nbytes(b), life[b])):
        first, last = life[b]
        free = [
            (size, p) for p, (size, taken) in enumerate(pools) if size >= nbytes(b) and _is_free(taken, first, last)
        ]
        if free:
            p = min(free)[1]
        else:
            p = len(pools)
            pools.append((nbytes(b), []))
        insort(pools[p][1], (first, last))
        pool_of[b] = p
    return MemoryPlan(pool_of, tuple(size for size, _ in pools))

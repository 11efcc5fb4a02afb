"""The memory plan: temporaries whose lifetimes do not overlap share a pool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tinyweb.graph.ir import UOp


@dataclass(frozen=True)
class MemoryPlan:
    """`pool_of[buffer]` is the pool a temporary lives in (at its start); `pool_bytes[pool]` its size; of a plan of
    several devices `pool_devices[pool]` where it is."""

    pool_of: dict[UOp, int]
    pool_bytes: tuple[int, ...]
    pool_devices: tuple[str, ...] = ()

    @property
    def zeroed_pools(self) -> frozenset[int]:
        """Pools that begin as zeros: those of elements smaller than bytes, which are stored by updates of words."""
        return frozenset(p for b, p in self.pool_of.items() if b.dtype.bits < 8)


def nbytes(buffer: UOp) -> int:
    """Bytes of a BUFFER, rounded up to whole 32-bit words as every runtime allocates them."""
    return -(-buffer.dtype.nbytes(buffer.arg.size) // 4) * 4


def plan_memory(
    uses: Sequence[Sequence[UOp]], temporaries: Sequence[UOp], devices: Mapping[UOp, str] | None = None
) -> MemoryPlan:
    """`uses[i]` are the buffers call i touches. A temporary lives from its first to its last use, both included.
    `devices`: where each lives, if there are several.

    Largest first, each into the pool that fits with the least waste (greedy best fit, Pisarchyk and Lee 2020).
    """
    life: dict[UOp, tuple[int, int]] = {}
    wanted = set(temporaries)
    for i, buffers in enumerate(uses):
        for b in buffers:
            if b in wanted:
                life[b] = (life.get(b, (i, i))[0], i)
    sizes: list[int] = []  # of the pools
    places: list[str] = []  # … on which device
    busy: list[int] = []  # the calls a pool is taken in, as bits
    pool_of: dict[UOp, int] = {}
    for b in sorted(life, key=lambda b: (-nbytes(b), life[b])):
        first, last = life[b]
        span = (2 << last) - (1 << first)
        # every pool is at least as large, since larger buffers came first
        place = devices[b] if devices else ""
        free = [p for p, taken in enumerate(busy) if places[p] == place and not taken & span]
        if free:
            p = min(free, key=sizes.__getitem__)
        else:
            p = len(sizes)
            sizes.append(nbytes(b))
            places.append(place)
            busy.append(0)
        busy[p] |= span
        pool_of[b] = p
    return MemoryPlan(pool_of, tuple(sizes), tuple(places) if devices else ())

"""Which memory a bundle has: weights and states by name, and pools that the temporaries of all entry points share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tinyweb.dtype import DType
from tinyweb.graph.ir import UOp

if TYPE_CHECKING:
    from tinyweb.tracing import Plan


@dataclass(frozen=True)
class Named:
    """Memory that outlives a call. `read` gives a weight's bytes when they are written (states start as zeros)."""

    name: str
    kind: str  # "weight" or "state"
    buffer: UOp
    dtype: DType
    shape: tuple[int, ...]
    nbytes: int
    read: Callable[[], bytes | memoryview] | None = None


@dataclass(frozen=True)
class Memory:
    """All memory of a bundle, by id: the named buffers first, then the pools."""

    named: tuple[Named, ...]
    pools: tuple[int, ...]  # bytes
    ids: dict[UOp, int]  # of every BUFFER any plan mentions

    def total(self, kind: str) -> int:
        """Bytes of all weights ("weight") or states ("state")."""
        return sum(n.nbytes for n in self.named if n.kind == kind)

    @property
    def pool_bytes(self) -> int:
        return sum(self.pools)

    def size(self, id: int) -> int:
        """Bytes of the buffer or pool with this id."""
        return self.named[id].nbytes if id < len(self.named) else self.pools[id - len(self.named)]


def plan_memory(plans: Mapping[str, Plan], named: list[Named]) -> Memory:
    """Give every buffer its id.

    Weights that no kernel reads are left out. Entry points never run at the same time, so their pools share memory: the
    largest pool of one with the largest of another, and so on.
    """
    used = {b for plan in plans.values() for call in plan.calls for b in call.buffers}
    kept: dict[UOp, Named] = {}
    for n in named:
        if n.buffer in used or n.kind == "state":
            kept.setdefault(n.buffer, n)
    names = Counter(n.name for n in kept.values())
    if twice := [name for name, count in names.items() if count > 1]:
        raise AssertionError(f"two buffers of the model are called {twice[0]}")
    ids = {b: i for i, b in enumerate(kept)}
    pools: list[int] = []
    for plan in plans.values():
        order = sorted(range(len(plan.pool_bytes)), key=lambda p: (-plan.pool_bytes[p], p))
        rank = {pool: r for r, pool in enumerate(order)}
        for pool, r in rank.items():
            if r == len(pools):
                pools.append(0)
            pools[r] = max(pools[r], plan.pool_bytes[pool])
        for buffer, pool in plan.memory.pool_of.items():
            ids[buffer] = len(kept) + rank[pool]
    if unknown := used - ids.keys():
        sizes = ", ".join(sorted(f"{b.arg.size} × {b.dtype.short}" for b in unknown))
        raise AssertionError(f"kernels use memory that is neither a weight, a state nor a temporary: {sizes}")
    return Memory(tuple(kept.values()), tuple(pools), ids)

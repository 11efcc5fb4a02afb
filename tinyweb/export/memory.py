"""Which memory a bundle has: weights and states by name, and pools that the temporaries of all entry points share.

Memory that a target binds in parts has a name and an id for each part; they lie side by side, so that to a target that
binds the whole it is where its first part begins.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from tinyweb.device import Device
from tinyweb.dtype import DType
from tinyweb.graph.ir import UOp
from tinyweb.graph.schedule.parts import Parts

if TYPE_CHECKING:
    from tinyweb.tracing import Plan

STEP = 16 << 20  # bytes of a weight that are read at a time


@dataclass(frozen=True)
class Named:
    """Memory that outlives a call. `read` gives bytes of a weight, from an offset on, when they are written (states
    start as zeros)."""

    name: str
    kind: str  # "weight" or "state"
    buffer: UOp
    dtype: DType
    shape: tuple[int, ...]
    nbytes: int
    read: Callable[[int, int], bytes | memoryview] | None = None

    def content(self) -> Iterator[bytes | memoryview]:
        """The bytes of a weight, some at a time."""
        assert self.read is not None
        for at in range(0, self.nbytes, STEP):
            yield self.read(at, min(STEP, self.nbytes - at))

    def parts(self, divided: Parts) -> Iterator[Named]:
        """Its parts, with the whole's inner axes as far as they hold whole ones."""
        stem, dot, last = self.name.rpartition(".")
        for i, (start, _, buffer) in enumerate(divided.spans()):
            size, at = int(buffer.arg.size), self.dtype.nbytes(start)
            inner = next(s for k in range(1, len(self.shape) + 1) if size % math.prod(s := self.shape[k:]) == 0)
            read = None if self.read is None else partial(_from, self.read, at)
            shape, nbytes = (size // math.prod(inner), *inner), self.dtype.nbytes(size)
            yield Named(f"{stem}{dot}part{i}.{last}", self.kind, buffer, self.dtype, shape, nbytes, read)


def _from(read: Callable[[int, int], bytes | memoryview], begin: int, at: int, nbytes: int) -> bytes | memoryview:
    return read(begin + at, nbytes)


def read_memory(device: str, buffer: UOp, at: int, nbytes: int) -> bytes:
    """Bytes of the memory behind a BUFFER, with zeros for what lies between its last element and the end of a word."""
    opened = Device[device]
    held = opened.runtime.copy_out(opened.memory(buffer).handle, nbytes, at)
    elements = max(buffer.dtype.nbytes(int(buffer.arg.size)) - at, 0)
    return held if len(held) <= elements else held[:elements] + bytes(nbytes - elements)


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

    @property
    def totals(self) -> dict[str, int]:
        """Bytes by kind, as a manifest has them for a target."""
        return {"weights": self.total("weight"), "state": self.total("state"), "temporaries": self.pool_bytes}

    def of(self, plans: Mapping[str, Plan]) -> Memory:
        """The memory of a target that runs these plans: the same names and ids, with pools of its own."""
        pools, ids = _pools(plans, len(self.named))
        return replace(self, pools=pools, ids={**self.ids, **ids})

    def size(self, id: int) -> int:
        """Bytes of the buffer or pool with this id."""
        return self.named[id].nbytes if id < len(self.named) else self.pools[id - len(self.named)]


def plan_memory(plans: Mapping[str, Plan], named: list[Named], divided: Mapping[UOp, Parts] | None = None) -> Memory:
    """Give every buffer its id, and what is `divided` one for each part.

    Weights that no kernel reads are left out. Entry points never run at the same time, so their pools share memory: the
    largest pool of one with the largest of another, and so on.
    """
    used = {b for plan in plans.values() for call in plan.calls for b in call.buffers}
    kept: dict[UOp, Named] = {}
    for n in named:
        if n.buffer in used or n.kind == "state":
            kept.setdefault(n.buffer, n)
    divided = {b: parts for b, parts in (divided or {}).items() if b in kept}
    rows = [part for b, n in kept.items() for part in (n.parts(divided[b]) if b in divided else (n,))]
    names = Counter(n.name for n in rows)
    if twice := [name for name, count in names.items() if count > 1]:
        raise AssertionError(f"two buffers of the model are called {twice[0]}")
    ids = {n.buffer: i for i, n in enumerate(rows)}
    ids |= {b: ids[parts.buffers[0]] for b, parts in divided.items()}
    pools, temporaries = _pools(plans, len(rows))
    if unknown := used - ids.keys() - temporaries.keys():
        sizes = ", ".join(sorted(f"{b.arg.size} × {b.dtype.short}" for b in unknown))
        raise AssertionError(f"kernels use memory that is neither a weight, a state nor a temporary: {sizes}")
    return Memory(tuple(rows), pools, ids | temporaries)


def _pools(plans: Mapping[str, Plan], first: int) -> tuple[tuple[int, ...], dict[UOp, int]]:
    """The bytes of the pools that plans share, and the ids of their temporaries, from `first` on."""
    pools: list[int] = []
    ids: dict[UOp, int] = {}
    for plan in plans.values():
        order = sorted(range(len(plan.pool_bytes)), key=lambda p: (-plan.pool_bytes[p], p))
        rank = {pool: r for r, pool in enumerate(order)}
        for pool, r in rank.items():
            if r == len(pools):
                pools.append(0)
            pools[r] = max(pools[r], plan.pool_bytes[pool])
        for buffer, pool in plan.memory.pool_of.items():
            ids[buffer] = first + rank[pool]
    return tuple(pools), ids

"""Launches of kernels, each within the number of buffers that every device binds."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeAlias

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import (
    COMPARISON,
    Axis,
    KernelInfo,
    Ops,
    ParamArg,
    UOp,
    as_index,
    nested,
    substitute,
    toposort,
    volume,
)
from tinyweb.graph.schedule.work import LAUNCH
from tinyweb.graph.symbolic import borders, simplify, split_by

MAX_INPUTS = 7  # a kernel binds at most 8 buffers on the smallest WebGPU device: one is the output
MOST_PARTS = 32  # of a join that one kernel stores: each has a loop
MOST_BUFFERS = 24  # … on any: what addresses and loops have registers for

Call: TypeAlias = "tuple[UOp, tuple[UOp, ...]]"  # a kernel and its buffers


@dataclass(frozen=True)
class KernelCall:
    """One launch: the kernel (a SINK of the kernel form) and its buffers in slot order. `device`: where it happens, if
    the plan has several devices; "" in a plan of one.
    """

    kernel: UOp
    buffers: tuple[UOp, ...]
    device: str = ""

    @property
    def written(self) -> set[UOp]:
        """The buffers that it stores to."""
        return {self.buffers[s.src[0].arg.slot] for s in self.kernel.src}

    def freeze(self, memory: Container[UOp]) -> KernelCall:
        """The call of a kernel that knows which of what its sums read for several outputs is in `memory`, which stays
        as it is from launch to launch.
        """
        reused = self.kernel.__dict__.get("reused")
        if reused is None:
            sums = [u for u in self.kernel.toposort() if u.op is Ops.REDUCE]
            read = ((u, x) for u in sums for x in u.src[0].toposort() if x.op is Ops.LOAD and not u.ranges <= x.ranges)
            reused = self.kernel.__dict__["reused"] = {x.src[0] for _, x in read if x.src[0].op is Ops.PARAM}
        found = {p: p.replace(arg=replace(p.arg, frozen=True)) for p in reused if self.buffers[p.arg.slot] in memory}
        return replace(self, kernel=substitute(self.kernel, found)) if found else self

    def written_whole(self) -> set[UOp]:
        """The buffers that it writes every element of, and reads none of."""
        whole: frozenset[int] | None = self.kernel.__dict__.get("whole")
        if whole is None:
            read = {u.src[0] for u in self.kernel.toposort() if u.op is Ops.LOAD}
            slots = (s.src[0].arg.slot for s in self.kernel.src if s.src[0] not in read and _covers(s))
            whole = self.kernel.__dict__["whole"] = frozenset(slots)
        return {self.buffers[slot] for slot in whole}


@dataclass(frozen=True)
class CopyCall(KernelCall):
    """The second buffer, on the device `source`, is copied to the first, on `device`, which has as many elements."""

    source: str = ""


def copy_call(to: UOp, of: UOp, device: str, source: str) -> CopyCall:
    """Copy all of a BUFFER."""
    place, value = (UOp(Ops.PARAM, b.dtype, (), ParamArg(i, b.arg.size)) for i, b in enumerate((to, of)))
    i = UOp(Ops.RANGE, dtypes.index, (as_index(to.arg.size),), Axis("i0", 0))
    return CopyCall(
        UOp(Ops.SINK, dtypes.void, (place.store(i, value.load(i)),), KernelInfo()), (to, of), device, source
    )


def _covers(store: UOp) -> bool:
    """Whether a store's index takes every value below the memory's size: its strides are those of dense rows."""
    memory, rest = store.src[:2]
    if len(store.src) > 3 or memory.op is not Ops.PARAM or memory.dtype.bits < 8:  # parts of bytes are updates
        return False
    strides: dict[int, int] = {}
    for r in rest.ranges:
        parts = split_by(rest, r)
        if parts is None or r.src[0].op is not Ops.CONST:
            return False
        rest = parts[1]
        strides[parts[0]] = int(r.src[0].arg)
    dense = 1
    for stride in sorted(strides):
        if stride != dense:
            return False
        dense *= strides[stride]
    return dense == memory.arg.size and rest.op is Ops.CONST and rest.arg == 0


def numbered(kernel: UOp) -> tuple[UOp, list[int]]:
    """The kernel with its parameters numbered without gaps, those that it stores to first, and their slots before."""
    stored = {s.src[0] for s in kernel.src}
    used = sorted((u for u in kernel.toposort() if u.op is Ops.PARAM), key=lambda u: (u not in stored, u.arg.slot))
    table = {u: u.replace(arg=replace(u.arg, slot=i)) for i, u in enumerate(used) if i != u.arg.slot}
    return substitute(kernel, table), [u.arg.slot for u in used]


def within_limit(call: KernelCall, inputs: int = MAX_INPUTS) -> Iterator[KernelCall]:
    """The calls that do what one does, each for as many neighbouring parts of a join as bind few enough buffers, of
    `inputs` and a result, and as loops can tell apart."""
    nodes = call.kernel.toposort()
    if len(call.buffers) <= inputs + 1 and _told_apart(nodes):
        yield call
        return
    for r in nested(u for u in nodes if u.op is Ops.RANGE and not u.arg.reduce):
        at, parts = borders(nodes, r), list[tuple[int, UOp, list[int]]]()  # first step, kernel, slots
        for first, end in pairwise((0, *at, r.vmax + 1) if at else ()):
            for start in (*(p[0] for p in parts[-1:]), first):
                some = r.replace(src=(as_index(end - start),))
                kernel, slots = numbered(simplify(substitute(call.kernel, {r: some + start})))
                if len(slots) <= inputs + 1 and _told_apart(kernel.toposort()):
                    break
            parts[len(parts) - (start != first) :] = [(start, kernel, slots)]
        if parts:
            for _, kernel, slots in parts:
                yield from within_limit(KernelCall(kernel, tuple(call.buffers[i] for i in slots), call.device), inputs)
            return
    yield call


def _told_apart(nodes: Sequence[UOp]) -> bool:
    """Whether elements choose among few parts of a join, or choosing costs less than launches."""
    choices = [u for u in nodes if u.op is Ops.WHERE]
    elements = sum(volume(s.ranges) for s in nodes[-1].src)
    if len(choices) < MOST_PARTS or elements <= LAUNCH:
        return True
    conditions = toposort(u.src[0] for u in choices)
    where = {c for c in conditions if c.op in COMPARISON and c.src[0].dtype is dtypes.index}
    found = (len(borders(where, r)) for r in nodes if r.op is Ops.RANGE and not r.arg.reduce)
    return max(found, default=0) < MOST_PARTS

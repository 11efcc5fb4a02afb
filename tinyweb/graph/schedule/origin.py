"""Kernels that differ in nothing but where in memory they begin are one kernel, handed memory from there on.

Steps that are written out, as of a recurrent network, each read their part of the same input.
"""

from __future__ import annotations

from dataclasses import replace

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import Ops, UOp, rebuild
from tinyweb.graph.symbolic import simplify


def at_origin(kernel: UOp) -> tuple[UOp, tuple[int, ...]]:
    """The kernel with each parameter cut down to the elements between the first and the last that it accesses, where
    the first is not that of memory; and the bytes before these in what `kernel` is handed, by slot.

    Memory that is laid out anew stays as it is, and memory whose elements are no whole bytes.
    """
    nodes = kernel.toposort()
    spans: dict[UOp, tuple[int, int]] = {}
    for u in nodes:
        if u.op in (Ops.LOAD, Ops.STORE) and u.src[0].op is Ops.PARAM:
            first, last = spans.get(u.src[0], (u.src[0].arg.size, 0))
            spans[u.src[0]] = min(first, u.src[1].vmin), max(last, u.src[1].vmax)
    cut = {
        p: (p.replace(arg=replace(p.arg, size=min(last + 1, p.arg.size) - first)), first)
        for p, (first, last) in spans.items()
        if 0 < first < p.arg.size and p.dtype.bits >= 8 and not p.arg.frozen
    }
    if not cut:
        return kernel, ()

    def moved(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if u in cut:
            return cut[u][0]
        if u.op in (Ops.LOAD, Ops.STORE) and u.src[0] in cut:
            return u.with_sources((src[0], src[1] - UOp.const(cut[u.src[0]][1], dtypes.index), *src[2:]))
        return None

    starts = [0] * (1 + max(p.arg.slot for p in cut))
    for p, (_, first) in cut.items():
        starts[p.arg.slot] = p.dtype.nbytes(first)
    return simplify(rebuild(nodes, moved)[kernel]), tuple(starts)

"""What is staged of frozen parameters alone becomes memory that is filled before the first launch."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from tinyweb.graph.ir import Axis, KernelInfo, Ops, ParamArg, Space, UOp, row_major, substitute
from tinyweb.graph.program import Layout


def lay_out(kernel: UOp) -> tuple[UOp, tuple[Layout, ...]]:
    """The kernel with a parameter, behind its own, for each STAGE in DEVICE space, and the kernels that fill those."""
    nodes = kernel.toposort()
    count = sum(u.op is Ops.PARAM for u in nodes)
    table: dict[UOp, UOp] = {}
    layouts: list[Layout] = []
    for u in (u for u in nodes if u.op is Ops.STAGE and u.arg.space is Space.DEVICE):
        axes = {r: r.replace(arg=Axis(f"i{i}", i)) for i, r in enumerate(u.src[1:])}
        memory = ParamArg(0, prod(int(r.src[0].arg) for r in axes))
        read = sorted((x for x in u.toposort() if x.op is Ops.PARAM), key=lambda x: int(x.arg.slot))
        own = {x: x.replace(arg=replace(x.arg, slot=i, frozen=False)) for i, x in enumerate(read, 1)}
        value = substitute(substitute(u.src[0], axes), own)
        filled = UOp(Ops.PARAM, u.dtype, (), memory).store(row_major(list(axes.values())), value)
        table[u] = UOp(Ops.PARAM, u.dtype, (), replace(memory, slot=count + len(layouts)))
        layouts.append(
            Layout(UOp(Ops.SINK, filled.dtype, (filled,), KernelInfo()), tuple(int(x.arg.slot) for x in read))
        )
    return substitute(kernel, table), tuple(layouts)

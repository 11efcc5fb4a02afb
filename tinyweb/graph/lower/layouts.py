"""What is staged of frozen parameters alone becomes memory that is filled before the first launch."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from tinyweb.graph.ir import Axis, KernelInfo, Ops, ParamArg, Space, UOp, row_major, substitute
from tinyweb.graph.program import Layout


def lay_out(kernel: UOp) -> tuple[UOp, tuple[Layout, ...]]:
    """The kernel with a parameter, behind its own, for each STAGE in DEVICE space that it reads, and the kernels that
    fill those, which may read what those before them fill."""
    nodes = kernel.toposort()
    count = sum(u.op is Ops.PARAM for u in nodes)
    table: dict[UOp, UOp] = {}
    layouts: list[Layout] = []
    for u in (u for u in nodes if u.op is Ops.STAGE and u.arg.space is Space.DEVICE):
        axes = {r: r.replace(arg=Axis(f"i{i}", i)) for i, r in enumerate(u.src[1:])}
        memory = ParamArg(0, prod(int(r.src[0].arg) for r in axes))
        inside = substitute(u.src[0], table)  # what is staged of what is staged
        read = sorted((x for x in inside.toposort() if x.op is Ops.PARAM), key=lambda x: int(x.arg.slot))
        renamed = {x: x.replace(arg=replace(x.arg, slot=i, frozen=False)) for i, x in enumerate(read, 1)}
        value = substitute(substitute(inside, axes), renamed)
        filled = UOp(Ops.PARAM, u.dtype, (), memory).store(row_major(list(axes.values())), value)
        table[u] = UOp(Ops.PARAM, u.dtype, (), replace(memory, slot=count + len(layouts)))
        layouts.append(
            Layout(UOp(Ops.SINK, filled.dtype, (filled,), KernelInfo()), tuple(int(x.arg.slot) for x in read))
        )
    changed = substitute(kernel, table)
    there = {u for u in changed.toposort() if u.op is Ops.PARAM}
    # what only other layouts read is no parameter of the kernel
    own = [u for u in table.values() if u in there]
    places = {u: u.replace(arg=replace(u.arg, slot=count + i)) for i, u in enumerate(own)}
    layouts = [replace(layout, read=u in there) for layout, u in zip(layouts, table.values(), strict=True)]
    return substitute(changed, places), tuple(layouts)

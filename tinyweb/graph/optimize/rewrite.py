"""Kernel surgery that the actions share: taking the place of a RANGE, and the order of the nest."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tinyweb.graph.ir import AxisKind, Ops, Size, Space, StageArg, UOp, as_index, identity, nested, rebuild, substitute
from tinyweb.graph.ir.on_node import on_node
from tinyweb.graph.ir.uop import toposort
from tinyweb.graph.symbolic import simplify


@dataclass(frozen=True)
class Loops:
    """The kernel's RANGEs from the outside in, its STAGEs and RUNNINGs: what every action looks for."""

    ranges: tuple[UOp, ...]
    stages: tuple[UOp, ...]
    running: tuple[UOp, ...]


def loops_of(kernel: UOp) -> Loops:
    return on_node(kernel, "_loops", lambda kernel: _loops(kernel.toposort()), through=lambda s: False)


def _loops(nodes: Sequence[UOp]) -> Loops:
    ranges, stages, running = ([u for u in nodes if u.op is op] for op in (Ops.RANGE, Ops.STAGE, Ops.RUNNING))
    return Loops(tuple(nested(ranges)), tuple(stages), tuple(running))


def ranges_of(kernel: UOp) -> tuple[UOp, ...]:
    """The kernel's RANGEs from the outside in."""
    return loops_of(kernel).ranges


def loads_summed(kernel: UOp) -> tuple[UOp, ...]:
    """The LOADs of parameters inside of reductions."""
    inside = toposort([u for u in kernel.toposort() if u.op is Ops.REDUCE])
    return tuple(u for u in inside if u.op is Ops.LOAD and u.src[0].op is Ops.PARAM)


def updates_in_place(kernel: UOp) -> bool:
    """Whether a parameter is stored to that is loaded as well."""
    stored = {s.src[0] for s in kernel.src}
    return any(u.op is Ops.LOAD and u.src[0] in stored for u in kernel.toposort())


def renumber(kernel: UOp, order: Sequence[UOp]) -> UOp:
    """The kernel with its ranges nested in the given order."""
    table = {r: r.replace(arg=replace(r.arg, order=i)) for i, r in enumerate(order)}
    return substitute(kernel, {a: b for a, b in table.items() if a is not b})


def renamed(r: UOp, name: str, size: Size | None = None) -> UOp:
    """A loop of another name, and maybe another size, in the place of one."""
    return r.replace(src=r.src if size is None else (as_index(size),), arg=replace(r.arg, name=name))


def stage_of(value: UOp, axes: Iterable[UOp], space: Space = Space.REGISTER) -> UOp:
    """Memory with the value for every step of some ranges, which fill it."""
    return UOp(Ops.STAGE, value.dtype, (value, *axes), StageArg(space))


def filling(r: UOp, name: str, place: int, kind: AxisKind = AxisKind.LOOP) -> UOp:
    """A range that fills staged memory in place of one of the kernel's, inside of all of those."""
    axis = replace(r.arg, name=name, order=(1 << 16) + place, kind=kind, reduce=True, dim=0)
    return r.replace(arg=axis)


def along_row(row: UOp, suffix: str, size: Size, kind: AxisKind = AxisKind.LOOP, dim: int = 0) -> UOp:
    """A reduced range in the place of a row's, called after it."""
    axis = replace(row.arg, name=f"{row.arg.name}.{suffix}", kind=kind, reduce=True, dim=dim)
    return UOp(Ops.RANGE, row.dtype, (as_index(size),), axis)


def split_dim(rows: Iterable[UOp]) -> int:
    """The dimension of the threads that share the steps of a row."""
    return 2 if any(r.arg.kind is AxisKind.THREAD and r.arg.dim == 1 for r in rows) else 1


def replace_range(kernel: UOp, r: UOp, value: UOp, parts: tuple[UOp, ...], size: UOp | None) -> UOp:
    """The kernel with `value`, made of the ranges `parts`, in place of the range `r`.

    With `size`, `value` may reach beyond it. Then stores and reductions are gated by `value < size`. So are loads,
    except that inside a reduction over other ranges they read the last element again: a loop without branches is
    worth more than a few reads saved, and what is computed from them is not stored.
    """
    nodes = kernel.toposort()
    gate = None if size is None else value < size
    outside = _Rebuild(r, value, parts, gate)
    if size is None or size.vmin < 1 or r.arg.reduce:
        for u in nodes:
            outside.visit(u)
        return outside.finished(kernel)
    # below reductions and stages that depend on `r` nodes are rebuilt with the clamped index, others with the value
    inside = _Rebuild(r, value.minimum(size + -1), parts, None)
    for u in nodes:
        inside.visit(u)
        if u.op in (Ops.REDUCE, Ops.STAGE) and r in u.ranges:
            outside.changed[u] = inside.changed[u]
        else:
            outside.visit(u)
    return outside.finished(kernel)


def gate_loads(value: UOp, r: UOp, step: UOp, loop: UOp, gate: UOp) -> UOp:
    """The value with `gate` on loads that depend on `r` but, once `step` is in its place, not on `loop`."""

    def gated(u: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if u.op is Ops.LOAD and r in u.src[1].ranges and loop not in simplify(substitute(u.src[1], {r: step})).ranges:
            return u.with_sources((*src[:2], gate if len(src) == 2 else src[2] & gate))
        return None

    return rebuild(value.toposort(), gated)[value]


def replace_in_order(kernel: UOp, table: dict[UOp, UOp]) -> UOp:
    """Like substitute, but what is put in place of one node may hold others of the table."""
    done: dict[UOp, UOp] = {}
    for u in kernel.toposort():
        target = table.get(u)
        if target is not None:
            done[u] = substitute(target, {n: done[n] for n in target.toposort() if n in done and done[n] is not n})
        else:
            done[u] = u.with_sources(tuple(done[s] for s in u.src))
    return done[kernel]


class _Rebuild:
    """One copy of the graph with `r` replaced."""

    def __init__(self, r: UOp, value: UOp, parts: tuple[UOp, ...], gate: UOp | None):
        self.r, self.parts, self.gate = r, parts, gate
        self.changed: dict[UOp, UOp] = {r: value}

    def visit(self, u: UOp) -> None:
        changed = self.changed
        for s in u.src:
            if s in changed:
                break
        else:
            return
        src = tuple([changed.get(s, s) for s in u.src])
        if u.op is Ops.REDUCE and self.r in u.src[1:]:
            ranges = [n for s in u.src[1:] for n in (self.parts if s is self.r else (changed.get(s, s),))]
            first = src[0]
            if self.gate is not None and not (u.arg is Ops.ADD and self._zero_beyond(u.src[0])):
                first = self.gate.where(first, identity(u.arg, u.dtype))
            src = (first, *ranges)
        elif self.gate is not None and (
            (u.op is Ops.LOAD and self.r in u.src[1].ranges)
            or (u.op is Ops.STORE and any(self.r in s.ranges for s in (u.src[1], *u.src[3:])))
        ):
            position = 2 if u.op is Ops.LOAD else 3
            gate = self.gate if len(src) == position else src[position] & self.gate
            src = (*src[:position], gate)
        if src != u.src:
            changed[u] = UOp(u.op, u.dtype, src, u.arg)

    def finished(self, kernel: UOp) -> UOp:
        """What has become of the kernel; its loops are known from those it had."""
        new, loops = self.changed.get(kernel, kernel), loops_of(kernel)
        if new is not kernel:
            ranges = {n: None for r in loops.ranges for n in (self.parts if r is self.r else (self.changed.get(r, r),))}
            others = (self.changed.get(u, u) for u in (*loops.stages, *loops.running))
            new.__dict__["_loops"] = _loops([*ranges, *others])
        return new

    def _zero_beyond(self, u: UOp) -> bool:
        """Whether a value is zero wherever gated loads give zero."""
        if u.op is Ops.LOAD:
            return self.r in u.src[1].ranges
        if u.op is Ops.MUL:
            # a factor that is not zero there may be infinite
            harmless = (self._zero_beyond(s) or (s.op is Ops.CONST and math.isfinite(s.arg)) for s in u.src)
            return all(harmless) and any(map(self._zero_beyond, u.src))
        if u.op is Ops.ADD:
            return all(map(self._zero_beyond, u.src))
        if u.op is not Ops.CAST:
            return False
        if u.src[0].op in (Ops.CAST, Ops.LOAD):
            return self._zero_beyond(u.src[0])
        # what is computed of the loads, as codes less a zero point times a scale are
        zeros = {x: x.const(0, x.dtype) for x in u.toposort() if x.op is Ops.LOAD and self._zero_beyond(x)}
        value = simplify(substitute(u, zeros))
        return value.op is Ops.CONST and value.arg == 0

"""Carrying actions out: each is a pure rewrite of the kernel, checked before it is done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import Axis, AxisKind, KernelInfo, Ops, Size, Space, UOp, as_index, size_max, substitute
from tinyweb.graph.optimize.actions import Action, Bind, GroupReduce, Reorder, ScheduleError, Split, Stage
from tinyweb.graph.symbolic import simplify


def ranges_of(kernel: UOp) -> list[UOp]:
    """The kernel's ranges from the outside in."""
    return sorted((u for u in kernel.toposort() if u.op is Ops.RANGE), key=lambda r: (r.arg.order, r.arg.name))


def size_of(r: UOp) -> Size:
    """A range's size, an int where it is constant."""
    return int(r.src[0].arg) if r.src[0].op is Ops.CONST else r.src[0]


def apply(kernel: UOp, schedule: Sequence[Action]) -> UOp:
    """The kernel after all actions; ScheduleError at the first that is not legal. `KernelInfo.schedule` says what was done."""
    for action in schedule:
        kernel = apply_action(kernel, action)
    info = kernel.arg or KernelInfo()
    done = (*info.schedule, *(str(a) for a in schedule))
    return simplify(kernel).replace(arg=replace(info, schedule=done))


def apply_action(kernel: UOp, action: Action) -> UOp:
    """The kernel after one action."""
    if isinstance(action, Split):
        return _split(kernel, action.axis, action.factor)
    if isinstance(action, Reorder):
        return _reorder(kernel, action.axes)
    if isinstance(action, Bind):
        return _bind(kernel, action)
    if isinstance(action, GroupReduce):
        r = _find(kernel, action.axis)
        if not r.arg.reduce:
            raise ScheduleError(f"{action}: {action.axis} is no reduce axis")
        split = _split(kernel, action.axis, action.threads)
        return _bind(split, Bind(f"{action.axis}.1", AxisKind.THREAD, action.dim))
    return _stage(kernel, action)


def _find(kernel: UOp, name: str) -> UOp:
    for r in ranges_of(kernel):
        if r.arg.name == name:
            return r
    raise ScheduleError(f"the kernel has no axis {name}; it has {', '.join(r.arg.name for r in ranges_of(kernel)) or 'none'}")


def _split(kernel: UOp, name: str, factor: int) -> UOp:
    r = _find(kernel, name)
    size = size_of(r)
    if factor < 1:
        raise ScheduleError(f"split({name}, {factor}): the factor must be positive")
    if r.arg.kind is not AxisKind.LOOP:
        raise ScheduleError(f"split({name}, {factor}): the axis is bound to {r.arg.kind.name.lower()} already")
    exact = isinstance(size, int) and size % factor == 0
    outer_size = size // factor if exact and isinstance(size, int) else (as_index(size) + (factor - 1)) // factor
    # twice the room between orders, so that the new axis fits behind its outer part
    kernel, r = _spread(kernel, r)
    outer = UOp(Ops.RANGE, dtypes.index, (simplify(as_index(outer_size)),), replace(r.arg, name=f"{name}.0"))
    inner = UOp(Ops.RANGE, dtypes.index, (as_index(factor),), replace(r.arg, name=f"{name}.1", order=r.arg.order + 1))
    return _replace_range(kernel, r, outer * factor + inner, (outer, inner), None if exact else as_index(size))


def _spread(kernel: UOp, r: UOp) -> tuple[UOp, UOp]:
    """Orders doubled; the kernel and what became of `r`."""
    table = {x: x.replace(arg=replace(x.arg, order=2 * x.arg.order)) for x in ranges_of(kernel)}
    return _swap_ranges(kernel, table), table[r]


def _swap_ranges(kernel: UOp, table: dict[UOp, UOp]) -> UOp:
    return substitute(kernel, table)


def identity(op: Ops, dtype: DType) -> UOp:
    """What a reduce ignores."""
    return UOp.const({Ops.ADD: 0, Ops.MUL: 1, Ops.MAX: dtype.min}[op], dtype)


def _replace_range(kernel: UOp, old: UOp, value: UOp, parts: tuple[UOp, ...], limit: UOp | None) -> UOp:
    """`old` replaced by `value`, an expression in `parts`; with a `limit`, all that lies at or beyond it is gated off."""
    inside = None if limit is None else value < limit
    done: dict[UOp, UOp] = {old: value}
    for u in kernel.toposort():
        if u in done:
            continue
        src = tuple(done[s] for s in u.src)
        if u.op is Ops.REDUCE and old in u.src[1:]:
            body = src[0] if inside is None or old not in u.src[0].ranges else inside.where(src[0], identity(u.arg, u.dtype))
            bound = tuple(p for s in u.src[1:] for p in (parts if s is old else (done[s],)))
            src = (body, *bound)
        elif inside is not None and u.op in (Ops.LOAD, Ops.STORE) and old in u.src[1].ranges:
            at = 2 if u.op is Ops.LOAD else 3
            src = (*src[:at], src[at] & inside if len(src) > at else inside)
        done[u] = u if src == u.src else u.replace(src=src)
    return done[kernel]


def _reorder(kernel: UOp, names: tuple[str, ...]) -> UOp:
    found = [_find(kernel, n) for n in names]
    if len(set(names)) != len(names) or len({r.arg.reduce for r in found}) > 1:
        raise ScheduleError(f"reorder({', '.join(names)}): name output axes or reduce axes, each once")
    places = sorted((r.arg.order, r.arg.name) for r in found)
    orders = [p[0] for p in places]
    if len(set(orders)) != len(orders):
        raise ScheduleError(f"reorder({', '.join(names)}): the axes do not nest in each other")
    table = {r: r.replace(arg=replace(r.arg, order=o)) for r, o in zip(found, orders, strict=True)}
    return _swap_ranges(kernel, table)


def _bind(kernel: UOp, action: Bind) -> UOp:
    r = _find(kernel, action.axis)
    if action.kind in (AxisKind.VECTOR, AxisKind.UNROLL) and not isinstance(size_of(r), int):
        raise ScheduleError(f"{action}: lanes need a constant size, {action.axis} has up to {size_max(size_of(r))}; split it first")
    if action.kind is AxisKind.GRID and r.arg.reduce:
        raise ScheduleError(f"{action}: a reduce axis cannot be spread over the grid")
    if action.kind is AxisKind.THREAD and not isinstance(size_of(r), int):
        raise ScheduleError(f"{action}: a workgroup has a constant size; split {action.axis} first")
    if not 0 <= action.dim < 3:
        raise ScheduleError(f"{action}: dimensions are 0, 1 and 2")
    return _swap_ranges(kernel, {r: r.replace(arg=replace(r.arg, kind=action.kind, dim=action.dim))})


def _stage(kernel: UOp, action: Stage) -> UOp:
    """Loads of the parameter become loads of a STAGE: the same elements, copied for one step of loop `at`.

    The copy covers all ranges inside of `at` that the loads depend on; its memory is a box with one axis per such range.
    """
    at = _find(kernel, action.at)
    if action.space not in (Space.SHARED, Space.REGISTER):
        raise ScheduleError(f"{action}: memory is staged in shared memory or registers")
    loads = [u for u in kernel.toposort() if u.op is Ops.LOAD and u.src[0].op is Ops.PARAM and u.src[0].arg.slot == action.param]
    if not loads:
        raise ScheduleError(f"{action}: the kernel does not load parameter {action.param}")
    if any(u.op is Ops.STORE and u.src[0].arg.slot == action.param for u in kernel.src):
        raise ScheduleError(f"{action}: the kernel writes parameter {action.param}")
    if at.arg.kind not in (AxisKind.LOOP, AxisKind.GRID):
        raise ScheduleError(f"{action}: {action.at} is no loop")
    table: dict[UOp, UOp] = {}
    for n, load in enumerate(loads):
        inner = [r for r in sorted(load.ranges, key=lambda r: (r.arg.order, r.arg.name)) if _inside(r, at, action.space)]
        sizes = [size_of(r) for r in inner]
        if not inner or not all(isinstance(s, int) for s in sizes):
            raise ScheduleError(f"{action}: what {action.at} reads has no constant size")
        copies = [
            r.replace(arg=Axis(f"s{action.param}.{n}.{k}", 3000 + k, AxisKind.LOOP, True)) for k, r in enumerate(inner)
        ]
        index: UOp | None = None
        for r, size in zip(inner, sizes, strict=True):
            index = r if index is None else index * size + r
        assert index is not None
        box = UOp(Ops.STAGE, load.dtype, (substitute(load, dict(zip(inner, copies, strict=True))), *copies), action.space)
        table[load] = box.load(index)
    return substitute(kernel, table)


def _inside(r: UOp, at: UOp, space: Space) -> bool:
    """Whether a staged copy made in a step of `at` spans range `r`."""
    if r.arg.kind is AxisKind.GRID or r is at:
        return False
    if r.arg.kind is AxisKind.THREAD:
        return space is Space.SHARED
    return r.arg.kind in (AxisKind.VECTOR, AxisKind.UNROLL) or r.arg.order > at.arg.order

"""Loops that threads share end where their elements do, instead of gating what lies beyond.

Where `thread + 16 · i < 1003` holds of everything that is reduced over i, or stored in its loop, that is a bound of i:
each thread takes as many steps as it has elements, and nothing is compared or selected in them. So is a condition of
all that a sum adds up, such as the weights that an element of a transposed convolution meets: on every target.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import AxisKind, Ops, Space, UOp, as_index, rebuild, substitute
from tinyweb.graph.ir.axes import identity, is_lane, nest_key
from tinyweb.graph.lower.constructors import is_const
from tinyweb.graph.symbolic import clauses, simplify, split_by


def end_loops(kernel: UOp) -> UOp:
    """A kernel whose threads are SPECIALs, with loops as long as the gates within them allow."""
    nodes = kernel.toposort()
    if any(u.op is Ops.RUNNING for u in nodes):
        return kernel
    named = {u.arg.name: u for u in nodes if u.op is Ops.RANGE}
    ended = rebuild(nodes, lambda u, src: _end_reduced(u.with_sources(src), named) if u.op is Ops.REDUCE else None)
    return _end_stored(ended[kernel])


def _end_reduced(u: UOp, named: dict[str, UOp]) -> UOp:
    """`named`: the kernel's ranges; reductions that shared one may end at different steps."""
    for r in filter(_is_loop, u.src[1:]):
        value, inner = u.src[0], _innermost(r, u.src[1:], u.src[:1])
        condition = clauses(value.src[0]) if value.op is Ops.WHERE else []
        for clause in _gates([value], r):
            shorter = _bounded(r, clause)
            if shorter is None or _waits([value], r):
                continue
            # what all threads leave at the same time may be any loop: where the whole value has a condition
            if not (inner if _varies(shorter) else clause in condition):
                continue
            if is_const(simplify(_where_false(value, clause)), identity(u.arg, u.dtype).arg):
                while named.setdefault(shorter.arg.name, shorter) is not shorter:
                    shorter = shorter.replace(arg=replace(shorter.arg, name=f"{shorter.arg.name}.e"))
                bound = tuple(shorter if b is r else b for b in u.src[1:])
                u = u.replace(src=(_where_true(value, clause, {r: shorter}), *bound))
                break
    return u


def _end_stored(kernel: UOp) -> UOp:
    stores = list(kernel.src)
    written = {s.src[0] for s in stores}
    read = any(u.op is Ops.LOAD and u.src[0] in written for u in kernel.toposort())
    loops = {r: None for s in stores for r in s.ranges if _is_loop(r)} if not read else {}
    for r in sorted(loops, key=nest_key):
        inside = [s for s in stores if r in s.ranges]
        if not all(_innermost(r, s.ranges, [s]) for s in inside):
            continue
        common = [c for c in _gates(inside[:1], r) if all(len(s.src) > 3 and c in clauses(s.src[3]) for s in inside)]
        for clause in common:
            shorter = _bounded(r, clause)
            # a store does not depend on a loop of one step or none: its condition stays
            if shorter is None or shorter.src[0].vmax < 2:
                continue
            if _varies(shorter) and not _waits(inside, r):
                stores = [_where_true(s, clause, {r: shorter}) if s in inside else s for s in stores]
                break
    return kernel.replace(src=tuple(stores)) if tuple(stores) != kernel.src else kernel


def _is_loop(r: UOp) -> bool:
    return r.op is Ops.RANGE and r.arg.kind is AxisKind.LOOP and not is_const(r.src[0], 1)


def _innermost(r: UOp, loops: Iterable[UOp], roots: Iterable[UOp]) -> bool:
    """Whether no other of these loops lies within one, nor those of a reduction. Threads may leave only innermost ones
    at different times: of loops around others Mesa's llvmpipe then does not carry out the next step.
    """
    if any(_is_loop(x) and nest_key(x) > nest_key(r) for x in loops):
        return False
    inside = [u for u in UOp.sink(*roots).toposort() if u.op is Ops.REDUCE and r in u.ranges]
    return not any(_is_loop(x) for u in inside for x in u.src[1:])


def _gates(roots: Iterable[UOp], r: UOp) -> list[UOp]:
    """The clauses of gates and conditions below some nodes that compare what varies along a loop."""
    found: dict[UOp, None] = {}
    for u in UOp.sink(*roots).toposort():
        gate = u.src[0] if u.op is Ops.WHERE else u.src[2] if u.op is Ops.LOAD and len(u.src) > 2 else None
        gate = u.src[3] if u.op is Ops.STORE and len(u.src) > 3 else gate
        for c in clauses(gate) if gate is not None else ():
            if c.op is Ops.LESS and r in c.ranges and _sides(c)[0].dtype is dtypes.index:
                found[c] = None
    return list(found)


def _bounded(r: UOp, clause: UOp) -> UOp | None:
    """The loop as far as a clause holds, where that depends on something; None where there is no such end."""
    less, more = _sides(clause)
    stride, rest = split_by(less, r) or (0, less)
    if stride <= 0 or r in more.ranges:
        return None
    steps = _quotient(simplify(more - rest), stride)
    if any(is_lane(x) or nest_key(x) >= nest_key(r) for x in steps.ranges):
        return None
    if is_const(steps):
        return None
    if steps.vmin < 0:
        steps = steps.maximum(0)
    if steps.vmax > r.src[0].vmax:
        steps = steps.minimum(r.src[0])
    return r.replace(src=(simplify(steps),))


def _sides(clause: UOp) -> tuple[UOp, UOp]:
    """What a comparison compares: the index itself where a number made of one is compared with a constant."""
    a, b = clause.src
    if a.op is Ops.CAST and a.src[0].dtype is dtypes.index and a.dtype is dtypes.int32 and is_const(b):
        return a.src[0], as_index(int(b.arg))
    return a, b


def _varies(loop: UOp) -> bool:
    """Whether threads of a workgroup take different numbers of steps."""
    return any(u.op is Ops.SPECIAL and u.arg[0] == "thread" for u in loop.src[0].toposort())


def _quotient(left: UOp, stride: int) -> UOp:
    """How many steps what is left takes. Where that differs by one it is a comparison, no division."""
    few, more = divmod(left.vmax, stride)
    if left.vmax - left.vmin >= stride:
        return simplify((left + (stride - 1)) // stride)
    return (as_index(left.vmax - more) < left).where(as_index(few + 1), as_index(few)) if more else as_index(few)


def _waits(roots: Iterable[UOp], r: UOp) -> bool:
    """Whether threads wait for each other within a loop: all must take the same steps."""
    return any(
        r in u.ranges
        and (
            (u.op is Ops.STAGE and u.arg.space is Space.SHARED)
            or (u.op is Ops.REDUCE and any(b.op is Ops.SPECIAL for b in u.src[1:]))
        )
        for u in UOp.sink(*roots).toposort()
    )


def _where_false(value: UOp, clause: UOp) -> UOp:
    """A value where a clause of its gates is false: loads that it gates are 0."""
    loads = {
        u: UOp.const(0, u.dtype)
        for u in value.toposort()
        if u.op is Ops.LOAD and len(u.src) > 2 and clause in clauses(u.src[2])
    }
    return substitute(value, {**loads, clause: UOp.const(False, dtypes.bool)})


def _where_true(value: UOp, clause: UOp, table: dict[UOp, UOp]) -> UOp:
    return substitute(substitute(value, {clause: UOp.const(True, dtypes.bool)}), table)

"""Multiply-adds of a kernel beside those of the expression it computes: what fusion computes again and again.

Counted are the steps of reductions. What is elementwise costs little beside them, and a schedule may still keep it
where it is used (`Stage`).
"""

from __future__ import annotations

from collections.abc import Sequence

from tinyweb.graph.ir import Ops, ParamArg, UOp, below, numel_max, row_major, substitute, toposort, volume
from tinyweb.graph.ir.spec import SpecError
from tinyweb.graph.schedule.attention import softmaxes
from tinyweb.graph.schedule.whole_rows import held_rows
from tinyweb.graph.target import Target

MOST_REPEATED = 1.25  # work of a kernel over that of its parts: beyond that, memory for a part is cheaper
LAUNCH = 1 << 14  # steps that take no longer than launching another kernel does


def needed(form: UOp) -> int:
    """Steps of the reductions of a form, each computed once."""
    roots = form.src if form.op is Ops.SINK else (form,)
    nodes = below(roots, lambda u: u.op is not Ops.CONTIGUOUS or u in roots)
    return sum(numel_max(u.src[0].shape) for u in nodes if u.op is Ops.REDUCE)


def repeats(form: UOp, kernel: UOp, target: Target | type[Target] = Target) -> bool:
    """Whether a kernel does so much more than its form needs that another launch would be cheaper."""
    return executed(kernel, target) > MOST_REPEATED * needed(form) + LAUNCH


def verify_work(form: UOp, kernel: UOp, target: Target | type[Target] = Target) -> None:
    """@raise SpecError: see `repeats`."""
    if repeats(form, kernel, target):
        raise SpecError(f"a kernel takes {executed(kernel, target)} steps for what {needed(form)} do")


def executed(kernel: UOp, target: Target | type[Target] = Target) -> int:
    """Steps of the reductions of an unscheduled kernel, each in the innermost loop that it depends on; those of
    scores once where `softmaxes` finds that one pass does, or workgroups of the target hold whole rows."""
    total = 0
    table: dict[UOp, UOp] = {}
    for number, softmax in enumerate(softmaxes(kernel)[:1]):
        rows = [*softmax.rows]
        table[softmax.maximum] = _given(softmax.maximum, rows, 2 * number)
        for s in softmax.sums:
            weight = _given(s.exponential, [*rows, s.row], 2 * number + 1)
            table[s.reduce] = s.reduce.replace(src=(substitute(s.value, {s.exponential: weight}), s.reduce.src[1]))
        total += _steps([softmax.maximum])
    kernel = substitute(kernel, table)
    held = held_rows(kernel, target)
    if held is not None:
        total += _steps(held.different)
        numbers = {x: len(table) + i for i, x in enumerate(held.different)}
        own = {x: [*held.rows, r] for u in held.reduces for r in u.src[1:] for x in held.products if r in x.ranges}
        kernel = substitute(kernel, {x: _given(x, own[x], numbers[of]) for x, (of, _) in held.products.items()})
    return total + _steps([kernel])


def _given(value: UOp, ranges: list[UOp], number: int) -> UOp:
    """Memory in place of a value: as good as that is what one pass keeps in registers."""
    return UOp(Ops.PARAM, value.dtype, (), ParamArg(1000 + number, 1 << 40)).load(row_major(ranges))


def _steps(roots: Sequence[UOp]) -> int:
    nodes = toposort(roots)
    binder = {r: u for u in nodes if u.op is Ops.REDUCE for r in u.src[1:]}
    nests: dict[UOp, frozenset[UOp]] = {}

    def nest(r: UOp) -> frozenset[UOp]:
        """The loops that are around one: of a reduced range those that its sum varies over."""
        if r not in nests:
            around = binder[r].ranges if r in binder else frozenset()
            nests[r] = frozenset({r}).union(*map(nest, around))
        return nests[r]

    total = 0
    for u in nodes:
        if u.op is Ops.REDUCE:
            loops = frozenset().union(*map(nest, u.src[0].ranges | set(u.src[1:])))
            total += volume(loops)
    return total

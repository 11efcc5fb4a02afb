"""Divide: an axis whose steps constants tell apart becomes loops one after the other that need not tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import AxisKind, Ops, UOp, axis_size, nest_key, substitute
from tinyweb.graph.optimize.action import Action, find_axis
from tinyweb.graph.optimize.rewrite import gate_loads, loops_of, ranges_of, renamed, replace_in_order, updates_in_place
from tinyweb.graph.symbolic import simplify

MOST_PARTS = 32
ROUND = 16  # elements: blocks of several times as many are whole multiples


@dataclass(frozen=True)
class Divide(Action):
    """Axis i becomes loops i.0, i.1, … over the steps between the borders `at`, one after the other: index-set
    splitting. What a comparison with a border chooses is known in each of them.

    Each part of an output axis has stores of its own, and in place of the axes inside, such as j, its own j.i.0 ….
    With `blocks` every part is cut into that many; `i.block` is the axis around them, one for all parts. The last
    blocks of a part may do some elements again. What reductions over the parts of a reduced axis give is combined.
    """

    axis: str
    at: tuple[int, ...]
    blocks: int = 1

    def apply(self, kernel: UOp) -> UOp:
        r = find_axis(kernel, self.axis)
        size, loops = axis_size(r), loops_of(kernel)
        self.require_loop(r)
        ends = (0, *self.at, size if isinstance(size, int) else 0)
        fits = len(self.at) < MOST_PARTS and all(a < b for a, b in pairwise(ends))
        self.require(fits, f"needs less than {MOST_PARTS} borders within a constant size, in order")
        later = loops.stages or loops.running or any(o.arg.kind is AxisKind.ORDERED for o in loops.ranges)
        self.require(not later, "divide before anything is staged, and nothing whose steps are in order")
        sizes = [b - a for a, b in pairwise(ends)]
        if r.arg.reduce:
            self.require(self.blocks == 1, "blocks are of outputs")
            parts = [renamed(r, f"{self.axis}.{i}", n) for i, n in enumerate(sizes)]
            true = UOp.const(True, dtypes.bool)
            return simplify(reduced_in_parts(self, kernel, r, [((p,), p + a, true) for p, a in zip(parts, ends)]))
        divided = self.blocks >= 1 and not updates_in_place(kernel)
        self.require(divided, "outputs that are not updated in place are divided")
        reduces = [u for u in kernel.toposort() if u.op is Ops.REDUCE and r in u.ranges]
        inside = {o for u in reduces for o in u.src[1:]}
        inside |= {o for o in ranges_of(kernel) if not o.arg.reduce and nest_key(o) > nest_key(r)}
        block = renamed(r, f"{self.axis}.block", self.blocks)
        stores: list[UOp] = []
        for i, (start, n) in enumerate(zip(ends, sizes)):
            steps = -(-n // self.blocks)
            steps = min(n, -(-steps // ROUND) * ROUND) if steps >= 4 * ROUND else steps
            place = renamed(r, f"{self.axis}.{i}", steps) + (-((-(block * steps)).maximum(steps - n)) + start)
            table = {o: renamed(o, f"{o.arg.name}.{self.axis}.{i}") for o in inside}
            stores += [substitute(s, {**table, r: place}) for s in kernel.src if r in s.ranges]
        return simplify(kernel.replace(src=(*stores, *(s for s in kernel.src if r not in s.ranges))))


def reduced_in_parts(action: Action, kernel: UOp, r: UOp, parts: Sequence[tuple[tuple[UOp, ...], UOp, UOp]]) -> UOp:
    """The kernel with each reduction over `r` as one over every part: (its ranges, the step of `r`, whether there are
    any). Where there are none nothing is read, not even what the loop does not vary.
    """
    table: dict[UOp, UOp] = {}
    reduces = [u for u in kernel.toposort() if u.op is Ops.REDUCE]
    action.require(all(r not in u.ranges for u in reduces), "a reduction inside depends on the axis")
    for u in (u for u in reduces if r in u.src[1:]):
        others = [o for o in u.src[1:] if o is not r]
        for ranges, step, some in parts:
            own = {o: renamed(o, f"{o.arg.name}.{ranges[-1].arg.name}") if u in table else o for o in others}
            body = substitute(gate_loads(u.src[0], r, step, ranges[0], some), {r: step, **own})
            part = u.replace(src=(body, *own.values(), *ranges))
            table[u] = UOp(u.arg, u.dtype, (table[u], part)) if u in table else part
    return replace_in_order(kernel, table)

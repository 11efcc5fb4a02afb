"""What a step of an ordered axis, as of a scan, reads of the step before: it stays in a register."""

from __future__ import annotations

from collections.abc import Mapping

from tinyweb.graph.ir import Ops, UOp, substitute
from tinyweb.graph.lower.constructors import is_const
from tinyweb.graph.lower.groups import free_loops
from tinyweb.graph.symbolic import clauses, simplify


def steps_before(kernel: UOp) -> dict[UOp, tuple[UOp, UOp]]:
    """The LOADs of what the step before has stored in the innermost loop: (the loop, the value it stores)."""
    found: dict[UOp, tuple[UOp, UOp]] = {}
    for store in kernel.src:
        loops = free_loops(store)
        if not loops:
            continue
        loop = loops[-1]
        index = store.src[1]
        previous = simplify(substitute(index, {loop: loop + -1}))
        for u in kernel.toposort() if previous is not index else ():
            if u.op is Ops.LOAD and u.src[0] is store.src[0] and u.src[1] is not index and len(u.src) > 2:
                # elsewhere than in the first step the gate holds for all that is stored
                inside = simplify(loop >= 1) in map(simplify, clauses(u.src[2]))
                if inside and simplify(u.src[1]) is previous and loop in u.ranges:
                    found[u] = (loop, store.src[2])
    return found


def first_steps(kernel: UOp, before: Mapping[UOp, tuple[UOp, UOp]]) -> dict[UOp, UOp]:
    """By LOAD of a step before: the constant that all that use it replace it by in the first step, where its gate is
    false; it is zero where there is none. By WHERE that does so: the LOAD, whose register holds that constant."""
    found: dict[UOp, UOp] = {}
    for load, (loop, _) in before.items():
        later = (load.src[2], simplify(loop >= 1))
        users = [u for u in kernel.toposort() if load in u.src]
        chosen = {
            u: other
            for u in users
            if u.op is Ops.WHERE
            for condition, mine, other in (
                (u.src[0], u.src[1], u.src[2]),
                (simplify(u.src[0].logical_not()), u.src[2], u.src[1]),
            )
            if mine is load and condition in later and is_const(other)
        }
        values = set(chosen.values())
        if len(values) == 1 and len(chosen) == len(users):
            found[load] = values.pop()
        found |= {u: load for u, other in chosen.items() if other is found.get(load, UOp.const(0, load.dtype))}
    return found

"""Plans whose buffers are within what a device binds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tinyweb.dtype import DType
from tinyweb.graph.ir import UOp
from tinyweb.graph.schedule import new_buffer
from tinyweb.graph.schedule.memory_plan import plan_memory
from tinyweb.graph.schedule.parts import Parts, divide, on_parts

if TYPE_CHECKING:
    from tinyweb.tracing import Plan


def within(
    plans: Mapping[str, Plan], limit: int, whole: frozenset[UOp] = frozenset()
) -> tuple[dict[str, Plan], dict[UOp, Parts]]:
    """The plans on parts of at most `limit` bytes of what is larger, and these parts. What is `whole` (what a page
    itself writes or reads) stays as it is.
    """
    divided = divide([c for plan in plans.values() for c in plan.calls], limit, new_buffer, whole)
    return {name: _on_parts(plan, divided) for name, plan in plans.items()}, divided


def _on_parts(plan: Plan, divided: Mapping[UOp, Parts]) -> Plan:
    if not any(b in divided for c in plan.calls for b in c.buffers):
        return plan
    temporaries = [p for b in plan.temporaries for p in (divided[b].buffers if b in divided else (b,))]

    def temporary(size: int, dtype: DType) -> UOp:
        temporaries.append(new_buffer(size, dtype))
        return temporaries[-1]

    calls = tuple(part for call in plan.calls for part in on_parts(call, divided, temporary))
    return replace(plan, calls=calls, memory=plan_memory([c.buffers for c in calls], temporaries))

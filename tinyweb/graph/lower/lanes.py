"""Lane ranges: the VECTOR, UNROLL and DOT axes that a value varies over."""

from __future__ import annotations

from tinyweb.graph.ir import AxisKind, Ops, UOp
from tinyweb.graph.lower.hardware import size_of

LANE_KINDS = (AxisKind.VECTOR, AxisKind.UNROLL, AxisKind.DOT)
_NO_LANES = frozenset(
    {
        Ops.PARAM,
        Ops.BUFFER,
        Ops.AFTER,
        Ops.END,
        Ops.BARRIER,
        Ops.SINK,
        Ops.CONST,
        Ops.VARIABLE,
        Ops.SPECIAL,
        Ops.SUBGROUP_SIZE,
    }
)


def is_lane(u: UOp) -> bool:
    return u.op is Ops.RANGE and u.arg.kind in LANE_KINDS


def nest_key(r: UOp) -> tuple[int, str]:
    """Sorts ranges from the outside in."""
    return (r.arg.order, r.arg.name)


def lane_count(r: UOp) -> int:
    """The size of a lane range; ValueError if it is not constant."""
    size = size_of(r)
    if not isinstance(size, int):
        raise ValueError(f"axis {r.arg.name} is bound to {r.arg.kind.name.lower()} and needs a constant size")
    return size


class Lanes:
    """Which lanes a value varies over, outermost first. Memory does not count: only where it is read."""

    def __init__(self) -> None:
        self._memo: dict[UOp, tuple[UOp, ...]] = {}

    def __call__(self, u: UOp) -> tuple[UOp, ...]:
        found = self._memo.get(u)
        if found is not None:
            return found
        stack = [u]
        while stack:
            node = stack[-1]
            if node in self._memo:
                stack.pop()
                continue
            if node.op in _NO_LANES:
                self._memo[node] = ()
                continue
            if is_lane(node):
                self._memo[node] = (node,)
                continue
            src = node.src[1:] if node.op is Ops.LOAD else node.src
            missing = [s for s in src if s not in self._memo]
            if missing:
                stack.extend(missing)
                continue
            lanes = {r for s in src for r in self._memo[s]}
            if node.op is Ops.REDUCE:
                lanes.difference_update(node.src[1:])
            self._memo[node] = tuple(sorted(lanes, key=nest_key))
        return self._memo[u]

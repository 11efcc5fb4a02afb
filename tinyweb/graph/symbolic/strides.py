"""How an expression depends on one range: linearly with a stride that is one number, or otherwise."""

from __future__ import annotations

from tinyweb.graph.ir.ops import Ops
from tinyweb.graph.ir.uop import UOp
from tinyweb.graph.symbolic.simplify import simplify


def split_by(expr: UOp, range_: UOp) -> tuple[int, UOp] | None:
    """(stride, rest) with expr == range_ · stride + rest, rest not depending on the RANGE; None if there are none."""
    if range_ not in expr.ranges:
        return 0, simplify(expr)
    known: dict[UOp, tuple[int, UOp] | None] = expr.__dict__.setdefault("_strides", {})
    if range_ not in known:
        parts = _split(expr, range_)
        # (kept on the node, which no rest refers to: it does not depend on the range)
        known[range_] = (int(parts[0].arg), parts[1]) if parts is not None and parts[0].op is Ops.CONST else None
    return known[range_]


def stride_of(expr: UOp, range_: UOp) -> int:
    """The stride of `split_by`; 0 where there is none."""
    return (split_by(expr, range_) or (0,))[0]


def _split(u: UOp, leaf: UOp) -> tuple[UOp, UOp] | None:
    zero = UOp.const(0, u.dtype)
    stride, rest = zero, zero
    stack: list[tuple[UOp, UOp | None]] = [(u, None)]  # (part, what it is multiplied with)
    while stack:
        part, by = stack.pop()
        scaled = part if by is None else part * by
        if leaf not in part.ranges:
            rest = rest + scaled
        elif part is leaf:
            stride = stride + (UOp.const(1, u.dtype) if by is None else by)
        elif part.op is Ops.ADD:
            stack.extend((s, by) for s in reversed(part.src))
        elif part.op is Ops.MUL and not all(leaf in s.ranges for s in part.src):
            varying, fixed = part.src if leaf in part.src[0].ranges else part.src[::-1]
            stack.append((varying, fixed if by is None else by * fixed))
        elif part.op is Ops.NEG:
            stack.append((part.src[0], UOp.const(-1, u.dtype) if by is None else -by))
        else:
            return None
    return simplify(stride), simplify(rest)

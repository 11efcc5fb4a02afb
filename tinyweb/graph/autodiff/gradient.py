"""Reverse-mode differentiation of a tensor graph (Griewank and Walther, Evaluating Derivatives, 2008, chapter 3)."""

from __future__ import annotations

from collections.abc import Sequence

from tinyweb.graph.autodiff.derivations import total
from tinyweb.graph.autodiff.vector_jacobian import RULES, inputs
from tinyweb.graph.ir import Ops, UOp, toposort
from tinyweb.graph.ir.movement import reshape


def gradient(root: UOp, upstream: UOp, targets: Sequence[UOp]) -> list[UOp | None]:
    """The gradient of sum(root · upstream) with respect to each target, or None where root does not depend on it.

    `upstream` has root's shape. A gradient has its target's shape and dtype. Nothing is computed: the gradients
    share nodes with the forward graph, so that one schedule serves both.
    """
    wanted = set(targets)
    nodes = toposort([root])
    depends: set[UOp] = set()
    for u in nodes:
        if u.dtype.is_float and (u in wanted or (u.op in RULES and any(s in depends for s in inputs(u)))):
            depends.add(u)
    arrived: dict[UOp, UOp] = {root: upstream.cast(root.dtype)} if root in depends else {}
    for u in reversed(nodes):
        g = arrived.get(u)
        if g is None or u.op not in RULES:
            continue
        for s, part in zip(inputs(u), RULES[u.op](u, g), strict=True):
            if part is None or s not in depends:
                continue
            if not s.shape and part.shape:  # a scalar that went with an array
                part = reshape(total(part, range(len(part.shape))), ())
            arrived[s] = arrived[s].alu(Ops.ADD, part) if s in arrived else part
    return [arrived.get(t) for t in targets]

"""Where the users of a value meet again: immediate post-dominators of a graph."""

from __future__ import annotations

from collections.abc import Iterator

from tinyweb.graph.ir import ELEMENTWISE, MOVEMENT, Ops, UOp, reached, toposort, users
from tinyweb.graph.ir.on_node import on_node


class PostDominators:
    """For each node below `root` the nearest node through which every path to the root leads (Cooper, Harvey, Kennedy:
    A Simple, Fast Dominance Algorithm; one pass suffices because the graph has no cycles). Of constants, whose users
    are all over a graph and which are computed where they are needed, it is the root."""

    def __init__(self, root: UOp):
        order = toposort([root])
        self.users = users([root])
        self.position = {u: i for i, u in enumerate(order)}
        self.of: dict[UOp, UOp] = {root: root}
        for u in reversed(order[:-1]):
            if is_constant(u):
                self.of[u] = root
                continue
            above = self.users[u]
            meet = above[0]
            for other in above[1:]:
                meet = self._common(meet, other)
            self.of[u] = meet

    def _common(self, a: UOp, b: UOp) -> UOp:
        while a is not b:
            if self.position[a] < self.position[b]:
                a = self.of[a]
            else:
                b = self.of[b]
        return a

    def between(self, u: UOp) -> Iterator[UOp]:
        """The nodes on paths from `u` to where its users meet (both ends excluded), one by one: whoever asks stops at
        the first that will not do."""
        end = self.of[u]

        def onward(x: UOp) -> list[UOp]:
            return [y for y in self.users[x] if y is not end]

        return reached(onward(u), onward)


def is_constant(u: UOp) -> bool:
    """Whether a value is made of nothing but constants, element by element."""
    return on_node(u, "is_constant", _is_constant)


def _is_constant(u: UOp) -> bool:
    if not u.src:
        return u.op in (Ops.CONST, Ops.IOTA)
    return (u.op in ELEMENTWISE or u.op in MOVEMENT) and all(s.__dict__["is_constant"] for s in u.src)

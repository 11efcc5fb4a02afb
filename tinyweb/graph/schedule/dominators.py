"""Where the users of a value meet again: immediate post-dominators of a graph."""

from __future__ import annotations

from collections.abc import Iterator

from tinyweb.graph.ir import UOp, toposort, users


class PostDominators:
    """For each node below `root` the nearest node through which every path to the root leads (Cooper, Harvey, Kennedy:
    A Simple, Fast Dominance Algorithm; one pass suffices because the graph has no cycles)."""

    def __init__(self, root: UOp):
        order = toposort([root])
        self.users = users([root])
        self.position = {u: i for i, u in enumerate(order)}
        self.of: dict[UOp, UOp] = {root: root}
        for u in reversed(order[:-1]):
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
        seen: set[UOp] = set()
        todo = [x for x in self.users[u] if x is not end]
        while todo:
            x = todo.pop()
            if x in seen:
                continue
            seen.add(x)
            yield x
            todo.extend(y for y in self.users[x] if y is not end)

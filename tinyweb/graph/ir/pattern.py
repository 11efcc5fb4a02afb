"""Patterns over UOps, tables of rewrite rules, and the walk that applies them to a whole graph."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from tinyweb.dtype import DType
from tinyweb.graph.ir.matching import Rewriter, rewriter
from tinyweb.graph.ir.ops import COMMUTATIVE, Ops
from tinyweb.graph.ir.uop import UOp

Bindings: TypeAlias = dict[str, UOp]


class UPat:
    """A pattern for one node.

    `op`: an op, several, or None for any.  `src`: a sequence of patterns, one per source (tried in both orders for
    commutative ops); or one pattern that every source must match; or None for anything.  `rest=True` allows more
    sources than patterns.  `name` binds the node; a name used twice must bind the same node.
    """

    __slots__ = ("arg", "dtype", "every", "name", "ops", "rest", "src", "where")

    def __init__(
        self,
        op: Ops | Collection[Ops] | None = None,
        *,
        src: Sequence[UPat] | UPat | None = None,
        name: str | None = None,
        dtype: DType | Collection[DType] | None = None,
        arg: Any = None,
        rest: bool = False,
        where: Callable[[UOp], bool] | None = None,
    ):
        self.ops = None if op is None else frozenset({op} if isinstance(op, Ops) else op)
        self.every = src if isinstance(src, UPat) else None
        self.src = None if src is None or isinstance(src, UPat) else tuple(src)
        self.name, self.arg, self.rest, self.where = name, arg, rest, where
        self.dtype = None if dtype is None else frozenset({dtype} if isinstance(dtype, DType) else dtype)

    def match(self, u: UOp, bound: Bindings) -> Iterator[Bindings]:
        """All ways this pattern fits `u`, each as the names bound so far plus its own."""
        if self.ops is not None and u.op not in self.ops:
            return
        if self.dtype is not None and u.dtype not in self.dtype:
            return
        if self.arg is not None and u.arg != self.arg:
            return
        if self.where is not None and not self.where(u):
            return
        if self.name is not None:
            if bound.get(self.name, u) is not u:
                return
            bound = {**bound, self.name: u}
        if self.every is not None:
            yield from _match_all([self.every] * len(u.src), u.src, bound)
        elif self.src is None:
            yield bound
        elif len(self.src) == len(u.src) or (self.rest and len(self.src) < len(u.src)):
            yield from _match_all(self.src, u.src, bound)
            if u.op in COMMUTATIVE and len(self.src) == 2:
                yield from _match_all(self.src, u.src[::-1], bound)


def _match_all(patterns: Sequence[UPat], nodes: Sequence[UOp], bound: Bindings) -> Iterator[Bindings]:
    if not patterns:
        yield bound
        return
    for b in patterns[0].match(nodes[0], bound):
        yield from _match_all(patterns[1:], nodes[1:], b)


def any_node(name: str | None = None, dtype: DType | Collection[DType] | None = None) -> UPat:
    return UPat(None, name=name, dtype=dtype)


def constant(name: str | None = None, value: Any = None) -> UPat:
    return UPat(Ops.CONST, name=name, arg=value)


Rule: TypeAlias = "tuple[UPat, Callable[..., UOp | None]]"


class PatternMatcher:
    """A table of rules. A rule's function takes the pattern's names as keywords (and `ctx`, if it asks for it) and
    returns the node to put in place, or None when it does not apply after all."""

    def __init__(self, rules: Sequence[Rule]):
        self.rules: list[Rule] = list(rules)
        self._by_op: dict[Ops, Rewriter | None] = {}

    def __add__(self, other: PatternMatcher) -> PatternMatcher:
        return PatternMatcher(self.rules + other.rules)

    def rewrite(self, u: UOp, ctx: Any = None) -> UOp | None:
        """The result of the first rule that applies and changes something, else None."""
        op = u.op
        if op not in self._by_op:
            self._by_op[op] = rewriter(op, self.rules)
        function = self._by_op[op]
        return None if function is None else function(u, ctx)


def graph_rewrite(
    root: UOp, rules: PatternMatcher, ctx: Any = None, keep: str | None = None, leaf: Ops | None = None
) -> UOp:
    """Apply `rules` to every node, sources first, until none applies anywhere. Nodes of the kind `leaf` stay as they
    are, with all below them.

    With `keep`, results stay on the nodes under that name, and no node is ever rewritten twice: then `ctx` must not
    matter. RuntimeError when the rules go round in a circle.
    """
    done: dict[UOp, UOp] = {}
    awaited: dict[UOp, UOp] = {}  # nodes that were rewritten, and what is not finished yet of that
    stack = [root]
    while stack:
        node = stack[-1]
        if node in done:
            stack.pop()
            continue
        if keep is not None and keep in node.__dict__:
            done[node] = node.__dict__[keep] or node
            stack.pop()
            continue
        if node in awaited:
            done[node] = done[awaited.pop(node)]
            stack.pop()
            continue
        if node.op is leaf:
            done[node] = node
            stack.pop()
            continue
        wait = [s for s in node.src if s not in done]
        if wait:
            if not awaited.keys().isdisjoint(wait):
                raise RuntimeError(f"rewrite rules go round in a circle at {node}")
            stack += wait
            continue
        src = tuple([done[s] for s in node.src])
        rebuilt = node.with_sources(src)
        if rebuilt not in done:
            result = rules.rewrite(rebuilt, ctx)
            if result is not None and result not in done:
                awaited[node] = result
                if result in awaited:
                    raise RuntimeError(f"rewrite rules go round in a circle at {result}")
                stack.append(result)
                continue
            done[rebuilt] = rebuilt if result is None else done[result]
        done[node] = done[rebuilt]
        stack.pop()
    if keep is not None:
        for u, result in done.items():
            # no node holds itself: it would never be freed at once
            u.__dict__[keep] = None if result is u else result
    return done[root]


def rebuild(nodes: Iterable[UOp], rule: Callable[[UOp, tuple[UOp, ...]], UOp | None]) -> dict[UOp, UOp]:
    """What each of `nodes` (all below some roots, sources first) becomes: what `rule` makes of it and of what its
    sources have become; where that is None, the same operation on these.
    """
    done: dict[UOp, UOp] = {}
    for u in nodes:
        src = tuple([done[s] for s in u.src])
        new = rule(u, src)
        done[u] = u.with_sources(src) if new is None else new
    return done


def substitute(root: UOp, table: dict[UOp, UOp]) -> UOp:
    """`root` with the nodes of `table` replaced (outermost first; replacements are not looked into)."""
    done: dict[UOp, UOp] = dict(table)
    if root in done:
        return done[root]
    oldest = min((u.created for u in table), default=root.created + 1)  # what is older has none of these below it
    if root.created < oldest:
        return root
    above: list[tuple[UOp, Iterator[UOp]]] = []
    u, rest = root, iter(root.src)
    while True:
        for s in rest:
            if s not in done:
                if s.src and s.created > oldest:
                    above.append((u, rest))
                    u, rest = s, iter(s.src)
                    break
                done[s] = s
        else:
            src = tuple([done[s] for s in u.src])
            done[u] = new = u.with_sources(src)
            if not above:
                return new
            u, rest = above.pop()

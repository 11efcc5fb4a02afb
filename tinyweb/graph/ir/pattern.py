"""Patterns over UOps, tables of rewrite rules, and the walk that applies them to a whole graph."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, MutableMapping, Sequence
from typing import Any, TypeAlias

from tinyweb.dtype import DType
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
        self._by_op: dict[Ops, list[_Entry]] = {}

    def __add__(self, other: PatternMatcher) -> PatternMatcher:
        return PatternMatcher(self.rules + other.rules)

    def rewrite(self, u: UOp, ctx: Any = None) -> UOp | None:
        """The result of the first rule that applies and changes something, else None."""
        entries = self._by_op.get(u.op)
        if entries is None:
            entries = self._by_op[u.op] = [
                (p, f, "ctx" in inspect.signature(f).parameters, _single_ops(p))
                for p, f in self.rules
                if p.ops is None or u.op in p.ops
            ]
        below = {s.op for s in u.src}
        for pattern, function, wants_ctx, needed in entries:
            if needed <= below:
                for names in pattern.match(u, {}):
                    out = function(**names, ctx=ctx) if wants_ctx else function(**names)
                    if out is not None and out is not u:
                        return out
        return None


_Entry: TypeAlias = "tuple[UPat, Callable[..., UOp | None], bool, frozenset[Ops]]"


def _single_ops(p: UPat) -> frozenset[Ops]:
    """The ops that must occur among the sources of a match: a cheap test before the real one."""
    return frozenset(op for s in p.src or () if s.ops is not None and len(s.ops) == 1 for op in s.ops)


def graph_rewrite(
    root: UOp, rules: PatternMatcher, ctx: Any = None, memo: MutableMapping[UOp, UOp] | None = None
) -> UOp:
    """Apply `rules` to every node, sources first, until none applies anywhere. A shared `memo` spares repeated work.

    RuntimeError when the rules go round in a circle.
    """
    done: MutableMapping[UOp, UOp] = {} if memo is None else memo
    pending: set[UOp] = set()  # rewritten, their replacement not finished yet
    # a frame is (node, the node as rewritten so far, stage): 0 = sources first, 1 = rules on it, 2 = take over a result
    stack: list[tuple[UOp, UOp, int]] = [(root, root, 0)]
    while stack:
        node, current, stage = stack.pop()
        if stage == 0:
            if node in done:
                continue
            if node in pending:
                raise RuntimeError(f"rewrite rules go round in a circle at {node}")
            stack.append((node, node, 1))
            stack.extend((s, s, 0) for s in node.src if s not in done)
        elif stage == 1:
            new_src = tuple(done[s] for s in current.src)
            rebuilt = current if new_src == current.src else current.replace(src=new_src)
            if rebuilt in done:
                done[node] = done[rebuilt]
                continue
            result = rules.rewrite(rebuilt, ctx)
            if result is None:
                done[node] = done[rebuilt] = rebuilt
            elif result in done:
                done[node] = done[result]
            else:
                pending.add(node)
                stack.append((node, result, 2))
                stack.append((result, result, 0))
        else:
            pending.discard(node)
            done[node] = done[current]
    return done[root]


def substitute(root: UOp, table: dict[UOp, UOp]) -> UOp:
    """`root` with the nodes of `table` replaced (outermost first; replacements are not looked into)."""
    done: dict[UOp, UOp] = dict(table)
    if root in done:
        return done[root]
    above: list[tuple[UOp, Iterator[UOp]]] = []
    u, rest = root, iter(root.src)
    while True:
        for s in rest:
            if s not in done:
                if s.src:
                    above.append((u, rest))
                    u, rest = s, iter(s.src)
                    break
                done[s] = s
        else:
            src = tuple([done[s] for s in u.src])
            done[u] = new = u if src == u.src else UOp(u.op, u.dtype, src, u.arg)
            if not above:
                return new
            u, rest = above.pop()

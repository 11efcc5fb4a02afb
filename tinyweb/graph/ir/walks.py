"""Walks over graphs, each node once: iterative, for graphs are deeper than the stack."""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Iterator
from typing import TypeVar

from tinyweb.graph.ir.ops import Ops
from tinyweb.graph.ir.uop import UOp

Node = TypeVar("Node", bound=Hashable)


def reached(roots: Iterable[Node], further: Callable[[Node], Iterable[Node]]) -> Iterator[Node]:
    """All that is reached from `roots` by steps to what is `further` from a node, that node first."""
    stack, seen = list(roots), set[Node]()
    while stack:
        u = stack.pop()
        if u not in seen:
            seen.add(u)
            yield u
            stack.extend(further(u))


def below(roots: Iterable[UOp], into: Callable[[UOp], bool]) -> Iterator[UOp]:
    """Nodes reachable from `roots`, users first; of the sources those alone of nodes to go `into`."""
    return reached(roots, lambda u: u.src if into(u) else ())


def in_order(roots: Iterable[Node], needs: Callable[[Node], Iterable[Node]]) -> list[Node]:
    """The roots and all that they need, each after what it needs, which is no circle."""
    done: dict[Node, None] = {}
    stack = [(u, False) for u in roots][::-1]
    while stack:
        u, complete = stack.pop()
        if complete:
            done[u] = None
        elif u not in done:
            stack.append((u, True))
            stack.extend([(s, False) for s in needs(u) if s not in done][::-1])
    return list(done)


def through(u: UOp, kinds: Container[Ops]) -> tuple[list[UOp], UOp]:
    """The operations of some kinds, such as views, that a value lies under, outermost first, and the value."""
    passed: list[UOp] = []
    while u.op in kinds:
        passed.append(u)
        u = u.src[0]
    return passed, u

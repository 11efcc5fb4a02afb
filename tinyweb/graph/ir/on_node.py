"""Analyses that are kept on the nodes they are of: computed once, and gone with the node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar, overload

if TYPE_CHECKING:
    from tinyweb.graph.ir.uop import UOp

T = TypeVar("T")


class graph_property(Generic[T]):
    """A property kept on the node, computed for the sources first: no graph is too deep for Python's stack.

    `through` says which sources the computation looks into; the others are left alone.
    """

    def __init__(self, function: Callable[[UOp], T], through: Callable[[UOp], bool] | None = None):
        self.function, self.through = function, through
        self.__doc__ = function.__doc__

    def __set_name__(self, owner: type[UOp], name: str) -> None:
        self.name = name

    @overload
    def __get__(self, u: None, owner: type[UOp]) -> graph_property[T]: ...
    @overload
    def __get__(self, u: UOp, owner: type[UOp]) -> T: ...
    def __get__(self, u: UOp | None, owner: type[UOp]) -> graph_property[T] | T:
        if u is None:
            return self
        name = self.name
        for s in u.src:
            if name not in s.__dict__:
                return on_node(u, name, self.function, self.through)
        value = u.__dict__[name] = self.function(u)  # as most often, for graphs are built from the leaves up
        return value


def on_node(u: UOp, name: str, function: Callable[[UOp], T], through: Callable[[UOp], bool] | None = None) -> T:
    """`function(u)`, kept on the node under `name`; it is called for the sources (those `through` accepts) before."""
    if name in u.__dict__:
        known: T = u.__dict__[name]
        return known
    rest = iter(u.src)
    above: list[tuple[UOp, Iterator[UOp]]] = []
    while True:
        for s in rest:
            if name not in s.__dict__ and (through is None or through(s)):
                above.append((u, rest))
                u, rest = s, iter(s.src)
                break
        else:
            value = u.__dict__[name] = function(u)
            if not above:
                return value
            u, rest = above.pop()

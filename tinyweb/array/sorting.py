"""Sorting, and what is made of it."""

from __future__ import annotations

from tinyweb.array.scatter import Scatter


class Sorting(Scatter):
    """Methods that put elements in order."""

    __slots__ = ()

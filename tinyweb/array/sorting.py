"""Sorting, and what is made of it."""

from __future__ import annotations

from tinyweb.array.scan import Scan


class Sorting(Scan):
    """Methods that put elements in order."""

    __slots__ = ()

"""Running sums, products and extrema along an axis."""

from __future__ import annotations

from tinyweb.array.linalg import Linalg


class Scan(Linalg):
    """Methods whose element i depends on elements 0 … i."""

    __slots__ = ()

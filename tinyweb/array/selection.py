"""What is made of sorted elements: order statistics, histograms, and drawing without a table."""

from __future__ import annotations

from tinyweb.array.sorting import Sorting


class Selection(Sorting):
    """Medians, quantiles, counts, permutations."""

    __slots__ = ()

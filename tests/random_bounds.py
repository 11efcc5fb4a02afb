"""Bounds that a random sample exceeds once in 10⁹ times, whatever its size; each names the inequality it comes from.

For what is drawn from a generator that a test does not seed itself: its numbers follow from the seed of the run.
"""

import math
from collections.abc import Callable

import numpy as np

RARE = 1e-9


def distance(values: np.ndarray, distribution: Callable[[np.ndarray], np.ndarray]) -> float:
    """Kolmogorov's: how far the shares of `values` below each place are from what `distribution` says, at most."""
    x = np.sort(values.astype(np.float64).reshape(-1))
    shares, at = np.arange(x.size + 1) / x.size, distribution(x)
    return float(max(np.abs(at - shares[1:]).max(), np.abs(at - shares[:-1]).max()))


def distance_bound(count: int) -> float:
    """Of that distance: Dvoretzky, Kiefer and Wolfowitz's inequality with Massart's constant, 2 exp(-2 n d²)."""
    return math.sqrt(math.log(2 / RARE) / (2 * count))


def mean_bound(count: int, width: float = 1.0) -> float:
    """How far the mean of `count` values within an interval of `width` is off: Hoeffding's 2 exp(-2 n (d / width)²)."""
    return width * distance_bound(count)


def gap_bound(count: int) -> float:
    """The share of an interval that stays empty at its end: of n uniform values, (1 - g)ⁿ ≤ exp(-n g)."""
    return min(1.0, -math.log(RARE) / count)


def normal(x: np.ndarray) -> np.ndarray:
    """The normal distribution."""
    return np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in x])

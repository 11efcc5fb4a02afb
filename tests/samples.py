"""Many parameters of one mechanism: `make test` runs a sample of them, `make test-all` every one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import Any

import pytest


def slow_unless(quick: Callable[..., bool], *axes: Iterable[Any]) -> list[Any]:
    """What `pytest.mark.parametrize` takes for all combinations of `axes`; those that are not `quick` are slow."""
    return [pytest.param(*case, marks=() if quick(*case) else pytest.mark.slow) for case in product(*map(tuple, axes))]


def in_turn(cases: Iterable[Any], devices: Sequence[str], always: int = 1) -> list[Any]:
    """What `pytest.mark.parametrize` takes for all pairs of a case and a device. Those of the first `always` devices
    are quick, and those of one of the others, which take turns.
    """
    pairs = []
    for i, case in enumerate(cases):
        for j, device in enumerate(devices):
            quick = j < always or j == always + i % (len(devices) - always)
            pairs.append(pytest.param(case, device, marks=() if quick else pytest.mark.slow))
    return pairs

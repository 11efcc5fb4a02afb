"""Many parameters of one mechanism: `make test` runs a sample of them, `make test-all` every one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import pytest


def slow_unless(quick: Callable[..., bool], *axes: Iterable[Any]) -> list[Any]:
    """What `pytest.mark.parametrize` takes for all combinations of `axes`; those that are not `quick` are slow."""
    return [pytest.param(*case, marks=() if quick(*case) else pytest.mark.slow) for case in product(*map(tuple, axes))]

"""Bits for each matrix: within the bytes, and near the best of all choices."""

from itertools import product

import numpy as np
import pytest

from tinyweb.errors import TinywebError
from tinyweb.quantization.mixed import Choice, choose


def choices(seed: int, count: int) -> dict[str, list[Choice]]:
    random = np.random.default_rng(seed)
    found = {}
    for i in range(count):
        size, base = int(random.integers(100, 1000)), float(random.uniform(0.001, 1))
        found[f"m{i}"] = [Choice(f"q{b}", size * b, base * 4.0 ** (3 - b)) for b in (8, 6, 5, 4, 3)]
    return found


@pytest.mark.parametrize("seed", range(6))
def test_near_the_best(seed: int) -> None:
    found = choices(seed, 5)
    least = sum(min(c.bytes for c in each) for each in found.values())
    most = sum(max(c.bytes for c in each) for each in found.values())
    for part in (0, 0.3, 0.6, 1):
        room = least + int(part * (most - least)) + 50
        chosen = choose(found, room, 50)
        by_kind = {name: {c.kind: c for c in each} for name, each in found.items()}
        taken = [by_kind[name][kind] for name, kind in chosen.items()]
        assert sum(c.bytes for c in taken) + 50 <= room
        every = [c for c in product(*found.values()) if sum(x.bytes for x in c) + 50 <= room]
        best = min(sum(x.error for x in c) for c in every)
        assert best <= sum(c.error for c in taken) <= 1.5 * best + 1e-9


def test_choices_that_are_no_use_are_left_out() -> None:
    found = {"a": [Choice("q8", 80, 0.1), Choice("q4", 40, 0.1), Choice("q3", 30, 0.5)]}
    assert choose(found, 1000, 0) == {"a": "q4"} and choose(found, 39, 0) == {"a": "q3"}


def test_too_few_bytes() -> None:
    with pytest.raises(TinywebError, match=r"--bytes 99 is too little .* at least 130 bytes .*, 100 of them"):
        choose({"a": [Choice("q8", 80, 0.1), Choice("q3", 30, 0.5)]}, 99, 100)

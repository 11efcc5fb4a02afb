"""Sizes have one form, with the same values, and bounds that hold."""

from __future__ import annotations

import numpy as np

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import Size, UOp, Variable, larger_size, size_add, size_div, size_mul, size_sub, smaller_size
from tinyweb.graph.ir.bounds import fold_size, size_bounds
from tinyweb.graph.symbolic import evaluate, proves_less

LOW, HIGH = 1, 40
N = Variable("n", LOW, HIGH)


def values(size: Size) -> list[int]:
    return [size if isinstance(size, int) else int(evaluate(size, {N: n})) for n in range(LOW, HIGH + 1)]


def random_size(random: np.random.Generator) -> tuple[Size, list[int]]:
    """A size and its values, by Python's arithmetic."""
    size: Size = N
    numbers = list(range(LOW, HIGH + 1))
    for _ in range(random.integers(1, 6)):
        k, how = int(random.integers(1, 6)), random.integers(6)
        if how == 0:
            size, numbers = size_add(size, k - 3), [n + k - 3 for n in numbers]
        elif how == 1:
            size, numbers = size_mul(size, k), [n * k for n in numbers]
        elif how <= 3:
            size, numbers = size_div(size, k), [n // k for n in numbers]
        elif how == 4:
            size, numbers = larger_size(size, k), [max(n, k) for n in numbers]
        else:
            other = size_sub(N, k)
            size, numbers = smaller_size(size, other), [min(n, m - k) for n, m in zip(numbers, values(N))]
    return size, numbers


def test_forms_have_the_values() -> None:
    random = np.random.default_rng(np.random.randint(1 << 31))
    for _ in range(400):
        size, numbers = random_size(random)
        assert values(size) == numbers
        if isinstance(size, UOp):
            assert fold_size(size) is size
            low, high = size_bounds(size)
            assert size.vmin <= low <= min(numbers) <= max(numbers) <= high <= size.vmax


def test_quotients_of_quotients() -> None:
    half = size_div(size_add(N, 1), 2)
    assert size_div(size_add(half, 1), 2) is size_div(size_add(N, 3), 4), "what a second layer of steps leaves"
    assert size_div(size_add(size_mul(N, 32), -1), 2) is size_add(size_mul(N, 16), -1)
    assert size_sub(size_add(size_div(N, 2), HIGH), size_div(N, 2)) == HIGH
    assert size_bounds(fold_size(N - size_mul(size_div(N, 2), 2))) == (0, 1)


def test_steps_stay_inside() -> None:
    """Of a window begun at every third element that leaves room for it, elements lie before the end."""
    from tinyweb.graph.ir import Axis, AxisKind, Ops

    for count in (size_add(size_div(size_sub(N, 5), 3), 1), larger_size(size_add(size_div(size_sub(N, 5), 3), 1), 0)):
        assert isinstance(count, UOp)
        i = UOp(Ops.RANGE, dtypes.index, (count,), Axis("i0", 0, AxisKind.LOOP, False))
        assert proves_less(i * 3 + 4, N) and not proves_less(i * 3 + 5, N)

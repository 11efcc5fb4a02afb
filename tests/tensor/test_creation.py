"""Creating tensors: values, counts and dtypes against NumPy and PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tests.tensor.ops import RUNTIMES
from tinyweb import Tensor, Variable, dtypes
from tinyweb.dtype import ALL, DType
from tinyweb.tensor import realize_all

T = Tensor
CASES: list[tuple[str, Any, Any]] = [
    ("zeros", lambda d: T.zeros(2, 3, device=d), np.zeros((2, 3), np.float32)),
    ("zeros_tuple_int", lambda d: T.zeros((2, 0), dtype=dtypes.int32, device=d), np.zeros((2, 0), np.int32)),
    ("ones_0d", lambda d: T.ones((), device=d), np.float32(1)),
    ("full", lambda d: T.full((2,), 7, device=d), np.array([7, 7], np.int32)),
    ("full_float", lambda d: T.full(3, 1.5, device=d), np.full(3, 1.5, np.float32)),
    ("full_bool", lambda d: T.full((2, 1), True, device=d), np.array([[True], [True]])),
    ("full_nan", lambda d: T.full((2,), float("nan"), device=d), np.full(2, np.nan, np.float32)),
    ("full_numpy_number", lambda d: T.full((1,), np.float32(2.5), device=d), np.float32([2.5])),
    ("empty", lambda d: T.empty(2, 2, device=d), np.zeros((2, 2), np.float32)),
    ("arange", lambda d: T.arange(5, device=d), np.arange(5, dtype=np.int32)),
    ("arange_step", lambda d: T.arange(3, 20, 4, device=d), np.arange(3, 20, 4, dtype=np.int32)),
    ("arange_down", lambda d: T.arange(5, -4, -2, device=d), np.arange(5, -4, -2, dtype=np.int32)),
    ("arange_none", lambda d: T.arange(3, 3, device=d), np.zeros(0, np.int32)),
    ("arange_float", lambda d: T.arange(0.0, 1.0, 0.1, device=d), np.arange(0, 1, 0.1, dtype=np.float64)),
    ("arange_float_down", lambda d: T.arange(1, -1, -0.25, device=d), np.arange(1, -1, -0.25)),
    ("arange_half", lambda d: T.arange(5, dtype=dtypes.float16, device=d), np.arange(5, dtype=np.float16)),
    ("arange_int64", lambda d: T.arange(2**40, 2**40 + 3, device=d), np.arange(2**40, 2**40 + 3)),
    ("arange_bytes", lambda d: T.arange(250, 260, dtype=dtypes.uint8, device=d), np.arange(250, 260).astype(np.uint8)),
    ("linspace", lambda d: T.linspace(-1, 2, 7, device=d), np.linspace(-1, 2, 7)),
    ("linspace_one", lambda d: T.linspace(3, 9, 1, device=d), np.float32([3])),
    ("linspace_none", lambda d: T.linspace(3, 9, 0, device=d), np.zeros(0, np.float32)),
    ("logspace", lambda d: T.logspace(-2, 3, 6, device=d), np.logspace(-2, 3, 6)),
    ("logspace_base", lambda d: T.logspace(0, 4, 5, base=2, device=d), np.float32([1, 2, 4, 8, 16])),
    ("eye", lambda d: T.eye(3, device=d), np.eye(3)),
    ("eye_wide", lambda d: T.eye(2, 4, dtype=dtypes.int32, device=d), np.eye(2, 4, dtype=np.int32)),
    ("tri", lambda d: T.tri(3, 4, 1, device=d), np.tri(3, 4, 1)),
    ("from_numpy", lambda d: T.from_numpy(np.arange(6).reshape(2, 3).T, device=d), np.arange(6).reshape(2, 3).T),
    ("numpy_scalar", lambda d: T(np.int8(-3), device=d), np.int8(-3)),
    ("likes", lambda d: T.zeros_like(T.ones(2, 3, device=d)), np.zeros((2, 3))),
    ("ones_like", lambda d: T.arange(3, device=d).ones_like(dtype=dtypes.float32), np.ones(3)),
    ("full_like", lambda d: T.arange(3, device=d).full_like(4), np.full(3, 4, np.int32)),
    ("empty_like", lambda d: T.ones(3, device=d).empty_like(), np.zeros(3)),
    ("new_full", lambda d: T.ones(3, dtype=dtypes.float16, device=d).new_full((2,), 4), np.full(2, 4, np.float16)),
    ("new_zeros", lambda d: T.ones(3, dtype=dtypes.int8, device=d).new_zeros(2, 1), np.zeros((2, 1), np.int8)),
    ("new_tensor", lambda d: T.ones(3, device=d).new_tensor([1, 2]), np.float32([1, 2])),
]  # fmt: skip


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_values(runtime: str) -> None:
    every = [make(runtime) for _, make, _ in CASES]
    realize_all(every)
    for (name, _, want), made in zip(CASES, every, strict=True):
        got = made.numpy()
        want = np.asarray(want)
        assert made.device == runtime and got.shape == want.shape, name
        assert got.dtype == (np.float32 if want.dtype == np.float64 else want.dtype), f"{name}: {got.dtype}"
        np.testing.assert_allclose(got, want, rtol=4e-7, atol=2e-7, err_msg=name)


@pytest.mark.parametrize(
    ("start", "end", "step"),
    [(0, 1, 0.1), (0, 0.3, 0.1), (1, 1.3, 0.1), (0, 7, 0.7), (-1, 1, 1 / 3), (2.5, -2.5, -0.3), (0, 1e-3, 1e-4)],
)
def test_counts_of_float_ranges(start: float, end: float, step: float) -> None:
    assert Tensor.arange(float(start), end, step).shape == np.arange(start, end, step).shape
    assert Tensor.arange(float(start), end, step).shape == tuple(torch.arange(start, end, step).shape)


def test_symbolic_sizes() -> None:
    n = Variable("n", 1, 8).bind(3)
    assert (Tensor.zeros(n, 2) + 1).numpy().tolist() == [[1, 1]] * 3
    assert Tensor.ones(2, n).full_like(4).numpy().tolist() == [[4, 4, 4]] * 2


def test_equal_constants_are_tensors_of_their_own() -> None:
    x = Tensor.ones(2)
    a, b = x.zeros_like(), x.zeros_like()
    (ga, gb) = (a * 2 + b * 3).sum().gradient(a, b)
    assert ga.tolist() == [2, 2] and gb.tolist() == [3, 3]


INTEGERS = [t for t in ALL if t.kind in ("int", "uint")]


@pytest.mark.parametrize("t", INTEGERS, ids=repr)
def test_numbers_that_an_integer_type_cannot_hold(t: DType) -> None:
    """As NumPy 2 has it: what stands in a program is meant as it is. Arrays and tensors are cast."""
    low, high = int(t.min), int(t.max)
    ways: list[Callable[[Any], Tensor]] = [
        lambda v: Tensor(v, dtype=t),
        lambda v: Tensor([v], dtype=t)[0],
        lambda v: Tensor(((low, v),), dtype=t)[0, 1],
        lambda v: Tensor.full((), v, dtype=t),
        lambda v: Tensor.zeros(1, dtype=t).fill_(v)[0],
        lambda v: Tensor.zeros(2, dtype=t).copy_([v, v])[0],
        lambda v: Tensor.zeros(1, dtype=t).new_full((), v),
        lambda v: Tensor.zeros(2, dtype=t).scatter(0, Tensor([0]), v)[0],
        lambda v: Tensor.zeros(2, dtype=t).pad((1, 1), value=v)[0],
        lambda v: Tensor.zeros(2, dtype=t).threshold(0, v)[0],
    ]
    for make in ways:
        for v in (low, high, high // 2 + 0.75 if t.bits <= 32 else 1.5, True):
            assert make(v).item() == int(v)
        for v in (low - 1, high + 1, 2**70, -(2**70), float(high + 1), float("nan"), float("inf"), float("-inf")):
            with pytest.raises((ValueError, TypeError), match=r"does not fit in|at most 64 bits|pad: .* is no value"):
                make(v)
    x = Tensor([0, 1], dtype=t)
    for operation in ("add", "sub", "mul", "maximum", "bitwise_and", "floor_divide", "remainder"):
        assert getattr(x, operation)(high).dtype is t
        with pytest.raises(ValueError, match=f"{high + 1} does not fit in {t.name}, which holds {low} to {high}"):
            getattr(x, operation)(high + 1)
    with pytest.raises(ValueError, match=f"{low - 1} does not fit in {t.name}"):
        x[0] = low - 1
    assert x.less(high + 1).all().item() and not x.eq(low - 1).any().item()  # comparisons take it as it is
    held = np.array([high + 1 if t.bits < 64 else high], np.int64 if high < 2**63 - 1 else t.numpy)
    assert Tensor(held, dtype=t).item() == (low if t.bits < 64 else high)


def test_whole_numbers_beyond_32_bits() -> None:
    for v in (2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**40, -(2**62), 2**63, 2**64 - 1):
        dtype = dtypes.int32 if -(2**31) <= v < 2**31 else dtypes.int64 if v < 2**63 else dtypes.uint64
        for made in (Tensor(v), Tensor([v])[0], Tensor.full((), v)):
            assert made.dtype is dtype and made.item() == v
    for given in ([0, 2**64 - 1], [[1], [2**63 + 1]]):  # NumPy makes floats of them
        for made in (Tensor(given), Tensor(given, dtype=dtypes.uint64)):
            assert made.dtype is dtypes.uint64 and made.tolist() == given
    for wrong in (2**64, [-1, 2**63]):
        with pytest.raises(ValueError, match="does not fit in uint64"):
            Tensor(wrong)


@pytest.mark.parametrize(
    ("wrong", "error", "says"),
    [
        (lambda: Tensor.zeros(-1), ValueError, "full: sizes must be whole numbers ≥ 0"),
        (lambda: Tensor.zeros(2.5), TypeError, "sizes and axes are integers or Variables, got 2.5"),
        (lambda: Tensor.full((2,), "a"), TypeError, "full: fill_value must be a number, got str 'a'"),
        (lambda: Tensor.arange(0, 5, 0), ValueError, "arange: .* step not 0"),
        (lambda: Tensor.arange(5, 0), ValueError, "arange: a step of 1 leads from 5 away from 0"),
        (lambda: Tensor.arange(0, float("inf")), ValueError, "arange: start, end and step must be finite"),
        (lambda: Tensor.linspace(0, 1, -2), ValueError, "linspace: the number of steps"),
        (lambda: Tensor.eye(-2), ValueError, "eye: sizes must be whole numbers"),
        (lambda: Tensor.from_numpy([1, 2]), TypeError, "from_numpy: expected a NumPy array, got list"),  # type: ignore[arg-type]
    ],
)
def test_errors(wrong: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        wrong()

"""Narrow floats from and to float32: all their numbers, all the halves between them; what IEEE 754 says of the rest."""

from __future__ import annotations

import numpy as np
import pytest

from tests.graph.lower.evaluation import evaluate, leaf
from tinyweb.dtype import DType, dtypes, from_bits, to_bits
from tinyweb.graph.ir import Ops, UOp
from tinyweb.graph.lower.formats import decode, encode, is_narrow, round_odd
from tinyweb.graph.lower.transcendental import ieee

F32, F64, U32 = dtypes.float32, dtypes.float64, dtypes.uint32
NARROW = [dtypes.float16, dtypes.bfloat16, dtypes.float8_e4m3, dtypes.float8_e5m2]
rng = np.random.default_rng(2)


def every_number(dtype: DType) -> np.ndarray:
    """All finite numbers ≥ 0 of a format."""
    values = from_bits(np.arange(dtype.overflow + 1), dtype)
    return values[np.isfinite(values)].astype(np.float64)


def with_halves(dtype: DType) -> np.ndarray:
    """All numbers, what lies halfway between neighbours, and what is next to that in float32, of both signs."""
    exact = every_number(dtype)
    last = exact[-1] - exact[-2]
    # beyond the largest number as if there were another one, as far as float32 has such
    middle = np.append((exact[1:] + exact[:-1]) / 2, exact[-1] + last / 2)
    middle32 = middle.astype(np.float32)
    with np.errstate(over="ignore"):
        beside = [np.nextafter(middle32, np.float32(side)) for side in (0, np.inf)]
    sizes = np.concatenate([exact.astype(np.float32), middle32, *beside, np.float32([1e-45, 3e38, np.inf])])
    return np.concatenate([sizes, -sizes])


def same_numbers(got: np.ndarray, want: np.ndarray, dtype: DType) -> None:
    """Equal bits; of NaNs any but the sign."""
    nan = np.isnan(from_bits(want, dtype))
    np.testing.assert_array_equal(got[~nan], want[~nan])
    assert np.isnan(from_bits(got[nan], dtype)).all()
    np.testing.assert_array_equal(got[nan] >> (dtype.bits - 1), want[nan] >> (dtype.bits - 1))


@pytest.mark.parametrize("dtype", NARROW, ids=lambda d: d.name)
@pytest.mark.parametrize("width", [1, 2])
def test_every_number_is_decoded(dtype: DType, width: int) -> None:
    bits = np.arange(1 << dtype.bits, dtype=np.uint32)
    want = from_bits(bits, dtype)
    x = leaf(U32, 0, width)
    held = bits | np.uint32(0xABCDEF00 << (dtype.bits - 8) & 0xFFFFFFFF if dtype.bits == 8 else 0x89AB0000)
    given = held if width == 1 else np.stack([held, held[::-1]], -1)
    got = evaluate(decode(x, dtype, width), {x: given})
    np.testing.assert_array_equal(got if width == 1 else got[:, 0], want)
    if width > 1:
        np.testing.assert_array_equal(got[:, 1], want[::-1])


@pytest.mark.parametrize("dtype", NARROW, ids=lambda d: d.name)
@pytest.mark.parametrize("width", [1, 2])
def test_every_half_is_rounded_to_even(dtype: DType, width: int) -> None:
    special = np.array([0x7FC00000, 0xFFC00000, 0x7F800001, 0xFFFFFFFF], np.uint32).view(np.float32)
    values = np.concatenate([with_halves(dtype), special, rng.integers(0, 1 << 32, 3000, np.uint32).view(np.float32)])
    x = leaf(F32, 0, width)
    got = evaluate(encode(x, dtype, width), {x: values if width == 1 else np.stack([values, values], -1)})
    for lane in [got] if width == 1 else [got[:, 0], got[:, 1]]:
        assert (lane >> np.uint32(dtype.bits)).max() == 0, "higher bits are 0"
        same_numbers(lane, to_bits(values, dtype).astype(np.uint32), dtype)
        if dtype is dtypes.bfloat16:  # a NaN keeps its first digits, and is quiet
            nan = np.isnan(values)
            np.testing.assert_array_equal(lane[nan], values.view(np.uint32)[nan] >> np.uint32(16) | np.uint32(0x40))


@pytest.mark.parametrize("dtype", NARROW, ids=lambda d: d.name)
def test_doubles_are_rounded_once(dtype: DType) -> None:
    """What float32 takes for a half between two numbers is not one if float64 has more digits of it."""
    middle = with_halves(dtype).astype(np.float64)
    middle = middle[np.isfinite(middle) & (middle != 0)]
    values = np.concatenate([middle * (1 + s * 2.0**-40) for s in (-1, 0, 1)] + [[0.0, -0.0, np.inf, -np.inf]])
    x = leaf(F64)
    single = evaluate(round_odd(x), {x: values})
    exact = values.astype(np.float32) == values
    np.testing.assert_array_equal(single[exact].view(np.uint32), values[exact].astype(np.float32).view(np.uint32))
    assert (single[~exact].view(np.uint32) & 1).all()
    got = evaluate(encode(round_odd(x), dtype), {x: values})
    same_numbers(got, to_bits(values, dtype).astype(np.uint32), dtype)


def test_what_is_narrow() -> None:
    every = [d for d in vars(dtypes).values() if isinstance(d, DType)]
    assert {d for d in every if is_narrow(d)} == set(NARROW)


# -- arithmetic of targets that do not do as IEEE 754 says ------------------------------------------------------------
NUMBERS = np.array([0.0, -0.0, 1.5, -1.5, 1e-40, -1e-40, 3e38, -3e38, np.inf, -np.inf, np.nan, -np.nan], np.float32)
X, Y = leaf(F32, 0), leaf(F32, 1)
A, B = (g.reshape(-1) for g in np.meshgrid(NUMBERS, NUMBERS))


def constant(value: float) -> UOp:
    return UOp.const(value, F32)


def bits_equal(got: np.ndarray, want: np.ndarray) -> None:
    assert (np.isnan(got) == np.isnan(want)).all()
    np.testing.assert_array_equal(got.view(np.uint32)[~np.isnan(want)], want.view(np.uint32)[~np.isnan(want)])


@pytest.mark.parametrize("value", [0.0, -0.0, 1.0, -1.0, 2.5, np.inf, -np.inf])
def test_operations_with_a_constant(value: float) -> None:
    """In either place."""
    c, held, pairs = constant(value), {X: NUMBERS}, np.full_like(NUMBERS, value)
    with np.errstate(all="ignore"):
        for left, right, a, b in ((X, c, NUMBERS, pairs), (c, X, pairs, NUMBERS)):
            bits_equal(evaluate(ieee.multiply(left, right), held), a * b)
            bits_equal(evaluate(ieee.add(left, right), held), a + b)
            np.testing.assert_array_equal(evaluate(ieee.equal(left, right), held), a == b)
            np.testing.assert_array_equal(evaluate(ieee.less(left, right), held), a < b)
        if value == 0:
            bits_equal(evaluate(ieee.divide(X, c), held), NUMBERS / pairs)
            # compilers take the quotient of a constant 0 for 0
            assert not any(u.op is Ops.DIV for u in ieee.divide(X, c).toposort())


def test_operations_of_two_values() -> None:
    held = {X: A, Y: B}
    with np.errstate(all="ignore"):
        bits_equal(evaluate(ieee.multiply(X, Y), held), A * B)
        bits_equal(evaluate(ieee.add(X, Y), held), A + B)
        np.testing.assert_array_equal(evaluate(ieee.equal(X, Y), held), A == B)
        np.testing.assert_array_equal(evaluate(ieee.less(X, Y), held), A < B)
        np.testing.assert_array_equal(evaluate(ieee.equal(X, X), held), A == A)
        for minus in (X.alu(Ops.NEG), X * -1.0, constant(-1.0) * X):
            for total in (ieee.add(X, minus), ieee.add(minus, X)):
                bits_equal(evaluate(total, held), A - A)
            bits_equal(evaluate(ieee.add(Y, minus), held), B - A)
        for other, want in ((X * 2.0, A * 2), (X + -1.0, A - 1), (X * Y, A * B), (X.maximum(-1.0), np.maximum(A, -1))):
            bits_equal(evaluate(ieee.add(other, X), held), (want + A).astype(np.float32))
            bits_equal(evaluate(ieee.add(X, other), held), (want + A).astype(np.float32))


def test_compilers_see_no_comparison_of_infinities() -> None:
    """They may assume that there are none: what is compared with one is told apart by its bits."""
    for value in (np.inf, -np.inf):
        for u in (ieee.equal(X, constant(value)), ieee.equal(constant(value), X), ieee.equal(X, X),
                  ieee.less(X, constant(np.inf)), ieee.less(constant(-np.inf), X)):  # fmt: skip
            compared = [x for x in u.toposort() if x.op in (Ops.EQUAL, Ops.LESS)]
            assert compared and all(s.dtype is U32 for x in compared for s in x.src)
    for total in (ieee.add(X, X * -1.0), ieee.multiply(X, constant(0.0)), ieee.multiply(constant(0.0), X)):
        assert not any(x.op in (Ops.ADD,) and x.dtype is F32 for x in total.toposort())
        assert not any(s.op is Ops.CONST and s.arg == 0 for x in total.toposort() if x.op is Ops.MUL for s in x.src)

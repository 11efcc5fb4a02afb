"""Elementwise methods against PyTorch: arithmetic, comparisons, functions, rounding, bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
import torch

from tests.tensor.ops import RUNTIMES, Op, data, gradients_test, values_test
from tinyweb import Tensor, dtypes
from tinyweb.tensor import realize_all

INF, NAN = np.inf, np.nan
SPECIAL = np.array(
    [0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 0.5, -0.5, 1.5, 2.5, -2.5, 3.7, -3.2, 1e-30, -3e5, 8388609.0, 1e30],
    np.float32,
)
PAIRS = np.array([(a, b) for a in SPECIAL for b in SPECIAL if a != -3e5 and b != 1e30], np.float32).T
LEFT, RIGHT = PAIRS[0], PAIRS[1]
INTS = np.array([-7, -3, -1, 0, 1, 2, 5, 100, 2**31 - 1, -(2**31)], np.int32)
A, B, C = data(3, 4), data(3, 4, seed=1), data(2, 3, 4)
UNIT = data(3, 5, low=-0.95, high=0.95)
POSITIVE = data(3, 5, low=0.1, high=4.0)
FINITE = SPECIAL[np.isfinite(SPECIAL)]
DIVISORS = np.array([2, -3, 5, -1, 7], np.int32)
DIVIDENDS = np.array([[-7], [-6], [0], [6], [7], [2**31 - 1], [-(2**31) + 1]], np.int32)


def each(*names: str) -> Callable[[Any], tuple[Any, ...]]:
    """The results of several methods without arguments."""
    return lambda a: tuple(getattr(a, name)() for name in names)


def both(*names: str) -> Callable[[Any, Any], tuple[Any, ...]]:
    """The results of several methods of two tensors."""
    return lambda a, b: tuple(getattr(a, name)(b) for name in names)


def kinds(a: Any) -> tuple[Any, ...]:
    """Division, remainders and comparisons with numbers of each kind on both sides."""
    return a + 2, 2 - a, a * 2.5, 3 / a, a // 2, a % 3, 7 // a, 7 % a, a == 2, a < 1.5, a <= 3, a != 0, -a, +a, abs(a)


def kinds_with_gradients(a: Any) -> tuple[Any, ...]:
    return a + 2, 2 - a, a * 2.5, 3 / a, a % 3, -a, +a, abs(a)


FUNCTIONS = ("exp", "exp2", "expm1", "sin", "cos", "tan", "sinh", "cosh", "tanh", "atan", "asinh", "erf", "erfc",
             "sigmoid", "square", "deg2rad", "rad2deg", "sinc")  # fmt: skip
LOGARITHMS = ("log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal")
INVERSES = ("asin", "acos", "atanh", "erfinv", "arcsin", "arctanh")
STEPS = ("floor", "ceil", "trunc", "round", "sign", "fix", "sgn")
TESTS = ("isnan", "isinf", "isposinf", "isneginf", "isfinite", "signbit", "logical_not", "isreal")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge", "less", "greater", "less_equal", "greater_equal", "not_equal")

OPS = [
    # -- arithmetic
    Op("operators", kinds, (A,), gradient=False, sample=True),
    Op("operators_gradient", kinds_with_gradients, (A,), sample=True),
    Op("operators_int", kinds, (INTS[INTS != 0],), sample=True),
    Op("operators_0d", kinds, (np.float32(1.25),), gradient=False),
    Op("operators_none", kinds, (np.zeros((0, 3), np.float32),), gradient=False),
    Op("add_alpha", lambda a, b: (a.add(b, alpha=3), a.sub(b, alpha=0.5), torch_rsub(a, b)), (C, data(3, 1))),
    Op("broadcast", lambda a, b: (a * b, a - b, a / b), (data(3, 1, 2), data(4, 1, seed=2, low=0.5)), sample=True),
    Op("names", both("add", "sub", "mul", "div", "divide", "true_divide", "multiply", "subtract"), (A, B)),
    Op("special_arithmetic", lambda a, b: (a + b, a - b, a * b, a / b), (LEFT, RIGHT), gradient=False, sample=True),
    Op("bool_arithmetic", lambda a, b: (a + b, a * b, a & b, a | b, a ^ b, ~a, a == b),
       (np.array([True, True, False, False]), np.array([True, False, True, False]))),
    Op("bool_and_numbers", lambda a: (a + 1.5, a * 2.0), (np.array([True, False]),)),
    Op("abs", each("abs", "absolute", "neg", "negative", "positive"), (SPECIAL,), gradient=False, sample=True),
    Op("abs_gradient", each("abs", "neg"), (FINITE,), sample=True),
    Op("abs_bits", lambda a: (1 / abs(a)), (np.float32([0.0, -0.0, 2.0, -2.0]),), gradient=False, sample=True),
    Op("abs_int", each("abs", "neg", "sign"), (INTS[:9],)),
    Op("lerp", lambda a, b, w: (a.lerp(b, w), a.lerp(b, 0.25)), (A, B, data(3, 4, seed=3, low=-1, high=2))),
    Op("addcmul", lambda a, b, c: (a.addcmul(b, c, value=0.5), a.addcdiv(b, c, value=-2)),
       (A, B, data(1, 4, low=0.5))),
    # -- division
    Op("rounded_division", lambda a, b: (a.div(b, rounding_mode="floor"), a.div(b, rounding_mode="trunc"),
                                         a.remainder(b), a.fmod(b), a.floor_divide(b)),
       (data(20, low=-9, high=9), data(20, seed=1, low=0.3, high=2)), gradient=False, sample=True),
    Op("remainder_gradient", lambda a, b: (a.remainder(b), a.fmod(b), a % 0.7, a % -2.0),
       (data(20, low=-9, high=9), data(20, seed=1, low=0.3, high=2))),
    # PyTorch gives NaN for quotients beyond float32 in long tensors
    Op("rounded_division_special", lambda a, b: (a.remainder(b), a.fmod(b)),
       tuple(PAIRS[:, (LEFT != 1e30) | (abs(RIGHT) != np.float32(1e-30))]), gradient=False, exact=True,
       sample=True),
    Op("large_quotients", lambda a, b: (a.remainder(b), a.fmod(b)), (
        np.float32([1e10, -1e20, 3e38, 7e30, -5e5, 1e-3, 16777215]),
        np.float32([0.3, 0.7, -1e-38, 3, 1e-3, 7e5, -0.1])), gradient=False, exact=True, sample=True),
    Op("floor_quotients", lambda a, b: a.floor_divide(b), (
        np.float32([1, -1, 0.6, 6, INF, 3, -3, 1, 0, 7]), np.float32([0.1, 0.1, 0.2, -0.3, 2, INF, INF, 0, 0, 7])),
       gradient=False),
    Op("half_remainder", lambda a, b: (a.remainder(b), a.fmod(b)), (
        np.float16([6e4, -100, 1e-7, 3]), np.float16([6e-8, 0.3, 5, -0.7])), gradient=False, exact=True),
    Op("int_division", lambda a, b: (a // b, a % b, a.fmod(b), a.div(b, rounding_mode="trunc"), a / b),
       (DIVIDENDS, DIVISORS), sample=True),
    Op("gcd", both("gcd", "lcm"), (np.array([[0], [12], [-18], [35], [2**31 - 1], [2_971_215_073 - 2**32 + 2**31]],
                                            np.int32), np.array([0, 8, -27, 1_134_903_170], np.int32)), sample=True),
    # -- extrema and bounds
    Op("extrema", both("maximum", "minimum", "fmax", "fmin"), (LEFT, RIGHT), gradient=False, sample=True),
    Op("extrema_gradient", both("maximum", "minimum", "fmax", "fmin"), (
        np.float32([1, 2, 3, -1]), np.float32([1, 3, 2, -1])), sample=True),
    Op("extrema_int", both("maximum", "minimum"), (INTS, INTS[::-1].copy())),
    Op("clamp", lambda a: (a.clamp(-0.5, 0.5), a.clamp(min=1.0), a.clip(max=-1.0), a.clamp(2.0, -2.0), a.clamp_min(0.5),
                           a.clamp_max(0.5)), (SPECIAL,), gradient=False, sample=True),
    Op("clamp_gradient", lambda a: (a.clamp(-0.5, 0.5), a.clamp(min=1.0), a.clamp(2.0, -2.0)), (FINITE,), sample=True),
    Op("clamp_tensor", lambda a, b, c: (a.clamp(b, c), a.clamp(min=b), a.clamp(max=c)), (A, B - 1, B + 0.5)),
    Op("clamp_nan_bound", lambda a, b: a.clamp(min=b), (A[0], np.float32([NAN, 0, 1, NAN])), gradient=False),
    Op("clamp_uint8", lambda a: (a.clamp(-5, 100), a.clamp(max=300)), (np.array([0, 50, 200], np.uint8),),
       lambda a: (a.clamp(0, 100), a)),
    Op("clamp_int", lambda a: (a.clamp(-2, 5), a.clamp(max=2.5)), (INTS[:8],)),
    Op("threshold", lambda a: a.threshold(0.5, -1.0), (A,), lambda a: torch.nn.functional.threshold(a, 0.5, -1.0)),
    # -- comparisons and logic
    Op("comparisons", both(*COMPARISONS), (LEFT, RIGHT), gradient=False, sample=True),
    Op("comparisons_int", both(*COMPARISONS), (INTS, INTS[::-1].copy())),
    Op("logic", both("logical_and", "logical_or", "logical_xor"), (SPECIAL, SPECIAL[::-1].copy()),
       gradient=False),
    Op("angle", lambda a: (a.angle(), a.conj()), (SPECIAL,), gradient=False),
    Op("tests", each(*TESTS), (SPECIAL,), gradient=False, sample=True),
    Op("tests_int", each(*TESTS), (INTS,)),
    Op("tests_half", each(*TESTS[:-1]), (SPECIAL[:-2].astype(np.float16),), gradient=False),
    Op("isclose", lambda a, b: (a.isclose(b), a.isclose(b, equal_nan=True), a.isclose(b, rtol=0.5, atol=1.0)),
       (LEFT, RIGHT), gradient=False),
    Op("isclose_int", lambda a, b: (a.isclose(b), a.isclose(b, rtol=0, atol=0)), (INTS[:8], INTS[:8][::-1].copy())),
    # -- choices
    Op("where", lambda c, a, b: (where(c, a, b), where(c, a, 2.0), where(c, -1.0, b), where(c, 1, 0.5)),
       (np.array([[True], [False], [True]]), A, B[:1]), sample=True),
    Op("where_int", lambda c, a: (where(c, a, 1.5), where(c, a, 7), where(c, 1, 0)), (INTS > 0, INTS)),
    Op("masked_fill", lambda a, m: a.masked_fill(m, 7), (A, np.array([True, False, True, False]))),
    Op("masked_fill_int", lambda a: a.masked_fill(a > 0, 7), (INTS,)),
    # -- functions
    Op("functions", each(*FUNCTIONS), (data(3, 5, low=-4, high=4),), sample=True),
    Op("functions_special", each(*(f for f in FUNCTIONS if f not in ("sinc",))), (SPECIAL[:-2],), gradient=False),
    Op("functions_int", each(*FUNCTIONS, *LOGARITHMS), (np.array([1, 2, 3], np.int32),)),
    Op("functions_0d", each(*FUNCTIONS), (np.float32(0.7),)),
    Op("functions_none", each("exp", "sigmoid", "log2"), (np.zeros((2, 0), np.float32),)),
    Op("sinc_zero", lambda a: a.sinc(), (np.float32([0, 1, -1, 0.5, 1e-20]),)),
    Op("logarithms", each(*LOGARITHMS, "acosh", "arccosh"), (POSITIVE + 1,), sample=True),
    Op("logarithms_special", each(*LOGARITHMS), (SPECIAL,), gradient=False),
    Op("inverses", each(*INVERSES), (UNIT,), sample=True, atol=5e-6),
    Op("erfinv", lambda a: a.erfinv(), (np.float32([-1, -0.9999999, -0.99, -1e-6, 0, 0.3, 0.9999, 1, 1.5, NAN]),),
       gradient=False, rtol=4e-6, atol=0),
    Op("sigmoid_extremes", lambda a: a.sigmoid(), (np.float32([-200, -100, -89, -1, 0, 1, 20, 100, 200, INF]),),
       atol=2e-9),
    Op("log_sigmoid", lambda a: a.log_sigmoid(), (np.float32([-1e4, -3, 0, 3, 1e4]),), torch.nn.functional.logsigmoid),
    Op("atan2", both("atan2", "hypot"), (LEFT, RIGHT), gradient=False, sample=True),
    Op("atan2_gradient", both("atan2", "hypot"), (np.float32([0, 0, 1, -1, 2, -2, -0.5, 3e18]),
                                                 np.float32([1, -1, 0, 0, 2, -2, 3, 4e18]))),
    Op("logaddexp", both("logaddexp", "logaddexp2"), (
        np.float32([0, 1, -1e4, 1e4, INF, -INF, 3, -INF]), np.float32([0, 2, 1e4, 1e4, 1, -INF, -INF, INF])),
       gradient=False),
    Op("logaddexp_gradient", both("logaddexp", "logaddexp2"), (
        np.float32([0, 1, -1e4, 1e4, 3]), np.float32([0, 2, 1e4, 1e4, -5]))),
    Op("logit", lambda a: (a.logit(), a.logit(eps=0.2)), (data(9, low=0.05, high=0.95),)),
    Op("logit_special", lambda a: (a.logit(), a.logit(eps=1e-3)), (np.float32([-1, 0, 1, 2, NAN]),), gradient=False),
    Op("xlogy", lambda a, b: a.xlogy(b), (np.float32([0, 0, 0, 0, 2, 2]), np.float32([0, -1, 3, NAN, 3, 0])),
       gradient=False),
    Op("xlogy_gradient", lambda a, b: a.xlogy(b), (np.float32([0, 2, -1]), np.float32([3, 0.5, 2]))),
    Op("ldexp", lambda a, b: a.ldexp(b), (A[0], np.array([0, -3, 5, 100], np.int32)), gradient=False),
    Op("frexp", lambda a: tuple(a.frexp()), (np.float32([1, -0.75, 3e38, 0, 1e-30, 12345]),), gradient=False),
    Op("gamma", lambda a: (a.lgamma(), a.mvlgamma(2)), (POSITIVE + 1,), rtol=2e-5),
    Op("digamma", lambda a: a.digamma(), (POSITIVE,), gradient=False, rtol=2e-5),
    Op("erfc_tail", lambda a: a.erfc(), (np.float32([3, 5, 8, 9.5]),), atol=0, gradient=False),
    # -- powers
    Op("pow_numbers", lambda a: (a**0, a**1, a**2, a**3, a**4, a**0.5, a**-1, a**-0.5, a**1.7, a**9, 2**a, 3.0**a),
       (POSITIVE,), sample=True),
    Op("pow_negative_base", lambda a: (a**3, a**-3, a**7, a**2.0, a**1.5), (np.float32([-2, -0.5, 0.5, 2]),),
       gradient=False),
    Op("pow", lambda a, b: a.pow(b), (LEFT, RIGHT), gradient=False, sample=True, rtol=4e-6),
    Op("pow_quarters", lambda a: a.pow(0.25) + a.pow(-0.25) * a.pow(0.5) + a.pow(-0.5),
       (np.float32([0.3, 1, 2, 16, 81]),), rtol=4e-6),
    Op("pow_gradient", lambda a, b: a.pow(b), (np.float32([0, 0, 2, 3, 0.5, 1]), np.float32([1, 2, 0, -2, 3, 5]))),
    Op("pow_int", lambda a: (a**0, a**1, a**2, a**7, a**33), (INTS,), sample=True),
    Op("pow_int_tensor", lambda a, b: a.pow(b), (np.array([[-1], [0], [1], [2], [3], [-3], [46341]], np.int32),
                                                np.array([0, 1, 2, 3, 31, 1000, 2**31 - 1], np.int32)), sample=True),
    Op("pow_int_negative", lambda a, b: a.pow(b), (np.array([[-1], [1], [2], [-3]], np.int32),
                                                  np.array([-1, -2, -3], np.int32))),
    Op("float_power", lambda a: a.float_power(2), (A,), lambda a: a.float_power(2).float()),
    # -- rounding
    Op("steps", each(*STEPS), (SPECIAL,), sample=True),
    Op("steps_int", each("floor", "ceil", "trunc", "round", "sign"), (INTS,)),
    Op("round_halves", lambda a: a.round(), (np.arange(-9, 10, dtype=np.float32) / 2,), sample=True),
    Op("round_signs", lambda a: 1 / a.round(), (np.float32([-0.3, 0.3, -0.5, 0.5, -0.0]),), gradient=False),
    Op("round_decimals", lambda a: (a.round(decimals=2), a.round(decimals=-1)), (data(20, low=-99, high=99),),
       gradient=False),
    Op("frac", lambda a: a.frac(), (data(9, low=-5, high=5),)),
    Op("copysign", lambda a, b: (a.copysign(b), a.copysign(-2)), (LEFT, RIGHT), gradient=False, sample=True),
    Op("copysign_gradient", lambda a, b: a.copysign(b.detach()), (A, B)),
    Op("heaviside", lambda a, b: a.heaviside(b), (SPECIAL, SPECIAL[::-1].copy()), gradient=False),
    Op("nextafter", lambda a, b: a.nextafter(b), (
        np.float32([1, 1, -1, -1, INF, 2, NAN, 5]), np.float32([2, 0, 0, -2, 0, 2, 1, INF])),
       gradient=False, exact=True),
    Op("nan_to_num", lambda a: (a.nan_to_num(), a.nan_to_num(1.0, 2.0, -3.0)), (SPECIAL,), sample=True),
    # -- bits
    Op("bits", lambda a, b: (a & b, a | b, a ^ b, ~a, a & 6, 3 | a, 5 ^ a), (INTS, INTS[::-1].copy()), sample=True),
    Op("bits_uint8", lambda a: (a & 6, ~a, a << 1, a >> 2, a ^ 255), (np.array([0, 1, 7, 128, 255], np.uint8),)),
    Op("shifts", lambda a: (a << 2, a >> 1, a.bitwise_left_shift(3), a.bitwise_right_shift(3), 1 << (a & 7)),
       (INTS,), sample=True),
    # -- casts
    Op("casts", lambda a: (a.int(), a.half().float() + 1, a.bool(), a.short(), a.long(), a.type_as(a)), (A * 10,)),
    Op("casts_small", lambda a: (a.byte(), a.char()), (np.array([0, 1, 100, 127], np.int32),)),
]  # fmt: skip


def where(c: Any, a: Any, b: Any) -> Any:
    return Tensor.where(c, a, b) if isinstance(c, Tensor) else torch.where(c, a, b)


def torch_rsub(a: Any, b: Any) -> Any:
    return a.rsub(b, alpha=2) if isinstance(a, Tensor) else torch.rsub(a, b, alpha=2)


test_values = values_test(OPS)
test_gradients = gradients_test(OPS)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_halves_are_rounded_once(runtime: str) -> None:
    x = data(50, low=0.1, high=3).astype(np.float16)
    found = {
        name: getattr(Tensor(x, device=runtime), name)() for name in ("exp", "log", "sin", "sqrt", "sigmoid", "tanh")
    }
    realize_all(list(found.values()))
    for name, got in found.items():
        want = getattr(torch.from_numpy(x.astype(np.float64)), name)().half().numpy()
        assert got.dtype is dtypes.float16
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("runtime", ("CPU", "WASM", "INTERPRETER"))
def test_remainders_of_doubles(runtime: str) -> None:
    x, y = np.float64([1e300, -100, 1e-7, 3]), np.float64([1e-300, 0.3, 5, -0.7])
    a, b = Tensor(x, device=runtime), Tensor(y, device=runtime)
    np.testing.assert_array_equal(a.fmod(b).numpy(), np.fmod(x, y))
    np.testing.assert_array_equal(a.remainder(b).numpy(), np.mod(x, y))


@pytest.mark.parametrize("runtime", ("CPU", "WASM"))
@pytest.mark.parametrize("dtype", (np.int32, np.uint32, np.int16))
def test_quotients_of_vectors_are_exact(runtime: str, dtype: Any) -> None:
    info, chance = np.iinfo(dtype), np.random.default_rng(13)
    a = chance.integers(info.min, info.max, 2048, dtype, endpoint=True)
    b = chance.integers(info.min, info.max, 2048, dtype, endpoint=True) >> chance.integers(0, info.bits, 2048, dtype)
    a[:8], b[:8] = [info.min, info.max] * 4, np.repeat(np.array([1, info.max, info.min, -1]).astype(dtype), 2)
    wide, divisor = a.astype(np.int64), b.astype(np.int64)
    safe = np.where(divisor == 0, 1, divisor)
    quotient, rest = (np.where(divisor == 0, 0, v).astype(dtype) for v in (wide // safe, wide % safe))
    x, y = Tensor(a, device=runtime), Tensor(b, device=runtime)
    np.testing.assert_array_equal((x // y).numpy(), quotient)
    np.testing.assert_array_equal((x % y).numpy(), rest)


def test_numbers_give_way_to_tensors() -> None:
    def of(*values: Any, dtype: Any) -> Tensor:
        return Tensor(list(values), dtype=dtype)

    assert (of(1, dtype=dtypes.int8) + 1).dtype is dtypes.int8
    assert (of(1, dtype=dtypes.int8) + 1.0).dtype is dtypes.float32
    assert (of(1, dtype=dtypes.float16) * 2.5).dtype is dtypes.float16
    assert (of(True, dtype=dtypes.bool) + 1).dtype is dtypes.int32
    assert (of(1, dtype=dtypes.int16) + np.int64(4)).dtype is dtypes.int16
    assert (of(1, dtype=dtypes.float16) + np.float64(4)).dtype is dtypes.float16
    assert (np.float32(2) * of(1, dtype=dtypes.float32)).tolist() == [2.0]
    assert (np.array([2.0, 3.0], np.float32) - of(1, dtype=dtypes.float32)).tolist() == [1.0, 2.0]
    assert of(True, dtype=dtypes.bool).where(1, 2).dtype is dtypes.int32


def test_numbers_out_of_range_compare_as_they_are() -> None:
    x = Tensor([0, 100, 255], dtype=dtypes.uint8)
    assert (x < 300).tolist() == [True] * 3 and (x > -1).tolist() == [True] * 3
    assert (x == 256).tolist() == [False] * 3 and (x != -1).tolist() == [True] * 3
    assert (x >= 300).tolist() == [False] * 3 and (-1 <= x).tolist() == [True] * 3  # noqa: SIM300


def test_elements_as_python_numbers() -> None:
    assert float(Tensor([2.5])) == 2.5 and int(Tensor(7)) == 7 and [1, 2, 3][Tensor(1)] == 2
    nothing: Any = None
    assert nothing not in [Tensor([1.0])] and isinstance(Tensor([1.0]) != "text", bool)
    assert divmod(Tensor([7]), 3)[0].tolist() == [2] and round(Tensor([2.5])).tolist() == [2.0]


def test_own_gradients_replace_those_of_the_expression() -> None:
    x = Tensor(data(4))
    y = x.exp()._with_gradients([x], lambda g: [g * x])
    (g,) = (y * 3).sum().gradient(x)
    (h,) = g.sum().gradient(x)
    np.testing.assert_allclose(g.numpy(), 3 * data(4), rtol=1e-6)
    np.testing.assert_allclose(h.numpy(), [3.0] * 4)
    np.testing.assert_allclose(y.numpy(), np.exp(data(4)), rtol=1e-6)


@pytest.mark.parametrize(
    ("wrong", "error", "says"),
    [
        (lambda a, i: Tensor.where(cast(Any, 1), a, a), TypeError, "where: the condition must be a tensor, got int"),
        (lambda a, i: a + Tensor.ones(7), ValueError, r"add: shapes \(3, 4\) and \(7,\) do not broadcast"),
        (lambda a, i: a & 1, TypeError, "bitwise_and: floats have no bitwise operations, got float32"),
        (lambda a, i: a << 1, TypeError, "bitwise_left_shift: floats"),
        (lambda a, i: i**-1, ValueError, "pow: int32 to the power of -1: negative powers are not whole"),
        (lambda a, i: -(i > 0), TypeError, "neg: booleans have no negative"),
        (lambda a, i: (i > 0) - (i > 1), TypeError, "sub: booleans cannot be subtracted"),
        (lambda a, i: a.div(2, rounding_mode="up"), ValueError, 'div: rounding_mode must be None, "trunc" or "floor"'),
        (lambda a, i: a.gcd(2), TypeError, "gcd: needs integers, got float32"),
        (lambda a, i: i.frac(), TypeError, "frac: needs a float dtype, got int32"),
        (lambda a, i: a.clamp(), ValueError, "clamp: give a minimum, a maximum or both"),
        (lambda a, i: a.masked_fill(i, 0), TypeError, "masked_fill: the mask must be bool, got int32"),
        (lambda a, i: a.cast("float17"), TypeError, "cast: dtype must be a dtype, got str 'float17'"),
        (lambda a, i: a.add("text"), TypeError, "add: Tensor needs numbers, got str 'text'"),
        (lambda a, i: a - None, TypeError, "sub: Tensor needs numbers, got NoneType None"),
        (lambda a, i: i.logaddexp(i), TypeError, "logaddexp: needs float dtypes, got int32"),
        (lambda a, i: a + Tensor([1.0], device="INTERPRETER"), ValueError, "add: tensors live on CPU and INTERPRETER"),
    ],
)
def test_errors(wrong: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        wrong(Tensor(data(3, 4), device="CPU"), Tensor(INTS, device="CPU"))

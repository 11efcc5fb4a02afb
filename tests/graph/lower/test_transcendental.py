"""Expansions of elementary functions, evaluated in NumPy: arguments of any size, coarse division, short programs.

tests/numerics measures them on devices.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import accuracy  # tools/accuracy.py
import numpy as np
import pytest

from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import Axis, Ops, ParamArg, UOp
from tinyweb.graph.lower.decompose import decompose, floor_division
from tinyweb.graph.lower.transcendental import CORRECTIONS, EXPANSIONS, inverse, trigonometric
from tinyweb.graph.lower.transcendental.exponential import exp2
from tinyweb.graph.lower.transcendental.ieee import divide, invert_root
from tinyweb.graph.lower.transcendental.logarithm import log2
from tinyweb.graph.lower.transcendental.trigonometric import sin
from tinyweb.graph.target import webgpu_target
from tinyweb.native_runtimes.interpreter.spelling import COMPUTE

F32 = dtypes.float32
rng = np.random.default_rng(3)
SPECIAL = np.array(
    [0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1e-40, 1, 2, -1, 128, 127.99999, -126, -149, -150, -151, 3e38],
    np.float32,
)  # fmt: skip


def argument(dtype: DType, slot: int = 0) -> UOp:
    return UOp(Ops.PARAM, dtype, (), ParamArg(slot, 1))


def coarse(result: np.ndarray) -> np.ndarray:
    """Off by up to 2 units, as WGSL allows of division and roots."""
    off = rng.integers(-2, 3, result.shape, dtype=np.int32)
    moved = (result.view(np.int32) + off).view(np.float32)
    return np.where(np.isfinite(result) & (result != 0) & np.isfinite(moved), moved, result)


def evaluate(root: UOp, values: dict[UOp, np.ndarray], is_coarse: bool = False) -> np.ndarray:
    done = dict(values)
    with np.errstate(all="ignore"):
        for u in root.toposort():
            if u in done:
                continue
            if u.op is Ops.CONST:
                done[u] = np.array([u.arg]).astype(u.dtype.numpy)
            else:
                done[u] = COMPUTE[u.op](u, *(done[s] for s in u.src))
                if is_coarse and u.op in (Ops.DIV, Ops.RECIPROCAL, Ops.SQRT):
                    done[u] = coarse(done[u])
    return done[root]


def units(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Errors in units of the last place of the nearest float; 0 where both are the same special value."""
    with np.errstate(all="ignore"):
        nearest = want.astype(got.dtype)
        error = np.abs(got.astype(np.float64) - want) / np.spacing(np.abs(nearest)).astype(np.float64)
    same = (np.isnan(got) & np.isnan(nearest)) | (got == nearest)
    return np.where(same, 0, np.where(np.isfinite(error), error, np.inf))


def all_floats(count: int) -> np.ndarray:
    return rng.integers(0, 1 << 32, count, dtype=np.uint32).view(np.float32)


@pytest.mark.parametrize(
    ("function", "reference", "arguments", "limit"),
    [
        (exp2, np.exp2, [SPECIAL, rng.uniform(-155, 130, 200_000).astype(np.float32), all_floats(50_000)], 1.5),
        (log2, np.log2, [SPECIAL, rng.uniform(0.5, 2, 200_000).astype(np.float32), all_floats(200_000)], 1.5),
        (sin, np.sin, [SPECIAL, rng.uniform(-40, 40, 200_000).astype(np.float32)], 2.0),
    ],
    ids=["exp2", "log2", "sin"],
)
def test_float32(
    function: Callable[[UOp], UOp], reference: np.ufunc, arguments: list[np.ndarray], limit: float
) -> None:
    x = argument(F32)
    values = np.concatenate(arguments)
    got = evaluate(function(x, True), {x: values})
    with np.errstate(all="ignore"):
        want = reference(values.astype(np.float64))
    error = units(got, want)
    worst = int(error.argmax())
    assert error[worst] <= limit, f"{values[worst]!r}: {got[worst]!r} is off by {error[worst]} units"


def two_pi(digits: int) -> Fraction:
    """2 pi by Machin's formula."""

    def arctan(inverse: int) -> Fraction:
        total, term, k = Fraction(0), Fraction(1, inverse), 0
        while term > Fraction(1, 10**digits):
            total += term / (2 * k + 1) if k % 2 == 0 else -term / (2 * k + 1)
            term /= inverse * inverse
            k += 1
        return total

    return 2 * 4 * (4 * arctan(5) - arctan(239))


def test_sine_of_large_arguments() -> None:
    """The argument is reduced exactly in the reference: floats are fractions, and 2 pi is known to 80 digits."""
    period = two_pi(80)
    near = (np.arange(1, 3000) * np.pi / 2).astype(np.float32)  # results near zero show every digit that was lost
    values = np.concatenate([near, np.abs(all_floats(3000)), np.float32(2.0) ** np.arange(1, 128, dtype=np.float32)])
    values = values[np.isfinite(values)]
    x = argument(F32)
    got = evaluate(sin(x, True), {x: values})
    reduced = []
    for v in values:
        rest = Fraction(float(v)) % period
        # near a multiple of pi, the sine of the distance, without cancellation
        half = period / 2
        turns = round(rest / half)
        reduced.append((-1) ** turns * np.sin(float(rest - turns * half)))
    error = units(got, np.array(reduced))
    worst = int(error.argmax())
    assert error[worst] <= 2, f"{values[worst]!r}: {got[worst]!r} is off by {error[worst]} units"


def test_float64() -> None:
    x = argument(dtypes.float64)
    values = np.concatenate([SPECIAL.astype(np.float64), rng.uniform(-1070, 1023, 5000), rng.uniform(0.5, 2, 5000)])
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(evaluate(exp2(x, True), {x: values}), np.exp2(values), rtol=5e-16)
        np.testing.assert_allclose(evaluate(log2(x, True), {x: values}), np.log2(values), rtol=1e-15, atol=1e-16)


def test_what_the_target_has_stays() -> None:
    from dataclasses import replace

    target = replace(webgpu_target(), native_math=frozenset({Ops.SIN}))
    u = UOp(Ops.SIN, F32, (argument(F32),))
    assert decompose(u, target) is u
    assert decompose(u, webgpu_target()).op is not Ops.SIN


@pytest.mark.parametrize("function", accuracy.FUNCTIONS, ids=lambda f: f.op.name)
def test_coarse_division_and_roots_do_no_harm(function: accuracy.Function) -> None:
    arguments = accuracy.sample(function, F32, 3000)
    values = {argument(F32, i): a for i, a in enumerate(arguments)}
    expand = CORRECTIONS.get(function.op)
    root = expand(*values) if expand else EXPANSIONS[function.op](*values, False)
    got = evaluate(root, values, is_coarse=True)
    if expand:
        # subnormal numbers are left to the target
        normal = np.abs(np.stack([*arguments, got, got])) >= np.finfo(np.float32).tiny
        keep = normal.all(0) | ~np.isfinite(got)
        arguments, got = [a[keep] for a in arguments], got[keep]
    found = accuracy.worst(got, function, arguments, F32)
    assert found.error <= function.single, found


@pytest.mark.parametrize("is_root", [False, True])
def test_many_numbers_over_one(is_root: bool) -> None:
    """They are multiplied by its reciprocal in two parts; the least dividends lose what is below the normal numbers."""
    division = next(f for f in accuracy.FUNCTIONS if f.op is Ops.DIV)
    a, b = accuracy.sample(division, F32, 3000)
    if is_root:
        with np.errstate(all="ignore"):
            b = np.sqrt(np.abs(b))
    step = UOp(Ops.RANGE, dtypes.index, (UOp.const(9, dtypes.index),), Axis("i0", 0))
    many, one = argument(F32).load(step), argument(F32, 1)
    values = {**dict.fromkeys(many.toposort(), a), one: b}
    got = evaluate(divide(many, one, is_root), values, is_coarse=True)
    check_quotients(got, a, b)


def check_quotients(got: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    """Special values are those of IEEE 754, errors within a unit; within a few at the lower end of the numbers."""
    with np.errstate(all="ignore"):
        want = a / b
    odd = ~np.isfinite(want) | (want == 0) | ~np.isfinite(b)
    np.testing.assert_array_equal(got[odd], want[odd])
    division = next(f for f in accuracy.FUNCTIONS if f.op is Ops.DIV)
    for least, error in ((2.0**-100, 1.0), (np.finfo(F32.numpy).tiny, 8.0)):
        keep = ~odd & (np.abs(a) >= least) & (np.abs(want) >= least) & (np.abs(b) >= np.finfo(F32.numpy).tiny)
        found = accuracy.worst(got[keep], division, [a[keep], b[keep]], F32)
        assert found.error <= error + 1e-6, found


@pytest.mark.parametrize("divisor", [3.0, -255.0, 1003.0, 6.0, 0.1, 7e-30, 1e30, 3e38, 2e-38, 0.25])
def test_division_by_a_constant(divisor: float) -> None:
    division = next(f for f in accuracy.FUNCTIONS if f.op is Ops.DIV)
    a, _ = accuracy.sample(division, F32, 3000)
    x = argument(F32)
    got = evaluate(divide(x, UOp.const(divisor, F32)), {x: a}, is_coarse=True)
    check_quotients(got, a, np.full_like(a, divisor))


def test_reciprocals_of_roots() -> None:
    root = next(f for f in accuracy.FUNCTIONS if f.op is Ops.SQRT)
    (x,) = accuracy.sample(root, F32, 3000)
    value = argument(F32)
    got = evaluate(invert_root(value), {value: x}, is_coarse=True)
    with np.errstate(all="ignore"):
        want = 1 / np.sqrt(x.astype(np.float64))
    normal = (x >= np.finfo(F32.numpy).tiny) & np.isfinite(x)
    assert units(got[normal], want[normal]).max() <= 2
    odd = (x == 0) | ~(x >= 0) | np.isinf(x)
    np.testing.assert_array_equal(got[odd], want[odd].astype(np.float32))


@pytest.mark.parametrize("op", sorted(EXPANSIONS), ids=lambda op: op.name)
def test_programs_stay_short(op: Ops) -> None:
    """In nodes that do something: a kernel with ten of them still compiles in a second."""
    x = argument(F32)
    root = EXPANSIONS[op](*((x, argument(F32, 1)) if op in (Ops.POW, Ops.FMOD) else (x,)), False)
    count = sum(u.op not in (Ops.CONST, Ops.PARAM, Ops.BITCAST) for u in root.toposort())
    usual = {Ops.EXP, Ops.EXP2, Ops.EXPM1, Ops.LOG, Ops.LOG2, Ops.LOG10, Ops.LOG1P, Ops.TANH, Ops.ERF, Ops.ATAN}
    steps = 15 if op is Ops.FMOD else 0  # of 19 digits, for quotients of up to 277
    assert count <= (70 if op in usual else 24 * steps or 240)


@pytest.mark.parametrize("op", [Ops.FLOORDIV, Ops.MOD], ids=lambda op: op.name)
@pytest.mark.parametrize("dtype", [dtypes.int32, dtypes.uint32, dtypes.int64], ids=lambda d: d.name)
def test_floor_division(op: Ops, dtype: DType) -> None:
    numbers = np.array([-(2**31) + 1, -100, -7, -6, -2, -1, 0, 1, 2, 3, 6, 7, 100, 2**31 - 1]).astype(dtype.numpy)
    a, b = (grid.reshape(-1) for grid in np.meshgrid(numbers, numbers))
    x, y = argument(dtype), argument(dtype, 1)
    got = evaluate(floor_division(UOp(op, dtype, (x, y)), x, y), {x: a, y: b})
    with np.errstate(all="ignore"):
        want = np.where(b == 0, 0, (a // b if op is Ops.FLOORDIV else a % b).astype(dtype.numpy))
    np.testing.assert_array_equal(got, want)


# where longdouble is no wider than float64 the reference itself may be off by half a unit
SLACK = 0 if np.finfo(np.longdouble).nmant > 52 else 0.5


@pytest.mark.parametrize("dtype", [F32, dtypes.float64], ids=lambda d: d.name)
@pytest.mark.parametrize("function", [f for f in accuracy.FUNCTIONS if f.op in EXPANSIONS], ids=lambda f: f.op.name)
def test_promised_accuracy(function: accuracy.Function, dtype: DType) -> None:
    """Of both formats, where the target computes as IEEE 754 says: special values, all exponents, around edges."""
    arguments = accuracy.sample(function, dtype, 500)
    values = {argument(dtype, i): a for i, a in enumerate(arguments)}
    got = evaluate(EXPANSIONS[function.op](*values, True), values)
    found = accuracy.worst(got, function, arguments, dtype)
    assert found.error <= (function.single if dtype is F32 else function.double + SLACK), found


def test_tables_are_rounded_constants() -> None:
    """2/pi has all of its binary digits; the second part of pi/2 is what is left of it."""
    pi = two_pi(400) / 2
    digits = trigonometric.TWO_OVER_PI_DIGITS
    # the last digits are not read
    assert abs(Fraction(trigonometric.TWO_OVER_PI, 1 << digits) * pi - 2) < Fraction(1, 1 << digits - 16)
    for table in (trigonometric.PI_HALF, inverse.PI_HALF):
        for dtype, (high, low) in table.items():
            assert low == dtype.numpy.type(float(pi / 2 - Fraction(high))), dtype

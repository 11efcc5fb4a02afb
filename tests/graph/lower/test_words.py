"""Arithmetic of 64 bits in pairs of 32-bit words, evaluated in NumPy: extremes, ties, every amount of a shift."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
import pytest

from tests.graph.lower.evaluation import evaluate, leaf
from tests.graph.lower.hand_kernels import Case, axes, check, kernel, param
from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import AxisKind, Ops, UOp
from tinyweb.graph.lower import int64
from tinyweb.graph.lower.constructors import stack
from tinyweb.graph.optimize import Bind, apply
from tinyweb.graph.target import webgpu_target

U32, I32, F32, F64, I64, U64 = (
    dtypes.uint32, dtypes.int32, dtypes.float32, dtypes.float64, dtypes.int64, dtypes.uint64,
)  # fmt: skip
rng = np.random.default_rng(11)
EDGES = [0, 1, 2, 3, 0xFFFF, 0x10000, 0x10001, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**48, 2**63 - 1, 2**63,
         2**63 + 1, 2**64 - 2**32, 2**64 - 2, 2**64 - 1, 0x123456789ABCDEF0]  # fmt: skip
NUMBERS = np.array(EDGES, np.uint64)
A, B = (g.reshape(-1) for g in np.meshgrid(NUMBERS, NUMBERS))
MANY = rng.integers(0, 2**64, 4000, np.uint64) >> rng.integers(0, 64, 4000).astype(np.uint64)

LEAVES = [(leaf(U32, 2 * i), leaf(U32, 2 * i + 1)) for i in range(2)]


def words(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    bits = x.view(np.uint64)
    return (bits & np.uint64(int64.WORD)).astype(np.uint32), (bits >> np.uint64(32)).astype(np.uint32)


def bound(*arrays: np.ndarray) -> dict[UOp, np.ndarray]:
    return {u: v for pair, x in zip(LEAVES, arrays) for u, v in zip(pair, words(x))}


def joined(pair: tuple[UOp, UOp], values: dict[UOp, np.ndarray]) -> np.ndarray:
    low, high = (evaluate(u, values).astype(np.uint64) for u in pair)
    return low | high << np.uint64(32)


X, Y = LEAVES


def test_sums_negatives_and_products() -> None:
    values = bound(A, B)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(joined(int64.add_long(X, Y), values), A + B)
        np.testing.assert_array_equal(joined(int64.negate(X), values), np.uint64(0) - A)
        np.testing.assert_array_equal(joined(int64.multiply(X, Y), values), A * B)
        more = bound(MANY, MANY[::-1].copy())
        np.testing.assert_array_equal(joined(int64.multiply(X, Y), more), MANY * MANY[::-1])


def test_order() -> None:
    values = bound(A, B)
    np.testing.assert_array_equal(evaluate(int64.less(X, Y, False), values), A < B)
    np.testing.assert_array_equal(evaluate(int64.less(X, Y, True), values), A.view(np.int64) < B.view(np.int64))


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("op", [Ops.SHL, Ops.SHR], ids=lambda o: o.name)
def test_every_shift(op: Ops, signed: bool) -> None:
    """By an amount that is known, and by one that is not."""
    numbers = NUMBERS.view(np.int64) if signed else NUMBERS
    x, by = (g.reshape(-1) for g in np.meshgrid(numbers, np.arange(64)))
    want = (x << by.astype(x.dtype) if op is Ops.SHL else x >> by.astype(x.dtype)).view(np.uint64)
    amount = leaf(U32, 9)
    values = {**bound(x), amount: by.astype(np.uint32)}
    np.testing.assert_array_equal(joined(int64.shift(op, X, amount, signed), values), want)
    for n in range(64):
        pair = int64.shift(op, X, UOp.const(n, U32), signed)
        np.testing.assert_array_equal(joined(pair, bound(x[by == n])), want[by == n], err_msg=str(n))
    assert int64.shift(op, X, UOp.const(0, U32), signed) is X


def constants(value: int) -> tuple[UOp, UOp]:
    return UOp.const(value & int64.WORD, U32), UOp.const(value >> 32, U32)


def test_constants_are_folded() -> None:
    """Of constant words nothing is left to compute."""
    for a in EDGES:
        for b in (0, 1, 0xFFFF, 2**32 - 1, 2**33 + 5, 2**64 - 1):
            x, y = constants(a), constants(b)
            assert int64.multiply(x, y)[0].op is Ops.CONST
        for n in (0, 1, 31, 32, 33, 63):
            for op in (Ops.SHL, Ops.SHR):
                want = (a << n if op is Ops.SHL else a >> n) & (2**64 - 1)
                got = int64.shift(op, constants(a), UOp.const(n, U32), False)
                assert [int(u.arg) & int64.WORD for u in got] == [want & int64.WORD, want >> 32], (a, n, op)


def test_neutral_words_leave_nothing_to_do() -> None:
    zero = constants(0)
    assert int64.add_long(X, zero)[0] is X[0] and int64.add_long(zero, X)[0] is X[0]
    assert [u.op for u in int64.add_long(X, zero)] == [Ops.LOAD, Ops.LOAD]
    (x, _), every = X, UOp.const(int64.WORD, U32)
    nothing = UOp.const(0, U32)
    for a, b in ((x, nothing), (nothing, x)):
        assert int64._op(Ops.AND, a, b) is nothing
        assert int64._op(Ops.OR, a, b) is x and int64._op(Ops.XOR, a, b) is x
    assert int64._op(Ops.AND, x, every) is x and int64._op(Ops.AND, every, x) is x
    assert int64._op(Ops.XOR, x, every).op is Ops.XOR and int64._op(Ops.OR, x, 7).op is Ops.OR


def test_vectors_of_words() -> None:
    """Both lanes are computed, and a scalar beside a vector counts for every lane."""
    (a, b), (c, d) = X, Y
    low, high = stack([a, c]), stack([b, d])
    values = bound(A, B)
    for lane, x in enumerate((A, B)):
        with np.errstate(over="ignore"):
            for pair, want in (
                (int64.add_long((low, high), X), x + A), (int64.multiply((low, high), Y), x * B),
                (int64.negate((low, high)), np.uint64(0) - x),
                (int64.shift(Ops.SHR, (low, high), UOp.const(5, U32), False), x >> np.uint64(5)),
            ):  # fmt: skip
                both = [evaluate(u, values)[..., lane].astype(np.uint64) for u in pair]
                np.testing.assert_array_equal(both[0] | both[1] << np.uint64(32), want)
        np.testing.assert_array_equal(evaluate(int64.less((low, high), X, False), values)[..., lane], x < A)
        got = evaluate(int64.to_float((low, high), False), values)[..., lane]
        np.testing.assert_array_equal(got, x.astype(np.float32))


# -- floats ------------------------------------------------------------------------------------------------------------
def ties() -> np.ndarray:
    """Integers halfway between two floats, and beside these, of every length."""
    out = [2**64 - 1, 2**63 - 1]
    for length in range(24, 64):
        for head in (1 << 24, (1 << 24) + 1, (1 << 25) - 1, 0x15A5A5A, 0x1FFFFFE, 0x1FFFFFD):
            middle = (head << 1 | 1) << length >> 25
            out += [x for x in (middle - 1, middle, middle + 1) if 0 <= x < 1 << 64]
    return np.array(out, np.uint64)


def test_integers_to_single() -> None:
    for numbers in (ties(), NUMBERS, MANY, np.uint64(1) << np.arange(64, dtype=np.uint64)):
        values = bound(numbers)
        np.testing.assert_array_equal(evaluate(int64.to_float(X, False), values), numbers.astype(np.float32))
        signed = numbers.view(np.int64)
        np.testing.assert_array_equal(evaluate(int64.to_float(X, True), values), signed.astype(np.float32))


def test_single_to_integers() -> None:
    x = leaf(F32)
    numbers = np.concatenate([
        rng.uniform(1, 2, 500) * 2.0 ** rng.integers(-3, 63, 500), 2.0 ** np.arange(63), [0.0, 0.5, 0.999, 1.5],
    ]).astype(np.float32)  # fmt: skip
    numbers = numbers[numbers < 2.0**63]
    got = joined(int64.from_float(x), {x: np.concatenate([numbers, -numbers])})
    want = np.concatenate([numbers, -numbers]).astype(np.int64)
    np.testing.assert_array_equal(got.view(np.int64), want)
    large = np.nextafter(np.float32(2.0**64), np.float32(0), dtype=np.float32) * np.float32([1, 0.75, 0.5])
    np.testing.assert_array_equal(joined(int64.from_float(x), {x: large}), large.astype(np.uint64))


def singles() -> np.ndarray:
    edges = np.array([0, 1, 2, 0x7FFFFF, 0x800000, 0x800001, 0x3F800000, 0x7F7FFFFF, 0x7F800000], np.uint32)
    every = np.concatenate([edges, rng.integers(0, 0x7F800000, 3000, np.uint32), np.arange(24, dtype=np.uint32)])
    shifted = np.uint32(1) << np.arange(31, dtype=np.uint32)
    size = np.concatenate([every, shifted[shifted < 0x7F800000]])
    return np.concatenate([size, size | np.uint32(1 << 31)]).view(np.float32)


def test_single_to_double() -> None:
    x, numbers = leaf(F32), singles()
    got = joined(int64.single_to_double(x), {x: numbers})
    np.testing.assert_array_equal(got, numbers.astype(np.float64).view(np.uint64))
    nan = np.array([0x7FC00000, 0xFFC00001, 0x7FFFFFFF], np.uint32)
    got = joined(int64.single_to_double(x), {x: nan.view(np.float32)})
    sign, digits = (nan >> np.uint32(31)).astype(np.uint64), (nan & np.uint32(0x7FFFFF)).astype(np.uint64)
    np.testing.assert_array_equal(got, sign << np.uint64(63) | np.uint64(0x7FF << 52) | digits << np.uint64(29))


def test_double_to_single() -> None:
    exact = singles().astype(np.float64)
    exact = np.abs(exact[np.isfinite(exact)])
    with np.errstate(over="ignore"):
        above = np.nextafter(exact.astype(np.float32), np.float32(np.inf)).astype(np.float64)
    middle = np.where(np.isfinite(above), (exact + above) / 2, 2.0**128 - 2.0**103)
    beside = [np.nextafter(middle, 0.0), np.nextafter(middle, np.inf)]
    scattered = rng.uniform(1, 2, 2000) * 2.0 ** rng.integers(-200, 200, 2000)
    edges = [0.0, 5e-324, 2.0**-150, 2.0**-151, 2.0**-149, 2.0**-126, 2.0**-1022, 2.0**128, np.finfo(np.float64).max,
             np.inf]  # fmt: skip
    numbers = np.concatenate([exact, middle, *beside, scattered, edges])
    numbers = np.concatenate([numbers, -numbers])
    got = evaluate(int64.double_to_single(*X), bound(numbers))
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(got.view(np.uint32), numbers.astype(np.float32).view(np.uint32))
    nan = np.array([0x7FF8 << 48, 0x7FF0000000000001, 0xFFF00000 << 32 | 1 << 31, 0x7FFFFFFFFFFFFFFF], np.uint64)
    got = evaluate(int64.double_to_single(*X), bound(nan.view(np.float64))).view(np.uint32)
    np.testing.assert_array_equal(got, [0x7FC00000, 0x7FC00000, 0xFFC00000, 0x7FC00000])


# -- whole programs ----------------------------------------------------------------------------------------------------
WEBGPU = replace(webgpu_target(), max_buffers=64)


def program(inputs: Iterable[np.ndarray], results: list[tuple[Callable[..., UOp], np.ndarray]]) -> None:
    """Every result is what the function makes of the inputs, elementwise, in one kernel."""
    from tinyweb.dtype import from_numpy

    inputs, n = list(inputs), len(results)
    (i,) = axes(inputs[0].size)
    loads = [param(n + k, x.size, from_numpy(x.dtype)).load(i) for k, x in enumerate(inputs)]
    stores = []
    for slot, (compute, want) in enumerate(results):
        stores.append(param(slot, want.size, from_numpy(want.dtype)).store(i, compute(*loads)))
    before = [np.zeros_like(want) for _, want in results] + inputs
    case = Case("words", kernel(*stores), before, [want for _, want in results], tolerance=0)
    lowered = check(case, apply(case.kernel, [Bind("i0", AxisKind.THREAD)]), WEBGPU)
    assert all(u.dtype.bits <= 32 for u in lowered.uops)


@pytest.mark.parametrize("dtype", [I64, U64], ids=lambda d: d.name)
def test_operations(dtype: DType) -> None:
    few = NUMBERS[4:]
    a, b = (g.reshape(-1).view(dtype.numpy) for g in np.meshgrid(few, few))
    by = (np.arange(a.size) % 64).astype(dtype.numpy)
    # what NumPy makes of the smallest number by -1 has no place to be right
    safe = np.where((b == 0) | ((a == dtype.min) & (b == dtype.numpy.type(-1 % 2**64 if dtype is U64 else -1))), 1, b)
    safe = safe.astype(dtype.numpy)
    with np.errstate(all="ignore"):
        quotient, rest = np.floor_divide(a, safe), np.mod(a, safe)
        program([a, b, by, safe], [
            (lambda x, y, n, s: x + y, a + b), (lambda x, y, n, s: x * y, a * b), (lambda x, y, n, s: -x, -a),
            (lambda x, y, n, s: x.maximum(y), np.maximum(a, b)),
            (lambda x, y, n, s: x & y, a & b), (lambda x, y, n, s: x | y, a | b), (lambda x, y, n, s: x ^ y, a ^ b),
            (lambda x, y, n, s: (x < y).cast(I32), (a < b).astype(np.int32)),
            (lambda x, y, n, s: x.equal(y).cast(I32), (a == b).astype(np.int32)),
            (lambda x, y, n, s: (x < y).where(x, n), np.where(a < b, a, by)),
            (lambda x, y, n, s: x.alu(Ops.SHL, n), a << by), (lambda x, y, n, s: x.alu(Ops.SHR, n), a >> by),
            (lambda x, y, n, s: x // s, quotient), (lambda x, y, n, s: x % s, rest),
            (lambda x, y, n, s: x + (1 << 40), a + dtype.numpy.type(1 << 40)),
        ])  # fmt: skip


@pytest.mark.parametrize("dtype", [I64, U64], ids=lambda d: d.name)
def test_casts_from_long(dtype: DType) -> None:
    a = np.concatenate([NUMBERS, MANY[:200]]).view(dtype.numpy)
    other = U64 if dtype is I64 else I64
    program([a], [
        (lambda x: x.cast(F32), a.astype(np.float32)), (lambda x: x.cast(I32), a.astype(np.int32)),
        (lambda x: x.cast(U32), a.astype(np.uint32)), (lambda x: x.cast(dtypes.bool), a != 0),
        (lambda x: x.cast(other), a.astype(other.numpy)), (lambda x: x.cast(dtypes.int8), a.astype(np.int8)),
        (lambda x: x.cast(dtypes.uint16), a.astype(np.uint16)),
    ])  # fmt: skip


@pytest.mark.parametrize("dtype", [I64, U64], ids=lambda d: d.name)
def test_casts_to_long(dtype: DType) -> None:
    small = np.array([0, 1, -1, 5, -128, 127, 2**31 - 1, -(2**31)] + [7] * 4, np.int32)
    unsigned = small.view(np.uint32)
    limit = float(int(dtype.max) + 1)
    x = np.array([0, 1.5, -1.5, 2.0**40, np.inf, -np.inf, np.nan, 1e30, -1e30, limit, np.nextafter(
        np.float32(limit), np.float32(0)), -(2.0**62)], np.float32)  # fmt: skip
    low, high = int(dtype.min), int(dtype.max)
    exact = [0 if np.isnan(v) else high if v >= limit else low if v <= low else int(v) for v in x]
    program([small, unsigned, x, small > 0, small.astype(np.int8), small.astype(np.uint8)], [
        (lambda s, u, f, b, c, d: s.cast(dtype), small.astype(dtype.numpy)),
        (lambda s, u, f, b, c, d: u.cast(dtype), unsigned.astype(dtype.numpy)),
        (lambda s, u, f, b, c, d: f.cast(dtype), np.array(exact, dtype.numpy)),
        (lambda s, u, f, b, c, d: b.cast(dtype), (small > 0).astype(dtype.numpy)),
        (lambda s, u, f, b, c, d: c.cast(dtype), small.astype(np.int8).astype(dtype.numpy)),
        (lambda s, u, f, b, c, d: d.cast(dtype), small.astype(np.uint8).astype(dtype.numpy)),
        (lambda s, u, f, b, c, d: u.cast(dtype) // (u.cast(dtype) | 1), (unsigned == unsigned | 1).astype(dtype.numpy)),
    ])  # fmt: skip

"""What one operation makes of constants, at the ends of types and where there is no result."""

from __future__ import annotations

import math

import pytest

from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import Ops, UOp, Variable
from tinyweb.graph.symbolic.fold import Value, as_value, compute, evaluate, wrap

I8, U8, I16, U16 = dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16
I32, U32, I64, U64, INDEX = dtypes.int32, dtypes.uint32, dtypes.int64, dtypes.uint64, dtypes.index
F16, BF16, F32, F64, BOOL = dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64, dtypes.bool
INF, NAN = math.inf, math.nan

# operation, type, operands, result
ONE_TYPE: list[tuple[Ops, DType, tuple[Value, ...], Value | None]] = [
    (Ops.NEG, I8, (5,), -5), (Ops.NEG, I8, (-128,), -128), (Ops.NEG, U8, (1,), 255),
    (Ops.ADD, I8, (127, 1), -128), (Ops.ADD, I8, (-128, -1), 127), (Ops.ADD, U8, (255, 1), 0),
    (Ops.ADD, I8, (63, 64), 127),
    (Ops.MUL, I32, (65536, 65536), 0), (Ops.MUL, I32, (65536, 32768), -(2**31)), (Ops.MUL, U32, (2**31, 2), 0),
    (Ops.MUL, I64, (2**32, 2**31), -(2**63)), (Ops.MUL, U64, (2**32, 2**31), 2**63), (Ops.MUL, I8, (3, -5), -15),
    (Ops.FLOORDIV, I32, (7, 2), 3), (Ops.FLOORDIV, I32, (-7, 2), -4), (Ops.FLOORDIV, I32, (7, -2), -4),
    (Ops.FLOORDIV, I32, (7, 0), None), (Ops.FLOORDIV, I8, (-128, -1), -128), (Ops.MOD, I32, (-7, 2), 1),
    (Ops.MOD, I32, (7, -2), -1), (Ops.MOD, I32, (7, 0), None), (Ops.MOD, I32, (6, 3), 0),
    (Ops.MAX, I8, (-3, 2), 2), (Ops.MAX, I8, (2, -3), 2), (Ops.AND, U8, (12, 10), 8), (Ops.OR, U8, (12, 10), 14),
    (Ops.XOR, U8, (12, 10), 6), (Ops.XOR, I8, (-1, 1), -2), (Ops.MULADD, I8, (10, 12, 9), -127),
    (Ops.SHL, I32, (1, 31), -(2**31)), (Ops.SHL, I32, (1, 32), None), (Ops.SHL, I32, (1, 33), None),
    (Ops.SHL, I32, (1, -1), None),
    (Ops.SHL, I32, (3, 0), 3), (Ops.SHL, U8, (129, 1), 2), (Ops.SHL, U8, (1, 7), 128), (Ops.SHL, U8, (1, 8), None),
    (Ops.SHL, I64, (1, 63), -(2**63)), (Ops.SHL, I64, (1, 64), None), (Ops.SHL, U64, (1, 63), 2**63),
    (Ops.SHR, U64, (1, 64), None),
    (Ops.SHR, I32, (-8, 1), -4), (Ops.SHR, I32, (-1, 31), -1), (Ops.SHR, I32, (-1, 32), None),
    (Ops.SHR, U32, (2**32 - 1, 31), 1),
    (Ops.SHR, I32, (5, 0), 5), (Ops.SHR, I32, (5, -1), None), (Ops.ADD, BOOL, (True, True), True),
    (Ops.MUL, BOOL, (True, False), False),
    (Ops.ADD, F32, (2**24, 1.0), 2.0**24), (Ops.ADD, F64, (2**24, 1.0), 2.0**24 + 1),
    (Ops.ADD, F16, (2048.0, 1.0), 2048.0),
    (Ops.ADD, BF16, (256.0, 1.0), 256.0), (Ops.MUL, F16, (300.0, 300.0), INF), (Ops.DIV, F32, (1.0, 0.0), INF),
    (Ops.DIV, F32, (1.0, 3.0), 11184811 / 2**25), (Ops.RECIPROCAL, F32, (-0.0,), -INF), (Ops.SQRT, F32, (9.0,), 3.0),
    (Ops.FLOOR, F32, (-1.5,), -2.0), (Ops.TRUNC, F32, (-1.5,), -1.0), (Ops.ROUND, F32, (2.5,), 2.0),
    (Ops.NEG, F32, (1.5,), -1.5),
    (Ops.MAX, F32, (-1.0, 2.0), 2.0),
    (Ops.MAX, F32, (NAN, 2.0), None), (Ops.MAX, F32, (2.0, NAN), None), (Ops.MULADD, F32, (1.0, 2.0, 3.0), None),
    (Ops.EXP2, F32, (3.0,), 8.0), (Ops.LOG2, F32, (8.0,), 3.0), (Ops.POW, F32, (2.0, 10.0), 1024.0),
    (Ops.ERF, F32, (0.0,), 0.0),
    (Ops.EXP2, F16, (17.0,), INF), (Ops.SIN, I32, (1,), None), (Ops.SQRT, I32, (4,), None),
]  # fmt: skip


@pytest.mark.parametrize(("op", "dtype", "values", "want"), ONE_TYPE, ids=lambda v: getattr(v, "name", None) or str(v))
def test_one_type(op: Ops, dtype: DType, values: tuple[Value, ...], want: Value | None) -> None:
    got = compute(op, dtype, values, dtype)
    assert got == want and type(got) is type(want)
    if want == 0 and isinstance(want, float):
        assert math.copysign(1, float(got or 0)) == math.copysign(1, want)


def test_choices_and_comparisons() -> None:
    assert [compute(Ops.WHERE, I32, (c, 3, 4), I32) for c in (True, False)] == [3, 4]
    assert [compute(Ops.LESS, BOOL, p, I32) for p in ((1, 2), (2, 2), (3, 2))] == [True, False, False]
    assert [compute(Ops.EQUAL, BOOL, p, I32) for p in ((1, 2), (2, 2), (3, 2))] == [False, True, False]
    assert compute(Ops.LESS, BOOL, (NAN, 1.0), F32) is False and compute(Ops.EQUAL, BOOL, (NAN, NAN), F32) is False


@pytest.mark.parametrize(
    ("value", "of", "to", "want"),
    [
        (0.5, F32, BOOL, True), (0.0, F32, BOOL, False), (-3, I32, BOOL, True), (0, I32, BOOL, False),
        (NAN, F32, BOOL, True),
        (NAN, F32, I32, 0), (INF, F32, I32, 2**31 - 1), (-INF, F32, I32, -(2**31)), (-INF, F32, U8, 0),
        (INF, F32, U8, 255),
        (-1.9, F32, I32, -1), (1.9, F32, I32, 1), (300.0, F32, I8, 127), (-300.0, F32, I8, -128), (-0.5, F32, U32, 0),
        (300, I32, I8, 44), (200, U8, I8, -56), (-1, I8, U32, 2**32 - 1), (2**31, I64, I32, -(2**31)),
        (True, BOOL, I32, 1),
        (0.1, F64, F32, 13421773 / 2**27), (65520.0, F32, F16, INF), (65519.0, F32, F16, 65504.0),
        (257.0, F32, BF16, 256.0),
        (2**24 + 1, I32, F32, 2.0**24), (2**63 + 2**39 + 1, U64, F32, 2.0**63 + 2.0**40),
        (2**64 - 1, U64, F64, 2.0**64),
        (-(2**63), I64, F64, -(2.0**63)), (2049, I32, F16, 2048.0), (257, I32, BF16, 256.0),
    ],
)  # fmt: skip
def test_casts(value: Value, of: DType, to: DType, want: Value) -> None:
    got = compute(Ops.CAST, to, (value,), of)
    assert got == want and isinstance(got, bool) == (to is BOOL) and isinstance(got, float) == to.is_float


@pytest.mark.parametrize(
    ("value", "of", "to", "want"),
    [
        (1.0, F32, I32, 0x3F800000), (0x3F800000, I32, F32, 1.0), (-1, I32, U32, 2**32 - 1), (200, U8, I8, -56),
        (-1, I8, U8, 255),
        (1.0, F16, U16, 0x3C00), (0x3F80, U16, BF16, 1.0), (1.0, BF16, U16, 0x3F80), (0x3C00, I16, F16, 1.0),
        (1.0, F64, I64, 0x3FF0000000000000), (1, I32, I64, None), (1, U8, BOOL, None), (True, BOOL, U8, None),
        (1, dtypes.int4, dtypes.uint4, None),
    ],
)  # fmt: skip
def test_bitcasts(value: Value, of: DType, to: DType, want: Value | None) -> None:
    assert compute(Ops.BITCAST, to, (value,), of) == want


@pytest.mark.parametrize(
    ("value", "dtype", "want"),
    [
        (127, I8, 127), (128, I8, -128), (-128, I8, -128), (-129, I8, 127), (255, U8, 255), (256, U8, 0),
        (-1, U8, 255),
        (383, I8, 127), (384, I8, -128), (7, dtypes.int4, 7), (8, dtypes.int4, -8), (16, dtypes.uint4, 0),
        (2**31, INDEX, -(2**31)),
    ],
)  # fmt: skip
def test_integers_wrap_around(value: int, dtype: DType, want: int) -> None:
    assert wrap(value, dtype) == want and as_value(value, dtype) == want


def test_whole_expressions() -> None:
    n = Variable("n", -8, 8)
    zero = UOp.const(0, INDEX)
    assert evaluate((n + 3) * 2, {n: 4}) == 14 and evaluate(n.bind(5) + 1) == 6
    chosen = (n < 1).where(n + 10, n // zero)  # only the branch that is taken has to have a value
    assert evaluate(chosen, {n: 0}) == 10
    with pytest.raises(ZeroDivisionError):
        evaluate(chosen, {n: 1})
    other = (n < 1).where(n // zero, n + 20)
    assert evaluate(other, {n: 1}) == 21
    with pytest.raises(ZeroDivisionError):
        evaluate(other, {n: 0})
    with pytest.raises(KeyError, match="needs a value for"):
        evaluate(n + 1)
    with pytest.raises(ZeroDivisionError):
        evaluate(n // zero + 1, {n: 2})

"""The value of one operation on constants, exactly as its dtype computes it, and of whole expressions.

Integers wrap around, index arithmetic included; FLOORDIV and MOD round to minus infinity; floats are rounded after
every operation to their own width (types that NumPy lacks are computed in float32).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from tinyweb.dtype import DType, dtypes, from_bits, round_to, to_bits
from tinyweb.graph.ir.ops import ELEMENTWISE, Ops
from tinyweb.graph.ir.uop import UOp

Value: TypeAlias = "int | float | bool"


def wrap(value: int, dtype: DType) -> int:
    """An integer reduced to what `dtype` holds."""
    if dtype.min <= value <= dtype.max:
        return value
    value &= (1 << dtype.bits) - 1
    return value - (1 << dtype.bits) if dtype.is_signed and value >> (dtype.bits - 1) else value


def as_value(value: Value, dtype: DType) -> Value:
    """A Python number as a value of `dtype`."""
    if dtype.kind == "bool":
        return bool(value)
    return round_to(value, dtype) if dtype.is_float else wrap(int(value), dtype)


_INT: dict[Ops, Callable[..., int | None]] = {
    Ops.NEG: lambda a: -a,
    Ops.ADD: lambda a, b: a + b,
    Ops.MUL: lambda a, b: a * b,
    Ops.FLOORDIV: lambda a, b: a // b if b else None,
    Ops.MOD: lambda a, b: a % b if b else None,
    Ops.MAX: max,
    Ops.AND: lambda a, b: a & b,
    Ops.OR: lambda a, b: a | b,
    Ops.XOR: lambda a, b: a ^ b,
    Ops.SHR: lambda a, b: a >> b if 0 <= b < 64 else None,
    Ops.SHL: lambda a, b: a << b if 0 <= b < 64 else None,
    Ops.MULADD: lambda a, b, c: a * b + c,
}
_FLOAT: dict[Ops, Callable[..., Any]] = {
    Ops.NEG: np.negative,
    Ops.RECIPROCAL: np.reciprocal,
    Ops.SQRT: np.sqrt,
    Ops.FLOOR: np.floor,
    Ops.TRUNC: np.trunc,
    Ops.ROUND: np.rint,
    Ops.ADD: np.add,
    Ops.MUL: np.multiply,
    Ops.DIV: np.divide,
    Ops.FMOD: np.fmod,
    Ops.MAX: np.maximum,
}
# computed as float64, then rounded: NumPy's own functions of float32 are not all within a unit
_FUNCTIONS: dict[Ops, Callable[..., Any]] = {
    Ops.EXP: np.exp, Ops.EXP2: np.exp2, Ops.EXPM1: np.expm1, Ops.LOG: np.log, Ops.LOG2: np.log2, Ops.LOG10: np.log10,
    Ops.LOG1P: np.log1p, Ops.SIN: np.sin, Ops.COS: np.cos, Ops.TAN: np.tan, Ops.ASIN: np.arcsin, Ops.ACOS: np.arccos,
    Ops.ATAN: np.arctan, Ops.SINH: np.sinh, Ops.COSH: np.cosh, Ops.TANH: np.tanh, Ops.ASINH: np.arcsinh,
    Ops.ACOSH: np.arccosh, Ops.ATANH: np.arctanh, Ops.ERF: math.erf, Ops.ERFC: math.erfc, Ops.POW: np.power,
}  # fmt: skip


def compute(op: Ops, dtype: DType, values: tuple[Value, ...], of: DType) -> Value | None:
    """The result of `op`, of type `dtype`, on `values` of type `of` (WHERE: the type of its branches).

    None where the operation has no defined result (division by zero, a float outside of the integer's range, a shift by
    too much, MAX of a NaN) or where targets may round twice (MULADD on floats).
    """
    if op is Ops.WHERE:
        return values[1] if values[0] else values[2]
    if op is Ops.LESS:
        return bool(values[0] < values[1])
    if op is Ops.EQUAL:
        return bool(values[0] == values[1])
    if op is Ops.CAST:
        return _cast(values[0], of, dtype)
    if op is Ops.BITCAST:
        return _bitcast(values[0], of, dtype)
    if dtype.is_float:
        if op in _FUNCTIONS:
            with np.errstate(all="ignore"):
                return round_to(float(_FUNCTIONS[op](*(np.float64(v) for v in values))), dtype)
        function = _FLOAT.get(op)
        if function is None or (op is Ops.MAX and any(math.isnan(v) for v in values)):
            return None
        # types that NumPy lacks are computed in float32 and rounded once
        with np.errstate(all="ignore"):
            return round_to(float(function(*(dtype.numpy.type(v) for v in values))), dtype)
    integer = _INT.get(op)
    if integer is None or (op in (Ops.SHL, Ops.SHR) and values[1] >= dtype.bits):
        return None
    result = integer(*map(int, values))
    if result is None:
        return None
    return bool(result) if dtype.kind == "bool" else wrap(result, dtype)


def _cast(value: Value, of: DType, to: DType) -> Value | None:
    if to.kind == "bool":
        return bool(value != 0)
    if not to.is_float:
        if of.is_float:
            if not math.isfinite(value):
                return 0 if math.isnan(value) else int(to.max if value > 0 else to.min)
            return min(max(math.trunc(value), int(to.min)), int(to.max))
        return wrap(int(value), to)
    if of.is_float:
        return round_to(float(value), to)
    if to.held_wider:
        return round_to(float(np.float32(value)), to)  # as targets compute it
    # from a wide integer: one rounding, not one to float64 and another
    wide = np.uint64 if of is dtypes.uint64 else np.int64
    with np.errstate(all="ignore"):
        return float(np.array([int(value)], wide).astype(to.numpy)[0])


def _bitcast(value: Value, of: DType, to: DType) -> Value | None:
    if of.bits != to.bits or of.bits < 8 or "bool" in (of.kind, to.kind):
        return None
    raw = to_bits([value], of) if of.held_wider else np.array([value], of.numpy)
    if to.held_wider:
        return float(from_bits(raw.view(f"uint{to.bits}"), to)[0])
    out: Value = raw.view(to.numpy)[0].item()
    return out


def evaluate(expr: UOp, values: Mapping[UOp, Value] | None = None) -> Value:
    """The number `expr` stands for, with `values` for its free nodes (RANGE, VARIABLE, SPECIAL, LOAD, …).

    KeyError for a free node without a value; ZeroDivisionError where an operation has no defined result. WHERE looks
    only at the branch it takes.
    """
    known: dict[UOp, Value] = {u: as_value(v, u.dtype) for u, v in (values or {}).items()}
    undefined: dict[UOp, bool] = {}  # nodes without a value: whether it is one that had to be given
    stack = [expr]
    while stack:
        u = stack[-1]
        if u in known or u in undefined:
            stack.pop()
        elif u.op is Ops.CONST:
            known[u] = as_value(u.arg, u.dtype)
        elif u.op is Ops.BIND:
            known[u] = u.src[1].arg
        elif u.op not in ELEMENTWISE:
            undefined[u] = True
        elif waiting := [s for s in u.src if s not in known and s not in undefined]:
            stack.extend(waiting)
        else:
            used = u.src
            if u.op is Ops.WHERE and u.src[0] in known:
                used = (u.src[0], u.src[1] if known[u.src[0]] else u.src[2])
            result = None
            if not any(s in undefined for s in used):
                values_of = tuple(known.get(s, 0) for s in u.src)
                result = compute(u.op, u.dtype, values_of, u.src[0].dtype)
            if result is None:
                undefined[u] = False
            else:
                known[u] = result
    if expr in known:
        return known[expr]
    missing = next((u for u, given in undefined.items() if given), None)
    if missing is not None:
        raise KeyError(f"evaluate needs a value for {missing}")
    raise ZeroDivisionError(f"{expr} has no defined value here")

"""Operators of each element: arithmetic, comparisons, bits, functions, casts and activations."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tinyweb.array.movement import broadcast_shapes
from tinyweb.dtype import dtypes
from tinyweb.formats.onnx.call import Array, Call, Held
from tinyweb.formats.onnx.operators.common import cast, dtype_of, number_of, reshape
from tinyweb.formats.onnx.registry import op
from tinyweb.tensor import Tensor


def old_broadcast(call: Call, a: Any, b: Any) -> tuple[Any, Any]:
    """Before version 7 the second operand begins at `axis` of the first."""
    if call.version >= 7 or not call.integer("broadcast", 0) or not call.has("axis"):
        return a, b
    at = call.integer("axis")
    at += len(a.shape) if at < 0 else 0
    return a, reshape(b, (*b.shape, *(1,) * (len(a.shape) - at - len(b.shape))))


def _alike(call: Call, a: Any, b: Any) -> None:
    if isinstance(a, Tensor) and isinstance(b, Tensor) and a.dtype is not b.dtype:
        raise call.error(f"the operands are {a.dtype.name} and {b.dtype.name}: they must have one type")


def binary(name: str, compute: Callable[[Any, Any], Any], truth: bool = False) -> None:
    """Enters an operator of two operands of one type, whose result has it, or is a truth."""

    def lower(call: Call, a: Array, b: Array) -> Any:
        a, b = old_broadcast(call, a, b)
        _alike(call, a, b)
        result = compute(a, b)
        return result if truth or isinstance(result, np.ndarray | np.generic) else cast(result, dtype_of(a))

    op(name, folds=True)(lower)


def quotient(a: Any, b: Any) -> Any:
    """Of integers, rounded to 0."""
    if dtype_of(a).is_float:
        return a / b
    if isinstance(a, Tensor):
        return a.div(b, rounding_mode="trunc")
    safe = np.where(b == 0, 1, b).astype(b.dtype)
    down = a // safe
    return np.where(b == 0, 0, down + ((down < 0) & (down * safe != a)).astype(a.dtype)).astype(a.dtype)


binary("Add", lambda a, b: a + b)
binary("Sub", lambda a, b: a - b)
binary("Mul", lambda a, b: a * b)
binary("Div", quotient)
binary("And", lambda a, b: a & b)
binary("Or", lambda a, b: a | b)
binary("Xor", lambda a, b: a ^ b)
binary("BitwiseAnd", lambda a, b: a & b)
binary("BitwiseOr", lambda a, b: a | b)
binary("BitwiseXor", lambda a, b: a ^ b)
binary("Less", lambda a, b: a < b, truth=True)
binary("Greater", lambda a, b: a > b, truth=True)
binary("LessOrEqual", lambda a, b: a <= b, truth=True)
binary("GreaterOrEqual", lambda a, b: a >= b, truth=True)
binary("Equal", lambda a, b: (a == b).astype(bool) if isinstance(a, np.ndarray) else a.eq(b), truth=True)


@op("Mod")
def mod(call: Call, a: Tensor, b: Tensor) -> Tensor:
    return cast(a.fmod(b) if call.integer("fmod", 0) else a.remainder(b), a.dtype)


@op("Pow")
def power(call: Call, a: Tensor, b: Tensor) -> Tensor:
    a, b = old_broadcast(call, a, b)
    if a.dtype.is_int and b.dtype.is_float:
        return cast(a.cast(dtypes.float64 if b.dtype is dtypes.float64 else dtypes.float32).pow(b), a.dtype)
    exponent = number_of(b) if a.dtype.is_float else None
    if exponent is not None:  # squares and roots are no powers
        return cast(a.pow(float(exponent)).broadcast_to(broadcast_shapes(call.op, a.shape, b.shape)), a.dtype)
    return cast(a.pow(cast(b, a.dtype)), a.dtype)


@op("BitShift")
def shift(call: Call, a: Tensor, b: Tensor) -> Tensor:
    left = call.choice("direction", "", ("LEFT", "RIGHT")) == "LEFT"
    return cast(a.bitwise_left_shift(b) if left else a.bitwise_right_shift(b), a.dtype)


@op("Max", "Min", folds=True)
def extremum(call: Call, first: Array, *others: Array) -> Any:
    if isinstance(first, Tensor):
        choose: Callable[[Any, Any], Any] = Tensor.maximum if call.op == "Max" else Tensor.minimum
    else:
        choose = np.maximum if call.op == "Max" else np.minimum
    return functools.reduce(choose, others, first)


@op("Sum", "Mean", folds=True)
def total(call: Call, first: Array, *others: Array) -> Any:
    added: Any = functools.reduce(lambda a, b: a + b, others, first)
    return cast(added, dtype_of(first)) if call.op == "Sum" else cast(added / (1 + len(others)), dtype_of(first))


@op("Clip", folds=True)
def clip(call: Call, x: Array, low: Array | None = None, high: Array | None = None) -> Any:
    dtype = dtype_of(x)
    bounds: tuple[Any, Any] = (low, high)
    if call.version < 11:
        bounds = call.real("min", None), call.real("max", None)
    least: Any = Tensor.maximum if isinstance(x, Tensor) else np.maximum
    most: Any = Tensor.minimum if isinstance(x, Tensor) else np.minimum
    for choose, bound in zip((least, most), bounds):
        if bound is not None:
            x = choose(x, bound if isinstance(bound, float) else reshape(bound, ()))
    return cast(x, dtype)


# -- functions of one operand -----------------------------------------------------------------------------------------
def unary(name: str, compute: Callable[[Tensor], Tensor], known: Callable[[Any], Any] | None = None) -> None:
    """`known` computes the same of NumPy arrays."""

    def lower(call: Call, x: Array) -> Any:
        if isinstance(x, np.ndarray):
            assert known is not None
            return np.asarray(known(x)).astype(x.dtype)
        return cast(compute(x), x.dtype)

    op(name, folds=known is not None)(lower)


unary("Abs", lambda x: x.abs(), np.abs)
unary("Neg", lambda x: -x, np.negative)
unary("Floor", lambda x: x.floor(), np.floor)
unary("Ceil", lambda x: x.ceil(), np.ceil)
unary("Round", lambda x: x.round(), np.rint)
unary("Sqrt", lambda x: x.sqrt(), np.sqrt)
unary("Sign", lambda x: x.sign(), np.sign)
unary("Identity", lambda x: x, lambda x: x)
unary("Not", lambda x: x.logical_not(), np.logical_not)
unary("BitwiseNot", lambda x: x.bitwise_not(), np.invert)
unary("Reciprocal", lambda x: x.reciprocal())
unary("Relu", lambda x: x.relu())


def _method(name: str) -> Callable[[Tensor], Tensor]:
    """A method of Tensor without arguments."""

    def compute(x: Tensor) -> Tensor:
        found: Tensor = getattr(x, name)()
        return found

    return compute


for _name in (
    "Exp", "Log", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Tanh", "Asinh", "Acosh", "Atanh", "Erf",
    "Sigmoid", "Softplus", "Softsign", "Mish", "HardSwish",
):  # fmt: skip
    unary(_name, _method(_name.lower()))


@op("Identity", since=14, raw=True)
def identity(call: Call, x: Any) -> Any:
    """Of sequences and optionals as well."""
    return Held(x, call.kinds[0]) if call.kinds[0] is not None else x


@op("IsNaN")
def is_nan(call: Call, x: Tensor) -> Tensor:
    return x.isnan()


@op("IsInf")
def is_inf(call: Call, x: Tensor) -> Tensor:
    up, down = call.integer("detect_positive", 1), call.integer("detect_negative", 1)
    if up and down:
        return x.isinf()
    return x.isposinf() if up else x.isneginf() if down else x.isinf() & False


@op("Where", folds=True, sizes=True)
def where(call: Call, condition: Array, a: Array, b: Array) -> Any:
    if isinstance(condition, np.ndarray):
        return np.where(condition, np.asarray(a), np.asarray(b))
    _alike(call, a, b)
    return condition.where(a, b)


# -- activations ------------------------------------------------------------------------------------------------------
@op("LeakyRelu")
def leaky_relu(call: Call, x: Tensor) -> Tensor:
    return x.leaky_relu(call.real("alpha", 0.01))


@op("Elu")
def elu(call: Call, x: Tensor) -> Tensor:
    alpha = call.real("alpha", 1.0)
    return (x > 0).where(x, x.minimum(0).expm1() * alpha)


@op("Celu")
def celu(call: Call, x: Tensor) -> Tensor:
    return x.celu(call.real("alpha", 1.0))


@op("Selu")
def selu(call: Call, x: Tensor) -> Tensor:
    alpha, gamma = call.real("alpha", 1.67326319217681884765625), call.real("gamma", 1.05070102214813232421875)
    return (x > 0).where(x, x.minimum(0).expm1() * alpha) * gamma


@op("PRelu")
def prelu(call: Call, x: Tensor, slope: Tensor) -> Tensor:
    if call.version < 7 and slope.ndim == 1 and x.ndim > 1:  # one for each channel
        slope = slope.reshape(-1, *(1,) * (x.ndim - 2))
    return cast((x < 0).where(x * slope, x), x.dtype)


@op("HardSigmoid")
def hard_sigmoid(call: Call, x: Tensor) -> Tensor:
    return (x * call.real("alpha", 0.2) + call.real("beta", 0.5)).clamp(0, 1)


@op("Gelu")
@op("Gelu", domain="com.microsoft")
def gelu(call: Call, x: Tensor) -> Tensor:
    return x.gelu(call.choice("approximate", "none", ("none", "tanh")))


@op("Swish")
def swish(call: Call, x: Tensor) -> Tensor:
    return x * (x * call.real("alpha", 1.0)).sigmoid()


@op("ThresholdedRelu")
def thresholded_relu(call: Call, x: Tensor) -> Tensor:
    return x.threshold(call.real("alpha", 1.0), 0.0)


@op("Shrink")
def shrink(call: Call, x: Tensor) -> Tensor:
    bias, edge = call.real("bias", 0.0), call.real("lambd", 0.5)
    return cast((x < -edge).where(x + bias, (x > edge).where(x - bias, x * 0)), x.dtype)


@op("SwiGLU")
def swiglu(call: Call, gate: Tensor, x: Tensor) -> Tensor:
    return cast(gate * (gate * call.real("alpha", 1.0)).sigmoid() * x, x.dtype)

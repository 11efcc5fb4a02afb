"""Casts to every type of ONNX, those that tinyweb lacks included: values are rounded to them in a wider one."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyweb.dtype import dtypes
from tinyweb.formats.onnx.call import Array, Call, Held, lift, lift_sizes
from tinyweb.formats.onnx.operators.common import cast, dtype_of
from tinyweb.formats.onnx.registry import op
from tinyweb.formats.onnx.sizes import Sizes, sizes
from tinyweb.formats.onnx.stored import Stored
from tinyweb.formats.onnx.texts import word_list
from tinyweb.formats.onnx.types import OF_DTYPE, STRING, ElementType
from tinyweb.formats.words import Words
from tinyweb.tensor import Tensor


def kind_of_value(x: Array, held: ElementType | None) -> ElementType:
    """The type of a value; `held` where it lies in a wider one."""
    if held is not None:
        return held
    if isinstance(x, np.ndarray) and x.dtype == object:
        return STRING
    return OF_DTYPE[dtype_of(x)]


@op("Cast", folds=True, sizes=True, stored=(0,))
def lower_cast(call: Call, x: Array | Stored) -> Any:
    kind = call.kind(call.integer("to"))
    if isinstance(x, Sizes):
        return _sizes_as(call, x, kind)
    if isinstance(x, Stored) and kind.dtype is not None and kind.dtype.is_float and not kind.held:
        return x.of(kind.dtype)
    return convert_to(call, x if isinstance(x, np.ndarray) else call.given(x), kind)


def _sizes_as(call: Call, x: Sizes, kind: ElementType) -> Any:
    """Sizes stay known as whole numbers of another type."""
    if kind.dtype in (dtypes.int32, dtypes.int64):
        return sizes(x, kind.dtype.numpy)
    return convert_to(call, lift_sizes(x, call.device, call.bound), kind)


@op("CastLike", folds=True)
def cast_like(call: Call, x: Array, like: Array) -> Any:
    return convert_to(call, x, kind_of_value(like, call.kinds[1]))


@op("BitCast")
def bit_cast(call: Call, x: Tensor) -> Any:
    kind = call.kind(call.integer("to"))
    if kind.dtype is None or kind.held or call.kinds[0] is not None:
        raise call.unsupported(f"the bits of {kind.name} are not held")
    if kind.dtype.bits != x.dtype.bits:
        raise call.error(f"{x.dtype.name} and {kind.name} have different sizes")
    return x.bitcast(kind.dtype)


def convert_to(call: Call, x: Any, kind: ElementType) -> Any:
    """A value as another type, as the operator Cast says: what is too large for an 8-bit float becomes its largest
    number, unless `saturate` is 0."""
    saturate = bool(call.integer("saturate", 1))
    if isinstance(x, Words) and kind is STRING:
        return x
    if isinstance(x, np.ndarray) and x.dtype == object:
        return x if kind is STRING else _parsed(call, x, kind)
    if kind is STRING:
        return _printed(call.known(x, "text"))
    if kind.dtype is None:
        raise call.unsupported(f"{kind.name} is not supported")
    if kind.held:
        return Held(rounded(lift(x, call.device), kind, saturate, call), kind)
    if kind.name.startswith("float8"):
        return _float8(lift(x, call.device), kind, saturate)
    if kind.dtype.kind in ("int", "uint") and kind.dtype.bits < 8:  # wraps around, as integers do
        x = cast(lift(x, call.device), dtypes.int32)
    return cast(x, kind.dtype)


def _parsed(call: Call, x: Any, kind: ElementType) -> Any:
    if kind.dtype is None:
        raise call.unsupported(f"text becomes no {kind.name}")
    whole = kind.dtype.kind in ("int", "uint")
    try:
        values = [int(s) if whole else float(s) for s in x.reshape(-1)]
    except ValueError as e:
        raise call.error(str(e)) from None
    array = np.array(values, np.int64 if whole else np.float64).reshape(x.shape)
    if kind.held or kind.dtype.held_wider:
        return convert_to(call, lift(array.astype(np.float32), call.device), kind)
    return array.astype(kind.dtype.numpy)


def _printed(x: Any) -> Any:
    words = [str(v) if x.dtype.kind in "iub" else np.format_float_positional(v, trim="0") for v in x.reshape(-1)]
    if x.dtype.kind == "f":
        words = [w if np.isfinite(v) else {"inf": "INF", "-inf": "-INF"}.get(str(v), "NaN")
                 for w, v in zip(words, x.reshape(-1))]  # fmt: skip
    return word_list(words).reshape(x.shape)


def _float8(x: Tensor, kind: ElementType, saturate: bool) -> Tensor:
    assert kind.dtype is not None
    y = x.cast(dtypes.float32)
    if kind.dtype is dtypes.float8_e5m2:
        largest = 57344.0
        if saturate:
            y = y.isnan().where(y, y.clamp(-largest, largest))
    elif not saturate:  # a cast holds what is too large within the range, and has no infinity
        y = (y.abs() >= 464.0).where(float("nan"), y)
        at_half = x.cast(dtypes.float32).abs().eq(464.0)
        y = at_half.where(x.cast(dtypes.float32).sign() * 448.0, y)
    return y.cast(kind.dtype)


def rounded(x: Tensor, kind: ElementType, saturate: bool, call: Call) -> Tensor:
    """The nearest values of a type that tinyweb lacks, halves to even."""
    if kind.name == "int2":
        return ((x.cast(dtypes.int32) + 2).bitwise_and(3) - 2).cast(dtypes.int8)
    form = kind.form
    assert form is not None
    y = x.cast(dtypes.float32)
    if not form.signed:
        return _power_of_two(y, saturate, call.text("round_mode", "up"))
    size = y.abs()
    exponent = (size.bitcast(dtypes.int32) >> 23) - 127
    exponent = exponent.maximum(1 - form.bias)
    step = (exponent - form.mantissa + 127 << 23).bitcast(dtypes.float32)  # the last place
    near = (size / step).round() * step
    beyond = near > form.largest
    nan, most = float("nan"), form.largest
    if not form.nan:
        near = y.isnan().where(0.0, beyond.where(most, near))
    elif saturate:
        near = beyond.where(most, near)
    else:
        near = beyond.where(nan, near)
    if form.nan:
        near = y.isnan().where(nan, near) if saturate else (y.isnan() | y.isinf()).where(nan, near)
    signed = near.copysign(y)
    return signed if form.negative_zero else near.eq(0).where(0.0, signed)


def _power_of_two(y: Tensor, saturate: bool, mode: str) -> Tensor:
    """float8e8m0: an exponent alone."""
    bits = y.abs().bitcast(dtypes.int32)
    exponent, rest = bits >> 23, bits & 0x7FFFFF
    if mode == "up":
        more = (rest > 0) & ((exponent > 0) | (rest > 0x400000))
    elif mode == "nearest":
        more = (rest > 0x400000) | (rest.eq(0x400000) & (exponent > 0)) | (rest.eq(0x400000) & (exponent & 1).eq(1))
    else:
        more = rest < 0
    field = exponent + more.cast(dtypes.int32)
    field = field.minimum(254) if saturate else field
    value = (field.eq(0)).where(2.0**-127, (field << 23).bitcast(dtypes.float32))
    beyond = field > 254
    return (
        (y.isnan() | beyond | (y < 0)).where(float("nan"), value)
        if not saturate
        else y.isnan().where(float("nan"), value)
    )

"""Values as integers (or small floats) times a scale: per tensor, per axis, in blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinyweb.dtype import DType, dtypes
from tinyweb.formats.onnx.call import Call, Held
from tinyweb.formats.onnx.operators.blocks import blocked_matrix
from tinyweb.formats.onnx.operators.casting import convert_to, kind_of_value
from tinyweb.formats.onnx.operators.common import cast, dtype_of, fixed, whole_axes, whole_axis
from tinyweb.formats.onnx.operators.convolution import centred, convolve
from tinyweb.formats.onnx.operators.integer import (
    BYTES,
    channels_first,
    convolution,
    factor,
    how_many,
    matrix_product,
)
from tinyweb.formats.onnx.operators.linear import matmul_integer
from tinyweb.formats.onnx.operators.pooling import average_pool
from tinyweb.formats.onnx.registry import op
from tinyweb.formats.onnx.stored import Scaled
from tinyweb.formats.onnx.types import BY_NAME, ElementType
from tinyweb.tensor import Tensor


def spread(call: Call, t: Tensor, shape: Sequence[Any], axis: int, block: int) -> Tensor:
    """A scale or zero point beside the values it is for: one for all, one for each place of an axis, or one for each
    block of `block` of them."""
    if t.numel() == 1 and t.ndim <= 1:
        return t.reshape(())
    at = whole_axis(call, axis, len(shape))
    if block:
        n, parts = int(shape[at]), fixed(t.shape[at])
        if t.ndim != len(shape) or not -(-n // block) == parts:
            raise call.error(f"scales of shape {list(t.shape)} are not one for {block} of axis {at} of {list(shape)}")
        wide = t.unsqueeze(at + 1).expand(*t.shape[: at + 1], block, *t.shape[at + 1 :])
        wide = wide.reshape(*t.shape[:at], parts * block, *t.shape[at + 1 :])
        return wide.shrink([(0, n) if i == at else None for i in range(t.ndim)]) if parts * block != n else wide
    if t.ndim == 1 and t.numel() == shape[at]:
        return t.reshape(*(-1 if i == at else 1 for i in range(len(shape))))
    raise call.error(f"scales of shape {list(t.shape)} do not go with axis {at} of {list(shape)}")


@op("QuantizeLinear")
@op("QuantizeLinear", domain="com.microsoft")
def quantize_linear(call: Call, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Any:
    kind: ElementType = BY_NAME["uint8"]
    if zero is not None:
        kind = kind_of_value(zero, call.kinds[2])
    elif call.integer("output_dtype", 0):
        kind = call.kind(call.integer("output_dtype"))
    axis, block = call.integer("axis", 1), call.integer("block_size", 0)
    precision = call.integer("precision", 0)
    dtype = call.kind(precision).dtype if precision else None
    compute = dtype or (dtypes.float64 if x.dtype is dtypes.float64 else dtypes.float32)
    s = spread(call, scale, x.shape, axis, block).cast(compute)
    y = cast(cast(x, compute) / s, compute)
    z = None if zero is None else spread(call, zero, x.shape, axis, block)
    assert kind.dtype is not None
    if kind.dtype.is_float:
        return convert_to(call, cast(y, dtypes.float32) if z is None else y + z.cast(compute), kind)
    low, high = (-2, 1) if kind.held else (int(kind.dtype.min), int(kind.dtype.max))
    y = y.round() if z is None else y.round() + z.cast(compute)
    whole = y.clamp(low, high).cast(dtypes.int32)
    return Held(whole.cast(kind.dtype), kind) if kind.held else whole.cast(kind.dtype)


@op("DequantizeLinear", keeps=True, stored=(0, 1, 2))
@op("DequantizeLinear", domain="com.microsoft", keeps=True, stored=(0, 1, 2))
def dequantize_linear(call: Call, x: Any, scale: Any, zero: Any = None) -> Any:
    """Blocks of a matrix that are the same in every call stay integers, a `Stored` matrix."""
    axis, block = call.integer("axis", 1), call.integer("block_size", 0)
    dtype = call.kind(call.integer("output_dtype")).dtype if call.integer("output_dtype", 0) else dtype_of(scale)
    assert dtype is not None
    if block and len(x.shape) == 2:
        matrix = blocked_matrix(call, (0, 1, 2), (x, scale, zero), whole_axis(call, axis, 2), block)
        if matrix is not None:
            return matrix.of(dtype)
    if dtype_of(x) in BYTES and not block and dtype is dtypes.float32:
        at = 0 if how_many(scale) == 1 else whole_axis(call, axis, len(x.shape))
        own = call.alone()
        return Scaled(x, scale, zero, at, lambda: dequantised(own, x, scale, zero, axis, block, dtype))
    return dequantised(call, x, scale, zero, axis, block, dtype)


def dequantised(call: Call, x: Any, scale: Any, zero: Any, axis: int, block: int, dtype: DType) -> Tensor:
    x, scale, zero = (call.given(v) for v in (x, scale, zero))
    wide = dtypes.float32 if x.dtype.is_float else dtypes.int32
    y = x.cast(wide)
    if zero is not None:
        y = y - spread(call, zero, x.shape, axis, block).cast(wide)
    result: Tensor = y.cast(dtypes.float32) * spread(call, scale, x.shape, axis, block).cast(dtypes.float32)
    return cast(result, dtype)


@op("DynamicQuantizeLinear")
def dynamic_quantize_linear(call: Call, x: Tensor) -> Any:
    low, high = x.min().minimum(0), x.max().maximum(0)
    scale = (high - low) / 255
    safe = scale.eq(0).where(1.0, scale)
    zero = (-low / safe).round().clamp(0, 255)
    y = ((x / safe).round() + zero).clamp(0, 255)
    return y.cast(dtypes.uint8), scale, zero.cast(dtypes.uint8)


def rescaled(sums: Tensor, factor: Tensor, zero: Tensor) -> Tensor:
    """int32 sums as integers of the zero point's type."""
    y = (sums.cast(dtypes.float32) * factor).round() + zero.cast(dtypes.float32)
    return y.clamp(int(zero.dtype.min), int(zero.dtype.max)).cast(dtypes.int32).cast(zero.dtype)


@op("QLinearMatMul", stored=tuple(range(6)))
def qlinear_matmul(
    call: Call, a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, y_scale: Tensor, y_zero: Tensor
) -> Tensor:
    sums: Tensor | None = matrix_product(call, a, a_zero, 3, b, b_zero)
    a, a_scale, a_zero, b, b_scale, b_zero = (call.given(v) for v in (a, a_scale, a_zero, b, b_scale, b_zero))
    sums = matmul_integer(call, a, b, a_zero, b_zero) if sums is None else sums
    row = a_scale.reshape(*a_scale.shape, 1) if a_scale.ndim == 1 and a_scale.numel() != 1 else a_scale
    f32 = dtypes.float32
    return rescaled(sums, row.cast(f32) * b_scale.cast(f32) / y_scale.cast(f32), y_zero)


@op("QLinearConv", stored=tuple(range(6)))
def qlinear_conv(
    call: Call, x: Any, x_scale: Any, x_zero: Any, w: Any, w_scale: Any, w_zero: Any, y_scale: Tensor, y_zero: Tensor,
    b: Tensor | None = None,
) -> Tensor:  # fmt: skip
    last = convolution(call, x, x_zero, 3, w, w_zero)
    if last is not None:
        last = last if b is None else last + b
        scale = factor(call, x_scale, w_scale) / y_scale.reshape(())
        return channels_first(rescaled(last, scale, y_zero.reshape(())))
    x, x_scale, x_zero, w, w_scale, w_zero = (call.given(v) for v in (x, x_scale, x_zero, w, w_scale, w_zero))
    sums = cast(convolve(call, centred(x, x_zero), centred(w, w_zero, 0)), dtypes.int32)
    lead = (-1, *(1,) * (x.ndim - 2))
    if b is not None:
        sums = sums + b.reshape(*lead)
    scale = w_scale.reshape(()) if w_scale.numel() == 1 else w_scale.reshape(*lead)
    return rescaled(sums, x_scale.reshape(()) * scale / y_scale.reshape(()), y_zero.reshape(()))


@op("QGemm", domain="com.microsoft", stored=(0, 2, 3, 5))
def q_gemm(
    call: Call, a: Any, a_scale: Tensor, a_zero: Any, b: Any, b_scale: Tensor, b_zero: Any, c: Tensor | None = None,
    y_scale: Tensor | None = None, y_zero: Tensor | None = None,
) -> Tensor:  # fmt: skip
    if call.integer("transA", 0):
        a = call.given(a).transpose(0, 1)
    turned = bool(call.integer("transB", 0))
    sums: Tensor | None = matrix_product(call, a, a_zero, 3, b, b_zero, turned)
    if sums is None:
        y = call.given(b)
        sums = matmul_integer(call, a, y.transpose(0, 1) if turned else y, a_zero, b_zero)
    sums = sums if c is None else sums + c
    scale = a_scale.reshape(()) * b_scale * call.real("alpha", 1.0)
    scale = scale.reshape(()) if scale.numel() == 1 else scale
    if y_scale is None or y_zero is None:
        return sums.cast(dtypes.float32) * scale
    return rescaled(sums, scale / y_scale.reshape(()), y_zero.reshape(()))


def _integer(x: Tensor, scale: Tensor, zero: Tensor | None) -> Tensor:
    y = x.cast(dtypes.float32)
    return (y if zero is None else y - zero.cast(dtypes.float32)) * scale


def _back(y: Tensor, scale: Tensor, zero: Tensor | None, like: Tensor) -> Tensor:
    dtype = like.dtype if zero is None else zero.dtype
    q = (y / scale).round()
    q = q if zero is None else q + zero.cast(dtypes.float32)
    return q.clamp(int(dtype.min), int(dtype.max)).cast(dtypes.int32).cast(dtype)


@op("QLinearAdd", "QLinearMul", domain="com.microsoft")
def qlinear_binary(
    call: Call, a: Tensor, a_scale: Tensor, a_zero: Tensor | None, b: Tensor, b_scale: Tensor, b_zero: Tensor | None,
    c_scale: Tensor, c_zero: Tensor | None = None,
) -> Tensor:  # fmt: skip
    x, y = _integer(a, a_scale, a_zero), _integer(b, b_scale, b_zero)
    return _back(x + y if call.op == "QLinearAdd" else x * y, c_scale, c_zero, a)


@op("QLinearSigmoid", "QLinearLeakyRelu", domain="com.microsoft")
def qlinear_unary(
    call: Call, x: Tensor, scale: Tensor, zero: Tensor | None, y_scale: Tensor, y_zero: Tensor | None = None
) -> Tensor:
    y = _integer(x, scale, zero)
    y = y.sigmoid() if call.op == "QLinearSigmoid" else y.leaky_relu(call.real("alpha", 0.01))
    return _back(y, y_scale, y_zero, x)


@op("QLinearGlobalAveragePool", domain="com.microsoft")
def qlinear_global_average_pool(
    call: Call, x: Tensor, scale: Tensor, zero: Tensor, y_scale: Tensor, y_zero: Tensor
) -> Tensor:
    last = call.integer("channels_last", 0)
    axes = tuple(range(1, x.ndim - 1)) if last else tuple(range(2, x.ndim))
    return _back(_integer(x, scale, zero).mean(axes, True), y_scale, y_zero, x)


@op("QLinearAveragePool", domain="com.microsoft")
def qlinear_average_pool(
    call: Call, x: Tensor, scale: Tensor, zero: Tensor | None, y_scale: Tensor, y_zero: Tensor | None = None
) -> Tensor:
    last, y = call.integer("channels_last", 0), _integer(x, scale, zero)
    y = average_pool(call, y.movedim(-1, 1) if last else y)
    return _back(y.movedim(1, -1) if last else y, y_scale, y_zero, x)


@op("QLinearReduceMean", domain="com.microsoft")
def qlinear_reduce_mean(
    call: Call, x: Tensor, scale: Tensor, zero: Tensor | None, y_scale: Tensor, y_zero: Tensor | None = None
) -> Tensor:
    axes = whole_axes(call, call.integers("axes", range(x.ndim)), x.ndim)
    return _back(_integer(x, scale, zero).mean(tuple(axes), bool(call.integer("keepdims", 1))), y_scale, y_zero, x)


@op("QLinearWhere", domain="com.microsoft")
def qlinear_where(
    call: Call, condition: Tensor, x: Tensor, x_scale: Tensor, x_zero: Tensor, y: Tensor, y_scale: Tensor,
    y_zero: Tensor, z_scale: Tensor, z_zero: Tensor,
) -> Tensor:  # fmt: skip
    chosen = condition.where(_integer(x, x_scale, x_zero), _integer(y, y_scale, y_zero))
    return _back(chosen, z_scale, z_zero, x)


@op("QLinearSoftmax", domain="com.microsoft")
def qlinear_softmax(
    call: Call, x: Tensor, scale: Tensor, zero: Tensor | None, y_scale: Tensor, y_zero: Tensor
) -> Tensor:
    axis = whole_axis(call, call.integer("axis", -1), x.ndim)
    y = _integer(x, scale, zero)
    if call.integer("opset", 13) < 13:  # over all axes from that one on
        lead = [fixed(n) for n in x.shape[:axis]]
        return _back(y.reshape(*lead, -1).softmax(-1).reshape(*x.shape), y_scale, y_zero, x)
    return _back(y.softmax(axis), y_scale, y_zero, x)


@op("QLinearConcat", domain="com.microsoft")
def qlinear_concat(call: Call, scale: Tensor, zero: Tensor, *parts: Tensor) -> Tensor:
    values = [_integer(*parts[i : i + 3]) for i in range(0, len(parts), 3)]
    axis = whole_axis(call, call.integer("axis"), values[0].ndim)
    return _back(Tensor.cat(*values, axis=axis), scale, zero, parts[0])


@op("DynamicQuantizeMatMul", domain="com.microsoft", stored=(1, 3))
def dynamic_quantize_matmul(
    call: Call, a: Tensor, b: Any, scale: Tensor, zero: Any = None, bias: Tensor | None = None
) -> Tensor:
    whole, a_scale, a_zero = dynamic_quantize_linear(call, a)
    y: Tensor = matmul_integer(call, whole, b, a_zero, zero).cast(dtypes.float32) * (a_scale * scale)
    return y if bias is None else y + bias


@op("MatMulIntegerToFloat", domain="com.microsoft", stored=(0, 1, 4, 5))
def matmul_integer_to_float(
    call: Call, a: Any, b: Any, a_scale: Tensor, b_scale: Tensor, a_zero: Any = None, b_zero: Any = None,
    bias: Tensor | None = None,
) -> Tensor:  # fmt: skip
    y: Tensor = matmul_integer(call, a, b, a_zero, b_zero).cast(dtypes.float32) * (a_scale * b_scale)
    return y if bias is None else y + bias

"""Products of matrices."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from tinyweb.dtype import dtypes
from tinyweb.formats.onnx.call import Call
from tinyweb.formats.onnx.operators.common import cast, fixed, wide
from tinyweb.formats.onnx.operators.integer import matrix_product, scaled_product
from tinyweb.formats.onnx.registry import op
from tinyweb.formats.onnx.stored import Scaled
from tinyweb.tensor import Tensor


def times(call: Call, a: Any, b: Any, turned: bool = False) -> Tensor:
    """a · b, or with the last axes of b turned; the second input, which may be a stored matrix. Of a's type."""
    both = isinstance(a, Scaled) and isinstance(b, Scaled)
    integers: Tensor | None = scaled_product(call, a, b, turned) if both else None
    if integers is not None:
        return integers
    a = call.given(a)
    known = b.T if turned and isinstance(b, np.ndarray) and b.ndim == 2 else b
    matrix = call.matrix(1, known, True)
    if matrix is not None:
        m = matrix.transposed if turned and matrix is b else matrix
        return cast(m.times(a), a.dtype)
    b = call.given(b)
    y: Tensor = a.matmul(b.transpose(-1, -2) if turned and b.ndim > 1 else b, dtype=a.dtype)
    return y


@op("MatMul", stored=(0, 1))
def matmul(call: Call, a: Any, b: Any) -> Tensor:
    return times(call, a, b)


@op("Gemm", stored=(0, 1))
def gemm(call: Call, a: Any, b: Any, c: Tensor | None = None) -> Tensor:
    a = call.given(a).transpose(0, 1) if call.integer("transA", 0) else a
    alpha, beta = call.real("alpha", 1.0), call.real("beta", 1.0)
    y = times(call, a, b, bool(call.integer("transB", 0)))
    dtype = y.dtype
    y = y if alpha == 1 else y * alpha
    if c is not None:
        y = y + (c if beta == 1 else c * beta)
    return cast(y, dtype)


@op("Einsum")
def einsum(call: Call, *values: Tensor) -> Tensor:
    equation = re.sub(r"\s", "", call.text("equation"))
    return cast(Tensor.einsum(equation, *values), values[0].dtype)


@op("Inverse", domain="com.microsoft")
def inverse(call: Call, x: Tensor) -> Tensor:
    return cast(wide(x).inverse(), x.dtype)


@op("Det")
def det(call: Call, x: Tensor) -> Tensor:
    return cast(wide(x).det(), x.dtype)


@op("FusedMatMul", "TransposeMatMul", domain="com.microsoft", stored=(1,))
def fused_matmul(call: Call, a: Tensor, b: Any) -> Tensor:
    a = _batch_last(a) if call.integer("transBatchA", 0) else a
    b = _batch_last(call.given(b)) if call.integer("transBatchB", 0) else b
    a = a.transpose(-1, -2) if call.integer("transA", 0) and a.ndim > 1 else a
    return cast(times(call, a, b, bool(call.integer("transB", 0))) * call.real("alpha", 1.0), a.dtype)


def _batch_last(x: Tensor) -> Tensor:
    """The first axis goes to the last but one."""
    return x.permute(*range(1, x.ndim - 1), 0, x.ndim - 1)


def wide_integer(x: Tensor, zero: Any) -> Tensor:
    """8-bit integers less their zero point, as int32."""
    y = x.cast(dtypes.int32)
    return y if zero is None else y - zero


@op("MatMulInteger", stored=(0, 1, 2, 3))
def matmul_integer(call: Call, a: Any, b: Any, zero_a: Any = None, zero_b: Any = None) -> Tensor:
    sums: Tensor | None = matrix_product(call, a, zero_a, 1, b, zero_b)
    if sums is not None:
        return sums
    a, b, zero_a, zero_b = (call.given(v) for v in (a, b, zero_a, zero_b))
    if zero_a is not None:
        zero_a = zero_a.cast(dtypes.int32)
        zero_a = zero_a.reshape(*zero_a.shape, 1) if zero_a.ndim == 1 and fixed(zero_a.shape[0]) > 1 else zero_a
    zero_b = zero_b.cast(dtypes.int32) if zero_b is not None else None
    return wide_integer(a, zero_a).matmul(wide_integer(b, zero_b), dtype=dtypes.int32)

"""Signals: windows, Fourier transforms, mel filters. Complex numbers are pairs along a last axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyweb.array.storage import bound_size
from tinyweb.dtype import DType, dtypes
from tinyweb.formats.onnx.call import Call, Host
from tinyweb.formats.onnx.operators.common import cast, fixed, number, whole_axis, wide
from tinyweb.formats.onnx.operators.movement import steps
from tinyweb.formats.onnx.registry import op
from tinyweb.graph.ir import Size, size_add, size_div, size_max, size_mul, size_sub
from tinyweb.graph.schedule.indexing import same
from tinyweb.tensor import Tensor

LONGEST = 32768  # of a transform whose size varies: products of two places are int32


def _dtype(call: Call) -> DType:
    dtype = call.kind(call.integer("output_datatype", 1)).dtype
    if dtype is None:
        raise call.unsupported("output_datatype")
    return dtype


COSINES = {
    "HannWindow": (0.5, -0.5), "HammingWindow": (25 / 46, -21 / 46), "BlackmanWindow": (0.42, -0.5, 0.08),
}  # fmt: skip


@op("HannWindow", "HammingWindow", "BlackmanWindow", host=(0,), folds=True)
def window(call: Call, size: Host) -> Any:
    n = int(number(size))
    call.afford(n)
    whole = n if call.integer("periodic", 1) else max(n - 1, 1)
    turns = 2 * np.pi * np.arange(n) / whole
    values = np.asarray(sum(c * np.cos(k * turns) for k, c in enumerate(COSINES[call.op])))
    return cast(values.astype(np.float64), _dtype(call))


def _turns(call: Call, n: Size, out: Size, inverse: bool, x: Tensor) -> tuple[Tensor, Tensor]:
    """(cosines, sines), (n, out) each, in the type of `x`."""
    call.afford(size_max(n) * size_max(out), 1)
    dtype = dtypes.float64 if x.dtype is dtypes.float64 else dtypes.float32
    sign = 1.0 if inverse else -1.0
    if isinstance(n, int) and isinstance(out, int):
        angle = 2 * np.pi * ((np.arange(n)[:, None] * np.arange(out)[None, :]) % n) / n
        c, s = (Tensor(m.astype(dtype.numpy), device=x.device) for m in (np.cos(angle), np.sin(angle) * sign))
        return c, s
    if size_max(n) > LONGEST:
        raise call.unsupported(f"a transform of a size that varies up to {size_max(n)}, more than {LONGEST}")
    rows, columns = (call.lift(cast(steps(call, s), dtypes.int32)) for s in (n, out))
    product = rows.unsqueeze(1) * columns
    turn = (product - product.div(n, rounding_mode="floor") * n).cast(dtype) / n * (2 * np.pi)
    return turn.cos(), turn.sin() * sign


def transform(call: Call, x: Tensor, n: Size, inverse: bool, onesided: bool) -> Tensor:
    """(…, length, 1 or 2) → (…, n or n / 2 + 1, 2): by products with matrices of cosines and sines."""
    c, s = _turns(call, n, size_add(size_div(n, 2), 1) if onesided else n, inverse, x)
    x = _fitted(x, n)
    real = x[..., 0]
    a, b = real.matmul(c), real.matmul(s)
    if fixed(x.shape[-1]) == 2:
        imaginary = x[..., 1]
        a, b = a - imaginary.matmul(s), b + imaginary.matmul(c)
    y = Tensor.stack(a, b, axis=-1)
    return y / n if inverse else y


def _fitted(x: Tensor, n: Size) -> Tensor:
    """(…, length, 1 or 2) with n elements along its second last axis, behind the last of them zeros."""
    if same(x.shape[-2], n):
        return x
    missing = fixed(n) - fixed(x.shape[-2])
    return x.pad([(0, 0)] * (x.ndim - 2) + [(0, missing), (0, 0)]) if missing > 0 else x[..., : fixed(n), :]


def _real_inverse(call: Call, x: Tensor, n: Size) -> Tensor:
    """From half a spectrum (…, n / 2 + 1, 2) to real numbers (…, n, 1)."""
    half = size_add(size_div(n, 2), 1)
    c, s = _turns(call, n, n, True, x)
    x, at = _fitted(x, half), call.lift(cast(steps(call, half), dtypes.int32)).unsqueeze(1)
    alone = at.eq(0) | (at * 2).eq(n)  # all others stand for two
    a, b = (m.shrink([(0, bound_size(half, call.bound)), None]) * alone.where(1.0, 2.0) / n for m in (c, s))
    return (x[..., 0].matmul(a) - x[..., 1].matmul(b)).unsqueeze(-1)


@op("DFT", host=(1, 2))
def dft(call: Call, x: Tensor, length: Host | None = None, axis: Host | None = None) -> Tensor:
    at = call.integer("axis", 1) if call.version < 20 else (-2 if axis is None else int(number(axis)))
    at = whole_axis(call, at, x.ndim)
    if at == x.ndim - 1:
        raise call.error("the last axis holds real and imaginary parts")
    inverse, onesided = bool(call.integer("inverse", 0)), bool(call.integer("onesided", 0))
    y = wide(x).movedim(at, -2)
    if inverse and onesided:
        n: Size = size_mul(size_sub(y.shape[-2], 1), 2) if length is None else int(number(length))
        done = _real_inverse(call, y, n)
    else:
        done = transform(call, y, y.shape[-2] if length is None else int(number(length)), inverse, onesided)
    return cast(done.movedim(-2, at), x.dtype)


@op("STFT", host=(1, 3))
def stft(call: Call, x: Tensor, step: Host, weights: Tensor | None = None, length: Host | None = None) -> Tensor:
    every = int(number(step))
    if length is None:
        n = fixed(x.shape[1] if weights is None else weights.shape[0])
    else:
        n = int(number(length))
    if x.ndim == 2:
        x = x.unsqueeze(-1)
    frames = wide(x).permute(0, 2, 1).unfold(2, n, every)  # (N, 1 or 2, frames, n)
    if weights is not None:
        frames = frames * weights
    onesided = bool(call.integer("onesided", 1)) and fixed(x.shape[-1]) == 1
    return cast(transform(call, frames.permute(0, 2, 3, 1), n, False, onesided), x.dtype)


@op("MelWeightMatrix", host=(0, 1, 2, 3, 4), folds=True)
def mel_weight_matrix(call: Call, bins: Host, length: Host, rate: Host, low: Host, high: Host) -> Any:
    count, n = int(number(bins)), int(number(length))
    call.afford((n // 2 + 1) * count)
    call.afford(count)

    def mel(f: float) -> float:
        return float(2595 * np.log10(1 + f / 700))

    places = n // 2 + 1
    edges = np.arange(count + 2) * ((mel(number(high)) - mel(number(low))) / (count + 2)) + mel(number(low))
    at = ((n + 1) * (700 * (10 ** (edges / 2595) - 1)) // number(rate)).astype(np.int64)
    y = np.zeros((places, count))
    for i in range(count):
        begin, middle, end = at[i : i + 3]
        if middle == begin:
            y[middle, i] = 1
        else:
            for j in range(begin, middle + 1):
                y[j, i] = (j - begin) / (middle - begin)
        if end > middle:
            for j in range(middle, end):
                y[j, i] = (end - j) / (end - middle)
    return cast(y, _dtype(call))

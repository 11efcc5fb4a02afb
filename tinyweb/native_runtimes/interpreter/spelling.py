"""What each elementwise op is in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tinyweb.dtype import dtypes, from_bits, to_bits
from tinyweb.graph.ir import Ops, PlanesArg, TableArg, UOp

Array: TypeAlias = npt.NDArray[Any]


def _cast(u: UOp, x: Array) -> Array:
    if u.dtype.held_wider and u.dtype.is_float:
        return from_bits(to_bits(x, u.dtype), u.dtype)
    out: Array = x != 0 if u.dtype is dtypes.bool else x.astype(u.dtype.numpy)
    return out


def _bitcast(u: UOp, x: Array) -> Array:
    out: Array = np.ascontiguousarray(x).view(u.dtype.numpy)
    return out


def _floor_divide(u: UOp, a: Array, b: Array) -> Array:
    if (a < 0).any() or (b <= 0).any():
        raise ArithmeticError(f"{u.op.name}: the numerator must not be negative and the divisor must be positive")
    return a // b if u.op is Ops.FLOORDIV else a % b


def _f16_to_f32(u: UOp, x: Array) -> Array:
    return (x & 0xFFFF).astype(np.uint16).view(np.float16).astype(np.float32)


def _f32_to_f16(u: UOp, x: Array) -> Array:
    return x.astype(np.float16).view(np.uint16).astype(np.uint32)


def _shift(u: UOp, a: Array, b: Array) -> Array:
    outside = not 0 <= b.item() < u.dtype.bits if b.size == 1 else ((b < 0) | (b >= u.dtype.bits)).any()
    if outside:
        raise ArithmeticError(f"{u.op.name}: the amount must be within [0, {u.dtype.bits - 1}]")
    out: Array = a << b.astype(a.dtype) if u.op is Ops.SHL else a >> b.astype(a.dtype)
    return out


def _where(u: UOp, condition: Array, a: Array, b: Array) -> Array:
    return np.where(condition, a, b)


def _joined(how: PlanesArg, planes: Sequence[Array], at: int) -> Array:
    """The at-th integer of each byte, of the planes' words."""
    whole = np.zeros_like(planes[0])
    for i, words in enumerate(planes):
        down = how.shift(i, at)
        moved = words >> np.uint32(down) if down >= 0 else words << np.uint32(-down)
        whole |= moved & np.uint32(how.mask(i) * 0x01010101)
    return np.ascontiguousarray(whole).view(np.uint8).astype(np.int32)


def _dot(u: UOp, a: Array, *others: Array) -> Array:
    *factors, c = others
    out: Array
    if isinstance(u.arg, tuple):
        kind = u.dtype.numpy
        x, y = (m.reshape(*m.shape[:-1], n, -1).astype(kind) for m, n in zip((a, *factors), u.arg))
        sums = (x[..., :, None, :] * y[..., None, :, :]).sum(-1, dtype=kind)
        out = c + sums.reshape(*sums.shape[:-2], -1)
        return out
    if u.src[1].dtype is dtypes.uint32 and u.arg is None:  # four bytes each
        a, b = (np.ascontiguousarray(x)[..., None].view(np.int8).astype(np.int32) for x in (a, *factors))
        out = c + (a * b).sum(-1, dtype=np.int32)
        return out
    weights: list[Array]
    if isinstance(u.arg, PlanesArg):
        planes, factors = [a, *factors[: len(u.arg.bits) - 1]], factors[len(u.arg.bits) - 1 :]
        weights = [_joined(u.arg, planes, at) for at in range(u.arg.in_byte)]
    elif u.src[0].dtype is dtypes.uint32:  # words of integers of 4, 2 or 1 bits, the first in the low bits
        of_bytes = len(factors)  # the first of each byte times the first factor, the next times the next; 1: half words
        bits = 8 // of_bytes if of_bytes > 1 else 4
        starts, step = (range(of_bytes), of_bytes) if of_bytes > 1 else ((u.arg,), 4)
        shifts = [bits * np.arange(start, 32 // bits, step, dtype=np.uint32) for start in starts]
        mask = (1 << bits) - 1
        weights = [(a[..., None] >> s & mask).reshape(*a.shape[:-1], -1).astype(np.int32) for s in shifts]
        if isinstance(u.arg, TableArg):
            weights = [np.array(u.arg.numbers, np.int32)[w] for w in weights]
    else:
        weights = [a.astype(np.int32)]
    first, *more = (w * f.astype(np.int32) for w, f in zip(weights, factors))
    products: Array = sum(more, first)
    steps = products.shape[-1] // c.shape[-1]
    out = c + products.reshape(*products.shape[:-1], -1, steps).sum(-1, dtype=np.int32)
    return out


COMPUTE: dict[Ops, Callable[..., Array]] = {
    Ops.CAST: _cast,
    Ops.BITCAST: _bitcast,
    Ops.NEG: lambda u, x: -x,
    Ops.RECIPROCAL: lambda u, x: np.ones((), x.dtype) / x,
    Ops.SQRT: lambda u, x: np.sqrt(x),
    Ops.EXP2: lambda u, x: np.exp2(x),
    Ops.LOG2: lambda u, x: np.log2(x),
    Ops.SIN: lambda u, x: np.sin(x),
    Ops.FLOOR: lambda u, x: np.floor(x),
    Ops.TRUNC: lambda u, x: np.trunc(x),
    Ops.ROUND: lambda u, x: np.rint(x),
    Ops.ADD: lambda u, a, b: a + b,
    Ops.MUL: lambda u, a, b: a * b,
    Ops.DIV: lambda u, a, b: a / b,
    Ops.FLOORDIV: _floor_divide,
    Ops.MOD: _floor_divide,
    Ops.MAX: lambda u, a, b: np.maximum(a, b),
    Ops.AND: lambda u, a, b: a & b,
    Ops.OR: lambda u, a, b: a | b,
    Ops.XOR: lambda u, a, b: a ^ b,
    Ops.SHL: _shift,
    Ops.SHR: _shift,
    Ops.LESS: lambda u, a, b: a < b,
    Ops.EQUAL: lambda u, a, b: a == b,
    Ops.WHERE: _where,
    Ops.MULADD: lambda u, a, b, c: a * b + c,
    Ops.DOT: _dot,
    Ops.F16_TO_F32: _f16_to_f32,
    Ops.F32_TO_F16: _f32_to_f16,
}

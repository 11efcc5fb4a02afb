"""Floats narrower than 32 bits: their bits, in the low end of a uint32, from and to float32; numbers of tables.

Works on whole tiles, where constants are scalars, and on the vectors of a program: then `width` is their number of
lanes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import Ops, UOp
from tinyweb.graph.lower.constructors import splat

F32, I32, U32 = dtypes.float32, dtypes.int32, dtypes.uint32


def is_narrow(dtype: DType) -> bool:
    """Whether values of the type are computed as float32."""
    return dtype.is_float and dtype.bits < 32


def encode(value: UOp, dtype: DType, width: int = 1) -> UOp:
    """A float32 → the bits of the nearest number of a narrower format, ties to even; a NaN stays one.

    Higher bits than the format has are 0.
    """
    if dtype is dtypes.float16:
        return UOp(Ops.F32_TO_F16, U32, (value,))
    c = _constants(width)
    bits = value.bitcast(U32)
    if dtype is dtypes.bfloat16:
        odd = bits.alu(Ops.SHR, c(16)) & c(1)
        rounded = (bits + c(0x7FFF) + odd).alu(Ops.SHR, c(16))
        quiet = bits.alu(Ops.SHR, c(16)) | c(0x40)
        return c(0x7F800000).alu(Ops.LESS, bits & c(0x7FFFFFFF)).where(quiet, rounded)
    size = bits & c(0x7FFFFFFF)
    drop = 23 - dtype.mantissa
    odd = size.alu(Ops.SHR, c(drop)) & c(1)
    normal = (size + c((1 << (drop - 1)) - 1 - (127 - dtype.bias << 23)) + odd).alu(Ops.SHR, c(drop))
    # the last place of this float is the format's smallest number: adding it rounds to a whole number of those
    anchor = splat(UOp.const(2.0 ** (24 - dtype.bias - dtype.mantissa), F32), width)
    subnormal = (size.bitcast(F32) + anchor).bitcast(U32) + c(-(127 + 24 - dtype.bias - dtype.mantissa << 23))
    out = (size.alu(Ops.LESS, c(128 - dtype.bias << 23))).where(subnormal, normal)
    out = c(dtype.overflow).alu(Ops.LESS, out).where(c(dtype.overflow), out)
    out = c(0x7F800000).alu(Ops.LESS, size).where(c(dtype.quiet_nan), out)
    return out | (bits.alu(Ops.SHR, c(24)) & c(0x80))


def decode(bits: UOp, dtype: DType, width: int = 1) -> UOp:
    """The float32 that the low bits of a uint32 stand for in a narrower format; higher bits may be anything."""
    c = _constants(width)
    if dtype is dtypes.float16:
        return UOp(Ops.F16_TO_F32, F32, (bits,))
    if dtype is dtypes.bfloat16:
        return bits.alu(Ops.SHL, c(16)).bitcast(F32)
    if dtype is dtypes.float8_e5m2:  # the upper half of a float16
        return UOp(Ops.F16_TO_F32, F32, (bits.alu(Ops.SHL, c(8)),))
    # a float16 with the same digits is 2**-8 of it
    size = bits & c(0x7F)
    half = size.alu(Ops.SHL, c(7)) | (bits & c(0x80)).alu(Ops.SHL, c(8))
    value = UOp(Ops.F16_TO_F32, F32, (half,)) * splat(UOp.const(256.0, F32), width)
    nan = splat(UOp.const(float("nan"), F32), width)
    return size.alu(Ops.EQUAL, c(dtype.quiet_nan)).where(nan, value)


def looked_up(index: UOp, numbers: tuple[int, ...], width: int = 1) -> UOp:
    """The number (within a byte, with or without a sign) that an integer stands for in a table, int32.

    Four numbers are a word: one of the words is chosen, and a byte of it brought down.
    """
    c = _constants(width)
    index = index if index.dtype is U32 else index.cast(U32)
    octets = np.array([*numbers, *[0] * (-len(numbers) % 4)]).astype(np.uint8)
    words, bit = [c(int(w)) for w in octets.view("<u4")], 4
    while len(words) > 1:
        low = (index & c(bit)).alu(Ops.EQUAL, c(0))
        words, bit = [low.where(a, b) for a, b in zip(words[::2], words[1::2])], 2 * bit
    # to the top of the word, then down again: with a sign, where there is one
    up = words[0].alu(Ops.SHL, c(24) + (index & c(3)).alu(Ops.SHL, c(3)) * c(0xFFFFFFFF))
    down = splat(UOp.const(24, I32), width)
    return up.bitcast(I32).alu(Ops.SHR, down) if min(numbers) < 0 else up.alu(Ops.SHR, c(24)).bitcast(I32)


def _constants(width: int) -> Callable[[int], UOp]:
    return lambda n: splat(UOp.const(n, U32), width)


def round_odd(x: UOp) -> UOp:
    """A float64 as float32, for rounding once more to a format of at most 22 digits: with an odd last place where it is
    not exact, the second rounding gives what one rounding would (Boldo and Melquiond 2008).
    """
    near = x.cast(F32)
    back = near.cast(dtypes.float64)
    zero = x.lift(0.0)
    bits = near.bitcast(U32)
    size, back_size = (v.alu(Ops.LESS, zero).where(-v, v) for v in (x, back))
    toward_zero = bits + size.alu(Ops.LESS, back_size).cast(U32) * -1
    return back.equal(x).where(bits, toward_zero | 1).bitcast(F32)

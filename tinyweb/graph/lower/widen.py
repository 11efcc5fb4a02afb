"""Types the target cannot compute with become wider ones.

Halves are computed as float32 and rounded only where the graph casts or stores; small integers are int32 or uint32
kept in their range. LOADs and STOREs then name memory of one type and a value of another: the conversion belongs to
the access.
"""

from __future__ import annotations

from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import COMPARISON, ELEMENTWISE, Ops, UOp
from tinyweb.graph.lower.build import round_constant
from tinyweb.graph.lower.memory import bf16_bits, carrier_of
from tinyweb.graph.target import Target

F32, I32, U32 = dtypes.float32, dtypes.int32, dtypes.uint32
_HALVES = (dtypes.float16, dtypes.bfloat16)
_KEEPS_RANGE = frozenset({Ops.AND, Ops.OR, Ops.XOR, Ops.MAX, Ops.WHERE, Ops.SHR, Ops.LESS, Ops.EQUAL})


def computed_as(dtype: DType, target: Target) -> DType:
    """The type that values of `dtype` have in registers; NotImplementedError where there is none."""
    if dtype in target.arithmetic or dtype.kind == "void":
        return dtype
    wider = F32 if dtype in _HALVES else {"int": I32, "uint": U32}.get(dtype.kind)
    if wider is None or wider.bits < dtype.bits or wider not in target.arithmetic:
        raise NotImplementedError(f"{dtype.name} is not supported on {target.name}: cast to a 32-bit type")
    return wider


def widen(kernel: UOp, target: Target) -> UOp:
    """The kernel with values only of types in `target.arithmetic`; memory keeps its types."""
    done: dict[UOp, UOp] = {}
    for u in kernel.toposort():
        src = tuple(done[s] for s in u.src)
        if (
            u.op is Ops.STORE
            and u.src[0].dtype in _HALVES
            and u.src[2].op is Ops.CAST
            and u.src[2].dtype is u.src[0].dtype
        ):
            # the store rounds: doing it before as well changes nothing
            src = (*src[:2], done[u.src[2].src[0]].cast(computed_as(u.src[0].dtype, target)), *src[3:])
        done[u] = _widen(u, src, target)
    return done[kernel]


def _widen(u: UOp, src: tuple[UOp, ...], target: Target) -> UOp:
    if u.op is Ops.PARAM:
        computed_as(u.dtype, target)
        carrier_of(u.dtype, target)
        return u
    dtype = computed_as(u.dtype, target)
    if u.op is Ops.STORE:
        return u if src == u.src else u.replace(src=src)
    if u.op is Ops.CAST:
        return _cast(u, src[0], target)
    if u.op is Ops.BITCAST:
        return _bitcast(u, src[0], target)
    if dtype is u.dtype:
        return u if src == u.src else u.replace(src=src)
    if u.op is Ops.CONST:
        return UOp.const(round_constant(u.arg, u.dtype) if u.dtype in _HALVES else u.arg, dtype)
    out = u.replace(dtype=dtype, src=src)
    if (
        u.dtype.is_int
        and u.op in ELEMENTWISE | {Ops.REDUCE}
        and u.op not in _KEEPS_RANGE | COMPARISON
        and u.arg is not Ops.MAX
    ):
        return in_range(out, u.dtype)
    return out


def in_range(value: UOp, dtype: DType) -> UOp:
    """An int32 or uint32 wrapped around to the range of a narrower integer type."""
    if dtype.min <= value.vmin and value.vmax <= dtype.max:
        return value
    if dtype.kind == "uint":
        return value & UOp.const((1 << dtype.bits) - 1, value.dtype)
    up = value.alu(Ops.SHL, 32 - dtype.bits)
    return up.alu(Ops.SHR, 32 - dtype.bits)


def _cast(u: UOp, x: UOp, target: Target) -> UOp:
    source, dtype = u.src[0].dtype, computed_as(u.dtype, target)
    if x.op is Ops.LOAD and source.bits < 8 and dtype is F32 and target.language == "c" and target.vector_lanes <= 4:
        return x.replace(dtype=F32)  # unpacked straight to floats: see Memory
    value = x.cast(dtype)
    if dtype is u.dtype:
        return value
    if u.dtype in _HALVES:
        exact = source is u.dtype or source.kind == "bool" or (source.is_int and source.bits <= 8)
        return value if exact else _round(value, u.dtype, target)
    if source.is_float and u.dtype.kind == "uint":
        value = x.cast(I32).cast(U32)  # a negative number wraps around, as it would in a wider type
    return in_range(value, u.dtype)


def _round(value: UOp, dtype: DType, target: Target) -> UOp:
    """A float32 rounded to a narrower format."""
    if dtype is dtypes.bfloat16:
        return bf16_bits(value).alu(Ops.SHL, 16).bitcast(F32)
    if dtype in target.storage:
        return value.cast(dtype).cast(F32)
    return UOp(Ops.F16_TO_F32, F32, (UOp(Ops.F32_TO_F16, U32, (value,)),))


def _bitcast(u: UOp, x: UOp, target: Target) -> UOp:
    source, dtype = u.src[0].dtype, computed_as(u.dtype, target)
    if source is x.dtype and dtype is u.dtype:
        return u if x is u.src[0] else u.replace(src=(x,))
    # through the bits of the narrow type in a uint32
    if source is dtypes.float16:
        bits = UOp(Ops.F32_TO_F16, U32, (x.cast(F32),))
    elif source is dtypes.bfloat16:
        bits = x.bitcast(U32).alu(Ops.SHR, 16)
    else:
        bits = x.cast(U32) & UOp.const((1 << source.bits) - 1, U32)
    if u.dtype is dtypes.float16:
        return UOp(Ops.F16_TO_F32, F32, (bits,)).cast(dtype)
    if u.dtype is dtypes.bfloat16:
        return bits.alu(Ops.SHL, 16).bitcast(F32)
    if u.dtype.kind == "uint":
        return bits.cast(dtype)
    up = bits.alu(Ops.SHL, 32 - u.dtype.bits).bitcast(I32)
    return up.alu(Ops.SHR, 32 - u.dtype.bits).cast(dtype)

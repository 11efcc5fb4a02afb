"""Types the target cannot compute with become wider ones, and what its instructions leave open is decided.

Narrow floats are computed as float32 and rounded only where the graph casts or stores, in their own type only where
that gives the same number (`_narrowed`); small integers are int32 or uint32 kept in their range. LOADs and STOREs then
name memory of one type and a value of another: the conversion belongs to the access. 64-bit integers stay what they
are: `int64.py` makes pairs of them once the program is written out.

Casts of floats to integers hold the value within the type's range and make 0 of NaN; shifts by less than 0 or by the
type's width and more shift everything out. The CASTs and shifts that are left after this pass are plain ones.
"""

from __future__ import annotations

import math

from tinyweb.dtype import DType, dtypes, round_to
from tinyweb.graph.ir import COMPARISON, ELEMENTWISE, Ops, Space, UOp
from tinyweb.graph.lower.formats import decode, encode, is_narrow, round_odd
from tinyweb.graph.lower.memory_access import carrier_of
from tinyweb.graph.optimize.instructions import DOT4_WORDS
from tinyweb.graph.target import Target

F32, F64, I32, U32 = dtypes.float32, dtypes.float64, dtypes.int32, dtypes.uint32
_KEEPS_RANGE = frozenset({Ops.AND, Ops.OR, Ops.XOR, Ops.MAX, Ops.WHERE, Ops.SHR})
# what is done with 64-bit floats where there are none: they are moved, and cast from and to float32
_ON_PAIRS = frozenset({
    Ops.PARAM, Ops.LOAD, Ops.STORE, Ops.STAGE, Ops.CONST, Ops.WHERE, Ops.BITCAST, Ops.CAST,
})  # fmt: skip


def computed_as(dtype: DType, target: Target) -> DType:
    """The type that values of `dtype` have in registers; NotImplementedError where there is none."""
    if (dtype in target.arithmetic and not is_narrow(dtype)) or dtype.kind == "void" or dtype.bits == 64:
        return dtype
    wider = F32 if is_narrow(dtype) else {"int": I32, "uint": U32}.get(dtype.kind)
    if wider is None or wider.bits < dtype.bits or wider not in target.arithmetic:
        raise NotImplementedError(f"{dtype.name} is not supported on {target.name}: cast to a 32-bit type")
    return wider


def legalize(kernel: UOp, target: Target) -> UOp:
    """The kernel with values only of types in `target.arithmetic` and 64-bit ones; memory keeps its types.

    NotImplementedError naming an operation on float64 where the target has none.
    """
    done: dict[UOp, UOp] = {}
    for u in kernel.toposort():
        if F64 not in target.arithmetic:
            _refuse_doubles(u, target)
        src = tuple(done[s] for s in u.src)
        if u.op is Ops.STORE and is_narrow(u.src[0].dtype) and _rounds(u.src[2]):
            # the store rounds: doing it before as well changes nothing
            src = (*src[:2], done[u.src[2].src[0]].cast(computed_as(u.src[0].dtype, target)), *src[3:])
        done[u] = _widen(u, src, target)
    return done[kernel]


def _refuse_doubles(u: UOp, target: Target) -> None:
    types = {u.dtype, *(s.dtype for s in u.src)}
    if F64 not in types:
        return
    fine = u.op in _ON_PAIRS and (u.op is not Ops.CAST or types <= {F64, F32})
    if not fine:
        what = f"a cast of {u.src[0].dtype.name} to {u.dtype.name}" if u.op is Ops.CAST else f"{u.op.name} of float64"
        raise NotImplementedError(
            f"{what} is not supported on {target.name}, which has no 64-bit floats: use .cast(dtypes.float32) before it"
        )


def _rounds(u: UOp) -> bool:
    """Whether a value is a float just rounded to its narrow type."""
    return u.op is Ops.CAST and u.src[0].dtype.is_float and u.src[0].dtype is not F64


def _widen(u: UOp, src: tuple[UOp, ...], target: Target) -> UOp:
    if u.op is Ops.PARAM:
        computed_as(u.dtype, target)
        carrier_of(u.dtype, target)
        return u
    dtype = computed_as(u.dtype, target)
    if u.op is Ops.STORE:
        value = _narrowed(src[2], u.src[0].dtype, target, rounded=True)
        return u.with_sources(src if value is None else (*src[:2], value, *src[3:]))
    if u.op is Ops.STAGE and _is_moved(u, src[0], target):
        return u.with_sources((src[0].replace(dtype=u.dtype), *src[1:]))
    if u.op is Ops.STAGE and (value := _moved_bits(u, src[0], target)) is not None:
        return u.with_sources((value, *src[1:]))
    if u.op is Ops.STAGE and (value := _narrowed(src[0], u.dtype, target)) is not None:
        return u.with_sources((value, *src[1:]))
    if u.op is Ops.CAST:
        return _cast(u, src[0], target)
    if u.op is Ops.DOT and DOT4_WORDS.name not in target.instructions:
        octets = ([w.alu(Ops.SHL, up).bitcast(I32).alu(Ops.SHR, 24) for w in src[:2]] for up in (24, 16, 8, 0))
        return sum((a * b for a, b in octets), src[2])
    if u.op is Ops.BITCAST:
        return _bitcast(u, src[0], target)
    if u.op is Ops.WHERE and (size := _size_of(src)) is not None:
        return size
    if u.op in (Ops.SHL, Ops.SHR):
        out = _shift(u.op, src[0], src[1], u.dtype)
        return in_range(out, u.dtype) if u.op is Ops.SHL and dtype is not u.dtype else out
    if u.op in COMPARISON and target.has_threads and (indices := _as_indices(src)):
        return u.replace(src=indices)
    if dtype is u.dtype:
        return u.with_sources(src)
    if u.op is Ops.CONST:
        return UOp.const(round_to(u.arg, u.dtype) if is_narrow(u.dtype) else u.arg, dtype)
    out = u.replace(dtype=dtype, src=src)
    if u.dtype.is_int and u.op in ELEMENTWISE | {Ops.REDUCE} and u.op not in _KEEPS_RANGE and u.arg is not Ops.MAX:
        return in_range(out, u.dtype)
    return out


def _is_moved(u: UOp, value: UOp, target: Target) -> bool:
    """Whether a STAGE of a workgroup has integers as they lie in other memory."""
    narrow = u.arg.space is Space.SHARED and u.dtype.is_int and u.dtype.bits < 32
    return narrow and u.dtype in target.storage and value.op is Ops.LOAD and value.src[0].dtype is u.dtype


def _moved_bits(u: UOp, value: UOp, target: Target) -> UOp | None:
    """A load of floats that a workgroup's STAGE has as they lie in other memory, where that has bytes for them."""
    bits = u.arg.space is Space.SHARED and is_narrow(u.dtype) and carrier_of(u.dtype, target).bits == u.dtype.bits
    same = bits and value.op is Ops.LOAD and value.src[0].dtype is u.dtype
    return value.replace(dtype=u.dtype) if same else None


def _size_of(src: tuple[UOp, ...]) -> UOp | None:
    """|x| by its bits, where that is chosen among -x, x and 0."""
    condition, zero, other = src
    if other.op is not Ops.WHERE or zero.op is not Ops.CONST or zero.arg != 0 or zero.dtype is not F32:
        return None
    negative, minus, x = other.src
    if condition is not x.equal(zero) or negative is not x.alu(Ops.LESS, zero) or minus is not x.alu(Ops.NEG):
        return None
    return (x.bitcast(U32) & 0x7FFFFFFF).bitcast(F32)


def _as_indices(src: tuple[UOp, ...]) -> tuple[UOp, ...]:
    """The indices that are compared as integers of 32 bits, and constants as such; () where there is something else."""
    casts = [s.op is Ops.CAST and s.src[0].dtype is dtypes.index and s.dtype in (I32, U32) for s in src]
    if not any(casts) or not all(c or s.op is Ops.CONST for c, s in zip(casts, src)):
        return ()
    found = tuple(s.src[0] if c else UOp.const(s.arg, dtypes.index) for c, s in zip(casts, src))
    return found if all(s.vmin >= 0 and s.vmax <= I32.max for s in found) else ()


def in_range(value: UOp, dtype: DType) -> UOp:
    """An int32 or uint32 wrapped around to the range of a narrower integer type."""
    if dtype.min <= value.vmin and value.vmax <= dtype.max:
        return value
    if dtype.kind == "uint":
        return value & UOp.const((1 << dtype.bits) - 1, value.dtype)
    up = value.alu(Ops.SHL, 32 - dtype.bits)
    return up.alu(Ops.SHR, 32 - dtype.bits)


def _shift(op: Ops, value: UOp, amount: UOp, dtype: DType) -> UOp:
    """A shift of values of `dtype` by any amount."""
    if amount.vmin >= 0 and amount.vmax < dtype.bits:
        return value.alu(op, amount)
    last = UOp.const(dtype.bits - 1, amount.dtype)
    inside = amount.alu(Ops.LESS, UOp.const(dtype.bits, amount.dtype))
    if amount.dtype.is_signed:
        inside = inside & amount.alu(Ops.LESS, UOp.const(0, amount.dtype)).logical_not()
    if op is Ops.SHR and dtype.is_signed:
        return value.alu(op, inside.where(amount, last) & last)
    return inside.where(value.alu(op, amount & last), UOp.const(0, value.dtype))


# -- casts -------------------------------------------------------------------------------------------------------------
def _cast(u: UOp, x: UOp, target: Target) -> UOp:
    source, dtype = u.src[0].dtype, computed_as(u.dtype, target)
    if x.op is Ops.LOAD and source.bits < 8 and dtype is F32 and not target.lane_shifts:
        return x.replace(dtype=F32)  # unpacked straight to floats: see Memory
    if source.is_float and u.dtype.is_int:
        return _float_to_int(x, u.dtype, dtype, target)
    if source.is_float and u.dtype.kind == "bool" and not target.ieee:
        # on the bits: compilers may take a NaN for any number, and a subnormal number for zero
        return (x.bitcast(U32) & 0x7FFFFFFF).equal(0).logical_not()
    if is_narrow(u.dtype):
        exact = source is u.dtype or source.kind == "bool" or (source.is_int and source.bits <= u.dtype.mantissa + 1)
        value = round_odd(x) if x.dtype is F64 else x.cast(F32)
        return value if exact else _round(value, u.dtype, target)
    value = x.cast(dtype)
    return value if dtype is u.dtype else in_range(value, u.dtype)


def _float_to_int(x: UOp, to: DType, computed: DType, target: Target) -> UOp:
    """Truncated and held within the range of `to`; 0 for NaN. The bounds of narrow integers are chosen as floats, in
    lanes as wide as those of what is compared.
    """
    low, limit = float(to.min), float(int(to.max) + 1)  # powers of two: exact
    least, most = _held(x)
    chosen = x.dtype if to.bits < 24 else computed
    value = x.cast(chosen)
    if low <= least and most < limit and target.has_threads:
        return is_nan(x, target).where(UOp.const(0, computed), x.cast(computed))
    outside = is_nan(x, target).where(UOp.const(0, chosen), UOp.const(to.max, chosen))
    value = x.alu(Ops.LESS, x.lift(limit)).where(value, outside)
    return x.alu(Ops.LESS, x.lift(low)).where(UOp.const(to.min, chosen), value).cast(computed)


def _held(x: UOp) -> tuple[float, float]:
    """The bounds that a float is held within, if it is no NaN: maxima and minima of it and constants."""
    least, most = -math.inf, math.inf
    while x.op is Ops.WHERE and x.src[0].op is Ops.LESS and set(x.src[0].src) == set(x.src[1:]):
        (a, b), chosen = x.src[0].src, x.src[1]
        bound, x = (a, b) if a.op is Ops.CONST else (b, a)
        if bound.op is not Ops.CONST:
            break
        if chosen is b:  # where a < b: the larger of the two
            least = max(least, min(bound.arg, most))
        else:
            most = min(most, max(bound.arg, least))
    return least, most


def is_nan(x: UOp, target: Target) -> UOp:
    """Whether a float is a NaN: on its bits where compilers may assume that there are none."""
    if not target.ieee:
        return UOp.const(0x7F800000, U32).alu(Ops.LESS, x.bitcast(U32) & 0x7FFFFFFF)
    return x.equal(x).logical_not()


def _round(value: UOp, dtype: DType, target: Target) -> UOp:
    """A float32 rounded to a narrower format."""
    if (narrow := _narrowed(value, dtype, target, rounded=True)) is not None:
        return narrow.cast(F32)
    if dtype in target.storage:
        return value.cast(dtype).cast(F32)
    return decode(encode(value, dtype), dtype)


def _narrowed(value: UOp, dtype: DType, target: Target, rounded: bool = False) -> UOp | None:
    """A float32 as a value of a narrow type that the target computes with, or of one that it only moves in shared
    memory, where that is the same number; `rounded`: the same as the float32 rounded. A sum and a product of half
    floats are: float32 has more than twice their digits, so rounding twice is rounding once (Figueroa 1995). A third
    operand would need more.
    """
    moved = target.has_threads and dtype in target.storage
    if not is_narrow(dtype) or not value.dtype.is_float or not (moved or dtype in target.arithmetic):
        return None
    if value.op is Ops.LOAD and value.src[0].dtype is dtype:
        return value.replace(dtype=dtype)
    if value.op is Ops.CAST and value.src[0].dtype is dtype:
        return value.src[0]
    if dtype not in target.arithmetic:
        return None
    if value.op is Ops.CONST:
        same = value.arg != value.arg or round_to(value.arg, dtype) == value.arg
        return UOp.const(value.arg, dtype) if same else None
    sign = value.op is Ops.MUL and value.src[1].op is Ops.CONST and abs(value.src[1].arg) == 1
    if value.op not in (Ops.WHERE, Ops.MAX) and not (value.op in (Ops.ADD, Ops.MUL) and (rounded or sign)):
        return None
    condition = value.src[:1] if value.op is Ops.WHERE else ()
    parts = [_narrowed(s, dtype, target) for s in value.src[len(condition) :]]
    known = tuple(p for p in parts if p is not None)
    return value.replace(dtype=dtype, src=(*condition, *known)) if len(known) == len(parts) else None


def _bitcast(u: UOp, x: UOp, target: Target) -> UOp:
    source, dtype = u.src[0].dtype, computed_as(u.dtype, target)
    if source is x.dtype and dtype is u.dtype and dtypes.bool not in (source, dtype):
        return u if x is u.src[0] else u.replace(src=(x,))
    # through the bits of the narrow type in a uint32
    if is_narrow(source):
        # what was loaded has its bits in memory
        loaded = x.op is Ops.LOAD and x.src[0].op is Ops.PARAM
        bits = x.replace(dtype=U32) if loaded else encode(x, source)
    else:
        bits = x.cast(U32) & UOp.const((1 << source.bits) - 1, U32)
    if is_narrow(u.dtype):
        return decode(bits, u.dtype)
    if u.dtype.kind == "bool":
        return bits.equal(0).logical_not()
    if u.dtype.kind == "uint":
        return bits.cast(dtype)
    up = bits.alu(Ops.SHL, 32 - u.dtype.bits).bitcast(I32)
    return up.alu(Ops.SHR, 32 - u.dtype.bits).cast(dtype)

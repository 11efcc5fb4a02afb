"""How operations are emitted for threads of a GPU, where that differs from C (`c_ops.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from typing import cast as typed

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import Fragments, Neighbours, Ops, UOp
from tinyweb.render_c import gpu_helpers, matrix_texts
from tinyweb.render_c.c_ops import EMITTERS, Emitter, cast, is_number, on_bools, stack
from tinyweb.render_c.c_types import scalar_name, vector_name
from tinyweb.render_common import bare, lanes

if TYPE_CHECKING:
    from tinyweb.render_c.gpu_kernel import GpuKernel
    from tinyweb.render_c.kernel_text import KernelText


def _maximum(k: KernelText, u: UOp) -> str:
    if u.dtype is dtypes.bool:
        return on_bools(Ops.MAX)(k, u)
    a, b = u.src
    if u.dtype.is_float and is_number(b):
        a, b = b, a
    # with a number as the first one, the second is what is taken if they are not ordered
    kind = "maximum" if u.dtype.is_float and not is_number(a) else "at_least"
    scalar, n = scalar_name(u.dtype), lanes(u)
    name = f"{kind}_{vector_name(scalar, n)}"
    mask = k.vector(f"i{u.dtype.bits}", n) if n > 1 else "b8"
    if n > 1 and kind == "maximum" and scalar == "f32" and k.dialect.largest:
        k.need("maximum_f32", gpu_helpers.maximum(k.dialect, "maximum_f32", scalar, 1), set())
    k.need(name, gpu_helpers.maximum(k.dialect, name, vector_name(scalar, n), n), {vector_name(scalar, n), mask})
    return f"{name}({bare(k.x(a))}, {bare(k.x(b))})"


def _muladd(k: KernelText, u: UOp) -> str:
    """One rounding where that costs no more: what is not fused is not meant to be."""
    if not u.dtype.is_float:
        return EMITTERS[Ops.MULADD](k, u)
    a, b, c = (bare(k.x(s)) for s in u.src)
    return f"{k.dialect.fused}({a}, {b}, {c})"


def _or(k: KernelText, u: UOp) -> str:
    """Bits of a word and others, in one operation where that is written."""
    masked, others = u.src
    if not k.dialect.and_or or u.dtype is not dtypes.uint32 or masked.op is not Ops.AND:
        return EMITTERS[Ops.OR](k, u)
    k.need("and_or", k.dialect.and_or, set())
    return f"and_or({', '.join(bare(k.x(s)) for s in (*masked.src, others))})"


def _f16_to_f32(k: KernelText, u: UOp) -> str:
    return _half(k, "f16_to_f32", u, "u32", "f32")


def _f32_to_f16(k: KernelText, u: UOp) -> str:
    return _half(k, "f32_to_f16", u, "f32", "u32")


def _half(k: KernelText, function: str, u: UOp, source: str, to: str) -> str:
    n = lanes(u)
    for i in () if k.dialect.half_vectors or n == 1 else (1,):  # vectors ask for single lanes
        k.need(f"{function}_x{i}", gpu_helpers.half(k.dialect, function, i), {"u16"})
    name = f"{function}_x{n}"
    k.need(name, gpu_helpers.half(k.dialect, function, n), {vector_name(t, n) for t in (source, to, "u16")})
    return f"{name}({bare(k.x(u.src[0]))})"


def _dot(k: KernelText, u: UOp) -> str:
    """Four products of the bytes of each word, added to c."""
    if isinstance(u.arg, Fragments):
        k.need(u.arg.name, *matrix_texts.multiply(u, k.dialect))
        return f"{u.arg.name}({', '.join(bare(k.x(s)) for s in u.src)})"
    if u.arg is not None or u.src[0].dtype is not dtypes.uint32 or len(u.src) != 3:
        raise k.error(f"{k.dialect.name} has no text for DOT of {u.src[0].dtype.name} with {u.arg!r}")
    k.need("dot4", f"{k.dialect.function} i32 dot4(u32 a, u32 b, i32 c) {{ {k.dialect.dot4} }}\n", set())
    values, n = [k.x(s) for s in u.src], lanes(u)
    parts = [f"dot4({', '.join(bare(v) if n == 1 else k.lane(v, i) for v in values)})" for i in range(n)]
    return parts[0] if n == 1 else k.make(k.type(u), parts)


def _each_lane(k: KernelText, function: str, u: UOp) -> str:
    """A function of scalars, of each lane."""
    value, n = k.x(u.src[0]), lanes(u)
    parts = [f"{function}({bare(value) if n == 1 else k.lane(value, i)})" for i in range(n)]
    return parts[0] if n == 1 else k.make(k.type(u), parts)


def _subgroup(k: KernelText, u: UOp) -> str:
    threads = typed("GpuKernel", k).threads
    if isinstance(u.arg, Neighbours):
        return _neighbours(k, u, u.arg)
    scalar, op = scalar_name(u.dtype), "add" if u.arg is Ops.ADD else "max"
    name = f"subgroup_{op}_{scalar}"
    k.need(name, gpu_helpers.subgroup(k.dialect, name, op, scalar, threads), set())
    return _each_lane(k, name, u)


def _neighbours(k: KernelText, u: UOp, among: Neighbours) -> str:
    """Round by round with the thread whose number differs in one digit: all have the same sum in the end."""
    scalar = scalar_name(u.dtype)
    name = f"{'sum' if among.op is Ops.ADD else 'largest'}_of_{among.count}_{scalar}"
    combined = "x + y" if among.op is Ops.ADD else "(x > y) | (x != x) ? x : y"
    k.need(name, gpu_helpers.neighbours(k.dialect, name, scalar, combined, among.count), set())
    return _each_lane(k, name, u)


def _exp2(k: KernelText, u: UOp) -> str:
    """The hardware's own 2ˣ, whose result is 0 where it would be subnormal."""
    k.need("exp2_of", f"{k.dialect.function} f32 exp2_of(f32 x) {{ {k.dialect.exp2} }}\n", set())
    return _each_lane(k, "exp2_of", u)


GPU_EMITTERS: Mapping[Ops, Emitter] = {
    **EMITTERS, Ops.MAX: _maximum, Ops.MULADD: _muladd, Ops.F16_TO_F32: _f16_to_f32, Ops.F32_TO_F16: _f32_to_f16,
    Ops.OR: _or, Ops.DOT: _dot, Ops.SUBGROUP: _subgroup, Ops.CAST: cast, Ops.STACK: stack, Ops.EXP2: _exp2,
}  # fmt: skip

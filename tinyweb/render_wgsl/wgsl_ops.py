"""How each operation is emitted in WGSL: one table, from op to a function of the kernel being written and the node."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import Ops, UOp
from tinyweb.render_common import bare, is_splat, lanes
from tinyweb.render_wgsl import wgsl_helpers
from tinyweb.render_wgsl.wgsl_types import type_name

if TYPE_CHECKING:
    from tinyweb.render_wgsl.wgsl_kernel import Kernel

Emitter: TypeAlias = "Callable[[Kernel, UOp], str]"


def constant_of(u: UOp) -> bool | int | float | None:
    """The value of a constant, or of one repeated in all lanes."""
    if is_splat(u):
        u = u.src[0]
    return u.arg if u.op is Ops.CONST else None


def _operator(symbol: str) -> Emitter:
    def emit(k: Kernel, u: UOp) -> str:
        if u.dtype is dtypes.bool:
            return _ON_BOOL[u.op](k, u)
        return f"({k.x(u.src[0])} {symbol} {k.x(u.src[1])})"

    return emit


def _logic(symbol: str) -> Emitter:
    return lambda k, u: f"({k.x(u.src[0])} {symbol} {k.x(u.src[1])})"


def _add(k: Kernel, u: UOp) -> str:
    """A sum, or a difference where one side is negated and has no name."""
    if u.dtype is dtypes.bool:
        return _ON_BOOL[Ops.ADD](k, u)
    a, b = u.src
    for x, y in ((a, b), (b, a)):
        if (less := _negated(k, y)) is not None:
            return f"({k.x(x)} - {less})"
    return f"({k.x(a)} + {k.x(b)})"


def _negated(k: Kernel, u: UOp) -> str | None:
    """The text of what `u` negates, if it is emitted where it is used."""
    text = k.x(u)
    if u.op is Ops.NEG and text.startswith("(-"):
        return text[2:-1]
    ending = f" * {k.x(u.src[1])})" if u.op is Ops.MUL and u.dtype.is_int and constant_of(u.src[1]) == -1 else "?"
    return text[1 : -len(ending)] if text.endswith(ending) else None


_ON_BOOL: dict[Ops, Emitter] = {Ops.ADD: _logic("|"), Ops.MAX: _logic("|"), Ops.MUL: _logic("&")}


def _xor(k: Kernel, u: UOp) -> str:
    a, b = u.src
    if u.dtype is not dtypes.bool:
        return f"({k.x(a)} ^ {k.x(b)})"
    if constant_of(b) is True:
        return f"(!{k.x(a)})"
    return f"({k.x(a)} != {k.x(b)})"


def _divide(symbol: str) -> Emitter:
    """Integer division of a numerator that is proven non-negative: unsigned division, the cheaper one, is right."""

    def emit(k: Kernel, u: UOp) -> str:
        a, b = u.src
        divisor = constant_of(b)
        n = lanes(u)
        if isinstance(divisor, int) and divisor > 0 and divisor & (divisor - 1) == 0:
            if symbol == "/":
                return f"({k.x(a)} >> {k.splat(divisor.bit_length() - 1, dtypes.uint32, n)})"
            return f"({k.x(a)} & {k.splat(divisor - 1, u.dtype, n)})"
        if u.dtype is dtypes.uint32:
            return f"({k.x(a)} {symbol} {k.x(b)})"
        unsigned = type_name("u32", n)
        under = f"{unsigned}({k.x(b)})"
        if isinstance(divisor, int):
            under = k.splat(divisor, dtypes.uint32, n)
        return f"{k.type(u)}({unsigned}({k.x(a)}) {symbol} {under})"

    return emit


def _signed_bytes(u: UOp) -> UOp | None:
    """The word of which a vector takes the four bytes, with their signs: up to the top each, and down again."""
    up = u.src[0].src[0] if u.op is Ops.SHR and u.src[0].op is Ops.BITCAST else u
    if up.op is not Ops.SHL or constant_of(u.src[1]) != 24 or not is_splat(up.src[0]) or up.src[1].op is not Ops.STACK:
        return None
    return up.src[0].src[0] if [constant_of(s) for s in up.src[1].src] == [24, 16, 8, 0] else None


def _and(k: Kernel, u: UOp) -> str:
    """A conjunction, or the four bytes of a word."""
    value, mask = u.src
    if value.op is Ops.SHR and constant_of(mask) == 255 and all(s.op is Ops.STACK for s in value.src):
        words, amounts = (s.src for s in value.src)
        if is_splat(value.src[0]) and [constant_of(s) for s in amounts] == [0, 8, 16, 24]:
            return f"unpack4xU8({bare(k.x(words[0]))})"
    return f"({k.x(value)} & {k.x(mask)})"


def _shift(symbol: str) -> Emitter:
    def emit(k: Kernel, u: UOp) -> str:
        value, amount = u.src
        n = lanes(u)
        if (word := _signed_bytes(u)) is not None:
            return f"unpack4xI8({bare(k.x(word))})"
        constant = constant_of(amount)
        if isinstance(constant, int) and 0 <= constant < 32:
            by = k.splat(constant, dtypes.uint32, n)
        else:
            by = k.x(amount) if amount.dtype is dtypes.uint32 else f"{type_name('u32', n)}({k.x(amount)})"
        return f"({k.x(value)} {symbol} {by})"

    return emit


def _maximum(k: Kernel, u: UOp) -> str:
    a, b = u.src
    if u.dtype is dtypes.bool:
        return _ON_BOOL[Ops.MAX](k, u)
    if not u.dtype.is_float:
        return f"max({k.x(a)}, {k.x(b)})"
    for number, other in ((a, b), (b, a)):
        value = constant_of(number)
        if value is not None and value == value:
            # with a number on one side, one comparison lets a NaN on the other through
            x, c = k.x(k.named(other)), k.x(number)
            return f"select({x}, {c}, {c} > {x})"
    name, wide = f"maximum_x{lanes(u)}", type_name("f32", lanes(u))
    k.need(name, wgsl_helpers.instantiate(wgsl_helpers.MAXIMUM, lanes(u)))
    if u.dtype is dtypes.float16:  # the conversion back is exact
        return f"{k.type(u)}({name}({wide}({bare(k.x(a))}), {wide}({bare(k.x(b))})))"
    return f"{name}({k.x(a)}, {k.x(b)})"


def _f16_to_f32(k: Kernel, u: UOp) -> str:
    n, bits = lanes(u), u.src[0]
    words = _both_halves(bits)
    if words is not None:
        parts = [f"unpack2x16float({k.x(w)})" for w in words]
        return parts[0] if len(parts) == 1 else f"vec4<f32>({', '.join(parts)})"
    if n == 1:
        return f"unpack2x16float({k.x(bits)}).x"
    name = f"f16_to_f32_x{n}"
    k.need(name, wgsl_helpers.instantiate(wgsl_helpers.F16_TO_F32, n))
    return f"{name}({k.x(bits)})"


def _both_halves(bits: UOp) -> list[UOp] | None:
    """The words of which a vector takes the low and the high half each, as unpacking neighbours does."""
    if bits.op is not Ops.SHR or any(s.op is not Ops.STACK for s in bits.src):
        return None
    words, amounts = bits.src[0].src, [constant_of(s) for s in bits.src[1].src]
    if len(words) not in (2, 4) or amounts != [0, 16] * (len(words) // 2):
        return None
    pairs = list(zip(words[::2], words[1::2]))
    return [a for a, _ in pairs] if all(a is b for a, b in pairs) else None


def _f32_to_f16(k: Kernel, u: UOp) -> str:
    name = f"f32_to_f16_x{lanes(u)}"
    k.need(name, wgsl_helpers.instantiate(wgsl_helpers.F32_TO_F16, lanes(u)))
    return f"{name}({bare(k.x(u.src[0]))})"


def _less(k: Kernel, u: UOp) -> str:
    a, b = (k.x(s) for s in u.src)
    return f"(!{a} & {b})" if u.src[0].dtype is dtypes.bool else f"({a} < {b})"


def _or(k: Kernel, u: UOp) -> str:
    """A disjunction; of `less` and `equal` of the same values one comparison."""
    for less, equal in (u.src, u.src[::-1]):
        if less.op is Ops.LESS and equal.op is Ops.EQUAL and set(less.src) == set(equal.src):
            return f"({k.x(less.src[0])} <= {k.x(less.src[1])})"
    if (vector := _packed(u)) is not None:
        return f"pack4xU8({bare(k.x(vector))})"
    return f"({k.x(u.src[0])} | {k.x(u.src[1])})"


def _packed(u: UOp) -> UOp | None:
    """The vector whose lanes a word has in its four bytes."""
    parts, vector = [u], u
    while parts[0].op is Ops.OR:
        parts[:1] = parts[0].src
    for i, x in enumerate(parts):
        if i:
            if x.op is not Ops.SHL or constant_of(x.src[1]) != 8 * i:
                return None
            x = x.src[0]
        if i < 3 and x.op is Ops.AND and constant_of(x.src[1]) == 255:
            x = x.src[0]
        elif i < 3:
            return None
        if x.op is not Ops.LANE or x.arg != i or (i and x.src[0] is not vector) or lanes(x.src[0]) != 4:
            return None
        vector = x.src[0]
    return vector if len(parts) == 4 and vector.dtype is dtypes.uint32 else None


def _where(k: Kernel, u: UOp) -> str:
    condition, a, b = (k.x(s) for s in u.src)
    return f"select({b}, {a}, {condition})"


def _muladd(k: Kernel, u: UOp) -> str:
    a, b, c = (k.x(s) for s in u.src)
    return f"fma({a}, {b}, {c})" if u.dtype.is_float else f"({a} * {b} + {c})"


def _cast(k: Kernel, u: UOp) -> str:
    x, n = k.x(u.src[0]), lanes(u)
    if u.dtype is dtypes.float16 is not u.src[0].dtype:
        k.need(f"round_f16_x{n}", wgsl_helpers.instantiate(wgsl_helpers.ROUND_F16, n))
        single = x if u.src[0].dtype is dtypes.float32 else f"{type_name('f32', n)}({bare(x)})"
        x = f"round_f16_x{n}({bare(single)})"
    return x if k.type(u) == k.type(u.src[0]) else f"{k.type(u)}({bare(x)})"


def _bitcast(k: Kernel, u: UOp) -> str:
    return f"bitcast<{k.type(u)}>({bare(k.x(u.src[0]))})"


def _stack(k: Kernel, u: UOp) -> str:
    if len(u.src) == 1:
        return k.x(u.src[0])
    values = u.src[:1] if is_splat(u) else u.src
    return f"{k.type(u)}({', '.join(bare(k.x(s)) for s in values)})"


def _lane(k: Kernel, u: UOp) -> str:
    return k.x(u.src[0]) if lanes(u.src[0]) == 1 else f"{k.x(u.src[0])}.{'xyzw'[u.arg]}"


def _function(name: str) -> Emitter:
    return lambda k, u: f"{name}({bare(k.x(u.src[0]))})"


def _subgroup(k: Kernel, u: UOp) -> str:
    return f"{'subgroupAdd' if u.arg is Ops.ADD else 'subgroupMax'}({bare(k.x(u.src[0]))})"


def _dot(k: Kernel, u: UOp) -> str:
    """Four products of the bytes of each word, added to c; or matrices of a subgroup."""
    if isinstance(u.arg, tuple):
        return f"subgroupMatrixMultiplyAccumulate({', '.join(k.x(s) for s in u.src)})"
    *words, c = (k.x(s) for s in u.src)
    parts = [", ".join(words if lanes(u) == 1 else (f"{w}.{i}" for w in words)) for i in "xyzw"[: lanes(u)]]
    dots = [f"dot4I8Packed({p})" for p in parts]
    total = dots[0] if lanes(u) == 1 else f"{k.type(u)}({', '.join(dots)})"
    return total if constant_of(u.src[-1]) == 0 else f"({c} + {total})"


EMITTERS: dict[Ops, Emitter] = {
    Ops.ADD: _add, Ops.MUL: _operator("*"), Ops.DIV: _operator("/"),
    Ops.FLOORDIV: _divide("/"), Ops.MOD: _divide("%"),
    Ops.AND: _and, Ops.OR: _or, Ops.XOR: _xor, Ops.SHL: _shift("<<"), Ops.SHR: _shift(">>"),
    Ops.MAX: _maximum, Ops.LESS: _less, Ops.EQUAL: _logic("=="), Ops.WHERE: _where, Ops.MULADD: _muladd,
    Ops.NEG: lambda k, u: f"(-{k.x(u.src[0])})", Ops.RECIPROCAL: lambda k, u: f"(1.0f / {k.x(u.src[0])})",
    Ops.SQRT: _function("sqrt"), Ops.FLOOR: _function("floor"), Ops.TRUNC: _function("trunc"),
    Ops.ROUND: _function("round"), Ops.CAST: _cast, Ops.BITCAST: _bitcast, Ops.STACK: _stack, Ops.LANE: _lane,
    Ops.F16_TO_F32: _f16_to_f32, Ops.F32_TO_F16: _f32_to_f16, Ops.SUBGROUP: _subgroup, Ops.DOT: _dot,
}  # fmt: skip

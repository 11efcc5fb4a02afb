"""How each operation is emitted in C: one table, from op to a function of the kernel being written and the node.

Scalars are emitted in exactly their own type (narrow integers are cast back after C's promotions). A vector of bool is
a mask: integers of all ones or all zeros, as wide as the data it was made from; `Kernel.mask` converts the width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import Ops, PlanesArg, TableArg, UOp
from tinyweb.render_c import c_helpers, dots
from tinyweb.render_c.c_types import scalar_name, unsigned_name
from tinyweb.render_common import bare, is_splat, lanes

if TYPE_CHECKING:
    from tinyweb.render_c.kernel_text import KernelText

Emitter: TypeAlias = "Callable[[KernelText, UOp], str]"


def mask_bits(u: UOp) -> int:
    """Width of the mask elements a vector of bool is emitted with."""
    if u.op in (Ops.LESS, Ops.EQUAL) and u.src[0].dtype is not dtypes.bool:
        return u.src[0].dtype.bits
    if u.op is Ops.CAST:
        return mask_bits(u.src[0]) if u.src[0].dtype is dtypes.bool else u.src[0].dtype.bits
    if u.op is Ops.LOAD:
        return 8
    if u.op is Ops.STACK:
        return 32
    values = u.src[1:] if u.op is Ops.WHERE else u.src
    return max(mask_bits(s) for s in values)


def _is_mask(u: UOp) -> bool:
    return u.dtype is dtypes.bool and lanes(u) > 1


def _narrow(k: KernelText, u: UOp, text: str) -> str:
    """Cast a scalar back to its type where C would have widened it."""
    if lanes(u) == 1 and u.dtype.bits < 32:
        return f"({scalar_name(u.dtype)})({text})" if not text.startswith("(") else f"({scalar_name(u.dtype)}){text}"
    return text


def _operator(symbol: str) -> Emitter:
    """Arithmetic on floats and indices as it stands, on other integers in an unsigned type, so that overflow wraps."""

    def emit(k: KernelText, u: UOp) -> str:
        if u.dtype is dtypes.bool:
            return _LOGIC_OF[u.op](k, u)
        a, b = (k.x(s) for s in u.src)
        if u.dtype.is_float or (u.dtype.kind in ("index", "uint") and u.dtype.bits >= 32):
            return _narrow(k, u, f"({a} {symbol} {b})")
        return _wrapping(k, u, f"{{}} {symbol} {{}}", a, b)

    return emit


def _wrapping(k: KernelText, u: UOp, pattern: str, *values: str) -> str:
    n = lanes(u)
    kind = k.vector(unsigned_name(u.dtype), n) if n == 1 else k.vector(f"u{u.dtype.bits}", n)
    text = pattern.format(*(v if u.dtype.kind == "uint" and n > 1 else k.same_size(kind, v) for v in values))
    return k.same_size(k.type(u), f"({text})") if u.dtype.kind != "uint" or n == 1 else f"({text})"


def _logic(symbol: str) -> Emitter:
    """& | ^ on integers, bools and masks."""

    def emit(k: KernelText, u: UOp) -> str:
        if _is_mask(u):
            bits = mask_bits(u)
            if symbol == "^":
                for a, b in (u.src, u.src[::-1]):
                    if is_splat(b) and b.src[0].op is Ops.CONST:
                        return f"(~{k.mask(a, bits)})" if b.src[0].arg else k.mask(a, bits)
            a_text, b_text = (k.mask(s, bits) for s in u.src)
            return f"({a_text} {symbol} {b_text})"
        if symbol == "^" and u.dtype is dtypes.bool and u.src[1].op is Ops.CONST and u.src[1].arg:
            return f"(b8)(!{k.x(u.src[0])})"
        return _narrow(k, u, f"({k.x(u.src[0])} {symbol} {k.x(u.src[1])})")

    return emit


_LOGIC_OF: dict[Ops, Emitter] = {Ops.ADD: _logic("|"), Ops.MAX: _logic("|"), Ops.MUL: _logic("&")}


def on_bools(op: Ops) -> Emitter:
    """What arithmetic does with truth values."""
    return _LOGIC_OF[op]


def _shift(symbol: str) -> Emitter:
    def emit(k: KernelText, u: UOp) -> str:
        a, b = (k.x(s) for s in u.src)
        if symbol == "<<" and u.dtype.kind != "uint":
            return _wrapping(k, u, "{} << {}", a, b)
        if symbol == ">>" and u.dtype.kind == "uint" and u.dtype.bits < 32 and lanes(u) > 1 and not is_splat(u.src[1]):
            # WebAssembly shifts all lanes alike. LLVM's detour for others may extend narrow lanes with a sign, and it
            # narrows wide lanes where it knows that the amounts are small
            wide, kind = k.vector("u32", lanes(u)), k.type(u)
            a, b = (f"__builtin_convertvector({x}, {wide})" for x in (a, b))
            unknown = f'({{ u32 zero = 0; __asm__("" : "+r"(zero)); ({wide})zero; }})'
            return f"__builtin_convertvector({a} >> ({b} ^ {unknown}), {kind})"
        return _narrow(k, u, f"({a} {symbol} {b})")

    return emit


def _divide(symbol: str) -> Emitter:
    """Integer division: the numerator is proven non-negative, so unsigned division, the cheaper one, is right."""

    def emit(k: KernelText, u: UOp) -> str:
        a, b = (k.x(s) for s in u.src)
        if u.dtype.kind == "uint":
            return _narrow(k, u, f"({a} {symbol} {b})")
        return _wrapping(k, u, f"{{}} {symbol} {{}}", a, b)

    return emit


def _maximum(k: KernelText, u: UOp) -> str:
    if u.dtype is dtypes.bool:
        return _LOGIC_OF[Ops.MAX](k, u)
    a, b = u.src
    if not u.dtype.is_float:
        return f"__builtin_elementwise_max({k.x(a)}, {k.x(b)})"
    if is_number(b):
        a, b = b, a
    scalar, n = scalar_name(u.dtype), lanes(u)
    name, helper = ("at_least", c_helpers.AT_LEAST) if is_number(a) else ("maximum", c_helpers.MAXIMUM)
    name = f"{name}_{scalar}x{n}"
    # a scalar in a vector's register; branches would be taken otherwise
    whole = "!defined(__wasm__)" if n == 1 else str(int(n * u.dtype.bits % 128 == 0))
    text = helper.substitute(f=scalar, i=f"i{scalar[1:]}", n=n, vectors=whole)
    k.need(name, text, {f"{scalar}x{n}", f"i{scalar[1:]}x{n}"})
    return _on_vectors(name, f"{scalar}x{n}", n, k.x(a), k.x(b))


def is_number(u: UOp) -> bool:
    """Whether all lanes are one constant, and that is not NaN."""
    constant = u.src[0] if is_splat(u) else u
    return constant.op is Ops.CONST and constant.arg == constant.arg


def _on_vectors(function: str, kind: str, n: int, *values: str) -> str:
    """Call a helper; scalars go in and come out as vectors of one lane."""
    if n > 1:
        return f"{function}({', '.join(values)})"
    return f"{function}({', '.join(f'({kind})({v})' for v in values)})[0]"


def _f16_to_f32(k: KernelText, u: UOp) -> str:
    n, bits = lanes(u), u.src[0]
    if bits.op is Ops.CAST and bits.src[0].dtype is dtypes.uint16:
        bits = bits.src[0]  # they are converted side by side
    kind = scalar_name(bits.dtype)
    return _half(k, f"f16_in_{kind}_to_f32x{n}", c_helpers.half_to_single(kind, n), f"{kind}x{n}", n, bits)


def _f32_to_f16(k: KernelText, u: UOp) -> str:
    n = lanes(u)
    return _half(k, f"f32_to_f16x{n}", c_helpers.F32_TO_F16.substitute(n=n), f"f32x{n}", n, u.src[0])


def _half(k: KernelText, name: str, text: str, kind: str, n: int, value: UOp) -> str:
    k.need(name, text, {f"{t}x{n}" for t in c_helpers.HALF_LANES})
    return _on_vectors(name, kind, n, k.x(value))


def _dot(k: KernelText, u: UOp) -> str:
    a, b, *high, c = u.src
    n = lanes(u)
    if isinstance(u.arg, TableArg | PlanesArg):
        name, texts, vectors = (
            dots.joined(n, u.arg) if isinstance(u.arg, PlanesArg) else dots.looked_up(n, u.arg.numbers)
        )
        for helper, text in texts.items():
            k.need(helper, text, vectors)
        return f"{name}({', '.join(k.x(s) for s in u.src)})"
    if a.dtype is dtypes.uint8:
        for name, text in dots.any_bytes(n).items():
            k.need(name, text, dots.helpers(n)[1] | {f"u16x{2 * n}"})
        return f"octets_x{n}((i8x{4 * n}){k.x(a)}, {k.x(b)}, {k.x(c)})"
    texts, vectors = dots.matrices() if isinstance(u.arg, tuple) else dots.helpers(n, 1 + len(high))
    if b.dtype is dtypes.int16:
        words = a.dtype is dtypes.uint32
        for name in (x for x in texts if "pairs" in x):
            k.need(name, texts[name], {*vectors, *([f"u16x{2 * n}"] if words else [])})
        halves = k.x(a)
        if words:  # one of each half word's four
            fields = f"(u16x{2 * n}){halves}{f' >> {4 * u.arg}' if u.arg else ''}"
            halves = f"(i16x{2 * n})({fields}{' & 15' if u.arg < 3 else ''})"
        return f"({k.x(c)} + pairs_x{n}({halves}, {k.x(b)}))"
    for name, text in texts.items():
        k.need(name, text, vectors)
    if high:
        return f"{dots.NAMES[1 + len(high)]}_x{n}({', '.join(k.x(s) for s in u.src)})"
    if (number := _seven_bits(b)) is not None and not u.arg and n in dots.WIDTHS:
        for name, text in dots.sevens(n).items():
            k.need(name, text, vectors)
        several = k.splat(abs(number), dtypes.int8, 4 * n)
        if number >= 0:
            return f"sevens_x{n}({several}, {k.x(a)}, {k.x(c)})"
        return f"({k.x(c)} - sevens_x{n}({several}, {k.x(a)}, {k.splat(0, dtypes.int32, n)}))"
    name = f"matrix_{'x'.join(map(str, u.arg))}" if isinstance(u.arg, tuple) else f"dot_x{n}"
    return f"{name}({k.x(a)}, {k.x(b)}, {k.x(c)})"


def _seven_bits(u: UOp) -> int | None:
    """The constant of less than eight bits beside its sign that all elements are; None where they are not."""
    number = u.src[0].arg if is_splat(u) and u.src[0].op is Ops.CONST else None
    return int(number) if number is not None and abs(number) <= dots.SEVEN_BITS else None


def _less(k: KernelText, u: UOp) -> str:
    a, b = u.src
    if _is_mask(a):
        bits = mask_bits(u)
        return f"(~{k.mask(a, bits)} & {k.mask(b, bits)})"
    return _comparison(k, u, "<")


def _equal(k: KernelText, u: UOp) -> str:
    if _is_mask(u.src[0]):
        a, b = (k.mask(s, mask_bits(u)) for s in u.src)
        return f"(~({a} ^ {b}))"
    return _comparison(k, u, "==")


def _comparison(k: KernelText, u: UOp, symbol: str) -> str:
    a, b = (k.x(s) for s in u.src)
    if lanes(u) > 1:
        return f"({k.vector(f'i{mask_bits(u)}', lanes(u))})({a} {symbol} {b})"
    return f"(b8)({a} {symbol} {b})"


def _where(k: KernelText, u: UOp) -> str:
    condition, a, b = u.src
    if lanes(u) == 1 or lanes(condition) == 1:
        a_text, b_text = (k.mask(s, mask_bits(u)) if _is_mask(u) else k.x(s) for s in (a, b))
        return _narrow(k, u, f"({k.x(condition)} ? {a_text} : {b_text})")
    if _is_mask(u):
        bits = mask_bits(u)
        return k.dialect.choose.format(c=k.mask(condition, bits), a=k.mask(a, bits), b=k.mask(b, bits))
    return k.dialect.choose.format(c=k.mask(condition, u.dtype.bits), a=k.x(a), b=k.x(b))


def _muladd(k: KernelText, u: UOp) -> str:
    a, b, c = (k.x(s) for s in u.src)
    if u.arg is not None:
        return f"MULADD({', '.join(f'({x})' if '{' in x else x for x in (a, b, c))})"
    if u.dtype.is_float or u.dtype is dtypes.index:
        return _narrow(k, u, f"({a} * {b} + {c})")
    return _wrapping(k, u, "{} * {} + {}", a, b, c)


def cast(k: KernelText, u: UOp) -> str:
    source, n = u.src[0], lanes(u)
    x = k.x(source)
    if u.dtype is dtypes.bool:
        if source.dtype is dtypes.bool:
            return x
        if n == 1:
            return f"(b8)({x} != 0)"
        return f"({k.vector(f'i{source.dtype.bits}', n)})({x} != {k.splat(0, source.dtype, n)})"
    if n == 1:
        return f"({k.type(u)}){x}" if x.startswith("(") or x.isidentifier() else f"({k.type(u)})({x})"
    if source.dtype is dtypes.bool:
        one, zero = (k.splat(v, u.dtype, n) for v in (1, 0))
        return k.dialect.choose.format(c=k.mask(source, u.dtype.bits), a=one, b=zero)
    if k.type(u) == k.type(source):
        return x
    return _convert(k, u, x)


def _convert(k: KernelText, u: UOp, x: str) -> str:
    return k.dialect.convert.format(kind=k.type(u), value=bare(x))


def _cast_in_c(k: KernelText, u: UOp) -> str:
    """The same, but for small integers as floats, of which Clang makes less than there is."""
    source, n = u.src[0], lanes(u)
    if u.dtype is dtypes.float32 and source.dtype.is_int and source.dtype.bits < 32 and n % 8 == 0:
        kind = scalar_name(source.dtype)
        for width in (8, n):
            k.need(f"{kind}x{width:02}_to_f32", *c_helpers.narrow_to_single(kind, width))  # 16 asks for 8 before it
        return f"{kind}x{n}_to_f32x{n}({k.x(source)})"
    return cast(k, u)


def stack(k: KernelText, u: UOp) -> str:
    """A vector of scalars."""
    n = lanes(u)
    if _is_mask(u):
        masks = [f"-(i32){k.x(s)}" for s in (u.src[:1] if is_splat(u) else u.src)]
        return k.repeated(masks[0], "i32", n) if is_splat(u) else k.make(k.vector("i32", n), masks)
    if len(u.src) == 1:
        return k.x(u.src[0])
    if is_splat(u):
        return k.repeated(k.x(u.src[0]), scalar_name(u.dtype), n)
    return k.make(k.type(u), (bare(k.x(s)) for s in u.src))


def _stack_in_c(k: KernelText, u: UOp) -> str:
    """The same; lanes of few vectors as one permutation of them."""
    vectors = list(dict.fromkeys([s.src[0] for s in u.src if s.op is Ops.LANE]))
    if len(vectors) not in (1, 2) or _is_mask(u) or is_splat(u):
        return stack(k, u)
    if any(s.op is not Ops.LANE for s in u.src) or len({lanes(v) for v in vectors}) != 1:
        return stack(k, u)
    width, repeated = lanes(vectors[0]), [s.arg for s in u.src]
    if len(vectors) == 1 and width * u.dtype.bits == 32 and repeated == list(range(width)) * (len(u.src) // width):
        # a word in all lanes: one instruction, which compilers do not make of a shuffle
        words = k.vector("i32", len(u.src) // width)
        return f"({k.type(u)})({words})(__builtin_bit_cast(i32, {k.x(vectors[0])}))"
    begin = {v: i * width for i, v in enumerate(vectors)}
    places = ", ".join([str(begin[s.src[0]] + s.arg) for s in u.src])
    return f"__builtin_shufflevector({k.x(vectors[0])}, {k.x(vectors[-1])}, {places})"


def _lane(k: KernelText, u: UOp) -> str:
    source = u.src[0]
    text = k.x(source)
    if lanes(source) == 1:
        return text
    lane = k.lane(text, u.arg)
    return f"(b8)({lane} & 1)" if u.dtype is dtypes.bool else lane


def _function(name: str) -> Emitter:
    return lambda k, u: f"{k.dialect.functions[name]}({bare(k.x(u.src[0]))})"


def _one_over(k: KernelText, u: UOp) -> str:
    one = k.splat(1.0, u.dtype, lanes(u))
    return f"({one} / {k.x(u.src[0])})"


def _negate(k: KernelText, u: UOp) -> str:
    x = k.x(u.src[0])
    return _narrow(k, u, f"(-{x})") if u.dtype.is_float else _wrapping(k, u, "-{}", x)


def bitcast(k: KernelText, u: UOp) -> str:
    """The same bits as another type."""
    if _is_mask(u) or _is_mask(u.src[0]):
        return cast(k, u)  # a mask is not the bytes that memory holds
    x = k.x(u.src[0])
    if x.endswith("]"):  # a lane: Clang takes the bits of its vector's first one, unless a cast makes a value of it
        x = f"({k.type(u.src[0])}){x}"
    return k.dialect.bits.format(kind=k.type(u), value=bare(x))


EMITTERS: dict[Ops, Emitter] = {
    Ops.ADD: _operator("+"), Ops.MUL: _operator("*"), Ops.DIV: _operator("/"),
    Ops.FLOORDIV: _divide("/"), Ops.MOD: _divide("%"),
    Ops.AND: _logic("&"), Ops.OR: _logic("|"), Ops.XOR: _logic("^"), Ops.SHL: _shift("<<"), Ops.SHR: _shift(">>"),
    Ops.MAX: _maximum, Ops.LESS: _less, Ops.EQUAL: _equal, Ops.WHERE: _where, Ops.MULADD: _muladd,
    Ops.NEG: _negate, Ops.RECIPROCAL: _one_over, Ops.SQRT: _function("sqrt"), Ops.FLOOR: _function("floor"),
    Ops.TRUNC: _function("trunc"), Ops.ROUND: _function("round"), Ops.CAST: _cast_in_c, Ops.BITCAST: bitcast,
    Ops.STACK: _stack_in_c, Ops.LANE: _lane, Ops.DOT: _dot, Ops.F16_TO_F32: _f16_to_f32, Ops.F32_TO_F16: _f32_to_f16,
}  # fmt: skip

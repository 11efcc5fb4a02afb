"""DOT in C: c + sums of four products of 8-bit integers, exact for all of them, by what the processor has for it.

- VNNI wants one operand unsigned: a constant is added to it, and the constant's products are subtracted; kernels that
  multiply one vector with many compute those once. 4-bit integers come raised to 0 … 15, and are the unsigned operand
  of AVX2 and SSE too.
- AVX2, SSE and WebAssembly: bytes as 16-bit integers, even and odd ones apart, through the product of pairs.
- Arm: sdot, and smmla for two rows times two columns. Elsewhere: arithmetic in vectors.

In the names, n is the number of sums: 4 and 8 are what instructions take, wider ones are made of two halves.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tinyweb.graph.ir import PlanesArg

_HEAD = "static inline __attribute__((always_inline)) "

_HAS_VNNI = "defined(__AVXVNNI__) || (defined(__AVX512VNNI__) && defined(__AVX512VL__))"

_PAIRS = {
    4: """i32x4 pairs_x4(i16x8 a, i16x8 b) {
#if defined(__SSE2__)
  return (i32x4)__builtin_ia32_pmaddwd128(a, b);
#elif defined(__wasm_simd128__)
  return (i32x4)__builtin_wasm_dot_s_i32x4_i16x8(a, b);
#else
  const i32x4 x = (i32x4)a, y = (i32x4)b;
  return (x << 16 >> 16) * (y << 16 >> 16) + (x >> 16) * (y >> 16);
#endif
}
""",
    8: """i32x8 pairs_x8(i16x16 a, i16x16 b) {
#if defined(__AVX2__)
  return (i32x8)__builtin_ia32_pmaddwd256(a, b);
#else
  return __builtin_shufflevector(pairs_x4(a.lo, b.lo), pairs_x4(a.hi, b.hi), 0, 1, 2, 3, 4, 5, 6, 7);
#endif
}
""",
    16: f"""i32x16 pairs_x16(i16x32 a, i16x32 b) {{
#if defined(__AVX512BW__)
  return (i32x16)__builtin_ia32_pmaddwd512(a, b);
#else
  return __builtin_shufflevector(pairs_x8(a.lo, b.lo), pairs_x8(a.hi, b.hi), {", ".join(map(str, range(16)))});
#endif
}}
""",
}

_EVEN_AND_ODD = """\
  const i16x{h} even_a = (i16x{h})a << 8 >> 8, odd_a = (i16x{h})a >> 8;
  const i16x{h} even_b = (i16x{h})b << 8 >> 8, odd_b = (i16x{h})b >> 8;
  return c + (pairs_x{n}(even_a, even_b) + pairs_x{n}(odd_a, odd_b));
"""

_VNNI = """\
  const i8x{b} most = (i8x{b})(-128), none = (i8x{b})(0);
  const i32x{n} sums = (i32x{n})__builtin_ia32_vpdpbusd{bits}(c, a ^ most, b);
  return sums - (i32x{n})__builtin_ia32_vpdpbusd{bits}((i32x{n})(0), most, b);
"""


def _halves(name: str, operands: str, n: int) -> str:
    """What a function of n sums returns, from the function of half as many."""
    calls = (f"{name}_x{n // 2}({', '.join(f'{o}.{part}' for o in operands.split())})" for part in ("lo", "hi"))
    return f"  return __builtin_shufflevector({', '.join(calls)}, {', '.join(map(str, range(n)))});\n"


_DOT = {
    4: f"""i32x4 dot_x4(i8x16 a, i8x16 b, i32x4 c) {{
#if defined(__ARM_FEATURE_DOTPROD)
  return (i32x4)vdotq_s32((int32x4_t)c, (int8x16_t)a, (int8x16_t)b);
#elif defined(__AVXVNNI__) || (defined(__AVX512VNNI__) && defined(__AVX512VL__))
{_VNNI.format(n=4, b=16, bits=128)}#else
{_EVEN_AND_ODD.format(n=4, h=8)}#endif
}}
""",
    8: f"""i32x8 dot_x8(i8x32 a, i8x32 b, i32x8 c) {{
#if defined(__AVXVNNI__) || (defined(__AVX512VNNI__) && defined(__AVX512VL__))
{_VNNI.format(n=8, b=32, bits=256)}#elif defined(__AVX2__)
{_EVEN_AND_ODD.format(n=8, h=16)}#else
{_halves("dot", "a b c", 8)}#endif
}}
""",
}

WIDTHS = (4, 8)  # sums that instructions compute
NAMES = {2: "nibbles", 4: "twos", 8: "ones"}  # by the integers in a byte
VARIABLES_OF_PLANES = "axyz"
VARIABLES = "bdefghij"  # what those at each place are multiplied with


def _places(n: int, each: int) -> str:
    """The integers at each place of all bytes, as bytes."""
    bits = 8 // each
    taken = [f"a{f' >> {bits * i}' if i else ''} & mask" for i in range(each)]
    return f"  const i8x{4 * n} {', '.join(f'v{i} = (i8x{4 * n})({t})' for i, t in enumerate(taken))};\n"


def _chain(call: str, each: int, operands: str = VARIABLES) -> str:
    """A call for each place, one after the other; `call` has {v}, {b} and {c}, what was summed before."""
    summed = "c"
    for i in range(each):
        summed = call.format(v=f"v{i}", b=operands[i], c=summed)
    return f"  return {summed};\n"


def _packed(n: int, each: int) -> str:
    """Products of the integers at each place of the bytes of `a`, 0 …, with as many operands."""
    bits, size = 8 // each, 32 * n
    mask = ((1 << bits) - 1) * 0x01010101
    head = f"""{_declared(n, each)} {{
  u32x{n} mask = (u32x{n})({mask:#010x}u);
#ifdef __wasm__
  __asm__("" : "+r"(mask));
#endif
{_places(n, each)}"""
    wide = "" if n == 4 else str(size)
    products = " + ".join(f"(i16x{2 * n})__builtin_ia32_pmaddubsw{size}(v{i}, {VARIABLES[i]})" for i in range(each))
    vnni = _chain(f"(i32x{n})__builtin_ia32_vpdpbusd{size}({{c}}, {{v}}, {{b}})", each)
    ssse3 = f"  return c + pairs_x{n}({products}, 1);\n"
    if wide:
        return f"""{_declared(n, each)} {{
#if defined(__AVX2__)
  const u32x{n} mask = (u32x{n})({mask:#010x}u);
{_places(n, each)}#if {_HAS_VNNI}
{vnni}#else
{ssse3}#endif
#else
{_halves(NAMES[each], " ".join(["a", *VARIABLES[:each], "c"]), n)}#endif
}}
"""
    return f"""{head}#if {_HAS_VNNI}
{vnni}#elif defined(__SSSE3__)
{ssse3}#elif defined(__wasm_relaxed_simd__)
{_relaxed(each)}#else
{_chain("dot_x4({v}, {b}, {c})", each)}#endif
}}
"""


def _relaxed(each: int) -> str:
    return _chain("(i32x4)__builtin_wasm_relaxed_dot_i8x16_i7x16_add_s_i32x4({b}, {v}, {c})", each)


# An engine has one instruction for a relaxed dot (Arm, AVX-VNNI), or makes it of several: products of pairs, saturated
# to 16 bits, whose sums are products with ones. Then it is less to add such pairs up in 16 bits first, as far as they
# fit. Which of them it is shows in products that do not fit.
SATURATES = """\
static inline i32 saturates(void) {
  return __builtin_wasm_relaxed_dot_i8x16_i7x16_add_s_i32x4((i8x16)(127), (i8x16)(-1), (i32x4)(0))[0] == 65534;
}
"""
_OF_SEVERAL = re.compile(rf"\b({'|'.join(NAMES.values())})_x")


def in_pairs(text: str) -> str:
    """A kernel whose products of integers below 8 bits are those of `helpers_in_pairs`."""
    return _OF_SEVERAL.sub(r"\1_in_pairs_x", text)


def helpers_in_pairs(used: Mapping[str, str]) -> dict[str, str]:
    """For relaxed SIMD: of a kernel's functions, those for integers below 8 bits, with sums of pairs in 16 bits; empty
    where it uses none.
    """
    found = {}
    for each, name in NAMES.items():
        sums = (f"(i16x8)__builtin_wasm_relaxed_dot_i8x16_i7x16_s_i16x8({VARIABLES[i]}, v{i})" for i in range(each))
        pairs = f"  return c + (i32x4)__builtin_wasm_extadd_pairwise_i16x8_s_i32x4({' + '.join(sums)});\n"
        for helper in (h for h in used if h.startswith(f"c_{name}_x")):
            found[helper] = in_pairs(used[helper].replace(_relaxed(each), pairs))
    return found


def _declared(n: int, each: int) -> str:
    operands = "".join(f", i8x{4 * n} {v}" for v in VARIABLES[:each])
    return f"i32x{n} {NAMES[each]}_x{n}(u32x{n} a{operands}, i32x{n} c)"


# Bytes of a table of 16 by indices; products of bytes without a sign, and of those with one.
_LOOK = {
    4: """i8x16 look_x4(i8x16 table, i8x16 index) {
#if defined(__SSSE3__)
  return (i8x16)__builtin_ia32_pshufb128(table, index);
#elif defined(__wasm_simd128__)
  return (i8x16)__builtin_wasm_swizzle_i8x16(table, index);
#elif defined(__ARM_FEATURE_DOTPROD)
  return (i8x16)vqtbl1q_s8((int8x16_t)table, (uint8x16_t)index);
#else
  i8x16 found = table;
  for (int i = 0; i < 16; i++) found[i] = table[index[i]];
  return found;
#endif
}
""",
    8: """i8x32 look_x8(i8x32 table, i8x32 index) {
#if defined(__AVX2__)
  return (i8x32)__builtin_ia32_pshufb256(table, index);
#else
  return __builtin_shufflevector(look_x4(table.lo, index.lo), look_x4(table.hi, index.hi), """
    + ", ".join(map(str, range(32)))
    + """);
#endif
}
""",
}
_OCTETS = """\
i32x{n} octets_x{n}(i8x{b} a, i8x{b} b, i32x{n} c) {{
#if {vnni}
  return (i32x{n})__builtin_ia32_vpdpbusd{size}(c, a, b);
#elif defined(__ARM_FEATURE_DOTPROD)
  const i8x{b} most = (i8x{b})(-128);
  return dot_x{n}(a ^ most, b, c) - dot_x{n}(most, b, (i32x{n})(0));
#else
  const i16x{h} even_a = (i16x{h})((u16x{h})a & 255), odd_a = (i16x{h})((u16x{h})a >> 8);
  const i16x{h} even_b = (i16x{h})b << 8 >> 8, odd_b = (i16x{h})b >> 8;
  return c + (pairs_x{n}(even_a, even_b) + pairs_x{n}(odd_a, odd_b));
#endif
}}
"""
# Products of bytes from 0 to 127 with those that have a sign.
_SEVENS = {
    4: f"""i32x4 sevens_x4(i8x16 a, i8x16 b, i32x4 c) {{
#if {_HAS_VNNI}
  return (i32x4)__builtin_ia32_vpdpbusd128(c, a, b);
#elif defined(__SSSE3__)
  return c + pairs_x4((i16x8)__builtin_ia32_pmaddubsw128(a, b), 1);
#elif defined(__wasm_relaxed_simd__)
  return (i32x4)__builtin_wasm_relaxed_dot_i8x16_i7x16_add_s_i32x4(b, a, c);
#else
  return dot_x4(a, b, c);
#endif
}}
""",
    8: f"""i32x8 sevens_x8(i8x32 a, i8x32 b, i32x8 c) {{
#if defined(__AVX2__) && ({_HAS_VNNI})
  return (i32x8)__builtin_ia32_vpdpbusd256(c, a, b);
#elif defined(__AVX2__)
  return c + pairs_x8((i16x16)__builtin_ia32_pmaddubsw256(a, b), 1);
#else
{_halves("sevens", "a b c", 8)}#endif
}}
""",
}


def any_bytes(n: int) -> dict[str, str]:
    """The function `octets_xN`, which multiplies bytes without a sign with bytes that have one, with all it uses."""
    texts, _ = helpers(n)
    for m in (m for m in (4, 8, 16, 32) if m <= n):
        body = _OCTETS.format(n=m, b=4 * m, h=2 * m, size=32 * m, vnni=_HAS_VNNI)
        wide = _wide("octets", f"i8x{4 * m} a, i8x{4 * m} b", "a b", m)
        texts[f"c_octets_x{m:02}"] = _HEAD + (body if m <= 8 else _at_once(wide) if m == 16 else wide)
    return texts


def _at_once(wide: str) -> str:
    """The same with one instruction where there are vectors of 512 bits."""
    head, rest = wide.split("\n", 1)
    body, end = rest.rsplit("}", 1)
    one = "  return (i32x16)__builtin_ia32_vpdpbusd512(c, a, b);"
    return f"{head}\n#if defined(__AVX512VNNI__)\n{one}\n#else\n{body}#endif\n}}{end}"


def sevens(n: int) -> dict[str, str]:
    """The function `sevens_xN`, which multiplies bytes of 0 to 127 with bytes that have a sign, for one of WIDTHS."""
    return {f"c_sevens_x{m:02}": _HEAD + _SEVENS[m] for m in WIDTHS if m <= n}


SEVEN_BITS, SAFE_SUMS = 127, 64  # numbers up to which products of pairs of two places fit 16 bits


def looked_up(n: int, numbers: tuple[int, ...]) -> tuple[str, dict[str, str], set[str]]:
    """The function that multiplies what 4-bit integers stand for in a table, 0 to 255, with bytes, by its name, with
    all it uses, and the vector types they need."""
    texts, vectors = helpers(n)
    key = "".join(f"{v:02x}" for v in numbers)
    for m in (m for m in (4, 8, 16, 32) if m <= n):
        name = f"table_{key}_x{m}"
        head = f"i32x{m} {name}(u32x{m} a, i8x{4 * m} b, i8x{4 * m} d, i32x{m} c) {{\n"
        if m > 8:
            body = _halves(f"table_{key}", "a b d c", m)
        else:
            texts[f"c_look_x{m:02}"] = _HEAD + _LOOK[m]
            octets = _OCTETS.format(n=m, b=4 * m, h=2 * m, size=32 * m, vnni=_HAS_VNNI)
            texts[f"c_octets_x{m:02}"] = _HEAD + octets
            body = _table(m, key, numbers)
        texts[f"d_{name[: len(name) - len(str(m))]}{m:02}"] = _HEAD + head + body + "}\n"
        vectors |= {f"u16x{2 * m}"}
    return f"table_{key}_x{n}", texts, vectors


def _table(n: int, key: str, numbers: tuple[int, ...]) -> str:
    most = max(numbers)
    padded = [*numbers, *[0] * (16 - len(numbers))]
    signed = [v - 256 * (v > 127) for v in padded]
    table = f"(i8x{4 * n}){{{', '.join(map(str, signed * (n // 4)))}}}"
    chain = _chain(f"octets_x{n}({{v}}, {{b}}, {{c}})", 2, "bd")
    sums = " + ".join(f"(i16x{2 * n})__builtin_ia32_pmaddubsw{32 * n}({v}, {b})" for v, b in (("v0", "b"), ("v1", "d")))
    few = f"  return c + pairs_x{n}({sums}, 1);\n" if most <= SAFE_SUMS else chain
    looks = f"""  const i8x{4 * n} table = {table};
  const i8x{4 * n} v0 = look_x{n}(table, (i8x{4 * n})(a & mask)), v1 = look_x{n}(table, (i8x{4 * n})(a >> 4 & mask));
"""
    if n == 8:
        halves = _halves(f"table_{key}", "a b d c", n)
        return f"""#if defined(__AVX2__)
  const u32x8 mask = (u32x8)(0x0f0f0f0fu);
{looks}#if {_HAS_VNNI}
{chain}#else
{few}#endif
#else
{halves}#endif
"""
    call = "(i32x4)__builtin_wasm_relaxed_dot_i8x16_i7x16_add_s_i32x4({b}, {v}, {c})"
    relaxed = _chain(call, 2, "bd")
    if most > SEVEN_BITS:  # the upper seven bits of all, and the lowest one, have tables of their own
        tables = (f"(i8x16){{{', '.join(map(str, t))}}}" for t in zip(*((v >> 1, v & 1) for v in padded)))
        names = [f"look_x4({t}, (i8x16)(a{shift} & mask))" for t in tables for shift in ("", " >> 4")]
        upper, lowest = (
            call.format(b="d", v=names[i + 1], c=call.format(b="b", v=names[i], c=c))
            for i, c in ((0, "none"), (2, "c"))
        )
        relaxed = f"  const i32x4 none = (i32x4)(0);\n  return ({upper} << 1) + {lowest};\n"
    return f"""  u32x4 mask = (u32x4)(0x0f0f0f0fu);
#ifdef __wasm__
  __asm__("" : "+r"(mask));
#endif
{looks}#if {_HAS_VNNI}
{chain}#elif defined(__SSSE3__)
{few}#elif defined(__wasm_relaxed_simd__)
{relaxed}#else
{_chain("dot_x4({v}, {b}, {c})", 2, "bd") if most <= SEVEN_BITS else chain}#endif
"""


def joined(n: int, how: PlanesArg) -> tuple[str, dict[str, str], set[str]]:
    """The function that multiplies integers of several planes with bytes, by its name, with all it uses, and the vector
    types they need."""
    texts, vectors = helpers(n)
    key = "_".join(f"{bits}at{place}" for bits, place in zip(how.bits, how.places))
    planes, operands = VARIABLES_OF_PLANES[: len(how.bits)], VARIABLES[: how.in_byte]
    for m in (m for m in (4, 8, 16, 32) if m <= n):
        name = f"planes_{key}_x{m}"
        declared = [f"u32x{m} {p}" for p in planes] + [f"i8x{4 * m} {v}" for v in operands]
        head = f"i32x{m} {name}({', '.join(declared)}, i32x{m} c) {{\n"
        halves = _halves(f"planes_{key}", " ".join((*planes, *operands, "c")), m)
        if m > 8:
            body = halves
        else:
            texts |= sevens(m)
            body = _planes(m, how) if m == 4 else f"#if defined(__AVX2__)\n{_planes(m, how)}#else\n{halves}#endif\n"
        texts[f"d_planes_{key}_x{m:02}"] = _HEAD + head + body + "}\n"
    return f"planes_{key}_x{n}", texts, vectors


def _planes(n: int, how: PlanesArg) -> str:
    kept = '\n#ifdef __wasm__\n  __asm__("" : "+r"(mask{i}));\n#endif' if n == 4 else ""
    masks = "".join(
        f"  u32x{n} mask{i} = (u32x{n})({how.mask(i) * 0x01010101:#010x}u);{kept.format(i=i)}\n"
        for i in range(len(how.bits))
    )
    values = []
    for at in range(how.in_byte):
        parts = []
        for i, plane in enumerate(VARIABLES_OF_PLANES[: len(how.bits)]):
            down = how.shift(i, at)
            moved = f"{plane} >> {down}" if down > 0 else f"{plane} << {-down}" if down else plane
            parts.append(f"({moved} & mask{i})")
        values.append(f"  const i8x{4 * n} v{at} = (i8x{4 * n})({' | '.join(parts)});\n")
    return masks + "".join(values) + _chain(f"sevens_x{n}({{v}}, {{b}}, {{c}})", how.in_byte)


# Each row times each column, of eight products: those of a sum are two of a DOT's, side by side.
_MATRIX = """i32x4 matrix_2x2(i8x16 a, i8x16 b, i32x4 c) {
#if defined(__ARM_FEATURE_MATMUL_INT8)
  return (i32x4)vmmlaq_s32((int32x4_t)c, (int8x16_t)a, (int8x16_t)b);
#else
  const i64x2 x = (i64x2)a, y = (i64x2)b;
  const i8x32 rows = (i8x32)__builtin_shufflevector(x, x, 0, 0, 1, 1);
  const i8x32 columns = (i8x32)__builtin_shufflevector(y, y, 0, 1, 0, 1);
  const i32x8 sums = dot_x8(rows, columns, (i32x8)(0));
  return c + (__builtin_shufflevector(sums, sums, 0, 2, 4, 6) + __builtin_shufflevector(sums, sums, 1, 3, 5, 7));
#endif
}
"""

_INCLUDE = "#if defined(__ARM_FEATURE_DOTPROD)\n#include <arm_neon.h>\n#endif\n"


def helpers(n: int, each: int = 1) -> tuple[dict[str, str], set[str]]:
    """The functions `dot_xN` and, of `each` integers in a byte, what `NAMES` calls it, for n sums, with all they use,
    and the vector types they need. The first operand is int8, or uint32 words of smaller integers.
    """
    wider = [m for m in (8, 16, 32) if m <= n]
    widths = [4, *wider]
    if n not in widths:
        raise ValueError(f"a DOT has 4, 8, 16 or 32 sums, not {n}")
    # sorted by name where they are written: the order in which they use each other
    found: dict[str, str] = {"a_pairs_x04": _INCLUDE + _HEAD + _PAIRS[4]}
    if n >= 8:
        found["a_pairs_x08"] = _HEAD + _PAIRS[8]
    if n >= 16:
        found["a_pairs_x16"] = _HEAD + _PAIRS[16]
    for m in widths:
        found[f"b_dot_x{m:02}"] = _HEAD + _DOT.get(m, _wide("dot", f"i8x{4 * m} a, i8x{4 * m} b", "a b", m))
        if each > 1:
            operands = " ".join(["a", *VARIABLES[:each], "c"])
            wide = f"{_declared(m, each)} {{\n{_halves(NAMES[each], operands, m)}}}\n"
            found[f"c_{NAMES[each]}_x{m:02}"] = _HEAD + (_packed(m, each) if m <= 8 else wide)
    vectors = {f"{t}x{s * m}" for m in widths for t, s in (("i8", 4), ("i16", 2), ("i32", 1), ("u32", 1))}
    return found, vectors


def matrices() -> tuple[dict[str, str], set[str]]:
    """The function `matrix_2x2`, with all it uses, and the vector types they need."""
    texts, vectors = helpers(8)
    return {**texts, "d_matrix": _HEAD + _MATRIX}, {*vectors, "i64x2"}


def _wide(name: str, declared: str, operands: str, n: int) -> str:
    return f"i32x{n} {name}_x{n}({declared}, i32x{n} c) {{\n{_halves(name, operands + ' c', n)}}}\n"

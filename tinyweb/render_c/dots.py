"""DOT in C: c + sums of four products of 8-bit integers, exact for all of them, by what the processor has for it.

- VNNI wants one operand unsigned: a constant is added to it, and the constant's products are subtracted; kernels that
  multiply one vector with many compute those once. 4-bit integers come raised to 0 … 15, and are the unsigned operand
  of AVX2 and SSE too.
- AVX2, SSE and WebAssembly: bytes as 16-bit integers, even and odd ones apart, through the product of pairs.
- Arm: sdot, and smmla for two rows times two columns. Elsewhere: arithmetic in vectors.

In the names, n is the number of sums: 4 and 8 are what instructions take, wider ones are made of two halves.
"""

from __future__ import annotations

_HEAD = "static inline __attribute__((always_inline)) "

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

# Products of the low halves of bytes, 0 … 15, with b, and of the high ones with d.
_NIBBLES = {
    4: """i32x4 nibbles_x4(u32x4 a, i8x16 b, i8x16 d, i32x4 c) {
  u32x4 mask = (u32x4)(0x0f0f0f0fu);
#ifdef __wasm__
  __asm__("" : "+r"(mask));
#endif
  const i8x16 low = (i8x16)(a & mask), high = (i8x16)(a >> 4 & mask);
#if defined(__AVXVNNI__) || (defined(__AVX512VNNI__) && defined(__AVX512VL__))
  return (i32x4)__builtin_ia32_vpdpbusd128((i32x4)__builtin_ia32_vpdpbusd128(c, low, b), high, d);
#elif defined(__SSSE3__)
  const i16x8 sums = (i16x8)__builtin_ia32_pmaddubsw128(low, b) + (i16x8)__builtin_ia32_pmaddubsw128(high, d);
  return c + pairs_x4(sums, 1);
#elif defined(__wasm_relaxed_simd__)
  c = (i32x4)__builtin_wasm_relaxed_dot_i8x16_i7x16_add_s_i32x4(b, low, c);
  return (i32x4)__builtin_wasm_relaxed_dot_i8x16_i7x16_add_s_i32x4(d, high, c);
#else
  return dot_x4(high, d, dot_x4(low, b, c));
#endif
}
""",
    8: f"""i32x8 nibbles_x8(u32x8 a, i8x32 b, i8x32 d, i32x8 c) {{
#if defined(__AVX2__)
  const i8x32 low = (i8x32)(a & 0x0f0f0f0fu), high = (i8x32)(a >> 4 & 0x0f0f0f0fu);
#if defined(__AVXVNNI__) || (defined(__AVX512VNNI__) && defined(__AVX512VL__))
  return (i32x8)__builtin_ia32_vpdpbusd256((i32x8)__builtin_ia32_vpdpbusd256(c, low, b), high, d);
#else
  const i16x16 sums = (i16x16)__builtin_ia32_pmaddubsw256(low, b) + (i16x16)__builtin_ia32_pmaddubsw256(high, d);
  return c + pairs_x8(sums, 1);
#endif
#else
{_halves("nibbles", "a b d c", 8)}#endif
}}
""",
}

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


def helpers(n: int, nibbles: bool) -> tuple[dict[str, str], set[str]]:
    """The functions `dot_xN` and, where it is wanted, `nibbles_xN` for n sums, with all they use, and the vector types
    they need. The first operand is int8, or for nibbles uint32 words.
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
        if nibbles:
            wide = _wide("nibbles", f"u32x{m} a, i8x{4 * m} b, i8x{4 * m} d", "a b d", m)
            found[f"c_nibbles_x{m:02}"] = _HEAD + _NIBBLES.get(m, wide)
    vectors = {f"{t}x{s * m}" for m in widths for t, s in (("i8", 4), ("i16", 2), ("i32", 1), ("u32", 1))}
    return found, vectors


def matrices() -> tuple[dict[str, str], set[str]]:
    """The function `matrix_2x2`, with all it uses, and the vector types they need."""
    texts, vectors = helpers(8, False)
    return {**texts, "d_matrix": _HEAD + _MATRIX}, {*vectors, "i64x2"}


def _wide(name: str, declared: str, operands: str, n: int) -> str:
    return f"i32x{n} {name}_x{n}({declared}, i32x{n} c) {{\n{_halves(name, operands + ' c', n)}}}\n"

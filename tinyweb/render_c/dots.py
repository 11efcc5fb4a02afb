"""DOT in C: c + sums of four products of 8-bit integers, exact for all of them, by what the processor has for it.

- VNNI, and 4-bit integers wherever one operand of an instruction is unsigned: a constant is added to an operand to make
  it so, and the constant's products are subtracted; kernels that multiply one vector with many compute those once.
- AVX2, SSE and WebAssembly: bytes as 16-bit integers, even and odd ones apart, through the product of pairs.
- Arm: sdot. Elsewhere: arithmetic in vectors.

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

_HALVES = "  return __builtin_shufflevector({f}(a.lo, b.lo, c.lo), {f}(a.hi, b.hi, c.hi), {all});\n"

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
{_HALVES.format(f="dot_x4", all=", ".join(map(str, range(8))))}#endif
}}
""",
}

# Products of bytes 0 … 15 with others, less 8 times the others: those are the same for many calls.
_SMALL = {
    4: """i32x4 small_x4(i8x16 a, i8x16 b, i32x4 c) {
  const i8x16 eight = (i8x16)(8);
#if defined(__AVXVNNI__) || (defined(__AVX512VNNI__) && defined(__AVX512VL__))
  return (i32x4)__builtin_ia32_vpdpbusd128(c, a, b) - (i32x4)__builtin_ia32_vpdpbusd128((i32x4)(0), eight, b);
#elif defined(__SSSE3__)
  return c + pairs_x4((i16x8)__builtin_ia32_pmaddubsw128(a, b) - (i16x8)__builtin_ia32_pmaddubsw128(eight, b), 1);
#elif defined(__wasm_relaxed_simd__)
  return (i32x4)__builtin_wasm_relaxed_dot_i8x16_i7x16_add_s_i32x4(b, a, c) -
         (i32x4)__builtin_wasm_relaxed_dot_i8x16_i7x16_add_s_i32x4(b, eight, (i32x4)(0));
#else
  return dot_x4(a - eight, b, c);
#endif
}
""",
    8: f"""i32x8 small_x8(i8x32 a, i8x32 b, i32x8 c) {{
  const i8x32 eight = (i8x32)(8);
#if defined(__AVXVNNI__) || (defined(__AVX512VNNI__) && defined(__AVX512VL__))
  return (i32x8)__builtin_ia32_vpdpbusd256(c, a, b) - (i32x8)__builtin_ia32_vpdpbusd256((i32x8)(0), eight, b);
#elif defined(__AVX2__)
  return c + pairs_x8((i16x16)__builtin_ia32_pmaddubsw256(a, b) - (i16x16)__builtin_ia32_pmaddubsw256(eight, b), 1);
#else
{_HALVES.format(f="small_x4", all=", ".join(map(str, range(8))))}#endif
}}
""",
}

_PACKED = """i32x{n} dot4_x{n}(u32x{w} a, i8x{b} b, i32x{n} c) {{
  const u16x{h} spaced = __builtin_convertvector((u8x{h})(a ^ 0x88888888u), u16x{h});
  return small_x{n}((i8x{b})((spaced | spaced << 4) & (unsigned short)0x0f0f), b, c);
}}
"""

_INCLUDE = "#if defined(__ARM_FEATURE_DOTPROD)\n#include <arm_neon.h>\n#endif\n"


def helpers(n: int, packed: bool) -> tuple[dict[str, str], set[str]]:
    """The functions `dot_xN` and, `packed`, `dot4_xN` for n sums with all they use, and the vector types they need.

    `packed`: the first operand is uint32 words of eight 4-bit integers each, else int8.
    """
    wider = [m for m in (8, 16, 32) if m <= n]
    widths = [4, *wider]
    if n not in widths:
        raise ValueError(f"a DOT has 4, 8, 16 or 32 sums, not {n}")
    # sorted by name where they are written: the order in which they use each other
    found: dict[str, str] = {"a_pairs_x04": _INCLUDE + _HEAD + _PAIRS[4]}
    if n >= 8:
        found["a_pairs_x08"] = _HEAD + _PAIRS[8]
    for kind, table, name in (("b", _DOT, "dot"), ("c", _SMALL, "small")):
        for m in widths if kind == "b" or packed else ():
            halves = _HALVES.format(f=f"{name}_x{m // 2}", all=", ".join(map(str, range(m))))
            wide = f"i32x{m} {name}_x{m}(i8x{4 * m} a, i8x{4 * m} b, i32x{m} c) {{\n{halves}}}\n"
            found[f"{kind}_{name}_x{m:02}"] = _HEAD + table.get(m, wide)
    if packed:
        found[f"d_dot4_x{n:02}"] = _HEAD + _PACKED.format(n=n, w=n // 2, h=2 * n, b=4 * n)
    vectors = {f"{t}x{s * m}" for m in widths for t, s in (("i8", 4), ("i16", 2), ("i32", 1))}
    if packed:
        vectors |= {f"u32x{n // 2}", f"u8x{2 * n}", f"u16x{2 * n}"}
    return found, vectors

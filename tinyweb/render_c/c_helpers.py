"""Small C functions that a kernel may need, instantiated for the number of lanes at hand.

They work on vectors only; a scalar is a vector of one lane. Comparisons of vectors give all-ones masks.
"""

from __future__ import annotations

from string import Template

_HEAD = "static inline __attribute__((always_inline)) "

# NaN in either operand gives NaN. Of whole vectors the larger of two is one instruction, which takes the first operand
# if they are not ordered; all ones are a NaN. WebAssembly's own maximum, which orders zeros too, is eight in V8.
MAXIMUM = Template(
    _HEAD
    + """${f}x${n} maximum_${f}x${n}(${f}x${n} a, ${f}x${n} b) {
#if ${vectors} && ${n} == 1
  return (${f}x1)(b[0] != b[0] ? b[0] : a[0] < b[0] ? b[0] : a[0]);
#elif ${vectors}
  return (${f}x${n})((${i}x${n})(a < b ? b : a) | (${i}x${n})(b != b));
#elif defined(__wasm__) && __has_builtin(__builtin_elementwise_maximum)
  return __builtin_elementwise_maximum(a, b);
#else
  return ((a > b) | (a != a)) ? a : b;
#endif
}
"""
)

# The same where `a` is no NaN: the second operand is what is taken if they are not ordered.
AT_LEAST = Template(
    _HEAD
    + """${f}x${n} at_least_${f}x${n}(${f}x${n} a, ${f}x${n} b) {
  return a > b ? a : b;
}
"""
)

# Lanes whose mask is not set are 0, and nothing is read for them.
MASKED_LOAD = Template(
    _HEAD
    + """${t}x${n} masked_${t}x${n}(const ${t} *p, i32x${n} m) {
#if __has_builtin(__builtin_masked_load)
  typedef _Bool bits __attribute__((ext_vector_type(${n})));
  return __builtin_masked_load(__builtin_convertvector(m, bits), p, (${t}x${n})(0));
#else
  return (${t}x${n}){${lanes}};
#endif
}
"""
)

# The bits of a half to a single: its exponent and mantissa in place, all ones for that of infinities and NaNs, and a
# multiplication that rebiases the exponent: it is exact and normalises subnormals. `${u}` is what the bits come in;
# `${placed}` puts them in place.
F16_TO_F32 = Template(
    _HEAD
    + """f32x${n} f16_in_${u}_to_f32x${n}(${u}x${n} half) {
#if defined(__F16C__) || defined(__aarch64__)
  return __builtin_convertvector(__builtin_bit_cast(f16x${n}, __builtin_convertvector(half, u16x${n})), f32x${n});
${hidden}#else
${placed} * 0x1p112f;
#endif
}
"""
)

# A single to the bits of a half, to nearest even. Adding 0.5 rounds a subnormal result: 0.5 has its last place there.
F32_TO_F16 = Template(
    _HEAD
    + """u32x${n} f32_to_f16x${n}(f32x${n} single) {
#if defined(__F16C__) || defined(__aarch64__)
  return __builtin_convertvector(__builtin_bit_cast(u16x${n}, __builtin_convertvector(single, f16x${n})), u32x${n});
#else
  const u32x${n} bits = (u32x${n})single;
  const i32x${n} size = (i32x${n})(bits & 0x7fffffffu);
  const i32x${n} normal = (size - (112 << 23) + 0xfff + ((size >> 13) & 1)) >> 13;
  const i32x${n} small = (i32x${n})((f32x${n})size + 0.5f) - 0x3f000000;
  i32x${n} half = size < 0x38800000 ? small : normal;
  half = size >= 0x477ff000 ? (i32x${n})(0x7c00) : half;
  half = size > 0x7f800000 ? 0x7e00 | ((size >> 13) & 0x1ff) : half;
  return (u32x${n})half | ((bits >> 16) & 0x8000u);
#endif
}
"""
)

PLACED = {
    # the halves of the result are made side by side, twice as many in a vector, and interleaved
    "u16": Template("""\
  const i16x${n} bits = (i16x${n})half, low = bits << 13;
  const i16x${n} high = (bits >> 3 & ~0x7000) | ((i16x${n})((bits & 0x7c00) == 0x7c00) & 0x7f80);
  return (f32x${n})__builtin_shufflevector(low, high, ${interleaved})"""),
    "u32": Template("""\
  const u32x${n} bits = (u32x${n})((i32x${n})(half << 16) >> 3) & 0x8fffe000u;
  return (f32x${n})(bits | ((u32x${n})((bits & 0x0f800000u) == 0x0f800000u) & 0x7f800000u))"""),
}
"""The bits of a half where those of a single are, by the type they come in."""

# The same for eight in WebAssembly: Clang keeps no constant from one step of a loop to the next, unless it is hidden
# from it, and V8 takes three instructions for each.
HIDDEN = """\
#elif defined(__wasm__)
  const i16x8 bits = (i16x8)half, low = bits << 13;
  i16x8 kept = (i16x8)(~0x7000), most = (i16x8)(0x7c00), ones = (i16x8)(0x7f80);
  f32 __attribute__((ext_vector_type(4))) scale = 0x1p112f;
  __asm__("" : "+r"(kept), "+r"(most), "+r"(ones), "+r"(scale));
  const i16x8 high = (bits >> 3 & kept) | ((i16x8)((bits & most) == most) & ones);
  return (f32x8)__builtin_shufflevector(low, high, 0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15)
    * __builtin_shufflevector(scale, scale, 0, 1, 2, 3, 0, 1, 2, 3);
"""


# One half alone, such as a block's scale, in a scalar's register and without subnormal singles, which are slow to
# multiply: scales of blocks are often subnormal halves.
ONE_HALF = (
    _HEAD
    + """f32x1 f16_in_u16_to_f32x1(u16x1 half) {
#if defined(__F16C__) || defined(__aarch64__)
  return __builtin_convertvector(__builtin_bit_cast(f16x1, half), f32x1);
#else
  const u32 bits = half[0], size = (bits & 0x7fffu) << 13, sign = (bits & 0x8000u) << 16;
  const u32 normal = size + (size < 0x0f800000u ? 0x38000000u : 0x70000000u);
  const u32 small = __builtin_bit_cast(u32, __builtin_bit_cast(f32, size + 0x38800000u) - 0x1p-14f);
  return (f32x1)__builtin_bit_cast(f32, (size < 0x00800000u ? small : normal) | sign);
#endif
}
"""
)


def half_to_single(kind: str, n: int) -> str:
    """The function that converts `n` halves, whose bits come in `kind`, u16 or the low half of u32."""
    if n == 1 and kind == "u16":
        return ONE_HALF
    placed = PLACED[kind].substitute(n=n, interleaved=", ".join(f"{i}, {n + i}" for i in range(n)))
    return F16_TO_F32.substitute(n=n, u=kind, placed=placed, hidden=HIDDEN if (kind, n) == ("u16", 8) else "")


# Integers of 8 or 16 bits to singles: for wasm32 Clang converts them one by one, unless it does not know what integers
# of 32 bits are made of.
NARROW_TO_F32 = Template(
    _HEAD
    + """f32x${n} ${t}x${n}_to_f32x${n}(${t}x${n} narrow) {
#ifdef __wasm__
${parts}
#else
  return __builtin_convertvector(narrow, f32x${n});
#endif
}
"""
)


def narrow_to_single(kind: str, n: int) -> tuple[str, set[str]]:
    """The function that converts `n` integers, 8 or those of several functions for 8, and the vectors it needs."""
    half, lanes = f"{kind[0]}16x8", ", ".join(map(str, range(n)))
    if n == 8:
        parts = f"""\
  {half} half = __builtin_convertvector(narrow, {half});
  __asm__("" : "+r"(half));
  const i32x8 whole = __builtin_convertvector(half, i32x8);
  i32x4 low = __builtin_shufflevector(whole, whole, 0, 1, 2, 3);
  i32x4 high = __builtin_shufflevector(whole, whole, 4, 5, 6, 7);
  __asm__("" : "+r"(low), "+r"(high));
  const f32x4 a = __builtin_convertvector(low, f32x4), b = __builtin_convertvector(high, f32x4);
  return __builtin_shufflevector(a, b, {lanes});"""
    else:
        low, high = (f"__builtin_shufflevector(narrow, narrow, {', '.join(map(str, range(i, i + 8)))})" for i in (0, 8))
        function = f"{kind}x8_to_f32x8"
        parts = f"  return __builtin_shufflevector({function}({low}), {function}({high}), {lanes});"
    kinds = {f"{kind}x{n}", f"f32x{n}", half, "i32x8", "i32x4", "f32x4"}
    return NARROW_TO_F32.substitute(t=kind, n=n, parts=parts), kinds


HALF_LANES = ("f16", "i16", "u16", "i32", "u32", "f32")
"""Element types the conversions need vectors of."""

"""What kernels in CUDA C++ take for granted, as text before them: NVRTC has no headers, no operators of vectors, and no
half floats."""

from __future__ import annotations

_FUNCTION = "__device__ __forceinline__"


def _lanewise(head: str, result: str, lane: str) -> str:
    """A function of vectors that does the same for each lane."""
    return (
        f"template <class T, int N> {_FUNCTION} {result} {head} {{\n  {result} out;\n"
        f"#pragma unroll\n  for (int i = 0; i < N; i++) out[i] = {lane};\n  return out;\n}}\n"
    )


def _functions(name: str, single: str, double: str, parameters: str = "x") -> str:
    """A function of floats, doubles and vectors of them."""
    names = parameters.split()
    parts = [
        f"{_FUNCTION} {t} {name}({', '.join(f'{t} {n}' for n in names)}) {{ return {function}({', '.join(names)}); }}\n"
        for t, function in (("float", single), ("double", double))
    ]
    head = f"{name}({', '.join(f'Vector<T, N> {n}' for n in names)})"
    return "".join(parts) + _lanewise(head, "Vector<T, N>", f"{name}({', '.join(f'{n}[i]' for n in names)})")


def _operator(op: str, unary: bool = False) -> str:
    if unary:
        return _lanewise(f"operator{op}(Vector<T, N> a)", "Vector<T, N>", f"{op}a[i]")
    return _lanewise(f"operator{op}(Vector<T, N> a, Vector<T, N> b)", "Vector<T, N>", f"a[i] {op} b[i]")


def _comparison(op: str) -> str:
    """Integers of the same width, with all bits set or none."""
    head = f"operator{op}(Vector<T, N> a, Vector<T, N> b)"
    return _lanewise(head, "Vector<Mask<sizeof(T)>, N>", f"a[i] {op} b[i] ? -1 : 0")


def _pairs(half: str, ptx: str) -> str:
    """Vectors of floats as narrower ones: two at a time, where there is an instruction for it."""
    return f"""
template <class T, int N> struct Vector;
template <class To, class From> struct Conversion;
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
template <int N> struct Conversion<Vector<{half}, N>, Vector<float, N>> {{
  static {_FUNCTION} Vector<{half}, N> of(Vector<float, N> a) {{
    static_assert(N % 2 == 0, "vectors are pairs");
    unsigned words[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; i++)
      asm("cvt.rn.{ptx}x2.f32 %0, %1, %2;" : "=r"(words[i]) : "f"(a[2 * i + 1]), "f"(a[2 * i]));
    Vector<{half}, N> c;
    memcpy(&c, words, sizeof c);
    return c;
  }}
}};
#endif"""


# Arithmetic is float's: a half is a form of memory. Conversions are single instructions.
CUDA_HALF = f"""\
struct Half {{
  unsigned short bits;
  Half() = default;
  {_FUNCTION} Half(float x) {{ asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x)); }}
  {_FUNCTION} Half(double x) {{ asm("cvt.rn.f16.f64 %0, %1;" : "=h"(bits) : "d"(x)); }}
  template <class T> {_FUNCTION} Half(T x) : Half((float)x) {{}}
  {_FUNCTION} operator float() const {{ float x; asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits)); return x; }}
}};{_pairs("Half", "f16")}"""

CUDA_BRAIN = f"""\
struct Brain {{
  unsigned short bits;
  Brain() = default;
  {_FUNCTION} Brain(float x) {{ asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x)); }}
  template <class T> {_FUNCTION} Brain(T x) : Brain((float)x) {{}}
  {_FUNCTION} operator float() const {{ return __uint_as_float((unsigned)bits << 16); }}
}};{_pairs("Brain", "bf16")}"""

CUDA_PRELUDE = f"""\
#ifndef LOOP
#define LOOP
#define WRITTEN_OUT _Pragma("unroll")
#endif
template <int BYTES> struct MaskOf;
template <> struct MaskOf<1> {{ typedef signed char type; }};
template <> struct MaskOf<2> {{ typedef short type; }};
template <> struct MaskOf<4> {{ typedef int type; }};
template <> struct MaskOf<8> {{ typedef long long type; }};
template <int BYTES> using Mask = typename MaskOf<BYTES>::type;
{_FUNCTION} constexpr int alignment(int bytes, int one) {{
  return bytes & (bytes - 1) ? one : bytes > 16 ? 16 : bytes;
}}
template <class T, int N> struct alignas(alignment(sizeof(T) * N, sizeof(T))) Vector {{
  T lanes[N];
  Vector() = default;
  {_FUNCTION} explicit Vector(T value) {{
#pragma unroll
    for (int i = 0; i < N; i++) lanes[i] = value;
  }}
  template <class... U> {_FUNCTION} Vector(T a, T b, U... more) : lanes{{a, b, (T)more...}} {{}}
  {_FUNCTION} T &operator[](int i) {{ return lanes[i]; }}
  {_FUNCTION} const T &operator[](int i) const {{ return lanes[i]; }}
}};
{"".join(map(_operator, ("+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>")))}\
{"".join(_operator(op, unary=True) for op in ("-", "~"))}\
{"".join(map(_comparison, ("<", ">", "==", "!=")))}\
{_functions("root", "__fsqrt_rn", "__dsqrt_rn")}\
{_functions("floor_of", "floorf", "floor")}\
{_functions("trunc_of", "truncf", "trunc")}\
{_functions("round_of", "rintf", "rint")}\
{_functions("multiply_add", "__fmaf_rn", "__fma_rn", "a b c")}\
template <class C, class T, int N>
{_FUNCTION} Vector<T, N> choose(Vector<C, N> c, Vector<T, N> a, Vector<T, N> b) {{
#pragma unroll
  for (int i = 0; i < N; i++) a[i] = c[i] ? a[i] : b[i];
  return a;
}}
template <class To, class From> struct Conversion;
template <class To, class From, int N> struct Conversion<Vector<To, N>, Vector<From, N>> {{
  static {_FUNCTION} Vector<To, N> of(Vector<From, N> a) {{
    Vector<To, N> c;
#pragma unroll
    for (int i = 0; i < N; i++) c[i] = a[i];
    return c;
  }}
}};
template <class To, class From> {_FUNCTION} To convert(From a) {{ return Conversion<To, From>::of(a); }}
template <class To, class From> {_FUNCTION} To as(From value) {{
  static_assert(sizeof(To) == sizeof(From), "other bits");
  To out;
  memcpy(&out, &value, sizeof(To));
  return out;
}}
"""

CUDA_AND_OR = f"""\
{_FUNCTION} unsigned and_or(unsigned a, unsigned b, unsigned c) {{
#ifdef __CUDA_ARCH__
  unsigned out;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(out) : "r"(a), "r"(b), "r"(c));
  return out;
#else
  return a & b | c;
#endif
}}
template <int N>
{_FUNCTION} Vector<unsigned, N> and_or(Vector<unsigned, N> a, Vector<unsigned, N> b, Vector<unsigned, N> c) {{
#pragma unroll
  for (int i = 0; i < N; i++) a[i] = and_or(a[i], b[i], c[i]);
  return a;
}}
"""

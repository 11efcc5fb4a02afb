"""What kernels in CUDA C++ and HIP C++ take for granted, as text before them."""

from __future__ import annotations

OPENCL_PRELUDE = """\
#pragma OPENCL FP_CONTRACT OFF
#ifdef FP_FAST_FMAF
#define multiply_add(a, b, c) fma(a, b, c)
#else
#define multiply_add(a, b, c) ((a) * (b) + (c))
#endif
"""

# NVRTC knows no vectors with operators. Comparisons give integers of the same width with all bits set or none.
_OPERATORS = "".join(
    f"""\
template <class T, int N> __device__ __forceinline__ Vector<T, N> operator{op}(Vector<T, N> a, Vector<T, N> b) {{
  Vector<T, N> c;
#pragma unroll
  for (int i = 0; i < N; i++) c[i] = a[i] {op} b[i];
  return c;
}}
"""
    for op in ("+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>")
)
_COMPARISONS = "".join(
    f"""\
template <class T, int N>
__device__ __forceinline__ Vector<Mask<sizeof(T)>, N> operator{op}(Vector<T, N> a, Vector<T, N> b) {{
  Vector<Mask<sizeof(T)>, N> c;
#pragma unroll
  for (int i = 0; i < N; i++) c[i] = a[i] {op} b[i] ? -1 : 0;
  return c;
}}
"""
    for op in ("<", ">", "==", "!=")
)
_UNARY = "".join(
    f"""\
template <class T, int N> __device__ __forceinline__ Vector<T, N> operator{op}(Vector<T, N> a) {{
#pragma unroll
  for (int i = 0; i < N; i++) a[i] = {op}a[i];
  return a;
}}
"""
    for op in ("-", "~")
)
_FUNCTIONS = "".join(
    f"""\
__device__ __forceinline__ float {name}(float x) {{ return {single}(x); }}
__device__ __forceinline__ double {name}(double x) {{ return {double}(x); }}
template <class T, int N> __device__ __forceinline__ Vector<T, N> {name}(Vector<T, N> a) {{
#pragma unroll
  for (int i = 0; i < N; i++) a[i] = {name}(a[i]);
  return a;
}}
"""
    for name, single, double in (
        ("root", "sqrtf", "sqrt"), ("floor_of", "floorf", "floor"), ("trunc_of", "truncf", "trunc"),
        ("round_of", "rintf", "rint"),
    )
)  # fmt: skip

CUDA_PRELUDE = f"""\
template <int BYTES> struct MaskOf;
template <> struct MaskOf<1> {{ typedef signed char type; }};
template <> struct MaskOf<2> {{ typedef short type; }};
template <> struct MaskOf<4> {{ typedef int type; }};
template <> struct MaskOf<8> {{ typedef long long type; }};
template <int BYTES> using Mask = typename MaskOf<BYTES>::type;

constexpr int alignment(int bytes, int one) {{ return bytes & (bytes - 1) ? one : bytes > 16 ? 16 : bytes; }}

template <class T, int N> struct alignas(alignment(sizeof(T) * N, sizeof(T))) Vector {{
  T lanes[N];
  Vector() = default;
  __device__ __forceinline__ explicit Vector(T value) {{
#pragma unroll
    for (int i = 0; i < N; i++) lanes[i] = value;
  }}
  template <class... U> __device__ __forceinline__ Vector(T a, T b, U... more) : lanes{{a, b, (T)more...}} {{}}
  __device__ __forceinline__ T &operator[](int i) {{ return lanes[i]; }}
  __device__ __forceinline__ const T &operator[](int i) const {{ return lanes[i]; }}
}};
{_OPERATORS}{_COMPARISONS}{_UNARY}{_FUNCTIONS}
template <class C, class T, int N>
__device__ __forceinline__ Vector<T, N> choose(Vector<C, N> c, Vector<T, N> a, Vector<T, N> b) {{
#pragma unroll
  for (int i = 0; i < N; i++) a[i] = c[i] ? a[i] : b[i];
  return a;
}}
__device__ __forceinline__ float multiply_add(float a, float b, float c) {{ return fmaf(a, b, c); }}
__device__ __forceinline__ double multiply_add(double a, double b, double c) {{ return fma(a, b, c); }}
template <class T, int N>
__device__ __forceinline__ Vector<T, N> multiply_add(Vector<T, N> a, Vector<T, N> b, Vector<T, N> c) {{
#pragma unroll
  for (int i = 0; i < N; i++) c[i] = multiply_add(a[i], b[i], c[i]);
  return c;
}}
template <class To, class T, int N> __device__ __forceinline__ To convert(Vector<T, N> a) {{
  To c;
#pragma unroll
  for (int i = 0; i < N; i++) c[i] = a[i];
  return c;
}}
template <class To, class From> __device__ __forceinline__ To as(From value) {{
  static_assert(sizeof(To) == sizeof(From), "other bits");
  To out;
  memcpy(&out, &value, sizeof(To));
  return out;
}}
"""

HIP_PRELUDE = """\
#ifndef __global__
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#endif
static inline __device__ __attribute__((always_inline)) void workgroup_barrier(void) {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
#define WAVE __builtin_amdgcn_wavefrontsize()
static inline __device__ __attribute__((always_inline)) i32 lane_number(void) {
  return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0));
}
template <class T> static inline __device__ __attribute__((always_inline)) T of_lane(T x, i32 lane) {
  return __builtin_bit_cast(T, __builtin_amdgcn_ds_bpermute(lane << 2, __builtin_bit_cast(i32, x)));
}
template <class T> static inline __device__ __attribute__((always_inline)) T of_first_lane(T x) {
  return __builtin_bit_cast(T, __builtin_amdgcn_readfirstlane(__builtin_bit_cast(i32, x)));
}
static inline __device__ __attribute__((always_inline)) i32 dot4_i8(u32 a, u32 b, i32 c) {
#if defined(__GFX9__) || defined(__GFX10__)
  return __builtin_amdgcn_sdot4((i32)a, (i32)b, c, false);
#else
  return __builtin_amdgcn_sudot4(true, (i32)a, true, (i32)b, c, false);
#endif
}
"""

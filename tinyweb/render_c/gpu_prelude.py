"""What kernels in OpenCL C and HIP C++ take for granted, as text before them."""

from __future__ import annotations

OPENCL_PRELUDE = """\
#pragma OPENCL FP_CONTRACT OFF
#ifdef FP_FAST_FMAF
#define multiply_add(a, b, c) fma(a, b, c)
#else
#define multiply_add(a, b, c) ((a) * (b) + (c))
#endif
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

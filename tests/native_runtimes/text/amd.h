// HIP C++: what kernels take for granted of AMD's GPUs, behind threads.h.
#define __global__
#define __device__
#define __shared__ static
#define amdgpu_flat_work_group_size(least, most) unused

// Products of matrices by a wave, as AMD's instruction set manuals (CDNA3, RDNA3, RDNA4) say where elements lie: lane n has
// row n % 16 of A and column n % 16 of B, of the steps as many neighbours as fit it; sums are those of column n % 16.
enum Rows { MFMA, WMMA11, WMMA12 };
static unsigned char operands[2][MOST][64];
template <class T> static T element(int which, int row, int group, int item) {
  T value;
  const unsigned thread = gpu.current - lane_of_thread() + row + 16 * group;
  __builtin_memcpy(&value, operands[which][thread] + item * sizeof(T), sizeof(T));
  return value;
}
template <class T, int STEPS, Rows ROWS, class A, class C> static C product(A a, A b, C sums) {
  static_assert(sizeof(A) <= 64, "too long");
  const int lane = lane_of_thread(), held = sizeof(A) / sizeof(T);
  __builtin_memcpy(operands[0][gpu.current], &a, sizeof(A));
  __builtin_memcpy(operands[1][gpu.current], &b, sizeof(A));
  wait_for_others();
  for (int i = 0; i < (int)(sizeof(C) / 4); ++i) {
    const int row = ROWS == MFMA ? lane / 16 * 4 + i : ROWS == WMMA11 ? 2 * i + lane / 16 : lane / 16 * 8 + i;
    auto sum = sums[i];
    for (int k = 0; k < STEPS; ++k)
      sum += (decltype(sum))element<T>(0, row, k / held, k % held) * (decltype(sum))element<T>(1, lane % 16, k / held, k % held);
    sums[i] = sum;
  }
  // of RDNA3 both halves of a wave have all of the operands
  if (ROWS == WMMA11 && __builtin_memcmp(operands[0][gpu.current], operands[0][gpu.current ^ 16], sizeof(A)))
    gpu.wrong = "the halves of a wave have different operands";
  wait_for_others();
  return sums;
}
#define __builtin_amdgcn_exp2f(x) power_of_two(x)
#define __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, c, x, y, z) product<_Float16, 16, MFMA>(a, b, c)
#define __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, c, x, y, z) product<Bfloat, 16, MFMA>(a, b, c)
#define __builtin_amdgcn_mfma_f32_16x16x4f32(a, b, c, x, y, z) product<float, 4, MFMA>(a, b, c)
#define __builtin_amdgcn_mfma_i32_16x16x32_i8(a, b, c, x, y, z) product<signed char, 32, MFMA>(a, b, c)
#define __builtin_amdgcn_mfma_i32_16x16x16i8(a, b, c, x, y, z) product<signed char, 16, MFMA>(a, b, c)
#define __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(a, b, c, x, y, z) product<E4M3, 32, MFMA>(a, b, c)
#define __builtin_amdgcn_mfma_f32_16x16x32_bf8_bf8(a, b, c, x, y, z) product<E5M2, 32, MFMA>(a, b, c)
#define __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, b, c) product<_Float16, 16, WMMA11>(a, b, c)
#define __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(a, b, c) product<Bfloat, 16, WMMA11>(a, b, c)
#define __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(as, a, bs, b, c, clamp) product<signed char, 16, WMMA11>(a, b, c)
#define __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(a, b, c) product<_Float16, 16, WMMA12>(a, b, c)
#define __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(a, b, c) product<Bfloat, 16, WMMA12>(a, b, c)
#define __builtin_amdgcn_wmma_f32_16x16x16_fp8_fp8_w32_gfx12(a, b, c) product<E4M3, 16, WMMA12>(a, b, c)
#define __builtin_amdgcn_wmma_f32_16x16x16_bf8_bf8_w32_gfx12(a, b, c) product<E5M2, 16, WMMA12>(a, b, c)
#define __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(as, a, bs, b, c, clamp) product<signed char, 16, WMMA12>(a, b, c)

#define __builtin_amdgcn_workgroup_id_x() gpu.group[0]
#define __builtin_amdgcn_workgroup_id_y() gpu.group[1]
#define __builtin_amdgcn_workgroup_id_z() gpu.group[2]
#define __builtin_amdgcn_workitem_id_x() gpu.thread[0]
#define __builtin_amdgcn_workitem_id_y() gpu.thread[1]
#define __builtin_amdgcn_workitem_id_z() gpu.thread[2]
#define __builtin_amdgcn_wavefrontsize() LANES
#define __builtin_amdgcn_fence(order, scope)
#define __builtin_amdgcn_s_barrier() wait_for_others()
#define __builtin_amdgcn_mbcnt_lo(mask, base) lane_of_thread()
#define __builtin_amdgcn_mbcnt_hi(mask, base) (base)
#define __builtin_amdgcn_read_exec() lanes_with_threads()
#define __builtin_amdgcn_ds_bpermute(place, word) word_of_lane((place) >> 2, word)
#define __builtin_amdgcn_readfirstlane(word) word_of_lane(0, word)
#define __builtin_amdgcn_sdot4(a, b, c, clamp) dot_of_bytes(a, b, c)
#define __builtin_amdgcn_sudot4(as, a, bs, b, c, clamp) dot_of_bytes(a, b, c)


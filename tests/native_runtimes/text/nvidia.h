// CUDA C++: what NVRTC knows without headers, and PTX instructions as functions of their operands, behind threads.h.
// PTX ISA 8 and later: "Warp Level Matrix Multiply-Accumulate Instructions", ldmatrix, cp.async, cvt.
#define __global__
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(threads, groups)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __shared__ static
#define memcpy __builtin_memcpy

struct Index {
  unsigned x, y, z;
};
#define blockIdx (*(const Index *)gpu.group)
#define threadIdx (*(const Index *)gpu.thread)
#define __syncthreads wait_for_others
extern "C" {
unsigned char shared[256 << 10] __attribute__((aligned(16)));  // what a launch gives
}

// -- functions ---------------------------------------------------------------------------------------------------------
static float __fsqrt_rn(float x) { return __builtin_sqrtf(x); }
static double __dsqrt_rn(double x) { return __builtin_sqrt(x); }
static float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
static double __fma_rn(double a, double b, double c) { return __builtin_fma(a, b, c); }
static float floorf(float x) { return __builtin_floorf(x); }
static double floor(double x) { return __builtin_floor(x); }
static float truncf(float x) { return __builtin_truncf(x); }
static double trunc(double x) { return __builtin_trunc(x); }
static float rintf(float x) { return __builtin_rintf(x); }
static double rint(double x) { return __builtin_rint(x); }
static float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
static int __popc(unsigned x) { return __builtin_popcount(x); }
static int __dp4a(int a, int b, int c) { return dot_of_bytes(a, b, c); }
static unsigned atomicAnd(unsigned *place, unsigned value) { const unsigned old = *place; *place &= value; return old; }
static unsigned atomicOr(unsigned *place, unsigned value) { const unsigned old = *place; *place |= value; return old; }

// -- threads of a warp -------------------------------------------------------------------------------------------------
static unsigned __activemask() { return (unsigned)lanes_with_threads(); }
// The mask must name all lanes that have threads: they come here together. Beyond the last lane one has its own word.
template <class T> static T of_lane_in(unsigned mask, T x, int lane) {
  static_assert(sizeof(T) == 4, "words are exchanged");
  if ((mask & __activemask()) != __activemask()) gpu.wrong = "a shuffle leaves threads of its warp out";
  const int own = lane_of_thread();
  return __builtin_bit_cast(T, word_of_lane(lane < LANES ? lane : own, __builtin_bit_cast(int, x)));
}
template <class T> static T __shfl_sync(unsigned mask, T x, int lane) { return of_lane_in(mask, x, lane % LANES); }
template <class T> static T __shfl_xor_sync(unsigned mask, T x, int with) {
  return of_lane_in(mask, x, lane_of_thread() ^ with);
}
template <class T> static T __shfl_down_sync(unsigned mask, T x, int by) {
  return of_lane_in(mask, x, lane_of_thread() + by);
}

// -- conversions -------------------------------------------------------------------------------------------------------
static void cvt_rn_f16_f32(unsigned short &to, float x) { to = __builtin_bit_cast(unsigned short, (_Float16)x); }
static void cvt_rn_f16_f64(unsigned short &to, double x) { to = __builtin_bit_cast(unsigned short, (_Float16)x); }
static void cvt_f32_f16(float &to, unsigned short x) { to = (float)__builtin_bit_cast(_Float16, x); }
static void cvt_rn_bf16_f32(unsigned short &to, float x) {
  const unsigned bits = __builtin_bit_cast(unsigned, x);
  to = x != x ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;  // every NaN is this one
}

static void ex2_approx_ftz_f32(float &to, float x) { to = power_of_two(x); }
static void max_NaN_f32(float &to, float a, float b) { to = a != a || a > b ? a : b; }

// -- products of matrices ----------------------------------------------------------------------------------------------
// A register has neighbours of one row of A, or of one column of B; lane n has row n / 4 of A and that 8 below it.
struct Tf32 {
  unsigned bits;
  operator float() const { return __builtin_bit_cast(float, bits & 0xffffe000u); }
};
static unsigned fragments[MOST][6];
template <class T> static T item_of(int lane, int word, int item) {
  T value;
  const char *words = (const char *)&fragments[gpu.current - lane_of_thread() + lane][word];
  __builtin_memcpy(&value, words + item * sizeof(T), sizeof(T));
  return value;
}
template <class T, class C>
static void mma(C &c0, C &c1, C &c2, C &c3, unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
  const int lane = lane_of_thread(), n = 4 / sizeof(T);
  const unsigned words[6] = {a0, a1, a2, a3, b0, b1};
  __builtin_memcpy(fragments[gpu.current], words, sizeof words);
  wait_for_others();
  C *const sums[4] = {&c0, &c1, &c2, &c3};
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    for (int k = 0; k < 8 * n; ++k) {
      const int step = k % (4 * n) / n, high = k / (4 * n);
      const T a = item_of<T>(row % 8 * 4 + step, row / 8 + 2 * high, k % n), b = item_of<T>(column * 4 + step, 4 + high, k % n);
      *sums[i] += (C)a * (C)b;
    }
  }
  wait_for_others();
}
#define MMA(steps, name, sum, T, C)                                                                                   \
  static void mma_sync_aligned_m16n8k##steps##_row_col_##sum##_##name##_##name##_##sum(                               \
      C &c0, C &c1, C &c2, C &c3, unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1, C d0, \
      C d1, C d2, C d3) {                                                                                             \
    c0 = d0, c1 = d1, c2 = d2, c3 = d3;                                                                               \
    mma<T>(c0, c1, c2, c3, a0, a1, a2, a3, b0, b1);                                                                   \
  }
MMA(16, f16, f32, _Float16, float)
MMA(16, bf16, f32, Bfloat, float)
MMA(8, tf32, f32, Tf32, float)
MMA(32, e4m3, f32, E4M3, float)
MMA(32, e5m2, f32, E5M2, float)
MMA(32, s8, s32, signed char, int)

// -- shared memory -----------------------------------------------------------------------------------------------------
static char within;  // addresses of shared memory count from here: they have 32 bits
static unsigned __cvta_generic_to_shared(const void *address) { return (unsigned)((const char *)address - &within); }
static char *of_shared(unsigned address) { return &within + (int)address; }

// Each lane names a row of 16 bytes: of the n-th matrix of 8 rows the n-th 8 lanes. Lane n gets two neighbours of row n / 4.
static const unsigned short *rows[MOST];
template <bool TRANSPOSED> static void matrices(unsigned *const to[4], unsigned address) {
  const int lane = lane_of_thread();
  rows[gpu.current] = (const unsigned short *)of_shared(address);
  if ((unsigned long)rows[gpu.current] % 16) gpu.wrong = "a row of a matrix in shared memory is not aligned";
  wait_for_others();
  const unsigned short *const *mine = rows + (gpu.current - lane);
  for (int i = 0; i < 4; ++i) {
    unsigned halves[2];
    for (int j = 0; j < 2; ++j) {
      const int beside = lane % 4 * 2 + j, along = lane / 4;
      halves[j] = TRANSPOSED ? mine[8 * i + beside][along] : mine[8 * i + along][beside];
    }
    *to[i] = halves[0] | halves[1] << 16;
  }
  wait_for_others();
}
#define LDMATRIX(name, transposed)                                                              \
  static void name(unsigned &r0, unsigned &r1, unsigned &r2, unsigned &r3, unsigned address) { \
    unsigned *const to[4] = {&r0, &r1, &r2, &r3};                                               \
    matrices<transposed>(to, address);                                                          \
  }
LDMATRIX(ldmatrix_sync_aligned_m8n8_x4_shared_b16, false)
LDMATRIX(ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16, true)

// Copies happen as late as they may: when a thread waits for their group.
enum { COPIES = 512 };
struct Copy {
  char *to;
  const void *from;
  int bytes, count, group;
};
static struct {
  Copy copies[COPIES];
  int used, group;
} ahead[MOST];
static void ask_for_copy(unsigned to, const void *from, int bytes, int count) {
  auto &mine = ahead[gpu.current];
  if (to % bytes || (unsigned long)from % bytes) gpu.wrong = "a copy to shared memory is not aligned";
  if (mine.used == COPIES) gpu.wrong = "more copies to shared memory at a time than are kept here";
  else mine.copies[mine.used++] = Copy{of_shared(to), from, bytes, count, mine.group};
}
static void cp_async_cg_shared_global(unsigned to, const void *from, int bytes, int count) {
  ask_for_copy(to, from, bytes, count);
}
static void cp_async_ca_shared_global(unsigned to, const void *from, int bytes, int count) {
  ask_for_copy(to, from, bytes, count);
}
static void cp_async_commit_group() { ++ahead[gpu.current].group; }
static void cp_async_wait_group(int but) {
  auto &mine = ahead[gpu.current];
  int left = 0;
  for (int i = 0; i < mine.used; ++i) {
    const Copy copy = mine.copies[i];
    if (copy.group >= mine.group - but) {
      mine.copies[left++] = copy;
      continue;
    }
    __builtin_memset(copy.to, 0, copy.bytes);
    __builtin_memcpy(copy.to, copy.from, copy.count);
  }
  mine.used = left;
}

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
unsigned char shared[256 << 10] __attribute__((aligned(1024)));  // what a launch gives
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

static void cvt_rn_f16x2_f32(unsigned &to, float high, float low) {
  unsigned short halves[2];
  cvt_rn_f16_f32(halves[0], low), cvt_rn_f16_f32(halves[1], high);
  memcpy(&to, halves, sizeof to);
}
static void cvt_rn_bf16x2_f32(unsigned &to, float high, float low) {
  unsigned short halves[2];
  cvt_rn_bf16_f32(halves[0], low), cvt_rn_bf16_f32(halves[1], high);
  memcpy(&to, halves, sizeof to);
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
template <class T, int ROWS, int STEPS, class C> static void mma(C *const *sums, const unsigned *a, const unsigned *b) {
  const int lane = lane_of_thread(), n = 4 / sizeof(T), high_rows = ROWS / 8, high_steps = STEPS / (4 * n);
  __builtin_memcpy(fragments[gpu.current], a, 4 * high_rows * high_steps);
  __builtin_memcpy(fragments[gpu.current] + high_rows * high_steps, b, 4 * high_steps);
  wait_for_others();
  for (int i = 0; i < 2 * high_rows; ++i) {
    const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    for (int k = 0; k < STEPS; ++k) {
      const int step = k % (4 * n) / n, high = k / (4 * n);
      const T x = item_of<T>(row % 8 * 4 + step, row / 8 + high_rows * high, k % n);
      *sums[i] += (C)x * (C)item_of<T>(column * 4 + step, high_rows * high_steps + high, k % n);
    }
  }
  wait_for_others();
}
#define MMA(steps, name, sum, T, C)                                                                                   \
  static void mma_sync_aligned_m16n8k##steps##_row_col_##sum##_##name##_##name##_##sum(                               \
      C &c0, C &c1, C &c2, C &c3, unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1, C d0, \
      C d1, C d2, C d3) {                                                                                             \
    C *const sums[4] = {&c0, &c1, &c2, &c3};                                                                          \
    const unsigned a[4] = {a0, a1, a2, a3}, b[2] = {b0, b1};                                                          \
    c0 = d0, c1 = d1, c2 = d2, c3 = d3;                                                                               \
    mma<T, 16, steps>(sums, a, b);                                                                                    \
  }
MMA(16, f16, f32, _Float16, float)
MMA(16, bf16, f32, Bfloat, float)
MMA(8, tf32, f32, Tf32, float)
MMA(32, e4m3, f32, E4M3, float)
MMA(32, e5m2, f32, E5M2, float)
MMA(32, s8, s32, signed char, int)
// what Turing has of these
static void mma_sync_aligned_m16n8k8_row_col_f32_f16_f16_f32(float &c0, float &c1, float &c2, float &c3, unsigned a0,
    unsigned a1, unsigned b0, float d0, float d1, float d2, float d3) {
  float *const sums[4] = {&c0, &c1, &c2, &c3};
  const unsigned a[2] = {a0, a1};
  c0 = d0, c1 = d1, c2 = d2, c3 = d3;
  mma<_Float16, 16, 8>(sums, a, &b0);
}
static void mma_sync_aligned_m8n8k16_row_col_s32_s8_s8_s32(int &c0, int &c1, unsigned a0, unsigned b0, int d0, int d1) {
  int *const sums[2] = {&c0, &c1};
  c0 = d0, c1 = d1;
  mma<signed char, 8, 16>(sums, &a0, &b0);
}

// -- shared memory -----------------------------------------------------------------------------------------------------
// addresses of shared memory have 32 bits, and count from what the driver keeps for itself
enum { KEPT = 1024 };
static unsigned __cvta_generic_to_shared(const void *address) {
  return (unsigned)((const char *)address - (const char *)shared) + KEPT;
}
static char *of_shared(unsigned address) { return (char *)shared + (int)(address - KEPT); }

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

// Copies happen as late as they may: when a thread waits for their group. Until then there is neither what was there
// before nor what will be. What a thread has written, instructions of the async proxy see behind a fence of that thread.
enum { COPIES = 512, PART = 16 };
static bool unseen[sizeof shared / PART];  // parts that were written without a fence since
static struct {
  unsigned parts[COPIES], used;
} written[MOST];
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
  __builtin_memset(of_shared(to), 0xff, bytes);
}
static void fence_proxy_async_shared_cta() {
  auto &mine = written[gpu.current];
  for (unsigned i = 0; i < mine.used; ++i) unseen[mine.parts[i]] = false;
  mine.used = 0;
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
    const unsigned long part = (unsigned long)(copy.to - (char *)shared) / PART;
    auto &told = written[gpu.current];
    if (part < sizeof unseen && told.used < COPIES) unseen[told.parts[told.used++] = part] = true;
  }
  mine.used = left;
}

// -- products of warpgroups --------------------------------------------------------------------------------------------
// PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions". A product happens as late as it may: when a thread waits
// for its group; then it reads shared memory. Until then its sums are no numbers.
enum { WARPGROUP = 128, PRODUCTS = 128, TILES = 8, SUMS = 128 };
struct Product {
  void (*multiply)(const Product &, void *sums);
  unsigned long long a, b;
  bool turned[2], held, adds;  // held: A is what threads have: of this one's two rows all steps
  int tile, group;
  unsigned short rows[2][16];
};
static struct {
  Product products[PRODUCTS];
  int used, group;
  bool fenced;
  struct {
    void *registers[SUMS];  // of the sums, while products are under way
    unsigned values[SUMS];
    int count, pending;
  } tiles[TILES];
} multiplied[MOST];

// The byte of an element in shared memory, "Matrix Descriptor Format" and "Canonical Layouts": along the rows of a swizzle
// pattern lie steps (K-major), or rows and columns (MN-major), in units of 16 bytes; 8 rows make a pattern.
static unsigned element_of(unsigned long long descriptor, bool turned, int number, int step, int size) {
  const unsigned start = (descriptor & 0x3fff) << 4, leading = (descriptor >> 16 & 0x3fff) << 4;
  const unsigned stride = (descriptor >> 32 & 0x3fff) << 4;
  const int mode = descriptor >> 62, unit = 16 / size;
  static const int widths[4] = {16, 128, 64, 32};  // bytes of a row of the pattern
  const int width = widths[mode];
  if (!mode) gpu.wrong = "matrices without a swizzle are not known here";
  if (descriptor >> 49 & 7) gpu.wrong = "a matrix descriptor has a base offset, though patterns are aligned";
  if (descriptor & 0x3c00c000c000c000ull) gpu.wrong = "a matrix descriptor has bits that mean nothing";
  unsigned at;
  if (turned) at = number / (width / size) * leading + number % (width / size) * size + step / 8 * stride + step % 8 * width;
  else at = number / 8 * stride + number % 8 * width + step / unit * 16 + step % unit * size;
  const unsigned address = start + at;
  return address ^ (address >> 3 & (width - 1) & 0x70);  // bits 7 … of the address are added to bits 4 …
}
template <class T> static T element(unsigned long long descriptor, bool turned, int number, int step) {
  const unsigned address = element_of(descriptor, turned, number, step, sizeof(T));
  if (address < KEPT || address >= KEPT + sizeof shared) {
    gpu.wrong = "a matrix descriptor leads beyond shared memory";
    return T{};
  }
  if (unseen[(address - KEPT) / PART]) gpu.wrong = "a product reads shared memory that was written without a fence";
  T value;
  __builtin_memcpy(&value, of_shared(address), sizeof(T));
  return value;
}
// sums of thread n: of 16 rows of its warp the n / 4-th and that 8 below it, two columns of each eight
template <int N, int K, class T, class C> static void multiply_part(const Product &p, void *to) {
  C *const sums = (C *)to;
  const int thread = gpu.current % WARPGROUP, lane = thread % 32;
  static T a[2][K], b[N / 4][K];
  for (int k = 0; k < K; ++k) {
    for (int i = 0; i < 2; ++i)
      if (p.held) __builtin_memcpy(&a[i][k], &p.rows[i][k % 16], sizeof(T));
      else a[i][k] = element<T>(p.a, p.turned[0], thread / 32 * 16 + lane / 4 + 8 * i, k);
    for (int i = 0; i < N / 4; ++i) b[i][k] = element<T>(p.b, p.turned[1], i / 2 * 8 + lane % 4 * 2 + i % 2, k);
  }
  for (int i = 0; i < N / 2; ++i) {
    C sum = 0;
    for (int k = 0; k < K; ++k) sum += (C)a[i / 2 % 2][k] * (C)b[i / 4 * 2 + i % 2][k];
    sums[i] += sum;
  }
}
static unsigned long long described[MOST][2];
static unsigned held[MOST][4];  // the registers of A: steps 2 · (lane % 4) and the next, of the 8 rows and the 8 below; then 8 on
template <int N, int K, class T, class C, class... A> static void begin_product(A &&...arguments) {
  const void *const given[] = {(const void *)&arguments...};
  constexpr int all = sizeof given / sizeof *given - N / 2;
  constexpr bool registers = all == 9;  // A, in place of a descriptor and its order
  constexpr int count = registers ? 7 : all, skipped = registers ? 4 : 1;
  static_assert(count == 7 || count == 3, "it has sums, descriptors or registers, and immediates");
  auto &mine = multiplied[gpu.current];
  const unsigned long long a = registers ? 0 : *(const unsigned long long *)given[N / 2];
  const unsigned long long b = *(const unsigned long long *)given[N / 2 + skipped];
  Product p{multiply_part<N, K, T, C>, a, b, {false, false}, registers, true, -1, mine.group};
  for (int i = 2; i < count; ++i) {
    if (registers && i == 5) continue;
    const int number = *(const int *)given[N / 2 + skipped + i - 1 - (registers && i > 5)];
    if (i == 2) p.adds = number;
    if (i > 2 && i < 5 ? number != 1 : number != 0 && number != 1) gpu.wrong = "a product negates operands";
    if (i >= 5) p.turned[i - 5] = number;
  }
  if (registers)
    for (int i = 0; i < 4; ++i) held[gpu.current][i] = *(const unsigned *)given[N / 2 + i];
  if (!mine.fenced) gpu.wrong = "a product begins without a fence of its warpgroup's registers";
  if (gpu.count % WARPGROUP) gpu.wrong = "a warpgroup lacks threads";
  described[gpu.current][0] = a, described[gpu.current][1] = b;
  wait_for_others();
  const auto &first = described[gpu.current / WARPGROUP * WARPGROUP];
  if (first[0] != a || first[1] != b) gpu.wrong = "threads of a warpgroup name other matrices";
  for (int i = 0; i < 32 && registers; ++i) {
    const int lane = lane_of_thread(), step = i % 16, row = i / 16;
    const unsigned word = held[gpu.current - lane + lane / 4 * 4 + step % 8 / 2][row + step / 8 * 2];
    p.rows[row][step] = (unsigned short)(word >> step % 2 * 16);
  }
  for (int i = 0; i < TILES && p.tile < 0; ++i)
    if (mine.tiles[i].pending && mine.tiles[i].registers[0] == given[0]) p.tile = i;
  for (int i = 0; i < TILES && p.tile < 0; ++i) {
    auto &tile = mine.tiles[i];
    if (tile.pending) continue;
    p.tile = i, tile.count = N / 2;
    for (int j = 0; j < N / 2; ++j) {
      tile.registers[j] = (void *)given[j];
      __builtin_memcpy(&tile.values[j], given[j], 4);
      __builtin_memset(tile.registers[j], 0xff, 4);
    }
  }
  if (p.tile < 0 || mine.used == PRODUCTS) gpu.wrong = "more products at a time than are kept here";
  else mine.products[mine.used++] = p, ++mine.tiles[p.tile].pending;
  wait_for_others();
}
static void trap() { gpu.wrong = "a trap"; }
static void wgmma_fence_sync_aligned() { multiplied[gpu.current].fenced = true; }
static void wgmma_commit_group_sync_aligned() { ++multiplied[gpu.current].group; }
static void wgmma_wait_group_sync_aligned(int but) {
  auto &mine = multiplied[gpu.current];
  int left = 0;
  for (int i = 0; i < mine.used; ++i) {
    const Product p = mine.products[i];
    if (p.group >= mine.group - but) {
      mine.products[left++] = p;
      continue;
    }
    auto &tile = mine.tiles[p.tile];
    if (!p.adds) __builtin_memset(tile.values, 0, sizeof tile.values);
    p.multiply(p, tile.values);
    if (--tile.pending) continue;
    for (int j = 0; j < tile.count; ++j) {
      const unsigned none = 0xffffffffu;
      if (__builtin_memcmp(tile.registers[j], &none, 4)) gpu.wrong = "sums are written while products are under way";
      __builtin_memcpy(tile.registers[j], &tile.values[j], 4);
    }
    mine.fenced = false;
  }
  mine.used = left;
}
#define WGMMA_OF(columns, steps, name, sum, T, C)                                                                  \
  template <class... A>                                                                                            \
  static void wgmma_mma_async_sync_aligned_m64n##columns##k##steps##_##sum##_##name##_##name(A &&...arguments) { \
    begin_product<columns, steps, T, C>(arguments...);                                                             \
  }
#define WGMMA(n)                                   \
  WGMMA_OF(n, 16, f16, f32, _Float16, float)       \
  WGMMA_OF(n, 16, bf16, f32, Bfloat, float)
#define WGMMA_BYTES(n) WGMMA_OF(n, 32, s8, s32, signed char, int)
WGMMA_BYTES(32) WGMMA_BYTES(64) WGMMA_BYTES(96) WGMMA_BYTES(128) WGMMA_BYTES(192) WGMMA_BYTES(256)
WGMMA(8) WGMMA(16) WGMMA(24) WGMMA(32) WGMMA(40) WGMMA(48) WGMMA(56) WGMMA(64) WGMMA(72) WGMMA(80) WGMMA(88) WGMMA(96)
WGMMA(104) WGMMA(112) WGMMA(120) WGMMA(128) WGMMA(136) WGMMA(144) WGMMA(152) WGMMA(160) WGMMA(168) WGMMA(176)
WGMMA(184) WGMMA(192) WGMMA(200) WGMMA(208) WGMMA(216) WGMMA(224) WGMMA(232) WGMMA(240) WGMMA(248) WGMMA(256)

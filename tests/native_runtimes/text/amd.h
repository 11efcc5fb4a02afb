// HIP C++ on the processor: what kernels take for granted of a GPU. The threads of a workgroup are contexts that take
// turns: each runs until it waits for the others. LANES is defined before: threads of a wave.
extern "C" {
void *malloc(unsigned long);
int getcontext(void *);
void makecontext(void *, void (*)(void), int, ...);
int setcontext(const void *);
int _setjmp(void *) __attribute__((returns_twice));
void _longjmp(void *, int) __attribute__((noreturn));
}
#define __global__
#define __device__
#define __shared__ static
#define amdgpu_flat_work_group_size(least, most) unused

enum { MOST = 1024, CONTEXT = 8192, PLACE = 512, STACK = 1 << 17 };

static struct {
  unsigned group[3], thread[3], size[3], count, current;
  int running[MOST], words[MOST];
  const char *wrong;
  void (*kernel)(void);
} gpu;
static char context[CONTEXT] __attribute__((aligned(64))), places[MOST + 1][PLACE] __attribute__((aligned(64)));
static char *stacks;
static unsigned begun;  // threads that have a stack

static __attribute__((noinline)) void wait_for_others() {
  if (!_setjmp(places[gpu.current])) _longjmp(places[MOST], 1);
}
static int lane_of_thread() { return gpu.current % LANES; }
static unsigned long long lanes_with_threads() {
  const unsigned first = gpu.current - lane_of_thread(), left = gpu.count - first;
  return left >= LANES ? ~0ull >> (64 - LANES) : (1ull << left) - 1;
}
// the word of a lane of the same wave; that of no thread is 0xdeadbeef
static int word_of_lane(int lane, int word) {
  const unsigned me = gpu.current, from = me - me % LANES + (unsigned)lane % LANES;
  gpu.words[me] = word;
  wait_for_others();
  const int found = from < gpu.count ? gpu.words[from] : (int)0xdeadbeef;
  wait_for_others();
  return found;
}
static int dot_of_bytes(int a, int b, int c) {
  for (int i = 0; i < 32; i += 8) c += (signed char)(a >> i) * (signed char)(b >> i);
  return c;
}
// Products of matrices by a wave, as AMD's instruction set manuals (CDNA3, RDNA3, RDNA4) say where elements lie: lane n has
// row n % 16 of A and column n % 16 of B, of the steps as many neighbours as fit it; sums are those of column n % 16.
enum Rows { MFMA, WMMA11, WMMA12 };
struct Bfloat {
  unsigned short bits;
  operator float() const { return __builtin_bit_cast(float, (unsigned)bits << 16); }
};
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
#define __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, c, x, y, z) product<_Float16, 16, MFMA>(a, b, c)
#define __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, c, x, y, z) product<Bfloat, 16, MFMA>(a, b, c)
#define __builtin_amdgcn_mfma_f32_16x16x4f32(a, b, c, x, y, z) product<float, 4, MFMA>(a, b, c)
#define __builtin_amdgcn_mfma_i32_16x16x32_i8(a, b, c, x, y, z) product<signed char, 32, MFMA>(a, b, c)
#define __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, b, c) product<_Float16, 16, WMMA11>(a, b, c)
#define __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(a, b, c) product<Bfloat, 16, WMMA11>(a, b, c)
#define __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(as, a, bs, b, c, clamp) product<signed char, 16, WMMA11>(a, b, c)
#define __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(a, b, c) product<_Float16, 16, WMMA12>(a, b, c)
#define __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(a, b, c) product<Bfloat, 16, WMMA12>(a, b, c)
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

static void one_thread() {
  for (;;) {
    gpu.kernel();
    gpu.running[gpu.current] = 0;
    wait_for_others();
  }
}
static __attribute__((noinline)) void go_on(unsigned thread) {
  if (_setjmp(places[MOST])) return;
  if (thread < begun) _longjmp(places[thread], 1);
  // of a context three things are set before it is made: where it goes on afterwards, which it never does, and its stack
  begun = thread + 1;
  getcontext(context);
  *(void **)(context + 8) = 0;
  *(char **)(context + 16) = stacks + (unsigned long)thread * STACK;
  *(unsigned long *)(context + 32) = STACK;
  makecontext(context, one_thread, 0);
  setcontext(context);
}
// run all threads of a workgroup; they wait equally often
static void run_group() {
  for (unsigned i = 0; i < gpu.count; ++i) gpu.running[i] = 1;
  for (;;) {
    unsigned left = 0;
    for (unsigned i = 0; i < gpu.count; ++i) {
      if (!gpu.running[i]) continue;
      gpu.current = i;
      gpu.thread[0] = i % gpu.size[0];
      gpu.thread[1] = i / gpu.size[0] % gpu.size[1];
      gpu.thread[2] = i / gpu.size[0] / gpu.size[1];
      go_on(i);
      left += gpu.running[i];
    }
    if (!left) return;
    if (left != gpu.count) gpu.wrong = "some threads of a workgroup wait for others that have ended";
  }
}
static const char *run_grid(void (*kernel)(void), const unsigned *grid, const unsigned *block) {
  gpu.kernel = kernel;
  gpu.wrong = "";
  gpu.count = block[0] * block[1] * block[2];
  for (int i = 0; i < 3; ++i) gpu.size[i] = block[i];
  if (!stacks) stacks = (char *)malloc((unsigned long)MOST * STACK);
  for (gpu.group[2] = 0; gpu.group[2] < grid[2]; ++gpu.group[2])
    for (gpu.group[1] = 0; gpu.group[1] < grid[1]; ++gpu.group[1])
      for (gpu.group[0] = 0; gpu.group[0] < grid[0]; ++gpu.group[0]) run_group();
  return gpu.wrong;
}

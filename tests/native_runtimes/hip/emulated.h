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

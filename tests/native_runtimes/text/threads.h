// Kernels of GPUs on the processor. The threads of a workgroup are contexts that take turns: each runs until it waits for
// the others. LANES is defined before: threads of a wave.
extern "C" {
int getcontext(void *);
void makecontext(void *, void (*)(void), int, ...);
int setcontext(const void *);
int _setjmp(void *) __attribute__((returns_twice));
void _longjmp(void *, int) __attribute__((noreturn));
}
enum { MOST = 1024, CONTEXT = 8192, PLACE = 512, STACK = 1 << 19 };

static struct {
  unsigned group[3], thread[3], size[3], count, current;
  int running[MOST], words[MOST];
  const char *wrong;
  void (*kernel)(void);
} gpu;
static char context[CONTEXT] __attribute__((aligned(64))), places[MOST + 1][PLACE] __attribute__((aligned(64)));
static char *stacks;
static unsigned begun;  // threads that have begun on their stacks

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
// numbers that memory of a GPU has, as OCP's specification of 8-bit floats and IEEE 754 say
struct Bfloat {
  unsigned short bits;
  operator float() const { return __builtin_bit_cast(float, (unsigned)bits << 16); }
};
struct E5M2 {
  unsigned char bits;
  operator float() const { return (float)__builtin_bit_cast(_Float16, (unsigned short)(bits << 8)); }
};
struct E4M3 {
  unsigned char bits;
  operator float() const {
    const int size = bits & 127, exponent = size >> 3, digits = size & 7;
    float value = exponent ? (float)(8 + digits) : (float)digits;
    for (int i = exponent ? exponent : 1; i < 10; ++i) value /= 2;
    for (int i = 10; i < exponent; ++i) value *= 2;
    if (size == 127) value = __builtin_nanf("");
    return bits & 128 ? -value : value;
  }
};
// 2 to the power of x by its whole part and a series for the rest; 0 where that is subnormal
static float power_of_two(float x) {
  if (!(x >= -126)) return x != x ? x : 0;
  if (x >= 128) return __builtin_inff();
  const int whole = (int)x - (x < 0);
  double term = 1, sum = 1;
  for (int i = 1; i < 14; ++i) sum += term *= (x - whole) * 0.693147180559945309 / i;
  return (float)(sum * __builtin_bit_cast(double, (long long)(whole + 1023) << 52));
}
static int dot_of_bytes(int a, int b, int c) {
  for (int i = 0; i < 32; i += 8) c += (signed char)(a >> i) * (signed char)(b >> i);
  return c;
}
// what Clang asks to be told where a kernel does what C++ leaves open, and a GPU's compiler may take otherwise
#define UNDEFINED(name, what) extern "C" void __ubsan_handle_##name##_minimal() { gpu.wrong = what; }
UNDEFINED(type_mismatch, "it reads or writes memory that is not aligned")
UNDEFINED(shift_out_of_bounds, "it shifts by the width of a number, or more")
UNDEFINED(float_cast_overflow, "it makes an integer of a float that is beyond its range")
UNDEFINED(divrem_overflow, "it divides by 0, or the least number by -1")
UNDEFINED(add_overflow, "a sum of integers overflows")
UNDEFINED(sub_overflow, "a difference of integers overflows")
UNDEFINED(mul_overflow, "a product of integers overflows")
UNDEFINED(negate_overflow, "the negative of an integer overflows")
UNDEFINED(out_of_bounds, "an array is indexed beyond its end")

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
static const char *run_grid(void (*kernel)(void), const unsigned *grid, const unsigned *block, char *memory) {
  gpu.kernel = kernel;
  stacks = memory;
  begun = 0;
  gpu.wrong = "";
  gpu.count = block[0] * block[1] * block[2];
  for (int i = 0; i < 3; ++i) gpu.size[i] = block[i];
  for (gpu.group[2] = 0; gpu.group[2] < grid[2]; ++gpu.group[2])
    for (gpu.group[1] = 0; gpu.group[1] < grid[1]; ++gpu.group[1])
      for (gpu.group[0] = 0; gpu.group[0] < grid[0]; ++gpu.group[0]) run_group();
  return gpu.wrong;
}

// A libamdhip64.so without a GPU. Each call is checked as the real one would not: handles must be of the right kind and
// alive, memory in bounds, arguments as many as the kernel has. What a stream is asked for happens late, when somebody
// waits for an event behind it, so that whoever gives memory back or changes it too early is found out. Kernels are run
// by a function that the test sets.
typedef unsigned long size_t;
typedef unsigned long long u64;
extern void *malloc(size_t);
extern void *aligned_alloc(size_t, size_t);
extern void free(void *);
extern void *memcpy(void *, const void *, size_t);
extern void *memset(void *, int, size_t);
extern int strcmp(const char *, const char *);
extern int snprintf(char *, size_t, const char *, ...);
extern char *strncpy(char *, const char *, size_t);

enum { OK, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_DEVICE = 101, NO_BINARY = 209, INVALID_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600 };
enum { NONE, MEMORY, PINNED, STREAM, EVENT, MODULE, FUNCTION, GRAPH, EXEC, KINDS };
enum { COPY, FILL8, FILL32, KERNEL };
enum { MOST = 1 << 16, NAME = 256, ARGUMENTS = 64, GUARD = 256, FAULTS = 16 };

typedef struct Op {
  struct Op *next;
  int kind;
  char *to;
  const char *from;
  size_t bytes;
  int value;
  struct Object *function;
  unsigned grid[3], block[3];
  u64 arguments[ARGUMENTS];
} Op;
typedef struct Object {
  int kind, alive, device;
  char *address;          // MEMORY, PINNED: what was handed out
  size_t bytes;
  u64 at;                 // EVENT: how many steps of the stream are before it
  struct Object *stream;  // EVENT: the one it was recorded on
  struct Object *module;
  char name[NAME];
  int count, threads;     // FUNCTION: arguments, and the most threads of a workgroup
  Op *first, *last;       // STREAM: what is to be done; GRAPH, EXEC: what was recorded
  u64 asked, done;
  struct Object *recording;
} Object;

static Object objects[MOST];
static int used, devices = 1, current = -1, initialised, hanging, lost, resets, launches, graph_launches;
static size_t total = (size_t)1 << 30, taken;
static char complaint[1024], chip[64] = "gfx1100";
static struct { char function[64]; int number, after; } faults[FAULTS];

static int (*kernel_of)(const void *image, const char *name, int *arguments, int *threads);
static int (*run_kernel)(const char *name, const unsigned *grid, const unsigned *block, const u64 *arguments, int count);

static int complain(const char *function, const char *what, int number) {
  if (!complaint[0]) snprintf(complaint, sizeof complaint, "%s: %s", function, what);
  return number;
}
static Object *make(int kind) {
  if (used == MOST) { complain("the stand-in", "too many objects", 0); return 0; }
  Object *o = &objects[used++];
  o->kind = kind; o->alive = 1; o->device = current;
  return o;
}
static Object *check(const char *function, void *handle, int kind) {
  Object *o = handle;
  static const char *names[KINDS] = {"nothing", "memory", "pinned memory", "a stream", "an event", "a module", "a function", "a graph", "an executable graph"};
  char text[128];
  if (o < objects || o >= objects + used || ((char *)o - (char *)objects) % sizeof(Object) || o->kind != kind) {
    snprintf(text, sizeof text, "%p is not %s", handle, names[kind]);
    complain(function, text, 0);
    return 0;
  }
  if (!o->alive) { snprintf(text, sizeof text, "%s was used after it had been given back", names[kind]); complain(function, text, 0); return 0; }
  return o;
}
// the living memory of a kind that has all these bytes
static Object *holds(const void *address, size_t bytes, int kind) {
  const char *a = address;
  for (int i = used - 1; i >= 0; --i) {
    Object *o = &objects[i];
    if (o->kind == kind && o->alive && a >= o->address && a + bytes <= o->address + o->bytes) return o;
  }
  return 0;
}
static int fault(const char *function) {
  for (int i = 0; i < FAULTS; ++i)
    if (faults[i].number && !strcmp(faults[i].function, function) && faults[i].after-- <= 0) {
      int number = faults[i].number;
      faults[i].number = 0;
      if (number >= 700 && number < 800) lost = number;
      return number;
    }
  return lost;
}
#define BEGIN(function) \
  if (!initialised) return complain(#function, "hipInit was not called", 3); \
  { int number = fault(#function); if (number) return number; }
#define CURRENT(function) if (current < 0) return complain(#function, "no device was set in this thread", INVALID_DEVICE);

// -- carrying out ------------------------------------------------------------------------------------------------------
static void carry_out(Object *stream, u64 until) {
  while (stream->done < until && stream->first) {
    Op *op = stream->first;
    if (op->kind == KERNEL && (hanging || lost)) return;
    stream->first = op->next;
    if (!op->next) stream->last = 0;
    stream->done++;
    if (op->kind == COPY) {
      int in = holds(op->to, op->bytes, MEMORY) && holds(op->from, op->bytes, PINNED);
      int out = holds(op->to, op->bytes, PINNED) && holds(op->from, op->bytes, MEMORY);
      if (in || out) memcpy(op->to, op->from, op->bytes);
      else complain("hipMemcpyAsync", "its memory was given back before it happened", 0);
    } else if (op->kind == FILL8 || op->kind == FILL32) {
      if (!holds(op->to, op->bytes, MEMORY)) complain("hipMemsetAsync", "its memory was given back before it happened", 0);
      else if (op->kind == FILL8) memset(op->to, op->value, op->bytes);
      else for (size_t i = 0; i < op->bytes / 4; ++i) ((int *)op->to)[i] = op->value;
    } else {
      for (int i = 0; i < op->function->count; ++i)
        if (!holds((void *)op->arguments[i], 1, MEMORY)) complain(op->function->name, "memory was given back before the kernel ran", 0);
      if (!op->function->alive || !op->function->module->alive) complain(op->function->name, "its module was unloaded before it ran", 0);
      int number = fault("kernel");
      if (number) return;
      if (run_kernel && !complaint[0] && run_kernel(op->function->name, op->grid, op->block, op->arguments, op->function->count))
        complain(op->function->name, "it could not be run", 0);
    }
    free(op);
  }
}
static void carry_out_all(const char *function) {
  for (int i = 0; i < used; ++i)
    if (objects[i].kind == STREAM && objects[i].alive) {
      carry_out(&objects[i], ~0ull);
      if (objects[i].first && hanging) complain(function, "it would wait for ever for a kernel", 0);
    }
}
static int ask(Object *stream, Op op) {
  Object *list = stream->recording ? stream->recording : stream;
  Op *one = malloc(sizeof(Op));
  *one = op;
  one->next = 0;
  if (list->last) list->last->next = one; else list->first = one;
  list->last = one;
  list->asked++;
  return OK;
}

// -- devices -----------------------------------------------------------------------------------------------------------
int hipInit(unsigned flags) { int number = fault("hipInit"); if (number) return number; initialised = 1; return OK; }
int hipRuntimeGetVersion(int *version) { *version = 60300000; return OK; }
const char *hipGetErrorName(int number) {
  switch (number) {
    case 1: return "hipErrorInvalidValue"; case 2: return "hipErrorOutOfMemory"; case 3: return "hipErrorNotInitialized";
    case 100: return "hipErrorNoDevice"; case 101: return "hipErrorInvalidDevice"; case 209: return "hipErrorNoBinaryForGpu";
    case 400: return "hipErrorInvalidHandle"; case 500: return "hipErrorNotFound"; case 600: return "hipErrorNotReady";
    case 700: return "hipErrorIllegalAddress"; case 701: return "hipErrorLaunchOutOfResources"; case 702: return "hipErrorLaunchTimeOut";
    case 719: return "hipErrorLaunchFailure"; case 801: return "hipErrorNotSupported"; default: return "hipErrorUnknown";
  }
}
int hipGetDeviceCount(int *count) { BEGIN(hipGetDeviceCount) *count = devices; return devices ? OK : NO_DEVICE; }
int hipSetDevice(int index) {
  if (!initialised) return complain("hipSetDevice", "hipInit was not called", 3);
  if (index < 0 || index >= devices) return complain("hipSetDevice", "there is no such device", INVALID_DEVICE);
  current = index;
  return OK;
}
int hipDeviceReset(void) {
  int number = lost; lost = 0; number = fault("hipDeviceReset"); if (number) { lost = number; return number; }
  for (int i = 0; i < used; ++i)
    if (objects[i].device == current && objects[i].alive) {
      objects[i].alive = 0;
      if (objects[i].kind == MEMORY) { taken -= objects[i].bytes; free(objects[i].address - GUARD); }
    }
  resets++;
  return OK;
}
int hipDeviceGetName(char *name, int bytes, int index) { BEGIN(hipDeviceGetName) strncpy(name, "Stand-in", bytes); return OK; }
int hipGetDevicePropertiesR0600(char *record, int index) {
  BEGIN(hipGetDeviceProperties)
  memset(record, 0, 1472);
  strncpy(record, "Stand-in", 256);
  snprintf(record + 1160, 256, "%s:sramecc+:xnack-", chip);
  return OK;
}
int hipMemGetInfo(size_t *unused, size_t *all) { BEGIN(hipMemGetInfo) CURRENT(hipMemGetInfo) *unused = total - taken; *all = total; return OK; }

// -- memory ------------------------------------------------------------------------------------------------------------
static int allocate(const char *function, void **out, size_t bytes, int kind) {
  if (!bytes) return complain(function, "no bytes were asked for", INVALID_VALUE);
  if (kind == MEMORY && bytes > total - taken) return OUT_OF_MEMORY;
  Object *o = make(kind);
  char *whole = aligned_alloc(GUARD, (bytes + 3 * GUARD - 1) / GUARD * GUARD);  // GPUs begin memory at multiples of 256
  if (!o || !whole) return OUT_OF_MEMORY;
  memset(whole, 0xA5, bytes + 2 * GUARD);
  o->address = whole + GUARD;
  o->bytes = bytes;
  if (kind == MEMORY) taken += bytes;
  *out = o->address;
  return OK;
}
static int release(const char *function, void *address, int kind) {
  for (int i = 0; i < used; ++i) {
    Object *o = &objects[i];
    if (o->kind != kind || o->address != address || !o->alive) continue;
    carry_out_all(function);
    for (int j = 0; j < GUARD; ++j)
      if ((unsigned char)o->address[-1 - j] != 0xA5 || (unsigned char)o->address[o->bytes + j] != 0xA5) complain(function, "something was written beside the memory", 0);
    memset(o->address - GUARD, 0x5A, o->bytes + 2 * GUARD);
    o->alive = 0;
    if (kind == MEMORY) taken -= o->bytes;
    free(o->address - GUARD);
    return OK;
  }
  return complain(function, "there is no such memory, or it was given back before", INVALID_VALUE);
}
int hipMalloc(void **out, size_t bytes) { BEGIN(hipMalloc) CURRENT(hipMalloc) return allocate("hipMalloc", out, bytes, MEMORY); }
int hipFree(void *address) { BEGIN(hipFree) return release("hipFree", address, MEMORY); }
int hipHostMalloc(void **out, size_t bytes, unsigned flags) { BEGIN(hipHostMalloc) return allocate("hipHostMalloc", out, bytes, PINNED); }
int hipHostFree(void *address) { BEGIN(hipHostFree) return release("hipHostFree", address, PINNED); }
int hipMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream) {
  BEGIN(hipMemcpyAsync)
  Object *s = check("hipMemcpyAsync", stream, STREAM);
  if (!s) return INVALID_HANDLE;
  if (kind != 1 && kind != 2) return complain("hipMemcpyAsync", "it copies neither to the device nor from it", INVALID_VALUE);
  if (!holds(to, bytes, kind == 1 ? MEMORY : PINNED)) return complain("hipMemcpyAsync", "its destination is no such memory, or too small", INVALID_VALUE);
  if (!holds(from, bytes, kind == 1 ? PINNED : MEMORY)) return complain("hipMemcpyAsync", "its source is no such memory, or too small", INVALID_VALUE);
  return ask(s, (Op){.kind = COPY, .to = to, .from = from, .bytes = bytes});
}
int hipMemsetAsync(void *to, int value, size_t bytes, void *stream) {
  BEGIN(hipMemsetAsync)
  Object *s = check("hipMemsetAsync", stream, STREAM);
  if (!s) return INVALID_HANDLE;
  if (!holds(to, bytes, MEMORY)) return complain("hipMemsetAsync", "its memory is not the device's, or too small", INVALID_VALUE);
  return ask(s, (Op){.kind = FILL8, .to = to, .value = value, .bytes = bytes});
}
int hipMemsetD32Async(void *to, int value, size_t count, void *stream) {
  BEGIN(hipMemsetD32Async)
  Object *s = check("hipMemsetD32Async", stream, STREAM);
  if (!s) return INVALID_HANDLE;
  if ((u64)to % 4 || !holds(to, 4 * count, MEMORY)) return complain("hipMemsetD32Async", "its memory is not the device's, too small or not aligned", INVALID_VALUE);
  return ask(s, (Op){.kind = FILL32, .to = to, .value = value, .bytes = 4 * count});
}

// -- streams and events ------------------------------------------------------------------------------------------------
static int create(void **out, int kind) { Object *o = make(kind); *out = o; return o ? OK : OUT_OF_MEMORY; }
static int destroy(const char *function, void *handle, int kind) {
  Object *o = check(function, handle, kind);
  if (!o) return INVALID_HANDLE;
  if (kind == STREAM && o->first) complain(function, "the stream has work to do", 0);
  o->alive = 0;
  return OK;
}
int hipStreamCreateWithFlags(void **out, unsigned flags) { BEGIN(hipStreamCreateWithFlags) CURRENT(hipStreamCreateWithFlags) return create(out, STREAM); }
int hipStreamDestroy(void *stream) { BEGIN(hipStreamDestroy) return destroy("hipStreamDestroy", stream, STREAM); }
int hipEventCreateWithFlags(void **out, unsigned flags) { BEGIN(hipEventCreateWithFlags) CURRENT(hipEventCreateWithFlags) return create(out, EVENT); }
int hipEventDestroy(void *event) { BEGIN(hipEventDestroy) return destroy("hipEventDestroy", event, EVENT); }
int hipEventRecord(void *event, void *stream) {
  BEGIN(hipEventRecord)
  Object *e = check("hipEventRecord", event, EVENT), *s = check("hipEventRecord", stream, STREAM);
  if (!e || !s) return INVALID_HANDLE;
  e->stream = s;
  e->at = s->asked;
  return OK;
}
int hipEventQuery(void *event) {
  BEGIN(hipEventQuery)
  Object *e = check("hipEventQuery", event, EVENT);
  if (!e) return INVALID_HANDLE;
  if (!e->stream) return complain("hipEventQuery", "the event was not recorded", INVALID_HANDLE);
  carry_out(e->stream, e->at);
  if (lost) return lost;
  return e->stream->done >= e->at ? OK : NOT_READY;
}

// -- kernels -----------------------------------------------------------------------------------------------------------
int hipModuleLoadData(void **out, const void *image) {
  BEGIN(hipModuleLoadData) CURRENT(hipModuleLoadData)
  if (!image || ((const unsigned *)image)[0] != 0x464c457f) return complain("hipModuleLoadData", "that is no code object", NO_BINARY);
  int number = create(out, MODULE);
  if (!number) ((Object *)*out)->address = (char *)image;
  return number;
}
int hipModuleUnload(void *module) {
  BEGIN(hipModuleUnload)
  for (int i = 0; i < used; ++i)
    if (objects[i].kind == FUNCTION && objects[i].module == module) objects[i].alive = 0;
  return destroy("hipModuleUnload", module, MODULE);
}
int hipModuleGetFunction(void **out, void *module, const char *name) {
  BEGIN(hipModuleGetFunction)
  Object *m = check("hipModuleGetFunction", module, MODULE);
  if (!m) return INVALID_HANDLE;
  int count = 0, threads = 0;
  if (!kernel_of || kernel_of(m->address, name, &count, &threads)) return complain("hipModuleGetFunction", "the code object has no such kernel", NOT_FOUND);
  if (count > ARGUMENTS) return complain("hipModuleGetFunction", "more arguments than the stand-in takes", INVALID_VALUE);
  int number = create(out, FUNCTION);
  Object *f = *out;
  f->module = m; f->count = count; f->threads = threads;
  strncpy(f->name, name, NAME - 1);
  return number;
}
int hipModuleLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *stream, void **parameters, void **extra) {
  BEGIN(hipModuleLaunchKernel)
  Object *f = check("hipModuleLaunchKernel", function, FUNCTION), *s = check("hipModuleLaunchKernel", stream, STREAM);
  if (!f || !s) return INVALID_HANDLE;
  if (extra || shared) return complain(f->name, "it was launched with more than parameters", INVALID_VALUE);
  if (!gx || !gy || !gz || !bx || !by || !bz) return complain(f->name, "its grid is empty", INVALID_VALUE);
  if (gy > 65535 || gz > 65535 || (u64)gx * bx >= (u64)1 << 32) return complain(f->name, "its grid is too large", INVALID_VALUE);
  if (bx * by * bz != (unsigned)f->threads) return complain(f->name, "its workgroup is not the one it was compiled for", INVALID_VALUE);
  Op op = {.kind = KERNEL, .function = f, .grid = {gx, gy, gz}, .block = {bx, by, bz}};
  for (int i = 0; i < f->count; ++i) {
    op.arguments[i] = *(u64 *)parameters[i];
    if (!holds((void *)op.arguments[i], 1, MEMORY)) return complain(f->name, "an argument is no memory of the device", INVALID_VALUE);
  }
  launches++;
  return ask(s, op);
}

// -- graphs ------------------------------------------------------------------------------------------------------------
static void copy_list(Object *to, Object *from) {
  for (Op *op = from->first; op; op = op->next) ask(to, *op);
}
int hipStreamBeginCapture(void *stream, int mode) {
  BEGIN(hipStreamBeginCapture)
  Object *s = check("hipStreamBeginCapture", stream, STREAM);
  if (!s) return INVALID_HANDLE;
  if (s->recording) return complain("hipStreamBeginCapture", "the stream is recording already", INVALID_VALUE);
  s->recording = make(GRAPH);
  return OK;
}
int hipStreamEndCapture(void *stream, void **graph) {
  Object *s = check("hipStreamEndCapture", stream, STREAM);
  if (!s) return INVALID_HANDLE;
  if (!s->recording) return complain("hipStreamEndCapture", "the stream is not recording", INVALID_VALUE);
  *graph = s->recording;
  s->recording = 0;
  return fault("hipStreamEndCapture");
}
int hipGraphInstantiate(void **out, void *graph, void **node, char *log, size_t bytes) {
  BEGIN(hipGraphInstantiate)
  Object *g = check("hipGraphInstantiate", graph, GRAPH);
  if (!g) return INVALID_HANDLE;
  int number = create(out, EXEC);
  if (!number) copy_list(*out, g);
  return number;
}
int hipGraphDestroy(void *graph) { BEGIN(hipGraphDestroy) return destroy("hipGraphDestroy", graph, GRAPH); }
int hipGraphExecDestroy(void *exec) {
  BEGIN(hipGraphExecDestroy)
  for (int i = 0; i < used; ++i)
    if (objects[i].kind == STREAM && objects[i].alive && objects[i].first) complain("hipGraphExecDestroy", "something is still running", 0);
  return destroy("hipGraphExecDestroy", exec, EXEC);
}
int hipGraphLaunch(void *exec, void *stream) {
  BEGIN(hipGraphLaunch)
  Object *e = check("hipGraphLaunch", exec, EXEC), *s = check("hipGraphLaunch", stream, STREAM);
  if (!e || !s) return INVALID_HANDLE;
  graph_launches++;
  for (Op *op = e->first; op; op = op->next)
    for (int i = 0; i < op->function->count; ++i)
      if (!holds((void *)op->arguments[i], 1, MEMORY)) return complain(op->function->name, "an argument of a graph is no memory of the device", INVALID_VALUE);
  copy_list(s, e);
  return OK;
}

// -- for the test ------------------------------------------------------------------------------------------------------
void standin_reset(const char *name, int count, size_t bytes) {
  for (int i = 0; i < used; ++i) {
    if ((objects[i].kind == MEMORY || objects[i].kind == PINNED) && objects[i].alive) free(objects[i].address - GUARD);
    for (Op *op = objects[i].first; op;) { Op *next = op->next; free(op); op = next; }
  }
  memset(objects, 0, sizeof(Object) * used);
  memset(faults, 0, sizeof faults);
  strncpy(chip, name, sizeof chip - 1);
  used = initialised = hanging = lost = resets = launches = graph_launches = 0;
  taken = 0; complaint[0] = 0; current = -1; devices = count; total = bytes;
}
void standin_kernels(void *find, void *run) { kernel_of = find; run_kernel = run; }
const char *standin_complaint(void) { return complaint; }
int standin_alive(int kind) { int n = 0; for (int i = 0; i < used; ++i) n += objects[i].alive && objects[i].kind == kind; return n; }
int standin_count(int which) { return which == 0 ? launches : which == 1 ? graph_launches : resets; }
size_t standin_bytes(const void *address) { for (int i = used - 1; i >= 0; --i) { Object *o = &objects[i]; if (o->kind == MEMORY && o->alive && (const char *)address >= o->address && (const char *)address < o->address + o->bytes) return o->address + o->bytes - (const char *)address; } return 0; }
void standin_hang(int on) { hanging = on; }
// `function` fails with `number` once, after it has worked `after` times
void standin_fail(const char *function, int number, int after) {
  for (int i = 0; i < FAULTS; ++i)
    if (!faults[i].number) { strncpy(faults[i].function, function, 63); faults[i].number = number; faults[i].after = after; return; }
}

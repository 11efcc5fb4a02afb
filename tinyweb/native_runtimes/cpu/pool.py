"""The thread pool of the CPU runtime: C, compiled once, that carries out whole lists of launches.

A list is one call into native code. The calling thread and the workers walk it together. Each takes shares of its own
partition of a launch's grid, then of the others' (affinity scheduling: Markatos and LeBlanc, "Using processor affinity
in loop scheduling on shared-memory multiprocessors", 1994), and before a launch that depends on earlier ones waits
until those are complete. It waits for shares, not for threads: a worker that the system lets run late finds nothing
left to do and holds up nobody. Launches that are not worth sharing belong to one thread each, independent ones to
different threads: a chain of small ones stays in one cache, and others neither ask for its lines nor wait for each of
its launches. Who finds such a thread late does its work. Who waits spins for some microseconds, because the next launch
usually follows at once, then lets others run, then sleeps.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

from tinyweb.toolchain import compile_shared

PARTITIONS = 16  # of a launch's grid, at most: their counters are one cache line

# Only the compiler's own headers are visible: what is used of pthreads is declared here, with room for any system's
# types.
SOURCE = (
    f"enum {{ PARTITIONS = {PARTITIONS} }};"
    + """
typedef __SIZE_TYPE__ size_t;
extern int pthread_create(void *thread, const void *attributes, void *(*start)(void *), void *argument);
extern int pthread_join(void *thread, void **result);
extern int pthread_mutex_init(void *mutex, const void *attributes);
extern int pthread_mutex_lock(void *mutex);
extern int pthread_mutex_unlock(void *mutex);
extern int pthread_cond_init(void *condition, const void *attributes);
extern int pthread_cond_timedwait(void *condition, void *mutex, const void *until);
extern int pthread_cond_broadcast(void *condition);
extern int clock_gettime(int clock, void *time);
extern void *calloc(size_t count, size_t bytes);
extern void free(void *memory);

extern int sched_yield(void);
#if defined(__linux__)
extern int sched_getcpu(void);
extern int sched_getaffinity(int process, size_t bytes, void *set);
extern int pthread_setaffinity_np(void *thread, size_t bytes, const void *set);
#endif

enum { SPINS = 300, YIELDS = 500, SHARES = 8, LEAST_SHARES = 32, FEW = 512 };
enum { CPUS = 1024, WORD = 8 * sizeof(unsigned long) };

typedef struct {
  void (*run)(void *const *buffers, const int *variables, int begin, int end);
  int (*grid)(const int *variables);
  void *const *buffers;
  const int *variables;
  int barrier;  // wait for all earlier launches first
  int cheap;    // so many iterations take no longer than telling another thread of them: they are not shared out
  int size;     // grid iterations of this run, and how many of them are worth taking
  int least;
  int waits;    // the same in this run, in which others may be empty
  int first;    // the last launch up to this one that waits: once it is complete, so is what this one needs
  int owner;    // of what is not shared out, the thread that carries it out; -1: whoever comes
  int done;         // iterations that are complete
  int next[PARTITIONS];  // of each partition, the first iteration nobody has taken
} Launch;

typedef struct Pool Pool;

typedef struct {
  Pool *pool;
  int thread;
} Worker;

struct Pool {
  int threads, stop, count;
  int partitions, owners;  // of a grid; threads that begin with the same one, at most
  Launch *launches;
  int open;        // whether there is a list to join
  int active;      // workers that may be looking at it
  unsigned epoch;  // lists started
  int sleepers;
  void **handles;
  Worker *workers;
  int caller;      // the processor that the workers keep off, -1 if none
  unsigned long allowed[CPUS / WORD];
  _Alignas(64) char mutex[256];
  _Alignas(64) char condition[256];
};

static void pause_briefly(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static int load(const int *word) { return __atomic_load_n(word, __ATOMIC_SEQ_CST); }

// Waits until `*word` is (`equal`) or is not (`!equal`) `value`. Whoever changes a word that is waited for calls wake.
static void wait_until(Pool *pool, const int *word, int equal, int value) {
  for (int i = 0; i < SPINS + YIELDS; ++i) {
    if ((load(word) == value) == equal) return;
    if (i < SPINS) pause_briefly(); else sched_yield();
  }
  pthread_mutex_lock(pool->mutex);
  __atomic_fetch_add(&pool->sleepers, 1, __ATOMIC_SEQ_CST);
  while ((load(word) == value) != equal) {
    // glibc before 2.41 may lose a wake-up (its bug 25847): looking again every second makes a pause of a standstill
    __INT64_TYPE__ until[4];
    clock_gettime(0, until);
    ++until[0];
    pthread_cond_timedwait(pool->condition, pool->mutex, until);
  }
  __atomic_fetch_sub(&pool->sleepers, 1, __ATOMIC_SEQ_CST);
  pthread_mutex_unlock(pool->mutex);
}

static void wake(Pool *pool) {
  if (load(&pool->sleepers) == 0) return;
  pthread_mutex_lock(pool->mutex);
  pthread_cond_broadcast(pool->condition);
  pthread_mutex_unlock(pool->mutex);
}

// The first iteration of a partition: the grid is cut into one part for each thread, or for each few of them.
static int start(const Launch *launch, int partitions, int partition) {
  return (int)(((long long)launch->size * partition + partitions - 1) / partitions);
}

// Carries out what is left of a partition, together with whoever else does.
static void take(Pool *pool, Launch *launch, int partition) {
  const int size = launch->size, end = start(launch, pool->partitions, partition + 1);
  int begin = load(&launch->next[partition]);
  while (begin < end) {
    // a share of what is left: large ones first, and small ones at the end, where one thread waits for the other's
    const int left = end - begin, share = left / (pool->owners * SHARES);
    const int count = share > launch->least ? share : launch->least < left ? launch->least : left;
    if (!__atomic_compare_exchange_n(
      &launch->next[partition], &begin, begin + count, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) continue;
    launch->run(launch->buffers, launch->variables, begin, begin + count);
    if (__atomic_add_fetch(&launch->done, count, __ATOMIC_SEQ_CST) == size) wake(pool);
    begin = load(&launch->next[partition]);
  }
}

static int taken(const Pool *pool, const Launch *launch) {
  for (int partition = 0; partition < pool->partitions; ++partition)
    if (load(&launch->next[partition]) < start(launch, pool->partitions, partition + 1)) return 0;
  return 1;
}

static void take_all(Pool *pool, Launch *launch, int thread) {
  for (int k = 0; k < pool->partitions; ++k) take(pool, launch, (thread + k) % pool->partitions);
}

static int is_complete(const Launch *launch) { return launch->size == 0 || load(&launch->done) == launch->size; }

// Waits until the launches before `end` are complete, the first `settled` of which are known to be. Meanwhile it looks
// at the last of them alone. What nobody has begun for some time, though nothing is missing, is carried out here.
static void complete(Pool *pool, int thread, int *settled, int end) {
  if (*settled >= end) return;
  const int first = pool->launches[end - 1].first;
  for (int seen = -1, rounds = 0;; ++rounds) {
    int i = *settled > first ? *settled : first;
    for (int spins = 0; i < end && spins < SPINS; ++spins)
      if (is_complete(&pool->launches[i])) ++i, spins = 0; else pause_briefly();
    if (i == end) *settled = end;
    while (*settled < end && is_complete(&pool->launches[*settled])) ++*settled;
    if (*settled == end) return;
    Launch *launch = &pool->launches[*settled];
    if (*settled != seen) seen = *settled, rounds = 0;
    else if (!taken(pool, launch)) take_all(pool, launch, thread);
    else if (rounds > YIELDS) wait_until(pool, &launch->done, 1, launch->size);
    sched_yield();
  }
}

// A thread begins with its own partition, the same in every launch and every run, so that what it wrote or read last is
// in its cache; then it helps the others.
static void walk(Pool *pool, int thread, int *settled) {
  for (int i = 0; i < pool->count; ++i) {
    Launch *launch = &pool->launches[i];
    if ((launch->owner >= 0 && launch->owner != thread) || taken(pool, launch)) continue;
    complete(pool, thread, settled, launch->first);
    take_all(pool, launch, thread);
  }
}

static void *work(void *argument) {
  const Worker *worker = argument;
  Pool *pool = worker->pool;
  int seen = 0;
  for (;;) {
    wait_until(pool, (int *)&pool->epoch, 0, seen);
    if (load(&pool->stop)) return 0;
    seen = load((int *)&pool->epoch);
    __atomic_add_fetch(&pool->active, 1, __ATOMIC_SEQ_CST);
    int settled = 0;
    if (load(&pool->open)) walk(pool, worker->thread, &settled);
    if (__atomic_sub_fetch(&pool->active, 1, __ATOMIC_SEQ_CST) == 0) wake(pool);
  }
}

// A thread that is woken may be queued behind the one that woke it, where all processors have something to do: workers
// go to the others, as long as there are enough.
static void keep_apart(Pool *pool) {
#if defined(__linux__)
  const int cpu = sched_getcpu();
  if (cpu == pool->caller || cpu < 0 || cpu >= CPUS) return;
  unsigned long set[CPUS / WORD];
  int count = 0;
  for (int i = 0; i < CPUS / (int)WORD; ++i) count += __builtin_popcountl(set[i] = pool->allowed[i]);
  if (count < pool->threads) return;
  set[cpu / WORD] &= ~(1ul << cpu % WORD);
  pool->caller = cpu;
  for (int i = 1; i < pool->threads; ++i) pthread_setaffinity_np(pool->handles[i], sizeof set, set);
#endif
}

// As many threads as could be made, at least the calling one.
Pool *pool_create(int threads) {
  Pool *pool = calloc(1, sizeof *pool);
  pthread_mutex_init(pool->mutex, 0);
  pthread_cond_init(pool->condition, 0);
  pool->handles = calloc(threads, sizeof(void *));
  pool->workers = calloc(threads, sizeof(Worker));
  pool->threads = 1;
  pool->caller = -1;
#if defined(__linux__)
  sched_getaffinity(0, sizeof pool->allowed, pool->allowed);
#endif
  for (int i = 1; i < threads; ++i) {
    pool->workers[i] = (Worker){pool, i};
    if (pthread_create(&pool->handles[i], 0, work, &pool->workers[i]) != 0) break;
    pool->threads = i + 1;
  }
  pool->partitions = pool->threads < PARTITIONS ? pool->threads : PARTITIONS;
  pool->owners = (pool->threads - 1) / pool->partitions + 1;
  return pool;
}

void pool_run(Pool *pool, Launch *launches, int count) {
  int parallel = 0;
  for (int i = 0; i < count; ++i) {
    launches[i].done = 0;
    launches[i].size = launches[i].grid(launches[i].variables);
    for (int k = 0; k < pool->partitions; ++k) launches[i].next[k] = start(&launches[i], pool->partitions, k);
    // rounded up: few large iterations are handed out one by one; many are small, and every share has its own start
    const int shares = launches[i].size <= FEW ? LEAST_SHARES : SHARES;
    const int least = (launches[i].size - 1) / (pool->threads * shares) + 1;
    launches[i].least = least > launches[i].cheap ? least : launches[i].cheap;
    launches[i].waits = launches[i].barrier || (i > 0 && launches[i - 1].size == 0 && launches[i - 1].waits);
    launches[i].first = i == 0 || (launches[i].waits && launches[i].size > 0) ? i : launches[i - 1].first;
    launches[i].owner = launches[i].size <= launches[i].cheap ? (i - launches[i].first) % pool->threads : -1;
    parallel |= launches[i].owner < 0;
  }
  if (pool->threads == 1 || !parallel) {
    for (int i = 0; i < count; ++i)
      if (launches[i].size > 0) launches[i].run(launches[i].buffers, launches[i].variables, 0, launches[i].size);
    return;
  }
  keep_apart(pool);
  pool->launches = launches;
  pool->count = count;
  __atomic_store_n(&pool->open, 1, __ATOMIC_SEQ_CST);
  __atomic_add_fetch(&pool->epoch, 1, __ATOMIC_SEQ_CST);
  wake(pool);
  int settled = 0;
  walk(pool, 0, &settled);
  complete(pool, 0, &settled, count);
  __atomic_store_n(&pool->open, 0, __ATOMIC_SEQ_CST);
  wait_until(pool, &pool->active, 1, 0);
}

void pool_destroy(Pool *pool) {
  __atomic_store_n(&pool->stop, 1, __ATOMIC_SEQ_CST);
  __atomic_add_fetch(&pool->epoch, 1, __ATOMIC_SEQ_CST);
  wake(pool);
  for (int i = 1; i < pool->threads; ++i) pthread_join(pool->handles[i], 0);
  free(pool->handles);
  free(pool->workers);
  free(pool);
}
"""
)


class LaunchRecord(ctypes.Structure):
    """The C side's Launch."""

    _fields_ = (
        ("run", ctypes.c_void_p), ("grid", ctypes.c_void_p),
        ("buffers", ctypes.c_void_p), ("variables", ctypes.c_void_p),
        ("barrier", ctypes.c_int), ("cheap", ctypes.c_int), ("size", ctypes.c_int), ("least", ctypes.c_int),
        ("waits", ctypes.c_int), ("first", ctypes.c_int), ("owner", ctypes.c_int),
        ("done", ctypes.c_int), ("next", ctypes.c_int * PARTITIONS),
    )  # fmt: skip


@functools.cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(compile_shared(SOURCE)))
    library.pool_create.argtypes, library.pool_create.restype = [ctypes.c_int], ctypes.c_void_p
    library.pool_run.argtypes, library.pool_run.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int], None
    library.pool_destroy.argtypes, library.pool_destroy.restype = [ctypes.c_void_p], None
    return library


class Pool:
    """`threads` threads, the calling one included. One list at a time: callers take turns outside."""

    def __init__(self, threads: int) -> None:
        self._library = _library()
        self._pool = self._library.pool_create(threads)
        # carries out the `LaunchRecord`s at an address, so many; returns when all have finished
        self.run: Callable[[int, int], None] = functools.partial(self._library.pool_run, self._pool)

    def close(self) -> None:
        """Stop the threads."""
        if self._pool:
            self._library.pool_destroy(self._pool)
            self._pool = None

"""The thread pool of the CPU runtime: C, compiled once, that carries out whole lists of launches.

A list is one call into native code. All threads walk it together: each takes blocks of a launch's grid from a counter,
and they meet at a barrier before a launch that depends on an earlier one. A waiting thread spins for some microseconds,
because the next launch usually follows at once, and then sleeps.
"""

from __future__ import annotations

import ctypes
import functools

from tinyweb.toolchain import compile_shared

# Only the compiler's own headers are visible: what is used of pthreads is declared here, with room for any system's
# types.
SOURCE = """\
typedef unsigned long size_t;
extern int pthread_create(void *thread, const void *attributes, void *(*start)(void *), void *argument);
extern int pthread_join(void *thread, void **result);
extern int pthread_mutex_init(void *mutex, const void *attributes);
extern int pthread_mutex_lock(void *mutex);
extern int pthread_mutex_unlock(void *mutex);
extern int pthread_cond_init(void *condition, const void *attributes);
extern int pthread_cond_wait(void *condition, void *mutex);
extern int pthread_cond_broadcast(void *condition);
extern void *calloc(size_t count, size_t bytes);
extern void free(void *memory);

enum { SPINS = 4000, BLOCKS_PER_THREAD = 4 };

typedef struct {
  void (*run)(void *const *buffers, const int *variables, int begin, int end);
  int (*grid)(const int *variables);
  void *const *buffers;
  const int *variables;
  int barrier;  // wait for all earlier launches first
  int next;     // the first grid iteration nobody has taken
} Launch;

typedef struct {
  int threads, stop, count, serial;
  Launch *launches;
  int arrived;      // threads at the barrier
  unsigned phase;   // barriers passed
  unsigned epoch;   // lists started
  int sleepers;
  void **handles;
  _Alignas(64) char mutex[256];
  _Alignas(64) char condition[256];
} Pool;

typedef struct { Pool *pool; int thread; } Worker;

static void pause_briefly(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static void wait_while(Pool *pool, unsigned *word, unsigned value) {
  for (int i = 0; i < SPINS; ++i) {
    if (__atomic_load_n(word, __ATOMIC_ACQUIRE) != value) return;
    pause_briefly();
  }
  pthread_mutex_lock(pool->mutex);
  __atomic_fetch_add(&pool->sleepers, 1, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(word, __ATOMIC_SEQ_CST) == value) pthread_cond_wait(pool->condition, pool->mutex);
  __atomic_fetch_sub(&pool->sleepers, 1, __ATOMIC_SEQ_CST);
  pthread_mutex_unlock(pool->mutex);
}

static void advance(Pool *pool, unsigned *word) {
  __atomic_fetch_add(word, 1, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&pool->sleepers, __ATOMIC_SEQ_CST) == 0) return;
  pthread_mutex_lock(pool->mutex);
  pthread_cond_broadcast(pool->condition);
  pthread_mutex_unlock(pool->mutex);
}

static void barrier(Pool *pool) {
  const unsigned phase = __atomic_load_n(&pool->phase, __ATOMIC_ACQUIRE);
  if (__atomic_add_fetch(&pool->arrived, 1, __ATOMIC_ACQ_REL) < pool->threads) {
    wait_while(pool, &pool->phase, phase);
  } else {
    __atomic_store_n(&pool->arrived, 0, __ATOMIC_RELAXED);
    advance(pool, &pool->phase);
  }
}

static void walk(Pool *pool, int thread) {
  for (int i = 0; i < pool->count; ++i) {
    Launch *launch = &pool->launches[i];
    if (launch->barrier) barrier(pool);
    const int size = launch->grid(launch->variables);
    if (size <= 1) {
      if (thread == 0 && size == 1) launch->run(launch->buffers, launch->variables, 0, 1);
      continue;
    }
    const int block = size / (pool->threads * BLOCKS_PER_THREAD) + 1;
    for (;;) {
      // no thread adds more than one block beyond the end, so this cannot overflow for the grids there are
      const int begin = __atomic_fetch_add(&launch->next, block, __ATOMIC_RELAXED);
      if (begin >= size) break;
      launch->run(launch->buffers, launch->variables, begin, size - begin < block ? size : begin + block);
    }
  }
}

static void *work(void *argument) {
  Worker worker = *(Worker *)argument;
  free(argument);
  unsigned seen = 0;
  for (;;) {
    wait_while(worker.pool, &worker.pool->epoch, seen);
    ++seen;
    if (worker.pool->stop) return 0;
    walk(worker.pool, worker.thread);
    barrier(worker.pool);
  }
}

// As many threads as could be made, at least the calling one.
Pool *pool_create(int threads) {
  Pool *pool = calloc(1, sizeof *pool);
  pthread_mutex_init(pool->mutex, 0);
  pthread_cond_init(pool->condition, 0);
  pool->handles = calloc(threads, sizeof(void *));
  pool->threads = 1;
  for (int i = 1; i < threads; ++i) {
    Worker *worker = calloc(1, sizeof *worker);
    worker->pool = pool;
    worker->thread = i;
    if (pthread_create(&pool->handles[i], 0, work, worker) != 0) { free(worker); break; }
    pool->threads = i + 1;
  }
  return pool;
}

void pool_run(Pool *pool, Launch *launches, int count) {
  int parallel = 0;
  for (int i = 0; i < count; ++i) {
    launches[i].next = 0;
    parallel |= launches[i].grid(launches[i].variables) > 1;
  }
  if (pool->threads == 1 || !parallel) {
    for (int i = 0; i < count; ++i) {
      const int size = launches[i].grid(launches[i].variables);
      if (size > 0) launches[i].run(launches[i].buffers, launches[i].variables, 0, size);
    }
    return;
  }
  pool->launches = launches;
  pool->count = count;
  advance(pool, &pool->epoch);
  walk(pool, 0);
  barrier(pool);
}

void pool_destroy(Pool *pool) {
  pool->stop = 1;
  advance(pool, &pool->epoch);
  for (int i = 1; i < pool->threads; ++i) pthread_join(pool->handles[i], 0);
  free(pool->handles);
  free(pool);
}
"""


class LaunchRecord(ctypes.Structure):
    """The C side's Launch."""

    _fields_ = (
        ("run", ctypes.c_void_p), ("grid", ctypes.c_void_p),
        ("buffers", ctypes.c_void_p), ("variables", ctypes.c_void_p),
        ("barrier", ctypes.c_int), ("next", ctypes.c_int),
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

    def run(self, launches: ctypes.Array[LaunchRecord], count: int) -> None:
        """Carry out `launches`; returns when all have finished."""
        self._library.pool_run(self._pool, launches, count)

    def close(self) -> None:
        """Stop the threads."""
        if self._pool:
            self._library.pool_destroy(self._pool)
            self._pool = None

"""The thread pool of the CPU runtime: no launch begins before those that it waits for, and none is lost."""

from __future__ import annotations

import ctypes
from random import Random

import pytest

from tinyweb.native_runtimes.cpu.pool import LaunchRecord, Pool
from tinyweb.toolchain import compile_shared

# variables: the iterations of a launch, how many of earlier launches must be complete, and how long one takes
KERNEL = """
int grid(const int *variables) { return variables[0]; }
void run(void *const *buffers, const int *variables, int begin, int end) {
  int *complete = buffers[0];
  const int missing = __atomic_load_n(&complete[0], __ATOMIC_SEQ_CST) < variables[1];
  __atomic_add_fetch(&complete[1], missing, __ATOMIC_SEQ_CST);
  for (volatile int i = 0; i < variables[2] * (end - begin); ++i) {}
  __atomic_add_fetch(&complete[0], end - begin, __ATOMIC_SEQ_CST);
}
"""


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_launches_wait_for_those_before_a_barrier(threads: int) -> None:
    library, pool, random = ctypes.CDLL(str(compile_shared(KERNEL))), Pool(threads), Random(threads)
    run, grid = (ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in ("run", "grid"))
    for _ in range(60):
        count, complete = random.randrange(1, 60), (ctypes.c_int * 2)()
        buffers = (ctypes.c_void_p * 1)(ctypes.addressof(complete))
        records, values, total, before = (LaunchRecord * count)(), [], 0, 0
        for record in records:
            record.run, record.grid, record.buffers = run, grid, ctypes.addressof(buffers)
            record.barrier, record.cheap = random.random() < 0.6, random.choice((1, 1, 5))
            before = total if record.barrier else before
            size = random.choice((0, 1, 1, 1, 2, 7, 200))
            values.append((ctypes.c_int * 3)(size, before, random.choice((0, 10, 3000))))
            record.variables = ctypes.addressof(values[-1])
            total += size
        for _ in range(3):
            complete[0] = 0
            pool.run(ctypes.addressof(records), count)
            assert list(complete) == [total, 0]
    pool.close()

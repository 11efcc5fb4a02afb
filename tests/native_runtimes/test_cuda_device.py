"""CUDA on a GPU, where there is one."""

import gc
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.native_runtimes.programs import elementwise, execute
from tinyweb.dtype import dtypes
from tinyweb.errors import DeviceError
from tinyweb.native_runtimes.cuda import CudaRuntime
from tinyweb.native_runtimes.staging import PIECE

ROOT = Path(__file__).resolve().parents[2]
F32, N = dtypes.float32, 64


@pytest.fixture(scope="module")
def runtime() -> CudaRuntime:
    try:
        return CudaRuntime()
    except DeviceError as error:
        pytest.skip(f"no NVIDIA GPU: {error}")


def test_values_and_replays(runtime: CudaRuntime) -> None:
    add = elementwise("add", [F32, F32], F32, lambda a, b: a + b, N, 4)
    a = np.arange(N, dtype=np.float32)
    assert (execute(runtime, add, [np.zeros(N, np.float32), a, a])[0] == 2 * a).all()
    (executable,) = runtime.compile([add])
    x, y, z = (runtime.allocate(4 * N) for _ in range(3))
    runtime.copy_in(x, memoryview(a).cast("B"))
    replay = runtime.prepare([executable, executable], [(1, 0, 2), (2, 1, 0)], [x, y])
    expected = np.zeros(N, np.float32)
    for _ in range(5):  # z = (x + z) + x
        replay([z], {})
        expected += 2 * a
        assert (np.frombuffer(runtime.copy_out(z, 4 * N), np.float32) == expected).all()
    del replay
    gc.collect()


def test_memory(runtime: CudaRuntime) -> None:
    free = runtime.free_bytes()
    assert free is not None and free > 1 << 28
    data = np.random.default_rng(0).integers(0, 256, 3 * PIECE + 12345, np.uint8)
    handle = runtime.allocate(data.nbytes)
    assert not any(runtime.copy_out(handle, 4096))
    runtime.copy_in(handle, memoryview(data).cast("B"))
    assert runtime.copy_out(handle, data.nbytes) == data.tobytes()
    with pytest.raises(MemoryError, match="has no memory for a buffer of"):
        runtime.allocate(1 << 45)
    runtime.free(handle)
    small = [runtime.allocate(1 << 20) for _ in range(100)]
    for h in small:
        runtime.free(h)
    runtime.synchronize()
    assert (runtime.free_bytes() or 0) > free - (64 << 20)


PROGRAMS = """
import time
import numpy as np
from tests.native_runtimes.programs import Writer, elementwise, execute, index
from tinyweb.dtype import dtypes
from tinyweb.errors import DeviceError
from tinyweb.native_runtimes.cuda import CudaRuntime

runtime, zeros = CudaRuntime(), [np.zeros(64, np.float32)] * 3
good = elementwise("good", [dtypes.float32] * 2, dtypes.float32, lambda a, b: a + b, 64, 4)
w = Writer()
out, a, b = (w.param(dtypes.float32, 64) for _ in range(3))
"""
FAULT = """
w.store(out, index(1 << 30), w.load(a, index(0)) + w.load(b, index(0)))
try:
    execute(runtime, w.program("far"), zeros)
except DeviceError as error:
    print(error)
try:
    print(execute(runtime, good, zeros)[0].tolist() == [0.0] * 64)
except DeviceError as error:
    print(error)
"""
LONG = """
loop = w.loop(1 << 30)  # two additions that wait for each other: some seconds
w.end(loop, w.store(out, index(0), w.load(out, index(0)) + w.load(a, index(0)) + 1.0))
try:
    execute(runtime, w.program("slow"), zeros)
except DeviceError as error:
    print(error)
for _ in range(120):
    try:
        print(execute(runtime, good, zeros)[0].tolist() == [0.0] * 64)
        break
    except DeviceError:
        time.sleep(0.5)
"""


def said(code: str, **environment: str) -> list[str]:
    """Lines that a process of its own prints: what happens there is no other test's."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAMS + code], cwd=ROOT, env=env, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_kernel_that_faults(runtime: CudaRuntime) -> None:
    first, second = said(FAULT)
    assert "kernel far accessed memory that is not its own" in first
    assert second == ("True" if "is open again" in first else first)


def test_a_kernel_that_takes_long(runtime: CudaRuntime) -> None:
    first, second = said(LONG, TINYWEB_CUDA_SECONDS="0.2")
    assert "kernel slow has not ended after 0.2 seconds" in first and second == "True"

"""DISK: what the CPU computes, with memory that does not stay in the process."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from tinyweb import Tensor
from tinyweb.native_runtimes.cpu.mapped import ARENA, SMALL, DiskRuntime

RESIDENT = """
import resource, numpy as np
from tinyweb import Tensor
resident = lambda: int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
part = np.ones(8 << 20, np.uint8)
kept = [Tensor(part, device=DEVICE)]
before = most = resident()
for _ in range(40):
    kept.append(Tensor(part, device=DEVICE))
    most = max(most, resident())
for t in kept:
    assert t.data() == part.tobytes()
    most = max(most, resident())
print(most - before)
"""


def test_memory_is_zeros_then_what_was_written() -> None:
    runtime = DiskRuntime()
    for nbytes in (0, 8, SMALL, 5 * SMALL + 12, SMALL):
        handle = runtime.allocate(nbytes)
        assert runtime.copy_out(handle, nbytes) == bytes(nbytes)
        data = np.random.default_rng(nbytes).bytes(nbytes)
        runtime.copy_in(handle, memoryview(data))
        assert runtime.copy_out(handle, nbytes) == data
        if nbytes > 8:
            runtime.copy_in(handle, memoryview(b"abcd"), nbytes - 5)
            assert runtime.copy_out(handle, 5, nbytes - 5) == b"abcd" + data[-1:]
        with pytest.raises(ValueError, match="do not lie within"):
            runtime.copy_in(handle, memoryview(b"abcd"), nbytes - 3)
        runtime.free(handle)


def test_buffers_share_files_and_outlive_each_other() -> None:
    runtime = DiskRuntime()
    handles = [runtime.allocate(ARENA // 4) for _ in range(5)]
    for i, handle in enumerate(handles):
        runtime.copy_in(handle, memoryview(bytes([i + 1]) * 100), 4096)
    assert handles[0].arena is handles[3].arena is not handles[4].arena
    runtime.free(handles.pop(0))
    assert [runtime.copy_out(h, 2, 4195) for h in handles] == [bytes([i, 0]) for i in (2, 3, 4, 5)]


def test_it_computes() -> None:
    a = np.random.default_rng(0).standard_normal((300, 200)).astype(np.float32)
    found = (Tensor(a, device="DISK") @ Tensor(a.T.copy(), device="DISK")).relu().numpy()
    np.testing.assert_allclose(found, np.maximum(a @ a.T, 0), rtol=1e-4, atol=1e-3)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="what is resident is counted on Linux")
def test_what_is_held_is_not_resident() -> None:
    taken = {
        device: int(
            subprocess.check_output([sys.executable, "-c", RESIDENT.replace("DEVICE", repr(device))], timeout=120)
        )
        for device in ("CPU", "DISK")
    }
    assert taken["DISK"] < 80 << 20 < 300 << 20 < taken["CPU"]

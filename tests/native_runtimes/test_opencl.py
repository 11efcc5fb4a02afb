"""OPENCL: what is missing or goes wrong is one sentence, and what was compiled is kept."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.control.drivers import missing
from tests.native_runtimes.programs import elementwise, execute
from tinyweb import Tensor, toolchain
from tinyweb.dtype import dtypes
from tinyweb.errors import DeviceError
from tinyweb.native_runtimes.opencl import OpenClRuntime, device, devices
from tinyweb.native_runtimes.protocol import Launch

F32 = dtypes.float32
needs_a_driver = pytest.mark.skipif(bool(missing("OPENCL")), reason=missing("OPENCL"))


def test_the_package_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyopencl", None)
    with pytest.raises(DeviceError, match=r"needs the Python package pyopencl .*: install tinyweb\[opencl\]"):
        OpenClRuntime()


def test_no_driver(tmp_path: Path) -> None:
    environment = {**os.environ, "OCL_ICD_VENDORS": str(tmp_path), "OPENCL_VENDOR_PATH": str(tmp_path)}
    code = (
        "from tinyweb.errors import DeviceError\n"
        "from tinyweb.native_runtimes.open import open_runtime\n"
        "try: open_runtime('OPENCL')\n"
        "except DeviceError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=500)
    assert "OpenCL finds no driver" in done.stdout and "pocl-opencl-icd" in done.stdout, done
    assert len(done.stdout.strip().splitlines()) == 1


class Silent:
    """A platform of a driver that finds nothing."""

    name = "Some driver"

    def get_devices(self) -> list[object]:
        return []


def test_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    import pyopencl

    monkeypatch.setattr(pyopencl, "get_platforms", lambda: [Silent()])
    with pytest.raises(DeviceError, match=r"has a driver \(Some driver\), but it finds no device"):
        OpenClRuntime()


@needs_a_driver
def test_a_number_that_is_no_device() -> None:
    count = len(devices())
    with pytest.raises(DeviceError, match=rf"there is no device OPENCL:{count}: OpenCL finds OPENCL:0 \("):
        Tensor([1.0], device=f"OPENCL:{count}").realize()


@needs_a_driver
def test_a_source_that_does_not_compile() -> None:
    opened = device.open_device()
    with pytest.raises(DeviceError, match=r"kernel broken was refused by the OpenCL compiler of ") as caught:
        device.build(opened, ["broken"], "kernel void broken(global int *a) { nonsense(); }")
    assert "nonsense" in str(caught.value) and len(str(caught.value).splitlines()) <= 1 + device.LOG_LINES


@needs_a_driver
def test_more_memory_than_there_is() -> None:
    runtime = OpenClRuntime()
    limit = runtime.target.max_binding_bytes
    with pytest.raises(MemoryError, match=rf"no memory for a buffer of {limit + 1} bytes: .* allows {limit} in one"):
        runtime.allocate(limit + 1)
    handle = runtime.allocate(16)  # the device is as usable as before
    runtime.copy_in(handle, memoryview(b"0123456789abcdef"))
    assert runtime.copy_out(handle, 6, 10) == b"abcdef"
    runtime.free(handle)


@needs_a_driver
def test_memory_that_the_driver_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    import pyopencl

    def refuse(*_: object) -> None:
        raise pyopencl.MemoryError("clCreateBuffer failed: MEM_OBJECT_ALLOCATION_FAILURE")

    runtime = OpenClRuntime()
    with monkeypatch.context() as patch:
        patch.setattr(pyopencl, "Buffer", refuse)
        with pytest.raises(
            MemoryError, match=r"allocating 64 bytes: OpenCL has no memory left on .*ALLOCATION_FAILURE"
        ):
            runtime.allocate(64)
    assert runtime.copy_out(runtime.allocate(64), 64) == bytes(64)


@needs_a_driver
def test_a_launch_that_the_driver_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    import pyopencl

    def refuse(*_: object) -> None:
        raise pyopencl.LogicError("clEnqueueNDRangeKernel failed: INVALID_WORK_GROUP_SIZE")

    runtime = OpenClRuntime()
    program = elementwise("twice", [F32], F32, lambda a: a + a, 4, 1)
    with monkeypatch.context() as patch:
        patch.setattr(pyopencl, "enqueue_nd_range_kernel", refuse)
        with pytest.raises(DeviceError, match=r"kernel twice: the OpenCL driver of .* reports .*INVALID_WORK_GROUP"):
            execute(runtime, program, [np.zeros(4, np.float32), np.ones(4, np.float32)])
    assert execute(runtime, program, [np.zeros(4, np.float32), np.ones(4, np.float32)])[0].tolist() == [2.0] * 4


class Failed:
    """An event behind a kernel that has failed."""

    command_execution_status = -5

    def wait(self) -> None:
        import pyopencl

        raise pyopencl.RuntimeError("clWaitForEvents failed: OUT_OF_RESOURCES")


@needs_a_driver
@pytest.mark.parametrize("first", ["waiting", "asking"])
def test_a_kernel_that_fails(monkeypatch: pytest.MonkeyPatch, first: str) -> None:
    """As on a GPU, whose queue does nothing more then: it is named, and the device opened anew."""
    import pyopencl

    def refuse(*_: object, **more: object) -> None:
        raise pyopencl.LogicError("clEnqueueNDRangeKernel failed: INVALID_COMMAND_QUEUE")

    runtime = OpenClRuntime()
    (executable,) = runtime.compile([elementwise("next", [F32], F32, lambda a: a + 1.0, 4, 1)])
    fixed, given = runtime.allocate(16), runtime.allocate(16)
    replay = runtime.prepare([executable], [(1, 0)], [fixed])
    with monkeypatch.context() as patch:
        patch.setattr(pyopencl, "enqueue_marker", lambda queue: Failed())
        runtime.run([Launch(executable, (given, fixed))], {})
        if first == "asking":
            patch.setattr(pyopencl, "enqueue_nd_range_kernel", refuse)
        with pytest.raises(
            DeviceError, match=r"kernel next failed on .*all memory on the device is lost; .*open again"
        ):
            runtime.run([Launch(executable, (given, fixed))], {}) if first == "asking" else runtime.copy_out(given, 16)
    for use in (
        lambda: runtime.copy_out(given, 16),
        lambda: replay([given], {}),
        lambda: runtime.copy_in(given, memoryview(b"0123")),
    ):
        with pytest.raises(DeviceError, match="was lost when a kernel failed: make its tensors anew"):
            use()
    for handle in (fixed, given):
        runtime.free(handle)
    fixed, given = runtime.allocate(16), runtime.allocate(16)
    runtime.run([Launch(executable, (given, fixed))], {})  # compiled again
    assert np.frombuffer(runtime.copy_out(given, 16), np.float32).tolist() == [1.0] * 4
    replay = runtime.prepare([executable], [(1, 0)], [given])
    replay([fixed], {})
    assert np.frombuffer(runtime.copy_out(fixed, 16), np.float32).tolist() == [2.0] * 4


@needs_a_driver
def test_a_device_that_does_not_open_again(monkeypatch: pytest.MonkeyPatch) -> None:
    import pyopencl

    runtime = OpenClRuntime()
    with monkeypatch.context() as patch:
        patch.setattr(pyopencl, "enqueue_marker", lambda queue: Failed())
        patch.setattr(pyopencl, "get_platforms", lambda: [])
        for _ in range(2):
            with pytest.raises(DeviceError, match=r"a kernel failed on .*does not open again .*start the process anew"):
                runtime.synchronize()


@needs_a_driver
def test_a_kernel_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends after all, so that the device can be used again."""
    source = "kernel void slow(global volatile int *a) { for (int i = 0; i < 200000000; i++) a[0] += 1; }"
    monkeypatch.setenv("TINYWEB_OPENCL_SECONDS", "0.01")
    opened = device.open_device()
    (kernel,) = device.build(opened, ["slow"], source)
    memory = opened.cl.Buffer(opened.context, opened.cl.mem_flags.READ_WRITE, 16)
    kernel(opened.queue, (1,), (1,), memory)
    with pytest.raises(DeviceError, match=r"a kernel on .* has not ended after 0.01 s"):
        opened.finish()
    opened.queue.finish()
    opened.finish()


@needs_a_driver
def test_kernels_are_kept_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINYWEB_CACHE", str(tmp_path))
    program = elementwise("kept", [F32], F32, lambda a: a * a, 4, 1)
    inputs = [np.zeros(4, np.float32), np.arange(4, dtype=np.float32)]
    for damage in (b"", b"no binary", None):  # compiled, compiled again, read
        assert execute(OpenClRuntime(), program, inputs)[0].tolist() == [0.0, 1.0, 4.0, 9.0]
        (entry,) = tmp_path.glob("*.clbin")
        assert entry.suffix in toolchain.KEPT
        if damage is not None:
            entry.write_bytes(damage)
    whole = entry.read_bytes()
    entry.write_bytes(whole[:-9] + bytes(9))
    assert execute(OpenClRuntime(), program, inputs)[0].tolist() == [0.0, 1.0, 4.0, 9.0]


@needs_a_driver
def test_a_replay_hands_over_what_has_changed() -> None:
    runtime = OpenClRuntime()
    (executable,) = runtime.compile([elementwise("next", [F32], F32, lambda a: a + 1.0, 4, 1)])
    fixed, first, second = (runtime.allocate(16) for _ in range(3))
    replay = runtime.prepare([executable], [(1, 0)], [fixed])
    for handle in (first, second, first):
        replay([handle], {})
        assert np.frombuffer(runtime.copy_out(handle, 16), np.float32).tolist() == [1.0] * 4
    runtime.run([Launch(executable, (fixed, second))], {})  # arguments of its own
    replay([first], {})
    assert np.frombuffer(runtime.copy_out(first, 16), np.float32).tolist() == [3.0] * 4

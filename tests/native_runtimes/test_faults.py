"""What goes wrong outside of a program: drivers, packages, traps, forks, threads."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from tests.native_runtimes.programs import Writer, elementwise, execute, index
from tinyweb.dtype import dtypes
from tinyweb.errors import DeviceError
from tinyweb.graph.ir import Ops, UOp
from tinyweb.graph.program import Program
from tinyweb.native_runtimes.cpu import CpuRuntime
from tinyweb.native_runtimes.protocol import Launch
from tinyweb.native_runtimes.wasm import WasmRuntime
from tinyweb.native_runtimes.webgpu.backend import open_backend

I32 = dtypes.int32


def test_no_gpu_driver() -> None:
    environment = {**os.environ, "VK_DRIVER_FILES": "/nonexistent", "VK_ICD_FILENAMES": "/nonexistent"}
    code = (
        "from tinyweb.errors import DeviceError\n"
        "from tinyweb.native_runtimes.open import open_runtime\n"
        "try: open_runtime('WEBGPU')\n"
        "except DeviceError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert "install a Vulkan driver" in done.stdout and "mesa-vulkan-drivers" in done.stdout, done
    assert len(done.stdout.strip().splitlines()) == 1


def test_dawn_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydawn", None)
    with pytest.raises(DeviceError, match=r"needs the Python package dawn-python.*unset TINYWEB_WEBGPU"):
        open_backend("dawn")


def test_a_shader_that_does_not_compile_is_named() -> None:
    backend = open_backend("wgpu")
    with pytest.raises(DeviceError, match=r"kernel broken was refused by wgpu:\n(.*\n)*.*nonsense"):
        backend.create_pipeline("broken", "@compute @workgroup_size(1) fn main() { nonsense(); }", [])
    with pytest.raises(DeviceError, match="kernel unbound was refused by wgpu"):
        text = "@group(0) @binding(0) var<storage> a: array<u32>; var<private> b: u32;"
        backend.create_pipeline("unbound", f"{text} @compute @workgroup_size(1) fn main() {{ b = a[0]; }}", [])


def test_a_trap_is_told_from_its_kernel() -> None:
    runtime = WasmRuntime()

    def quotient(a: UOp, b: UOp) -> UOp:
        return a.alu(Ops.FLOORDIV, b)

    fine, bad = runtime.compile([elementwise(n, [I32, I32], I32, quotient, 4, 1) for n in ("fine", "bad")])
    out, ones, zeros = (runtime.allocate(16) for _ in range(3))
    runtime.copy_in(ones, memoryview(np.ones(4, np.int32)).cast("B"))
    launches = [Launch(fine, (out, ones, ones)), Launch(bad, (out, ones, zeros)), Launch(fine, (out, ones, ones))]
    with pytest.raises(DeviceError, match=r"kernel bad trapped: .*divide by zero"):
        runtime.run(launches, {})
    runtime.run(launches[:1], {})
    assert runtime.copy_out(out, 4) == b"\1\0\0\0"


def increments() -> Program:
    """Adds one to each of 64 numbers, 100 times over, in dependent launches."""
    w = Writer()
    out, a = w.param(I32, 64), w.param(I32, 64)
    g = w.grid(64)
    w.store(out, g, w.load(a, g) + 1)
    return w.program("increment", (64, 1, 1))


def count_up(runtime: CpuRuntime) -> np.ndarray:
    (executable,) = runtime.compile([increments()])
    a, b = runtime.allocate(256), runtime.allocate(256)
    for _ in range(20):
        runtime.run([Launch(executable, (b, a)), Launch(executable, (a, b))] * 50, {})
    return np.frombuffer(runtime.copy_out(a, 256), np.int32)


@pytest.mark.parametrize("threads", [1, 2, 3, 4, 16, 17, 37])  # more than a grid has partitions, too
def test_any_number_of_threads(threads: int) -> None:
    assert set(count_up(CpuRuntime(threads))) == {2000}


def test_callers_on_several_threads_take_turns() -> None:
    runtime = CpuRuntime(2)
    results: list[np.ndarray] = []
    callers = [threading.Thread(target=lambda: results.append(count_up(runtime))) for _ in range(4)]
    for c in callers:
        c.start()
    for c in callers:
        c.join(60)
    assert [set(r) for r in results] == [{2000}] * 4


def test_a_forked_child_has_threads_of_its_own() -> None:
    runtime = CpuRuntime(3)
    count_up(runtime)
    child = os.fork()
    if child == 0:
        os._exit(0 if set(count_up(runtime)) == {2000} else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_programs_without_a_grid_run_once() -> None:
    w = Writer()
    out = w.param(I32, 1)
    w.store(out, index(0), UOp.const(7, I32))
    for runtime in (CpuRuntime(2), WasmRuntime()):
        assert execute(runtime, w.program("seven"), [np.zeros(1, np.int32)])[0].tolist() == [7]

"""CUDA without a GPU: kernels compiled by NVRTC, and the runtime's calls on a stand-in for the driver."""

import gc
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver as real

from tests.native_runtimes.cuda_driver import CudaDriver
from tests.native_runtimes.programs import Writer, elementwise, execute, index
from tinyweb.dtype import dtypes
from tinyweb.errors import DeviceError
from tinyweb.graph.ir import Ops, Space, UOp, Variable
from tinyweb.graph.program import Program
from tinyweb.native_runtimes import runs
from tinyweb.native_runtimes.cuda import CudaRuntime, devices, driver, queue
from tinyweb.native_runtimes.cuda.compile import architecture, compile_cuda
from tinyweb.native_runtimes.cuda.replay import dependencies
from tinyweb.native_runtimes.protocol import Launch
from tinyweb.native_runtimes.staging import PIECE
from tinyweb.render_c import CUDA, dynamic_shared, render_gpu

F32, I32 = dtypes.float32, dtypes.int32
N = 64


def opened(driver: CudaDriver, *programs: Program) -> CudaRuntime:
    driver.programs |= {p.name: p for p in programs}
    return CudaRuntime(driver=driver)


def add(name: str = "add") -> Program:
    return elementwise(name, [F32, F32], F32, lambda a, b: a + b, N, 4)


def counted() -> Program:
    """out[i] = n for the first `n` places, one workgroup each."""
    w, n = Writer(), Variable("n", 0, N)
    out = w.param(I32, N)
    g = w.grid(n)
    w.store(out, g, n.cast(I32))
    return w.program("counted", (n, 1, 1))


def numbers(runtime: CudaRuntime, handle: Any, kind: type = np.float32) -> list[Any]:
    return np.frombuffer(runtime.copy_out(handle, 4 * N), kind).tolist()


def floats(runtime: CudaRuntime, *rows: Sequence[float]) -> list[Any]:
    handles = [runtime.allocate(4 * N) for _ in rows]
    for handle, row in zip(handles, rows):
        runtime.copy_in(handle, memoryview(np.resize(np.array(row, np.float32), N)).cast("B"))
    return handles


# -- compiling ---------------------------------------------------------------------------------------------------------
SPILLS = """
extern "C" __global__ void __launch_bounds__(1024, 2) many(float *a, const float *b, int n) {
  float r[100];
  for (int i = 0; i < 100; i++) r[i] = a[i * n + threadIdx.x];
  for (int i = 0; i < 100; i++) for (int j = 0; j < 100; j++) r[i] += r[j] * b[i];
  for (int i = 0; i < 100; i++) a[i * n + threadIdx.x] = r[i];
}
extern "C" __global__ void few(float *a) { __shared__ float s[256]; s[threadIdx.x] = *a; __syncthreads(); *a = s[0]; }
"""


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90", "sm_100", "sm_120"])
def test_what_a_kernel_takes_is_read_from_the_cubin(arch: str) -> None:
    compiled = compile_cuda(SPILLS, arch)
    many, few = compiled.resources["many"], compiled.resources["few"]
    assert compiled.code.startswith(b"\x7fELF")
    assert many.spill_bytes > 1000 and many.stack_bytes > 500 and many.registers <= 64 and many.shared_bytes == 0
    assert few.spill_bytes == few.stack_bytes == 0 and few.registers < 32 and few.shared_bytes == 1024
    assert compile_cuda(SPILLS, arch) == compiled, "from the cache"


def test_what_nvrtc_refuses_is_named() -> None:
    with pytest.raises(DeviceError, match=r"kernel broken was refused by NVRTC for sm_90:\n(.*\n)*.*nonsense") as found:
        compile_cuda('extern "C" __global__ void broken() { nonsense(); }' + "int x = y;\n" * 500, "sm_90", "broken")
    assert len(str(found.value).splitlines()) < 15


def test_damaged_code_is_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINYWEB_CACHE", str(tmp_path))
    source = 'extern "C" __global__ void one(float *a) { *a = 1; }'
    first = compile_cuda(source, "sm_90")
    (entry,) = tmp_path.glob("*.cubin")
    whole = entry.read_bytes()
    for damaged in (b"", whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1]), b"{" + whole[1:]):
        entry.write_bytes(damaged)
        assert compile_cuda(source, "sm_90") == first and entry.read_bytes() == whole


def test_each_gpu_gets_the_code_it_runs() -> None:
    names = {capability: architecture(capability) for capability in (75, 80, 86, 87, 89, 90, 100, 103, 120, 121)}
    assert names == {
        75: "sm_75", 80: "sm_80", 86: "sm_86", 87: "sm_86", 89: "sm_89", 90: "sm_90", 100: "sm_100", 103: "sm_100",
        120: "sm_120", 121: "sm_120",
    }  # fmt: skip
    assert architecture(150) == "compute_120"
    assert compile_cuda(SPILLS, "compute_120").code.lstrip().startswith(b"//")  # PTX
    with pytest.raises(DeviceError, match=r"compute capability 7.5 or newer, and this one has 6.1"):
        architecture(61)


# -- the runtime -------------------------------------------------------------------------------------------------------
def test_programs_run() -> None:
    runtime = opened(CudaDriver(), add())
    a, b = np.arange(N, dtype=np.float32), np.ones(N, np.float32)
    assert (execute(runtime, add(), [np.zeros(N, np.float32), a, b])[0] == a + 1).all()
    assert runtime.target.language == "cuda" and runtime.target.name == "sm_90"
    runtime.run([], {})


def test_memory_begins_with_zeros_and_is_given_back() -> None:
    stand_in = CudaDriver(total=1 << 20)
    runtime = opened(stand_in)
    for _ in range(20):
        handle = runtime.allocate(900_000)
        assert runtime.copy_out(handle, 900_000, 0) == bytes(900_000)
        with pytest.raises(MemoryError, match=r"CUDA \(Stand-in\) has no memory for a buffer of 200000 bytes: \d+ are"):
            runtime.allocate(200_000)
        runtime.free(handle)
    runtime.synchronize()
    assert not stand_in.memory and runtime.free_bytes() == 1 << 20
    empty = runtime.allocate(0)
    assert runtime.copy_out(empty, 0) == b""


def test_copies_of_any_size_and_place() -> None:
    runtime = opened(CudaDriver())
    data = np.random.default_rng(0).integers(0, 256, 2 * PIECE + 12345, np.uint8)
    handle = runtime.allocate(data.nbytes)
    changing = data.copy()
    runtime.copy_in(handle, memoryview(changing).cast("B"))
    changing[:] = 0  # the copy is made
    for i in range(300):
        runtime.copy_in(handle, memoryview(data[7 * i : 7 * i + 5]).cast("B"), 7 * i)
    assert runtime.copy_out(handle, data.nbytes - 3, 3) == data[3:].tobytes()
    with pytest.raises(ValueError, match="do not lie within a buffer"):
        runtime.copy_out(handle, 10, data.nbytes - 9)


def test_replays_become_a_graph_that_follows_what_varies() -> None:
    stand_in = CudaDriver()
    runtime = opened(stand_in, add("first"), add("second"))
    one, two = runtime.compile([add("first"), add("second")])
    x, y, out = floats(runtime, [1, 2], [10], [0])
    replay = runtime.prepare([one, two], [(1, 0, 3), (2, 1, 3)], [x, y, out])
    calls = []
    for step in range(4):
        (varying,) = floats(runtime, [step])
        stand_in.calls.clear()
        replay([varying], {})
        calls.append(list(stand_in.calls))
        assert numbers(runtime, out)[:2] == [1 + 2 * step, 2 + 2 * step]
    assert calls[0].count("cuLaunchKernel") == 2 and "cuGraphLaunch" not in calls[0]
    assert "cuGraphInstantiate" in calls[1]
    assert [c for c in calls[2] if "Graph" in c or "Launch" in c] == [
        *["cuGraphNodeSetEnabled", "cuGraphExecKernelNodeSetParams"] * 2, "cuGraphLaunch",
    ]  # fmt: skip
    stand_in.calls.clear()
    replay([varying], {})
    assert stand_in.calls == ["cuCtxSetCurrent", "cuGraphLaunch", "cuEventRecord"], "nothing has changed"
    del replay
    gc.collect()
    runtime.synchronize()
    assert not stand_in.graphs


def test_variables_and_grids_follow() -> None:
    runtime = opened(CudaDriver(), counted(), add())
    executables = runtime.compile([counted(), add()])
    out, x, y, z = (runtime.allocate(4 * N) for _ in range(4))
    replay = runtime.prepare(executables, [(0,), (1, 2, 3)], [out, x, y, z])
    expected = [0] * N
    for n in (3, 5, 0, 0, 2, N):
        replay((), {"n": n})
        expected[:n] = [n] * n
        assert numbers(runtime, out, np.int32) == expected
    with pytest.raises(DeviceError, match="the variable n has no value"):
        replay((), {})
    runtime.run([Launch(executables[0], (out,))], {"n": 1})
    assert numbers(runtime, out, np.int32)[:2] == [1, N]


def test_launches_wait_for_what_they_need_alone() -> None:
    p = add()  # writes its first, reads two
    slots = [(0, 8, 9), (1, 8, 9), (2, 0, 1), (0, 8, 8), (3, 2, 0)]
    assert list(dependencies((s, p) for s in slots)) == [[], [], [0, 1], [0, 2], [2, 3]]


def test_wrong_memory_is_refused() -> None:
    runtime = opened(CudaDriver(), add())
    (executable,) = runtime.compile([add()])
    a, b, small = runtime.allocate(4 * N), runtime.allocate(4 * N), runtime.allocate(4)
    with pytest.raises(DeviceError, match="buffer 2 has 4 bytes and needs 256"):
        runtime.run([Launch(executable, (a, b, small))], {})
    with pytest.raises(DeviceError, match="buffer 0 is written and passed a second time"):
        runtime.run([Launch(executable, (a, a, b))], {})
    replay = runtime.prepare([executable], [(0, 1, 2)], [a, b])
    for _ in range(2):
        with pytest.raises(DeviceError, match="buffer 2 has 4 bytes"):
            replay([small], {})


def test_large_shared_memory_is_given_at_launch() -> None:
    w = Writer()
    out = w.param(F32, N)
    parts = [w.buffer(F32, size, Space.SHARED) for size in (7, 20_000)]
    t = w.thread(N)
    w.store(parts[1], t * 300, t.cast(F32))
    w.store(parts[0], t * 0, UOp.const(1.0, F32), gate=t.alu(Ops.LESS, index(1)))
    w.barrier()
    w.store(out, t, w.load(parts[1], (index(N - 1) - t) * 300) + w.load(parts[0], index(0)))
    program = w.program("large", workgroup=(N, 1, 1))
    assert execute(opened(CudaDriver(), program), program, [np.zeros(N, np.float32)])[0].tolist() == [*range(N, 0, -1)]
    assert dynamic_shared(program, CUDA) == 80_032
    assert compile_cuda(render_gpu([program], CUDA), "sm_90").resources["large"].shared_bytes == 0


# -- what goes wrong ---------------------------------------------------------------------------------------------------
def test_a_kernel_that_faults_is_told_and_the_device_opened_anew() -> None:
    stand_in = CudaDriver()
    runtime = opened(stand_in, add("good"), add("bad"))
    good, bad = runtime.compile([add("good"), add("bad")])
    x, y, out = floats(runtime, [1], [2], [0])
    stand_in.faulty["bad"] = real.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS
    replay = runtime.prepare([good, good], [(0, 1, 2), (0, 1, 2)], [out, x, y])
    runtime.run([Launch(good, (out, x, y)), Launch(bad, (out, x, y))], {})  # nobody has asked yet
    with pytest.raises(DeviceError, match=r"kernel good or bad accessed memory that is not its own .*is open again"):
        runtime.copy_out(out, 4)
    lost = "memory on CUDA was lost when a kernel faulted"
    with pytest.raises(DeviceError, match=lost):
        runtime.copy_out(out, 4)
    with pytest.raises(DeviceError, match=lost):
        replay((), {})
    with pytest.raises(DeviceError, match=lost):
        runtime.run([Launch(good, (out, x, y))], {})
    for handle in (x, y, out):
        runtime.free(handle)
    del replay
    x, y, out = floats(runtime, [1], [2], [0])
    runtime.run([Launch(good, (out, x, y))], {})
    assert numbers(runtime, out)[0] == 3


def test_a_driver_that_does_not_open_again() -> None:
    stand_in = CudaDriver()
    runtime = opened(stand_in, add())
    stand_in.faulty["add"] = real.CUresult.CUDA_ERROR_MISALIGNED_ADDRESS
    stand_in.reset_works = False
    for _ in range(2):
        with pytest.raises(DeviceError, match=r"memory that is not aligned .*: start the process anew"):
            execute(runtime, add(), [np.zeros(N, np.float32)] * 3)


def test_a_kernel_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(queue.VARIABLE, "0.05")
    stand_in = CudaDriver()
    runtime = opened(stand_in, add())
    stand_in.endless.add("add")
    given_back = runtime.allocate(4)
    with pytest.raises(DeviceError, match=r"kernel add has not ended after 0.05 seconds; .*raise TINYWEB_CUDA_SECONDS"):
        execute(runtime, add(), [np.zeros(N, np.float32)] * 3)
    held = len(stand_in.memory)
    runtime.free(given_back)
    with pytest.raises(DeviceError, match="has not ended"):
        runtime.allocate(4)
    assert len(stand_in.memory) == held
    stand_in.end()
    for _ in range(2):
        runtime.synchronize()
    assert len(stand_in.memory) < held, "what was given back meanwhile"
    assert execute(runtime, add(), [np.zeros(N, np.float32), *[np.ones(N, np.float32)] * 2])[0][0] == 2
    monkeypatch.setenv(queue.VARIABLE, "soon")
    with pytest.raises(DeviceError, match="TINYWEB_CUDA_SECONDS is 'soon': set it to a number of seconds above 0"):
        opened(CudaDriver())


def test_no_more_runs_are_in_flight_than_anybody_can_wait_for() -> None:
    stand_in = CudaDriver()
    runtime = opened(stand_in, add())
    (executable,) = runtime.compile([add()])
    x, y, out = floats(runtime, [1], [2], [0])
    for _ in range(3 * runs.MOST):
        runtime.run([Launch(executable, (out, x, y))], {})
    assert len(stand_in.events) <= runs.MOST + 1


RESULTS = real.CUresult


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        ({"cuInit": RESULTS.CUDA_ERROR_NO_DEVICE}, "there is no NVIDIA GPU here"),
        (
            {"cuInit": RESULTS.CUDA_ERROR_SYSTEM_DRIVER_MISMATCH},
            r"driver does not start \(.*install NVIDIA's driver 580",
        ),
        (
            {"cuInit": RESULTS.CUDA_ERROR_NOT_PERMITTED},
            "CUDA does not open: cuInit failed with CUDA_ERROR_NOT",
        ),
        ({"cuMemAllocAsync": RESULTS.CUDA_ERROR_UNKNOWN}, r"CUDA \(Stand-in\): cuMemAllocAsync failed with"),
        ({"cuModuleLoadData": RESULTS.CUDA_ERROR_UNSUPPORTED_PTX_VERSION}, "install a newer driver"),
    ],
)
def test_what_the_driver_refuses(refused: dict[str, Any], message: str) -> None:
    stand_in = CudaDriver()
    stand_in.refuse = refused
    with pytest.raises(DeviceError, match=message):
        execute(opened(stand_in, add()), add(), [np.zeros(N, np.float32)] * 3)


def test_there_is_no_such_gpu_or_an_old_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DeviceError, match=r"there is no device CUDA:3: choose CUDA:0 alone"):
        CudaRuntime(3, CudaDriver())
    assert devices(CudaDriver()) == ["Stand-in"]
    monkeypatch.setattr(CudaDriver, "_cuDriverGetVersion", lambda self: 12040)
    with pytest.raises(DeviceError, match=r"driver is for CUDA 12.4, and kernels are compiled for CUDA 13: install"):
        opened(CudaDriver())


def test_without_memory_pools() -> None:
    stand_in = CudaDriver(attributes={115: 0})
    runtime = opened(stand_in, add())
    assert execute(runtime, add(), [np.zeros(N, np.float32), *[np.ones(N, np.float32)] * 2])[0][0] == 2
    assert "cuMemAllocAsync" not in stand_in.calls and not stand_in.memory


def said(code: str, hidden: str) -> str:
    """What opening CUDA says in a process that lacks a module."""
    text = (
        f"import sys; sys.modules[{hidden!r}] = None\n{code}\n"
        "from tinyweb.errors import DeviceError\nfrom tinyweb.native_runtimes.open import open_runtime\n"
        "try: open_runtime('CUDA')\nexcept DeviceError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_what_is_missing_is_said() -> None:
    without_driver = "import ctypes.util; from cuda.bindings import driver\n"
    without_driver += "def missing(): raise RuntimeError('no libcuda')\ndriver.cuDriverGetVersion = missing"
    assert "cuda-bindings, which is not installed: pip install 'tinyweb[cuda]'" in said("", "cuda.bindings")
    assert "NVIDIA's driver, which is not installed here: install NVIDIA's driver 580" in said(without_driver, "pynvml")


def test_nothing_of_it_is_imported_unless_used() -> None:
    code = "import sys, tinyweb.native_runtimes.open, tinyweb; print([m for m in sys.modules if m.startswith('cuda')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done


def test_the_stand_in_has_what_the_driver_has() -> None:
    functions = [n[1:] for n in vars(CudaDriver) if n.startswith("_cu")]
    assert len(functions) > 30 and all(callable(getattr(real, n)) for n in functions)
    assert driver.FAULTS.keys() <= {int(r) for r in real.CUresult}

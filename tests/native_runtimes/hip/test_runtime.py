"""The HIP runtime against a stand-in for AMD's library, which checks each call and runs the text of kernels."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from tests.native_runtimes.hip.standin import MEGABYTE, StandIn
from tests.native_runtimes.programs import Writer, execute
from tests.native_runtimes.test_lowered import REDUCTIONS, compare
from tinyweb import Tensor
from tinyweb.dtype import dtypes
from tinyweb.errors import DeviceError
from tinyweb.graph.ir import Space, Variable
from tinyweb.graph.program import Program
from tinyweb.native_runtimes.hip import HipRuntime
from tinyweb.native_runtimes.hip.memory import HipBuffer
from tinyweb.native_runtimes.protocol import Launch
from tinyweb.native_runtimes.staging import PIECE

I32, F32 = dtypes.int32, dtypes.float32
COUNT = 64


@pytest.fixture
def standin(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    return StandIn(monkeypatch)


@pytest.fixture
def runtime(standin: StandIn) -> Iterator[HipRuntime]:
    """One that gives back all that it has taken, and whose calls are as they should be."""
    opened = HipRuntime()
    yield opened
    gc.collect()
    standin.hang(False)
    opened.close()
    standin.check()
    assert standin.alive == {}


def add(amount: int) -> Program:
    """out[i] = a[i] + amount."""
    w = Writer()
    out, a = w.param(I32, COUNT), w.param(I32, COUNT)
    at = w.grid(COUNT // 16) * 16 + w.thread(16)
    w.store(out, at, w.load(a, at) + amount)
    return w.program(f"add_{amount}", (COUNT // 16, 1, 1), (16, 1, 1))


def multiples() -> Program:
    """The first n · 16 elements of out become s · their index; n, s are variables."""
    s, n = Variable("s", 0, 1000), Variable("n", 0, COUNT // 16)
    w = Writer()
    out = w.param(I32, COUNT)
    at = w.grid(n) * 16 + w.thread(16)
    w.store(out, at, (at * s).cast(I32))
    return w.program("multiples", (n, 1, 1), (16, 1, 1))


def reversed_groups() -> Program:
    """Each group of 16 elements in the other order, through memory that a workgroup shares."""
    w = Writer()
    out, a, shared = w.param(F32, COUNT), w.param(F32, COUNT), w.buffer(F32, 16, Space.SHARED)
    g, t = w.grid(COUNT // 16), w.thread(16)
    w.barrier(w.store(shared, t, w.load(a, g * 16 + t)))
    w.store(out, g * 16 + t, w.load(shared, t * -1 + 15))
    return w.program("reversed_groups", (COUNT // 16, 1, 1), (16, 1, 1))


def words(*values: int) -> memoryview:
    return memoryview(np.array(values, np.int32)).cast("B")


def numbers(runtime: HipRuntime, handle: HipBuffer) -> list[int]:
    return np.frombuffer(runtime.copy_out(handle, 4 * COUNT), np.int32).tolist()


# -- what works --------------------------------------------------------------------------------------------------------
def test_kernels_run_with_their_memory_and_variables(runtime: HipRuntime) -> None:
    a = np.arange(COUNT, dtype=np.float32)
    assert execute(runtime, reversed_groups(), [a * 0, a])[0].tolist() == a.reshape(-1, 16)[:, ::-1].ravel().tolist()
    for n, s in ((4, 3), (1, 1000), (0, 7), (2, 0)):
        (got,) = execute(runtime, multiples(), [np.full(COUNT, -1, np.int32)], {"n": n, "s": s})
        assert got.tolist() == [i * s if i < n * 16 else -1 for i in range(COUNT)]


def test_memory_is_zeroed_copied_in_parts_and_used_again(runtime: HipRuntime, standin: StandIn) -> None:
    size = 2 * PIECE + 4 * 77
    data = np.random.default_rng(0).integers(0, 256, size, np.uint8)
    handle = runtime.allocate(size)
    assert not any(runtime.copy_out(handle, 100, size - 100))
    runtime.copy_in(handle, memoryview(data))
    runtime.copy_in(handle, words(5), 3)
    data[3:7] = np.frombuffer(words(5), np.uint8)
    assert runtime.copy_out(handle, size) == data.tobytes()
    assert runtime.copy_out(handle, 9, PIECE - 4) == data[PIECE - 4 : PIECE + 5].tobytes()
    address = handle.address
    runtime.free(handle)
    again = runtime.allocate(size)
    assert again.address == address and not any(runtime.copy_out(again, size))
    runtime.free(again)
    empty = runtime.allocate(0)
    assert runtime.copy_out(empty, 0) == b""
    runtime.free(empty)


def test_what_runs_again_becomes_a_graph(runtime: HipRuntime, standin: StandIn) -> None:
    executables = runtime.compile([add(1), add(10), add(1)])
    assert executables[0] is executables[2]
    fixed = [runtime.allocate(4 * COUNT) for _ in range(2)]
    given = [runtime.allocate(4 * COUNT) for _ in range(3)]
    replay = runtime.prepare(executables, [(0, 2), (1, 0), (2, 1)], fixed)
    for turn in range(4):
        for handle in given:
            replay([handle], {})
            assert numbers(runtime, handle) == [12 * (turn + 1)] * COUNT
    assert (standin.launches, standin.graph_launches) == (2 * 3 * 3, 3 * 3)
    del replay, executables
    gc.collect()
    runtime.synchronize()
    assert "executable graph" not in standin.alive and "module" not in standin.alive
    for handle in (*fixed, *given):
        runtime.free(handle)


def test_graphs_follow_grids_and_variables(runtime: HipRuntime, standin: StandIn) -> None:
    executables = runtime.compile([multiples(), add(1)])
    a, b = runtime.allocate(4 * COUNT), runtime.allocate(4 * COUNT)
    replay = runtime.prepare(executables, [(0,), (1, 0)], [a, b])
    expected = np.zeros(COUNT, np.int64)
    for turn in range(40):
        n, s = turn % 5, turn * 3
        replay((), {"n": n, "s": s})
        expected[: n * 16] = np.arange(n * 16) * s
        assert numbers(runtime, b) == (expected + 1).tolist()
    assert standin.graph_launches > 10 and standin.alive["executable graph"] <= 5
    runtime.free(a)
    runtime.free(b)


def test_where_there_are_no_graphs_launches_go_one_by_one(runtime: HipRuntime, standin: StandIn) -> None:
    executables = runtime.compile([add(1), add(10)])
    a, b = runtime.allocate(4 * COUNT), runtime.allocate(4 * COUNT)
    replay = runtime.prepare(executables, [(1, 0), (0, 1)], [a, b])
    standin.fail("hipGraphInstantiate", 801)
    for turn in range(3):
        replay((), {})
        assert numbers(runtime, a) == [11 * (turn + 1)] * COUNT
    assert standin.graph_launches == 0
    runtime.free(a)
    runtime.free(b)


@pytest.mark.parametrize("seed", range(4))
def test_any_order_of_calls(runtime: HipRuntime, standin: StandIn, seed: int) -> None:
    """Memory is taken, written, used and given back while kernels are still to run."""
    random = np.random.default_rng(seed)
    one, ten = runtime.compile([add(1), add(10)])
    held: list[tuple[HipBuffer, list[int]]] = []
    for _ in range(120):
        what = random.integers(6)
        if what == 0 or len(held) < 2:
            held.append((runtime.allocate(4 * COUNT), [int(random.integers(100))] * COUNT))
            runtime.copy_in(held[-1][0], words(*held[-1][1]))
        elif what == 1:
            runtime.free(held.pop(random.integers(len(held)))[0])
        elif what == 2:
            handle, expected = held[random.integers(len(held))]
            assert numbers(runtime, handle) == expected
        else:
            (a, _), (b, of_b) = (held[i] for i in random.permutation(len(held))[:2])
            executable, amount = (one, 1) if what % 2 else (ten, 10)
            runtime.run([Launch(executable, (a, b))], {})
            held = [(h, [x + amount for x in of_b] if h is a else v) for h, v in held]
    for handle, expected in held:
        assert numbers(runtime, handle) == expected
        runtime.free(handle)


def test_devices_are_numbered(monkeypatch: pytest.MonkeyPatch) -> None:
    standin = StandIn(monkeypatch, "gfx942", devices=2)
    first, second = HipRuntime(), HipRuntime(1)
    assert (first.name, second.name, second.chip, second.target.name) == ("HIP", "HIP:1", "gfx942", "gfx942")
    for runtime in (second, first):
        assert execute(runtime, add(1), [np.zeros(COUNT, np.int32)] * 2)[0].tolist() == [1] * COUNT
    with pytest.raises(DeviceError, match=r"no AMD GPU number 2 \(HIP:2\): choose HIP:0 … HIP:1"):
        HipRuntime(2)
    gc.collect()
    first.close()
    second.close()
    standin.check()
    assert standin.alive == {}


@pytest.mark.parametrize(
    ("name", "chip"),
    [  # waves of 32 threads, and of 64: quickly each of every other reduction
        (name, chip) if (i + j) % 2 else pytest.param(name, chip, marks=pytest.mark.slow)
        for i, name in enumerate(REDUCTIONS)
        for j, chip in enumerate(("gfx1100", "gfx942"))
    ],
)
def test_threads_of_a_wave_reduce_together(monkeypatch: pytest.MonkeyPatch, name: str, chip: str) -> None:
    standin, (inputs, ours) = StandIn(monkeypatch, chip), REDUCTIONS[name]
    runtime = HipRuntime()
    assert runtime.target.subgroups
    compare(runtime, runtime.target, inputs, ours, ours(*map(Tensor, inputs)).numpy())
    standin.check()
    assert name != "softmax" or any("of_lane(x" in source for _, source in standin.programs.values())
    gc.collect()
    runtime.close()


# -- what goes wrong ---------------------------------------------------------------------------------------------------
def test_no_memory_is_left(runtime: HipRuntime, standin: StandIn) -> None:
    kept = [runtime.allocate(10 * MEGABYTE, zeroed=False) for _ in range(5)]
    with pytest.raises(
        MemoryError, match=r"no memory for a buffer of 20971520 bytes: \d+ of 67108864 bytes are free; use"
    ):
        runtime.allocate(20 * MEGABYTE)
    assert runtime.free_bytes() == 14 * MEGABYTE
    runtime.free(kept.pop())  # kept for later, and given up when something else is asked for
    assert runtime.free_bytes() == 24 * MEGABYTE
    kept.append(runtime.allocate(20 * MEGABYTE))
    assert not any(runtime.copy_out(kept[-1], 1000))
    for handle in kept:
        runtime.free(handle)


@pytest.mark.parametrize(
    ("function", "number", "sentence"),
    [
        (
            "kernel",
            700,
            r"run of kernel add_1 failed with hipErrorIllegalAddress \(700\): a kernel accessed memory that is not",
        ),
        (
            "kernel",
            719,
            r"run of kernel add_1 failed with hipErrorLaunchFailure \(719\): a kernel was ended by the driver",
        ),
        ("hipModuleLaunchKernel", 719, r"launch of kernel add_1 failed with hipErrorLaunchFailure \(719\)"),
        ("hipMemcpyAsync", 719, r"hipMemcpyAsync failed with hipErrorLaunchFailure"),
    ],
)
def test_a_kernel_that_fails(runtime: HipRuntime, standin: StandIn, function: str, number: int, sentence: str) -> None:
    executable, ten = runtime.compile([add(1), add(10)])
    a, b = runtime.allocate(4 * COUNT), runtime.allocate(4 * COUNT)
    replay = runtime.prepare([ten], [(0, 1)], [a, b])
    standin.fail(function, number)
    with pytest.raises(DeviceError, match=sentence + r".*the device was reset, and what was in its memory is lost$"):
        runtime.run([Launch(executable, (a, b))], {})
        runtime.copy_out(a, 4)
    assert standin.resets == 1
    for use in (
        lambda: runtime.copy_out(a, 4), lambda: runtime.copy_in(a, words(1)), lambda: replay((), {}),
        lambda: runtime.run([Launch(executable, (a, b))], {}),
    ):  # fmt: skip
        with pytest.raises(DeviceError, match="lost when the device was reset"):
            use()
    runtime.free(a)
    runtime.free(b)
    assert execute(runtime, add(1), [np.zeros(COUNT, np.int32)] * 2)[0].tolist() == [1] * COUNT


def test_a_device_that_cannot_be_reset(standin: StandIn) -> None:
    runtime = HipRuntime()
    a = runtime.allocate(4)
    standin.fail("hipMemcpyAsync", 719)
    standin.fail("hipDeviceReset", 719)
    with pytest.raises(DeviceError, match=r"could not be reset .*: start the process anew"):
        runtime.copy_in(a, words(1))
    for use in (lambda: runtime.copy_in(a, words(1)), lambda: runtime.allocate(4), runtime.synchronize):
        with pytest.raises(DeviceError, match=r"could not be reset .*: start the process anew"):
            use()
    runtime.free(a)
    runtime.abandon()
    standin.check()


@pytest.mark.parametrize("wait", ["copy_out", "copy_in", "synchronize", "free"])
def test_a_kernel_that_never_ends(monkeypatch: pytest.MonkeyPatch, standin: StandIn, wait: str) -> None:
    monkeypatch.setenv("TINYWEB_HIP_SECONDS", "0.05")
    runtime = HipRuntime()
    (executable,) = runtime.compile([add(1)])
    a, b = runtime.allocate(4 * COUNT), runtime.allocate(4 * COUNT)
    other = runtime.allocate(20 * MEGABYTE, zeroed=False)
    standin.hang()
    runtime.run([Launch(executable, (a, b))], {})

    def many_copies() -> None:  # through more pinned memory than there is
        for _ in range(3):
            runtime.copy_in(other, memoryview(bytes(PIECE)))

    def free() -> None:
        runtime.free(other)
        runtime.synchronize()

    calls: dict[str, Callable[[], object]] = {
        "copy_out": lambda: runtime.copy_out(a, 4),
        "copy_in": many_copies,
        "synchronize": runtime.synchronize,
        "free": free,
    }
    for _ in range(2):
        with pytest.raises(
            DeviceError, match=r"HIP: kernel add_1 did not end within 0.05 seconds \(TINYWEB_HIP_SECONDS"
        ):
            calls[wait]()
    with pytest.raises(DeviceError, match="did not end"):
        runtime.run([Launch(executable, (a, b))], {})
    standin.hang(False)
    assert numbers(runtime, a) in ([1] * COUNT, [0] * COUNT)
    runtime.run([Launch(executable, (a, b))], {})
    assert numbers(runtime, a) == [1] * COUNT
    for handle in (a, b, other):
        runtime.free(handle)
    del executable
    gc.collect()
    runtime.close()
    standin.check()
    assert standin.alive == {}


def test_mistakes_of_the_caller(runtime: HipRuntime, standin: StandIn) -> None:
    (executable,) = runtime.compile([add(1)])
    a, b = runtime.allocate(4 * COUNT), runtime.allocate(16)
    with pytest.raises(DeviceError, match="buffer 1 has 16 bytes and needs 256"):
        runtime.run([Launch(executable, (a, b))], {})
    with pytest.raises(DeviceError, match="takes 2 buffers and was given 1"):
        runtime.run([Launch(executable, (a,))], {})
    with pytest.raises(DeviceError, match="buffer 0 is written and passed a second time"):
        runtime.run([Launch(executable, (a, a))], {})
    with pytest.raises(DeviceError, match="the variable n has no value"):
        runtime.run([Launch(runtime.compile([multiples()])[0], (a,))], {"s": 1})
    with pytest.raises(ValueError, match="bytes 8 to 24 do not lie within a buffer of 16 bytes"):
        runtime.copy_out(b, 16, 8)
    runtime.free(b)
    with pytest.raises(DeviceError, match="buffer 1 has 0 bytes and needs 256"):
        runtime.run([Launch(executable, (a, b))], {})
    runtime.free(a)


# -- what is missing ---------------------------------------------------------------------------------------------------
def test_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINYWEB_HIP_LIBRARY", "/nonexistent/libamdhip64.so")
    with pytest.raises(DeviceError, match=r"^no HIP runtime was found .*: install AMD's ROCm .*TINYWEB_HIP_LIBRARY"):
        HipRuntime()


def test_a_library_without_a_function_that_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    from tinyweb.toolchain import compile_shared

    monkeypatch.setenv("TINYWEB_HIP_LIBRARY", str(compile_shared("int hipInit(unsigned f) { return 0; }")))
    with pytest.raises(DeviceError, match=r"the HIP library has no function hip\w+: ROCm 5.2 or newer is needed"):
        HipRuntime()


@pytest.mark.parametrize(
    ("number", "sentence"),
    [
        (100, "there is no AMD GPU that ROCm supports"),
        (101, "its kernel driver .amdgpu. is not loaded"),
        (35, "update it"),
    ],
)
def test_no_device(standin: StandIn, number: int, sentence: str) -> None:
    standin.fail("hipInit", number)
    with pytest.raises(DeviceError, match=rf"^HIP's hipInit failed with \w+ \({number}\).*{sentence}"):
        HipRuntime()
    standin.check()


def test_no_device_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    StandIn(monkeypatch, devices=0)
    with pytest.raises(DeviceError, match=r"hipGetDeviceCount failed with hipErrorNoDevice"):
        HipRuntime()


def test_chips_without_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    StandIn(monkeypatch, "gfx1030")
    runtime = HipRuntime()
    assert (
        runtime.chip == "gfx1030"
        and execute(runtime, add(1), [np.zeros(COUNT, np.int32)] * 2)[0].tolist() == [1] * COUNT
    )
    StandIn(monkeypatch, "gfx803")
    with pytest.raises(DeviceError, match=r"HIP is an AMD GPU of the kind gfx803, .*: choose another"):
        HipRuntime()
    StandIn(monkeypatch, "radeon")
    with pytest.raises(DeviceError, match="does not say what kind of AMD GPU it is"):
        HipRuntime()


def test_a_limit_that_is_none(monkeypatch: pytest.MonkeyPatch, standin: StandIn) -> None:
    monkeypatch.setenv("TINYWEB_HIP_SECONDS", "soon")
    with pytest.raises(DeviceError, match="TINYWEB_HIP_SECONDS is 'soon': set it to a number of seconds above 0"):
        HipRuntime()


def test_the_real_library_says_that_there_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one is installed; a machine with an AMD GPU opens."""
    monkeypatch.delenv("TINYWEB_HIP_LIBRARY", raising=False)
    try:
        runtime = HipRuntime()
    except DeviceError as error:
        assert "\n" not in str(error) and (
            "install AMD's ROCm" in str(error) or "AMD GPU" in str(error) or "driver" in str(error)
        )
    else:
        assert execute(runtime, add(1), [np.zeros(COUNT, np.int32)] * 2)[0].tolist() == [1] * COUNT

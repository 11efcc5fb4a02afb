"""Allocation, copies and what a wrong use is told."""

import threading

import numpy as np
import pytest

from tests.native_runtimes.programs import Writer, elementwise, index
from tinyweb.dtype import dtypes
from tinyweb.errors import DeviceError
from tinyweb.graph.ir import UOp, Variable
from tinyweb.native_runtimes.cpu.runtime import CpuRuntime
from tinyweb.native_runtimes.open import open_runtime
from tinyweb.native_runtimes.protocol import Launch, Runtime
from tinyweb.native_runtimes.wasm.allocator import Allocator
from tinyweb.native_runtimes.webgpu import WebGpuRuntime
from tinyweb.native_runtimes.webgpu.wgpu_backend import STAGING_BYTES

F32 = dtypes.float32


def test_new_memory_is_zero(runtime: Runtime) -> None:
    for nbytes in (0, 1, 3, 4, 1000, 300_000):
        first = runtime.allocate(nbytes)
        assert runtime.copy_out(first, nbytes) == bytes(nbytes)
        runtime.copy_in(first, memoryview(b"\xff" * nbytes))
        runtime.free(first)
        again = runtime.allocate(nbytes)  # where memory is taken up again, it is cleared
        assert runtime.copy_out(again, nbytes) == bytes(nbytes)
        runtime.free(again)


def test_memory_given_back_is_taken_again() -> None:
    """By the same handle, so that lists of launches prepared with it hold; and as it was where that will do."""
    runtime = CpuRuntime(threads=1)
    first, other = runtime.allocate(1000), runtime.allocate(1000)
    runtime.copy_in(first, memoryview(b"\xff" * 1000))
    runtime.free(first)
    runtime.free(first)  # once is enough
    assert runtime.allocate(1000, zeroed=False) is first and runtime.allocate(1000) not in (first, other)
    assert runtime.copy_out(first, 1000) == b"\xff" * 1000
    free = runtime.free_bytes()
    many = [runtime.allocate(runtime.spare_bytes // 8) for _ in range(12)]
    for handle in many:
        runtime.free(handle)
    assert sum(h.held for h in runtime._spare) <= runtime.spare_bytes and runtime._spare[-1] is many[-1]
    assert free is None or runtime.free_bytes() is not None


def test_copies_of_any_size_at_any_place(runtime: Runtime) -> None:
    rng = np.random.default_rng(0)
    held = bytearray(103)
    handle = runtime.allocate(103)
    for offset, count in ((0, 103), (1, 2), (3, 5), (4, 8), (5, 3), (100, 3), (102, 1), (7, 0), (1, 102)):
        data = rng.integers(0, 256, count, dtype=np.uint8).tobytes()
        runtime.copy_in(handle, memoryview(data), offset)
        held[offset : offset + count] = data
        assert runtime.copy_out(handle, 103) == held
        assert runtime.copy_out(handle, count, offset) == data
    runtime.free(handle)


def test_large_copies(runtime: Runtime) -> None:
    """Larger than what goes through staging at once."""
    in_a_page = isinstance(runtime, WebGpuRuntime) and runtime.backend_name == "chromium"
    staging = 1 << 16 if in_a_page else STAGING_BYTES  # a page is handed its bytes as text
    data = np.random.default_rng(1).integers(0, 256, 2 * staging + 12345, dtype=np.uint8)
    handle = runtime.allocate(data.nbytes)
    runtime.copy_in(handle, memoryview(data))
    assert runtime.copy_out(handle, data.nbytes) == data.tobytes()
    assert runtime.copy_out(handle, 7, staging - 3) == data[staging - 3 :][:7].tobytes()
    runtime.free(handle)


def test_copies_outside_of_a_buffer(runtime: Runtime) -> None:
    handle = runtime.allocate(8)
    for offset, count in ((0, 9), (8, 1), (-1, 2), (4, 5)):
        with pytest.raises(ValueError, match="do not lie within a buffer of 8 bytes"):
            runtime.copy_in(handle, memoryview(bytes(count)), offset)
        with pytest.raises(ValueError, match="do not lie within a buffer of 8 bytes"):
            runtime.copy_out(handle, count, offset)
    runtime.free(handle)
    with pytest.raises(ValueError, match="buffer of 0 bytes"):
        runtime.copy_out(handle, 8)


def test_more_memory_than_there_is(runtime: Runtime) -> None:
    with pytest.raises(MemoryError, match=str(1 << 50)):
        runtime.allocate(1 << 50)


def test_launches_are_checked(runtime: Runtime) -> None:
    program = elementwise("copy", [F32], F32, lambda x: x, 16, 4)
    (executable,) = runtime.compile([program])
    large, other, small = runtime.allocate(64), runtime.allocate(64), runtime.allocate(60)
    for buffers, said in (
        ((large,), "takes 2 buffers and was given 1"),
        ((large, small), "buffer 1 has 60 bytes and needs 64"),
        ((large, large), "is written and passed a second time"),
    ):
        with pytest.raises(DeviceError, match=rf"kernel copy.*{said}"):
            runtime.run([Launch(executable, buffers)], {})
    launches = (Launch(executable, (large, other)),)
    runtime.run(launches, {})
    runtime.free(other)
    with pytest.raises(DeviceError, match="buffer 1 has 0 bytes"):
        runtime.run(launches, {})  # a list that was kept does not outlive its memory
    runtime.free(large)
    runtime.free(small)


def test_a_variable_without_a_value(runtime: Runtime) -> None:
    n = Variable("lonely", 0, 4)
    w = Writer()
    out = w.param(F32, 4)
    w.store(out, w.grid(n), UOp.const(1.0, F32))
    (executable,) = runtime.compile([w.program("lonely", (n, 1, 1))])
    handle = runtime.allocate(16)
    with pytest.raises(DeviceError, match="variable lonely has no value"):
        runtime.run([Launch(executable, (handle,))], {})
    runtime.free(handle)


def test_memory_is_given_back_within_a_call(runtime: Runtime) -> None:
    """As the finalisers of garbage do, wherever it is collected."""
    n = Variable("late", 0, 4)
    w = Writer()
    out = w.param(F32, 4)
    w.store(out, w.grid(n), UOp.const(1.0, F32))
    (executable,) = runtime.compile([w.program("late", (n, 1, 1))])

    class GivesBack(dict[str, int]):
        def __getitem__(self, name: str) -> int:
            while unused:
                runtime.free(unused.pop())
            return super().__getitem__(name)

    kept, *unused = (runtime.allocate(16) for _ in range(4))
    for handle in unused:
        runtime.run([Launch(executable, (handle,))], {"late": 4})
    runtime.run([Launch(executable, (kept,))], GivesBack(late=4))
    assert not unused
    np.testing.assert_array_equal(np.frombuffer(runtime.copy_out(kept, 16), np.float32), np.ones(4))
    runtime.free(kept)


def test_memory_is_given_back_from_many_threads() -> None:
    """What one thread gives back while another has its turn is free at the latest when that turn ends."""
    from tinyweb.native_runtimes.wasm.runtime import STACK_BYTES, WasmRuntime

    runtime = WasmRuntime()

    def work() -> None:
        for nbytes in range(64, 6400, 64):
            runtime.free(runtime.allocate(nbytes))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert runtime._allocator.free_bytes() == runtime._allocator.end - STACK_BYTES


def test_equal_programs_compile_once(runtime: Runtime) -> None:
    program = elementwise("twice", [F32], F32, lambda x: x + x, 8, 1)
    first, second = runtime.compile([program, program])
    assert first is second
    assert runtime.compile([]) == []
    runtime.run([], {})


def test_a_program_the_target_has_no_words_for(runtime: Runtime) -> None:
    w = Writer()
    out = w.param(F32, 4)
    w.grid(1)
    there = dtypes.bfloat16 in runtime.target.storage and runtime.target.has_threads
    unknown = dtypes.float8_e4m3 if there else dtypes.bfloat16
    w.store(out, index(0), UOp.const(1.0, F32).cast(unknown).cast(F32))
    with pytest.raises(DeviceError, match=rf"{unknown.name} has no .* type: lowering"):
        runtime.compile([w.program("wordless")])


def test_a_replayed_list_after_its_buffers_changed(runtime: Runtime) -> None:
    program = elementwise("negate", [F32], F32, lambda x: x * UOp.const(-1.0, F32), 4, 1)
    (executable,) = runtime.compile([program])
    out, a = runtime.allocate(16), runtime.allocate(16)
    launches = (Launch(executable, (out, a)),)
    for value in (1.0, 2.0, 3.0):
        runtime.copy_in(a, memoryview(np.full(4, value, np.float32)).cast("B"))
        runtime.run(launches, {})
        np.testing.assert_array_equal(np.frombuffer(runtime.copy_out(out, 16), np.float32), [-value] * 4)
    runtime.synchronize()
    runtime.free(out)
    runtime.free(a)


def test_prepared_launches_get_other_memory(runtime: Runtime) -> None:
    program = elementwise("twofold", [F32], F32, lambda x: x + x, 4, 1)
    (executable,) = runtime.compile([program])
    a, first, second, small = (runtime.allocate(n) for n in (16, 16, 16, 4))
    runtime.copy_in(a, memoryview(np.arange(4, dtype=np.float32)).cast("B"))
    run = runtime.prepare([executable, executable], [(1, 0), (2, 1)], [a])  # the double, and its double
    for given in ((first, second), (second, first)):
        run(given, {})
        for handle, factor in zip(given, (2, 4)):
            found = np.frombuffer(runtime.copy_out(handle, 16), np.float32)
            np.testing.assert_array_equal(found, np.arange(4) * factor)
    for refused, says in (((first, small), "needs 16"), ((first, first), "passed a second time")):
        for _ in range(2):
            with pytest.raises(DeviceError, match=says):
                run(refused, {})
    run((first, second), {})
    for handle in (a, first, second, small):
        runtime.free(handle)


def test_unknown_device() -> None:
    with pytest.raises(DeviceError, match="unknown device 'TPU'"):
        open_runtime("TPU")


def test_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    from tinyweb.native_runtimes.cpu.runtime import thread_count

    monkeypatch.setenv("TINYWEB_THREADS", "3")
    assert thread_count() == 3 and open_runtime("CPU").target.parallel_threads == 3
    for wrong in ("0", "two", "-1", "100000"):
        monkeypatch.setenv("TINYWEB_THREADS", wrong)
        with pytest.raises(DeviceError, match="TINYWEB_THREADS"):
            thread_count()
    monkeypatch.setenv("TINYWEB_WEBGPU", "opengl")
    with pytest.raises(DeviceError, match="TINYWEB_WEBGPU is 'opengl'"):
        open_runtime("WEBGPU")


def test_the_allocator_joins_what_is_freed() -> None:
    a = Allocator(100, 1024)
    places = [a.take(n) for n in (1, 64, 65, 128)]
    assert places == [128, 192, 256, 384]
    assert a.take(513) is None and a.missing(513) == 576 - 512
    for place, n in zip(places, (1, 64, 65, 128)):
        assert place is not None
        a.give_back(place, n)
    assert a.take(896) == 128 and a.take(0) is None
    a.extend(2048)
    assert a.take(1024) == 1024 and a.missing(64) == 64


def test_wasm_memory_is_taken_up_again() -> None:
    from tinyweb.native_runtimes.wasm import WasmRuntime

    runtime = WasmRuntime()
    places = set()
    for _ in range(5):
        handle = runtime.allocate(40 << 20)
        places.add(handle.address)
        runtime.free(handle)
    assert len(places) == 1


def test_static_data_of_different_modules_does_not_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels have no static data of their own today; a module with some gets a place apart."""
    import tinyweb.render_wasm.module as module
    from tinyweb.native_runtimes.wasm import WasmRuntime

    runtime = WasmRuntime()
    from tinyweb.render_c import render as real

    executables = []
    for add in (3, 5):
        table = ", ".join(str(i * add) for i in range(64))
        with_table = f"static int table[64] = {{{table}}}; int *volatile keep = table;\n"
        monkeypatch.setattr(
            module, "render", lambda p, text=with_table: text + real(p).replace("p0[grid] =", "p0[grid] = keep[grid] +")
        )
        w = Writer()
        out, a = w.param(dtypes.int32, 64), w.param(dtypes.int32, 64)
        g = w.grid(64)
        w.store(out, g, w.load(a, g))
        executables += runtime.compile([w.program(f"table_{add}", (64, 1, 1))])
    handles = runtime.allocate(256), runtime.allocate(256)
    for executable, add in zip(executables, (3, 5)):
        runtime.run([Launch(executable, handles)], {})
        np.testing.assert_array_equal(np.frombuffer(runtime.copy_out(handles[0], 256), np.int32), np.arange(64) * add)

"""The interpreter is the oracle: it carries out what a program says, and refuses what would go wrong elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

from tests.native_runtimes.programs import Writer, execute, index, splat, stack
from tinyweb.dtype import dtypes
from tinyweb.errors import DeviceError
from tinyweb.graph.ir import Ops, Space, UOp, Variable
from tinyweb.graph.program import Program
from tinyweb.graph.target import cpu_target, webgpu_target
from tinyweb.native_runtimes.interpreter import InterpreterRuntime
from tinyweb.native_runtimes.protocol import Launch

F32, I32, U32 = dtypes.float32, dtypes.int32, dtypes.uint32


@pytest.fixture
def runtime() -> InterpreterRuntime:
    return InterpreterRuntime()


def copy_program(length: int, shift: int = 0) -> Program:
    w = Writer()
    out, a = w.param(F32, length), w.param(F32, length)
    g = w.grid(length)
    w.store(out, g, w.load(a, g + shift))
    return w.program("copy", (length, 1, 1))


def test_many_invocations_at_once(runtime: InterpreterRuntime) -> None:
    x = np.random.default_rng(0).standard_normal(200_000).astype(np.float32)  # more than are carried out together
    got = execute(runtime, copy_program(x.size), [np.zeros_like(x), x])
    np.testing.assert_array_equal(got[0], x)


def test_three_dimensions_of_grid_and_threads(runtime: InterpreterRuntime) -> None:
    w = Writer()
    out = w.param(I32, 2 * 3 * 4 * 2 * 3)
    gx, gy, gz = w.grid(2, 0), w.grid(3, 1), w.grid(4, 2)
    tx, ty = w.thread(2, 0), w.thread(3, 1)
    at = ((((gz * 3) + gy) * 2 + gx) * 3 + ty) * 2 + tx
    w.store(out, at, w.emit((at + 1).cast(I32)))
    (got,) = execute(runtime, w.program("dims", (2, 3, 4), (2, 3, 1)), [np.zeros(144, np.int32)])
    np.testing.assert_array_equal(got, np.arange(144) + 1)


def test_index_outside_of_a_buffer(runtime: InterpreterRuntime) -> None:
    with pytest.raises(IndexError, match="kernel copy: index 8 is outside of buffer 1 with 8 elements"):
        execute(runtime, copy_program(8, shift=1), [np.zeros(8, np.float32), np.zeros(8, np.float32)])
    with pytest.raises(IndexError, match="index -1 is outside of buffer 1"):
        execute(runtime, copy_program(8, shift=-1), [np.zeros(8, np.float32), np.zeros(8, np.float32)])


def test_a_false_gate_touches_nothing(runtime: InterpreterRuntime) -> None:
    w = Writer()
    out, a = w.param(F32, 6), w.param(F32, 4)
    g = w.grid(6)
    value = w.load(a, g, gate=w.emit(g < 4))
    w.store(out, g, w.emit(value + 1.0), gate=w.emit(UOp.const(0, dtypes.index) < g))
    got = execute(runtime, w.program("gated", (6, 1, 1)), [np.full(6, 9, np.float32), np.arange(4, dtype=np.float32)])
    np.testing.assert_array_equal(got[0], [9, 2, 3, 4, 1, 1])


def test_vectors_must_be_aligned_unless_the_target_is_c() -> None:
    w = Writer()
    out, a = w.param(F32, 4), w.param(F32, 8)
    g = w.grid(1)
    w.store(out, index(0), w.load(a, w.emit(g + 1), 4))
    program = w.program("unaligned", (1, 1, 1))
    buffers = [np.zeros(4, np.float32), np.arange(8, dtype=np.float32)]
    with pytest.raises(IndexError, match="a load of 4 elements from buffer 1 is not aligned"):
        execute(InterpreterRuntime(webgpu_target()), program, buffers)
    got = execute(InterpreterRuntime(cpu_target()), program, buffers)
    np.testing.assert_array_equal(got[0], [1, 2, 3, 4])


def test_different_values_in_one_place(runtime: InterpreterRuntime) -> None:
    w = Writer()
    out = w.param(I32, 1)
    g = w.grid(3)
    w.store(out, index(0), w.emit(g.cast(I32)))
    with pytest.raises(IndexError, match="different values are stored in one element of buffer 0"):
        execute(runtime, w.program("race", (3, 1, 1)), [np.zeros(1, np.int32)])


def shared_program(with_barrier: bool) -> Program:
    """Every thread writes its number and reads its neighbour's."""
    w = Writer()
    out = w.param(I32, 8)
    t = w.thread(8)
    shared = w.buffer(I32, 8, Space.SHARED)
    done = w.store(shared, t, w.emit(t.cast(I32)))
    if with_barrier:
        done = w.barrier(done)
    w.store(out, t, w.load(w.emit(shared.after(done)), w.emit((t + 1) % 8)))
    return w.program("shared", (1, 1, 1), (8, 1, 1))


def test_shared_memory_and_barriers() -> None:
    runtime = InterpreterRuntime(webgpu_target())
    (got,) = execute(runtime, shared_program(True), [np.zeros(8, np.int32)])
    np.testing.assert_array_equal(got, [1, 2, 3, 4, 5, 6, 7, 0])
    with pytest.raises(IndexError, match="shared buffer 1 is read without a barrier after another thread's store"):
        execute(runtime, shared_program(False), [np.zeros(8, np.int32)])


def test_overwriting_what_others_still_read() -> None:
    w = Writer()
    out = w.param(I32, 4)
    t = w.thread(4)
    shared = w.buffer(I32, 4, Space.SHARED)
    arrived = w.barrier(w.store(shared, t, w.emit(t.cast(I32))))
    seen = w.load(w.emit(shared.after(arrived)), w.emit((t + 1) % 4))
    w.store(out, t, seen)
    w.store(w.emit(shared.after(arrived)), t, seen)
    with pytest.raises(IndexError, match="written without a barrier after another thread's access"):
        execute(
            InterpreterRuntime(webgpu_target()), w.program("overwrite", (1, 1, 1), (4, 1, 1)), [np.zeros(4, np.int32)]
        )


def test_loops_of_symbolic_size_and_registers(runtime: InterpreterRuntime) -> None:
    n = Variable("n", 0, 9)
    w = Writer()
    out = w.param(I32, 3)
    g = w.grid(3)
    acc = w.buffer(I32, 1)
    init = w.store(acc, index(0), UOp.const(5, I32))
    r = w.loop(n)
    inside = acc.after(init, r)
    end = w.end(r, w.store(inside, index(0), w.emit(w.load(inside, index(0)) + r.cast(I32) * g.cast(I32))))
    w.store(out, g, w.load(acc.after(end), index(0)))
    program = w.program("triangle", (3, 1, 1))
    for value in (0, 1, 9):
        (got,) = execute(runtime, program, [np.zeros(3, np.int32)], {"n": value})
        np.testing.assert_array_equal(got, 5 + np.arange(3) * (value * (value - 1) // 2))
    with pytest.raises(DeviceError, match="the variable n has no value"):
        execute(runtime, program, [np.zeros(3, np.int32)])


def test_atomics_of_many_invocations(runtime: InterpreterRuntime) -> None:
    w = Writer()
    out = w.param(U32, 1)
    g = w.grid(8)
    bit = w.emit(UOp(Ops.SHL, U32, (UOp.const(1, U32), g.cast(U32))))
    w.store(out, index(0), bit, kind="atomic_or")
    (got,) = execute(runtime, w.program("bits", (8, 1, 1)), [np.zeros(1, np.uint32)])
    assert got[0] == 255


def test_elements_of_four_bits(runtime: InterpreterRuntime) -> None:
    w = Writer()
    out, a = w.param(I32, 6), w.param(dtypes.int4, 6)
    g = w.grid(6)
    w.store(out, g, w.emit(w.load(a, g).cast(I32)))
    packed = np.array([0x8F, 0x70, 0x3C], np.uint8)  # -1, -8, 0, 7, -4, 3
    got = execute(runtime, w.program("nibbles", (6, 1, 1)), [np.zeros(6, np.int32), packed])
    np.testing.assert_array_equal(got[0], [-1, -8, 0, 7, -4, 3])


def test_division_needs_what_renderers_rely_on(runtime: InterpreterRuntime) -> None:
    w = Writer()
    out, a = w.param(I32, 1), w.param(I32, 1)
    w.store(out, index(0), w.emit(w.load(a, index(0)) // 2))
    with pytest.raises(ArithmeticError, match="the numerator must not be negative"):
        execute(runtime, w.program("halve"), [np.zeros(1, np.int32), np.array([-3], np.int32)])


def test_vectors(runtime: InterpreterRuntime) -> None:
    w = Writer()
    out = w.param(F32, 8)
    g = w.grid(2)
    v = stack(*[w.emit(g.cast(F32) * 10.0 + float(i)) for i in range(4)])
    reversed_lanes = stack(*[UOp(Ops.LANE, F32, (v,), 3 - i) for i in range(4)])
    w.store(out, w.emit(g * 4), w.emit(reversed_lanes + splat(UOp.const(0.5, F32), 4)))
    (got,) = execute(runtime, w.program("vectors", (2, 1, 1)), [np.zeros(8, np.float32)])
    np.testing.assert_array_equal(got, [3.5, 2.5, 1.5, 0.5, 13.5, 12.5, 11.5, 10.5])


def test_memory_is_checked(runtime: InterpreterRuntime) -> None:
    handle = runtime.allocate(10)
    runtime.copy_in(handle, memoryview(b"abc"), 4)
    assert runtime.copy_out(handle, 5, 3) == b"\0abc\0"
    with pytest.raises(ValueError, match="do not lie within a buffer"):
        runtime.copy_out(handle, 8, 100)
    (executable,) = runtime.compile([copy_program(64)])
    with pytest.raises(DeviceError, match="buffer 0 has 16 bytes and needs 256"):
        runtime.run([Launch(executable, (handle, handle))], {})

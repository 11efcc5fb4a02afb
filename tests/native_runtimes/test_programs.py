"""Loops, memory, gates, variables, threads and constants: small programs on every runtime against NumPy."""

import math

import numpy as np
import pytest

from tests.native_runtimes.programs import Writer, execute, index, splat, stack
from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import Ops, Space, UOp, Variable
from tinyweb.graph.program import Program
from tinyweb.native_runtimes.protocol import Launch, Runtime

F32, I32, U32 = dtypes.float32, dtypes.int32, dtypes.uint32


def f32(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# -- loops and registers -----------------------------------------------------------------
def test_sum_in_a_register(runtime: Runtime) -> None:
    w = Writer()
    out, a = w.param(I32, 5), w.param(I32, 35)
    g = w.grid(5)
    acc = w.buffer(I32, 1)
    init = w.store(acc, index(0), UOp.const(0, I32))
    r = w.loop(7)
    inside = acc.after(init, r)
    update = w.store(inside, index(0), w.load(inside, index(0)) + w.load(a, g * 7 + r))
    end = w.end(r, update)
    w.store(out, g, w.load(acc.after(end), index(0)))
    x = np.arange(35, dtype=np.int32).reshape(5, 7) - 11
    got = execute(runtime, w.program("row_sums", (5, 1, 1)), [np.zeros(5, np.int32), x])
    np.testing.assert_array_equal(got[0], x.sum(1))


def test_matmul_with_a_tile_of_vectors(runtime: Runtime) -> None:
    """A 2 × 8 tile of accumulators in vectors of 4, a symbolic reduction length, and nested loops."""
    k = Variable("k", 0, 16)
    w = Writer()
    out, a, b = w.param(F32, 4 * 16), w.param(F32, 4 * 16), w.param(F32, 16 * 16)
    rows = w.grid(2)
    columns = w.loop(2)
    acc = w.buffer(F32, 16)
    zero = splat(UOp.const(0.0, F32), 4)
    row = [w.emit((rows * 2 + y) * 16) for y in range(2)]
    column = [w.emit(columns * 8 + x * 4) for x in range(2)]
    inits = [w.store(acc, index(i * 4), zero) for i in range(4)]
    r = w.loop(k)
    inside = acc.after(*inits, r)
    updates = []
    for y in range(2):
        left = w.load(a, row[y] + r)
        for x in range(2):
            right = w.load(b, r * 16 + column[x], 4)
            at = index(y * 8 + x * 4)
            old = w.load(inside, at, 4)
            updates.append(w.store(inside, at, UOp(Ops.MULADD, F32, (splat(left, 4), right, old))))
    end = w.end(r, *updates)
    for y in range(2):
        for x in range(2):
            value = w.load(acc.after(end), index(y * 8 + x * 4), 4)
            w.store(out, row[y] + column[x], value)
    w.end(columns)
    program = w.program("matmul_tile", (2, 1, 1))
    rows_of_a, b_whole = f32(4, 16), f32(16, 16, seed=1)
    for length in (0, 1, 16):
        got = execute(runtime, program, [np.ones((4, 16), np.float32), rows_of_a, b_whole], {"k": length})[0]
        np.testing.assert_allclose(got, rows_of_a[:, :length] @ b_whole[:length], rtol=1e-5, atol=1e-6)


def test_registers_with_dynamic_indices_and_mixed_widths(runtime: Runtime) -> None:
    w = Writer()
    out, a = w.param(F32, 8), w.param(F32, 8)
    w.grid(1)
    dynamic, mixed = w.buffer(F32, 8), w.buffer(F32, 8)
    r = w.loop(8)
    filled = w.end(r, w.store(dynamic, index(7) - r, w.load(a, r)))
    behind = dynamic.after(filled)
    stores = [w.store(mixed, index(4 * i), w.load(behind, index(4 * i), 4)) for i in range(2)]
    for i in range(8):
        w.store(out, index(i), w.load(mixed.after(*stores), index(i)))
    x = f32(8)
    np.testing.assert_array_equal(execute(runtime, w.program("reversed"), [np.zeros(8, np.float32), x])[0], x[::-1])


def test_grid_and_indices_with_variables(runtime: Runtime) -> None:
    n, shift = Variable("n", 0, 8), Variable("shift", -4, 4)
    w = Writer()
    out, a = w.param(F32, 16), w.param(F32, 24)
    g = w.grid(n * 2)
    w.store(out, g, w.load(a, g + shift + 4))
    program = w.program("shifted", (n * 2, 1, 1))
    x = f32(24)
    for count, by in ((0, 0), (1, -4), (3, 2), (8, 4)):
        got = execute(runtime, program, [np.zeros(16, np.float32), x], {"n": count, "shift": by})[0]
        expected = np.zeros(16, np.float32)
        expected[: 2 * count] = x[by + 4 : by + 4 + 2 * count]
        np.testing.assert_array_equal(got, expected)


# -- gates -----------------------------------------------------------------
@pytest.mark.parametrize("width", [1, 4])
def test_a_false_gate_touches_nothing(runtime: Runtime, width: int) -> None:
    """Where the gate is false the index is far outside of the memory."""
    w = Writer()
    out, a = w.param(F32, 16 * width), w.param(F32, 8 * width)
    g = w.grid(16)
    gate = g < 8
    far = gate.where(g, g * 100_000_000 - 900_000_000) * width
    w.store(out, g * width, w.load(a, far, width, gate))
    x = f32(8 * width)
    got = execute(runtime, w.program(f"gated_{width}", (16, 1, 1)), [np.ones(16 * width, np.float32), x])[0]
    np.testing.assert_array_equal(got, np.concatenate([x, np.zeros(8 * width, np.float32)]))


def test_a_gated_load_in_a_loop_forgets_the_last_round(runtime: Runtime) -> None:
    w = Writer()
    out, a = w.param(I32, 8), w.param(I32, 8)
    g, r = w.grid(1), w.loop(8)
    gate = (r % 2).equal(0)
    w.store(out, g + r, w.load(a, r, 1, gate))
    w.end(r)
    got = execute(runtime, w.program("every_second"), [np.ones(8, np.int32), np.arange(8, dtype=np.int32) + 1])[0]
    np.testing.assert_array_equal(got, [1, 0, 3, 0, 5, 0, 7, 0])


def test_a_false_gate_stores_nothing(runtime: Runtime) -> None:
    w = Writer()
    out = w.param(I32, 8)
    g = w.grid(16)
    w.store(out, g * 1_000_000 * (g < 8).alu(Ops.XOR, True).cast(dtypes.index) + g, g.cast(I32) + 1, g < 8)
    got = execute(runtime, w.program("gated_store", (16, 1, 1)), [np.zeros(8, np.int32)])[0]
    np.testing.assert_array_equal(got, np.arange(8) + 1)


def test_gates_per_lane(runtime: Runtime) -> None:
    w = Writer()
    out, a, b = w.param(F32, 16), w.param(F32, 14), w.param(F32, 14)
    g = w.grid(4)
    lanes = stack(*[g * 4 + i for i in range(4)])
    gate = lanes.alu(Ops.LESS, splat(index(14), 4))
    w.store(out, g * 4, w.load(a, g * 4, 4, gate))
    w.store(b, g * 4, w.load(a, g * 4, 4, gate), gate)
    x = f32(14)
    got = execute(runtime, w.program("lane_gates", (4, 1, 1)), [np.ones(16, np.float32), x, np.zeros(14, np.float32)])
    np.testing.assert_array_equal(got[0], np.pad(x, (0, 2)))
    np.testing.assert_array_equal(got[2], x)


# -- types in memory -----------------------------------------------------------------
def test_bools_in_memory(processor: Runtime) -> None:
    """One byte each, 0 or 1, scalars and vectors alike."""
    w = Writer()
    narrow, wide, a = w.param(dtypes.bool, 16), w.param(dtypes.bool, 16), w.param(dtypes.bool, 16)
    i = w.grid(4)
    four = w.load(a, i * 4, 4)
    w.store(wide, i * 4, four ^ splat(UOp.const(True, dtypes.bool), 4))
    r = w.loop(4)
    w.store(narrow, i * 4 + r, w.load(a, i * 4 + r) ^ True)
    w.end(r)
    x = np.random.default_rng(0).integers(0, 2, 16).astype(np.uint8)
    got = execute(processor, w.program("bools", (4, 1, 1)), [np.zeros(16, np.uint8), np.zeros(16, np.uint8), x])
    np.testing.assert_array_equal(got[0], 1 - x)
    np.testing.assert_array_equal(got[1], 1 - x)


def test_bools_in_registers(runtime: Runtime) -> None:
    """any(x > 0) over a row, and lane by lane."""
    n = min(4, runtime.target.max_vector)
    w = Writer()
    out, a = w.param(I32, 4 + 4 * n), w.param(F32, 4 * 8 * n)
    g = w.grid(4)
    one, lanes = w.buffer(dtypes.bool, 1), w.buffer(dtypes.bool, n)
    false = UOp.const(False, dtypes.bool)
    inits = w.store(one, index(0), false), w.store(lanes, index(0), splat(false, n))
    r = w.loop(8)
    loaded = w.load(a, (g * 8 + r) * n, n)
    positive = splat(UOp.const(1.5, F32), n).alu(Ops.LESS, loaded)
    inside = one.after(*inits, r), lanes.after(*inits, r)
    first = w.emit(UOp(Ops.LANE, dtypes.bool, (positive,), 0))
    updates = (
        w.store(inside[0], index(0), w.load(inside[0], index(0)) | first),
        w.store(inside[1], index(0), w.load(inside[1], index(0), n) | positive),
    )
    end = w.end(r, *updates)
    w.store(out, g, w.load(one.after(end), index(0)).cast(I32))
    w.store(out, index(4) + g * n, UOp(Ops.CAST, I32, (w.load(lanes.after(end), index(0), n),)))
    x = f32(4, 8, n)
    got = execute(runtime, w.program("any_of", (4, 1, 1)), [np.zeros(4 + 4 * n, np.int32), x])[0]
    np.testing.assert_array_equal(got[:4], (x[:, :, 0] > 1.5).any(1))
    np.testing.assert_array_equal(got[4:].reshape(4, n), (x > 1.5).any(1))


@pytest.mark.parametrize("width", [1, 4, 8])
def test_half_floats_in_memory(width: int) -> None:
    """Every half through float32 and back, where C stores halves."""
    from tinyweb.native_runtimes.cpu import CpuRuntime

    w = Writer()
    out, wide, a = w.param(dtypes.float16, 65536), w.param(F32, 65536), w.param(dtypes.float16, 65536)
    g = w.grid(65536 // width)
    value = UOp(Ops.CAST, F32, (w.load(a, g * width, width),))
    w.store(wide, g * width, value)
    w.store(out, g * width, UOp(Ops.CAST, dtypes.float16, (value,)))
    halves = np.arange(65536, dtype=np.uint16).view(np.float16)
    arrays = [np.zeros(65536, np.float16), np.zeros(65536, np.float32), halves]
    got = execute(CpuRuntime(), w.program(f"halves_{width}", (65536 // width, 1, 1)), arrays)
    np.testing.assert_array_equal(got[0], halves)
    np.testing.assert_array_equal(got[1], halves.astype(np.float32))


# -- half conversion on the bits -----------------------------------------------------------------
@pytest.mark.parametrize("width", [1, 2, 4])
def test_every_half_to_single(runtime: Runtime, width: int) -> None:
    w = Writer()
    out, a = w.param(F32, 65536), w.param(U32, 65536)
    g, r = w.grid(1024), w.loop(64 // width)
    at = g * 64 + r * width
    w.store(out, at, UOp(Ops.F16_TO_F32, F32, (w.load(a, at, width),)))
    w.end(r)
    halves = np.arange(65536, dtype=np.uint32)
    garbage = halves | (halves * 40503 << 16)  # what stands above the low 16 bits does not matter
    program = w.program(f"half_to_single_{width}", (1024, 1, 1))
    got = execute(runtime, program, [np.zeros(65536, np.float32), garbage.astype(np.uint32)])[0]
    np.testing.assert_array_equal(got, halves.astype(np.uint16).view(np.float16).astype(np.float32))


@pytest.mark.parametrize("width", [1, 8])
def test_every_half_that_comes_in_16_bits(processor: Runtime, width: int) -> None:
    w = Writer()
    out, a = w.param(F32, 65536), w.param(dtypes.uint16, 65536)
    at = w.emit(w.grid(65536 // width) * width)
    w.store(out, at, UOp(Ops.F16_TO_F32, F32, (UOp(Ops.CAST, U32, (w.load(a, at, width),)),)))
    halves = np.arange(65536, dtype=np.uint16)
    program = w.program(f"half_in_16_{width}", (65536 // width, 1, 1))
    got = execute(processor, program, [np.zeros(65536, np.float32), halves])[0]
    np.testing.assert_array_equal(got, halves.view(np.float16).astype(np.float32))


def test_neighbouring_halves_of_words(runtime: Runtime) -> None:
    """Both halves of two words as one vector of four, as unpacking spells it."""
    w = Writer()
    out, a = w.param(F32, 65536), w.param(U32, 32768)
    g, r = w.grid(1024), w.loop(16)
    at = g * 32 + r * 2
    first, second = w.load(a, at), w.load(a, at + 1)
    shifts = stack(*[UOp.const(s, U32) for s in (0, 16, 0, 16)])
    bits = stack(first, first, second, second).alu(Ops.SHR, shifts)
    w.store(out, at * 2, UOp(Ops.F16_TO_F32, F32, (bits,)))
    w.end(r)
    halves = np.arange(65536, dtype=np.uint16).view(np.float16)
    got = execute(
        runtime, w.program("halves_of_words", (1024, 1, 1)), [np.zeros(65536, np.float32), halves.view(np.uint32)]
    )
    np.testing.assert_array_equal(got[0], halves.astype(np.float32))


def boundaries() -> np.ndarray:
    """Singles at, between and next to all halves, with NaNs, infinities, subnormals and what overflows."""
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    middle = ((halves[:-1].astype(np.float64) + halves[1:]) / 2).astype(np.float32)
    some = np.concatenate(
        [halves, middle, np.float32([65504, 65519.996, 65520, 65536, 1e38, np.inf, 1e-40, 2**-25, 2**-26])]
    )
    near = np.concatenate([some, np.nextafter(some, np.float32(np.inf)), np.nextafter(some, np.float32(-np.inf))])
    return np.concatenate([near, -near, np.float32([np.nan, -np.nan])])


@pytest.mark.parametrize("width", [1, 4])
def test_single_to_half(runtime: Runtime, width: int) -> None:
    x = boundaries()
    x = np.pad(x, (0, -len(x) % 1024))
    w = Writer()
    out, a = w.param(U32, len(x)), w.param(F32, len(x))
    g, r = w.grid(len(x) // 64), w.loop(64 // width)
    at = g * 64 + r * width
    w.store(out, at, UOp(Ops.F32_TO_F16, U32, (w.load(a, at, width),)))
    w.end(r)
    program = w.program(f"single_to_half_{width}_{len(x)}", (len(x) // 64, 1, 1))
    got = execute(runtime, program, [np.zeros(len(x), np.uint32), x])[0]
    assert got.max() < 65536
    with np.errstate(over="ignore"):
        expected = x.astype(np.float16)
    np.testing.assert_array_equal(got.astype(np.uint16).view(np.float16), expected)
    numbers = ~np.isnan(x)
    np.testing.assert_array_equal(got[numbers], expected.view(np.uint16)[numbers])  # zeros keep their sign


# -- constants -----------------------------------------------------------------
FLOAT_CONSTANTS = [0.0, -0.0, 1.0, 0.1, -1 / 3, math.pi, 1e-30, 1e38, 3.4028234663852886e38, 1.1754943508222875e-38,
                   math.inf, -math.inf, math.nan, 16777217.0, 123456789.0]  # fmt: skip


def constants(runtime: Runtime, dtype: DType, values: list[float]) -> np.ndarray:
    w = Writer()
    out = w.param(dtype, len(values))
    w.grid(1)
    for i, v in enumerate(values):
        w.store(out, index(i), UOp.const(v, dtype))
    return execute(runtime, w.program(f"constants_{dtype.name}_{len(values)}"), [np.zeros(len(values), dtype.numpy)])[0]


def test_constants_are_exact(runtime: Runtime) -> None:
    got = constants(runtime, F32, FLOAT_CONSTANTS)
    np.testing.assert_array_equal(got.view(np.uint32), np.float32(FLOAT_CONSTANTS).view(np.uint32))
    for dtype in runtime.target.arithmetic & runtime.target.storage - {dtypes.bool, dtypes.index}:
        if dtype.is_int:
            edges = [0, 1, int(dtype.min), int(dtype.min) + 1, int(dtype.max), 100]
            np.testing.assert_array_equal(constants(runtime, dtype, edges), np.array(edges, dtype.numpy))


def test_subnormal_constants(processor: Runtime) -> None:
    """GPUs may flush them; processors do not."""
    values = [1e-40, -1e-45, 1.1754942e-38]
    np.testing.assert_array_equal(constants(processor, F32, values), np.float32(values))


def test_constant_expressions_that_overflow(runtime: Runtime) -> None:
    """What a shader compiler would refuse to compute beforehand is computed at run time."""
    one, zero, big = (UOp.const(v, F32) for v in (1.0, 0.0, 3e38))
    top, two = UOp.const(2**31 - 1, I32), UOp.const(2, I32)
    w = Writer()
    out, integers = w.param(F32, 8), w.param(I32, 4)
    w.grid(1)
    r = w.loop(2)  # the constants are first needed inside a loop, then again behind it
    w.store(out, r, one.alu(Ops.DIV, zero))
    w.end(r)
    w.store(out, index(2), big.alu(Ops.MUL, big))
    w.store(out, index(3), one.alu(Ops.NEG).alu(Ops.DIV, zero))
    w.store(out, index(4), splat(big, 4).alu(Ops.ADD, splat(big, 4)))
    w.store(integers, index(0), top.alu(Ops.ADD, two))
    w.store(integers, index(1), top.alu(Ops.MUL, two))
    w.store(integers, index(2), UOp.const(math.inf, F32).bitcast(I32))
    w.store(integers, index(3), UOp.const(0x7F800000, I32).bitcast(F32).bitcast(I32))
    got = execute(runtime, w.program("overflow"), [np.zeros(8, np.float32), np.zeros(4, np.int32)])
    np.testing.assert_array_equal(got[0], [np.inf, np.inf, np.inf, -np.inf] + [np.inf] * 4)
    np.testing.assert_array_equal(got[1], np.array([2**31 + 1, 2**32 - 2, 0x7F800000, 0x7F800000]).astype(np.int32))


# -- threads of a workgroup -----------------------------------------------------------------
@pytest.mark.parametrize("width", [1, 4])
def test_a_sum_through_shared_memory(gpu: Runtime, width: int) -> None:
    w = Writer()
    out, a = w.param(F32, 3 * width), w.param(F32, 3 * 64 * width)
    g, t = w.grid(3), w.thread(64)
    shared = w.buffer(F32, 64 * width, Space.SHARED)
    mine = w.store(shared, t * width, w.load(a, (g * 64 + t) * width, width))
    arrived = w.barrier(mine)
    for step in (32, 16, 8, 4, 2, 1):
        behind = shared.after(arrived)
        total = w.load(behind, t * width, width, t < step) + w.load(behind, (t + step) * width, width, t < step)
        arrived = w.barrier(w.store(behind, t * width, w.emit(total), t < step))
    w.store(out, g * width, w.load(shared.after(arrived), index(0), width), t.equal(0))
    x = np.random.default_rng(0).integers(-50, 50, (3, 64, width)).astype(np.float32)
    got = execute(gpu, w.program(f"tree_{width}", (3, 1, 1), (64, 1, 1)), [np.zeros((3, width), np.float32), x])[0]
    np.testing.assert_array_equal(got, x.sum(1))


def test_hardware_indices_of_all_dimensions(gpu: Runtime) -> None:
    w = Writer()
    out = w.param(I32, 2 * 3 * 4 * 5 * 2 * 3)
    position: UOp = index(0)
    for node, size in (
        (w.grid(2, 2), 2), (w.grid(3, 1), 3), (w.grid(4, 0), 4),
        (w.thread(5, 2), 5), (w.thread(2, 1), 2), (w.thread(3, 0), 3),
    ):  # fmt: skip
        position = position * size + node
    w.store(out, position, position.cast(I32))
    got = execute(gpu, w.program("indices", (4, 3, 2), (3, 2, 5)), [np.zeros(720, np.int32)])[0]
    np.testing.assert_array_equal(got, np.arange(720))


def test_bytes_of_one_word_written_by_different_threads(gpu: Runtime) -> None:
    """The two masked atomics of a lone sub-word store."""
    w = Writer()
    out = w.param(U32, 64)
    t = w.thread(256)
    word, shift = t // 4, (t % 4).cast(U32) * 8
    hole = UOp.const(255, U32).alu(Ops.SHL, shift) ^ UOp.const(0xFFFFFFFF, U32)
    value = (t.cast(U32) * 7 & 255).alu(Ops.SHL, shift)
    cleared = w.store(out, word, hole, t < 250, "atomic_and")
    w.store(out.after(cleared), word, value, t < 250, "atomic_or")
    before = np.full(256, 0xAB, np.uint8)
    got = execute(gpu, w.program("bytes", workgroup=(256, 1, 1)), [before.view(np.uint32)])[0]
    expected = (np.arange(256) * 7 % 256).astype(np.uint8)
    expected[250:] = 0xAB
    np.testing.assert_array_equal(got.view(np.uint8), expected)


# -- lists of launches -----------------------------------------------------------------
def test_each_launch_sees_the_ones_before_it(runtime: Runtime) -> None:
    """A chain over two buffers with serial, parallel and empty launches in turn."""
    n = Variable("n", 0, 512)

    def step(name: str, size: int | UOp, add: int) -> Program:
        w = Writer()
        out, a = w.param(I32, 512), w.param(I32, 512)
        serial = size == 1
        at = w.grid(size)
        if serial:
            at = w.loop(512)
        w.store(out, at, w.load(a, (at * 13 + 5) % 512) * 3 + add)
        if serial:
            w.end(at)
        return w.program(name, (size, 1, 1))

    wide, serial, symbolic = runtime.compile([step("wide", 512, 1), step("serial", 1, 2), step("symbolic", n, 3)])
    first, second = runtime.allocate(2048), runtime.allocate(2048)
    start = np.arange(512, dtype=np.int32)
    shuffled = (np.arange(512) * 13 + 5) % 512
    order = [wide, serial, wide, symbolic, serial, serial, symbolic, wide] * 6
    pairs = [(second, first) if i % 2 == 0 else (first, second) for i in range(len(order))]
    launches = tuple(Launch(e, pair) for e, pair in zip(order, pairs))
    for size in (512, 0, 1):
        runtime.copy_in(first, memoryview(start).cast("B"))
        runtime.copy_in(second, memoryview(bytes(2048)))
        runtime.run(launches, {"n": size})
        values = [start.copy(), np.zeros(512, np.int32)]
        for i, e in enumerate(order):
            new = values[i % 2][shuffled] * np.int32(3) + {wide: 1, serial: 2, symbolic: 3}[e]
            count = size if e is symbolic else 512
            values[1 - i % 2] = np.concatenate([new[:count], values[1 - i % 2][count:]]).astype(np.int32)
        got = np.frombuffer(runtime.copy_out(first, 2048), np.int32)
        np.testing.assert_array_equal(got, values[0])

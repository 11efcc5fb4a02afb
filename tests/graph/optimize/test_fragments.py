"""Matrices in the registers of subgroups: the layouts of the instructions, and products that are made of them."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.graph.lower.hand_kernels import Case, axes, check, from_bf16, kernel, normal, param, to_bf16, total, zeros
from tests.samples import slow_unless
from tinyweb import Tensor
from tinyweb.dtype import DType, dtypes, from_bits, to_bits
from tinyweb.graph.gpu_targets import amd_target, nvidia_target
from tinyweb.graph.ir import BufferArg, Ops, RowsArg, Space, UOp
from tinyweb.graph.lower import lower
from tinyweb.graph.lower.constructors import index_const
from tinyweb.graph.lower.devectorize import _ahead
from tinyweb.graph.optimize import optimize
from tinyweb.graph.optimize.instructions import FRAGMENTS, INSTRUCTIONS, Instruction
from tinyweb.graph.target import Target, webgpu_target
from tinyweb.tracing import capture

F32, F16, BF16, I8, I32 = dtypes.float32, dtypes.float16, dtypes.bfloat16, dtypes.int8, dtypes.int32
E4M3, E5M2 = dtypes.float8_e4m3, dtypes.float8_e5m2
NAMES = [i.name for i in FRAGMENTS if not i.shared]  # those are in test_warpgroups.py


def target(name: str, rows: bool = True) -> Target:
    """A GPU with one of the instructions; `rows`: as NVIDIA's, which load rows and copy ahead."""
    plain = webgpu_target(f16=True)
    types = {F16, BF16, I8, dtypes.uint8, dtypes.uint16}
    return replace(
        plain, name="gpu", language="gpu", arithmetic=plain.arithmetic | {F16, I8}, storage=plain.storage | types,
        instructions=(name,), loads_rows=rows, copies_ahead=rows, max_vector=16, shared_bytes=96 << 10,
        max_workgroup=(256, 256, 64), thread_registers=255,
    )  # fmt: skip


# -- layouts ----------------------------------------------------------------------------------------------------------
Place = Callable[[int, int], tuple[int, int]]  # of a thread's element: row and column, column and step, …


def nvidia(n: int) -> tuple[Place, Place, Place]:
    """mma.sync.m16n8 twice, of n elements in a register: A and B by registers, as the PTX ISA draws them."""

    def a(thread: int, e: int) -> tuple[int, int]:
        group, within, register = thread >> 2, thread & 3, e // n
        return group + 8 * (register & 1), within * n + e % n + 4 * n * (register >> 1)

    def b(thread: int, e: int) -> tuple[int, int]:
        group, within, register = thread >> 2, thread & 3, e // n
        return group + 8 * (register >> 1), within * n + e % n + 4 * n * (register & 1)

    def sums(thread: int, e: int) -> tuple[int, int]:
        group, within, second, c = thread >> 2, thread & 3, e // 4, e % 4
        return group + 8 * (c >= 2), 2 * within + (c & 1) + 8 * second

    return a, b, sums


def mfma(n: int) -> tuple[Place, Place, Place]:
    """v_mfma_*_16x16: lane l has column l % 16 of B, block l / 16 of the steps, and 4 rows of the sums."""
    return (
        lambda t, e: (t % 16, t // 16 * n + e),
        lambda t, e: (t % 16, t // 16 * n + e),
        lambda t, e: (t // 16 * 4 + e, t % 16),
    )


def wmma11() -> tuple[Place, Place, Place]:
    return lambda t, e: (t % 16, e), lambda t, e: (t % 16, e), lambda t, e: (2 * e + t // 16, t % 16)


def wmma12() -> tuple[Place, Place, Place]:
    operand = lambda t, e: (t % 16, 8 * (t // 16) + e)  # noqa: E731
    return operand, operand, lambda t, e: (8 * (t // 16) + e, t % 16)


def manual(i: Instruction) -> tuple[Place, Place, Place]:
    family = i.name.split("_")[0]
    if family == "mma":
        return nvidia(32 // i.operands[0].bits)
    return mfma(i.steps // 4) if family == "mfma" else wmma11() if family == "wmma11" else wmma12()


@pytest.mark.parametrize("name", NAMES)
def test_layouts(name: str) -> None:
    """What each thread has is what the manuals say, and the threads have all of A · B."""
    i = INSTRUCTIONS[name]
    f = i.fragments
    assert f is not None
    width, height = f.threads
    for layout, place in zip((f.a, f.b, f.sums), manual(i), strict=True):
        seen = set()
        for t in range(width * height):
            for e in range(layout.size):
                assert layout.place(t % width, t // width, e) == place(t, e)
                seen.add(place(t, e))
        assert len(seen) == np.prod(layout.shape)
    assert f.a.shape == (16, i.steps) == f.b.shape
    assert f.sums.shape == (16, 16)


# -- products ---------------------------------------------------------------------------------------------------------
def stored(values: np.ndarray, dtype: DType) -> tuple[np.ndarray, np.ndarray]:
    """As memory has them, and as they are then."""
    if dtype is BF16:
        return to_bf16(values), from_bf16(to_bf16(values)).astype(np.float64)
    if dtype in (E4M3, E5M2):
        return to_bits(values, dtype), from_bits(to_bits(values, dtype), dtype).astype(np.float64)
    if dtype is I8:
        values = np.clip(np.rint(values * 40), -128, 127)
    memory = values.astype(dtype.numpy)
    return memory, memory.astype(np.float64)


def product(rows: int, columns: int, steps: int, dtype: DType, flipped: tuple[bool, bool] = (False, False)) -> Case:
    """act(A · B + bias), each operand in either order."""
    (i, j), (k,) = axes(rows, columns), axes(steps, reduce=True, first=2)
    sums = I32 if dtype is I8 else F32
    (a, left), (b, right) = stored(normal(rows, steps), dtype), stored(normal(steps, columns), dtype)
    bias = normal(columns)
    at_a, at_b = (k * rows + i if flipped[0] else i * steps + k), (j * steps + k if flipped[1] else k * columns + j)
    x, y = (param(n, m.size, dtype).load(at).cast(sums) for n, m, at in ((1, a, at_a), (2, b, at_b)))
    value = total(x * y, k).cast(F32) + param(3, columns).load(j)
    want = np.maximum(left @ right + bias, 0).astype(np.float32)
    store = kernel(param(0, rows * columns).store(i * columns + j, value.maximum(0.0)))
    before = [zeros(rows, columns), a.T.copy() if flipped[0] else a, b.T.copy() if flipped[1] else b, bias]
    return Case(f"{rows}x{columns}x{steps} {dtype.short} {flipped}", store, before, [want], tolerance=2e-3)


SHAPES = (
    (64, 128, 200, (False, False)),
    (64, 64, 64, (False, False)),
    (35, 71, 48, (True, True)),
    (128, 32, 40, (False, True)),
    (16, 64, 33, (False, False)),
)


@pytest.mark.parametrize(("name", "every"), slow_unless(lambda name, every: not every, NAMES, (False, True)))
def test_products(name: str, every: bool) -> None:
    """Whatever the sizes and the order of the operands (two of them, in turn); the threads' registers have the sums."""
    dtype, turn = INSTRUCTIONS[name].operands[0], NAMES.index(name)
    for m, n, k, flipped in SHAPES if every else (SHAPES[turn % 5], SHAPES[(turn + 2) % 5]):
        case = product(m, n, k, dtype, flipped)
        program = check(case, optimize(case.kernel, target(name)), target(name))
        assert any(u.op is Ops.DOT for u in program.uops), case.name
        # all multiplications but those of indices
        assert not any(u.op in (Ops.MUL, Ops.MULADD) and u.dtype.is_float for u in program.uops), case.name


@pytest.mark.parametrize("dtype", [E4M3, E5M2], ids=["e4m3", "e5m2"])
def test_few_steps(dtype: DType) -> None:
    """Steps that no operand has are zeros in the type that memory has for 8-bit floats."""
    for gpu in (amd_target("gfx950"), amd_target("gfx1201"), nvidia_target("sm_90")):
        for steps in (2, 3, 6):
            case = product(64, 65, steps, dtype)
            check(case, optimize(case.kernel, gpu), gpu)


@pytest.mark.parametrize("flipped", [(a, b) for a in (False, True) for b in (False, True)])
def test_rows(flipped: tuple[bool, bool]) -> None:
    """Operands of 16 bits are loaded by rows of matrices, in either order, four registers at once: with tiles of 4 × 4
    matrices one load for four instructions."""
    name = "mma_sync_16x16x16_f16"
    case = product(1024, 4096, 64, F16, flipped)
    program = lower(optimize(case.kernel, target(name)), target(name))
    loads = [u for u in program.uops if u.op is Ops.LOAD and isinstance(u.arg, RowsArg)]
    dots = [u for u in program.uops if u.op is Ops.DOT]
    assert [u.arg.transposed for u in loads].count(True) == len(loads) // 2 * (flipped[0] + (not flipped[1]))
    assert len(dots) == 2 * len(loads) == 16
    assert program.workgroup == (4, 8, 8)
    # what is staged is copied 16 bytes at a time
    copies = [u for u in program.uops if u.op is Ops.STORE and u.src[2].op is Ops.LOAD and u.src[2].dtype is F16]
    assert copies and {u.src[2].arg for u in copies} == {8}


def test_others_stay_what_they_are() -> None:
    """Too few rows or columns: the schedule that there was before."""
    gpu = target("mma_sync_16x16x16_f16")
    for case in (product(3, 96, 64, F16), product(64, 64, 64, F32)):
        plain = replace(gpu, instructions=())
        assert lower(optimize(case.kernel, gpu), gpu).uops == lower(optimize(case.kernel, plain), plain).uops


def test_blocks_that_are_filled_ahead_have_loops_of_their_own() -> None:
    """Few columns leave threads several rounds of a block: in a loop before the first step, and in one in it."""
    (call,) = capture(lambda: (Tensor.empty(4096, 48, dtype=F16) @ Tensor.empty(48, 32, dtype=F16)).realize()).calls
    program = lower(optimize(call.kernel, nvidia_target("sm_90")), nvidia_target("sm_90"))
    ends = [u.src[-1] for u in program.uops if u.op is Ops.END]
    assert len(ends) == len(set(ends)) and any(u.op is Ops.DOT for u in program.uops)


def test_what_is_copied_ahead_is_there_as_a_whole_or_zero() -> None:
    memory, place = param(1, 64, F16), index_const(0)
    shared = UOp(Ops.BUFFER, F16, (), BufferArg(Space.SHARED, 0, 64))

    def ahead(*more: UOp) -> bool:
        value = UOp(Ops.LOAD, F16, (memory, place, *more), 8)
        return _ahead(shared.store(place, value)).arg == "ahead"

    one = UOp(Ops.LOAD, dtypes.bool, (param(2, 64, dtypes.bool), place), 1)
    each = UOp(Ops.LOAD, dtypes.bool, (param(2, 64, dtypes.bool), place), 8)
    assert ahead() and ahead(one)
    assert not ahead(each) and not ahead(one, UOp(Ops.LOAD, F16, (param(3, 64, F16), place), 8))

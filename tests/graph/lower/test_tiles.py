"""Tiles, threads and gates in small programs: values against NumPy, and what is promised about loads and barriers."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from tests.graph.lower.hand_kernels import Case, axes, check, dots, kernel, normal, param, reduce, total
from tests.samples import slow_unless
from tinyweb import Tensor
from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import AxisKind, Ops, Space, UOp, Variable
from tinyweb.graph.optimize import Action, Bind, Hoist, Online, Split, Stage, apply, optimize
from tinyweb.graph.optimize.actions import inner_part
from tinyweb.graph.program import Program
from tinyweb.graph.target import Target, cpu_target, wasm_target, webgpu_target
from tinyweb.tracing import capture

F32, I32, INDEX = dtypes.float32, dtypes.int32, dtypes.index
CPU, WASM, WEBGPU = cpu_target(), wasm_target(), webgpu_target()
SUBGROUPS = webgpu_target(subgroups=True)
THREAD, VECTOR, UNROLL, GRID = AxisKind.THREAD, AxisKind.VECTOR, AxisKind.UNROLL, AxisKind.GRID
NUMPY = {Ops.ADD: np.add, Ops.MAX: np.maximum, Ops.MUL: np.multiply}
rng = np.random.default_rng(4)


def count(program: Program, op: Ops) -> int:
    return sum(u.op is op for u in program.uops)


def registers(program: Program) -> list[int]:
    return sorted(u.arg.size for u in program.uops if u.op is Ops.BUFFER and u.arg.space is Space.REGISTER)


def rows(length: int, op: Ops = Ops.ADD, dtype: DType = I32, outputs: int = 3) -> Case:
    (i,), (r,) = axes(outputs), axes(length, reduce=True, first=1)
    x = rng.integers(1, 4, (outputs, length)).astype(dtype.numpy) * (-1 if op is Ops.MAX else 1)
    x = np.asarray(x, dtype.numpy)
    value = reduce(op, param(1, x.size, dtype).load(i * length + r), r)
    with np.errstate(over="ignore"):
        want = NUMPY[op].reduce(x, 1, dtype=dtype.numpy)
    return Case(f"{op.name}_{length}", kernel(param(0, outputs, dtype).store(i, value)),
                [np.zeros(outputs, dtype.numpy), x], [want], tolerance=0)  # fmt: skip


def run(case: Case, target: Target, *schedule: Action) -> Program:
    return check(case, apply(case.kernel, schedule), target)


# -- threads ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("threads", [2, 3, 4, 7, 15, 16, 17, 18, 33, 64, 65])
@pytest.mark.parametrize("op", NUMPY, ids=lambda o: o.name)
def test_threads_combine_their_parts(op: Ops, threads: int) -> None:
    """Up to 8 in one step, in loops up to 16, more in two; also where neither divides."""
    program = run(rows(2 * threads + 1 if threads < 20 else threads, op), WEBGPU, *inner_part("r0", threads, THREAD))
    assert program.workgroup == (threads, 1, 1)
    barriers = count(program, Ops.BARRIER)
    if threads <= 16:
        assert barriers in (1, 2) and program.shared_bytes == threads * 4
    else:
        step = 1 << -(-(threads - 1).bit_length() // 2)
        assert program.shared_bytes == 4 * (threads + step)
    # in the loop over rows, what was read last must not be overwritten
    alone = rows(threads, op, outputs=1)
    once = run(alone, WEBGPU, *inner_part("r0", threads, THREAD))
    assert count(once, Ops.BARRIER) == (1 if threads <= 8 else 2)


@pytest.mark.parametrize(("x", "y"), [(4, 3), (5, 8), (2, 20)])
def test_threads_of_two_dimensions(x: int, y: int) -> None:
    """A team for each row: all of one dimension reduce, those of the other have rows of their own."""
    case = rows(2 * x, outputs=y)
    schedule = (Split("r0", x), Bind("r0.1", THREAD, 0), Bind("i0", THREAD, 1))
    for target in (WEBGPU, SUBGROUPS):
        program = run(case, target, *schedule)
        assert program.workgroup == (x, y, 1) and count(program, Ops.SUBGROUP) == 0
        assert program.shared_bytes >= 4 * x * y
    both, (i,), (r, s) = normal(2, x * y), axes(2), axes(x, y, reduce=True, first=1)
    k = kernel(param(0, 2).store(i, total(param(1, 2 * x * y).load(i * (x * y) + r * y + s), r, s)))
    case = Case("plane", k, [np.zeros(2, np.float32), both], [both.sum(1)], tolerance=1e-5)
    for target in (WEBGPU, SUBGROUPS):
        program = run(case, target, Bind("r0", THREAD, 1), Bind("r1", THREAD, 0))
        assert program.workgroup == (y, x, 1) and count(program, Ops.SUBGROUP) == 0


@pytest.mark.parametrize(
    ("threads", "subgroup"), [(2, False), (3, False), (4, True), (7, True), (32, True), (33, True)]
)
def test_subgroups_combine_first(threads: int, subgroup: bool) -> None:
    for dtype in (F32, I32):
        for outputs in (1, 3):
            case = rows(threads * 2, Ops.ADD, dtype, outputs)
            program = run(case, SUBGROUPS, *inner_part("r0", threads, THREAD))
            assert (count(program, Ops.SUBGROUP) == 1) == subgroup
            if subgroup:  # a place for each subgroup of at least four
                assert program.shared_bytes == 4 * -(-threads // 4)
    program = run(rows(8, Ops.MUL), SUBGROUPS, *inner_part("r0", 8, THREAD))
    assert count(program, Ops.SUBGROUP) == 0, "there is no such product"


# -- accumulators -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("target", [CPU, WASM, WEBGPU], ids=lambda t: t.name)
@pytest.mark.parametrize("op", NUMPY, ids=lambda o: o.name)
def test_sums_of_a_block_are_carried_through_the_reduced_loop(op: Ops, target: Target) -> None:
    """Each block of outputs has as many sums in registers, which begin as the operation's identity."""
    for block, schedule in (
        (3, (Split("i0", 3), Hoist("r0", "i0.0"))),
        (4, (Split("i0", 4), Hoist("r0", "i0.0"))),  # the last block is smaller
        (2, (Split("i0", 2), Split("r0", 4), Hoist("r0.0", "i0.0"))),
    ):
        program = run(rows(8, op, outputs=6), target, *schedule)
        assert block in registers(program), schedule
    (i,), (r,), x = axes(6), axes(8, reduce=True, first=1), rng.integers(-9, 9, (6, 8)).astype(np.int32)
    value = param(1, 48, I32).load(i * 8 + r)
    both = kernel(param(0, 6, I32).store(i, total(value, r) + reduce(Ops.MAX, value, r) * 1000))
    case = Case("both", both, [np.zeros(6, np.int32), x], [x.sum(1) + x.max(1) * 1000], tolerance=0)
    assert registers(run(case, target, Split("i0", 3), Hoist("r0", "i0.0"))) == [3, 3]


@pytest.mark.parametrize(("factor", "kept"), [(2, 2), (4, 4), (5, 1), (8, 1)])
def test_unrolled_sums_have_some_accumulators(factor: int, kept: int) -> None:
    program = run(rows(factor * 5), CPU, Split("r0", factor), Bind("r0.1", UNROLL))
    assert registers(program) == [kept]


@pytest.mark.parametrize(("target", "width"), [(CPU, 8), (CPU, 4), (WASM, 4), (WEBGPU, 4), (CPU, 16)])
def test_vectors_are_added_up_behind_the_loop(target: Target, width: int) -> None:
    program = run(rows(width * 5), target, Split("r0", width), Bind("r0.1", VECTOR))
    assert registers(program) == [width]
    inside = [u for u in program.uops if u.op is Ops.STORE and u.src[0].buffer.op is Ops.BUFFER]
    assert {u.src[2].shape for u in inside} == {(width,)}
    # in pairs: as many sums as halvings have parts
    adds = sum(u.op is Ops.ADD and u.dtype is I32 and u.shape == () for u in program.uops)
    assert adds == width - 1


@pytest.mark.parametrize(("rows_", "columns"), [(2, 4), (4, 4), (1, 8), (3, 4)])
def test_tiles_have_an_accumulator_for_each_element(rows_: int, columns: int) -> None:
    a, b = normal(rows_ * 2, 6), normal(6, columns * 2)
    (i, j), (r,) = axes(rows_ * 2, columns * 2), axes(6, reduce=True, first=2)
    value = total(param(1, a.size).load(i * 6 + r) * param(2, b.size).load(r * (columns * 2) + j), r)
    k = kernel(param(0, 4 * rows_ * columns).store(i * (columns * 2) + j, value))
    case = Case("tile", k, [np.zeros((rows_ * 2, columns * 2), np.float32), a, b], [a @ b], tolerance=1e-5)
    lanes = (Split("i0", rows_), Bind("i0.1", UNROLL), Split("i1", columns), Bind("i1.1", VECTOR))
    for target in (CPU, WEBGPU):
        program = run(case, target, *lanes)
        assert registers(program) == [rows_ * columns]
        wide = min(columns, target.max_vector)
        stores = [u for u in program.uops if u.op is Ops.STORE and u.src[0].buffer.op is Ops.PARAM]
        assert len(stores) == rows_ * columns // wide and {u.src[2].shape for u in stores} == {(wide,)}
        assert count(program, Ops.MULADD) == rows_ * columns // wide
        assert count(program, Ops.RANGE) == 3


def test_lanes_that_a_value_does_not_vary_over_count() -> None:
    """A sum over a lane of the same value is a multiple of it, a product a power; a maximum is the value."""
    (i,), (r, s) = axes(3), axes(4, 3, reduce=True, first=1)
    x = rng.integers(1, 4, (3, 4)).astype(np.int32)
    for op, want in ((Ops.ADD, x.sum(1) * 3), (Ops.MUL, x.prod(1) ** 3), (Ops.MAX, x.max(1))):
        k = kernel(param(0, 3, I32).store(i, reduce(op, param(1, 12, I32).load(i * 4 + r), r, s)))
        case = Case(op.name, k, [np.zeros(3, np.int32), x], [want.astype(np.int32)])
        for kind in (UNROLL, VECTOR):
            run(case, CPU, Bind("r1", kind))


# -- shared memory ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("length", "threads", "loops"), [(64, 8, 0), (72, 8, 1), (63, 8, 0), (8, 8, 0), (5, 8, 0), (65, 8, 1)]
)
def test_shared_memory_is_filled_in_turns(length: int, threads: int, loops: int) -> None:
    """Up to 8 turns are emitted out; the last is gated where the threads are too many."""
    whole = 2 * length
    (i,), (r,) = axes(threads), axes(whole, reduce=True, first=1)
    x, w = rng.integers(0, 9, whole).astype(np.int32), rng.integers(0, 9, (threads, whole)).astype(np.int32)
    value = total(param(1, whole, I32).load(r) * param(2, w.size, I32).load(i * whole + r), r)
    k = kernel(param(0, threads, I32).store(i, value))
    case = Case("staged", k, [np.zeros(threads, np.int32), x, w], [w @ x])
    program = run(case, WEBGPU, Bind("i0", THREAD), Split("r0", length), Stage(1, "r0.0", Space.SHARED))
    assert program.shared_bytes == 4 * length and count(program, Ops.BARRIER) == 2
    assert count(program, Ops.RANGE) == 2 + loops
    fills = [u for u in program.uops if u.op is Ops.STORE and u.src[0].buffer.op is Ops.BUFFER
             and u.src[0].buffer.arg.space is Space.SHARED]  # fmt: skip
    if not loops:
        assert len(fills) == -(-length // threads)
    assert any(len(u.src) == 4 for u in fills) == (length % threads != 0)


# -- vectors and gates ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("target", [CPU, WEBGPU], ids=lambda t: t.name)
def test_borders_of_every_width(target: Target) -> None:
    """What is read is shifted by any number; only whole vectors of it are read as such."""
    x = normal(16)
    for before, after in product((0, 1, 3, 4, 8), (0, 2, 4)):
        size = before + 16 + after
        if size % 4:
            continue
        (i,) = axes(size)
        inside = (i >= before) & (i < before + 16)
        k = kernel(param(0, size).store(i, param(1, 16).load(i - before, inside)))
        case = Case("border", k, [np.zeros(size, np.float32), x], [np.pad(x, (before, after))], tolerance=0)
        program = run(case, target, Split("i0", 4), Bind("i0.1", VECTOR))
        run(case, target, Split("i0", 4), Bind("i0.1", UNROLL))
        widths = {u.arg for u in program.uops if u.op is Ops.LOAD}
        assert widths == ({4} if before % 4 == 0 else {1}), (before, after)


@pytest.mark.parametrize("target", [CPU, WEBGPU], ids=lambda t: t.name)
def test_gated_stores(target: Target) -> None:
    """All or nothing of a vector is one store, parts of one are several."""
    x = normal(16)
    for limit in range(0, 17, 1 if target is CPU else 4):
        (i,) = axes(16)
        k = kernel(param(0, 16).store(i, param(1, 16).load(i), i < limit))
        want = np.where(np.arange(16) < limit, x, 7).astype(np.float32)
        case = Case("gated", k, [np.full(16, 7, np.float32), x], [want], tolerance=0)
        program = run(case, target, Split("i0", 4), Bind("i0.1", VECTOR))
        if 0 < limit < 16:
            widths = {u.src[2].shape for u in program.uops if u.op is Ops.STORE}
            assert widths == ({(4,)} if limit % 4 == 0 else {()})


@pytest.mark.parametrize("target", [CPU, WEBGPU], ids=lambda t: t.name)
def test_strides_of_vectors(target: Target) -> None:
    """Along memory whole vectors, across it lane by lane, backwards lane by lane."""
    x = normal(8, 8)
    (i, j) = axes(8, 8)
    for name, at, want, wide in (
        ("along", i * 8 + j, x, True), ("across", j * 8 + i, x.T, False),
        ("backwards", i * 8 + 7 - j, x[:, ::-1], False),
        ("twice", i * 8 + (j // 2) * 2, x[:, np.arange(8) // 2 * 2], False),
        ("same", i * 8, x[:, :1].repeat(8, 1), None),
    ):  # fmt: skip
        k = kernel(param(0, 64).store(i * 8 + j, param(1, 64).load(at)))
        case = Case(name, k, [np.zeros((8, 8), np.float32), x], [np.ascontiguousarray(want)], tolerance=0)
        program = run(case, target, Split("i1", 4), Bind("i1.1", VECTOR))
        loads = [u.arg for u in program.uops if u.op is Ops.LOAD]
        assert loads == ([4] if wide else [1] if wide is None else [1] * (2 if name == "twice" else 4))
        k = kernel(param(0, 64).store(at, param(1, 64).load(i * 8 + j)))
        if name not in ("twice", "same"):
            back = {"along": x, "across": x.T, "backwards": x[:, ::-1]}[name]
            case = Case(name, k, [np.zeros((8, 8), np.float32), x], [np.ascontiguousarray(back)], tolerance=0)
            program = run(case, target, Split("i1", 4), Bind("i1.1", VECTOR))
            assert [u.src[2].shape for u in program.uops if u.op is Ops.STORE] == ([(4,)] if wide else [()] * 4)


def test_words_that_lanes_of_two_axes_share() -> None:
    """Unrolled lanes that read on where the vector ends share its words' load, unless their gates differ."""
    x = rng.integers(-9, 9, 64).astype(np.int8)
    (i, j, k) = axes(4, 4, 4)
    at = i * 16 + j * 4 + k
    for gated in (False, True):
        gate = (j < 3,) if gated else ()
        value = param(1, 64, dtypes.int8).load(at, *gate).cast(I32)
        case = Case("words", kernel(param(0, 64, I32).store(at, value)), [np.zeros(64, np.int32), x], [
            np.where((np.arange(64) // 4 % 4 < 3) | (not gated), x, 0).astype(np.int32)])  # fmt: skip
        program = run(case, WEBGPU, Bind("i1", UNROLL), Bind("i2", VECTOR))
        loads = [u.arg for u in program.uops if u.op is Ops.LOAD]
        assert loads == ([4] if not gated else [1] * 3)


def test_an_index_of_lanes_is_emitted_lane_by_lane() -> None:
    """Divisions of indices fold to constants where lanes are numbers."""
    x = normal(24)
    (i, j) = axes(3, 8)
    k = kernel(param(0, 24).store(i * 8 + j, param(1, 24).load(i * 8 + (j % 3) + (j // 3))))
    want = np.stack([[x[n * 8 + m % 3 + m // 3] for m in range(8)] for n in range(3)])
    case = Case("folded", k, [np.zeros((3, 8), np.float32), x], [want], tolerance=0)
    for kind in (VECTOR, UNROLL):
        program = run(case, CPU, Bind("i1", kind))
        assert not any(u.op in (Ops.FLOORDIV, Ops.MOD) for u in program.uops)


def test_signs_decide_how_to_divide() -> None:
    """What may be negative is divided with its sign; other numbers as they are."""
    x = rng.integers(-50, 50, 8).astype(np.int32)
    (i,) = axes(8)
    value: UOp = param(1, 8, I32).load(i)
    for numerator, plain in ((value, False), (value & 63, True)):
        k = kernel(param(0, 8, I32).store(i, numerator // 7 + numerator % 5))
        held = x & 63 if plain else x
        program = run(Case("divided", k, [np.zeros(8, np.int32), x], [held // 7 + held % 5]), CPU, Split("i0", 4), Bind(
            "i0.1", VECTOR))  # fmt: skip
        assert any(u.op is Ops.SHR for u in program.uops) != plain


# -- attention --------------------------------------------------------------------------------------------------------
def attention(keys: int) -> Case:
    """Scores, softmax and weighted sum of two heads in one kernel."""
    q, k, v = normal(2, 3, 4), normal(2, keys, 4), normal(2, keys, 8)
    tq, tk, tv = (Tensor(x).realize() for x in (q, k, v))
    (built,) = capture(lambda: ((tq @ tk.transpose(-1, -2)).softmax(-1) @ tv).realize()).kernels
    s = q.astype(np.float64) @ k.swapaxes(1, 2)
    e = np.exp(s - s.max(-1, keepdims=True))
    want = (e / e.sum(-1, keepdims=True) @ v).astype(np.float32)
    return Case("attention", built, [np.zeros((2, 3, 8), np.float32), q, k, v], [want], tolerance=1e-5)


@pytest.mark.parametrize("keys", [5, 16])
def test_a_maximum_and_what_is_rescaled_with_it_share_a_loop(keys: int) -> None:
    threads = (Bind("i0", GRID), Bind("i2", THREAD))
    schedules: list[tuple[tuple[Action, ...], Target]] = [
        ((Bind("i2", VECTOR), Online("r2", 4, Space.REGISTER)), CPU),
        ((Bind("i2", VECTOR), Bind("i1", UNROLL), Online("r2", 4, Space.REGISTER, 4, 4)), CPU),
        ((*threads, Bind("i1", UNROLL), Online("r2", 8, Space.SHARED)), WEBGPU),
    ]
    if keys % 16 == 0:
        schedules.append(((*threads, Bind("i1", GRID, 1), Online("r2", 16, Space.SHARED, split=2)), WEBGPU))
    for schedule, target in schedules:
        program = run(attention(keys), target, *schedule)
        assert (program.shared_bytes > 0) == (target is WEBGPU)


def test_integer_dots_are_instructions() -> None:
    """Of whole chunks of a vector; values are exact."""
    for dtype, tokens, groups in ((dtypes.int8, 2, 3), (dtypes.int4, 1, 2), (dtypes.int4, 2, 1), (dtypes.uint4, 1, 2)):
        case = dots(dtype, tokens, 8, groups)
        for target in (CPU, WASM):
            program = check(case, optimize(case.kernel, target), target)
            assert count(program, Ops.DOT) > 0


# -- gates ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("op", NUMPY, ids=lambda o: o.name)
@pytest.mark.parametrize("length", [9, 13, 16, 31, 1003])
def test_threads_end_their_loops(op: Ops, length: int) -> None:
    """Each takes as many steps as it has elements: nothing is gated or selected in them, but their number before."""
    program = run(rows(length, op, F32 if op is Ops.ADD else I32), WEBGPU, *inner_part("r0", 4, THREAD))
    loads = [u for u in program.uops if u.op is Ops.LOAD and u.src[0].buffer.op is Ops.PARAM]
    chosen = [u for u in program.uops if u.op is Ops.WHERE and u.dtype is not dtypes.index]
    assert all(len(u.src) == 2 for u in loads) and not chosen


def test_threads_end_loops_of_outputs() -> None:
    case = rows(5, outputs=23)
    program = run(case, WEBGPU, Split("i0", 4), Bind("i0.1", THREAD), Bind("r0", UNROLL))
    stores = [u for u in program.uops if u.op is Ops.STORE and u.src[0].buffer.op is Ops.PARAM]
    assert all(len(u.src) == 3 for u in stores)


def test_threads_of_which_some_have_no_output() -> None:
    """A loop of one step or none is gone from all that depends on it: the condition of its stores stays."""
    for blocks in (2, 3):
        run(rows(5, outputs=6), WEBGPU, Split("i0", 24), Bind("i0.1", THREAD), Split("i0.0", blocks))


@pytest.mark.parametrize("target", [CPU, WEBGPU], ids=lambda t: t.name)
@pytest.mark.parametrize("blocks", [1, 2])
def test_blocks_of_a_symbolic_axis_that_has_one_or_none(blocks: int, target: Target) -> None:
    """Where it has none nothing is stored, though the number of elements is a multiple of the block."""
    n, size = Variable("n", 0, blocks), 4 * blocks
    (i,) = axes(n * 4)
    k = kernel(param(0, size).store(i, param(1, size).load(i) + 1.0))
    x = normal(size)
    bound = Bind("i0.1", VECTOR if target is CPU else THREAD)
    for steps in range(blocks + 1):
        want = np.where(np.arange(size) < 4 * steps, x + 1, 0).astype(np.float32)
        case = Case("blocks", k, [np.zeros(size, np.float32), x], [want], {"n": steps})
        for schedule in ((Split("i0", 4),), (Split("i0", 4), bound), (Split("i0", 8),)):
            run(case, target, *schedule)


def test_all_threads_come_to_barriers() -> None:
    """The loop over rows is in all threads the same where they combine what they have in it."""
    (i,), (r,) = axes(7), axes(9, reduce=True, first=1)
    x = rng.integers(1, 9, (7, 9)).astype(np.int32)
    value = total(param(1, 63, I32).load(i * 9 + r), r)
    case = Case("rows", kernel(param(0, 7, I32).store(i, value)), [np.zeros(7, np.int32), x], [x.sum(1)], tolerance=0)
    schedule = (*inner_part("r0", 4, THREAD), Split("i0", 2), Bind("i0.1", THREAD, 1))
    assert count(run(case, WEBGPU, *schedule), Ops.BARRIER) > 0


def test_a_gated_load_has_what_is_chosen_otherwise() -> None:
    """As in a maximum over a window that reaches beyond the end."""
    (i,), (r,) = axes(12), axes(3, reduce=True, first=1)
    x = normal(12)
    inside = (i + r >= 1) & (i + r < 13)
    value = inside.where(param(1, 12).load(i + r - 1, inside), UOp.const(-np.inf, F32))
    want = np.maximum.reduce([np.pad(x, 1, constant_values=-np.inf)[k : k + 12] for k in range(3)])
    case = Case(
        "window", kernel(param(0, 12).store(i, reduce(Ops.MAX, value, r))), [np.zeros(12, np.float32), x], [want]
    )
    for schedule in ((), (Bind("r0", UNROLL),), (Bind("i0", THREAD),)):
        program = run(case, WEBGPU, *schedule)
        assert count(program, Ops.WHERE) == 0 and any(len(u.src) == 4 for u in program.uops if u.op is Ops.LOAD)


def test_parts_of_a_vector_are_loaded_in_turn() -> None:
    """Where two tensors are joined, a vector is all of one or all of the other."""
    (i,) = axes(32)
    x, y = normal(16), normal(16)
    first = i < 16
    a, b = param(1, 16).load(i, first), param(2, 16).load(i - 16, first.logical_not())
    store = param(0, 32).store(i, first.where(a, b))
    case = Case("joined", kernel(store), [np.zeros(32, np.float32), x, y], [np.concatenate([x, y])])
    program = run(case, WEBGPU, Split("i0", 4), Bind("i0.1", VECTOR), Bind("i0.0", THREAD))
    assert count(program, Ops.WHERE) == 0 and count(program, Ops.LOAD) == 2


# -- transposed in registers ------------------------------------------------------------------------------------------
ACROSS = [cpu_target(16), cpu_target(8), wasm_target()]


BLOCKS = ((4, 4), (8, 16), (16, 8), (16, 16), (16, 7), (32, 5), (24, 10), (48, 23))  # lanes and steps
WIDTHS = (dtypes.float32, dtypes.float16, dtypes.int8)


@pytest.mark.parametrize(
    ("target", "block", "dtype"),
    slow_unless(
        lambda target, block, dtype: (ACROSS.index(target) + BLOCKS.index(block) + WIDTHS.index(dtype)) % 2 == 0,
        ACROSS, BLOCKS, WIDTHS,
    ),
    ids=lambda v: f"{v.name}-{v.vector_lanes}" if isinstance(v, Target) else v.name if isinstance(v, DType) else str(v),
)  # fmt: skip
def test_what_lies_across_is_loaded_and_stored_in_vectors(target: Target, block: tuple[int, int], dtype: DType) -> None:
    """Lanes that lie apart, steps that lie side by side, in what is read or in what is written."""
    lanes, steps = block
    (o, i, j), x = axes(3, lanes, steps), rng.integers(-9, 9, (3, lanes, steps)).astype(dtype.numpy)
    along, across = (o * lanes + i) * steps + j, (o * steps + j) * lanes + i
    turned = np.ascontiguousarray(x.transpose(0, 2, 1))
    for name, read, write, source, want in (("read", along, across, x, turned), ("written", across, along, turned, x)):
        value = param(1, x.size, dtype).load(read)
        case = Case(name, kernel(param(0, x.size, dtype).store(write, value)), [np.zeros_like(want), source], [want])
        program = run(case, target, Bind("i1", VECTOR), Bind("i2", UNROLL))
        if dtype is F32:
            assert all(u.src[2].shape for u in program.uops if u.op is Ops.STORE)
            assert all(u.shape for u in program.uops if u.op is Ops.LOAD)


@pytest.mark.parametrize("target", ACROSS, ids=lambda t: f"{t.name}-{t.vector_lanes}")
@pytest.mark.parametrize("columns", [3, 5, 6, 10])
def test_tiles_of_any_number_of_vectors(target: Target, columns: int) -> None:
    """Sums stay in the vectors in which they are loaded again."""
    n, k = columns * 4, 9
    (i, j), (r,) = axes(6, n), axes(k, reduce=True, first=2)
    a, b = normal(6, k), normal(k, n)
    value = total(param(1, 6 * k).load(i * k + r) * param(2, k * n).load(r * n + j), r)
    case = Case("tile", kernel(param(0, 6 * n).store(i * n + j, value)), [np.zeros((6, n), np.float32), a, b], [a @ b])
    program = run(case, target, Split("i0", 2), Bind("i0.1", UNROLL), Bind("i1", VECTOR))
    assert not any(u.op is Ops.LANE for u in program.uops)


@pytest.mark.parametrize("target", ACROSS, ids=lambda t: f"{t.name}-{t.vector_lanes}")
@pytest.mark.parametrize("k", [16, 20, 27, 36, 144])
def test_panels_of_transposed_operands_are_packed_in_vectors(target: Target, k: int) -> None:
    n = 32
    (i, j), (r,) = axes(12, n), axes(k, reduce=True, first=2)
    a, b = normal(12, k), normal(n, k)
    value = total(param(1, 12 * k).load(i * k + r) * param(2, k * n).load(j * k + r), r)
    before = [np.zeros((12, n), np.float32), a, b]
    case = Case("packed", kernel(param(0, 12 * n).store(i * n + j, value)), before, [a @ b.T])
    grid = (Split("i0", 12), Bind("i0.0", GRID), Split("i0.1", 4), Bind("i0.1.1", UNROLL))
    program = run(case, target, *grid, Bind("i1", VECTOR), Stage(2, "i0.0", Space.REGISTER))
    scalar = [u for u in program.uops if u.op is Ops.LOAD and u.src[0].op is Ops.PARAM and not u.shape]
    assert k % 4 or all(u.src[0].arg.slot == 1 for u in scalar)


@pytest.mark.parametrize("target", ACROSS, ids=lambda t: f"{t.name}-{t.vector_lanes}")
@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize(("size", "border", "width"), [(16, 1, 3), (18, 2, 5), (7, 1, 3), (35, 0, 2), (32, 3, 7)])
def test_rows_with_a_border_are_gated_in_their_outer_vectors(
    target: Target, step: int, size: int, border: int, width: int
) -> None:
    """Of a row in vectors whose windows are written out, all but the first and the last are loaded without a gate."""
    outputs = (size + 2 * border - width) // step + 1
    (o, i), (r,) = axes(3, outputs), axes(width, reduce=True, first=2)
    x = normal(3, size)
    at = i * step + r - border
    inside = (at >= 0) & (at < size)
    value = total(UOp(Ops.LOAD, F32, (param(1, x.size), o * size + at, inside)), r)
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (border, border))), width, 1)[:, ::step]
    before = [np.zeros((3, outputs), np.float32), x]
    case = Case("windows", kernel(param(0, 3 * outputs).store(o * outputs + i, value)), before, [windows.sum(-1)])
    lanes = [Split("i1", 4, overlap=outputs % 4 > 0), Bind("i1.0", UNROLL), Bind("i1.1", VECTOR)]
    program = run(case, target, *lanes, Bind("r0", UNROLL))
    scalar = sum(u.op is Ops.LOAD and u.src[0].op is Ops.PARAM and not u.shape for u in program.uops)
    assert scalar <= 2 * 4 * width


@pytest.mark.parametrize("target", ACROSS, ids=lambda t: f"{t.name}-{t.vector_lanes}")
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.int32, dtypes.float16, dtypes.int8], ids=lambda d: d.name)
@pytest.mark.parametrize("count", [4, 8, 16, 48])
def test_every_other_element(target: Target, dtype: DType, count: int) -> None:
    (o, i), x = axes(3, count), rng.integers(-9, 9, (3, 2 * count - 1)).astype(dtype.numpy)
    value = param(1, x.size, dtype).load(o * (2 * count - 1) + i * 2)
    stored = kernel(param(0, 3 * count, dtype).store(o * count + i, value))
    run(Case("alternate", stored, [np.zeros((3, count), dtype.numpy), x], [x[:, ::2]]), target, Bind("i1", VECTOR))


def test_only_innermost_loops_end_apart() -> None:
    """llvmpipe loses the next step of a loop around one that threads leave at different times, if that has loops."""
    (i,), (r, s, t) = axes(2), axes(2, 4, 3, reduce=True, first=1)
    x = normal(2, 2, 4, 3)
    value = total(param(1, 48).load(i * 24 + r * 12 + s * 3 + t), r, s, t)
    case = Case("nest", kernel(param(0, 2).store(i, value)), [np.zeros(2, np.float32), x], [x.sum((1, 2, 3))])
    for axis, gated in (("r1", True), ("r2", False)):
        program = run(case, WEBGPU, *inner_part(axis, 2 if axis == "r2" else 3, THREAD))
        loads = [u for u in program.uops if u.op is Ops.LOAD and u.src[0].buffer.op is Ops.PARAM]
        assert all((len(u.src) > 2) == gated for u in loads), axis

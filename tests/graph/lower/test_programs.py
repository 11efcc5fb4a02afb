"""What lowering promises about programs beyond their results: limits, packing, loops, names."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from tests.graph.lower.hand_kernels import (
    BY_NAME,
    F32,
    I32,
    INDEX,
    Case,
    axes,
    check,
    gate_and_up,
    kernel,
    normal,
    pack4,
    param,
    run,
    softmax,
    stores_of,
    total,
    zeros,
)
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import AxisKind, BufferArg, DescribedArg, Ops, Space, UOp, Variable
from tinyweb.graph.lower import lower
from tinyweb.graph.lower.shared_memory import shared_places
from tinyweb.graph.optimize import Action, Bind, Split, Stage, apply
from tinyweb.graph.optimize.actions import inner_part
from tinyweb.graph.program import Program
from tinyweb.graph.target import cpu_target, interpreter_target, wasm_target, webgpu_target

WEBGPU = webgpu_target()


def count(program: Program, op: Ops, **attributes: object) -> int:
    return sum(u.op is op and all(getattr(u, k) == v for k, v in attributes.items()) for u in program.uops)


def copy_kernel(length: int, grid: bool = True) -> UOp:
    (i,) = axes(length)
    k = kernel(param(0, length).store(i, param(1, length).load(i)))
    return apply(k, [Bind("i0", AxisKind.GRID)]) if grid else k


# -- limits -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("length", [8, 12, 13, 63, 64])
def test_a_long_grid_is_spread_over_dimensions(length: int) -> None:
    target = replace(WEBGPU, max_grid=8)
    program = lower(copy_kernel(length), target)
    x = normal(length)
    assert all(n <= 8 for n in program.grid)
    np.testing.assert_array_equal(run(program, target, [zeros(length), x], {})[0], x)


def test_a_long_symbolic_grid() -> None:
    n = Variable("n", 1, 60)
    (i,) = axes(n)
    k = apply(kernel(param(0, 60).store(i, param(1, 60).load(i))), [Bind("i0", AxisKind.GRID)])
    target = replace(WEBGPU, max_grid=9)
    program = lower(k, target)
    x = normal(60)
    for value in (1, 7, 9, 10, 59, 60):
        got = run(program, target, [zeros(60), x], {"n": value})[0]
        np.testing.assert_array_equal(got, np.where(np.arange(60) < value, x, 0))


def test_a_grid_beyond_all_dimensions() -> None:
    with pytest.raises(ValueError, match="grid dimension 0 may need 65 workgroups; webgpu allows 8 in each of 3"):
        lower(copy_kernel(65), replace(WEBGPU, max_grid=8))


def test_too_many_buffers() -> None:
    (i,) = axes(4)
    value = param(1, 4).load(i)
    for slot in range(2, 9):
        value = value + param(slot, 4).load(i)
    with pytest.raises(ValueError, match="kernel sums uses 9 buffers; webgpu allows 8"):
        lower(kernel(param(0, 4).store(i, value), name="sums"), WEBGPU)


def test_workgroup_limits() -> None:
    (i,) = axes(1024)
    k = kernel(param(0, 1024).store(i, param(1, 1024).load(i)))
    with pytest.raises(ValueError, match="axis i0: 1024 threads in dimension 0 are more than the 256 of webgpu"):
        lower(apply(k, [Bind("i0", AxisKind.THREAD)]), WEBGPU)
    i, j = axes(32, 16)
    k = kernel(param(0, 512).store(i * 16 + j, param(1, 512).load(i * 16 + j)))
    with pytest.raises(ValueError, match="a workgroup of 32x16x1 has more threads than webgpu's 256"):
        lower(apply(k, [Bind("i0", AxisKind.THREAD, 0), Bind("i1", AxisKind.THREAD, 1)]), WEBGPU)
    with pytest.raises(ValueError, match="axis i0 is bound to threads, which cpu does not have"):
        lower(apply(k, [Bind("i0", AxisKind.THREAD)]), cpu_target())


def test_shared_memory_limit() -> None:
    case = BY_NAME["matmul"]
    k = apply(case.kernel, [Bind("i0", AxisKind.THREAD), Split("r0", 8), Stage(2, "r0.0", Space.SHARED)])
    used = lower(k, WEBGPU).shared_bytes
    with pytest.raises(ValueError, match=f"needs {used} bytes of shared memory; webgpu has {used - 1}"):
        lower(k, replace(WEBGPU, shared_bytes=used - 1))


def test_shared_memory_begins_where_vectors_and_descriptors_may() -> None:
    """What lies between memories counts: up to 16 bytes, or up to 1024 where one of them is read by descriptors."""
    halves = [UOp(Ops.BUFFER, dtypes.float16, (), BufferArg(Space.SHARED, i, n)) for i, n in enumerate((65, 512))]
    index = UOp.const(0, dtypes.index)
    described = UOp(Ops.LOAD, dtypes.uint64, (halves[0], index), DescribedArg(8, 8, True, 128, 16, 1024))
    assert list(shared_places(halves).values()) == [144, 1024]
    assert list(shared_places([*halves, described]).values()) == [1024, 1024]


def tiled_matmul(pad: int = 4) -> tuple[Action, ...]:
    """Tiles of 4 by 4 for each of 2 by 4 threads, from blocks of 8 steps in shared memory."""
    return (
        Split("i1", 4), Bind("i1.1", AxisKind.VECTOR), Split("i1.0", 4), Bind("i1.0.1", AxisKind.THREAD, 0),
        Split("i0", 4), Bind("i0.1", AxisKind.VECTOR), Split("i0.0", 2), Bind("i0.0.1", AxisKind.THREAD, 1),
        Bind("i1.0.0", AxisKind.GRID, 0), Bind("i0.0.0", AxisKind.GRID, 1),
        Split("r0", 8), Stage(1, "r0.0", Space.SHARED, pad), Stage(2, "r0.0", Space.SHARED),
    )  # fmt: skip


def test_shared_tiles_are_vectors_between_two_barriers() -> None:
    """Both operands are filled between one pair of barriers, and read as vectors though one is transposed."""
    case = BY_NAME["matmul"]
    program = lower(apply(case.kernel, tiled_matmul()), WEBGPU)
    assert sum(u.op is Ops.BARRIER for u in program.uops) == 2
    memory = [u for u in program.uops if u.op is Ops.BUFFER and u.arg.space is Space.SHARED]
    assert [u.arg.size for u in memory] == [8 * (8 + 4), 8 * 16]
    touched = [u for u in program.uops if u.op in (Ops.LOAD, Ops.STORE) and u.src[0].buffer in memory]
    assert {(u.shape if u.op is Ops.LOAD else u.src[2].shape) for u in touched} == {(4,)}
    check(case, apply(case.kernel, tiled_matmul()), WEBGPU)
    check(case, apply(case.kernel, tiled_matmul(pad=1)), WEBGPU)


# -- vectors and packing --------------------------------------------------------------------------------------------
def test_neighbouring_elements_of_a_word_are_one_load() -> None:
    """16 weights of 8 bits, or 32 of 4, in one load of four words."""
    for name, lanes in (("quantised_i8", 16), ("quantised_i4", 32)):
        case = BY_NAME[name]
        program = check(case, apply(case.kernel, [Split("r1", lanes), Bind("r1.1", AxisKind.VECTOR)]), WEBGPU)
        words = [u for u in program.uops if u.op is Ops.LOAD and u.src[0].op is Ops.PARAM and u.src[0].arg.slot == 3]
        assert [u.arg for u in words] == [4]


def test_whole_words_are_stored_plainly_and_parts_atomically() -> None:
    case = stores_of(dtypes.int8, lambda x: np.trunc(x).astype(np.int8), 32)
    whole = check(case, apply(case.kernel, [Split("i0", 4), Bind("i0.1", AxisKind.VECTOR)]), WEBGPU)
    assert not whole.params[0].atomic and not whole.params[0].read
    assert [u.arg for u in whole.uops if u.op is Ops.STORE] == [None]
    part = check(case, apply(case.kernel, [Bind("i0", AxisKind.GRID)]), WEBGPU)
    assert part.params[0].atomic and not part.params[0].read
    assert [u.arg for u in part.uops if u.op is Ops.STORE] == ["atomic_and", "atomic_or"]


def test_elements_beside_a_partial_store_survive() -> None:
    """Invocations that share a word each change their own bytes; bytes outside of the kernel's range stay."""
    (i,) = axes(6)
    k = apply(
        kernel(param(0, 8, dtypes.uint8).store(i + 1, param(1, 6, I32).load(i).cast(dtypes.uint8))),
        [Bind("i0", AxisKind.GRID)],
    )
    values = np.array([1, 255, 3, 128, 5, 6], np.int32)
    got = run(lower(k, WEBGPU), WEBGPU, [np.full(8, 77, np.uint8), values], {})[0]
    np.testing.assert_array_equal(got, [77, 1, 255, 3, 128, 5, 6, 77])


def test_partial_bytes_are_not_spread_over_workers() -> None:
    (i,) = axes(8)
    k = kernel(param(0, 8, dtypes.int4).store(i, param(1, 8, I32).load(i).cast(dtypes.int4)))
    with pytest.raises(ValueError, match="updates parts of bytes"):
        lower(apply(k, [Bind("i0", AxisKind.GRID)]), cpu_target())


def test_words_round_up() -> None:
    program = lower(
        kernel(
            param(0, 1, F32).store(UOp.const(0, INDEX), param(1, 5, dtypes.float16).load(UOp.const(4, INDEX)).cast(F32))
        ),
        WEBGPU,
    )
    assert (program.params[1].dtype, program.params[1].size) == (dtypes.uint32, 3)


def test_a_gate_that_is_the_same_for_all_lanes_keeps_the_vector() -> None:
    """What is padded by whole vectors is read in vectors."""
    (i,) = axes(16)
    inside = (i >= 4) & (i < 12)
    x = normal(8)
    k = kernel(param(0, 16).store(i, param(1, 8).load(i + -4, inside)))
    case = Case("pad", k, [zeros(16), x], [np.pad(x, 4)])
    program = check(case, apply(k, [Split("i0", 4), Bind("i0.1", AxisKind.VECTOR)]), WEBGPU)
    assert count(program, Ops.LOAD, arg=4) == 1 and count(program, Ops.LOAD, arg=1) == 0


# -- loops ----------------------------------------------------------------------------------------------------------
def test_independent_reductions_share_a_loop() -> None:
    case = gate_and_up()
    program = check(case, case.kernel, cpu_target())
    assert count(program, Ops.RANGE) == 2  # the outputs, and one loop for both sums
    assert count(program, Ops.LOAD, dtype=F32) == 3 + 4  # x once, two weights; accumulators: each in and after the loop


def test_what_a_row_shares_is_computed_once_per_row() -> None:
    """The maximum and the sum of a softmax are outside of the loop that divides."""
    case = softmax(6, 40)
    program = check(case, case.kernel, cpu_target())
    opened: list[str] = []
    parents: dict[str, list[str]] = {}
    for u in program.uops:
        if u.op is Ops.RANGE:
            parents[u.arg.name] = list(opened)
            opened.append(u.arg.name)
        elif u.op is Ops.END:
            opened.pop()
    assert parents == {"i0": [], "r0": ["i0"], "r1": ["i0"], "i1": ["i0"]}


def test_products_are_added_up_with_muladd() -> None:
    program = lower(BY_NAME["linear_6_24_32"].kernel, cpu_target())
    assert count(program, Ops.MULADD) == 1 and count(program, Ops.ADD, dtype=F32) == 0


def test_threads_reduce_together() -> None:
    case = BY_NAME["row_sums"]
    k = apply(case.kernel, [*inner_part("r0", 32, AxisKind.THREAD), Bind("i0", AxisKind.GRID)])
    program = check(case, k, WEBGPU)
    assert program.workgroup == (32, 1, 1)
    assert count(program, Ops.BARRIER) == 2  # 32 partial sums in two steps
    stores = [u for u in program.uops if u.op is Ops.STORE and u.src[0].op is Ops.PARAM]
    assert len(stores) == 1 and len(stores[0].src) == 4  # one thread stores


def test_sequences_of_exchanges_reuse_shared_memory() -> None:
    """Reductions one after the other take turns with two buffers, however many there are."""
    x, value = param(1, 64), UOp.const(0.0, F32)
    ranges = axes(*[64] * 6, reduce=True)
    for r in ranges:
        value = total((x.load(r) + value) * 0.01, r)
    k = kernel(param(0, 1).store(UOp.const(0, INDEX), value))
    k = apply(k, [Bind(r.arg.name, AxisKind.THREAD) for r in ranges])
    data = normal(64)
    want = 0.0
    for _ in ranges:
        want = ((data.astype(np.float64) + want) * 0.01).sum()
    program = check(Case("chain", k, [zeros(1), data], [np.array([want], np.float32)]), k, WEBGPU)
    assert program.shared_bytes <= 2 * (64 + 8) * 4


# -- names and determinism --------------------------------------------------------------------------------------------
def test_names() -> None:
    program = lower(BY_NAME["linear_6_24_32"].kernel, cpu_target())
    assert program.name.isidentifier() and program.name.startswith("r_6_24_32_")
    assert lower(BY_NAME["elementwise"].kernel, cpu_target()).name.startswith("e_7_36_")
    names = {lower(c.kernel, cpu_target()).name for c in BY_NAME.values()}
    assert len(names) == len({lower(c.kernel, cpu_target()).uops for c in BY_NAME.values()})
    renamed = BY_NAME["linear_6_24_32"].kernel
    renamed = renamed.replace(arg=replace(renamed.arg, name="another"))
    assert lower(renamed, cpu_target()).name == program.name


def test_the_same_in_another_process() -> None:
    code = (
        "from tests.graph.lower.hand_kernels import BY_NAME\n"
        "from tinyweb.graph.lower import lower\n"
        "from tinyweb.graph.optimize import optimize\n"
        "from tinyweb.graph.target import webgpu_target as t\n"
        "print(*(lower(optimize(c.kernel, t()), t()).name for c in list(BY_NAME.values())[:14]))"
    )
    names = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
            env={"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(names) == 1 and len(names.pop().split()) == 14


def test_cost_before_devectorizing_does_not_grow_with_the_tile() -> None:
    """A tile is one node, whatever its size: the kernel and its loops have as many nodes for 2 by 2 as for 8 by 8."""
    from tinyweb.graph.lower.hardware import bind_hardware
    from tinyweb.graph.lower.loops import lower_loops

    sizes: set[int] = set()
    for factor in (2, 4, 8):
        lanes = [Split("i0", factor), Bind("i0.1", AxisKind.UNROLL), Split("i1", factor), Bind("i1.1", AxisKind.VECTOR)]
        k = apply(tile_kernel(), lanes)
        bound, launch = bind_hardware(k, cpu_target())
        effects, _ = lower_loops(bound, cpu_target(), launch.workgroup)
        nodes = [u for root in (k, effects) for u in root.toposort() if u.op is not Ops.CONST]
        sizes.add(len(nodes))
    assert len(sizes) == 1


def tile_kernel() -> UOp:
    i, j = axes(64, 64)
    (r,) = axes(64, reduce=True, first=2)
    return kernel(
        param(0, 4096).store(i * 64 + j, total(param(1, 4096).load(i * 64 + r) * param(2, 4096).load(r * 64 + j), r))
    )


@pytest.mark.parametrize(
    "target", [cpu_target(), wasm_target(), webgpu_target(), interpreter_target()], ids=lambda t: t.name
)
def test_empty_loops(target: object) -> None:
    """A reduction over nothing is the identity, a store over nothing does nothing."""
    n = Variable("n", 0, 4)
    (i,), (r,) = axes(3), axes(n, reduce=True, first=1)
    k = kernel(param(0, 3).store(i, total(param(1, 12).load(i * 4 + r), r)))
    x = normal(3, 4)
    case = Case("empty", k, [np.full(3, 9, np.float32), x], [zeros(3)], {"n": 0})
    check(case, k, target)  # type: ignore[arg-type]


def test_packed_nibbles_in_words_for_c() -> None:
    """Elements of 4 bits are read by whole words where they fill words, else by bytes."""
    values = np.arange(-8, 8)
    for length, carrier in ((16, dtypes.uint32), (14, dtypes.uint8)):
        (i,) = axes(length)
        k = kernel(param(0, length, I32).store(i, param(1, length, dtypes.int4).load(i).cast(I32)))
        case = Case(
            "nibbles", k, [zeros(length, dtype=np.int32), pack4(values[:length])], [values[:length].astype(np.int32)]
        )
        assert check(case, k, cpu_target()).params[1].dtype is carrier

"""Actions one by one: what they do to the nest, how they print, what they refuse; and what the heuristics choose."""

from __future__ import annotations

import json
import math
from itertools import pairwise

import numpy as np
import pytest

from tests.graph.lower.hand_kernels import (
    BY_NAME,
    axes,
    check,
    exp,
    gate_and_up,
    kernel,
    linear,
    param,
    reduce,
    run,
    softmax,
    total,
)
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import AxisKind, KernelInfo, Ops, Space, StageArg, UOp, as_index
from tinyweb.graph.lower import lower
from tinyweb.graph.optimize import (
    Action,
    Bind,
    Fuse,
    Hoist,
    Peel,
    Reorder,
    ScheduleError,
    Split,
    Stage,
    apply,
    from_json,
    heuristic,
    optimize,
    to_json,
)
from tinyweb.graph.optimize.actions import inner_part
from tinyweb.graph.optimize.divide import Divide
from tinyweb.graph.optimize.merge import merge_reduces
from tinyweb.graph.optimize.rewrite import loops_of, ranges_of
from tinyweb.graph.target import cpu_target, interpreter_target, wasm_target, webgpu_target

MATMUL = BY_NAME["matmul"].kernel  # i0 = 12, i1 = 20, r0 = 16
EVERY_ACTION: list[tuple[Action, str]] = [
    (Split("i0", 4), "split(i0, 4)"),
    (Split("i0", 5, overlap=True), "split(i0, 5, overlap)"),
    (Peel("r0", 5), "peel(r0, 5)"),
    (Fuse("i0", "i1"), "fuse(i0, i1)"),
    (Divide("i1", (4, 12), 2), "divide(i1, at=[4, 12], blocks=2)"),
    (Reorder(("i1", "i0")), "reorder(i1, i0)"),
    (Bind("i0", AxisKind.GRID, 1), "bind(i0, grid.y)"),
    (Bind("i1", AxisKind.UNROLL), "bind(i1, unroll)"),
    (Hoist("r0", "i0"), "hoist(r0, at=i0)"),
    (Stage(1, "i0", Space.REGISTER), "stage(p1, at=i0, register)"),
    (Stage(1, "i0", Space.REGISTER, axes=("i0", "r0")), "stage(p1, at=i0, register, axes=[i0, r0])"),
]


def nest(k: UOp) -> list[tuple[str, int, str]]:
    """Name, (largest) size and kind of the axes, from the outside in."""
    return [(r.arg.name, r.src[0].vmax, r.arg.kind.name.lower()) for r in ranges_of(k)]


@pytest.mark.parametrize(("action", "text"), EVERY_ACTION, ids=[t for _, t in EVERY_ACTION])
def test_one_line_and_json(action: Action, text: str) -> None:
    assert str(action) == text
    assert from_json(json.loads(json.dumps(to_json([action])))) == (action,)
    assert apply(MATMUL, [action]).arg.schedule == (text,)


@pytest.mark.parametrize("data", [[{"action": "melt"}], [{"axis": "i0"}], [{"action": "split", "axis": "i0"}],
                                  [{"action": "bind", "axis": "i0", "kind": "soup"}], [{"action": 3}]])  # fmt: skip
def test_json_that_is_no_schedule(data: list[dict[str, object]]) -> None:
    with pytest.raises(ScheduleError, match="not an action of a schedule"):
        from_json(data)


def test_what_an_action_was_called_before_is_read() -> None:
    former = {"action": "group_reduce", "axis": "r0", "factor": 8, "dim": 1}
    assert from_json([former]) == (Split("r0", 8), Bind("r0.1", AxisKind.THREAD, 1))
    assert from_json([{**former, "dim": 0}]) == inner_part("r0", 8, AxisKind.THREAD)
    with pytest.raises(ScheduleError, match="not an action of a schedule"):
        from_json([{**former, "factor": "many"}])


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_the_loops_of_a_kernel_are_known_after_every_action(name: str) -> None:
    """Actions carry them over instead of looking through the kernel again."""
    for target in (cpu_target(), webgpu_target()):
        k = merge_reduces(BY_NAME[name].kernel)
        for action in heuristic(k, target):
            k = action.apply(k)
            found = {u for u in k.toposort() if u.op is Ops.RANGE}
            assert len(ranges_of(k)) == len(found) and set(ranges_of(k)) == found, str(action)
            assert set(loops_of(k).stages) == {u for u in k.toposort() if u.op is Ops.STAGE}, str(action)


def test_padded_stage() -> None:
    stage = Stage(1, "r0.0", Space.SHARED, pad=4)
    assert str(stage) == "stage(p1, at=r0.0, shared, pad=4)" and from_json(to_json([stage])) == (stage,)
    threads = Bind("i0", AxisKind.THREAD), Bind("i1", AxisKind.THREAD, 1)
    k = apply(MATMUL, [*threads, Split("r0", 8), stage])
    (staged,) = (u for u in k.toposort() if u.op is Ops.STAGE)
    assert staged.arg == StageArg(Space.SHARED, 4, 1)
    assert staged.arg.strides([r.src[0].vmax for r in staged.src[1:]]) == ((16, 1), 8 * 16)


@pytest.mark.parametrize("name", ["matmul", "elementwise", "convolution", "padded", "dots_i4", "softmax_columns"])
def test_fused_axes_compute_the_same(name: str) -> None:
    """With divisions where accesses do not walk over both axes as over one; bound and split afterwards."""
    case = BY_NAME[name]
    axes = [r.arg.name for r in ranges_of(case.kernel) if not r.arg.reduce]
    for outer, inner in pairwise(axes):
        fuse = Fuse(outer, inner)
        check(case, apply(case.kernel, [fuse, Split(outer, 8), Bind(f"{outer}.1", AxisKind.VECTOR)]), cpu_target(8, 2))
        check(case, apply(case.kernel, [fuse, Bind(outer, AxisKind.GRID)]), webgpu_target())


@pytest.mark.parametrize("outer", ["r0.0", "r0.1"])
def test_axes_that_are_reduced_together_are_fused(outer: str) -> None:
    """In either order; lanes then lie along both."""
    case = BY_NAME["matmul"]
    inner = "r0.1" if outer == "r0.0" else "r0.0"
    begin: list[Action] = [Split("r0", 4), Fuse(outer, inner)]
    assert nest(apply(case.kernel, begin))[-1][:2] == (outer, 16)
    for target in (cpu_target(8, 2), webgpu_target()):
        check(case, apply(case.kernel, begin), target)
        check(case, apply(case.kernel, [*begin, Split(outer, 8), Bind(f"{outer}.1", AxisKind.VECTOR)]), target)


def test_an_axis_of_one_step_is_fused_with_another() -> None:
    case = BY_NAME["matmul"]
    for outer, inner in (("r0.1", "r0.0"), ("r0.0", "r0.1")):
        k = apply(case.kernel, [Split("r0", 16), Fuse(outer, inner)])
        assert nest(k)[-1][:2] == (outer, 16)
        check(case, k, cpu_target(8, 2))


def test_split_and_reorder_and_bind() -> None:
    k = apply(MATMUL, [Split("i1", 4), Split("i1.0", 5), Reorder(("i1.0.1", "i0")), Bind("i1.1", AxisKind.VECTOR)])
    assert nest(k) == [
        ("i1.0.1", 5, "loop"),
        ("i0", 12, "loop"),
        ("i1.1", 4, "vector"),
        ("r0", 16, "loop"),
    ]  # i1.0.0 has one turn, and is gone
    assert k.arg == KernelInfo("", ("split(i1, 4)", "split(i1.0, 5)", "reorder(i1.0.1, i0)", "bind(i1.1, vector)"))


def test_a_split_that_does_not_divide_reads_no_further() -> None:
    """Loads inside of the reduction read the last row again; the store is gated."""
    k = apply(MATMUL, [Split("i0", 5)])
    (store,) = k.src
    assert len(store.src) == 4
    assert [len(u.src) for u in k.toposort() if u.op is Ops.LOAD] == [2, 2]


@pytest.mark.parametrize("factor", [2.0, math.inf, math.nan])
def test_zeros_beyond_the_end_meet_no_infinite_factor(factor: float) -> None:
    """0 times an infinity is none: where a factor is not finite, a sum has a condition of its own."""
    (r,) = axes(5, reduce=True)
    k = kernel(param(0, 1).store(as_index(0), total(param(1, 5).load(r) * factor, r)))
    split = apply(k, [Split("r0", 4)])
    given = np.arange(1, 6, dtype=np.float32)
    got = run(lower(split, interpreter_target()), interpreter_target(), [np.zeros(1, np.float32), given], {})
    np.testing.assert_array_equal(got[0], [15 * factor])
    assert any(u.op is Ops.WHERE for u in split.toposort()) == (not math.isfinite(factor))


def test_an_overlap_gates_nothing() -> None:
    k = apply(MATMUL, [Split("i0", 5, overlap=True)])
    assert sorted((u.op.name, len(u.src)) for u in k.toposort() if u.op in (Ops.LOAD, Ops.STORE)) == [
        ("LOAD", 2), ("LOAD", 2), ("STORE", 3)
    ]  # fmt: skip


def test_peel_makes_two_reductions() -> None:
    k = apply(MATMUL, [Peel("r0", 6)])
    assert nest(k)[2:] == [("r0.0", 2, "loop"), ("r0.1", 6, "loop"), ("r0.2", 4, "loop")]
    assert sum(u.op is Ops.REDUCE for u in k.toposort()) == 2
    assert nest(apply(MATMUL, [Peel("r0", 8)])) == nest(apply(MATMUL, [Split("r0", 8)]))


def test_merging_is_part_of_every_schedule() -> None:
    k = merge_reduces(gate_and_up().kernel)
    assert [n for n, _, _ in nest(k)] == ["i0", "r0"]
    assert merge_reduces(k) is k
    # one reduction needs the other's result
    assert [n for n, _, _ in nest(apply(softmax(3, 8).kernel, []))] == ["i0", "i1", "r0", "r1"]


def test_axes_of_more_steps_than_an_index_counts_are_not_fused() -> None:
    i, j = axes(1 << 16, 1 << 16)
    k = kernel(param(0, 1 << 17).store(i + j, param(1, 1 << 17).load(i + j)))
    with pytest.raises(ScheduleError, match="an axis has as many steps as an index can count"):
        apply(k, [Fuse("i0", "i1")])


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ([Split("i7", 2)], "there is no axis 'i7'; the kernel has i0, i1, r0"),
        ([Split("i0", 0)], "the factor must be at least 1"),
        ([Bind("i0", AxisKind.GRID), Split("i0", 2)], "the axis is bound to grid already"),
        ([Bind("i0", AxisKind.GRID), Bind("i0", AxisKind.UNROLL)], "the axis is bound to grid already"),
        ([Bind("r0", AxisKind.GRID)], "workgroups cannot reduce together"),
        ([Bind("i0", AxisKind.LOOP)], "an axis is a loop unless it is bound"),
        ([Bind("i0", AxisKind.GRID, 3)], "dimension 3 does not exist"),
        ([Bind("i0", AxisKind.VECTOR, 1)], "dimension 1 does not exist"),
        ([Bind("i0", AxisKind.THREAD), Bind("i1", AxisKind.THREAD)], "axis i0 has that dimension with size 12, not 20"),
        ([Split("i1", 12), Bind("i1.1", AxisKind.THREAD), Bind("i0", AxisKind.THREAD)], "axis i1.1 of the same value"),
        ([Reorder(("i0", "r0"))], "output axes and reduced axes nest apart"),
        ([Reorder(("i0", "i0"))], "an axis is named twice"),
        ([Fuse("i0", "r0")], "two output axes are fused"),
        ([Fuse("i0", "i0")], "two output axes are fused"),
        ([Bind("i1", AxisKind.GRID), Fuse("i0", "i1")], "an axis that is bound stays as it is"),
        ([Stage(1, "i0", Space.REGISTER), Fuse("i0", "i1")], "what is staged knows its axes"),
        ([Peel("i0", 5)], "the axis must be a loop that is reduced"),
        ([Peel("r0", 32)], "the axis may be too short for blocks of 32"),
        ([Split("r0", 5, overlap=True)], "blocks may overlap only of outputs"),
        ([Split("i0", 13, overlap=True)], "blocks may overlap only of outputs, at least 13 of them"),
        ([Stage(0, "i0", Space.REGISTER)], "the kernel stores to that parameter"),
        ([Stage(1, "i1", Space.REGISTER)], "reads that parameter more than once"),
        ([Stage(2, "i0", Space.DEVICE)], "staged in shared or register memory"),
        ([Stage(2, "i0", Space.REGISTER, 4)], "shared memory is padded"),
        ([Stage(2, "i0", Space.SHARED, -1)], "shared memory is padded"),
        ([Bind("i0", AxisKind.THREAD), Bind("i1", AxisKind.THREAD, 1), Stage(1, "r0", Space.SHARED, 4)],
         "there is one row"),
        ([Bind("i0", AxisKind.UNROLL), Stage(2, "i0", Space.REGISTER)], "the axis is bound to unroll; stage at a loop"),
        ([Stage(1, "i0", Space.REGISTER), Split("s1.r0", 2)], "axis s1.r0 fills staged memory and stays as it is"),
        ([Split("i0", 3), Stage(1, "i0.1", Space.REGISTER), Bind("i0.0", AxisKind.VECTOR)], "bind it before the stage"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)  # fmt: skip
def test_what_is_refused(actions: list[Action], message: str) -> None:
    with pytest.raises(ScheduleError) as error:
        apply(MATMUL, actions)
    assert message in str(error.value)


def test_lanes_need_a_constant_size() -> None:
    k = BY_NAME["scores_6"].kernel
    with pytest.raises(ScheduleError, match="the size must be constant; split the axis first"):
        apply(k, [Bind("i1", AxisKind.THREAD)])
    (i,) = axes(1000)
    k = kernel(param(0, 1000).store(i, param(1, 1000).load(i)))
    with pytest.raises(ScheduleError, match="1000 lanes are more than 256; split the axis first"):
        apply(k, [Bind("i0", AxisKind.VECTOR)])


def test_what_threads_reduce_together_is_not_staged() -> None:
    """The value that a scale is for holds a sum over threads: filled by them apart, each would hold parts of two."""
    threads: list[Action] = [Split("i1", 16), Bind("i1.1", AxisKind.THREAD, 1), *inner_part("r1", 2, AxisKind.THREAD)]
    k = BY_NAME["dots_i8_alone"].kernel
    with pytest.raises(ScheduleError, match="threads cannot fill apart what they reduce together"):
        apply(k, [*threads, Stage(3, "r0", Space.SHARED)])


def test_in_place_updates_do_not_overlap() -> None:
    with pytest.raises(ScheduleError, match="not updated in place"):
        apply(BY_NAME["in_place"].kernel, [Split("i0", 8, overlap=True)])


def test_peel_refuses_reductions_that_need_the_axis() -> None:
    (i,), (r, s) = axes(4), axes(10, 10, reduce=True, first=1)
    inner = total(param(1, 400).load((i * 10 + r) * 10 + s), s)
    k = kernel(param(0, 4).store(i, reduce(Ops.MAX, exp(inner), r)))
    with pytest.raises(ScheduleError, match="a reduction inside depends on the axis"):
        apply(k, [Peel("r0", 4)])


def test_staged_values_are_converted_on_the_way() -> None:
    """Dequantised once per block of rows, not once per token."""
    i, j = axes(16, 24)
    g, r = axes(2, 32, reduce=True, first=2)
    q = param(2, 24 * 64, dtypes.int8).load(j * 64 + g * 32 + r).cast(dtypes.float32)
    weight = q * param(3, 48, dtypes.float16).load(j * 2 + g).cast(dtypes.float32)
    k = kernel(param(0, 384).store(i * 24 + j, total(param(1, 1024).load(i * 64 + g * 32 + r) * weight, g, r)))
    staged = apply(k, [Reorder(("i1", "i0")), Stage(2, "i1", Space.REGISTER)])
    (stage,) = (u for u in staged.toposort() if u.op is Ops.STAGE)
    assert stage.dtype is dtypes.float32
    assert {u.src[0].arg.slot for u in stage.toposort() if u.op is Ops.LOAD} == {2, 3}


# -- heuristics -------------------------------------------------------------------------------------------------------
def kinds(k: UOp) -> dict[str, list[tuple[str, int]]]:
    out: dict[str, list[tuple[str, int]]] = {}
    for r in ranges_of(k):
        out.setdefault(r.arg.kind.name.lower(), []).append((r.arg.name, r.src[0].vmax))
    return out


def test_matrix_vector_on_a_processor() -> None:
    """Vectors along the rows of the weights, several rows together, blocks of rows for the workers."""
    found = kinds(optimize(linear(1, 512, 256).kernel, cpu_target(8, 4)))
    assert found["vector"] == [("r0.1", 8)] and found["unroll"] == [("i1.1", 4)] and found["grid"] == [("i1.0", 128)]


def test_matrix_times_matrix_on_a_processor() -> None:
    """A tile of registers; the smaller operand is packed for a block; workers share blocks of both outputs."""
    found = kinds(optimize(linear(64, 512, 256).kernel, cpu_target(8, 4)))
    assert ("i0.1.1", 16) in found["vector"] and found["unroll"] == [("i1.1.1", 6), ("s1.r0.v", 16)]
    assert found["grid"] == [("i1.0", 4), ("i0.0", 2)]


def test_deep_products_on_a_processor() -> None:
    """The reduction is walked in steps outside of the block of outputs."""
    schedule = [str(a) for a in heuristic(linear(300, 640, 1024).kernel, cpu_target(8, 2))]
    assert any(line.startswith("hoist(r0.0") for line in schedule) and "split(r0, 256)" in schedule
    assert sum(line.startswith("stage(") for line in schedule) == 1


def test_odd_sizes_on_a_processor() -> None:
    schedule = [str(a) for a in heuristic(linear(3, 517, 193).kernel, cpu_target(8, 4))]
    assert "peel(r0, 8)" in schedule and "split(i1, 4, overlap)" in schedule


def test_small_kernels_stay_with_one_worker() -> None:
    assert "grid" not in kinds(optimize(linear(1, 32, 64).kernel, cpu_target(8, 4)))


def test_rows_on_a_gpu() -> None:
    """A workgroup per row, whose threads reduce and then write the row together."""
    k = optimize(softmax(16, 512).kernel, webgpu_target())
    found = kinds(k)
    assert found["grid"] == [("i0", 16)]
    threads = {size for _, size in found["thread"]}
    assert len(threads) == 1 and threads.pop() >= 64
    assert {n.split(".")[0] for n, _ in found["thread"]} == {"r0", "r1", "i1"}


def test_matrix_vector_on_a_gpu() -> None:
    """Threads side by side read neighbouring parts of a row, and the work is spread over many of them."""
    k = optimize(linear(1, 512, 256).kernel, webgpu_target())
    found = kinds(k)
    assert found["vector"] == [("r0.1", 4)]
    assert any(n.startswith("r0") and size >= 16 for n, size in found["thread"])


def test_elementwise_on_a_gpu() -> None:
    (i,) = axes(4096)
    k = optimize(kernel(param(0, 4096).store(i, param(1, 4096).load(i) * 2.0)), webgpu_target())
    assert kinds(k) == {"vector": [("i0.1", 4)], "thread": [("i0.0.1", 64)], "grid": [("i0.0.0", 16)]}


def test_the_interpreter_computes_all_outputs_at_once() -> None:
    assert kinds(optimize(MATMUL, interpreter_target())) == {"grid": [("i0", 12), ("i1", 20)], "loop": [("r0", 16)]}


@pytest.mark.parametrize(
    "sizes", [(1, 1, 1), (1, 7, 3), (3, 517, 193), (65, 66, 67), (34, 140, 48), (12, 24, 520), (2, 4096, 5)]
)
@pytest.mark.parametrize(
    "target", [cpu_target(8, 4), cpu_target(16, 2), wasm_target(), webgpu_target()], ids=lambda t: t.name
)
def test_products_of_any_size(sizes: tuple[int, int, int], target: object) -> None:
    case = linear(*sizes)
    case.tolerance = 1e-3
    check(case, optimize(case.kernel, target), target)  # type: ignore[arg-type]


def test_a_reduction_is_not_hoisted_away_from_others_that_use_what_it_uses() -> None:
    """Softmax: the maximum inside of the sum is also what the results are made of."""
    kernel = BY_NAME["softmax_6_40"].kernel
    with pytest.raises(ScheduleError, match="is used outside as well"):
        apply(kernel, [Split("i0", 3), Hoist("r1", "i0.0")])


@pytest.mark.parametrize(("shared", "depth"), [(16384, 8), (32768, 16)])
def test_a_large_product_on_a_gpu(shared: int, depth: int) -> None:
    """128 x 128 outputs for 256 threads, from vectors in shared memory; inside only products of 4 steps."""
    target = webgpu_target(shared_bytes=shared)
    n = 4096
    i, j = axes(n, n)
    (r,) = axes(n, reduce=True, first=2)
    value = total(param(1, n * n).load(i * n + r) * param(2, n * n).load(r * n + j), r)
    program = lower(optimize(kernel(param(0, n * n).store(i * n + j, value)), target), target)
    assert program.grid == (32, 32, 1) and program.workgroup == (16, 16, 1)
    assert program.shared_bytes <= shared
    begin = max(i for i, u in enumerate(program.uops) if u.op is Ops.RANGE)
    end = next(i for i, u in enumerate(program.uops) if u.op is Ops.END)
    inner = program.uops[begin:end]
    assert program.uops[begin].src[0].arg == depth // 4
    assert sum(u.op is Ops.MULADD for u in inner) == 4 * 16
    assert not any(u.op in (Ops.FLOORDIV, Ops.MOD, Ops.LESS) for u in inner)
    read = [u for u in inner if u.op is Ops.LOAD and u.src[0].buffer.arg.space is Space.SHARED]
    assert len(read) == 4 * 4 and all(u.shape == (4,) for u in read)
    assert sum(u.op is Ops.BARRIER for u in program.uops) == 2

"""What becomes a kernel: numbers of kernels on both sides of every threshold, and of what may and may not be fused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.graph.schedule.kernel_oracle import Oracle
from tinyweb import Tensor, Variable
from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import Ops, UOp, toposort, users
from tinyweb.graph.schedule import schedule
from tinyweb.graph.schedule.calls import MAX_INPUTS
from tinyweb.graph.schedule.dominators import PostDominators, is_constant
from tinyweb.graph.schedule.fusion import SHORT_REDUCE, STORED_FROM, TILED_REDUCE, Fusion
from tinyweb.graph.schedule.schedule import _strip, new_buffer
from tinyweb.graph.schedule.work import LAUNCH
from tinyweb.graph.target import wasm_target, webgpu_target
from tinyweb.nn.quantize import QuantizedWeight

F32, I32 = dtypes.float32, dtypes.int32


def t(*shape: int, dtype: DType = F32) -> Tensor:
    return Tensor.empty(*shape, dtype=dtype)


def kernels(*results: Tensor) -> int:
    return len(schedule([UOp(Ops.CONTIGUOUS, r.dtype, (r.uop,)) for r in results]).calls)


# -- losses -----------------------------------------------------------------------------------------------------------
def test_the_gradient_of_a_cross_entropy_is_one_kernel() -> None:
    """Nothing is summed over classes but the exponentials: those of all samples are computed once."""
    x = t(32, 11)
    classes = Tensor(np.arange(32) % 11).realize()
    assert kernels(*x.cross_entropy(classes).gradient(x)) == 1
    (more,) = x.cross_entropy(classes, t(11)).gradient(x)
    assert kernels(more) <= 3


# -- results that are copied ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("kernel", "stride", "padding", "processor"), [(2, 2, 0, 2), (4, 2, 1, 3), (6, 3, 0, 3)])
def test_a_value_is_computed_in_the_memory_it_is_copied_to(
    kernel: int, stride: int, padding: int, processor: int
) -> None:
    """In another order too, where stores may lie apart."""
    x, w = t(1, 64, 12, 12), t(64, 32, kernel, kernel)
    y = x.conv_transpose2d(w, stride=stride, padding=padding)
    place = Tensor.empty(*y.shape).assign(y).uop
    while place.op is not Ops.ASSIGN:
        place = place.src[0]
    assert len(schedule([place]).calls) == processor
    assert len(schedule([place], webgpu_target()).calls) == 1


def test_pixels_that_channels_become_are_copied() -> None:
    """Sums are stored as they lie side by side, where stores that lie apart cost a processor its vectors."""
    x, w = t(1, 12, 20, 32), t(27, 12, 3, 3)
    shuffled = x.conv2d(w).pixel_shuffle(3)
    assert kernels(shuffled) == 2
    assert len(schedule([UOp(Ops.CONTIGUOUS, F32, (shuffled.uop,))], webgpu_target()).calls) == 1
    assert kernels((t(30, 20) @ t(20, 40)).transpose(0, 1)) == 1
    assert kernels(Tensor.einsum("tcij,kcij->tkij", t(16, 20, 4, 4), t(24, 20, 4, 4))) == 1


def test_a_value_that_others_read_is_copied() -> None:
    y = (t(8, 6) + 1).contiguous()
    place = Tensor.empty(6, 8).assign(y.reshape(6, 8)).uop
    while place.op is not Ops.ASSIGN:
        place = place.src[0]
    assert len(schedule([place]).calls) == 1
    assert len(schedule([place, UOp(Ops.CONTIGUOUS, F32, ((y * 2).uop,))]).calls) == 3


def test_rows_that_are_merged_are_computed_where_they_are_wanted() -> None:
    """Groups of channels are normalised, scaled and stored by one kernel, though their result has no axis of groups."""
    y = t(2, 12, 40).group_norm(3, t(12), t(12))
    place = Tensor.empty(*y.shape).assign(y).uop
    while place.op is not Ops.ASSIGN:
        place = place.src[0]
    assert len(schedule([place]).calls) == 1
    x = Tensor.empty(2, 12, 40)
    place = x.assign(x.group_norm(3, t(12), t(12))).uop  # reads what it replaces
    while place.op is not Ops.ASSIGN:
        place = place.src[0]
    assert len(schedule([place]).calls) == 2


def test_functions_behind_groups_of_channels_are_computed_with_them() -> None:
    """Where workgroups walk rows; with what else they need of the result's shape."""
    x, w, other, channels = t(2, 12, 5, 8), t(12), t(2, 12, 5, 8), t(1, 12, 1, 1)
    for y in (
        x.group_norm(3, w, w).silu(),
        (x.group_norm(3, w, w).relu() + other) * 2,
        (x.group_norm(3) + channels).gelu(),
    ):
        place = Tensor.empty(*y.shape).assign(y).uop
        while place.op is not Ops.ASSIGN:
            place = place.src[0]
        assert len(schedule([place], webgpu_target()).calls) == 1
    for z, on_processors in ((x.group_norm(3, w, w), 2), (x.group_norm(3, w, w).silu(), 3)):
        convolved = UOp(Ops.CONTIGUOUS, F32, (z.conv2d(t(4, 12, 3, 3)).uop,))
        assert len(schedule([convolved], webgpu_target()).calls) == 2
        assert len(schedule([convolved], wasm_target()).calls) == on_processors


# -- half floats ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16])
def test_half_floats_of_a_convolution_are_converted_where_tiles_copy_them(dtype: DType) -> None:
    """Not into memory, which would be read and written for it; what somebody asks for is."""
    x, w = t(1, 8, 12, 12, dtype=dtype), t(16, 8, 3, 3, dtype=dtype)
    y = UOp(Ops.CONTIGUOUS, dtype, (x.conv2d(w, padding=1).uop,))
    assert len(schedule([y], webgpu_target()).calls) == 1
    wide = x.float().contiguous()
    roots = [wide.uop, UOp(Ops.CONTIGUOUS, F32, (wide.conv2d(w.float(), padding=1).uop,))]
    assert len(schedule(roots, webgpu_target()).calls) == 2


@pytest.mark.parametrize(("queries", "heads", "expected"), [(1, 2, 1), (7, 2, 1), (8, 2, 3), (2, 8, 3)])
def test_half_floats_are_converted_once_where_attention_reads_them_often(
    queries: int, heads: int, expected: int
) -> None:
    """In WebAssembly, which takes a dozen instructions for one: keys and values, and neither masks nor queries."""
    f16 = dtypes.float16
    q, mask = t(1, heads, queries, 16, dtype=f16).float(), t(queries, 40, dtype=f16).float()
    k, v = (t(1, 2, 40, 16, dtype=f16).float() for _ in range(2))
    y = q.scaled_dot_product_attention(k, v, mask, enable_gqa=True)
    root = [UOp(Ops.CONTIGUOUS, y.dtype, (y.uop,))]
    found = schedule(root, wasm_target())
    assert len(found.calls) == expected
    assert len(schedule(root).calls) == len(schedule(root, webgpu_target()).calls) == 1


# -- borders ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("channels", "outputs", "size", "processor", "gpu"), [
    (4, 1, 3, 1, 1),  # 9 uses of each element
    (4, 2, 3, 2, 1),  # 18
    (7, 5, 5, 2, 1),
    (2, 1 << 10, 3, 2, 2),  # 9216
])  # fmt: skip
def test_a_border_gets_memory_where_its_elements_are_read_often(
    channels: int, outputs: int, size: int, processor: int, gpu: int
) -> None:
    y = t(1, channels, 13, 13).conv2d(t(outputs, channels, size, size), padding=size // 2)
    root = UOp(Ops.CONTIGUOUS, F32, (y.uop,))
    assert len(schedule([root]).calls) == processor
    assert len(schedule([root], webgpu_target()).calls) == gpu


@pytest.mark.parametrize(("rows", "columns", "processor"), [(20, 15, 1), (20, 16, 2), (16, 16, 1)])
def test_what_a_gather_picks_gets_memory_where_it_is_read_often(rows: int, columns: int, processor: int) -> None:
    """… and where that saves more than a launch."""
    y = t(50, 64).take(t(rows, dtype=I32), 0) @ t(64, columns)
    root = UOp(Ops.CONTIGUOUS, F32, (y.uop,))
    assert len(schedule([root]).calls) == processor
    assert len(schedule([root], webgpu_target()).calls) == 1


def test_what_lies_within_a_border_is_loaded_behind_its_gate_alone() -> None:
    y = t(1, 4, 13, 13).conv2d(t(8, 4, 3, 3), padding=1)
    (call,) = schedule([UOp(Ops.CONTIGUOUS, F32, (y.uop,))], webgpu_target()).calls
    nodes = call.kernel.toposort()
    assert any(u.op is Ops.LOAD and len(u.src) == 3 for u in nodes)
    assert not any(u.op is Ops.WHERE for u in nodes)


def test_parts_that_are_joined_get_no_memory_each() -> None:
    assert kernels(Tensor.cat([t(64, 32), t(64, 32)], 1) @ t(64, 64)) == 1


def shifted(x: Tensor, size: int) -> list[Tensor]:
    """Of the elements of (rows, columns, channels) the neighbours in a window, each as an array."""
    rows, columns, _ = x.shape
    border = x.pad(((size // 2, size // 2), (size // 2, size // 2), (0, 0)))
    return [border[i : i + rows, j : j + columns] for i in range(size) for j in range(size)]


@pytest.mark.parametrize(("parts", "columns", "launches"), [(2, 300, 1), (3, 5, 1), (3, 6, 2), (7, 3, 2)])
def test_joins_of_many_parts_get_memory_where_they_are_read_often(parts: int, columns: int, launches: int) -> None:
    """A join, not each of its parts with the others' places as a border."""
    y = Tensor.cat([t(8, 4) for _ in range(parts)], 1) @ t(4 * parts, columns)
    assert kernels(y) == launches
    assert kernels(Tensor.stack(shifted(t(20, 21, 3), 5)).mean(0)) == 2


def test_attention_to_neighbours_knows_which_part_each_step_reads() -> None:
    """Scores of a row whose steps each begin another part of a join get memory; those of a cache and a token do not."""
    q, k, v = (t(12, 13, 8) for _ in range(3))
    keys, values = (Tensor.stack(shifted(x, 3), 2) for x in (k, v))
    weights = (q[:, :, None] * keys).sum(-1).softmax(-1)
    assert kernels((weights[..., None] * values).sum(2)) == 3
    k, v = (t(4, 40, 8).cat(t(4, 1, 8), axis=1) for _ in range(2))
    assert kernels((t(4, 1, 8) @ k.transpose(1, 2)).softmax(-1) @ v) == 1


def test_weights_of_scores_in_memory_are_computed_once() -> None:
    """Scores that something else needs too are no pass over products: their exponentials get memory before a sum."""
    q, k, v = t(40, 8), t(60, 8), t(60, 24)
    scores = q @ k.T
    least = scores.topk(4)[0][:, -1:]
    weights = scores.masked_fill(scores < least, -np.inf).softmax(-1)
    calls = schedule([UOp(Ops.CONTIGUOUS, F32, ((weights @ v).uop,))]).calls
    last = calls[-1].kernel.toposort()
    assert not any(u.op in (Ops.EXP, Ops.EXP2) for u in last) and any(u.op is Ops.REDUCE for u in last)


# -- thresholds -------------------------------------------------------------------------------------------------------
def test_the_thresholds() -> None:
    assert (LAUNCH, TILED_REDUCE, SHORT_REDUCE, MAX_INPUTS, STORED_FROM) == (16384, 16, 256, 7, 256)


@pytest.mark.parametrize(("make", "limit", "below", "above"), [
    # one number of few elements is computed in every kernel that needs it
    (lambda n: t(5) * t(n).sum(), 16384, 1, 2),
    (lambda n: t(5) * t(n).max(), 16384, 1, 2),
    # sums of different lengths: the shorter one is stored if it is long enough for tiles
    (lambda n: t(5, n).sum(1) + t(5, 40).sum(1), 15, 1, 2),
    (lambda n: t(5, 40).sum(1) * t(5, n).sum(1), 15, 1, 2),
    # a border around sums
    (lambda n: t(5, n).sum(1).pad(((1, 1),)), 15, 1, 2),
    # a short sum of integers is carried out inside the sum of it
    (lambda n: (t(4, 6, n, dtype=I32).sum(2) * 2).sum(1), 256, 1, 2),
    (lambda n: (t(4, 6, n, dtype=I32).sum(2).cast(F32) * 0.5).sum(1), 256, 1, 2),
    # transcendental work is not repeated along a broadcast
    (lambda n: t(n, 1).exp() * t(n, 3), 255, 1, 2),
    (lambda n: (t(n, 1).exp() + 1.0).expand(n, 3) + 0.0, 255, 1, 2),
])  # fmt: skip
def test_on_both_sides(make: Callable[[int], Tensor], limit: int, below: int, above: int) -> None:
    assert (kernels(make(limit)), kernels(make(limit + 1))) == (below, above)


def test_sums_of_products_are_no_products_of_sums() -> None:
    """The sum of a factor may be infinite where no product is."""
    x, w = Tensor(np.zeros((90, 50), np.float32)), Tensor(np.full((50, 70), 3e38, np.float32))
    assert not (x @ w).sum(1).numpy().any()


def test_sums_of_floats_are_not_carried_out_again_and_again() -> None:
    assert kernels((t(4, 6, 2).sum(2) * 2).sum(1)) == 2
    assert kernels((t(4, 6, 2).sum(2) * t(4, 6, 2, dtype=I32).sum(2).cast(F32)).sum(1)) == 2
    # whatever lies beside the sums
    for dtype in (I32, F32):
        beside, sums = t(4, 6, dtype=dtype), t(4, 6, 5, dtype=I32).sum(2).cast(dtype)
        assert kernels((beside * sums).sum(1)) == kernels((sums * beside).sum(1)) == 1
    # the sizes of nested sums count together
    nested = lambda n: ((t(4, 3, 64, n, dtype=I32).sum(3) * 2).sum(2) * 2).sum(1)  # noqa: E731
    assert (kernels(nested(4)), kernels(nested(5))) == (1, 2)


@pytest.mark.parametrize("count", [2, 7, 8, 14, 15, 20])
def test_inputs_of_a_kernel(count: int) -> None:
    total = t(5)
    for _ in range(count - 1):
        total = total + t(5)
    plan = schedule([UOp(Ops.CONTIGUOUS, F32, (total.uop,))])
    assert all(len(c.buffers) <= MAX_INPUTS + 1 for c in plan.calls)
    # each further kernel reads the one before
    assert len(plan.calls) == -(-(count - 1) // (MAX_INPUTS - 1))


def test_what_is_stored_counts_as_an_input() -> None:
    total = (t(5) + 1.0).contiguous()
    for _ in range(9):
        total = total + (t(5) + 1.0).contiguous()
    calls = schedule([UOp(Ops.CONTIGUOUS, F32, (total.uop,))]).calls
    assert len(calls) == 10 + 2 and all(len(c.buffers) <= MAX_INPUTS + 1 for c in calls)


def test_the_operand_with_most_inputs_is_stored() -> None:
    """And no more than it takes; a single memory is never copied."""
    few, many = t(5) + t(5), t(5) + t(5) + t(5) + t(5) + t(5) + t(5)
    plan = schedule([UOp(Ops.CONTIGUOUS, F32, ((few + many).uop,))])
    assert [len(c.buffers) for c in plan.calls] == [7, 4]
    assert kernels(many + t(5)) == 1
    seven = many + t(5)
    assert [len(c.buffers) for c in schedule([UOp(Ops.CONTIGUOUS, F32, ((seven * t(5)).uop,))]).calls] == [8, 3]
    # what both sides read counts once
    shared = [t(5) for _ in range(7)]
    both = sum(shared[1:], shared[0]) * sum(shared[1:], shared[0] * 2.0)
    assert kernels(both) == 1


def test_inputs_of_an_update() -> None:
    """The memory that is written may be read as well."""
    for count, want in ((7, 1), (8, 2)):
        memory = new_buffer(5, F32)
        total = t(5)
        for _ in range(count - 1):
            total = total + t(5)
        plan = schedule([UOp(Ops.ASSIGN, F32, (memory, total.uop), 0)])
        assert len(plan.calls) == want
        assert all(len(c.buffers) <= MAX_INPUTS + 1 for c in plan.calls)


# -- rows -------------------------------------------------------------------------------------------------------------
def softmax(x: Tensor, axis: int = -1) -> Tensor:
    return x.softmax(axis)


@pytest.mark.parametrize(("make", "want"), [
    # along one row everything is one kernel, whatever its position
    (lambda: softmax(t(4, 6, 8)), 1), (lambda: softmax(t(4, 6, 8), 0), 1), (lambda: softmax(t(4, 6, 8), 1), 1),
    (lambda: t(4, 6).layernorm(), 1), (lambda: (t(4, 6) - t(4, 6).mean(1, keepdim=True)).abs().sum(1), 1),
    # rows that are moved or reshaped as a whole stay rows
    (lambda: softmax(t(4, 6)).permute(1, 0) * t(6, 4), 1), (lambda: softmax(t(4, 6)).reshape(2, 2, 6) * t(2, 2, 6), 1),
    (lambda: softmax(t(4, 6)).reshape(4, 2, 3) * t(4, 2, 3), 1), (lambda: softmax(t(4, 6)).reshape(24) * t(24), 2),
    (lambda: softmax(t(4, 6)).reshape(4, 1, 6) * t(4, 1, 6), 1), (lambda: softmax(t(4, 6))[1:3] * t(2, 6), 2),
    (lambda: softmax(t(4, 6)).flip(0) * t(4, 6), 2),
    (lambda: (softmax(t(4, 6)).reshape(2, 2, 6) * t(2, 2, 6)).sum(2), 1),
    (lambda: softmax(t(4, 6)).permute(1, 0).sum(0), 1), (lambda: softmax(t(4, 6)).permute(1, 0).sum(1), 2),
    (lambda: (softmax(t(4, 6)).reshape(4, 2, 3) * t(4, 2, 3)).sum((1, 2)), 1),
    (lambda: softmax(t(4, 6)).reshape(4, 2, 3).sum(2), 2),
    # rows of other axes, or of another length
    (lambda: softmax(t(6, 6)) + softmax(t(6, 6), 0), 3), (lambda: softmax(t(4, 6)) + softmax(t(4, 6)), 1),
    # a row that is reduced along another axis, and along its own
    (lambda: softmax(t(4, 6)).sum(0), 2), (lambda: (softmax(t(4, 6)) * t(4, 6)).sum(1), 1),
    # a row that is broadcast
    (lambda: softmax(t(4, 6)).reshape(4, 1, 6) * t(4, 3, 6), 2),
    # a row beside a sum
    (lambda: softmax(t(4, 6)) + t(4, 6, 20).sum(2), 2), (lambda: softmax(t(4, 6)) * t(20).sum(), 1),
    # a product's outputs have no row in memory
    (lambda: softmax(t(4, 5) @ t(5, 6)), 2), (lambda: (t(4, 5) @ t(5, 6)).relu() + t(6), 1),
    (lambda: (t(4, 5) @ t(5, 6)).sum(), 2), (lambda: (t(4, 5) @ t(5, 6)) @ t(6, 3), 2),
    (lambda: (t(4, 5) @ t(5, 6)).reshape(2, 2, 6).permute(2, 0, 1) * 2.0, 1),
    # a broadcast that is none
    (lambda: t(4, 20).sum(1, keepdim=True).expand(4, 1) * 2.0, 1),
    (lambda: t(4, 20).sum(1, keepdim=True) * t(4, 20), 1), (lambda: t(4, 20).sum(1, keepdim=True) * t(4, 21), 2),
    # a reduction of one element is none
    (lambda: (t(4, 1, 20).sum(2).sum(1) + 1.0), 1),
    # all of memory
    (lambda: t(4, 6), 1), (lambda: t(4, 6).permute(1, 0), 1), (lambda: t(4, 6).pad(((1, 1), (0, 0))) * 2.0, 1),
])  # fmt: skip
def test_rows(make: Callable[[], Tensor], want: int) -> None:
    assert kernels(make()) == want


@pytest.mark.parametrize(("make", "want"), [
    # users that meet in one kernel share a sum; the first of small ones is where it is computed
    (lambda s: [s + 1.0, s * 2.0], 2), (lambda s: [(s + 1.0) * (s * 2.0)], 1), (lambda s: [s.exp() + s], 1),
    (lambda s: [s.exp() @ t(6, 3) + s @ t(6, 3)], 2), (lambda s: [s, s + 1.0], 2),
    (lambda s: [s.permute(1, 0), s + 1.0], 3),
    # where they meet elements must not have moved: only axes of one element may come and go
    (lambda s: [s.exp().reshape(6, 4) + s.reshape(6, 4)], 2),
    (lambda s: [s.exp().reshape(4, 1, 6) + s.reshape(4, 1, 6)], 1),
    (lambda s: [s.exp().reshape(2, 12) + s.reshape(2, 12)], 2),
    (lambda s: [s.exp().permute(1, 0) + s.permute(1, 0)], 2),
])  # fmt: skip
def test_values_with_several_users(make: Callable[[Tensor], list[Tensor]], want: int) -> None:
    assert kernels(*make(t(4, 20) @ t(20, 6))) == want


def test_a_sum_beside_a_row_is_what_is_stored() -> None:
    for result in (softmax(t(4, 6)) + t(4, 6, 20).sum(2), t(4, 6, 20).sum(2) * softmax(t(4, 6))):
        first, last = schedule([UOp(Ops.CONTIGUOUS, F32, (_strip([result.uop])[0],))]).calls
        assert [sum(u.op is Ops.REDUCE for u in c.kernel.toposort()) for c in (first, last)] == [1, 2]
        assert first.buffers[0].arg.size == 24


@pytest.mark.parametrize(("size", "want"), [(1, 1), (2, 2), (3, 2), (5, 2)])
def test_sums_that_are_summed_along_as_many(size: int, want: int) -> None:
    """A value that varies along the row it is reduced over would be computed once for each use."""
    s = t(size, size).sum(1)
    assert kernels(s - s.max()) == want
    assert kernels((s - s.max()) * t(size)) == want


def test_two_by_three_is_not_three_by_two() -> None:
    s = t(2, 20) @ t(20, 3)
    assert kernels(s.exp().reshape(3, 2) + s.reshape(3, 2)) == 2
    assert kernels(s.exp().reshape(2, 1, 3) + s.reshape(2, 1, 3)) == 1


def test_gathers_of_what_is_computed() -> None:
    """Needed once for each pick, and so stored; picks of whole numbers are needed once."""
    picks = t(5, dtype=I32)
    table, row = t(8, 20) @ t(20, 3), t(8, 3)

    def take(values: Tensor, at: Tensor) -> Tensor:
        return Tensor(UOp(Ops.TAKE, F32, (values.uop, at.uop), 0))

    assert kernels(take(row * 2.0, picks)) == 1 and kernels(take(table, picks)) == 2
    wanted = t(5, 20, dtype=I32).sum(1)
    assert kernels(take(row, wanted)) == 2 and kernels(take(t(8), wanted)) == 1 and kernels(take(t(8, 1), wanted)) == 1


def test_views_of_what_is_stored_are_views() -> None:
    """It is the value that gets memory, not its rearrangement."""
    product = (t(4, 20) @ t(20, 6)).uop
    turned = UOp(Ops.PERMUTE, F32, (UOp(Ops.RESHAPE, F32, (product,), (2, 2, 6)),), (2, 0, 1))
    roots = [UOp(Ops.CONTIGUOUS, F32, (Tensor(turned).sum((1, 2)).uop,)),
             UOp(Ops.CONTIGUOUS, F32, ((Tensor(turned) + 1.0).uop,))]  # fmt: skip
    fusion = Fusion(UOp(Ops.SINK, dtypes.void, tuple(roots)))
    stored = list(fusion.realized)
    base = product
    while base.op in (Ops.RESHAPE, Ops.PERMUTE):
        base = base.src[0]
    assert stored[0] is base and stored[1:] == roots
    assert fusion.state[turned] == fusion.state[base] and fusion.state[base].inputs == frozenset({base})


def test_symbolic_rows() -> None:
    n = Variable("n", 0, 30)
    x = t(4, 31)[:, : n + 1]
    assert kernels(x.softmax(-1)) == 1 and kernels(x.sum(1)) == 1
    assert kernels(x - x.mean(1, keepdim=True)) == 1


# -- users' post-dominators ----------------------------------------------------------------------------------------
def random_graph(seed: int, size: int) -> UOp:
    rng = np.random.default_rng(seed)
    nodes = [t(3).uop for _ in range(3)]
    for _ in range(size):
        a, b = (nodes[int(k)] for k in rng.integers(max(0, len(nodes) - 5), len(nodes), 2))
        nodes.append(a + b if a is not b else a * 2.0)
    return UOp(Ops.SINK, dtypes.void, tuple(nodes[-2:]))


def reaches(u: UOp, root: UOp, above: dict[UOp, list[UOp]], without: UOp) -> bool:
    todo, seen = [u], {u, without}
    while todo:
        for x in above.get(todo.pop(), []):
            if x is root:
                return True
            if x not in seen:
                seen.add(x)
                todo.append(x)
    return False


@pytest.mark.parametrize("seed", range(6))
def test_where_users_meet(seed: int) -> None:
    """Against the definition: the nearest node without which there is no path to the root."""
    root = random_graph(seed, 14)
    post_dominators, above = PostDominators(root), users([root])
    order = toposort([root])
    assert post_dominators.of[root] is root
    for u in order[:-1]:
        if is_constant(u):
            continue
        through = [x for x in order if x is not u and (x is root or not reaches(u, root, above, x))]
        # the nearest is the one that all others lie above
        want = min(through, key=order.index)
        assert post_dominators.of[u] is want
        between = list(post_dominators.between(u))
        assert len(between) == len(set(between))
        inside, todo = set(), list(above[u])
        while todo:
            x = todo.pop()
            if x is not want and x not in inside:
                inside.add(x)
                todo += above[x]
        assert set(between) == inside


# -- values -----------------------------------------------------------------------------------------------------------
def test_values_across_kernels() -> None:
    """What is stored and what is fused give the same numbers."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((4, 20)).astype(np.float32), rng.standard_normal((20, 6)).astype(np.float32)
    oracle = Oracle()
    x, y = oracle.tensor(a), oracle.tensor(b)
    s = a @ b
    e = np.exp(s - s.max(1, keepdims=True))
    for got, want, count in (
        ((x @ y).softmax(-1).permute(1, 0), (e / e.sum(1, keepdims=True)).T, 2),
        ((x @ y).pad(((1, 1), (0, 0))), np.pad(s, ((1, 1), (0, 0))), 2),
        ((x @ y).exp() + (x @ y), np.exp(s) + s, 1),
        ((x @ y).sum(0) * x.sum(), s.sum(0) * a.sum(), 2),
    ):  # fmt: skip
        np.testing.assert_allclose(oracle.numpy(got), want, rtol=2e-5, atol=1e-5)
        assert oracle.kernels == count


@pytest.mark.parametrize("more", range(4))
def test_what_is_repeated_is_stored_once(more: int) -> None:
    """Two products of one row in a third, whose rows are as many as the first ones' columns: with too many inputs for
    one kernel the row gets memory, not the matrix of its copies.
    """

    def weight(rows: int, columns: int) -> QuantizedWeight:
        groups = columns // 32
        return QuantizedWeight(t(rows, groups, 32, dtype=dtypes.int8), t(rows, groups, dtype=dtypes.float16))

    x = y = t(1, 64)
    for _ in range(more):
        y = y * t(64)
    gate, up, down = weight(96, 64), weight(96, 64), weight(64, 96)
    result = x + down.product(gate.product(y).silu() * up.product(y))
    made = schedule([UOp(Ops.CONTIGUOUS, F32, (result.uop,))])
    assert {call.buffers[0].arg.size for call in made.calls} == {96, 64}

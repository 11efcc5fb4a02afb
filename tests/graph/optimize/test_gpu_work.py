"""Operations that kernels on a GPU execute, beside what their expressions need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

import numpy as np
import pytest
import torch
from torch.nn.functional import conv2d, conv_transpose2d

from benchmarks.count.program import count, operations
from tests.graph.lower.hand_kernels import run
from tests.graph.optimize.families import symbolic_product
from tinyweb import Tensor
from tinyweb.dtype import dtypes
from tinyweb.graph.gpu_targets import amd_target, nvidia_target
from tinyweb.graph.ir import Ops, Space
from tinyweb.graph.lower import program_for
from tinyweb.graph.program import Program
from tinyweb.graph.target import Target, cpu_target, wasm_target, webgpu_target
from tinyweb.tracing import capture

MOST = 1.25
WEBGPU = webgpu_target()


def programs(make: Callable[[], Tensor], target: Target = WEBGPU) -> list[Program]:
    return [program_for(call.kernel, target) for call in capture(lambda: make().realize(), target).calls]


def product(m: int, k: int, n: int, batches: int = 1) -> Callable[[], Tensor]:
    return lambda: Tensor.empty(batches, m, k) @ Tensor.empty(batches, k, n)


@pytest.mark.parametrize(
    ("m", "k", "n", "batches"),
    [(512, 17, 512, 1), (197, 197, 197, 12), (33, 64, 1500, 6), (131, 67, 784, 1), (97, 70, 203, 3), (200, 41, 150, 2)],
)
def test_products_compute_little_again(m: int, k: int, n: int, batches: int) -> None:
    (program,) = programs(product(m, k, n, batches))
    assert operations(program) <= MOST * 2 * batches * m * k * n


@pytest.mark.parametrize(("m", "n", "batches", "tiles"), [(50, 130, 12, 96), (33, 48, 3, 6), (64, 64, 2, 8)])
def test_few_tiles_are_small(m: int, n: int, batches: int, tiles: int) -> None:
    """Where no size keeps a GPU busy, those that all of it computes at once, if they compute little again."""
    (program,) = programs(product(m, 130, n, batches))
    assert prod(program.grid) == tiles
    assert operations(program) <= MOST * 2 * batches * m * 130 * n


@pytest.mark.parametrize(("size", "threads", "vectors"), [(2048, 128, 6), (1536, 256, 4)])
def test_threads_with_many_registers_have_more_sums(size: int, threads: int, vectors: int) -> None:
    """16 × 8 of enough workgroups, else 8 × 8; four steps of either are written out."""
    (program,) = programs(product(size, 32, size), webgpu_target(shared_bytes=1 << 15, thread_registers=255))
    assert prod(program.workgroup) == threads and prod(program.grid) == (size // 128) ** 2
    loads = [u.src[0].buffer for u in program.uops if u.op is Ops.LOAD]
    reads = [memory for memory in loads if memory.op is Ops.BUFFER and memory.arg.space is Space.SHARED]
    assert len(reads) == 4 * vectors


@pytest.mark.parametrize(("width", "window"), [(13, 1), (13, 3), (29, 3), (26, 5)])
def test_tiles_reach_over_lines_of_an_image(width: int, window: int) -> None:
    x, w = Tensor.empty(1, 48, width, width), Tensor.empty(100, 48, window, window)
    (call,) = capture(lambda: x.conv2d(w, padding=window // 2).realize(), webgpu_target()).calls
    program = program_for(call.kernel, webgpu_target())
    assert operations(program) <= 1.13 * 2 * 100 * 48 * (width * window) ** 2


@pytest.mark.parametrize(
    ("heads", "queries", "keys", "width"),
    [(8, 15, 1024, 64), (6, 33, 1500, 64), (4, 256, 256, 40), (4, 77, 256, 96), (2, 50, 700, 80), (8, 1, 1024, 64)]
    + [(4, 640, 77, 64)],
)
def test_attention_computes_little_again(heads: int, queries: int, keys: int, width: int) -> None:
    q, k, v = (Tensor.empty(1, heads, n, width) for n in (queries, keys, keys))
    found = programs(lambda: q.scaled_dot_product_attention(k, v))
    score = 4 * width + 43  # with an exponential and what else a softmax takes
    assert sum(map(operations, found)) <= MOST * heads * queries * keys * score


@pytest.mark.parametrize("queries", [7, 20, 33])
def test_one_block_of_keys_keeps_sums_beside_weights(queries: int) -> None:
    """They fit into shared memory, so that the kernel is a single pass."""
    q, k, v = (Tensor.empty(1, 6, n, 64) for n in (queries, 333, 333))
    (program,) = programs(lambda: q.scaled_dot_product_attention(k, v))
    assert operations(program) <= 1.5 * 6 * queries * 333 * (4 * 64 + 43)


@pytest.mark.parametrize(("queries", "width", "most"), [(256, 64, 112), (1, 64, 88), (33, 80, 120)])
def test_threads_of_attention_keep_few_values(queries: int, width: int, most: int) -> None:
    """A thread's sums are numbers, not vectors, and offsets of an index are added where it is used. One query has eight
    vectors under way."""
    q, k, v = (Tensor.empty(1, 4, n, width) for n in (queries, 1024, 1024))
    found = programs(lambda: q.scaled_dot_product_attention(k, v))
    assert max(count(program).registers for program in found) <= most


def test_windows_walk_over_what_they_see() -> None:
    """A window of 64 of 1024 keys: the blocks that 32 queries see, not all."""
    q, k, v = (Tensor.empty(1, 4, 1024, 64) for _ in range(3))
    i, j = Tensor.arange(1024).unsqueeze(1), Tensor.arange(1024)
    (program,) = programs(lambda: q.scaled_dot_product_attention(k, v, (j <= i) & (i - j < 64)))
    assert operations(program) <= 4 * 1024 * (64 + 32 + 64) * (4 * 64 + 43)


@pytest.mark.parametrize(
    ("shape", "out", "groups", "window", "stride"),
    [
        ((1, 128, 56, 56), 128, 128, 3, 1), ((1, 96, 40, 44), 96, 96, 5, 1), ((2, 64, 56, 56), 64, 64, 7, 1),
        ((1, 64, 56, 56), 64, 4, 3, 1), ((1, 96, 28, 28), 192, 6, 3, 1), ((1, 128, 28, 28), 128, 32, 3, 1),
        ((1, 512, 7, 7), 512, 1, 3, 1), ((1, 256, 14, 14), 256, 1, 3, 1), ((1, 64, 15, 15), 48, 1, 3, 2),
    ],
)  # fmt: skip
def test_convolutions_compute_little_again(
    shape: tuple[int, ...], out: int, groups: int, window: int, stride: int
) -> None:
    x, w = Tensor.empty(*shape), Tensor.empty(out, shape[1] // groups, window, window)
    plan = capture(lambda: x.conv2d(w, padding=window // 2, stride=stride, groups=groups).realize())
    size = [-(-n // stride) for n in shape[2:]]
    needed = 2 * shape[0] * size[0] * size[1] * out * shape[1] // groups * window**2
    assert sum(operations(program_for(call.kernel, webgpu_target())) for call in plan.calls) <= MOST * needed


STEPPED = [(3, 2, 64, 32, 14), (5, 2, 64, 32, 16), (6, 4, 32, 16, 16), (7, 3, 48, 20, 12), (1, 2, 64, 48, 10)]


@pytest.mark.parametrize(("kernel", "step", "channels", "out", "size"), STEPPED)
def test_each_weight_is_met_once_where_a_step_does_not_divide_the_kernel(
    kernel: int, step: int, channels: int, out: int, size: int
) -> None:
    x, w = Tensor.empty(1, channels, size, size), Tensor.empty(channels, out, kernel, kernel)
    pads = {"stride": step, "padding": kernel // 2, "output_padding": step - 1}
    counts = sum(map(operations, programs(lambda: x.conv_transpose2d(w, **pads))))
    assert counts <= MOST * 2 * channels * out * (size * kernel) ** 2
    for target in (cpu_target(8, 2), wasm_target(2)):
        plan = capture(lambda: x.conv_transpose2d(w, **pads).realize(), target)
        assert sum(operations(program_for(call.kernel, target)) for call in plan.calls) <= 2 * counts


@pytest.mark.parametrize(("kernel", "step", "channels", "out", "size"), [*STEPPED, (3, 2, 6, 8, 7), (2, 3, 5, 4, 6)])
@pytest.mark.parametrize("device", ["WEBGPU", "CPU"])
def test_values_where_a_step_does_not_divide_the_kernel(
    device: str, kernel: int, step: int, channels: int, out: int, size: int
) -> None:
    random = np.random.default_rng(kernel)
    x, w = (random.standard_normal(s, np.float32) for s in ((2, channels, size, size), (channels, out, kernel, kernel)))
    for cut, more in ((0, 0), (kernel // 2, step - 1), (kernel // 2, 0)):
        pads = {"stride": step, "padding": cut, "output_padding": more}
        got = Tensor(x, device=device).conv_transpose2d(Tensor(w, device=device), **pads).numpy()
        want = conv_transpose2d(torch.from_numpy(x).double(), torch.from_numpy(w).double(), **pads).numpy()
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("resized", "longer"),
    [
        (lambda x: x.interpolate((30, 41), mode="area"), 1), (lambda x: x.interpolate((30, 41), mode="bilinear"), 0),
        (lambda x: x.adaptive_max_pool2d((7, 9)), 0), (lambda x: x.interpolate((100, 131), mode="nearest"), 0),
    ],
)  # fmt: skip
def test_no_place_of_a_resized_image_is_asked_for(resized: Callable[[Tensor], Tensor], longer: int) -> None:
    """Tables and windows lie inside of the image, whatever its size: nothing is gated but threads beyond the output,
    and of means what only longer windows have."""
    for call in capture(lambda: resized(Tensor.empty(1, 2, 64, 80)).realize()).calls:
        loads = [u for u in call.kernel.toposort() if u.op is Ops.LOAD]
        assert loads and sum(len(u.src) > 2 for u in loads) == longer


@pytest.mark.parametrize(("rows", "most"), [(15, 6), (4, 3), (7, 4)])
def test_few_rows_read_the_other_operand_once(rows: int, most: float) -> None:
    """Bytes that workgroups read: the matrix once, the rows often."""
    (program,) = programs(lambda: Tensor.empty(rows, 1000) @ Tensor.empty(1000, 1003))
    counts = count(program)
    assert counts.group_loaded <= most * counts.once


@pytest.mark.parametrize("width", [2, 3, 4])
def test_short_rows_have_a_thread_each(width: int) -> None:
    x = np.random.default_rng(width).normal(size=(9001, width)).astype(np.float32)
    (program,) = programs(lambda: Tensor.empty(9001, width).softmax(-1))
    assert not any(u.op is Ops.BARRIER for u in program.uops)
    want = np.exp(x) / np.exp(x).sum(-1, keepdims=True)
    for device in ("WEBGPU", "INTERPRETER"):
        np.testing.assert_allclose(Tensor(x, device=device).softmax(-1).numpy(), want, rtol=1e-5)
    image = Tensor(np.arange(2 * 3 * 64 * 96, dtype=np.float32).reshape(2, 3, 64, 96) % 7, device="WEBGPU")
    (slope,) = image.max_pool2d(2).sum().gradient(image)
    windows = image.numpy().reshape(2, 3, 32, 2, 48, 2).swapaxes(3, 4).reshape(2, 3, 32, 48, 4)
    first = np.eye(4, dtype=np.float32)[windows.argmax(-1)].reshape(2, 3, 32, 48, 2, 2).swapaxes(3, 4)
    np.testing.assert_array_equal(slope.numpy(), first.reshape(image.shape))


ROWS = [(1, 768), (4, 512), (7, 300), (16, 100), (300, 129), (64, 64)]


@pytest.mark.parametrize(("rows", "width"), ROWS)
def test_what_follows_from_a_row_is_computed_once(rows: int, width: int) -> None:
    """Its mean and deviation by one thread, not by each of them."""
    (program,) = programs(lambda: Tensor.empty(rows, width).rms_norm(width, Tensor.empty(width), 1e-5))
    assert operations(program) <= MOST * 4 * rows * width
    (program,) = programs(lambda: Tensor.empty(rows, width).layer_norm(width))
    assert operations(program) <= MOST * 6 * rows * width


@pytest.mark.parametrize(("rows", "width"), ROWS)
def test_values_of_what_threads_tell_each_other(rows: int, width: int) -> None:
    x = 3 + np.random.default_rng(width).standard_normal((rows, width), np.float32)
    t, wide = Tensor(x, device="WEBGPU"), x.astype(np.float64)
    apart = wide - wide.mean(1, keepdims=True)
    want = apart / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(t.layer_norm(width).numpy(), want, rtol=1e-4, atol=1e-4)
    powers = np.exp(wide - wide.max(1, keepdims=True))
    np.testing.assert_allclose(t.softmax(1).numpy(), powers / powers.sum(1, keepdims=True), rtol=1e-5)
    first = (t == t.amax(1, keepdim=True)).float() - t.argmax(1).reshape(rows, 1)
    want = (x == x.max(1, keepdims=True)) - x.argmax(1)[:, None].astype(np.float32)
    np.testing.assert_array_equal(first.numpy(), want)


def test_memory_changes_hands_behind_a_loop() -> None:
    """What weights lie in during the loop over keys takes sums after it, and a barrier lies between."""
    q, k, v = (Tensor.empty(1, 8, n, 128) for n in (15, 1024, 1024))
    small = replace(WEBGPU, busy_threads=WEBGPU.busy_threads // 4)  # kept busy without parts of the keys
    (program,) = programs(lambda: q.scaled_dot_product_attention(k, v), small)
    shared = [u for u in program.uops if u.op in (Ops.LOAD, Ops.STORE) and u.src[0].buffer.arg in _shared(program)]
    depth, inside, behind = 0, set(), []
    for u in program.uops:
        depth += (u.op is Ops.RANGE) - (u.op is Ops.END)
        if u in shared and depth:
            inside.add(u.src[0].buffer)
        elif not depth and inside and (u.op is Ops.BARRIER or u in shared):
            behind.append(u)
    assert behind[0].op is Ops.BARRIER
    assert any(u.op is Ops.STORE and u.src[0].buffer in inside for u in behind)


def _shared(program: Program) -> set[object]:
    return {u.arg for u in program.uops if u.op is Ops.BUFFER and u.arg.space is Space.SHARED}


@pytest.mark.parametrize(("queries", "keys", "width"), [(15, 512, 64), (6, 37, 40), (11, 130, 24)])
def test_values_of_shared_memory_that_changes_hands(queries: int, keys: int, width: int) -> None:
    random = np.random.default_rng(queries)
    q, k, v = (random.standard_normal((2, n, width), np.float32) for n in (queries, keys, keys))
    tq, tk, tv = (Tensor(x, device="WEBGPU") for x in (q, k, v))
    scores = np.einsum("hqw,hkw->hqk", q.astype(np.float64), k) / width**0.5
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    want = weights / weights.sum(-1, keepdims=True) @ v
    got = tq.scaled_dot_product_attention(tk, tv).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("m", "k", "n"), [(130, 17, 70), (33, 41, 97), (197, 10, 50)])
def test_values_of_products_in_uneven_tiles(m: int, k: int, n: int) -> None:
    random = np.random.default_rng(m)
    a, b = random.standard_normal((m, k), np.float32), random.standard_normal((k, n), np.float32)
    got = (Tensor(a, device="WEBGPU") @ Tensor(b, device="WEBGPU")).numpy()
    np.testing.assert_allclose(got, a.astype(np.float64) @ b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "out", "groups", "window", "keywords"),
    [
        ((1, 96, 28, 28), 96, 96, 3, {"padding": 1}), ((1, 40, 29, 32), 40, 40, 5, {"padding": 2}),
        ((1, 12, 9, 12), 24, 3, 3, {"padding": 1}), ((1, 16, 7, 7), 20, 1, 3, {"padding": 1}),
        ((1, 90, 56, 56), 90, 90, 3, {"padding": 1, "stride": 2}), ((1, 32, 20, 20), 32, 2, 3, {"dilation": 2}),
    ],
)  # fmt: skip
def test_values_of_convolutions(
    shape: tuple[int, ...], out: int, groups: int, window: int, keywords: dict[str, int]
) -> None:
    random = np.random.default_rng(out)
    x, w = (random.standard_normal(s, np.float32) for s in (shape, (out, shape[1] // groups, window, window)))
    got = Tensor(x, device="WEBGPU").conv2d(Tensor(w, device="WEBGPU"), groups=groups, **keywords).numpy()
    want = conv2d(torch.from_numpy(x).double(), torch.from_numpy(w).double(), groups=groups, **keywords)
    np.testing.assert_allclose(got, want.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("m", "k", "n"), [(15, 200, 301), (7, 128, 600), (3, 256, 1100)])
def test_values_of_few_rows(m: int, k: int, n: int) -> None:
    random = np.random.default_rng(m)
    a, b = random.standard_normal((m, k), np.float32), random.standard_normal((n, k), np.float32).astype(np.float16)
    got = (Tensor(a, device="WEBGPU") @ Tensor(b, device="WEBGPU").float().T).numpy()
    np.testing.assert_allclose(got, a @ b.astype(np.float64).T, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("k", "n"), [(64, 64), (100, 48), (37, 203)])
@pytest.mark.parametrize("rows", [1, 7, 33, 64])
def test_any_number_of_rows_goes_through_shared_memory(k: int, n: int, rows: int) -> None:
    """One program for all of them: what lies beyond the last row is gated."""
    random, target, kernel = np.random.default_rng(k), webgpu_target(), symbolic_product(k, n)
    program = program_for(kernel, target)
    assert sum(u.op is Ops.BUFFER and u.arg.space is Space.SHARED for u in program.uops) >= 2
    a, b = (random.standard_normal(64 * 64 * 64, np.float32) for _ in range(2))
    want = a[: rows * k].reshape(rows, k).astype(np.float64) @ b[: k * n].reshape(k, n)
    out, *_ = run(program, target, [np.zeros(64 * n * 8, np.float32), a, b], {"n": rows})
    np.testing.assert_allclose(out[: rows * n].reshape(rows, n), want, rtol=1e-4, atol=1e-4)
    assert not out[rows * n :].any()


@pytest.mark.parametrize(("m", "k", "n"), [(130, 17, 70), (64, 96, 33)])
def test_products_added_in_place(m: int, k: int, n: int) -> None:
    random = np.random.default_rng(m)
    a, b, c = (random.standard_normal(s, np.float32) for s in ((m, k), (k, n), (m, n)))
    x, w, y = (Tensor(v, device="WEBGPU").realize() for v in (a, b, c))
    y.assign(y + x @ w).realize()
    np.testing.assert_allclose(y.numpy(), c + a.astype(np.float64) @ b, rtol=1e-5, atol=1e-5)


def places(count: int) -> Tensor:
    return Tensor.empty(count, dtype="int32")


JOINED = [(20, (512, 128), 1), (5, (512, 96), 1), (6, (64, 512), 0), (3, (33, 100, 64), 1), (7, (301, 127), 1)]


@pytest.mark.parametrize(("count", "shape", "axis"), JOINED)
def test_nothing_is_chosen_where_parts_are_joined(count: int, shape: tuple[int, ...], axis: int) -> None:
    """A thread has the same place in all parts; values in uneven blocks, too."""
    parts = [Tensor.empty(*shape).realize() for _ in range(count)]

    def joined() -> Tensor:
        return Tensor.cat(*parts, axis=axis).relu()

    for target in (WEBGPU, nvidia_target(), amd_target()):
        of = programs(joined, target)
        assert sum(map(operations, of)) <= 1.02 * count * np.prod(shape)
    arrays = [np.random.default_rng(i).standard_normal(shape, np.float32) for i in range(count)]
    out = Tensor.cat(*(Tensor(a, device="WEBGPU") for a in arrays), axis=axis).relu()
    np.testing.assert_array_equal(out.numpy(), np.maximum(np.concatenate(arrays, axis), 0))


@pytest.mark.parametrize("target", [WEBGPU, nvidia_target()], ids=["webgpu", "cuda"])
@pytest.mark.parametrize(("count", "rows", "axis"), [(20, 512, 1), (7, 256, 1), (20, 256, 0)])
def test_parts_of_uneven_lengths_are_joined(count: int, rows: int, axis: int, target: Target) -> None:
    """Little is computed twice, and nothing chosen."""
    shapes = [((rows, 97 + 3 * i) if axis else (97 + 3 * i, rows)) for i in range(count)]
    arrays = [np.random.default_rng(i).standard_normal(shape, np.float32) for i, shape in enumerate(shapes)]
    parts = [Tensor(a, device="WEBGPU").realize() for a in arrays]
    of = programs(lambda: Tensor.cat(*parts, axis=axis).relu(), target)
    assert sum(map(operations, of)) <= MOST * sum(a.size for a in arrays)
    out = Tensor.cat(*parts, axis=axis).relu()
    np.testing.assert_array_equal(out.numpy(), np.maximum(np.concatenate(arrays, axis), 0))


@pytest.mark.parametrize(
    ("needed", "make"),
    [
        (2 << 20, lambda: Tensor.empty(1 << 20).argmax()),
        (2 * 700_001, lambda: Tensor.empty(700_001).argmin()),
        (2 * 500_000, lambda: Tensor.empty(500_000).cumsum(0)),
        (64 * 997 * np.log2(997), lambda: Tensor.empty(64, 997).argsort(-1)),
        (12_345 * np.log2(12_345), lambda: Tensor.empty(12_345).sort()[0]),
        (84 * 300 * 700, lambda: Tensor.empty(300, 700).logcumsumexp(1)),
        (90_000, lambda: Tensor.empty(300).scatter_add(0, places(90_000), Tensor.empty(90_000))),
        (3000 * 72, lambda: Tensor.empty(500, 72).index_add(0, places(3000), Tensor.empty(3000, 72))),
        (6 * 5000, lambda: Tensor.empty(5000, 700).nll_loss(places(5000).long())),
    ],
)  # fmt: skip
def test_scans_sorts_and_scatters_compute_little_again(needed: float, make: Callable[[], Tensor]) -> None:
    assert sum(map(operations, programs(make))) <= MOST * needed


def test_one_block_of_keys_is_no_larger_than_blocks_may_be() -> None:
    q = Tensor.empty(6, 33, 64)
    k, v = (Tensor.empty(6, 1500, 64, dtype=dtypes.float16) for _ in range(2))
    (program,) = programs(lambda: (q @ k.float().transpose(-1, -2)).softmax(-1) @ v.float(), nvidia_target("sm_90"))
    assert any(line.startswith("online(") for line in program.schedule)


def butterflies(size: int, steps: int) -> Tensor:
    x = Tensor.empty(size)
    for i in range(steps):
        pairs = x.reshape(-1, 2, 2**i)
        a, b = pairs[:, 0], pairs[:, 1]
        x = (a + b).stack(a - b, axis=1).reshape(-1)
    return x


@pytest.mark.parametrize("target", [WEBGPU, nvidia_target()])
@pytest.mark.parametrize(("size", "steps"), [(1 << 16, 12), (3 << 14, 7)])
def test_steps_of_butterflies_choose_nothing(size: int, steps: int, target: Target) -> None:
    """Also where several of them are one kernel: a thread has all places that are made of the same ones."""
    found = sum(map(operations, programs(lambda: butterflies(size, steps), target)))
    assert found <= 1.01 * size * steps


@pytest.mark.parametrize("target", [WEBGPU, nvidia_target()])
@pytest.mark.parametrize(("by", "axis"), [(64, 1), (-8, 1), (2, 0)])
def test_what_is_rotated_is_loaded_once(by: int, axis: int, target: Target) -> None:
    """From an address that is chosen, not from two places of which one is."""
    (program,) = programs(lambda: Tensor.empty(300, 256).roll(by, axis) * 2, target)
    assert operations(program) <= 1.1 * 300 * 256


@pytest.mark.parametrize("target", [WEBGPU, nvidia_target(), amd_target()])
def test_places_are_compared_as_words(target: Target) -> None:
    (program,) = programs(lambda: Tensor.empty(900, dtype=dtypes.int64).one_hot(1000), target)
    assert operations(program) <= MOST * 2 * 900 * 1000


@pytest.mark.parametrize(
    ("target", "m", "k", "n"),
    [(nvidia_target(), 127, 131, 129), (nvidia_target(), 33, 129, 161)]
    + [(amd_target(), m, k, n) for m, k, n in ((127, 131, 129), (65, 200, 95), (100, 140, 300), (33, 129, 161))],
)
def test_matrices_fill_the_tiles_of_small_products(target: Target, m: int, k: int, n: int) -> None:
    """Beyond what the smallest matrices of instructions compute."""
    half = dtypes.float16
    (program,) = programs(lambda: Tensor.empty(m, k, dtype=half) @ Tensor.empty(k, n, dtype=half), target)
    assert any(u.op is Ops.DOT for u in program.uops)
    least = 2 * prod(-(-s // 16) * 16 for s in (m, k, n))
    assert operations(program) <= 1.2 * max(least, 2 * m * k * n) + 2 * m * n

"""Matrix products and convolutions, compiled and run: what the blocked schedules compute is what NumPy computes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.graph.lower.hand_kernels import linear
from tinyweb import Tensor
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import AxisKind, Ops
from tinyweb.graph.lower import lower
from tinyweb.graph.optimize import Bind, Split, heuristic, optimize
from tinyweb.graph.optimize.contraction import WAYS
from tinyweb.graph.optimize.rewrite import loops_of, ranges_of
from tinyweb.graph.target import Target, cpu_target, wasm_target
from tinyweb.nn.quantize import QuantizedWeight
from tinyweb.tracing import capture

rng = np.random.default_rng(5)


def normal(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    ("m", "k", "n"),
    [(512, 512, 512), (37, 129, 515), (100, 1023, 65), (7, 700, 300), (300, 260, 16), (96, 2048, 48), (513, 40, 30)],
)
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("right", [False, True])
def test_products(m: int, k: int, n: int, left: bool, right: bool) -> None:
    """Either operand transposed, sizes that no tile divides, with elementwise work around."""
    a, b, bias = normal(k, m) if left else normal(m, k), normal(n, k) if right else normal(k, n), normal(n)
    x, y = Tensor(a), Tensor(b)
    got = (((x.T if left else x) @ (y.T if right else y)) + Tensor(bias)).relu().numpy()
    want = np.maximum((a.T if left else a) @ (b.T if right else b) + bias, 0)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * k**0.5)


def test_batches_share_their_blocks() -> None:
    a, b = normal(3, 2, 70, 300), normal(3, 2, 300, 90)
    np.testing.assert_allclose((Tensor(a) @ Tensor(b)).numpy(), a @ b, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(("size", "side_by_side"), [(64, True), (32, True), (56, False)])
def test_columns_whose_lines_meet_in_a_set_are_not_stored_together(size: int, side_by_side: bool) -> None:
    """Channels that lie whole pages apart: vectors are along the image's rows instead, which are stored as they lie."""
    image, weights = Tensor.empty(1, 64, size, size), Tensor.empty(64, 64, 3, 3)
    kernel = capture(lambda: image.conv2d(weights, padding=1).realize()).calls[-1].kernel
    (vector,) = (a for a in map(str, heuristic(kernel, cpu_target(16, 1))) if a.endswith("vector)"))
    assert vector.startswith("bind(i3" if side_by_side else "bind(i1")


@pytest.mark.parametrize(("steps", "crowded"), [(4096, True), (4080, False), (12288, True)])
def test_rows_whose_lines_meet_in_a_set_are_few(steps: int, crowded: bool) -> None:
    """Rows that lie whole pages apart are read in place: no more of them than the first-level cache has ways."""
    kernel = capture(lambda: (Tensor.empty(66, steps) @ Tensor.empty(steps, 17)).realize()).calls[-1].kernel
    for target in (cpu_target(8, 1), cpu_target(16, 1)):
        actions = heuristic(kernel, target)
        unrolled = [a.axis for a in actions if isinstance(a, Bind) and a.kind is AxisKind.UNROLL]
        (rows,) = (a.factor for a in actions if isinstance(a, Split) and a.inner in unrolled)
        assert rows <= WAYS if crowded else rows > WAYS, (target, rows)


@pytest.mark.parametrize("size", [7, 9])
def test_wide_windows_are_summed_in_vectors_of_outputs(size: int) -> None:
    """Not along the window, where weights lie so too but in two lanes; eight rows take the same weights."""
    image, weights = Tensor.empty(1, 64, 40, 40), Tensor.empty(64, 1, size, size)
    kernel = capture(lambda: image.conv2d(weights, padding=size // 2, groups=64).realize()).calls[-1].kernel
    assert [str(a) for a in heuristic(kernel, cpu_target(16, 2))] == [
        "split(i3, 8)", "bind(i3.1, vector)", "split(i2, 8)", "bind(i2.1, unroll)", "bind(i1, grid.x)",
    ]  # fmt: skip


@pytest.mark.parametrize(("rows", "columns"), [(8, 2048), (16, 1024)])
def test_weights_whose_rows_lie_pages_apart_are_read_along_them(rows: int, columns: int) -> None:
    """A few columns of each would take a line that is gone before the next few."""
    kernel = capture(lambda: (Tensor.empty(rows, 256) @ Tensor.empty(256, columns)).realize()).calls[-1].kernel
    (vector,) = (a for a in map(str, heuristic(kernel, wasm_target(2))) if a.endswith("vector)"))
    assert vector.startswith("bind(i1")


def test_pairs_are_counted_in_vectors_of_outputs() -> None:
    """Where as much is read along what is summed, sums lie side by side, and no lanes are added up in the end."""
    rows = Tensor.empty(16, 64)
    kernel = capture(lambda: rows.unsqueeze(1).less(rows.unsqueeze(2)).sum(-1).realize()).calls[-1].kernel
    for target in (cpu_target(16, 1), cpu_target(8, 1), wasm_target(1)):
        (vector,) = (a for a in map(str, heuristic(kernel, target)) if a.endswith("vector)"))
        assert vector.startswith("bind(i1")


@pytest.mark.parametrize(("columns", "block"), [(768, 128), (1024, 512), (2304, 256)])
def test_a_vector_times_a_matrix_is_shared_evenly(columns: int, block: int) -> None:
    """Three blocks would leave one of two threads without work for half of the time."""
    kernel = capture(lambda: (Tensor.empty(1, 3072) @ Tensor.empty(3072, columns)).realize()).calls[-1].kernel
    first = heuristic(kernel, cpu_target(16, 2))[0]
    assert isinstance(first, Split) and first.factor == block


def test_positions_of_a_small_image_are_one_axis() -> None:
    """Vectors of eight do not divide rows of ten or twenty, but what all rows are together, or nearly."""
    convolution = capture(lambda: Tensor.empty(1, 24, 20, 20).conv2d(Tensor.empty(40, 24, 1, 1)).realize()).calls[-1]
    first, *others = (str(a) for a in heuristic(convolution.kernel, wasm_target(2)))
    assert first.startswith("fuse(") and not any(a.startswith("fuse(") for a in others)
    windows = capture(lambda: Tensor.empty(1, 24, 20, 20).conv2d(Tensor.empty(40, 24, 3, 3)).realize()).calls[-1]
    assert not any(str(a).startswith("fuse(") for a in heuristic(windows.kernel, wasm_target(2)))


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16, dtypes.int8])
def test_narrow_operands_are_converted_on_the_way(dtype: object) -> None:
    a, b = normal(70, 300), rng.integers(-8, 8, (300, 90)).astype(np.float32)
    y = Tensor(b).cast(dtype).realize().cast(dtypes.float32)  # type: ignore[arg-type]
    np.testing.assert_allclose((Tensor(a) @ y).numpy(), a @ b, rtol=1e-4, atol=2e-3)


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "groups"),
    [
        (28, 3, 1, 1),
        (15, 3, 2, 1),
        (20, 1, 1, 1),
        (14, 7, 2, 1),
        (7, 3, 1, 1),
        (16, 3, 1, 4),
        (13, 3, 1, 1),
        (10, 5, 1, 1),
    ],
)
def test_convolutions(size: int, kernel: int, stride: int, groups: int) -> None:
    x, w = normal(2, 24, size, size), normal(40, 24 // groups, kernel, kernel)
    got = Tensor(x).conv2d(Tensor(w), stride=stride, padding=kernel // 2, groups=groups).numpy()
    pad = kernel // 2
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), (2, 3))[:, :, ::stride, ::stride]
    parts = np.split(windows, groups, 1)
    want = np.concatenate(
        [np.einsum("nchwij,ocij->nohw", p, f, optimize=True) for p, f in zip(parts, np.split(w, groups))], 1
    )
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)


def test_blocks_are_enough_for_all_workers() -> None:
    for workers in (2, 3, 8):
        kernel = optimize(linear(512, 512, 512).kernel, cpu_target(8, workers))
        grid = [r.src[0].vmax for r in ranges_of(kernel) if r.arg.kind is AxisKind.GRID]
        assert np.prod(grid) >= 2 * workers


def test_few_rows_are_left_to_dot_products() -> None:
    """Packing is worth while only where what is packed is used often enough."""
    for target in (cpu_target(8, 2), wasm_target()):
        assert not any("stage" in str(a) for a in heuristic(linear(2, 512, 512).kernel, target))


def test_many_loops_in_one_kernel() -> None:
    """More loops than there are bits in a type whose name they could have."""
    x, w = normal(1, 16, 12, 12), rng.integers(-8, 8, (48, 16, 3, 3)).astype(np.float32)
    narrow = Tensor(w).cast(dtypes.int8).realize().cast(dtypes.float32)
    np.testing.assert_allclose(
        Tensor(x).conv2d(narrow, padding=1).numpy(),
        Tensor(x).conv2d(Tensor(w), padding=1).numpy(),
        rtol=1e-4,
        atol=1e-3,
    )


def test_a_vector_times_a_matrix_reads_rows() -> None:
    x, w = normal(640), normal(640, 1024)
    np.testing.assert_allclose((Tensor(x) @ Tensor(w)).numpy(), x @ w, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(Tensor(w).sum(0).numpy(), w.sum(0), rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(Tensor(w).max(0).numpy(), w.max(0))
    column = linear(1, 1024, 640).kernel
    assert not any("hoist" in str(a) for a in heuristic(column, cpu_target(8, 2)))


@pytest.mark.parametrize("device", ["CPU", "WASM"])
@pytest.mark.parametrize(("rows", "depth", "columns"), [(1, 515, 1003), (1, 640, 1003), (3, 515, 700), (1, 515, 1024)])
def test_rows_of_any_number_and_length_are_read_as_they_lie(rows: int, depth: int, columns: int, device: str) -> None:
    """The last block of columns begins earlier, the last few rows are sums of their own."""
    x, w, bias = normal(rows, depth), normal(depth, columns), normal(columns)
    found = (Tensor(x, device=device) @ Tensor(w, device=device) + Tensor(bias, device=device)).relu()
    np.testing.assert_allclose(found.numpy(), np.maximum(x @ w + bias, 0), rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(Tensor(w, device=device).max(0).numpy(), w.max(0))
    kernel = capture(lambda: (Tensor.empty(rows, depth) @ Tensor.empty(depth, columns)).realize()).calls[-1].kernel
    for target in (cpu_target(8, 1), cpu_target(16, 2), wasm_target(2)):
        assert any(str(a).startswith("hoist(r0.0") for a in heuristic(kernel, target))


def test_columns_that_few_more_blocks_would_double_are_vectors_in_registers() -> None:
    kernel = capture(lambda: (Tensor.empty(1, 640) @ Tensor.empty(640, 140)).realize()).calls[-1].kernel
    assert not any("hoist" in str(a) for a in heuristic(kernel, cpu_target(8, 1)))


@pytest.mark.parametrize("depth", [515, 520])
def test_a_norm_before_any_number_of_rows(depth: int) -> None:
    x, w = normal(1, depth), normal(depth, 1003)
    normed = x / np.sqrt(np.square(x).mean() + 1e-5)
    np.testing.assert_allclose(
        (Tensor(x).rms_norm(depth, eps=1e-5) @ Tensor(w)).numpy(), normed @ w, rtol=1e-4, atol=1e-3
    )


@pytest.mark.parametrize("workers", [1, 2])
def test_a_norm_before_a_matrix_leaves_its_rows_as_they_lie(workers: int) -> None:
    """Sums of the one vector are vectors along it; the product's lanes are columns, which are side by side."""
    x, w = normal(1, 640), normal(640, 1024)
    normed = (x - x.mean()) / np.sqrt(x.var() + 1e-5)
    np.testing.assert_allclose((Tensor(x).layer_norm(640) @ Tensor(w)).numpy(), normed @ w, rtol=1e-4, atol=1e-3)
    kernel = (
        capture(lambda: (Tensor.empty(1, 640).layer_norm(640) @ Tensor.empty(640, 1024)).realize()).calls[-1].kernel
    )
    assert len([u for u in kernel.toposort() if u.op is Ops.REDUCE]) == 3
    for target in (cpu_target(8, workers), cpu_target(16, workers), wasm_target(workers)):
        actions = [str(a) for a in heuristic(kernel, target)]
        assert any(a.startswith("hoist(") for a in actions), actions
        assert sum("vector" in a for a in actions) == 3


@pytest.mark.parametrize("device", ["CPU", "WASM"])
@pytest.mark.parametrize("rows", [2, 3, 7, 9])
def test_few_vectors_times_a_matrix_read_rows(rows: int, device: str) -> None:
    """Each row of the matrix once for all vectors, by one worker or by several."""
    x, w = normal(rows, 648), normal(648, 1024)
    found = Tensor(x, device=device) @ Tensor(w, device=device)
    np.testing.assert_allclose(found.numpy(), x @ w, rtol=1e-4, atol=1e-3)
    kernel = capture(lambda: (Tensor.empty(7, 1024) @ Tensor.empty(1024, 1024)).realize()).calls[-1].kernel
    for workers in (1, 2):
        actions = [str(a) for a in heuristic(kernel, wasm_target(workers))]
        assert "bind(i0, unroll)" in actions and any(a.startswith("hoist(r0.0") for a in actions)
        assert ("bind(i1.0, grid.x)" in actions) == (workers > 1)


@pytest.mark.parametrize("bits", [8, 4])
def test_quantised_weights_are_widened_once(bits: int) -> None:
    """A strip of them with its scales, which are converted before: nothing is copied from one array to another."""
    values = Tensor.empty(256, 8, 32, dtype=dtypes.int8 if bits == 8 else dtypes.int4)
    weight, x = QuantizedWeight(values, Tensor.empty(256, 8, dtype=dtypes.float16)), Tensor.empty(16, 256)
    kernel = capture(lambda: weight.product(x, "float").realize()).calls[-1].kernel
    for target in (cpu_target(8, 2), cpu_target(16, 2), wasm_target(2)):
        scheduled = optimize(kernel, target)
        filled = [u.src[0] for u in loops_of(scheduled).stages]
        assert any(v.op is Ops.MUL and v.dtype is dtypes.float32 for v in filled)
        assert not any(v.op is Ops.LOAD and v.src[0].op is Ops.STAGE for v in filled)


@pytest.mark.parametrize("target", [cpu_target(16, 2), cpu_target(8, 2), wasm_target(2)], ids=lambda t: t.name)
def test_panels_for_pairs_are_packed_in_vectors(target: Target) -> None:
    """Of two rows of a matrix of bytes each pair of elements lies side by side: no element is stored alone."""
    a, b = Tensor.empty(64, 128, dtype=dtypes.int8), Tensor.empty(128, 64, dtype=dtypes.int8)
    program = lower(optimize(capture(lambda: (a.int() @ b.int()).realize()).calls[-1].kernel, target), target)
    stored = [u.src[2] for u in program.uops if u.op is Ops.STORE and u.src[2].dtype is dtypes.int16]
    assert stored and all(value.shape for value in stored)


def test_what_steps_side_by_side_is_read_where_it_lies() -> None:
    """Rows of a tile that lie side by side are one cache line: of an image's positions only the weights are packed."""
    convolution = capture(lambda: Tensor.empty(1, 384, 10, 10).conv2d(Tensor.empty(256, 384, 1, 1)).realize()).calls[-1]
    for target in (cpu_target(16, 2), cpu_target(8, 2)):
        assert sum(str(a).startswith("stage(") for a in heuristic(convolution.kernel, target)) == 1


def test_tiles_as_wide_as_what_they_divide() -> None:
    """80 channels are five vectors of 16, not six with the last two halved."""
    convolution = capture(lambda: Tensor.empty(1, 80, 22, 22).conv2d(Tensor.empty(80, 80, 3, 3)).realize()).calls[-1]
    schedule = "; ".join(map(str, heuristic(convolution.kernel, cpu_target(16, 2))))
    assert "split(i1, 80); bind(i1.1, vector)" in schedule


WINDOWS = [
    (56, 3, 1, 1),
    (56, 3, 2, 1),
    (57, 3, 2, 1),
    (10, 5, 1, 2),
    (28, 2, 2, 0),
    (7, 3, 1, 1),
    (33, 3, 1, 1),
    (90, 7, 1, 3),
]


def test_of_a_part_that_lies_outside_nothing_is_summed() -> None:
    """A sum that is joined with zeros, along an axis which is divided there."""
    x, keep = (np.random.default_rng(3).standard_normal(s).astype(np.float32) for s in ((8, 64), (8, 1)))

    def joined() -> Tensor:
        return Tensor.zeros(64).cat((Tensor(x) * (Tensor(keep) > 0).cast(dtypes.float32)).sum(0))

    for target in (cpu_target(8, 2), wasm_target(2)):
        for call in capture(lambda: joined().realize(), target).calls:
            assert heuristic(call.kernel, target)
    expected = np.concatenate([np.zeros(64), (x * (keep > 0)).sum(0)])
    np.testing.assert_allclose(joined().numpy(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("size", "kernel", "stride", "border"), WINDOWS)
def test_windows_of_single_channels(size: int, kernel: int, stride: int, border: int) -> None:
    """Depthwise convolutions and pools: rows are written out, and gated where they end."""
    x, w = normal(2, 6, size, size), normal(6, 1, kernel, kernel)
    around = ((0, 0), (0, 0), (border, border), (border, border))
    padded, low = np.pad(x, around), np.pad(x, around, constant_values=-np.inf)
    cut = [
        np.lib.stride_tricks.sliding_window_view(p, (kernel, kernel), (2, 3))[:, :, ::stride, ::stride]
        for p in (padded, low)
    ]
    got = Tensor(x).conv2d(Tensor(w), stride=stride, padding=border, groups=6).numpy()
    np.testing.assert_allclose(got, np.einsum("nchwij,cij->nchw", cut[0], w[:, 0]), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(Tensor(x).max_pool2d(kernel, stride, border).numpy(), cut[1].max((-1, -2)))
    mean = Tensor(x).avg_pool2d(kernel, stride, border).numpy()
    np.testing.assert_allclose(mean, cut[0].mean((-1, -2)), rtol=1e-4, atol=1e-5)
    pool = capture(lambda: Tensor(x).max_pool2d(kernel, stride, border).realize()).calls[-1]
    for target in (cpu_target(16, 2), cpu_target(8, 2), wasm_target(2)):
        assert any("vector" in str(a) for a in heuristic(pool.kernel, target)), target.name


LONG = [(300, 15, 1, 7), (259, 3, 1, 1), (601, 3, 2, 1), (256, 4, 1, 3)]


@pytest.mark.parametrize(("size", "kernel", "stride", "border"), LONG)
def test_long_rows_are_written_out_where_they_end(size: int, kernel: int, stride: int, border: int) -> None:
    x, w = normal(2, 6, size), normal(6, 1, kernel)
    padded, low = (np.pad(x, ((0, 0), (0, 0), (border, border)), constant_values=v) for v in (0, -np.inf))
    cut, lowest = (np.lib.stride_tricks.sliding_window_view(p, kernel, 2)[:, :, ::stride] for p in (padded, low))

    def convolution() -> Tensor:
        return Tensor(x).conv1d(Tensor(w), stride=stride, padding=border, groups=6).realize()

    want = np.einsum("ncxi,ci->ncx", cut, w[:, 0])
    np.testing.assert_allclose(convolution().numpy(), want, rtol=1e-4, atol=1e-4)
    if 2 * border <= kernel:
        np.testing.assert_array_equal(Tensor(x).max_pool1d(kernel, stride, border).numpy(), lowest.max(-1))
    kernel_of = capture(convolution).calls[-1].kernel
    for target in (cpu_target(16, 2), cpu_target(8, 2), wasm_target(2)):
        loads = [u for u in lower(optimize(kernel_of, target), target).uops if u.op is Ops.LOAD]
        gates = {x.op for u in loads for gate in u.src[2:] for x in gate.toposort()}
        assert loads and gates <= {Ops.CONST, Ops.STACK}, target.name

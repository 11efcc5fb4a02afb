"""Attention as one kernel: equal to the plain form on every runtime, without memory for scores."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graph.lower.hand_kernels import axes, param, run, total
from tinyweb import Tensor, Variable, dtypes
from tinyweb.dtype import DType
from tinyweb.graph.gpu_targets import amd_target, nvidia_target
from tinyweb.graph.ir import AxisKind, Ops, Space, UOp
from tinyweb.graph.lower import lower
from tinyweb.graph.optimize import (
    Bind,
    Online,
    Schedule,
    ScheduleError,
    Split,
    apply,
    from_json,
    heuristic,
    optimize,
    to_json,
)
from tinyweb.graph.optimize.actions import inner_part
from tinyweb.graph.schedule.attention import alike
from tinyweb.graph.symbolic import simplify
from tinyweb.graph.target import Target, cpu_target, wasm_target, webgpu_target
from tinyweb.tracing import capture

TARGETS = (cpu_target(8, 2), wasm_target(), webgpu_target(), webgpu_target(subgroups=True))


def data(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def attend(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float = 1.0, keep: np.ndarray | None = None
) -> np.ndarray:
    """softmax(q kᵀ · scale) v in double precision; what `keep` leaves out counts -inf."""
    scores = np.einsum("...td,...nd->...tn", q.astype(np.float64), k) * scale
    scores = scores if keep is None else np.where(keep, scores, -np.inf)
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return weights / weights.sum(-1, keepdims=True) @ v


def one_kernel(make: Callable[[], Tensor]) -> UOp:
    """The kernel of a tensor, of which there must be one, and no memory but its own."""
    plan = capture(lambda: make().realize())
    assert len(plan.calls) == 1 and not plan.temporaries
    (kernel,) = plan.kernels
    return kernel


def kernel(rows: int = 8, keys: int = 50, width: int = 8, columns: int = 16) -> UOp:
    q, k, v = (Tensor(data(2, n, w)).realize() for n, w in ((rows, width), (keys, width), (keys, columns)))
    return one_kernel(lambda: (q @ k.transpose(-1, -2)).softmax(-1) @ v)


OTHERS = [pytest.param(d, marks=pytest.mark.slow) for d in ("WASM", "WEBGPU")]


@pytest.mark.parametrize("device", ["CPU", "INTERPRETER", *OTHERS])
@pytest.mark.parametrize(
    ("heads", "shared", "rows", "keys", "width", "columns"),
    [(2, 2, 3, 43, 16, 32), (4, 2, 1, 300, 16, 16), (2, 1, 8, 70, 8, 8), (1, 1, 5, 7, 6, 10)]
    + [(2, 2, 17, 43, 16, 32), (1, 1, 33, 70, 8, 10), (4, 2, 40, 129, 6, 20)],  # queries in lanes
)
def test_values(device: str, heads: int, shared: int, rows: int, keys: int, width: int, columns: int) -> None:
    q, k, v = data(heads, rows, width), data(shared, keys, width, seed=1), data(shared, keys, columns, seed=2)
    kk, vv = (np.repeat(x, heads // shared, 0) for x in (k, v))
    tq, tk, tv = (Tensor(x, device=device) for x in (q, k, v))
    causal = np.arange(keys) <= np.arange(rows)[:, None]
    got = tq.scaled_dot_product_attention(tk, tv, is_causal=True, enable_gqa=True).numpy()
    np.testing.assert_allclose(got, attend(q, kk, vv, width**-0.5, causal), rtol=1e-5, atol=1e-5)
    # rows without a key: 0 by the method, NaN by the plain expression
    keep = np.random.default_rng(3).random((rows, keys)) < 0.3
    keep[0] = False
    got = tq.scaled_dot_product_attention(tk, tv, Tensor(keep, device=device), enable_gqa=True).numpy()
    want = attend(q, kk, vv, width**-0.5, keep)
    np.testing.assert_allclose(got, np.nan_to_num(want), rtol=1e-5, atol=1e-5)
    scores = tq @ Tensor(kk, device=device).transpose(-1, -2) * width**-0.5
    got = (Tensor(keep, device=device).where(scores, -np.inf).softmax(-1) @ Tensor(vv, device=device)).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("device", ["CPU", "INTERPRETER", *OTHERS])
@pytest.mark.parametrize(("rows", "keys"), [(49, 49), (7, 13), (5, 64), (4, 100)])
def test_keys_that_lie_side_by_side(device: str, rows: int, keys: int) -> None:
    """With a bias of their own for each query: scores are vectors, of which the last leaves out what is beyond."""
    q, k, v = data(3, rows, 32), data(3, 32, keys, seed=1), data(3, keys, 32, seed=2)
    bias = data(rows, keys, seed=3)
    tq, tk, tv, tb = (Tensor(x, device=device).realize() for x in (q, k, v, bias))
    got = ((tq @ tk + tb).softmax(-1) @ tv).numpy()
    scores = q.astype(np.float64) @ k + bias
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    np.testing.assert_allclose(got, weights / weights.sum(-1, keepdims=True) @ v, rtol=1e-4, atol=1e-5)


def test_vectors_of_scores_are_chosen() -> None:
    q, k, v, bias = (Tensor(data(*shape)).realize() for shape in ((3, 49, 32), (3, 32, 49), (3, 49, 32), (49, 49)))
    kernel = one_kernel(lambda: (q @ k + bias).softmax(-1) @ v)
    chosen = [a for a in heuristic(kernel, cpu_target(16, 1)) if isinstance(a, Online)]
    assert [a.vector for a in chosen] == [True]
    assert [a.vector for a in heuristic(kernel, wasm_target()) if isinstance(a, Online)] == [False]


@pytest.mark.parametrize("device", ["CPU", "INTERPRETER", "WASM", "WEBGPU"])
@pytest.mark.parametrize(("rows", "keys", "window", "ahead"), [(70, 70, 16, 0), (33, 200, 40, 150), (9, 61, 5, 7)])
def test_windows(device: str, rows: int, keys: int, window: int, ahead: int) -> None:
    """Keys before a window are not walked either; some windows lie behind the last key."""
    q, k, v = data(2, rows, 16), data(2, keys, 16, seed=1), data(2, keys, 16, seed=2)
    tq, tk, tv = (Tensor(x, device=device) for x in (q, k, v))
    i, j = Tensor.arange(rows, device=device).unsqueeze(1) + ahead, Tensor.arange(keys, device=device)
    mask = (j <= i) & (i - j < window)
    got = tq.scaled_dot_product_attention(tk, tv, mask).numpy()
    apart = np.arange(rows)[:, None] + ahead - np.arange(keys)
    want = attend(q, k, v, 0.25, (apart >= 0) & (apart < window))
    np.testing.assert_allclose(got, np.nan_to_num(want), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("device", ["CPU", "INTERPRETER", *OTHERS])
def test_symbolic_length_and_half_cache(device: str) -> None:
    q, cache = data(3, 2, 16), data(2, 3, 90, 16, seed=1).astype(np.float16)
    tq, tc = Tensor(q, device=device).realize(), Tensor(cache, device=device).realize()
    start = Variable("start", 0, 88)
    for at in (0, 31, 63, 88):
        seen = tc[:, :, : start.bind(at) + 2].cast(dtypes.float32)
        rows = Tensor.arange(2, device=device).unsqueeze(1) + Tensor(start.bind(at), device=device)
        later = Tensor.arange(90, device=device)[: start.bind(at) + 2].unsqueeze(0) > rows
        got = (later.where(-np.inf, tq @ seen[0].transpose(-1, -2)).softmax(-1) @ seen[1]).numpy()
        keep = np.arange(at + 2) <= np.arange(2)[:, None] + at
        want = attend(q, cache[0, :, : at + 2], cache[1, :, : at + 2], 1.0, keep)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("device", ["CPU", "INTERPRETER", "WASM", "WEBGPU"])
def test_queries_that_are_computed(device: str) -> None:
    """By something that each key would repeat, along an axis and along two."""
    q, k, v = data(2, 5, 8), data(2, 43, 8, seed=1), data(2, 43, 16, seed=2)
    tq, tk, tv = (Tensor(x, device=device) for x in (q, k, v))
    got = (((tq * 0.5).exp() @ tk.transpose(-1, -2)).softmax(-1) @ tv).numpy()
    np.testing.assert_allclose(got, attend(np.exp(q * 0.5), k, v), rtol=1e-5, atol=1e-5)
    pairs = ((tq * 0.5).exp().reshape(2, 5, 1, 2, 4) * tk.reshape(2, 1, 43, 2, 4)).sum((-1, -2))
    got = (pairs.softmax(-1) @ tv).numpy()
    np.testing.assert_allclose(got, attend(np.exp(q * 0.5), k, v), rtol=1e-5, atol=1e-5)


def test_infinities_and_nan_as_in_the_plain_form() -> None:
    q, k, v = data(1, 4, 8), data(1, 70, 8, seed=1), data(1, 70, 8, seed=2)
    q[0, 1, 0], q[0, 2, 0], v[0, 69, 3] = np.inf, np.nan, np.inf
    scores = torch.from_numpy(q) @ torch.from_numpy(k).transpose(-1, -2)
    want = (scores.softmax(-1) @ torch.from_numpy(v)).numpy()
    got = ((Tensor(q) @ Tensor(k).transpose(-1, -2)).softmax(-1) @ Tensor(v)).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_rows_without_keys_that_are_set_to_zero() -> None:
    """The weights of such a row are NaN, and what a condition on the row puts in their place counts."""
    q, k, v = (data(5, 8, seed=i) for i in range(3))
    keep = np.ones((5, 5), bool)
    keep[2] = False
    scores = Tensor(keep).where(Tensor(q) @ Tensor(k).transpose(0, 1), -np.inf)
    empty = Tensor(~keep.any(1, keepdims=True)).contiguous().realize()
    got = (empty.where(0.0, scores.softmax(-1)) @ Tensor(v)).numpy()
    want = np.where(keep.any(1, keepdims=True), attend(q, k, v, keep=keep), 0)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("device", ["CPU", "INTERPRETER", *OTHERS])
@pytest.mark.parametrize("keys", [3, 70])
def test_sinks(device: str, keys: int) -> None:
    """A score that has no value takes weight, whether it is the largest one or not; or all of it."""
    q, k, v = (Tensor(data(2, n, 8, seed=n), device=device).realize() for n in (5, keys, keys + 1))
    v, keep = v[:, :keys], np.random.default_rng(1).random((5, keys)) < 0.5
    keep[1] = False
    sinks = np.array([-100, 0.5, 100, -np.inf, 2], np.float32).reshape(1, 5, 1)
    mask, tensor = Tensor(keep, device=device).realize(), Tensor(sinks, device=device).realize()

    def attended() -> Tensor:
        scores = mask.where(q @ k.transpose(-1, -2), -np.inf)
        largest = scores.max(-1, keepdim=True).maximum(tensor)
        weights = (scores - largest).exp()
        return (weights / (weights.sum(-1, keepdim=True) + (tensor - largest).exp())) @ v

    scores = np.where(keep, q.numpy().astype(np.float64) @ k.numpy().swapaxes(-1, -2), -np.inf)
    scores = np.concatenate([scores, np.broadcast_to(sinks, (2, 5, 1))], -1)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    want = (weights / weights.sum(-1, keepdims=True))[..., :keys] @ v.numpy()
    np.testing.assert_allclose(attended().numpy(), want, rtol=1e-5, atol=1e-5)
    one_kernel(attended)


def test_no_scores_in_memory_on_any_target() -> None:
    k = kernel(keys=150)
    for target in TARGETS:
        assert any(isinstance(a, Online) for a in heuristic(k, target)), target.name
        assert any(u.op is Ops.RUNNING for u in optimize(k, target).toposort()), target.name


@pytest.mark.parametrize("width", [24, 40, 80, 96, 160])
def test_widths_of_heads_fit_into_shared_memory(width: int) -> None:
    """Widths with few powers of two leave few threads along the columns: fewer of them share the keys then."""
    target = webgpu_target()
    for rows, keys in ((64, 64), (64, 77), (1, 256)):
        program = lower(optimize(kernel(rows, keys, width, width), target), target)
        assert 0 < program.shared_bytes <= target.shared_bytes


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=lambda t: t.name)
@pytest.mark.parametrize(("rows", "keys", "width"), [(5, 5, 4), (5, 4, 8), (1, 33, 4), (7, 100, 16)])
def test_queries_that_are_converted(rows: int, keys: int, width: int, dtype: DType) -> None:
    """What fills the memory that floats made of a query are in is no loop of the products."""
    q, k = Tensor.empty(5, rows, width, dtype=dtype), Tensor.empty(5, keys, width, dtype=dtype)
    kernel = one_kernel(lambda: q.scaled_dot_product_attention(k, k))
    for target in (*TARGETS, nvidia_target(), amd_target()):
        assert any(isinstance(action, Online) for action in heuristic(kernel, target))


@pytest.mark.parametrize("device", ["CPU", "INTERPRETER", *OTHERS])
@pytest.mark.parametrize(("queries", "keys"), [(20, 90), (33, 128), (3, 200)])
def test_weights_that_a_mask_leaves_out(device: str, queries: int, keys: int) -> None:
    """The mask is converted many elements at a time, without the weights that it is multiplied with."""
    q, k, v = data(2, queries, 8), data(2, keys, 8, seed=1), data(2, keys, 16, seed=2)
    mask = np.random.default_rng(3).random((2, queries, keys)) > 0.1
    scores = np.exp(q.astype(np.float64) @ k.swapaxes(-1, -2))
    expected = scores / scores.sum(-1, keepdims=True) * mask / 0.9 @ v
    tq, tk, tv, tm = (Tensor(x, device=device) for x in (q, k, v, mask))
    np.testing.assert_allclose(((tq @ tk.mT).softmax(-1) * tm / 0.9 @ tv).numpy(), expected, atol=1e-5)


def test_what_else_needs_the_weights_keeps_them() -> None:
    q, k, v = Tensor(data(2, 4, 8)).realize(), Tensor(data(2, 9, 8)).realize(), Tensor(data(2, 9, 8)).realize()

    def both() -> None:
        weights = (q @ k.transpose(-1, -2)).softmax(-1)
        (weights @ v).realize(weights)

    assert len(capture(both).calls) > 1


def test_blocks_behind_the_mask_are_not_walked() -> None:
    q, k, v = (Tensor(data(2, 256, 8, seed=i)).realize() for i in range(3))
    causal = optimize(one_kernel(lambda: q.scaled_dot_product_attention(k, v, is_causal=True)), cpu_target())
    (loop,) = {u.src[1] for u in causal.toposort() if u.op is Ops.RUNNING}
    assert loop.src[0].ranges  # the number of blocks depends on the rows
    (loop,) = {u.src[1] for u in optimize(kernel(keys=150), cpu_target()).toposort() if u.op is Ops.RUNNING}
    assert not loop.src[0].ranges


def test_what_rows_of_scores_share_is_computed_once() -> None:
    """Work on a query is done before its scores; a query that is only read stays where it is."""
    q, k, v = (Tensor(data(2, n, w)).realize() for n, w in ((8, 8), (50, 8), (50, 16)))

    def before(make: Callable[[], Tensor]) -> list[tuple[Ops, list[str]]]:
        scheduled = apply(one_kernel(make), (Bind("i2", AxisKind.VECTOR), Online("r2", 8, Space.REGISTER)))
        stages = [u for u in scheduled.toposort() if u.op is Ops.STAGE]
        kept = [(u.src[0].op, [r.arg.name for r in u.src[1:]]) for u in stages]
        return [entry for entry in kept if any(name.endswith(".fixed") for name in entry[1])]

    assert before(lambda: (q.sin() @ k.transpose(-1, -2)).softmax(-1) @ v) == [(Ops.SIN, ["r3.fixed"])]
    assert before(lambda: (q @ k.transpose(-1, -2)).softmax(-1) @ v) == []


def computed(schedule: Schedule, target: Target, keys: int) -> None:
    """The kernel under a schedule, carried out by the interpreter."""
    inputs = [data(2, n, w) for n, w in ((4, 8), (keys, 8), (keys, 16))]
    k = apply(kernel(4, keys), from_json(to_json(schedule)))
    out = np.zeros((2, 4, 16), np.float32)
    result = run(lower(k, target), target, [out, *inputs], {})[0]
    np.testing.assert_allclose(result, attend(*inputs), rtol=1e-5, atol=1e-5)


@settings(max_examples=8)
@given(
    st.integers(2, 70), st.sampled_from([4, 16, 64]), st.sampled_from([1, 4]), st.sampled_from([0, 4]), st.booleans()
)
def test_every_block_computes_the_same(keys: int, block: int, together: int, columns: int, rows: bool) -> None:
    unrolled = (Bind("i1", AxisKind.UNROLL),) if rows else ()
    computed(
        (Bind("i2", AxisKind.VECTOR), *unrolled, Online("r2", block, Space.REGISTER, together, columns)),
        cpu_target(), keys,
    )  # fmt: skip


SHARED_BLOCKS = [(70, 16, 1, 16), (64, 16, 4, 64), (64, 16, 2, 64), (3, 16, 1, 16), (128, 16, 4, 128), (48, 1, 1, 8)]


@pytest.mark.parametrize(("keys", "across", "split", "block"), [*SHARED_BLOCKS, (48, 1, 4, 24), (48, 16, 1, 48)])
@pytest.mark.parametrize("rows", [Bind("i1", AxisKind.UNROLL), Bind("i1", AxisKind.GRID, 1)], ids=str)
def test_threads_share_scores(keys: int, across: int, split: int, block: int, rows: Bind) -> None:
    threads = (Bind("i0", AxisKind.GRID), Bind("i2", AxisKind.THREAD))
    computed((*threads, rows, Online("r2", block, Space.SHARED, across=across, split=split)), webgpu_target(), keys)


@pytest.mark.parametrize(("keys", "across", "block"), [(70, 16, 32), (64, 16, 64), (3, 16, 16), (48, 1, 8)])
@pytest.mark.parametrize("lanes", [False, True])
def test_threads_with_rows_of_their_own(keys: int, across: int, block: int, lanes: bool) -> None:
    rows = (Split("i1", 2), Bind("i1.0", AxisKind.THREAD, 1), Bind("i1.1", AxisKind.UNROLL))
    threads = (Bind("i0", AxisKind.GRID), Bind("i2", AxisKind.THREAD))
    mine = rows if lanes else (Bind("i1", AxisKind.THREAD, 1),)
    computed((*threads, *mine, Online("r2", block, Space.SHARED, across=across)), webgpu_target(), keys)


def test_computed_queries_of_rows_that_are_threads() -> None:
    """What keys would repeat is brought into shared memory by the threads of its row."""
    inputs = [data(2, n, w) for n, w in ((4, 8), (50, 8), (50, 16))]
    q, k, v = (Tensor(x).realize() for x in inputs)
    threads = (Bind("i0", AxisKind.GRID), Bind("i1", AxisKind.THREAD, 1), Bind("i2", AxisKind.THREAD))
    made = apply(
        one_kernel(lambda: (q.exp() @ k.transpose(-1, -2)).softmax(-1) @ v),
        (*threads, Online("r2", 32, Space.SHARED, across=16)),
    )
    result = run(lower(made, webgpu_target()), webgpu_target(), [np.zeros((2, 4, 16), np.float32), *inputs], {})[0]
    np.testing.assert_allclose(result, attend(np.exp(inputs[0]), *inputs[1:]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "target", [cpu_target(8), cpu_target(16), wasm_target()], ids=lambda t: f"{t.name}{t.vector_lanes}"
)
@pytest.mark.parametrize("columns", [0, 4, 8])
def test_sums_wait_for_loops_over_columns(target: Target, columns: int) -> None:
    """Rows in the lanes of vectors, scores and sums beside each other in memory, stored in a loop."""
    rows = (Bind("i1", AxisKind.VECTOR), Online("r2", 8, Space.REGISTER, 2, columns))
    computed(rows, target, 48)
    computed((Split("i1", 3), Bind("i1.1", AxisKind.UNROLL), Online("r2", 8, Space.REGISTER, 2, columns)), target, 50)


ERRORS = [
    ((Online("r2", 8, Space.SHARED),), "axis i2 of the sums is a loop; bind it before"),
    ((Bind("i2", AxisKind.VECTOR), Online("r0", 8, Space.REGISTER)), "no softmax with a weighted sum"),
    ((Bind("i2", AxisKind.VECTOR), Online("r2", 8, Space.DEVICE)), "shared or register memory"),
    ((Bind("i2", AxisKind.VECTOR), Online("r2", 7, Space.REGISTER, 2)), "a multiple of those computed together"),
    ((Bind("i2", AxisKind.VECTOR), Online("r2", 8, Space.REGISTER, columns=3)), "16 columns are not divided by 3"),
    (
        (Bind("i1", AxisKind.THREAD), Bind("i2", AxisKind.VECTOR), Online("r2", 8, Space.SHARED, across=8)),
        "the same rows",
    ),
    ((Bind("i2", AxisKind.VECTOR), Online("r2", 24, Space.SHARED, across=16)), "in equal parts"),
    ((Bind("i2", AxisKind.VECTOR), Online("r2", 512, Space.SHARED)), "at most 256 scores"),
    ((Bind("i2", AxisKind.VECTOR), Online("r2", 8, Space.REGISTER), Split("r2.0", 2)), "carries a maximum"),
    (
        (Bind("i2", AxisKind.THREAD), Online("r2", 8, Space.SHARED), *inner_part("r3", 4, AxisKind.THREAD, 1)),
        "while threads fill memory",
    ),
]


@pytest.mark.parametrize(("device", "target"), [("CPU", TARGETS[0]), *(pytest.param("WASM", t) for t in TARGETS[1:2])])
@pytest.mark.parametrize(("height", "width"), [(6, 16), (12, 4), (5, 6), (16, 9), (8, 3)])
def test_sums_over_two_axes_of_columns_stay_in_registers(device: str, target: Target, height: int, width: int) -> None:
    """As in attention that all rows of an alignment share: a block's sums are as many as of one axis."""
    q, k, v = (data(height, 40, 2, width, seed=i) for i in range(3))
    tensors = [Tensor(x, device=device).realize() for x in (q, k, v)]

    def attended() -> Tensor:
        weights = Tensor.einsum("rihd,rjhd->hij", *tensors[:2]).mul(0.1).softmax(-1)
        return Tensor.einsum("hij,rjhd->rihd", weights, tensors[2])

    scores = np.einsum("rihd,rjhd->hij", q.astype(np.float64), k) * 0.1
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    want = np.einsum("hij,rjhd->rihd", weights / weights.sum(-1, keepdims=True), v)
    np.testing.assert_allclose(attended().numpy(), want, atol=2e-5)
    made = one_kernel(attended)
    (online,) = (a for a in heuristic(made, target) if isinstance(a, Online))
    nodes = optimize(made, target).toposort()
    rows = {r for u in nodes if u.op is Ops.REDUCE and u.arg is Ops.MAX for r in u.lanes}
    sums = (u for u in nodes if u.op is Ops.REDUCE and u.arg is Ops.ADD)
    inner = [s for s in sums if any(r.arg.name.endswith(".sum1") or r.arg.name.endswith(".sum") for r in s.src[1:])]
    assert inner and all(prod(r.vmax + 1 for r in s.lanes if r not in rows) <= online.columns for s in inner)


@pytest.mark.parametrize(("schedule", "message"), ERRORS)
def test_errors(schedule: Schedule, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        apply(kernel(), schedule)


def test_scores_that_are_alike() -> None:
    """The same of another row's range; other factors, other loops, or more of them are something else."""
    (row, other), (a, b, c) = axes(50, 50, reduce=True), axes(8, 8, 4, reduce=True, first=2)

    def scores(along: UOp, *inner: UOp, at: int = 0) -> UOp:
        index = along
        for r in inner:
            index = index * 8 + r
        return total(param(1, 50 * 64).load(index + at), *inner)

    for theirs, same in (
        (scores(other, a), True), (scores(other, b), True), (scores(row, b), True), (scores(other, c), False),
        (scores(other, a, at=1), False), (scores(other, a, c), False), (param(1, 50 * 64).load(other * 8), False),
    ):  # fmt: skip
        assert alike(simplify(scores(row, a)), simplify(theirs), row, other) == same

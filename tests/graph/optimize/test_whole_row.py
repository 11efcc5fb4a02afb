"""Attention whose weights are no softmax alone, as one kernel of a GPU that holds whole rows of scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.count.program import count, operations
from tests.graph.lower.hand_kernels import run
from tinyweb import Tensor
from tinyweb.dtype import dtypes
from tinyweb.graph.gpu_targets import amd_target, nvidia_target
from tinyweb.graph.lower import program_for
from tinyweb.graph.optimize import ScheduleError, apply, from_json, heuristic, to_json
from tinyweb.graph.optimize.whole_row import WholeRow
from tinyweb.graph.target import Target, cpu_target, webgpu_target
from tinyweb.tracing import capture

Weights = Callable[..., Any]


def softmax(x: Any) -> Any:
    if isinstance(x, Tensor):
        return x.softmax(-1)
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


WEIGHTS: dict[str, Weights] = {
    "square": lambda s, b: softmax(s) * softmax(s),
    "bias after": lambda s, b: softmax(s) + b,
    "relu": lambda s, b: (softmax(s) - b).relu() if isinstance(s, Tensor) else np.maximum(softmax(s) - b, 0),
    "twice": lambda s, b: softmax(softmax(s) * 3 + b),
    "square of a ReLU": lambda s, b: (
        (s + b).relu().square() / 64 if isinstance(s, Tensor) else np.maximum(s + b, 0) ** 2 / 64
    ),
    "SiLU": lambda s, b: s.silu() if isinstance(s, Tensor) else s / (1 + np.exp(-s)),
}


def attend(weights: Weights, *arrays: Any) -> Any:
    q, k, v, b = arrays
    return weights(q @ k.swapaxes(-1, -2), b) @ v


def differential(q1: Any, k1: Any, q2: Any, k2: Any, v: Any) -> Any:
    first, second = (softmax(q @ k.swapaxes(-1, -2)) for q, k in ((q1, k1), (q2, k2)))
    return (first - second * 0.3) @ v


def data(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.standard_normal(s, dtype=np.float32) for s in shapes]


def agrees(target: Target, make: Callable[..., Any], arrays: list[np.ndarray]) -> None:
    """One kernel, which computes what NumPy does."""
    tensors = [Tensor(a) for a in arrays]
    plan = capture(lambda: make(*tensors).realize(), target)
    (call,) = plan.calls
    program = program_for(call.kernel, target)
    assert any(line.startswith("whole_row") for line in program.schedule)
    want = make(*(a.astype(np.float64) for a in arrays))
    place = {t.uop.buffer: a for t, a in zip(tensors, arrays)}
    inputs = [place[b] for b in call.buffers[1:]]
    got = run(program, target, [np.zeros(want.shape, np.float32), *inputs], {})[0]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize(("heads", "rows", "keys", "columns"), [(2, 20, 45, 16), (2, 9, 130, 10), (3, 40, 64, 32)])
def test_values(weights: str, heads: int, rows: int, keys: int, columns: int) -> None:
    arrays = data((heads, rows, 8), (heads, keys, 8), (heads, keys, columns), (rows, 1))
    agrees(webgpu_target(), lambda *a: attend(WEIGHTS[weights], *a), arrays)


@pytest.mark.parametrize("target", [webgpu_target(), nvidia_target(), amd_target()], ids=lambda t: t.name)
def test_two_products(target: Target) -> None:
    agrees(target, differential, data((2, 30, 8), (2, 70, 8), (2, 30, 8), (2, 70, 8), (2, 70, 16)))


def lse(x: Any) -> Any:
    return x.logsumexp(-1) if isinstance(x, Tensor) else np.log(np.exp(x).sum(-1))


def entropy(x: Any) -> Any:
    p = softmax(x)
    return (p * (p.log() if isinstance(p, Tensor) else np.log(p))).sum(-1)


REDUCED: dict[str, Callable[..., Any]] = {
    "maximum": lambda s: s.max(-1),
    "minimum of a magnitude": lambda s: (s + 1).abs().min(-1) if isinstance(s, Tensor) else abs(s + 1).min(-1),
    "place of the maximum": lambda s: s.argmax(-1),
    "sum of a square": lambda s: (s * s).sum(-1),
    "logarithm of a sum": lse,
    "logarithm of a sum, doubled": lambda s: lse(s) * 2,
    "entropy": entropy,
    "range": lambda s: s.max(-1) - s.min(-1),
    "sum of all squares": lambda s: (s * s).sum(),
    "maximum of what a row of them gives": lambda s: s.max(-1).max(-1),
}


@pytest.mark.parametrize("reduced", REDUCED)
@pytest.mark.parametrize(("rows", "keys"), [(40, 45), (33, 130), (70, 64), (35, 1031)])
def test_of_what_is_reduced_away_no_row_is_stored(reduced: str, rows: int, keys: int) -> None:
    arrays = data((2, rows, 8), (2, keys, 8))
    tensors = [Tensor(a) for a in arrays]

    def make(q: Any, k: Any) -> Any:
        return REDUCED[reduced](q @ k.swapaxes(-1, -2))

    for target in (webgpu_target(), nvidia_target()):
        calls = capture(lambda: make(*tensors).realize(), target).calls
        memory = {t.uop.buffer: a for t, a in zip(tensors, arrays)}
        held = 0
        for call in calls:
            program = program_for(call.kernel, target)
            held += any(line.startswith("whole_row") for line in program.schedule)
            out = np.zeros(call.buffers[0].arg.size, call.buffers[0].dtype.numpy)
            memory[call.buffers[0]] = run(program, target, [out, *(memory[b] for b in call.buffers[1:])], {})[0]
        want = make(*(a.astype(np.float64) for a in arrays))
        got = memory[calls[-1].buffers[0]].reshape(want.shape)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
        assert held == 1
        assert all(size < rows * keys for call in calls for size in [call.buffers[0].arg.size])


def columns(s: Any, v: Any) -> Any:
    return softmax(s) @ v


SHARED: dict[str, Callable[..., tuple[Any, ...]]] = {
    "maximum and its place": lambda s, v: (s.max(-1), s.argmax(-1)),
    "maximum, minimum, squares": lambda s, v: (s.max(-1), s.min(-1), (s * s).sum(-1)),
    "weighted sum and entropy": lambda s, v: (columns(s, v), entropy(s)),
    "weighted sum and logarithm": lambda s, v: (columns(s, v), lse(s)),
    "weighted sum and largest weight": lambda s, v: (columns(s, v) * 2, softmax(s).max(-1)),
    "products times their weights": lambda s, v: ((s * softmax(s)).max(-1), (s * softmax(s)).min(-1)),
    "weights of a sum that has more": lambda s, v: (exponential(s) / (exponential(s).sum(-1, keepdims=True) + 1) @ v,),
}


def exponential(x: Any) -> Any:
    return x.exp() if isinstance(x, Tensor) else np.exp(x)


@pytest.mark.parametrize("results", SHARED)
@pytest.mark.parametrize(("rows", "keys"), [(40, 45), (33, 130)])
def test_results_of_the_same_products_are_stored_by_one_kernel(results: str, rows: int, keys: int) -> None:
    arrays = data((2, rows, 8), (2, keys, 8), (2, keys, 12))
    tensors = [Tensor(a) for a in arrays]
    want = SHARED[results](arrays[0].astype(np.float64) @ arrays[1].swapaxes(-1, -2), arrays[2])
    for target in (webgpu_target(), nvidia_target()):
        places = [Tensor.empty(*w.shape, dtype=dtypes.int32 if w.dtype.kind == "i" else dtypes.float32) for w in want]

        def step(places: list[Tensor] = places) -> list[Tensor]:
            values = SHARED[results](tensors[0] @ tensors[1].transpose(-1, -2), tensors[2])
            return [p.assign(v) for p, v in zip(places, values, strict=True)]

        (call,) = capture(step, target).calls
        program = program_for(call.kernel, target)
        assert any(line.startswith("whole_row") for line in program.schedule)
        memory = {t.uop.buffer: a for t, a in zip(tensors, arrays)}
        memory |= {p.uop.buffer: np.zeros(w.shape, p.dtype.numpy) for p, w in zip(places, want, strict=True)}
        got = dict(zip(call.buffers, run(program, target, [memory[b] for b in call.buffers], {}), strict=True))
        for p, w in zip(places, want, strict=True):
            np.testing.assert_allclose(got[p.uop.buffer].reshape(w.shape), w, rtol=1e-4, atol=1e-4)


def test_results_that_need_each_other_or_other_columns_share_no_kernel() -> None:
    q, k, v = Tensor.empty(2, 40, 8), Tensor.empty(2, 130, 8), Tensor.empty(2, 130, 24)

    def products() -> Tensor:
        return q @ k.transpose(-1, -2)

    def needs() -> Tensor:  # the second reads a row's numbers that the first has stored, of other rows
        first = products().max(-1)
        return first.realize(((products() - first.flip(1).reshape(2, 40, 1)).exp()).sum(-1))

    def widths() -> Tensor:
        weights = products().softmax(-1)
        return (weights @ v).realize(weights @ v[:, :, :16])

    for make in (needs, widths):
        calls = capture(make, webgpu_target()).calls
        assert any(c.buffers[0].arg.size == 2 * 40 * 130 for c in calls)


def test_products_of_a_few_rows_are_dealt_out_along_their_columns() -> None:
    q, k = Tensor.empty(8, 32), Tensor.empty(4096, 32)
    for target in (webgpu_target(), nvidia_target()):
        calls = capture(lambda: (q @ k.transpose()).argmax(-1).realize(), target).calls
        assert not any(line.startswith("whole_row") for c in calls for line in program_for(c.kernel, target).schedule)


@pytest.mark.parametrize(("heads", "rows", "keys"), [(6, 33, 1500), (8, 512, 512), (4, 256, 256)])
@pytest.mark.parametrize("products", [1, 2])
def test_little_is_computed_again_and_nothing_stored(heads: int, rows: int, keys: int, products: int) -> None:
    q, k = Tensor.empty(heads, rows, 64), Tensor.empty(heads, keys, 64)
    make = (lambda: differential(q, k, q, k + 1, k)) if products == 2 else lambda: attend(WEIGHTS["square"], q, k, k, 0)
    plan = capture(lambda: make().realize(), webgpu_target())
    programs = [program_for(c.kernel, webgpu_target()) for c in plan.calls if c.kernel is plan.calls[-1].kernel]
    needed = 2 * heads * rows * keys * 64 * (products + 1) + 50 * products * heads * rows * keys
    assert sum(map(operations, programs)) <= 1.25 * needed
    inputs = 4 * heads * 64 * (2 * rows + (products + 1) * keys)
    assert sum(count(p).once for p in programs) <= 1.1 * inputs


@pytest.mark.parametrize(
    ("target", "heads", "rows", "keys", "columns"),
    [
        (webgpu_target(), 4, 500, 600, 64),
        (webgpu_target(), 4, 500, 700, 128),
        (webgpu_target(), 4, 500, 500, 256),
        (nvidia_target(), 4, 500, 600, 64),
        (amd_target(), 8, 300, 1500, 64),
    ],
    ids=lambda x: x.name if isinstance(x, Target) else str(x),
)
def test_what_threads_exchange_fits_beside_the_weights(
    target: Target, heads: int, rows: int, keys: int, columns: int
) -> None:
    """Many threads with several sums of several rows each would exchange more than a workgroup has memory for."""
    q, k, v = (Tensor.empty(heads, *size) for size in ((rows, 64), (keys, 64), (keys, columns)))
    (call,) = capture(lambda: attend(WEIGHTS["square"], q, k, v, 0).realize(), target).calls
    program = program_for(call.kernel, target)
    assert program.shared_bytes <= target.shared_bytes
    assert operations(program) <= 1.25 * heads * rows * keys * (2 * (64 + columns) + 30)


def test_weights_that_no_batch_has_for_itself_get_large_tiles() -> None:
    """As those of layers do: what lies between two of them is stored."""
    x, first, second = Tensor.empty(2, 500, 64), Tensor.empty(64, 256), Tensor.empty(256, 64)
    assert len(capture(lambda: ((x @ first).relu() @ second).realize(), webgpu_target()).calls) == 2
    assert len(capture(lambda: ((x @ first) @ second).realize(), webgpu_target()).calls) == 2


def test_sums_of_sums_are_no_rows() -> None:
    """Groups of a quantised product, with a scale each, are one sum in parts."""
    x, w, scale = Tensor.empty(64, 1, 8, 32), Tensor.empty(1, 200, 8, 32), Tensor.empty(1, 200, 8)
    plan = capture(lambda: ((x * w).sum(-1) * scale).sum(-1).realize(), webgpu_target())
    assert not any(
        line.startswith("whole_row") for c in plan.calls for line in map(str, heuristic(c.kernel, webgpu_target()))
    )


def test_rows_that_do_not_fit_are_stored() -> None:
    q, k = Tensor.empty(2, 64, 8), Tensor.empty(2, 5000, 8)
    for target in (webgpu_target(), replace(webgpu_target(), shared_bytes=1024), cpu_target(8, 2)):
        plan = capture(lambda: attend(WEIGHTS["square"], q, k, k, 0).realize(), target)
        assert len(plan.calls) == 3


def test_it_is_data_and_refuses_what_has_no_rows() -> None:
    q, k = Tensor.empty(2, 20, 8), Tensor.empty(2, 45, 8)
    (call,) = capture(lambda: attend(WEIGHTS["square"], q, k, k, 0).realize(), webgpu_target()).calls
    schedule = heuristic(call.kernel, webgpu_target())
    assert from_json(to_json(schedule)) == schedule
    (action,) = (a for a in schedule if isinstance(a, WholeRow))
    with pytest.raises(ScheduleError, match="bind it before"):
        apply(call.kernel, (action,))
    (product,) = capture(lambda: (q @ k.transpose(-1, -2)).realize(), webgpu_target()).calls
    with pytest.raises(ScheduleError, match="no products"):
        apply(product.kernel, (WholeRow("r0", 16),))

"""Attention of few queries over many keys on GPUs: parts of the keys, and a kernel that puts them together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pytest

from tests.graph.schedule.kernel_oracle import Oracle
from tinyweb import Tensor, Variable, dtypes, jit
from tinyweb.graph.ir import Ops, UOp, size_max
from tinyweb.graph.lower import program_for
from tinyweb.graph.schedule import Schedule, schedule
from tinyweb.graph.target import Target, cpu_target, webgpu_target

GPU = webgpu_target()
Arrays: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray]


def arrays(heads: int, shared: int, keys: int, width: int) -> Arrays:
    rng = np.random.default_rng(keys)
    q = rng.standard_normal((heads, shared, width), np.float32)
    k, v = (rng.standard_normal((heads, keys, width), np.float32) for _ in range(2))
    return q, k, v


def scores(q: Any, k: Any) -> Any:
    return (q @ k.swapaxes(-1, -2)) * 0.125


def weights(s: np.ndarray, sink: float = -np.inf) -> np.ndarray:
    s = s.astype(np.float64)
    largest = np.maximum(s.max(-1, keepdims=True), sink)
    e = np.exp(s - largest)
    out: np.ndarray = e / (e.sum(-1, keepdims=True) + np.exp(sink - largest))
    return out


def sunk(s: Tensor) -> Tensor:
    m = s.max(-1, keepdim=True).maximum(2.5)
    e = (s - m).exp()
    return e / (e.sum(-1, keepdim=True) + (2.5 - m).exp())


def visible(at: Any) -> Any:
    """A mask that leaves nothing of the first parts, and parts of others."""
    return (at > 600) & (at % 7 != 3)


CASES: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[np.ndarray], np.ndarray]]] = {
    "plain": (lambda s: s.softmax(-1), weights),
    "mask": (
        lambda s: visible(Tensor.arange(s.shape[-1])).where(s, -np.inf).softmax(-1),
        lambda s: weights(np.where(visible(np.arange(s.shape[-1])), s, -np.inf)),
    ),
    "bias": (
        lambda s: (s + Tensor.arange(s.shape[-1]) * 0.01).softmax(-1),
        lambda s: weights(s + np.arange(s.shape[-1]) * 0.01),
    ),
    "soft cap": (lambda s: ((s / 2).tanh() * 2).softmax(-1), lambda s: weights(np.tanh(s / 2) * 2)),
    "sink": (sunk, lambda s: weights(s, 2.5)),
    "large": (lambda s: (s * 500).softmax(-1), lambda s: weights(s * 500)),
}


def planned(t: Tensor, target: Target = GPU) -> Schedule:
    return schedule([UOp(Ops.CONTIGUOUS, t.dtype, (t.uop,))], target)


def computed(oracle: Oracle, t: Tensor, **variables: int) -> np.ndarray:
    plan = planned(t)
    assert len(plan.calls) == 2
    for call in plan.calls:
        oracle.run(call, variables)
    held: np.ndarray = oracle.data[plan.results[0]]
    return held.reshape([size_max(s) for s in t.shape])


@pytest.mark.parametrize("keys", [1024, 1187])
@pytest.mark.parametrize("case", CASES)
def test_values(case: str, keys: int) -> None:
    oracle, (q, k, v), (ours, theirs) = Oracle(), arrays(2, 3, keys, 64), CASES[case]
    got = computed(oracle, ours(scores(oracle.tensor(q), oracle.tensor(k))) @ oracle.tensor(v))
    np.testing.assert_allclose(got, theirs(scores(q, k)) @ v, rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize("keys", [1187, 1500])
@pytest.mark.parametrize("last", [np.inf, np.nan])
def test_an_infinite_last_value(keys: int, last: float) -> None:
    """It is not read again beyond the end, where a weight of 0 would make it NaN."""
    oracle, (q, k, v) = Oracle(), arrays(2, 3, keys, 64)
    v[:, -1, 3] = last
    got = computed(oracle, scores(oracle.tensor(q), oracle.tensor(k)).softmax(-1) @ oracle.tensor(v))
    np.testing.assert_allclose(got, weights(scores(q, k)) @ v, rtol=1e-3, atol=2e-5)


def test_a_row_of_which_nothing_is_seen() -> None:
    oracle, (q, k, v) = Oracle(), arrays(2, 1, 1100, 64)
    mask = oracle.tensor(np.arange(2).reshape(2, 1, 1) == 0)
    out = oracle.tensor(q).scaled_dot_product_attention(oracle.tensor(k), oracle.tensor(v), mask)
    got = computed(oracle, out)
    np.testing.assert_allclose(got[0], weights(scores(q[0], k[0])) @ v[0], rtol=1e-4, atol=1e-6)
    one = Oracle()
    out = one.tensor(q).scaled_dot_product_attention(
        one.tensor(k), one.tensor(v), one.tensor(np.arange(2).reshape(2, 1, 1) == 0)
    )
    np.testing.assert_array_equal(got[1], one.numpy(out)[1])


def growing(q: Tensor, k: Tensor, v: Tensor, pos: Any, window: int = 0) -> Tensor:
    """Attention to the positions up to one, or to the last of these."""
    s = scores(q, k[:, : pos + 1])
    if window:
        s = (Tensor.arange(k.shape[1], device=q.device)[: pos + 1] > Tensor(pos, device=q.device) - window).where(
            s, -np.inf
        )
    return s.softmax(-1) @ v[:, : pos + 1]


POSITIONS = (0, 1, 62, 63, 64, 255, 256, 700, 2046, 2047)


@pytest.mark.parametrize("window", [0, 100])
def test_a_length_that_grows(window: int) -> None:
    """The parts share whatever there is: none reads beyond the end."""
    oracle, (q, k, v) = Oracle(), arrays(2, 1, 2048, 64)
    out = growing(*(oracle.tensor(x) for x in (q, k, v)), Variable("pos", 0, 2047), window)
    for at in POSITIONS:
        first = max(at + 1 - window, 0) if window else 0
        want = weights(scores(q, k[:, first : at + 1])) @ v[:, first : at + 1]
        np.testing.assert_allclose(computed(oracle, out, pos=at), want, rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize("device", ["OPENCL", pytest.param("WEBGPU", marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", [dtypes.float16, dtypes.bfloat16])
def test_on_a_gpu(device: str, kind: Any) -> None:
    q, k, v = arrays(2, 2, 2048, 64)
    ours = [Tensor(x, device=device) for x in (q, k, v)]
    rounded = [ours[0], *(t.cast(kind).realize() for t in ours[1:])]
    k, v = (t.cast(dtypes.float32).numpy() for t in rounded[1:])
    pos = Variable("pos", 0, 2047)
    step = jit(lambda q, k, v, pos: growing(q, k.cast(dtypes.float32), v.cast(dtypes.float32), pos))
    for at in POSITIONS[::3]:
        want = weights(scores(q, k[:, : at + 1])) @ v[:, : at + 1]
        np.testing.assert_allclose(step(*rounded, pos.bind(at)).numpy(), want, rtol=2e-3, atol=5e-5)


def attended(heads: int, shared: int, keys: int, width: int, target: Target = GPU) -> Schedule:
    q, k, v = (Tensor.empty(*x.shape) for x in arrays(heads, shared, keys, width))
    return planned(scores(q, k).softmax(-1) @ v, target)


@pytest.mark.parametrize(
    ("heads", "shared", "keys", "kernels"),
    [(8, 4, 2048, 2), (8, 1, 256, 1), (1, 1, 512, 2), (128, 1, 2048, 1), (8, 128, 2048, 1)],
)
def test_when_another_launch_is_worth_it(heads: int, shared: int, keys: int, kernels: int) -> None:
    """Not where a workgroup is soon done, nor where rows and heads keep the device busy."""
    assert len(attended(heads, shared, keys, 64).calls) == kernels
    assert len(attended(heads, shared, keys, 64, cpu_target()).calls) == 1


def test_workgroups_keep_the_device_busy() -> None:
    program = program_for(attended(8, 4, 4096, 64).calls[0].kernel, GPU)
    sizes = [int(u.src[0].arg) for u in program.uops if u.op is Ops.SPECIAL]
    assert np.prod(sizes) >= GPU.busy_threads // 2

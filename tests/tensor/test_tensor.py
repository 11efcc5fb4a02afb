"""Laziness, in-place updates, variables, jit, and the errors a user can cause."""

from __future__ import annotations

import numpy as np
import pytest

from tinyweb import Tensor, Variable, jit
from tinyweb.dtype import dtypes
from tinyweb.errors import DeviceError
from tinyweb.tracing import capture

DEVICES = ("CPU", "WASM", "WEBGPU", "INTERPRETER")


@pytest.mark.parametrize("device", DEVICES)
def test_cache_updates_at_symbolic_positions(device: str) -> None:
    rng = np.random.default_rng(0)
    start = Variable("start", 0, 13)
    cache = Tensor.empty(2, 16, 4, device=device)
    want = np.zeros((2, 16, 4), np.float32)
    for p in (0, 3, 6, 13):
        x = rng.normal(size=(2, 3, 4)).astype(np.float32)
        at = start.bind(p)
        cache[:, at : at + 3] = Tensor(x, device=device) * 2
        want[:, p : p + 3] = x * 2
        seen = cache[:, 0 : at + 3]
        np.testing.assert_allclose(seen.sum(1).numpy(), want[:, : p + 3].sum(1), rtol=1e-5, atol=1e-5)
        weights = seen.sum(-1).softmax(-1)
        scores = np.exp(want[:, : p + 3].sum(-1))
        np.testing.assert_allclose(weights.numpy(), scores / scores.sum(-1, keepdims=True), rtol=1e-4)
    np.testing.assert_allclose(cache.numpy(), want)


def test_assign_reads_the_old_value_completely() -> None:
    x = np.arange(6, dtype=np.float32)
    t = Tensor(x)
    t.assign(t.flip(0) + 1)
    np.testing.assert_array_equal(t.numpy(), x[::-1] + 1)


def test_each_update_happens_once() -> None:
    t = Tensor(np.zeros(3, np.float32))
    t.assign(t + 1)
    later = t * 10
    t.realize()
    np.testing.assert_array_equal(later.numpy(), [10, 10, 10])
    np.testing.assert_array_equal(t.numpy(), [1, 1, 1])
    t += 1
    np.testing.assert_array_equal(t.numpy(), [2, 2, 2])


def test_jit_replays_with_new_inputs_and_variables() -> None:
    runs = []
    pos = Variable("pos", 0, 7)
    cache = Tensor.empty(8, 2)

    @jit
    def step(x: Tensor, at: object) -> Tensor:
        runs.append(1)
        cache[at : at + 1] = x  # type: ignore[operator,misc]
        return (cache[0 : at + 1].sum(0) * 2).realize()  # type: ignore[operator,misc]

    total = np.zeros(2, np.float32)
    outs = []
    for p in range(5):
        x = np.array([[p, p * p]], np.float32)
        outs.append(step(Tensor(x), pos.bind(p)))
        total += x[0]
        np.testing.assert_allclose(outs[-1].numpy(), total * 2)
    assert len(runs) == 1
    np.testing.assert_allclose(outs[0].numpy(), [0, 0])  # earlier results are not overwritten


def test_capture_records_without_running() -> None:
    state = Tensor.empty(4)

    def update() -> list[Tensor]:
        return [state.assign(state + 1)]

    plan = capture(update)
    assert len(plan.calls) == 1 and not plan.temporaries
    np.testing.assert_array_equal(state.numpy(), np.zeros(4))


def test_fusion_keeps_kernels_few() -> None:
    rng = np.random.default_rng(0)
    x, g, w1, w3, w2 = (
        Tensor(rng.normal(size=s).astype(np.float32)) for s in ((1, 64), (64,), (96, 64), (96, 64), (64, 96))
    )

    def block() -> Tensor:
        y = x.rms_norm((64,), g)
        return (y.linear(w1).silu() * y.linear(w3)).linear(w2) + x

    assert len(capture(block).calls) == 2  # (norm, gate, up, product) and (down, residual)
    assert len(capture(lambda: (x @ x.T).softmax(-1)).calls) == 2
    assert len(capture(lambda: x.softmax(-1)).calls) == 1


@pytest.mark.parametrize(
    ("wrong", "error", "says"),
    [
        (lambda a: a.reshape(5, 5), ValueError, "reshape"),
        (lambda a: a + Tensor.ones(7), ValueError, "broadcast"),
        (lambda a: a @ Tensor.ones(3, 3), ValueError, "matmul"),
        (lambda a: a.sum(5), IndexError, "axis 5"),
        (lambda a: a[9], IndexError, "outside"),
        (lambda a: a.permute(0, 0), ValueError, "permut"),
        (lambda a: a[:, :3].bitcast(dtypes.float64), ValueError, "bitcast"),
        (lambda a: bool(a), TypeError, ".item()"),
        (lambda a: a.item(), ValueError, "one element"),
        (lambda a: Tensor("text"), TypeError, "numbers"),
        (lambda a: Tensor([[1], [1, 2]]), TypeError, "row lengths"),
        (lambda a: Variable("v", 0, 3).bind(9), ValueError, "within"),
        (lambda a: Tensor([1], device="TPU"), DeviceError, "TPU"),
    ],
)
def test_wrong_use_says_what_and_where(wrong: object, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        wrong(Tensor.ones(3, 4))  # type: ignore[operator]

"""Optimisers step for step against PyTorch's; LAMB and LARS against their formulas in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import pytest
import torch

from tests.tensor.ops import data
from tinyweb import Tensor, dtypes, jit
from tinyweb.nn import optim

STEPS = 5
SHAPES = ((4, 6), (6, 3), (3,))


def loss_of(w: Sequence[Any], x: Any) -> Any:
    """A small network that both libraries understand; every parameter matters."""
    return ((((x @ w[0]).relu() @ w[1]) + w[2]) ** 2).mean()


def train(make: Callable[[list[Tensor]], Any], device: str = "CPU", jitted: bool = False) -> list[np.ndarray]:
    weights = [Tensor(data(*s, seed=i), device=device) for i, s in enumerate(SHAPES)]
    optimizer = make(weights)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = loss_of(weights, x).backward()
        return loss.realize(*optimizer.schedule_step())

    run = jit(step) if jitted else step
    for n in range(STEPS):
        run(Tensor(data(8, 4, seed=50 + n), device=device))
    return [w.numpy() for w in weights]


def train_torch(make: Callable[[list[torch.Tensor]], torch.optim.Optimizer]) -> list[np.ndarray]:
    weights = [torch.from_numpy(data(*s, seed=i)).requires_grad_() for i, s in enumerate(SHAPES)]
    optimizer = make(weights)
    for n in range(STEPS):
        optimizer.zero_grad()
        loss_of(weights, torch.from_numpy(data(8, 4, seed=50 + n))).backward()
        optimizer.step()
    return [w.detach().numpy() for w in weights]


PAIRS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "sgd": (lambda w: optim.SGD(w, 0.1), lambda w: torch.optim.SGD(w, 0.1)),
    "sgd_momentum": (
        lambda w: optim.SGD(w, 0.05, momentum=0.9, weight_decay=0.1),
        lambda w: torch.optim.SGD(w, 0.05, momentum=0.9, weight_decay=0.1),
    ),
    "sgd_dampening": (
        lambda w: optim.SGD(w, 0.05, momentum=0.9, dampening=0.5),
        lambda w: torch.optim.SGD(w, 0.05, momentum=0.9, dampening=0.5),
    ),
    "sgd_nesterov": (
        lambda w: optim.SGD(w, 0.05, momentum=0.8, nesterov=True),
        lambda w: torch.optim.SGD(w, 0.05, momentum=0.8, nesterov=True),
    ),
    "rmsprop": (lambda w: optim.RMSprop(w), lambda w: torch.optim.RMSprop(w)),
    "rmsprop_momentum": (
        lambda w: optim.RMSprop(w, 0.02, 0.9, 1e-6, weight_decay=0.1, momentum=0.8, centered=True),
        lambda w: torch.optim.RMSprop(w, 0.02, 0.9, 1e-6, weight_decay=0.1, momentum=0.8, centered=True),
    ),
    "adam": (
        lambda w: optim.Adam(w, 0.02, weight_decay=0.1),
        lambda w: torch.optim.Adam(w, 0.02, weight_decay=0.1),
    ),
    "adamw": (
        lambda w: optim.AdamW(w, 0.02, betas=(0.8, 0.95), weight_decay=0.2),
        lambda w: torch.optim.AdamW(w, 0.02, betas=(0.8, 0.95), weight_decay=0.2),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_trajectory_is_that_of_torch(name: str) -> None:
    ours, theirs = PAIRS[name]
    for got, want in zip(train(ours), train_torch(theirs), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", PAIRS)
def test_a_jitted_step_is_the_same_step(name: str) -> None:
    ours, theirs = PAIRS[name]
    for got, want in zip(train(ours, jitted=True), train_torch(theirs), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("device", ["WASM", "WEBGPU"])
def test_other_runtimes(device: str) -> None:
    ours, theirs = PAIRS["adamw"]
    for got, want in zip(train(ours, device), train_torch(theirs), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5)


def test_muon_is_that_of_torch_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    # PyTorch iterates in bfloat16: here it is kept in float32, so that the formulas are compared and not the rounding
    monkeypatch.setattr(torch.Tensor, "bfloat16", lambda t: t.clone())
    start, grads = data(6, 4), [data(6, 4, seed=9 + i) for i in range(3)]
    ours, theirs = Tensor(start), torch.from_numpy(start.copy()).requires_grad_()
    a = optim.Muon([ours], lr=0.05, weight_decay=0.1)
    b = torch.optim.Muon([theirs], lr=0.05, weight_decay=0.1)
    for g in grads:
        ours.grad, theirs.grad = Tensor(g), torch.from_numpy(g.copy())
        a.step()
        b.step()
    np.testing.assert_allclose(ours.numpy(), theirs.detach().numpy(), rtol=1e-3, atol=1e-4)


def test_muon_makes_singular_values_near_one() -> None:
    for shape in ((5, 9), (9, 5)):
        made = optim.Muon([Tensor(data(*shape))]).orthogonalize(Tensor(data(*shape))).numpy()
        assert made.shape == shape
        values = np.linalg.svd(made, compute_uv=False)
        assert values.min() > 0.5 and values.max() < 1.3


def test_muon_refuses_vectors() -> None:
    with pytest.raises(ValueError, match=r"Muon: a parameter of shape \(3,\) is no matrix"):
        optim.Muon([Tensor(data(3))])


def test_lamb_follows_its_formula() -> None:
    w, m, v = data(4, 3).astype(np.float64), np.zeros((4, 3)), np.zeros((4, 3))
    ours = Tensor(data(4, 3))
    optimizer = optim.LAMB([ours], lr=0.1, weight_decay=0.05)
    for t in range(1, 4):
        g = data(4, 3, seed=t).astype(np.float64)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        step = (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-6) + 0.05 * w
        w = w - 0.1 * np.linalg.norm(w) / np.linalg.norm(step) * step
        ours.grad = Tensor(g.astype(np.float32))
        optimizer.step()
    np.testing.assert_allclose(ours.numpy(), w, rtol=1e-4)


def test_lars_follows_its_formula() -> None:
    w, velocity = data(4, 3).astype(np.float64), np.zeros((4, 3))
    ours = Tensor(data(4, 3))
    optimizer = optim.LARS([ours], lr=0.5, weight_decay=0.01, coefficient=0.1)
    for t in range(1, 4):
        g = data(4, 3, seed=t).astype(np.float64)
        rate = 0.1 * np.linalg.norm(w) / (np.linalg.norm(g) + 0.01 * np.linalg.norm(w))
        velocity = 0.9 * velocity + 0.5 * rate * (g + 0.01 * w)
        w = w - velocity
        ours.grad = Tensor(g.astype(np.float32))
        optimizer.step()
    np.testing.assert_allclose(ours.numpy(), w, rtol=1e-4)


def test_learning_rate_changes_reach_a_jitted_step() -> None:
    w = Tensor([1.0])
    optimizer = optim.SGD([w], lr=1.0)
    schedule = optim.LRScheduler(optimizer, optim.step_factor(2, 0.5))

    @jit
    def step() -> Tensor:
        optimizer.zero_grad()
        loss = (w * 1.0).sum().backward()
        return loss.realize(*optimizer.schedule_step())

    seen = []
    for _ in range(6):
        step()
        schedule.step()
        seen.append(w.item())
    np.testing.assert_allclose(seen, [0, -1, -1.5, -2, -2.25, -2.5], atol=1e-6)


@pytest.mark.parametrize(
    ("factor", "make"),
    [
        (optim.step_factor(3, 0.5), lambda o: torch.optim.lr_scheduler.StepLR(o, 3, 0.5)),
        (optim.exponential_factor(0.9), lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.9)),
        (optim.cosine_factor(12), lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 12)),
        (optim.one_cycle_factor(12), lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 1.0, 12)),
    ],
)
def test_learning_rates_are_those_of_torch(factor: Callable[[int], float], make: Callable[..., Any]) -> None:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], 1.0)
    schedule = make(optimizer)
    for step in range(12):
        assert factor(step) == pytest.approx(optimizer.param_groups[0]["lr"], abs=1e-6)
        optimizer.step()
        if step < 11:
            schedule.step()


def test_warm_up_leads_to_the_next_schedule() -> None:
    factor = optim.warmup_factor(4, optim.cosine_factor(10))
    assert [factor(i) for i in range(5)] == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0])
    assert factor(14) == pytest.approx(0.0)


def test_gradient_clipping() -> None:
    a, b = Tensor(data(3)), Tensor(data(2, 2))
    ta, tb = (torch.from_numpy(t.numpy().copy()).requires_grad_() for t in (a, b))
    for t, other, seed in ((a, ta, 1), (b, tb, 2)):
        g = data(*t.shape, seed=seed)
        t.grad, other.grad = Tensor(g), torch.from_numpy(g.copy())
    got = optim.clip_grad_norm_([a, b], 0.5)
    want = torch.nn.utils.clip_grad_norm_([ta, tb], 0.5)
    assert got.item() == pytest.approx(want.item(), rel=1e-5)
    np.testing.assert_allclose(b.grad.numpy(), tb.grad.numpy(), rtol=1e-5)
    optim.clip_grad_value_([a], 0.1)
    assert np.abs(a.grad.numpy()).max() <= 0.1


def test_half_parameters_keep_their_dtype() -> None:
    w = Tensor(data(4), dtype=dtypes.float16)
    optimizer = optim.Adam([w], lr=0.1)
    (w * w).sum().backward()
    optimizer.step()
    assert w.dtype is dtypes.float16
    np.testing.assert_allclose(w.numpy(), data(4).astype(np.float16) - 0.1 * np.sign(data(4)), atol=2e-3)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: optim.SGD([], 0.1), ValueError, "SGD: no parameters"),
        (lambda: optim.SGD([cast(Any, 1.0)], 0.1), TypeError, "SGD: parameters must be tensors, got float"),
        (lambda: optim.SGD([Tensor([1])], 0.1), TypeError, "of a float dtype have gradients, got int32"),
        (lambda: optim.Adam([Tensor([1.0])], -1), ValueError, "Adam: lr must be at least 0, got -1"),
        (lambda: optim.Adam([Tensor([1.0])], betas=(0.9, 1.0)), ValueError, "betas must be two numbers"),
        (lambda: optim.SGD([Tensor([1.0])], nesterov=True), ValueError, "nesterov needs a momentum"),
        (lambda: optim.SGD([Tensor([1.0])]).step(), RuntimeError, "no parameter has a gradient"),
    ],
)
def test_errors(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()

"""Networks trained from scratch reach an accuracy on data they have not seen, the same way on every runtime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import pytest

from tests.training.digits import digits
from tinyweb import Tensor, jit
from tinyweb.nn.optim import AdamW
from tinyweb.nn.state import get_parameters

SEED, BATCH = 7, 64
REACHED = 0.95


class Network(Protocol):
    def __call__(self, x: Tensor) -> Tensor: ...


class Perceptron:
    """256 → 64 → 10, with dropout."""

    def __init__(self, device: str):
        self.hidden = Tensor.kaiming_uniform(64, 256, device=device).requires_grad_()
        self.hidden_bias = Tensor.zeros(64, device=device).requires_grad_()
        self.out = Tensor.kaiming_uniform(10, 64, device=device).requires_grad_()
        self.out_bias = Tensor.zeros(10, device=device).requires_grad_()

    def __call__(self, x: Tensor) -> Tensor:
        return x.flatten(1).linear(self.hidden, self.hidden_bias).relu().dropout(0.1).linear(self.out, self.out_bias)


class Convolutional:
    """Two convolutions with batch norm and pooling, then a linear layer."""

    def __init__(self, device: str):
        self.first = Tensor.kaiming_uniform(8, 1, 3, 3, device=device).requires_grad_()
        self.scale, self.shift = (
            Tensor.ones(8, device=device).requires_grad_(),
            Tensor.zeros(8, device=device).requires_grad_(),
        )
        self.mean, self.var = Tensor.zeros(8, device=device).contiguous(), Tensor.ones(8, device=device).contiguous()
        self.mean.realize(self.var)
        self.second = Tensor.kaiming_uniform(16, 8, 3, 3, device=device).requires_grad_()
        self.out = Tensor.kaiming_uniform(10, 16 * 16, device=device).requires_grad_()
        self.out_bias = Tensor.zeros(10, device=device).requires_grad_()

    def __call__(self, x: Tensor) -> Tensor:
        x = x.conv2d(self.first, padding=1).batch_norm(self.mean, self.var, self.scale, self.shift)
        x = x.relu().max_pool2d(2).conv2d(self.second, padding=1).relu().max_pool2d(2)
        return x.flatten(1).dropout(0.05).linear(self.out, self.out_bias)


def train(make: Callable[[str], Network], device: str, steps: int, lr: float) -> tuple[list[float], float]:
    """The loss of every step, and the accuracy on images that were not trained on."""
    Tensor.manual_seed(SEED)
    network = make(device)
    optimizer = AdamW(get_parameters(network), lr=lr)
    images, labels = digits(1024, seed=1)

    @jit
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        with Tensor.train():
            loss = network(x).cross_entropy(y).backward()
        return loss.realize(*optimizer.schedule_step())

    order = np.random.default_rng(SEED)
    losses = []
    for _ in range(steps):
        batch = order.choice(len(images), BATCH, replace=False)
        losses.append(step(Tensor(images[batch], device=device), Tensor(labels[batch], device=device)).item())
    images, labels = digits(256, seed=2)
    found = network(Tensor(images, device=device)).argmax(1).numpy()
    return losses, float((found == labels).mean())


CASES = {"perceptron": (Perceptron, 120, 0.01), "convolutional": (Convolutional, 70, 0.01)}


@pytest.mark.parametrize("name", CASES)
def test_reaches_its_accuracy(name: str) -> None:
    make, steps, lr = CASES[name]
    losses, accuracy = train(make, "CPU", steps, lr)
    assert losses[0] > 1.5
    assert accuracy >= REACHED


@pytest.mark.parametrize("name", CASES)
def test_reaches_it_on_webgpu_with_the_same_seed(name: str) -> None:
    make, steps, lr = CASES[name]
    losses, accuracy = train(make, "WEBGPU", steps, lr)
    assert accuracy >= REACHED
    # the same weights, batches and dropped elements: rounding alone tells the first steps apart
    same, _ = train(make, "CPU", 5, lr)
    np.testing.assert_allclose(losses[:5], same, rtol=1e-3)


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("perceptron", "WASM"),
        ("perceptron", "INTERPRETER"),
        ("convolutional", "WASM"),
        pytest.param("convolutional", "INTERPRETER", marks=pytest.mark.slow),
    ],
)
def test_first_steps_are_the_same_everywhere(name: str, device: str) -> None:
    make, _, lr = CASES[name]
    np.testing.assert_allclose(train(make, device, 2, lr)[0], train(make, "CPU", 2, lr)[0], rtol=1e-4)

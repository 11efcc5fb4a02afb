"""Train a small convolutional network on drawn digits, save it, and load it again.

python examples/train_digits.py            a few seconds on a laptop; TINYWEB_DEVICE=WEBGPU trains on the GPU
"""

from __future__ import annotations

import numpy as np

from tinyweb import Tensor, jit
from tinyweb.nn import BatchNorm2d, Conv2d, Linear
from tinyweb.nn.optim import AdamW, LRScheduler, cosine_factor
from tinyweb.nn.state import get_parameters, get_state_dict, load_state_dict, safe_load, safe_save

STEPS = 240
GLYPHS = (
    "011 101 101 101 110", "010 110 010 010 111", "110 001 010 100 111", "110 001 010 001 110", "101 101 111 001 001",
    "111 100 110 001 110", "011 100 111 101 111", "111 001 010 010 010", "111 101 010 101 111", "111 101 111 001 110",
)  # fmt: skip


def digits(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(count, 1, 16, 16) images and their labels: glyphs at a random place, with uneven ink and noise."""
    rng = np.random.default_rng(seed)
    font = np.array([[[int(dot) for dot in row] for row in glyph.split()] for glyph in GLYPHS], np.float32)
    font = font.repeat(2, axis=1).repeat(2, axis=2)
    labels = rng.integers(0, 10, count).astype(np.int32)
    images = rng.normal(0, 0.2, (count, 1, 16, 16)).astype(np.float32)
    for image, label in zip(images[:, 0], labels, strict=True):
        y, x = rng.integers(0, 7), rng.integers(0, 11)
        image[y : y + 10, x : x + 6] += font[label] * rng.uniform(0.6, 1.4, (10, 6))
    return images, labels


class Network:
    """Two convolutions with batch norm and pooling, then a linear layer."""

    def __init__(self) -> None:
        self.first, self.norm = Conv2d(1, 8, 3, padding=1), BatchNorm2d(8)
        self.second = Conv2d(8, 16, 3, padding=1)
        self.out = Linear(16 * 4 * 4, 10)

    def __call__(self, x: Tensor) -> Tensor:
        x = self.norm(self.first(x)).relu().max_pool2d(2)
        x = self.second(x).relu().max_pool2d(2)
        return self.out(x.flatten(1).dropout(0.1))


def main() -> None:
    Tensor.manual_seed(1)
    network = Network()
    optimizer = AdamW(get_parameters(network), lr=0.01)
    schedule = LRScheduler(optimizer, cosine_factor(STEPS))

    @jit  # forward, gradients and update become one list of kernels, compiled at the first call
    def step(images: Tensor, labels: Tensor) -> Tensor:
        optimizer.zero_grad()
        with Tensor.train():
            loss = network(images).cross_entropy(labels).backward()
        return loss.realize(*optimizer.schedule_step())

    images, labels = digits(2048, seed=1)
    order = np.random.default_rng(0)
    for n in range(STEPS):
        batch = order.choice(len(images), 64, replace=False)
        loss = step(Tensor(images[batch]), Tensor(labels[batch]))
        schedule.step()
        if n % 40 == 0:
            print(f"step {n:3}  loss {loss.item():.3f}")

    safe_save(get_state_dict(network), "digits.safetensors")
    again = Network()
    load_state_dict(again, safe_load("digits.safetensors"))
    images, labels = digits(500, seed=2)
    accuracy = (again(Tensor(images)).argmax(1) == Tensor(labels)).float().mean().item()
    print(f"accuracy on new digits: {accuracy:.1%}")


if __name__ == "__main__":
    main()

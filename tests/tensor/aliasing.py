"""Random programs of reads, views, computed values and updates in place, carried out beside PyTorch."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import torch

from tinyweb import Tensor

SHAPES = ((4,), (3, 4), (5,), (2, 3, 2), (1,), (6,))
STEPS = ("memory", "zeros", "view", "view", "detach", "compute", "compute", "compute", "contiguous", "assign", "set",
         "set", "set", "add", "realize", "numpy", "drop")  # fmt: skip
LARGEST = 1e6  # integers stay exact


class Program:
    """`held` are pairs of a tensor and what PyTorch has for it; they are equal whenever somebody looks."""

    def __init__(self, random: Random, device: str):
        self.random, self.device = random, device
        self.shape = random.choice(SHAPES)
        self.held: list[tuple[Tensor, torch.Tensor]] = []
        self.memory()
        self.memory()

    def run(self, steps: int) -> None:
        for _ in range(steps):
            getattr(self, self.random.choice(STEPS))()
            if any(float(want.abs().max()) > LARGEST for _, want in self.held if want.numel()):
                break
        self.random.shuffle(self.held)
        for got, want in self.held:
            np.testing.assert_array_equal(got.numpy(), want.numpy())

    def pick(self) -> tuple[Tensor, torch.Tensor]:
        return self.random.choice(self.held)

    def key(self, shape: torch.Size) -> tuple[Any, ...]:
        out = []
        for n in shape:
            begin = self.random.randrange(n) if n else 0
            out.append(self.random.choice((
                slice(None), slice(begin, self.random.randrange(begin, n) + 1 if n else 0), slice(None, None, 2),
                slice(begin, None), slice(None),
            )))  # fmt: skip
        return tuple(out)

    # -- steps --------------------------------------------------------------------------------------------------------
    def memory(self) -> None:
        x = np.array([self.random.randrange(-9, 9) for _ in range(int(np.prod(self.shape)))], np.float32)
        x = x.reshape(self.shape)
        self.held.append((Tensor(x, device=self.device), torch.tensor(x)))

    def zeros(self) -> None:
        self.held.append((Tensor.zeros(*self.shape, device=self.device), torch.zeros(self.shape)))

    def view(self) -> None:
        a, b = self.pick()
        kind = self.random.randrange(4)
        if b.ndim == 0 or kind == 0:
            self.held.append((a.unsqueeze(0), b.unsqueeze(0)))
        elif kind == 1:
            self.held.append((a.T, b.permute(*range(b.ndim)[::-1])))
        else:
            k = self.key(b.shape)
            self.held.append((a[k], b[k]))

    def detach(self) -> None:
        a, b = self.pick()
        self.held.append((a.detach(), b.detach()))

    def contiguous(self) -> None:
        a, b = self.pick()
        self.held.append((a.contiguous(), b.clone()))

    def compute(self) -> None:
        a, b = self.pick()
        others = [(x, y) for x, y in self.held if y.shape == b.shape]
        kind = self.random.randrange(7)
        if kind == 0:
            self.held.append((a.sum(), b.sum()))
        elif kind == 1 and b.numel():
            self.held.append((a + a.flatten()[0], b + b.flatten()[0]))
        elif kind == 2 and b.ndim:
            self.held.append((a.flip(0) + a, b.flip(0) + b))
        elif kind == 3 and b.ndim:
            self.held.append((a.sum(0, keepdim=True) * a, b.sum(0, keepdim=True) * b))
        elif kind == 4 and b.ndim:
            self.held.append((a.pad((1, 0)), torch.nn.functional.pad(b, (1, 0))))
        else:
            x, y = self.random.choice(others)
            self.held.append((a * 2 - x, b * 2 - y))

    def assign(self) -> None:
        a, b = self.pick()
        if b.numel():
            x, y = self.value(a, b)
            a.assign(x)
            b.copy_(y)

    def set(self) -> None:
        a, b = self.pick()
        k = self.key(b.shape)
        if b[k].numel():
            x, y = self.value(a[k], b[k])
            a[k] = x
            b[k] = y

    def value(self, a: Tensor, b: torch.Tensor) -> tuple[Any, torch.Tensor]:
        """Something to write to `a`."""
        kind = self.random.randrange(4)
        if kind == 0:
            number = float(self.random.randrange(9))
            return number, torch.tensor(number)
        if kind == 1:
            return 1 - a, 1 - b
        if kind == 2 and b.ndim:
            return a.flip(0), b.flip(0)
        fitting = [(x, y) for x, y in self.held if y.shape == b.shape or y.ndim == 0]
        x, y = self.random.choice(fitting) if fitting else (a * 2, b * 2)
        return x, y.clone()

    def add(self) -> None:
        a, b = self.pick()
        if b.numel():
            a += a.max()
            b += b.max()

    def realize(self) -> None:
        self.pick()[0].realize()

    def numpy(self) -> None:
        a, b = self.pick()
        np.testing.assert_array_equal(a.numpy(), b.numpy())

    def drop(self) -> None:
        if len(self.held) > 2:
            self.held.pop(self.random.randrange(len(self.held)))

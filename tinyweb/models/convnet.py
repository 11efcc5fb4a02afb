"""What convolutional models share: where weights come from, and convolutions with their batch norms folded in."""

from __future__ import annotations

import math
import zlib
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tinyweb.nn.parameters import parameter
from tinyweb.nn.precision import Recipe, as_floats
from tinyweb.nn.quantize import QuantizedWeight
from tinyweb.tensor import Tensor

SMALL = 4096  # numbers of a kernel below which it stays one of floats
FLOATS = Recipe.of("f32")


class Weights(Protocol):
    """Parameters by their names in a checkpoint. `formats.huggingface.Checkpoint` is one, `RandomWeights` another."""

    def __contains__(self, name: str) -> bool: ...

    def read(self, name: str, shape: tuple[int, ...]) -> npt.NDArray[Any]: ...


class RandomWeights:
    """Weights of any name and shape, the same for the same seed: for tests and benchmarks, where no checkpoint is.

    Kernels are drawn as He et al. (2015) do, statistics and scales of norms near those that keep values in range.
    """

    def __init__(self, seed: int = 0):
        self.seed = seed

    def __contains__(self, name: str) -> bool:
        return True

    def read(self, name: str, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
        """The values depend on the seed and the name alone, not on the order of reading."""
        random = np.random.default_rng((self.seed, zlib.crc32(name.encode())))
        if len(shape) > 1:
            return (random.standard_normal(shape) * math.sqrt(2 / math.prod(shape[1:]))).astype(np.float32)
        if name.endswith(("running_var", "weight")):
            return random.uniform(0.5, 1.0, shape).astype(np.float32)
        return (random.standard_normal(shape) * 0.1).astype(np.float32)


def fold_batch_norm(
    kernel: npt.NDArray[Any], norm: tuple[npt.NDArray[Any], ...], eps: float
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """The kernel (out, …) and bias (out,) of a convolution without a bias and the batch norm behind it, as one.

    `norm`: weight, bias, running mean and running variance, each (out,).
    """
    weight, bias, mean, variance = (n.astype(np.float64) for n in norm)
    scale = weight / np.sqrt(variance + eps)
    folded = kernel * scale.reshape(-1, *(1,) * (kernel.ndim - 1))
    return folded.astype(np.float32), (bias - mean * scale).astype(np.float32)


class Convolution:
    """Cross-correlation of (N, C, H, W) with weights that may be quantised: kernels widen them as they read.
    `shape`: (out, in, height, width) of the weights."""

    def __init__(
        self, weight: Tensor | QuantizedWeight, bias: Tensor, shape: tuple[int, ...], stride: int = 1, padding: Any = 0
    ):
        self.weight, self.bias = weight, bias
        self._shape, self._stride, self._padding = shape, stride, padding

    def __call__(self, x: Tensor) -> Tensor:
        w = self.weight.dense().reshape(self._shape) if isinstance(self.weight, QuantizedWeight) else self.weight
        return x.conv2d(w, self.bias, self._stride, self._padding)


def kernel(values: npt.NDArray[Any], device: str | None, recipe: Recipe = FLOATS) -> Tensor | QuantizedWeight:
    """The weight (out, …) of a convolution as the layers of `recipe` are stored; integers as a matrix (out, rest). Half
    floats where it is small, or its rows do not divide into groups."""
    matrix = values.reshape(len(values), -1)
    integers = recipe.layers.convert(matrix, device) if values.size >= SMALL else None
    weight = as_floats(values, recipe.layers.kind, device) if integers is None else integers
    if recipe.watch is not None:
        recipe.watch(weight, matrix)
    return weight


def convolution(
    weights: Weights, name: str, norm: str, shape: tuple[int, int, int], stride: int, eps: float, device: str | None,
    recipe: Recipe = FLOATS,
) -> Convolution:  # fmt: skip
    """A convolution without bias and the batch norm `norm` as one layer; `shape`: (out, in, size of the kernel). Where
    the weights have no such norm it was folded before: the convolution has a bias.

    The padding keeps the size where the stride is 1.
    """
    out, channels, size = shape
    values = weights.read(f"{name}.weight", (out, channels, size, size))
    if f"{norm}.weight" in weights:
        parts = ("weight", "bias", "running_mean", "running_var")
        values, bias = fold_batch_norm(values, tuple(weights.read(f"{norm}.{p}", (out,)) for p in parts), eps)
    else:
        bias = weights.read(f"{name}.bias", (out,))
    weight = kernel(values, device, recipe)
    return Convolution(weight, parameter(bias, device), values.shape, stride, size // 2)

"""What convolutional models share: where weights come from, and convolutions with their batch norms folded in."""

from __future__ import annotations

import math
import zlib
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tinyweb.dtype import DType, dtypes
from tinyweb.nn.convolutions import Conv2d
from tinyweb.nn.parameters import parameter
from tinyweb.tensor import Tensor


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


def kernel(values: npt.NDArray[Any], device: str | None, dtype: DType = dtypes.float32) -> Tensor:
    """The weight of a convolution, held as `dtype`; with float32 inputs it is computed with as float32."""
    return Tensor(values.astype(dtype.numpy), dtype=dtype, device=device)


def convolution(
    weights: Weights, name: str, norm: str, shape: tuple[int, int, int], stride: int, eps: float, device: str | None,
    dtype: DType = dtypes.float32,
) -> Conv2d:  # fmt: skip
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
    return Conv2d.of(kernel(values, device, dtype), parameter(bias, device), stride, size // 2)

"""What the parts of Stable Diffusion share: reading weights, convolutions, residual blocks, attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tinyweb.kinds import BITS
from tinyweb.models.convnet import SMALL, Convolution
from tinyweb.nn.layers import Linear
from tinyweb.nn.norms import GroupNorm, LayerNorm
from tinyweb.nn.parameters import parameter
from tinyweb.nn.precision import Watch
from tinyweb.nn.quantize import QuantizedWeight, quantize
from tinyweb.nn.quantized_weight import HALF_MAX
from tinyweb.tensor import Tensor


class Weights(Protocol):
    """Parameters by the names that diffusers gives them."""

    def read(self, name: str, shape: tuple[int, ...]) -> npt.NDArray[Any]: ...


@dataclass(frozen=True)
class Reader:
    """Reads layers whose names begin with `prefix`, and brings their weights into the precision `quant`.

    `quant`: "f32", "f16", "q8" … "q3"; None keeps what is stored. Norms and biases are float32; so are weights that
    half floats cannot hold. Rows that do not divide into groups, and small matrices, stay half floats when quantised.
    """

    weights: Weights
    quant: str | None
    device: str | None
    prefix: str = ""
    watch: Watch | None = None

    def at(self, *names: str | int) -> Reader:
        return replace(self, prefix=self.prefix + "".join(f"{n}." for n in names))

    def values(self, name: str, *shape: int) -> npt.NDArray[Any]:
        return self.weights.read(self.prefix + name, shape)

    def vector(self, name: str, size: int) -> Tensor:
        """A norm's weight or a bias."""
        return parameter(self.values(name, size), self.device)

    def stored(self, values: npt.NDArray[Any]) -> Tensor | QuantizedWeight:
        """Weights (out, …) in the wanted precision; quantised ones as a matrix (out, rest). `watch` is told of each."""
        weight = self._converted(values)
        if self.watch is not None and values.ndim > 1:
            self.watch(weight, values.reshape(len(values), -1))
        return weight

    def _converted(self, values: npt.NDArray[Any]) -> Tensor | QuantizedWeight:
        if self.quant in BITS and values.ndim > 1 and values.size >= SMALL:
            quantized = quantize(values.reshape(len(values), -1), BITS[self.quant], self.device)
            if quantized is not None:
                return quantized
        wide = self.quant == "f32" or (self.quant is None and values.dtype.itemsize > 2)
        if not wide and np.abs(values).max(initial=0) > HALF_MAX:
            wide = True
        return Tensor(values.astype(np.float32 if wide else np.float16, copy=False), device=self.device)

    def linear(self, names: str | Sequence[str], out: int, width: int, bias: bool = True) -> Linear:
        """Matrices (out, width) one below the other; `out`: rows of each."""
        names = [names] if isinstance(names, str) else names
        weight = np.concatenate([self.values(f"{n}.weight", out, width) for n in names])
        added = np.concatenate([self.values(f"{n}.bias", out) for n in names]) if bias else None
        return Linear.of(self.stored(weight), None if added is None else parameter(added, self.device))

    def convolution(self, name: str, out: int, channels: int, size: int = 3, stride: int = 1, padding: Any = None,
                    ) -> Convolution:  # fmt: skip
        """`padding` None: what keeps the size where the stride is 1."""
        weight = self.values(f"{name}.weight", out, channels, size, size)
        padding = size // 2 if padding is None else padding
        return Convolution(self.stored(weight), self.vector(f"{name}.bias", out), weight.shape, stride, padding)

    def layer_norm(self, name: str, width: int, eps: float = 1e-5) -> LayerNorm:
        layer = LayerNorm.__new__(LayerNorm)
        layer.normalized_shape, layer.eps = (width,), eps
        layer.weight, layer.bias = self.vector(f"{name}.weight", width), self.vector(f"{name}.bias", width)
        return layer

    def group_norm(self, name: str, groups: int, channels: int, eps: float) -> GroupNorm:
        layer = GroupNorm.__new__(GroupNorm)
        layer.num_groups, layer.eps = groups, eps
        layer.weight, layer.bias = self.vector(f"{name}.weight", channels), self.vector(f"{name}.bias", channels)
        return layer


class Upsample:
    """Every pixel as many times as the target asks for (mostly twice in each direction), and a convolution."""

    def __init__(self, read: Reader, channels: int):
        self.conv = read.convolution("upsamplers.0.conv", channels, channels)

    def __call__(self, x: Tensor, size: Sequence[Any] | None = None) -> Tensor:
        double = tuple(2 * s for s in x.shape[2:])
        if size is None or tuple(size) == double:
            return self.conv(x.interpolate(scale_factor=2, mode="nearest"))
        return self.conv(x.interpolate(tuple(size), mode="nearest"))


class ResnetBlock:
    """Two convolutions behind group norms, added to their input; the step's embedding (`time` wide) is added between.

    A 1×1 convolution fits the input where channels change.
    """

    def __init__(self, read: Reader, channels: int, out: int, groups: int, eps: float, time: int = 0):
        self.norm1 = read.group_norm("norm1", groups, channels, eps)
        self.conv1 = read.convolution("conv1", out, channels)
        self.time_emb_proj = read.linear("time_emb_proj", out, time) if time else None
        self.norm2 = read.group_norm("norm2", groups, out, eps)
        self.conv2 = read.convolution("conv2", out, out)
        self.conv_shortcut = read.convolution("conv_shortcut", out, channels, 1) if channels != out else None

    def __call__(self, x: Tensor, time: Tensor | None = None) -> Tensor:
        """`time` (N or 1, width), already through SiLU."""
        y = self.conv1(self.norm1(x).silu())
        if self.time_emb_proj is not None and time is not None:
            y = y + self.time_emb_proj(time).unsqueeze(-1).unsqueeze(-1)
        y = self.conv2(self.norm2(y).silu())
        return (x if self.conv_shortcut is None else self.conv_shortcut(x)) + y


def attend(q: Tensor, k: Tensor, v: Tensor, *, heads: int, causal: bool = False) -> Tensor:
    """Attention of q (N, L, heads · d) to k and v (N, S, heads · d), as one kernel: (N, L, heads · d)."""
    q, k, v = (t.reshape(*t.shape[:2], heads, -1).transpose(1, 2) for t in (q, k, v))
    mixed = q.contiguous().scaled_dot_product_attention(k, v, is_causal=causal)
    n, _, length, _ = mixed.shape
    return mixed.transpose(1, 2).reshape(n, length, -1)


class AttentionBlock:
    """The autoencoder's: every pixel (of few) looks at all others, with one head; added to the input."""

    def __init__(self, read: Reader, channels: int, groups: int, eps: float):
        self.group_norm = read.group_norm("group_norm", groups, channels, eps)
        self.qkv = read.linear(["to_q", "to_k", "to_v"], channels, channels)
        self.to_out = read.linear("to_out.0", channels, channels)

    def __call__(self, x: Tensor) -> Tensor:
        n, c, h, w = x.shape
        qkv = self.qkv(self.group_norm(x).reshape(n, c, -1).transpose(1, 2)).contiguous()
        y = self.to_out(attend(*qkv.chunk(3, axis=-1), heads=1))
        return x + y.transpose(1, 2).reshape(n, c, h, w)


def timestep_embedding(timestep: Tensor, width: int, flip: bool, shift: float) -> Tensor:
    """(N,) → (N, width): sines and cosines (`flip`: the cosines first) of the timestep at falling frequencies."""
    half = width // 2
    rates = np.exp(-math.log(10000) * np.arange(half) / (half - shift)).astype(np.float32)
    angles = timestep.float().unsqueeze(-1) * Tensor(rates, device=timestep.device)
    parts = [angles.sin(), angles.cos()]
    made = Tensor.cat(parts[::-1] if flip else parts, axis=-1)
    return made.pad([(0, 0), (0, width % 2)]) if width % 2 else made

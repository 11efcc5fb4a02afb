"""Linear layers, embeddings and layers one after the other.

Layers are plain objects: what they hold are attributes, named as PyTorch names them (`nn.state` finds them), and what
they do is `__call__`. New layers draw their weights as PyTorch does; `of` makes one of given weights. Weights keep the
type they are stored in.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from tinyweb.dtype import DType, dtypes
from tinyweb.nn.parameters import learned, uniform
from tinyweb.nn.quantized_weight import HALVES, QuantizedWeight, half_product
from tinyweb.tensor import Tensor


@dataclass(frozen=True)
class Stacked:
    """Matrices (out, in) below each other, each stored in its own way."""

    parts: tuple[Tensor | QuantizedWeight, ...]

    def product(self, x: Tensor, activations: str = "float") -> Tensor:
        """x (…, in) → (…, sum of out), float32."""
        return Tensor.cat(*(Linear.of(part)(x, activations) for part in self.parts), axis=-1)

    def tensors(self) -> dict[str, Tensor]:
        """The memory, by name."""
        each = (Linear.of(part).tensors() for part in self.parts)
        return {f"{name}{i}": tensor for i, found in enumerate(each) for name, tensor in found.items()}


class Linear:
    """y = x Wᵀ + b: (…, in) → (…, out). `weight` is (out, in), dense or quantised, or several below each other; `bias`
    (out,) or None."""

    weight: Tensor | QuantizedWeight | Stacked
    bias: Tensor | None

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, *, device: str | None = None,
        dtype: DType = dtypes.float32,
    ):  # fmt: skip
        bound = 1 / math.sqrt(max(in_features, 1))
        self.weight = uniform((out_features, in_features), bound, device, dtype)
        self.bias = uniform((out_features,), bound, device, dtype) if bias else None

    @classmethod
    def of(cls, weight: Tensor | QuantizedWeight | Stacked, bias: Tensor | None = None) -> Self:
        """The layer of given weights."""
        layer = cls.__new__(cls)
        layer.weight, layer.bias = weight, bias
        return layer

    def __call__(self, x: Tensor, activations: str = "float") -> Tensor:
        """`activations` "int8" rounds x to 8 bits before it is multiplied with quantised weights, "half" 16 rows or
        more to float16 (held at ±65504) before they are multiplied with weights of that type, or with quantised ones,
        whose values are rounded too, and so does "scaled-half", which scales rows that are beyond."""
        w = self.weight
        if not isinstance(w, Tensor):
            y = w.product(x, activations)
        elif activations in HALVES and w.dtype is dtypes.float16:
            turned = w.transpose()
            y = half_product(x, lambda halves: halves.matmul(turned, x.dtype), activations)
        else:
            y = x.linear(w)
        return y if self.bias is None else y + self.bias

    def tensors(self) -> dict[str, Tensor]:
        """The memory of this layer, by name."""
        found = {"weight": self.weight} if isinstance(self.weight, Tensor) else self.weight.tensors()
        return found if self.bias is None else {**found, "bias": self.bias}


class Bilinear:
    """x W[o] y + b[o]: (…, i) and (…, j) → (…, o). `weight` is (o, i, j), `bias` (o,) or None."""

    def __init__(
        self, in1_features: int, in2_features: int, out_features: int, bias: bool = True, *,
        device: str | None = None, dtype: DType = dtypes.float32,
    ):  # fmt: skip
        bound = 1 / math.sqrt(max(in1_features, 1))
        self.weight = uniform((out_features, in1_features, in2_features), bound, device, dtype)
        self.bias = uniform((out_features,), bound, device, dtype) if bias else None

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        return x.bilinear(y, self.weight, self.bias)


class Embedding:
    """Rows of a table by id: ids of any shape → ids.shape + (width,), float32 of stored tables. `weight` is (rows,
    width). The row `padding_idx` begins at zero and is not learned."""

    weight: Tensor | QuantizedWeight

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, *, device: str | None = None,
        dtype: DType = dtypes.float32,
    ):  # fmt: skip
        table = Tensor.randn(num_embeddings, embedding_dim, device=device).cast(dtype)
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise ValueError(f"Embedding: padding_idx {padding_idx} is outside of {num_embeddings} rows")
            row = Tensor.arange(num_embeddings, device=device).unsqueeze(1)
            table = (row == padding_idx % num_embeddings).where(0.0, table)
        self.weight, self.padding_idx = learned(table), padding_idx

    @classmethod
    def of(cls, weight: Tensor | QuantizedWeight) -> Self:
        """The layer of a given table."""
        layer = cls.__new__(cls)
        layer.weight, layer.padding_idx = weight, None
        return layer

    def __call__(self, ids: Tensor) -> Tensor:
        if isinstance(self.weight, QuantizedWeight):
            return self.weight.rows(ids)
        return self.weight.embedding(ids, self.padding_idx).float()

    def tensors(self) -> dict[str, Tensor]:
        """The memory of this layer, by name."""
        return self.weight.tensors() if isinstance(self.weight, QuantizedWeight) else {"weight": self.weight}


class EmbeddingBag:
    """Rows of a table by id, of which each bag's `mode` is kept: "mean", "sum" or "max". `weight` is (rows, width).

    Ids (N, K) are N bags: (N, width). Ids (n,) are as many bags as `offsets` says where one begins. A bag without ids
    is zero. The row `padding_idx` begins at zero, is not learned, and does not count. `per_sample_weights`, as many as
    ids, are factors of rows that are summed.
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, *, mode: str = "mean", padding_idx: int | None = None,
        device: str | None = None, dtype: DType = dtypes.float32,
    ):  # fmt: skip
        if mode not in ("mean", "sum", "max"):
            raise ValueError(f"EmbeddingBag: mode must be mean, sum or max, got {mode!r}")
        table = Embedding(num_embeddings, embedding_dim, padding_idx, device=device, dtype=dtype)
        assert isinstance(table.weight, Tensor)
        self.weight, self.mode = table.weight, mode
        self.padding_idx = None if padding_idx is None else padding_idx % num_embeddings

    def __call__(self, ids: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        if ids.ndim != (2 if offsets is None else 1):
            raise ValueError(f"EmbeddingBag: ids are (bags, K), or (n,) with offsets, got {ids.shape}")
        if per_sample_weights is not None and (self.mode != "sum" or per_sample_weights.shape != ids.shape):
            raise ValueError(f"EmbeddingBag: per_sample_weights are for mode sum, of the ids' shape {ids.shape}")
        rows = self.weight.embedding(ids, self.padding_idx).float()
        held = ids.ones_like(dtypes.bool) if self.padding_idx is None else ids != self.padding_idx
        if offsets is not None:  # which ids each bag has: (bags, n)
            begun = Tensor.arange(len(ids), device=ids.device).unsqueeze(1) >= offsets
            held = held & (begun.int().sum(1) - 1 == Tensor.arange(len(offsets), device=ids.device).unsqueeze(1))
        if self.mode == "max":
            best = held.unsqueeze(-1).where(rows, -math.inf).max(1)
            return held.any(1).unsqueeze(-1).where(best, 0.0)
        factors = held.float() if per_sample_weights is None else held.where(per_sample_weights, 0.0)
        if self.mode == "mean":
            factors = factors / held.float().sum(1, keepdim=True).maximum(1)
        return (factors.unsqueeze(-1) * rows).sum(1)


class Sequential(list[Callable[[Any], Any]]):
    """Layers (anything that can be called) one after the other; it is a list of them."""

    def __init__(self, *layers: Callable[[Any], Any]):
        super().__init__(layers)

    def __call__(self, x: Any) -> Any:
        for layer in self:
            x = layer(x)
        return x

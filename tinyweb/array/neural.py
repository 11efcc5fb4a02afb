"""Methods of neural networks: linear and bilinear layers, embeddings, dropout."""

from __future__ import annotations

from typing import Self

from tinyweb.array.activation import Activation, is_training
from tinyweb.array.core import TensorCore
from tinyweb.array.gathering import Gathering
from tinyweb.array.linalg import Linalg
from tinyweb.graph.ir import Shape
from tinyweb.graph.schedule.indexing import same


class Neural(Linalg, Activation, Gathering):
    """Layers as functions."""

    __slots__ = ()

    def linear(self, weight: TensorCore, bias: TensorCore | None = None) -> Self:
        """self @ weightᵀ + bias, `weight` being (out, in) or (in,); the result has this tensor's dtype."""
        w = self._operand(weight, "linear")
        if not self.ndim or w.ndim not in (1, 2) or not same(w.shape[-1], self.shape[-1]):
            raise ValueError(f"linear: input {self.shape} and weight {w.shape}: the last axes must be equal")
        if w.ndim == 1:
            y = self.linear(w.unsqueeze(0)).squeeze(-1)
        else:
            x = self.unsqueeze(0) if self.ndim == 1 else self
            y = x._contract(w, self.dtype if self.dtype.is_float else w.dtype)
            y = y.squeeze(0) if self.ndim == 1 else y
        return y if bias is None else y.add(bias)

    def bilinear(self, other: TensorCore, weight: TensorCore, bias: TensorCore | None = None) -> Self:
        """x weight[o] y + bias[o]: (…, i) and (…, j) with weight (o, i, j): (…, o)."""
        y, w = self._operand(other, "bilinear"), self._operand(weight, "bilinear")
        wanted = (self.shape[-1:], y.shape[-1:])
        if w.ndim != 3 or wanted != ((w.shape[1],), (w.shape[2],)) or self.shape[:-1] != y.shape[:-1]:
            raise ValueError(f"bilinear: {self.shape} and {y.shape} need a weight (out, in, in), got {w.shape}")
        out, rows, columns = w.shape
        half = self.unsqueeze(-2).matmul(w.permute(1, 0, 2).reshape(rows, -1)).squeeze(-2)
        product = half._reshape((*self.shape[:-1], out, columns)).mul(y.unsqueeze(-2)).sum(-1)
        return product if bias is None else product.add(bias)

    def embedding(self, ids: TensorCore, padding_idx: int | None = None) -> Self:
        """Rows of this (rows, width) table picked by integer ids: ids.shape + (width,).

        The row `padding_idx` gets no gradient. An id outside of the table gives zeros.
        """
        if self.ndim != 2:
            raise ValueError(f"embedding: the table must be (rows, width), got {self.shape}")
        if padding_idx is None:
            return self.take(ids, 0)
        rows = self.shape[0]
        if not isinstance(rows, int) or not -rows <= padding_idx < rows:
            raise ValueError(f"embedding: padding_idx {padding_idx} is outside of the table {self.shape}")
        fixed = self._iota(rows).eq(padding_idx % rows).unsqueeze(1)
        return fixed.where(self.detach(), self).take(ids, 0)

    def one_hot(self, num_classes: int = -1) -> Self:
        """int32 of shape (…, num_classes): 1 where the class index equals this integer tensor's element.

        Without a number of classes the largest element is read, to have just enough of them.
        """
        if not self.dtype.is_int:
            raise TypeError(f"one_hot: needs integers, got {self.dtype.name}")
        if num_classes < 1 and num_classes != -1:
            raise ValueError(f"one_hot: num_classes must be above 0, or -1 for as many as there are, got {num_classes}")
        if num_classes == -1:
            if self.numel() == 0:
                raise ValueError("one_hot: an empty tensor needs num_classes")
            num_classes = int(self.max().item()) + 1
        return self.unsqueeze(-1).eq(self._iota(num_classes)).int()

    # -- dropout ------------------------------------------------------------------------------------------------------
    def dropout(self, p: float = 0.5, training: bool | None = None) -> Self:
        """While training (within `Tensor.train()` where None), zeros with probability `p`, the rest divided by 1 - p
        (Srivastava et al. 2014); otherwise the tensor itself."""
        return self._dropped("dropout", p, training, self.shape)

    def dropout1d(self, p: float = 0.5, training: bool | None = None) -> Self:
        """`dropout` of whole channels of (N, C, L) or (C, L)."""
        return self._channel_dropout("dropout1d", 1, p, training)

    def dropout2d(self, p: float = 0.5, training: bool | None = None) -> Self:
        """`dropout` of whole channels of (N, C, H, W) or (C, H, W)."""
        return self._channel_dropout("dropout2d", 2, p, training)

    def dropout3d(self, p: float = 0.5, training: bool | None = None) -> Self:
        """`dropout` of whole channels of (N, C, D, H, W) or (C, D, H, W)."""
        return self._channel_dropout("dropout3d", 3, p, training)

    def alpha_dropout(self, p: float = 0.5, training: bool | None = None) -> Self:
        """Dropout that keeps mean and variance of self-normalising networks (Klambauer et al. 2017)."""
        return self._alpha_dropout("alpha_dropout", p, training, self.shape)

    def feature_alpha_dropout(self, p: float = 0.5, training: bool | None = None) -> Self:
        """`alpha_dropout` of whole channels (axis 1)."""
        if self.ndim < 2:
            raise ValueError(f"feature_alpha_dropout: needs (N, C, …), got {self.shape}")
        return self._alpha_dropout(
            "feature_alpha_dropout", p, training, (*self.shape[:2], *(1 for _ in self.shape[2:]))
        )

    def _channel_dropout(self, method: str, n: int, p: float, training: bool | None) -> Self:
        if self.ndim not in (n + 1, n + 2):
            raise ValueError(f"{method}: needs {n + 1} or {n + 2} axes, got {self.shape}")
        return self._dropped(method, p, training, (*self.shape[: self.ndim - n], *(1,) * n))

    def _kept(self, method: str, p: float, shape: Shape) -> Self:
        """bool of `shape`: false with probability p."""
        if not 0 <= p <= 1:
            raise ValueError(f"{method}: p must be within 0 and 1, got {p}")
        # in memory, as it is read again and again: by a product, by the gradients
        return self._constant(0)._broadcast_to(shape)._uniform().greater_equal(p).contiguous()

    def _dropped(self, method: str, p: float, training: bool | None, shape: Shape) -> Self:
        if not 0 <= p <= 1:
            raise ValueError(f"{method}: p must be within 0 and 1, got {p}")
        if p == 0 or not is_training(training):
            return self
        x = self._floating()
        if p == 1:
            return x.mul(0.0)
        return self._kept(method, p, shape).where(x.mul(1 / (1 - p)), 0.0)

    def _alpha_dropout(self, method: str, p: float, training: bool | None, shape: Shape) -> Self:
        if not 0 <= p <= 1:
            raise ValueError(f"{method}: p must be within 0 and 1, got {p}")
        if p == 0 or not is_training(training):
            return self
        x = self._floating()
        if p == 1:
            return x.mul(0.0)
        low = -1.7580993408473766  # what SELU goes to at minus infinity
        a = ((low**2 * p + 1) * (1 - p)) ** -0.5
        return self._kept(method, p, shape).where(x, low).mul(a).add(-a * low * p)

"""Activation functions of neural networks."""

from __future__ import annotations

import math
from typing import Any, Self

from tinyweb.array.sorting import Sorting


class Activation(Sorting):
    """Elementwise non-linearities, and those along an axis."""

    __slots__ = ()

    def silu(self) -> Self:
        return self.mul(self.sigmoid())

    swish = silu

    def relu(self) -> Self:
        return self.maximum(0)

    def gelu(self) -> Self:
        """The tanh form of GELU (Hendrycks and Gimpel 2016)."""
        inner = self.add(self.mul(self).mul(self).mul(0.044715)).mul(math.sqrt(2 / math.pi))
        return self.mul(0.5).mul(inner.tanh().add(1.0))

    def softplus(self) -> Self:
        return self.relu().add(self.abs().neg().exp().log1p())

    def leaky_relu(self, slope: Any = 0.01) -> Self:
        return self.less(0).where(self.mul(slope), self)

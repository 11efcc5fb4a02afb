"""Activation functions of neural networks. At kinks the gradients are PyTorch's; all are finite for |x| up to 1e4."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Self

from tinyweb.array.core import TensorCore
from tinyweb.array.moments import Moments
from tinyweb.array.random import Random
from tinyweb.array.views import Views

_training: ContextVar[bool] = ContextVar("training", default=False)


def is_training(given: bool | None) -> bool:
    """`given`, or where it is None, whether this code runs within `Tensor.train()`."""
    return _training.get() if given is None else given


class Activation(Random, Views, Moments):
    """Elementwise non-linearities, and those along an axis. Integers are taken as float32 where the result is no
    integer."""

    __slots__ = ()

    # -- piecewise linear ---------------------------------------------------------------------------------------------
    def relu(self) -> Self:
        """max(x, 0); the gradient at 0 is 0."""
        return self.less_equal(0).where(0, self)

    def relu6(self) -> Self:
        """x held within [0, 6]."""
        return self.hardtanh(0, 6)

    def hardtanh(self, min_val: float = -1.0, max_val: float = 1.0) -> Self:
        """x held within [min_val, max_val]; unlike `clamp`, the gradient at the bounds is 0."""
        if min_val > max_val:
            raise ValueError(f"hardtanh: min_val must not be above max_val, got {min_val} and {max_val}")
        return self.less_equal(min_val).where(min_val, self.greater_equal(max_val).where(max_val, self))

    def leaky_relu(self, negative_slope: float = 0.01) -> Self:
        """x where positive, else negative_slope · x."""
        x = self._floating()
        return x.greater(0).where(x, x.mul(negative_slope))

    def prelu(self, weight: TensorCore) -> Self:
        """x where positive, else weight · x; `weight` has one element, or one per channel (axis 1)."""
        x, w = self._floating(), self._operand(weight, "prelu")
        channels = x.shape[1] if x.ndim > 1 else 1
        if w.ndim > 1 or w.numel() not in (1, channels):
            raise ValueError(f"prelu: weight {w.shape} needs 1 element or {channels}, one per channel of {x.shape}")
        if w.numel() != 1:
            w = w._reshape((channels, *(1 for _ in x.shape[2:])))
        elif w.ndim:
            w = w._reshape(())
        return x.greater(0).where(x, x.mul(w))

    def hardshrink(self, lambd: float = 0.5) -> Self:
        """x, but 0 within [-lambd, lambd]."""
        x = self._floating()
        return x.greater_equal(-lambd).logical_and(x.less_equal(lambd)).where(0, x)

    def softshrink(self, lambd: float = 0.5) -> Self:
        """x moved towards 0 by `lambd`, 0 within [-lambd, lambd]."""
        if lambd < 0:
            raise ValueError(f"softshrink: lambd must not be negative, got {lambd}")
        x = self._floating()
        inside = x.greater_equal(-lambd).logical_and(x.less_equal(lambd))
        return inside.where(0, x.greater(0).where(x.sub(lambd), x.add(lambd)))

    def hardsigmoid(self) -> Self:
        """(x + 3) / 6 held within [0, 1]."""
        return self._floating().add(3.0).hardtanh(0, 6).div(6.0)

    def hardswish(self) -> Self:
        """x · hardsigmoid(x) (Howard et al. 2019)."""
        x = self._floating()
        return x.less_equal(-3.0).where(0, x.greater_equal(3.0).where(x, x.mul(x.add(3.0)).div(6.0)))

    # -- exponential linear -------------------------------------------------------------------------------------------
    def elu(self, alpha: float = 1.0) -> Self:
        """x where positive, else alpha · (eˣ - 1) (Clevert et al. 2016)."""
        return self._elu(alpha, 1.0, 1.0)

    def selu(self) -> Self:
        """The self-normalising ELU (Klambauer et al. 2017)."""
        return self._elu(1.6732632423543772, 1.0507009873554805, 1.0)

    def celu(self, alpha: float = 1.0) -> Self:
        """x where positive, else alpha · (e^(x / alpha) - 1) (Barron 2017)."""
        if alpha == 0:
            raise ValueError("celu: alpha must not be 0")
        return self._elu(alpha, 1.0, 1 / alpha)

    def _elu(self, alpha: float, scale: float, steepness: float) -> Self:
        x = self._floating()
        positive = x.greater(0)
        below = positive.where(0, x)  # what is not used must not overflow
        return positive.where(x.mul(scale), below.mul(steepness).expm1().mul(alpha * scale))

    # -- smooth -------------------------------------------------------------------------------------------------------
    def gelu(self, approximate: str = "none") -> Self:
        """x · Φ(x), Φ the normal distribution (Hendrycks and Gimpel 2016); with approximate="tanh" by their formula."""
        x = self._floating()
        if approximate == "none":
            return x.mul(x.mul(-math.sqrt(0.5)).erfc()).mul(0.5)
        if approximate != "tanh":
            raise ValueError(f'gelu: approximate must be "none" or "tanh", got {approximate!r}')
        inner = x.add(x.mul(x).mul(x).mul(0.044715)).mul(math.sqrt(2 / math.pi))
        return x.mul(0.5).mul(inner.tanh().add(1.0))

    def quick_gelu(self) -> Self:
        """x · sigmoid(1.702 x), a rough form of GELU."""
        x = self._floating()
        return x.mul(x.mul(1.702).sigmoid())

    def silu(self) -> Self:
        """x · sigmoid(x)."""
        x = self._floating()
        return x.mul(x.sigmoid())

    swish = silu

    def mish(self) -> Self:
        """x · tanh(softplus(x)) (Misra 2019)."""
        x = self._floating()
        return x.mul(x.softplus().tanh())

    def softplus(self, beta: float = 1.0, threshold: float = 20.0) -> Self:
        """log(1 + e^(beta · x)) / beta; x itself where beta · x is above `threshold`."""
        x = self._floating()
        y = x.mul(beta) if beta != 1 else x
        linear = y.greater(threshold)
        smooth = linear.where(0, y).exp().log1p()
        return linear.where(x, smooth if beta == 1 else smooth.div(beta))

    def squareplus(self, b: float = 4.0) -> Self:
        """(x + sqrt(x² + b)) / 2 (Barron 2021)."""
        x = self._floating()
        return x.add(x.square().add(b).sqrt()).mul(0.5)

    def softsign(self) -> Self:
        """x / (1 + |x|)."""
        x = self._floating()
        return x.div(x.abs().add(1.0))

    def tanhshrink(self) -> Self:
        """x - tanh(x)."""
        x = self._floating()
        return x.sub(x.tanh())

    def logsigmoid(self) -> Self:
        """log(sigmoid(x)) without overflow."""
        return self.log_sigmoid()

    def glu(self, axis: int = -1) -> Self:
        """a · sigmoid(b) of the halves a, b along an axis of even size (Dauphin et al. 2017)."""
        x = self._floating()
        if not x.ndim:
            raise ValueError("glu: a 0-d tensor has no halves")
        a = x._axis(axis, method="glu")
        size = x.shape[a]
        if not isinstance(size, int) or size % 2:
            raise ValueError(f"glu: axis {axis} of {x.shape} must have an even size")
        halves = [
            x.shrink([bounds if i == a else None for i in range(x.ndim)])
            for bounds in ((0, size // 2), (size // 2, size))
        ]
        return halves[0].mul(halves[1].sigmoid())

    # -- random -------------------------------------------------------------------------------------------------------
    @staticmethod
    @contextmanager
    def train(mode: bool = True) -> Iterator[None]:
        """Within `with Tensor.train():` dropout drops; batch norm normalises by, and learns, a batch's statistics.

        Outside of it, and within `Tensor.train(False)`, both do what they do after training.
        """
        token = _training.set(mode)
        try:
            yield
        finally:
            _training.reset(token)

    def _uniform(self) -> Self:
        """float32 numbers in [0, 1) of this tensor's shape, new ones at each call."""
        return self.rand(*self.shape, device=self.device)

    def rrelu(self, lower: float = 1 / 8, upper: float = 1 / 3, training: bool | None = None) -> Self:
        """Leaky ReLU with slopes drawn from [lower, upper) while training, their mean otherwise (Xu et al. 2015)."""
        if lower > upper:
            raise ValueError(f"rrelu: lower must not be above upper, got {lower} and {upper}")
        if not is_training(training):
            return self.leaky_relu((lower + upper) / 2)
        x = self._floating()
        slopes = x._uniform().mul(upper - lower).add(lower).cast(x.dtype).contiguous()
        return x.greater(0).where(x, x.mul(slopes))

    def gumbel_softmax(self, tau: float = 1.0, hard: bool = False, axis: int = -1) -> Self:
        """A sample of the categories of unnormalised log-probabilities along an axis, relaxed (Jang et al. 2017).

        The smaller `tau`, the nearer to one-hot. With `hard` it is one-hot, with the gradient of the relaxed sample.
        """
        if tau <= 0:
            raise ValueError(f"gumbel_softmax: tau must be positive, got {tau}")
        if not self.ndim:
            self._axis(axis, method="gumbel_softmax")
            return self._reshape((1,)).gumbel_softmax(tau, hard, 0)._reshape(())
        x = self._floating()
        # log(-log(u)) of u in (0, 1)
        noise = x._uniform().maximum(2.0**-25).log().neg().log().cast(x.dtype).contiguous()
        soft = x.sub(noise).div(tau).softmax(axis)
        if not hard:
            return soft
        a = x._axis(axis, method="gumbel_softmax")
        place = x._iota(x.shape[a])._reshape(tuple(s if i == a else 1 for i, s in enumerate(x.shape)))
        return place.eq(soft.argmax(a, keepdim=True)).cast(x.dtype).detach().sub(soft.detach()).add(soft)

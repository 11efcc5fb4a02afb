"""Normalisation by statistics of groups of elements, and distances. Half floats are normalised in float32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from tinyweb.array.activation import is_training
from tinyweb.array.core import TensorCore, realize_with_next
from tinyweb.array.moments import Moments
from tinyweb.array.padding import Padding
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import Size, size_prod
from tinyweb.graph.schedule.indexing import same


class Normalization(Padding, Moments):
    """layer_norm and its relatives, unit vectors, distances."""

    __slots__ = ()

    def layer_norm(
        self,
        normalized_shape: int | Sequence[int],
        weight: TensorCore | None = None,
        bias: TensorCore | None = None,
        eps: float = 1e-5,
    ) -> Self:
        """(x - mean) / sqrt(variance + eps) · weight + bias over the last axes, `normalized_shape` (Ba et al. 2016)."""
        n = self._normalized("layer_norm", normalized_shape, weight, bias)
        return self._scaled(self._wide().layernorm(tuple(range(-n, 0)), eps), weight, bias)

    def layernorm(self, axis: Any = -1, eps: float = 1e-5) -> Self:
        """(x - mean) / sqrt(variance + eps) over axes."""
        x = self._floating()
        return x._wide()._standardized(x._axes(axis, "layernorm"), eps)[0].cast(x.dtype)

    def rms_norm(
        self, normalized_shape: int | Sequence[int], weight: TensorCore | None = None, eps: float | None = None
    ) -> Self:
        """x / sqrt(mean(x²) + eps) · weight over the last axes, of `normalized_shape` (Zhang and Sennrich 2019).

        `eps` is the distance from 1 to the next number of the dtype where None, of float32 for half floats."""
        n = self._normalized("rms_norm", normalized_shape, weight, None)
        x = self._wide()
        small = 2.0**-x.dtype.mantissa if eps is None else eps
        root = x.square().mean(tuple(range(x.ndim - n, x.ndim)), keepdim=True).add(small).rsqrt()
        return self._scaled(x.mul(root), weight, None)

    def group_norm(
        self,
        num_groups: int,
        weight: TensorCore | None = None,
        bias: TensorCore | None = None,
        eps: float = 1e-5,
    ) -> Self:
        """`layer_norm` over groups of channels (axis 1) and all axes behind; weight and bias (C,) (Wu and He 2018)."""
        c = self._channels("group_norm", weight, bias)
        if num_groups < 1 or c % num_groups:
            raise ValueError(f"group_norm: {c} channels of {self.shape} do not divide into {num_groups} groups")
        x = self._wide()
        # what lies behind channels is one axis: the threads of a group share it
        grouped = x._reshape((self.shape[0], num_groups, c // num_groups, size_prod(self.shape[2:])))
        y = grouped._standardized(tuple(range(2, grouped.ndim)), eps)[0]
        channels = (num_groups, c // num_groups, 1)  # scaled where a group is walked over
        scale, shift = (None if t is None else self._new(t.uop)._reshape(channels) for t in (weight, bias))
        return self._scaled(y, scale, shift)._reshape(self.shape)

    def batch_norm(
        self,
        running_mean: TensorCore | None = None,
        running_var: TensorCore | None = None,
        weight: TensorCore | None = None,
        bias: TensorCore | None = None,
        training: bool | None = None,
        momentum: Any = 0.1,
        eps: float = 1e-5,
    ) -> Self:
        """(x - mean) / sqrt(variance + eps) · weight + bias for each channel (axis 1) (Ioffe and Szegedy 2015).

        While training (within `Tensor.train()` where None) by the statistics of the batch, towards which
        `running_mean` and `running_var` (C,) move by `momentum`, in place; otherwise by those two.
        """
        c = self._channels("batch_norm", weight, bias, running_mean, running_var)
        axes = (0, *range(2, self.ndim))
        if not is_training(training):
            if running_mean is None or running_var is None:
                raise ValueError("batch_norm: running_mean and running_var are needed outside of training")
            if eps < 0:
                raise ValueError(f"batch_norm: eps must not be negative, got {eps}")
            mean, var = self._per_channel(running_mean), self._per_channel(running_var)
            assert mean is not None and var is not None
            # what a channel's values have in common first: each takes a multiplication and an addition
            scale = self._scaled(var.add(eps).rsqrt(), self._per_channel(weight), None)
            shift, bias = mean.mul(scale).neg(), self._per_channel(bias)
            return self._scaled(self._wide(), scale, shift if bias is None else bias.add(shift))
        else:
            if not eps > 0:
                raise ValueError(f"batch_norm: eps must be above 0 in training, got {eps}")
            count = self._count(axes)
            if isinstance(count, float) and count <= 1:
                raise ValueError(f"batch_norm: training needs more than one value per channel, got {self.shape}")
            y, mean, var = self._wide()._standardized(axes, eps)
            self._learn(running_mean, mean._reshape((c,)), momentum)
            unbiased = var.mul(count / (count - 1) if isinstance(count, float) else count.div(count.sub(1)))
            self._learn(running_var, unbiased._reshape((c,)), momentum)
        return self._scaled(y, self._per_channel(weight), self._per_channel(bias))

    def instance_norm(
        self,
        running_mean: TensorCore | None = None,
        running_var: TensorCore | None = None,
        weight: TensorCore | None = None,
        bias: TensorCore | None = None,
        use_input_stats: bool = True,
        momentum: Any = 0.1,
        eps: float = 1e-5,
    ) -> Self:
        """`batch_norm` for each element of the batch on its own (Ulyanov et al. 2016); the running statistics are
        means over the batch."""
        c = self._channels("instance_norm", weight, bias, running_mean, running_var)
        if self.ndim < 3:
            raise ValueError(f"instance_norm: needs axes behind the channels, got {self.shape}")
        if not use_input_stats:
            return self.batch_norm(running_mean, running_var, weight, bias, False, momentum, eps)
        axes = tuple(range(2, self.ndim))
        count = self._count(axes)
        if isinstance(count, float) and count <= 1:
            raise ValueError(f"instance_norm: needs more than one value per channel, got {self.shape}")
        y, mean, var = self._wide()._standardized(axes, eps)
        self._learn(running_mean, mean.mean(0)._reshape((c,)), momentum)
        unbiased = var.mean(0).mul(count / (count - 1) if isinstance(count, float) else count.div(count.sub(1)))
        self._learn(running_var, unbiased._reshape((c,)), momentum)
        return self._scaled(y, self._per_channel(weight), self._per_channel(bias))

    def local_response_norm(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Self:
        """x / (k + alpha · mean of x² over `size` neighbouring channels)^beta (Krizhevsky et al. 2012)."""
        if self.ndim < 3 or size < 1:
            raise ValueError(f"local_response_norm: needs 3 axes and a size of at least 1, got {self.shape} and {size}")
        x = self._wide()
        around = [(size // 2, (size - 1) // 2) if a == 1 else (0, 0) for a in range(self.ndim)]
        mean = x.square().pad(around)._sliding(1, size).sum(-1).div(size)
        return x.div(mean.mul(alpha).add(k).pow(beta)).cast(self._floating().dtype)

    # -- parts --------------------------------------------------------------------------------------------------------
    def _wide(self) -> Self:
        x = self._floating()
        return x.cast(dtypes.float32) if x.dtype.bits < 32 else x

    def _standardized(self, axes: tuple[int, ...], eps: float) -> tuple[Self, Self, Self]:
        """Without mean and with variance 1 over axes; the mean and the (biased) variance, whose axes have size 1.

        Sums over axes that are not the last ones get memory: loops over the others are not the outermost, and each
        step would sum again."""
        last = axes == tuple(range(self.ndim - len(axes), self.ndim))

        def kept(x: Self) -> Self:
            return x if last else x.contiguous()

        def mean_of(x: Self) -> Self:
            return kept(x.mean(axes, keepdim=True))

        mean = mean_of(self)
        centred = self.sub(mean)
        var = centred.square().mean(axes, keepdim=True)
        scale = kept(var.add(eps).rsqrt())
        y = centred.mul(scale)

        def back(g: Self) -> list[Self]:
            return [g.sub(mean_of(g)).sub(y.mul(mean_of(g.mul(y)))).mul(scale)]

        return y._with_gradients([self], back), mean, var

    def _scaled(self, y: Self, weight: TensorCore | None, bias: TensorCore | None) -> Self:
        y = y if weight is None else y.mul(weight)
        return (y if bias is None else y.add(bias)).cast(self._floating().dtype)

    def _learn(self, running: TensorCore | None, now: Self, momentum: Any) -> None:
        if running is not None:
            old = self._new(running.uop)
            new = old.add(now.detach().sub(old).mul(momentum))
            running.assign(new.cast(running.dtype))
            realize_with_next(running)

    def _normalized(
        self, method: str, shape: int | Sequence[int], weight: TensorCore | None, bias: TensorCore | None
    ) -> int:
        sizes: tuple[Size, ...] = (shape,) if isinstance(shape, int) else tuple(shape)
        mine = self.shape[self.ndim - len(sizes) :]
        if not sizes or len(mine) != len(sizes) or not all(same(a, b) for a, b in zip(mine, sizes, strict=True)):
            raise ValueError(f"{method}: {self.shape} must end with normalized_shape {sizes}")
        for name, t in (("weight", weight), ("bias", bias)):
            if t is not None and tuple(t.shape) != sizes:
                raise ValueError(f"{method}: {name} {t.shape} must have the shape {sizes}")
        return len(sizes)

    def _channels(self, method: str, *of_channels: TensorCore | None) -> int:
        c = self.shape[1] if self.ndim > 1 else None
        if not isinstance(c, int):
            raise ValueError(f"{method}: needs (N, C, …) with a known number of channels, got {self.shape}")
        for t in of_channels:
            if t is not None and t.shape != (c,):
                raise ValueError(f"{method}: weight, bias and statistics must have shape ({c},), got {t.shape}")
        return c

    def _per_channel(self, t: TensorCore | None) -> Self | None:
        return None if t is None else self._new(t.uop)._reshape((self.shape[1], *(1,) * (self.ndim - 2)))

    # -- norms and distances ------------------------------------------------------------------------------------------
    def normalize(self, p: float = 2.0, axis: Any = 1, eps: float = 1e-12) -> Self:
        """x divided by its p-norm over axes (at least `eps`)."""
        x = self._floating()
        return x.div(x._norm(p, axis, True, "normalize").clamp(min=eps))

    def cosine_similarity(self, other: TensorCore, axis: int = 1, eps: float = 1e-8) -> Self:
        """The cosine of the angle between vectors along an axis; lengths count as at least `eps`."""
        if eps < 0:
            raise ValueError(f"cosine_similarity: eps must not be negative, got {eps}")
        a, b = (t._floating() for t in self._pair(other, "cosine_similarity"))
        axes = a._axes(axis, "cosine_similarity")
        unit, other_unit = (t.div(t._norm(2, axes, True, "cosine_similarity").clamp(min=eps)) for t in (a, b))
        return unit.mul(other_unit).sum(axes)

    def pairwise_distance(self, other: TensorCore, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Self:
        """The p-norm of self - other + eps over the last axis."""
        a, b = (t._floating() for t in self._pair(other, "pairwise_distance"))
        return a.sub(b).add(eps)._norm(p, -1, keepdim, "pairwise_distance")

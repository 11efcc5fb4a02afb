"""Layers that normalise. Those that keep statistics of batches learn them within `Tensor.train()`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Self

from tinyweb.array.activation import is_training
from tinyweb.array.core import realize_with_next
from tinyweb.dtype import DType, dtypes
from tinyweb.nn.parameters import constant, state
from tinyweb.tensor import Tensor


def _shape(normalized_shape: int | Sequence[int]) -> tuple[int, ...]:
    return (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)


class LayerNorm:
    """(x - mean) / sqrt(variance + eps) · weight + bias over the last axes, of `normalized_shape`."""

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float = 1e-5, elementwise_affine: bool = True,
        bias: bool = True, *, device: str | None = None, dtype: DType = dtypes.float32,
    ):  # fmt: skip
        self.normalized_shape, self.eps = _shape(normalized_shape), eps
        self.weight = constant(self.normalized_shape, 1, device, dtype) if elementwise_affine else None
        self.bias = constant(self.normalized_shape, 0, device, dtype) if elementwise_affine and bias else None

    def __call__(self, x: Tensor) -> Tensor:
        return x.layer_norm(self.normalized_shape, self.weight, self.bias, self.eps)


class LayerNorm2d(LayerNorm):
    """LayerNorm over the channels of (N, C, H, W)."""

    def __call__(self, x: Tensor) -> Tensor:
        return super().__call__(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class RMSNorm:
    """x / sqrt(mean(x²) + eps) · weight over the last axes, of `normalized_shape` (Zhang and Sennrich 2019)."""

    weight: Tensor | None

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float | None = None, elementwise_affine: bool = True, *,
        device: str | None = None, dtype: DType = dtypes.float32,
    ):  # fmt: skip
        self.normalized_shape, self.eps = _shape(normalized_shape), eps
        self.weight = constant(self.normalized_shape, 1, device, dtype) if elementwise_affine else None

    @classmethod
    def of(cls, weight: Tensor, eps: float) -> Self:
        """The layer of a given weight."""
        layer = cls.__new__(cls)
        layer.normalized_shape = tuple(s for s in weight.shape if isinstance(s, int))
        layer.weight, layer.eps = weight, eps
        return layer

    def __call__(self, x: Tensor) -> Tensor:
        return x.rms_norm(self.normalized_shape, self.weight, self.eps)

    def tensors(self) -> dict[str, Tensor]:
        """The memory of this layer, by name."""
        return {} if self.weight is None else {"weight": self.weight}


class GroupNorm:
    """LayerNorm over `num_groups` groups of the channels of (N, C, …) (Wu and He 2018)."""

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, *,
        device: str | None = None, dtype: DType = dtypes.float32,
    ):  # fmt: skip
        if num_groups < 1 or num_channels % num_groups:
            raise ValueError(f"GroupNorm: {num_channels} channels do not divide into {num_groups} groups")
        self.num_groups, self.eps = num_groups, eps
        self.weight = constant((num_channels,), 1, device, dtype) if affine else None
        self.bias = constant((num_channels,), 0, device, dtype) if affine else None

    def __call__(self, x: Tensor) -> Tensor:
        return x.group_norm(self.num_groups, self.weight, self.bias, self.eps)


class _Statistics:
    """Weights and running statistics of channels. `momentum` None: the mean of all batches so far."""

    axes: ClassVar[tuple[int, ...]] = ()  # how many axes the input may have; () for any

    def __init__(
        self, num_features: int, eps: float, momentum: float | None, affine: bool, track_running_stats: bool,
        device: str | None, dtype: DType,
    ):  # fmt: skip
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.weight = constant((num_features,), 1, device, dtype) if affine else None
        self.bias = constant((num_features,), 0, device, dtype) if affine else None
        tracks = track_running_stats
        self.running_mean = state(0, device, num_features) if tracks else None
        self.running_var = state(1, device, num_features) if tracks else None
        self.num_batches_tracked = state(0, device, dtype=dtypes.int32) if tracks else None

    def _check(self, x: Tensor) -> None:
        if self.axes and x.ndim not in self.axes:
            expected = " or ".join(map(str, self.axes))
            raise ValueError(f"{type(self).__name__}: needs {expected} axes, got {x.shape}")


class BatchNorm(_Statistics):
    """(x - mean) / sqrt(variance + eps) · weight + bias for each channel of (N, C, …) (Ioffe and Szegedy 2015).

    While training by the statistics of the batch, towards which `running_mean` and `running_var` move by `momentum`;
    otherwise by those two. Without `track_running_stats` always by those of the batch.
    """

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
        track_running_stats: bool = True, *, device: str | None = None, dtype: DType = dtypes.float32,
    ):  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype)

    def __call__(self, x: Tensor) -> Tensor:
        self._check(x)
        training = is_training(None)
        share = self._share() if training else 0.0
        return x.batch_norm(
            self.running_mean, self.running_var, self.weight, self.bias, training or self.running_mean is None, share,
            self.eps,
        )  # fmt: skip

    def _share(self) -> float | Tensor:
        """How far the statistics move towards those of the batch that is being counted."""
        if self.num_batches_tracked is None:
            return 0.0
        self.num_batches_tracked.assign(self.num_batches_tracked + 1)
        realize_with_next(self.num_batches_tracked)
        return 1 / self.num_batches_tracked if self.momentum is None else self.momentum


class BatchNorm1d(BatchNorm):
    """BatchNorm of (N, C) or (N, C, L)."""

    axes = (2, 3)


class BatchNorm2d(BatchNorm):
    """BatchNorm of (N, C, H, W)."""

    axes = (4,)


class BatchNorm3d(BatchNorm):
    """BatchNorm of (N, C, D, H, W)."""

    axes = (5,)


class InstanceNorm(_Statistics):
    """BatchNorm for each element of the batch on its own (Ulyanov et al. 2016): always by its own statistics, unless
    `track_running_stats`. A missing batch axis is put in."""

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = False,
        track_running_stats: bool = False, *, device: str | None = None, dtype: DType = dtypes.float32,
    ):  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype)

    def __call__(self, x: Tensor) -> Tensor:
        self._check(x)
        if self.axes and x.ndim == self.axes[0]:
            return self(x.unsqueeze(0)).squeeze(0)
        share, training = self.momentum or 0.0, is_training(None)
        own = training or self.running_mean is None
        return x.instance_norm(self.running_mean, self.running_var, self.weight, self.bias, own, share, self.eps)


class InstanceNorm1d(InstanceNorm):
    """InstanceNorm of (N, C, L) or (C, L)."""

    axes = (2, 3)


class InstanceNorm2d(InstanceNorm):
    """InstanceNorm of (N, C, H, W) or (C, H, W)."""

    axes = (3, 4)


class InstanceNorm3d(InstanceNorm):
    """InstanceNorm of (N, C, D, H, W) or (C, D, H, W)."""

    axes = (4, 5)


class LocalResponseNorm:
    """x / (k + alpha · mean of x² over `size` neighbouring channels)^beta (Krizhevsky et al. 2012)."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0):
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def __call__(self, x: Tensor) -> Tensor:
        return x.local_response_norm(self.size, self.alpha, self.beta, self.k)

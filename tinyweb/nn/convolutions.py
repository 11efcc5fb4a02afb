"""Convolution layers, with PyTorch's arguments, names and initial weights."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self

from tinyweb.dtype import DType, dtypes
from tinyweb.nn.parameters import sizes_of, uniform
from tinyweb.tensor import Tensor

PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class _Convolution:
    """What convolutions share: the numbers, and weights within ± 1 / sqrt(weights per output)."""

    n: ClassVar[int]

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any, dilation: Any, groups: int,
        bias: bool, transposed: bool, device: str | None, dtype: DType,
    ):  # fmt: skip
        name = type(self).__name__
        self.kernel_size = sizes_of(kernel_size, self.n, name, "kernel_size")
        self.stride, self.dilation, self.groups = stride, dilation, groups
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ValueError(f"{name}: {in_channels} and {out_channels} channels do not divide into {groups} groups")
        outer, inner = (in_channels, out_channels) if transposed else (out_channels, in_channels)
        shape = (outer, inner // groups, *self.kernel_size)
        bound = 1 / math.sqrt(max(math.prod(shape[1:]), 1))
        self.weight = uniform(shape, bound, device, dtype)
        self.bias = uniform((out_channels,), bound, device, dtype) if bias else None


class _Forward(_Convolution):
    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0,
        dilation: Any = 1, groups: int = 1, bias: bool = True, padding_mode: str = "zeros", *,
        device: str | None = None, dtype: DType = dtypes.float32,
    ):  # fmt: skip
        super().__init__(
            in_channels, out_channels, kernel_size, stride, dilation, groups, bias, False, device, dtype
        )  # fmt: skip
        if padding_mode not in PADDING_MODES:
            raise ValueError(
                f"{type(self).__name__}: padding_mode must be one of {', '.join(PADDING_MODES)}, got {padding_mode!r}"
            )
        self.padding, self.padding_mode = padding, padding_mode

    @classmethod
    def of(
        cls, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
        groups: int = 1,
    ) -> Self:  # fmt: skip
        """The layer of given weights."""
        layer = cls.__new__(cls)
        layer.weight, layer.bias = weight, bias
        layer.kernel_size = sizes_of(weight.shape[2:], cls.n, cls.__name__, "kernel_size")
        layer.stride, layer.padding, layer.dilation, layer.groups = stride, padding, dilation, groups
        layer.padding_mode = "zeros"
        return layer

    def __call__(self, x: Tensor) -> Tensor:
        padding: Any = self.padding
        if self.padding_mode != "zeros":
            apart = sizes_of(self.dilation, self.n, type(self).__name__, "dilation")
            if padding == "same":
                reach = [(k - 1) * d for k, d in zip(self.kernel_size, apart, strict=True)]
                pairs = [(r // 2, r - r // 2) for r in reach]
            else:
                given = 0 if padding == "valid" else padding
                pairs = [(p, p) for p in sizes_of(given, self.n, type(self).__name__, "padding")]
            x = x.pad([*((0, 0),) * (x.ndim - self.n), *pairs], mode=self.padding_mode)
            padding = 0
        y: Tensor = getattr(x, f"conv{self.n}d")(
            self.weight, self.bias, self.stride, padding, self.dilation, self.groups
        )  # fmt: skip
        return y


class Conv1d(_Forward):
    """Cross-correlation of (N, C, L) with `weight` (out, in / groups, K), plus `bias` (out,)."""

    n = 1


class Conv2d(_Forward):
    """Cross-correlation of (N, C, H, W) with `weight` (out, in / groups, K, L), plus `bias` (out,)."""

    n = 2


class Conv3d(_Forward):
    """Cross-correlation of (N, C, D, H, W) with `weight` (out, in / groups, K, L, M), plus `bias` (out,)."""

    n = 3


class _Transposed(_Convolution):
    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0,
        output_padding: Any = 0, groups: int = 1, bias: bool = True, dilation: Any = 1, *,
        device: str | None = None, dtype: DType = dtypes.float32,
    ):  # fmt: skip
        super().__init__(in_channels, out_channels, kernel_size, stride, dilation, groups, bias, True, device, dtype)
        self.padding, self.output_padding = padding, output_padding

    def __call__(self, x: Tensor) -> Tensor:
        y: Tensor = getattr(x, f"conv_transpose{self.n}d")(
            self.weight, self.bias, self.stride, self.padding, self.output_padding, self.groups, self.dilation
        )
        return y


class ConvTranspose1d(_Transposed):
    """The transpose of Conv1d; `weight` is (in, out / groups, K)."""

    n = 1


class ConvTranspose2d(_Transposed):
    """The transpose of Conv2d; `weight` is (in, out / groups, K, L)."""

    n = 2


class ConvTranspose3d(_Transposed):
    """The transpose of Conv3d; `weight` is (in, out / groups, K, L, M)."""

    n = 3

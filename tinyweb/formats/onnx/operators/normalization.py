"""Normalisations."""

from __future__ import annotations

from typing import Any

from tinyweb.formats.onnx.call import Call
from tinyweb.formats.onnx.operators.common import cast, fixed, whole_axis, wide
from tinyweb.formats.onnx.registry import op
from tinyweb.tensor import Tensor


def per_channel(x: Tensor, like: Tensor) -> Tensor:
    """A number for each channel, beside (N, C, …)."""
    return x.reshape(-1, *(1,) * (like.ndim - 2)) if like.ndim > 1 else x


@op("BatchNormalization")
def batch_normalization(call: Call, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor) -> Any:
    eps = call.real("epsilon", 1e-5)
    if call.integer("training_mode", 0):
        momentum = call.real("momentum", 0.9)
        axes = tuple(i for i in range(x.ndim) if i != 1)
        y = wide(x)
        here = y.mean(axes)
        spread = (y - per_channel(here, x)).square().mean(axes)
        new = cast(mean * momentum + here * (1 - momentum), mean.dtype)
        moved = cast(variance * momentum + spread * (1 - momentum), variance.dtype)
        return _normal(x, scale, bias, here, spread, eps), new, moved
    return _normal(x, scale, bias, mean, variance, eps)


def _normal(x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, eps: float) -> Tensor:
    factor = wide(scale) * (wide(variance) + eps).rsqrt()
    shift = wide(bias) - wide(mean) * factor
    return cast(wide(x) * per_channel(factor, x) + per_channel(shift, x), x.dtype)


@op("InstanceNormalization")
def instance_normalization(call: Call, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    y = _standard(wide(x), tuple(range(2, x.ndim)), call.real("epsilon", 1e-5))
    return cast(y * per_channel(scale, x) + per_channel(bias, x), x.dtype)


def _standard(x: Tensor, axes: tuple[int, ...], eps: float) -> Tensor:
    centred = x - x.mean(axes, True)
    return centred * (centred.square().mean(axes, True) + eps).rsqrt()


@op("LayerNormalization")
def layer_normalization(call: Call, x: Tensor, scale: Tensor, bias: Tensor | None = None) -> Any:
    axis = whole_axis(call, call.integer("axis", -1), x.ndim)
    axes = tuple(range(axis, x.ndim))
    y = wide(x)
    mean = y.mean(axes, True)
    centred = y - mean
    inverse = (centred.square().mean(axes, True) + call.real("epsilon", 1e-5)).rsqrt()
    normal = cast(centred * inverse, x.dtype) * scale
    return cast(normal if bias is None else normal + bias, x.dtype), mean, inverse


@op("RMSNormalization")
def rms_normalization(call: Call, x: Tensor, scale: Tensor) -> Tensor:
    axis = whole_axis(call, call.integer("axis", -1), x.ndim)
    y = wide(x)
    inverse = (y.square().mean(tuple(range(axis, x.ndim)), True) + call.real("epsilon", 1e-5)).rsqrt()
    return cast(cast(y * inverse, x.dtype) * scale, x.dtype)


@op("GroupNormalization")
def group_normalization(call: Call, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    groups = call.integer("num_groups")
    y = normal_groups(call, x, groups)
    if call.version < 21:  # a number for each group
        scale, bias = (t.unsqueeze(1).expand(groups, fixed(x.shape[1]) // groups).reshape(-1) for t in (scale, bias))
    return cast(y * per_channel(scale, x) + per_channel(bias, x), x.dtype)


def normal_groups(call: Call, x: Tensor, groups: int) -> Tensor:
    """x (N, C, n…) with the mean 0 and the variance 1 in each group of channels, float32."""
    channels = fixed(x.shape[1])
    if groups < 1 or channels % groups:
        raise call.error(f"{channels} channels are not {groups} groups")
    y = wide(x).reshape(x.shape[0], groups, channels // groups, *x.shape[2:])
    return _standard(y, tuple(range(2, y.ndim)), call.real("epsilon", 1e-5)).reshape(*x.shape)


@op("LRN")
def lrn(call: Call, x: Tensor) -> Tensor:
    size, bias = call.integer("size"), call.real("bias", 1.0)
    alpha, beta = call.real("alpha", 1e-4), call.real("beta", 0.75)
    squares = wide(x).square().pad([(0, 0), ((size - 1) // 2, size // 2), *[(0, 0)] * (x.ndim - 2)])
    near = squares.unfold(1, size, 1).sum(-1)
    return cast(wide(x) / (near * (alpha / size) + bias).pow(beta), x.dtype)


@op("MeanVarianceNormalization")
def mean_variance_normalization(call: Call, x: Tensor) -> Tensor:
    axes = tuple(call.integers("axes", [0, 2, 3]))
    y = wide(x)
    centred = y - y.mean(axes, True)
    return cast(centred / (centred.square().mean(axes, True).sqrt() + 1e-9), x.dtype)


@op("LpNormalization")
def lp_normalization(call: Call, x: Tensor) -> Tensor:
    axis, p = whole_axis(call, call.integer("axis", -1), x.ndim), call.integer("p", 2)
    y = wide(x)
    size = y.abs().sum(axis, True) if p == 1 else y.square().sum(axis, True).sqrt()
    return cast(size.eq(0).where(0.0, y / size), x.dtype)


@op("SimplifiedLayerNormalization")
@op("SimplifiedLayerNormalization", domain="com.microsoft")
def simplified_layer_normalization(call: Call, x: Tensor, scale: Tensor) -> Any:
    axis = whole_axis(call, call.integer("axis", -1), x.ndim)
    y = wide(x)
    inverse = (y.square().mean(tuple(range(axis, x.ndim)), True) + call.real("epsilon", 1e-5)).rsqrt()
    return cast(cast(y * inverse, scale.dtype) * scale, x.dtype), inverse


@op("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain="com.microsoft")
def skip_layer_normalization(
    call: Call, x: Tensor, skip: Tensor, gamma: Tensor, beta: Tensor | None = None, bias: Tensor | None = None
) -> Any:
    if call.op == "SkipSimplifiedLayerNormalization":
        beta, bias = None, beta
    y = wide(x) + wide(skip)
    y = y if bias is None else y + bias
    centred = y if call.op == "SkipSimplifiedLayerNormalization" else y - y.mean(-1, True)
    inverse = (centred.square().mean(-1, True) + call.real("epsilon", 1e-12)).rsqrt()
    normal = centred * inverse * gamma
    return cast(normal if beta is None else normal + beta, x.dtype), None, None, cast(y, x.dtype)

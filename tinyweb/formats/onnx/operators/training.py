"""Optimiser steps of the domain ai.onnx.preview.training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinyweb.formats.onnx.call import Call
from tinyweb.formats.onnx.registry import op
from tinyweb.tensor import Tensor

DOMAIN = "ai.onnx.preview.training"


def _groups(
    call: Call, tensors: tuple[Tensor, ...], kinds: int, step: Callable[..., tuple[Tensor, ...]]
) -> tuple[Any, ...]:
    """The inputs are all parameters, then all gradients, and so on; the outputs likewise, without gradients."""
    if len(tensors) % kinds:
        raise call.error(f"{len(tensors)} tensors are not {kinds} for each parameter")
    count = len(tensors) // kinds
    made = [step(*tensors[i::count]) for i in range(count)]
    return tuple(row[k] for k in range(kinds - 1) for row in made)


@op("Adagrad", domain=DOMAIN)
def adagrad(call: Call, rate: Tensor, count: Tensor, *tensors: Tensor) -> Any:
    r = rate / (count.cast(rate.dtype) * call.real("decay_factor", 0.0) + 1)
    decay, eps = call.real("norm_coefficient", 0.0), call.real("epsilon", 0.0)

    def step(x: Tensor, g: Tensor, h: Tensor) -> tuple[Tensor, ...]:
        g = g + x * decay
        h = h + g * g
        return x - r * g / (h.sqrt() + eps), h

    return _groups(call, tensors, 3, step)


@op("Adam", domain=DOMAIN)
def adam(call: Call, rate: Tensor, count: Tensor, *tensors: Tensor) -> Any:
    a, b, eps = call.real("alpha", 0.9), call.real("beta", 0.999), call.real("epsilon", 0.0)
    decay, after = call.real("norm_coefficient", 0.0), call.real("norm_coefficient_post", 0.0)
    t = count.cast(rate.dtype)
    corrected = rate * (1 - Tensor(b, device=rate.device).pow(t)).sqrt() / (1 - Tensor(a, device=rate.device).pow(t))
    r = (count > 0).where(corrected, rate)

    def step(x: Tensor, g: Tensor, v: Tensor, h: Tensor) -> tuple[Tensor, ...]:
        g = g + x * decay
        v, h = v * a + g * (1 - a), h * b + g * g * (1 - b)
        return (x - r * v / (h.sqrt() + eps)) * (1 - after), v, h

    return _groups(call, tensors, 4, step)


@op("Momentum", domain=DOMAIN)
def momentum(call: Call, rate: Tensor, count: Tensor, *tensors: Tensor) -> Any:
    a, b, decay = call.real("alpha"), call.real("beta"), call.real("norm_coefficient")
    nesterov = call.choice("mode", "standard", ("standard", "nesterov")) == "nesterov"
    factor = (count > 0).where(b, 1.0)

    def step(x: Tensor, g: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        g = g + x * decay
        v = v * a + g * factor
        return x - rate * (g + v * a if nesterov else v), v

    return _groups(call, tensors, 3, step)

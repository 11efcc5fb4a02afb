"""Losses."""

from __future__ import annotations

from typing import Any

from tinyweb.dtype import dtypes
from tinyweb.formats.onnx.call import Call
from tinyweb.formats.onnx.operators.common import cast, fixed, wide
from tinyweb.formats.onnx.registry import op
from tinyweb.tensor import Tensor


def _picked(call: Call, log_p: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    """The loss of each target: (N, …)."""
    ignored = call.integer("ignore_index", None)
    classes = fixed(log_p.shape[1])
    at = target.cast(dtypes.int32)
    gone = None if ignored is None else at.eq(ignored)
    safe = at.clamp(0, classes - 1) if gone is None else gone.where(0, at)
    loss = -log_p.gather(1, safe.unsqueeze(1)).squeeze(1)
    factor = None if weight is None else weight.take(safe, 0)
    if gone is not None:
        factor = gone.where(0.0, Tensor.ones(*at.shape, device=at.device) if factor is None else factor)
    if factor is not None:
        loss = loss * factor
    how = call.choice("reduction", "mean", ("none", "sum", "mean"))
    if how == "none":
        return loss
    if how == "sum":
        return loss.sum()
    return loss.mean() if factor is None else loss.sum() / factor.sum()


@op("NegativeLogLikelihoodLoss")
def negative_log_likelihood(call: Call, x: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
    return cast(_picked(call, wide(x), target, weight), x.dtype)


@op("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(call: Call, x: Tensor, target: Tensor, weight: Tensor | None = None) -> Any:
    log_p = wide(x).log_softmax(1)
    return cast(_picked(call, log_p, target, weight), x.dtype), cast(log_p, x.dtype)

"""Norms of hidden states, of queries and of keys."""

from __future__ import annotations

from tinyweb.models.decoder.config import NormConfig
from tinyweb.tensor import Tensor


class Norm:
    """A norm over the last axes, of sizes `over`. `weight` and `bias` have these sizes, or more axes before them."""

    def __init__(self, config: NormConfig, over: tuple[int, ...], weight: Tensor | None, bias: Tensor | None):
        self.config, self.over, self.weight, self.bias = config, over, weight, bias

    def __call__(self, x: Tensor) -> Tensor:
        eps = self.config.eps
        plain = x.rms_norm(self.over, None, eps) if self.config.kind == "rms" else x.layer_norm(self.over, eps=eps)
        scaled = plain if self.weight is None else plain * self.weight
        return scaled if self.bias is None else scaled + self.bias

    def tensors(self) -> dict[str, Tensor]:
        """The memory of this norm, by name."""
        found = {"weight": self.weight, "bias": self.bias}
        return {name: t for name, t in found.items() if t is not None}

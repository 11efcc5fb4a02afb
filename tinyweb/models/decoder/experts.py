"""A mixture of experts: of many MLPs each token goes through a few (Shazeer et al. 2017)."""

from __future__ import annotations

import math

from tinyweb.models.decoder.config import ExpertsConfig
from tinyweb.models.decoder.loader import Loader
from tinyweb.models.decoder.mlp import Mlp, gated
from tinyweb.nn.layers import Linear
from tinyweb.nn.stack import Stack
from tinyweb.tensor import Tensor


class Experts:
    """Experts with a router, and perhaps an MLP that all tokens go through.

    A token reads the weights of its own experts only, in decode as in prefill: the arithmetic is what these need, and
    each token of a prompt reads them anew.
    """

    def __init__(self, config: ExpertsConfig, load: Loader, layer: str):
        c, names, hidden = config, load.names, load.config.hidden_size
        self.config = config
        self.router = load.router(layer + names.router, c)
        gate_up = load.experts(layer, names.experts_gate_up, [c.mlp.width, c.mlp.width], hidden, c)
        self.gate, self.up = (Stack(weight, c.mlp.width, bias) for weight, bias in gate_up)
        ((weight, bias),) = load.experts(layer, (names.experts_down,), [hidden], c.mlp.width, c)
        self.down = Stack(weight, hidden, bias)
        self.choice_bias = load.vector(layer + names.choice_bias, c.count) if c.choice_bias else None
        self.shared: Mlp | None = None
        self.shared_expert_gate: Linear | None = None
        if c.shared is not None:
            self.shared = Mlp(c.shared, load, layer, names.shared_gate_up, names.shared_down)
            if c.shared_gate:
                (self.shared_expert_gate,) = load.linears(layer, (names.shared_gate,), [1], hidden, False)

    def __call__(self, h: Tensor, activations: str) -> Tensor:
        """Of h (batch, tokens, hidden); the same shape."""
        c = self.config
        x = h.reshape(-1, h.shape[-1])
        weights, chosen = self._choose(self.router(x))
        x, weights = x.unsqueeze(1), weights.unsqueeze(-1)
        if c.weighted_inputs:
            x = x * weights
        mixed = self.down(gated(c.mlp, self.gate(x, chosen), self.up(x, chosen)), chosen)
        y = (mixed if c.weighted_inputs else mixed * weights).sum(1).reshape(*h.shape)
        if self.shared is None:
            return y
        always = self.shared(h, activations)
        gate = self.shared_expert_gate
        return y + (always if gate is None else always * gate(h).sigmoid())

    def _choose(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Weights and numbers of the chosen experts, (tokens, chosen), of what the router says (tokens, experts)."""
        c = self.config
        if c.scores == "sigmoid":
            scores = scores.sigmoid()
        elif not c.normalised:
            scores = scores.softmax(-1)
        choice = scores if self.choice_bias is None else scores + self.choice_bias
        if c.groups > 1:
            choice = self._within_groups(choice)
        weights, chosen = choice.topk(c.chosen)
        if choice is not scores:
            weights = scores.gather(-1, chosen)
        if c.normalised:  # the softmax of the chosen is that of all, divided by its sum
            weights = weights.softmax(-1) if c.scores == "softmax" else weights / weights.sum(-1, keepdim=True)
        return (weights if c.scale == 1 else weights * c.scale), chosen

    def _within_groups(self, choice: Tensor) -> Tensor:
        """Scores (tokens, experts) without those of the groups that are left out."""
        c = self.config
        grouped = choice.reshape(choice.shape[0], c.groups, c.count // c.groups)
        _, kept = grouped.topk(c.group_best)[0].sum(-1).topk(c.groups_chosen)
        inside = (kept.unsqueeze(-1) == Tensor.arange(c.groups, device=choice.device)).any(1)
        return inside.unsqueeze(-1).where(grouped, -math.inf).reshape(*choice.shape)

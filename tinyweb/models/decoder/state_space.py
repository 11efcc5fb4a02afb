"""Mamba-2 in place of attention (Dao and Gu 2024, arXiv 2405.21060): a state of fixed size, whatever the text's length.

Of a head's state h, (width, size), each token makes exp(Δ·a) · h + Δ · x ⊗ b, and reads c · h of it. Several tokens are
read at once as section 6 of the paper has it: what they give each other is a product of matrices, as in attention, with
decays in place of a softmax; what came before them is in the state.
"""

from __future__ import annotations

import math

from tinyweb.graph.ir import Size
from tinyweb.models.decoder.config import StateSpaceConfig
from tinyweb.models.decoder.loader import Loader
from tinyweb.models.decoder.mlp import ACTIVATIONS
from tinyweb.models.decoder.state import State, shifted
from tinyweb.tensor import Tensor

CHUNK = 256  # tokens that are read at once


class StateSpace:
    """The mixer of one layer. Its state: `conv` (batch, taps - 1, channels), what went into the convolution last, and
    `sums` (batch, heads, width, size), both float32."""

    cache_name = "state"

    def __init__(self, config: StateSpaceConfig, load: Loader, layer: str):
        c, hidden = config, load.config.hidden_size
        name = layer + load.names.state_space
        self.config, self.inner = c, c.heads * c.width
        self.channels = self.inner + 2 * c.groups * c.size
        rows = self.inner + self.channels + c.heads
        (self.input,) = load.linears(name, ("in_proj",), [rows], hidden, c.bias)
        self.taps = load.taps(name + "conv1d", c.taps, self.channels)
        self.taps_bias = load.vector(name + "conv1d.bias", self.channels) if c.conv_bias else None
        self.step_bias, self.rate, self.skip = (load.vector(name + n, c.heads) for n in ("dt_bias", "A_log", "D"))
        self.gate_norm = load.norm(name + "norm", c.norm, self.inner) if c.norm is not None else None
        (self.output,) = load.linears(name, ("out_proj",), [hidden], self.inner, c.bias)

    def state_shapes(self, batch: int) -> dict[str, tuple[int, ...]]:
        c = self.config
        return {"conv": (batch, c.taps - 1, self.channels), "sums": (batch, c.heads, c.width, c.size)}

    def __call__(self, h: Tensor, start: Size, count: Size, state: State, activations: str) -> Tensor:
        """Of h (batch, tokens, hidden) at positions start, start + 1, …; the same shape.

        The first `count` tokens go into the state, which must be that of all positions before `start`.
        """
        c = self.config
        batch, tokens = h.shape[:2]
        assert isinstance(batch, int) and isinstance(tokens, int)
        parts = self.input(h, activations)
        gate = parts[..., : self.inner]
        mixed, state["conv"] = shifted(
            parts[..., self.inner : self.inner + self.channels], self.taps, state.before("conv", start), count
        )
        mixed = ACTIVATIONS[c.activation](mixed if self.taps_bias is None else mixed + self.taps_bias)
        step = (parts[..., self.inner + self.channels :] + self.step_bias).softplus()
        step = step.clamp(c.least_step, None if math.isinf(c.largest_step) else c.largest_step)
        if not isinstance(count, int):  # a step of 0 changes nothing
            inside = Tensor.arange(tokens, device=h.device) < Tensor(count, device=h.device)
            step = inside.unsqueeze(-1).where(step, 0.0)
        x = mixed[..., : self.inner].reshape(batch, tokens, c.groups, c.heads // c.groups, c.width)
        b, d = (
            mixed[..., at : at + c.groups * c.size].reshape(batch, tokens, c.groups, c.size)
            for at in (self.inner, self.inner + c.groups * c.size)
        )
        y = self._read(x, step, b, d, start, state) + x * self.skip.reshape(c.groups, -1, 1)
        y = y.reshape(batch, tokens, self.inner)
        return self.output(self._gated(y, gate), activations)

    def _read(self, x: Tensor, step: Tensor, b: Tensor, c: Tensor, start: Size, state: State) -> Tensor:
        """What all tokens read, (batch, tokens, groups, heads of a group, width), chunk by chunk."""
        batch, tokens, groups, heads, width = x.shape
        assert isinstance(tokens, int) and isinstance(groups, int) and isinstance(heads, int)
        sums = state.before("sums", start).reshape(batch, groups, heads, width, self.config.size)
        decay = step * -self.rate.exp()
        step, decay = (t.reshape(batch, tokens, groups, heads).permute(0, 2, 3, 1) for t in (step, decay))
        x, b, c = x.permute(0, 2, 3, 1, 4), b.transpose(1, 2).unsqueeze(2), c.transpose(1, 2).unsqueeze(2)
        read = []
        for at in range(0, tokens, CHUNK):
            part = slice(at, min(at + CHUNK, tokens))
            y, sums = chunk(x[..., part, :], step[..., part], decay[..., part], b[..., part, :], c[..., part, :], sums)
            read.append(y)
        state["sums"] = sums.reshape(batch, groups * heads, width, self.config.size)
        return (read[0] if len(read) == 1 else read[0].cat(*read[1:], axis=-2)).permute(0, 3, 1, 2, 4)

    def _gated(self, y: Tensor, gate: Tensor) -> Tensor:
        """The norm, over the channels of each group, of y (batch, tokens, inner) times the SiLU of the gate."""
        y = y * gate.silu()
        norm = self.gate_norm
        if norm is None:
            return y
        wide = self.inner // self.config.norm_groups
        grouped = y.reshape(*y.shape[:2], -1, wide).rms_norm((wide,), None, norm.config.eps)
        grouped = grouped.reshape(*y.shape)
        return grouped if norm.weight is None else grouped * norm.weight


def chunk(x: Tensor, step: Tensor, decay: Tensor, b: Tensor, c: Tensor, sums: Tensor) -> tuple[Tensor, Tensor]:
    """What tokens read, and the state behind them.

    x: (…, heads, tokens, width). step, decay: (…, heads, tokens), decay being the logarithm of what is left of the
    state. b, c: (…, 1, tokens, size). sums: (…, heads, width, size).
    """
    tokens = x.shape[-2]
    if tokens == 1:
        kept, put = decay.exp().unsqueeze(-1), (x * step.unsqueeze(-1)).transpose(-1, -2)
        sums = sums * kept + put * b
        return (sums * c).sum(-1).unsqueeze(-2), sums
    total = decay.cumsum(-1)
    between = total.unsqueeze(-1) - total.unsqueeze(-2)
    weights = (between.exp() * step.unsqueeze(-2) * (c @ b.transpose(-1, -2))).tril()
    read = weights @ x + total.exp().unsqueeze(-1) * (c @ sums.transpose(-1, -2))
    last = total[..., -1:]
    left = (step * (last - total).exp()).unsqueeze(-1)
    return read, sums * last.exp().unsqueeze(-1) + (x * left).transpose(-1, -2) @ b

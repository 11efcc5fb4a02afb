"""Mamba's selective state in place of attention (Gu and Dao 2023, arXiv 2312.00752): of fixed size, whatever the text's
length.

Of a channel's state h, `size` numbers, each token makes exp(Δ·a) · h + Δ · x · b, and reads c · h of it; Δ, b and c are
made of the token, Δ for each channel, and a is the channel's own. Decays differ within a channel, unlike Mamba-2's:
what tokens of a chunk give each other is a sum over pairs of them.
"""

from __future__ import annotations

from itertools import pairwise

from tinyweb.graph.ir import Size
from tinyweb.models.decoder.config import SelectiveConfig
from tinyweb.models.decoder.loader import Loader
from tinyweb.models.decoder.mlp import ACTIVATIONS
from tinyweb.models.decoder.state import State, shifted
from tinyweb.tensor import Tensor

CHUNK = 16  # tokens that are read at once


class Selective:
    """The mixer of one layer. Its state: `conv` (batch, taps - 1, channels), what went into the convolution last, and
    `sums` (batch, channels, size), both float32."""

    cache_name = "state"

    def __init__(self, config: SelectiveConfig, load: Loader, layer: str):
        c, hidden = config, load.config.hidden_size
        name = layer + load.names.state_space
        self.config = c
        (self.input,) = load.linears(name, ("in_proj",), [2 * c.channels], hidden, c.bias)
        self.taps = load.taps(name + "conv1d", c.taps, c.channels)
        self.taps_bias = load.vector(name + "conv1d.bias", c.channels) if c.conv_bias else None
        (self.selection,) = load.linears(name, ("x_proj",), [c.rank + 2 * c.size], c.channels, False)
        (self.step,) = load.linears(name, ("dt_proj",), [c.channels], c.rank, True)
        self.rate = load.matrix_as_is(name + "A_log", (c.channels, c.size))
        self.skip = load.vector(name + "D", c.channels)
        (self.output,) = load.linears(name, ("out_proj",), [hidden], c.channels, c.bias)

    def state_shapes(self, batch: int) -> dict[str, tuple[int, ...]]:
        c = self.config
        return {"conv": (batch, c.taps - 1, c.channels), "sums": (batch, c.channels, c.size)}

    def __call__(self, h: Tensor, start: Size, count: Size, state: State, activations: str) -> Tensor:
        """Of h (batch, tokens, hidden) at positions start, start + 1, …; the same shape.

        The first `count` tokens go into the state, which must be that of all positions before `start`.
        """
        c, tokens = self.config, h.shape[1]
        assert isinstance(tokens, int)
        parts = self.input(h, activations)
        x, state["conv"] = shifted(parts[..., : c.channels], self.taps, state.before("conv", start), count)
        x = ACTIVATIONS[c.activation](x if self.taps_bias is None else x + self.taps_bias)
        selected = self.selection(x, activations)
        ends = (0, c.rank, c.rank + c.size, c.rank + 2 * c.size)
        step, put, taken = (self._normed(selected[..., a:b], b - a) for a, b in pairwise(ends))
        step = self.step(step, activations).softplus()
        if not isinstance(count, int):  # a step of 0 changes nothing
            inside = Tensor.arange(tokens, device=h.device) < Tensor(count, device=h.device)
            step = inside.unsqueeze(-1).where(step, 0.0)
        y = self._read(x, step, put, taken, start, state) + x * self.skip
        return self.output(y * parts[..., c.channels :].silu(), activations)

    def _normed(self, x: Tensor, width: int) -> Tensor:
        norm = self.config.norm
        return x if norm is None else x.rms_norm((width,), None, norm.eps)

    def _read(self, x: Tensor, step: Tensor, put: Tensor, taken: Tensor, start: Size, state: State) -> Tensor:
        """What all tokens read, (batch, tokens, channels), chunk by chunk."""
        tokens, sums, rate = x.shape[1], state.before("sums", start), -self.rate.exp()
        assert isinstance(tokens, int)
        if tokens > 1:
            x, step = x.contiguous(), step.contiguous()  # in memory what pairs of tokens read again and again
        read = []
        for at in range(0, tokens, CHUNK):
            part = (slice(None), slice(at, min(at + CHUNK, tokens)))
            y, sums = chunk(x[part], step[part], put[part], taken[part], rate, sums)
            read.append(y if tokens <= CHUNK else y.contiguous())  # sums are not made for what other chunks have
        state["sums"] = sums
        return read[0] if len(read) == 1 else read[0].cat(*read[1:], axis=1)


def chunk(x: Tensor, step: Tensor, put: Tensor, taken: Tensor, rate: Tensor, sums: Tensor) -> tuple[Tensor, Tensor]:
    """What tokens read, and the state behind them.

    x, step: (batch, tokens, channels). put, taken: (batch, tokens, size), what is written to the state and read of it.
    rate: (channels, size), below 0. sums: (batch, channels, size).
    """
    tokens, given = x.shape[1], x * step
    assert isinstance(tokens, int)
    if tokens == 1:
        sums = sums * (step.transpose(1, 2) * rate).exp() + given.transpose(1, 2) * put
        return (sums * taken).sum(-1).unsqueeze(1), sums
    total = step.cumsum(1)
    place = Tensor.arange(tokens, device=x.device)
    earlier = (place.unsqueeze(0) <= place.unsqueeze(1)).unsqueeze(-1)  # (tokens, tokens of before, 1)
    between = earlier.where(total.unsqueeze(2) - total.unsqueeze(1), 0.0)  # of later ones exp would be infinite
    kept = (between.unsqueeze(-1) * rate).exp()  # (batch, tokens, tokens of before, channels, size)
    shared = (taken.unsqueeze(2) * put.unsqueeze(1)).unsqueeze(3)
    weights = earlier.where((kept * shared).sum(-1), 0.0)
    read = (weights * given.unsqueeze(1)).sum(2)
    read = read + ((total.unsqueeze(-1) * rate).exp() * sums.unsqueeze(1) * taken.unsqueeze(2)).sum(-1)
    last = total[:, -1:]
    left = ((last - total).unsqueeze(-1) * rate).exp() * given.unsqueeze(-1) * put.unsqueeze(2)
    return read, sums * (last.transpose(1, 2) * rate).exp() + left.sum(1)

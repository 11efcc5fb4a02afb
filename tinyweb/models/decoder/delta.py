"""Gated delta rule in place of attention (Yang et al. 2024, arXiv 2412.06464): a state that each token decays and
corrects.

Of a head's state S, (value, key), each token makes S' = α · S, then S' + β · (v − S' k) kᵀ, and reads S · q of it. A
chunk's tokens are read at once: what they correct of each other solves a triangular system (the WY form), and decays,
one number for each head and token, stand between pairs of tokens, so that none is divided by. All chunks are made side
by side; one product for each carries the state through them.
"""

from __future__ import annotations

from tinyweb.graph.ir import Size
from tinyweb.models.decoder.config import DeltaConfig
from tinyweb.models.decoder.loader import Loader
from tinyweb.models.decoder.mlp import ACTIVATIONS
from tinyweb.models.decoder.state import State, shifted
from tinyweb.models.decoder.time_mix import CHUNK, inverse
from tinyweb.tensor import Tensor

PIECE = 256  # tokens whose states between chunks are kept at once
LEAST = 1e-6  # beside the squares of queries and keys, whose length becomes 1


class Delta:
    """The mixer of one layer. Its state: `conv` (batch, taps - 1, channels), what went into the convolution last, and
    `sums` (batch, heads, value, key), both float32."""

    cache_name = "state"

    def __init__(self, config: DeltaConfig, load: Loader, layer: str):
        c, name = config, layer + load.names.state_space
        self.config = c
        self.keys, self.values = c.key_heads * c.key, c.heads * c.value
        self.channels = 2 * self.keys + self.values
        rows = {"in_proj_qkvz": [self.keys, self.keys, self.values, self.values], "in_proj_ba": [c.heads, c.heads]}
        self.input = load.by_groups(name, rows, c.key_heads)
        self.taps = load.taps(name + "conv1d", c.taps, self.channels)
        self.step_bias, self.rate = (load.vector(name + n, c.heads) for n in ("dt_bias", "A_log"))
        self.head_norm = load.norm(name + "norm", c.norm, c.value)
        (self.output,) = load.linears(name, ("out_proj",), [load.config.hidden_size], self.values, False)

    def state_shapes(self, batch: int) -> dict[str, tuple[int, ...]]:
        c = self.config
        return {"conv": (batch, c.taps - 1, self.channels), "sums": (batch, c.heads, c.value, c.key)}

    def __call__(self, h: Tensor, start: Size, count: Size, state: State, activations: str) -> Tensor:
        """Of h (batch, tokens, hidden) at positions start, start + 1, …; the same shape.

        The first `count` tokens go into the state, which must be that of all positions before `start`.
        """
        c = self.config
        batch, tokens = h.shape[:2]
        assert isinstance(batch, int) and isinstance(tokens, int)
        parts, heads = self.input(h, activations), (batch, tokens, c.heads, c.value)
        mixed, state["conv"] = shifted(parts[..., : self.channels], self.taps, state.before("conv", start), count)
        mixed = ACTIVATIONS[c.activation](mixed)
        gate, rest = parts[..., self.channels :][..., : self.values], parts[..., self.channels + self.values :]
        share = rest[..., : c.heads].sigmoid()
        decay = (rest[..., c.heads :] + self.step_bias).softplus() * -self.rate.exp()
        if not isinstance(count, int):  # what is not of the text changes nothing
            inside = (Tensor.arange(tokens, device=h.device) < Tensor(count, device=h.device)).unsqueeze(-1)
            share, decay = inside.where(share, 0.0), inside.where(decay, 0.0)
        query, key = (self._unit(mixed[..., at : at + self.keys]) for at in (0, self.keys))
        value = mixed[..., 2 * self.keys :].reshape(*heads)
        y = self.head_norm(self._read(query * c.key**-0.5, key, value, share, decay, start, state))
        return self.output((y * gate.reshape(*heads).silu()).reshape(batch, tokens, self.values), activations)

    def _unit(self, x: Tensor) -> Tensor:
        """Of length 1, (batch, tokens, heads, key): several heads of values share one of keys."""
        c = self.config
        x = x.reshape(*x.shape[:2], c.key_heads, 1, c.key)
        x = x / ((x * x).sum(-1, keepdim=True) + LEAST).sqrt()
        return x.expand(*x.shape[:3], c.heads // c.key_heads, c.key).reshape(*x.shape[:2], c.heads, c.key)

    def _read(self, q: Tensor, k: Tensor, v: Tensor, share: Tensor, decay: Tensor, start: Size, state: State) -> Tensor:
        """What tokens read, (batch, tokens, heads, value); `share` and `decay`: (batch, tokens, heads)."""
        tokens, sums = q.shape[1], state.before("sums", start)
        assert isinstance(tokens, int)
        q, k, v, share, decay = (x.transpose(1, 2) for x in (q, k, v, share.unsqueeze(-1), decay.unsqueeze(-1)))
        if tokens == 1:
            sums = sums * decay.exp()
            change = (v.transpose(-1, -2) - (sums * k).sum(-1, keepdim=True)) * share
            sums = sums + change * k
            state["sums"] = sums
            return (sums * q).sum(-1).unsqueeze(1)
        read = []
        for at in range(0, tokens, PIECE):
            q1, k1, v1, share1, decay1 = (x[:, :, at : min(at + PIECE, tokens)] for x in (q, k, v, share, decay))
            y, sums = piece(q1, k1, v1, share1, decay1, sums)
            read.append(y if tokens <= PIECE else y.contiguous())  # sums are not made for what other pieces have
        state["sums"] = sums
        return (read[0] if len(read) == 1 else read[0].cat(*read[1:], axis=2)).transpose(1, 2)


def piece(q: Tensor, k: Tensor, v: Tensor, share: Tensor, decay: Tensor, sums: Tensor) -> tuple[Tensor, Tensor]:
    """What tokens read, (batch, heads, tokens, value), and the state (batch, heads, value, key) behind them.

    q, k: (batch, heads, tokens, key). v: (batch, heads, tokens, value). share, decay: (batch, heads, tokens, 1), decay
    being the logarithm of what is left of the state.
    """
    tokens, width = q.shape[-2:]
    assert isinstance(tokens, int) and isinstance(width, int)
    count = -(-tokens // CHUNK)
    if count * CHUNK > tokens:  # tokens of zeros leave the state as it is
        q, k, v, share, decay = (x.pad((0, 0, 0, count * CHUNK - tokens)) for x in (q, k, v, share, decay))
    q, k, v, share, decay = (x.reshape(*x.shape[:2], count, CHUNK, x.shape[-1]) for x in (q, k, v, share, decay))
    total = decay.cumsum(-2)
    place = Tensor.arange(CHUNK, device=q.device)
    earlier = place.unsqueeze(0) <= place.unsqueeze(1)
    between = earlier.where(total - total.transpose(-1, -2), 0.0).exp()  # of later ones exp would be infinite
    turned = k.transpose(-1, -2)
    solved = inverse(((k * share) @ turned * between).tril(-1) * -1)
    removed, added = solved @ (k * share * total.exp()), solved @ (v * share)
    seen = (q @ turned * between).tril()
    last = total[..., -1:, :]
    left = k * (last - total).exp()
    carry = Tensor.eye(width, device=q.device) * last.exp() - removed.transpose(-1, -2) @ left
    more = added.transpose(-1, -2) @ left
    states = [sums]
    for i in range(count):
        states.append(states[-1] @ carry[:, :, i] + more[:, :, i])
    before = Tensor.stack(*states[:-1], axis=2).transpose(-1, -2)
    read = (q * total.exp() - seen @ removed) @ before + seen @ added
    return read.reshape(*read.shape[:2], count * CHUNK, read.shape[-1])[:, :, :tokens], states[-1]

"""Multi-head latent attention (DeepSeek-AI 2024): the cache has one vector for each position, whatever the heads.

Keys and values of a head are matrices times that vector. A score is (q · W c) = (Wᵀ q · c): the matrix of the keys goes
to the query, that of the values behind the sum, and attention is one of shared keys, which are their own values.
"""

from __future__ import annotations

from tinyweb.models.decoder.attention import masked
from tinyweb.models.decoder.cache import Cache, Start
from tinyweb.models.decoder.config import LatentConfig
from tinyweb.models.decoder.loader import Loader
from tinyweb.nn.layers import Linear
from tinyweb.nn.quantize import QuantizedWeight
from tinyweb.nn.rotary import Rotary
from tinyweb.tensor import Tensor


class ByHead:
    """A matrix (out, in) for each head, one below the other: (…, heads, in) → (…, heads, out)."""

    def __init__(self, weight: Tensor | QuantizedWeight, heads: int):
        self.weight, self.heads = weight, heads

    def __call__(self, x: Tensor) -> Tensor:
        dense = self.weight.dense() if isinstance(self.weight, QuantizedWeight) else self.weight.float()
        return (x.unsqueeze(-2) * dense.reshape(self.heads, -1, dense.shape[-1])).sum(-1)

    def tensors(self) -> dict[str, Tensor]:
        """The memory, by name."""
        return self.weight.tensors() if isinstance(self.weight, QuantizedWeight) else {"weight": self.weight}


class LatentAttention:
    """Latent attention of one layer. A cache is (batch, positions, rank + turned): latents, and what is turned of the
    keys."""

    cache_name = "latent"

    def __init__(self, config: LatentConfig, load: Loader, layer: str, rotary: Rotary):
        c, names, hidden = config, load.names, load.config.hidden_size
        self.config, self.rotary = config, rotary
        self.query_down: Linear | None = None
        if c.query_rank is not None:
            (self.query_down,) = load.linears(layer, (names.query_down,), [c.query_rank], hidden, c.bias)
            self.query_norm = load.norm(layer + names.query_down_norm, c.norm, c.query_rank)
        self.query = load.latent_query(layer, c)
        self.latent = load.latent(layer, c)
        self.latent_norm = load.norm(layer + names.latent_norm, c.norm, c.rank)
        key, value = load.latent_up(layer + names.latent_up, c)
        self.key_up, self.value_up = ByHead(key, c.heads), ByHead(value, c.heads)
        (self.output,) = load.linears(layer, (names.output,), [hidden], c.heads * c.value, c.bias)

    def new_cache(self, batch: int, positions: int, kind: str, device: str | None) -> Cache:
        """An empty one, for so many sequences and positions."""
        return Cache((batch, positions, self.config.rank + self.config.rotary.turned), kind, device)

    def __call__(self, h: Tensor, start: Start, cache: Cache, activations: str) -> Tensor:
        """Of h (batch, tokens, hidden) at positions start, start + 1, …; the same shape.

        Latents of these tokens go into the cache, which must hold those of all positions before `start`.
        """
        c = self.config
        batch, tokens = h.shape[:2]
        assert isinstance(batch, int) and isinstance(tokens, int)
        latent = self.latent(h, activations)
        turned = self.rotary(latent[..., c.rank :].unsqueeze(2), start).squeeze(2)
        cache.write(start, self.latent_norm(latent[..., : c.rank]).cat(turned, axis=-1))
        seen = cache.read(0, start + tokens).unsqueeze(1)  # (batch, 1, positions, rank + turned)

        made_of = h if self.query_down is None else self.query_norm(self.query_down(h, activations))
        query = self.query(made_of, activations).reshape(batch, tokens, c.heads, c.plain + c.rotary.turned)
        query = self.key_up(query[..., : c.plain]).cat(self.rotary(query[..., c.plain :], start), axis=-1)
        scores = (query.transpose(1, 2) @ seen.transpose(-1, -2)) * c.scale  # (batch, heads, tokens, positions)
        mixed = masked(scores, start, cache.positions).softmax(-1) @ seen[..., : c.rank]
        values = self.value_up(mixed.transpose(1, 2))  # (batch, tokens, heads, value)
        return self.output(values.reshape(batch, tokens, c.heads * c.value), activations)

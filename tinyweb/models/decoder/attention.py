"""Causal self-attention with a cache."""

from __future__ import annotations

import math

import numpy as np

from tinyweb.graph.ir import Size
from tinyweb.models.decoder.cache import Cache, Start, positions_of
from tinyweb.models.decoder.config import AttentionConfig
from tinyweb.models.decoder.loader import Loader
from tinyweb.models.decoder.norm import Norm
from tinyweb.nn.parameters import parameter
from tinyweb.nn.quantized_weight import rounded
from tinyweb.nn.rotary import Rotary
from tinyweb.tensor import Tensor


class Heads:
    """Queries, keys and values of one layer, and what is made of them. Their projections are one matrix, rows in this
    order.
    """

    def __init__(self, config: AttentionConfig, load: Loader, layer: str, rotary: Rotary | None):
        c, names, hidden = config, load.names, load.config.hidden_size
        self.config, self.rotary = config, rotary
        self.qkv = load.qkv(layer, c)
        self.query_norm, self.key_norm, self.head_norm = load.query_key_norms(layer, c)
        (self.output,) = load.linears(layer, (names.output,), [hidden], c.heads * c.width, c.output_bias)

    def project(self, h: Tensor, start: Start, activations: str) -> tuple[Tensor, Tensor, Tensor]:
        """Query (batch, tokens, heads, width), key and value (batch, tokens, kv_heads, width) of h (batch, tokens,
        hidden) at positions start, start + 1, …"""
        return self.parts(self.qkv(h, activations), start)

    def parts(self, qkv: Tensor, start: Start) -> tuple[Tensor, Tensor, Tensor]:
        """The same of what the matrix makes, (batch, tokens, rows)."""
        c = self.config
        count = c.heads + 2 * c.kv_heads
        qkv = qkv[..., : count * c.width].reshape(*qkv.shape[:2], count, c.width)
        both, value = qkv[:, :, : c.heads + c.kv_heads], self._clipped(qkv[:, :, c.heads + c.kv_heads :])
        if c.norm_turned and self.head_norm is not None:
            both = self.head_norm(self._positioned(both, start))
            return both[:, :, : c.heads], both[:, :, c.heads :], value
        if self.head_norm is not None:
            both = self.head_norm(both)
        return self.placed(both[:, :, : c.heads], both[:, :, c.heads :], value, start)

    def placed(self, query: Tensor, key: Tensor, value: Tensor, start: Start) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values (batch, tokens, heads of each, width) with what is left to do: norms over all heads,
        and positions."""
        c = self.config
        if self.query_norm is not None and self.key_norm is not None:
            query, key = (
                n(x.flatten(2)).reshape(*x.shape) for n, x in ((self.query_norm, query), (self.key_norm, key))
            )
        if c.value_norm is not None:
            value = Norm(c.value_norm, (c.width,), None, None)(value)
        return self._positioned(self._clipped(query), start), self._positioned(self._clipped(key), start), value

    def queries(self, h: Tensor, start: Start, activations: str) -> Tensor:
        """Queries alone, where keys and values are another layer's."""
        query = self.qkv(h, activations).reshape(*h.shape[:2], self.config.heads, self.config.width)
        query = query if self.head_norm is None else self.head_norm(query)
        return self._positioned(self._clipped(query), start)

    def _clipped(self, x: Tensor) -> Tensor:
        clip = self.config.clip
        return x if clip is None else x.clamp(-clip, clip)

    def _positioned(self, x: Tensor, start: Start) -> Tensor:
        return x if self.rotary is None else self.rotary(x, start)


class Attention(Heads):
    """Attention of one layer.

    A cache is (2, batch · key/value heads, positions, width): keys and values, all sequences' heads side by side.
    """

    cache_name = "kv"

    def __init__(self, config: AttentionConfig, load: Loader, layer: str, rotary: Rotary | None):
        super().__init__(config, load, layer, rotary)
        self.sinks = load.vector(layer + load.names.sinks, config.heads) if config.sinks else None
        self.slopes = None if config.slopes is None else parameter(np.array(config.slopes, np.float32), load.device)

    def new_cache(self, batch: int, positions: int, kind: str, device: str | None) -> Cache:
        """An empty one, for so many sequences and positions."""
        return Cache((2, batch * self.config.kv_heads, positions, self.config.width), kind, device)

    def __call__(self, h: Tensor, start: Start, cache: Cache, activations: str) -> Tensor:
        """Of h (batch, tokens, hidden) at positions start, start + 1, …; the same shape.

        Keys and values of these tokens go into the cache, which must hold those of all positions before `start`; those
        of another layer are there already.
        """
        c = self.config
        batch, tokens, room = h.shape[0], h.shape[1], cache.positions
        assert isinstance(batch, int) and isinstance(tokens, int)
        gate = None
        if c.keys_of is None:
            query, key, value, gate = self.made(h, start, activations)
            both = Tensor.stack(key, value).permute(0, 1, 3, 2, 4)
            cache.write(start, both.reshape(2, batch * c.kv_heads, tokens, c.width))
        else:
            query = self.queries(h, start, activations)
        if c.growth is not None and room + c.growth.first > c.growth.every:
            position = positions_of(start, tokens, h.device) + c.growth.first
            grown = (position // c.growth.every).float().log1p() * c.growth.weight + 1
            query = query * grown.reshape(*grown.shape, 1, 1)
        seen = cache.read(0, start + tokens).unsqueeze(2)  # (2, batch · kv_heads, 1, positions, width)

        if cache.kind == "f16":  # queries as precise as keys
            query = rounded(query, tokens, activations)
        group = c.heads // c.kv_heads  # query heads that share a key/value head
        query = query.reshape(batch, tokens, c.kv_heads, group, c.width).permute(0, 2, 3, 1, 4)
        query = query.reshape(batch * c.kv_heads, group, tokens, c.width)
        scores = (query @ seen[0].transpose(-1, -2)) * c.scale
        if c.softcap is not None:
            scores = (scores * (1 / c.softcap)).tanh() * c.softcap
        if self.slopes is not None:
            scores = scores + self._for_each(self.slopes, batch * c.kv_heads) * between(scores, start, room)
        scores = masked(scores, start, room, c.window, c.chunk)
        mixed = self._weights(scores) @ seen[1]  # (batch · kv_heads, group, tokens, width)
        mixed = mixed.reshape(batch, c.kv_heads, group, tokens, c.width).permute(0, 3, 1, 2, 4)
        mixed = mixed.reshape(batch, tokens, c.heads * c.width)
        return self.output(mixed if gate is None else mixed * gate, activations)

    def made(self, h: Tensor, start: Start, activations: str) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Queries, keys, values as of `parts`, and the gate of what heads give, (batch, tokens, heads · width)."""
        c = self.config
        made = self.qkv(h, activations)
        gate = made[..., -c.heads * c.width :].sigmoid() if c.gated else None
        return *self.parts(made, start), gate

    def _weights(self, scores: Tensor) -> Tensor:
        """The softmax of scores (batch · kv_heads, group, tokens, positions); what sinks take is missing in its sum."""
        if self.sinks is None:
            return scores.softmax(-1)
        sinks = self._for_each(self.sinks, scores.shape[0])
        largest = scores.max(-1, keepdim=True)
        weights = (scores - largest).exp()
        # a sink far above all scores makes the sum infinite, and so the weights 0
        return weights / (weights.sum(-1, keepdim=True) + (sinks - largest).exp())

    def _for_each(self, values: Tensor, rows: Size) -> Tensor:
        """Numbers of the heads as (rows, group, 1, 1), where `rows` is batch · key/value heads."""
        c = self.config
        each = values.reshape(1, c.kv_heads, c.heads // c.kv_heads, 1, 1)
        return each.expand(rows // c.kv_heads, *each.shape[1:]).reshape(rows, c.heads // c.kv_heads, 1, 1)


def between(scores: Tensor, start: Start, room: int) -> Tensor:
    """Positions from queries back to keys, at most 0 where they are seen, for scores (rows, …, tokens, keys)."""
    position, key = _positions(scores, start, room)
    return (key - position).float()


def masked(scores: Tensor, start: Start, room: int, window: int | None = None, chunk: int | None = None) -> Tensor:
    """Scores (rows, group, tokens, keys) without those of later positions and of those before the window or the chunk.

    `room`: positions of the cache. Masks are comparisons of indices: kernels see which blocks they leave out.
    """
    tokens = scores.shape[-2]
    window, chunk = (None if size is None or size >= room else size for size in (window, chunk))
    ahead = tokens != 1 or isinstance(start, Tensor)  # whether there are keys that a query must not see
    if not ahead and window is None and chunk is None:
        return scores
    position, key = _positions(scores, start, room)
    if ahead:
        scores = (key > position).where(-math.inf, scores)
    if chunk is not None:
        scores = (key < position // chunk * chunk).where(-math.inf, scores)
    return scores if window is None else (key <= position - window).where(-math.inf, scores)


def _positions(scores: Tensor, start: Start, room: int) -> tuple[Tensor, Tensor]:
    """Those of the queries and of the keys of scores (rows, group, tokens, keys), rows being batch · heads."""
    rows, tokens, keys = scores.shape[0], scores.shape[-2], scores.shape[-1]
    assert isinstance(tokens, int) and isinstance(rows, int)
    key = Tensor.arange(room, device=scores.device)[:keys].unsqueeze(0)
    position = positions_of(start, tokens, scores.device)
    if isinstance(start, Tensor):
        batch = start.shape[0]
        assert isinstance(batch, int)
        position = position.unsqueeze(1).expand(batch, rows // batch, tokens).reshape(rows, 1, tokens)
    return position.unsqueeze(-1), key

"""Self-attention over a whole text."""

from __future__ import annotations

import math

from tinyweb.models.decoder.attention import Heads
from tinyweb.tensor import Tensor


class Attention(Heads):
    """Attention of one layer without a cache."""

    def __call__(
        self, h: Tensor, mask: Tensor | None, activations: str, near: tuple[Tensor, Tensor] | None = None
    ) -> Tensor:
        """Of h (batch, tokens, hidden), at positions 0, 1, …; the same shape.

        `mask`: which keys a query sees, or what is added to its scores, of a shape that broadcasts to (batch, heads,
        tokens, tokens); None: all, nothing. `near`: what `nearness` reads.
        """
        c = self.config
        # turned once, not once for each key
        query, key, value = (x.permute(0, 2, 1, 3).contiguous() for x in self.project(h, 0, activations))
        if near is not None:
            added = self.nearness(query, key, near, activations).contiguous()
            mask = added if mask is None else mask.where(added, -math.inf)
        mixed = query.scaled_dot_product_attention(
            key, value, mask, scale=c.scale, enable_gqa=c.kv_heads != c.heads
        )  # (batch, heads, tokens, width)
        return self.output(mixed.permute(0, 2, 1, 3).reshape(*h.shape[:2], c.heads * c.width), activations)

    def nearness(self, query: Tensor, key: Tensor, near: tuple[Tensor, Tensor], activations: str) -> Tensor:
        """What is added to the scores of queries and keys (batch, heads, tokens, width) for their positions."""
        raise NotImplementedError("this attention knows positions in no other way than by its mask")

"""Self-attention over a whole text."""

from __future__ import annotations

from tinyweb.models.decoder.attention import Heads
from tinyweb.tensor import Tensor


class Attention(Heads):
    """Attention of one layer without a cache."""

    def __call__(self, h: Tensor, mask: Tensor | None, activations: str) -> Tensor:
        """Of h (batch, tokens, hidden), at positions 0, 1, …; the same shape.

        `mask`: which keys a query sees, or what is added to its scores, of a shape that broadcasts to (batch, heads,
        tokens, tokens); None: all, nothing.
        """
        c = self.config
        # turned once, not once for each key
        query, key, value = (x.permute(0, 2, 1, 3).contiguous() for x in self.project(h, 0, activations))
        mixed = query.scaled_dot_product_attention(
            key, value, mask, scale=c.scale, enable_gqa=c.kv_heads != c.heads
        )  # (batch, heads, tokens, width)
        return self.output(mixed.permute(0, 2, 1, 3).reshape(*h.shape[:2], c.heads * c.width), activations)

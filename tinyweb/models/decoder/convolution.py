"""A short convolution in place of attention (LFM2, Liquid AI 2025)."""

from __future__ import annotations

from tinyweb.models.decoder.cache import Cache, Start, positions_of
from tinyweb.models.decoder.config import ConvConfig
from tinyweb.models.decoder.loader import Loader
from tinyweb.tensor import Tensor


class ShortConv:
    """Each channel's last positions, weighted, between two gates.

    A cache is (batch, taps - 1 + positions, hidden): what goes into the convolution, at all positions, so that
    a text can go on from any of them. Before the first position are places that are never read.
    """

    cache_name = "conv"

    def __init__(self, config: ConvConfig, load: Loader, layer: str):
        c, names, hidden = config, load.names, load.config.hidden_size
        self.config, self.hidden = config, hidden
        (self.input,) = load.linears(layer, (names.conv_in,), [3 * hidden], hidden, c.bias)
        self.taps = load.taps(layer + names.conv, c.taps, hidden)
        self.taps_bias = load.vector(layer + names.conv + ".bias", hidden) if c.bias else None
        (self.output,) = load.linears(layer, (names.conv_out,), [hidden], hidden, c.bias)

    def new_cache(self, batch: int, positions: int, kind: str, device: str | None) -> Cache:
        """An empty one, for so many sequences and positions; of 8 bits instead of 4: no softmax evens out errors."""
        kind = "q8" if kind == "q4" else kind
        return Cache((batch, self.config.taps - 1 + positions, self.hidden), kind, device)

    def __call__(self, h: Tensor, start: Start, cache: Cache, activations: str) -> Tensor:
        """Of h (batch, tokens, hidden) at positions start, start + 1, …; the same shape.

        What these tokens bring goes into the cache, which must hold that of the positions before `start`.
        """
        tokens, before = h.shape[1], self.config.taps - 1
        assert isinstance(tokens, int)
        parts = self.input(h, activations)
        first, last, x = (parts[..., i * self.hidden : (i + 1) * self.hidden] for i in range(3))
        cache.write(start + before, first * x)
        position = positions_of(start, tokens, h.device).unsqueeze(-1)
        mixed: Tensor | None = None
        for i in range(before + 1):  # the tap for position - before + i
            seen = cache.read(start + i, start + i + tokens)
            seen = seen if i == before else (position >= before - i).where(seen, 0.0)
            mixed = seen * self.taps[i] if mixed is None else mixed + seen * self.taps[i]
        assert mixed is not None
        mixed = mixed if self.taps_bias is None else mixed + self.taps_bias
        return self.output(last * mixed, activations)

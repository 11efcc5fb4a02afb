"""What memory a chat will take on a device, from its config and the shapes of its tensors, and what of it fits: before
anything is read or exported.

What is kept as what, and which is best, is `choices.py`'s; `profiles.fits` has the figures of what was exported, and
`fitting.py` corrects an estimate by them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tinyweb.export.choices import Weights, by_exactness, preferred, smaller_caches
from tinyweb.formats.huggingface import Checkpoint
from tinyweb.models.chat import BLOCKS, positions
from tinyweb.models.decoder import DEFAULT_CONTEXT
from tinyweb.models.decoder.cache import ELEMENT_BITS, kind_beside
from tinyweb.models.decoder.config import (
    AttentionConfig,
    ConvConfig,
    DecoderConfig,
    DeltaConfig,
    ExpertsConfig,
    LatentConfig,
    LayerConfig,
    SelectiveConfig,
    StateSpaceConfig,
    TimeMixConfig,
)


@dataclass(frozen=True)
class Choice:
    """What to export a chat with, and the bytes that a device will need."""

    quant: str
    cache: str
    context: int
    needs: int


@dataclass(frozen=True)
class Shapes:
    """A model without its values. `cache`: how positions are kept; None: as suits the weights."""

    config: DecoderConfig
    weights: Weights
    cache: str | None = None

    @classmethod
    def of(cls, config: DecoderConfig, checkpoint: Checkpoint, cache: str | None = None) -> Shapes:
        return cls(config, Weights.of(checkpoint, config.vocab_size), cache)

    @property
    def elements(self) -> int:
        """Of all caches, for one position."""
        return sum(_cached(layer, self.config.hidden_size) for layer in self.config.layers)

    def cache_bytes(self, quant: str, context: int) -> int:
        """Bytes of keys and values, and what else is kept of each position, beside weights of `quant`; and of states,
        which are the same whatever the context."""
        hidden, layers = self.config.hidden_size, self.config.layers
        kept = ELEMENT_BITS[self.cache or kind_beside(quant == "f32")] / 8 * self.elements * positions(context)
        return int(kept) + 4 * sum(_state(layer, hidden) for layer in layers)

    def working_bytes(self, context: int) -> int:
        """Bytes of what is computed on the way: hidden states of the largest block of a prompt, and logits."""
        block = max((b for b in BLOCKS if b <= context), default=1)
        widest = max(_width(layer) for layer in self.config.layers)
        return 4 * (block * (4 * self.config.hidden_size + 3 * widest) + 4 * self.config.vocab_size)

    def needs(self, quant: str, context: int) -> int:
        """Bytes on a device, without the page itself."""
        return self.weights.bytes(quant) + self.cache_bytes(quant, context) + self.working_bytes(context)


def choices(shapes: Shapes, memory: int, quant: str | None = None, context: int | None = None) -> Iterator[Choice]:
    """What fits into `memory` bytes, the best first; what is given (the cache by `shapes`) is kept.

    The most exact weights and cache that leave a good context; where none do, the most exact that leave any worth
    having.
    """
    most = min(shapes.config.positions, context or DEFAULT_CONTEXT)
    usual = shapes.cache or kind_beside(quant == "f32")
    caches = smaller_caches(usual) if shapes.cache is None and shapes.elements else [usual]

    def found() -> Iterator[tuple[Choice, int]]:
        for weights, cache in by_exactness([quant] if quant else shapes.weights.quants(), caches):
            of = replace(shapes, cache=cache)
            tokens = _longest(of, memory, weights, most, fixed=context is not None)
            yield Choice(weights, cache, tokens, of.needs(weights, tokens)), tokens

    yield from (choice for choice, _ in preferred(found(), most))


def _longest(shapes: Shapes, memory: int, quant: str, most: int, fixed: bool) -> int:
    """The longest context of at most `most` tokens that fits, a multiple of 64 where it is shortened; 0: none."""
    if shapes.needs(quant, most) <= memory:
        return most
    lengths: Sequence[int] = () if fixed else range((most - 1) // 64 * 64, 0, -64)
    return next((n for n in lengths if shapes.needs(quant, n) <= memory), 0)


def _cached(layer: LayerConfig, hidden: int) -> int:
    """Elements of the cache for one position."""
    mixer = layer.mixer
    if isinstance(mixer, AttentionConfig):
        return 2 * mixer.kv_heads * mixer.width if mixer.keys_of is None else 0
    if isinstance(mixer, ConvConfig):
        return hidden
    return mixer.rank + mixer.rotary.turned if isinstance(mixer, LatentConfig) else 0


def _state(layer: LayerConfig, hidden: int) -> int:
    """Numbers of a state."""
    mixer = layer.mixer
    if isinstance(mixer, StateSpaceConfig):
        return mixer.heads * mixer.width * mixer.size + (mixer.taps - 1) * _channels(mixer)
    if isinstance(mixer, SelectiveConfig):
        return mixer.channels * (mixer.size + mixer.taps - 1)
    if isinstance(mixer, DeltaConfig):
        return mixer.heads * mixer.value * mixer.key + (mixer.taps - 1) * _channels(mixer)
    return mixer.heads * mixer.width**2 + 2 * hidden if isinstance(mixer, TimeMixConfig) else 0


def _channels(mixer: StateSpaceConfig | DeltaConfig) -> int:
    """What goes through the convolution."""
    if isinstance(mixer, DeltaConfig):
        return 2 * mixer.key_heads * mixer.key + mixer.heads * mixer.value
    return mixer.heads * mixer.width + 2 * mixer.groups * mixer.size


def _width(layer: LayerConfig) -> int:
    """Elements that are held for a token between two matrices."""
    mlp = layer.mlp
    inner = 0
    if mlp is not None:
        inner = mlp.mlp.width * mlp.chosen if isinstance(mlp, ExpertsConfig) else mlp.width
    mixer = layer.mixer
    heads = mixer.heads * mixer.width if isinstance(mixer, AttentionConfig | TimeMixConfig) else 0
    if isinstance(mixer, StateSpaceConfig):
        heads = mixer.heads * (mixer.width + 1) + _channels(mixer)
    if isinstance(mixer, DeltaConfig):
        heads = mixer.heads * (mixer.value + 2) + _channels(mixer)
    if isinstance(mixer, SelectiveConfig):
        heads = 2 * mixer.channels
    return max(inner, heads)

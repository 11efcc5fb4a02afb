"""What memory a chat will take on a device, from its config and the shapes of its tensors: before anything is read or
exported. `profiles.fits` has the exact figures of what was exported."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from tinyweb.export.profiles import GOOD, SHORTEST
from tinyweb.formats.huggingface import Checkpoint
from tinyweb.kinds import BITS, CACHES
from tinyweb.models.chat import BLOCKS, positions
from tinyweb.models.decoder import DEFAULT_CONTEXT
from tinyweb.models.decoder.cache import ELEMENT_BITS, kind_beside
from tinyweb.models.decoder.config import (
    AttentionConfig,
    ConvConfig,
    DecoderConfig,
    ExpertsConfig,
    LatentConfig,
    LayerConfig,
    StateSpaceConfig,
    TimeMixConfig,
)
from tinyweb.nn.quantize import GROUP

SCALE_BITS = 16  # of a group


@dataclass(frozen=True)
class Choice:
    """What to export a chat with, and the bytes that a device will need."""

    quant: str
    cache: str
    context: int
    needs: int


@dataclass(frozen=True)
class Shapes:
    """A model without its values. `tables`: numbers of the embedding and the head, `matrices`: of all others that are
    quantised, `others`: of vectors. `cache`: how positions are kept; None: as suits the weights."""

    config: DecoderConfig
    tables: int
    matrices: int
    others: int
    cache: str | None = None

    @classmethod
    def of(cls, config: DecoderConfig, checkpoint: Checkpoint, cache: str | None = None) -> Shapes:
        """From the shapes of all tensors: those with a row for each word of the vocabulary are tables."""
        tables = matrices = others = 0
        for name in checkpoint:
            shape = checkpoint.entry(name).shape
            if len(shape) < 2:
                others += prod(shape)
            elif shape[0] == config.vocab_size:
                tables += prod(shape)
            else:
                matrices += prod(shape)
        return cls(config, tables, matrices, others, cache)

    @property
    def parameters(self) -> int:
        return self.tables + self.matrices + self.others

    @property
    def elements(self) -> int:
        """Of all caches, for one position."""
        return sum(_cached(layer, self.config.hidden_size) for layer in self.config.layers)

    def weight_bytes(self, quant: str) -> int:
        """Bytes of the weights. With fewer than 8 bits tables keep 8 (`decoder.loader`)."""
        table = max(bits(quant), bits("q8"))
        return int((self.tables * table + self.matrices * bits(quant)) / 8) + 4 * self.others

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
        return self.weight_bytes(quant) + self.cache_bytes(quant, context) + self.working_bytes(context)


def bits(quant: str) -> float:
    """Bits of one weight, its part of a group's scale included."""
    return BITS[quant] + SCALE_BITS / GROUP if quant in BITS else float(quant.removeprefix("f"))


def quants(given: str | None = None) -> list[str]:
    """Those worth choosing among, the most exact first: what has 8 bits or fewer; or the one that was `given`."""
    return [given] if given else sorted(BITS, key=bits, reverse=True)


def by_exactness(weights: Iterable[str], caches: Iterable[str]) -> list[tuple[str, str]]:
    """Pairs of a kind of weights and one of a cache, the most exact first. What has the fewest bits of the two counts
    first, as it loses most, then the bits of both."""

    def exactness(pair: tuple[str, str]) -> tuple[float, float]:
        of = bits(pair[0]), ELEMENT_BITS[pair[1]]
        return min(of), sum(of)

    return sorted(product(weights, caches), key=exactness, reverse=True)


def smaller_caches(kind: str) -> list[str]:
    """The kinds from this one on, the most exact first."""
    kinds = (c for c in CACHES if ELEMENT_BITS[c] <= ELEMENT_BITS[kind])
    return sorted(kinds, key=lambda c: ELEMENT_BITS[c], reverse=True)


def choices(shapes: Shapes, memory: int, quant: str | None = None, context: int | None = None) -> Iterator[Choice]:
    """What fits into `memory` bytes, the best first; what is given (the cache by `shapes`) is kept.

    The most exact weights and cache that leave a good context; where none do, the most exact that leave any worth
    having.
    """
    most = min(shapes.config.positions, context or DEFAULT_CONTEXT)
    usual = shapes.cache or kind_beside(quant == "f32")
    caches = smaller_caches(usual) if shapes.cache is None and shapes.elements else [usual]
    found = []
    for weights, cache in by_exactness(quants(quant), caches):
        of = replace(shapes, cache=cache)
        tokens = _longest(of, memory, weights, most, fixed=context is not None)
        found.append(Choice(weights, cache, tokens, of.needs(weights, tokens)))
    good = [c for c in found if c.context >= min(GOOD, most)]
    yield from good
    yield from (c for c in found if c not in good and c.context >= min(SHORTEST, most))


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
    return mixer.heads * mixer.width**2 + 2 * hidden if isinstance(mixer, TimeMixConfig) else 0


def _channels(mixer: StateSpaceConfig) -> int:
    """What goes through the convolution."""
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
    return max(inner, heads)

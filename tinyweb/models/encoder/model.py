"""An encoder: texts as token ids to hidden states, with weights that stay as they are stored."""

from __future__ import annotations

import math

from tinyweb.device import Device
from tinyweb.formats.huggingface import Checkpoint
from tinyweb.models.decoder.config import AttentionConfig, RotaryConfig
from tinyweb.models.encoder.config import EncoderConfig, EncoderNames
from tinyweb.models.encoder.disentangled import Places
from tinyweb.models.encoder.layer import Layer
from tinyweb.models.encoder.loader import EncoderLoader
from tinyweb.models.encoder.relative import distances
from tinyweb.nn.alibi import slopes
from tinyweb.nn.layers import Embedding
from tinyweb.nn.precision import Recipe
from tinyweb.nn.quantize import activations_for
from tinyweb.nn.rotary import Rotary
from tinyweb.tensor import Tensor


class Encoder:
    """A loaded encoder. `activations`: what weights are multiplied with, as of `decoder.load`; it may be changed before
    plans are captured. `parameter_count`: numbers it was trained to hold. `load`: reads what else there is in
    the checkpoint."""

    def __init__(
        self, config: EncoderConfig, names: EncoderNames, checkpoint: Checkpoint, quant: str | Recipe | None,
        device: str | None = None, activations: str | None = None,
    ):  # fmt: skip
        self.config, self.quant, self.device = config, quant, device
        c, load = config, EncoderLoader(config, names, checkpoint, quant, device)
        self.load = load
        self.words = Embedding.of(load.embedding())
        self.activations = activations or activations_for(Device[device or Device.DEFAULT].runtime.target, load.stored)
        self.positions = None
        if c.first_position is not None:
            self.positions = load.table(names.positions, c.positions + c.first_position, c.first_position)
        self.types = load.table(names.token_types, c.token_types) if c.token_types else None
        self.embedding_norm = (
            load.norm(load.prefix + names.embedding_norm, c.embedding_norm) if c.embedding_norm else None
        )
        self.rotaries: dict[RotaryConfig, Rotary] = {}
        self.places = Places(c.disentangled, load) if c.disentangled else None
        self.layers = [
            Layer(layer, load, load.prefix + names.layer.format(i), self._rotary(layer.mixer), c.norm_sums, self.places)
            for i, layer in enumerate(c.layers)
        ]
        self.norm = load.norm(load.prefix + names.norm, c.norm) if c.norm else None
        self.relative, self.slopes = self._relative(c)
        load.check_all_read(load.prefix + names.layer.partition("{}")[0])

    @property
    def parameter_count(self) -> int:
        return self.load.count

    def __call__(self, ids: Tensor, mask: Tensor | None = None, token_types: Tensor | None = None) -> Tensor:
        """Hidden states (batch, tokens, hidden), float32, of ids (batch, tokens).

        `mask` (batch, tokens): what is 0 or false is padding on the right, which nothing attends to; None: there is
        none. `token_types` (batch, tokens): None means 0 everywhere; models without them take no notice. Raises
        ValueError for ids of another shape, or too long.
        """
        c = self.config
        if ids.ndim != 2 or not ids.dtype.is_int:
            raise ValueError(f"an encoder needs integer ids of shape (batch, tokens), got {ids.dtype.name} {ids.shape}")
        batch, tokens = (int(s) for s in ids.shape if isinstance(s, int))
        if not 1 <= tokens <= c.positions:
            raise ValueError(f"{tokens} tokens: this model reads 1 to {c.positions}")
        x = self._embed(ids, token_types)
        keep = None if mask is None else (mask != 0).reshape(batch, 1, 1, tokens)
        nearness, near = self._nearness(tokens), self.places.near(tokens) if self.places else None
        masks: dict[int | None, Tensor | None] = {}
        for layer in self.layers:
            window = layer.attention.config.window
            if window not in masks:
                seen = self._mask(keep, tokens, window)
                masks[window] = (
                    seen if nearness is None else nearness if seen is None else seen.where(nearness, -math.inf)
                )
            x = layer(x, masks[window], self.activations, near)
        return x if self.norm is None else self.norm(x).contiguous()

    def _relative(self, c: EncoderConfig) -> tuple[Tensor | None, Tensor | None]:
        """What is added to scores by distance, and the slopes of ALiBi."""
        if c.relative is None:
            return None, None
        heads = self.layers[0].attention.config.heads
        if c.relative.buckets is None:
            return None, Tensor(slopes(heads), device=self.device)
        return self.load.relative(c.relative.buckets, c.relative.farthest, heads), None

    def _embed(self, ids: Tensor, token_types: Tensor | None) -> Tensor:
        x = self.words(ids)
        if self.config.embedding_scale != 1:
            x = x * self.config.embedding_scale
        if self.positions is not None:
            x = x + self.positions[: ids.shape[1]]
        if self.types is not None:
            x = x + (self.types[0] if token_types is None else self.types.embedding(token_types))
        return x if self.embedding_norm is None else self.embedding_norm(x)

    def _mask(self, keep: Tensor | None, tokens: int, window: int | None) -> Tensor | None:
        """Which keys queries see, for layers with a window. Masks are comparisons of indices: no memory is read."""
        near = window is not None and window < tokens
        if not near and not self.config.causal:
            return keep
        distance = distances(tokens, self.device)
        seen = distance <= 0 if self.config.causal else None
        if near:
            inside = distance.abs() < window
            seen = inside if seen is None else seen & inside
        assert seen is not None
        return seen if keep is None else seen & keep

    def _nearness(self, tokens: int) -> Tensor | None:
        """What is added to the scores of all layers, (1, heads, tokens, tokens)."""
        if self.slopes is not None:
            return distances(tokens, self.device).abs().float() * -self.slopes.reshape(1, -1, 1, 1)
        if self.relative is None:
            return None
        longest = self.config.positions
        rows = self.relative[longest - tokens : longest + tokens - 1]
        # in memory, for all layers
        return rows.embedding(distances(tokens, self.device) + (tokens - 1)).permute(2, 0, 1).unsqueeze(0).contiguous()

    def _rotary(self, mixer: object) -> Rotary | None:
        """The table for a kind of layers, made once."""
        assert isinstance(mixer, AttentionConfig)
        c = mixer.rotary
        if c is None:
            return None
        if c not in self.rotaries:
            self.rotaries[c] = Rotary(
                mixer.width, self.config.positions, c.theta, c.scaling, self.device, turned=c.turned
            )
        return self.rotaries[c]

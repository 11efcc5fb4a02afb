"""Decoders that read a text at once, without a cache and without a head: as their embedding models do."""

from __future__ import annotations

import dataclasses

from tinyweb.errors import ModelFormatError
from tinyweb.formats.huggingface import Config
from tinyweb.models.decoder import architectures
from tinyweb.models.decoder.architectures import fields
from tinyweb.models.decoder.config import AttentionConfig, LayerConfig, MlpConfig
from tinyweb.models.encoder.config import EncoderConfig, EncoderNames

GEMMA = "Gemma3ForCausalLM"


def family(c: Config) -> str | None:
    """The architecture of `models.decoder` that a config.json names, with its head or (`…Model`) without."""
    named = c.values.get("architectures")
    names = [name for name in named if isinstance(name, str)] if isinstance(named, list) else []
    whole = [f"{name.removesuffix('Model').removesuffix('Text')}ForCausalLM" if name.endswith("Model") else name
             for name in names]  # fmt: skip
    return next((name for name in whole if name in architectures.ARCHITECTURES), None)


def decoder(c: Config, name: str) -> tuple[EncoderConfig, EncoderNames]:
    """The network of a decoder, each token seeing what is before it, or (EmbeddingGemma) all others: then the window
    of the file is divided between both sides.
    """
    both = name == GEMMA and c.flag("use_bidirectional_attention", False)
    if both:
        wide = fields.window(c)
        halved = {} if wide is None else {"sliding_window": wide // 2 + 1}
        c = Config({**c.values, "use_bidirectional_attention": None, **halved}, c.where)
    config, names = architectures.ARCHITECTURES[name](c)
    missing = next((lack for layer in config.layers if (lack := _lack(layer))), None)
    if config.learned_positions:
        missing = "a table of positions"
    if missing:
        raise ModelFormatError(f"{c.where}: {name} has {missing}, which embeddings are not made with here; use a chat")
    found = EncoderConfig(
        config.vocab_size, config.hidden_size, config.positions, config.layers, c.word("model_type", "decoder"),
        norm=config.norm, causal=not both, embedding_scale=config.embedding_scale,
    )  # fmt: skip
    return found, EncoderNames(**{field.name: getattr(names, field.name) for field in dataclasses.fields(names)})


def _lack(layer: LayerConfig) -> str | None:
    """What the encoder's layers have not."""
    if not isinstance(layer.mixer, AttentionConfig):
        return "layers without plain attention"
    if not isinstance(layer.mlp, MlpConfig):
        return "experts"
    if layer.mixer.softcap is not None or layer.mixer.sinks or layer.mixer.growth is not None:
        return "soft caps, sinks or growth of scores"
    if layer.mixer.slopes is not None or layer.mixer.gated:
        return "losses of scores by distance or gates behind attention"
    if layer.mixer.chunk is not None:
        return "chunks of positions"
    return "layers whose parts are scaled or side by side" if layer.parallel or layer.residual != 1 else None

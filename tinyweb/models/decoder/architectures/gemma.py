"""Gemma: norm weights are distances from 1, embeddings are scaled by the root of their width (Gemma Team 2024)."""

from __future__ import annotations

import math
from dataclasses import replace

from tinyweb.errors import ModelFormatError
from tinyweb.formats.huggingface import Config
from tinyweb.models.decoder.architectures import fields
from tinyweb.models.decoder.config import AttentionConfig, DecoderConfig, LayerConfig, MlpConfig, Names, NormConfig

# the files of Gemma 1 say "gelu" and mean the approximation by tanh
TANH = "gelu_pytorch_tanh"
SANDWICH = Names(before_mlp="pre_feedforward_layernorm")


def _norm(c: Config) -> NormConfig:
    return fields.rms(c, offset=1)


def _mlp(c: Config) -> MlpConfig:
    made = fields.mlp(c, bias=False, default=TANH, key="hidden_activation")
    return replace(made, activation="gelu_tanh") if made.activation == "gelu" else made


def _decoder(c: Config, layers: list[LayerConfig], cap: float | None = None) -> DecoderConfig:
    scale = math.sqrt(fields.hidden_size(c))
    return fields.decoder(c, layers, _norm(c), tied=True, embedding_scale=scale, logit_softcap=cap)


def gemma(c: Config) -> tuple[DecoderConfig, Names]:
    """Gemma 1."""
    attention, norm = fields.attention(c, fields.rotary(c)), _norm(c)
    layer = LayerConfig(attention, _mlp(c), before_attention=norm, before_mlp=norm)
    return _decoder(c, [layer] * fields.layer_count(c)), Names()


def gemma2(c: Config) -> tuple[DecoderConfig, Names]:
    """Gemma 2: norms before and after, soft caps, a window in every other layer."""
    attention = fields.attention(c, fields.rotary(c), scale=_scale(c), softcap=_cap(c, "attn_logit_softcapping", 50))
    windows = fields.windows(c, lambda i: i % 2 == 0)
    layers = [_sandwich(c, replace(attention, window=window)) for window in windows]
    return _decoder(c, layers, _cap(c, "final_logit_softcapping", 30)), SANDWICH


def gemma3(c: Config) -> tuple[DecoderConfig, Names]:
    """Gemma 3: queries and keys are normalised, five of six layers have a window and a rotary base of their own."""
    if c.flag("use_bidirectional_attention", False):
        raise ModelFormatError(f"{c.where}: 'use_bidirectional_attention' is not supported: this is no decoder")
    every = c.integer("sliding_window_pattern", 1, 1024, 6)
    windows = fields.windows(c, lambda i: (i + 1) % every != 0)
    parts = {"scale": _scale(c), "softcap": _cap(c, "attn_logit_softcapping", None), "norm": _norm(c)}
    near = fields.attention(c, fields.local_rotary(c, c.number("rope_local_base_freq", 1, 1e12, 10000.0)), **parts)
    far = fields.attention(c, fields.rotary(c, theta=1e6), **parts)
    layers = [_sandwich(c, far if window is None else replace(near, window=window)) for window in windows]
    return _decoder(c, layers, _cap(c, "final_logit_softcapping", None)), SANDWICH


def gemma3_with_pictures(c: Config) -> tuple[DecoderConfig, Names]:
    """The language model of a Gemma 3 that also reads pictures."""
    text = c.section("text_config")
    if text is None:
        raise ModelFormatError(f"{c.where} lacks 'text_config': the file is incomplete")
    config, names = gemma3(Config({**USUAL_TEXT, **text.values}, text.where))
    return config, replace(names, prefixes=("language_model.model.", "model.language_model."))


# what the files of models with pictures leave out
USUAL_TEXT = {
    "vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
    "max_position_embeddings": 131072,
}  # fmt: skip


def _sandwich(c: Config, attention: AttentionConfig) -> LayerConfig:
    norm = _norm(c)
    return LayerConfig(attention, _mlp(c), norm, norm, norm, norm)


def _scale(c: Config) -> float:
    return 1 / math.sqrt(c.number("query_pre_attn_scalar", 1e-3, 1e6, 256))


def _cap(c: Config, key: str, usual: float | None) -> float | None:
    """A soft cap; null in the file means none."""
    if key in c.values:
        return c.number(key, 1e-3, 1e6) if c.values[key] is not None else None
    return usual

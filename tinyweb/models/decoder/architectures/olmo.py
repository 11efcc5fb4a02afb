"""OLMo (Groeneveld et al. 2024; OLMo Team 2025), and EXAONE 4, which has its norms in the same places."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tinyweb.formats.huggingface import Config
from tinyweb.models.decoder.architectures import fields
from tinyweb.models.decoder.config import AttentionConfig, DecoderConfig, LayerConfig, Names, NormConfig

AFTER = Names(after_attention="post_attention_layernorm", after_mlp="post_feedforward_layernorm")


def olmo(c: Config) -> tuple[DecoderConfig, Names]:
    """OLMo 1: layer norms without weights, clipped queries, keys and values."""
    clip = c.number("clip_qkv", 0, 1e6) if c.values.get("clip_qkv") is not None else None
    attention, norm = fields.attention(c, fields.rotary(c), clip=clip), NormConfig("layer", 1e-5, weight=False)
    layer = LayerConfig(attention, fields.mlp(c, bias=False), before_attention=norm, before_mlp=norm)
    return fields.decoder(c, [layer] * fields.layer_count(c), norm), Names()


def olmo2(c: Config) -> tuple[DecoderConfig, Names]:
    """OLMo 2: norms after attention and MLP, and over all heads of the queries and of the keys."""
    attention = fields.attention(c, fields.rotary(c), norm=_norm(c), norm_of="all heads")
    return fields.decoder(c, [_after(c, attention)] * fields.layer_count(c), _norm(c)), AFTER


def olmo3(c: Config) -> tuple[DecoderConfig, Names]:
    """OLMo 3: windows in three of four layers, whose rotary positions are not scaled."""
    windows, parts = fields.windows(c, lambda i: (i + 1) % 4 != 0), {"norm": _norm(c), "norm_of": "all heads"}
    near = fields.attention(c, fields.local_rotary(c, c.number("rope_theta", 1, 1e12, 500000.0)), **parts)
    far = fields.attention(c, fields.rotary(c, theta=500000.0), **parts)
    layers = [_after(c, far if window is None else replace(near, window=window)) for window in windows]
    return fields.decoder(c, layers, _norm(c)), AFTER


def exaone4(c: Config) -> tuple[DecoderConfig, Names]:
    """EXAONE 4 (LG AI Research 2025): where some layers have windows, the others know no positions."""
    attention = fields.attention(c, fields.rotary(c), bias=False, norm=_norm(c))
    hybrid = fields.window(c) is not None
    windows = fields.windows(c, _pattern(c))
    still = replace(attention, rotary=None) if hybrid else attention
    layers = [_after(c, still if window is None else replace(attention, window=window)) for window in windows]
    return fields.decoder(c, layers, _norm(c)), AFTER


def _pattern(c: Config) -> Callable[[int], bool]:
    """Which layers have windows, where the file has no kind for each: all but every so many, or the letters L of a word
    like "LLLG", which is repeated."""
    given = c.values.get("sliding_window_pattern")
    if isinstance(given, str) and given and set(given) <= set("LG"):
        return lambda i: given[i % len(given)] == "L"
    every = c.integer("sliding_window_pattern", 0, 1024, 4) or 1
    return lambda i: (i + 1) % every != 0


def _norm(c: Config) -> NormConfig:
    return fields.rms(c, default=1e-5)


def _after(c: Config, attention: AttentionConfig) -> LayerConfig:
    norm = _norm(c)
    return LayerConfig(attention, fields.mlp(c, bias=False), after_attention=norm, after_mlp=norm)

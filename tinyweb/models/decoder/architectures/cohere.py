"""Command R and Aya (Cohere): attention and MLP side by side, pairs of rotary positions are neighbours."""

from __future__ import annotations

from dataclasses import replace

from tinyweb.formats.huggingface import Config
from tinyweb.models.decoder.architectures import fields
from tinyweb.models.decoder.config import AttentionConfig, DecoderConfig, LayerConfig, Names


def _decoder(c: Config, attentions: list[AttentionConfig]) -> DecoderConfig:
    norm, mlp = fields.layer_norm(c, bias=False), fields.mlp(c, bias=False)
    layers = [LayerConfig(attention, mlp, before_attention=norm, parallel=True) for attention in attentions]
    return fields.decoder(c, layers, norm, tied=True, logit_scale=c.number("logit_scale", 0, 1e6, 0.0625))


def cohere(c: Config) -> tuple[DecoderConfig, Names]:
    """Command R: each head of queries and keys may have a norm of its own."""
    norm = fields.layer_norm(c, bias=False) if c.flag("use_qk_norm", False) else None
    rotary = fields.rotary(c, theta=500000.0, interleaved=True)
    attention = fields.attention(c, rotary, norm=norm, norm_of="each head")
    return _decoder(c, [attention] * fields.layer_count(c)), Names()


def cohere2(c: Config) -> tuple[DecoderConfig, Names]:
    """Command R7B and A: windows in three of four layers; the others know no positions."""
    every = c.integer("sliding_window_pattern", 1, 1024, 4)
    windows = fields.windows(c, lambda i: (i + 1) % every != 0)
    near = fields.attention(c, fields.rotary(c, interleaved=True))
    far = replace(near, rotary=None)
    return _decoder(c, [far if window is None else replace(near, window=window) for window in windows]), Names()

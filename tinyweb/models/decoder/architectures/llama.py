"""Llama and those that are Llama but for a bias, a norm or a window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tinyweb.formats.huggingface import Config
from tinyweb.models.decoder.architectures import fields
from tinyweb.models.decoder.config import AttentionConfig, DecoderConfig, LayerConfig, Names


def layers(c: Config, attention: AttentionConfig, windows: Sequence[int | None]) -> list[LayerConfig]:
    """RMS norms before attention and before a gated MLP, with a window for each layer."""
    norm, mlp = fields.rms(c), fields.mlp(c)
    return [
        LayerConfig(replace(attention, window=window), mlp, before_attention=norm, before_mlp=norm)
        for window in windows
    ]


def llama(c: Config) -> tuple[DecoderConfig, Names]:
    """Llama 1 to 3 (Touvron et al. 2023) and Falcon 3."""
    attention = fields.attention(c, fields.rotary(c))
    return fields.decoder(c, layers(c, attention, [None] * fields.layer_count(c)), fields.rms(c)), Names()


def mistral(c: Config) -> tuple[DecoderConfig, Names]:
    """Mistral (Jiang et al. 2023) and Ministral: windows in all layers, or in those that `layer_types` names."""
    attention = fields.attention(c, fields.rotary(c), bias=False)
    return fields.decoder(c, layers(c, attention, fields.windows(c, lambda i: True)), fields.rms(c)), Names()


def qwen2(c: Config) -> tuple[DecoderConfig, Names]:
    """Qwen 2 and 2.5 (Yang et al. 2024): queries, keys and values have biases."""
    attention = fields.attention(c, fields.rotary(c), bias=True)
    return fields.decoder(c, layers(c, attention, qwen_windows(c)), fields.rms(c)), Names()


def qwen3(c: Config) -> tuple[DecoderConfig, Names]:
    """Qwen 3 (Yang et al. 2025): queries and keys are normalised, all heads with the same weights."""
    attention = fields.attention(c, fields.rotary(c), norm=fields.rms(c))
    return fields.decoder(c, layers(c, attention, qwen_windows(c)), fields.rms(c)), Names()


def qwen_windows(c: Config) -> list[int | None]:
    """Windows, if they are asked for, from the layer `max_window_layers` on."""
    if not c.flag("use_sliding_window", False):
        return [None] * fields.layer_count(c)
    first = c.integer("max_window_layers", 0, 1024, 28)
    return fields.windows(c, lambda i: i >= first)

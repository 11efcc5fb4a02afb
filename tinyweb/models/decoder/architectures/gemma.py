"""Gemma: norm weights are distances from 1, embeddings are scaled by the root of their width (Gemma Team 2024)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from statistics import NormalDist
from typing import Any

from tinyweb.errors import ModelFormatError
from tinyweb.formats.huggingface import Config
from tinyweb.models.decoder.architectures import fields
from tinyweb.models.decoder.config import (
    AttentionConfig,
    DecoderConfig,
    LayerConfig,
    MlpConfig,
    Names,
    NormConfig,
    SideConfig,
    StreamsConfig,
)

TANH = "gelu_pytorch_tanh"
SANDWICH = Names(before_mlp="pre_feedforward_layernorm")


def _norm(c: Config) -> NormConfig:
    return fields.rms(c, offset=1)


def _mlp(c: Config) -> MlpConfig:
    width = c.integer("intermediate_size", 1, 1 << 20)
    return MlpConfig(width, fields.activation(c, "hidden_activation", TANH))


def _decoder(c: Config, layers: list[LayerConfig], cap: float | None = None) -> DecoderConfig:
    scale = math.sqrt(fields.hidden_size(c))
    return fields.decoder(c, layers, _norm(c), tied=True, embedding_scale=scale, logit_softcap=cap)


def gemma(c: Config) -> tuple[DecoderConfig, Names]:
    """Gemma 1, whose files say "gelu" and mean the approximation by tanh."""
    attention, norm = fields.attention(c, fields.rotary(c)), _norm(c)
    mlp = fields.mlp(c, bias=False, default=TANH)
    mlp = replace(mlp, activation="gelu_tanh") if mlp.activation == "gelu" else mlp
    layer = LayerConfig(attention, mlp, before_attention=norm, before_mlp=norm)
    return _decoder(c, [layer] * fields.layer_count(c)), Names()


def gemma2(c: Config) -> tuple[DecoderConfig, Names]:
    """Gemma 2: norms before and after, soft caps, a window in every other layer."""
    attention = fields.attention(c, fields.rotary(c), scale=_scale(c), softcap=_cap(c, "attn_logit_softcapping", 50))
    windows = fields.windows(c, lambda i: i % 2 == 0)
    layers = [_sandwich(c, replace(attention, window=window)) for window in windows]
    return _decoder(c, layers, _cap(c, "final_logit_softcapping", 30)), SANDWICH


def vault_gemma(c: Config) -> tuple[DecoderConfig, Names]:
    """VaultGemma (2025): Gemma 2 without the norms behind attention and MLP."""
    config, names = gemma2(c)
    layers = tuple(replace(layer, after_attention=None, after_mlp=None) for layer in config.layers)
    return replace(config, layers=layers), names


def gemma3(c: Config) -> tuple[DecoderConfig, Names]:
    """Gemma 3: queries and keys are normalised in place of soft caps of scores (whatever the file says of these), five
    of six layers have a window and a rotary base of their own."""
    if c.flag("use_bidirectional_attention", False):
        raise ModelFormatError(f"{c.where}: 'use_bidirectional_attention' is not supported: this is no decoder")
    every = c.integer("sliding_window_pattern", 1, 1024, 6)
    windows = fields.windows(c, lambda i: (i + 1) % every != 0)
    parts = {"scale": _scale(c), "norm": _norm(c)}
    near = fields.attention(c, fields.local_rotary(c, c.number("rope_local_base_freq", 1, 1e12, 10000.0)), **parts)
    far = fields.attention(c, fields.rotary(c, theta=1e6), **parts)
    layers = [_sandwich(c, far if window is None else replace(near, window=window)) for window in windows]
    return _decoder(c, layers, _cap(c, "final_logit_softcapping", None)), SANDWICH


def gemma3_with_pictures(c: Config) -> tuple[DecoderConfig, Names]:
    """The language model of a Gemma 3 that also reads pictures."""
    return _language_model(c, USUAL_TEXT, gemma3)


def _language_model(
    c: Config, usual: dict[str, Any], read: Callable[[Config], tuple[DecoderConfig, Names]]
) -> tuple[DecoderConfig, Names]:
    text = c.section("text_config")
    if text is None:
        raise ModelFormatError(f"{c.where} lacks 'text_config': the file is incomplete")
    config, names = read(Config({**usual, **text.values}, text.where))
    return config, replace(names, prefixes=("language_model.model.", "model.language_model."))


def gemma3n(c: Config) -> tuple[DecoderConfig, Names]:
    """Gemma 3n: streams, a table for each layer, sparse MLPs, and last layers that read others' keys and values."""
    count, norm = fields.layer_count(c), fields.rms(c)
    windows = fields.windows(c, lambda i: (i + 1) % 5 != 0)
    parts = {"scale": 1.0, "norm": norm, "value_norm": replace(norm, weight=False)}
    near = fields.attention(c, fields.local_rotary(c, c.number("rope_local_base_freq", 1, 1e12, 10000.0)), **parts)
    far = fields.attention(c, fields.rotary(c, theta=1e6), **parts)
    own = count - c.integer("num_kv_shared_layers", 0, count - 1, 15)
    side = SideConfig(c.integer("laurel_rank", 1, 1 << 16, 64), norm)
    layers = []
    for i, (window, mlp) in enumerate(zip(windows, _sparse_mlps(c), strict=True)):
        shared = None
        if i >= own:
            alike = [j for j in range(own) if windows[j] == window]
            if not alike:
                raise ModelFormatError(f"{c.where}: no layer of the first {own} has keys and values for layer {i}")
            shared = alike[-1]
        attention = replace(far if window is None else near, window=window, keys_of=shared)
        layers.append(LayerConfig(attention, mlp, norm, norm, norm, norm, side=side))
    streams = StreamsConfig(
        inputs := c.integer("altup_num_inputs", 2, 64, 4), c.integer("altup_active_idx", 0, inputs - 1, 0),
        c.integer("hidden_size_per_layer_input", 1, 1 << 16, 256),
        c.integer("vocab_size_per_layer_input", 1, 1 << 22, 262144), _sparse_mlps(c)[0].activation, norm,
        c.flag("altup_correct_scale", True),
    )  # fmt: skip
    found = fields.decoder(
        c, layers, norm, tied=True, embedding_scale=math.sqrt(fields.hidden_size(c)), streams=streams,
        logit_softcap=_cap(c, "final_logit_softcapping", 30),
    )  # fmt: skip
    return found, SANDWICH


def gemma3n_with_pictures(c: Config) -> tuple[DecoderConfig, Names]:
    """The language model of a Gemma 3n that also reads pictures and sounds."""
    return _language_model(c, {}, gemma3n)


def _sparse_mlps(c: Config) -> list[MlpConfig]:
    """The MLP of each layer, with its width and what is cut: by the share of a normal distribution that is below."""
    count = fields.layer_count(c)
    usual = fields.activation(c, "hidden_activation", TANH)
    widths = _each(c, "intermediate_size", [16384] * count, int, 1, 1 << 20)
    first = 10 if count > 10 else 0
    cuts = _each(c, "activation_sparsity_pattern", [0.95] * first + [0.0] * (count - first), float, 0, 0.9999)
    return [
        MlpConfig(int(width), usual, cut=NormalDist().inv_cdf(cut) if cut > 0 else None)
        for width, cut in zip(widths, cuts, strict=True)
    ]


def _each(c: Config, key: str, usual: list[Any], kind: type, low: float, high: float) -> list[float]:
    """A number for each layer: a list in the file, or one for all."""
    given = c.values.get(key)
    values = usual if given is None else given if isinstance(given, list) else [given] * len(usual)
    if len(values) != len(usual) or any(type(v) not in (int, kind) or not low <= v <= high for v in values):
        raise ModelFormatError(
            f"{c.where}: {key!r} must be a number from {low:g} to {high:g}, or {len(usual)} of them, "
            f"found {str(given)[:60]}"
        )
    return [float(v) for v in values]


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

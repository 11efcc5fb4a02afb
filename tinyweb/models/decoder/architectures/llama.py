"""Llama and those that are Llama but for a bias, a norm, a window or a scale."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from tinyweb.errors import ModelFormatError
from tinyweb.formats.huggingface import Config
from tinyweb.models.decoder.architectures import fields
from tinyweb.models.decoder.config import (
    XIELU,
    AttentionConfig,
    DecoderConfig,
    GrowthConfig,
    LayerConfig,
    Names,
    RotaryConfig,
)


def layers(c: Config, attentions: Iterable[AttentionConfig]) -> list[LayerConfig]:
    """RMS norms before attention and before a gated MLP."""
    norm, mlp = fields.rms(c), fields.mlp(c)
    return [LayerConfig(attention, mlp, before_attention=norm, before_mlp=norm) for attention in attentions]


def windowed(attention: AttentionConfig, windows: Sequence[int | None]) -> list[AttentionConfig]:
    """The attention of each layer, with its window."""
    return [replace(attention, window=window) for window in windows]


def llama(c: Config) -> tuple[DecoderConfig, Names]:
    """Llama 1 to 3 (Touvron et al. 2023) and Falcon 3."""
    attention = fields.attention(c, fields.rotary(c))
    return fields.decoder(c, layers(c, [attention] * fields.layer_count(c)), fields.rms(c)), Names()


def mistral(c: Config) -> tuple[DecoderConfig, Names]:
    """Mistral (Jiang et al. 2023) and Ministral: windows in all layers, or in those that `layer_types` names."""
    attention = fields.attention(c, fields.rotary(c), bias=False)
    return fields.decoder(c, layers(c, windowed(attention, fields.windows(c, lambda i: True))), fields.rms(c)), Names()


def ministral3(c: Config) -> tuple[DecoderConfig, Names]:
    """Ministral 3: behind the positions of training queries grow with their logarithm."""
    config, names = mistral(c)
    given = fields.rope(c)
    weight = given.number("llama_4_scaling_beta", 0, 1e3, 0)
    if not weight:
        return config, names
    growth = GrowthConfig(weight, given.integer("original_max_position_embeddings", 1, fields.MOST, config.positions))
    attentions = [layer.mixer for layer in config.layers if isinstance(layer.mixer, AttentionConfig)]
    chosen = layers(c, [replace(attention, growth=growth) for attention in attentions])
    return replace(config, layers=tuple(chosen)), names


def qwen2(c: Config) -> tuple[DecoderConfig, Names]:
    """Qwen 2 and 2.5 (Yang et al. 2024): queries, keys and values have biases, in mixtures of experts if asked for."""
    attention = fields.attention(c, fields.rotary(c), bias=c.flag("qkv_bias", True))
    return fields.decoder(c, layers(c, windowed(attention, qwen_windows(c))), fields.rms(c)), Names()


def qwen3(c: Config) -> tuple[DecoderConfig, Names]:
    """Qwen 3 (Yang et al. 2025): queries and keys are normalised, all heads with the same weights."""
    attention = fields.attention(c, fields.rotary(c), norm=fields.rms(c))
    return fields.decoder(c, layers(c, windowed(attention, qwen_windows(c))), fields.rms(c)), Names()


def qwen_windows(c: Config) -> list[int | None]:
    """Windows, if they are asked for, from the layer `max_window_layers` on."""
    if not c.flag("use_sliding_window", False):
        return fields.no_windows(c)
    first = c.integer("max_window_layers", 0, 1024, 28)
    return fields.windows(c, lambda i: i >= first)


def smollm3(c: Config) -> tuple[DecoderConfig, Names]:
    """SmolLM 3: every fourth layer knows no positions; windows, if asked for, are where there are none."""
    turned = positioned(c)
    attention = fields.attention(c, fields.rotary(c, theta=2e6))
    slides = c.flag("use_sliding_window", False)
    windows = fields.windows(c, lambda i: not turned[i]) if slides else fields.no_windows(c)
    each = zip(windowed(attention, windows), turned, strict=True)
    chosen = layers(c, [one if rotates else replace(one, rotary=None) for one, rotates in each])
    return fields.decoder(c, chosen, fields.rms(c), tied=True), Names()


def positioned(c: Config) -> list[bool]:
    """For each layer whether it has rotary positions: `no_rope_layers`, where 1 means that it has. An empty list says
    nothing (as Llama 4's first files have it)."""
    count, given = fields.layer_count(c), c.values.get("no_rope_layers")
    if given is None or given == []:
        every = c.integer("no_rope_layer_interval", 1, 1 << 30, 4)
        return [(i + 1) % every != 0 for i in range(count)]
    if not isinstance(given, list) or len(given) != count or any(v not in (0, 1) for v in given):
        raise ModelFormatError(f"{c.where}: 'no_rope_layers' must be a list of {count} zeros and ones")
    return [bool(v) for v in given]


def granite(c: Config) -> tuple[DecoderConfig, Names]:
    """Granite (IBM 2024): scales of embeddings, scores, what layers add, and logits are in the file."""
    attention = fields.attention(c, fields.rotary(c), scale=c.number("attention_multiplier", 1e-6, 1e6, 1))
    residual = c.number("residual_multiplier", 0, 1e6, 1)
    made = [replace(layer, residual=residual) for layer in layers(c, [attention] * fields.layer_count(c))]
    embedding, logits = c.number("embedding_multiplier", 0, 1e6, 1), 1 / c.number("logits_scaling", 1e-6, 1e6, 1)
    return fields.decoder(c, made, fields.rms(c), embedding_scale=embedding, logit_scale=logits), Names()


def phi3(c: Config) -> tuple[DecoderConfig, Names]:
    """Phi-3 and Phi-4 (Abdin et al. 2024): fused matrices; part of a head may be turned, far texts by LongRoPE."""
    kinds = {"su": "longrope", "yarn": "longrope"}  # what the files have called it
    attention = fields.attention(c, fields.rotary(c, kinds=kinds))
    names = Names(qkv=("self_attn.qkv_proj",), gate_up=("mlp.gate_up_proj",))
    return fields.decoder(c, layers(c, windowed(attention, fields.windows(c, lambda i: True))), fields.rms(c)), names


def plain_mlp(c: Config) -> tuple[DecoderConfig, Names]:
    """Arcee's foundation models (2025): Llama whose MLP has two layers, with squares of a ReLU between them."""
    config, _ = llama(c)
    mlp = fields.mlp(c, gated=False, default="relu2")
    layers = tuple(replace(layer, mlp=mlp) for layer in config.layers)
    return replace(config, layers=layers), Names(gate_up=("mlp.up_proj",))


def apertus(c: Config) -> tuple[DecoderConfig, Names]:
    """Apertus (Swiss AI 2025): norms of queries and keys, and an MLP of two layers with a learned xIELU."""
    attention = fields.attention(c, fields.rotary(c, theta=12000000.0), norm=fields.rms(c, default=1e-5))
    learned = c.word("hidden_act", XIELU) == XIELU
    mlp = fields.mlp(Config({**c.values, "hidden_act": None}, c.where) if learned else c, gated=False, bias=False)
    norm, mlp = fields.rms(c, default=1e-5), replace(mlp, activation=XIELU) if learned else mlp
    layer = LayerConfig(attention, mlp, before_attention=norm, before_mlp=norm)
    names = Names(
        before_attention="attention_layernorm", before_mlp="feedforward_layernorm", gate_up=("mlp.up_proj",)
    )  # fmt: skip
    return fields.decoder(c, [layer] * fields.layer_count(c), norm), names


def hunyuan(c: Config) -> tuple[DecoderConfig, Names]:
    """Hunyuan, dense (Tencent 2025): queries and keys are normalised when they are turned; for long texts with a larger
    base of the angles."""
    attention = fields.attention(c, _with_larger_base(c), norm=fields.rms(c, default=1e-5), norm_turned=True)
    norm, mlp = fields.rms(c, default=1e-5), fields.mlp(c, bias=False)
    layer = LayerConfig(attention, mlp, before_attention=norm, before_mlp=norm)
    names = Names(query_norm="self_attn.query_layernorm", key_norm="self_attn.key_layernorm")
    return fields.decoder(c, [layer] * fields.layer_count(c), norm), names


def _with_larger_base(c: Config) -> Callable[[int], RotaryConfig]:
    """Of "dynamic" scaling with a fixed `alpha`, which no longer depends on the text's length (NTK-aware scaling)."""
    given = fields.rope(c)
    alpha = given.number("alpha", 0, 1e6, 0.0)
    if not alpha or given.word("rope_type", given.word("type", "default")) != "dynamic":
        return fields.rotary(c)
    theta = given.number("rope_theta", 1, 1e12, c.number("rope_theta", 1, 1e12, 10000.0))
    return lambda width: RotaryConfig(theta * alpha ** (width / max(width - 2, 1)), width)


def seed_oss(c: Config) -> tuple[DecoderConfig, Names]:
    """Seed-OSS (ByteDance 2025): biases of queries, keys and values, and of the output apart."""
    biases = {"bias": c.flag("attention_bias", True), "output_bias": c.flag("attention_out_bias", False)}
    attention = fields.attention(c, fields.rotary(c), **biases)
    return fields.decoder(c, layers(c, [attention] * fields.layer_count(c)), fields.rms(c)), Names()


def helium(c: Config) -> tuple[DecoderConfig, Names]:
    """Helium (Kyutai 2025): pairs of rotary positions are neighbours; the output has no bias."""
    rotary = fields.rotary(c, theta=100000.0, interleaved=True)
    attention = fields.attention(c, rotary, bias=c.flag("attention_bias", False))
    return fields.decoder(c, layers(c, [attention] * fields.layer_count(c)), fields.rms(c)), Names()


def cwm(c: Config) -> tuple[DecoderConfig, Names]:
    """Code World Model (Meta 2025): windows in three of four layers."""
    attention = fields.attention(c, fields.rotary(c, theta=1e6), bias=False)
    return fields.decoder(
        c, layers(c, windowed(attention, fields.windows(c, lambda i: i % 4 != 0))), fields.rms(c)
    ), Names()

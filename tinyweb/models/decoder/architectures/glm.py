"""GLM (Zhipu AI 2024) and ERNIE 4.5 (Baidu 2025): pairs of rotary positions are neighbours."""

from __future__ import annotations

from dataclasses import replace

from tinyweb.formats.huggingface import Config
from tinyweb.models.decoder.architectures import fields, llama
from tinyweb.models.decoder.config import DecoderConfig, LayerConfig, Names

FUSED = ("mlp.gate_up_proj",)


def _layers(c: Config) -> list[LayerConfig]:
    """Half of each head is turned; the output has no bias."""
    rotary = fields.rotary(c, part=0.5, interleaved=True)
    attention = fields.attention(c, rotary, bias=c.flag("attention_bias", True))
    return llama.layers(c, [attention] * fields.layer_count(c))


def glm(c: Config) -> tuple[DecoderConfig, Names]:
    """GLM-4 of 2024 and its edge models."""
    return fields.decoder(c, _layers(c), fields.rms(c)), Names(gate_up=FUSED)


def glm4(c: Config) -> tuple[DecoderConfig, Names]:
    """GLM-4-0414: norms after attention and MLP, too."""
    norm = fields.rms(c)
    layers = [replace(layer, after_attention=norm, after_mlp=norm) for layer in _layers(c)]
    names = Names(gate_up=FUSED, after_attention="post_self_attn_layernorm", after_mlp="post_mlp_layernorm")
    return fields.decoder(c, layers, norm), names


def ernie(c: Config) -> tuple[DecoderConfig, Names]:
    """ERNIE 4.5: biases everywhere or nowhere."""
    bias, norm = c.flag("use_bias", False), fields.rms(c, default=1e-5)
    rotary = fields.rotary(c, theta=500000.0, interleaved=True)
    attention = fields.attention(c, rotary, bias=bias, output_bias=bias)
    layer = LayerConfig(attention, fields.mlp(c, bias=bias), before_attention=norm, before_mlp=norm)
    return fields.decoder(c, [layer] * fields.layer_count(c), norm, tied=True), Names()

"""Encoders with rotary positions and gated MLPs."""

from __future__ import annotations

from dataclasses import replace

from tinyweb.formats.huggingface import Config
from tinyweb.models.decoder.architectures import fields
from tinyweb.models.decoder.config import LayerConfig, NormConfig
from tinyweb.models.encoder.config import EncoderConfig, EncoderNames


def modernbert(c: Config) -> tuple[EncoderConfig, EncoderNames]:
    """ModernBERT (Warner et al. 2024): norms before, windows in two of three layers, a rotary base for each kind."""
    every = c.integer("global_attn_every_n_layers", 1, 1024, 3)
    wide = c.integer("local_attention", 2, fields.MOST, 128) // 2 + 1
    bias = c.flag("attention_bias", False)
    parts = {"bias": bias, "output_bias": bias}
    near = fields.attention(c, fields.local_rotary(c, c.number("local_rope_theta", 1, 1e12, 10000.0)), **parts)
    near = replace(near, window=wide)
    theta = c.number("global_rope_theta", 1, 1e12, 160000.0)
    far = fields.attention(c, fields.rotary(c, theta), **parts)
    norm = NormConfig("layer", c.number("norm_eps", 0, 1, 1e-5), bias=c.flag("norm_bias", False))
    mlp = fields.mlp(c, default="gelu", key="hidden_activation")
    layers = [
        LayerConfig(near if local else far, mlp, before_attention=norm if i else None, before_mlp=norm)
        for i, local in enumerate(fields.sliding(c, lambda i: i % every != 0))
    ]
    names = EncoderNames(
        prefixes=("model.",), embedding="embeddings.tok_embeddings", embedding_norm="embeddings.norm",
        norm="final_norm", before_attention="attn_norm", qkv=("attn.Wqkv",), output="attn.Wo", before_mlp="mlp_norm",
        gate_up=("mlp.Wi",), down="mlp.Wo",
    )  # fmt: skip
    config = EncoderConfig(
        vocab_size=c.integer("vocab_size", 1, 1 << 22),
        hidden_size=fields.hidden_size(c),
        positions=fields.positions(c),
        layers=tuple(layers),
        model_type="modernbert",
        embedding_norm=norm,
        norm=norm,
    )
    return config, names

"""Those with layer norms and, but for StableLM, an MLP of two layers: GPT-2, GPT-NeoX, Phi, StableLM, StarCoder 2,
Nemotron."""

from __future__ import annotations

import math
from dataclasses import replace

from tinyweb.formats.huggingface import Config
from tinyweb.models.decoder.architectures import fields
from tinyweb.models.decoder.config import DecoderConfig, LayerConfig, MlpConfig, Names

SAME_NAMES = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "max_position_embeddings": "n_positions",
    "hidden_act": "activation_function",
}


def gpt2(c: Config) -> tuple[DecoderConfig, Names]:
    """GPT-2 (Radford et al. 2019): positions are learned, matrices are (in, out)."""
    for name in ("n_embd", "n_layer", "n_head", "n_positions"):
        c.integer(name, 1, fields.MOST)  # errors say the names in the file
    c = renamed(c, SAME_NAMES)
    hidden = fields.hidden_size(c)
    norm = fields.layer_norm(c, "layer_norm_epsilon")
    wide = c.integer("n_inner", 1, 1 << 20, 4 * hidden)
    mlp = MlpConfig(wide, fields.activation(c, default="gelu_new"), gated=False, bias=True)
    attention = fields.attention(c, lambda width: None, bias=True, output_bias=True)
    layer = LayerConfig(attention, mlp, before_attention=norm, before_mlp=norm)
    scaled, by_depth = c.flag("scale_attn_weights", True), c.flag("scale_attn_by_inverse_layer_idx", False)

    def scale(i: int) -> float:
        return (1 / math.sqrt(attention.width) if scaled else 1.0) / (i + 1 if by_depth else 1)

    layers = [replace(layer, mixer=replace(attention, scale=scale(i))) for i in range(fields.layer_count(c))]
    names = Names(
        prefixes=("transformer.",), embedding="wte", positions="wpe", norm="ln_f", layer="h.{}.",
        before_attention="ln_1", before_mlp="ln_2", qkv=("attn.c_attn",), output="attn.c_proj",
        gate_up=("mlp.c_fc",), down="mlp.c_proj", transposed=True,
    )  # fmt: skip
    return fields.decoder(c, layers, norm, tied=True, learned_positions=True), names


def renamed(c: Config, names: dict[str, str]) -> Config:
    """The fields of a file that calls them otherwise, and whose heads have keys and values of their own."""
    return _ungrouped(Config({**c.values, **{name: c.values.get(old) for name, old in names.items()}}, c.where))


def _ungrouped(c: Config) -> Config:
    """Each head has a key and a value of its own, whatever the file says."""
    return Config({**c.values, "num_key_value_heads": None}, c.where)


def gpt_neox(c: Config) -> tuple[DecoderConfig, Names]:
    """GPT-NeoX and Pythia (Black et al. 2022): attention and MLP side by side, a quarter of each head is turned."""
    c = _ungrouped(c)
    theta, part = c.number("rotary_emb_base", 1, 1e12, 10000.0), c.number("rotary_pct", 0, 1, 0.25)
    bias = c.flag("attention_bias", True)
    attention = fields.attention(c, fields.rotary(c, theta, part), bias=bias, output_bias=bias)
    norm, mlp = fields.layer_norm(c), fields.mlp(c, gated=False, bias=True, default="gelu")
    layer = LayerConfig(attention, mlp, before_attention=norm, before_mlp=norm)
    layer = replace(layer, parallel=c.flag("use_parallel_residual", True))
    names = Names(
        prefixes=("gpt_neox.",), embedding="embed_in", norm="final_layer_norm", head="embed_out",
        qkv=("attention.query_key_value",), output="attention.dense", by_head=True,
        gate_up=("mlp.dense_h_to_4h",), down="mlp.dense_4h_to_h",
    )  # fmt: skip
    return fields.decoder(c, [layer] * fields.layer_count(c), norm), names


def phi(c: Config) -> tuple[DecoderConfig, Names]:
    """Phi 1, 1.5 and 2 (Gunasekar et al. 2023): attention and MLP side by side behind one norm, biases everywhere."""
    norm = fields.layer_norm(c)
    own = norm if c.flag("qk_layernorm", False) else None
    attention = fields.attention(c, fields.rotary(c, part=0.5), bias=True, output_bias=True, norm=own)
    mlp = fields.mlp(c, gated=False, bias=True, default="gelu_new")
    layer = LayerConfig(attention, mlp, before_attention=norm, parallel=True)
    names = Names(
        norm="final_layernorm", output="self_attn.dense", gate_up=("mlp.fc1",), down="mlp.fc2",
        query_norm="self_attn.q_layernorm", key_norm="self_attn.k_layernorm",
    )  # fmt: skip
    return fields.decoder(c, [layer] * fields.layer_count(c), norm, head_bias=True), names


def stablelm(c: Config) -> tuple[DecoderConfig, Names]:
    """StableLM 2 (Bellagente et al. 2024): a gated MLP, a quarter of each head is turned."""
    norm = fields.layer_norm(c)
    attention = fields.attention(
        c,
        fields.rotary(c, part=0.25),
        bias=c.flag("use_qkv_bias", False),
        norm=fields.layer_norm(c, bias=False) if c.flag("qk_layernorm", False) else None,
        norm_of="each head",
    )
    parallel = c.flag("use_parallel_residual", False)
    layer = LayerConfig(attention, fields.mlp(c, bias=False), before_attention=norm, parallel=parallel)
    layer = replace(layer, before_mlp=None if parallel else norm)
    names = Names(query_norm="self_attn.q_layernorm", key_norm="self_attn.k_layernorm", each_norm="norms.{}")
    return fields.decoder(c, [layer] * fields.layer_count(c), norm), names


def starcoder2(c: Config) -> tuple[DecoderConfig, Names]:
    """StarCoder 2 (Lozhkov et al. 2024): a window in all layers, if there is one."""
    bias, norm = c.flag("use_bias", True), fields.layer_norm(c, "norm_epsilon")
    attention = fields.attention(c, fields.rotary(c), bias=bias, output_bias=bias)
    mlp = fields.mlp(c, gated=False, bias=bias, default="gelu_pytorch_tanh")
    layers = [
        LayerConfig(replace(attention, window=window), mlp, before_attention=norm, before_mlp=norm)
        for window in fields.windows(c, lambda i: True)
    ]
    names = Names(gate_up=("mlp.c_fc",), down="mlp.c_proj")
    return fields.decoder(c, layers, norm, tied=True), names


def nemotron(c: Config) -> tuple[DecoderConfig, Names]:
    """Nemotron and Minitron (Parmar et al. 2024): norm weights are distances from 1, half of each head is turned."""
    norm = replace(fields.layer_norm(c, "norm_eps"), offset=1)
    attention = fields.attention(c, fields.rotary(c, part=0.5))
    mlp = fields.mlp(c, gated=False, default="relu2")
    layer = LayerConfig(attention, mlp, before_attention=norm, before_mlp=norm)
    return fields.decoder(c, [layer] * fields.layer_count(c), norm), Names(gate_up=("mlp.up_proj",))

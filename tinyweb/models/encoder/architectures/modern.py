"""Encoders with rotary positions and gated MLPs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tinyweb.errors import ModelFormatError
from tinyweb.formats.huggingface import Config
from tinyweb.models.decoder.architectures import fields
from tinyweb.models.decoder.config import LayerConfig, NormConfig, RotaryConfig
from tinyweb.models.encoder.architectures import bert
from tinyweb.models.encoder.config import EncoderConfig, EncoderNames
from tinyweb.nn.rotary import RotaryScaling


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


FIRST_NOMIC = {
    "hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head",
    "intermediate_size": "n_inner", "max_position_embeddings": "n_positions", "layer_norm_eps": "layer_norm_epsilon",
    "rope_theta": "rotary_emb_base", "partial_rotary_factor": "rotary_emb_fraction",
}  # fmt: skip
# of the first files: what the network has or has not
NOMIC_FIELDS = {
    "prenorm": False, "qkv_proj_bias": False, "mlp_fc1_bias": False, "mlp_fc2_bias": False, "parallel_block": False,
    "use_rms_norm": False, "rotary_emb_interleaved": False, "scale_attn_by_inverse_layer_idx": False,
    "activation_function": "swiglu", "rotary_emb_scale_base": None, "rotary_scaling_factor": None,
}  # fmt: skip


def nomic(c: Config) -> tuple[EncoderConfig, EncoderNames]:
    """Nomic Embed (Nussbaum et al. 2024): norms behind the sums, gated MLPs without biases. Fields have the names of
    its own implementation, as on the hub, or those of transformers 5; tensors always the former.
    """
    names = EncoderNames(
        prefixes=("bert.", "nomic_bert."), embedding="embeddings.word_embeddings", embedding_norm="emb_ln",
        layer="encoder.layers.{}.", qkv=("attn.Wqkv",), output="attn.out_proj", after_attention="norm1",
        gate_up=("mlp.fc12", "mlp.fc11"), down="mlp.fc2", after_mlp="norm2",
    )  # fmt: skip
    if c.values.get("n_embd") is not None:
        for key, value in NOMIC_FIELDS.items():
            if c.values.get(key, value) != value:
                raise ModelFormatError(f"{c.where}: {key!r} {str(c.values[key])[:40]!r} is not supported, only {value}")
        c = Config({**c.values, **{ours: c.values.get(theirs) for ours, theirs in FIRST_NOMIC.items()}}, c.where)
    attention = fields.attention(c, fields.rotary(c, theta=1000.0), bias=False)
    return bert.encoder(c, "nomic_bert", attention, fields.mlp(c, bias=False), bert.layer_norm(c), None), names


def new(c: Config) -> tuple[EncoderConfig, EncoderNames]:
    """GTE v1.5 and multilingual (Zhang et al. 2024): norms behind the sums, gated MLPs with a bias at their end."""
    for key, value in {"position_embedding_type": "rope", "layer_norm_type": "layer_norm", "pack_qkv": True,
                       "logn_attention_scale": False}.items():  # fmt: skip
        if c.values.get(key, value) != value:
            raise ModelFormatError(f"{c.where}: {key!r} {str(c.values[key])[:40]!r} is not supported, only {value}")
    attention = fields.attention(c, _ntk(c), bias=True, output_bias=True)
    mlp = replace(fields.mlp(c, default="gelu", bias=False), down_bias=True)
    names = EncoderNames(
        prefixes=("new.",), embedding="embeddings.word_embeddings", layer="encoder.layer.{}.",
        qkv=("attention.qkv_proj",), output="attention.o_proj", after_attention="attn_ln",
        gate_up=("mlp.up_gate_proj",), up_first=True, down="mlp.down_proj", after_mlp="mlp_ln",
    )  # fmt: skip
    made = bert.encoder(c, c.word("model_type", "new"), attention, mlp, bert.layer_norm(c), None)
    return replace(made, token_types=c.integer("type_vocab_size", 0, 1 << 16, 1)), names


def _ntk(c: Config) -> Callable[[int], RotaryConfig]:
    """Rotary positions whose scaling may be "ntk": a larger base, and lower frequencies that make up for it."""
    given = c.section("rope_scaling")
    if given is None or given.word("type", "") != "ntk":
        return fields.rotary(c)
    if given.values.get("mixed_b") is not None:
        raise ModelFormatError(f"{given.where}: 'mixed_b' is not supported")
    factor, theta = given.number("factor", 1, 1e6), c.number("rope_theta", 1, 1e12, 10000.0)

    def of(width: int) -> RotaryConfig:
        return RotaryConfig(theta * factor, width, RotaryScaling("linear", factor ** (2 / width)))

    return of

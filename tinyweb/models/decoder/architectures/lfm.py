"""LFM2 (Liquid AI 2025): short convolutions, and attention in some layers."""

from __future__ import annotations

from dataclasses import replace

from tinyweb.errors import ModelFormatError
from tinyweb.formats.huggingface import Config
from tinyweb.models.decoder.architectures import fields
from tinyweb.models.decoder.config import ConvConfig, DecoderConfig, ExpertsConfig, LayerConfig, MlpConfig, Names

EACH = "feed_forward.experts.{}."
NAMES = Names(
    norm="embedding_norm", before_attention="operator_norm", before_mlp="ffn_norm", output="self_attn.out_proj",
    query_norm="self_attn.q_layernorm", key_norm="self_attn.k_layernorm",
    gate_up=("feed_forward.w1", "feed_forward.w3"), down="feed_forward.w2",
    router="feed_forward.gate", choice_bias="feed_forward.expert_bias",
    experts_gate_up=(EACH + "w1", EACH + "w3"), experts_down=EACH + "w2",
)  # fmt: skip


def lfm2(c: Config) -> tuple[DecoderConfig, Names]:
    """Queries and keys are normalised; the width of the MLP follows from numbers in the file."""
    mlp = MlpConfig(_width(c), "silu")
    return _decoder(c, [mlp] * fields.layer_count(c)), NAMES


def lfm2_moe(c: Config) -> tuple[DecoderConfig, Names]:
    """With experts, whose scores are sigmoids, in all layers but the first ones."""
    dense = MlpConfig(c.integer("intermediate_size", 1, 1 << 20), "silu")
    first, count = c.integer("num_dense_layers", 0, 1024, 2), c.integer("num_experts", 1, 4096)
    experts = ExpertsConfig(
        count,
        c.integer("num_experts_per_tok", 1, count),
        replace(dense, width=c.integer("moe_intermediate_size", 1, 1 << 20)),
        scores="sigmoid",
        normalised=c.flag("norm_topk_prob", True),
        scale=c.number("routed_scaling_factor", 0, 1e6, 1),
        choice_bias=c.flag("use_expert_bias", True),
    )
    return _decoder(c, [dense if i < first else experts for i in range(fields.layer_count(c))]), NAMES


def _decoder(c: Config, mlps: list[MlpConfig | ExpertsConfig] | list[MlpConfig]) -> DecoderConfig:
    norm = fields.rms(c, "norm_eps", 1e-5)
    attention = fields.attention(c, fields.rotary(c, theta=1e6), bias=False, norm=norm)
    conv = ConvConfig(c.integer("conv_L_cache", 1, 64, 3), c.flag("conv_bias", False))
    layers = [
        LayerConfig(attention if attends else conv, mlp, before_attention=norm, before_mlp=norm)
        for attends, mlp in zip(_attends(c), mlps, strict=True)
    ]
    return fields.decoder(c, layers, norm, tied=c.flag("tie_embedding", True))


def _attends(c: Config) -> list[bool]:
    """For each layer whether it has attention: by `layer_types`, or before by `full_attn_idxs`."""
    count, kinds = fields.layer_count(c), c.values.get("layer_types")
    if kinds is None:
        which = c.ids("full_attn_idxs") if c.values.get("full_attn_idxs") is not None else range(count)
        return [i in which for i in range(count)]
    if not isinstance(kinds, list) or len(kinds) != count or any(k not in ("conv", "full_attention") for k in kinds):
        raise ModelFormatError(
            f"{c.where}: 'layer_types' must name {count} layers, each conv or full_attention, found {str(kinds)[:60]}"
        )
    return [k == "full_attention" for k in kinds]


def _width(c: Config) -> int:
    key = "block_ff_dim" if c.values.get("block_ff_dim") is not None else "intermediate_size"
    wide = c.integer(key, 1, 1 << 20)
    if not c.flag("block_auto_adjust_ff_dim", True):
        return wide
    multiple = c.integer("block_multiple_of", 1, 1 << 16, 256)
    wide = int(c.number("block_ffn_dim_multiplier", 1e-3, 1e3, 1) * int(2 * wide / 3))
    return -(-wide // multiple) * multiple

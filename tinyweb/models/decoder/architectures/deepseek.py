"""DeepSeek-V2 and V3 (DeepSeek-AI 2024): latent attention, experts in groups, some for all tokens. And those that have
the experts alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tinyweb.errors import ModelFormatError
from tinyweb.formats.huggingface import Config
from tinyweb.models.decoder.architectures import fields
from tinyweb.models.decoder.config import (
    AttentionConfig,
    DecoderConfig,
    ExpertsConfig,
    LatentConfig,
    LayerConfig,
    Names,
    NormConfig,
)

SHARED = "mlp.shared_experts."
NAMES = Names(shared_gate_up=(SHARED + "gate_proj", SHARED + "up_proj"), shared_down=SHARED + "down_proj")


def deepseek2(c: Config) -> tuple[DecoderConfig, Names]:
    """V2: scores are a softmax; of groups, if there are any, the one score that is largest counts."""
    method = c.word("topk_method", "greedy")
    if method not in ("greedy", "group_limited_greedy"):
        raise ModelFormatError(f"{c.where}: 'topk_method' {method[:40]!r} is not supported")
    parts = {"normalised": False} | (_groups(c) if method != "greedy" else {})
    return _decoder(c, True, parts), NAMES


def deepseek3(c: Config) -> tuple[DecoderConfig, Names]:
    """V3: scores are sigmoids; a bias decides with them which experts are chosen."""
    return _decoder(c, c.flag("rope_interleave", True), _sigmoid(c, True)), NAMES


def _groups(c: Config) -> dict[str, int]:
    groups, count = c.integer("n_group", 1, 4096, 1), c.integer("n_routed_experts", 1, 4096)
    if count % groups or count // groups < 2:
        raise ModelFormatError(f"{c.where}: {count} experts do not divide into {groups} groups of two or more")
    return {"groups": groups, "groups_chosen": c.integer("topk_group", 1, groups, 1)}


def dots(c: Config) -> tuple[DecoderConfig, Names]:
    """dots.llm1 (rednote-hilab 2025): V3's experts beside attention with normalised queries and keys, windows from a
    layer on."""
    norm, first = fields.rms(c), c.integer("max_window_layers", 0, 1024, 62)
    attention = fields.attention(c, fields.rotary(c), norm=norm)
    attentions = [replace(attention, window=window) for window in fields.windows(c, lambda i: i >= first)]
    return _sparse(c, attentions, norm, _sigmoid(c, False)), NAMES


def glm4_moe(c: Config) -> tuple[DecoderConfig, Names]:
    """GLM-4.5 and 4.6 (Zhipu AI 2025): V3's experts, half of each head turned."""
    norm = fields.rms(c, default=1e-5)
    own, bias = norm if c.flag("use_qk_norm", False) else None, c.flag("attention_bias", False)
    attention = fields.attention(c, fields.rotary(c, part=0.5), norm=own, bias=bias)
    return _sparse(c, [attention] * fields.layer_count(c), norm, _sigmoid(c, True)), NAMES


def _sigmoid(c: Config, normalised: bool) -> dict[str, Any]:
    """V3's routing; `normalised` where the file does not say it."""
    own = {"normalised": c.flag("norm_topk_prob", normalised), "scores": "sigmoid"}
    return {**own, "choice_bias": True, **_groups(c), "group_best": 2}


def _decoder(c: Config, interleaved: bool, routing: Mapping[str, Any]) -> DecoderConfig:
    c.integer("moe_layer_freq", 1, 1, 1)  # experts in all layers behind the dense ones
    return _sparse(c, [_latent(c, interleaved)] * fields.layer_count(c), fields.rms(c), routing)


def _sparse(
    c: Config, mixers: Sequence[AttentionConfig | LatentConfig], norm: NormConfig, routing: Mapping[str, Any]
) -> DecoderConfig:
    """Experts behind the first, dense layers."""
    mlp, first = fields.mlp(c), c.integer("first_k_dense_replace", 0, 1024, 0)
    count, shared = c.integer("n_routed_experts", 1, 4096), c.integer("n_shared_experts", 0, 4096, 0)
    each = replace(mlp, width=c.integer("moe_intermediate_size", 1, 1 << 20), bias=False)
    reach = count // routing.get("groups", 1) * routing.get("groups_chosen", 1)
    experts = ExpertsConfig(
        count,
        c.integer("num_experts_per_tok", 1, reach),
        each,
        scale=c.number("routed_scaling_factor", 0, 1e6, 1),
        shared=replace(mlp, width=each.width * shared) if shared else None,
        **routing,
    )
    layers = [
        LayerConfig(mixer, mlp if i < first else experts, before_attention=norm, before_mlp=norm)
        for i, mixer in enumerate(mixers)
    ]
    return fields.decoder(c, layers, norm)


def _latent(c: Config, interleaved: bool) -> LatentConfig:
    turned, plain = c.integer("qk_rope_head_dim", 2, 1024), c.integer("qk_nope_head_dim", 1, 1024)
    rotary = fields.rotary(c, interleaved=interleaved)(turned)
    rank = c.integer("q_lora_rank", 1, 1 << 16) if c.values.get("q_lora_rank") is not None else None
    return LatentConfig(
        heads=c.integer("num_attention_heads", 1, 1024),
        rank=c.integer("kv_lora_rank", 1, 1 << 16),
        plain=plain,
        value=c.integer("v_head_dim", 1, 1024),
        scale=_far(c) ** 2 / math.sqrt(plain + turned),
        rotary=rotary,
        norm=NormConfig("rms", 1e-6),
        query_rank=rank,
        bias=c.flag("attention_bias", False),
    )


def _far(c: Config) -> float:
    """What scaled positions multiply queries and keys with, each."""
    given = fields.rope(c)
    if given.word("rope_type", given.word("type", "default")) == "default":
        return 1.0
    return fields.growth(given.number("factor", 1e-3, 1e6), given.number("mscale_all_dim", 0, 1e3, 0))

"""Mixtures of experts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tinyweb.errors import ModelFormatError
from tinyweb.formats.huggingface import Config
from tinyweb.models.decoder.architectures import fields, llama
from tinyweb.models.decoder.config import (
    AttentionConfig,
    DecoderConfig,
    DeltaConfig,
    ExpertsConfig,
    GrowthConfig,
    LayerConfig,
    MlpConfig,
    Names,
)

BLOCK = "block_sparse_moe."
LLAMA4_KINDS = ("full_attention", "chunked_attention")


def _count(c: Config) -> int:
    key = "num_experts" if c.values.get("num_experts") is not None else "num_local_experts"
    return c.integer(key, 1, 4096)


def _experts(c: Config, width: str, normalised: bool = True) -> ExpertsConfig:
    """Gated MLPs whose width is in the field `width`."""
    count = _count(c)
    mlp = MlpConfig(c.integer(width, 1, 1 << 20), fields.activation(c))
    return ExpertsConfig(count, c.integer("num_experts_per_tok", 1, count), mlp, normalised=normalised)


def _normalised(c: Config) -> bool:
    return c.flag("norm_topk_prob", False)


def _with(
    config: DecoderConfig, experts: ExpertsConfig, sparse: Callable[[int], bool] = lambda i: True
) -> DecoderConfig:
    """Experts in place of the MLP, in the layers that are `sparse`."""
    layers = [replace(layer, mlp=experts) if sparse(i) else layer for i, layer in enumerate(config.layers)]
    return replace(config, layers=tuple(layers))


def mixtral(c: Config) -> tuple[DecoderConfig, Names]:
    """Mixtral (Jiang et al. 2024)."""
    config, _ = llama.mistral(c)
    each = BLOCK + "experts.{}."
    names = Names(router=BLOCK + "gate", experts_gate_up=(each + "w1", each + "w3"), experts_down=each + "w2")
    return _with(config, _experts(c, "intermediate_size")), names


def qwen2_moe(c: Config) -> tuple[DecoderConfig, Names]:
    """Qwen1.5-MoE and Qwen2-MoE: beside the chosen experts one that all tokens go through, behind a gate."""
    config, names = llama.qwen2(c)
    experts = _experts(c, "moe_intermediate_size", _normalised(c))
    shared = replace(experts.mlp, width=c.integer("shared_expert_intermediate_size", 1, 1 << 20))
    return _with(config, replace(experts, shared=shared, shared_gate=True), _sparse(c)), names


def qwen3_moe(c: Config) -> tuple[DecoderConfig, Names]:
    """Qwen3-MoE (Yang et al. 2025): windows, if they are asked for, are in all layers."""
    config, names = llama.qwen3(Config({**c.values, "max_window_layers": 0, "layer_types": None}, c.where))
    return _with(config, _experts(c, "moe_intermediate_size", _normalised(c)), _sparse(c)), names


def qwen3_next(c: Config) -> tuple[DecoderConfig, Names]:
    """Qwen3-Next (Qwen Team 2025): the gated delta rule in three of four layers, gates behind attention in the others,
    a quarter of each head turned; experts, and one for all tokens behind a gate."""
    norm = fields.rms(c, offset=1)
    attention = fields.attention(c, fields.rotary(c, part=0.25), norm=norm, gated=True)
    heads = c.integer("linear_num_value_heads", 1, 1024, 32)
    delta = DeltaConfig(
        heads, c.integer("linear_num_key_heads", 1, heads, 16), c.integer("linear_key_head_dim", 1, 4096, 128),
        c.integer("linear_value_head_dim", 1, 4096, 128), c.integer("linear_conv_kernel_dim", 2, 64, 4),
        fields.activation(c), fields.rms(c),
    )  # fmt: skip
    if heads % delta.key_heads:
        raise ModelFormatError(f"{c.where}: {heads} heads of values are no multiple of {delta.key_heads} of keys")
    every = c.integer("full_attention_interval", 1, 1024, 4)
    attends = fields.kinds_of_layers(
        c, {"linear_attention": False, "full_attention": True}, lambda i: (i + 1) % every == 0
    )
    mlp = fields.mlp(c, bias=False)
    layers = [
        LayerConfig(attention if there else delta, mlp, before_attention=norm, before_mlp=norm) for there in attends
    ]
    config, names = fields.decoder(c, layers, norm), Names(state_space="linear_attn.")
    experts = _experts(c, "moe_intermediate_size", c.flag("norm_topk_prob", True))
    shared = replace(experts.mlp, width=c.integer("shared_expert_intermediate_size", 1, 1 << 20))
    return _with(config, replace(experts, shared=shared, shared_gate=True), _sparse(c)), names


def _sparse(c: Config) -> Callable[[int], bool]:
    """Every `decoder_sparse_step`th layer, but for `mlp_only_layers`."""
    step, dense = c.integer("decoder_sparse_step", 1, 1024, 1), c.ids("mlp_only_layers")
    return lambda i: (i + 1) % step == 0 and i not in dense


def granite_moe(c: Config) -> tuple[DecoderConfig, Names]:
    """Granite-MoE: all experts' matrices in one tensor."""
    config, _ = llama.granite(c)
    names = Names(
        router=BLOCK + "router.layer", experts_gate_up=(BLOCK + "input_linear",), experts_down=BLOCK + "output_linear"
    )
    return _with(config, _experts(c, "intermediate_size")), names


def granite_moe_shared(c: Config) -> tuple[DecoderConfig, Names]:
    """Granite-MoE with an MLP for all tokens beside the experts."""
    config, names = granite_moe(c)
    width, experts = c.integer("shared_intermediate_size", 0, 1 << 20, 0), config.layers[0].mlp
    assert isinstance(experts, ExpertsConfig)
    shared = replace(experts, shared=replace(experts.mlp, width=width)) if width else experts
    names = replace(names, shared_gate_up=("shared_mlp.input_linear",), shared_down="shared_mlp.output_linear")
    return _with(config, shared), names


def olmoe(c: Config) -> tuple[DecoderConfig, Names]:
    """OLMoE (Muennighoff et al. 2024): norms over all heads of queries and keys."""
    clip = c.number("clip_qkv", 0, 1e6) if c.values.get("clip_qkv") is not None else None
    norm = fields.rms(c, default=1e-5)
    attention = fields.attention(c, fields.rotary(c), norm=norm, norm_of="all heads", clip=clip)
    layers = llama.layers(c, [attention] * fields.layer_count(c))
    experts = _experts(c, "intermediate_size", _normalised(c))
    return _with(fields.decoder(c, layers, norm), experts), Names()


def gpt_oss(c: Config) -> tuple[DecoderConfig, Names]:
    """gpt-oss (OpenAI 2025): sinks, windows in every other layer, experts with biases and a limited gate."""
    if (alpha := c.number("swiglu_alpha", 0, 1e3, 1.702)) != 1.702:
        raise ModelFormatError(f"{c.where}: 'swiglu_alpha' {alpha:g} is not supported, only 1.702")
    norm, count = fields.rms(c, default=1e-5), _count(c)
    mlp = MlpConfig(c.integer("intermediate_size", 1, 1 << 20), "gelu_sigmoid", bias=True, shift=1)
    mlp = replace(mlp, limit=c.number("swiglu_limit", 0, 1e6, 7))
    experts = ExpertsConfig(count, c.integer("num_experts_per_tok", 1, count), mlp, router_bias=True)
    bias = c.flag("attention_bias", True)
    attention = fields.attention(c, fields.rotary(c, 150000.0), bias=bias, output_bias=bias, sinks=True)
    config = fields.decoder(
        c, llama.layers(c, llama.windowed(attention, fields.windows(c, lambda i: i % 2 == 0))), norm
    )
    names = Names(
        router="mlp.router", experts_gate_up=("mlp.experts.gate_up_proj",), experts_down="mlp.experts.down_proj",
        experts_transposed=True, experts_woven=True,
    )  # fmt: skip
    return _with(config, experts), names


def llama4(c: Config) -> tuple[DecoderConfig, Names]:
    """Llama 4 (Meta 2025): chunks of positions, none in some layers; an MLP for all tokens beside the experts."""
    norm = fields.rms(c, default=1e-5)
    mlp = MlpConfig(c.integer("intermediate_size", 1, 1 << 20), fields.activation(c))
    dense = replace(mlp, width=c.integer("intermediate_size_mlp", 1, 1 << 20, 16384))
    sparse = _llama4_sparse(c)
    experts = _llama4_experts(c, mlp) if sparse else None
    layers = [
        LayerConfig(attention, experts if experts and i in sparse else dense, norm, before_mlp=norm)
        for i, attention in enumerate(_llama4_attentions(c))
    ]
    names = Names(
        gate_up=("feed_forward.gate_proj", "feed_forward.up_proj"), down="feed_forward.down_proj",
        router="feed_forward.router", experts_gate_up=("feed_forward.experts.gate_up_proj",),
        experts_down="feed_forward.experts.down_proj", experts_transposed=True,
        shared_gate_up=("feed_forward.shared_expert.gate_proj", "feed_forward.shared_expert.up_proj"),
        shared_down="feed_forward.shared_expert.down_proj",
    )  # fmt: skip
    return fields.decoder(c, layers, norm), names


def _llama4_sparse(c: Config) -> Sequence[int]:
    """The layers that have experts."""
    if c.values.get("moe_layers") is not None:
        return c.ids("moe_layers")
    every = c.integer("interleave_moe_layer_step", 1, 1024, 1)
    return range(every - 1, fields.layer_count(c), every)


def _llama4_experts(c: Config, mlp: MlpConfig) -> ExpertsConfig:
    count = _count(c)
    chosen = c.integer("num_experts_per_tok", 1, count, 1)
    return ExpertsConfig(count, chosen, mlp, scores="sigmoid", normalised=False, weighted_inputs=True, shared=mlp)


def _llama4_attentions(c: Config) -> list[AttentionConfig]:
    """Layers with positions see a chunk of them; scores of the others grow with the text."""
    turned = llama.positioned(c)
    norm = replace(fields.rms(c, default=1e-5), weight=False) if c.flag("use_qk_norm", True) else None
    absent = fields.MOST if "attention_chunk_size" in c.values else 8192
    chunk = c.integer("attention_chunk_size", 1, fields.MOST, absent)
    growth = None
    tuned = c.values.get("attn_temperature_tuning")  # the first files have a number
    if tuned if type(tuned) is int else c.flag("attn_temperature_tuning", True):
        weight = c.number("attn_scale", 0, 1e3, 0.1)
        growth = GrowthConfig(weight, int(c.number("floor_scale", 1, fields.MOST, 8192)), 1)
    near = fields.attention(c, fields.rotary(c, theta=500000.0, interleaved=True), norm=norm)
    far = replace(near, rotary=None, norm=None, growth=growth)
    kinds = c.values.get("layer_types")
    if kinds is None:
        kinds = ["chunked_attention" if there else "full_attention" for there in turned]
    if not isinstance(kinds, list) or len(kinds) != len(turned) or any(k not in LLAMA4_KINDS for k in kinds):
        raise ModelFormatError(
            f"{c.where}: 'layer_types' must name {len(turned)} layers, each {' or '.join(LLAMA4_KINDS)}, "
            f"found {str(kinds)[:60]}"
        )
    each = zip(turned, kinds, strict=True)
    return [replace(near if there else far, chunk=chunk if kind == LLAMA4_KINDS[1] else None) for there, kind in each]


def llama4_with_pictures(c: Config) -> tuple[DecoderConfig, Names]:
    """The language model of a Llama 4 that also reads pictures."""
    text = c.section("text_config")
    if text is None:
        raise ModelFormatError(f"{c.where} lacks 'text_config': the file is incomplete")
    config, names = llama4(text)
    return config, replace(names, prefixes=("language_model.model.",), head="language_model.lm_head")

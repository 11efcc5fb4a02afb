"""Those of the years after GPT-2, with layer norms and MLPs of two layers: GPT-Neo, GPT-J, OPT, Falcon, StarCoder."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tinyweb.errors import ModelFormatError
from tinyweb.formats.huggingface import Config
from tinyweb.models.decoder.architectures import fields, gpt
from tinyweb.models.decoder.config import AttentionConfig, DecoderConfig, LayerConfig, MlpConfig, Names
from tinyweb.nn.alibi import slopes

GPT = Names(
    prefixes=("transformer.",), embedding="wte", positions="wpe", norm="ln_f", layer="h.{}.",
    before_attention="ln_1", before_mlp="ln_2",
)  # fmt: skip


def _mlp(c: Config, wide: str, activation: str, bias: bool = True) -> MlpConfig:
    """Two layers, whose width is in the field `wide`, or four times that of hidden states."""
    width = c.integer(wide, 1, 1 << 20, 4 * fields.hidden_size(c))
    return MlpConfig(width, fields.activation(c, *activation.split("=")), gated=False, bias=bias)


def only(c: Config, values: dict[str, Any]) -> None:
    """Refuses fields that have another value than is supported."""
    for key, value in values.items():
        if c.values.get(key) not in (None, value):
            raise ModelFormatError(f"{c.where}: {key!r} {str(c.values[key])[:40]!r} is not supported, only {value}")


def gpt_bigcode(c: Config) -> tuple[DecoderConfig, Names]:
    """SantaCoder and StarCoder 1 (Li et al. 2023): GPT-2 whose heads share one key and one value."""
    config, names = gpt.gpt2(c)
    if not c.flag("multi_query", True):
        return config, replace(names, transposed=False, by_head=True)
    attentions = [layer.mixer for layer in config.layers if isinstance(layer.mixer, AttentionConfig)]
    each = zip(config.layers, attentions, strict=True)
    layers = tuple(replace(layer, mixer=replace(attention, kv_heads=1)) for layer, attention in each)
    return replace(config, layers=layers), replace(names, transposed=False)


def _usual(c: Config) -> Config:
    """The fields by their usual names, too."""
    return gpt.renamed(c, gpt.SAME_NAMES)


def gpt_j(c: Config) -> tuple[DecoderConfig, Names]:
    """GPT-J (Wang and Komatsuzaki 2021): side by side behind one norm; the first elements of heads are turned in
    pairs of neighbours."""
    c = _usual(c)
    norm = fields.layer_norm(c, "layer_norm_epsilon")
    width = fields.attention(c, lambda width: None).width
    turned = c.integer("rotary_dim", 2, width, min(64, width))
    attention = fields.attention(c, fields.rotary(c, part=turned / width, interleaved=True), bias=False)
    mlp = _mlp(c, "n_inner", "activation_function=gelu_new")
    layer = LayerConfig(attention, mlp, before_attention=norm, parallel=True)
    names = replace(
        GPT, positions="", qkv=("attn.q_proj", "attn.k_proj", "attn.v_proj"), output="attn.out_proj",
        gate_up=("mlp.fc_in",), down="mlp.fc_out",
    )  # fmt: skip
    return fields.decoder(c, [layer] * fields.layer_count(c), norm, head_bias=True), names


def gpt_neo(c: Config) -> tuple[DecoderConfig, Names]:
    """GPT-Neo (Black et al. 2021): scores are not scaled, a window in every other layer, learned positions."""
    c = gpt.renamed(c, {"num_hidden_layers": "num_layers", "num_attention_heads": "num_heads"})
    norm, count = fields.layer_norm(c, "layer_norm_epsilon"), fields.layer_count(c)
    wide = c.integer("window_size", 1, fields.MOST, 256)
    attention = fields.attention(c, lambda width: None, scale=1.0, bias=False, output_bias=True)
    layers = [
        LayerConfig(
            replace(attention, window=wide if kind == "local" else None),
            _mlp(c, "intermediate_size", "activation_function=gelu_new"), before_attention=norm, before_mlp=norm,
        )
        for kind in _neo_kinds(c, count)
    ]  # fmt: skip
    inner = "attn.attention."
    names = replace(
        GPT, qkv=(inner + "q_proj", inner + "k_proj", inner + "v_proj"), output=inner + "out_proj",
        gate_up=("mlp.c_fc",), down="mlp.c_proj",
    )  # fmt: skip
    return fields.decoder(c, layers, norm, tied=True, learned_positions=True), names


def _neo_kinds(c: Config, count: int) -> list[Any]:
    """What each layer sees: all, or a window."""
    kinds = c.values.get("attention_layers")
    if kinds is None:
        given = c.values.get("attention_types")
        try:
            kinds = [
                k for some, times in given or [[["global", "local"], count // 2]] for k in list(some) * min(times, 512)
            ]
        except (TypeError, ValueError):
            kinds = None
    if not isinstance(kinds, list) or len(kinds) != count or any(k not in ("global", "local") for k in kinds):
        raise ModelFormatError(f"{c.where}: 'attention_types' must name {count} layers, each global or local")
    return kinds


def opt(c: Config) -> tuple[DecoderConfig, Names]:
    """OPT (Zhang et al. 2022), but for its smallest but one: the table of positions begins with two that are unused."""
    known = {"do_layer_norm_before": True, "_remove_final_layer_norm": False, "layer_norm_elementwise_affine": True}
    only(c, {**known, "word_embed_proj_dim": fields.hidden_size(c)})
    c, bias = gpt.renamed(c, {}), c.flag("enable_bias", True)
    norm = fields.layer_norm(c, "layer_norm_eps")
    attention = fields.attention(c, lambda width: None, bias=bias, output_bias=bias)
    mlp = _mlp(c, "ffn_dim", "activation_function=relu", bias)
    layer = LayerConfig(attention, mlp, before_attention=norm, before_mlp=norm)
    names = Names(
        prefixes=("model.decoder.", "decoder."), positions="embed_positions", unused_positions=2,
        norm="final_layer_norm", before_attention="self_attn_layer_norm", before_mlp="final_layer_norm",
        output="self_attn.out_proj", gate_up=("fc1",), down="fc2",
    )  # fmt: skip
    return fields.decoder(c, [layer] * fields.layer_count(c), norm, tied=True, learned_positions=True), names


def bloom(c: Config) -> tuple[DecoderConfig, Names]:
    """BLOOM (Scao et al. 2022): ALiBi in place of positions, a norm of embeddings."""
    only(c, {"apply_residual_connection_post_layernorm": False})
    known = {"hidden_size": "n_embed", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head"}
    usual = {"max_position_embeddings": c.values.get("seq_length") or 2048}
    found = {name: old for name, new in known.items() if (old := c.values.get(new)) is not None}
    c = gpt.renamed(Config({**usual, **c.values, **found}, c.where), {})
    norm, attention = fields.layer_norm(c, "layer_norm_epsilon"), _sloped(c, bias=True, output_bias=True)
    mlp = MlpConfig(4 * fields.hidden_size(c), "gelu_tanh", gated=False, bias=True)
    layer = LayerConfig(attention, mlp, before_attention=norm, before_mlp=norm)
    names = replace(
        GPT, positions="", embedding="word_embeddings", embedding_norm="word_embeddings_layernorm",
        before_attention="input_layernorm", before_mlp="post_attention_layernorm",
        qkv=("self_attention.query_key_value",), by_head=True, output="self_attention.dense",
        gate_up=("mlp.dense_h_to_4h",), down="mlp.dense_4h_to_h",
    )  # fmt: skip
    return fields.decoder(c, [layer] * fields.layer_count(c), norm, tied=True, embedding_norm=norm), names


def mpt(c: Config) -> tuple[DecoderConfig, Names]:
    """MPT (MosaicML 2023): ALiBi in place of positions, no biases."""
    only(c, {"no_bias": True, "logit_scale": None, "expansion_ratio": 4})
    inner = c.section("attn_config") or Config({}, c.where)
    only(inner, {"alibi": True, "qk_ln": False, "prefix_lm": False, "attn_type": "multihead_attention"})
    known = {"hidden_size": "d_model", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads",
             "max_position_embeddings": "max_seq_len"}  # fmt: skip
    c = gpt.renamed(c, known)
    clip = inner.number("clip_qkv", 0, 1e6, 0.0) or None
    parts = {"scale": scale} if (scale := inner.number("softmax_scale", 0, 1e6, 0.0)) else {}
    attention = _sloped(c, inner.number("alibi_bias_max", 0, 1024, 8.0), bias=False, clip=clip, **parts)
    norm = fields.layer_norm(c, "layer_norm_epsilon", bias=False)
    mlp = MlpConfig(4 * fields.hidden_size(c), "gelu", gated=False)
    layer = LayerConfig(attention, mlp, before_attention=norm, before_mlp=norm)
    names = replace(
        GPT, positions="", norm="norm_f", layer="blocks.{}.", before_attention="norm_1", before_mlp="norm_2",
        qkv=("attn.Wqkv",), output="attn.out_proj", gate_up=("ffn.up_proj",), down="ffn.down_proj",
    )  # fmt: skip
    return fields.decoder(c, [layer] * fields.layer_count(c), norm, tied=True), names


def _sloped(c: Config, most: float = 8.0, **parts: Any) -> AttentionConfig:
    """Attention whose scores lose by distance."""
    attention = fields.attention(c, lambda width: None, **parts)
    return replace(attention, slopes=tuple(map(float, slopes(attention.heads, most))))


def falcon(c: Config) -> tuple[DecoderConfig, Names]:
    """Falcon 1 and 2 (Almazrouei et al. 2023): attention and MLP side by side, one key and value for all heads or
    (`new_decoder_architecture`) for groups of them; Falcon RW: one after the other, and ALiBi, which is scaled as
    scores are."""
    newer, bias = c.flag("new_decoder_architecture", False), c.flag("bias", False)
    heads = c.integer("num_attention_heads", 1, 1024)
    single = not newer and c.flag("multi_query", True)
    groups = c.integer("num_kv_heads", 1, heads, heads) if newer else 1 if single else heads
    c = Config({"max_position_embeddings": 2048, **c.values, "num_key_value_heads": groups, "head_dim": None}, c.where)
    norm = fields.layer_norm(c, "layer_norm_epsilon")
    if c.flag("alibi", False):
        attention = _sloped(c, bias=bias, output_bias=bias)
        width = fields.hidden_size(c) // heads
        attention = replace(attention, slopes=tuple(s * width**-0.5 for s in attention.slopes or ()))
    else:
        attention = fields.attention(c, fields.rotary(c), bias=bias, output_bias=bias)
    parallel = newer or c.flag("parallel_attn", True)
    own = newer and c.integer("num_ln_in_parallel_attn", 1, 2, 2) == 2
    layer = LayerConfig(
        attention, _mlp(c, "ffn_hidden_size", "activation=gelu", bias), before_attention=norm,
        before_mlp=norm if own or not parallel else None, parallel=parallel,
    )  # fmt: skip
    names = replace(
        GPT, positions="", embedding="word_embeddings", before_attention="ln_attn" if own else "input_layernorm",
        before_mlp="ln_mlp" if own else "post_attention_layernorm", qkv=("self_attention.query_key_value",),
        by_head=not single, output="self_attention.dense", gate_up=("mlp.dense_h_to_4h",), down="mlp.dense_4h_to_h",
    )  # fmt: skip
    return fields.decoder(c, [layer] * fields.layer_count(c), norm, tied=True), names

"""What tensors are called in GGUF files and in Hugging Face's checkpoints, for each architecture of llama.cpp.

Names of parts are without `.weight` and `.bias`; {} is the number of a layer, which both write in decimal. Sources: the
tables of the `gguf` package, and the names that `transformers` gives its modules.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Names = str | tuple[str, ...]  # several: of a matrix whose rows are those of several there
ENDS: dict[str, Names] = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
LAYER = "model.layers.{}."


def layer(prefix: str = LAYER, **parts: str) -> dict[str, Names]:
    """Names of a layer's parts: GGUF's with `blk.{}.` before it, the other with `prefix`."""
    return {f"blk.{{}}.{ours}": prefix + theirs for ours, theirs in parts.items()}


ATTENTION = layer(
    attn_q="self_attn.q_proj", attn_k="self_attn.k_proj", attn_v="self_attn.v_proj", attn_output="self_attn.o_proj"
)
HEAD_NORMS = layer(attn_q_norm="self_attn.q_norm", attn_k_norm="self_attn.k_norm")
MLP = layer(ffn_gate="mlp.gate_proj", ffn_up="mlp.up_proj", ffn_down="mlp.down_proj")
BEFORE = layer(attn_norm="input_layernorm", ffn_norm="post_attention_layernorm")

LLAMA = ENDS | BEFORE | ATTENTION | MLP
QWEN3 = LLAMA | HEAD_NORMS
HUNYUAN = LLAMA | layer(attn_q_norm="self_attn.query_layernorm", attn_k_norm="self_attn.key_layernorm")
SANDWICH = layer(
    attn_norm="input_layernorm", post_attention_norm="post_attention_layernorm", ffn_norm="pre_feedforward_layernorm",
    post_ffw_norm="post_feedforward_layernorm",
)  # fmt: skip
GEMMA2 = ENDS | SANDWICH | ATTENTION | MLP
AFTER = layer(post_attention_norm="post_attention_layernorm", post_ffw_norm="post_feedforward_layernorm")


@dataclass(frozen=True)
class Join:
    """A tensor of each layer there, by its whole name, that GGUF keeps in several (or otherwise, by `how`):

    - `rows`: the rows of one below those of the other; `below`: so for each expert; `below turned`: and then the axes
      in each other's places;
    - `woven`: the last elements in turns; `woven turned`: and the axes before in each other's places;
    - `turned`: the last two axes in each other's places;
    - `heads`: of each head, the rows of the first (whose axes are in each other's places), then those of the second;
    - `groups`: of each head of keys the queries, the keys, and its share of what the first has behind all of them and
      of the second, which are equally many.
    """

    name: str
    parts: tuple[str, ...]
    how: Literal["rows", "below", "below turned", "woven", "woven turned", "turned", "heads", "groups"]


# {} {}: the layer, then the expert, which GGUF keeps in one tensor
EXPERTS = layer(
    ffn_gate_inp="mlp.gate", ffn_gate_exps="mlp.experts.{}.gate_proj", ffn_up_exps="mlp.experts.{}.up_proj",
    ffn_down_exps="mlp.experts.{}.down_proj",
)  # fmt: skip
MIXTRAL = layer(
    ffn_gate_inp="block_sparse_moe.gate", ffn_gate_exps="block_sparse_moe.experts.{}.w1",
    ffn_up_exps="block_sparse_moe.experts.{}.w3", ffn_down_exps="block_sparse_moe.experts.{}.w2",
)  # fmt: skip
SHARED = layer(
    ffn_gate_inp_shexp="mlp.shared_expert_gate", ffn_gate_shexp="mlp.shared_expert.gate_proj",
    ffn_up_shexp="mlp.shared_expert.up_proj", ffn_down_shexp="mlp.shared_expert.down_proj",
)  # fmt: skip

PHI3 = ENDS | BEFORE | layer(
    attn_qkv="self_attn.qkv_proj", attn_output="self_attn.o_proj", ffn_up="mlp.gate_up_proj", ffn_down="mlp.down_proj"
)  # fmt: skip
PHI2 = ENDS | ATTENTION | {"output_norm": "model.final_layernorm"} | layer(
    attn_norm="input_layernorm", attn_output="self_attn.dense", ffn_up="mlp.fc1", ffn_down="mlp.fc2",
)  # fmt: skip
PHI2["blk.{}.attn_qkv"] = tuple(f"{LAYER}self_attn.{name}_proj" for name in "qkv")  # in files of the first converters
STARCODER2 = ENDS | BEFORE | ATTENTION | layer(ffn_up="mlp.c_fc", ffn_down="mlp.c_proj")
STABLELM = LLAMA | layer(
    attn_q_norm="self_attn.q_layernorm.norms.{}", attn_k_norm="self_attn.k_layernorm.norms.{}"
)  # fmt: skip

GPT2 = layer(
    "transformer.h.{}.", attn_norm="ln_1", attn_qkv="attn.c_attn", attn_output="attn.c_proj", ffn_norm="ln_2",
    ffn_up="mlp.c_fc", ffn_down="mlp.c_proj",
)  # fmt: skip
GPT2 |= {
    "token_embd": "transformer.wte", "position_embd": "transformer.wpe", "output_norm": "transformer.ln_f",
    "output": "lm_head",
}  # fmt: skip
NEOX = layer(
    "gpt_neox.layers.{}.", attn_norm="input_layernorm", attn_qkv="attention.query_key_value",
    attn_output="attention.dense", ffn_norm="post_attention_layernorm", ffn_up="mlp.dense_h_to_4h",
    ffn_down="mlp.dense_4h_to_h",
)  # fmt: skip
NEOX |= {"token_embd": "gpt_neox.embed_in", "output_norm": "gpt_neox.final_layer_norm", "output": "embed_out"}
_FALCON = "transformer.h.{}."
FALCON = layer(
    _FALCON, attn_norm="input_layernorm", attn_qkv="self_attention.query_key_value",
    attn_output="self_attention.dense", ffn_up="mlp.dense_h_to_4h", ffn_down="mlp.dense_4h_to_h",
)  # fmt: skip
FALCON |= {"token_embd": "transformer.word_embeddings", "output_norm": "transformer.ln_f", "output": "lm_head"}
BLOOM = FALCON | layer(_FALCON, ffn_norm="post_attention_layernorm")
BLOOM["token_embd_norm"] = "transformer.word_embeddings_layernorm"
MPT = layer(
    "transformer.blocks.{}.", attn_norm="norm_1", attn_qkv="attn.Wqkv", attn_output="attn.out_proj",
    ffn_norm="norm_2", ffn_up="ffn.up_proj", ffn_down="ffn.down_proj",
)  # fmt: skip
MPT |= {"token_embd": "transformer.wte", "output_norm": "transformer.norm_f", "output": "lm_head"}
FALCON_NORMS = FALCON | layer(_FALCON, attn_norm="ln_mlp", attn_norm_2="ln_attn")  # of attention and of the MLP
BERT = layer(
    "encoder.layer.{}.", attn_q="attention.self.query", attn_k="attention.self.key", attn_v="attention.self.value",
    attn_output="attention.output.dense", attn_output_norm="attention.output.LayerNorm", ffn_up="intermediate.dense",
    ffn_down="output.dense", layer_output_norm="output.LayerNorm",
)  # fmt: skip
BERT |= {
    "token_embd": "embeddings.word_embeddings", "position_embd": "embeddings.position_embeddings",
    "token_types": "embeddings.token_type_embeddings", "token_embd_norm": "embeddings.LayerNorm",
}  # fmt: skip
BERT["blk.{}.attn_qkv"] = tuple(f"encoder.layer.{{}}.attention.self.{part}" for part in ("query", "key", "value"))
JINA = BERT | layer("encoder.layer.{}.mlp.", ffn_up="gated_layers", ffn_down="wo", layer_output_norm="layernorm")
JINA_JOINS = (Join("encoder.layer.{}.mlp.gated_layers.weight", ("ffn_gate.weight", "ffn_up.weight"), "rows"),)
NOMIC = layer(
    "encoder.layers.{}.", attn_qkv="attn.Wqkv", attn_output="attn.out_proj", attn_output_norm="norm1",
    ffn_gate="mlp.fc12", ffn_up="mlp.fc11", ffn_down="mlp.fc2", layer_output_norm="norm2",
)  # fmt: skip
NOMIC |= {
    "token_embd": "embeddings.word_embeddings", "token_types": "embeddings.token_type_embeddings",
    "token_embd_norm": "emb_ln",
}  # fmt: skip
MODERN_BERT = layer(
    "layers.{}.", attn_norm="attn_norm", attn_qkv="attn.Wqkv", attn_output="attn.Wo", ffn_norm="mlp_norm",
    ffn_up="mlp.Wi", ffn_down="mlp.Wo",
)  # fmt: skip
MODERN_BERT |= {
    "token_embd": "embeddings.tok_embeddings", "token_embd_norm": "embeddings.norm", "output_norm": "final_norm",
}  # fmt: skip

GRANITE_MOE = LLAMA | layer(
    ffn_gate_inp="block_sparse_moe.router.layer", ffn_down_exps="block_sparse_moe.output_linear"
)  # fmt: skip
GRANITE_MOE_JOINS = (
    Join(LAYER + "block_sparse_moe.input_linear.weight", ("ffn_gate_exps.weight", "ffn_up_exps.weight"), "below"),
)
OLMO = ENDS | ATTENTION | MLP
OLMOE = QWEN3 | EXPERTS
GPT_OSS = ENDS | ATTENTION | layer(
    attn_norm="input_layernorm", post_attention_norm="post_attention_layernorm", ffn_gate_inp="mlp.router",
)  # fmt: skip
GPT_OSS["blk.{}.attn_sinks.weight"] = LAYER + "self_attn.sinks"
GPT_OSS["blk.{}.ffn_down_exps.bias"] = LAYER + "mlp.experts.down_proj_bias"
_WOVEN = LAYER + "mlp.experts.gate_up_proj"
GPT_OSS_JOINS = (
    Join(_WOVEN, ("ffn_gate_exps.weight", "ffn_up_exps.weight"), "woven turned"),
    Join(_WOVEN + "_bias", ("ffn_gate_exps.bias", "ffn_up_exps.bias"), "woven"),
    Join(LAYER + "mlp.experts.down_proj", ("ffn_down_exps.weight",), "turned"),
)
# of Mamba-2; what has no `.weight` there is named whole
STATE = {"ssm_in": "in_proj", "ssm_conv1d": "conv1d", "ssm_norm": "norm", "ssm_out": "out_proj"}
STATE_WHOLE = {"ssm_dt.bias": "dt_bias", "ssm_a": "A_log", "ssm_d": "D"}
_MIXER = "backbone.layers.{}."
MAMBA2 = layer(_MIXER + "mixer.", **STATE, **STATE_WHOLE) | layer(_MIXER, attn_norm="norm")
MAMBA2 |= {"token_embd": "backbone.embeddings", "output_norm": "backbone.norm_f", "output": "lm_head"}
MAMBA = MAMBA2 | layer(
    _MIXER + "mixer.", **{"ssm_dt.bias": "dt_proj.bias", "ssm_dt": "dt_proj", "ssm_x": "x_proj"}
)  # fmt: skip
GRANITE_HYBRID = ENDS | BEFORE | ATTENTION | layer(LAYER + "mamba.", **STATE, **STATE_WHOLE) | layer(
    ffn_gate_inp="block_sparse_moe.router.layer", ffn_down_exps="block_sparse_moe.output_linear",
    ffn_down_shexp="shared_mlp.output_linear", ffn_down="shared_mlp.output_linear",
)  # fmt: skip
_SHARED = LAYER + "shared_mlp.input_linear.weight"
GRANITE_HYBRID_JOINS = (
    *GRANITE_MOE_JOINS,
    Join(_SHARED, ("ffn_gate_shexp.weight", "ffn_up_shexp.weight"), "rows"),
    Join(_SHARED, ("ffn_gate.weight", "ffn_up.weight"), "rows"),
)
_MIX = LAYER + "attn."
RWKV7: dict[str, Names] = {
    "token_embd": "model.embeddings", "token_embd_norm": "model.layers.0.pre_norm", "output_norm": "model.norm",
    "output": "lm_head",
    # one row for each kind of input, in this order
    "blk.{}.time_mix_lerp_fused.weight": tuple(f"{_MIX}x_{kind}" for kind in "rwkvag"),
}  # fmt: skip
RWKV7 |= layer(
    attn_norm="attn_norm", attn_norm_2="ffn_norm", channel_mix_key="ffn.key", channel_mix_value="ffn.value",
    time_mix_receptance="attn.r_proj", time_mix_key="attn.k_proj", time_mix_value="attn.v_proj",
    time_mix_output="attn.o_proj", time_mix_ln="attn.g_norm",
)  # fmt: skip
RWKV7 |= layer(_MIX, **{f"time_mix_{kind}1": f"{kind}_lora.lora.0" for kind in "wavg"})
RWKV7 |= layer(_MIX, **{f"time_mix_{kind}2": f"{kind}_lora.lora.2" for kind in "wavg"})
RWKV7 |= layer(_MIX, **{f"time_mix_{kind}0.weight": f"{kind}_lora.lora.2.bias" for kind in "wav"})
RWKV7 |= layer(_MIX, **{f"time_mix_{name}.weight": name for name in ("k_k", "k_a", "r_k")})
RWKV7["blk.{}.channel_mix_lerp_k.weight"] = LAYER + "ffn.x_k"
# with the projections in one tensor, as it was at first, or in two
_DELTA = LAYER + "linear_attn."
QWEN3_NEXT = QWEN3 | EXPERTS | SHARED | layer(post_attention_norm="post_attention_layernorm") | layer(
    _DELTA, **{**STATE, "ssm_in": "in_proj_qkvz"}, ssm_ba="in_proj_ba", **{"ssm_dt.bias": "dt_bias", "ssm_a": "A_log"}
)  # fmt: skip
QWEN3_NEXT_JOINS = (Join(_DELTA + "in_proj_qkvz.weight", ("attn_qkv.weight", "attn_gate.weight"), "groups"),)
APERTUS = ENDS | ATTENTION | HEAD_NORMS | layer(
    attn_norm="attention_layernorm", ffn_norm="feedforward_layernorm", ffn_up="mlp.up_proj", ffn_down="mlp.down_proj"
)  # fmt: skip
LLAMA4 = LLAMA | layer(
    LAYER + "feed_forward.", ffn_gate="gate_proj", ffn_up="up_proj", ffn_down="down_proj", ffn_gate_inp="router",
    ffn_gate_shexp="shared_expert.gate_proj", ffn_up_shexp="shared_expert.up_proj",
    ffn_down_shexp="shared_expert.down_proj",
)  # fmt: skip
LLAMA4_JOINS = (
    Join(
        LAYER + "feed_forward.experts.gate_up_proj", ("ffn_gate_exps.weight", "ffn_up_exps.weight"), "below turned"
    ),
    Join(LAYER + "feed_forward.experts.down_proj", ("ffn_down_exps.weight",), "turned"),
)  # fmt: skip
GEMMA3N = GEMMA2 | HEAD_NORMS | layer(
    inp_gate="per_layer_input_gate", proj="per_layer_projection", post_norm="post_per_layer_input_norm",
    altup_correct_coef="altup.correction_coefs", altup_predict_coef="altup.prediction_coefs",
    altup_router="altup.modality_router", altup_router_norm="altup.router_norm", laurel_l="laurel.linear_left",
    laurel_r="laurel.linear_right", laurel_post_norm="laurel.post_laurel_norm",
)  # fmt: skip
GEMMA3N["blk.{}.altup_correct_scale.weight"] = LAYER + "altup.correct_output_scale"
GEMMA3N |= {
    "per_layer_token_embd": "model.embed_tokens_per_layer", "per_layer_model_proj": "model.per_layer_model_projection",
    "per_layer_proj_norm": "model.per_layer_projection_norm", "altup_proj": "model.altup_projections.{}",
    "altup_unembd_proj": "model.altup_unembed_projections.{}",
}  # fmt: skip
DEEPSEEK = ENDS | BEFORE | ATTENTION | MLP | EXPERTS | layer(
    attn_q_a="self_attn.q_a_proj", attn_q_a_norm="self_attn.q_a_layernorm", attn_q_b="self_attn.q_b_proj",
    attn_kv_a_mqa="self_attn.kv_a_proj_with_mqa", attn_kv_a_norm="self_attn.kv_a_layernorm",
    attn_kv_b="self_attn.kv_b_proj", ffn_gate_shexp="mlp.shared_experts.gate_proj",
    ffn_up_shexp="mlp.shared_experts.up_proj", ffn_down_shexp="mlp.shared_experts.down_proj",
)  # fmt: skip
DEEPSEEK["blk.{}.exp_probs_b.bias"] = LAYER + "mlp.gate.e_score_correction_bias"
DEEPSEEK_JOINS = (Join(LAYER + "self_attn.kv_b_proj.weight", ("attn_k_b.weight", "attn_v_b.weight"), "heads"),)
LFM2 = ENDS | ATTENTION | layer(
    attn_norm="operator_norm", attn_q_norm="self_attn.q_layernorm", attn_k_norm="self_attn.k_layernorm",
    attn_output="self_attn.out_proj", ffn_norm="ffn_norm", ffn_gate="feed_forward.w1", ffn_up="feed_forward.w3",
    ffn_down="feed_forward.w2",
)  # fmt: skip
LFM2["token_embd_norm"] = "model.embedding_norm"
LFM2 |= {f"blk.{{}}.shortconv.{part}": f"{LAYER}conv.{part}" for part in ("conv", "in_proj", "out_proj")}

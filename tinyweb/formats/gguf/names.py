"""What tensors are called in GGUF files and in Hugging Face's checkpoints, for each architecture of llama.cpp.

Names of parts are without `.weight` and `.bias`; {} is the number of a layer, which both write in decimal. Sources: the
tables of the `gguf` package, and the names that `transformers` gives its modules.
"""

from __future__ import annotations

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
SANDWICH = layer(
    attn_norm="input_layernorm", post_attention_norm="post_attention_layernorm", ffn_norm="pre_feedforward_layernorm",
    post_ffw_norm="post_feedforward_layernorm",
)  # fmt: skip
GEMMA2 = ENDS | SANDWICH | ATTENTION | MLP
AFTER = layer(post_attention_norm="post_attention_layernorm", post_ffw_norm="post_feedforward_layernorm")

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
BERT = layer(
    "encoder.layer.{}.", attn_q="attention.self.query", attn_k="attention.self.key", attn_v="attention.self.value",
    attn_output="attention.output.dense", attn_output_norm="attention.output.LayerNorm", ffn_up="intermediate.dense",
    ffn_down="output.dense", layer_output_norm="output.LayerNorm",
)  # fmt: skip
BERT |= {
    "token_embd": "embeddings.word_embeddings", "position_embd": "embeddings.position_embeddings",
    "token_types": "embeddings.token_type_embeddings", "token_embd_norm": "embeddings.LayerNorm",
}  # fmt: skip

"""From a GGUF file's metadata to the fields of the config.json that Hugging Face has for the same model.

What GGUF files leave out (activations, which layers have windows) is said by the name of the architecture, as in
llama.cpp. Rotary scaling given as a factor for each frequency (Llama 3, Phi-3) comes as `longrope`, which is that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from tinyweb.errors import ModelFormatError
from tinyweb.formats.gguf import first, names, recent
from tinyweb.formats.gguf.facts import MOST, PATTERN, Facts
from tinyweb.formats.gguf.fields import Fields, biases, kv_heads, layer_norm, rms, rotary, scaling, sizes, windows


@dataclass(frozen=True)
class Family:
    """How one architecture of GGUF is one of Hugging Face's. `parts`: names of tensors. `fields`: of config.json,
    beside those that all have. What GGUF has otherwise: `permuted`: rows of queries and keys in the order of
    neighbouring pairs; `offset`: added to weights of norms; `transposed`: matrices are (out, in), not (in, out);
    `by_head`: all queries, all keys, all values, not those of one key's heads after the other; `joins`: in several
    tensors; `told`: in the metadata.
    """

    architecture: str
    model_type: str
    parts: Mapping[str, names.Names]
    fields: Callable[[Facts], Fields]
    permuted: bool = False
    offset: float = 0.0
    transposed: bool = False
    by_head: bool = False
    joins: tuple[names.Join, ...] = ()
    told: Callable[[Facts], Mapping[str, npt.NDArray[Any]]] = lambda f: {}


# -- families ----------------------------------------------------------------------------------------------------------
def llama(f: Facts) -> Fields:
    return {"hidden_act": "silu"} | sizes(f) | rotary(f) | rms(f) | biases(f)


def mixtral(f: Facts) -> Fields:
    return {"hidden_act": "silu"} | sizes(f) | rotary(f) | rms(f) | {
        "num_local_experts": f.integer("expert_count", 1 << 16),
        "num_experts_per_tok": f.integer("expert_used_count", 1 << 16), "sliding_window": None,
    }  # fmt: skip


def qwen2(f: Facts) -> Fields:
    return {"hidden_act": "silu", "use_sliding_window": False} | sizes(f) | rotary(f) | rms(f)


def qwen3(f: Facts) -> Fields:
    return qwen2(f) | {"attention_bias": f.has("blk.0.attn_q.bias")}


def experts(f: Facts, normed: bool) -> Fields:
    wide = f.integer("expert_feed_forward_length", 1 << 20)
    found: Fields = {
        "num_experts": f.integer("expert_count", 1 << 16), "decoder_sparse_step": 1, "mlp_only_layers": [],
        "num_experts_per_tok": f.integer("expert_used_count", 1 << 16), "moe_intermediate_size": wide,
        "norm_topk_prob": normed,
    }  # fmt: skip
    shared = f.integer("expert_shared_feed_forward_length", 1 << 20, 0)
    return found | ({"shared_expert_intermediate_size": shared} if shared else {})


def gemma(f: Facts) -> Fields:
    return {"hidden_act": "gelu_pytorch_tanh", "attention_bias": False} | sizes(f) | rotary(f) | rms(f)


def _later_gemma(f: Facts, largest: int) -> Fields:
    """`largest`: layers of the model whose scores are divided by the root of another width than a head's."""
    found = gemma(f)
    found["hidden_activation"] = found.pop("hidden_act")
    return found | {"query_pre_attn_scalar": f.hidden // f.heads if f.layers == largest else f.head_dim}


def gemma2(f: Facts) -> Fields:
    caps = {"attn_logit_softcapping": "attn_logit_softcapping", "final_logit_softcapping": "final_logit_softcapping"}
    return _later_gemma(f, 46) | windows(f, lambda i: i % 2 == 0) | f.optional(caps)


def gemma3(f: Facts) -> Fields:
    local = {"rope_local_base_freq": f.number("rope.freq_base_swa", 10000.0)}
    caps = {"attn_logit_softcapping": None, "final_logit_softcapping": None}
    caps |= f.optional({"final_logit_softcapping": "final_logit_softcapping"})
    return _later_gemma(f, 62) | windows(f, lambda i: (i + 1) % 6 != 0) | local | caps


def phi2(f: Facts) -> Fields:
    return {"hidden_act": "gelu_new", "qk_layernorm": False} | sizes(f) | rotary(f, 0.5) | layer_norm(f)


def phi3(f: Facts) -> Fields:
    length = f.integer("rope.scaling.original_context_length", MOST, f.integer("context_length"))
    found = {"hidden_act": "silu", "original_max_position_embeddings": length}
    return found | sizes(f) | rotary(f) | rms(f) | windows(f)


def olmo2(f: Facts) -> Fields:
    found = {"hidden_act": "silu", "attention_bias": f.has("blk.0.attn_q.bias")}
    return found | sizes(f) | rotary(f) | rms(f) | windows(f)


def granite(f: Facts) -> Fields:
    scales = {"embedding_multiplier": "embedding_scale", "residual_multiplier": "residual_scale",
              "attention_multiplier": "attention.scale", "logits_scaling": "logit_scale"}  # fmt: skip
    return llama(f) | f.optional(scales)


def stablelm(f: Facts) -> Fields:
    parallel = not f.has("blk.0.ffn_norm.weight")
    found = {"hidden_act": "silu", "use_qkv_bias": f.has("blk.0.attn_q.bias"), "use_parallel_residual": parallel,
             "qk_layernorm": f.has("blk.0.attn_q_norm.weight")}  # fmt: skip
    return found | sizes(f) | rotary(f, 0.25) | layer_norm(f)


def command_r(f: Facts) -> Fields:
    found = {"hidden_act": "silu", "attention_bias": f.has("blk.0.attn_q.bias"), "logit_scale": f.number("logit_scale"),
             "use_qk_norm": f.has("blk.0.attn_q_norm.weight")}  # fmt: skip
    return found | sizes(f) | rotary(f) | layer_norm(f)


def cohere2(f: Facts) -> Fields:
    found = command_r(f) | windows(f, lambda i: (i + 1) % 4 != 0)
    return {k: v for k, v in found.items() if k != "use_qk_norm"}


def gpt2(f: Facts) -> Fields:
    return layer_norm(f, "layer_norm_epsilon") | {
        "activation_function": "gelu_new", "n_embd": f.hidden, "n_layer": f.layers, "n_head": f.heads,
        "n_positions": f.integer("context_length"), "n_inner": f.integer("feed_forward_length", 1 << 20),
    }  # fmt: skip


def gptneox(f: Facts) -> Fields:
    found = sizes(f) | layer_norm(f)
    turned = f.integer("rope.dimension_count", 1 << 16, f.head_dim) / f.head_dim
    found |= {"hidden_act": "gelu", "rotary_pct": turned, "rotary_emb_base": f.number("rope.freq_base", 10000.0)}
    return found | {
        "use_parallel_residual": f.own.flag("use_parallel_residual", True), "rope_scaling": scaling(f),
        "attention_bias": f.has("blk.0.attn_qkv.bias"),
    }  # fmt: skip


def starcoder2(f: Facts) -> Fields:
    found = {"hidden_act": "gelu_pytorch_tanh", "use_bias": f.has("blk.0.attn_q.bias")}
    return found | sizes(f) | rotary(f) | layer_norm(f, "norm_epsilon") | windows(f)


def smollm3(f: Facts) -> Fields:
    """Every fourth layer knows no positions."""
    return llama(f) | {"no_rope_layers": [int((i + 1) % 4 != 0) for i in range(f.layers)], "use_sliding_window": False}


def olmo(f: Facts) -> Fields:
    found = {"hidden_act": "silu", "attention_bias": f.has("blk.0.attn_q.bias")}
    return found | sizes(f) | rotary(f) | {"clip_qkv": _clip(f)}


def olmoe(f: Facts) -> Fields:
    found = {"num_experts": f.integer("expert_count", 1 << 16), "norm_topk_prob": False, "clip_qkv": _clip(f)}
    return olmo(f) | rms(f) | found | {"num_experts_per_tok": f.integer("expert_used_count", 1 << 16)}


def _clip(f: Facts) -> float | None:
    return f.number("attention.clamp_kqv", 0.0) or None


def granite_moe(f: Facts) -> Fields:
    found = {k: v for k, v in granite(f).items() if k != "mlp_bias"}
    return found | {
        "num_local_experts": f.integer("expert_count", 1 << 16),
        "num_experts_per_tok": f.integer("expert_used_count", 1 << 16),
    }


def gpt_oss(f: Facts) -> Fields:
    found = sizes(f) | rotary(f) | rms(f) | windows(f, lambda i: i % 2 == 0)
    if isinstance(scaled := found["rope_scaling"], dict) and scaled["rope_type"] == "yarn":
        scaled["truncate"] = False
    return found | {
        "hidden_act": "silu", "attention_bias": f.has("blk.0.attn_q.bias"),
        "intermediate_size": f.integer("expert_feed_forward_length", 1 << 20),
        "num_local_experts": f.integer("expert_count", 1 << 16),
        "num_experts_per_tok": f.integer("expert_used_count", 1 << 16),
    }  # fmt: skip


def deepseek2(f: Facts) -> Fields:
    """Latent attention, in files of today (`key_length_mla`: of a head, not of the latent) and of before."""
    of_head = "_mla" if "attention.key_length_mla" in f.own.values else ""
    width, turned = f.integer(f"attention.key_length{of_head}", 1 << 16), f.integer("rope.dimension_count", 1 << 16)
    scaled = scaling(f)
    if scaled and scaled["rope_type"] == "yarn":
        growth = round(10 * f.number("rope.scaling.yarn_log_multiplier", 0.0), 6)
        scaled |= {"mscale": growth, "mscale_all_dim": growth}
    groups = f.integer("expert_group_count", 4096, 1)
    found: Fields = {
        "hidden_act": "silu", "hidden_size": f.hidden, "num_hidden_layers": f.layers, "num_attention_heads": f.heads,
        "num_key_value_heads": f.heads, "intermediate_size": f.integer("feed_forward_length", 1 << 20),
        "max_position_embeddings": f.integer("context_length"), "rope_theta": f.number("rope.freq_base", 10000.0),
        "rope_scaling": scaled, "qk_rope_head_dim": turned, "qk_nope_head_dim": max(width - turned, 0),
        "v_head_dim": f.integer(f"attention.value_length{of_head}", 1 << 16),
        "kv_lora_rank": f.integer("attention.kv_lora_rank", 1 << 16),
        "q_lora_rank": f.integer("attention.q_lora_rank", 1 << 16, 0) or None,
        "attention_bias": f.has("blk.0.attn_kv_a_mqa.bias"),
        "first_k_dense_replace": f.integer("leading_dense_block_count", 1 << 16, 0),
        "n_routed_experts": f.integer("expert_count", 1 << 16),
        "n_shared_experts": f.integer("expert_shared_count", 1 << 16, 0),
        "num_experts_per_tok": f.integer("expert_used_count", 1 << 16),
        "moe_intermediate_size": f.integer("expert_feed_forward_length", 1 << 20),
        "routed_scaling_factor": f.number("expert_weights_scale", 1.0),
        "norm_topk_prob": f.own.flag("expert_weights_norm", False),
    }  # fmt: skip
    if groups > 1:
        found |= {"n_group": groups, "topk_group": f.integer("expert_group_used_count", 4096, 1)}
    if f.integer("expert_gating_func", 255, 1) == 1:
        found["topk_method"] = "group_limited_greedy" if groups > 1 else "greedy"
    return found | rms(f)


def lfm2(f: Facts) -> Fields:
    """Layers without heads for keys are convolutions."""
    heads, attends = kv_heads(f)
    return rotary(f) | {
        "norm_eps": f.number("attention.layer_norm_rms_epsilon"), "block_auto_adjust_ff_dim": False,
        "hidden_size": f.hidden, "intermediate_size": f.integer("feed_forward_length", 1 << 20),
        "num_hidden_layers": f.layers, "num_attention_heads": f.heads, "num_key_value_heads": heads,
        "max_position_embeddings": f.integer("context_length"), "conv_L_cache": f.integer("shortconv.l_cache", 64),
        "conv_bias": any(n.endswith("shortconv.in_proj.bias") for n in f.file.tensors),
        "layer_types": ["full_attention" if there else "conv" for there in attends],
    }  # fmt: skip


def _state(f: Facts, n: Mapping[str, str]) -> Fields:
    """Mamba-2's numbers; `n`: what Hugging Face calls them."""
    inner, heads = f.integer("ssm.inner_size", 1 << 20), f.own.integer("ssm.time_step_rank", 1, 1 << 16)
    biased = [any(t.endswith(f"{part}.bias") for t in f.file.tensors) for part in ("ssm_in", "ssm_conv1d")]
    found = {
        "heads": heads, "width": inner // heads, "size": f.integer("ssm.state_size", 1 << 16),
        "groups": f.integer("ssm.group_count", 1 << 16), "taps": f.integer("ssm.conv_kernel", 64),
        "expand": inner // f.hidden, "bias": biased[0], "conv_bias": biased[1],
    }  # fmt: skip
    return {theirs: found[ours] for ours, theirs in n.items()}


def mamba2(f: Facts) -> Fields:
    named = {
        "heads": "num_heads", "width": "head_dim", "size": "state_size", "groups": "n_groups", "taps": "conv_kernel",
        "expand": "expand", "bias": "use_bias", "conv_bias": "use_conv_bias",
    }  # fmt: skip
    return _state(f, named) | {
        "hidden_act": "silu", "hidden_size": f.hidden, "num_hidden_layers": f.layers,
        "layer_norm_epsilon": f.number("attention.layer_norm_rms_epsilon"),
    }  # fmt: skip


def rwkv7(f: Facts) -> Fields:
    ranks = {"decay": "decay", "a": "iclr", "v": "value_residual_mix", "gate": "gate"}
    found = {f"{n}_low_rank_dim": f.integer(f"attention.{key}_lora_rank", 1 << 16) for n, key in ranks.items()}
    return found | {
        "hidden_act": "sqrelu", "hidden_size": f.hidden, "num_hidden_layers": f.layers,
        "head_dim": f.integer("wkv.head_size", 1 << 16), "norm_eps": f.number("attention.layer_norm_epsilon"),
        "intermediate_size": f.integer("feed_forward_length", 1 << 20),
    }  # fmt: skip


def granite_hybrid(f: Facts) -> Fields:
    """Layers without heads for keys have a state."""
    heads, attends = kv_heads(f)
    named = {
        "heads": "mamba_n_heads", "width": "mamba_d_head", "size": "mamba_d_state", "groups": "mamba_n_groups",
        "taps": "mamba_d_conv", "expand": "mamba_expand", "bias": "mamba_proj_bias", "conv_bias": "mamba_conv_bias",
    }  # fmt: skip
    dense = f.file.tensors.get("blk.0.ffn_gate.weight")
    scales = {"embedding_multiplier": "embedding_scale", "residual_multiplier": "residual_scale",
              "attention_multiplier": "attention.scale", "logits_scaling": "logit_scale"}  # fmt: skip
    return _state(f, named) | rotary(f) | rms(f) | f.optional(scales) | {
        "hidden_act": "silu", "hidden_size": f.hidden, "num_hidden_layers": f.layers, "num_attention_heads": f.heads,
        "num_key_value_heads": heads, "intermediate_size": f.integer("feed_forward_length", 1 << 20, 0),
        "max_position_embeddings": f.integer("context_length"),
        "layer_types": ["full_attention" if there else "linear_attention" for there in attends],
        "position_embedding_type": "rope" if f.own.flag("rope.scaling.finetuned", False) else None,
        "attention_bias": any(name.endswith("attn_q.bias") for name in f.file.tensors),
        "num_local_experts": f.integer("expert_count", 1 << 16, 0),
        "num_experts_per_tok": f.integer("expert_used_count", 1 << 16, 0),
        "shared_intermediate_size": dense.shape[0] if dense is not None and dense.shape
        else f.integer("expert_shared_feed_forward_length", 1 << 20),
    }  # fmt: skip


def llama4(f: Facts) -> Fields:
    """What files do not say is the same for both models, but for norms of queries and keys."""
    found = sizes(f) | rotary(f) | rms(f) | {"hidden_act": "silu", "attention_bias": f.has("blk.0.attn_q.bias")}
    count = f.integer("expert_count", 1 << 16)
    return found | {
        "intermediate_size": f.integer("expert_feed_forward_length", 1 << 20),
        "intermediate_size_mlp": found["intermediate_size"], "num_local_experts": count,
        "num_experts_per_tok": f.integer("expert_used_count", 1 << 16),
        "interleave_moe_layer_step": f.integer("interleave_moe_layer_step", 1024, 1), "use_qk_norm": count != 128,
        "no_rope_layer_interval": 4, "attention_chunk_size": 8192, "floor_scale": 8192, "attn_scale": 0.1,
    }  # fmt: skip


def bert(f: Facts) -> Fields:
    return layer_norm(f) | {
        "hidden_act": "gelu", "hidden_size": f.hidden, "num_hidden_layers": f.layers, "num_attention_heads": f.heads,
        "intermediate_size": f.integer("feed_forward_length", 1 << 20),
        "max_position_embeddings": f.integer("context_length"),
        "type_vocab_size": f.file.tensors["token_types.weight"].shape[0] if f.has("token_types.weight") else 2,
    }  # fmt: skip


def nomic(f: Facts) -> Fields:
    if f.integer("moe_every_n_layers", 1 << 16, 0):
        raise ModelFormatError(f"{f.where}: experts in an encoder are not supported")
    return bert(f) | rotary(f) | {"hidden_act": "silu", "head_dim": f.head_dim}


def jina(f: Facts) -> Fields:
    if (most := f.number("attention.max_alibi_bias", 8.0)) != 8:
        raise ModelFormatError(f"{f.where}: 'attention.max_alibi_bias' {most:g} is not supported, only 8")
    return bert(f) | {"position_embedding_type": "alibi", "feed_forward_type": "geglu"}


def modern_bert(f: Facts) -> Fields:
    """Windows are in all layers but the first of three, or of as many as the file says."""
    wide, every = f.integer("attention.sliding_window", MOST, 0), f.own.values.get(PATTERN, 3)
    if type(every) is not int or not 0 < every <= 1024:
        raise ModelFormatError(f"{f.where}: {PATTERN!r} must be a number of layers from 1 to 1024")
    kinds = ["sliding_attention" if wide and i % every else "full_attention" for i in range(f.layers)]
    return layer_norm(f, "norm_eps") | {
        "hidden_activation": "gelu", "hidden_size": f.hidden, "num_hidden_layers": f.layers,
        "num_attention_heads": f.heads, "intermediate_size": f.integer("feed_forward_length", 1 << 20),
        "max_position_embeddings": f.integer("context_length"), "local_attention": wide or 128, "layer_types": kinds,
        "global_rope_theta": f.number("rope.freq_base", 160000.0),
        "local_rope_theta": f.number("rope.freq_base_swa", 10000.0), "norm_bias": f.has("output_norm.bias"),
        "attention_bias": f.has("blk.0.attn_qkv.bias"), "mlp_bias": f.has("blk.0.ffn_up.bias"),
    }  # fmt: skip


def pooling_of(f: Facts) -> str | None:
    """How the hidden states of an encoder's tokens become one vector, by sentence-transformers' word for it."""
    kinds = {1: "mean", 2: "cls", 3: "lasttoken"}
    return kinds.get(f.integer("pooling_type", 1 << 16, 0))


MOE_QWEN2 = names.LLAMA | names.EXPERTS | names.SHARED
FAMILIES: Mapping[str, Family] = {
    "llama": Family("LlamaForCausalLM", "llama", names.LLAMA, llama, permuted=True),
    "mistral3": Family("MistralForCausalLM", "mistral", names.LLAMA, llama, permuted=True),
    "qwen2": Family("Qwen2ForCausalLM", "qwen2", names.LLAMA, qwen2),
    "qwen3": Family("Qwen3ForCausalLM", "qwen3", names.QWEN3, qwen3),
    "qwen2moe": Family("Qwen2MoeForCausalLM", "qwen2_moe", MOE_QWEN2, lambda f: qwen2(f) | experts(f, False)),
    "qwen3moe": Family(
        "Qwen3MoeForCausalLM", "qwen3_moe", names.QWEN3 | names.EXPERTS, lambda f: qwen3(f) | experts(f, True)
    ),
    "gemma": Family("GemmaForCausalLM", "gemma", names.LLAMA, gemma, offset=1),
    "gemma2": Family("Gemma2ForCausalLM", "gemma2", names.GEMMA2, gemma2, offset=1),
    "gemma3": Family("Gemma3ForCausalLM", "gemma3_text", names.GEMMA2 | names.HEAD_NORMS, gemma3, offset=1),
    "phi2": Family("PhiForCausalLM", "phi", names.PHI2, phi2),
    "phi3": Family("Phi3ForCausalLM", "phi3", names.PHI3, phi3),
    "olmo2": Family(
        "Olmo2ForCausalLM", "olmo2", names.ENDS | names.AFTER | names.ATTENTION | names.HEAD_NORMS | names.MLP, olmo2
    ),
    "granite": Family("GraniteForCausalLM", "granite", names.LLAMA, granite, permuted=True),
    "stablelm": Family("StableLmForCausalLM", "stablelm", names.STABLELM, stablelm),
    "command-r": Family("CohereForCausalLM", "cohere", names.QWEN3, command_r),
    "cohere2": Family("Cohere2ForCausalLM", "cohere2", names.LLAMA, cohere2),
    "gpt2": Family("GPT2LMHeadModel", "gpt2", names.GPT2, gpt2, transposed=True),
    "gptneox": Family("GPTNeoXForCausalLM", "gpt_neox", names.NEOX, gptneox, by_head=True),
    "starcoder2": Family("Starcoder2ForCausalLM", "starcoder2", names.STARCODER2, starcoder2),
    "smollm3": Family("SmolLM3ForCausalLM", "smollm3", names.LLAMA, smollm3, permuted=True),
    "olmo": Family("OlmoForCausalLM", "olmo", names.OLMO, olmo, permuted=True),
    "olmoe": Family("OlmoeForCausalLM", "olmoe", names.OLMOE, olmoe),
    "granitemoe": Family(
        "GraniteMoeForCausalLM",
        "granitemoe",
        names.GRANITE_MOE,
        granite_moe,
        permuted=True,
        joins=names.GRANITE_MOE_JOINS,
    ),
    "gpt-oss": Family("GptOssForCausalLM", "gpt_oss", names.GPT_OSS, gpt_oss, joins=names.GPT_OSS_JOINS),
    "deepseek2": Family("DeepseekV2ForCausalLM", "deepseek_v2", names.DEEPSEEK, deepseek2, joins=names.DEEPSEEK_JOINS),
    "lfm2": Family("Lfm2ForCausalLM", "lfm2", names.LFM2, lfm2),
    "falcon": Family("FalconForCausalLM", "falcon", names.FALCON, first.falcon, by_head=True),
    "bloom": Family("BloomForCausalLM", "bloom", names.BLOOM, first.bloom, by_head=True),
    "mpt": Family("MptForCausalLM", "mpt", names.MPT, first.mpt),
    "hunyuan-dense": Family("HunYuanDenseV1ForCausalLM", "hunyuan_v1_dense", names.HUNYUAN, first.hunyuan),
    "mamba": Family("MambaForCausalLM", "mamba", names.MAMBA, first.mamba),
    "mamba2": Family("Mamba2ForCausalLM", "mamba2", names.MAMBA2, mamba2),
    "rwkv7": Family("RWKV7ForCausalLM", "rwkv7", names.RWKV7, rwkv7),
    "granitehybrid": Family(
        "GraniteMoeHybridForCausalLM",
        "granitemoehybrid",
        names.GRANITE_HYBRID,
        granite_hybrid,
        permuted=True,
        joins=names.GRANITE_HYBRID_JOINS,
    ),
    "apertus": Family("ApertusForCausalLM", "apertus", names.APERTUS, recent.apertus, told=recent.xielu),
    "qwen3next": Family(
        "Qwen3NextForCausalLM",
        "qwen3_next",
        names.QWEN3_NEXT,
        lambda f: recent.qwen3_next(f) | experts(f, True),
        offset=1,
        joins=names.QWEN3_NEXT_JOINS,
    ),
    "llama4": Family("Llama4ForCausalLM", "llama4_text", names.LLAMA4, llama4, joins=names.LLAMA4_JOINS),
    "gemma3n": Family("Gemma3nForCausalLM", "gemma3n_text", names.GEMMA3N, recent.gemma3n),
    "bert": Family("BertModel", "bert", names.BERT, bert),
    "modern-bert": Family("ModernBertModel", "modernbert", names.MODERN_BERT, modern_bert),
    "nomic-bert": Family("NomicBertModel", "nomic_bert", names.NOMIC, nomic),
    "jina-bert-v2": Family("JinaBertModel", "bert", names.JINA, jina, joins=names.JINA_JOINS),
}
OLMO3 = Family("Olmo3ForCausalLM", "olmo3", FAMILIES["olmo2"].parts, olmo2)
DEEPSEEK3 = Family(
    "DeepseekV3ForCausalLM", "deepseek_v3", names.DEEPSEEK, deepseek2, joins=names.DEEPSEEK_JOINS
)  # fmt: skip
# what changes what a model computes, and which of these architectures has none of
FOREIGN = ("attention.temperature_scale", "attention.max_alibi_bias", "swin_norm", "nextn_predict_layers")
KNOWN = [(name, "attention.max_alibi_bias") for name in ("jina-bert-v2", "mpt")]
FALCON_NORMS = Family("FalconForCausalLM", "falcon", names.FALCON_NORMS, first.falcon, by_head=True)
FALCON_MAMBA = Family("FalconMambaForCausalLM", "falcon_mamba", names.MAMBA, first.mamba)
MIXTRAL = Family("MixtralForCausalLM", "mixtral", names.LLAMA | names.MIXTRAL, mixtral, permuted=True)


def family_of(facts: Facts) -> Family:
    """The architecture in Hugging Face's terms; ModelFormatError where it is not known."""
    name = facts.architecture
    if name not in FAMILIES:
        raise ModelFormatError(
            f"{facts.file.paths[0]} holds a model of architecture {name[:40]!r}; known: {', '.join(FAMILIES)}"
        )
    for key in FOREIGN:
        if facts.own.values.get(key) and (name, key) not in KNOWN:
            raise ModelFormatError(f"{facts.where}: {key!r} is not supported: the model would compute something else")
    if name == "deepseek2" and facts.integer("expert_gating_func", 255, 1) == 2:
        return DEEPSEEK3
    if name == "llama" and facts.integer("expert_count", 1 << 16, 0):
        return MIXTRAL
    if name == "olmo2" and facts.integer("attention.sliding_window", MOST, 0):
        return OLMO3
    if name == "falcon" and facts.has("blk.0.attn_norm_2.weight"):
        return FALCON_NORMS
    if name == "mamba" and facts.own.flag("ssm.dt_b_c_rms", False):
        return FALCON_MAMBA
    return FAMILIES[name]


def config_of(facts: Facts) -> Fields:
    """The fields of config.json."""
    family = family_of(facts)
    tokens = {
        f"{name}_token_id": facts.tokens.integer(key, 0, MOST)
        for name in ("bos", "eos", "pad")
        if (key := f"tokenizer.ggml.{name if name != 'pad' else 'padding'}_token_id") in facts.tokens.values
    }
    embedding = facts.file.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise ModelFormatError(f"{facts.file.paths[0]} has no table 'token_embd.weight': it is incomplete")
    return {
        "architectures": [family.architecture], "model_type": family.model_type, "vocab_size": embedding.shape[0],
        "tie_word_embeddings": not facts.has("output.weight"), **tokens, **family.fields(facts),
    }  # fmt: skip

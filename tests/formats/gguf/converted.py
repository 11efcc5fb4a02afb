"""A Hugging Face folder written as a GGUF file, with the gguf package's names of tensors and keys.

What llama.cpp's converter changes on the way is done here as it documents it: rows of queries and keys as neighbouring
pairs (Llama), weights of norms by one larger (Gemma), query, key and value apart (GPT-NeoX), matrices (out, in)
(GPT-2).
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from statistics import NormalDist
from typing import Any

import gguf
import numpy as np
from safetensors.numpy import load_file

from tests.formats.gguf.files import value_type

PERMUTED = ("llama", "granite", "granitemoe", "granitehybrid", "smollm3", "olmo")
SHIFTED = ("gemma", "gemma2", "gemma3", "qwen3next")


def convert(folder: Path, path: Path, architecture: str, kind: Any = None, more: dict[str, Any] | None = None) -> Path:
    """`architecture`: llama.cpp's name. `kind`: type of matrices; None: float32. `more`: metadata by key."""
    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(path, architecture)
    metadata(writer, config)
    for key, value in (more or {}).items():
        writer.add_key_value(key, value, *value_type(value))
    arch = next(a for a, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(
        arch, config.get("num_hidden_layers") or config.get("n_layer") or config["n_layers"]
    )
    tensors = {n: v.astype(np.float32) for n, v in load_file(folder / "model.safetensors").items()}
    for part in ("alpha_p", "alpha_n", "beta", "eps"):
        learned = sorted(n for n in tensors if n.endswith(f"mlp.act_fn.{part}"))
        if learned:
            getattr(writer, f"add_xielu_{part}")([float(tensors.pop(n).reshape(())) for n in learned])
    for name, values in divided(joined(tensors), config).items():
        if name.startswith("pooler."):  # of BERT: no text's vector goes through it
            continue
        name = name.removeprefix("transformer.") if architecture == "bloom" else name
        found = name if name.startswith("blk.") else names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert found is not None, name
        values = np.ascontiguousarray(changed(values, found, architecture, config))
        if kind is not None and values.ndim > 1 and not found.endswith("norm.weight"):
            writer.add_tensor(found, gguf.quants.quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(found, values)
    if (rope := config.get("rope_parameters") or {}).get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_factors(config, rope))
    if rope.get("rope_type") == "longrope":
        for length in ("long", "short"):
            writer.add_tensor(f"rope_factors_{length}.weight", np.array(rope[f"{length}_factor"], np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def metadata(writer: gguf.GGUFWriter, c: dict[str, Any]) -> None:
    """By the names of config.json, the writer's function for each."""
    rope = c.get("rope_parameters") or {}
    local, rope = rope.get("sliding_attention", {}), rope.get("full_attention", rope)
    heads = c.get("num_attention_heads") or c.get("n_head") or c.get("num_heads") or 1
    width = c.get("head_dim") or (c.get("hidden_size") or c.get("n_embd") or c["d_model"]) // heads
    part = rope.get("partial_rotary_factor", c.get("partial_rotary_factor", 1)) or 1
    pairs = {
        "num_hidden_layers": "block_count", "n_layer": "block_count", "max_position_embeddings": "context_length",
        "n_positions": "context_length", "hidden_size": "embedding_length", "n_embd": "embedding_length",
        "intermediate_size": "feed_forward_length", "n_inner": "feed_forward_length", "n_head": "head_count",
        "num_attention_heads": "head_count", "num_key_value_heads": "head_count_kv",
        "rms_norm_eps": "layer_norm_rms_eps", "layer_norm_eps": "layer_norm_eps",
        "layer_norm_epsilon": "layer_norm_eps", "norm_epsilon": "layer_norm_eps",
        "num_experts": "expert_count", "num_local_experts": "expert_count", "num_experts_per_tok": "expert_used_count",
        "moe_intermediate_size": "expert_feed_forward_length", "sliding_window": "sliding_window",
        "shared_expert_intermediate_size": "expert_shared_feed_forward_length", "logit_scale": "logit_scale",
        "attn_logit_softcapping": "attn_logit_softcapping", "final_logit_softcapping": "final_logit_softcapping",
        "embedding_multiplier": "embedding_scale", "residual_multiplier": "residual_scale",
        "attention_multiplier": "attention_scale", "logits_scaling": "logit_scale",
        "use_parallel_residual": "parallel_residual", "clip_qkv": "clamp_kqv",
        "original_max_position_embeddings": "rope_scaling_orig_ctx_len",
    }  # fmt: skip
    found = {ours: c[name] for name, ours in pairs.items() if c.get(name) is not None}
    found |= {"key_length": width, "value_length": width, "rope_dimension_count": int(width * part)}
    if "kv_lora_rank" in c:
        found |= latent(c, rope)
    if c["model_type"] == "lfm2":
        heads = c["num_key_value_heads"]
        found["head_count_kv"] = [heads if kind == "full_attention" else 0 for kind in c["layer_types"]]
        found |= {"shortconv_l_cache": c["conv_L_cache"], "layer_norm_rms_eps": c["norm_eps"]}
    found |= {"rope_freq_base": rope.get("rope_theta"), "rope_freq_base_swa": local.get("rope_theta")}
    found |= recent(c, rope)
    if c["model_type"] == "gpt_oss":
        found["expert_feed_forward_length"] = c["intermediate_size"]
    if (kind := rope.get("rope_type")) in ("yarn", "linear"):
        found |= {"rope_scaling_type": gguf.RopeScalingType(kind), "rope_scaling_factor": rope["factor"]}
        found |= {"rope_scaling_yarn_beta_fast": rope.get("beta_fast")}
        found |= {"rope_scaling_orig_ctx_len": rope.get("original_max_position_embeddings")}
    if kind == "longrope":
        long, short = c["max_position_embeddings"], c["original_max_position_embeddings"]
        found["rope_scaling_attn_factors"] = math.sqrt(1 + math.log(long / short) / math.log(short))
    if "layer_types" in c and c.get("sliding_window"):
        found["sliding_window_pattern"] = [kind == "sliding_attention" for kind in c["layer_types"]]
    for name, value in found.items():
        if value is not None:
            getattr(writer, f"add_{name}")(value)


def recent(c: dict[str, Any], rope: dict[str, Any]) -> dict[str, Any]:
    """Of Mamba-2, Granite 4, Llama 4 and Gemma 3n."""
    kind = c["model_type"]
    start = "mamba_" if kind == "granitemoehybrid" else ""
    keys = {
        "ssm_conv_kernel": ("conv_kernel", "d_conv"), "ssm_state_size": ("state_size", "d_state"),
        "ssm_group_count": ("n_groups", "n_groups"), "ssm_time_step_rank": ("num_heads", "n_heads"),
    }  # fmt: skip
    found: dict[str, Any] = {}
    if kind in ("mamba2", "granitemoehybrid"):
        found = {ours: c[start + theirs[bool(start)]] for ours, theirs in keys.items()}
        found["ssm_inner_size"] = c[start + "expand"] * c["hidden_size"]
    if kind in ("mamba", "falcon_mamba"):
        found = {
            "ssm_conv_kernel": c["conv_kernel"], "ssm_state_size": c["state_size"], "context_length": 1 << 20,
            "ssm_inner_size": c["intermediate_size"], "ssm_time_step_rank": c["time_step_rank"], "head_count": 0,
            "layer_norm_rms_eps": c["layer_norm_epsilon"], "ssm_dt_b_c_rms": kind == "falcon_mamba",
            "layer_norm_eps": None, "feed_forward_length": 0,
        }  # fmt: skip
    if kind == "bloom":
        found = {"context_length": c["seq_length"], "head_count_kv": c["n_head"]}
        found["feed_forward_length"] = 4 * c["hidden_size"]
    if kind == "mpt":
        inner = c["attn_config"]
        found = {
            "context_length": c["max_seq_len"], "embedding_length": c["d_model"], "block_count": c["n_layers"],
            "head_count": c["n_heads"], "max_alibi_bias": float(inner["alibi_bias_max"]), "head_count_kv": c["n_heads"],
            "clamp_kqv": inner["clip_qkv"], "key_length": None, "value_length": None,
            "feed_forward_length": 4 * c["d_model"],
        }  # fmt: skip
    if rope.get("alpha"):
        width = c["head_dim"]
        found = {"rope_freq_base": rope["rope_theta"] * rope["alpha"] ** (width / (width - 2))}
    if kind == "falcon":
        groups = c["num_kv_heads"] if c["new_decoder_architecture"] else 1
        found = {"head_count_kv": groups, "feed_forward_length": c["ffn_hidden_size"], "tensor_data_layout": "jploski"}
    if kind == "mamba2":
        found |= {"layer_norm_rms_eps": c["layer_norm_epsilon"], "head_count": 0, "context_length": 1 << 20}
        found |= {"layer_norm_eps": None, "feed_forward_length": 0}
    if kind == "modernbert":
        found = {
            "sliding_window": c["local_attention"],
            "layer_norm_eps": c["norm_eps"],
            "sliding_window_pattern": None,
        }
    if kind == "rwkv7":
        ranks = {"decay": "decay", "a": "iclr", "v": "value_residual_mix", "gate": "gate"}
        found = {f"{ours}_lora_rank": c[f"{theirs}_low_rank_dim"] for theirs, ours in ranks.items()}
        found |= {"wkv_head_size": c["head_dim"], "layer_norm_eps": c["norm_eps"], "head_count": 0}
        found |= {"context_length": 1 << 20}
    if kind == "granitemoehybrid":
        attends = [k == "full_attention" for k in c["layer_types"]]
        found["head_count_kv"] = [c["num_key_value_heads"] if a else 0 for a in attends]
        found["expert_shared_feed_forward_length"] = c["shared_intermediate_size"]
        found["rope_scaling_finetuned"] = c.get("position_embedding_type") == "rope"
    if kind == "llama4_text":
        found = {
            "feed_forward_length": c["intermediate_size_mlp"],
            "interleave_moe_layer_step": c["interleave_moe_layer_step"],
        }
        found["expert_feed_forward_length"] = c["intermediate_size"]
    if kind == "qwen3_next":
        found = {
            "ssm_conv_kernel": c["linear_conv_kernel_dim"], "ssm_state_size": c["linear_key_head_dim"],
            "ssm_group_count": c["linear_num_key_heads"], "ssm_time_step_rank": c["linear_num_value_heads"],
            "ssm_inner_size": c["linear_value_head_dim"] * c["linear_num_value_heads"],
        }  # fmt: skip
    if kind == "gemma3n_text":
        cuts = [NormalDist().inv_cdf(s) if s else -math.inf for s in c["activation_sparsity_pattern"]]
        found = {
            "feed_forward_length": c["intermediate_size"][0], "shared_kv_layers": c["num_kv_shared_layers"],
            "activation_sparsity_scale": cuts,
            "altup_active_idx": c["altup_active_idx"], "altup_num_inputs": c["altup_num_inputs"],
            "embedding_length_per_layer_input": c["hidden_size_per_layer_input"],
        }  # fmt: skip
    return found


def latent(c: dict[str, Any], rope: dict[str, Any]) -> dict[str, Any]:
    """What DeepSeek has beside the others."""
    turned, rank = c["qk_rope_head_dim"], c["kv_lora_rank"]
    found = {
        "q_lora_rank": c["q_lora_rank"], "kv_lora_rank": rank, "key_length": rank + turned, "value_length": rank,
        "key_length_mla": c["qk_nope_head_dim"] + turned, "value_length_mla": c["v_head_dim"], "head_count_kv": 1,
        "rope_dimension_count": turned, "leading_dense_block_count": c["first_k_dense_replace"],
        "expert_count": c["n_routed_experts"], "expert_shared_count": c.get("n_shared_experts"),
        "expert_weights_scale": c["routed_scaling_factor"], "expert_weights_norm": c.get("norm_topk_prob"),
        "expert_group_count": c.get("n_group"), "expert_group_used_count": c.get("topk_group"),
        "expert_gating_func": gguf.ExpertGatingFuncType.SIGMOID if c["model_type"] == "deepseek_v3"
        else gguf.ExpertGatingFuncType.SOFTMAX,
    }  # fmt: skip
    if "mscale_all_dim" in rope:
        found["rope_scaling_yarn_log_mul"] = 0.1 * rope["mscale_all_dim"]
    return found


def joined(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Experts, and norms of single heads, as one tensor each."""
    found: dict[str, np.ndarray] = {}
    groups: dict[str, list[np.ndarray]] = {}
    for name in sorted(tensors, key=lambda n: [int(p) if p.isdigit() else -1 for p in n.split(".")]):
        parts = name.split(".")
        at = next((i + 1 for i, p in enumerate(parts) if p in ("experts", "norms")), None)
        if at is None or not parts[at].isdigit():
            found[name] = tensors[name]
            continue
        inside = parts[:at] if parts[at - 1] == "experts" else parts[: at - 1]
        groups.setdefault(".".join([*inside, *parts[at + 1 :]]), []).append(tensors[name])
    return found | {name: np.stack(each) for name, each in groups.items()}


def divided(tensors: dict[str, np.ndarray], c: dict[str, Any]) -> dict[str, np.ndarray]:
    """What is one tensor in a checkpoint and several in GGUF files; names that the package's tables know."""
    found: dict[str, np.ndarray] = {}
    if c["model_type"] == "rwkv7":
        return rwkv7(tensors)
    for name, v in tensors.items():
        start, _, last = name.rpartition("mlp.experts.")
        if name.endswith("kv_b_proj.weight"):
            each = v.reshape(c["num_attention_heads"], -1, v.shape[-1])
            width = c["qk_nope_head_dim"]
            found[name.replace("kv_b_proj", "k_b_proj")] = each[:, :width].swapaxes(1, 2)
            found[name.replace("kv_b_proj", "v_b_proj")] = each[:, width:]
        elif name.endswith("block_sparse_moe.input_linear.weight"):
            start = name.removesuffix("input_linear.weight")
            for half, values in zip(("gate", "up"), np.split(v, 2, axis=1)):
                found[f"{start.replace('block_sparse_moe', 'mlp')}experts.{half}_proj.weight"] = values
        elif last in ("gate_up_proj", "gate_up_proj_bias"):
            end = "bias" if last.endswith("bias") else "weight"
            for i, half in enumerate(("gate", "up")):
                values = v[..., i::2]
                found[f"{start}mlp.experts.{half}_proj.{end}"] = values if end == "bias" else values.swapaxes(1, 2)
        elif last == "down_proj":
            found[f"{start}mlp.experts.down_proj.weight"] = v.swapaxes(1, 2)
        elif last == "down_proj_bias":
            found[f"{start}mlp.experts.down_proj.bias"] = v
        elif name.endswith(("sinks", "altup.correct_output_scale")):
            found[f"{name}.weight"] = v
        elif name.endswith("in_proj_qkvz.weight") and not c.get("as_at_first"):
            start, groups = name.rpartition("model.layers.")[2].partition(".")[0], c["linear_num_key_heads"]
            ratio = c["linear_num_value_heads"] // groups
            sizes = [c["linear_key_head_dim"]] * 2 + [c["linear_value_head_dim"] * ratio] * 2
            kinds = np.split(v.reshape(groups, sum(sizes), -1), np.cumsum(sizes)[:-1], axis=1)
            flat = [part.reshape(-1, v.shape[-1]) for part in kinds]
            found[f"blk.{start}.attn_qkv.weight"] = np.concatenate(flat[:3])
            found[f"blk.{start}.attn_gate.weight"] = flat[3]
        elif name.endswith("dt_bias"):
            found[name.replace("dt_bias", "dt_proj.bias")] = v
        elif name.endswith("shared_mlp.input_linear.weight"):
            to = "mlp.shared_expert" if c["num_local_experts"] else "mlp"
            for half, values in zip(("gate", "up"), np.split(v, 2)):
                found[name.replace("shared_mlp.input_linear", f"{to}.{half}_proj")] = values
        elif name.endswith("shared_mlp.output_linear.weight") and not c["num_local_experts"]:
            found[name.replace("shared_mlp.output_linear", "mlp.down_proj")] = v
        elif "feed_forward.experts." in name:
            parts = np.split(v, 2, axis=2) if name.endswith("gate_up_proj") else [v]
            for half, values in zip(("gate", "up") if len(parts) == 2 else ("down",), parts):
                found[f"{name.rpartition('feed_forward')[0]}mlp.experts.{half}_proj.weight"] = values.swapaxes(1, 2)
        elif "altup_projections." in name or "altup_unembed_projections." in name:
            whole = re.sub(r"\.\d+\.weight", ".weight", name)
            found[whole] = np.concatenate([found[whole], v[None]]) if whole in found else v[None]
        elif name.endswith("e_score_correction_bias"):
            found[name.replace("_bias", ".bias")] = v
        else:
            found[name] = v[:, 0] if name.endswith(("conv.conv.weight", "conv1d.weight")) else v
    return found


def rwkv7(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """By the names that the package's tables know: shares of the token before as one tensor, and for the first layer
    matrices that are never read."""
    found: dict[str, np.ndarray] = {}
    for name, v in tensors.items():
        to = name.replace("g_norm", "ln_x").replace("ffn_norm", "ln2").replace("ffn", "feed_forward")
        to = to.replace("attn_norm", "ln1").replace("attn", "attention")
        for half, number in (("0.weight", 1), ("2.weight", 2), ("2.bias", 0)):
            to = to.replace(f"_lora.lora.{half}", f"{number}.weight")
        if ".attn.x_" in name:
            continue
        to = to if to.endswith(("weight", "bias")) else f"{to}.weight"
        found[to] = v.reshape(-1) if name.endswith("r_k") else v
    for i in {name.split(".")[2] for name in tensors if ".attn." in name}:
        each = [tensors[f"model.layers.{i}.attn.x_{kind}"] for kind in "rwkvag"]
        found[f"blk.{i}.time_mix_lerp_fused.weight"] = np.stack(each)
    for n in range(3):
        found[f"model.layers.0.attention.v{n}.weight"] = found[f"model.layers.0.attention.a{n}.weight"]
    return found


def changed(values: np.ndarray, name: str, architecture: str, c: dict[str, Any]) -> np.ndarray:
    part = name.rpartition(".")[0].split(".")[-1]
    if name.endswith(("ssm_a", "ssm_d")):
        values = -np.exp(values) if name.endswith("ssm_a") else values
        return values if architecture in ("mamba", "qwen3next") else values.reshape(-1, 1)
    if part == "ssm_norm" and architecture == "qwen3next":
        return values
    if part == "ssm_norm":
        return values.reshape(c.get("n_groups") or c["mamba_n_groups"], -1)
    heads = c.get("num_attention_heads") or c.get("n_head")
    if architecture in PERMUTED and part in ("attn_q", "attn_k"):
        heads = heads if part == "attn_q" else c.get("num_key_value_heads") or heads
        return values.reshape(heads, 2, -1, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)
    if architecture in SHIFTED and name.endswith("norm.weight"):
        return values + 1
    if architecture in ("gptneox", "falcon", "bloom") and part == "attn_qkv":
        groups = heads if architecture != "falcon" else c["num_kv_heads"] if c["new_decoder_architecture"] else 1
        each = values.reshape(groups, heads // groups + 2, -1, *values.shape[1:])
        return np.concatenate([p.reshape(-1, *values.shape[1:]) for p in np.split(each, [-2, -1], axis=1)])
    if architecture == "gpt2" and part in ("attn_qkv", "attn_output", "ffn_up", "ffn_down"):
        return values.T
    return values


def llama3_factors(c: dict[str, Any], rope: dict[str, Any]) -> np.ndarray:
    """What each frequency is divided by (the formula of Llama 3.1)."""
    width = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    low, high, original = rope["low_freq_factor"], rope["high_freq_factor"], rope["original_max_position_embeddings"]
    waves = 2 * np.pi * rope["rope_theta"] ** (np.arange(0, width, 2) / width)
    smooth = np.clip((original / waves - low) / (high - low), 0, 1)
    return (1 / ((1 - smooth) / rope["factor"] + smooth)).astype(np.float32)


def metadata_of(folder: Path) -> dict[str, Any]:
    """The tokenizer of the embedded chat model as metadata."""
    content = json.loads((folder / "tokenizer.json").read_text())
    config = json.loads((folder / "tokenizer_config.json").read_text())
    vocabulary = content["model"]["vocab"]
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    merges = [m if isinstance(m, str) else " ".join(m) for m in content["model"]["merges"]]
    own = {"model": "gpt2", "pre": "stablelm2", "bos_token_id": 0, "eos_token_id": 4, "padding_token_id": 1,
           "tokens": tokens, "token_type": types_of(content, len(tokens)), "merges": merges}  # fmt: skip
    return {f"tokenizer.ggml.{k}": v for k, v in own.items()} | {"tokenizer.chat_template": config["chat_template"]}


def types_of(content: dict[str, Any], size: int) -> list[int]:
    added = {
        t["id"]: gguf.TokenType.CONTROL if t["special"] else gguf.TokenType.USER_DEFINED
        for t in content["added_tokens"]
    }
    return [int(added.get(i, gguf.TokenType.NORMAL)) for i in range(size)]

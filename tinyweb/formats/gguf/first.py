"""Fields of config.json of the first decoders after GPT-2, and of Mamba, from a GGUF file's metadata."""

from __future__ import annotations

from tinyweb.formats.gguf.facts import Facts
from tinyweb.formats.gguf.fields import Fields, layer_norm, rms, rotary, sizes


def falcon(f: Facts) -> Fields:
    """Groups of heads with a key and a value each came with a norm of the MLP's own, and remained without it."""
    found = sizes(f) | rotary(f) | layer_norm(f, "layer_norm_epsilon")
    groups, own = found.pop("num_key_value_heads"), f.has("blk.0.attn_norm_2.weight")
    del found["head_dim"]  # it follows
    newer = own or groups > 1
    return found | {
        "activation": "gelu", "alibi": False, "bias": f.has("blk.0.attn_qkv.bias"), "parallel_attn": True,
        "ffn_hidden_size": found.pop("intermediate_size"), "multi_query": True, "num_kv_heads": groups,
        "new_decoder_architecture": newer, "num_ln_in_parallel_attn": (2 if own else 1) if newer else None,
    }  # fmt: skip


def bloom(f: Facts) -> Fields:
    return layer_norm(f, "layer_norm_epsilon") | {
        "hidden_size": f.hidden, "n_layer": f.layers, "n_head": f.heads, "seq_length": f.integer("context_length"),
    }  # fmt: skip


def mpt(f: Facts) -> Fields:
    inner = {"alibi": True, "alibi_bias_max": round(f.number("attention.max_alibi_bias")),
             "clip_qkv": f.number("attention.clamp_kqv", 0.0) or None}  # fmt: skip
    return layer_norm(f, "layer_norm_epsilon") | {
        "d_model": f.hidden, "n_layers": f.layers, "n_heads": f.heads, "max_seq_len": f.integer("context_length"),
        "attn_config": inner,
    }  # fmt: skip


def hunyuan(f: Facts) -> Fields:
    found = {"hidden_act": "silu", "attention_bias": f.has("blk.0.attn_q.bias")}
    return found | sizes(f) | rotary(f) | rms(f)


def mamba(f: Facts) -> Fields:
    inner = f.integer("ssm.inner_size", 1 << 20)
    return {
        "hidden_act": "silu", "hidden_size": f.hidden, "intermediate_size": inner, "expand": max(inner // f.hidden, 1),
        "num_hidden_layers": f.layers, "state_size": f.integer("ssm.state_size", 1 << 16),
        "conv_kernel": f.integer("ssm.conv_kernel", 64), "time_step_rank": f.integer("ssm.time_step_rank", 1 << 16),
        "layer_norm_epsilon": f.number("attention.layer_norm_rms_epsilon"),
        "use_bias": f.has("blk.0.ssm_in.bias"), "use_conv_bias": f.has("blk.0.ssm_conv1d.bias"),
    }  # fmt: skip

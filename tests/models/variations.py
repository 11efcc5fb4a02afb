"""Random configs of language models: what a seed makes of the fields of each architecture in `transformers`."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tests.models.decoder_folders import Small

Fields = dict[str, Any]
SCALINGS = ("default", "linear", "dynamic", "yarn", "longrope", "llama3")
FIXED = ("default", "linear", "yarn", "llama3")  # those that do not depend on a text's length
ACTIVATIONS = ("silu", "gelu", "gelu_pytorch_tanh", "gelu_new", "relu", "quick_gelu", "relu2")
FULL, SLIDING = "full_attention", "sliding_attention"


class Draw(random.Random):
    """Draws of one config."""

    def of(self, *values: Any) -> Any:
        """One of these."""
        return self.choice(values)

    def coin(self, chance: float = 0.5) -> bool:
        return self.random() < chance

    def eps(self) -> float:
        return float(self.of(1e-6, 1e-5, 1e-3, 1e-2))

    def window(self) -> int:
        return int(self.of(2, 3, 6, 11, 100))  # of 1 the caches of `transformers` keep everything

    def kinds(self, count: int, *kinds: str) -> list[str]:
        """A kind for each layer."""
        return [self.choice(kinds or (FULL, SLIDING)) for _ in range(count)]


def sizes(d: Draw, head_dim: bool = True) -> Fields:
    """Sizes and heads; `head_dim`: whether the width of heads may be another than their share of `hidden_size`."""
    heads, width = d.of(1, 2, 3, 4, 6), d.of(4, 6, 8, 10)
    hidden = heads * width if heads * width > 15 else heads * 4 * width
    found = {
        "hidden_size": hidden, "num_attention_heads": heads,
        "num_key_value_heads": d.choice([k for k in range(1, heads + 1) if heads % k == 0]),
        "intermediate_size": d.of(20, 33, 40, 71), "vocab_size": d.of(53, 64, 67, 97), "tie_word_embeddings": d.coin(),
        "num_hidden_layers": d.of(1, 2, 3), "max_position_embeddings": d.of(40, 64, 200),
        "pad_token_id": None, "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip
    return {**found, "head_dim": d.of(width, 4, 14)} if head_dim else found


def width_of(f: Fields) -> int:
    return int(f.get("head_dim") or f["hidden_size"] // f["num_attention_heads"])


def llama(d: Draw, head_dim: bool = True) -> Fields:
    return {**sizes(d, head_dim), "rms_norm_eps": d.eps(), "hidden_act": d.choice(ACTIVATIONS)}


def turned(d: Draw, f: Fields, kinds: tuple[str, ...] = SCALINGS, part: float | None = None) -> Fields:
    """With rotary positions, scaled or not, of `part` of each head."""
    scaling = rope(d, int(width_of(f) * (part or 1)), kinds)
    if part is not None:
        scaling["partial_rotary_factor"] = part
    reach = {"dynamic": 16, "longrope": 64}.get(scaling["rope_type"], f["max_position_embeddings"])
    return {**f, "max_position_embeddings": reach, "rope_parameters": scaling}


def rope(d: Draw, width: int, kinds: tuple[str, ...]) -> Fields:
    kind = d.choice(kinds)
    found: Fields = {"rope_type": kind, "rope_theta": d.of(100.0, 1000.0, 10000.0, 500000.0)}
    if kind in ("linear", "dynamic", "yarn", "llama3"):
        found["factor"] = d.of(2.0, 4.0, 8.0)
    if kind in ("yarn", "llama3", "longrope"):
        found["original_max_position_embeddings"] = d.of(8, 16, 32)
    if kind == "yarn":
        found |= d.of({}, {"attention_factor": 0.7}, {"mscale": 0.7, "mscale_all_dim": 0.3}, {"mscale": 1.0})
        found |= d.of({}, {"beta_fast": 8.0, "beta_slow": 0.5}, {"truncate": False})
    if kind == "llama3":
        found["low_freq_factor"], found["high_freq_factor"] = d.of((1.0, 4.0), (0.5, 2.0), (1.0, 32.0))
    if kind == "longrope":
        found["short_factor"] = [1 + d.random() for _ in range(width // 2)]
        found["long_factor"] = [1 + 8 * d.random() for _ in range(width // 2)]
        found |= d.of({}, {"factor": 4.0}, {"attention_factor": 0.8})
    return found


def two_ropes(d: Draw, f: Fields) -> Fields:
    near = {"rope_type": "default", "rope_theta": d.of(100.0, 10000.0)}
    return {**f, "rope_parameters": {SLIDING: near, FULL: rope(d, width_of(f), FIXED[:3])}}


def maybe(d: Draw, key: str, value: Any) -> Fields:
    return {key: value} if d.coin() else {}


def kinds(d: Draw, f: Fields, *names: str) -> Fields:
    """Perhaps with a kind for each layer."""
    return maybe(d, "layer_types", d.kinds(f["num_hidden_layers"], *names))


def flags(d: Draw, *names: str) -> Fields:
    return {name: d.coin() for name in names}


def experts(d: Draw, key: str = "num_experts") -> Fields:
    count = d.of(2, 3, 5, 8)
    return {key: count, "num_experts_per_tok": d.randint(1, count)}


# -- families ----------------------------------------------------------------------------------------------------------
def plain(*names: str, head_dim: bool = True, ropes: tuple[str, ...] = SCALINGS) -> Callable[[Draw], Fields]:
    """Llama, and whether it has what the fields `names` say."""
    return lambda d: turned(d, {**llama(d, head_dim), **flags(d, *names)}, ropes)


def windows(
    *names: str, types: bool = False, head_dim: bool = True, ropes: tuple[str, ...] = SCALINGS
) -> Callable[[Draw], Fields]:
    def of(d: Draw) -> Fields:
        f = {**llama(d, head_dim), **flags(d, *names), "sliding_window": d.window()}
        return turned(d, {**f, **(kinds(d, f) if types else {})}, ropes)

    return of


def qwen(*names: str, head_dim: bool = True) -> Callable[[Draw], Fields]:
    def of(d: Draw) -> Fields:
        more = {"sliding_window": d.window(), "max_window_layers": d.of(0, 1, 2)}
        return turned(d, {**llama(d, head_dim), **flags(d, "use_sliding_window", *names), **more})

    return of


def qwen_moe(*names: str, head_dim: bool = True) -> Callable[[Draw], Fields]:
    def of(d: Draw) -> Fields:
        more = {"moe_intermediate_size": d.of(12, 17), "decoder_sparse_step": d.of(1, 2), **flags(d, "norm_topk_prob")}
        if not head_dim:
            more["shared_expert_intermediate_size"] = d.of(10, 21)
        return {**qwen(*names, head_dim=head_dim)(d), **experts(d), **more, **maybe(d, "mlp_only_layers", [0])}

    return of


def granite(d: Draw) -> Fields:
    more = {"attention_multiplier": d.of(0.1, 0.5), "embedding_multiplier": d.of(1.0, 4.0),
            "residual_multiplier": d.of(0.22, 1.0), "logits_scaling": d.of(1.0, 3.0)}  # fmt: skip
    return {**plain("attention_bias", head_dim=False)(d), **more}


def state_part(d: Draw, f: Fields) -> Fields:
    expand, heads = d.of(1, 2, 3), d.of(2, 4)
    while expand * f["hidden_size"] % heads:
        heads //= 2
    return {
        "mamba_expand": expand, "mamba_n_heads": heads, "mamba_n_groups": d.of(1, heads), "mamba_d_state": d.of(8, 13),
        "mamba_d_conv": d.of(2, 4), **flags(d, "mamba_conv_bias", "mamba_proj_bias"),
    }  # fmt: skip


def granite_hybrid(d: Draw) -> Fields:
    f = {**granite(d), "position_embedding_type": d.of(None, "rope"), "shared_intermediate_size": d.of(20, 33)}
    f = {
        **turned(d, {**f, "max_position_embeddings": 64}, FIXED),
        "layer_types": ["attention", *d.kinds(f["num_hidden_layers"] - 1, "mamba", "attention")],
    }
    return {**f, **state_part(d, f), **d.of(experts(d, "num_local_experts"), {"num_local_experts": 0})}


def bamba(d: Draw) -> Fields:
    f = {**llama(d, head_dim=False), **flags(d, "mlp_bias", "attention_bias"), "attn_layer_indices": [0]}
    f["hidden_size"] = f["num_attention_heads"] * 8
    return {**f, **state_part(d, f)}


def mamba2(d: Draw) -> Fields:
    hidden, expand, width = d.of((24, 2, 8), (32, 2, 16), (20, 3, 6), (36, 1, 4))
    heads = hidden * expand // width
    return {
        "hidden_size": hidden, "expand": expand, "head_dim": width, "num_heads": heads,
        "n_groups": d.choice([g for g in (1, 2, 3, 5) if heads % g == 0]), "state_size": d.of(5, 12, 16),
        "num_hidden_layers": d.of(1, 2), "vocab_size": d.of(53, 67), "conv_kernel": d.of(2, 3, 4),
        "hidden_act": d.of("silu", "gelu"), "layer_norm_epsilon": d.eps(), "chunk_size": d.of(4, 256),
        "time_step_limit": d.of((0.0, float("inf")), (0.01, 0.5)),
        **flags(d, "use_bias", "use_conv_bias", "tie_word_embeddings"),
    }  # fmt: skip


def mamba(d: Draw) -> Fields:
    return {
        "hidden_size": d.of(20, 24, 36), "expand": d.of(1, 2), "state_size": d.of(5, 16), "conv_kernel": d.of(2, 4),
        "num_hidden_layers": d.of(1, 2), "vocab_size": d.of(53, 67), "time_step_rank": d.of("auto", 3),
        "hidden_act": d.of("silu", "gelu"), "layer_norm_epsilon": d.eps(),
        **flags(d, "use_bias", "use_conv_bias", "tie_word_embeddings"),
    }  # fmt: skip


def llama4(d: Draw) -> Fields:
    f = {**llama(d), **experts(d, "num_local_experts"), **flags(d, "use_qk_norm", "attention_bias")}
    more = {"intermediate_size_mlp": d.of(24, 31), "interleave_moe_layer_step": d.of(1, 2),
            "attention_chunk_size": d.of(1, 3, 7, 8192), "attn_temperature_tuning": d.coin(),
            "floor_scale": d.of(3, 8192), "attn_scale": d.of(0.1, 0.6),
            "no_rope_layer_interval": d.of(1, 2, 4)}  # fmt: skip
    return turned(d, {**f, **more}, ("default", "linear", "llama3"))


def gpt_oss(d: Draw) -> Fields:
    f = {**windows("attention_bias", types=True)(d), **experts(d, "num_local_experts")}
    return {**f, "hidden_act": "silu", "swiglu_limit": d.of(0.5, 7.0)}


def routed(d: Draw) -> Fields:
    """DeepSeek's fields of experts."""
    return {
        "n_routed_experts": d.of(4, 8), "num_experts_per_tok": d.of(1, 2), "moe_intermediate_size": d.of(12, 9),
        "first_k_dense_replace": d.of(0, 1, 2), "routed_scaling_factor": d.of(1.0, 2.5), "n_shared_experts": d.of(1, 2),
        "n_group": d.of(1, 2), "topk_group": 1, **flags(d, "norm_topk_prob", "attention_bias"),
    }  # fmt: skip


def latent(d: Draw) -> Fields:
    f = {**llama(d, head_dim=False), **routed(d)}
    f |= {"num_key_value_heads": f["num_attention_heads"], "q_lora_rank": d.of(None, 16, 11),
          "kv_lora_rank": d.of(24, 14), "qk_nope_head_dim": d.of(8, 6),
          "qk_rope_head_dim": d.of(2, 6, 8), "v_head_dim": d.of(10, 7)}  # fmt: skip
    return {**f, "rope_parameters": rope(d, f["qk_rope_head_dim"], ("default", "yarn", "linear"))}


def lfm2(d: Draw) -> Fields:
    f = {**sizes(d, False), "norm_eps": d.eps(), "conv_L_cache": d.of(2, 3, 5), "conv_bias": d.coin()}
    types = [FULL, *d.kinds(f["num_hidden_layers"] - 1, "conv", FULL)]
    return {**turned(d, f, FIXED[:3]), "layer_types": types, "block_multiple_of": d.of(8, 3)}


def gemma(d: Draw) -> Fields:
    return {**plain("attention_bias")(d), "hidden_activation": d.of(None, "silu")}


def gemma2(d: Draw) -> Fields:
    f = windows("attention_bias", types=True)(d)
    return {
        **f, "hidden_activation": f.pop("hidden_act"), "query_pre_attn_scalar": d.of(4, 17, 256),
        "attn_logit_softcapping": d.of(None, 1.0, 50.0), "final_logit_softcapping": d.of(None, 2.0, 30.0),
    }  # fmt: skip


def gemma3(d: Draw) -> Fields:
    return two_ropes(d, {**gemma2(d), "max_position_embeddings": 64})


def gemma3n(d: Draw) -> Fields:
    f, count = llama(d), d.of(3, 5)
    f |= {
        "num_hidden_layers": count, "hidden_activation": f.pop("hidden_act"), "sliding_window": d.window(),
        "layer_types": [SLIDING, FULL, *d.kinds(count - 2)], "num_kv_shared_layers": d.of(0, count - 2),
        "laurel_rank": d.of(3, 8), "activation_sparsity_pattern": [d.of(0.0, 0.5, 0.95) for _ in range(count)],
        "intermediate_size": [d.of(40, 24) for _ in range(count)], "hidden_size_per_layer_input": d.of(6, 12),
        "vocab_size_per_layer_input": f["vocab_size"] - d.of(0, 5), "altup_num_inputs": d.of(2, 4),
        "altup_active_idx": d.of(0, 1), **flags(d, "altup_correct_scale", "attention_bias"),
    }  # fmt: skip
    return two_ropes(d, {**f, "max_position_embeddings": 64})


def smollm3(d: Draw) -> Fields:
    f = {**qwen("attention_bias", "mlp_bias", head_dim=False)(d), "no_rope_layer_interval": d.of(2, 4)}
    f.pop("max_window_layers")
    return {**f, **maybe(d, "no_rope_layers", [1, *(d.of(0, 1) for _ in range(f["num_hidden_layers"] - 1))])}


def layer_norms(
    eps: str, *names: str, kinds: tuple[str, ...] = SCALINGS, parts: tuple[float, ...] = (1.0, 0.5, 0.25)
) -> Callable[[Draw], Fields]:
    """Those with layer norms, whose heads of 8 elements may be turned in part."""

    def of(d: Draw) -> Fields:
        f = {**sizes(d, False), eps: d.eps(), "hidden_act": d.choice(ACTIVATIONS), **flags(d, *names)}
        return turned(d, {**f, "hidden_size": 8 * f["num_attention_heads"]}, kinds, d.of(*parts))

    return of


def cohere(*names: str, head_dim: bool = False) -> Callable[[Draw], Fields]:
    def of(d: Draw) -> Fields:
        f = {**plain("attention_bias", *names, head_dim=head_dim)(d), "layer_norm_eps": d.eps()}
        return {**f, "logit_scale": d.of(0.0625, 1.5), **({"sliding_window": d.window()} if head_dim else {})}

    return of


def gpt2(*names: str) -> Callable[[Draw], Fields]:
    def of(d: Draw) -> Fields:
        heads = d.of(2, 3, 4)
        return {
            "n_embd": heads * d.of(5, 8, 9), "n_head": heads, "n_layer": d.of(1, 2), "n_positions": d.of(32, 64),
            "vocab_size": d.of(53, 67), "n_inner": d.of(None, 33, 40), "activation_function": d.choice(ACTIVATIONS),
            "layer_norm_epsilon": d.eps(), **flags(d, "tie_word_embeddings", *names),
        }  # fmt: skip

    return of


def gpt_j(d: Draw) -> Fields:
    return {**gpt2()(d), "n_embd": 24, "n_head": 3, "rotary_dim": d.of(2, 4, 8)}


def glm(d: Draw) -> Fields:
    f = {**llama(d), "head_dim": d.of(8, 16), "attention_bias": d.coin()}
    return turned(d, f, FIXED, d.of(0.25, 0.5, 1.0))


def exaone4(d: Draw) -> Fields:
    return turned(d, {**llama(d), "sliding_window": d.window(), "sliding_window_pattern": d.of(2, 3)}, FIXED)


def falcon(d: Draw) -> Fields:
    f = {**sizes(d, False), "activation": d.choice(ACTIVATIONS), "layer_norm_epsilon": d.eps(), "bias": d.coin()}
    f |= {"ffn_hidden_size": d.of(None, 33), "num_kv_heads": f.pop("num_key_value_heads")}
    older = flags(d, "multi_query", "parallel_attn")
    newer = {"new_decoder_architecture": True, "num_ln_in_parallel_attn": d.of(None, 1, 2)}
    return turned(d, {**f, **(newer if d.coin() else older)}, FIXED[:2])


def bloom(d: Draw) -> Fields:
    heads = d.of(1, 2, 3, 4, 6)
    return {
        "hidden_size": heads * d.of(5, 8, 9), "num_attention_heads": heads, "num_hidden_layers": d.of(1, 2),
        "vocab_size": d.of(53, 67), "layer_norm_epsilon": d.eps(), "seq_length": d.of(32, 64),
        "tie_word_embeddings": d.coin(),
    }  # fmt: skip


def mpt(d: Draw) -> Fields:
    f = bloom(d)
    found = {"d_model": "hidden_size", "n_heads": "num_attention_heads", "n_layers": "num_hidden_layers"}
    inner = {"clip_qkv": d.of(None, 0.5), "softmax_scale": d.of(None, 0.2)}
    kept = {name: f[name] for name in ("vocab_size", "layer_norm_epsilon", "tie_word_embeddings")}
    return {**kept, **{to: f[name] for to, name in found.items()}, "max_seq_len": d.of(32, 64), "attn_config": inner}


def hunyuan(d: Draw) -> Fields:
    f = plain("attention_bias")(d)
    dynamic = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 1.0, "alpha": d.of(2.0, 1000.0)}
    return {**f, "rope_parameters": dynamic} if d.coin() else f


def qwen3_next(d: Draw) -> Fields:
    f = {**llama(d, head_dim=False), **experts(d), **flags(d, "norm_topk_prob", "attention_bias")}
    keys = d.of(1, 2, 3)
    f |= {
        "head_dim": d.of(8, 16), "linear_num_key_heads": keys, "linear_num_value_heads": keys * d.of(1, 2),
        "linear_key_head_dim": d.of(8, 11), "linear_value_head_dim": d.of(6, 8), "linear_conv_kernel_dim": d.of(2, 4),
        "moe_intermediate_size": d.of(12, 17), "shared_expert_intermediate_size": d.of(10, 21), "rms_norm_eps": 1e-3,
        "decoder_sparse_step": d.of(1, 2),
        "layer_types": [FULL, *d.kinds(f["num_hidden_layers"] - 1, "linear_attention", FULL)],
    }  # fmt: skip
    return turned(d, {**f, "max_position_embeddings": 64}, FIXED, d.of(0.25, 0.5, 1.0))


REACH = {"max_position_embeddings": 64}
DECODERS: dict[str, Callable[[Draw], Fields]] = {
    "Llama": plain("attention_bias", "mlp_bias"),
    "Mistral": windows(),
    "Ministral": windows(types=True),
    "Qwen2": qwen(head_dim=False),
    "Qwen3": qwen("attention_bias"),
    "Mixtral": lambda d: {**windows()(d), **experts(d, "num_local_experts")},
    "Qwen2Moe": qwen_moe("qkv_bias", head_dim=False),
    "Qwen3Moe": qwen_moe(),
    "Qwen3Next": qwen3_next,
    "Granite": lambda d: {**granite(d), "mlp_bias": d.coin()},
    "GraniteMoe": lambda d: {**granite(d), **experts(d, "num_local_experts")},
    "Olmoe": lambda d: {**plain("norm_topk_prob", head_dim=False)(d), **experts(d), "clip_qkv": d.of(None, 0.5)},
    "GptOss": gpt_oss,
    "Llama4": llama4,
    "DeepseekV2": lambda d: {**latent(d), "topk_method": d.of("greedy", "group_limited_greedy")},
    "DeepseekV3": lambda d: {**latent(d), "rope_interleave": d.coin()},
    "Lfm2": lfm2,
    "Mamba": mamba,
    "FalconMamba": mamba,
    "Mamba2": mamba2,
    "GraniteMoeHybrid": granite_hybrid,
    "Bamba": bamba,
    "SmolLM3": smollm3,
    "Phi3": lambda d: turned(d, {**llama(d, False), "sliding_window": d.window()}, ("default", "longrope")),
    "Gemma": gemma,
    "Gemma2": gemma2,
    "Gemma3": gemma3,
    "Gemma3n": gemma3n,
    "Olmo": lambda d: {**plain("attention_bias", head_dim=False)(d), "clip_qkv": d.of(None, 0.4, 3.0)},
    "Olmo2": plain("attention_bias", head_dim=False),
    "Olmo3": lambda d: two_ropes(d, {**windows("attention_bias", types=True, head_dim=False)(d), **REACH}),
    "Cohere": cohere("use_qk_norm"),
    "Cohere2": cohere(head_dim=True),
    "GPT2": gpt2("scale_attn_weights", "scale_attn_by_inverse_layer_idx"),
    "GPTNeoX": layer_norms("layer_norm_eps", "use_parallel_residual", "attention_bias"),
    "Phi": layer_norms("layer_norm_eps", "qk_layernorm"),
    "StableLm": layer_norms("layer_norm_eps", "qk_layernorm", "use_qkv_bias", "use_parallel_residual"),
    "Glm": glm,
    "Glm4": glm,
    "Ernie4_5": plain("use_bias", ropes=FIXED),
    "Exaone4": exaone4,
    "Starcoder2": lambda d: {
        **layer_norms("norm_epsilon", "use_bias", parts=(1.0,))(d),
        "sliding_window": d.window(),
    },
    "Nemotron": layer_norms("norm_eps", "attention_bias", "mlp_bias", kinds=("default",)),
    "Arcee": plain("attention_bias", "mlp_bias"),
    "SeedOss": plain("attention_bias", "attention_out_bias", "mlp_bias", ropes=FIXED),
    "Cwm": windows("mlp_bias", types=True, ropes=("default", "llama3")),
    "VaultGemma": gemma2,
    "Dots1": lambda d: {**windows(ropes=FIXED)(d), **routed(d), "max_window_layers": d.of(0, 1)},
    "Glm4Moe": lambda d: {**glm(d), **routed(d), "use_qk_norm": d.coin()},
    "Falcon": falcon,
    "Bloom": bloom,
    "Mpt": mpt,
    "Apertus": lambda d: {**plain("attention_bias")(d), "hidden_act": d.of("xielu", "silu")},
    "HunYuanDenseV1": hunyuan,
    "GPTJ": gpt_j,
    "GPTBigCode": gpt2("multi_query", "scale_attn_weights"),
}
CLASSES = {"Llama4": "Llama4TextConfig", "Gemma3": "Gemma3TextConfig", "Gemma3n": "Gemma3nTextConfig"}


def variation(family: str, seed: int) -> Small:
    """The config of a family that a seed makes."""
    changes = DECODERS[family](Draw(f"{family} {seed}"))
    architecture = "GPT2LMHeadModel" if family == "GPT2" else f"{family}ForCausalLM"
    return Small(architecture, changes, CLASSES.get(family, f"{family}Config"))

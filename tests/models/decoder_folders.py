"""Small language models of random weights, saved by `transformers`, which is also their judge."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import transformers

from tests.models import rwkv7_reference

SIZES: dict[str, Any] = {
    "vocab_size": 67,
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": None,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
WINDOW = 6  # of positions, where layers slide


@dataclass(frozen=True)
class Small:
    """An architecture and what of its config differs from SIZES; `config`: the class, where its name is another."""

    architecture: str
    changes: dict[str, Any] = field(default_factory=dict)
    config: str = ""

    def described(self) -> Any:
        """The config of `transformers`."""
        name = self.config or self.architecture.replace("ForCausalLM", "Config").replace("LMHeadModel", "Config")
        return getattr(transformers, name)(**SIZES | self.changes)

    def write(self, folder: Path) -> None:
        """The folder as `transformers` saves it."""
        model = getattr(transformers, self.architecture)(self.described())
        generator = torch.Generator("cpu").manual_seed(7)
        with torch.no_grad():
            learned = [
                *model.named_parameters(),
                *((n, b) for n, b in model.named_buffers() if n in model.state_dict()),
            ]
            for name, p in learned:
                # no norm and no bias is neutral, and weights are large enough that a mistake shows
                values = torch.randn(p.shape, generator=generator)
                p.copy_(values * 0.2 + 0.7 if "norm" in name or "ln_" in name else values * 0.25)
        model.save_pretrained(folder)

    def logits(self, folder: Path, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """What `transformers` makes of ids (batch, tokens) in float32, each text read at once."""
        model = getattr(transformers, self.architecture).from_pretrained(folder, dtype=torch.float32).eval()
        with torch.no_grad():
            out: npt.NDArray[np.float32] = model(torch.from_numpy(ids)).logits.numpy()
        return out


@dataclass(frozen=True)
class Rwkv7(Small):
    """Which `transformers` has not: its judge is the paper's equations in NumPy."""

    def described(self) -> Any:
        return transformers.PretrainedConfig(**rwkv7_reference.CONFIG | self.changes)

    def write(self, folder: Path) -> None:
        rwkv7_reference.write(folder, **self.changes)

    def logits(self, folder: Path, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        return rwkv7_reference.logits(folder, ids)


NO_HEADS = {"num_key_value_heads": 4}
WINDOWED = {"sliding_window": WINDOW}

LLAMA_LIKE = {
    "Llama 3": Small("LlamaForCausalLM", {"rope_parameters": {
        "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16,
    }}),
    "Llama, dynamic scaling": Small("LlamaForCausalLM", {"max_position_embeddings": 16, "rope_parameters": {
        "rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0,
    }}),
    "Llama, biases": Small("LlamaForCausalLM", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
    "Mistral": Small("MistralForCausalLM", {**WINDOWED, "head_dim": 12}),
    "Ministral": Small("MinistralForCausalLM", {
        **WINDOWED, "head_dim": 8, "layer_types": ["full_attention", "sliding_attention"],
    }),
    "Qwen 2": Small("Qwen2ForCausalLM"),
    "Qwen 2, windows": Small("Qwen2ForCausalLM", {**WINDOWED, "use_sliding_window": True, "max_window_layers": 1}),
    "Qwen 3": Small("Qwen3ForCausalLM", {"head_dim": 12}),
}  # fmt: skip
SCALINGS: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0},
    "yarn": {
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16,
    },
    "yarn, every field": {
        "rope_type": "yarn", "rope_theta": 1000.0, "factor": 4.0, "original_max_position_embeddings": 16,
        "beta_fast": 8.0, "beta_slow": 0.5, "mscale": 0.7, "mscale_all_dim": 0.3, "truncate": False,
    },
}  # fmt: skip
OTHERS = {
    "SmolLM 3": Small("SmolLM3ForCausalLM", {
        "no_rope_layer_interval": 2, "use_sliding_window": True, **WINDOWED, "tie_word_embeddings": False,
    }),
    "Granite": Small("GraniteForCausalLM", {
        "attention_multiplier": 0.3, "embedding_multiplier": 3.0, "residual_multiplier": 0.6, "logits_scaling": 1.7,
        "attention_bias": True, "mlp_bias": True,
    }),
    "Phi-3": Small("Phi3ForCausalLM", {**WINDOWED}),
    "Phi-4 mini, short": Small("Phi3ForCausalLM", {"original_max_position_embeddings": 32, "rope_parameters": {
        "rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75,
        "short_factor": [1.0, 1.1, 1.3], "long_factor": [1.0, 3.0, 9.0],
    }}),
    "Phi-4 mini, long": Small("Phi3ForCausalLM", {"original_max_position_embeddings": 16, "rope_parameters": {
        "rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75,
        "short_factor": [1.0, 1.1, 1.3], "long_factor": [1.0, 3.0, 9.0],
    }}),
    "Gemma": Small("GemmaForCausalLM", {"head_dim": 12, "hidden_act": "gelu"}),
    "Gemma 2": Small("Gemma2ForCausalLM", {
        **WINDOWED, "head_dim": 8, "query_pre_attn_scalar": 11, "attn_logit_softcapping": 2.0,
        "final_logit_softcapping": 3.0,
    }),
    "Gemma 3": Small("Gemma3ForCausalLM", {
        **WINDOWED, "head_dim": 8, "query_pre_attn_scalar": 11, "layer_types": ["sliding_attention", "full_attention"],
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
            "full_attention": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0},
        },
    }, config="Gemma3TextConfig"),
    "Gemma 3n": Small("Gemma3nForCausalLM", {
        **WINDOWED, "head_dim": 8, "num_hidden_layers": 5, "num_kv_shared_layers": 2, "laurel_rank": 6,
        "layer_types": ["sliding_attention", "full_attention", *["sliding_attention"] * 2, "full_attention"],
        "activation_sparsity_pattern": [0.9, 0.0, 0.5, 0.0, 0.9], "intermediate_size": [40, 40, 24, 40, 40],
        "hidden_size_per_layer_input": 12, "vocab_size_per_layer_input": 60, "altup_num_inputs": 3,
        "final_logit_softcapping": 3.0,
    }, config="Gemma3nTextConfig"),
    "OLMo": Small("OlmoForCausalLM", {"clip_qkv": 0.5}),
    "OLMo 2": Small("Olmo2ForCausalLM"),
    "OLMo 3": Small("Olmo3ForCausalLM", {
        **WINDOWED, "layer_types": ["sliding_attention", "full_attention"], "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 500.0},
            "full_attention": {
                "rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 16,
            },
        },
    }),
    "Cohere": Small("CohereForCausalLM", {"logit_scale": 1.4}),
    "Cohere, norms": Small("CohereForCausalLM", {"use_qk_norm": True, "attention_bias": True, "logit_scale": 1.4}),
    "Cohere 2": Small("Cohere2ForCausalLM", {
        **WINDOWED, "logit_scale": 1.4, "layer_types": ["sliding_attention", "full_attention"],
    }),
    "GPT-2": Small("GPT2LMHeadModel", {"n_inner": 40, "scale_attn_by_inverse_layer_idx": True}),
    "GPT-NeoX": Small("GPTNeoXForCausalLM", {"rope_parameters": {
        "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25,
    }}),
    "GPT-NeoX, in a row": Small("GPTNeoXForCausalLM", {"use_parallel_residual": False, "attention_bias": False}),
    "Phi-2": Small("PhiForCausalLM", {**NO_HEADS}),
    "Phi-2, norms": Small("PhiForCausalLM", {"qk_layernorm": True}),
    "StableLM": Small("StableLmForCausalLM", {"use_qkv_bias": True}),
    "StableLM, side by side": Small("StableLmForCausalLM", {"qk_layernorm": True, "use_parallel_residual": True}),
    "GLM": Small("GlmForCausalLM", {"head_dim": 8}),
    "GLM-4": Small("Glm4ForCausalLM", {"head_dim": 12}),
    "ERNIE 4.5": Small("Ernie4_5ForCausalLM", {"head_dim": 12, "use_bias": True}),
    "EXAONE 4": Small("Exaone4ForCausalLM", {"sliding_window": None, "layer_types": ["full_attention"] * 2}),
    "EXAONE 4, windows": Small("Exaone4ForCausalLM", {
        **WINDOWED, "layer_types": ["sliding_attention", "full_attention"],
    }),
    "Ministral 3": Small("Ministral3ForCausalLM", {"head_dim": 8, "rope_parameters": {
        "rope_type": "yarn", "rope_theta": 1000.0, "factor": 4.0, "original_max_position_embeddings": 16,
        "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1,
    }}),
    "StarCoder 2": Small("Starcoder2ForCausalLM", {**WINDOWED}),
}  # fmt: skip
EXPERTS = {
    "Mixtral": Small("MixtralForCausalLM", {"num_local_experts": 5, "num_experts_per_tok": 2}),
    "Qwen2-MoE": Small("Qwen2MoeForCausalLM", {
        "num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 24, "shared_expert_intermediate_size": 20,
        "mlp_only_layers": [0],
    }),
    "Qwen3-MoE": Small("Qwen3MoeForCausalLM", {
        "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "head_dim": 8, "norm_topk_prob": True,
    }),
    "Granite-MoE": Small("GraniteMoeForCausalLM", {
        "num_local_experts": 4, "num_experts_per_tok": 2, "attention_multiplier": 0.3, "residual_multiplier": 0.6,
    }),
    "OLMoE": Small("OlmoeForCausalLM", {"num_experts": 5, "num_experts_per_tok": 3, "clip_qkv": 0.5}),
    "Llama 4": Small("Llama4ForCausalLM", {
        "num_hidden_layers": 4, "no_rope_layers": [1, 0, 1, 1], "interleave_moe_layer_step": 2, "head_dim": 8,
        "num_local_experts": 5, "num_experts_per_tok": 2, "intermediate_size_mlp": 24, "attention_chunk_size": 7,
        "floor_scale": 5, "attn_scale": 0.7,
    }, config="Llama4TextConfig"),
    "Llama 4, no experts": Small("Llama4ForCausalLM", {
        "moe_layers": [], "no_rope_layers": [], "head_dim": 8, "intermediate_size_mlp": 24, "use_qk_norm": False,
        "attention_chunk_size": 5, "attn_temperature_tuning": False,
    }, config="Llama4TextConfig"),
    "gpt-oss": Small("GptOssForCausalLM", {
        **WINDOWED, "num_local_experts": 5, "num_experts_per_tok": 2, "head_dim": 8, "swiglu_limit": 0.5,
        "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 1000.0, "factor": 4.0, "original_max_position_embeddings": 16,
            "truncate": False,
        },
    }),
}  # fmt: skip
EARLIER = {
    "GPT-Neo": Small("GPTNeoForCausalLM", {
        "num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]], "window_size": WINDOW,
    }),
    "GPT-J": Small("GPTJForCausalLM", {
        "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "n_inner": 40, "rotary_dim": 6,
    }),
    "OPT": Small("OPTForCausalLM", {"ffn_dim": 40, "word_embed_proj_dim": 32, "pad_token_id": 1}),
    "StarCoder 1": Small("GPTBigCodeForCausalLM", {
        "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "n_inner": 40,
    }),
    "StarCoder 1, all keys": Small("GPTBigCodeForCausalLM", {
        "n_embd": 20, "n_layer": 2, "n_head": 4, "n_positions": 64, "multi_query": False,
    }),
    "Falcon": Small("FalconForCausalLM", {"ffn_hidden_size": 40, "bias": True}),
    "Falcon, groups": Small("FalconForCausalLM", {"new_decoder_architecture": True, "num_kv_heads": 2}),
    "Falcon, ALiBi": Small(
        "FalconForCausalLM", {"alibi": True, "bias": True, "multi_query": False, "parallel_attn": False}
    ),
    "Falcon, in a row": Small("FalconForCausalLM", {"multi_query": False, "parallel_attn": False}),
}  # fmt: skip
BIASED = {  # by distance
    "BLOOM": Small("BloomForCausalLM", {"n_layer": 2, "n_head": 6, "hidden_size": 36, "seq_length": 64}),
    "MPT": Small("MptForCausalLM", {
        "d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 64, "attn_config": {"clip_qkv": 0.5},
    }),
    "MPT, three heads": Small("MptForCausalLM", {
        "d_model": 24, "n_layers": 2, "n_heads": 3, "max_seq_len": 64,
        "attn_config": {"softmax_scale": 0.3},
    }),
}  # fmt: skip
LATER = {
    "Apertus": Small("ApertusForCausalLM", {"head_dim": 8}),
    "Hunyuan": Small("HunYuanDenseV1ForCausalLM", {"head_dim": 12, "rope_parameters": {
        "rope_type": "dynamic", "rope_theta": 10000.0, "alpha": 50.0, "factor": 1.0,
    }}),
    "Nemotron": Small("NemotronForCausalLM", {"mlp_bias": True}),
    "Arcee": Small("ArceeForCausalLM"),
    "Seed-OSS": Small("SeedOssForCausalLM", {"head_dim": 12, "attention_out_bias": True}),
    "Helium": Small("HeliumForCausalLM", {"head_dim": 8, "attention_bias": True}),
    "Code World Model": Small("CwmForCausalLM", {**WINDOWED, "head_dim": 12}),
    "VaultGemma": Small("VaultGemmaForCausalLM", {**WINDOWED, "head_dim": 8, "attn_logit_softcapping": 2.0}),
    "dots.llm1": Small("Dots1ForCausalLM", {
        **WINDOWED, "head_dim": 8, "n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 12,
        "n_shared_experts": 2, "first_k_dense_replace": 1, "max_window_layers": 1,
    }),
    "GLM-4.5": Small("Glm4MoeForCausalLM", {
        "head_dim": 8, "n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 12, "n_group": 2,
        "topk_group": 1, "use_qk_norm": True, "attention_bias": True,
    }),
    "Granite-MoE, shared": Small("GraniteMoeSharedForCausalLM", {
        "num_local_experts": 4, "num_experts_per_tok": 2, "shared_intermediate_size": 24, "residual_multiplier": 0.6,
    }),
}  # fmt: skip
CONVOLUTIONS = {
    "LFM2": Small("Lfm2ForCausalLM", {
        "layer_types": ["conv", "full_attention", "conv"], "num_hidden_layers": 3, "block_multiple_of": 8,
    }),
    "LFM2, biases": Small("Lfm2ForCausalLM", {
        "layer_types": ["conv", "full_attention"], "conv_bias": True, "conv_L_cache": 4,
        "block_auto_adjust_ff_dim": False,
    }),
    "LFM2-MoE": Small("Lfm2MoeForCausalLM", {
        "layer_types": ["conv", "full_attention"], "num_dense_layers": 1, "num_experts": 5, "num_experts_per_tok": 2,
        "moe_intermediate_size": 16, "routed_scaling_factor": 1.5,
    }),
}  # fmt: skip
LATENT: dict[str, Any] = {
    **NO_HEADS,
    "q_lora_rank": 16, "kv_lora_rank": 24, "qk_nope_head_dim": 8, "qk_rope_head_dim": 6, "v_head_dim": 10,
    "n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 12, "first_k_dense_replace": 1,
    "routed_scaling_factor": 1.5,
}  # fmt: skip
LATENTS = {
    "DeepSeek-V2 Lite": Small("DeepseekV2ForCausalLM", {**LATENT, "q_lora_rank": None}),
    "DeepSeek-V2": Small("DeepseekV2ForCausalLM", {
        **LATENT, "topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 2, "attention_bias": True,
        "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 1000.0, "factor": 4.0, "original_max_position_embeddings": 16,
            "mscale": 0.7, "mscale_all_dim": 0.5,
        },
    }),
    "DeepSeek-V3": Small("DeepseekV3ForCausalLM", {**LATENT, "n_group": 4, "topk_group": 2}),
}  # fmt: skip
STATES = {
    "Mamba-2": Small("Mamba2ForCausalLM", {
        "num_heads": 8, "head_dim": 8, "state_size": 12, "n_groups": 2, "num_hidden_layers": 3, "chunk_size": 16,
        "tie_word_embeddings": False,
    }),
    "Mamba-2, biases": Small("Mamba2ForCausalLM", {
        "num_heads": 4, "head_dim": 16, "state_size": 16, "n_groups": 1, "use_bias": True, "use_conv_bias": False,
        "conv_kernel": 3, "time_step_limit": [0.1, 1.0], "tie_word_embeddings": True,
    }),
    "Qwen3-Next": Small("Qwen3NextForCausalLM", {
        "layer_types": ["linear_attention", "full_attention"], "head_dim": 16, "rms_norm_eps": 1e-4,
        "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 6, "linear_value_head_dim": 8,
        "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
        "shared_expert_intermediate_size": 20, "mlp_only_layers": [1],
    }),
    "Mamba": Small("MambaForCausalLM", {"state_size": 6, "time_step_rank": 3, "use_bias": True}),
    "Falcon Mamba": Small("FalconMambaForCausalLM", {"state_size": 8, "conv_kernel": 3, "use_conv_bias": False}),
    "Granite 4": Small("GraniteMoeHybridForCausalLM", {
        "num_hidden_layers": 3, "layer_types": ["mamba", "attention", "mamba"], "num_local_experts": 0,
        "num_experts_per_tok": 0,
        "shared_intermediate_size": 40, "mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 16,
        "attention_multiplier": 0.3, "embedding_multiplier": 3.0, "residual_multiplier": 0.6, "logits_scaling": 1.7,
        "tie_word_embeddings": True,
    }),
    "Granite 4, experts": Small("GraniteMoeHybridForCausalLM", {
        "layer_types": ["mamba", "attention"], "num_local_experts": 5, "num_experts_per_tok": 2,
        "shared_intermediate_size": 24, "mamba_n_heads": 4, "mamba_d_state": 16, "mamba_n_groups": 2,
        "position_embedding_type": "rope", "residual_multiplier": 0.6, "mamba_proj_bias": True,
    }),
    "RWKV-7": Rwkv7("RWKV7ForCausalLM"),
    "Bamba": Small("BambaForCausalLM", {
        "attn_layer_indices": [1], "mamba_n_heads": 8, "mamba_d_state": 16, "mamba_n_groups": 2,
    }),
}  # fmt: skip

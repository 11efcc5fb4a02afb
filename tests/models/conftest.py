"""Small Llamas of random weights, and `transformers` as their judge."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

ODD: dict[str, Any] = {
    "vocab_size": 517,
    "hidden_size": 192,
    "intermediate_size": 328,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


@pytest.fixture(scope="session")
def make_llama(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Writes a folder of random weights, sizes as in ODD unless told otherwise; equal arguments: the same folder."""
    made: dict[str, Path] = {}

    def make(
        architecture: str = "llama", shard: str = "5GB", dtype: torch.dtype = torch.float32, **changes: Any
    ) -> Path:
        key = json.dumps([architecture, shard, str(dtype), changes], sort_keys=True)
        if key not in made:
            torch.manual_seed(len(made))
            config_of, model_of = {
                "llama": (LlamaConfig, LlamaForCausalLM),
                "mistral": (MistralConfig, MistralForCausalLM),
            }[architecture]
            model = model_of(config_of(**{**ODD, **changes}))
            with torch.no_grad():
                for name, p in model.named_parameters():
                    # weights large enough that a mistake shows, norms and biases that are not their neutral values
                    p.copy_(torch.rand_like(p) + 0.5 if "norm" in name else torch.randn_like(p) * 0.06)
            made[key] = tmp_path_factory.mktemp(architecture)
            model.to(dtype).save_pretrained(made[key], max_shard_size=shard)
        return made[key]

    return make


@pytest.fixture(scope="session")
def reference() -> Callable[[Path, np.ndarray], np.ndarray]:
    """Logits of `transformers` in float32."""
    loaded: dict[Path, Any] = {}

    def logits(folder: Path, ids: np.ndarray) -> np.ndarray:
        if folder not in loaded:
            loaded[folder] = LlamaForCausalLM if "llama" in folder.name else MistralForCausalLM
            loaded[folder] = loaded[folder].from_pretrained(folder, dtype=torch.float32).eval()
        with torch.no_grad():
            out: np.ndarray = loaded[folder](torch.from_numpy(ids)).logits.numpy()
        return out

    return logits

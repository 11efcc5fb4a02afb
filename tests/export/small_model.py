"""A Llama of random weights that exports in seconds, with the embedded model's tokenizer."""

import json
import shutil
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

VOCABULARY, HIDDEN, MIDDLE, HEADS, KV_HEADS = 4096, 32, 48, 4, 2  # the vocabulary is the tokenizer's
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": MIDDLE,
    "num_hidden_layers": 1,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "vocab_size": VOCABULARY,
    "tie_word_embeddings": True,
    "eos_token_id": 4,
}


def write_small_model(folder: Path, like: Path) -> Path:
    """Write the model into `folder`; tokenizer files are copied from the model folder `like`."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(7)

    def matrix(*shape: int) -> np.ndarray:
        return (random.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float16)

    width = HIDDEN // HEADS
    layer, norm = "model.layers.0.", np.ones(HIDDEN, np.float16)
    weights = {
        "model.embed_tokens.weight": matrix(VOCABULARY, HIDDEN),
        "model.norm.weight": norm,
        layer + "input_layernorm.weight": norm.copy(),
        layer + "post_attention_layernorm.weight": norm.copy(),
        layer + "self_attn.q_proj.weight": matrix(HIDDEN, HIDDEN),
        layer + "self_attn.k_proj.weight": matrix(KV_HEADS * width, HIDDEN),
        layer + "self_attn.v_proj.weight": matrix(KV_HEADS * width, HIDDEN),
        layer + "self_attn.o_proj.weight": matrix(HIDDEN, HIDDEN),
        layer + "mlp.gate_proj.weight": matrix(MIDDLE, HIDDEN),
        layer + "mlp.up_proj.weight": matrix(MIDDLE, HIDDEN),
        layer + "mlp.down_proj.weight": matrix(HIDDEN, MIDDLE),
    }
    save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copyfile(like / name, folder / name)
    return folder

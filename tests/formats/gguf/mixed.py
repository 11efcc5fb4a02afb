"""A Llama whose matrices are random blocks of several types, as quantised files mix them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from safetensors.numpy import load_file, save_file

from tests.formats.gguf.converted import changed, metadata
from tests.formats.gguf.files import value_type
from tests.formats.gguf.random_blocks import decoded, random_blocks
from tests.models.decoder_folders import Small

LLAMA = Small("LlamaForCausalLM", {
    "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2,
})  # fmt: skip
# as llama.cpp's Q4_K_M: some matrices of a layer, the embedding and the head in more bits
MIXED = {"attn_v": "Q6_K", "ffn_down": "Q6_K", "token_embd": "Q6_K", "output": "Q6_K", "attn_output": "MXFP4"}


def write_mixed(
    folder: Path, path: Path, usual: str, kinds: dict[str, str] | None = None, tied: bool = False,
    more: dict[str, Any] | None = None, vocabulary: int = 320,
) -> Path:  # fmt: skip
    """A Llama in a GGUF file of several types, random blocks; the folder beside it gets the values that these have.
    `more`: metadata by key."""
    kinds = MIXED if kinds is None else kinds
    small = Small(LLAMA.architecture, {**LLAMA.changes, "tie_word_embeddings": tied, "vocab_size": vocabulary})
    small.write(folder)
    config = json.loads((folder / "config.json").read_text())
    writer, rng = gguf.GGUFWriter(path, "llama"), np.random.default_rng(5)
    metadata(writer, config)
    for key, value in (more or {}).items():
        writer.add_key_value(key, value, *value_type(value))
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config["num_hidden_layers"])
    found: dict[str, np.ndarray] = {}
    for name, values in load_file(folder / "model.safetensors").items():
        theirs = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert theirs is not None
        part = theirs.removesuffix(".weight").split(".")[-1]
        if values.ndim < 2:
            writer.add_tensor(theirs, values.astype(np.float32))
            found[name] = values
            continue
        kind = kinds.get(part, usual)
        raw = random_blocks(kind, values.shape, rng, 0.06)
        writer.add_tensor(theirs, raw, raw_dtype=gguf.GGMLQuantizationType[kind])
        found[name] = unpermuted(decoded(kind, raw), theirs, config)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    save_file(found, folder / "model.safetensors")
    return path


def unpermuted(values: np.ndarray, name: str, config: dict[str, Any]) -> np.ndarray:
    """Rows of queries and keys in the order of the checkpoint: what puts them into GGUF's is undone."""
    rows = np.arange(len(values))
    back = np.argsort(changed(rows, name, "llama", config))
    return np.ascontiguousarray(values[back])

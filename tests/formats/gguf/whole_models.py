"""Small models in GGUF files with each kind of tokenizer, and all that is read of one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.formats.gguf.files import write
from tests.formats.gguf.test_model import SIZES
from tests.formats.gguf.test_tokenizer import MERGES, VOCABULARY, phantom, sentencepiece
from tinyweb.formats.gguf import GgufModel
from tinyweb.formats.tokenizer import Tokenizer


def tokenizers_of_all_kinds() -> list[dict[str, Any]]:
    tokens, scores, types = sentencepiece(0)
    bytewise = ["<s>", *(repr(bytes([b]))[2:-1] for b in range(256)), "ab", "\\xe6\\x97", "b c"]
    words = ["[UNK]", "[CLS]", "[SEP]", "a", "##b", "cd"]
    return [
        {"model": "gpt2", "pre": "llama-bpe", "tokens": VOCABULARY, "merges": MERGES, "eos_token_id": 5},
        {"model": "llama", "tokens": tokens, "scores": scores, "token_type": types, "eos_token_id": 2},
        {"model": "t5", "tokens": tokens, "scores": scores, "token_type": types, "eos_token_id": 2},
        {"model": "bert", "tokens": list(map(phantom, words)), "token_type": [3, 3, 3, 1, 1, 1], "eos_token_id": 2},
        {"model": "rwkv", "tokens": bytewise, "token_type": [3, *[1] * 259], "eos_token_id": 0},
    ]


def models(folder: Path) -> list[bytes]:
    """A small Llama with each kind of tokenizer."""
    one = np.linspace(-1, 1, 32 * 32, dtype=np.float32).reshape(32, 32)
    tensors = {f"blk.0.{part}.weight": one for part in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_up")}
    tensors |= {"token_embd.weight": one, "rope_freqs.weight": one[0], "output_norm.weight": one[1]}
    scaled = SIZES | {"rope.scaling.type": "yarn", "rope.scaling.factor": 2.0, "attention.sliding_window": 4}
    found = []
    for own in tokenizers_of_all_kinds():
        metadata: dict[str, Any] = {"general.architecture": "llama", "general.sampling.top_k": 5}
        metadata |= {f"llama.{k}": v for k, v in scaled.items()} | {f"tokenizer.ggml.{k}": v for k, v in own.items()}
        metadata["tokenizer.chat_template"] = "{% for m in messages %}{{ m.content }}{% endfor %}"
        found.append(write(folder / "whole", metadata, tensors).read_bytes())
    return found


def read_all(path: Path) -> None:
    model = GgufModel(path)
    weights = model.weights()
    for name in weights:
        weights.read(name, weights.entry(name).shape)
    tokenizer = Tokenizer.from_folder(model)
    assert tokenizer.encode("ab c") is not None

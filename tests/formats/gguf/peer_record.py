"""GGUF files for llama.cpp and what it answered: the record that tests compare with.

usage: python -m tests.formats.gguf.peer_record      makes the record again (`make bench-peers` installs llama.cpp)

Weights are drawn by NumPy, whose numbers are the same everywhere; a record of other weights would be noticed by their
hash.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from benchmarks.worker import peer_python
from tests.formats.gguf.converted import convert
from tests.formats.gguf.test_model import MODELS as EVERY
from tests.formats.gguf.test_tokenizer import MERGES, TEXTS, VOCABULARY, model, sentencepiece
from tests.models.decoder_folders import NO_HEADS, STATES

RECORD = Path(__file__).with_name("llama_cpp.json")
PEER = Path(__file__).with_name("peer_answers.py")
COUNT = 24
PROMPT = [1, 17, 5, 42, 63, 9, 30, 8, 55, 12, 21]
MARGIN = 1e-3  # between the likeliest two tokens, below which rounding would decide

NAMES = (
    "Llama 3", "Mixtral", "Qwen 2", "Qwen 3", "Qwen 3 MoE", "Gemma 2", "Phi 3", "OLMo 2", "Granite", "StableLM",
    "GPT-2", "GPT-NeoX", "Mamba-2", "Granite 4", "RWKV-7",
    "Falcon", "Falcon, groups", "Mamba", "BLOOM", "MPT", "Hunyuan",
)  # fmt: skip
CUTS = (
    "gpt-2", "llama-bpe", "qwen2", "deepseek-llm", "deepseek-v3", "falcon", "starcoder", "smollm", "command-r", "olmo",
    "gpt-4o", "tekken", "stablelm2", "dbrx", "bloom",
)  # fmt: skip


def write_model(name: str, folder: Path) -> Path:
    """The GGUF file of one of the small models of the tests, its weights drawn anew."""
    architecture, small = ("rwkv7", STATES[name]) if name == "RWKV-7" else EVERY[name]
    if name.startswith("GPT-"):  # whose configs carry the others' number of key heads along
        small = replace(small, changes={**small.changes, **NO_HEADS})
    if name == "RWKV-7":  # whose norm of heads llama.cpp has for heads of 64 elements only
        small = replace(small, changes={"hidden_size": 128, "head_dim": 64})
    if name == "Mamba":  # of which llama.cpp has those whose channels are twice as many as hidden states
        small = replace(small, changes={"state_size": 12, "time_step_rank": 3, "intermediate_size": 64})
    if name == "Phi 3":  # whose windows llama.cpp does not read
        small = replace(small, changes={})
    small.write(folder / "hf")
    file = folder / "hf" / "model.safetensors"
    save_file({n: _drawn(n, v.shape) for n, v in sorted(load_file(file).items())}, file, {"format": "pt"})
    size = json.loads((folder / "hf" / "config.json").read_text())["vocab_size"]
    more = {"tokenizer.ggml.model": "none", f"{architecture}.vocab_size": size}
    return convert(folder / "hf", folder / "model.gguf", architecture, more=more)


def _drawn(name: str, shape: tuple[int, ...]) -> np.ndarray:
    values = np.random.default_rng([7, *name.encode()]).standard_normal(shape, dtype=np.float32)
    near_one = ("norm" in name or "ln_" in name) and not name.endswith("bias")
    return values * np.float32(0.2) + np.float32(0.7) if near_one else values * np.float32(0.25)


def digest(folder: Path) -> str:
    """Of the weights of `write_model`."""
    found = hashlib.sha256()
    for name, values in sorted(load_file(folder / "hf" / "model.safetensors").items()):
        found.update(name.encode() + np.ascontiguousarray(values).tobytes())
    return found.hexdigest()


def write_tokenizers(folder: Path) -> dict[str, Path]:
    """Files of one tokenizer each, by name."""
    found = {
        f"bytes, {pre}": model(folder / f"{pre}.gguf", "gpt2", VOCABULARY, pre=pre, merges=MERGES).path for pre in CUTS
    }
    for seed in range(3):
        tokens, scores, types = sentencepiece(seed)
        kinds: list[Any] = [np.int32(kind) for kind in types]  # signed, or llama.cpp refuses them
        own = {"scores": scores, "bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0}
        for prefix in (True, False):
            name = f"pieces {seed}{'' if prefix else ', no space before'}"
            path = folder / f"{name}.gguf"
            found[name] = model(path, "llama", tokens, kinds, add_space_prefix=prefix, **own).path
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        models, hashes = {}, {}
        for name in NAMES:
            folder = root / name
            folder.mkdir()
            path = write_model(name, folder)
            models[name], hashes[name] = {"path": str(path), "prompt": PROMPT, "count": COUNT}, digest(folder)
        (root / "tokenizers").mkdir()
        tokenizers = {n: str(p) for n, p in write_tokenizers(root / "tokenizers").items()}
        asked = {"models": models, "tokenizers": tokenizers, "texts": TEXTS}
        done = subprocess.run(
            [peer_python(), str(PEER)],
            input=json.dumps(asked),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=1800,
        )
    answers = json.loads(done.stdout)
    answers["models"] = {
        name: {"sha256": hashes[name], "tokens": tokens, "margin": round(margin, 5)}
        for name, (tokens, margin) in answers["models"].items()
    }
    RECORD.write_text(json.dumps(answers, ensure_ascii=False, separators=(",", ":")).replace('},"', '},\n"') + "\n")


if __name__ == "__main__":
    main()

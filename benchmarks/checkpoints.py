"""Llama checkpoints of any shape with random weights: a Hugging Face folder, and GGUF files with the same weights.

usage: python -m benchmarks.checkpoints 110m [--gguf q8]

Speed does not depend on what a model has learned. Weights are normal with a deviation that keeps activations of every
layer near 1, so that logits are finite and differ from token to token. Files are made once, under build/benchmarks/.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.worker import ROOT

FOLDER = ROOT / "build" / "benchmarks"
VERSION = 2  # of what is written; another number makes everything anew
SPECIAL = ("<unk>", "<s>", "</s>")
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"


@dataclass(frozen=True)
class Shape:
    """The sizes of a Llama."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    vocab_size: int
    max_position_embeddings: int = 2048
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-5
    tie_word_embeddings: bool = True

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_attention_heads

    def matrices(self) -> Iterator[tuple[str, tuple[int, int]]]:
        """Names in the checkpoint and shapes (out, in), the embedding first."""
        h, m, kv = self.hidden_size, self.intermediate_size, self.num_key_value_heads * self.head_dim
        yield "model.embed_tokens", (self.vocab_size, h)
        for i in range(self.num_hidden_layers):
            attention, mlp = f"model.layers.{i}.self_attn.", f"model.layers.{i}.mlp."
            yield attention + "q_proj", (h, h)
            yield attention + "k_proj", (kv, h)
            yield attention + "v_proj", (kv, h)
            yield attention + "o_proj", (h, h)
            yield mlp + "gate_proj", (m, h)
            yield mlp + "up_proj", (m, h)
            yield mlp + "down_proj", (h, m)
        if not self.tie_word_embeddings:
            yield "lm_head", (self.vocab_size, h)

    def norms(self) -> Iterator[str]:
        for i in range(self.num_hidden_layers):
            yield f"model.layers.{i}.input_layernorm"
            yield f"model.layers.{i}.post_attention_layernorm"
        yield "model.norm"


SHAPES = {
    "15m": Shape(288, 768, 6, 6, 6, 32000),
    "110m": Shape(768, 2048, 12, 12, 12, 32000),
    "1b": Shape(2048, 8192, 16, 32, 8, 128256, max_position_embeddings=4096, rope_theta=500000.0),
}
"""15m and 110m: the shapes of models trained on TinyStories. 1b: Llama-3.2-1B, without its scaling of positions."""


def llama_folder(name: str) -> Path:
    """The Hugging Face folder of a shape in SHAPES: float16 weights, config.json, a tokenizer of bytes."""
    return _made(f"llama-{name}", "", lambda folder: _write_folder(SHAPES[name], folder))


def gguf_file(name: str, quant: str) -> Path:
    """The same weights for llama.cpp: "q8" (Q8_0) or "q4" (Q4_0, the embedding Q8_0 as tinyweb keeps it); or, with
    matrices of random blocks (the embedding Q8_0), one of RANDOM.

    Integers and scales are those of `tinyweb.nn.quantize`, whose groups are llama.cpp's blocks.
    """
    source = llama_folder(name)
    return _made(f"llama-{name}-{quant}", ".gguf", lambda file: _write_gguf(SHAPES[name], source, quant, file))


def _made(name: str, suffix: str, write: Callable[[Path], None]) -> Path:
    """What `write` makes, made once; it appears whole."""
    final = FOLDER / f"{name}-v{VERSION}{suffix}"
    if not final.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=FOLDER, prefix="making-") as scratch:
            made = Path(scratch) / final.name
            write(made)
            if not final.exists():
                shutil.move(made, final)
    return final


# -- Hugging Face ------------------------------------------------------------------------------------------------------
def weights(shape: Shape) -> Iterator[tuple[str, npt.NDArray[np.float16]]]:
    """Names and values of all parameters, one at a time; the same on every machine."""
    depth = (2 * shape.num_hidden_layers) ** -0.5
    for i, (name, (out, width)) in enumerate(shape.matrices()):
        deviation = width**-0.5
        if name.endswith(("o_proj", "down_proj")):
            deviation *= depth  # the sum over all layers stays near 1
        values = np.random.default_rng([VERSION, i]).standard_normal((out, width), dtype=np.float32)
        values *= np.float32(deviation)
        yield name + ".weight", values.astype(np.float16)
    for i, name in enumerate(shape.norms()):
        noise = np.random.default_rng([VERSION, 1, i]).standard_normal(shape.hidden_size, dtype=np.float32)
        yield name + ".weight", (1 + 0.1 * noise).astype(np.float16)


def _write_folder(shape: Shape, folder: Path) -> None:
    from safetensors.numpy import save_file

    folder.mkdir()
    save_file(dict(weights(shape)), folder / "model.safetensors")
    config: dict[str, Any] = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", **asdict(shape)}
    config |= {"hidden_act": "silu", "torch_dtype": "float16", "bos_token_id": 1, "eos_token_id": 2}
    _write_json(folder / "config.json", config)
    _write_json(folder / "generation_config.json", {"bos_token_id": 1, "eos_token_id": 2, "do_sample": False})
    tokens = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "chat_template": TEMPLATE}
    _write_json(folder / "tokenizer_config.json", tokens)
    vocabulary = {text: i for i, text in enumerate(token_texts(shape.vocab_size))}
    added = [
        {"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
        | {"special": True}
        for i, text in enumerate(SPECIAL)
    ]
    model = {"type": "BPE", "vocab": vocabulary, "merges": [], "byte_fallback": True, "unk_token": "<unk>"}
    decoder = {"type": "ByteFallback"}
    tokenizer: dict[str, Any] = {"version": "1.0", "added_tokens": added, "model": model, "decoder": decoder}
    # readers of this format want these fields to be there
    tokenizer |= dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor"))
    _write_json(folder / "tokenizer.json", tokenizer)


def token_texts(count: int) -> list[str]:
    """A vocabulary in which every text is a sequence of its bytes; the rest are words nobody writes."""
    if count < len(SPECIAL) + 256:
        raise ValueError(f"a vocabulary of {count} has no place for {len(SPECIAL) + 256} tokens")
    texts = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256))]
    return texts + [f"⟨{i}⟩" for i in range(len(texts), count)]


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


# -- GGUF (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md) --------------------------------------------------
F32, Q4_0, Q8_0 = 0, 2, 8  # types of tensors
RANDOM = {"q4_k": ("Q4_K", 12), "q6_k": ("Q6_K", 14), "mxfp4": ("MXFP4", 39)}
"""Types whose blocks are drawn at random, by the name of a quantisation: only llama.cpp makes them of weights."""
UINT32, FLOAT32, STRING, ARRAY, INT32 = 4, 6, 8, 9, 5  # types of values
ALIGNMENT, BLOCK = 32, 32
SENTENCEPIECE_NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6  # types of tokens


def q8_0(values: npt.NDArray[np.int8], scales: npt.NDArray[np.float16]) -> bytes:
    """Blocks of groups (n, 32): a half-float scale, then 32 integers."""
    block = np.empty(len(values), np.dtype([("scale", "<f2"), ("values", "i1", BLOCK)]))
    block["scale"], block["values"] = scales, values
    return block.tobytes()


def q4_0(values: npt.NDArray[np.int8], scales: npt.NDArray[np.float16]) -> bytes:
    """Blocks of groups (n, 32) of −8 … 7: a half-float scale, then 16 bytes, the first half in the low bits."""
    block = np.empty(len(values), np.dtype([("scale", "<f2"), ("values", "u1", BLOCK // 2)]))
    unsigned = (values + 8).astype(np.uint8)
    block["scale"], block["values"] = scales, unsigned[:, : BLOCK // 2] | unsigned[:, BLOCK // 2 :] << 4
    return block.tobytes()


def interleaved(matrix: npt.NDArray[Any], heads: int) -> npt.NDArray[Any]:
    """Rows of a query or key projection in the order in which llama.cpp rotates pairs: neighbours, not halves."""
    rows, columns = matrix.shape
    return matrix.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


GGUF_NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
}  # fmt: skip


def gguf_name(name: str) -> str:
    stem = name.removesuffix(".weight")
    if not stem.startswith("model.layers."):
        return GGUF_NAMES[stem] + ".weight"
    layer, _, rest = stem.removeprefix("model.layers.").partition(".")
    return f"blk.{layer}.{GGUF_NAMES[rest]}.weight"


def _write_gguf(shape: Shape, source: Path, quant: str, path: Path) -> None:
    from tinyweb.formats.huggingface import ModelFolder

    known = ("q8", "q4", *RANDOM)
    if quant not in known:
        raise ValueError(f"GGUF files are written as {', '.join(known)}, not {quant}")
    texts = token_texts(shape.vocab_size)
    kinds = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[SENTENCEPIECE_NORMAL] * (len(texts) - 259)]
    metadata: list[tuple[str, int, Any]] = [
        ("general.architecture", STRING, "llama"),
        ("general.name", STRING, path.stem),
        ("general.alignment", UINT32, ALIGNMENT),
        ("llama.context_length", UINT32, shape.max_position_embeddings),
        ("llama.embedding_length", UINT32, shape.hidden_size),
        ("llama.block_count", UINT32, shape.num_hidden_layers),
        ("llama.feed_forward_length", UINT32, shape.intermediate_size),
        ("llama.attention.head_count", UINT32, shape.num_attention_heads),
        ("llama.attention.head_count_kv", UINT32, shape.num_key_value_heads),
        ("llama.attention.layer_norm_rms_epsilon", FLOAT32, shape.rms_norm_eps),
        ("llama.rope.dimension_count", UINT32, shape.head_dim),
        ("llama.rope.freq_base", FLOAT32, shape.rope_theta),
        ("llama.vocab_size", UINT32, shape.vocab_size),
        ("tokenizer.ggml.model", STRING, "llama"),
        ("tokenizer.ggml.tokens", STRING, texts),
        ("tokenizer.ggml.scores", FLOAT32, [0.0] * len(texts)),
        ("tokenizer.ggml.token_type", INT32, kinds),
        ("tokenizer.ggml.bos_token_id", UINT32, 1),
        ("tokenizer.ggml.eos_token_id", UINT32, 2),
        ("tokenizer.ggml.unknown_token_id", UINT32, 0),
        ("tokenizer.chat_template", STRING, TEMPLATE),
    ]
    from tests.formats.gguf.random_blocks import random_blocks

    drawn = {code: kind for kind, code in RANDOM.values()}
    checkpoint = ModelFolder(source).weights()
    matrices = dict(shape.matrices())
    norms = [(name, (shape.hidden_size,)) for name in shape.norms()]
    tensors: list[tuple[str, tuple[int, ...], int]] = []
    for name, sizes in [*matrices.items(), *norms]:
        matrix = RANDOM[quant][1] if quant in RANDOM else Q4_0 if quant == "q4" else Q8_0
        tensors.append((name, sizes, F32 if len(sizes) == 1 else Q8_0 if name == "model.embed_tokens" else matrix))

    with path.open("wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata)))
        for key, kind, value in metadata:
            file.write(_string(key) + _value(kind, value))
        offset = 0
        for name, sizes, kind in tensors:
            file.write(_string(gguf_name(name)) + struct.pack("<I", len(sizes)))
            file.write(struct.pack(f"<{len(sizes)}Q", *reversed(sizes)) + struct.pack("<IQ", kind, offset))
            offset += _aligned(_nbytes(sizes, kind))
        file.write(b"\0" * (-file.tell() % ALIGNMENT))
        for name, sizes, kind in tensors:
            if kind in drawn:
                data = random_blocks(drawn[kind], sizes, np.random.default_rng(offset), sizes[-1] ** -0.5).tobytes()
                offset += 1
            else:
                data = _tensor_data(shape, checkpoint.read(name + ".weight", sizes), name, kind)
            assert len(data) == _nbytes(sizes, kind)
            file.write(data + b"\0" * (-len(data) % ALIGNMENT))


def _tensor_data(shape: Shape, values: npt.NDArray[Any], name: str, kind: int) -> bytes:
    from tinyweb.nn.quantize import quantize_groups

    if kind == F32:
        return values.astype("<f4").tobytes()
    if name.endswith("q_proj"):
        values = interleaved(values, shape.num_attention_heads)
    elif name.endswith("k_proj"):
        values = interleaved(values, shape.num_key_value_heads)
    with quantised_once():
        integers, scales = quantize_groups(values.reshape(-1, BLOCK), 8 if kind == Q8_0 else 4)
    return q8_0(integers, scales) if kind == Q8_0 else q4_0(integers, scales)


def _nbytes(sizes: tuple[int, ...], kind: int) -> int:
    from tinyweb.formats.gguf.blocks import BlockFormat
    from tinyweb.formats.gguf.types import BY_NAME

    count = int(np.prod(sizes))
    for name, code in RANDOM.values():
        form = BY_NAME[name]
        if kind == code and isinstance(form, BlockFormat):
            return count // form.elements * form.bytes
    return count * 4 if kind == F32 else count // BLOCK * (2 + (BLOCK if kind == Q8_0 else BLOCK // 2))


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(kind: int, value: Any) -> bytes:
    """A value with its type; a list is an array of values of that type."""
    formats = {UINT32: "<I", INT32: "<i", FLOAT32: "<f"}

    def plain(v: Any) -> bytes:
        return _string(v) if kind == STRING else struct.pack(formats[kind], v)

    if isinstance(value, list):
        return struct.pack("<IIQ", ARRAY, kind, len(value)) + b"".join(map(plain, value))
    return struct.pack("<I", kind) + plain(value)


# -- quantising once ---------------------------------------------------------------------------------------------------
@contextmanager
def quantised_once() -> Iterator[None]:
    """Within this context `tinyweb.nn.quantize` finds what it has computed before in build/benchmarks/quantised/.

    Searching the 4-bit scales of a billion weights takes minutes, and belongs to no measurement.
    """
    from unittest.mock import patch

    quantize = importlib.import_module("tinyweb.nn.quantize")  # the package has a function of this name
    compute: Callable[[npt.NDArray[Any], int], tuple[npt.NDArray[np.int8], npt.NDArray[np.float16]]]
    compute = quantize.quantize_groups

    def found_or_computed(groups: npt.NDArray[Any], bits: int) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float16]]:
        if groups.nbytes < 1 << 20:
            return compute(groups, bits)
        digest = hashlib.sha256(f"{groups.shape} {groups.dtype} {bits}".encode())
        digest.update(np.ascontiguousarray(groups).data)
        digest.update(Path(str(quantize.__file__)).read_bytes())

        def write(file: Path) -> None:
            values, scales = compute(groups, bits)
            with file.open("wb") as stream:
                np.save(stream, values)
                np.save(stream, scales)

        with _made(f"quantised-{digest.hexdigest()[:24]}", ".npy", write).open("rb") as stream:
            return np.load(stream), np.load(stream)

    with patch.object(quantize, "quantize_groups", found_or_computed):
        yield


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checkpoints", description="Make a random checkpoint.")
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("--gguf", choices=("q8", "q4", *RANDOM), help="the file for llama.cpp instead of the folder")
    given = parser.parse_args()
    print(gguf_file(given.shape, given.gguf) if given.gguf else llama_folder(given.shape))


if __name__ == "__main__":
    main()

"""Random checkpoints: models load them, and the GGUF file holds the integers that tinyweb quantises to."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from benchmarks import checkpoints
from benchmarks.checkpoints import Shape, gguf_file, gguf_name, interleaved, llama_folder, q4_0, q8_0, token_texts
from tinyweb.formats.tokenizer import Tokenizer
from tinyweb.models import load
from tinyweb.nn.quantize import quantize_groups
from tinyweb.tensor import Tensor

TINY = Shape(64, 96, 2, 4, 2, 300, max_position_embeddings=64)


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "FOLDER", tmp_path)
    monkeypatch.setitem(checkpoints.SHAPES, "tiny", TINY)
    return tmp_path


def test_folder_is_a_model_with_lively_logits(tiny):
    folder = llama_folder("tiny")
    assert llama_folder("tiny") == folder and len(list(tiny.iterdir())) == 1  # made once, nothing left behind
    logits = load(folder, "f32", 32)(Tensor([[1, 2, 3]])).numpy()
    assert np.isfinite(logits).all() and 0.3 < logits.std() < 3
    tokenizer = Tokenizer.from_folder(folder)
    assert tokenizer.decode(tokenizer.encode("Grüße!")) == "Grüße!" and tokenizer.vocab_size == 300


def test_weights_are_the_same_every_time():
    first, second = list(checkpoints.weights(TINY)), list(checkpoints.weights(TINY))
    assert len(first) > 10
    for (name, a), (other, b) in zip(first, second, strict=True):
        assert name == other and np.array_equal(a, b)


def _string(data: bytes, at: int) -> tuple[str, int]:
    (count,) = struct.unpack_from("<Q", data, at)
    return data[at + 8 : at + 8 + count].decode(), at + 8 + count


def _skip_value(data: bytes, at: int, kind: int) -> int:
    if kind == checkpoints.STRING:
        return _string(data, at)[1]
    if kind == checkpoints.ARRAY:
        of, count = struct.unpack_from("<IQ", data, at)
        at += 12
        for _ in range(count):
            at = _skip_value(data, at, of)
        return at
    return at + 4


def read_gguf(data: bytes) -> dict[str, tuple[int, tuple[int, ...], int]]:
    """Type, shape and place of every tensor."""
    magic, version, tensors, values = struct.unpack_from("<4sIQQ", data)
    assert magic == b"GGUF" and version == 3
    at = 24
    for _ in range(values):
        _, at = _string(data, at)
        at = _skip_value(data, at + 4, struct.unpack_from("<I", data, at)[0])
    found = {}
    for _ in range(tensors):
        name, at = _string(data, at)
        (count,) = struct.unpack_from("<I", data, at)
        shape = struct.unpack_from(f"<{count}Q", data, at + 4)
        kind, offset = struct.unpack_from("<IQ", data, at + 4 + 8 * count)
        at += 16 + 8 * count
        found[name] = (kind, shape, offset)
    start = -(-at // checkpoints.ALIGNMENT) * checkpoints.ALIGNMENT
    return {name: (kind, shape, start + offset) for name, (kind, shape, offset) in found.items()}


@pytest.mark.parametrize(("quant", "bits", "kind", "block"), [("q8", 8, 8, 34), ("q4", 4, 2, 18)])
def test_gguf_holds_the_same_integers(tiny, quant, bits, kind, block):
    data = gguf_file("tiny", quant).read_bytes()
    tensors = read_gguf(data)
    assert len(tensors) == 1 + 7 * 2 + 2 * 2 + 1
    assert tensors["token_embd.weight"][0] == checkpoints.Q8_0 and tensors["output_norm.weight"][0] == checkpoints.F32
    weights = dict(checkpoints.weights(TINY))
    for name, heads in (("mlp.down_proj", 0), ("self_attn.q_proj", 4), ("self_attn.k_proj", 2)):
        matrix = weights[f"model.layers.1.{name}.weight"]
        found, shape, at = tensors[gguf_name(f"model.layers.1.{name}.weight")]
        assert found == kind and shape == matrix.shape[::-1] and at % 32 == 0
        matrix = interleaved(matrix, heads) if heads else matrix
        values, scales = quantize_groups(matrix.reshape(-1, 32), bits)
        blocks = np.frombuffer(data, np.uint8, len(values) * block, at).reshape(-1, block)
        assert np.array_equal(blocks[:, :2].copy().view(np.float16)[:, 0], scales)
        packed = blocks[:, 2:]
        if bits == 4:
            packed = np.concatenate([packed & 15, packed >> 4], axis=1) - np.uint8(8)
        assert np.array_equal(packed.view(np.int8), values)


def test_blocks_have_their_sizes():
    values, scales = np.zeros((3, 32), np.int8), np.ones(3, np.float16)
    assert len(q8_0(values, scales)) == 3 * 34 and len(q4_0(values, scales)) == 3 * 18


def test_rows_of_pairs_become_neighbours():
    rows = np.arange(8)[:, None]
    assert interleaved(rows, 2)[:, 0].tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


def test_small_vocabulary_is_refused():
    with pytest.raises(ValueError, match="no place for 259"):
        token_texts(100)

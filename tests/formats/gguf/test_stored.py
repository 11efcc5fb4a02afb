"""Blocks run as they are stored: their values are those of the gguf package, and products those of NumPy with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import load_file, save_file

from tests.formats.gguf.converted import changed, metadata
from tests.formats.gguf.random_blocks import decoded, random_blocks
from tests.models.decoder_folders import Small
from tinyweb import Tensor
from tinyweb.errors import ModelFormatError
from tinyweb.formats.gguf import GgufModel
from tinyweb.formats.gguf.blocks import BlockFormat
from tinyweb.formats.gguf.stored import HELD, rows_of
from tinyweb.formats.gguf.types import BY_NAME
from tinyweb.models import load
from tinyweb.models.stored import nearest, requantised, weight_of
from tinyweb.nn.layers import Embedding, Linear
from tinyweb.nn.quantized_weight import QuantizedWeight

ROWS, WIDTH = 24, 512
NAMED = ("Q4_0", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "MXFP4")
UNKNOWN = ("Q1_0", "Q8_K")  # which the gguf package does not decode
GROWN = {"Q4_K": 4.63, "Q5_K": 5.63, "Q3_K": 3.57, "IQ4_XS": 4.32, "NVFP4": 5.0, "TQ1_0": 2.07}  # bits of an element


def stored(kind: str, device: str) -> tuple[QuantizedWeight, npt.NDArray[np.float32]]:
    form, raw = BY_NAME[kind], random_blocks(kind, (ROWS, WIDTH), np.random.default_rng(len(kind)))
    assert isinstance(form, BlockFormat)
    dense = form.decode(raw.reshape(-1, form.bytes)).reshape(ROWS, WIDTH) if kind in UNKNOWN else decoded(kind, raw)
    return weight_of(rows_of(form, raw.reshape(-1), (ROWS, WIDTH)), device), dense


@pytest.mark.parametrize("kind", HELD)
def test_values_bit_for_bit_in_as_many_bytes(kind: str) -> None:
    weight, dense = stored(kind, "CPU")
    np.testing.assert_array_equal(weight.dense().numpy().view(np.uint32), dense.view(np.uint32))
    form = BY_NAME[kind]
    bits = 8 * sum(t.nbytes() for t in weight.tensors().values()) / dense.size
    assert bits <= GROWN.get(kind, 8 * form.bytes / form.elements)


@pytest.mark.parametrize("kind", HELD)
def test_products(kind: str) -> None:
    check_products(kind, "CPU")


@pytest.mark.parametrize("kind", NAMED)
@pytest.mark.parametrize("device", ["WASM", "WEBGPU"])
def test_products_elsewhere(device: str, kind: str) -> None:
    check_products(kind, device)


def check_products(kind: str, device: str) -> None:
    weight, dense = stored(kind, device)
    rng = np.random.default_rng(1)
    for tokens in (1, 6):
        x = rng.standard_normal((tokens, WIDTH)).astype(np.float32)
        want = x.astype(np.float64) @ dense.T.astype(np.float64)
        size = np.abs(x).astype(np.float64) @ np.abs(dense).T.astype(np.float64)
        for activations, relative in (("float", 1e-5), ("int8", 5e-3)):
            got = Linear.of(weight)(Tensor(x, device=device), activations).numpy()
            assert (np.abs(got - want) <= relative * size).all()
    ids = np.array([[3, 0], [23, 7]], np.int32)
    rows = Embedding.of(weight)(Tensor(ids, device=device)).numpy()
    np.testing.assert_allclose(rows, dense[ids], rtol=0 if device != "WEBGPU" else 1e-6)


@pytest.mark.parametrize(("kind", "bits"), [("Q4_0", 4), ("Q8_0", 8)])
def test_what_is_quantised_anew_decodes_as_its_type(kind: str, bits: int) -> None:
    values = np.random.default_rng(2).standard_normal((5, 3, 64)).astype(np.float32)
    rows = requantised(values, kind)
    back = decoded(kind, rows.view(np.uint8).reshape(5, 3, -1))
    assert rows.shape == (5, 3) and np.abs(back - values).max() < (0.5 if bits == 4 else 0.02)
    np.testing.assert_array_equal(weight_of(rows.reshape(-1), "CPU").dense().numpy(), back.reshape(15, 64))


def test_the_nearest_type() -> None:
    assert {k: nearest(k) for k in ("IQ1_S", "IQ2_XS", "IQ3_S", "Q4_K", "Q5_K", "Q6_K")} == {
        "IQ1_S": "Q4_0", "IQ2_XS": "Q4_0", "IQ3_S": "Q4_0", "Q4_K": "Q4_0", "Q5_K": "Q8_0", "Q6_K": "Q8_0",
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["Q4_K", "Q8_0", "MXFP4"])
def test_infinite_values_are_refused(kind: str) -> None:
    form, raw = BY_NAME[kind], random_blocks(kind, (4, WIDTH), np.random.default_rng(3))
    assert isinstance(form, BlockFormat)
    raw[2, :2] = 255 if kind == "MXFP4" else np.array([0x00, 0x7C], np.uint8)
    with pytest.raises(ModelFormatError, match="'w' holds infinities or NaNs"):
        weight_of(rows_of(form, raw.reshape(-1), (4, WIDTH)), "CPU", "w")


# -- whole models ------------------------------------------------------------------------------------------------------
LLAMA = Small("LlamaForCausalLM", {
    "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 320,
})  # fmt: skip
# as llama.cpp's Q4_K_M: some matrices of a layer, the embedding and the head in more bits
MIXED = {"attn_v": "Q6_K", "ffn_down": "Q6_K", "token_embd": "Q6_K", "output": "Q6_K", "attn_output": "MXFP4"}


def write_mixed(folder: Path, path: Path, kinds: dict[str, str], usual: str, tied: bool = False) -> Path:
    """A Llama in a GGUF file of several types, random blocks; the folder beside it gets the values that these have."""
    small = Small(LLAMA.architecture, {**LLAMA.changes, "tie_word_embeddings": tied})
    small.write(folder)
    config = json.loads((folder / "config.json").read_text())
    writer, rng = gguf.GGUFWriter(path, "llama"), np.random.default_rng(5)
    metadata(writer, config)
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


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("usual", ["Q4_K", "Q5_K", "IQ4_NL"])
def test_a_model_of_mixed_types(usual: str, tied: bool, tmp_path: Path) -> None:
    path = write_mixed(tmp_path / "folder", tmp_path / "m.gguf", MIXED, usual, tied)
    ids = Tensor(np.random.default_rng(1).integers(0, 320, (1, 9)).astype(np.int32))
    want = load(tmp_path / "folder", "f32")(ids).numpy()
    for quant in (None, "stored"):
        model = load(path, quant, activations="float")
        np.testing.assert_allclose(model(ids).numpy(), want, atol=2e-4 * np.abs(want).max())
    rounded = load(path, activations="int8")(ids).numpy()
    assert np.linalg.norm(rounded - want) < 0.05 * np.linalg.norm(want)
    names = set(model.weights)
    assert {n for n in names if n.startswith("model.layers.0.")} > {
        f"model.layers.0.qkv.{n}" for n in ("weight0", "weight1", "upper01", "scale_blocks1")
    }
    stored_bytes = sum(t.raw.size for t in GgufModel(path)._facts.file.tensors.values())
    ours = sum(t.nbytes() for n, t in model.weights.items() if not n.startswith("rotary"))
    assert ours < 1.03 * stored_bytes

"""Blocks run as they are stored: their values are those of the gguf package, and products those of NumPy with them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from tests.export.test_bundle_runs import WasmBundle
from tests.formats.gguf.converted import metadata_of
from tests.formats.gguf.mixed import write_mixed
from tests.formats.gguf.random_blocks import decoded, random_blocks
from tinyweb import Tensor, dtypes
from tinyweb.errors import ModelFormatError
from tinyweb.export.chat import ExportOptions, export_chat
from tinyweb.export.precision import requantised as requantised_of
from tinyweb.formats.gguf import GgufModel, read
from tinyweb.formats.gguf.blocks import BlockFormat
from tinyweb.formats.gguf.stored import HELD, rows_of
from tinyweb.formats.gguf.types import BY_NAME
from tinyweb.formats.tokenizer import Tokenizer
from tinyweb.models import load
from tinyweb.models.chat import Chat, Settings
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
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("usual", ["Q4_K", "Q5_K", "IQ4_NL"])
def test_a_model_of_mixed_types(usual: str, tied: bool, tmp_path: Path) -> None:
    path = write_mixed(tmp_path / "folder", tmp_path / "m.gguf", usual, tied=tied)
    ids = Tensor(np.random.default_rng(1).integers(0, 320, (1, 9)).astype(np.int32))
    want = load(tmp_path / "folder", "f32")(ids).numpy()
    for quant in (None, "stored"):
        model = load(path, quant, activations="float")
        np.testing.assert_allclose(model(ids).numpy(), want, atol=2e-3 * np.abs(want).max())
    rounded = load(path, activations="int8")(ids).numpy()
    assert np.linalg.norm(rounded - want) < 0.05 * np.linalg.norm(want)
    names = set(model.weights)
    assert {n for n in names if n.startswith("model.layers.0.")} > {
        f"model.layers.0.qkv.{n}" for n in ("weight0", "weight1", "upper01", "scale_blocks1")
    }
    stored_bytes = sum(t.raw.size for t in GgufModel(path)._facts.file.tensors.values())
    ours = sum(t.nbytes() for n, t in model.weights.items() if not n.startswith("rotary"))
    assert ours < 1.03 * stored_bytes


@pytest.mark.slow
def test_types_that_cannot_be_held_become_the_nearest(tmp_path: Path) -> None:
    path = write_mixed(tmp_path / "folder", tmp_path / "m.gguf", "IQ2_S", {"ffn_down": "IQ3_S", "token_embd": "Q6_K"})
    source = GgufModel(path)
    assert (requantised_of(source, "stored") or "").count("as Q4_0") == 2
    model, ids = load(path, activations="float"), Tensor(np.arange(8, dtype=np.int32)[None])
    assert model.weights["model.layers.0.down.weight"].dtype is dtypes.uint4
    assert model.weights["model.embed_tokens.upper0"].dtype is dtypes.uint2
    want = load(tmp_path / "folder", "f32")(ids).numpy()
    assert np.linalg.norm(model(ids).numpy() - want) < 0.3 * np.linalg.norm(want)


def test_the_exported_bundle_computes_the_same(tmp_path: Path, model_folder: Path) -> None:
    """As llama.cpp's Q4_K_M mixes types: tokens of the module are Python's, and the bytes are the file's."""
    path = write_mixed(
        tmp_path / "f", tmp_path / "m.gguf", "Q4_K", tied=True, more=metadata_of(model_folder), vocabulary=4096
    )
    export_chat(path, tmp_path / "site", ExportOptions(context=48), lambda *_: None)
    model = load(path, context=48, device="CPU")
    chat = Chat(model, Tokenizer.from_folder(GgufModel(path)))
    prompt = [0, 2, 275, 3, 261, 499, 5, 4, 2, 277, 3]
    for variant in ("simd", "relaxed"):
        bundle = WasmBundle(tmp_path / "site" / "model", variant)
        settings = Settings(max_tokens=12, temperature=0)
        ids, logits = bundle.generate(prompt, settings)
        assert ids == list(chat.generate_ids(prompt, settings))
        chat.forget()
        list(chat.generate_ids(prompt, Settings(max_tokens=1, temperature=0)))
        assert logits == pytest.approx(model.logits.numpy()[0], abs=6e-2)
        chat.forget()
    manifest = json.loads((tmp_path / "site" / "model" / "manifest.json").read_text())
    assert manifest["model"]["quant"] == "Q6_K, Q4_K, MXFP4"
    tables = sum(b["bytes"] for b in manifest["buffers"] if b["name"] and b["name"].startswith("rotary"))
    assert manifest["weights"]["bytes"] - tables < 1.03 * sum(t.raw.size for t in read(path).tensors.values())

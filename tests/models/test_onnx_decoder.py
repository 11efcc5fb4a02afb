"""Text-generation graphs of ONNX with a cache, as chats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from tests.models import onnx_folders
from tinyweb import Tensor, dtypes
from tinyweb.errors import ModelFormatError, TinywebError
from tinyweb.formats.tokenizer import Tokenizer
from tinyweb.models import load
from tinyweb.models.chat import Chat, Settings
from tinyweb.models.onnx_decoder import OnnxDecoder

PROMPT = [0, 2, 275, 3, 261, 499, 5, 4, 2, 277, 3]  # 11 tokens: a block of 8 and what is left


def ids_of(count: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 4000, (1, count)).astype(np.int32)


def logits_of(model: Any, ids: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return model(torch.tensor(ids, dtype=torch.int64)).logits.numpy()


def in_pieces(decoder: OnnxDecoder, ids: np.ndarray) -> np.ndarray:
    """Read in pieces of several sizes, the middle twice."""
    found, at = np.zeros((1, ids.shape[1], decoder.vocab_size), np.float32), 0
    for size in (5, 1, 1, 16, -10, 10, 3, ids.shape[1]):
        piece = ids[:, at : at + size] if size > 0 else ids[:, :0]
        if size > 0:
            found[:, at : at + size] = decoder(Tensor(piece, device=decoder.device), at).numpy()
        at += size if size < 0 else piece.shape[1]
    return found


@pytest.fixture(scope="module")
def like(model_folder: Path) -> Path:
    return model_folder


def folder_of(path: Path, model: Any, like: Path, **options: Any) -> tuple[Path, Any]:
    """With one graph of `GroupQueryAttention`, and the model with the weights as they are in it."""
    folder = onnx_folders.write_folder(path, model, like)
    weights = onnx_folders.grouped(model, folder / "onnx/model.onnx", **options)
    model.load_state_dict({n: torch.tensor(w) for n, w in weights.items()})
    return folder, model


@pytest.mark.parametrize(
    ("options", "cache", "tolerance"),
    [
        pytest.param({}, None, 1e-6, id="floats"),
        pytest.param({"half": True}, None, 2e-3, id="halves", marks=pytest.mark.slow),
        pytest.param({"bits": 4}, None, 1e-6, id="4 bits", marks=pytest.mark.slow),
        pytest.param({}, "q8", 5e-2, id="a cache of 8 bits", marks=pytest.mark.slow),
    ],
)
def test_a_text_in_pieces(
    tmp_path: Path, like: Path, options: dict[str, Any], cache: str | None, tolerance: float
) -> None:
    folder, model = folder_of(tmp_path / "llama", onnx_folders.llama(), like, **options)
    decoder = load(folder, context=100, device="CPU", cache=cache)
    assert isinstance(decoder, OnnxDecoder) and (decoder.context, decoder.layer_count) == (100, 2)
    ids = ids_of(60)
    np.testing.assert_allclose(in_pieces(decoder, ids), logits_of(model, ids), atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("device", ["CPU", "WASM", "WEBGPU"])
def test_a_chat_says_what_transformers_does(tmp_path: Path, like: Path, device: str) -> None:
    folder, model = folder_of(tmp_path / "llama", onnx_folders.llama(), like)
    chat = Chat(load(folder, context=48, device=device), Tokenizer.from_folder(folder))
    ids = list(PROMPT)
    for _ in range(8):
        ids.append(int(logits_of(model, np.array([ids]))[0, -1].argmax()))
    assert list(chat.generate_ids(PROMPT, Settings(max_tokens=8, temperature=0))) == ids[len(PROMPT) :]


def test_which_graph(tmp_path: Path, like: Path) -> None:
    """By the quantisation, or by its name."""
    model = onnx_folders.llama()
    folder = onnx_folders.write_folder(tmp_path / "llama", model, like)
    onnx_folders.grouped(model, folder / "onnx/model.onnx")
    onnx_folders.grouped(model, folder / "onnx/model_q4f16.onnx", bits=4, half=True, data=True)
    ids = Tensor(ids_of(3), device="CPU")
    names = {}
    for quant in (None, "f32", "f16", "q4"):
        decoder = load(folder, quant, context=32, device="CPU")
        decoder(ids)
        names[quant] = any(n.endswith(".q") for n in decoder.weights)
    assert names == {None: True, "f32": False, "f16": False, "q4": True}
    assert not any(n.endswith(".q") for n in load(folder / "onnx/model.onnx", device="CPU").weights)
    with pytest.raises(ModelFormatError, match="ONNX graphs are of f32, f16, q8"):
        load(folder, "mixed")
    quantised = load(folder, "q8", context=32, device="CPU")  # made of floats
    quantised(ids)
    assert any(t.dtype is dtypes.int8 for t in quantised.weights.values())
    with pytest.raises(ModelFormatError, match="is of q4: leave out --quant f32"):
        load(folder / "onnx/model_q4f16.onnx", "f32")
    with pytest.raises(TinywebError, match="a context of 129 tokens is not possible"):
        load(folder, context=129)


def test_what_no_chat_can_be_made_of(tmp_path: Path, like: Path) -> None:
    model = onnx_folders.llama()
    folder = onnx_folders.write_folder(tmp_path / "llama", model, like)
    whole = onnx_folders.Grouped(model).model()

    def refused(change: Any, message: str) -> None:
        changed = onnx.ModelProto.FromString(whole.SerializeToString())
        change(changed.graph)
        onnx.save(changed, folder / "onnx/model.onnx")
        with pytest.raises((NotImplementedError, ModelFormatError), match=message):
            load(folder, context=32, device="CPU")(Tensor(ids_of(2), device="CPU"))

    def renamed(graph: Any, old: str, new: str) -> None:
        for port in (*graph.input, *graph.output):
            port.name = new if port.name == old else port.name
        for node in graph.node:
            for names in (node.input, node.output):
                names[:] = [new if n == old else n for n in names]

    refused(lambda g: renamed(g, "input_ids", "inputs_embeds"), "'inputs_embeds', .*is none that a chat can give")
    refused(lambda g: renamed(g, "logits", "present.logits"), "outputs none: a chat needs one of logits")

    def closed(graph: Any) -> None:
        graph.input[2].type.tensor_type.shape.dim[2].dim_value = 7

    refused(closed, r"past_key_values.0.key.* a cache needs one axis")

    def unused(graph: Any) -> None:
        node = next(n for n in graph.node if n.op_type == "GroupQueryAttention")
        node.input[3] = node.input[4] = ""

    refused(unused, "does not put new positions behind its input 'past_key_values.0.key' once")

    def wider(graph: Any) -> None:
        graph.output[0].type.tensor_type.shape.dim[2].dim_value = 1 << 60

    refused(wider, "the graph gives logits of shape")

    def paired(graph: Any) -> None:
        graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2

    refused(paired, r"the graph takes no ids of shape \(1, 2\)")

    def old(graph: Any) -> None:
        for name in [p.name for p in graph.input]:
            renamed(graph, name, name.replace("past", "old"))

    refused(old, "has no inputs past…")
    (folder / "onnx/model.onnx").unlink()
    with pytest.raises(ModelFormatError):
        load(folder)


@pytest.mark.parametrize(
    ("make", "placed"),
    [
        ("llama", False),
        pytest.param("llama", True, marks=pytest.mark.slow),
        pytest.param("gpt2", True, marks=pytest.mark.slow),
        pytest.param("mistral", True, marks=pytest.mark.slow),
    ],
)
def test_caches_that_are_joined(tmp_path: Path, like: Path, make: str, placed: bool) -> None:
    """As Optimum exports them: positions and windows follow from the length of what is given."""
    model = getattr(onnx_folders, make)()
    folder = onnx_folders.write_folder(tmp_path / make, model, like)
    onnx_folders.export_graph(model, folder / "onnx/model.onnx", placed)
    decoder = load(folder, context=100, device="CPU")
    assert isinstance(decoder, OnnxDecoder)
    ids = ids_of(60)
    np.testing.assert_allclose(in_pieces(decoder, ids), logits_of(model, ids), atol=1e-6)

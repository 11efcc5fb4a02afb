"""Encoders as ONNX graphs, as transformers.js lays them out: embeddings, and `tinyweb export embed`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.export.test_function import calls
from tests.models.encoder_folders import ENCODERS, write_folder
from tests.models.onnx_texts import NAMES, TEXTS, embedder
from tinyweb.export.embed import EmbedOptions, export_embed, function_name
from tinyweb.models import load
from tinyweb.models.embedding import Embedder, pad
from tinyweb.models.onnx_encoder import OnnxEncoder


def both(folder: Path, kind: str, types: bool) -> tuple[Path, Path]:
    """A folder of sentence-transformers, and one of its graph."""
    folder.mkdir()
    model = ENCODERS[kind].model()
    checkpoint = write_folder(folder / "checkpoint", model, pooling_mode_cls_token=True, pooling_mode_mean_tokens=True)
    return checkpoint, embedder(folder / "graph", kind, NAMES if types else NAMES[:2])


@pytest.mark.parametrize(
    ("kind", "types"), [("BERT", True), *(pytest.param(n, False, marks=pytest.mark.slow) for n in ("RoBERTa", "MPNet"))]
)
def test_the_same_vectors_as_of_a_checkpoint(tmp_path: Path, kind: str, types: bool) -> None:
    checkpoint, graph = both(tmp_path / "models", kind, types)
    want, found = load(checkpoint, "f32", device="CPU"), load(graph, device="CPU")
    assert isinstance(found, Embedder) and isinstance(found.model, OnnxEncoder)
    assert (found.settings, found.dimensions) == (want.settings, want.dimensions)
    np.testing.assert_allclose(found.encode(TEXTS, "query"), want.encode(TEXTS, "query"), atol=2e-6)


def test_the_exported_module_gives_the_same_vectors(tmp_path: Path) -> None:
    checkpoint, graph = both(tmp_path / "models", "BERT", True)
    site = tmp_path / "site"
    made = export_embed(graph, site, EmbedOptions(lengths=(24,)), lambda *_: None)
    manifest = json.loads((site / "model/manifest.json").read_text())
    assert manifest["embed"] == made.section and manifest["embed"]["pooling"] == ["cls", "mean"]
    assert (manifest["name"], manifest["model"]["quant"], manifest["model"]["architecture"]) == ("graph", "f32", "bert")
    assert (site / "index.html").is_file() and (site / "model/tokenizer.json").is_file()
    want = Embedder.from_folder(checkpoint, "f32", "CPU")
    rows = want.tokens(TEXTS[:1])
    ids, lengths = pad(rows, 1, 24)
    (found,) = calls(site, [(function_name(1, 24), {"ids": ids, "lengths": lengths})])
    np.testing.assert_allclose(found["output"], want.encode(TEXTS[:1]), atol=2e-6)


def test_what_no_vectors_can_be_made_of(tmp_path: Path) -> None:
    _, graph = both(tmp_path / "models", "BERT", False)
    whole = onnx.load(graph / "onnx/model.onnx")
    whole.graph.output[0].type.tensor_type.shape.dim.pop()
    onnx.save(whole, graph / "onnx/model.onnx")
    with pytest.raises(
        NotImplementedError, match=r"gives last_hidden_state \['batch_size', .*vectors need hidden states"
    ):
        load(graph, device="CPU")
    whole.graph.input[0].name = "pixels"
    whole.graph.output[0].type.tensor_type.shape.dim.add().dim_value = 48
    for node in whole.graph.node:
        node.input[:] = ["pixels" if n == "input_ids" else n for n in node.input]
    onnx.save(whole, graph / "onnx/model.onnx")
    with pytest.raises(NotImplementedError, match="input 'pixels' is none that a text gives"):
        load(graph, device="CPU")

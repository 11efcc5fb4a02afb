"""`tinyweb export chat` of a folder of ONNX graphs, as transformers.js lays it out."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.export.test_bundle_runs import GREEDY, PROMPT, WasmBundle
from tests.models import onnx_folders
from tests.test_cli import run
from tinyweb.errors import ExportError
from tinyweb.export.chat import ExportOptions, export_chat
from tinyweb.export.inspect_source import inspect_source
from tinyweb.quantization import QuantOptions


def test_a_folder_becomes_a_site(tmp_path: Path, model_folder: Path) -> None:
    """The bundle says what transformers does; the numbers lie in a file beside the graph, both behind links."""
    model = onnx_folders.llama()
    folder = onnx_folders.write_folder(tmp_path / "tiny-llama", model, model_folder)
    (folder / "LICENSE").write_text("free")
    weights = onnx_folders.grouped(model, tmp_path / "blobs/model_q4.onnx", bits=4, data=True)
    for name in ("model_q4.onnx", "model_q4.onnx_data"):  # as the hub's cache has them
        (folder / "onnx" / name).symlink_to(f"../../blobs/{name}")
    model.load_state_dict({n: torch.tensor(w) for n, w in weights.items()})

    done = run("export", "chat", folder, "-o", tmp_path / "site", "--context", "48")
    assert done.returncode == 0, done.stderr
    manifest = json.loads((tmp_path / "site/model/manifest.json").read_text())
    assert (manifest["name"], manifest["model"]["quant"], manifest["model"]["layers"]) == ("tiny-llama", "q4", 2)
    assert manifest["weights"]["bytes"] < 4096 * 32 * 8 + 60000  # the table and the head are floats
    assert (tmp_path / "site/model/LICENSE").read_text() == "free"
    ids = list(PROMPT)
    with torch.no_grad():
        for _ in range(12):
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
        want = model(torch.tensor([PROMPT])).logits[0, -1].numpy()
    found, logits = WasmBundle(tmp_path / "site/model").generate(PROMPT, GREEDY)
    np.testing.assert_allclose(logits, want, atol=1e-5)
    assert found == ids[len(PROMPT) :][: len(found)] and (len(found) == 12 or found[-1] in manifest["chat"]["eos"])
    report = inspect_source(folder)
    assert (report["kind"], report["export"], report["supported"]) == ("chat", "chat", True)
    assert report["graphs"] == ["onnx/model_q4.onnx"] and report["operators"]["com.microsoft.GroupQueryAttention"] == 2


def test_a_graph_is_quantised_one_way_only(tmp_path: Path, model_folder: Path) -> None:
    model = onnx_folders.llama()
    folder = onnx_folders.write_folder(tmp_path / "llama", model, model_folder)
    onnx_folders.grouped(model, folder / "onnx/model.onnx")
    with pytest.raises(ExportError, match="are in ONNX graphs: leave out what says how they are quantised"):
        options = ExportOptions(quantization=QuantOptions(group=None))
        export_chat(folder, tmp_path / "site", options, lambda *_: None)
    assert not (tmp_path / "site").exists()


@pytest.mark.slow
@pytest.mark.parametrize("make", ["llama", "gpt2"])
def test_caches_that_are_joined(tmp_path: Path, model_folder: Path, make: str) -> None:
    model = getattr(onnx_folders, make)()
    folder = onnx_folders.write_folder(tmp_path / make, model, model_folder)
    onnx_folders.export_graph(model, folder / "onnx/model.onnx")
    export_chat(folder, tmp_path / "site", ExportOptions(context=48), lambda *_: None)
    ids = list(PROMPT)
    with torch.no_grad():
        for _ in range(12):
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    found, _ = WasmBundle(tmp_path / "site/model").generate(PROMPT, GREEDY)
    assert found == ids[len(PROMPT) :][: len(found)]

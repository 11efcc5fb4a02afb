"""Encoder–decoders as ONNX graphs: `tinyweb export onnx` of their folder gives two functions, and a loop."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from tests.export.test_bundle_runs import WasmBundle
from tests.models import onnx_seq2seq_folders
from tinyweb.errors import ExportError, ModelFormatError
from tinyweb.export import OnnxOptions, export_onnx

COUNT = 8


def source_of(kind: str) -> dict[str, np.ndarray]:
    random = np.random.default_rng(3)
    if kind == "whisper":
        return {"input_features": random.standard_normal((1, 8, 40)).astype(np.float32)}
    ids = random.integers(2, 96, (1, 7))
    return {"input_ids": ids, "attention_mask": np.ones((1, 7), np.int64)}


def wanted(model: Any, given: dict[str, np.ndarray], begin: int) -> tuple[list[int], np.ndarray]:
    """The likeliest ids, and the last logits."""
    ids = [begin]
    for _ in range(COUNT):
        with torch.no_grad():
            logits = model(
                **{n: torch.tensor(v) for n, v in given.items()}, decoder_input_ids=torch.tensor([ids])
            ).logits
        ids.append(int(logits[0, -1].argmax()))
    return ids, logits[0, -1].numpy()


def generated(site: Path, given: dict[str, np.ndarray], sizes: dict[str, int]) -> tuple[list[int], np.ndarray]:
    """The loop of a page."""
    bundle = WasmBundle(site / "model")
    functions = bundle.manifest["functions"]
    ends = {f: {e["name"]: e for side in ("inputs", "outputs") for e in functions[f][side]} for f in functions}
    for name, values in given.items():
        bundle.write(ends["encode"][name]["buffer"], values.tobytes())
    bundle.run("encode", **sizes)
    ids = list(bundle.manifest["seq2seq"]["begin"])
    for count in range(1, COUNT + 1):
        bundle.write(ends["decode"]["ids"]["buffer"], np.array(ids, np.int32).tobytes())
        bundle.run("decode", length=count)
        ids.append(int.from_bytes(bundle.read(ends["decode"]["next"]["buffer"], 4), "little"))
    return ids, np.frombuffer(bundle.read(ends["decode"]["logits"]["buffer"], 96 * 4), np.float32)


@pytest.mark.parametrize("kind", ["whisper", pytest.param("t5", marks=pytest.mark.slow)])
def test_a_loop_around_two_functions(tmp_path: Path, kind: str) -> None:
    model = getattr(onnx_seq2seq_folders, kind)()
    folder = onnx_seq2seq_folders.write_folder(tmp_path / f"tiny-{kind}", model)
    text = kind == "t5"
    dims: dict[str, Any] = {"encoder_sequence_length": range(1, 17)} if text else {}
    manifest = export_onnx(folder, tmp_path / "site", OnnxOptions(dims=dims))
    assert manifest["functions"].keys() == {"encode", "decode"} and manifest["name"] == f"tiny-{kind}"
    given = source_of(kind)
    ids, logits = wanted(model, given, model.config.decoder_start_token_id)
    found, last = generated(tmp_path / "site", given, {"encoder_sequence_length": 7} if text else {})
    assert found == ids
    np.testing.assert_allclose(last, logits, atol=2e-5)
    assert manifest["seq2seq"] == {"begin": ids[:1], "eos": [model.config.eos_token_id], "room": 512 if text else 32}


def test_what_is_refused(tmp_path: Path) -> None:
    folder = onnx_seq2seq_folders.write_folder(tmp_path / "whisper", onnx_seq2seq_folders.whisper())
    with pytest.raises(ExportError, match="--fix is for the inputs of a single graph"):
        export_onnx(folder, tmp_path / "site", OnnxOptions(fixed={"a": 1}))
    with pytest.raises(ExportError, match="name one number for each --dim"):
        export_onnx(folder, tmp_path / "site", OnnxOptions(dims={"batch_size": [1, 2]}))
    (folder / "onnx/decoder_with_past_model.onnx").rename(folder / "elsewhere")
    with pytest.raises(ModelFormatError, match="there is no decoder_with_past_model as ONNX graph"):
        export_onnx(folder, tmp_path / "site")
    graph = onnx.load(folder / "elsewhere")
    graph.graph.input[0].name = "inputs_embeds"
    for node in graph.graph.node:
        node.input[:] = ["inputs_embeds" if n == "input_ids" else n for n in node.input]
    onnx.save(graph, folder / "onnx/decoder_with_past_model.onnx")
    with pytest.raises(NotImplementedError, match="input 'inputs_embeds' of the decoder is none of input_ids"):
        export_onnx(folder, tmp_path / "site")
    (folder / "config.json").write_text(json.dumps({}))
    (folder / "onnx/encoder_model.onnx").unlink()
    with pytest.raises(ModelFormatError, match="there is no encoder_model as ONNX graph"):
        export_onnx(folder, tmp_path / "site")

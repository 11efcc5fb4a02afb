"""Encoder–decoders as ONNX graphs: `tinyweb export onnx` of their folder gives two functions, and a loop."""

from __future__ import annotations

import json
import subprocess
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
from tinyweb.export.inspect_source import inspect_source

COUNT = 8


def source_of(kind: str) -> dict[str, np.ndarray]:
    random = np.random.default_rng(3)
    if kind == "whisper":
        return {"input_features": random.standard_normal((1, 8, 40)).astype(np.float32)}
    ids = random.integers(2, 96, (1, 7))
    return {"input_ids": ids, "attention_mask": np.ones((1, 7), np.int64)}


def wanted(model: Any, given: dict[str, np.ndarray], begin: list[int]) -> tuple[list[int], np.ndarray]:
    """The likeliest ids behind others, and the last logits."""
    ids = list(begin)
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
    begin, ids = bundle.manifest["seq2seq"]["begin"], []
    following = begin[0]
    for count in range(1, len(begin) + COUNT):  # each id is read, also those that are given
        ids.append(following)
        bundle.write(ends["decode"]["ids"]["buffer"], np.array(ids, np.int32).tobytes())
        bundle.run("decode", length=count)
        said = int.from_bytes(bundle.read(ends["decode"]["next"]["buffer"], 4), "little")
        following = begin[count] if count < len(begin) else said
    ids.append(following)
    return ids, np.frombuffer(bundle.read(ends["decode"]["logits"]["buffer"], 96 * 4), np.float32)


@pytest.mark.parametrize(
    ("kind", "merged"),
    [("whisper", False), *(pytest.param(*p, marks=pytest.mark.slow) for p in (("t5", False), ("t5", True)))],
)
def test_a_loop_around_two_functions(tmp_path: Path, kind: str, merged: bool) -> None:
    model = getattr(onnx_seq2seq_folders, kind)()
    folder = onnx_seq2seq_folders.write_folder(tmp_path / f"tiny-{kind}", model, merged)
    begin = [model.config.decoder_start_token_id]
    if kind == "whisper":
        (folder / "generation_config.json").write_text(json.dumps({"forced_decoder_ids": [[1, 7], [2, 9]]}))
        begin += [7, 9]
    text = kind == "t5"
    dims: dict[str, Any] = {"encoder_sequence_length": range(1, 17)} if text else {}
    manifest = export_onnx(folder, tmp_path / "site", OnnxOptions(dims=dims))
    assert manifest["functions"].keys() == {"encode", "decode"} and manifest["name"] == f"tiny-{kind}"
    given = source_of(kind)
    ids, logits = wanted(model, given, begin)
    found, last = generated(tmp_path / "site", given, {"encoder_sequence_length": 7} if text else {})
    assert found == ids
    np.testing.assert_allclose(last, logits, atol=2e-5)
    if not text:
        told = given["input_features"].reshape(-1).tolist()
        command = ["node", Path(__file__).with_name("seq2seq_loop.mjs"), tmp_path / "site", str(len(ids))]
        done = subprocess.run(command, input=json.dumps(told), capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == ids
        report = inspect_source(folder)
        assert (report["kind"], report["export"], report["supported"]) == ("graph", "onnx", True)
    assert manifest["seq2seq"] == {"begin": begin, "eos": [model.config.eos_token_id], "room": 512 if text else 32}


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

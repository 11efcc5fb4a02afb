"""A chat whose table, head and caches are larger than what a GPU binds: in parts, it says the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.export.small_model import write_small_model
from tests.export.test_bundle_runs import GREEDY, PROMPT, WasmBundle
from tests.export.webgpu_bundle import WebGpuBundle
from tinyweb.export.chat import ExportOptions, export_chat
from tinyweb.export.inspect import inspect_site
from tinyweb.formats.tokenizer import Tokenizer
from tinyweb.models import load
from tinyweb.models.chat import Chat

LIMIT = 16384  # bytes of the logits; the table has 8 or 16 times as many, the cache in half floats 2
CONTEXT = 511


@pytest.mark.parametrize("quant", ["q8", *(pytest.param(q, marks=pytest.mark.slow) for q in ("q4", "f16"))])
def test_chat_on_parts(tmp_path: Path, model_folder: Path, quant: str) -> None:
    model = write_small_model(tmp_path / "small", model_folder)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "max_position_embeddings": CONTEXT}))
    options = ExportOptions(quant, context=CONTEXT, binding_bytes=LIMIT)
    export_chat(model, tmp_path / "site", options, lambda step, done, total: None)
    manifest = json.loads((tmp_path / "site/model/manifest.json").read_text())
    limits = manifest["targets"]["webgpu"]["limits"]
    assert limits["maxStorageBufferBindingSize"] <= LIMIT and limits["maxStorageBuffersPerShaderStage"] <= 8
    parts: dict[str, list[dict[str, Any]]] = {}
    for b in manifest["buffers"]:
        stem, part, rest = b["name"].partition(".part")
        if part:
            parts.setdefault(f"{stem}.{rest.partition('.')[2]}", []).append(b)
    assert {"model.embed_tokens.weight", "layer0.kv"} <= parts.keys()
    address = {int(id): at for id, at in manifest["targets"]["wasm"]["memory"]["buffers"].items()}
    for of_one in parts.values():  # WebAssembly takes the whole
        assert [address[b["id"]] for b in of_one[1:]] == [address[b["id"]] + b["bytes"] for b in of_one[:-1]]
    for bundle, activations in (
        (WasmBundle(tmp_path / "site/model"), "int8"),
        (WebGpuBundle(tmp_path / "site/model"), "float"),
    ):
        loaded = load(model, quant, CONTEXT, device="CPU", activations=activations)
        chat = Chat(loaded, Tokenizer.from_folder(model))
        assert bundle.generate(PROMPT, GREEDY)[0] == list(chat.generate_ids(PROMPT, GREEDY))
    assert inspect_site(tmp_path / "site")["devices"]

"""Encoders in GGUF files: vectors of texts are those of the folder that the file was made from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from tests.formats.gguf.converted import convert
from tests.formats.gguf.files import Kind
from tests.formats.gguf.test_tokenizer import CONTROL, NORMAL, phantom
from tests.models.encoder_folders import PIECES, random_model, write_folder
from tinyweb.errors import ModelFormatError
from tinyweb.export.embed import EmbedOptions, export_embed
from tinyweb.models import load
from tinyweb.models.embedding import Embedder

TEXTS = ["the cat sat", "a tree", "", "query: [SEP] the cats, the trees, a b c d e"]
FILES = {"BERT": "bert", "Nomic": "nomic-bert", "Jina": "jina-bert-v2"}


def tokens(first: str, last: str) -> dict[str, Any]:
    own = {"model": "bert", "tokens": list(map(phantom, PIECES)), f"{first}_token_id": 2, f"{last}_token_id": 3,
           "token_type": [CONTROL] * 4 + [NORMAL] * (len(PIECES) - 4), "unknown_token_id": 1}  # fmt: skip
    return {f"tokenizer.ggml.{key}": value for key, value in own.items()}


def jina(folder: Path) -> None:
    """BERT's weights in the places of Jina's, which has no positions and a gate in each MLP."""
    write_folder(folder, random_model())
    found: dict[str, np.ndarray] = {}
    torch.manual_seed(2)
    for name, values in load_file(folder / "model.safetensors").items():
        if "position_embeddings" in name or "intermediate.dense.bias" in name:
            continue
        if "intermediate.dense" in name:
            values = torch.randn(2 * len(values), values.shape[1]).numpy() * 0.2
        if ".attention." not in name:
            name = name.replace("intermediate.dense", "mlp.gated_layers").replace("output.dense", "mlp.wo")
            name = name.replace("output.LayerNorm", "mlp.layernorm")
        found[name] = values
    save_file(found, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    config |= {"architectures": ["JinaBertModel"], "position_embedding_type": "alibi", "feed_forward_type": "geglu"}
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("names", [("cls", "seperator"), ("bos", "eos")])
@pytest.mark.parametrize("name", FILES)
def test_vectors(name: str, names: tuple[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    jina(folder) if name == "Jina" else write_folder(folder, random_model(name))
    more = tokens(*names) | {f"{FILES[name]}.pooling_type": 1}
    if name == "Jina":
        more["jina-bert-v2.attention.max_alibi_bias"] = 8.0
    found = load(convert(folder, tmp_path / "m.gguf", FILES[name], more=more))
    assert isinstance(found, Embedder) and found.settings.pooling == ("mean",)
    assert found.tokens(TEXTS) == load(folder).tokens(TEXTS)
    np.testing.assert_allclose(found.encode(TEXTS), load(folder).encode(TEXTS), atol=1e-5)
    assert found.backend.encode("a", "b").ids == [2, PIECES.index("a"), 3, PIECES.index("b"), 3]


def test_export(tmp_path: Path) -> None:
    """Of 8-bit weights, as they are usually stored."""
    write_folder(tmp_path / "folder", random_model("Nomic", hidden_size=64, intermediate_size=96))
    more = tokens("cls", "seperator") | {"nomic-bert.pooling_type": 2}
    path = convert(tmp_path / "folder", tmp_path / "m.gguf", "nomic-bert", Kind.Q8_0, more)
    written = export_embed(path, tmp_path / "site", EmbedOptions(lengths=(8,)), lambda *_: None)
    assert written.section["pooling"] == ["cls"] and written.section["dimensions"] == 64


def test_what_is_refused(tmp_path: Path) -> None:
    jina(tmp_path / "folder")
    for more, message in [
        ({"jina-bert-v2.attention.max_alibi_bias": 4.0}, "'attention.max_alibi_bias' 4 is not supported"),
        ({"bert.attention.max_alibi_bias": 8.0}, "'attention.max_alibi_bias' is not supported"),
    ]:
        architecture = next(iter(more)).partition(".")[0]
        if architecture == "bert":
            write_folder(tmp_path / "other", random_model(), modules=False)
        source = tmp_path / ("other" if architecture == "bert" else "folder")
        path = convert(source, tmp_path / "m.gguf", architecture, more=more)
        with pytest.raises(ModelFormatError, match=message):
            load(path)

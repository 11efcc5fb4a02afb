"""The embedded chat model as a GGUF: it is run and exported as the folder is."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gguf
import pytest

from tests.formats.gguf.converted import convert, metadata_of
from tinyweb.errors import ModelFormatError
from tinyweb.export.inspect_source import inspect_source
from tinyweb.export.precision import requantised
from tinyweb.formats.gguf import GgufModel
from tinyweb.formats.source import gguf_of, open_model

QUESTION = "What is 7 plus 5?"


def tinyweb(*arguments: Any) -> str:
    command = [sys.executable, "-m", "tinyweb.cli", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = Path(__file__).parents[3] / "assets" / "models" / "tinychat-7m"
    path = tmp_path_factory.mktemp("gguf") / "tinychat-Q8_0.gguf"
    return convert(folder, path, "llama", gguf.GGMLQuantizationType.Q8_0, metadata_of(folder))


def test_run(file: Path, model_folder: Path) -> None:
    options = ("--prompt", QUESTION, "--temperature", "0", "--max-tokens", "16", "--json")
    ours, theirs = (json.loads(tinyweb("run", "chat", source, *options)) for source in (file, model_folder))
    assert "12" in ours["text"]
    assert (ours["prompt_ids"], ours["text"]) == (theirs["prompt_ids"], theirs["text"])


def test_by_another_name(file: Path, tmp_path: Path) -> None:
    """A GGUF file is known by its first bytes, and a folder may have one in place of a model's files."""
    (tmp_path / "folder").mkdir()
    for name in ("blob", "MODEL.GGUF", "folder/a.gguf"):
        (tmp_path / name).symlink_to(file)
    for name in ("blob", "MODEL.GGUF", "folder"):
        assert isinstance(open_model(tmp_path / name), GgufModel)
        assert inspect_source(tmp_path / name)["kind"] == "chat"
    (tmp_path / "folder" / "mmproj.gguf").write_bytes(b"GGUF")
    assert gguf_of(tmp_path / "folder") == tmp_path / "folder" / "a.gguf"
    (tmp_path / "folder" / "b.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelFormatError, match=r"has several models; give the path of one: a\.gguf, b\.gguf"):
        open_model(tmp_path / "folder")
    for name, message in (("pipe", "is a file: give a folder"), ("pipe.gguf", "is empty")):
        os.mkfifo(tmp_path / name)  # reading it would wait for ever
        with pytest.raises(ModelFormatError, match=f"{name} {message}"):
            open_model(tmp_path / name)


def test_what_is_quantised_anew_is_said(file: Path, tmp_path: Path) -> None:
    model = GgufModel(file)
    (total,) = model.stored_types().values()
    assert list(model.stored_types()) == ["Q8_0"] and total > 7_000_000
    assert requantised(model, "q8") is None and requantised(model, "f16") is None
    assert requantised(model, "q4") == "Q8_0 (100 %) as q4" and requantised(model, "stored") is None


def test_export(file: Path, model_folder: Path, tmp_path: Path) -> None:
    """The bundle has what a page needs: the tokenizer that the file describes, the template, a name."""
    tinyweb("export", "chat", file, "-o", tmp_path / "site", "--context", "128")
    bundle = tmp_path / "site" / "model"
    manifest = json.loads((bundle / "manifest.json").read_text())
    assert manifest["name"] == "tinychat-Q8_0" and manifest["chat"]["eos"]
    assert manifest["model"]["quant"] == "Q8_0"
    template = json.loads((model_folder / "tokenizer_config.json").read_text())["chat_template"]
    assert (bundle / "chat_template.jinja").read_text() == template
    vocabularies = [json.loads((f / "tokenizer.json").read_text())["model"]["vocab"] for f in (bundle, model_folder)]
    assert vocabularies[0] == vocabularies[1]
    assert (bundle / "tokenizer_config.json").is_file()

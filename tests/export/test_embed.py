"""Bundles of sentence embeddings: the exported module gives the vectors that Python gives."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.export.test_function import calls
from tests.models import image_text_folders
from tests.models.encoder_folders import random_model, write_folder
from tinyweb.cli import app, main
from tinyweb.errors import ExportError, ModelFormatError
from tinyweb.export.embed import EmbedOptions, check_lengths, export_embed, function_name, write_embedder, write_texts
from tinyweb.export.loader import write_loader
from tinyweb.formats.huggingface import ModelFolder
from tinyweb.models import load
from tinyweb.models.embedding import Embedder, pad
from tinyweb.quantization import Report
from tinyweb.quantization.evaluation import compare_vectors

TEXTS = ["the cat sat.", "trees, trees, trees: a b c d e f g h"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "little-e5-small"
    path.mkdir()
    model = random_model(num_hidden_layers=1, hidden_size=64, num_attention_heads=2, intermediate_size=96)
    return write_folder(path, model, pooling_mode_cls_token=True, pooling_mode_mean_tokens=True)


def silent(step: str, done: int, total: int) -> None: ...


def write(site: Path, folder: Path, quant: str) -> dict[str, Any]:
    options = EmbedOptions(quant=quant)
    embedder = Embedder.from_folder(folder, quant, "CPU")
    site.mkdir()
    write_texts(site / "model", ModelFolder(folder))
    measured = Report(quant, 1, 4, [], evaluation={"text": "t", **compare_vectors(*2 * [np.eye(4, dtype=np.float32)])})
    manifest = write_embedder(site / "model", "little", embedder, (8, 24), options, silent, measured)
    write_loader(site / "model", manifest)
    return manifest


@pytest.mark.parametrize("quant", [pytest.param("f32", marks=pytest.mark.slow), "q8"])
def test_the_exported_module_gives_the_same_vectors(quant: str, folder: Path, tmp_path: Path) -> None:
    """With 8-bit weights each target has kernels of its own, and both share weights, inputs and outputs."""
    manifest = write(tmp_path / "site", folder, quant)
    section = manifest["embed"]
    assert (section["dimensions"], section["max_length"], section["pooling"]) == (128, 24, ["cls", "mean"])
    assert section["prefixes"] == {"query": "query: ", "passage": "passage: "}
    said = manifest["model"]["fidelity"]
    assert said == "cosine 1.0000, the same nearest piece in 100.0 %"
    assert json.dumps(said) in (tmp_path / "site/model/model.js").read_text()
    embedder = Embedder.from_folder(folder, quant, activations="int8" if quant == "q8" else "float")
    ids = embedder.tokens(TEXTS, "query")
    made = []
    for row, shape in zip(ids, ((64, 8), (1, 24))):
        tokens, lengths = pad([row[: shape[1]]], *shape)
        made.append((function_name(*shape), {"ids": tokens, "lengths": lengths}))
    got = [outputs["output"][0] for outputs in calls(tmp_path / "site", made)]
    want = Embedder.from_folder(folder, quant, activations=embedder.model.activations, max_length=8)
    np.testing.assert_allclose(got[0], want.encode(TEXTS[:1], "query")[0], atol=2e-5 if quant == "f32" else 2e-3)
    np.testing.assert_allclose(got[1], embedder.encode(TEXTS, "query")[1], atol=2e-5 if quant == "f32" else 2e-3)
    model = tmp_path / "site" / "model"
    assert {p.name for p in model.iterdir()} >= {"tokenizer.json", "tokenizer_config.json", "model.js", "model.d.ts"}
    assert "loadEmbedder" in (model / "model.js").read_text() and "128 numbers" in (model / "model.js").read_text()
    assert json.loads((model / "manifest.json").read_text()) == manifest
    entries = manifest["targets"]["webgpu"]["variants"]["base"]["entry_points"]
    assert entries.keys() == manifest["functions"].keys()


@pytest.mark.parametrize(
    ("name", "kind", "layers"),
    [("ModernBERT", "modernbert", 4), pytest.param("DeBERTa", "deberta-v2", 2, marks=pytest.mark.slow)],
)
def test_an_encoder_of_another_architecture(name: str, kind: str, layers: int, tmp_path: Path) -> None:
    """Rotary positions, windows, gated MLPs; scores of contents and positions apart."""
    folder = write_folder(tmp_path / "model", random_model(name))
    manifest = write(tmp_path / "site", folder, "f32")
    assert manifest["model"]["architecture"] == kind and manifest["model"]["layers"] == layers
    embedder = Embedder.from_folder(folder)
    (row,) = embedder.tokens(TEXTS[1:])
    tokens, lengths = pad([row], 1, 24)
    (outputs,) = calls(tmp_path / "site", [(function_name(1, 24), {"ids": tokens, "lengths": lengths})])
    np.testing.assert_allclose(outputs["output"][0], embedder.encode(TEXTS[1:])[0], atol=2e-5)


@pytest.mark.parametrize("name", ["CLIP", pytest.param("SigLIP", marks=pytest.mark.slow)])
def test_texts_and_pictures(name: str, tmp_path: Path) -> None:
    folder = image_text_folders.write_folder(tmp_path / "model", image_text_folders.random_model(name))
    options = EmbedOptions(quant="q8", lengths=(8, 512))
    export_embed(folder, tmp_path / "site", options, silent)
    section = json.loads((tmp_path / "site/model/manifest.json").read_text())["embed"]
    assert {f["length"] for f in section["functions"]} == ({8, 20} if name == "CLIP" else {20})
    assert section["fill"] == (None if name == "CLIP" else 0)
    assert section["pictures"]["functions"] == [{"name": f"picture_{n}", "batch": n} for n in (1, 8)]
    found = load(folder, "q8", activations="int8")
    (row,) = found.tokens(TEXTS[:1])
    ids, lengths = pad([row], 1, 20)
    pixels = np.random.default_rng(1).integers(0, 256, (50, 40, 3)).astype(np.uint8)
    square = found.images.preprocessing(pixels)
    made = [(function_name(1, 20), {"ids": ids, "lengths": lengths}), ("picture_1", {"pixels": square[None]})]
    text, picture = (outputs["output"][0] for outputs in calls(tmp_path / "site", made))
    np.testing.assert_allclose(text, found.encode(TEXTS[:1])[0], atol=2e-3)
    np.testing.assert_allclose(picture, found.encode_images([pixels])[0], atol=2e-3)


def test_pictures_alone_are_nothing_to_search_with(tmp_path: Path) -> None:
    model = image_text_folders.random_model("CLIP, pictures")
    folder = image_text_folders.write_folder(tmp_path / "model", model)
    with pytest.raises(ModelFormatError, match="the tower of pictures only"):
        export_embed(folder, tmp_path / "site", EmbedOptions(), silent)


def test_lengths() -> None:
    assert check_lengths([128, 32, 128]) == (32, 128)
    for wrong in ([], [2], list(range(10, 20))):
        with pytest.raises(ExportError, match="--lengths"):
            check_lengths(wrong)


def test_user_errors(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(ExportError, match="not empty"):
        export_embed(folder, tmp_path / "full", EmbedOptions(), silent)
    result = CliRunner().invoke(app, ["export", "embed", str(folder), "-o", str(tmp_path / "x"), "--lengths", "many"])
    assert isinstance(result.exception, ExportError) and "no list of numbers" in str(result.exception)


def test_bad_sources(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Missing, truncated and damaged files of a folder: one sentence and exit code 2; nothing is left."""

    def changed(name: str, file: str, content: bytes | None) -> str:
        shutil.copytree(folder, tmp_path / name)
        (tmp_path / name / file).unlink()
        if content is not None:
            (tmp_path / name / file).write_bytes(content)
        return name

    weights = (folder / "model.safetensors").read_bytes()
    (tmp_path / "file").touch()
    said = {
        "none": "does not exist", "file": "give a folder that holds config.json",
        changed("no-weights", "model.safetensors", None): "holds no model.safetensors",
        changed("cut", "model.safetensors", weights[: len(weights) // 2]): "is truncated",
        changed("words", "model.safetensors", b"words " * 9): "no safetensors file",
        changed("no-tokenizer", "tokenizer.json", None): "tokenizer.json is missing",
        changed("bad-tokenizer", "tokenizer.json", b'{"version": "1.0"}'): "no tokenizer this version understands",
        changed("deep", "config.json", b"[" * 50_000): "is not valid JSON",
        changed("elsewhere", "modules.json", b'[{"type": "a.Pooling", "path": "../etc"}]'): "no folder of this model",
    }  # fmt: skip
    (tmp_path / changed("bad-config", "tokenizer.json", (folder / "tokenizer.json").read_bytes())).joinpath(
        "tokenizer_config.json"
    ).write_text("nothing")
    said["bad-config"] = "tokenizer_config.json is not valid JSON"
    for name, message in said.items():
        with pytest.raises(SystemExit, match="2"):
            main(["export", "embed", str(tmp_path / name), "-o", str(tmp_path / "site")])
        sentence = capsys.readouterr().err.strip().splitlines()[-1]
        assert sentence.startswith("tinyweb: ") and sentence.endswith(".") and name in sentence and message in sentence
    assert not (tmp_path / "site").exists()


def test_run_embed(folder: Path) -> None:
    """Texts as arguments or as lines; vectors as JSON."""
    run = CliRunner().invoke(app, ["run", "embed", str(folder), *TEXTS, "--kind", "query"])
    lines = CliRunner().invoke(app, ["run", "embed", str(folder), "--kind", "query"], input="\n".join(TEXTS) + "\n")
    assert run.stdout == lines.stdout
    want = Embedder.from_folder(folder).encode(TEXTS, "query")
    np.testing.assert_allclose(np.array(json.loads(run.stdout)), want, atol=1e-6)

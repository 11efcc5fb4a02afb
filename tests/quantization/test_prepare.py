"""Whole models: fitted to a text, mixed by size, measured, and reported."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.export.small_model import write_small_model
from tests.models.decoder_folders import OTHERS
from tinyweb import Tensor
from tinyweb.errors import TinywebError
from tinyweb.formats.tokenizer import Tokenizer
from tinyweb.models import load
from tinyweb.models.embedding import Embedder
from tinyweb.nn.precision import Precision, Recipe
from tinyweb.quantization import ChatReader, EmbedReader, QuantOptions, Report, quantise
from tinyweb.quantization.calibration import in_readings, second_moments
from tinyweb.quantization.evaluation import compare_vectors
from tinyweb.quantization.prepare import additions, choices
from tinyweb.quantization.report import lines
from tinyweb.quantization.scaling import scale_channels
from tinyweb.quantization.sites import find_sites

NAMES = ["embedding", *(f"layers.0.{n}" for n in ("mixer.qkv", "mixer.output", "mlp.up", "mlp.gate", "mlp.down"))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> Path:
    return write_small_model(tmp_path_factory.mktemp("models") / "small", model_folder)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> Path:
    path = tmp_path_factory.mktemp("texts") / "words.txt"
    items = json.loads((model_folder / "eval.json").read_text())[:120]
    path.write_text("\n".join(m["content"] for item in items for m in item["messages"]), encoding="utf-8")
    return path


def made(folder: Path, quant: str, **options: Any) -> tuple[Any, Report]:
    tokenizer = Tokenizer.from_folder(folder)
    found = quantise(
        lambda recipe: ChatReader(load(folder, recipe, 64, activations="float"), tokenizer),
        quant,
        QuantOptions(**options),
    )
    return found.reader.model, found.report


def test_a_matrix_after_the_other(folder: Path) -> None:
    model, report = made(folder, "q4", group=64, zero_points=True, embedding="q5")
    assert [layer.name for layer in report.layers] == NAMES
    assert {(layer.kind, layer.zero_points) for layer in report.layers[1:]} == {("q4", True)}
    assert {layer.shape[1] % 64: layer.group for layer in report.layers}.get(0, 64) == 64
    assert report.layers[0].kind == "q5" and 0.01 < report.layers[0].error < 0.05
    assert report.weights == sum(t.nbytes() for t in model.weights.values())
    record = report.record()
    assert json.loads(json.dumps(record)) == record and "evaluation" not in record
    assert any("q4" in line for line in lines(report))


def test_what_is_measured_on_the_text_that_is_fitted_to(folder: Path, text: Path, tmp_path: Path) -> None:
    same, other = tmp_path / "same.txt", tmp_path / "other.txt"
    words = text.read_text("utf-8")
    same.write_text(words[: len(words) // 2] + "\n", "utf-8")
    other.write_text(words[len(words) // 2 :], "utf-8")
    for evaluate, held in ((text, False), (same, False), (other, True)):
        fit = same if evaluate == other else text
        _, report = made(folder, "q3", calibrate=fit, evaluate=evaluate, group=None)
        record = report.record()
        assert record["evaluation"]["held_out"] is held and ("notes" in record) is not held
        assert any(line.startswith("Note: --evaluate has the text") for line in lines(report)) is not held


def test_fitted_to_a_text(folder: Path, text: Path) -> None:
    model, report = made(folder, "q3", calibrate=text, group=None)
    same, plain = made(folder, "q3", group=None)
    errors = {layer.name: (layer.error, layer.output_error) for layer in report.layers}
    for layer in plain.layers[1:]:
        error, output = errors[layer.name]
        assert output is not None and output < error and layer.error <= error
    e = report.record()["evaluation"]
    assert e["held_out"] and e["text"] == "words.txt" and e["tokens"] > 100
    assert 0 <= e["agreement"] <= 1 and e["perplexity"]["quantised"] > 1
    assert e["perplexity_growth"] == pytest.approx(e["perplexity"]["quantised"] / e["perplexity"]["f32"] - 1)
    assert {n: t.shape for n, t in model.weights.items()} == {n: t.shape for n, t in same.weights.items()}
    assert any("perplexity" in line for line in lines(report))
    assert plain.fidelity is None
    assert report.fidelity == (
        f"perplexity {100 * e['perplexity_growth']:+.2f} %, the same next token in {100 * e['agreement']:.1f} %"
    )


@pytest.mark.parametrize("calibrated", [False, True])
def test_mixed(folder: Path, text: Path, calibrated: bool) -> None:
    least, most = (made(folder, q, embedding=q)[1].weights for q in ("q3", "q8"))
    room = (least + most) // 2
    model, report = made(folder, "mixed", bytes=room, calibrate=text if calibrated else None)
    assert 0.8 * room < report.weights <= room
    assert report.weights == sum(t.nbytes() for t in model.weights.values())
    assert len({layer.kind for layer in report.layers}) > 1
    with pytest.raises(TinywebError, match=f"--bytes {least - 1} is too little .* at least {least} bytes"):
        made(folder, "mixed", bytes=least - 1)
    _, report = made(folder, "mixed", bytes=room, embedding="q3")
    assert report.layers[0].kind == "q3" and report.weights <= room


def test_the_head_counts_as_all_that_is_added_up(folder: Path) -> None:
    """The embedding of this model is its head; its one layer adds two parts to what the head reads."""
    matrices: list[Any] = []
    model = load(folder, Recipe.of("f32").watched(lambda w, v: matrices.append(w)), 64, activations="float")
    sites = find_sites(model, matrices)
    assert [site.is_head for site in sites] == [name == "embedding" for name in NAMES]
    assert additions(model) == 2
    recipe = QuantOptions(bytes=1).recipe("mixed")
    once, twice = (choices(sites[0], recipe, None, counts) for counts in (1, 2))
    assert [c.error for c in twice] == [2 * c.error for c in once]


def test_scaled_channels_compute_the_same(folder: Path, text: Path) -> None:
    matrices: list[Any] = []
    model = load(folder, Recipe.of("f32").watched(lambda w, v: matrices.append(w)), 64, activations="float")
    sites = find_sites(model, matrices)
    reader = ChatReader(model, Tokenizer.from_folder(folder))
    texts = reader.blocks(text.read_text(), 4, "the text")[:3]
    norms = [model.layers[0].attention_norm, model.layers[0].mlp_norm]
    for norm in norms:  # channels of different sizes
        spread = np.exp(np.random.default_rng(2).standard_normal(norm.weight.shape)).astype(np.float32)
        norm.weight = Tensor(norm.weight.numpy() * spread, device=norm.weight.device)
    ids = Tensor(texts[0][None])
    want, before = model(ids).numpy(), [norm.weight.numpy() for norm in norms]
    moments = second_moments(reader.read, sites, texts, model.device)
    assert set(moments) == set(NAMES[1:])
    scale_channels(model, sites, moments, lambda site: Precision("q3"))
    assert all(np.abs(norm.weight.numpy() / b - 1).max() > 0.1 for norm, b in zip(norms, before))
    np.testing.assert_allclose(model(ids).numpy(), want, atol=2e-4 * np.abs(want).max())
    again = second_moments(reader.read, sites, texts, model.device)
    for name, values in moments.items():
        np.testing.assert_allclose(again[name], values, atol=1e-3 * np.abs(values).max())
    assert [s.name for group in in_readings(sites) for s in group] == NAMES


def test_scaled_channels_of_a_norm_that_others_read(tmp_path: Path) -> None:
    """Gemma 3n adds what its norm gives to what attention gives: only norms that nothing else reads are scaled."""
    OTHERS["Gemma 3n"].write(tmp_path)
    matrices: list[Any] = []
    model = load(tmp_path, Recipe.of("f32").watched(lambda w, v: matrices.append(w)), 16, "INTERPRETER", "float")
    sites = find_sites(model, matrices)
    ids = np.random.default_rng(3).integers(3, 60, (1, 12)).astype(np.int32)
    want = model(Tensor(ids, device="INTERPRETER")).numpy()

    def read(tokens: Tensor) -> Any:
        return model.project(model.forward(tokens, 0, model.caches))

    moments = second_moments(read, sites, [ids[0]], model.device)
    before = {site.name: site.values() for site in sites}
    scale_channels(model, sites, moments, lambda site: Precision("q3", 8))
    assert any(not np.array_equal(site.values(), before[site.name]) for site in sites)
    np.testing.assert_allclose(model(Tensor(ids, device="INTERPRETER")).numpy(), want, atol=2e-4 * np.abs(want).max())


def test_few_at_a_time(folder: Path, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where moments of all matrices do not fit into memory, the text is read again for the others."""
    monkeypatch.setattr("tinyweb.quantization.calibration.MEMORY", 1)
    _, report = made(folder, "q4", calibrate=text)
    assert all(layer.output_error is not None for layer in report.layers[1:])


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        ("few words", {}, "--calibrate has . tokens, too few"),
        ("", {}, "is empty"),
        ("words " * 400, {"head": "q8"}, "leave out --quant-head, or give --quant-embedding q8"),
    ],
)
def test_what_cannot_be(folder: Path, tmp_path: Path, content: str, options: dict[str, Any], said: str) -> None:
    (tmp_path / "text").write_text(content)
    with pytest.raises(TinywebError, match=said):
        made(folder, "q4", calibrate=tmp_path / "text", **options)


def test_embedders(model_folder: Path, text: Path) -> None:
    source = model_folder.parent / "tinyembed"

    def read(recipe: Recipe) -> EmbedReader:
        return EmbedReader(Embedder.from_folder(source, recipe, activations="float"))

    plain, fitted = (
        quantise(read, "q3", QuantOptions(evaluate=text, calibrate=c)).report.record() for c in (None, text)
    )
    for record in (plain, fitted):
        assert 0.9 < record["evaluation"]["cosine"]["mean"] < 1 and record["evaluation"]["pieces"] >= 4
    assert fitted["evaluation"]["cosine"]["mean"] > plain["evaluation"]["cosine"]["mean"]
    assert fitted["bytes"] == plain["bytes"]


def test_pieces_that_have_no_choice_have_no_agreement() -> None:
    few = compare_vectors(*2 * [np.eye(2, dtype=np.float32)])
    assert few == {"pieces": 2, "cosine": {"mean": 1.0, "least": 1.0}}
    assert Report("q8", 1, 4, [], evaluation={"text": "t", **few}).fidelity == "cosine 1.0000"

"""`tinyweb export chat --profile`: what is chosen so that it fits, and what is said where nothing does."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.export.small_model import VOCABULARY, write_small_model
from tests.formats.gguf.converted import metadata_of
from tests.formats.gguf.mixed import write_mixed
from tests.models.decoder_folders import CONVOLUTIONS, OTHERS, STATES
from tinyweb.errors import ExportError
from tinyweb.export import choices as kinds
from tinyweb.export import profiles
from tinyweb.export.chat import ExportOptions, export_chat
from tinyweb.export.choices import bits, quants
from tinyweb.export.estimate import Shapes, choices
from tinyweb.export.fitting import choose
from tinyweb.export.inspect_source import inspect_source
from tinyweb.export.profiles import PAGE_BYTES
from tinyweb.formats.source import open_model
from tinyweb.models import load
from tinyweb.models.decoder.architectures import read_config
from tinyweb.quantization import QuantOptions


def quiet(step: str, done: int, total: int) -> None:
    pass


@pytest.fixture
def shapes(model_folder: Path) -> Shapes:
    source = open_model(model_folder)
    return Shapes.of(read_config(source.config)[0], source.weights())


def narrow(monkeypatch: pytest.MonkeyPatch, memory: int) -> None:
    """A phone with so much memory for the model."""
    phone = replace(profiles.named_profile("phone"), memory=memory + PAGE_BYTES)
    monkeypatch.setattr(profiles, "PROFILES", (phone,))


def test_what_fits_well_stays_as_it_is(model_folder: Path, tmp_path: Path) -> None:
    made = export_chat(model_folder, tmp_path / "site", ExportOptions(profile="phone"), quiet)
    assert (made.quant, made.context) == (quants()[0], 512)
    assert made.fit is not None and made.fit.fits and made.fit.profile == "phone"


def test_weights_are_rounded_before_the_context_is_cut(
    model_folder: Path, tmp_path: Path, shapes: Shapes, monkeypatch: pytest.MonkeyPatch
) -> None:
    least = quants()[-1]
    narrow(monkeypatch, shapes.needs(least, 512))
    made = export_chat(model_folder, tmp_path / "site", ExportOptions(profile="phone"), quiet)
    assert bits(made.quant) < bits(quants()[0]) and made.context == 512
    manifest = json.loads((tmp_path / "site/model/manifest.json").read_text())
    assert (manifest["model"]["quant"], manifest["model"]["context"]) == (made.quant, 512)
    assert manifest["model"]["cache"] == made.cache
    assert made.fit is not None and made.fit.needs <= made.fit.memory


def test_what_is_given_is_kept(model_folder: Path, shapes: Shapes, monkeypatch: pytest.MonkeyPatch) -> None:
    narrow(monkeypatch, shapes.needs("q8", 300))
    source = open_model(model_folder)
    found = choose(source, ExportOptions(quant="q8", cache="f16", profile="phone"))
    assert found.quant == "q8" and 256 <= found.context <= 300 and found.context % 64 == 0
    found = choose(source, ExportOptions(context=512, cache="f16", profile="phone"))
    assert found.context == 512 and found.cache == "f16" and bits(found.quant) < bits("q8")


def test_a_cache_of_8_bits_before_weights_of_6(
    model_folder: Path, shapes: Shapes, monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow(monkeypatch, replace(shapes, cache="q8").needs("q8", 512))
    source = open_model(model_folder)
    found = choose(source, ExportOptions(profile="phone", context=512))
    assert (found.quant, found.cache, found.context) == ("q8", "q8", 512)
    kept = choose(source, ExportOptions(profile="phone", context=512, cache="f16"))
    assert kept.cache == "f16" and bits(kept.quant) < bits("q8")
    more = choose(source, ExportOptions(profile="phone", context=512), 1.1)
    assert more.needs * 1.1 <= found.needs and (more.quant, more.cache) != (found.quant, found.cache)


def test_what_is_kept_least_exactly_counts_first(shapes: Shapes) -> None:
    found = [(c.quant, c.cache) for c in choices(shapes, 1 << 40)]
    assert found[:3] == [("q8", "f16"), ("q8", "q8"), ("q6", "f16")]
    assert found.index(("q5", "q8")) < found.index(("q8", "q4")) < found.index(("q4", "f16"))
    assert len(found) == len(quants()) * 3
    assert next((c.quant, c.cache) for c in choices(shapes, 1 << 40, "f32")) == ("f32", "f32")


def test_states_alone_have_no_choice_of_caches(tmp_path: Path) -> None:
    STATES["Mamba-2"].write(tmp_path)
    source = open_model(tmp_path)
    found = choices(Shapes.of(read_config(source.config)[0], source.weights()), 1 << 40)
    assert [(c.quant, c.cache) for c in found] == [(quant, "f16") for quant in quants()]


def test_what_is_given_and_too_large_is_told_what_would_fit(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = write_small_model(tmp_path / "small", model_folder)
    source = open_model(model)
    narrow(monkeypatch, Shapes.of(read_config(source.config)[0], source.weights()).needs("q8", 64))
    said = (
        "does not fit on a recent phone.*: leave out --quant stored, and --quant q8 --cache f16 --context 64 is taken"
    )
    with pytest.raises(ExportError, match=said):
        export_chat(model, tmp_path / "site", ExportOptions(quant="stored", profile="phone"), quiet)
    assert list(tmp_path.iterdir()) == [model]


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GGUF file of matrices in Q4_K, Q6_K and MXFP4."""
    folder, like = tmp_path_factory.mktemp("blocks"), Path(__file__).parents[2] / "assets" / "models" / "tinychat-7m"
    return write_mixed(folder / "like", folder / "m.gguf", "Q4_K", more=metadata_of(like), vocabulary=VOCABULARY)


def test_stored_blocks_are_kept_where_they_fit(blocks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `inspect` says; what is written is as large as estimated, and says what was kept."""
    source = open_model(blocks)
    shapes = Shapes.of(read_config(source.config)[0], source.weights())
    asked = ExportOptions(profile="phone")
    assert shapes.weights.quants() == ["stored"]  # tables keep 8 bits here, which takes more
    told = next(row for row in inspect_source(blocks)["devices"] if row["profile"] == "phone")
    found = choose(source, asked)
    assert (told["quant"], told["cache"], told["context"]) == (found.quant, found.cache, found.context)
    assert (found.quant, found.cache) == ("stored", "f16")
    made = export_chat(blocks, tmp_path / "site", asked, quiet)
    assert (made.quant, made.report.kept) == ("stored", "Q6_K, Q4_K, MXFP4")
    assert made.weight_bytes == pytest.approx(shapes.weights.bytes("stored"), rel=0.02)
    assert made.fit is not None and made.fit.needs == pytest.approx(told["needs"], rel=0.02)
    pointed = replace(asked, quantization=QuantOptions(zero_points=True))
    assert choose(source, pointed).quant == "q8"


def test_what_takes_less_than_stored_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = open_model(write_mixed(tmp_path / "like", tmp_path / "m.gguf", "Q8_0", {}))
    shapes, asked = Shapes.of(read_config(source.config)[0], source.weights()), ExportOptions(profile="phone")
    assert shapes.weights.quants() == ["stored", "q6", "q5", "q4", "q3"]
    for kind, then in ((("stored", "f16"), ("stored", "q8")), (("stored", "q8"), ("q6", "f16"))):
        narrow(monkeypatch, replace(shapes, cache=kind[1]).needs(kind[0], choose(source, asked).context) - 1)
        assert (choose(source, asked).quant, choose(source, asked).cache) == then


def test_where_nothing_fits_nothing_is_written(
    model_folder: Path, tmp_path: Path, shapes: Shapes, monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow(monkeypatch, shapes.needs(quants()[-1], 256) // 2)
    with pytest.raises(ExportError, match=r"does not fit on a recent phone.*with --quant q\d and a context of 256"):
        export_chat(model_folder, tmp_path / "site", ExportOptions(profile="phone"), quiet)
    with pytest.raises(ExportError, match="there is no profile 'toaster': choose one of phone"):
        export_chat(model_folder, tmp_path / "site", ExportOptions(profile="toaster"), quiet)
    assert list(tmp_path.iterdir()) == []


def test_an_estimate_that_was_too_low_leads_to_the_next_choice(
    model_folder: Path, tmp_path: Path, shapes: Shapes, monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow(monkeypatch, shapes.needs("q4", 512))
    monkeypatch.setattr(Shapes, "needs", lambda self, quant, context: self.weights.bytes(quant) // 2)
    monkeypatch.setattr(kinds, "BITS", {"q8": 8, "q4": 4})
    made = export_chat(model_folder, tmp_path / "site", ExportOptions(profile="phone"), quiet)
    assert made.quant == "q4" and made.fit is not None and made.fit.fits
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


@pytest.mark.parametrize("name", ["LFM2", "Gemma 3n", "Mamba-2", "Granite 4", "RWKV-7"])
def test_what_a_text_takes(tmp_path: Path, name: str) -> None:
    """Keys and values, of which some layers have none of their own; convolutions; states."""
    (OTHERS | CONVOLUTIONS | STATES)[name].write(tmp_path)
    source = open_model(tmp_path)
    model = load(source, "f32", context=60)
    held = sum(t.nbytes() for part, t in model.state.items() if part.startswith("layer"))
    guess = Shapes.of(model.config, source.weights()).cache_bytes("f32", 60)
    assert guess == pytest.approx(held, rel=0.05)

"""`tinyweb export chat --profile`: what is chosen so that it fits, and what is said where nothing does."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.export.small_model import write_small_model
from tests.models.decoder_folders import CONVOLUTIONS, OTHERS, STATES
from tinyweb.errors import ExportError
from tinyweb.export import estimate, profiles
from tinyweb.export.chat import ExportOptions, export_chat
from tinyweb.export.estimate import Shapes, bits, choices, quants
from tinyweb.export.fitting import choose
from tinyweb.export.profiles import PAGE_BYTES
from tinyweb.formats.source import open_model
from tinyweb.models import load
from tinyweb.models.decoder.architectures import read_config


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


def test_what_is_given_is_kept(
    model_folder: Path, tmp_path: Path, shapes: Shapes, monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow(monkeypatch, shapes.needs("q8", 300))
    made = export_chat(model_folder, tmp_path / "a", ExportOptions(quant="q8", cache="f16", profile="phone"), quiet)
    assert made.quant == "q8" and 256 <= made.context <= 300 and made.context % 64 == 0
    made = export_chat(model_folder, tmp_path / "b", ExportOptions(context=512, cache="f16", profile="phone"), quiet)
    assert made.context == 512 and made.cache == "f16" and bits(made.quant) < bits("q8")


def test_a_cache_of_8_bits_before_weights_of_6(
    model_folder: Path, shapes: Shapes, monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow(monkeypatch, replace(shapes, cache="q8").needs("q8", 512))
    source = open_model(model_folder)
    found = choose(source, "phone", None, None, 512)
    assert (found.quant, found.cache, found.context) == ("q8", "q8", 512)
    kept = choose(source, "phone", None, "f16", 512)
    assert kept.cache == "f16" and bits(kept.quant) < bits("q8")
    more = choose(source, "phone", None, None, 512, factor=1.1)
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


def test_stored_weights_are_told_what_would_fit(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = write_small_model(tmp_path / "small", model_folder)
    source = open_model(model)
    narrow(monkeypatch, Shapes.of(read_config(source.config)[0], source.weights()).needs("q8", 64))
    with pytest.raises(ExportError, match=r"does not fit on a recent phone: memory: .*: leave out --quant stored"):
        export_chat(model, tmp_path / "site", ExportOptions(quant="stored", profile="phone"), quiet)
    assert list(tmp_path.iterdir()) == [model]


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
    monkeypatch.setattr(Shapes, "needs", lambda self, quant, context: self.weight_bytes(quant) // 2)
    monkeypatch.setattr(estimate, "BITS", {"q8": 8, "q4": 4})
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

"""The exported search page in headless Chromium: one's own text found in other words, on both backends."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page

from tests.e2e.pages import DESKTOP, EMBED, PHONE, ExportedPage, find, use_search
from tinyweb.models.embedding import Embedder

TINYEMBED = Path(__file__).parents[2] / "assets" / "models" / "tinyembed"

TEXT = """The ferry to the island was cancelled because the sea was too rough.

My sister repairs old clocks in a workshop behind the station.

The soup needs more salt, and the potatoes are not yet soft.

Our landlord has raised the rent for the second time this year.
"""
QUERIES = {
    "housing is getting more expensive": "landlord",
    "fixing antique watches": "sister",
    "boat trip called off due to waves": "ferry",
}


def test_the_site_carries_the_models_licence(exported_page: Callable[[ExportedPage], Path]) -> None:
    """It derives from a model under the Apache License; licenses.txt is what the about box links to."""
    site = exported_page(EMBED)
    told = (site / "licenses.txt").read_text(encoding="utf-8")
    for name in ("LICENSE", "NOTICE"):
        text = (TINYEMBED / name).read_text(encoding="utf-8")
        assert text.strip() in told and (site / "model" / name).read_text(encoding="utf-8") == text
        assert f'"model/{name}"' in (site / "sw.js").read_text()  # without a network, too
    assert "\n\ntinyembed, the model\n" in told


@pytest.mark.parametrize(
    ("device", "backend"),
    [
        pytest.param(DESKTOP, "wasm", id="desktop-wasm"),
        pytest.param(PHONE, "webgpu", id="phone-webgpu", marks=pytest.mark.slow),
        pytest.param(PHONE, "wasm-single", id="phone-wasm-single", marks=pytest.mark.slow),
        pytest.param(DESKTOP, "webgpu", id="desktop-webgpu", marks=pytest.mark.slow),
    ],
)
def test_a_pasted_text_is_found_in_other_words(
    open_site: Callable[..., Page],
    exported_page: Callable[[ExportedPage], Path],
    device: dict[str, Any],
    backend: str,
) -> None:
    page = open_site(exported_page(EMBED), f"?backend={backend}", **device)
    assert page.get_by_test_id("backend").get_attribute("data-backend") == backend
    use_search(page)
    page.get_by_test_id("text").fill(TEXT)
    page.get_by_test_id("add").click()
    page.get_by_test_id("documents").get_by_text("4 passages", exact=True).wait_for()
    for query, word in QUERIES.items():
        assert word in find(page, query)[0], query
    page.reload()
    assert "landlord" in find(page, "housing is getting more expensive")[0]


def test_the_same_vectors_as_in_python(
    open_site: Callable[..., Page], exported_page: Callable[[ExportedPage], Path]
) -> None:
    """embed() of the library, on texts of all lengths, beside the Embedder of the same precision."""
    texts = ["Short.", *TEXT.split("\n\n"), TEXT, TEXT * 4, ""]
    page = open_site(exported_page(EMBED), **DESKTOP)
    got = page.evaluate(
        """async (texts) => {
          const { load } = await import("./model/model.js");
          const model = await load({ backend: "wasm-single" });
          const vectors = await model.embed(texts);
          await model.dispose();
          return vectors.map((v) => [...v]);
        }""",
        texts,
    )
    want = Embedder.from_folder(TINYEMBED, "q8", activations="int8", max_length=128).encode(texts)
    cosines = (np.array(got) * want).sum(1)
    assert cosines.min() > 0.999, cosines

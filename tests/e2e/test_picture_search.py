"""The search page of a model of texts and pictures, in headless Chromium: vectors are Python's, and pictures found."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Page

from tests.models.image_text_folders import random_model, write_folder
from tinyweb.export.embed import EmbedOptions, export_embed
from tinyweb.models import load

RNG = np.random.default_rng(4)
SIZES = [(61, 40), (33, 90), (28, 28), (9, 12), (300, 200), (28, 60)]
PICTURES = [RNG.integers(0, 256, (*size, 3)).astype(np.uint8) for size in SIZES]
TEXTS = ["the cat sat", "a tree", "", "query: the cats, the trees, a b c d e f g h i j k"]


@pytest.fixture(scope="module", params=["CLIP", pytest.param("SigLIP", marks=pytest.mark.slow)])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """An exported site, and the folder it was made of."""
    root = tmp_path_factory.mktemp("pictures")
    folder = write_folder(root / "model", random_model(request.param))
    options = EmbedOptions(quant="f32", lengths=(8, 20), name="pictures")
    export_embed(folder, root / "site", options, lambda step, done, total: None)
    return root / "site", folder


@pytest.fixture
def page(open_site: Callable[..., Page], site: tuple[Path, Path]) -> Page:
    return open_site(site[0], viewport={"width": 390, "height": 844})


def png(pixels: np.ndarray) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def test_the_same_vectors_as_in_python(page: Page, site: tuple[Path, Path]) -> None:
    """Of picture files and of raw pixels, on both backends; and those of texts."""
    got = page.evaluate(
        """async ({ pictures, texts, backends }) => {
          const { load, info } = await import("./model/model.js");
          const found = [];
          for (const backend of backends) {
            const model = await load({ backend });
            const files = pictures.map((data) => new Blob([Uint8Array.from(atob(data), (c) => c.charCodeAt(0))]));
            const vectors = await model.embedImages(files);
            const written = await model.embed(texts);
            const { logitScale: scale, logitBias: bias } = model.info;
            const rows = (all) => all.map((v) => [...v]);
            found.push({ vectors: rows(vectors), texts: rows(written), pictures: info.pictures, scale, bias });
            await model.dispose();
          }
          return found;
        }""",
        {"pictures": [base64.b64encode(png(p)).decode() for p in PICTURES], "texts": TEXTS,
         "backends": ["wasm-single", "webgpu"]},
    )  # fmt: skip
    model = load(site[1])
    for found in got:
        assert found["pictures"] is True
        np.testing.assert_allclose(np.array(found["vectors"]), model.encode_images(PICTURES), atol=1e-4)
        np.testing.assert_allclose(np.array(found["texts"]), model.encode(TEXTS), atol=1e-4)
        assert found["scale"] == pytest.approx(model.logit_scale) and found["bias"] == pytest.approx(model.logit_bias)


def test_the_page_finds_pictures(page: Page, site: tuple[Path, Path]) -> None:
    """In the order of Python's cosines."""
    files = [{"name": f"{i}.png", "mimeType": "image/png", "buffer": png(p)} for i, p in enumerate(PICTURES)]
    page.locator('input[accept^="image/"]').set_input_files(files)
    page.get_by_text(f"{len(PICTURES)} pictures", exact=True).wait_for()
    page.get_by_test_id("query").fill(TEXTS[0])
    page.locator(f'[data-testid="results"][aria-busy="false"][data-query="{TEXTS[0]}"]').wait_for()
    shown = page.get_by_test_id("pictures-found").get_by_test_id("open-picture")
    names = [one.get_attribute("title") for one in shown.all()]
    model = load(site[1])
    cosines = (model.encode(TEXTS[:1]) @ model.encode_images(PICTURES).T)[0]
    assert names == [f"{i}.png" for i in np.argsort(-cosines)]

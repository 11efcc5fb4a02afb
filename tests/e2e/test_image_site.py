"""Exported image sites in headless Chromium: pictures on every backend, the numbers behind them, stops, faults."""

import importlib.util
import io
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, BrowserContext, expect
from safetensors.numpy import load_file

from tests.e2e.conftest import Served
from tests.e2e.pages import LOSE, PAGES, PHONE, ExportedPage, open_page, wait_for
from tests.e2e.painting import Pixels, paint, psnr, shown
from tinyweb.models.stable_diffusion import StableDiffusion

TIMEOUT_MS = 240_000  # two cores may be shared with other work
MODEL = Path(__file__).resolve().parents[2] / "assets" / "models" / "tinysd"
IMAGE = next(page for page in PAGES if page.task == "image")

Serve = Callable[..., Served]


@pytest.fixture(scope="session")
def reference(tiny_diffusion: Path) -> StableDiffusion:
    """The same model in Python."""
    return StableDiffusion.from_path(tiny_diffusion)


@pytest.mark.parametrize(
    ("backend", "device"),
    [
        ("wasm", {}),
        ("wasm-single", PHONE),
        pytest.param("webgpu", {}, marks=pytest.mark.slow),
        pytest.param("webgpu", PHONE, marks=pytest.mark.slow),
    ],
)
def test_pictures_are_those_of_python(
    chromium: Browser, image_site: Path, served: Serve, reference: StableDiffusion, backend: str, device: dict[str, Any]
) -> None:
    site = served(image_site)
    with chromium.new_context(**device) as context:
        page = open_page(context, site.address, f"?backend={backend}")
        assert page.get_by_test_id("backend").get_attribute("data-backend") == backend
        page.get_by_test_id("guidance").fill("3")
        pictures = {}
        for scheduler in ("ddim", "euler-ancestral"):
            page.get_by_test_id("scheduler").select_option(scheduler)
            pictures[scheduler] = paint(page, "red circle on the left", steps=3)
            mine = reference.generate(
                "red circle on the left", steps=3, seed=7, guidance=3, scheduler=scheduler, width=64, height=64
            )
            assert psnr(pictures[scheduler], mine) >= 35
        assert psnr(*pictures.values()) < 35  # which would be no wonder if all pictures were alike
        assert psnr(paint(page, "blue cat", seed=8, steps=3), pictures["ddim"]) < 35
        expect(page.get_by_test_id("picture")).to_have_count(3)


def test_the_licence_of_a_model_goes_along(image_site: Path) -> None:
    assert (image_site / "model/LICENSE.md").read_text() == "terms"
    assert "terms" in (image_site / "licenses.txt").read_text()


def test_from_a_picture_and_without_guidance(
    context: BrowserContext, image_site: Path, served: Serve, reference: StableDiffusion
) -> None:
    page = open_page(context, served(image_site).address, "?backend=wasm")
    rows, columns = np.mgrid[0:64, 0:64]
    start = np.stack([4 * rows, 4 * columns, 255 - 2 * rows - 2 * columns], axis=2).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(start).save(file, "PNG")
    page.get_by_test_id("file").set_input_files(
        {"name": "start.png", "mimeType": "image/png", "buffer": file.getvalue()}
    )
    page.get_by_test_id("strength").fill("0.5")
    page.get_by_test_id("guidance").fill("1")
    made = paint(page, "cat", steps=4)
    mine = reference.generate("cat", steps=4, seed=7, guidance=1, image=start, strength=0.5)
    assert psnr(made, mine) >= 35


@pytest.mark.slow
def test_one_unet_step_and_the_text_states_agree(
    context: BrowserContext, image_site: Path, served: Serve, reference: StableDiffusion
) -> None:
    page = open_page(context, served(image_site).address, "?backend=wasm")
    states = reference.encode_prompt("red cat")
    latents = (
        np.random.default_rng(3)
        .standard_normal((1, 4, 64 // reference.source.vae.factor, 64 // reference.source.vae.factor))
        .astype(np.float32)
    )
    expected = reference.predict(latents, 500, states)
    for backend in ("wasm", "webgpu"):
        found = page.evaluate(
            """async ([backend, latents, ids]) => {
              const { loadFunction } = await import("./assets/tinyweb.js");
              const text = await loadFunction("model/text_encoder/", { backend });
              const { states } = await text.run({ ids: Int32Array.from(ids) });
              await text.dispose();
              const unet = await loadFunction("model/unet/", { backend });
              const inputs = { latents: Float32Array.from(latents), timestep: Float32Array.of(500), states };
              const { output } = await unet.run(inputs, { function: "unet_1_64x64" });
              await unet.dispose();
              return { states: [...states], output: [...output] };
            }""",
            [backend, latents.ravel().tolist(), [int(i) for i in reference.source.tokenizer("red cat")]],
        )
        for mine, theirs in ((found["states"], states), (found["output"], expected)):
            assert np.max(np.abs(np.array(mine) - theirs.ravel())) <= 1e-3 * np.max(np.abs(theirs)), backend


def test_a_second_visit_downloads_no_weights_and_stop_stops(
    context: BrowserContext, image_site: Path, served: Serve
) -> None:
    site = served(image_site)
    page = open_page(context, site.address, "?backend=wasm")
    first = paint(page, "red circle", steps=2)
    before = site.count("/weights/")
    assert before > 0
    page.reload()
    wait_for(page, "ready")
    np.testing.assert_array_equal(shown(page), first)  # it is in the gallery
    page.get_by_test_id("steps").fill("50")
    page.get_by_test_id("prompt").fill("blue circle")
    page.get_by_test_id("prompt").press("Control+Enter")
    page.get_by_test_id("preview").wait_for(timeout=TIMEOUT_MS)
    page.keyboard.press("Escape")
    wait_for(page, "ready")
    np.testing.assert_array_equal(paint(page, "red circle", steps=2), first)
    assert site.count("/weights/") == before


@pytest.mark.slow
def test_a_lost_device_in_the_middle(chromium: Browser, image_site: Path, tmp_path: Path, served: Serve) -> None:
    site = shutil.copytree(image_site, tmp_path / "site")
    worker = site / "assets/tinyweb-worker.js"
    worker.write_text(LOSE + worker.read_text())
    # The page's own worker would find that this is no file of the export.
    with chromium.new_context(service_workers="block") as context:
        page = open_page(context, served(site).address, "?backend=webgpu")
        whole = paint(page, "red circle", steps=8)
        page.get_by_test_id("generate").click()
        page.get_by_test_id("preview").wait_for(timeout=TIMEOUT_MS)
        page.evaluate("new BroadcastChannel('lose').postMessage('now')")
        page.get_by_test_id("image").wait_for(timeout=TIMEOUT_MS)
        assert psnr(shown(page), whole) >= 50
        expect(page.get_by_test_id("note").first).to_contain_text("The model is back")
        expect(page.get_by_test_id("picture")).to_have_count(2)


# -- the default model: pictures that show what was asked for ---------------------------------------------------------


def checks() -> Any:
    """The model's eval.py."""
    spec = importlib.util.spec_from_file_location("tinysd_eval", MODEL / "eval.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def painted() -> dict[str, Pixels]:
    """Pictures of the default model by prompt, of whatever backend came first."""
    return {}


@pytest.mark.slow
@pytest.mark.parametrize("half", [0, 1])  # a software GPU takes its time for all
@pytest.mark.parametrize(
    ("backend", "device"),
    [("wasm", {}), ("wasm-single", PHONE), ("webgpu", {}), ("webgpu", PHONE)],
    ids=["desktop-wasm", "phone-wasm-single", "desktop-webgpu", "phone-webgpu"],
)
def test_pictures_show_what_was_asked_for(
    chromium: Browser,
    exported_page: Callable[[ExportedPage], Path],
    served: Serve,
    painted: dict[str, Pixels],
    backend: str,
    device: dict[str, Any],
    half: int,
) -> None:
    """As the model's eval.py judges, and the same ones everywhere."""
    site = served(exported_page(IMAGE))
    check = checks().check
    wrong = []
    with chromium.new_context(**device) as context:
        page = open_page(context, site.address, f"?backend={backend}")
        assert page.get_by_test_id("backend").get_attribute("data-backend") == backend
        for job in json.loads((MODEL / "page_prompts.json").read_text())[half::2]:
            picture = paint(page, job["prompt"], job["seed"])
            found = check(job["prompt"], picture)
            if found["everything"] < 1:
                wrong.append((job["prompt"], found))
            assert psnr(picture, painted.setdefault(job["prompt"], picture)) >= 35
    assert wrong == []


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["wasm", "webgpu"])
def test_golden_tensors(
    context: BrowserContext, exported_page: Callable[[ExportedPage], Path], served: Serve, backend: str
) -> None:
    golden = load_file(MODEL / "golden.safetensors")
    told = json.loads((MODEL / "golden.json").read_text())
    page = open_page(context, served(exported_page(IMAGE)).address, "?backend=wasm")
    flat = {name: array.ravel().tolist() for name, array in golden.items()}
    height, width = golden["image"].shape[2:]
    found = page.evaluate(
        """async ([backend, golden, told, size]) => {
          const { loadFunction } = await import("./assets/tinyweb.js");
          const unet = await loadFunction("model/unet/", { backend, functions: [`unet_1_${size}`] });
          const inputs = {
            latents: Float32Array.from(golden.latents),
            timestep: Float32Array.of(told.timesteps[0]),
            states: Float32Array.from(golden.text_embeddings),
          };
          const { output } = await unet.run(inputs, { function: `unet_1_${size}` });
          await unet.dispose();
          const { load } = await import("./model/model.js");
          const model = await load({ backend });
          const { steps, guidance_scale: guidance, prompt } = told;
          const options = { steps, guidance, scheduler: "ddim", latents: inputs.latents };
          const { data } = await model.generateRgba(prompt, options);
          await model.dispose();
          return { output: [...output], data: [...data] };
        }""",
        [backend, flat, told, f"{width}x{height}"],
    )
    expected = golden["unet_cond"].ravel()
    assert np.max(np.abs(np.array(found["output"]) - expected)) <= 1e-3 * np.max(np.abs(expected))
    made = np.array(found["data"], np.float64).reshape(height, width, 4)[:, :, :3]
    pixels = np.clip(golden["image"][0].transpose(1, 2, 0) / 2 + 0.5, 0, 1) * 255
    assert psnr(made, pixels) >= 35

"""Exported image sites in headless Chromium: pictures on every backend, the numbers behind them, stops, faults."""

import base64
import importlib.util
import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect
from safetensors.numpy import load_file

from tests.e2e.conftest import Served
from tests.e2e.pages import PAGES, PHONE, ExportedPage, wait_for
from tests.models.tiny_diffusion import write_tiny_diffusion
from tinyweb.models.stable_diffusion import StableDiffusion

TIMEOUT_MS = 240_000  # two cores may be shared with other work
MODEL = Path(__file__).resolve().parents[2] / "assets" / "models" / "tinysd"
IMAGE = next(page for page in PAGES if page.task == "image")

Serve = Callable[..., Served]
Pixels = npt.NDArray[np.uint8]


@pytest.fixture(scope="session")
def tiny_diffusion(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Stable Diffusion of random weights."""
    folder = tmp_path_factory.mktemp("diffusion") / "model"
    write_tiny_diffusion(folder, "sd1")
    return folder


@pytest.fixture(scope="session")
def image_site(tiny_diffusion: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The random model as a site. Not to be changed by tests."""
    site = tmp_path_factory.mktemp("exported") / "image"
    options = ["--quant", "f32", "--size", "64x64", "-o", str(site)]
    command = [sys.executable, "-m", "tinyweb.cli", "export", "image", str(tiny_diffusion), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return site


@pytest.fixture
def context(chromium: Browser) -> Iterator[BrowserContext]:
    with chromium.new_context() as context:
        yield context


def open_page(context: BrowserContext, address: str, query: str = "") -> Page:
    """The page, when its model is ready. Errors of the page itself fail the test."""
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(f"{address}/{query}")
    wait_for(page, "ready")
    assert problems == []
    return page


def paint(page: Page, prompt: str, seed: int = 7, steps: int | None = None) -> Pixels:
    """Ask for a picture; its pixels (height, width, 3)."""
    page.get_by_test_id("seed").fill(str(seed))
    if steps is not None:
        page.get_by_test_id("steps").fill(str(steps))
    page.get_by_test_id("prompt").fill(prompt)
    page.get_by_test_id("generate").click()
    page.locator(f'[data-testid="image"][alt="{prompt}"][data-seed="{seed}"], [data-testid="error"]').first.wait_for(
        timeout=TIMEOUT_MS
    )
    assert page.get_by_test_id("error").count() == 0, page.get_by_test_id("error").inner_text()
    return shown(page)


def shown(page: Page) -> Pixels:
    """The pixels of the finished picture."""
    url = page.get_by_test_id("image").evaluate(
        """async (image) => {
          await image.decode();
          const canvas = document.createElement("canvas");
          [canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight];
          canvas.getContext("2d").drawImage(image, 0, 0);
          return canvas.toDataURL();
        }"""
    )
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(url.split(",")[1]))).convert("RGB"))


def psnr(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> float:
    """Likeness of two pictures in dB."""
    error = np.mean((a.astype(np.float64) - b.astype(np.float64)) ** 2)
    return float("inf") if error == 0 else float(10 * np.log10(255**2 / error))


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


# In the worker: keeps the devices that are made, and destroys them when it is told.
LOSE = """
const { requestDevice } = GPUAdapter.prototype;
GPUAdapter.prototype.requestDevice = async function (...args) {
  const device = await requestDevice.apply(this, args);
  new BroadcastChannel("lose").onmessage = () => device.destroy();
  return device;
};
"""


@pytest.mark.slow
def test_a_lost_device_in_the_middle(chromium: Browser, image_site: Path, served: Serve) -> None:
    def spoil(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, body=LOSE + answer.text())

    # The page's own worker would answer before the route.
    with chromium.new_context(service_workers="block") as context:
        context.route("**/tinyweb-worker.js", spoil)
        page = open_page(context, served(image_site).address, "?backend=webgpu")
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "device", "count", "steps"),
    [("wasm", {}, 8, None), ("wasm-single", PHONE, 8, None), ("webgpu", {}, 2, 6), ("webgpu", PHONE, 1, 6)],
)
def test_pictures_show_what_was_asked_for(
    chromium: Browser,
    exported_page: Callable[[ExportedPage], Path],
    served: Serve,
    backend: str,
    device: dict[str, Any],
    count: int,
    steps: int | None,
) -> None:
    site = served(exported_page(IMAGE))
    check = checks().check
    wrong = []
    with chromium.new_context(**device) as context:
        page = open_page(context, site.address, f"?backend={backend}")
        for job in json.loads((MODEL / "page_prompts.json").read_text())[:count]:
            found = check(job["prompt"], paint(page, job["prompt"], job["seed"], steps))
            if found["everything"] < 1:
                wrong.append((job["prompt"], found))
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
          if (backend === "webgpu") return { output: [...output] };
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
    if "data" in found:
        painted = np.array(found["data"], np.float64).reshape(height, width, 4)[:, :, :3]
        pixels = np.clip(golden["image"][0].transpose(1, 2, 0) / 2 + 0.5, 0, 1) * 255
        assert psnr(painted, pixels) >= 35

"""What the image page and the library's calls do around a picture: settings, seeds, pictures to begin from, the
gallery, faults. With a model of random weights on one core; what pictures show is in test_image_site.py."""

import base64
import io
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngImageFile, PngInfo
from playwright.sync_api import BrowserContext, Page, expect
from playwright.sync_api import Error as PlaywrightError

from tests.e2e.conftest import Served
from tests.e2e.pages import HIDE, TIMEOUT_MS, limit_storage, open_page, wait_for
from tests.e2e.painting import begin, expect_pictures, paint, pictures, psnr, shown
from tinyweb.export.site import BUILT

Serve = Callable[..., Served]
SINGLE = "?backend=wasm-single"
POLICY = "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'; img-src 'self' blob:"


@pytest.fixture
def page(context: BrowserContext, image_site: Path, served: Serve) -> Page:
    return open_page(context, served(image_site).address, SINGLE)


def gradient() -> bytes:
    """A PNG of 64 x 64 pixels without settings."""
    rows, columns = np.mgrid[0:64, 0:64]
    pixels = np.stack([4 * rows, 4 * columns, 255 - 2 * rows - 2 * columns], axis=2).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def hand_over(page: Page, event: str, file: bytes, name: str = "start.png", kind: str = "image/png") -> None:
    """Drop a file on the page, or paste it."""
    page.evaluate(
        """([event, name, kind, text]) => {
          const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
          const data = new DataTransfer();
          data.items.add(new File([bytes], name, { type: kind }));
          const how = { bubbles: true, cancelable: true };
          const made = event === "paste"
            ? new ClipboardEvent("paste", { ...how, clipboardData: data })
            : new DragEvent(event, { ...how, dataTransfer: data });
          document.body.dispatchEvent(made);
        }""",
        [event, name, kind, base64.b64encode(file).decode()],
    )


def download(page: Page) -> bytes:
    with page.expect_download() as waiting:
        page.get_by_test_id("download").click()
    return Path(waiting.value.path()).read_bytes()


def test_a_download_carries_its_settings(page: Page) -> None:
    page.get_by_test_id("negative").fill("blue — “cat”")
    page.get_by_test_id("guidance").fill("3.5")
    page.get_by_test_id("scheduler").select_option("euler-ancestral")
    painted = paint(page, "red circle", seed=2**53 - 1, steps=3)
    file = download(page)
    with PngImageFile(io.BytesIO(file)) as image:
        np.testing.assert_array_equal(np.asarray(image.convert("RGB")), painted)
        told = json.loads(image.text["tinyweb"])
        lines = image.text["parameters"].split("\n")
    assert told | {"model": ""} == {
        "prompt": "red circle",
        "negativePrompt": "blue — “cat”",
        "steps": 3,
        "guidance": 3.5,
        "seed": 2**53 - 1,
        "scheduler": "euler-ancestral",
        "width": 64,
        "height": 64,
        "strength": None,
        "model": "",
    }
    assert lines[:2] == ["red circle", "Negative prompt: blue — “cat”"]
    figures = dict(figure.split(": ") for figure in lines[2].split(", "))
    assert figures | {"Model": ""} == {
        "Steps": "3",
        "Sampler": "Euler a",
        "CFG scale": "3.5",
        "Seed": str(2**53 - 1),
        "Size": "64x64",
        "Model": "",
    }
    # and they come back with the file, into a page that has others
    page.get_by_test_id("negative").fill("")
    paint(page, "cat", seed=1, steps=2)
    hand_over(page, "drop", file)
    expect(page.get_by_test_id("prompt")).to_have_value("red circle")
    expect(page.get_by_test_id("negative")).to_have_value("blue — “cat”")
    page.get_by_test_id("generate").click()
    expect(page.get_by_test_id("picture")).to_have_count(3)
    np.testing.assert_array_equal(shown(page), painted)


def test_settings_of_a_picture_of_another_model(page: Page) -> None:
    paint(page, "red circle", steps=1)
    recipe = json.loads(PngImageFile(io.BytesIO(download(page))).text["tinyweb"])
    info = PngInfo()
    info.add_text("tinyweb", json.dumps(recipe | {"width": 512, "height": 768, "model": "another", "steps": 10**6}))
    file = io.BytesIO()
    Image.new("RGB", (512, 768)).save(file, "PNG", pnginfo=info)
    hand_over(page, "paste", file.getvalue())
    expect(page.get_by_test_id("note")).to_contain_text("made with another model, another")
    expect(page.get_by_test_id("note")).to_contain_text("512 × 768: it will be 64 × 64")
    assert page.get_by_test_id("steps").input_value() == "100"
    hand_over(page, "drop", b"GIF89a", "x.txt", "text/plain")
    expect(page.get_by_test_id("error")).to_contain_text("x.txt is no picture")
    page.get_by_test_id("close-error").click()
    hand_over(page, "drop", b"not a picture", "broken.jpg", "image/jpeg")
    page.get_by_test_id("generate").click()
    expect(page.get_by_test_id("error")).to_contain_text("cannot be used")


def test_seeds(page: Page) -> None:
    seed, hint = page.get_by_test_id("seed"), page.locator("#seed-hint")
    first = paint(page, "red circle", seed=0, steps=1)
    drawn: list[str] = []
    for given in ("", "-5", "1.5", str(2**53), "seven"):
        seed.fill(given)
        if given:
            expect(hint).to_contain_text("A seed is a whole number from 0 to 9007199254740991")
        page.get_by_test_id("generate").click()
        expect(page.get_by_test_id("picture")).to_have_count(2 + len(drawn))
        expect(seed).to_have_value(page.get_by_test_id("image").get_attribute("data-seed") or "")
        expect(hint).to_contain_text("Another one for every picture")
        drawn.append(seed.input_value())
        assert 0 <= int(drawn[-1]) < 2**32
    assert len(set(drawn)) == len(drawn)
    # the one that was drawn gives the same picture once more
    last = shown(page)
    np.testing.assert_array_equal(paint(page, "red circle", seed=int(drawn[-1])), last)
    page.reload()
    wait_for(page, "ready")
    np.testing.assert_array_equal(paint(page, "red circle", seed=int(drawn[-1])), last)
    np.testing.assert_array_equal(paint(page, "red circle", seed=0), first)


@pytest.mark.slow
def test_a_negative_prompt_changes_the_picture_only_with_guidance(page: Page) -> None:
    page.get_by_test_id("guidance").fill("4")
    without = paint(page, "red circle", steps=2)
    page.get_by_test_id("negative").fill("blue square")
    assert psnr(paint(page, "red circle"), without) < 50
    page.get_by_test_id("guidance").fill("1")
    plain = paint(page, "red circle")
    page.get_by_test_id("negative").fill("")
    np.testing.assert_array_equal(paint(page, "red circle"), plain)


@pytest.mark.slow
def test_pictures_to_begin_from(page: Page) -> None:
    file = gradient()
    made = []
    ways: dict[str, Callable[[], None]] = {
        "file": lambda: page.get_by_test_id("file").set_input_files(
            {"name": "start.png", "mimeType": "image/png", "buffer": file}
        ),
        "paste": lambda: hand_over(page, "paste", file),
        "drop": lambda: hand_over(page, "drop", file),
    }
    for give in ways.values():
        give()
        expect(page.get_by_test_id("start-picture")).to_be_visible()
        page.get_by_test_id("strength").fill("0.5")
        made.append(paint(page, "red circle", steps=4))
        page.get_by_test_id("drop-start").click()
        expect(page.get_by_test_id("start-picture")).to_have_count(0)
    np.testing.assert_array_equal(made[0], made[1])
    np.testing.assert_array_equal(made[0], made[2])
    assert psnr(paint(page, "red circle", steps=4), made[0]) < 50
    # something is being dragged over the page: said where it may go
    hand_over(page, "dragover", file)
    expect(page.get_by_text("Drop a picture to begin from")).to_be_visible()


@pytest.mark.slow
def test_stop_previews_and_time_left(page: Page) -> None:
    begin(page, "red circle", steps=50)
    expect(page.locator("#painting-label")).to_have_text(re.compile(r"^Step \d+ of 50$"))
    expect(page.locator(".strip-figures")).to_have_text(re.compile(r"^(a few seconds|\d+ s|\d+ min) left$"))
    progress = page.get_by_test_id("progress")
    assert 1 <= progress.evaluate("(bar) => bar.value") <= progress.evaluate("(bar) => bar.max") == 50
    preview = page.get_by_test_id("preview")
    seen = preview.evaluate("(canvas) => canvas.toDataURL()")
    assert preview.evaluate("(canvas) => 64 % canvas.width === 0 && canvas.width > 1")
    expect(page.locator("#painting-label")).to_have_text(re.compile(r"^Step ([5-9]|\d\d) of 50$"))
    assert preview.evaluate("(canvas) => canvas.toDataURL()") != seen
    page.keyboard.press("Escape")
    wait_for(page, "ready")
    expect(page.get_by_test_id("picture")).to_have_count(0)
    # the model is free for the next picture within a step
    paint(page, "blue circle", steps=1)
    expect_pictures(page, "blue circle")


@pytest.mark.slow
def test_hidden_while_it_paints(page: Page) -> None:
    begin(page, "red circle", steps=30)
    page.evaluate(HIDE, True)
    expect(page.get_by_test_id("picture")).to_have_count(1, timeout=TIMEOUT_MS)
    page.evaluate(HIDE, False)
    page.reload()
    wait_for(page, "ready")
    expect_pictures(page, "red circle")


@pytest.mark.slow
def test_two_tabs_at_once(context: BrowserContext, image_site: Path, served: Serve) -> None:
    address = served(image_site).address
    tabs = [open_page(context, address, SINGLE) for _ in range(2)]
    for tab, prompt in zip(tabs, ("red circle", "blue square"), strict=True):
        begin(tab, prompt, steps=10)
    for tab in tabs:
        wait_for(tab, "ready")
        expect(tab.get_by_test_id("picture")).to_have_count(2, timeout=TIMEOUT_MS)
    assert pictures(tabs[0]) == pictures(tabs[1])
    # what one deletes is gone from the other, also what it shows
    tabs[0].get_by_test_id("delete").click()
    expect(tabs[1].get_by_test_id("picture")).to_have_count(1)
    expect(tabs[0].get_by_test_id("error")).to_have_count(0)


@pytest.mark.slow
def test_ended_while_it_paints(context: BrowserContext, image_site: Path, served: Serve) -> None:
    """As by a system that is short of memory: the gallery is there, the page asks, and keeps less in memory then."""
    address = served(image_site).address
    page = open_page(context, address, SINGLE)
    paint(page, "red circle", steps=1)
    begin(page, "blue circle", steps=50)
    with pytest.raises(PlaywrightError, match=r"(?i)crash|closed"):
        page.goto("chrome://crash", timeout=20_000)
    page.close()
    page = context.new_page()
    page.goto(f"{address}/{SINGLE}")
    wait_for(page, "error")
    assert page.get_by_test_id("error").get_attribute("data-code") == "interrupted"
    expect_pictures(page, "red circle")
    page.get_by_test_id("smaller").click()
    wait_for(page, "ready")
    expect(page.get_by_test_id("note")).to_contain_text("to spare this device’s memory")
    paint(page, "blue circle", steps=1)
    # it is remembered, until the reader says otherwise
    page.reload()
    wait_for(page, "ready")
    expect(page.get_by_test_id("error")).to_have_count(0)
    page.get_by_test_id("whole").click()
    wait_for(page, "ready")
    paint(page, "cat", steps=1)
    expect_pictures(page, "cat", "blue circle", "red circle")


FILL_GALLERY = """async (count) => {
  const open = indexedDB.open("tinyweb-image:/", 1);
  const database = await new Promise((done) => (open.onsuccess = () => done(open.result)));
  const get = (store) => new Promise((done) => {
    const request = database.transaction(store).objectStore(store).getAll();
    request.onsuccess = () => done(request.result);
  });
  const [[one], [file]] = [await get("pictures"), await get("files")];
  // what can be compressed would not fill anything
  const noise = (bytes) => {
    for (let i = 0; i < bytes.length; i += 65536) crypto.getRandomValues(bytes.subarray(i, i + 65536));
  };
  const change = database.transaction(["pictures", "files"], "readwrite");
  for (let i = 0; i < count; i++) {
    const big = new Uint8Array(file.length + 400_000);
    big.set(file);
    noise(big.subarray(file.length));
    const recipe = { ...one.recipe, prompt: `number ${i}`, seed: i };
    change.objectStore("pictures").put({ ...one, id: `made-${i}`, createdAt: 1000 + i, recipe });
    change.objectStore("files").put(big, `made-${i}`);
  }
  await new Promise((done) => (change.oncomplete = done));
  database.close();
}"""


@pytest.mark.slow
def test_a_gallery_of_200(page: Page) -> None:
    paint(page, "red circle", steps=1)
    page.evaluate(FILL_GALLERY, 199)
    page.reload()
    expect(page.get_by_test_id("picture")).to_have_count(48)
    wait_for(page, "ready")
    # the list holds figures and thumbnails alone, not the 80 MB of files
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    used = session.send("Runtime.getHeapUsage")
    assert used["usedSize"] + used.get("backingStorageSize", 0) < 40e6
    for number in (96, 144, 192, 200):
        page.get_by_test_id("more").click()
        expect(page.get_by_test_id("picture")).to_have_count(number)
    expect(page.get_by_test_id("more")).to_have_count(0)
    page.get_by_test_id("picture").last.click()
    expect(page.get_by_test_id("image")).to_have_attribute("alt", "number 0")
    page.get_by_test_id("delete").click()
    expect(page.get_by_test_id("picture")).to_have_count(199)
    page.get_by_test_id("undo").click()
    expect(page.get_by_test_id("picture")).to_have_count(200)
    paint(page, "blue circle", steps=1)
    expect(page.get_by_test_id("picture").first).to_have_attribute("title", "blue circle")
    page.get_by_test_id("settings").click()
    page.get_by_test_id("delete-all").click()
    page.get_by_test_id("delete-all").click()  # it asks back
    page.get_by_test_id("close-settings").click()
    expect(page.get_by_test_id("picture")).to_have_count(0)
    page.reload()
    wait_for(page, "ready")
    expect(page.get_by_test_id("picture")).to_have_count(0)


# Until not even a small picture fits.
FILL_STORAGE = """async () => {
  const open = indexedDB.open("tinyweb-image:/", 1);
  const database = await new Promise((done) => (open.onsuccess = () => done(open.result)));
  const put = (bytes, key) => new Promise((done) => {
    for (let i = 0; i < bytes.length; i += 65536) crypto.getRandomValues(bytes.subarray(i, i + 65536));
    const change = database.transaction("files", "readwrite");
    change.objectStore("files").put(bytes, key);
    change.oncomplete = () => done(true);
    change.onabort = () => done(false);
  });
  for (const size of [1_000_000, 100_000, 10_000, 1000]) {
    for (let i = 0; await put(new Uint8Array(size), `fill-${size}-${i}`); i++) if (i > 100) throw new Error("no end");
  }
  database.close();
}"""


@pytest.mark.slow
def test_no_room_for_a_picture(context: BrowserContext, image_site: Path, served: Serve) -> None:
    """The browser's storage is full while a picture is kept: it stays until the page is closed, or there is room."""
    address = served(image_site).address
    page = context.new_page()
    limit_storage(page, address, 30_000_000)
    page.goto(f"{address}/{SINGLE}")
    wait_for(page, "ready")
    first = paint(page, "red circle", steps=1)
    expect(page.get_by_test_id("picture")).to_have_count(1)
    page.evaluate(FILL_STORAGE)
    made = [paint(page, prompt, steps=1) for prompt in ("blue circle", "blue square")]
    expect(page.get_by_text("storage is full")).to_be_visible()
    expect_pictures(page, "blue square", "blue circle", "red circle")
    page.get_by_test_id("picture").nth(1).click()
    expect(page.get_by_test_id("image")).to_have_attribute("alt", "blue circle")
    np.testing.assert_array_equal(shown(page), made[0])
    # there is room again, which the page finds with the next change
    limit_storage(page, address, None)
    page.get_by_test_id("picture").last.click()
    expect(page.get_by_test_id("image")).to_have_attribute("alt", "red circle")
    np.testing.assert_array_equal(shown(page), first)
    page.get_by_test_id("delete").click()
    expect(page.get_by_text("storage is full")).to_have_count(0)
    page.reload()
    wait_for(page, "ready")
    expect_pictures(page, "blue square", "blue circle")
    np.testing.assert_array_equal(shown(page), made[1])


def run_in_a_plain_page(context: BrowserContext, served: Serve, site: Path, folder: Path, body: str) -> Any:
    """What a program returns in a page that is not tinyweb's, with the library and the model beside it."""
    shutil.copytree(site / "model", folder / "model")
    shutil.copytree(BUILT / "library", folder / "lib")
    (folder / "index.html").write_text(
        f'<!doctype html><meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<script type="module" src="main.js"></script>'
    )
    (folder / "main.js").write_text(f"""
import {{ loadImageGenerator }} from "./lib/tinyweb-image.js";
import {{ OpenAI }} from "./lib/tinyweb-openai.js";
const fails = (promise) => promise.then(() => "no error", (error) => `${{error.code}}: ${{error.message}}`);
const pixels = (bitmap) => {{
  const context = new OffscreenCanvas(bitmap.width, bitmap.height).getContext("2d");
  context.drawImage(bitmap, 0, 0);
  return [...context.getImageData(0, 0, bitmap.width, bitmap.height).data];
}};
globalThis.result = (async () => {{
  const model = await loadImageGenerator("./model/", {{ backend: "wasm-single" }});
  try {{ {body} }} finally {{ await model.dispose(); }}
}})();
""")
    page = context.new_page()
    page.goto(served(folder).address)
    page.wait_for_function("() => globalThis.result")
    return page.evaluate("result")


def test_text_to_image_in_a_plain_page(
    context: BrowserContext, image_site: Path, served: Serve, tmp_path: Path
) -> None:
    body = """
    const steps = [];
    const options = { negativePrompt: "blue", steps: 3, guidance: 2, seed: 5, width: 64, height: 64 };
    const onStep = ({ step, steps: all, preview, secondsLeft }) =>
      steps.push([step, all, preview.width, secondsLeft >= 0]);
    const bitmap = await model.textToImage("red circle", { ...options, onStep });
    const again = await model.textToImage("red circle", options);
    const stop = new AbortController();
    let after = 0;
    const stopping = { steps: 40, signal: stop.signal, onStep: () => (after++, stop.abort()) };
    const stopped = await fails(model.textToImage("cat", stopping));
    const wrong = {};
    for (const [name, value] of Object.entries({
      steps: 0, guidance: "much", seed: -1, width: 65, height: 1e9, scheduler: "none", strength: 2,
      negativePrompt: 7, latents: [1], image: "x.png",
    })) wrong[name] = await fails(model.textToImage("cat", { steps: 1, [name]: value }));
    wrong.prompt = await fails(model.textToImage(undefined));
    wrong.huge = await fails(model.textToImage("cat", { seed: 2 ** 53 }));
    wrong.infinite = await fails(model.textToImage("cat", { steps: Infinity }));
    const last = await model.textToImage("cat", { steps: 1, seed: 2 ** 53 - 1 });
    return {
      kind: bitmap.constructor.name, size: [bitmap.width, bitmap.height], pixels: pixels(bitmap), again: pixels(again),
      steps, stopped, after, wrong, last: last.width,
    };
    """
    told = run_in_a_plain_page(context, served, image_site, tmp_path, body)
    assert (told["kind"], told["size"], told["last"]) == ("ImageBitmap", [64, 64], 64)
    assert told["pixels"] == told["again"] and len(set(told["pixels"])) > 8
    assert [step[:2] for step in told["steps"]] == [[1, 3], [2, 3], [3, 3]]
    assert all(left and width >= 8 for _, _, width, left in told["steps"])
    assert told["stopped"].startswith("aborted") and told["after"] == 1
    for name, message in told["wrong"].items():
        assert message.startswith("bad-argument: "), (name, message)
    for name in ("steps", "guidance", "seed", "scheduler", "strength", "negativePrompt", "latents"):
        assert name in told["wrong"][name]
    assert "64 × 64" in told["wrong"]["width"] and "64 × 64" in told["wrong"]["height"]


@pytest.mark.slow
def test_images_generate_in_the_shape_of_openai(
    context: BrowserContext, image_site: Path, served: Serve, tmp_path: Path
) -> None:
    body = """
    const { images } = new OpenAI({ image: model });
    const { created, data } = await images.generate({ prompt: "red circle", seed: 5, size: "64x64" });
    const byUrl = await images.generate({ prompt: "red circle", seed: 5, response_format: "url" });
    const image = Object.assign(new Image(), { src: byUrl.data[0].url });
    await image.decode();
    const straight = await model.textToImage("red circle", { seed: 5 });
    const wrong = {};
    for (const [name, value] of Object.entries({
      n: 2, size: "63x63", response_format: "gif", quality: "hd", model: "dall-e-3", seed: 1.5,
    })) wrong[name] = await fails(images.generate({ prompt: "cat", [name]: value }));
    wrong.prompt = await fails(images.generate({}));
    wrong.negative = await fails(images.generate({ prompt: "cat", seed: -3 }));
    const [{ b64_json: png }] = data;
    return { created, png, keys: Object.keys(data[0]), url: pixels(image), straight: pixels(straight), wrong };
    """
    told = run_in_a_plain_page(context, served, image_site, tmp_path, body)
    assert told["created"] > 1.6e9 and told["keys"] == ["b64_json"]
    image = Image.open(io.BytesIO(base64.b64decode(told["png"])))
    assert image.format == "PNG"
    assert np.asarray(image.convert("RGBA")).ravel().tolist() == told["straight"] == told["url"]
    for name, message in told["wrong"].items():
        assert message.startswith("bad-argument: "), (name, message)

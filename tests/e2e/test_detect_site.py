"""The exported detector page in headless Chromium: what it finds in held-out pictures, the camera, its API."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.control.browsers import launch
from tests.e2e.conftest import Served
from tests.e2e.pages import DESKTOP, DETECT, PHONE, TIMEOUT_MS, ExportedPage, wait_for

Serve = Callable[..., Served]
Exported = Callable[[ExportedPage], Path]
IMAGES = Path(__file__).resolve().parents[2] / "assets" / "models" / "tinyyolo" / "test_images"
TRUTH: dict[str, Any] = json.loads((IMAGES / "ground_truth.json").read_text())["images"]
DEVICES = {"desktop": DESKTOP, "phone": PHONE}


def visit(context: BrowserContext, address: str, query: str) -> Page:
    page = context.new_page()
    page.set_default_timeout(TIMEOUT_MS)
    page.goto(f"{address}/{query}")
    wait_for(page, "ready")
    return page


def boxes(page: Page) -> list[dict[str, Any]]:
    """What the page has found, when it has looked."""
    found = page.get_by_test_id("boxes")
    expect(found).not_to_be_empty(timeout=TIMEOUT_MS)
    return json.loads(found.text_content() or "")  # type: ignore[no-any-return]


def search(page: Page, file: Path | dict[str, Any]) -> list[dict[str, Any]]:
    if page.get_by_test_id("close").count():
        page.get_by_test_id("close").click()
    expect(page.get_by_test_id("boxes")).to_be_empty()
    page.get_by_test_id("file").set_input_files(file)
    return boxes(page)


def overlap(a: list[float], b: list[float]) -> float:
    low, high = np.maximum(a[:2], b[:2]), np.minimum(a[2:], b[2:])
    shared = np.maximum(high - low, 0).prod()
    return float(shared / (np.subtract(a[2:], a[:2]).prod() + np.subtract(b[2:], b[:2]).prod() - shared))


def judge(found: list[dict[str, Any]], objects: list[dict[str, Any]]) -> int:
    """How many objects were found; AssertionError where something else was seen with confidence."""
    hits = [[o for o in objects if o["class"] == f["label"] and overlap(f["box"], o["box"]) > 0.5] for f in found]
    wrong = [f for f, hit in zip(found, hits, strict=True) if not hit and f["score"] > 0.5]
    assert wrong == []
    return sum(any(o in hit for hit in hits) for o in objects)


@pytest.mark.parametrize(
    ("backend", "device"),
    [
        ("wasm", "desktop"),
        pytest.param("wasm", "phone", marks=pytest.mark.slow),
        pytest.param("webgpu", "desktop", marks=pytest.mark.slow),
        pytest.param("webgpu", "phone", marks=pytest.mark.slow),
    ],
)
def test_held_out_pictures(
    chromium: Browser, exported_page: Exported, served: Serve, backend: str, device: str
) -> None:
    """At least nine of ten labelled objects, at an overlap of a half, and no wrong class above 0.5."""
    with chromium.new_context(**DEVICES[device]) as context:
        page = visit(context, served(exported_page(DETECT)).address, f"?backend={backend}")
        assert page.get_by_test_id("backend").get_attribute("data-backend") == backend
        found = total = 0
        for name, known in TRUTH.items():
            found += judge(search(page, IMAGES / name), known["objects"])
            total += len(known["objects"])
        assert found >= 0.9 * total


@pytest.mark.slow
def test_settings_and_files(chromium: Browser, exported_page: Exported, served: Serve) -> None:
    """Fewer boxes with more confidence; hidden classes; what is no picture is told; the snapshot has the picture's
    size."""
    with chromium.new_context(**DEVICES["desktop"], accept_downloads=True) as context:
        page = visit(context, served(exported_page(DETECT)).address, "?backend=wasm")
        before = search(page, IMAGES / "clean_card.png")
        assert {f["label"] for f in before} == {"3", "7", "A", "K", "heart", "star"}
        page.get_by_text("Look for").click()
        page.get_by_role("button", name="heart", exact=True).click()
        assert {f["label"] for f in boxes(page)} == {"3", "7", "A", "K", "star"}
        page.get_by_test_id("confidence").fill("0.95")
        fewer = [f for f in before if f["score"] > 0.95]
        expect(page.get_by_test_id("result")).to_contain_text(f"{len(fewer)} found", timeout=TIMEOUT_MS)
        with page.expect_download() as download:
            page.get_by_test_id("snapshot").click()
        assert Image.open(download.value.path()).size == (320, 320)
        page.get_by_test_id("file").set_input_files({"name": "x.png", "mimeType": "image/png", "buffer": b"no picture"})
        expect(page.get_by_test_id("error")).to_contain_text("x.png is no picture or video", timeout=TIMEOUT_MS)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["wasm", "webgpu"])
def test_the_api(chromium: Browser, exported_page: Exported, served: Serve, backend: str) -> None:
    """`detect` takes pictures of every kind, in whose pixels the boxes are, and one call after another."""
    with chromium.new_context() as context:
        page = context.new_page()
        page.set_default_timeout(TIMEOUT_MS)
        site = served(exported_page(DETECT))
        page.goto(f"{site.address}/icon.svg")  # a page of the same origin that runs nothing
        data = (IMAGES / "phone_and_card.jpg").read_bytes()
        found = page.evaluate(
            """async ([bytes, backend, base]) => {
                const { load } = await import(`${base}/model/model.js`);
                const detector = await load({ backend, allowSoftwareGpu: true });
                const blob = new Blob([new Uint8Array(bytes)], { type: "image/jpeg" });
                const bitmap = await createImageBitmap(blob);
                const large = new OffscreenCanvas(2 * bitmap.width, 2 * bitmap.height);
                large.getContext("2d").drawImage(bitmap, 0, 0, large.width, large.height);
                const canvas = new OffscreenCanvas(bitmap.width, bitmap.height).getContext("2d");
                canvas.drawImage(bitmap, 0, 0);
                const pixels = canvas.getImageData(0, 0, bitmap.width, bitmap.height);
                const frame = new VideoFrame(bitmap, { timestamp: 0 });
                const given = { blob, bitmap, large, pixels, frame };
                const settings = { confidence: 0.5, iou: 0.5 };
                const all = await Promise.all(Object.values(given).map((image) => detector.detect(image, settings)));
                const stop = new AbortController();
                const late = detector.detect(bitmap, { signal: stop.signal });
                stop.abort();
                const aborted = await late.catch((error) => error.code);
                const wrong = await detector.detect(bitmap, { iou: 7 }).catch((error) => error.code);
                const info = detector.info;
                await detector.dispose();
                const named = Object.fromEntries(Object.keys(given).map((name, i) => [name, all[i]]));
                return { named, aborted, wrong, backend: info.backend, labels: info.labels.length };
            }""",
            [list(data), backend, site.address],
        )
        assert found["aborted"] == "aborted" and found["wrong"] == "bad-argument"
        assert (found["backend"], found["labels"]) == (backend, 40)
        objects = TRUTH["phone_and_card.jpg"]["objects"]
        for name, seen in found["named"].items():
            scale = 2 if name == "large" else 1
            at = [{**s, "box": [v / scale for v in s["box"]]} for s in seen]
            assert judge(at, objects) == len(objects), name


def as_video(file: Path, to: Path) -> Path:
    """A picture as a short uncompressed video (YUV4MPEG2, 4:2:0), which Chromium takes for a camera."""
    y, u, v = Image.open(file).convert("YCbCr").resize((640, 480)).split()
    half = [plane.resize((320, 240)) for plane in (u, v)]
    frame = b"FRAME\n" + b"".join(plane.tobytes() for plane in (y, *half))
    to.write_bytes(b"YUV4MPEG2 W640 H480 F15:1 Ip A1:1 C420jpeg\n" + frame * 3)
    return to


@pytest.fixture(scope="module")
def cameras(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Browser]]:
    """Chromium with a camera that shows a picture, by its name."""
    open_: list[Browser] = []

    def start(name: str) -> Browser:
        video = as_video(IMAGES / name, tmp_path_factory.mktemp("camera") / "camera.y4m")
        flags = ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]
        flags.append(f"--use-file-for-fake-video-capture={video}")
        made = launch(chromium.browser_type, *flags)
        open_.append(made)
        return made

    yield start
    for made in open_:
        made.close()


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["wasm", "webgpu"])
def test_camera(cameras: Callable[[str], Browser], exported_page: Exported, served: Serve, backend: str) -> None:
    """What a person holds in front of the camera, look after look; the camera goes off when it is stopped."""
    name = "held_paper.jpg"  # 640 × 480, as the camera gives it
    with cameras(name).new_context(permissions=["camera"]) as context:
        page = visit(context, served(exported_page(DETECT)).address, f"?backend={backend}")
        page.get_by_test_id("camera").click()
        wait_for(page, "generating")  # it watches
        objects = TRUTH[name]["objects"]
        assert judge(boxes(page), objects) == len(objects)
        expect(page.get_by_test_id("fps")).to_contain_text("fps", timeout=TIMEOUT_MS)  # it has looked again
        page.get_by_test_id("pause").click()
        expect(page.get_by_test_id("status")).to_have_text("Ready", timeout=TIMEOUT_MS)
        assert judge(boxes(page), objects) == len(objects)
        page.get_by_test_id("camera").click()
        wait_for(page, "ready")
        expect(page.get_by_test_id("screen")).to_have_count(0)


@pytest.mark.slow
def test_a_refused_camera(chromium: Browser, exported_page: Exported, served: Serve) -> None:
    with chromium.new_context() as context:
        page = visit(context, served(exported_page(DETECT)).address, "?backend=wasm")
        page.get_by_test_id("camera").click()
        error = page.get_by_test_id("error")
        expect(error).to_contain_text("camera", timeout=TIMEOUT_MS)
        assert error.get_attribute("data-code") in ("camera-refused", "no-camera")
        page.get_by_test_id("close-error").click()
        expect(error).to_have_count(0)

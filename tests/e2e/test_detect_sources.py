"""What the exported detector page takes: odd pictures, videos, cameras that are switched, missing or refused."""

import base64
import io
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, expect

from tests.control.browsers import launch
from tests.e2e.conftest import Served
from tests.e2e.pages import DETECT, TIMEOUT_MS, ExportedPage, until, wait_for
from tests.e2e.test_detect_site import DEVICES, IMAGES, TRUTH, boxes, judge, search, visit

Serve = Callable[..., Served]
Exported = Callable[[ExportedPage], Path]
Given = dict[str, Any]  # a file as Playwright takes it
CARD = {"3", "7", "A", "K", "heart", "star"}  # on clean_card.png
GIVE = """([name, type, bytes, way]) => {
    const data = new DataTransfer();
    data.items.add(new File([Uint8Array.from(atob(bytes), (c) => c.charCodeAt(0))], name, { type }));
    const options = { bubbles: true, cancelable: true };
    const event = way === "drop" ? new DragEvent("drop", { ...options, dataTransfer: data })
                                 : new ClipboardEvent("paste", { ...options, clipboardData: data });
    document.body.dispatchEvent(event);
}"""
# Pictures that were sent to the worker and are not answered yet. An answer is seen before the page sees it, which may
# send the next picture at once.
COUNT_FLYING = """
globalThis.flying = 0, globalThis.most = 0, globalThis.sent = 0;
const waiting = new Set();
globalThis.Worker = class extends Worker {
    constructor(...given) {
        super(...given);
        this.addEventListener("message", ({ data }) => {
            if (data?.type === "end") waiting.delete(data.id);
            flying = waiting.size;
        });
    }
    postMessage(message, transfer) {
        if (Array.isArray(transfer) && transfer.some((given) => given instanceof ImageBitmap)) {
            sent++;
            waiting.add(message.id);
            flying = waiting.size;
            most = Math.max(most, flying);
        }
        return super.postMessage(message, transfer);
    }
};
"""
# A second of each picture, as a WebM.
RECORD = """async (pictures) => {
    const canvas = document.createElement("canvas");
    Object.assign(canvas, { width: 320, height: 320 });
    const context = canvas.getContext("2d");
    const kind = { mimeType: "video/webm;codecs=vp8", videoBitsPerSecond: 4e6 };
    const recorder = new MediaRecorder(canvas.captureStream(10), kind);
    const parts = [];
    recorder.ondataavailable = ({ data }) => parts.push(data);
    const stopped = new Promise((resolve) => (recorder.onstop = resolve));
    const images = await Promise.all(pictures.map(async (picture) => {
        const image = new Image();
        image.src = `data:image/png;base64,${picture}`;
        await image.decode();
        return image;
    }));
    for (const [i, image] of images.entries()) {
        for (let frame = 0; frame < 20; frame++) {
            context.drawImage(image, 0, 0, 320, 320);
            context.fillRect(frame, 319, 1, 1); // a frame that changes nothing is not recorded
            if (i === 0 && frame === 0) recorder.start();
            await new Promise((resolve) => setTimeout(resolve, 80));
        }
    }
    recorder.stop();
    await stopped;
    const bytes = new Uint8Array(await new Blob(parts).arrayBuffer());
    return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
}"""


@pytest.fixture
def page(chromium: Browser, exported_page: Exported, served: Serve) -> Iterator[Page]:
    with chromium.new_context(**DEVICES["desktop"]) as context:
        context.add_init_script(COUNT_FLYING)
        made = visit(context, served(exported_page(DETECT)).address, "?backend=wasm")
        made.on("pageerror", lambda error: pytest.fail(str(error)))
        yield made


def as_file(name: str, image: Image.Image, **options: Any) -> Given:
    kind = name.rsplit(".", 1)[-1].replace("jpg", "jpeg")
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return {"name": name, "mimeType": f"image/{kind}", "buffer": buffer.getvalue()}


def labels(page: Page) -> set[str]:
    return {found["label"] for found in boxes(page)}


def shown(page: Page) -> npt.NDArray[np.uint8]:
    """The picture as the page shows it, below its boxes."""
    page.locator(".screen > canvas:not(.picture)").evaluate("(canvas) => (canvas.style.visibility = 'hidden')")
    content = page.locator(".picture").screenshot()
    return np.asarray(Image.open(io.BytesIO(content)).convert("L"))


def refused(page: Page, given: Given) -> str:
    """What the page says of a file that it cannot show."""
    page.get_by_test_id("file").set_input_files(given)
    error = page.get_by_test_id("error")
    expect(error).to_contain_text(given["name"], timeout=TIMEOUT_MS)
    assert error.get_attribute("data-code") == "bad-file"
    text = error.inner_text()
    page.get_by_test_id("close-error").click()
    return text


def test_odd_pictures(page: Page) -> None:
    """Boxes in pixels of the picture as it is shown: turned by EXIF, tiny, very wide, transparent, animated."""
    upright = Image.open(IMAGES / "phone_and_card.jpg")
    exif = upright.getexif()
    exif[0x0112] = 6  # to be shown turned to the right
    turned = as_file("turned.jpg", upright.rotate(90, expand=True), exif=exif, quality=95)
    objects = TRUTH["phone_and_card.jpg"]["objects"]
    assert judge(search(page, turned), objects) == len(objects)
    for size in ((1, 1), (8000, 50), (30, 4000)):
        for found in search(page, as_file("odd.png", Image.new("RGB", size, (200, 30, 30)))):
            x1, y1, x2, y2 = found["box"]
            assert 0 <= x1 <= x2 <= size[0] and 0 <= y1 <= y2 <= size[1], (size, found)
    card = Image.open(IMAGES / "clean_card.png").convert("RGB")
    # what is printed, cut out: seen in front of white, as it is shown
    grey = card.convert("L")
    cut = card.copy()
    cut.putalpha(grey.point(lambda v: 0 if v > 200 else 255))
    assert {f["label"] for f in search(page, as_file("cut.png", cut))} == CARD
    blank = Image.new("RGB", card.size, "white")
    for name in ("moves.gif", "moves.webp"):
        animation = as_file(name, card, save_all=True, append_images=[blank] * 3, duration=60, loop=0)
        assert {f["label"] for f in search(page, animation)} == CARD, name
        page.wait_for_timeout(150)  # in which it would have moved
        assert shown(page).std() > 20, name  # not the white ones
    still = as_file("still.webp", card, quality=90)
    assert {f["label"] for f in search(page, still)} == CARD


def test_files_that_are_no_pictures(page: Page) -> None:
    """Each is told, and what was shown before stays; also where it was dropped."""
    found = search(page, IMAGES / "clean_card.png")
    whole = (IMAGES / "clean_card.png").read_bytes()
    noise = random.Random(1).randbytes(3000)
    for name, kind, content in (
        ("text.png", "image/png", b"these are words\n" * 20), ("empty.jpg", "image/jpeg", b""),
        ("noise.jpg", "image/jpeg", noise), ("head.png", "image/png", whole[:20]), ("noise.webm", "video/webm", noise),
        ("letter.txt", "text/plain", b"Dear Sir"), ("noise", "", noise),
    ):  # fmt: skip
        assert "this browser can" in refused(page, {"name": name, "mimeType": kind, "buffer": content})
        assert boxes(page) == found
    page.evaluate(GIVE, ["dropped.txt", "text/plain", base64.b64encode(b"words").decode(), "drop"])
    expect(page.get_by_test_id("error")).to_contain_text("dropped.txt is no picture or video")


def test_dropped_and_pasted_pictures(page: Page) -> None:
    content = base64.b64encode((IMAGES / "clean_card.png").read_bytes()).decode()
    for way in ("drop", "paste"):
        expect(page.get_by_test_id("boxes")).to_be_empty()
        page.evaluate(GIVE, ["given.png", "image/png", content, way])
        assert labels(page) == CARD
        page.keyboard.press("Escape")
    # classes, and what moves the sliders by keyboard
    page.evaluate(GIVE, ["given.png", "image/png", content, "drop"])
    assert labels(page) == CARD
    page.get_by_text("Look for").click()
    page.get_by_test_id("no-classes").click()
    expect(page.get_by_test_id("result")).to_have_text("Nothing found")
    page.get_by_test_id("search-classes").fill("heart")
    page.get_by_role("button", name="heart", exact=True).click()
    assert labels(page) == {"heart"}
    page.get_by_test_id("all-classes").click()
    fewer = [found for found in boxes(page) if found["score"] > 0.95]
    page.get_by_test_id("confidence").focus()
    page.keyboard.press("End")
    expect(page.get_by_test_id("result")).to_contain_text(f"{len(fewer)} found" if fewer else "Nothing found")


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["wasm", "webgpu"])
def test_a_video(chromium: Browser, exported_page: Exported, served: Serve, backend: str) -> None:
    """Boxes follow what is shown; paused, they stay; never more than one frame is on its way."""
    pictures = [IMAGES / "clean_card.png", IMAGES / "five_cards.jpg"]
    others = {o["class"] for o in TRUTH[pictures[1].name]["objects"]}
    assert CARD - others and others - CARD
    with chromium.new_context(**DEVICES["desktop"]) as context:
        context.add_init_script(COUNT_FLYING)
        page = visit(context, served(exported_page(DETECT)).address, f"?backend={backend}")
        film = page.evaluate(RECORD, [base64.b64encode(file.read_bytes()).decode() for file in pictures])
        given = {"name": "film.webm", "mimeType": "video/webm", "buffer": base64.b64decode(film)}
        page.get_by_test_id("file").set_input_files(given)
        wait_for(page, "generating")
        seen: set[str] = set()
        deadline = time.monotonic() + TIMEOUT_MS / 1000
        while time.monotonic() < deadline:
            seen |= labels(page)
            if seen & (CARD - others) and seen & (others - CARD):
                break
            page.wait_for_timeout(100)
        assert seen & (CARD - others) and seen & (others - CARD), seen
        page.get_by_test_id("pause").click()
        expect(page.get_by_test_id("status")).to_have_text("Ready", timeout=TIMEOUT_MS)
        until(page, "flying === 0")
        still, sent = boxes(page), page.evaluate("sent")
        page.wait_for_timeout(500)
        assert boxes(page) == still and page.evaluate("sent") == sent
        page.get_by_test_id("pause").click()
        until(page, "(before) => sent > before + 1", sent)
        assert page.evaluate("most") == 1
        page.get_by_test_id("close").click()
        wait_for(page, "ready")
        # a name without an ending that tells what it is
        page.get_by_test_id("file").set_input_files({**given, "name": "film", "mimeType": ""})
        expect(page.get_by_test_id("screen")).to_have_attribute("data-kind", "video", timeout=TIMEOUT_MS)


@pytest.fixture
def with_cameras(chromium: Browser) -> Iterator[Callable[..., Browser]]:
    made: list[Browser] = []

    def start(*flags: str) -> Browser:
        made.append(launch(chromium.browser_type, *flags))
        return made[-1]

    yield start
    for browser in made:
        browser.close()


@pytest.mark.slow
def test_the_other_camera(
    with_cameras: Callable[..., Browser], exported_page: Exported, served: Serve, tmp_path: Path
) -> None:
    """Of two cameras each is watched in turn; the one before is let go."""
    browser = with_cameras("--use-fake-device-for-media-stream=device-count=2", "--use-fake-ui-for-media-stream")
    with browser.new_context(permissions=["camera"], **DEVICES["phone"]) as context:
        page = visit(context, served(exported_page(DETECT)).address, "?backend=wasm")
        page.get_by_test_id("camera").click()
        watched = []
        for _ in range(3):
            wait_for(page, "generating")
            boxes(page)
            watched.append(page.locator("video").evaluate("(video) => video.srcObject.getVideoTracks()[0].label"))
            page.evaluate("globalThis.before = document.querySelector('video').srcObject.getVideoTracks()[0]")
            page.get_by_test_id("flip").click()
            until(page, "before.readyState === 'ended'")
            until(
                page, "document.querySelector('video')?.srcObject?.getVideoTracks().some((track) => track !== before)"
            )
        assert watched[0] == watched[2] != watched[1]


@pytest.mark.slow
@pytest.mark.parametrize(("flags", "permissions", "code", "text"), [
    (("--use-fake-device-for-media-stream",), [], "camera-refused", "The camera may not be used"),
    ((), ["camera"], "no-camera", "There is no camera here"),
])  # fmt: skip
def test_no_camera_and_a_refused_one(
    with_cameras: Callable[..., Browser], exported_page: Exported, served: Serve,
    flags: tuple[str, ...], permissions: list[str], code: str, text: str,
) -> None:  # fmt: skip
    with with_cameras(*flags).new_context(permissions=permissions) as context:
        page = visit(context, served(exported_page(DETECT)).address, "?backend=wasm")
        page.get_by_test_id("camera").click()
        error = page.get_by_test_id("error")
        expect(error).to_contain_text(text, timeout=TIMEOUT_MS)
        assert error.get_attribute("data-code") == code
        page.get_by_test_id("file").set_input_files(IMAGES / "clean_card.png")  # the page goes on
        assert labels(page) == CARD
        expect(error).to_have_count(0)

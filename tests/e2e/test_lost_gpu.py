"""A GPU that is lost while the detector or the search page works: it is told, nothing is lost, and the work goes on."""

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.control.browsers import launch
from tests.e2e.conftest import Served
from tests.e2e.pages import DETECT, EMBED, LOSE, TIMEOUT_MS, ExportedPage, find, open_page, until, wait_for
from tests.e2e.test_detect_site import IMAGES, TRUTH, as_video, boxes, judge
from tests.e2e.test_detect_sources import COUNT_FLYING
from tests.e2e.test_search_site import QUERIES, TEXT

Exported = Callable[[ExportedPage], Path]
Serve = Callable[..., Served]
CARD = {"3", "7", "A", "K", "heart", "star"}  # on clean_card.png
CAMERA = "held_paper.jpg"
# The browser gives no GPU any more, as after it has crashed several times.
NO_GPU = 'Object.defineProperty(navigator, "gpu", { value: { requestAdapter: async () => null } });\n'
FRAMES = "document.querySelector('video').getVideoPlaybackQuality().totalVideoFrames"
# Canvases on the GPU, as where there is a real one.
GPU_CANVASES = ("--ignore-gpu-blocklist", "--enable-gpu-rasterization", "--use-gl=angle", "--use-angle=swiftshader")


@pytest.fixture
def context(chromium: Browser, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[BrowserContext]:
    """In a Chromium with a camera, and the flags that the test's parameter names; a loss is no other test's."""
    video = as_video(IMAGES / CAMERA, tmp_path / "camera.y4m")
    flags = ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]
    flags += [f"--use-file-for-fake-video-capture={video}", *getattr(request, "param", ())]
    own = launch(chromium.browser_type, *flags)
    # The page's own worker would find that the changed files are none of the export.
    context = own.new_context(service_workers="block", permissions=["camera"])
    context.set_default_timeout(TIMEOUT_MS)
    yield context
    own.close()


@pytest.fixture
def own_site(exported_page: Exported, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A copy of the site whose page is the test's parameter, with a worker that loses its GPU when it is told."""
    site = shutil.copytree(exported_page(request.param), tmp_path / "site")
    worker = site / "assets/tinyweb-worker.js"
    worker.write_text(LOSE + worker.read_text())
    return Path(site)


def lose(page: Page, when: str) -> None:
    page.evaluate("(when) => new BroadcastChannel('lose').postMessage(when)", when)


def labels(page: Page) -> set[str]:
    return {found["label"] for found in boxes(page)}


def back(page: Page) -> None:
    expect(page.get_by_test_id("note").first).to_contain_text("The model is back", timeout=TIMEOUT_MS)
    expect(page.get_by_test_id("error")).to_have_count(0)


@pytest.mark.parametrize("own_site", [DETECT], indirect=True, ids=[""])
def test_detector(context: BrowserContext, own_site: Path, served: Serve) -> None:
    """In the middle of a picture, then, for good, before a running camera."""
    site = served(own_site)
    context.add_init_script(COUNT_FLYING)
    page = open_page(context, site.address, "?backend=webgpu")
    page.get_by_test_id("confidence").fill("0.6")
    lose(page, "next")
    page.get_by_test_id("file").set_input_files(IMAGES / "clean_card.png")
    expect(page.get_by_test_id("note")).to_contain_text("The GPU was lost", timeout=TIMEOUT_MS)
    assert labels(page) == CARD
    back(page)
    assert page.get_by_test_id("confidence").input_value() == "0.6"
    assert page.get_by_test_id("backend").get_attribute("data-backend") == "webgpu"

    page.get_by_test_id("close").click()
    page.get_by_test_id("camera").click()
    objects = TRUTH[CAMERA]["objects"]
    assert judge(boxes(page), objects) == len(objects)
    worker = own_site / "assets/tinyweb-worker.js"
    worker.write_text(NO_GPU + worker.read_text())
    lose(page, "now")
    error = page.get_by_test_id("error")
    expect(error).to_contain_text("The GPU cannot be used", timeout=TIMEOUT_MS)
    expect(error).to_contain_text("Your picture is kept")
    # it stays at that, and does not load the model with every frame of the camera, which goes on
    started = site.count("/tinyweb-worker.js")
    frames = page.evaluate(FRAMES)
    until(page, f"(frames) => {FRAMES} > frames + 20", frames)
    expect(error).to_be_visible()
    assert site.count("/tinyweb-worker.js") == started
    page.get_by_test_id("use-wasm").click()
    wait_for(page, "generating")
    assert page.get_by_test_id("backend").get_attribute("data-backend") == "wasm"
    until(page, "(looks) => sent > looks + 2", page.evaluate("sent"))
    assert judge(boxes(page), objects) == len(objects)
    expect(error).to_have_count(0)


@pytest.mark.slow
@pytest.mark.parametrize("context", [GPU_CANVASES], indirect=True, ids=[""])
def test_a_picture_that_is_lost_with_the_gpu(context: BrowserContext, exported_page: Exported, served: Serve) -> None:
    """The GPU's process ends, and with it what the page has drawn for the network: that is no empty picture."""
    page = open_page(context, served(exported_page(DETECT)).address, "?backend=webgpu")
    page.get_by_test_id("file").set_input_files(IMAGES / "clean_card.png")
    wait_for(page, "generating")
    assert context.browser is not None
    processes = context.browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")["processInfo"]
    os.kill(next(process["id"] for process in processes if process["type"] == "GPU"), signal.SIGKILL)
    back(page)
    assert labels(page) == CARD


@pytest.mark.slow
@pytest.mark.parametrize("own_site", [EMBED], indirect=True, ids=[""])
def test_search(context: BrowserContext, own_site: Path, served: Serve) -> None:
    """In the middle of reading, and soon after under reading and a search at once."""
    site = served(own_site)
    page = context.new_page()
    page.goto(f"{site.address}/?backend=webgpu")
    documents = page.get_by_test_id("documents")
    documents.get_by_text(" of ").wait_for()  # it reads the example
    lose(page, "next")
    back(page)
    assert "carbon dioxide" in find(page, "how do plants make their food")[0]
    passages = documents.get_by_text("passages").inner_text()

    page.get_by_test_id("text").fill(TEXT)
    lose(page, "next")
    page.get_by_test_id("add").click()
    page.get_by_test_id("query").fill("fixing antique watches")
    back(page)
    wait_for(page, "ready")
    for query, word in QUERIES.items():
        assert word in find(page, query)[0], query
    assert documents.get_by_text("passages").all_inner_texts() == ["4 passages", passages]
    expect(page.get_by_test_id("error")).to_have_count(0)
    page.goto(f"{site.address}/?backend=wasm")  # and all of it is kept
    documents.get_by_text(passages, exact=True).wait_for()
    assert "landlord" in find(page, "housing is getting more expensive")[0]

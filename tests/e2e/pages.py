"""The exported pages that every test of all pages goes through: what to export for each, and how to use it once."""

import json
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import BrowserContext, Page, expect
from playwright.sync_api import TimeoutError as PlaywrightTimeout

from tinyweb.export.site import copy_page

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "assets" / "models"
WORKSPACES = {"chat": "tinychat", "detect": "yolo", "image": "stable_diffusion", "embed": "search"}
MOCKS = {task: ROOT / "web" / name / "test/mock" for task, name in WORKSPACES.items()}
TIMEOUT_MS = 180_000  # two cores may be shared with other work
expect.set_options(timeout=60_000)
DESKTOP: dict[str, Any] = {"viewport": {"width": 1280, "height": 800}}
PHONE: dict[str, Any] = {
    "viewport": {"width": 390, "height": 844},
    "device_scale_factor": 3,
    "is_mobile": True,
    "has_touch": True,
}

# The page believes that it is hidden, or shown again.
HIDE = """(hidden) => {
  const pretend = (name, value) => Object.defineProperty(document, name, { get: () => value, configurable: true });
  pretend("hidden", hidden);
  pretend("visibilityState", hidden ? "hidden" : "visible");
  globalThis.frame ??= requestAnimationFrame;
  globalThis.requestAnimationFrame = hidden ? () => 0 : frame;
  document.dispatchEvent(new Event("visibilitychange"));
}"""
# In the worker: destroys the GPU device when it is told, "now" or in the middle of what it is given "next".
LOSE = """
const { requestDevice } = GPUAdapter.prototype;
GPUAdapter.prototype.requestDevice = async function (...args) {
  const device = await requestDevice.apply(this, args);
  const { queue } = device, { submit } = queue;
  let next = false;
  queue.submit = (commands) => {
    submit.call(queue, commands);
    if (next) device.destroy();
  };
  new BroadcastChannel("lose").onmessage = ({ data: when }) => {
    if (when === "now") device.destroy();
    else next = true;
  };
  return device;
};
"""


def pretended(folder: Path, task: str) -> Path:
    """A site of a page with the pretended model of the page's own tests."""
    folder.mkdir()
    copy_page(folder, task)
    shutil.copytree(MOCKS[task], folder / "model")
    shutil.copyfile(ROOT / "web/shell/testing/pretend.js", folder / "model/pretend.js")
    return folder


def wait_for(page: Page, state: str) -> None:
    try:
        page.locator(f'[data-testid="app"][data-state="{state}"]').wait_for(timeout=TIMEOUT_MS)
    except PlaywrightTimeout:
        told = {name: page.get_by_test_id(name).all_text_contents() for name in ("status", "error", "note")}
        raise AssertionError(f"The page does not become {state}: {told}") from None


def open_page(context: BrowserContext, address: str, query: str = "") -> Page:
    """The page, when its model is ready. Errors of the page itself fail the test."""
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(f"{address}/{query}")
    wait_for(page, "ready")
    assert problems == []
    return page


def limit_storage(page: Page, address: str, quota: int | None) -> None:
    """Bytes that the address may store; None: as many as the browser likes."""
    limit = {"origin": address} | ({} if quota is None else {"quotaSize": quota})
    page.context.new_cdp_session(page).send("Storage.overrideQuotaForOrigin", limit)


def until(page: Page, condition: str, arg: Any = None) -> None:
    """Waits for an expression to be true; Playwright's own way would evaluate it, which the pages' policy forbids."""
    deadline = time.monotonic() + TIMEOUT_MS / 1000
    while not page.evaluate(condition, arg):
        assert time.monotonic() < deadline, condition
        page.wait_for_timeout(50)


def ask(page: Page, text: str) -> str:
    """Send a chat message and wait for the end of the answer."""
    answers = page.get_by_test_id("message-assistant")
    number = answers.count()
    page.get_by_test_id("prompt").fill(text)
    page.get_by_test_id("send").click()
    answers.nth(number).wait_for(state="attached", timeout=TIMEOUT_MS)
    wait_for(page, "ready")
    return answers.nth(number).inner_text()


def use_chat(page: Page) -> None:
    assert re.search(r"\b12\b", ask(page, "What is 7 plus 5?"))


def use_detect(page: Page) -> None:
    """Find the six characters of a card."""
    page.get_by_test_id("file").set_input_files(MODELS / "tinyyolo" / "test_images" / "clean_card.png")
    expect(page.get_by_test_id("boxes")).not_to_be_empty(timeout=TIMEOUT_MS)
    found = json.loads(page.get_by_test_id("boxes").text_content() or "")
    assert sorted(f["label"] for f in found) == ["3", "7", "A", "K", "heart", "star"]


def use_image(page: Page) -> None:
    page.get_by_test_id("prompt").fill("a red circle on a white background")
    page.get_by_test_id("steps").fill("3")  # a step takes seconds on a software GPU
    image = "document.querySelector('[data-testid=\"image\"]')?.src ?? null"
    before = page.evaluate(image)  # that it draws may be over before it is looked for
    page.get_by_test_id("generate").click()
    until(page, f"(before) => ![null, before].includes({image})", before)
    wait_for(page, "ready")
    painted = page.get_by_test_id("image").evaluate("(image) => image.decode().then(() => image.naturalWidth)")
    assert painted >= 64


def find(page: Page, query: str, reading: bool = False) -> list[str]:
    """The texts of the passages that the search page finds, best first, when all documents have been read, or
    `reading`: now."""
    if not reading:
        wait_for(page, "ready")
    page.get_by_test_id("query").fill(query)
    page.locator(f'[data-testid="results"][aria-busy="false"][data-query="{query}"]').wait_for(timeout=TIMEOUT_MS)
    return page.get_by_test_id("open-result").all_inner_texts()


def use_search(page: Page) -> None:
    page.get_by_test_id("documents").get_by_text(re.compile(r"^\d+ passages$")).first.wait_for(timeout=TIMEOUT_MS)
    assert "carbon dioxide" in find(page, "how do plants make their food")[0]


@dataclass(frozen=True)
class ExportedPage:
    """`use` does something with the ready page and checks what comes out."""

    task: str
    source: str  # in assets/models
    options: tuple[str, ...]
    use: Callable[[Page], None]


DETECT = ExportedPage("detect", "tinyyolo", (), use_detect)
EMBED = ExportedPage("embed", "tinyembed", ("--lengths", "32,128"), use_search)
PAGES = (
    ExportedPage("chat", "tinychat-7m", ("--quant", "q8"), use_chat),
    DETECT,
    ExportedPage("image", "tinysd", (), use_image),
    EMBED,
)
"""Of the tasks whose page is part of tinyweb; a page joins the tests of all pages by its line here."""


def export_arguments(page: ExportedPage) -> list[str]:
    """Of `tinyweb export`, but for where to."""
    return [page.task, str(MODELS / page.source), *page.options]

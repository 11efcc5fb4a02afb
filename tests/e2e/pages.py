"""The exported pages that every test of all pages goes through: what to export for each, and how to use it once."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

MODELS = Path(__file__).resolve().parents[2] / "assets" / "models"
TIMEOUT_MS = 180_000  # two cores may be shared with other work
PHONE: dict[str, Any] = {
    "viewport": {"width": 390, "height": 844},
    "device_scale_factor": 3,
    "is_mobile": True,
    "has_touch": True,
}


def wait_for(page: Page, state: str) -> None:
    page.locator(f'[data-testid="app"][data-state="{state}"]').wait_for(timeout=TIMEOUT_MS)


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
    page.get_by_test_id("generate").click()
    wait_for(page, "generating")
    wait_for(page, "ready")
    painted = page.get_by_test_id("image").evaluate("(image) => image.decode().then(() => image.naturalWidth)")
    assert painted >= 64


def use_search(page: Page) -> None:
    if page.get_by_test_id("document").count() == 0:
        page.get_by_test_id("text").fill("Cats sleep for most of the day.\n\nThe train to Paris leaves at nine.")
        page.get_by_test_id("add").click()
        page.get_by_test_id("document").wait_for(timeout=TIMEOUT_MS)
    page.get_by_test_id("query").fill("")
    page.get_by_test_id("query").fill("When does the train leave?")
    expect(page.get_by_test_id("result-item").first).to_contain_text("train", timeout=TIMEOUT_MS)


@dataclass(frozen=True)
class ExportedPage:
    """`use` does something with the ready page and checks what comes out."""

    task: str
    source: str  # in assets/models
    options: tuple[str, ...]
    use: Callable[[Page], None]


DETECT = ExportedPage("detect", "tinyyolo", (), use_detect)
PAGES = (
    ExportedPage("chat", "tinychat-7m", ("--quant", "q8"), use_chat),
    DETECT,
    ExportedPage("image", "tinysd", (), use_image),
    ExportedPage("embed", "tinyembed", (), use_search),
)
"""Of the tasks whose page is part of tinyweb; a page joins the tests of all pages by its line here."""


def export_command(page: ExportedPage, site: Path) -> list[str]:
    return ["export", page.task, str(MODELS / page.source), *page.options, "-o", str(site)]

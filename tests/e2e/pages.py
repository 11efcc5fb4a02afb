"""The exported pages that every test of all pages goes through: what to export for each, and how to use it once."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Page, expect

MODELS = Path(__file__).resolve().parents[2] / "assets" / "models"
TIMEOUT_MS = 180_000  # two cores may be shared with other work


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


@dataclass(frozen=True)
class ExportedPage:
    """`use` does something with the ready page and checks what comes out."""

    task: str
    source: str  # in assets/models
    options: tuple[str, ...]
    use: Callable[[Page], None]


DETECT = ExportedPage("detect", "tinyyolo", (), use_detect)
PAGES = (ExportedPage("chat", "tinychat-7m", ("--quant", "q8"), use_chat), DETECT)
"""Of the tasks whose page is part of tinyweb; a page joins the tests of all pages by its line here."""


def export_command(page: ExportedPage, models: Path, site: Path) -> list[str]:
    return ["export", page.task, str(models / page.source), *page.options, "-o", str(site)]

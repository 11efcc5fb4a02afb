"""The exported pages that every test of all pages goes through: what to export for each, and how to use it once."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Page

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


@dataclass(frozen=True)
class ExportedPage:
    """`use` does something with the ready page and checks what comes out."""

    task: str
    source: str  # in assets/models
    options: tuple[str, ...]
    use: Callable[[Page], None]


PAGES = (ExportedPage("chat", "tinychat-7m", ("--quant", "q8"), use_chat),)
"""Of the tasks whose page is part of tinyweb; a page joins the tests of all pages by its line here."""


def export_command(page: ExportedPage, models: Path, site: Path) -> list[str]:
    return ["export", page.task, str(models / page.source), *page.options, "-o", str(site)]

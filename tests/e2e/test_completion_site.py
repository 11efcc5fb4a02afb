"""The page of a base model: it continues a text as Python does, accessible, on desktop and phone, in light and dark."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.conftest import ROOT
from tests.control.shared import Shared
from tests.e2e.conftest import Served, _export
from tests.e2e.pages import DESKTOP, PHONE, TIMEOUT_MS, wait_for
from tests.e2e.test_pages import AXE, SMALL_PRINT, TOO_SMALL
from tinyweb.formats.tokenizer import Tokenizer
from tinyweb.models import load
from tinyweb.models.chat import Chat, Settings
from tinyweb.models.fit import pieces

MODEL = ROOT / "assets/models/tinychat-7m"
BEGINNING = "Once upon a time there was a little"
OVERFLOW = "() => document.documentElement.scrollWidth > innerWidth"


@pytest.fixture(scope="session")
def base_model(shared: Shared) -> Path:
    """The embedded chat model without its chat template."""

    def make(folder: Path) -> None:
        shutil.copytree(MODEL, folder, dirs_exist_ok=True)
        config = json.loads((folder / "tokenizer_config.json").read_text())
        config.pop("chat_template", None)
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
        (folder / "chat_template.jinja").unlink(missing_ok=True)

    return shared("base-model", make)


@pytest.fixture(scope="session")
def site(shared: Shared, base_model: Path) -> Path:
    return shared("completion-q8", _export("chat", str(base_model), "--quant", "q8"))


def go_on(page: Page) -> str:
    page.get_by_test_id("continue").click()
    wait_for(page, "ready")
    page.get_by_test_id("continue").wait_for(timeout=TIMEOUT_MS)
    return page.get_by_test_id("text").input_value()


def test_the_bundle_says_that_it_continues(site: Path) -> None:
    manifest = json.loads((site / "model/manifest.json").read_text())
    assert manifest["chat"]["completion"] == {"begin": list(Tokenizer.from_folder(MODEL).begin)}
    assert "chat_template" not in manifest["files"] and not (site / "model/chat_template.jinja").exists()
    assert "completion: true" in (site / "model/model.js").read_text()


def test_it_continues_as_python_does(
    chromium: Browser, site: Path, base_model: Path, served: Callable[..., Served]
) -> None:
    chat = Chat(load(base_model, "q8", device="WASM"), Tokenizer.from_folder(base_model))
    expected = "".join(p.text for p in chat.generate(pieces(BEGINNING), Settings(temperature=0, max_tokens=256)))
    with chromium.new_context() as context:
        page = context.new_page()
        page.goto(f"{served(site).address}/?backend=wasm")
        wait_for(page, "ready")
        page.get_by_test_id("text").fill(BEGINNING)
        text = go_on(page)
        assert text == BEGINNING + expected and expected.startswith(" ")
        assert page.get_by_test_id("text").evaluate("(field) => field.scrollHeight <= field.clientHeight")
        page.get_by_test_id("undo").click()
        assert page.get_by_test_id("text").input_value() == BEGINNING
        page.reload()
        wait_for(page, "ready")
        assert page.get_by_test_id("text").input_value() == BEGINNING
        for word in ("assistant", "message", "Message", "conversation"):
            assert word not in page.locator("body").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("phone", [False, True])
def test_it_is_accessible(
    chromium: Browser, site: Path, served: Callable[..., Served], scheme: str, phone: bool
) -> None:
    options = PHONE if phone else DESKTOP
    with chromium.new_context(**options, color_scheme=scheme, reduced_motion="reduce", bypass_csp=True) as context:
        page = context.new_page()
        page.goto(f"{served(site).address}/?backend=wasm")
        wait_for(page, "ready")
        page.get_by_test_id("text").fill(BEGINNING)
        go_on(page)
        page.evaluate(AXE)
        for dialog in (False, True):
            if dialog:
                page.get_by_test_id("settings").click()
                page.get_by_test_id("stored").wait_for()
            assert page.evaluate("axe.run()")["violations"] == []
            assert (not phone or page.evaluate(TOO_SMALL) == []) and page.evaluate(SMALL_PRINT) == []
            assert not page.evaluate(OVERFLOW)

"""Every page in every engine: the first visit, a second tab while the first is open, a visit without a network, and a
new version. Firefox and WebKit have no WebGPU here and take WASM."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Served
from tests.e2e.engines import ENGINES, Engine, Tab, ask, by_test_id, visit
from tests.e2e.pages import MODELS, PAGES, ExportedPage
from tests.e2e.test_offline import publish

Serve = Callable[..., Served]
Exported = Callable[[ExportedPage], Path]
HEIGHT = "document.querySelector('dialog')?.getBoundingClientRect().height"
# threads where the engine has shared memory; elsewhere the page takes one thread by itself
BACKENDS = {"chromium": "wasm", "firefox": "wasm", "webkit": "wasm-single"}


def use_chat(tab: Tab) -> None:
    assert re.search(r"\b12\b", ask(tab, "What is 7 plus 5?"))


def use_detect(tab: Tab) -> None:
    tab.attach("file", MODELS / "tinyyolo" / "test_images" / "clean_card.png")
    tab.until(f"""document.querySelector('{by_test_id("boxes")}')?.textContent""")
    found = json.loads(tab.texts("boxes")[0])
    assert sorted(box["label"] for box in found) == ["3", "7", "A", "K", "heart", "star"]


def use_image(tab: Tab) -> None:
    tab.fill("prompt", "a red circle on a white background")
    tab.fill("steps", "3")
    picture = f"document.querySelector('{by_test_id('image')}')"
    before = json.dumps(tab.evaluate(f"{picture}?.src ?? null"))  # that it draws may be over before it is looked for
    tab.click("generate")
    tab.until(f"{picture} && {picture}.src !== {before}")
    tab.becomes("ready")
    assert tab.evaluate(f"{picture}.decode().then(() => {picture}.naturalWidth)") >= 64


def use_search(tab: Tab) -> None:
    tab.until(f"""/\\d+ passages/.test(document.querySelector('{by_test_id("documents")}').textContent)""")
    query = "how do plants make their food"
    tab.becomes("ready")
    tab.fill("query", query)
    results = f"""{by_test_id("results")}[aria-busy="false"][data-query="{query}"]"""
    tab.until(f"document.querySelector('{results}')")
    assert "carbon dioxide" in tab.texts("open-result")[0]


USES = {"chat": use_chat, "detect": use_detect, "image": use_image, "embed": use_search}


def parameters(fast: Callable[[str, ExportedPage], bool]) -> list[Any]:
    return [
        pytest.param(name, page, id=f"{name}-{page.task}", marks=[] if fast(name, page) else pytest.mark.slow)
        for name in ENGINES
        for page in PAGES
    ]


@pytest.mark.parametrize(("engine", "tested"), parameters(lambda name, page: True), indirect=["engine"])
def test_visits(engine: Engine, exported_page: Exported, served: Serve, tested: ExportedPage, request: Any) -> None:
    """Twice, at the same time, and once more when the host is gone. The page draws with a small random model."""
    folder = request.getfixturevalue("image_site") if tested.task == "image" else exported_page(tested)
    site = served(folder)
    use = USES[tested.task]
    backend = BACKENDS[request.node.callspec.params["engine"]]
    first = visit(engine, f"{site.address}/?backend=wasm")
    assert first.backend() == backend
    use(first)
    first.reload()
    first.becomes("ready")
    second = visit(engine, f"{site.address}/?backend=wasm")
    assert second.backend() == backend
    use(second)
    site.stop()
    first.reload()
    first.becomes("ready")
    assert first.backend() == backend
    use(first)


@pytest.mark.parametrize(("engine", "tested"), parameters(lambda name, page: page.task == "chat"), indirect=["engine"])
def test_dialogs(engine: Engine, exported_page: Exported, served: Serve, tested: ExportedPage) -> None:
    """They are as high as what is in them."""
    tab = visit(engine, f"{served(exported_page(tested)).address}/?backend=wasm-single")
    tab.click("settings")
    tab.until(f"{HEIGHT} > 200")
    tab.click("about-open")
    tab.until(f"document.querySelector('{by_test_id('about-dialog')}') && {HEIGHT} > 200")
    tab.click("close-about")
    tab.until("document.querySelector('dialog') === null")


def mark(tab: Tab) -> list[str]:
    """Which export the page's two marked scripts come from: never of two."""
    found = tab.evaluate("mark")
    assert isinstance(found, list) and len(found) == 2 and found[0] == found[1], f"files of two exports: {found}"
    return found


def visit_twice_and_publish(engine: Engine, served: Serve, folder: Path, task: str) -> tuple[Tab, Tab, bool]:
    """Two tabs of the old export, the first reloaded after the new one was published; whether the reload went past its
    service worker, to the server."""
    publish(folder, "old", task)
    site = served(folder)
    address = f"{site.address}/?backend=wasm-single"
    engine.close(visit(engine, address))
    first, other = visit(engine, address), visit(engine, address)
    publish(folder, "new", task)
    asked = site.count("/?backend")
    first.reload()
    first.becomes("ready")
    return first, other, site.count("/?backend") > asked


@pytest.mark.parametrize(
    ("engine", "tested"),
    parameters(lambda name, page: page.task == "chat" and name != "chromium"),  # Chromium's: test_offline.py
    indirect=["engine"],
)
def test_a_new_version(
    engine: Engine, exported_page: Exported, served: Serve, tested: ExportedPage, tmp_path: Path
) -> None:
    """It is offered, and taken in the one tab; the other goes on with the files it has."""
    # An engine may load a page past its service worker, as WebKit does when the worker does not start in time. Only
    # then is the page the new export's, whole, and another site tried.
    for attempt in range(3):
        folder = Path(shutil.copytree(exported_page(tested), tmp_path / f"site{attempt}"))
        first, other, past_worker = visit_twice_and_publish(engine, served, folder, tested.task)
        if mark(first) == ["old", "old"]:
            break
        assert past_worker, "the service worker opened the new export before it was asked to"
        engine.close_tabs()
    else:
        raise AssertionError("the reloaded page was never the one that its service worker keeps")
    first.click("update")
    first.until("globalThis.mark?.[0] === 'new'")
    first.becomes("ready")
    assert mark(first) == ["new", "new"]
    USES[tested.task](first)
    assert '"old"' in other.evaluate("fetch('model/model.js').then((response) => response.text())")
    USES[tested.task](other)
    other.reload()
    other.becomes("ready")
    assert mark(other) == ["new", "new"]

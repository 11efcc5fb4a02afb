"""The exported chat site in headless Chromium: meaning of the answers, every backend, faults, the second visit."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.e2e.conftest import ExportedSite, Served
from tests.e2e.pages import PHONE, TIMEOUT_MS, open_page, wait_for
from tests.e2e.pages import ask as say

Serve = Callable[..., Served]


def used_backend(page: Page) -> str | None:
    return page.get_by_test_id("backend").get_attribute("data-backend")


@pytest.mark.parametrize(
    ("query", "headers", "worker", "backend"),
    [
        ("?backend=webgpu", True, True, "webgpu"),
        ("?backend=wasm", True, True, "wasm"),
        ("?backend=wasm", False, True, "wasm"),
        ("?backend=wasm", False, False, "wasm-single"),
        ("?backend=wasm-single", True, True, "wasm-single"),
        ("", False, True, "wasm"),
        ("", False, False, "wasm-single"),
    ],
)
def test_it_calculates_and_remembers(
    chromium: Browser, exported: ExportedSite, served: Serve, query: str, headers: bool, worker: bool, backend: str
) -> None:
    """Threads need headers of isolation, from the server or else from the site's service worker."""
    site = served(exported("q8"), isolated=headers)
    with chromium.new_context(service_workers="allow" if worker else "block") as context:
        page = open_page(context, site.address, query)
        assert used_backend(page) == backend
        assert "Mira" in say(page, "Hello, my name is Mira!")
        assert re.search(r"\b12\b", say(page, "What is 7 plus 5?"))
        assert "Mira" in say(page, "What is my name?")
        expect(page.get_by_test_id("message-user")).to_have_text(
            ["Hello, my name is Mira!", "What is 7 plus 5?", "What is my name?"]
        )
        assert re.search(r"\d", page.get_by_test_id("speed").inner_text())
        assert re.search(r"\d.*MB", page.get_by_test_id("model-size").inner_text())


def test_it_takes_the_kernels_whose_features_the_gpu_has(
    chromium: Browser, exported: ExportedSite, served: Serve
) -> None:
    """SwiftShader has no use for any: of half floats in the model, the plain variant reads the words."""
    folder = exported("q8")
    variants = json.loads((folder / "model" / "manifest.json").read_text())["targets"]["webgpu"]["variants"]
    site = served(folder)
    asked: list[str] = []
    with chromium.new_context(service_workers="block") as context:
        context.on("request", lambda request: asked.append(request.url.removeprefix(f"{site.address}/model/")))
        page = open_page(context, site.address, "?backend=webgpu")
        assert used_backend(page) == "webgpu"
    assert "shader-f16" in variants["f16"]["features"]
    kernels = [variants["base"]["file"], *variants["base"]["shared"]]
    assert sorted(file for file in asked if file.endswith(".wgsl")) == sorted(kernels)


def test_on_a_phone(chromium: Browser, exported: ExportedSite, served: Serve) -> None:
    with chromium.new_context(**PHONE) as context:
        page = open_page(context, served(exported("q8")).address)
        assert "Mira" in say(page, "Hello, my name is Mira!")
        assert re.search(r"\b12\b", say(page, "What is 7 plus 5?"))
        assert "Mira" in say(page, "What is my name?")
        # nothing sticks out to the right, and the prompt is on the screen
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        box = page.get_by_test_id("prompt").bounding_box()
        assert box is not None and box["y"] + box["height"] <= 844 and box["x"] + box["width"] <= 390


def test_a_second_visit_downloads_nothing(context: BrowserContext, exported: ExportedSite, served: Serve) -> None:
    site = served(exported("q8"))
    page = open_page(context, site.address, "?backend=wasm")
    first = site.count("/weights/")
    assert first == len(list((exported("q8") / "model/weights").iterdir()))
    page.evaluate("async () => { await navigator.serviceWorker.ready }")  # what it keeps was fetched on this visit
    page.close()
    site.requests.clear()
    page = open_page(context, site.address, "?backend=wasm-single")
    assert site.count("/weights/") == 0
    assert re.search(r"\b12\b", say(page, "What is 7 plus 5?"))
    assert site.count("/weights/") == 0
    # and what was asked again, by the page or to keep it for use without a network, had not changed
    assert not [r for r in site.requests if ("/assets/" in r or "GET / " in r) and r.endswith("200")]


def test_a_broken_shard_is_fetched_again(context: BrowserContext, own_site: Path, served: Serve) -> None:
    shard = own_site / "model/weights/000.bin"
    good = shard.read_bytes()
    shard.write_bytes(good[:5000] + bytes([good[5000] ^ 255]) + good[5001:])

    def mend(request: str) -> None:
        """The first answer is sent from the damaged file (it is open by then), all later ones from the right one."""
        if "/weights/000.bin" in request:
            fresh = own_site / "fresh"
            fresh.write_bytes(good)
            fresh.replace(shard)

    site = served(own_site, on_request=mend)
    page = open_page(context, site.address, "?backend=wasm")
    assert site.count("/weights/000.bin") == 2
    assert re.search(r"\b12\b", say(page, "What is 7 plus 5?"))


def test_a_shard_that_stays_broken(context: BrowserContext, own_site: Path, served: Serve) -> None:
    shard = own_site / "model/weights/000.bin"
    good = shard.read_bytes()
    shard.write_bytes(good[:5000] + bytes([good[5000] ^ 255]) + good[5001:])
    site = served(own_site)
    page = context.new_page()
    page.goto(f"{site.address}/?backend=wasm")
    wait_for(page, "error")
    assert page.get_by_test_id("error").get_attribute("data-code") == "hash-mismatch"
    assert site.count("/weights/000.bin") == 2
    shard.write_bytes(good)
    page.get_by_test_id("retry").click()
    wait_for(page, "ready")
    assert re.search(r"\b12\b", say(page, "What is 7 plus 5?"))


def test_a_shard_that_is_missing(context: BrowserContext, own_site: Path, served: Serve) -> None:
    (own_site / "model/weights/000.bin").unlink()
    page = context.new_page()
    page.goto(f"{served(own_site).address}/?backend=wasm")
    wait_for(page, "error")
    assert page.get_by_test_id("error").get_attribute("data-code") == "download-failed"


STOP_AT_THE_FIRST_WORD = """() => {
  new MutationObserver((_, observer) => {
    const answer = document.querySelector('[data-testid="message-assistant"]');
    const stop = document.querySelector('[data-testid="stop"]');
    if (answer && answer.textContent !== "" && stop) { observer.disconnect(); stop.click(); }
  }).observe(document.body, { childList: true, subtree: true, characterData: true });
}"""


def test_stop_regenerate_new_chat(context: BrowserContext, exported: ExportedSite, served: Serve) -> None:
    page = open_page(context, served(exported("q8")).address, "?backend=webgpu")
    page.evaluate(STOP_AT_THE_FIRST_WORD)
    stopped = say(page, "Who are you?")
    expect(page.get_by_text("Stopped", exact=True)).to_be_visible()
    assert stopped
    page.get_by_test_id("regenerate").click()
    expect(page.get_by_text("Stopped", exact=True)).not_to_be_attached(timeout=TIMEOUT_MS)
    wait_for(page, "ready")
    whole = page.get_by_test_id("message-assistant").inner_text()
    assert whole.startswith(stopped) and len(whole) > len(stopped) + 20
    assert page.get_by_test_id("message-user").count() == 1
    page.get_by_test_id("new-chat").click()
    expect(page.get_by_test_id("message-user")).to_have_count(0)
    expect(page.get_by_test_id("message-assistant")).to_have_count(0)
    assert re.search(r"\b12\b", say(page, "What is 7 plus 5?"))


def test_a_lost_gpu_keeps_the_conversation(context: BrowserContext, exported: ExportedSite, served: Serve) -> None:
    """Through the library, where a test may destroy the device. A first loss is repaired, a second one soon after means
    that the GPU does not hold; the next answer comes all the same."""
    page = open_page(context, served(exported("q8")).address, "?backend=wasm-single")
    texts, backends = page.evaluate(
        """async () => {
          const { load } = await import("./model/model.js");
          const { debug } = await import("./assets/tinyweb.js");
          const chat = await load({ backend: "auto", allowSoftwareGpu: true });
          const messages = [], texts = [], backends = [];
          for (const question of ["Hello, my name is Mira!", "What is 7 plus 5?", "What is my name?"]) {
            messages.push({ role: "user", content: question });
            let text = "";
            for await (const part of chat.generate(messages, { temperature: 0 })) text += part.text;
            messages.push({ role: "assistant", content: text });
            texts.push(text);
            backends.push(chat.info.backend);
            if (texts.length < 3 && !(await debug.loseDevice(chat))) throw new Error("there was no device to lose");
          }
          await chat.dispose();
          return [texts, backends];
        }"""
    )
    assert re.search(r"\b12\b", texts[1]) and "Mira" in texts[2]
    assert backends == ["webgpu", "webgpu", "wasm"]


def test_no_request_leaves_the_site(context: BrowserContext, exported: ExportedSite, served: Serve) -> None:
    site = served(exported("q8"))
    seen: list[str] = []
    context.on("request", lambda request: seen.append(request.url))
    page = open_page(context, site.address, "?backend=wasm")
    say(page, "Hello!")
    assert seen and all(url.startswith((site.address, "blob:", "data:")) for url in seen)

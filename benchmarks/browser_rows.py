"""Chromium on the exported site: what a visitor waits for, and how fast answers come."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import browser as browser_tool  # tools/browser.py
from playwright.sync_api import Browser, BrowserContext, Error, sync_playwright

from benchmarks.measure import PROMPT, TOKENS, Row
from tinyweb.serve import open_server

TIMEOUT_MS = 300_000
BACKENDS = ("webgpu", "wasm", "wasm-single")

NOTE_FIRST_TOKEN = """
localStorage.clear();  // the last conversation; the weights are kept elsewhere
window.firstTokenMs = new Promise((resolve) => {
  new MutationObserver((_, observer) => {
    const answer = document.querySelector('[data-testid="message-assistant"]');
    if (!answer || answer.textContent === "") return;
    resolve(performance.now());
    observer.disconnect();
  }).observe(document, { childList: true, subtree: true, characterData: true });
});
"""

DECODE = """async ([backend, prompt, tokens, runs]) => {
  const { load } = await import("./model/model.js");
  const chat = await load({ backend });
  const speeds = [];
  for (let run = 0; run <= runs; run++) {
    let count = 0;
    const messages = [{ role: "user", content: prompt }];
    for await (const _ of chat.generate(messages, { maxTokens: tokens, temperature: 0 })) count++;
    if (count < tokens / 2) throw new Error(`an answer of only ${count} tokens`);
    if (run > 0) speeds.push(chat.info.tokensPerSecond);
  }
  const { adapter } = chat.info;
  await chat.dispose();
  return [adapter, speeds];
}"""


@contextmanager
def serving(site: Path) -> Iterator[str]:
    """The site's address while it is served."""
    server = open_server(site)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://localhost:{server.port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def browser_rows(site: Path, runs: int) -> Iterator[Row]:
    """One row for every backend of the page."""
    with serving(site) as address, sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser_tool.ensure(), args=list(browser_tool.FLAGS))
        for backend in BACKENDS:
            row = Row(f"Chromium {backend}")
            try:
                for _ in range(runs):
                    with chromium.new_context() as context:
                        row.first_visit.values.append(_first_token(context, address, backend))
                        row.second_visit.values.append(_first_token(context, address, backend))
                adapter, row.decode.values = _decode(chromium, address, backend, runs)
                row.detail = f"Chromium {chromium.version.split('.')[0]}, {adapter}"
            except Error as error:
                row.problem = error.message.splitlines()[0]
            yield row
        chromium.close()


def _first_token(context: BrowserContext, address: str, backend: str) -> float:
    """Seconds from the navigation to the first word on the screen; the question is asked before the model is there."""
    page = context.new_page()
    page.add_init_script(NOTE_FIRST_TOKEN)
    page.goto(f"{address}/?backend={backend}", wait_until="commit")
    page.get_by_test_id("prompt").fill(PROMPT, timeout=TIMEOUT_MS)
    page.get_by_test_id("send").click(timeout=TIMEOUT_MS)
    seconds = float(page.evaluate("window.firstTokenMs")) / 1000
    page.close()
    return seconds


def _decode(chromium: Browser, address: str, backend: str, runs: int) -> tuple[str, list[float]]:
    with chromium.new_context() as context:
        page = context.new_page()
        page.set_default_timeout(TIMEOUT_MS)
        page.goto(f"{address}/model/model.d.ts")  # same origin and isolation, without the page's own model
        page.evaluate("history.replaceState(null, '', '/')")
        adapter, speeds = page.evaluate(DECODE, [backend, PROMPT, TOKENS, runs])
        return adapter, speeds

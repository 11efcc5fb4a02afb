"""The exported chat page in Chromium: what a visitor waits for, and how fast answers come."""

from __future__ import annotations

import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from benchmarks.contestant import Absent, Contestant
from benchmarks.worker import ROOT

MODEL = ROOT / "assets" / "models" / "tinychat-7m"
PROMPT = "Tell me a story about a little fox and a golden key."
TOKENS = 64  # of every answer; the story is longer
TIMEOUT_MS = 120_000

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

LOAD = """async (backend) => {
  const { load } = await import("./model/model.js");
  window.chat = await load({ backend });
  return window.chat.info.adapter;
}"""

DECODE = """async ([prompt, tokens]) => {
  let count = 0;
  const messages = [{ role: "user", content: prompt }];
  const answer = window.chat.generate(messages, { maxTokens: tokens, temperature: 0 });
  for await (const _ of answer) count++;
  if (count < tokens / 2) throw new Error(`an answer of only ${count} tokens`);
  return (await answer.result).tokensPerSecond;
}"""


class Page(Contestant):
    """Tasks: "first visit" and "second visit" (seconds from the navigation to the first word on the screen; the
    question is asked before the model is there), "decode" (seconds for each token after the first).
    """

    def __init__(self, backend: str, quant: str = "q8"):
        sys.path.insert(0, str(ROOT / "tools"))
        import browser as browser_tool  # tools/browser.py
        from playwright.sync_api import sync_playwright

        from tinyweb.cli import app
        from tinyweb.serve import open_server

        self.backend = backend
        self._folder = tempfile.TemporaryDirectory()
        site = Path(self._folder.name) / "site"
        app(["export", "chat", str(MODEL), "--quant", quant, "-o", str(site)], standalone_mode=False)
        self._server = open_server(site)
        self._address = f"http://localhost:{self._server.port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        try:
            program = browser_tool.ensure()
        except (OSError, SystemExit) as error:
            raise Absent(f"no Chromium: {error}") from error
        self._playwright = sync_playwright().start()
        self._chromium = self._playwright.chromium.launch(executable_path=program, args=list(browser_tool.FLAGS))
        self._known = self._chromium.new_context()  # has been here before
        self._first_token(self._known)
        self._decoder: Any = None
        self.adapter = ""

    def versions(self) -> dict[str, str]:
        return {"Chromium": self._chromium.version}

    def run(self, task: str, repeat: int) -> float:
        return sum(self._once(task) for _ in range(repeat))

    def _once(self, task: str) -> float:
        if task == "decode":
            if self._decoder is None:
                self._decoder = self._open_decoder()
            return 1 / float(self._decoder.evaluate(DECODE, [PROMPT, TOKENS]))
        if task == "second visit":
            return self._first_token(self._known)
        with self._chromium.new_context() as context:
            return self._first_token(context)

    def notes(self, task: str) -> dict[str, Any]:
        return {"adapter": self.adapter} if self.adapter else {}

    def close(self) -> None:
        self._chromium.close()
        self._playwright.stop()
        self._server.shutdown()
        self._folder.cleanup()

    def _first_token(self, context: Any) -> float:
        page = context.new_page()
        page.add_init_script(NOTE_FIRST_TOKEN)
        page.goto(f"{self._address}/?backend={self.backend}", wait_until="commit")
        page.get_by_test_id("prompt").fill(PROMPT, timeout=TIMEOUT_MS)
        page.get_by_test_id("send").click(timeout=TIMEOUT_MS)
        seconds = float(page.evaluate("window.firstTokenMs")) / 1000
        page.close()
        return seconds

    def _open_decoder(self) -> Any:
        page = self._chromium.new_context().new_page()
        page.set_default_timeout(TIMEOUT_MS)
        page.goto(f"{self._address}/model/model.d.ts")  # same origin and isolation, without the page's own model
        page.evaluate("history.replaceState(null, '', '/')")
        self.adapter = str(page.evaluate(LOAD, self.backend))
        return page

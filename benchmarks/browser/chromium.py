"""One headless Chromium in which all sides of a row have their page; they take turns.

A task is "WORK/SIDE/THREADS": "matmul-1024/onnxruntime-wasm/2".
"""

from __future__ import annotations

import base64
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.browser.server import Server
from benchmarks.browser.works import FUNCTIONS, LANGUAGE, LOAD, LOAD_BYTES, Language, read_module, write_graph
from benchmarks.checkpoints import FOLDER as CHECKPOINTS
from benchmarks.contestant import Absent, Arrays, Contestant
from benchmarks.worker import PATIENCE, ROOT

HERE = Path(__file__).resolve().parent
TIMEOUT_MS = 170_000 * PATIENCE
MOST_PAGES = 5  # those used last stay open: a row has no more sides
LIBRARY = "/peers"
PACKAGES = {"onnxruntime": "onnxruntime-web", "jax": "@jax-js/jax", "wllama": "@wllama/wllama"}
FUNCTION_SIDES = {"tinyweb": "tinyweb-function.js", "onnxruntime": "ort.js", "jax": "jax.js"}


def peer_modules() -> Path:
    """node_modules with the peers: TINYWEB_BENCH_NODE_MODULES, else what `make bench-peers` installed."""
    return Path(os.environ.get("TINYWEB_BENCH_NODE_MODULES") or HERE / "node_modules")


class Chromium(Contestant):
    def __init__(self) -> None:
        sys.path.insert(0, str(ROOT / "tools"))
        import browser  # tools/browser.py
        from playwright.sync_api import Error, sync_playwright

        try:
            executable = browser.ensure()
        except RuntimeError as error:
            raise Absent(str(error)) from error
        self._folder = tempfile.TemporaryDirectory(prefix="tinyweb-bench-")
        self.work = Path(os.environ.get("TINYWEB_BENCH_BUNDLES") or self._folder.name)
        self.server = Server(
            {"pages": HERE / "pages", "peers": peer_modules(), "work": self.work, "checkpoints": CHECKPOINTS}
        )
        self.playwright = sync_playwright().start()
        self.chromium = self.playwright.chromium.launch(executable_path=executable, args=list(browser.FLAGS))
        self.context = self.chromium.new_context()
        self.failed = Error
        self.pages: dict[str, Any] = {}

    def versions(self) -> dict[str, str]:
        found = {"Chromium": self.chromium.version}
        for package in PACKAGES.values():
            path = peer_modules() / package / "package.json"
            if path.is_file():
                found[package] = json.loads(path.read_text())["version"]
        return found

    def run(self, task: str, repeat: int) -> float:
        work, _, threads = task.split("/")
        if work == LOAD:
            return sum(self._load(int(threads)) for _ in range(repeat))
        return float(self._call(task, "(n) => side.time(n)", repeat))

    def result(self, task: str) -> Arrays | None:
        arrays = self._call(task, "() => side.result()")
        return {a["name"]: np.frombuffer(base64.b64decode(a["data"]), a["dtype"]) for a in arrays}

    def notes(self, task: str) -> dict[str, Any]:
        return {} if task.startswith(LOAD) else dict(self._call(task, "() => side.notes()"))

    def close(self) -> None:
        self.chromium.close()
        self.playwright.stop()
        self.server.close()
        self._folder.cleanup()

    def _load(self, threads: int) -> float:
        """Seconds from opening a page to a model that onnxruntime-web has loaded, its files in the browser's cache."""
        if not (peer_modules() / PACKAGES["onnxruntime"]).is_dir():
            raise Absent(f"{PACKAGES['onnxruntime']} is not installed: `make bench-peers`")
        model = self.work / LOAD / "model.onnx"
        if not model.exists():
            write_graph(model, "chain", LOAD_BYTES)
        page = self.context.new_page()
        query = f"library={LIBRARY}&threads={threads}&model={self._url(model)}"
        page.goto(f"{self.server.address}/pages/load.html?{query}", wait_until="commit")
        page.wait_for_function("() => 'loaded' in window", timeout=TIMEOUT_MS)
        seconds = float(self._evaluate(page, "() => window.loaded", None))
        page.close()
        return seconds

    def _call(self, task: str, expression: str, argument: Any = None) -> Any:
        return self._evaluate(self._page(task), expression, argument)

    def _evaluate(self, page: Any, expression: str, argument: Any) -> Any:
        try:
            return page.evaluate(expression, argument)
        except self.failed as error:
            raise RuntimeError(str(error).removeprefix("Page.evaluate: ").splitlines()[0]) from error

    def _page(self, task: str) -> Any:
        page = self.pages.pop(task, None)
        if page is None:
            while len(self.pages) >= MOST_PAGES:
                self.pages.pop(next(iter(self.pages))).close()
            module, options = self.side(*task.split("/"))
            page = self.context.new_page()
            page.set_default_timeout(TIMEOUT_MS)
            page.goto(f"{self.server.address}/pages/page.html")
            page.wait_for_function("() => 'side' in window")
            self._evaluate(page, "([module, options]) => side.open(module, options)", [module, options])
        self.pages[task] = page  # the one used last comes last
        return page

    def side(self, work: str, side: str, threads: str) -> tuple[str, dict[str, Any]]:
        """The module in pages/sides/ that a task is done by, and its options; its files are made here."""
        library, _, backend = side.partition("-")
        module, options = self.prepared(library, backend, threads)
        if work in LANGUAGE:
            return self._language(LANGUAGE[work], library, options)
        function, folder = FUNCTIONS[work], self.work / work
        options["shapes"] = {name: list(shape) for name, shape in function.shapes.items()}
        if library == "tinyweb":
            options["bundle"] = self._url(function.bundle(folder) / "model") + "/"
        elif library == "onnxruntime":
            options["model"] = self._url(function.onnx(folder))
        return module, options

    def prepared(self, library: str, backend: str, threads: str) -> tuple[str, dict[str, Any]]:
        """The module of a library that computes functions, and what it is told whatever the work."""
        package = PACKAGES.get(library)
        if package and not (peer_modules() / package).is_dir():
            raise Absent(f"{package} is not installed: `make bench-peers`")
        return FUNCTION_SIDES.get(library, ""), {"threads": int(threads), "backend": backend, "library": LIBRARY}

    def _language(self, work: Language, library: str, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        options |= {"task": work.task, "tokens": work.tokens, "context": work.context}
        match library:
            case "tinyweb":
                return "tinyweb-chat.js", options | {"bundle": self._url(work.bundle(self.work) / "model") + "/"}
            case "wllama":
                return "wllama.js", options | {"gguf": f"/checkpoints/{work.gguf().relative_to(CHECKPOINTS)}"}
            case "bandwidth":
                bytes = work.weight_bytes(work.bundle(self.work))
                module = self._url(read_module(self.work))
                return "bandwidth.js", options | {"module": module, "bytes": bytes}
            case _:
                raise ValueError(f"there is no side {library!r}")

    def _url(self, path: Path) -> str:
        return "/work/" + path.relative_to(self.work).as_posix()

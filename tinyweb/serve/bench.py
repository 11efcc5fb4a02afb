"""The speed of an exported chat in a browser on this machine: Chromium opens a page beside the site's own, which loads
the site's model and tells the server what it measured."""

from __future__ import annotations

import json
import os
import queue
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from tinyweb.errors import TinywebError
from tinyweb.export.inspect import read_manifest
from tinyweb.serve import Handler, SiteServer, open_server

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chromium-headless-shell")
PLACE = "/__bench/"
PAGE = b'<!doctype html><meta charset=utf-8><title>tinyweb bench</title><script type=module src="bench.js"></script>'
FILES = {
    "": (PAGE, "text/html; charset=utf-8"),
    "bench.js": ((Path(__file__).parent / "bench.js").read_bytes(), "text/javascript; charset=utf-8"),
}


class _Server(SiteServer):
    told: queue.Queue[dict[str, Any]]


class _Handler(Handler):
    server: _Server

    def do_GET(self) -> None:
        if not self.path.startswith(PLACE):
            super().do_GET()
            return
        name, _, said = self.path.removeprefix(PLACE).partition("?")
        if name == "result":
            self.server.told.put(json.loads(unquote(said)))
        body, kind = FILES.get(name, (b"", "text/plain"))
        self._head(200, {"Content-Type": kind, "Content-Length": str(len(body))})  # type: ignore[arg-type]
        self.wfile.write(body)


def browser() -> str:
    """The Chromium to use: CHROME, or one on the path."""
    chosen = os.environ.get("CHROME")
    for name in (chosen,) if chosen else BROWSERS:
        if found := shutil.which(name):
            return found
    wanted = f"CHROME={chosen} is no program" if chosen else "no Chromium or Chrome was found"
    raise TinywebError(f"{wanted}: a site is measured in one; install it, or set CHROME to its path")


def bench_site(
    site: Path, backend: str, threads: int | None, prompt: int, tokens: int, runs: int, seconds: float = 600
) -> dict[str, Any]:
    """Figures of the chat in `site` by "webgpu" or "wasm", as `tinyweb.cli.measure` has them. TinywebError where there
    is no browser, or it says nothing in `seconds`."""
    manifest = read_manifest(site)
    if manifest["task"] != "chat":
        raise TinywebError(f"{site} is no chat but has the task {manifest['task']!r}: bench measures chats")
    asked = {
        "backend": backend, "threads": threads, "prompt": prompt, "tokens": tokens, "runs": runs,
        "vocabulary": manifest["model"]["vocab_size"],
    }  # fmt: skip
    program = browser()
    server = open_server(site)
    server.__class__, server.RequestHandlerClass = _Server, _Handler
    assert isinstance(server, _Server)
    server.told = queue.Queue()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        address = f"http://localhost:{server.port}{PLACE}#{quote(json.dumps(asked))}"
        return _figures(_told(program, address, server.told, seconds), prompt)
    finally:
        server.shutdown()
        server.server_close()


def _told(program: str, address: str, told: queue.Queue[dict[str, Any]], seconds: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="tinyweb-bench-", ignore_cleanup_errors=True) as profile:
        command = [
            program, "--headless", "--remote-debugging-port=0", f"--user-data-dir={profile}", "--no-first-run",
            "--disable-background-networking", "--enable-unsafe-webgpu",
        ]  # fmt: skip
        if hasattr(os, "geteuid") and os.geteuid() == 0:  # Chromium does not start as root without
            command.append("--no-sandbox")
        child = subprocess.Popen([*command, address], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            return told.get(timeout=seconds)
        except queue.Empty:
            state = "has ended" if child.poll() is not None else "goes on"
            raise TinywebError(
                f"{program} did not tell a result in {seconds:.0f} s (it {state}): choose fewer --tokens"
            ) from None
        finally:
            child.terminate()
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()


def _figures(told: Mapping[str, Any], prompt: int) -> dict[str, Any]:
    if "error" in told:
        return {"error": str(told["error"])}
    first = told["first"] / 1000
    return {
        "device": f"browser {told['backend']}",
        "threads": None,
        "adapter": told["adapter"],
        "first_token_seconds": round(first, 5),
        "prompt_tokens_per_second": round(prompt / first, 2),
        "tokens_per_second": round(told["rate"], 2),
        "load_seconds": round(told["ready"] / 1000, 3),
        "weight_bytes": told["modelBytes"],
        "state_bytes": None,
        "peak_bytes": told["memoryBytes"],
    }

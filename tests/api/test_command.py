"""`tinyweb api` as a process, and a page under development against a server."""

from __future__ import annotations

import http.client
import http.server
import json
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.api.running import Running
from tinyweb.cli import main
from tinyweb.cli.api import MISSING

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "tinyweb.cli", "api"]


@contextmanager
def started(*arguments: str | Path) -> Iterator[tuple[subprocess.Popen[str], int, str]]:
    """The process, its port, and the line that says so."""
    command = [*COMMAND, *map(str, arguments), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        match = re.search(r":(\d+)/v1", line)
        assert match is not None, line or process.communicate(timeout=60)[1]
        yield process, int(match[1]), line
    finally:
        process.kill()
        process.communicate(timeout=60)


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_ends_in_the_middle_of_answers(model_folder: Path, number: signal.Signals) -> None:
    """Streams under way are told; the process ends by itself, and says so."""
    with started(model_folder, "--parallel", "4", "--name", "tiny") as (process, port, line):
        assert line.startswith("tiny at http://127.0.0.1:")
        begun, ended = threading.Semaphore(0), list[bytes]()

        def stream() -> None:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            body = {"model": "tiny", "prompt": "Once", "max_tokens": 400, "temperature": 2, "stream": True, "n": 20}
            connection.request("POST", "/v1/completions", json.dumps(body))
            answer = connection.getresponse()
            first = answer.read(1)
            begun.release()
            ended.append(first + answer.read())

        threads = [threading.Thread(target=stream) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert begun.acquire(timeout=60), "no answer begins"
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
        for thread in threads:
            thread.join(300)
        assert process.returncode == 0 and out.endswith("Stopped\n") and "Traceback" not in err
        assert len(ended) == 3 and all(b"shutting down" in e or b"[DONE]" in e for e in ended)


def refused(capfd: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["api", *map(str, arguments)])
    assert ended.value.code == 2
    return capfd.readouterr().err.splitlines()[-1]


def test_what_is_refused_at_the_start(
    capfd: pytest.CaptureFixture[str], model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vectors = model_folder.parent / "tinyembed"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert f"Cannot listen on 127.0.0.1, port {port}" in refused(capfd, vectors, "--port", port)
    assert "Cannot listen on" in refused(capfd, vectors, "--host", "no.such.host.invalid")
    assert "is an object detector, not a model of texts" in refused(capfd, model_folder.parent / "tinyyolo")
    assert "does not exist" in refused(capfd, tmp_path / "nothing")
    assert "--name" in refused(capfd, vectors, vectors)
    assert "--name" in refused(capfd, vectors, "--name", "a", "--name", "b")
    for key in ("", " key"):
        assert "--api-key" in refused(capfd, vectors, "--api-key", key)
    assert "Cannot listen on" in refused(capfd, vectors, "--host", "x" * 70)
    assert "unknown device" in refused(capfd, model_folder, "--device", "ABACUS")
    monkeypatch.setitem(sys.modules, "starlette", None)
    assert MISSING in refused(capfd, vectors) and "pip install" in MISSING


def test_the_page_of_the_document(server: Running, chromium: Browser, tmp_path: Path) -> None:
    """docs/api.md: a page of another port of this machine, by fetch, as the answer comes."""
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    found = re.search(r"```html page\n(.*?)```", text, re.DOTALL)
    assert found is not None
    (tmp_path / "index.html").write_text(found[1], encoding="utf-8")

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, directory=str(tmp_path))

        def log_message(self, *arguments: Any) -> None:
            pass

    pages = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=pages.serve_forever)
    thread.start()
    page = chromium.new_context().new_page()
    try:
        page.goto(f"http://localhost:{pages.server_port}/index.html?api={server.url}")
        page.wait_for_selector("body[data-done]", timeout=60_000)
        assert page.text_content("#answer") == "The capital of France is Paris."
    finally:
        page.context.close()
        pages.shutdown()
        thread.join(300)
        pages.server_close()

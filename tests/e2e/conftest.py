"""Exported sites (each made once per run) and servers that remember what was asked of them."""

import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import browser as browser_tool  # tools/browser.py
import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from tests.control.shared import Shared
from tests.e2e.engines import Chromium, Engine, firefox, webkit
from tests.e2e.pages import TIMEOUT_MS, ExportedPage, export_arguments, wait_for
from tests.models.tiny_diffusion import write_tiny_diffusion
from tinyweb.serve import SiteServer, open_server

ExportedSite = Callable[[str], Path]


def _export(*arguments: str) -> Callable[[Path], None]:
    """Makes a site with the command line."""

    def make(site: Path) -> None:
        command = [sys.executable, "-m", "tinyweb.cli", "export", *arguments, "--force", "-o", str(site)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=1100)
        assert done.returncode == 0, done.stderr

    return make


@pytest.fixture(scope="session")
def exported(shared: Shared, model_folder: Path) -> ExportedSite:
    """The embedded chat model as a site, by `--quant`; made on first use. Not to be changed by tests."""
    return lambda quant: shared(f"chat-{quant}", _export("chat", str(model_folder), "--quant", quant))


@pytest.fixture(scope="session")
def exported_page(shared: Shared, exported: ExportedSite) -> Callable[[ExportedPage], Path]:
    """The site of a page with its default model; made on first use. Not to be changed by tests."""

    def export(page: ExportedPage) -> Path:
        if page.task == "chat":
            return exported("q8")
        return shared(page.task, _export(*export_arguments(page)))

    return export


@pytest.fixture(scope="session")
def tiny_diffusion(shared: Shared) -> Path:
    """A Stable Diffusion of random weights."""

    def make(folder: Path) -> None:
        write_tiny_diffusion(folder, "sd1")
        (folder / "LICENSE.md").write_text("terms")

    return shared("tiny-diffusion", make)


@pytest.fixture(scope="session")
def image_site(tiny_diffusion: Path, shared: Shared) -> Path:
    """The random model as a site. Not to be changed by tests."""
    return shared("tiny-image", _export("image", str(tiny_diffusion), "--quant", "f32", "--size", "64x64"))


@pytest.fixture
def own_site(exported: ExportedSite, tmp_path: Path) -> Path:
    """A copy of the q8 site that a test may damage."""
    return Path(shutil.copytree(exported("q8"), tmp_path / "site"))


@dataclass
class Served:
    """A running server: its address, and all it was asked so far ("GET /index.html 200")."""

    server: SiteServer
    thread: threading.Thread
    requests: list[str] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"http://localhost:{self.server.port}"

    def stop(self) -> None:
        """The host is gone: nothing listens at its address any more."""
        self.server.shutdown()
        self.thread.join(60)
        self.server.server_close()

    def count(self, part: str) -> int:
        """How many requests so far were for a path that contains `part`."""
        return sum(part in r for r in self.requests)


@pytest.fixture
def served() -> Iterator[Callable[..., Served]]:
    """Starts servers; `on_request`, if given, is called with each request before its answer's body is sent."""
    running: list[Served] = []

    def start(site: Path, isolated: bool = True, on_request: Callable[[str], None] | None = None) -> Served:
        def log(line: str) -> None:
            found = re.search(r'"(\S+ \S+) HTTP[^"]*" (\d+)', line)
            if found is None:  # "Request timed out: …" of a connection that was kept open
                return
            request = " ".join(found.groups())
            state.requests.append(request)
            if on_request is not None:
                on_request(request)

        server = open_server(site, isolated=isolated, log=log)
        state = Served(server, threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}))
        state.thread.start()
        running.append(state)
        return state

    yield start
    for state in running:
        if state.thread.is_alive():
            state.stop()


@pytest.fixture
def context(chromium: Browser) -> Iterator[BrowserContext]:
    with chromium.new_context() as context:
        context.set_default_timeout(TIMEOUT_MS)
        yield context


@pytest.fixture
def open_site(chromium: Browser, served: Callable[..., Served]) -> Iterator[Callable[..., Page]]:
    """Opens an exported site on a device of its own: its page, when the model is ready, which throws no error."""
    problems: list[str] = []
    with ExitStack() as contexts:

        def open_one(site: Path, query: str = "?backend=wasm", **device: Any) -> Page:
            context = contexts.enter_context(chromium.new_context(**device))
            context.set_default_timeout(TIMEOUT_MS)
            page = context.new_page()
            page.on("pageerror", lambda error: problems.append(str(error)))
            page.goto(f"{served(site).address}/{query}")
            wait_for(page, "ready")
            return page

        yield open_one
    assert problems == []


@pytest.fixture(scope="session")
def running(chromium: Browser) -> Iterator[Callable[[str], Engine | None]]:
    """The engine of a name, started on first use; None where it could not be had."""
    started: dict[str, Engine | None] = {"chromium": Chromium(chromium)}
    with ExitStack() as open_ones:

        def engine(name: str) -> Engine | None:
            if name not in started:
                if name == "firefox":
                    program = browser_tool.find_firefox()
                    started[name] = open_ones.enter_context(firefox(program)) if program else None
                else:
                    programs = browser_tool.find_webkit()
                    started[name] = open_ones.enter_context(webkit(programs)) if programs else None
            return started[name]

        yield engine


@pytest.fixture
def engine(request: pytest.FixtureRequest, running: Callable[[str], Engine | None]) -> Iterator[Engine]:
    found = running(request.param)
    if found is None:
        pytest.skip(f"{request.node.name} was not run: {request.param} could not be had (tools/browser.py --all)")
    yield found
    found.close_tabs()

"""Exported sites (each made once per run) and servers that remember what was asked of them."""

import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.e2e.pages import ExportedPage, export_command
from tests.models.tiny_diffusion import write_tiny_diffusion
from tinyweb.serve import SiteServer, open_server

ExportedSite = Callable[[str], Path]


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> ExportedSite:
    """The embedded chat model as a site, by `--quant`; made on first use. Not to be changed by tests."""
    made: dict[str, Path] = {}

    def export(quant: str) -> Path:
        if quant not in made:
            site = tmp_path_factory.mktemp("exported") / quant
            command = [
                sys.executable,
                "-m",
                "tinyweb.cli",
                "export",
                "chat",
                str(model_folder),
                "--quant",
                quant,
                "-o",
                str(site),
            ]
            done = subprocess.run(command, capture_output=True, text=True, timeout=600)
            assert done.returncode == 0, done.stderr
            made[quant] = site
        return made[quant]

    return export


@pytest.fixture(scope="session")
def exported_page(tmp_path_factory: pytest.TempPathFactory, exported: ExportedSite) -> Callable[[ExportedPage], Path]:
    """The site of a page with its default model; made on first use. Not to be changed by tests."""
    made: dict[str, Path] = {}

    def export(page: ExportedPage) -> Path:
        if page.task == "chat":
            return exported("q8")
        if page.task not in made:
            site = tmp_path_factory.mktemp("exported") / page.task
            command = [sys.executable, "-m", "tinyweb.cli", *export_command(page, site)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
            assert done.returncode == 0, done.stderr
            made[page.task] = site
        return made[page.task]

    return export


@pytest.fixture(scope="session")
def tiny_diffusion(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Stable Diffusion of random weights."""
    folder = tmp_path_factory.mktemp("diffusion") / "model"
    write_tiny_diffusion(folder, "sd1")
    (folder / "LICENSE.md").write_text("terms")
    return folder


@pytest.fixture(scope="session")
def image_site(tiny_diffusion: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The random model as a site. Not to be changed by tests."""
    site = tmp_path_factory.mktemp("exported") / "image"
    options = ["--quant", "f32", "--size", "64x64", "-o", str(site)]
    command = [sys.executable, "-m", "tinyweb.cli", "export", "image", str(tiny_diffusion), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return site


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

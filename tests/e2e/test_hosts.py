"""Every recipe of docs/hosting.md: a server with the headers, limits and habits of a host, in which a chat answers."""

import json
import re
import shutil
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.conftest import ROOT
from tests.e2e.pages import TIMEOUT_MS, ask, wait_for
from tests.test_cli import Refused, refused
from tinyweb.export.hosts import HEADERS, HOSTS, ISOLATION, MIB, Host, named_host, prepare
from tinyweb.serve import MIME_TYPES, Handler, SiteServer

assert refused  # a fixture


@dataclass
class Habits:
    """What a host does beside sending a site's files. `hidden`: files that it reads itself and serves to nobody;
    `clean`: index.html is redirected to its folder; `types`: of endings that it knows other names for."""

    headers: dict[str, str] = field(default_factory=dict)
    ranges: bool = True
    gzip: bool = True
    hidden: tuple[str, ...] = ()
    clean: bool = False
    types: dict[str, str] = field(default_factory=dict)


def from_headers_file(site: Path) -> dict[str, str]:
    """A `_headers` file as Cloudflare and Netlify read it: a pattern, then indented headers."""
    pattern, *rows = (site / "_headers").read_text().splitlines()
    assert pattern == "/*" and all(row.startswith("  ") for row in rows)
    return dict(row.strip().split(": ", 1) for row in rows)


def from_card(site: Path) -> dict[str, str]:
    """`custom_headers` of a space's card; no others can be set."""
    _, card, _ = (site / "README.md").read_text().split("---\n")
    assert "sdk: static\n" in card and re.search(r'^title: "[^"]*"$', card, re.MULTILINE)
    found = dict(row.strip().split(": ", 1) for row in card.partition("custom_headers:\n")[2].splitlines())
    allowed = {"cross-origin-embedder-policy", "cross-origin-opener-policy", "cross-origin-resource-policy"}
    assert found.keys() <= allowed
    return found


def from_nginx(site: Path) -> Habits:
    text = (site / "nginx.conf").read_text()
    headers = dict(re.findall(r'^add_header (\S+) "([^"]*)" always;$', text, re.MULTILINE))
    block = re.search(r"types \{(.*?)\}", text, re.DOTALL)
    assert block is not None and text.count("{") == text.count("}") + text.count("server {}") - 1
    rows = [row.split() for row in block[1].split(";") if row.strip()]
    known = {f".{ending}": kind for kind, *endings in rows for ending in endings}
    return Habits(headers, types=dict.fromkeys(MIME_TYPES, "application/octet-stream") | known)


def from_policy() -> dict[str, str]:
    """The policy for CloudFront in the documents."""
    text = re.search(r"```json\n(.*?)```", (ROOT / "docs/hosting.md").read_text(), re.DOTALL)
    assert text is not None
    policy = json.loads(text[1])
    items = policy["CustomHeadersConfig"]["Items"]
    assert policy["CustomHeadersConfig"]["Quantity"] == len(items)
    return {item["Header"]: item["Value"] for item in items} | {"X-Content-Type-Options": "nosniff"}


def habits(host: Host, site: Path) -> Habits:
    match host.name:
        case "github-pages":
            return Habits({"Cache-Control": "max-age=600", "Access-Control-Allow-Origin": "*"}, hidden=(".nojekyll",))
        case "cloudflare-pages":
            return Habits(from_headers_file(site), ranges=False, hidden=("_headers",), clean=True)
        case "netlify":
            return Habits(from_headers_file(site), hidden=("_headers",))
        case "huggingface-spaces":
            return Habits(from_card(site), gzip=False)
        case "nginx":
            return from_nginx(site)
        case _:
            unknown = dict.fromkeys((".wgsl", ".jinja", ".webmanifest"), "binary/octet-stream")
            return Habits(from_policy(), types=unknown)


class HostHandler(Handler):
    server: "HostServer"

    def do_GET(self) -> None:
        habits, path = self.server.habits, self.path.partition("?")[0]
        self.server.requests.append(path)
        for name, kept in (("Range", habits.ranges), ("Accept-Encoding", habits.gzip)):
            if not kept:
                del self.headers[name]
        if path.rpartition("/")[2] in habits.hidden:
            self._text(HTTPStatus.NOT_FOUND, "", {})
        elif habits.clean and path.endswith("/index.html"):
            self._text(HTTPStatus.PERMANENT_REDIRECT, "", {"Location": path.removesuffix("index.html")})
        else:
            super().do_GET()

    def _head(self, status: HTTPStatus, headers: dict[str, str]) -> None:
        habits, ending = self.server.habits, Path(self.path.partition("?")[0]).suffix
        if ending in habits.types:
            headers = headers | {"Content-Type": habits.types[ending]}
        if not habits.ranges:
            headers = {name: value for name, value in headers.items() if name != "Accept-Ranges"}
        super()._head(status, headers | habits.headers)


class HostServer(SiteServer):
    def __init__(self, site: Path, habits: Habits):
        super().__init__(site, isolated=False, embedding=True)
        self.RequestHandlerClass, self.habits = HostHandler, habits
        self.requests: list[str] = []

    @property
    def address(self) -> str:
        return f"http://localhost:{self.port}"


@pytest.fixture
def hosted(own_site: Path) -> Iterator[Callable[[str], HostServer]]:
    """Serves the site as a host does, prepared for it."""
    running: list[HostServer] = []

    def start(name: str) -> HostServer:
        host = named_host(name)
        prepare(own_site, host)
        running.append(HostServer(own_site, habits(host, own_site)))
        threading.Thread(target=running[-1].serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return running[-1]

    yield start
    for server in running:
        server.shutdown()
        server.server_close()


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    with chromium.new_context() as context:
        page = context.new_page()
        page.set_default_timeout(TIMEOUT_MS)
        yield page


def first_visit(page: Page, server: HostServer) -> None:
    page.goto(f"{server.address}/?backend=wasm")
    wait_for(page, "ready")


@pytest.mark.parametrize("name", [host.name for host in HOSTS])
def test_headers_of_a_host(hosted: Callable[[str], HostServer], own_site: Path, name: str) -> None:
    host, server = named_host(name), hosted(name)

    def get(path: str, **headers: str):
        return urllib.request.urlopen(urllib.request.Request(server.address + path, headers=headers), timeout=60)

    wasm = next((own_site / "model/kernels").glob("*.wasm")).relative_to(own_site).as_posix()
    for path, kind in {
        "/": "text/html",
        f"/{wasm}": "application/wasm",
        "/assets/tinyweb.js": "text/javascript",
        "/sw.js": "text/javascript",
        "/model/manifest.json": "application/json",
        "/model/weights/000.bin": "octet-stream",
    }.items():
        with get(path) as answer:
            assert kind in answer.headers["Content-Type"], path
            for header, value in ISOLATION.items():
                assert answer.headers[header] == (value if host.headers else None), (path, header)
    with get("/model/weights/000.bin", Range="bytes=0-99") as answer:
        assert answer.status == (206 if server.habits.ranges else 200)
    with get(f"/{wasm}", **{"Accept-Encoding": "gzip"}) as answer:
        assert answer.headers["Content-Encoding"] == ("gzip" if server.habits.gzip else None)
    for hidden in server.habits.hidden:
        with pytest.raises(urllib.error.HTTPError):
            get(f"/{hidden}")


@pytest.mark.parametrize("name", ["github-pages", "cloudflare-pages", "nginx"])
def test_a_chat_answers_with_threads_on_the_first_visit(
    hosted: Callable[[str], HostServer], page: Page, name: str
) -> None:
    """One host that cannot send headers, one with a file for them and odd habits, one with types of its own."""
    server = hosted(name)
    first_visit(page, server)
    assert page.evaluate("crossOriginIsolated")
    assert page.get_by_test_id("backend").get_attribute("data-backend") == "wasm"
    assert re.search(r"\b12\b", ask(page, "What is 7 plus 5?"))
    assert page.get_by_text("needs the network").count() == 0
    # opened anew once, where the worker supplies the headers; what is kept by then comes from it
    again = page.evaluate("performance.getEntriesByType('navigation')[0].type") == "reload"
    assert again == (named_host(name).isolates == "service worker")
    page.reload()
    wait_for(page, "ready")
    assert page.get_by_test_id("backend").get_attribute("data-backend") == "wasm"
    assert page.evaluate("sessionStorage.getItem('tinyweb-isolated')") == ("1" if again else None)


def test_without_a_worker_the_page_is_opened_once(
    hosted: Callable[[str], HostServer], own_site: Path, page: Page
) -> None:
    (own_site / "sw.js").write_text("throw new Error('no');")
    server = hosted("github-pages")
    first_visit(page, server)
    assert page.get_by_test_id("backend").get_attribute("data-backend") == "wasm-single"
    assert server.requests.count("/") == 1
    page.reload()
    wait_for(page, "ready")
    assert server.requests.count("/") == 2


def test_what_waits_for_no_threads_is_opened_once(hosted: Callable[[str], HostServer], page: Page) -> None:
    server = hosted("github-pages")
    page.goto(f"{server.address}/?backend=wasm-single")
    wait_for(page, "ready")
    page.wait_for_timeout(300)
    assert page.evaluate("performance.getEntriesByType('navigation')[0].type") == "navigate"


def test_limits(own_site: Path, refused: Refused, tmp_path: Path) -> None:
    for host in HOSTS:
        prepare(own_site, host)
    assert (own_site / "_headers").read_text().count("\n") == 1 + len(HEADERS)
    shard = own_site / "model/weights/000.bin"
    with shard.open("r+b") as file:
        file.truncate(26 * MIB)
    assert "export it with --shard-bytes 26214400" in refused("host", own_site, "cloudflare-pages")
    shard.rename(own_site / "model/tokenizer.json")
    assert "this file cannot be divided" in refused("host", own_site, "cloudflare-pages")
    with (own_site / "model/tokenizer.json").open("r+b") as file:
        file.truncate(101 * MIB)
    assert "GitHub Pages takes files of at most 100 MiB" in refused("host", own_site, "github-pages")
    assert "there is no host 'geocities'" in refused("host", own_site, "geocities")
    assert "is no exported site" in refused("host", tmp_path, "nginx")
    shutil.rmtree(own_site)

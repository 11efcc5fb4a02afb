"""What every page of tinyweb promises, whatever its model does: accessible in light and dark, small, asking nobody
else, and fit for a home screen. The models are pretended ones where a page's own tests have one."""

import gzip
import json
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urljoin

import page_size  # tools/page_size.py
import pytest
from playwright.sync_api import Browser, BrowserContext, Page

import tinyweb
from tests.conftest import ROOT
from tests.e2e.conftest import Served
from tests.e2e.pages import MOCKS, PAGES, PHONE, TIMEOUT_MS, ExportedPage, pretended, wait_for
from tinyweb.export.site import BUILT

Serve = Callable[..., Served]
AXE = (ROOT / "node_modules/axe-core/axe.min.js").read_text()
TOO_SMALL = """() =>
  [...document.querySelectorAll(
    ".button, button, summary, select, textarea, input:not([type=radio]), label:has(input[type=radio])"
  )]
    .filter((element) => element.checkVisibility())
    .map((element) => [element, element.getBoundingClientRect()])
    .filter(([, { width, height }]) => width < 43.5 || height < 43.5)
    .map(([element, { width, height }]) => `${element.outerHTML.slice(0, 100)}: ${width} x ${height}`)"""
SMALL_PRINT = """() =>
  [...document.querySelectorAll("input:not([type=file], [type=radio], [type=range], [type=checkbox]), textarea")]
    .filter((field) => parseFloat(getComputedStyle(field).fontSize) < 16)
    .map((field) => field.outerHTML)"""
PROBE = """
let evaluated = true;
try { new Function("return 1")(); } catch { evaluated = false; }
globalThis.evaluated = evaluated;
"""

pytestmark = pytest.mark.parametrize(
    "task",
    [pytest.param(task, marks=[] if mock.is_dir() else pytest.mark.slow) for task, mock in MOCKS.items()],
)


@pytest.fixture
def site(task: str, tmp_path: Path, exported_page: Callable[[ExportedPage], Path]) -> Path:
    """The page with a pretended model beside it, else with its default one."""
    if not MOCKS[task].is_dir():
        return exported_page(next(page for page in PAGES if page.task == task))
    return pretended(tmp_path / "site", task)


@pytest.fixture
def context(chromium: Browser) -> Iterator[BrowserContext]:
    with chromium.new_context(reduced_motion="reduce") as context:  # fades would lower the contrast that is measured
        context.set_default_timeout(TIMEOUT_MS)
        yield context


def visit(context: BrowserContext, served: Serve, site: Path) -> Page:
    page = context.new_page()
    page.goto(f"{served(site).address}/?mock=fast")
    wait_for(page, "ready")
    return page


def violations(page: Page) -> list[str]:
    page.evaluate(AXE)
    found = page.evaluate("axe.run()")["violations"]
    return [f"{v['id']}: {node['html']}: {node.get('failureSummary')}" for v in found for node in v["nodes"]]


def overflow(page: Page) -> int:
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessible(context: BrowserContext, served: Serve, site: Path, scheme: str) -> None:
    page = visit(context, served, site)
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light", reduced_motion="reduce")
    page.locator(f"html[data-theme={scheme}]").wait_for()
    assert violations(page) == []
    page.get_by_test_id("settings").click()
    page.get_by_test_id("stored").wait_for()
    assert violations(page) == []
    page.get_by_test_id("about-open").click()
    page.get_by_test_id("about").wait_for()
    assert violations(page) == []


def test_fits_a_phone(chromium: Browser, served: Serve, site: Path) -> None:
    with chromium.new_context(**PHONE, reduced_motion="reduce") as context:
        page = visit(context, served, site)
        assert overflow(page) == 0
        assert page.evaluate(TOO_SMALL) == []
        page.get_by_test_id("settings").tap()
        page.get_by_test_id("stored").wait_for()
        page.wait_for_timeout(100)
        assert page.evaluate(TOO_SMALL) == []
        small = page.evaluate(SMALL_PRINT)
        assert small == []  # phones zoom in on smaller ones


def test_asks_nobody_else_and_evaluates_nothing(context: BrowserContext, served: Serve, site: Path) -> None:
    seen: list[str] = []
    problems: list[str] = []
    context.on("request", lambda request: seen.append(request.url))
    context.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page = visit(context, served, site)
    origin = page.url.split("/?")[0]
    assert seen and [url for url in seen if not url.startswith((origin, "blob:", "data:"))] == []
    assert problems == []
    policy = page.locator("meta[http-equiv=Content-Security-Policy]").get_attribute("content") or ""
    rules = {rule.split()[0]: rule.split()[1:] for rule in policy.split(";")}
    assert rules["default-src"] == ["'self'"]
    assert rules["script-src"] == ["'self'", "'wasm-unsafe-eval'"]
    assert {"'none'"} == {*rules["object-src"], *rules["base-uri"], *rules["form-action"]}
    allowed = {"'self'", "'none'", "'wasm-unsafe-eval'", "data:", "blob:"}
    assert {source for sources in rules.values() for source in sources} <= allowed
    context.route("**/probe.js", lambda route: route.fulfill(content_type="text/javascript", body=PROBE))
    tried = page.evaluate(
        """async () => {
          const script = document.createElement("script");
          script.textContent = "globalThis.inline = true";
          document.head.append(script);
          await import(new URL("probe.js", location).href); // under the page's policy; what tests evaluate is not
          const fetched = await fetch("https://example.com/").then(() => true, () => false);
          return [evaluated, "inline" in globalThis, fetched];
        }"""
    )
    assert tried == [False, False, False]


def test_a_script_that_does_not_come(context: BrowserContext, served: Serve, site: Path) -> None:
    """The reader is told what to do, and comes into the page with it."""
    page = context.new_page()
    page.route("**/assets/page-*.js", lambda route: route.abort())
    page.goto(f"{served(site).address}/?mock=fast")
    page.get_by_text("is opening. Should nothing more appear, reload the page.").wait_for()
    page.unroute_all()
    page.reload()
    wait_for(page, "ready")
    assert not page.get_by_text("is opening.").is_visible()


def test_says_whose_code_it_holds(context: BrowserContext, served: Serve, site: Path, task: str) -> None:
    page = visit(context, served, site)
    page.get_by_test_id("settings").click()
    page.get_by_test_id("about-open").click()
    address = urljoin(page.url, page.get_by_test_id("licenses").get_attribute("href"))
    text = page.request.get(address).text()
    assert text.startswith(f"tinyweb {tinyweb.__version__}, MIT")
    for package in ("preact", "@huggingface/tokenizers", *(("marked", "dompurify") if task == "chat" else ())):
        assert f"\n\n{package} " in text


def test_weight(task: str) -> None:
    assert not page_size.over_budget(task, page_size.built_files(task), page_size.PAGE_BUDGETS[task])
    # what is needed before anything is drawn
    html = (BUILT / task / "index.html").read_text()
    first = [name for name in re.findall(r'(?:src|href)="\./([^"]+)"', html) if name.endswith((".js", ".css"))]
    assert len(first) >= 3
    assert sum(len(gzip.compress((BUILT / task / name).read_bytes())) for name in first) < 70_000


def png_size(content: bytes) -> tuple[int, int]:
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", content[16:24])
    return width, height


def test_fit_for_a_home_screen(context: BrowserContext, served: Serve, site: Path) -> None:
    page = visit(context, served, site)
    base = page.url.split("?")[0]
    assert page.locator("html").get_attribute("lang") == "en"
    assert page.title()
    viewport = page.locator("meta[name=viewport]").get_attribute("content") or ""
    assert "width=device-width" in viewport and "viewport-fit=cover" in viewport
    assert "user-scalable" not in viewport and "maximum-scale" not in viewport
    assert page.locator("meta[name=description]").get_attribute("content")
    manifest = json.loads(
        page.request.get(urljoin(base, page.locator("link[rel=manifest]").get_attribute("href"))).body()
    )
    assert manifest["name"] and manifest["short_name"] and manifest["description"]
    assert manifest["start_url"] == manifest["scope"] == "./"
    assert manifest["display"] == "standalone"
    sizes = {icon["sizes"] for icon in manifest["icons"]}
    assert {"192x192", "512x512"} <= sizes
    assert {icon["sizes"] for icon in manifest["icons"] if icon["purpose"] == "maskable"} == {"192x192", "512x512"}
    assert "id" not in manifest  # it is relative to the origin: sites in two folders would be one and the same app
    assert manifest["theme_color"] and manifest["background_color"]
    for icon in manifest["icons"]:
        answer = page.request.get(urljoin(base, icon["src"]))
        assert answer.ok and answer.headers["content-type"] == icon["type"]
        if icon["type"] == "image/png":
            assert "x".join(map(str, png_size(answer.body()))) == icon["sizes"]
    touch = page.request.get(urljoin(base, page.locator("link[rel=apple-touch-icon]").get_attribute("href")))
    assert png_size(touch.body()) == (180, 180)
    icon = page.request.get(urljoin(base, page.locator("link[rel=icon]").get_attribute("href")))
    assert icon.ok and b"<svg" in icon.body()

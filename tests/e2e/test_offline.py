"""After the first visit every page opens and works without a network; a new export at the same address is offered, and
files of two exports are never mixed."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page

from tests.e2e.conftest import Served
from tests.e2e.pages import PAGES, TIMEOUT_MS, ExportedPage, ask, pretended, until, wait_for
from tests.e2e.painting import begin, expect_pictures
from tinyweb.export.site import BUILT, copy_page, seal

Serve = Callable[..., Served]
Exported = Callable[[ExportedPage], Path]
CHAT = PAGES[0]


def visit(context: BrowserContext, address: str) -> Page:
    """The page, ready, and kept on the device by its worker."""
    page = context.new_page()
    page.set_default_timeout(TIMEOUT_MS)
    page.goto(address)
    wait_for(page, "ready")
    page.evaluate("navigator.serviceWorker.ready.then(() => 0)")
    return page


def publish(site: Path, mark: str, task: str = "chat") -> None:
    """Another export at the same place: its loader and its page say `mark`."""
    shutil.rmtree(site / "assets")
    copy_page(site, task)
    for name in ("model/model.js", "theme.js"):
        lines = (site / name).read_text().splitlines()
        kept = [line for line in lines if not line.startswith("globalThis.mark")]
        (site / name).write_text("\n".join([*kept, f'globalThis.mark = [...(globalThis.mark ?? []), "{mark}"];', ""]))
    seal(site)


@pytest.mark.parametrize(
    ("tested", "backend"),
    [
        pytest.param(
            page,
            backend,
            id=f"{page.task}-{backend}",
            marks=[] if page is CHAT and backend == "wasm" else pytest.mark.slow,
        )
        for page in PAGES
        for backend in ("wasm", "webgpu")
    ],
)
def test_without_a_network(
    context: BrowserContext, exported_page: Exported, served: Serve, tested: ExportedPage, backend: str
) -> None:
    site = served(exported_page(tested))
    page = visit(context, f"{site.address}/?backend={backend}")
    context.set_offline(True)
    site.stop()
    page.reload()
    wait_for(page, "ready")
    assert page.get_by_test_id("backend").get_attribute("data-backend") == backend
    tested.use(page)
    # and in a new tab, as from the home screen
    page.close()
    page = context.new_page()
    page.set_default_timeout(TIMEOUT_MS)
    page.goto(f"{site.address}/?backend={backend}")
    wait_for(page, "ready")
    tested.use(page)


@pytest.mark.slow
def test_threads_come_with_the_worker(context: BrowserContext, exported_page: Exported, served: Serve) -> None:
    """A host that cannot send isolation headers: the page has them from the worker, and keeps them."""
    page = visit(context, f"{served(exported_page(CHAT), isolated=False).address}/?backend=wasm")
    assert page.get_by_test_id("backend").get_attribute("data-backend") == "wasm"
    page.reload()
    wait_for(page, "ready")
    assert page.get_by_test_id("backend").get_attribute("data-backend") == "wasm"


def test_a_new_version_is_offered(context: BrowserContext, own_site: Path, served: Serve) -> None:
    publish(own_site, "old")
    site = served(own_site)
    page = visit(context, f"{site.address}/?backend=wasm-single")
    ask(page, "Hello, my name is Mira!")
    publish(own_site, "new")
    page.reload()
    wait_for(page, "ready")
    assert page.evaluate("mark") == ["old", "old"]
    page.get_by_text("A new version is ready").wait_for()
    # the old page goes on with the old model, also where it loads it anew
    page.get_by_test_id("settings").click()
    page.get_by_text("CPU, one core").click()
    page.get_by_text("Automatic").click()
    wait_for(page, "ready")
    assert page.evaluate("fetch('model/model.js').then((r) => r.text())").count('"old"') == 1
    page.get_by_test_id("close-settings").click()
    with page.expect_navigation():
        page.get_by_test_id("update").click()
    wait_for(page, "ready")
    assert page.evaluate("mark") == ["new", "new"]
    assert page.get_by_text("A new version is ready").count() == 0
    assert "Mira" in ask(page, "What is my name?")


def test_a_new_version_waits_for_a_picture(
    context: BrowserContext, image_site: Path, tmp_path: Path, served: Serve
) -> None:
    site = Path(shutil.copytree(image_site, tmp_path / "site"))
    publish(site, "old", "image")
    page = visit(context, f"{served(site).address}/?backend=wasm-single")
    publish(site, "new", "image")
    page.reload()
    wait_for(page, "ready")
    page.get_by_test_id("update").wait_for()
    begin(page, "red circle", steps=40)
    with page.expect_navigation():
        page.get_by_test_id("update").click()
        page.get_by_text("opens as soon as this is done").wait_for()
    wait_for(page, "ready")
    assert page.evaluate("mark") == ["new", "new"]
    expect_pictures(page, "red circle")


def test_other_tabs_go_on_with_the_version_they_have(context: BrowserContext, own_site: Path, served: Serve) -> None:
    publish(own_site, "old")
    site = served(own_site)
    visit(context, f"{site.address}/?backend=wasm-single").close()
    first, second = (visit(context, f"{site.address}/?backend=wasm-single") for _ in range(2))
    publish(own_site, "new")
    first.reload()
    wait_for(first, "ready")
    with first.expect_navigation():
        first.get_by_test_id("update").click()
    wait_for(first, "ready")
    assert first.evaluate("mark") == ["new", "new"]
    # now governed by the new worker, and still served the old files; the model's worker too
    second.get_by_text("A new version is ready").wait_for()
    assert '"old"' in second.evaluate("fetch('model/model.js').then((r) => r.text())")
    code = "onmessage = ({ data }) => fetch(data).then((r) => r.text()).then(postMessage);"
    (own_site / "asking.js").write_text(code)
    loader = second.evaluate(
        """() => new Promise((resolve) => {
          const worker = new Worker("asking.js");
          worker.onmessage = ({ data }) => resolve(data);
          worker.postMessage(new URL("model/model.js", location).href);
        })"""
    )
    assert '"old"' in loader
    assert "12" in ask(second, "What is 7 plus 5?")
    second.reload()
    wait_for(second, "ready")
    assert second.evaluate("mark") == ["new", "new"]


@pytest.mark.slow
def test_half_a_new_version_is_not_taken(context: BrowserContext, own_site: Path, served: Serve) -> None:
    """While a site is being uploaded it serves a mixture: the old version stays until all of the new one is there."""
    publish(own_site, "old")
    site = served(own_site)
    page = visit(context, f"{site.address}/?backend=wasm-single")
    old_loader = (own_site / "model/model.js").read_bytes()
    publish(own_site, "new")
    new_loader = (own_site / "model/model.js").read_bytes()
    (own_site / "model/model.js").write_bytes(old_loader)
    update = "navigator.serviceWorker.ready.then((r) => r.update()).then((r) => new Promise((done) => {" + (
        "const w = r.installing; if (!w) return done(r.waiting?.state ?? 'none');"
        "w.onstatechange = () => done(w.state); })).catch((e) => String(e))"
    )
    assert page.evaluate(update) == "redundant"
    page.reload()
    wait_for(page, "ready")
    assert page.evaluate("mark") == ["old", "old"]
    (own_site / "model/model.js").write_bytes(new_loader)
    page.reload()
    page.get_by_test_id("update").wait_for()


def test_a_site_inside_the_folder_of_another(context: BrowserContext, served: Serve, tmp_path: Path) -> None:
    """The outer one's worker is asked for the inner one's files, too; each keeps and deletes its own only."""
    outer = pretended(tmp_path / "outer", "chat")
    seal(outer)
    inner = pretended(outer / "search", "embed")
    seal(inner)
    site = served(outer)
    addresses = [f"{site.address}/", f"{site.address}/search/"]
    for address in addresses:
        page = visit(context, f"{address}?mock=fast")
        page.get_by_test_id("settings").click()
        page.get_by_test_id("stored-page").filter(has_text="opens without a network").wait_for()
        page.close()
    (inner / "theme.js").write_text((inner / "theme.js").read_text() + "\nglobalThis.newer = true;\n")
    (inner / "sw.js").write_bytes((BUILT / "embed/sw.js").read_bytes())
    seal(inner)
    page = context.new_page()
    page.goto(f"{addresses[1]}?mock=fast")
    page.get_by_test_id("update").click()
    page.wait_for_function("() => globalThis.newer")
    wait_for(page, "ready")
    kept = "caches.keys().then((names) => names.map((name) => name.split(':').slice(0, 2).join(':')).sort())"
    # A minute later, when no page is still being opened with the old version, the next visit lets go of it.
    page.evaluate(
        """async () => {
          const opened = await caches.open("tinyweb-site-clients:/search/");
          for (const request of await opened.keys()) {
            const pin = await (await opened.match(request)).json();
            await opened.put(request, new Response(JSON.stringify({ ...pin, at: pin.at - 60_000 })));
          }
        }"""
    )
    page.reload()
    wait_for(page, "ready")
    until(page, f"{kept}.then((names) => names.length === 4)")
    names = [f"tinyweb-site{kind}:{folder}" for kind in ("", "-clients") for folder in ("/", "/search/")]
    assert page.evaluate(kept) == sorted(names)
    context.set_offline(True)
    site.stop()
    for address, title in zip(addresses, ("TinyChat", "TinySearch"), strict=True):
        page.goto(f"{address}?mock=fast")
        wait_for(page, "ready")
        assert page.title() == title


@pytest.mark.slow
def test_several_sites_on_one_origin(
    context: BrowserContext, exported_page: Exported, served: Serve, tmp_path: Path
) -> None:
    """At /a/ and /b/, as on most free hosts: each opens offline, with its own conversation."""
    root = tmp_path / "host"
    for name in ("a", "b"):
        shutil.copytree(exported_page(CHAT), root / name)
    (root / "index.html").write_text("<p>two sites")
    site = served(root)
    for name in ("a", "b"):
        page = visit(context, f"{site.address}/{name}/?backend=wasm-single")
        ask(page, f"Hello from {name}!")
        page.close()
    assert len(page.context.pages) == 0
    context.set_offline(True)
    site.stop()
    for name in ("a", "b"):
        page = context.new_page()
        page.goto(f"{site.address}/{name}/")
        wait_for(page, "ready")
        assert page.get_by_test_id("message-user").all_inner_texts() == [f"Hello from {name}!"]
        page.close()


def test_where_there_are_no_service_workers(context: BrowserContext, exported_page: Exported, served: Serve) -> None:
    context.add_init_script("delete Navigator.prototype.serviceWorker")
    page = context.new_page()
    page.goto(f"{served(exported_page(CHAT)).address}/?backend=wasm-single")
    wait_for(page, "ready")
    assert "12" in ask(page, "What is 7 plus 5?")


def test_a_page_that_was_not_exported_has_no_worker() -> None:
    for page in PAGES:
        assert json.loads((BUILT / page.task / "site.json").read_text()) is None

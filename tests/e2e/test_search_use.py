"""The exported search page as it is lived with: many files, a book, the keyboard alone, odd queries; on WebAssembly."""

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.e2e.pages import DESKTOP, EMBED, TIMEOUT_MS, ExportedPage, find, until, wait_for

WORDS = ("winter", "river", "engine", "garden", "letter", "market", "signal", "copper", "window", "thunder", "harbour")


@pytest.fixture
def page(open_site: Callable[..., Page], exported_page: Callable[[ExportedPage], Path]) -> Page:
    return open_site(exported_page(EMBED), **DESKTOP)


def given(name: str, content: str | bytes) -> dict[str, Any]:
    return {"name": name, "mimeType": "", "buffer": content.encode() if isinstance(content, str) else content}


def document(page: Page, name: str) -> Locator:
    return page.get_by_test_id("document").filter(has_text=name)


def read(page: Page, name: str) -> None:
    """Waits until a document can be searched."""
    document(page, name).get_by_text(re.compile(r"^[\d,]+ passages?$")).wait_for()


def book(passages: int) -> str:
    """Paragraphs of a passage each, one of them about something."""
    rng = random.Random(5)
    paragraphs = [f"{i}: {' '.join(rng.choices(WORDS, k=20))}." for i in range(passages - 1)]
    paragraphs.insert(passages // 2, "The baker fell asleep, and all of the bread was burnt that morning.")
    return "\n\n".join(paragraphs)


def test_files_of_all_kinds(page: Page) -> None:
    """Those that are texts can be searched; of the others each is named, with what to do; one is deleted for good."""
    page.get_by_test_id("file").set_input_files([
        given("notes.txt", "The ferry was cancelled because the sea was too rough."),
        given("paper.pdf", "%PDF-1.7"),
        given("clocks.md", "# Clocks\n\nMy sister repairs old clocks behind the station."),
        given("photo.txt", bytes(range(256))),
        given("rent.html", "<script>document.title = 'run'</script><p>The landlord raised the rent.</p>"),
        given("empty.txt", " \n"),
        given("ancient.txt", "Das Café schließt früh.".encode("latin-1")),
    ])  # fmt: skip
    error = page.get_by_test_id("error")
    expect(error).to_contain_text("“paper.pdf”: PDF files cannot be read here: copy the text out of it and paste it")
    expect(error).to_contain_text("“photo.txt” is no text")
    expect(error).to_contain_text("“empty.txt” holds no text")
    for name in ("notes.txt", "clocks.md", "rent.html", "ancient.txt"):
        read(page, name)
    page.get_by_test_id("close-error").click()
    assert "ferry" in find(page, "boat trip called off")[0]
    assert "clocks" in find(page, "fixing antique watches")[0]
    assert "landlord" in find(page, "housing is getting more expensive")[0]
    assert any("Café schließt" in text for text in find(page, "Café"))
    page.get_by_role("button", name="Delete “rent.html”").click()
    assert "landlord" not in "".join(find(page, "the landlord wants more"))
    page.reload()
    wait_for(page, "ready")
    expect(page.get_by_test_id("document")).to_have_count(4)
    assert "landlord" not in "".join(find(page, "housing is getting more expensive"))
    assert "ferry" in find(page, "boat trip called off")[0]
    assert page.title() == "TinySearch"


def test_by_keyboard_alone(page: Page) -> None:
    """A text is added, found, opened and left without a mouse; everything on the way has a name."""
    focused = "document.activeElement.dataset.testid"
    read(page, "A small household almanac")

    def tab_to(test_id: str, key: str = "Tab") -> None:
        for _ in range(40):
            if page.evaluate(focused) == test_id:
                return
            page.keyboard.press(key)
        raise AssertionError(f"{test_id} cannot be reached by {key}")

    expect(page.get_by_role("textbox", name="What to look for")).to_be_focused()
    tab_to("text")
    page.keyboard.insert_text("The oldest lighthouse of the coast burns no more.\n\nCherries ripen in June.")
    page.keyboard.press("Control+Enter")
    read(page, "The oldest lighthouse")
    page.get_by_role("list").get_by_role("button", name=re.compile("^Delete “The oldest lighthouse")).wait_for()
    tab_to("query", "Shift+Tab")
    page.keyboard.type("when do the cherries get ripe")
    page.locator('[data-testid="results"][aria-busy="false"][data-query="when do the cherries get ripe"]').wait_for()
    page.get_by_role("list", name="Passages found").wait_for()
    page.keyboard.press("ArrowDown")
    assert page.evaluate(focused) == "open-result"
    page.keyboard.press("Enter")
    page.get_by_role("dialog", name="The oldest lighthouse").wait_for()
    assert "Cherries" in page.get_by_test_id("passage").inner_text()
    page.keyboard.press("Escape")
    page.get_by_test_id("passage-dialog").wait_for(state="detached")
    assert page.evaluate(focused) == "open-result"
    page.keyboard.press("/")
    assert page.evaluate(focused) == "query"
    page.keyboard.press("Escape")
    page.get_by_test_id("welcome").wait_for()  # an empty query
    tab_to("delete")
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("document")).to_have_count(1)


def test_odd_queries(page: Page) -> None:
    """Empty ones find nothing and say so, very long and strange ones do no harm."""
    read(page, "A small household almanac")
    page.get_by_test_id("query").fill("   ")
    page.get_by_test_id("welcome").wait_for()
    for query in ("the night train " * 4000, "?", "🚂" * 200, "<script>alert(1)</script>", "a" * 20_000, "\u202eniart"):
        page.get_by_test_id("query").fill(query)
        shown = page.get_by_test_id("results")
        until(
            page,
            """(query) => {
                const list = document.querySelector("[data-testid=results]");
                return list?.dataset.query === query && list.ariaBusy === "false";
            }""",
            query,
        )
        expect(shown.get_by_test_id("result-item").first).to_be_visible()
        expect(page.get_by_test_id("error")).to_have_count(0)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_long_text_that_is_pasted(page: Page) -> None:
    """200 KB go into the field as they are, also into the middle of a text; reading is shown, stopped and undone."""
    read(page, "A small household almanac")
    text = book(1600)
    assert len(text) > 200_000
    page.get_by_test_id("text").fill("Before. After.")
    page.get_by_test_id("text").evaluate("(field) => field.setSelectionRange(8, 8)")
    page.keyboard.insert_text(text)
    assert page.get_by_test_id("text").input_value() == f"Before. {text}After."
    page.get_by_test_id("add").click()
    expect(page.get_by_test_id("text")).to_have_value("")
    document(page, "Before. 0:").get_by_text(re.compile(r"^[\d,]+ of 1,[56]\d\d passages…$")).wait_for()
    assert "night train" in find(page, "overnight trip by rail", reading=True)[0]
    page.get_by_test_id("stop").click()
    page.get_by_test_id("paused").wait_for()
    page.get_by_role("button", name="Delete “Before. 0:").click()
    page.get_by_test_id("paused").wait_for(state="detached")
    expect(page.get_by_test_id("document")).to_have_count(1)


@pytest.mark.slow
def test_a_book(page: Page) -> None:
    """Five thousand passages: progress is shown; one can search meanwhile, stop, leave, go on and delete the book."""
    page.get_by_test_id("file").set_input_files(given("book.txt", book(5000)))
    expect(page.get_by_test_id("indexing")).to_contain_text("book.txt", timeout=TIMEOUT_MS)
    document(page, "book.txt").get_by_text(re.compile(r"^[\d,]+ of 5,000 passages…$")).wait_for()
    progress = page.get_by_role("progressbar", name="Passages read")
    first = float(progress.get_attribute("value") or 0)
    expect(page.get_by_test_id("indexing")).to_contain_text("left", timeout=TIMEOUT_MS)
    # the example's passages are found while the book is being read
    assert "night train" in find(page, "overnight trip by rail", reading=True)[0]
    expect(page.get_by_test_id("indexing")).to_be_visible()
    until(page, "(first) => document.querySelector('[data-testid=progress]').value > first + 100", first)
    page.get_by_test_id("stop").click()
    page.get_by_test_id("paused").wait_for()
    page.reload()
    expect(page.get_by_test_id("indexing")).to_contain_text("book.txt", timeout=TIMEOUT_MS)  # and goes on where it was
    done = re.compile(r"^([\d,]+) of 5,000 passages…$")
    document(page, "book.txt").get_by_text(done).wait_for()
    kept = done.match(document(page, "book.txt").locator("small").inner_text())
    assert kept and int(kept[1].replace(",", "")) > 100
    # what has been read can be found, and is gone with its document, also in the midst of reading
    assert "river" in find(page, "river", reading=True)[0]
    page.get_by_role("button", name="Delete “book.txt”").click()
    page.get_by_test_id("indexing").wait_for(state="detached")
    expect(page.get_by_test_id("document")).to_have_count(1)
    assert "night train" in find(page, "overnight trip by rail")[0]

"""Every figure in the documents is computed here, or dated with the commit that it was measured at."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.figure_values import MODELS, ROOT, chat_items
from tests.figures import CHAT, FIGURES, PLAIN, Figure

DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("README.md", "CHANGELOG.md", "docs/*.md", "assets/models/*/README.md", "web/runtime/README.md")
    for path in ROOT.glob(pattern)
)
UNIT = r"(?:GFLOP/s|TFLOP/s|GB/s|MB/s|tokens/s|ms|µs|ns|s|minutes?|seconds?|hours?|times|%|MB|KB|GB|MiB|GiB|KiB)"
NUMBER = re.compile(
    rf"(?<![\w.])(?:\d+\.\d+|\d+(?:,\d\d\d)*)(?=\s?{UNIT}(?![\w/]))|(?<![\w./-])(?<!arXiv\s)\d+\.\d+(?![\w.])"
)
"""What is taken for a figure: a number with a unit, and any number with a decimal point but the id of a paper."""
STAMP = re.compile(r"\b(20\d\d-\d\d-\d\d), ([0-9a-f]{7})\b")


def blocks(text: str) -> Iterator[tuple[int, str]]:
    """Paragraphs, items of lists and tables, each with its offset; code is left out."""
    text = re.sub(r"^(```|~~~).*?^\1", lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.MULTILINE | re.DOTALL)
    begin, found, offset = 0, "", 0
    for line in [*text.splitlines(keepends=True), ""]:
        table, item = line.startswith("|"), re.match(r"\s*(?:[-*]|\d+\.) ", line)
        code = line.startswith("    ") and not found
        if not line.strip() or line.startswith("#") or item or code or table != found.startswith("|"):
            if found.strip():
                yield begin, found
            begin, found = offset, ""
        if line.strip() and not line.startswith("#") and not code:
            found += line
        else:
            begin = offset + len(line)
        offset += len(line)


def undated(document: str) -> list[str]:
    """Blocks with figures that nothing computes and that are not dated. Of a table the paragraphs beside it are."""
    text = (ROOT / document).read_text(encoding="utf-8")
    known = [match for f in FIGURES if f.document == document for match in f.expression.finditer(text)]
    spans = [match.span(group) for match in known for group in range(1, len(match.groups()) + 1)]
    plain = [re.compile(pattern.replace(" ", r"\s+")) for pattern in PLAIN.get(document, [])]
    spans += [match.span() for pattern in plain for match in pattern.finditer(text)]
    spans += [match.span() for match in re.finditer(r"<!-- measured: .*?<!-- end -->", text, re.DOTALL)]
    found = list(blocks(text))
    missing = []
    for i, (begin, block) in enumerate(found):
        numbers = list(NUMBER.finditer(re.sub(r"`[^`]*`", lambda m: "`" * len(m[0]), block)))
        open_ = [m[0] for m in numbers if not any(a <= begin + m.start() and begin + m.end() <= b for a, b in spans)]
        beside = [block]
        if block.startswith("|"):
            beside += [other for _, other in found[max(i - 1, 0) : i + 2]]
        if open_ and not any(STAMP.search(other) for other in beside):
            missing.append(f"{document}: {', '.join(open_)} in {block[:100]!r}")
    return missing


@pytest.mark.parametrize(
    "figure", [pytest.param(f, id=str(f), marks=[pytest.mark.slow] if f.slow else []) for f in FIGURES]
)
def test_figure(figure: Figure) -> None:
    found = list(figure.expression.finditer((ROOT / figure.document).read_text(encoding="utf-8")))
    assert len(found) == 1, f"found {len(found)} times: the sentence has changed, change tests/figures.py with it"
    assert list(found[0].groups()) == [str(value) for value in figure.values()]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_what_is_measured_is_dated(document: str) -> None:
    """Write "(date, commit)" at the end of a paragraph with such figures, or beside their table."""
    assert undated(document) == []


def test_the_scanner_sees_figures() -> None:
    text = "A figure of 5.\n\nIt takes 31 µs.\n\n| a |\n| --- |\n| 0.5 |\n\n```\n3.5 s\n```\n\n- 12 ms\n"
    text += "- `1.5`, arXiv 2405.21060 and 2\n"
    seen = [[m[0] for m in NUMBER.finditer(re.sub(r"`[^`]*`", "", block))] for _, block in blocks(text)]
    assert seen == [[], ["31"], ["0.5"], ["12"], []]
    assert all(text[begin:].startswith(block) for begin, block in blocks(text))
    assert len(DOCUMENTS) > 20 and sum(len(list(blocks((ROOT / d).read_text()))) for d in DOCUMENTS) > 500


def test_stamps_are_commits_of_that_day() -> None:
    """Where there is a whole history to look them up in."""
    shallow = subprocess.run(
        ["git", "rev-parse", "--is-shallow-repository"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    if shallow.returncode or shallow.stdout.strip() == "true":
        pytest.skip("no history of commits here")
    log = subprocess.check_output(["git", "log", "--format=%H %ad", "--date=short"], cwd=ROOT, text=True, timeout=60)
    dates = {line[:7]: line.split()[1] for line in log.splitlines()}
    stamps = {s for d in DOCUMENTS for s in STAMP.findall((ROOT / d).read_text(encoding="utf-8"))}
    assert len(stamps) > 10
    assert [(date, commit) for date, commit in sorted(stamps) if dates.get(commit) != date] == []


# -- the embedded chat model -------------------------------------------------------------------------------------------
def table_of_skills() -> dict[str, list[str]]:
    text = (ROOT / CHAT).read_text(encoding="utf-8")
    rows = re.findall(r"^\| \**([a-z ]+?)\** \| \**(\d+)\** \| (.*) \|$", text, re.MULTILINE)
    return {name: [count, *rest.replace("*", "").split(" | ")] for name, count, rest in rows}


def test_every_skill_of_the_set_stands_in_the_card() -> None:
    items = chat_items()
    told = table_of_skills()
    counts = {name: sum(item["skill"].replace("_", " ") == name for item in items) for name in told}
    assert {name: int(row[0]) for name, row in told.items()} == counts | {"all": len(items)}
    assert {item["skill"].replace("_", " ") for item in items} == told.keys() - {"all"}
    # the column adds up
    right = sum(round(int(row[0]) * float(row[1]) / 100) for name, row in told.items() if name != "all")
    assert f"{100 * right / len(items):.1f}" == told["all"][1]
    text = (ROOT / CHAT).read_text(encoding="utf-8")
    for skill, percent in ((name, row[1]) for name, row in told.items()):
        assert percent != "0.0" or f"(`{skill}`) does not work at all" in text
    assert f"{told['all'][2]} %\nword for word" in text and f"{told['all'][3]} % with other numbers or names" in text


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_skills_are_as_measured(tmp_path: Path) -> None:
    """The whole evaluation anew; a close choice between words may fall the other way on another processor."""
    card = tmp_path / "tinychat-7m"
    card.mkdir()
    for file in (MODELS / "tinychat-7m").iterdir():
        (card / file.name).write_bytes(file.read_bytes())
    command = [sys.executable, "tools/train/tinychat/evaluate.py", str(card), "--write"]
    subprocess.run(command, cwd=ROOT, check=True, timeout=3000, capture_output=True)
    before = table_of_skills()
    after = {
        name: [count, *rest.replace("*", "").split(" | ")]
        for name, count, rest in re.findall(
            r"^\| \**([a-z ]+?)\** \| \**(\d+)\** \| (.*) \|$", (card / "README.md").read_text(), re.MULTILINE
        )
    }
    assert after.keys() == before.keys()
    for name, row in after.items():
        assert [row[0], *row[2:]] == [before[name][0], *before[name][2:]], name  # made without a model
        assert abs(float(row[1]) - float(before[name][1])) <= (0.5 if name == "all" else 12), name

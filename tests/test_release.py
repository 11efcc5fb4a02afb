"""What a release says of itself: one version everywhere, a day in the changelog, the licences of what it carries."""

from __future__ import annotations

import json
import re
import tomllib
from datetime import date
from fnmatch import fnmatch
from pathlib import Path

import tinyweb
from tinyweb.export.site import BETWEEN_LICENSES, BUILT, LICENSES

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = ("NOTICE", "CONTRIBUTING.md", "SECURITY.md")


def test_one_version() -> None:
    packages = sorted(ROOT.glob("web/*/package.json"))
    versions = {path.parent.name: json.loads(path.read_text())["version"] for path in packages}
    assert "runtime" in versions and set(versions.values()) == {tinyweb.__version__}
    locked = json.loads((ROOT / "package-lock.json").read_text())["packages"]
    assert {locked[f"web/{name}"]["version"] for name in versions} == {tinyweb.__version__}


def test_the_newest_release_of_the_changelog_is_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert headings[0] == "Unreleased" and len(headings) > 1
    releases = [re.fullmatch(r"(\d+\.\d+\.\d+) - (\d{4}-\d\d-\d\d)", heading) for heading in headings[1:]]
    assert all(releases), headings
    assert releases[0] and releases[0][1] == tinyweb.__version__
    days = [date.fromisoformat(release[2]) for release in releases if release]
    assert days == sorted(days, reverse=True)


def test_licence_files_are_in_packages() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == "MIT" and "MIT License" in (ROOT / "LICENSE").read_text()
    for name in ("LICENSE", "NOTICE"):
        assert any(fnmatch(name, pattern) for pattern in project["license-files"]), name
    assert (ROOT / "web/runtime/LICENSE").read_text() == (ROOT / "LICENSE").read_text()


def test_notice_names_what_others_made() -> None:
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8")
    for file in ROOT.glob("assets/models/*/LICENSE"):  # a model with a licence of its own
        assert file.parent.relative_to(ROOT).as_posix() in notice and (file.parent / "NOTICE").is_file()
    models = [folder.name for folder in (ROOT / "assets/models").iterdir() if folder.is_dir()]
    assert models and all(name in notice for name in models)
    bundled = {
        part.split()[0]
        for text in BUILT.glob(f"*/{LICENSES}")
        for part in text.read_text(encoding="utf-8").split(BETWEEN_LICENSES)
    }
    assert "tinyweb" in bundled and all(re.search(rf"^ *{re.escape(name)}\b", notice, re.MULTILINE) for name in bundled)


def test_what_documents_name_is_there() -> None:
    """Files, folders, links and make targets of the documents for those who take part."""
    targets = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
    folders = (ROOT, ROOT / "tinyweb", ROOT / "tinyweb/graph")
    for document in DOCUMENTS:
        text = (ROOT / document).read_text(encoding="utf-8")
        named = re.findall(r"`((?:[\w.-]+/)+[\w.-]*)`", text) + re.findall(r"\]\(([^)#:]+)\)", text)
        missing = [path for path in named if not any((folder / path).exists() for folder in folders)]
        assert missing == [], document
        assert set(re.findall(r"\bmake ([a-z-]+)", text)) <= targets, document

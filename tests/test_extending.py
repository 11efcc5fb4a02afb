"""docs/extending.md: its changes fit the package, and its examples run."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs/extending.md").read_text()
SECTIONS = {s.split("\n", 1)[0]: s for s in re.split(r"^## ", TEXT, flags=re.MULTILINE)[1:]}
BLOCK = re.compile(r"^```(\w+) (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def changed(text: str, hunk: str) -> str:
    """A text after a change that is found by its lines, wherever they are."""
    lines = hunk.splitlines()
    before = "\n".join(line[1:] for line in lines if line[:1] != "+")
    after = "\n".join(line[1:] for line in lines if line[:1] != "-")
    assert text.count(before) == 1, f"{text.count(before)} places for\n{before}"
    return text.replace(before, after)


@pytest.mark.parametrize("name", [n for n, s in SECTIONS.items() if BLOCK.search(s)])
def test_example(name: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "tinyweb", tmp_path / "tinyweb", ignore=shutil.ignore_patterns("__pycache__"))
    checks = []
    for kind, where, body in BLOCK.findall(SECTIONS[name]):
        path = tmp_path / where
        if kind == "diff":
            path.write_text(changed(path.read_text(), body))
        elif where == "check":
            checks.append(body)
        else:
            assert not path.exists()
            path.write_text(body)
    assert checks
    for check in checks:
        done = subprocess.run(
            [sys.executable, "-c", check], cwd=tmp_path, capture_output=True, text=True, timeout=240,
            env={"PYTHONPATH": str(tmp_path), "SPEC": "1", "TINYWEB_CACHE": str(tmp_path / "cache"), "PATH": ""},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]


def test_files_that_it_names_exist() -> None:
    named = set(re.findall(r"`((?:tinyweb|web|tests|docs|tools)/[\w./]+)`", TEXT))
    assert len(named) > 30
    missing = {n for n in named if not re.search(r"NAME|TASK", n) and not (ROOT / n).exists()}
    assert not missing

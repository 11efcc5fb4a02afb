"""The Makefile's front: what a newcomer types first."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def make(*arguments: str) -> str:
    return subprocess.run(["make", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_plain_make_prints_the_help() -> None:
    assert make() == make("help")


def test_help_lists_every_target_that_people_use() -> None:
    listed = set(re.findall(r"^  make (\S+) +\S", make("help"), re.MULTILINE))
    assert {"setup", "demo", "test", "test-all", "lint", "bench", "screenshots", "clean", "help"} <= listed


def test_demo_needs_nothing_that_only_tests_use() -> None:
    planned = make("--dry-run", "--always-make", "demo")
    assert "requirements.lock" in planned
    assert "requirements-dev.lock" not in planned
    assert "browser.py" not in planned


def test_old_python_is_refused_in_one_sentence(tmp_path: Path) -> None:
    for name in ("python3", "python3.11", "python3.12", "python3.13", "python3.14"):
        fake = tmp_path / name
        fake.write_text("#!/bin/sh\nexit 1\n")
        fake.chmod(0o755)
    done = subprocess.run(
        ["tools/prerequisites.sh", "python"],
        cwd=ROOT,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert re.fullmatch(r"tinyweb: Python 3\.11 or newer .* was not found: install it .*\.\n", done.stderr)

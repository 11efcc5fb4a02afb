"""The Makefile's front: what a newcomer types first."""

import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def make(*arguments: str) -> str:
    return subprocess.run(["make", *arguments], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout


def test_plain_make_prints_the_help() -> None:
    assert make() == make("help")


def test_help_lists_every_target_that_people_use() -> None:
    listed = set(re.findall(r"^  make (\S+) +\S", make("help"), re.MULTILINE))
    assert {"setup", "demo", "test", "test-all", "lint", "bench", "wheel", "screenshots", "clean", "help"} <= listed


def test_old_make_is_refused_in_one_sentence() -> None:
    done = subprocess.run(
        ["make", "MAKE_VERSION=3.81", "help"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert "tinyweb: this needs GNU make 4 or newer, here is 3.81" in done.stderr
    assert done.stderr.count("\n") == 1


def test_demo_needs_nothing_that_only_tests_use() -> None:
    planned = make("--dry-run", "--always-make", "demo")
    assert "requirements.lock" in planned
    assert "requirements-dev.lock" not in planned
    assert "browser.py" not in planned


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def refusal(wanted: str, programs: Path) -> str:
    """What tools/prerequisites.sh says when `programs` hides the machine's own; it must be one sentence."""
    done = subprocess.run(
        ["tools/prerequisites.sh", wanted],
        cwd=ROOT,
        env={"PATH": f"{programs}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert re.fullmatch(r"tinyweb: [^\n]*\.\n", done.stderr)
    return done.stderr


def test_old_python_is_refused_in_one_sentence(tmp_path: Path) -> None:
    for name in ("python3", "python3.11", "python3.12", "python3.13", "python3.14"):
        script(tmp_path / name, "exit 1")
    assert "Python 3.11, 3.12, 3.13 or 3.14 with its venv module was not found" in refusal("python", tmp_path)


def test_old_node_is_refused_in_one_sentence(tmp_path: Path) -> None:
    script(tmp_path / "node", '[ "$1" = --version ] && echo v18.20.0 && exit 0; exit 1')
    assert "Node.js v18.20.0 is too old: install version 20.19 or newer" in refusal("node", tmp_path)


def test_failing_step_says_what_failed_and_what_to_do() -> None:
    done = subprocess.run(
        ["tools/quietly.sh", "fetching things", "is the registry reachable?", "sh", "-c", "echo noise; exit 3"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert done.stdout == "tinyweb: fetching things\n"
    assert done.stderr == "noise\ntinyweb: failed: fetching things; is the registry reachable?\n"


def test_vite_runs_in_a_copy_where_it_cannot_read_the_path(tmp_path: Path) -> None:
    root = tmp_path / "a b#c"
    (root / "tools").mkdir(parents=True)
    shutil.copy(ROOT / "tools/plain_path.sh", root / "tools")
    (root / "web/page").mkdir(parents=True)
    (root / "web/page/source").write_text("written")
    (root / "build").mkdir()
    command = "pwd; ls; mkdir -p web/page/dist tinyweb/export/site; cp web/page/source web/page/dist/built"
    (root / "tinyweb/export").mkdir(parents=True)
    run = [root / "tools/plain_path.sh", "bash", "-c", command]
    lines = subprocess.check_output(run, text=True, timeout=60).splitlines()
    assert "#" not in lines[0] and lines[1:] == ["tinyweb", "tools", "web"] and not Path(lines[0]).exists()
    assert (root / "web/page/dist/built").read_text() == "written"
    failed = subprocess.run([root / "tools/plain_path.sh", "false"], timeout=60)
    assert failed.returncode == 1
    plain = tmp_path / "plain"
    root.rename(plain)
    run[0] = plain / "tools/plain_path.sh"
    assert subprocess.check_output(run, text=True, timeout=60).splitlines()[0] == str(plain)

"""tools/watchdog.py: what hangs is named, page and stacks included, and ended."""

import os
import subprocess
import sys
from pathlib import Path

import watchdog  # tools/watchdog.py

ROOT = Path(__file__).resolve().parent.parent

HANGING = """
import time
from playwright.sync_api import sync_playwright
from tests.control import stacks
from tests.control.browsers import launch

def waits_for_ever():
    time.sleep(600)

stacks.pytest_configure()
with sync_playwright() as playwright:
    page = launch(playwright.chromium).new_page()
    page.set_content("<title>A page</title><p>Answering…</p>")
    print("hanging", flush=True)
    waits_for_ever()
"""


LOOK = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import watchdog
watchdog.report(int(sys.argv[2]), Path(sys.argv[3]))
"""


def watched(minutes: float, *command: str) -> "subprocess.CompletedProcess[str]":
    program = [sys.executable, ROOT / "tools/watchdog.py", str(minutes), *command]
    return subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=300)


def test_what_hangs_is_named(tmp_path: Path) -> None:
    script = tmp_path / "hanging.py"
    script.write_text(f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / 'tools')!r}]\n{HANGING}")
    command, environment = [sys.executable, str(script)], {**os.environ, watchdog.STACKS: str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "hanging\n"
            # in a process of its own: Playwright is maybe in use here
            looks = [sys.executable, "-c", LOOK, str(ROOT / "tools"), str(child.pid), str(tmp_path)]
            said = subprocess.run(looks, capture_output=True, text=True, timeout=300).stderr
        finally:
            watchdog.end(child.pid)
    assert str(script) in said
    assert "waits_for_ever" in said
    assert "(A page):\nAnswering…" in said, said
    assert not [p for p in watchdog.processes() if str(script) in p.command]


def test_command_that_takes_too_long_is_ended() -> None:
    done = watched(0.01, "sh", "-c", "sleep 6543; true")
    assert done.returncode == watchdog.TIMED_OUT
    assert "not done after 0.01 minutes" in done.stderr and "sleep 6543" in done.stderr
    assert not [p for p in watchdog.processes() if "sleep 6543" in p.command]


def test_status_of_the_command_is_kept() -> None:
    done = watched(1, sys.executable, "-c", "print('hello'); raise SystemExit(7)")
    assert (done.returncode, done.stdout, done.stderr) == (7, "hello\n", "")


def test_what_a_command_starts_is_found() -> None:
    def process(pid: int, parent: int) -> watchdog.Process:
        return watchdog.Process(pid, parent, "0", "")

    listed = [process(5, 4), process(4, 2), process(2, 1), process(3, 1), process(1, 0)]
    assert [p.pid for p in watchdog.below(2, listed)] == [2, 4, 5]

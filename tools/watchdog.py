"""Run a command and, where it takes longer than it may, say what hangs before it is ended.

usage: python tools/watchdog.py MINUTES command [argument...]

What is said: the processes below the command; the Python stacks of those that write them on SIGUSR1 (pytest, through
tests/control/stacks.py); and, of every page in a Chromium with a debugging port, its address, its title and the
beginning of its text. Then all of them are killed and the exit status is 124, as that of timeout(1). JavaScript's tests
have limits of their own, each says what it waited for.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from playwright.sync_api import Error, Page, sync_playwright

STACKS = "TINYWEB_STACKS"  # the folder in which a process says where it stands: see tests/control/stacks.py
TIMED_OUT = 124
PATIENCE = 20.0  # seconds for a process or page to answer
TEXT = 600  # characters of a page's text that are shown


@dataclass(frozen=True)
class Process:
    """A line of ps(1)."""

    pid: int
    parent: int
    seconds: str
    command: str


def processes() -> list[Process]:
    """All that run on this machine."""
    listed = subprocess.run(["ps", "-ww", "-eo", "pid=,ppid=,etime=,args="], capture_output=True, text=True, timeout=30)
    rows = (line.split(None, 3) for line in listed.stdout.splitlines())
    return [Process(int(row[0]), int(row[1]), row[2], row[3]) for row in rows if len(row) == 4]


def below(root: int, listed: Iterable[Process]) -> list[Process]:
    """The process `root` and everything it started, and what that started, parents first."""
    children: dict[int, list[Process]] = {}
    found = []
    for process in listed:
        children.setdefault(process.parent, []).append(process)
        if process.pid == root:
            found.append(process)
    for process in found:  # grows on the way
        found += children.get(process.pid, [])
    return found


def python_stacks(folder: Path, running: Iterable[Process]) -> Iterator[str]:
    """What each process that listens for SIGUSR1 writes about its threads."""
    files = [file for p in running if (file := folder / f"{p.pid}.txt").exists()]
    for file in files:
        signal_if_alive(int(file.stem), signal.SIGUSR1)
    time.sleep(PATIENCE / 4 if files else 0)
    for file in files:
        yield f"Python, process {file.stem}:\n{file.read_text() or 'does not answer'}"


def signal_if_alive(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def pages(running: Iterable[Process]) -> Iterator[str]:
    """The state of each page in each Chromium below the command."""
    ports = sorted({port for p in running if (port := debugging_port(p.command)) is not None})
    if not ports:
        return
    with sync_playwright() as playwright:
        for port in ports:
            try:
                browser = playwright.chromium.connect_over_cdp(f"http://127.0.0.1:{port}", timeout=PATIENCE * 1000)
            except Error as error:
                yield f"Chromium at port {port} does not answer: {error.message.splitlines()[0]}"
                continue
            for context in browser.contexts:
                yield from map(state_of, context.pages)


def state_of(page: Page) -> str:
    page.set_default_timeout(PATIENCE * 1000)
    try:
        text = page.locator("body").inner_text()[:TEXT]
        return f"Page {page.url} ({page.title()}):\n{text}"
    except Error as error:
        return f"Page {page.url} does not answer: {error.message.splitlines()[0]}"


def debugging_port(command: str) -> int | None:
    """The port a browser's process listens at, from the file that Chromium writes into its profile."""
    for word in command.split():
        if word.startswith("--user-data-dir=") and "--type=" not in command:
            try:
                return int((Path(word.partition("=")[2]) / "DevToolsActivePort").read_text().split()[0])
            except (OSError, ValueError, IndexError):
                return None
    return None


def report(root: int, folder: Path) -> None:
    """Print all that is known about what hangs."""
    running = below(root, processes())
    print("Running:", *(f"  {p.pid} for {p.seconds}: {p.command[:200]}" for p in running), sep="\n", file=sys.stderr)
    # pages first: whoever waits for one may end it when it is disturbed
    for part in (pages(running), python_stacks(folder, running)):
        try:
            for text in part:
                print(f"\n{text}", file=sys.stderr)
        except Exception as error:  # one part that cannot be had must not hide the others
            print(f"\n(not known: {error})", file=sys.stderr)
    sys.stderr.flush()


def end(root: int) -> None:
    """Kill a process and all below it, what was started last first."""
    for process in reversed(below(root, processes())):
        signal_if_alive(process.pid, signal.SIGKILL)


def run(command: list[str], seconds: float) -> int:
    """The command's exit status, or TIMED_OUT."""
    with tempfile.TemporaryDirectory(prefix="tinyweb-stacks-") as folder:
        child = subprocess.Popen(command, env={**os.environ, STACKS: folder}, process_group=0)

        def forward(number: int, frame: FrameType | None) -> None:
            os.killpg(child.pid, number)

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, forward)
        try:
            return child.wait(seconds)
        except subprocess.TimeoutExpired:
            print(f"\ntinyweb: not done after {seconds / 60:.3g} minutes; this is what hangs:", file=sys.stderr)
            report(child.pid, Path(folder))
            end(child.pid)
            child.wait()
            print(f"tinyweb: stopped: {' '.join(command)} took more than {seconds / 60:.3g} minutes", file=sys.stderr)
            return TIMED_OUT


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(f"usage: {sys.argv[0]} MINUTES command [argument...]")
    sys.exit(run(sys.argv[2:], 60 * float(sys.argv[1])))

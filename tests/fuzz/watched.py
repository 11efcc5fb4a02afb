"""Reading what may be hostile: in bounded time, in bounded memory, and with nothing executed."""

from __future__ import annotations

import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

SECONDS = 20.0  # of processor time
MEMORY = 1 << 30  # bytes more than there were
# what code that came with a file would do: https://docs.python.org/3/library/audit_events.html
FORBIDDEN = (
    "os.", "subprocess.", "socket.", "shutil.", "ctypes.", "pty.", "pickle.find_class", "webbrowser.", "ftplib.",
    "urllib.",
)  # fmt: skip
HARMLESS = frozenset({"os.listdir", "os.scandir", "os.getxattr"})
_state: dict[str, Any] = {"watching": False, "seen": [], "installed": False}


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if not _state["watching"]:
        return
    if event == "open":
        mode = arguments[1]
        if isinstance(mode, str) and set(mode) & set("wax+"):
            _state["seen"].append(f"{event} {arguments[0]!r}")
    elif event.startswith(FORBIDDEN) and event not in HARMLESS:
        _state["seen"].append(f"{event} {arguments!r}"[:200])


def _late(number: int, frame: FrameType | None) -> NoReturn:
    raise AssertionError(f"it took more than {SECONDS:.0f} s")


def _address_space() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except OSError:  # not a Linux
        return 0


@contextmanager
def bounded() -> Iterator[None]:
    """Memory beyond MEMORY bytes is refused while this is open, where the system can."""
    usual = resource.getrlimit(resource.RLIMIT_AS)
    if used := _address_space():
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, usual[1]))
    handler = signal.signal(signal.SIGVTALRM, _late)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, handler)
        resource.setrlimit(resource.RLIMIT_AS, usual)


@contextmanager
def watched() -> Iterator[None]:
    """AssertionError where programs are started, files written or connections made in here, or for SECONDS of work."""
    if not _state["installed"]:
        sys.addaudithook(_hook)  # there is no way to take it out
        _state["installed"] = True
    _state["seen"].clear()
    _state["watching"] = True
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        _state["watching"] = False
    assert not _state["seen"], _state["seen"]

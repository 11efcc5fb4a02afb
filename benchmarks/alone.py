"""A quiet machine for the time of measuring: a lock between runs, and a priority above other processes.

Both are for machines that are shared. Preparing (compiling, writing checkpoints) happens outside of either.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path


def alone(lock: Path | None, niceness: int | None) -> Callable[[Sequence[int]], AbstractContextManager[None]]:
    """What `harness.measure` enters to time a row.

    `lock`: a file that is locked meanwhile; others who lock the same file wait (`flock`). `niceness`: that of every
    thread of the contestants and of this process meanwhile, -20 … 19; below 0 it takes the right to (root).
    """

    @contextmanager
    def context(pids: Sequence[int]) -> Iterator[None]:
        with _locked(lock), _niceness(niceness, pids):
            yield

    return context


@contextmanager
def _locked(path: Path | None) -> Iterator[None]:
    if path is None:
        yield
        return
    import fcntl

    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _niceness(wanted: int | None, pids: Sequence[int]) -> Iterator[None]:
    """Threads have priorities of their own, and so have the processes that a contestant started (a browser's). Where
    Linux groups tasks by session (sched_autogroup_enabled), niceness only counts within a group, and groups have their
    own: contestants lead sessions, and so do browsers.
    """
    if wanted is None:
        yield
        return
    groups_before: dict[Path, int] = {}
    for pid in [os.getpid(), *descendants(pids)]:
        path = Path(f"/proc/{pid}/autogroup")
        if (niceness := _autogroup(path)) is not None:
            groups_before[path] = niceness
    before: dict[int, int] = {}
    for pid in [os.getpid(), *descendants(pids)]:
        for thread in _threads(pid):
            with suppress(ProcessLookupError):
                before[thread] = os.getpriority(os.PRIO_PROCESS, thread)
                os.setpriority(os.PRIO_PROCESS, thread, wanted)
    for path in groups_before:
        with suppress(FileNotFoundError, ProcessLookupError):  # a browser's helper that has ended meanwhile
            path.write_text(str(wanted))
    try:
        yield
    finally:
        for path, niceness in groups_before.items():
            with suppress(OSError):  # a contestant that died
                path.write_text(str(niceness))
        for pid in [os.getpid(), *descendants(pids)]:  # threads that came meanwhile inherited the niceness
            for thread in _threads(pid):
                with suppress(ProcessLookupError):
                    os.setpriority(os.PRIO_PROCESS, thread, before.get(thread, before[os.getpid()]))


def descendants(pids: Sequence[int]) -> list[int]:
    """These processes and all they started, as far as /proc tells."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    found: list[int] = []
    waiting = list(pids)
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting += children.get(pid, [])
    return found


def _autogroup(path: Path) -> int | None:
    """The niceness of a group: "/autogroup-123 nice 0"; None where there are none (the file is empty or missing)."""
    try:
        words = path.read_text().split()
    except OSError:
        return None
    return int(words[-1]) if words else None


def _threads(pid: int) -> list[int]:
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return [pid]

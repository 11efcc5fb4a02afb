"""How much memory this process may still take: less than all free memory, so that nothing is killed for want of it."""

from __future__ import annotations

import sys
from pathlib import Path

_RESERVE = 1 / 32  # of what is free: page tables, the interpreter's own needs


def available_bytes() -> int | None:
    """Free memory of the machine, or of the limits (control group, resource limits) this process runs under; None where
    the system does not say."""
    found = [n for n in (_machine(), _group(), _limits()) if n is not None]
    return max(int(min(found) * (1 - _RESERVE)), 0) if found else None


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text()
    except OSError:
        return None


def _machine() -> int | None:
    for line in (_read("/proc/meminfo") or "").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _group() -> int | None:
    """Control groups, version 2 and 1: the limit less what is in use and could not be dropped."""
    for folder, limit, usage, cache in (
        ("/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        most, used = _read(f"{folder}/{limit}"), _read(f"{folder}/{usage}")
        if most is None or used is None or not most.strip().isdecimal():
            continue
        lines = (line.split() for line in (_read(f"{folder}/memory.stat") or "").splitlines())
        droppable = next((int(n) for name, n in lines if name == cache), 0)
        return int(most) - int(used) + droppable
    return None


def _limits() -> int | None:
    if sys.platform == "win32":
        return None
    import resource

    pages = _read("/proc/self/statm")
    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    if pages is None or most == resource.RLIM_INFINITY:
        return None
    return most - int(pages.split()[0]) * resource.getpagesize()

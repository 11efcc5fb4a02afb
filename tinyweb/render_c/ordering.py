"""Where the threads of a processor must wait when they carry out a list of launches together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

Span: TypeAlias = "tuple[int, int]"  # first byte, and the one behind the last


@dataclass(frozen=True)
class Access:
    """The memory one launch touches."""

    reads: tuple[Span, ...]
    writes: tuple[Span, ...]


def barriers(launches: Sequence[Access]) -> list[bool]:
    """For each launch, whether all earlier ones must be complete before it begins.

    They must if it touches what an earlier launch since the last such point wrote, or writes what one read.
    """
    out: list[bool] = []
    since: list[Access] = []
    for launch in launches:
        wait = any(_conflict(earlier, launch) for earlier in since)
        if wait:
            since = []
        since.append(launch)
        out.append(wait)
    return out


def _conflict(a: Access, b: Access) -> bool:
    return _overlap(a.writes, b.writes) or _overlap(a.writes, b.reads) or _overlap(a.reads, b.writes)


def _overlap(a: Sequence[Span], b: Sequence[Span]) -> bool:
    return any(begin < last and first < end for first, last in a for begin, end in b)

"""Where the threads of a processor must meet when they carry out a list of launches together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

Span: TypeAlias = "tuple[int, int]"  # first byte, and the one behind the last


@dataclass(frozen=True)
class Access:
    """What one launch touches. `serial`: it has one grid iteration at most, which the first thread carries out."""

    reads: tuple[Span, ...]
    writes: tuple[Span, ...]
    serial: bool


def barriers(launches: Sequence[Access]) -> list[bool]:
    """For each launch, whether all threads must meet before it.

    They must if it touches what an earlier launch since the last meeting wrote, or writes what one read; except that
    the serial launches among themselves are in order anyway.
    """
    out: list[bool] = []
    since: list[Access] = []
    for launch in launches:
        meet = any(not (launch.serial and earlier.serial) and _conflict(earlier, launch) for earlier in since)
        if meet:
            since = []
        since.append(launch)
        out.append(meet)
    return out


def _conflict(a: Access, b: Access) -> bool:
    return _overlap(a.writes, b.writes) or _overlap(a.writes, b.reads) or _overlap(a.reads, b.writes)


def _overlap(a: Sequence[Span], b: Sequence[Span]) -> bool:
    return any(begin < last and first < end for first, last in a for begin, end in b)

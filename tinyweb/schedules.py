"""Schedules that search has found, by kernel and target: a JSON file of the user's.

    {"version": 1,
     "targets": {"cpu vector_lanes=8 … types=3f9a12": {
       "9f1c…": {"kernel": "i0=512 i1=512 r0=512: f32[262144] <- f32[262144] f32[262144]", "ratio": 0.81,
                 "schedule": ["split(i1, 32)", …], "actions": [{"action": "split", "axis": "i1", …}, …]}}}}

A kernel is known by a digest of its structure, types, sizes and axes, the same in every process. Files are data:
actions are checked one by one when they are used, and an entry that no longer applies is passed over (`optimize`). The
compiler itself reads no such file: who asks for a program says which schedule was found.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import platformdirs

from tinyweb.errors import TinywebError
from tinyweb.graph.ir import UOp
from tinyweb.graph.optimize import Schedule, ScheduleError, from_json, to_json
from tinyweb.graph.optimize.digest import describe, digest, target_key
from tinyweb.graph.target import Target

VERSION = 1
MAX_BYTES = 32 << 20
NOTHING = "none"  # TINYWEB_SCHEDULES=none: heuristics alone


class DatabaseError(TinywebError):
    """A file of schedules cannot be read or written."""


@dataclass(frozen=True)
class Entry:
    """What is known of one kernel on one target: its schedule, and its time as part of the heuristic's when tuned."""

    kernel: str
    schedule: Schedule
    ratio: float


class Database:
    """Entries as JSON holds them; each is read when it is looked up."""

    def __init__(self, targets: Mapping[str, Mapping[str, Any]] | None = None):
        self.targets: dict[str, dict[str, Any]] = {k: dict(v) for k, v in (targets or {}).items()}

    @classmethod
    def load(cls, path: Path) -> Database:
        """The file's entries. DatabaseError where it cannot be read or is no file of schedules."""
        try:
            if path.stat().st_size > MAX_BYTES:
                raise DatabaseError(f"{path} is larger than {MAX_BYTES >> 20} MiB: that is no file of schedules.")
            data = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise DatabaseError(f"The schedules in {path} cannot be read ({error.strerror}).") from error
        except (ValueError, RecursionError) as error:
            raise DatabaseError(f"{path} is damaged: it is not JSON; remove it, or tune again.") from error
        if not isinstance(data, dict) or not isinstance(data.get("targets"), dict):
            raise DatabaseError(f"{path} is no file of schedules; remove it, or tune again.")
        if data.get("version") != VERSION:
            raise DatabaseError(f"{path} has version {str(data.get('version'))[:20]} of schedules, not {VERSION}.")
        if not all(isinstance(entries, dict) for entries in data["targets"].values()):
            raise DatabaseError(f"{path} is damaged: the entries of a target are no object; remove it, or tune again.")
        return cls(data["targets"])

    def save(self, path: Path) -> None:
        """Write the file, whole or not at all. DatabaseError where that fails."""
        ordered = {t: dict(sorted(entries.items())) for t, entries in sorted(self.targets.items()) if entries}
        text = json.dumps({"version": VERSION, "targets": ordered}, indent=1, ensure_ascii=False) + "\n"
        scratch = path.with_name(f"{path.name}.{os.getpid()}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            scratch.write_text(text, encoding="utf-8", newline="\n")
            scratch.replace(path)
        except OSError as error:
            raise DatabaseError(f"The schedules cannot be written to {path} ({error.strerror}).") from error

    def find(self, kernel: UOp, target: Target) -> Entry | None:
        """The entry of a kernel; ScheduleError if there is one that makes no sense."""
        entries = self.targets.get(target_key(target.fitted(kernel)))
        if not entries or (found := entries.get(digest(kernel))) is None:
            return None
        if not isinstance(found, dict):
            raise ScheduleError("the entry is no object")
        ratio = found.get("ratio")
        if not isinstance(ratio, int | float) or not isfinite(ratio):
            raise ScheduleError("the entry has no ratio")
        return Entry(str(found.get("kernel", "")), from_json(found.get("actions", ())), float(ratio))

    def add(self, kernel: UOp, target: Target, schedule: Schedule, ratio: float) -> None:
        self.targets.setdefault(target_key(target.fitted(kernel)), {})[digest(kernel)] = {
            "kernel": describe(kernel),
            "ratio": round(ratio, 3),
            "schedule": [str(a) for a in schedule],
            "actions": to_json(schedule),
        }

    def remove(self, kernel: UOp, target: Target) -> None:
        """Forget a kernel: the heuristic is as good."""
        self.targets.get(target_key(target.fitted(kernel)), {}).pop(digest(kernel), None)


def user_file() -> Path | None:
    """Where the user's schedules are: TINYWEB_SCHEDULES, or the user's data folder; None if there are to be none."""
    chosen = os.environ.get("TINYWEB_SCHEDULES")
    if chosen == NOTHING:
        return None
    return Path(chosen) if chosen else platformdirs.user_data_path("tinyweb") / "schedules.json"


class _Known:
    """The user's file, read once."""

    def __init__(self) -> None:
        self.path = user_file()
        self.database: Database | None = None
        self.warned = False
        if self.path is not None and self.path.exists():
            try:
                self.database = Database.load(self.path)
            except DatabaseError as error:
                warnings.warn(f"{error} Its schedules are not used.", stacklevel=4)

    def find(self, kernel: UOp, target: Target) -> Schedule | None:
        if self.database is None:
            return None
        try:
            entry = self.database.find(kernel, target)
        except ScheduleError as error:
            if not self.warned:
                self.warned = True
                warnings.warn(f"a schedule of {self.path} is damaged: {error}", stacklevel=4)
            return None
        return None if entry is None else entry.schedule


_known: _Known | None = None


def remembered(kernel: UOp, target: Target) -> Schedule | None:
    """The schedule that the file has for a kernel; it may no longer apply."""
    global _known
    if _known is None:
        _known = _Known()
    return _known.find(kernel, target)


def forget_file() -> None:
    """Read the file again before the next schedule is looked up."""
    global _known
    _known = None

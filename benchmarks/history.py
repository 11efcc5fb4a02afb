"""Every figure ever measured, one JSON line for each row and peer of a run: benchmarks/history.jsonl.

The table of results shows the newest figure of every row from it, `benchmarks/drawing.py` draws it, and a run begins
with the rows whose last turn is longest ago on this machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.harness import Ratio, Row
from benchmarks.worker import ROOT

HISTORY = ROOT / "benchmarks" / "history.jsonl"
NEVER = ""  # sorts before every date


@dataclass(frozen=True)
class Machine:
    """What tells machines apart: figures of different ones are not compared."""

    processor: str
    cores: int

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Machine:
        """Of the "machine" of a JSON record."""
        return cls(str(record["processor"]), int(record["cores"]))


@dataclass(frozen=True)
class Entry:
    """What one run found of one row beside one peer. `date`: ISO 8601, UTC; equal for all entries of a run.

    Without a `ratio` there is a `problem`; without a `peer` it is of the whole row. `ours` and `theirs` are figures in
    `unit`, medians of their turns; `ratio` and `interval` are as in `harness.Ratio`.
    """

    date: str
    commit: str
    machine: Machine
    row: str
    work: str
    unit: str
    peer: str = ""
    target: float | None = None
    ours: float | None = None
    theirs: float | None = None
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    confidence: float | None = None
    turns: int = 0
    problem: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the target was reached; None where there was none, or nothing was measured."""
        return None if self.ratio is None or self.target is None else self.ratio >= self.target

    def line(self) -> str:
        """JSON without what is not known."""
        return json.dumps({k: v for k, v in asdict(self).items() if v not in (None, "", 0)}, ensure_ascii=False)

    @classmethod
    def read(cls, line: str) -> Entry:
        """An entry of a line; ValueError or TypeError where it is damaged."""
        found = json.loads(line)
        found["machine"] = Machine(**found["machine"])
        if "interval" in found:
            low, high = found["interval"]
            found["interval"] = (low, high)
        return cls(**found)


def entries(record: Mapping[str, Any], date: str) -> Iterator[Entry]:
    """What a JSON record of a run (`report.json_record`) adds; rows that were left out add nothing."""
    machine, commit = Machine.of(record["machine"]), str(record["commit"])
    for row in record["rows"]:
        if row.get("left_out"):
            continue
        about = {"row": row["name"], "work": row["work"], "unit": row["unit"]}
        if "problem" in row:
            yield Entry(date, commit, machine, **about, problem=row["problem"])
            continue
        ours = row["ours"]
        for peer in row["peers"]:
            known = {**about, "peer": peer["name"], "target": peer["target"], "ours": ours["figure"]}
            if "problem" in peer:
                yield Entry(date, commit, machine, **known, problem=peer["problem"])
                continue
            ratio = Ratio.of(ours["turns"], peer["turns"])
            yield Entry(
                date,
                commit,
                machine,
                **known,
                theirs=peer["figure"],
                ratio=_round(ratio.ratio),
                interval=(_round(ratio.low), _round(ratio.high)),
                confidence=_round(ratio.confidence),
                turns=len(ours["turns"]),
            )


def load(path: Path = HISTORY) -> list[Entry]:
    """All entries, oldest first; none where there is no file. ValueError names a damaged line."""
    if not path.exists():
        return []
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            found.append(Entry.read(line))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path}:{number} is no entry of a history ({error}): remove the line") from error
    return sorted(found, key=lambda e: e.date)


def append(found: Iterable[Entry], path: Path = HISTORY) -> None:
    """Add a run's entries at the end."""
    with path.open("a", encoding="utf-8") as file:
        file.writelines(entry.line() + "\n" for entry in found)


def latest(history: Iterable[Entry], machine: Machine) -> dict[str, list[Entry]]:
    """Name of a row -> its newest entries on a machine, one for each peer; a ratio goes before a later problem."""
    newest: dict[str, dict[str, Entry]] = {}
    for entry in history:
        if entry.machine != machine:
            continue
        known = newest.setdefault(entry.row, {})
        if entry.ratio is not None or known.get(entry.peer, entry).ratio is None:
            known[entry.peer] = entry
    for known in newest.values():
        if any(known):  # a problem of the whole row says nothing that its figures do not
            known.pop("", None)
    return {row: list(known.values()) for row, known in newest.items()}


def judged(history: Iterable[Entry], rows: Iterable[Row]) -> list[Entry]:
    """All entries, with the targets that `rows` have now."""
    targets = {(row.name, peer.side.name): peer.target for row in rows for peer in row.peers}
    return [replace(entry, target=targets.get((entry.row, entry.peer), entry.target)) for entry in history]


def rotation(rows: Sequence[Row], history: Iterable[Entry], machine: Machine) -> list[Row]:
    """Rows in the order of their turns: those measured (or tried) longest ago on this machine first, those never
    measured before all others, and by priority among equals.
    """
    last: dict[str, str] = {}
    for entry in history:
        if entry.machine == machine:
            last[entry.row] = max(entry.date, last.get(entry.row, NEVER))
    return sorted(rows, key=lambda row: (last.get(row.name, NEVER), row.priority))


def _round(value: float) -> float:
    return float(f"{value:.4g}")

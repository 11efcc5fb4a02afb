"""Measure tinyweb against its peers.

usage: python -m benchmarks [GROUP …] [--list] [--only REGEX] [--seconds 900] [--json FILE] [--history FILE]
       python -m benchmarks history

What fits into --seconds is measured, the rows whose last turn is longest ago first. Without groups and --only the
raw turns of the run go to benchmarks/results.json and its figures to benchmarks/history.jsonl, of which
benchmarks/RESULTS.md and history.svg are made; `history` makes these two without measuring.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import drawing, history, report
from benchmarks.alone import alone
from benchmarks.harness import Outcome, Row, measure_all
from benchmarks.worker import ROOT

GROUPS = {
    "kernels": "benchmarks.native.kernels",
    "networks": "benchmarks.native.networks",
    "onnx": "benchmarks.onnx.rows",
    "llama": "benchmarks.native.llama",
    "webgpu": "benchmarks.native.webgpu",
    "cuda": "benchmarks.native.cuda",
    "chat": "benchmarks.chat",
    "compiler": "benchmarks.compiler",
    "browser": "benchmarks.browser.rows",
}
"""Group of rows -> the module whose `rows()` makes them. Modules import no peer: their workers do."""

RESULTS, TABLE = ROOT / "benchmarks" / "results.json", ROOT / "benchmarks" / "RESULTS.md"
SECONDS = 900.0


def rows(groups: Sequence[str], only: str | None = None) -> list[Row]:
    """The rows of some groups (none: of all) whose names `only` matches somewhere."""
    unknown = [name for name in groups if name not in GROUPS]
    if unknown:
        raise SystemExit(f"unknown group {unknown[0]!r}: there are {', '.join(GROUPS)}")
    found: list[Row] = []
    for name in groups or GROUPS:
        found += importlib.import_module(GROUPS[name]).rows()
    wanted = re.compile(only or "")
    return [row for row in found if wanted.search(row.name)]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure tinyweb against its peers.")
    parser.add_argument(
        "groups", nargs="*", metavar="GROUP", help=f"{', '.join(GROUPS)}; all if none is named. Or: history"
    )
    parser.add_argument("--list", action="store_true", help="list the rows and what each is expected to cost")
    parser.add_argument("--only", metavar="REGEX", help="only rows whose name matches")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="leave out what does not fit (default: 900)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write figures and raw turns")
    parser.add_argument("--history", type=Path, metavar="FILE", help="where to add a line for every figure")
    parser.add_argument("--lock", type=Path, metavar="FILE", help="hold this file's lock while a row is timed")
    parser.add_argument("--niceness", type=int, metavar="N", help="niceness of everything that is timed, -20 … 19")
    given = parser.parse_args(arguments)
    if given.groups == ["history"]:
        show_history()
        return
    machine = report.machine()
    here = history.Machine.of(machine)
    try:
        chosen = history.rotation(rows(given.groups, given.only), history.load(given.history or history.HISTORY), here)
    except re.error as error:
        parser.error(f"--only: {error}")
    if given.list:
        for row in chosen:
            against = ", ".join(f"{p.side.name} ≥ {p.target:g}" for p in row.peers)
            print(f"{row.priority}  {row.group:10} {row.name:32} ~{row.seconds:3.0f} s  {row.work}; {against}")
        print(f"{len(chosen)} rows, about {sum(r.seconds for r in chosen):.0f} s")
        return
    if not chosen:
        sys.exit(f"no row matches {given.only!r}")

    begin, date = time.perf_counter(), datetime.now(UTC).isoformat(timespec="seconds")
    whole = not given.groups and given.only is None
    kept = given.history or (history.HISTORY if whole else None)
    print(report.HEADER, flush=True)
    outcomes: list[Outcome] = []
    for outcome in measure_all(chosen, given.seconds, alone=alone(given.lock, given.niceness)):
        outcomes.append(outcome)
        if not outcome.left_out:
            new = list(history.entries(report.json_record([outcome], machine), date))
            print("\n".join(report.lines(new)), flush=True)
            if kept:  # at once: a run that is stopped keeps what it measured
                history.append(new, kept)
    record = report.json_record(outcomes, machine, time.perf_counter() - begin)
    found = list(history.entries(record, date))
    print("\n".join(["", report.summary(found), *report.means(found)]))
    if left_out := [o.row.name for o in outcomes if o.left_out]:
        print(f"Left out for time (their turn comes next): {', '.join(left_out)}.")

    if target := given.json or (RESULTS if whole else None):
        target.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    if whole and given.history is None and given.json is None:
        show_history()


def show_history() -> None:
    """Make the table and the picture of all there is of the machine of the last whole run."""
    record, of_all = json.loads(RESULTS.read_text()), rows([])
    known = history.judged(history.load(), of_all)
    here = history.Machine.of(record["machine"])
    TABLE.write_text(report.markdown(of_all, known, here, record))
    drawing.write(known, [row.name for row in of_all], here)
    print(f"{TABLE.relative_to(ROOT)} and {drawing.PICTURE.relative_to(ROOT)} show {len(known)} figures.")

"""What was measured, for people (Markdown) and for programs (JSON)."""

from __future__ import annotations

import math
import os
import platform
import shutil
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.harness import CONFIDENCE, Measured, Outcome, Row, quartiles
from benchmarks.history import Entry, Machine, latest
from benchmarks.worker import ROOT

HEADER = (
    "| work | tinyweb | against | its figure | ratio (interval) | target | | measured |\n"
    "| --- | ---: | --- | ---: | ---: | ---: | --- | --- |"
)


def machine() -> dict[str, object]:
    """Where the figures come from."""
    name = platform.processor() or platform.machine()
    cpuinfo, meminfo = Path("/proc/cpuinfo"), Path("/proc/meminfo")
    flags: set[str] = set()
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                name = line.split(":", 1)[1].strip()
            if line.startswith("flags"):
                flags = set(line.split(":", 1)[1].split())
    telling = ("avx", "avx2", "fma", "avx512f", "avx_vnni", "avx512_vnni", "asimd", "asimddp")
    found: dict[str, object] = {
        "processor": name,
        "vectors": [flag for flag in telling if flag in flags],
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }
    if meminfo.exists():
        found["memory_gib"] = round(int(meminfo.read_text().split()[1]) / 2**20, 1)
    if shutil.which("nvidia-smi"):
        query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        found["gpu"] = subprocess.run(query, capture_output=True, text=True).stdout.strip()
    return found


def commit() -> str:
    """What was measured: the commit, and whether the package differs from it."""
    try:
        head = _git("rev-parse", "--short", "HEAD")
        changed = _git("status", "--porcelain", "--", "tinyweb", "web")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head + (" with changes" if changed else "")


def _git(*arguments: str) -> str:
    return subprocess.check_output(["git", *arguments], cwd=ROOT, text=True, stderr=subprocess.DEVNULL).strip()


def own_version() -> str:
    try:
        return version("tinyweb")
    except PackageNotFoundError:
        return "unknown"


# -- Markdown ----------------------------------------------------------------------------------------------------------
def digits(value: float) -> str:
    """Three significant figures, none of them after four before the point."""
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def ratio_text(entry: Entry) -> str:
    low, high = entry.interval or (math.nan, math.nan)
    return f"**{entry.ratio:.2f}** ({low:.2f} … {high:.2f})"


def lines(found: Sequence[Entry]) -> list[str]:
    """A row's lines of the table: one for every peer."""
    text = []
    for i, entry in enumerate(found):
        mine = "–" if entry.ours is None else f"{digits(entry.ours)} {entry.unit}"
        cells = [entry.work if i == 0 else "", mine if i == 0 else "", entry.peer]
        target = "" if entry.target is None else f"{entry.target:g}"
        if entry.ratio is None or entry.theirs is None:
            cells += ["–", entry.problem, target, ""]
        else:
            verdict = {None: "", True: "✓", False: "✗"}[entry.met]
            cells += [f"{digits(entry.theirs)} {entry.unit}", ratio_text(entry), target, verdict]
        text.append("| " + " | ".join([*cells, f"{entry.date[:10]}, {entry.commit}"]) + " |")
    return text


def markdown(rows: Sequence[Row], history: Sequence[Entry], here: Machine, record: Mapping[str, Any]) -> str:
    """The whole table: the newest figures of all rows on the machine `here`. `record`: the last whole run's."""
    newest = latest(history, here)
    machine = record["machine"]
    shown = [e for row in rows for e in newest.get(row.name, [])]
    text = [
        "# Benchmark results",
        "",
        f"{here.processor} ({', '.join(machine['vectors'])}), {here.cores} cores, "
        f"{machine.get('memory_gib', '?')} GiB, {machine['system']}, Python {machine['python']}.",
        "",
        "Every row has the figures of the last run that measured it, whose date and commit stand at its end. Figures "
        "are medians. A ratio is the speed of tinyweb over the other's (above 1: tinyweb is faster), the median of "
        "turns taken side by side; in parentheses the interval that the median of many more turns would lie in, "
        f"with {CONFIDENCE:.0%} where there were turns enough. How to read and repeat this: "
        "[docs/benchmarks.md](../docs/benchmarks.md); all runs: [history.svg](history.svg).",
        "",
        f"{summary(shown)} Versions in the last run: "
        + ", ".join(f"{n} {v}" for n, v in sorted(record["versions"].items()))
        + ".",
    ]
    for group in dict.fromkeys(row.group for row in rows):
        of_group = [line for row in rows if row.group == group for line in lines(newest.get(row.name, []))]
        if of_group:
            text += ["", f"## {group}", "", HEADER, *of_group]
    if missing := [f"`{row.name}`" for row in rows if row.name not in newest]:
        text += ["", f"Not measured here yet (their turn comes first): {', '.join(missing)}."]
    return "\n".join(text) + "\n"


def summary(found: Sequence[Entry]) -> str:
    judged = [entry.met for entry in found if entry.met is not None]
    return f"{sum(judged)} of {len(judged)} targets measured are met."


def means(found: Sequence[Entry]) -> list[str]:
    """For each peer that several rows have: the geometric mean of the ratios, and the least with its row."""
    ratios: dict[str, list[tuple[float, str]]] = {}
    for entry in found:
        if entry.ratio is not None and entry.target is not None:
            ratios.setdefault(entry.peer, []).append((entry.ratio, entry.row))
    return [
        f"{peer}: geometric mean of {len(of)} ratios {statistics.geometric_mean(r for r, _ in of):.2f}, "
        f"least {min(of)[0]:.2f} ({min(of)[1]})"
        for peer, of in ratios.items()
        if len(of) > 1
    ]


# -- JSON --------------------------------------------------------------------------------------------------------------
def json_record(outcomes: Sequence[Outcome], where: Mapping[str, object], seconds: float = 0) -> dict[str, Any]:
    """A run's figures and raw turns. `where`: as `machine()` says it."""
    versions = {"tinyweb": own_version()}
    for outcome in outcomes:
        for measured in (outcome.ours, *outcome.peers):
            versions |= measured.versions
    return {
        "commit": commit(),
        "machine": dict(where),
        "versions": versions,
        "seconds": round(seconds),
        "rows": [_row_record(outcome) for outcome in outcomes],
    }


def _row_record(outcome: Outcome) -> dict[str, Any]:
    row = outcome.row
    record: dict[str, Any] = {"name": row.name, "group": row.group, "work": row.work, "unit": row.unit.name}
    if row.note:
        record["note"] = row.note
    if outcome.problem:
        return record | {"problem": outcome.problem, "left_out": outcome.left_out, "absent": outcome.absent}
    peers = []
    for i, (peer, measured) in enumerate(zip(row.peers, outcome.peers)):
        found = _side_record(outcome, measured)
        ratio = outcome.ratio(i)
        if ratio is not None:
            found |= {
                "ratio": _round(ratio.ratio),
                "interval": [_round(ratio.low), _round(ratio.high)],
                "confidence": _round(ratio.confidence),
            }
        peers.append(found | {"target": peer.target, "met": outcome.met(i)})
    return record | {"ours": _side_record(outcome, outcome.ours), "peers": peers, "took_seconds": _round(outcome.took)}


def _side_record(outcome: Outcome, measured: Measured) -> dict[str, Any]:
    record: dict[str, Any] = {"name": measured.side.name}
    if measured.problem or not measured.seconds:
        return record | {"problem": measured.problem or "not measured", "absent": measured.absent}
    record |= {
        "figure": _round(outcome.row.unit.figure(measured.median)),
        "seconds": _round(measured.median),
        "seconds_quartiles": [_round(q) for q in quartiles(measured.seconds)],
        "turns": [_round(s) for s in measured.seconds],
        "repeat": measured.repeat,
    }
    return record | ({"notes": measured.notes} if measured.notes else {})


def _round(value: float) -> float:
    return float(f"{value:.4g}")

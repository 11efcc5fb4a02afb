"""What was measured, for people (Markdown) and for programs (JSON)."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.harness import Measured, Outcome, Ratio, quartiles
from benchmarks.worker import ROOT

HEADER = (
    "| work | tinyweb | against | its figure | ratio (spread) | target | |\n"
    "| --- | ---: | --- | ---: | ---: | ---: | --- |"
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


def ratio_text(ratio: Ratio) -> str:
    return f"**{ratio.ratio:.2f}** ({ratio.low:.2f} … {ratio.high:.2f})"


def figure(outcome: Outcome, side: Measured) -> str:
    return f"{digits(outcome.row.unit.figure(side.median))} {outcome.row.unit.name}"


def lines(outcome: Outcome) -> list[str]:
    """The row's lines of the table: one for every peer."""
    row = outcome.row
    if outcome.problem:
        return [f"| {row.work} | – | {outcome.problem} | | | | |"]
    mine = figure(outcome, outcome.ours)
    if not outcome.peers:
        return [f"| {row.work} | {mine} | | | | | |"]
    found = []
    for i, (peer, measured) in enumerate(zip(row.peers, outcome.peers)):
        target = "" if peer.target is None else f"{peer.target:g}"
        ratio, met = outcome.ratio(i), outcome.met(i)
        cells = [row.work if i == 0 else "", mine if i == 0 else "", peer.side.name]
        if ratio is None:
            cells += ["–", measured.problem or "not measured", target, ""]
        else:
            cells += [figure(outcome, measured), ratio_text(ratio), target, {None: "", True: "✓", False: "✗"}[met]]
        found.append("| " + " | ".join(cells) + " |")
    return found


def markdown(outcomes: Sequence[Outcome], record: dict[str, Any]) -> str:
    """The whole report."""
    here = record["machine"]
    text = [
        "# Benchmark results",
        "",
        f"Commit {record['commit']}, {here['processor']} ({', '.join(here['vectors'])}), {here['cores']} cores, "
        f"{here.get('memory_gib', '?')} GiB, {here['system']}, Python {here['python']}.",
        "",
        "Figures are medians. A ratio is the speed of tinyweb over the other's (above 1: tinyweb is faster), medians "
        "of alternating turns of one run; in parentheses the quartiles of the ratios of neighbouring turns. How to "
        "read and repeat this: [docs/benchmarks.md](../docs/benchmarks.md).",
        "",
        f"{summary(outcomes)} Versions: " + ", ".join(f"{n} {v}" for n, v in sorted(record["versions"].items())) + ".",
    ]
    for group in dict.fromkeys(o.row.group for o in outcomes):
        text += ["", f"## {group}", "", HEADER]
        text += [line for o in outcomes if o.row.group == group and not o.left_out for line in lines(o)]
    if left_out := [o for o in outcomes if o.left_out]:
        text += ["", "Left out for time: " + ", ".join(f"`{o.row.name}`" for o in left_out) + "."]
    return "\n".join(text) + "\n"


def summary(outcomes: Sequence[Outcome]) -> str:
    verdicts = [o.met(i) for o in outcomes for i in range(len(o.peers))]
    judged = [v for v in verdicts if v is not None]
    return f"{sum(judged)} of {len(judged)} targets measured are met."


# -- JSON --------------------------------------------------------------------------------------------------------------
def json_record(outcomes: Sequence[Outcome], seconds: float) -> dict[str, Any]:
    versions = {"tinyweb": own_version()}
    for outcome in outcomes:
        for measured in (outcome.ours, *outcome.peers):
            versions |= measured.versions
    return {
        "commit": commit(),
        "machine": machine(),
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
            found |= {"ratio": _round(ratio.ratio), "ratio_quartiles": [_round(ratio.low), _round(ratio.high)]}
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

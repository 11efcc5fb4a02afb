"""The history of every row as a picture: benchmarks/history.svg, a small panel for each row and peer.

A panel has the ratio of every run, one after another (logarithmic, above 1: tinyweb is faster), its interval as a
bar, the target as a dashed line and 1 as a thin one. A full point has met its target, a hollow one has not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path

from benchmarks.history import Entry, Machine
from benchmarks.worker import ROOT

PICTURE = ROOT / "benchmarks" / "history.svg"
COLUMNS, WIDTH, HEIGHT, PLOT_TOP, PLOT_BOTTOM, EDGE = 4, 240, 104, 34, 92, 10
LETTERS = 42  # of a title that fit

STYLE = """
  text { font: 10px system-ui, sans-serif; fill: #24292f }
  .peer, .dates { fill: #57606a } .ratio { font-weight: 600 }
  .frame { fill: none; stroke: #d0d7de } .one { stroke: #8c959f } .target { stroke: #9a6700; stroke-dasharray: 4 3 }
  .path { fill: none; stroke: #0969da; stroke-opacity: .5 } .spread { stroke: #0969da }
  .point { stroke: #0969da; stroke-width: 1.5; fill: #0969da } .missed { fill: #ffffff }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .peer, .dates { fill: #9198a1 }
    .frame { stroke: #3d444d } .one { stroke: #656c76 } .target { stroke: #d29922 }
    .path, .spread { stroke: #58a6ff } .point { stroke: #58a6ff; fill: #58a6ff } .missed { fill: #0d1117 }
  }
"""


def draw(history: Sequence[Entry], order: Sequence[str], machine: Machine) -> str:
    """SVG of what `history` holds of a machine. Rows stand as in `order`, those that it does not name at the end."""
    measured = [entry for entry in history if entry.machine == machine and entry.ratio is not None]
    dates = sorted({entry.date for entry in measured})
    places = {name: i for i, name in enumerate(order)}
    panels: dict[tuple[str, str], list[Entry]] = {}
    for entry in sorted(measured, key=lambda e: (places.get(e.row, len(places)), e.row)):
        panels.setdefault((entry.row, entry.peer), []).append(entry)
    rows = math.ceil(len(panels) / COLUMNS)
    width, height = COLUMNS * WIDTH, rows * HEIGHT + 24
    span = f"{dates[0][:10]} … {dates[-1][:10]}, {len(dates)} runs" if dates else "nothing measured yet"
    where = f"{machine.processor}, {machine.cores} cores: {span}"
    text = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="Speed of tinyweb over that of its peers, run by run">',
        f"<style>{STYLE}</style>",
        f'<text class="dates" x="{EDGE}" y="14">{escape(where)}</text>',
    ]
    for i, found in enumerate(panels.values()):
        x, y = i % COLUMNS * WIDTH, i // COLUMNS * HEIGHT + 20
        text += [f'<g transform="translate({x} {y})">', *_panel(found, dates), "</g>"]
    return "\n".join([*text, "</svg>"]) + "\n"


def _panel(found: Sequence[Entry], dates: Sequence[str]) -> list[str]:
    last = found[-1]
    target = last.target
    shown = [1.0, *([target] if target else [])]
    for entry in found:
        shown += [entry.ratio or 1.0, *(entry.interval or ())]
    low, high = math.log(min(shown)), math.log(max(shown))
    margin = max(0.08 * (high - low), 0.02)
    low, high = low - margin, high + margin

    def at(ratio: float) -> str:
        return f"{PLOT_BOTTOM - (math.log(ratio) - low) / (high - low) * (PLOT_BOTTOM - PLOT_TOP):.1f}"

    def of(date: str) -> str:
        return f"{2 * EDGE + (WIDTH - 4 * EDGE) * (dates.index(date) + 0.5) / len(dates):.1f}"

    left, right = EDGE, WIDTH - EDGE
    title = last.work if len(last.work) <= LETTERS else last.work[: LETTERS - 1] + "…"
    points = [(of(e.date), e) for e in found]
    path = " ".join(f"{x},{at(e.ratio or 1.0)}" for x, e in points)
    text = [
        f"<title>{escape(last.work)}, against {escape(last.peer)}</title>",
        f'<text x="{left}" y="14">{escape(title)}</text>',
        f'<text class="peer" x="{left}" y="27">{escape(last.peer[:LETTERS])}</text>',
        f'<text class="ratio" x="{right}" y="27" text-anchor="end">{last.ratio:.2f}</text>',
        f'<rect class="frame" x="{left}" y="{PLOT_TOP}" width="{right - left}" height="{PLOT_BOTTOM - PLOT_TOP}"/>',
        f'<path class="one" d="M{left} {at(1.0)}H{right}"/>',
        *([f'<path class="target" d="M{left} {at(target)}H{right}"/>'] if target else []),
        f'<polyline class="path" points="{path}"/>',
    ]
    for x, entry in points:
        if entry.interval:
            text.append(f'<path class="spread" d="M{x} {at(entry.interval[0])}V{at(entry.interval[1])}"/>')
        missed = " missed" if entry.met is False else ""
        text.append(f'<circle class="point{missed}" cx="{x}" cy="{at(entry.ratio or 1.0)}" r="2.5"/>')
    return text


def write(history: Sequence[Entry], order: Sequence[str], machine: Machine, path: Path = PICTURE) -> None:
    path.write_text(draw(history, order, machine), encoding="utf-8", newline="\n")

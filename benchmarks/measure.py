"""What is measured, and how a figure with its spread is written."""

from __future__ import annotations

import os
import platform
import statistics
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / "assets" / "models" / "tinychat-7m"
PROMPT = "Tell me a story about a little fox and a golden key."
TOKENS = 64  # of every answer; the story is longer


@dataclass
class Series:
    """The same measurement, several times."""

    values: list[float] = field(default_factory=list)

    def show(self, digits: int) -> str:
        """Median, and from the least to the largest."""
        if not self.values:
            return "–"
        low, middle, high = min(self.values), statistics.median(self.values), max(self.values)
        return f"{middle:.{digits}f} ({low:.{digits}f} … {high:.{digits}f})"

    def record(self) -> dict[str, float | list[float]]:
        if not self.values:
            return {}
        rounded = [round(v, 4) for v in self.values]
        return {
            "median": round(statistics.median(self.values), 4),
            "min": min(rounded),
            "max": max(rounded),
            "values": rounded,
        }


@dataclass
class Row:
    """One backend. Seconds are from the opening of the page (or of the model) to the first token of an answer."""

    backend: str
    detail: str = ""
    first_visit: Series = field(default_factory=Series)
    second_visit: Series = field(default_factory=Series)
    decode: Series = field(default_factory=Series)  # tokens per second after the first token
    problem: str = ""

    def markdown(self) -> str:
        if self.problem:
            return f"| {self.backend} | {self.problem} | | | |"
        cells = [self.backend, self.detail, self.first_visit.show(2), self.second_visit.show(2), self.decode.show(1)]
        return "| " + " | ".join(cells) + " |"

    def record(self) -> dict[str, object]:
        if self.problem:
            return {"backend": self.backend, "problem": self.problem}
        return {
            "backend": self.backend,
            "detail": self.detail,
            "first_visit_seconds": self.first_visit.record(),
            "second_visit_seconds": self.second_visit.record(),
            "decode_tokens_per_second": self.decode.record(),
        }


HEADER = (
    "| backend | | first visit to first token, s | second visit, s | decode, tokens/s |\n"
    "| --- | --- | --- | --- | --- |"
)


def machine() -> dict[str, object]:
    """Where the figures come from."""
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        models = [
            line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")
        ]
        name = models[0] if models else name
    return {"processor": name, "cores": os.cpu_count(), "system": f"{platform.system()} {platform.machine()}"}

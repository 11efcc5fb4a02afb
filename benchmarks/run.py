"""Time from opening to the first token, and decode speed, for each backend: a Markdown table and results.json.

usage: python -m benchmarks [--quant q8] [--runs 5] [--only browser|native|peer]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import HEADER, MODEL, ROOT, TOKENS, Row, machine

sys.path.insert(0, str(ROOT / "tools"))
RESULTS = Path(__file__).parent / "results.json"


def export(quant: str, site: Path) -> float:
    """Export the embedded model; seconds it took."""
    begin = time.perf_counter()
    command = [sys.executable, "-m", "tinyweb.cli", "export", "chat", str(MODEL), "--quant", quant, "-o", str(site)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr.strip())
    return time.perf_counter() - begin


def rows(quant: str, runs: int, only: str | None, site: Path) -> Iterator[Row]:
    if only in (None, "browser"):
        from benchmarks.browser_rows import browser_rows

        yield from browser_rows(site, runs)
    if only in (None, "native"):
        from benchmarks.native_rows import native_rows

        yield from native_rows(quant, runs)
    if only in (None, "peer"):
        from benchmarks.native_rows import peer_row

        yield peer_row(runs)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Speed of the embedded chat model on every backend."
    )
    parser.add_argument("--quant", default="q8", choices=("f32", "f16", "q8", "q4"))
    parser.add_argument("--runs", type=int, default=5, help="how often each figure is measured")
    parser.add_argument(
        "--only", choices=("browser", "native", "peer"), help="one part only; results.json is left alone"
    )
    arguments = parser.parse_args()

    here = machine()
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder) / "site"
        export_seconds = export(arguments.quant, site) if arguments.only in (None, "browser") else 0.0
        print(
            f"tinychat-7m, {arguments.quant}, answers of {TOKENS} tokens; {here['processor']}, {here['cores']} cores."
        )
        print("Median (least … largest).\n")
        print(HEADER, flush=True)
        measured = []
        for row in rows(arguments.quant, arguments.runs, arguments.only, site):
            print(row.markdown(), flush=True)
            measured.append(row)
    if arguments.only is None:
        print(f"\nExport: {export_seconds:.1f} s")
        record = {
            "model": MODEL.name,
            "quant": arguments.quant,
            "tokens": TOKENS,
            "machine": here,
            "export_seconds": round(export_seconds, 2),
            "rows": [row.record() for row in measured],
        }
        RESULTS.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")

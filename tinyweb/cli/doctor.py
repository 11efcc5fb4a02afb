"""`tinyweb doctor`."""

from __future__ import annotations

import json

import tinyweb
from tinyweb.cli.common import AsJson, Debug, app


@app.command()
def doctor(as_json: AsJson = False, debug: Debug = False) -> None:
    """Tell which devices work here, which do not, and why."""
    from tinyweb.doctor import diagnose

    findings = diagnose()
    if as_json:
        report = {
            "version": tinyweb.__version__,
            "works": {f["name"]: f["works"] for f in findings},
            "findings": findings,
        }
        print(json.dumps(report, indent=2, ensure_ascii=False))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(show_header=False, box=None)
    for f in findings:
        mark = Text("works", style="green") if f["works"] else Text("does not work", style="red")
        grid.add_row(Text(f["name"], style="bold"), mark, Text(f["detail"] or f["reason"]))
    Console().print(grid)

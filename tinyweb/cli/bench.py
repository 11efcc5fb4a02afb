"""`tinyweb bench`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from tinyweb.cli.common import (
    DEVICES,
    FROM,
    AsJson,
    Debug,
    RunQuant,
    app,
    located,
    show_progress,
    stderr,
)
from tinyweb.errors import TinywebError

SITE_DEVICES = {"WASM": "wasm", "WEBGPU": "webgpu", "AUTO": "auto"}


@app.command()
def bench(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help=f"A language model: {FROM}; or a site that `tinyweb export chat` wrote, for its speed in Chromium.",
            show_default=False,
        ),
    ],
    device: Annotated[
        list[str] | None,
        typer.Option(
            help=f"{DEVICES}; repeatable (default: TINYWEB_DEVICE or CPU; of a site WASM).",
            show_default=False,
        ),
    ] = None,
    threads: Annotated[
        list[int] | None,
        typer.Option(min=1, max=1024, help="Threads, repeatable (default: all processors).", show_default=False),
    ] = None,
    prompt_tokens: Annotated[int, typer.Option(min=1, help="Tokens of the prompt.")] = 256,
    tokens: Annotated[int, typer.Option(min=2, help="Tokens of the answer.")] = 64,
    runs: Annotated[int, typer.Option(min=1, help="How often; figures are medians.")] = 3,
    quant: RunQuant = None,
    context: Annotated[
        int | None, typer.Option(min=2, help="Tokens of a conversation (default: what the model allows).")
    ] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Measure a language model here: tokens per second, time to the first token, memory."""
    from tinyweb.export.site import looks_exported

    site = Path(source)
    is_site = looks_exported(site)
    if is_site and (quant or context):
        raise typer.BadParameter("--quant and --context are those that a site was exported with")
    if is_site:
        rows = _in_browser(site, device or ["WASM"], threads or [None], prompt_tokens, tokens, runs)
    else:
        from tinyweb.sources import CHAT

        path = located(source, CHAT, "chat")
        asked = {
            "path": str(path), "quant": quant, "context": context,
            "prompt": prompt_tokens, "tokens": tokens, "runs": runs,
        }  # fmt: skip
        rows = _natively(asked, device or [os.environ.get("TINYWEB_DEVICE") or "CPU"], threads or [None])
    done: list[dict[str, Any]] = []
    with show_progress(stderr()) as progress:
        for row in rows:
            progress("measuring", len(done), len(done) + 1)
            done.append(row)
        progress("measuring", len(done), len(done))
    if all("error" in row for row in done):
        raise TinywebError("; ".join(dict.fromkeys(row["error"] for row in done)))
    report = {"source": source, "prompt_tokens": prompt_tokens, "tokens": tokens, "runs": runs, "results": done}
    if as_json:
        print(json.dumps(report, indent=2, ensure_ascii=False))
    else:
        _show(report)


def _natively(asked: dict[str, Any], devices: Sequence[str], threads: Sequence[int | None]) -> Iterator[dict[str, Any]]:
    """Each combination in a process of its own."""
    for device in devices:
        # only processors' threads are chosen here
        device = device.upper()
        for count in threads if device.partition(":")[0] == "CPU" else [None]:
            env = dict(os.environ) | ({} if count is None else {"TINYWEB_THREADS": str(count)})
            command = [sys.executable, "-m", "tinyweb.cli.measure", json.dumps({**asked, "device": device})]
            done = subprocess.run(command, capture_output=True, text=True, env=env)
            if done.returncode != 0:
                said = (done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"])[-1]
                yield {"device": device, "threads": count, "error": f"measuring on {device} failed: {said}"}
                continue
            yield {"device": device, "threads": count} | json.loads(done.stdout.splitlines()[-1])


def _in_browser(
    site: Path, devices: Sequence[str], threads: Sequence[int | None], prompt: int, tokens: int, runs: int
) -> Iterator[dict[str, Any]]:
    from tinyweb.serve.bench import bench_site

    for device in devices:
        if device.upper() not in SITE_DEVICES:
            raise typer.BadParameter(f"a site runs on {' or '.join(SITE_DEVICES)}, not on {device}")
        for count in threads if device.upper() == "WASM" else [None]:
            row = {"device": device.upper(), "threads": count}
            measured = bench_site(site, SITE_DEVICES[device.upper()], count, prompt, tokens, runs)
            yield row | {k: v for k, v in measured.items() if k != "threads"}


def _show(report: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, pad_edge=False)
    for title in ("device", "threads", "prompt tokens/s", "first token", "tokens/s", "memory", "ready after"):
        grid.add_column(title, justify="left" if title == "device" else "right")
    for row in report["results"]:
        threads = str(row["threads"] or "")
        if "error" in row:
            grid.add_row(Text(row["device"]), threads, Text(row["error"]))
            continue
        memory = row["peak_bytes"]
        grid.add_row(
            Text(row["device"]),
            threads,
            f"{row['prompt_tokens_per_second']:.1f}",
            f"{row['first_token_seconds'] * 1000:.0f} ms",
            f"{row['tokens_per_second']:.1f}",
            "" if memory is None else f"{memory / 2**20:.0f} MiB",
            f"{row['load_seconds']:.1f} s",
        )
    console = Console(highlight=False)
    counts = f"{report['prompt_tokens']} tokens read, {report['tokens']} made, median of {report['runs']}"
    console.print(f"{report['source']}: {counts}", markup=False, soft_wrap=True)
    console.print(grid)

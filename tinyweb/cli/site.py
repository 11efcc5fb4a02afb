"""Commands about sites that an export wrote: `tinyweb serve`, `tinyweb host` and `tinyweb inspect`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from tinyweb.cli.common import (
    FROM,
    AllowHost,
    AsJson,
    Debug,
    Dims,
    Fixed,
    SiteFolder,
    app,
    numbers,
    show_progress,
    sizes,
    stderr,
)
from tinyweb.errors import printable


@app.command()
def serve(
    site: SiteFolder,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes any free one.")] = 8080,
    host: Annotated[str, typer.Option(help="The address to listen on; 0.0.0.0 lets other devices in.")] = "127.0.0.1",
    no_isolation: Annotated[
        bool, typer.Option("--no-isolation", help="Leave the headers out that allow threads.")
    ] = False,
    allow_host: AllowHost = None,
    allow_embedding: Annotated[
        bool, typer.Option("--allow-embedding", help="Let pages of other sites show this one in a frame.")
    ] = False,
    lan: Annotated[
        bool,
        typer.Option("--lan", help="Serve other devices over https, with a QR code of the address; for phones."),
    ] = False,
    certificate: Annotated[
        Path | None, typer.Option(metavar="PEM", help="Serve https with this certificate (mkcert makes them).")
    ] = None,
    key: Annotated[Path | None, typer.Option(metavar="PEM", help="The certificate's private key.")] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show every request.")] = False,
    debug: Debug = False,
) -> None:
    """Serve an exported site until Ctrl-C."""
    from tinyweb.serve import announce, open_server
    from tinyweb.serve import serve as serve_site

    def log(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    if key is not None and certificate is None:
        raise typer.BadParameter("--key needs a --certificate")
    chosen: dict[str, Any] = {
        "isolated": not no_isolation,
        "log": log if verbose else None,
        "allowed_hosts": allow_host or (),
        "embedding": allow_embedding,
    }
    lines: Iterable[str]
    if lan:
        from tinyweb.serve.lan import open_lan_server

        server, lines = open_lan_server(site, port, certificate, key, **chosen)
    else:
        if certificate is not None:
            from tinyweb.serve.certificate import context

            chosen["tls"] = context(certificate, key)
        server = open_server(site, host, port, **chosen)
        lines = announce(server, host)
    serve_site(server, lines, say=lambda line: print(line, flush=True))


@app.command()
def host(
    site: SiteFolder,
    name: Annotated[
        str,
        typer.Argument(
            metavar="HOST",
            help="github-pages, cloudflare-pages, netlify, huggingface-spaces, nginx or s3.",
            show_default=False,
        ),
    ],
    debug: Debug = False,
) -> None:
    """Check a site against a static host's limits, and write the files that tell the host which headers it needs."""
    from tinyweb.export.hosts import named_host, prepare

    chosen = named_host(name)
    written = prepare(site, chosen)
    console = stderr()
    console.print(
        f"{site} is within the limits of {chosen.title}; written: {', '.join(written) or 'nothing'}", markup=False
    )
    console.print(f"Threads in WebAssembly come by: {chosen.isolates}. How to upload it: docs/hosting.md", markup=False)


@app.command()
def inspect(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help=f"A site that `tinyweb export` wrote; or a model: {FROM}.", show_default=False
        ),
    ],
    verify: Annotated[bool, typer.Option("--verify", help="Check the hash of every file of a site.")] = False,
    dim: Dims = None,
    fix: Fixed = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Tell what a site needs (kernels per token, memory, limits, variants), or what a model is and where it fits."""
    from tinyweb.export.site import looks_exported

    path, line = Path(source), None
    if verify or looks_exported(path) or (path / "manifest.json").is_file():
        from tinyweb.export.inspect import inspect_site, table

        report = inspect_site(path, verify)
        show = table
    else:
        from tinyweb.export.inspect_source import inspect_source, locate_any, next_line, source_table

        with show_progress(stderr()) as progress:
            path = locate_any(source, progress)
        report = inspect_source(path, sizes(dim or []), numbers(fix or []))
        show, line = source_table, next_line(report, source)
    if as_json:
        print(json.dumps(report, indent=2, ensure_ascii=False))
    else:
        from rich.console import Console

        Console().print(show(report))
        if line is not None:
            print(printable(line))  # not in lines of the table's: it is there to be copied

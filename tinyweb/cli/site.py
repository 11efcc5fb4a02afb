"""Commands about sites that an export wrote: `tinyweb serve` and `tinyweb inspect`."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from tinyweb.cli.common import AsJson, Debug, SiteFolder, app


@app.command()
def serve(
    site: SiteFolder,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes any free one.")] = 8080,
    host: Annotated[str, typer.Option(help="The address to listen on; 0.0.0.0 lets other devices in.")] = "127.0.0.1",
    no_isolation: Annotated[
        bool, typer.Option("--no-isolation", help="Leave the headers out that allow threads.")
    ] = False,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="One more host name to answer to (repeatable), beside localhost and the address itself."),
    ] = None,
    allow_embedding: Annotated[
        bool, typer.Option("--allow-embedding", help="Let pages of other sites show this one in a frame.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show every request.")] = False,
    debug: Debug = False,
) -> None:
    """Serve an exported site until Ctrl-C."""
    from tinyweb.serve import serve as serve_site

    def log(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    serve_site(
        site,
        host,
        port,
        isolated=not no_isolation,
        say=lambda line: print(line, flush=True),
        log=log if verbose else None,
        allowed_hosts=allow_host or (),
        embedding=allow_embedding,
    )


@app.command()
def inspect(
    site: SiteFolder,
    verify: Annotated[bool, typer.Option("--verify", help="Check the hash of every file.")] = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Tell what a site needs: kernels per token, memory, limits, variants."""
    from tinyweb.export.inspect import inspect_site, table

    report = inspect_site(site, verify)
    if as_json:
        print(json.dumps(report, indent=2, ensure_ascii=False))
    else:
        from rich.console import Console

        Console().print(table(report))

"""`tinyweb export function`."""

from __future__ import annotations

from typing import Annotated

import typer

from tinyweb.cli.common import (
    ALL_TARGETS,
    SHARD_BYTES,
    Debug,
    Force,
    Name,
    Output,
    Page,
    ShardBytes,
    Targets,
    Tune,
    export_app,
    say_devices,
    show_progress,
    stderr,
    users_code,
)


@export_app.command("function")
def export_function(
    maker: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:NAME",
            help="A Python function without arguments that returns (function, example inputs); it is imported and run.",
            show_default=False,
        ),
    ],
    output: Output,
    target: Targets = ALL_TARGETS,
    shard_bytes: ShardBytes = SHARD_BYTES,
    name: Name = None,
    force: Force = False,
    tune: Tune = None,
    page: Page = True,
    debug: Debug = False,
) -> None:
    """Write a function of tensors as a page that tries it, or for your own pages: model.run({name: typed array})."""
    from tinyweb.export.function import export_function as export
    from tinyweb.export.function import load_maker

    console = stderr()
    with users_code(), show_progress(console) as progress:
        function, inputs = load_maker(maker)()
        made = export(
            function,
            inputs,
            output,
            name=name,
            targets=[t.value for t in target],
            shard_bytes=shard_bytes,
            force=force,
            tune=tune or 0.0,
            page=page,
            progress=progress,
        )
    weights = made["weights"]
    console.print(f"{output}: {weights['bytes'] / 1e6:.1f} MB of weights in {len(weights['shards'])} file(s)")
    say_devices(console, output)

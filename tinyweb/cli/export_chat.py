"""`tinyweb export chat`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tinyweb.cli.common import Activations, Debug, ModelFolder, Quant, Tune, export_app, show_progress, stderr


@export_app.command("chat")
def export_chat(
    folder: ModelFolder,
    output: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="SITE", help="The site's folder; new or empty.", show_default=False),
    ],
    quant: Annotated[Quant, typer.Option(help="Weights: 32 or 16 bit floats, 8 or 4 bit integers.")] = Quant.q8,
    context: Annotated[
        int | None, typer.Option(min=2, help="Tokens of a conversation (default: what the model allows).")
    ] = None,
    shard_bytes: Annotated[int, typer.Option(help="The largest size of one file of weights.")] = 16 * 2**20,
    name: Annotated[str | None, typer.Option(help="The model's name in the page (default: the folder's).")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a site that an earlier export wrote.")] = False,
    activations: Annotated[
        Activations | None,
        typer.Option(help="What 8 or 4 bit weights are multiplied with (default: int8 in WebAssembly, float on GPUs)."),
    ] = None,
    tune: Tune = None,
    debug: Debug = False,
) -> None:
    """Write a chat model as a site that any web host serves, for WebGPU and WebAssembly."""
    from tinyweb.export.chat import ExportOptions
    from tinyweb.export.chat import export_chat as export

    console = stderr()
    rounded = activations.value if activations else None
    options = ExportOptions(quant.value, context, shard_bytes, name, force, tune or 0.0, rounded)
    with show_progress(console) as progress:
        made = export(folder, output, options, progress)
    console.print(
        f"{output}: {made.weight_bytes / 1e6:.1f} MB of weights in {made.shards} file(s), "
        f"{made.kernels_per_token} kernels per token"
    )
    console.print(f"See it with: tinyweb serve {output}", highlight=False)

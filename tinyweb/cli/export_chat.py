"""`tinyweb export chat`."""

from __future__ import annotations

from typing import Annotated

import typer

from tinyweb.cli.common import (
    SHARD_BYTES,
    ActivationsChoice,
    ChatSource,
    Debug,
    Force,
    Name,
    Output,
    Quant,
    ShardBytes,
    TemplateFile,
    Tune,
    WeightQuant,
    export_app,
    say_devices,
    show_progress,
    stderr,
)


@export_app.command("chat")
def export_chat(
    source: ChatSource,
    output: Output,
    quant: WeightQuant = Quant.q8,
    context: Annotated[
        int | None, typer.Option(min=2, help="Tokens of a conversation (default: what the model allows).")
    ] = None,
    shard_bytes: ShardBytes = SHARD_BYTES,
    name: Name = None,
    force: Force = False,
    activations: ActivationsChoice = None,
    chat_template: TemplateFile = None,
    tune: Tune = None,
    debug: Debug = False,
) -> None:
    """Write a chat model as a site that any web host serves, for WebGPU and WebAssembly.

    Of a base model, which has no chat template, the page continues what is written.
    """
    from tinyweb.export.chat import ExportOptions
    from tinyweb.export.chat import export_chat as export

    console = stderr()
    rounded = activations.value if activations else None
    options = ExportOptions(quant.value, context, shard_bytes, name, force, tune or 0.0, rounded, chat_template)
    with show_progress(console) as progress:
        made = export(source, output, options, progress)
    console.print(
        f"{output}: {made.weight_bytes / 1e6:.1f} MB of weights in {made.shards} file(s), "
        f"{made.kernels_per_token} kernels per token"
    )
    if made.requantised:
        console.print(f"The weights were stored in other types and are {quant.value} now: {made.requantised}")
    say_devices(console, output)

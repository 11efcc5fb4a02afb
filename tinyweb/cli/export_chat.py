"""`tinyweb export chat`."""

from __future__ import annotations

from typing import Annotated

import typer

from tinyweb.cli.common import (
    SHARD_BYTES,
    ActivationsChoice,
    CacheChoice,
    ChatSource,
    Debug,
    Force,
    Name,
    Output,
    Quant,
    ShardBytes,
    TemplateFile,
    Tune,
    export_app,
    say_devices,
    show_progress,
    stderr,
)


@export_app.command("chat")
def export_chat(
    source: ChatSource,
    output: Output,
    quant: Annotated[
        Quant | None,
        typer.Option(
            help="Weights: as they are stored, floats, or integers of so many bits (default: as stored where that is "
            "quantised, as in GGUF files, else q8; or what fits --profile).",
            show_default=False,
        ),
    ] = None,
    context: Annotated[
        int | None, typer.Option(min=2, help="Tokens of a conversation (default: what the model allows).")
    ] = None,
    shard_bytes: ShardBytes = SHARD_BYTES,
    profile: Annotated[
        str | None,
        typer.Option(
            help="Choose what fits a kind of device: desktop, integrated, phone, old-phone, wasm-4g, wasm-2g.",
            show_default=False,
        ),
    ] = None,
    name: Name = None,
    force: Force = False,
    activations: ActivationsChoice = None,
    chat_template: TemplateFile = None,
    cache: CacheChoice = None,
    tune: Tune = None,
    debug: Debug = False,
) -> None:
    """Write a chat model as a site that any web host serves, for WebGPU and WebAssembly.

    Of a base model, which has no chat template, the page continues what is written.
    """
    from tinyweb.export.chat import ExportOptions
    from tinyweb.export.chat import export_chat as export
    from tinyweb.export.profiles import size

    console = stderr()
    rounded = activations.value if activations else None
    options = ExportOptions(
        quant.value if quant else None,
        context,
        shard_bytes,
        name,
        force,
        tune or 0.0,
        rounded,
        profile,
        chat_template,
        cache=cache.value if cache else None,
    )
    with show_progress(console) as progress:
        made = export(source, output, options, progress)
    console.print(
        f"{output}: {made.weight_bytes / 1e6:.1f} MB of weights in {made.shards} file(s), "
        f"{made.kernels_per_token} kernels per token"
    )
    if made.fit is not None:
        console.print(
            f"For a {made.fit.title}: --quant {made.quant} --context {made.context}, {size(made.fit.needs)} of "
            f"{size(made.fit.memory)}",
            markup=False,
        )
    if made.requantised:
        console.print(f"Weights that were stored in other types are quantised anew: {made.requantised}")
    say_devices(console, output)

"""`tinyweb export chat`."""

from __future__ import annotations

from typing import Annotated

import typer

from tinyweb.cli.common import (
    GROUP,
    SHARD_BYTES,
    ActivationsChoice,
    Bytes,
    CacheChoice,
    Calibrate,
    ChatSource,
    Debug,
    Evaluate,
    Force,
    Group,
    Name,
    Output,
    Profile,
    QuantEmbedding,
    QuantHead,
    ShardBytes,
    TemplateFile,
    Tune,
    WeightQuant,
    ZeroPoints,
    export_app,
    quant_options,
    say_devices,
    say_fit,
    say_report,
    show_progress,
    stderr,
)


@export_app.command("chat")
def export_chat(
    source: ChatSource,
    output: Output,
    quant: WeightQuant = None,
    context: Annotated[
        int | None, typer.Option(min=2, help="Tokens of a conversation (default: what the model allows).")
    ] = None,
    shard_bytes: ShardBytes = SHARD_BYTES,
    profile: Profile = None,
    name: Name = None,
    force: Force = False,
    activations: ActivationsChoice = None,
    chat_template: TemplateFile = None,
    cache: CacheChoice = None,
    group: Group = GROUP,
    zero_points: ZeroPoints = False,
    quant_embedding: QuantEmbedding = None,
    quant_head: QuantHead = None,
    bytes: Bytes = None,
    calibrate: Calibrate = None,
    evaluate: Evaluate = None,
    tune: Tune = None,
    debug: Debug = False,
) -> None:
    """Write a chat model as a site that any web host serves, for WebGPU and WebAssembly.

    Of a base model, which has no chat template, the page continues what is written.
    """
    from tinyweb.export.chat import ExportOptions
    from tinyweb.export.chat import export_chat as export

    console = stderr()
    options = ExportOptions(
        quant, context, shard_bytes, name, force, tune or 0.0, activations, profile, chat_template,
        quant_options(group, zero_points, quant_embedding, quant_head, bytes, calibrate, evaluate),
        cache=cache,
    )  # fmt: skip
    with show_progress(console) as progress:
        made = export(source, output, options, progress)
    console.print(
        f"{output}: {made.weight_bytes / 1e6:.1f} MB of weights in {made.shards} file(s), "
        f"{made.kernels_per_token} kernels per token"
    )
    weights = f"{made.quant} (what is stored, {made.report.kept})" if made.report.kept else made.quant
    say_fit(console, made.fit, f"--quant {weights} --cache {made.cache} --context {made.context}")
    say_report(console, made.report)
    say_devices(console, output)

"""`tinyweb export embed`."""

from __future__ import annotations

from typing import Annotated

import typer

from tinyweb.cli.common import (
    GROUP,
    SHARD_BYTES,
    ActivationsChoice,
    Bytes,
    Calibrate,
    Debug,
    Evaluate,
    Force,
    Group,
    Name,
    Output,
    QuantEmbedding,
    ShardBytes,
    Tune,
    WeightQuant,
    ZeroPoints,
    export_app,
    quant_options,
    say_devices,
    say_report,
    show_progress,
    source_argument,
    stderr,
)
from tinyweb.errors import ExportError

EmbedSource = Annotated[str, source_argument("A sentence-transformers (BERT) model")]
QueryPrefix = Annotated[
    str | None, typer.Option(help="What queries begin with (default: what the model's folder says).")
]
PassagePrefix = Annotated[
    str | None, typer.Option(help="What passages begin with (default: what the model's folder says).")
]
Pooling = Annotated[
    str | None,
    typer.Option(
        metavar="KIND", help="How tokens become one vector: mean, cls, lasttoken, max (default: what the model says)."
    ),
]


def given_prefixes(query: str | None, passage: str | None) -> dict[str, str]:
    """Those that the user named."""
    return {kind: words for kind, words in (("query", query), ("passage", passage)) if words is not None}


@export_app.command("embed")
def export_embed(
    source: EmbedSource,
    output: Output,
    quant: WeightQuant = None,
    lengths: Annotated[
        str, typer.Option(metavar="N,N,…", help="Tokens that texts are padded to; longer texts are cut.")
    ] = "32,128,512",
    query_prefix: QueryPrefix = None,
    passage_prefix: PassagePrefix = None,
    pooling: Pooling = None,
    shard_bytes: ShardBytes = SHARD_BYTES,
    name: Name = None,
    force: Force = False,
    activations: ActivationsChoice = None,
    group: Group = GROUP,
    zero_points: ZeroPoints = False,
    quant_embedding: QuantEmbedding = None,
    bytes: Bytes = None,
    calibrate: Calibrate = None,
    evaluate: Evaluate = None,
    tune: Tune = None,
    debug: Debug = False,
) -> None:
    """Write a sentence-embedding model as a site that searches texts by meaning, for WebGPU and WebAssembly."""
    from tinyweb.export.embed import EmbedOptions
    from tinyweb.export.embed import export_embed as export

    try:
        sizes = [int(n) for n in lengths.split(",")]
    except ValueError:
        raise ExportError(f"--lengths {lengths[:40]!r} is no list of numbers: write it as in 32,128,512.") from None
    console = stderr()
    options = EmbedOptions(
        quant, sizes, None, given_prefixes(query_prefix, passage_prefix), shard_bytes, name,
        force, tune or 0.0, activations,
        quant_options(group, zero_points, quant_embedding, None, bytes, calibrate, evaluate), pooling,
    )  # fmt: skip
    with show_progress(console) as progress:
        made = export(source, output, options, progress)
    s = made.section
    console.print(
        f"{output}: {made.weight_bytes / 1e6:.1f} MB of weights in {made.shards} file(s), vectors of "
        f"{s['dimensions']} numbers ({' and '.join(s['pooling'])}), texts of at most {s['max_length']} tokens"
    )
    for kind, words in s["prefixes"].items():
        if words:
            console.print(f"Every {kind} begins with {words!r}", highlight=False, markup=False)
    say_report(console, made.report)
    say_devices(console, output)

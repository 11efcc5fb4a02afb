"""`tinyweb export onnx`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tinyweb.cli.common import (
    ALL_TARGETS,
    GROUP,
    SHARD_BYTES,
    Bytes,
    Debug,
    Dims,
    Fixed,
    Force,
    Group,
    Name,
    Output,
    Page,
    QuantEmbedding,
    ShardBytes,
    Targets,
    Tune,
    ZeroPoints,
    export_app,
    numbers,
    quant_options,
    say_devices,
    say_report,
    show_progress,
    sizes,
    stderr,
)
from tinyweb.errors import printable
from tinyweb.kinds import ExportQuant

if TYPE_CHECKING:
    from rich.console import Console


def say_graph(console: Console, path: Path, dims: Mapping[str, Sequence[int] | str]) -> None:
    """What a graph is made of, before anything is done with it: what is not supported is told at once."""
    from tinyweb.export.inspect_source import source_table
    from tinyweb.export.onnx_report import sized_report
    from tinyweb.formats.onnx import OnnxModel

    facts = {"name": path.name, "kind": "graph", "supported": True, "reason": None, "export": "", "path": str(path)}
    console.print(source_table(facts | sized_report(OnnxModel(path), dims) | {"bytes": path.stat().st_size}))


@export_app.command("onnx")
def export_onnx(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="An ONNX model, or a folder of an encoder and its decoder; here or on the hub.",
            show_default=False,
        ),
    ],
    output: Output,
    dim: Dims = None,
    fix: Fixed = None,
    quant: Annotated[
        ExportQuant | None,
        typer.Option(help="Weights: as they are stored (default), floats, integers of 8 to 3 bits, or mixed."),
    ] = None,
    group: Group = GROUP,
    zero_points: ZeroPoints = False,
    quant_embedding: QuantEmbedding = None,
    bytes: Bytes = None,
    evaluate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Compare on these inputs, an .npz (default: random ones).")
    ] = None,
    target: Targets = ALL_TARGETS,
    shard_bytes: ShardBytes = SHARD_BYTES,
    name: Name = None,
    force: Force = False,
    tune: Tune = None,
    page: Page = True,
    debug: Debug = False,
) -> None:  # fmt: skip
    """Write an ONNX graph as a page that tries it, or for your own pages: model.run({name: typed array})."""
    from tinyweb.export.expression import shape_text
    from tinyweb.export.onnx_site import OnnxOptions
    from tinyweb.export.onnx_site import export_onnx as export
    from tinyweb.sources import GRAPH, locate

    console, dims = stderr(), sizes(dim or [])
    with show_progress(console) as progress:
        model = locate(source, GRAPH.in_precision(quant), progress)
    if model.is_file():
        say_graph(console, model, dims)
    options = OnnxOptions(
        dims, numbers(fix or []), quant, name, [t.value for t in target], shard_bytes, force, tune or 0.0,
        page, quant_options(group, zero_points, quant_embedding, None, bytes, None, evaluate),
        lambda report: say_report(console, report),
    )  # fmt: skip
    with show_progress(console) as progress:
        made = export(model, output, options, progress)
    weights = made["weights"]
    console.print(f"{output}: {weights['bytes'] / 1e6:.1f} MB of weights in {len(weights['shards'])} file(s)")
    for entry, ends in made["functions"].items():
        told = [
            ", ".join(f"{e['name']} {e['dtype']}[{', '.join(map(str, shape_text(e)))}]" for e in ends[side])
            for side in ("inputs", "outputs")
        ]
        console.print(printable(f"{entry}: {' → '.join(told)}"), highlight=False, markup=False)
    for v in made["variables"]:
        console.print(printable(f"{v['name']}: {v['min']} … {v['max']}"), highlight=False, markup=False)
    say_devices(console, output)

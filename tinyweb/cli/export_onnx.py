"""`tinyweb export onnx`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
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
)
from tinyweb.errors import ExportError
from tinyweb.kinds import Floats

LARGEST = (1 << 31) - 1  # of a size


def sizes(given: list[str]) -> dict[str, Sequence[int]]:
    """What `--dim` says: NAME=N, NAME=N,M, NAME=LO:HI."""
    found: dict[str, Sequence[int]] = {}
    for text in given:
        name, equals, values = text.rpartition("=")
        between = ":" in values
        try:
            told = [int(v) for v in values.split(":" if between else ",")]
            if not equals or not name or (between and len(told) != 2):
                raise ValueError
        except ValueError:
            raise ExportError(f"--dim {text[:60]!r} is no size: write NAME=1, NAME=16,64 or NAME=1:4.") from None
        found[name] = range(told[0], told[1] + 1) if between else told
        if min(told) < 0 or max(told) > LARGEST or not found[name]:
            raise ExportError(f"--dim {text[:60]!r} has no sizes, or one that is not from 0 to {LARGEST}.")
    return found


def numbers(given: list[str]) -> dict[str, float]:
    """What `--fix` says."""
    found = {}
    for text in given:
        name, equals, value = text.rpartition("=")
        try:
            found[name] = float(value)
        except ValueError:
            equals = ""
        if not equals or not name:
            raise ExportError(f"--fix {text[:60]!r} is no number: write NAME=16000.")
    return found


@export_app.command("onnx")
def export_onnx(
    model: Annotated[Path, typer.Argument(metavar="FILE", help="An ONNX model, here.", show_default=False)],
    output: Output,
    dim: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=N", help="What a symbolic size is (repeatable): NAME=1; NAME=16,64, each a function of its "
            "own; NAME=1:512, any of these, told by the inputs of a call."
        ),
    ] = None,
    fix: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="An input of one number that is known (repeatable)."),
    ] = None,
    quant: Annotated[Floats | None, typer.Option(help="Weights: f32 as they are (default), or f16.")] = None,
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

    console = stderr()
    options = OnnxOptions(
        sizes(dim or []), numbers(fix or []), quant, name, [t.value for t in target], shard_bytes, force, tune or 0.0,
        page,
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
        console.print(f"{entry}: {' → '.join(told)}", highlight=False, markup=False)
    for v in made["variables"]:
        console.print(f"{v['name']}: {v['min']} … {v['max']}", highlight=False, markup=False)
    say_devices(console, output)

"""`tinyweb export image`."""

from __future__ import annotations

from enum import StrEnum
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
    Profile,
    ShardBytes,
    Targets,
    Tune,
    export_app,
    say_devices,
    say_fit,
    say_report,
    show_progress,
    source_argument,
    stderr,
)
from tinyweb.kinds import Kind


class Scheduler(StrEnum):
    """Samplers of diffusion models."""

    ddim = "ddim"
    euler = "euler"
    euler_ancestral = "euler-ancestral"
    dpm_2m = "dpm++2m"
    lcm = "lcm"


class Prediction(StrEnum):
    """What a denoiser predicts."""

    epsilon = "epsilon"
    v_prediction = "v_prediction"
    sample = "sample"


ImageSource = Annotated[
    str, source_argument("A Stable Diffusion 1.x, 2.x or SD-Turbo in diffusers' layout, or a .safetensors checkpoint")
]
TokenizerFolder = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="CLIP's tokenizer (vocab.json, merges.txt), where SOURCE has none beside it."),
]
Predicts = Annotated[
    Prediction | None, typer.Option("--prediction", help="What the model predicts, where its files do not say.")
]


@export_app.command("image")
def export_image(
    source: ImageSource,
    output: Output,
    size: Annotated[
        list[str] | None,
        typer.Option(
            help="Pixels of pictures: one number, or WIDTHxHEIGHT; may be given several times (default: the model's)."
        ),
    ] = None,
    quant: Annotated[
        Kind | None,
        typer.Option(
            help="Weights: 32 or 16 bit floats, integers of 8 to 3 bits, never the autoencoder's (default: f16).",
            show_default=False,
        ),
    ] = None,
    profile: Profile = None,
    scheduler: Annotated[Scheduler | None, typer.Option(help="The page's default (default: the model's).")] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="The page's default (default: what suits the model).")
    ] = None,
    guidance: Annotated[
        float | None,
        typer.Option(min=0.0, max=100.0, help="The page's default; 1 leaves guidance out of the export altogether."),
    ] = None,
    tile: Annotated[int, typer.Option(help="Longest side, in pixels, of what the decoder paints at once.")] = 320,
    tokenizer: TokenizerFolder = None,
    prediction: Predicts = None,
    target: Targets = ALL_TARGETS,
    shard_bytes: ShardBytes = SHARD_BYTES,
    name: Name = None,
    force: Force = False,
    tune: Tune = None,
    debug: Debug = False,
) -> None:
    """Write a text to image model as a site that any web host serves, for WebGPU and WebAssembly."""
    from tinyweb.export.image import ImageOptions, export_with_report, parse_size

    console = stderr()
    options = ImageOptions(
        sizes=tuple(parse_size(s) for s in size or ()),
        quant=quant,
        scheduler=scheduler.value if scheduler else None,
        steps=steps,
        guidance=guidance,
        tile=tile,
        tokenizer=tokenizer,
        prediction=prediction.value if prediction else None,
        shard_bytes=shard_bytes,
        name=name,
        force=force,
        tune=tune or 0.0,
        targets=tuple(t.value for t in target),
        profile=profile,
    )
    with show_progress(console) as progress:
        exported = export_with_report(source, output, options, progress)
    made = exported.manifest
    weights = {part: b["weights"] / 1e6 for part, b in made["bytes"].items()}
    sizes = ", ".join(f"{s['width']}×{s['height']}" for s in made["image"]["sizes"])
    parts = ", ".join(f"{part.replace('_', ' ')} {n:.1f}" for part, n in weights.items())
    console.print(f"{output}: {sum(weights.values()):.1f} MB of weights ({parts}), pictures of {sizes}")
    say_fit(console, exported.fit, f"--quant {exported.report.quant}")
    say_report(console, exported.report)
    say_devices(console, output)

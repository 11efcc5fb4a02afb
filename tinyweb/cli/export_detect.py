"""`tinyweb export detect` and `tinyweb run detect`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated

import typer

from tinyweb.cli.common import (
    ALL_TARGETS,
    SHARD_BYTES,
    AsJson,
    Debug,
    DeviceChoice,
    Force,
    Name,
    Output,
    Profile,
    ShardBytes,
    Targets,
    Tune,
    export_app,
    located,
    run_app,
    say_devices,
    say_fit,
    say_report,
    show_progress,
    source_argument,
    stderr,
)
from tinyweb.kinds import Kind

Source = Annotated[str, source_argument("A YOLOv8 (.pt, .safetensors, .onnx)")]
Size = Annotated[
    str | None,
    typer.Option(help="The network's input: a multiple of 32, or WIDTHxHEIGHT (default: what the model was made for)."),
]


@export_app.command("detect")
def export_detect(
    source: Source,
    output: Output,
    size: Size = None,
    quant: Annotated[
        Kind | None,
        typer.Option(help="Weights: 32 or 16 bit floats, integers of 8 to 3 bits (default: f16).", show_default=False),
    ] = None,
    max_boxes: Annotated[int, typer.Option(help="Most objects found in one picture.")] = 300,
    profile: Profile = None,
    evaluate: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", help="Compare with f32 on this picture, or those in this folder.", show_default=False
        ),
    ] = None,
    target: Targets = ALL_TARGETS,
    shard_bytes: ShardBytes = SHARD_BYTES,
    name: Name = None,
    force: Force = False,
    tune: Tune = None,
    debug: Debug = False,
) -> None:
    """Write an object detector as a site that any web host serves, for WebGPU and WebAssembly."""
    from tinyweb.export.detect import DetectOptions, export_with_report, parse_size

    console = stderr()
    options = DetectOptions(
        size=parse_size(size) if size else None,
        quant=quant,
        max_boxes=max_boxes,
        shard_bytes=shard_bytes,
        name=name,
        force=force,
        tune=tune or 0.0,
        targets=tuple(t.value for t in target),
        profile=profile,
        evaluate=evaluate,
    )
    with show_progress(console) as progress:
        made = export_with_report(source, output, options, progress)
    weights, detect = made.manifest["weights"], made.manifest["detect"]
    console.print(
        f"{output}: {weights['bytes'] / 1e6:.1f} MB of weights in {len(weights['shards'])} file(s), "
        f"{len(detect['labels'])} classes, pictures of {detect['width']}×{detect['height']}"
    )
    say_fit(console, made.fit, f"--quant {made.report.quant}")
    say_report(console, made.report)
    say_devices(console, output)


@run_app.command("detect")
def run_detect(
    source: Source,
    image: Annotated[Path, typer.Argument(metavar="IMAGE", help="A picture (PNG, JPEG, …).", show_default=False)],
    confidence: Annotated[float | None, typer.Option(min=0, max=1, help="The lowest score of a box.")] = None,
    iou: Annotated[float | None, typer.Option(min=0, max=1, help="How much boxes may overlap.")] = None,
    size: Size = None,
    device: DeviceChoice = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Find the objects in a picture on this machine: label, score, box as x1 y1 x2 y2 in its pixels."""
    from tinyweb.export.detect import parse_size
    from tinyweb.formats.images import read_image
    from tinyweb.models.yolov8 import YOLOv8
    from tinyweb.sources import DETECT

    pixels = read_image(image)
    detector = YOLOv8.load(located(source, DETECT, "detect"), device).detector(parse_size(size) if size else None)
    detector.detect(pixels, confidence, iou)  # compiles
    begun = time.perf_counter()
    found = detector.detect(pixels, confidence, iou)
    seconds = time.perf_counter() - begun
    if as_json:
        boxes = [{"label": d.label, "score": d.score, "box": list(d.box)} for d in found]
        shown = {"width": pixels.shape[1], "height": pixels.shape[0], "detections": boxes, "seconds": round(seconds, 4)}
        print(json.dumps(shown, ensure_ascii=False))
        return
    for d in found:
        print(f"{d.label}  {d.score:.2f}  {' '.join(f'{v:.1f}' for v in d.box)}")
    stderr().print(f"{len(found)} found in {seconds * 1000:.0f} ms")

"""`tinyweb export detect`: an object detector becomes a site that finds things in pictures, in the browser."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tinyweb.errors import ExportError
from tinyweb.export.compile import Progress
from tinyweb.export.detect_report import compare_pictures, read_pictures
from tinyweb.export.fitting import check_fit, check_profile, most_exact
from tinyweb.export.function import TARGETS, write_functions
from tinyweb.export.inspect_source import expect
from tinyweb.export.loader import write_loader
from tinyweb.export.profiles import Fit
from tinyweb.export.site import REPORT, check_output, check_page, copy_page, new_site, write_json
from tinyweb.export.weights import DEFAULT_SHARD_BYTES
from tinyweb.kinds import KINDS
from tinyweb.models.yolov8 import YOLOv8
from tinyweb.nn.precision import Recipe
from tinyweb.quantization import Report
from tinyweb.quantization.prepare import Made
from tinyweb.sources import DETECT, locate, model_name

DEVICE = "CPU"  # where the weights wait to be written; nothing is computed there
USUAL = "f16"
ENTRY = "detect"
MOST_BOXES = 1024


@dataclass(frozen=True)
class DetectOptions:
    """What the command line offers. `size` (height, width) None: the one the model was made for; `quant` None: f16, or
    what fits `profile`, a kind of device; `name` None: the source's; `evaluate`: a picture, or a folder of them, on
    which the result is compared with f32."""

    size: tuple[int, int] | None = None
    quant: str | None = None
    max_boxes: int = 300
    shard_bytes: int = DEFAULT_SHARD_BYTES
    name: str | None = None
    force: bool = False
    tune: float = 0.0
    targets: tuple[str, ...] = TARGETS
    profile: str | None = None
    evaluate: Path | None = None


@dataclass(frozen=True)
class Exported:
    """What was written: the manifest, whose section "detect" says what a page needs to know; what became of the
    weights; how it fits on the device of the profile."""

    manifest: dict[str, Any]
    report: Report
    fit: Fit | None


def parse_size(text: str) -> tuple[int, int]:
    """(height, width) of "320" or "WIDTHxHEIGHT"; ExportError for what is no size."""
    parts = text.lower().replace("×", "x").split("x")
    if len(parts) > 2 or not all(p.isascii() and p.isdecimal() and len(p) < 10 for p in parts):
        raise ExportError(f"{text[:40]!r} is no size: write one number, or WIDTHxHEIGHT as in 640x384.")
    width, height = int(parts[0]), int(parts[-1])
    if not all(32 <= n <= 2048 and n % 32 == 0 for n in (width, height)):
        raise ExportError(f"A size of {width}×{height} is not possible: both are multiples of 32, from 32 to 2048.")
    return height, width


def export_detect(
    source: str | Path,
    folder: str | Path,
    options: DetectOptions | None = None,
    progress: Progress = lambda step, done, total: None,
) -> dict[str, Any]:
    """Write the YOLOv8 at `source` (a folder, .pt, .safetensors or .onnx file; tinyweb/sources) to `folder` as
    a page with its model.

    Returns the manifest. On an error nothing is left behind: ModelFormatError for a source that cannot be read,
    ExportError for options or a folder that cannot be.
    """
    return export_with_report(source, folder, options, progress).manifest


def export_with_report(
    source: str | Path,
    folder: str | Path,
    options: DetectOptions | None = None,
    progress: Progress = lambda step, done, total: None,
) -> Exported:
    """The same, with what became of the weights."""
    o, output = options or DetectOptions(), Path(folder)
    if o.quant not in (None, *KINDS):
        raise ExportError(f"There is no precision {o.quant!r} for detectors: choose one of {', '.join(KINDS)}.")
    if not 1 <= o.max_boxes <= MOST_BOXES:
        raise ExportError(f"{o.max_boxes} boxes are not possible: choose from 1 to {MOST_BOXES}.")
    check_output(output, o.force)
    check_page("detect")
    check_profile(o.profile, o.targets)
    if o.evaluate is not None:
        read_pictures(o.evaluate)  # before the work, not after it
    path = locate(source, DETECT, progress)
    expect(path, "detect")

    def write(quant: str) -> Exported:
        with new_site(output, o.force) as site:
            written, report = _write_model(site / "model", path, o, quant, progress)
            fit = check_fit(site, o.profile)
            write_json(site / REPORT, report.record())
            copy_page(site, "detect", path)
        return Exported(written, report, fit)

    return most_exact(source, o.profile, o.quant, USUAL, write)


def _write_model(
    bundle: Path, path: Path, o: DetectOptions, quant: str, progress: Progress
) -> tuple[dict[str, Any], Report]:
    """The bundle of the model at `path` with weights of a kind: its manifest, and what became of the weights."""
    progress("reading", 0, 1)
    made = Made()
    model = YOLOv8.load(path, DEVICE, Recipe.of(quant).watched(made.watch))
    detector = model.detector(o.size, max_boxes=o.max_boxes)
    progress("reading", 1, 1)
    defaults = detector.defaults
    section = {
        "entry": ENTRY,
        "width": detector.size[1],
        "height": detector.size[0],
        "max_boxes": o.max_boxes,
        "labels": list(model.labels),
        "defaults": {"confidence": defaults.confidence, "iou": defaults.iou, "agnostic": defaults.agnostic},
    }
    written = write_functions(
        bundle, o.name or model_name(path), {ENTRY: (detector, detector.inputs(DEVICE))},
        task="detect", sections={"detect": section}, model={"architecture": "yolov8", "quant": quant},
        targets=o.targets, shard_bytes=o.shard_bytes, tune=o.tune, progress=progress,
    )  # fmt: skip
    write_loader(bundle, written)
    evaluation = None
    if o.evaluate is not None:
        exact = YOLOv8.load(path, DEVICE).detector(o.size, max_boxes=o.max_boxes)
        evaluation = compare_pictures(exact, detector, o.evaluate, progress)
    return written, made.report(quant, model, evaluation)

"""How well a detector with fewer bits finds what it finds with all: on pictures, box by box."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tinyweb.errors import ExportError
from tinyweb.formats.images import FORMATS, read_image
from tinyweb.models.detection import Detection, Detector

SUFFIXES = tuple(f".{name.lower()}" for name in (*FORMATS, "JPG"))
MOST = 256  # pictures of a folder that are looked at
SAME = 0.5  # overlap of boxes that are the same


def read_pictures(path: Path) -> list[Path]:
    """The picture at `path`, or those in this folder, by name. ExportError where there is none, ModelFormatError for
    one that cannot be read."""
    found = sorted(p for p in path.iterdir() if p.suffix.lower() in SUFFIXES) if path.is_dir() else [path]
    if not found or not found[0].is_file():
        raise ExportError(f"--evaluate {path} is no picture, nor a folder of them ({', '.join(SUFFIXES)}).")
    for picture in found[:MOST]:
        read_image(picture)
    return found[:MOST]


def compare_pictures(
    exact: Detector, other: Detector, path: Path, progress: Callable[[str, int, int], None]
) -> dict[str, Any]:
    """What both find in the pictures at `path`, for a report: how many boxes each, and of how many there is one of the
    same label beside an overlap of at least a half with the other."""
    files, counts = read_pictures(path), [0, 0, 0]
    for number, file in enumerate(files):
        progress("comparing with f32", number, len(files))
        picture = read_image(file)
        a, b = exact.detect(picture), other.detect(picture)
        counts = [c + n for c, n in zip(counts, (len(a), len(b), matches(a, b)), strict=True)]
    progress("comparing with f32", len(files), len(files))
    before, after, same = counts
    return {
        "text": path.name, "held_out": False, "pieces": len(files),
        "boxes": {"f32": before, "quantised": after, "same": same},
        "agreement": 2 * same / (before + after) if before + after else 1.0,
    }  # fmt: skip


def matches(a: Sequence[Detection], b: Sequence[Detection]) -> int:
    """How many boxes of `a` have one of `b` of their own that is the same."""
    left, found = list(b), 0
    for one in a:
        fitting = [(overlap(one.box, o.box), o) for o in left if o.label == one.label]
        best = max(fitting, key=lambda pair: pair[0], default=None)
        if best is not None and best[0] >= SAME:
            left.remove(best[1])
            found += 1
    return found


def overlap(a: Sequence[float], b: Sequence[float]) -> float:
    """Area that two boxes (x1, y1, x2, y2) share, of that which they cover."""

    def area(box: npt.NDArray[np.float64]) -> float:
        return float(np.prod(np.maximum(box[2:] - box[:2], 0)))

    p, q = np.asarray(a, np.float64), np.asarray(b, np.float64)
    shared = area(np.concatenate([np.maximum(p[:2], q[:2]), np.minimum(p[2:], q[2:])]))
    return shared / max(area(p) + area(q) - shared, 1e-12)

"""What is told of an ONNX graph before it is exported: operators, sizes, bytes, and the devices it fits on."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tinyweb.errors import TinywebError
from tinyweb.export.function import plan_functions
from tinyweb.export.onnx_site import Dims, functions_of, joined
from tinyweb.export.profiles import fits
from tinyweb.formats.onnx import OnnxModel
from tinyweb.formats.onnx.report import report

BATCH = re.compile(r"batch|^n$", re.IGNORECASE)
SIDE, LENGTH = 224, 128  # of a picture, and of anything else, where nothing is said


def sized_report(model: OnnxModel, dims: Dims) -> dict[str, Any]:
    """`formats.onnx.report`, with `assumed`: the least and the largest of each symbolic size of an input; of those that
    `dims` leaves open a guess: 1 for batches (the first axis; the second of three behind a known one, as in states),
    SIDE for the last two axes of four, else LENGTH."""
    found, numbers = report(model), joined(model, dims)
    if found["unsupported"]:
        found["reason"] = "operators are missing: " + ", ".join(u["operator"] for u in found["unsupported"])
    return found | {"assumed": {name: _ends(d) for name, d in _assumed(model, numbers).items()}}


def _ends(sizes: Sequence[int]) -> list[int]:
    """The least and the largest; those of a range, which may be long, stand at its ends."""
    ends = (sizes[0], sizes[-1]) if isinstance(sizes, range) else sizes
    return [min(ends), max(ends)]


def planned_report(model: OnnxModel, dims: Dims, fixed: Mapping[str, float]) -> dict[str, Any]:
    """`sized_report`, with `memory`: for each target bytes of weights, of state (inputs and outputs), and of
    temporaries that live at one time, with these sizes; and `devices`: whether each kind of device has as much.
    `unplanned` says why that is not known. `fixed`: inputs that are known."""
    numbers = joined(model, dims)
    found = sized_report(model, numbers) | {"fixed": dict(fixed)}
    if found["unsupported"]:
        return found
    try:
        functions, _ = functions_of(model, _assumed(model, numbers), fixed)
        planned = plan_functions(functions)
    except (TinywebError, NotImplementedError) as error:
        return found | {"devices": [], "unplanned": str(error)}
    needed = {target: {"bytes": memory.totals} for target, memory in planned.of.items()}
    fitting = fits({"task": "function", "targets": needed}, {target: {} for target in needed})
    memory = {target: kinds["bytes"] for target, kinds in needed.items()}
    return found | {"memory": memory, "devices": [fit.record() for fit in fitting]}


def _assumed(model: OnnxModel, dims: Mapping[str, Sequence[int]]) -> dict[str, Sequence[int]]:
    found: dict[str, Sequence[int]] = {}
    for p in model.inputs:
        shape = p.shape or ()
        for axis, size in enumerate(shape):
            if isinstance(size, int):
                continue
            name = f"{p.name}[{axis}]" if size is None else size
            state = len(shape) == 3 and axis == 1 and isinstance(shape[0], int)  # (layers, batch, width)
            batch = BATCH.search(name) or (axis == 0 and len(shape) > 1) or state
            usual = 1 if batch else SIDE if len(shape) == 4 and axis >= 1 else LENGTH
            found.setdefault(name, [usual])
    return found | {name: d for name, d in dims.items() if name in found}

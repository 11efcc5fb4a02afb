"""Graphs within graphs: conditions, loops, scans. Loops are unrolled, as often as is known or read back."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinyweb.device import is_recording
from tinyweb.dtype import dtypes
from tinyweb.formats.onnx.call import Array, Call, Held, lift
from tinyweb.formats.onnx.operators.common import fixed, join, number, reshape, whole_axis
from tinyweb.formats.onnx.registry import op
from tinyweb.tensor import Tensor

MAX_STEPS = 1 << 16


@op("If", raw=True)
def lower_if(call: Call, condition: Array) -> Any:
    if is_recording() and isinstance(condition, Tensor):
        return _both(call, condition.reshape(()))
    chosen = bool(number(call.known(condition, "the condition")))
    return tuple(call.run(call.graph("then_branch" if chosen else "else_branch"), []))


def _both(call: Call, condition: Tensor) -> Any:
    """In a recording both branches are computed, and one is taken, which has to have the other's shape."""
    pairs = zip(*(call.run(call.graph(name), []) for name in ("then_branch", "else_branch")))
    found = []
    for a, b in pairs:
        if any(v is None or isinstance(v, list) for v in (a, b)):
            raise call.unsupported("the condition depends on inputs, and a branch gives no tensor")
        x, y = lift(plain(a), call.device), lift(plain(b), call.device)
        if x.shape != y.shape or x.dtype is not y.dtype:
            raise call.unsupported(
                f"the condition depends on inputs, and the branches differ: {x.dtype.name} {list(x.shape)} and "
                f"{y.dtype.name} {list(y.shape)}"
            )
        found.append(condition.where(x, y))
    return tuple(found)


def _true(call: Call, value: Any, what: str) -> bool:
    return bool(number(call.known(value, what)))


def plain(value: Any) -> Any:
    return value.value if isinstance(value, Held) else value


def together(call: Call, rows: list[Any], axis: int) -> Any:
    """Values of the same shape along a new axis."""
    rows = [plain(r) for r in rows]
    at = whole_axis(call, axis, len(rows[0].shape) + 1)
    if not all(isinstance(r, np.ndarray) for r in rows):
        rows = [lift(r, call.device) for r in rows]
    return join([reshape(r, (*r.shape[:at], 1, *r.shape[at:])) for r in rows], at)


@op("Loop", raw=True)
def loop(call: Call, count: Array | None, condition: Array | None, *carried: Any) -> Any:
    body, state = call.graph("body"), list(carried)
    most = MAX_STEPS if count is None else int(number(call.known(count, "the number of steps")))
    going = condition is None or _true(call, condition, "the condition")
    rows: list[list[Any]] = [[] for _ in body.outputs[1 + len(state) :]]
    step = 0
    while going and step < most:
        out = call.run(body, [np.array(step, np.int64), np.array(True), *state])
        state = out[1 : 1 + len(state)]
        for row, value in zip(rows, out[1 + len(state) :]):
            row.append(value)
        going, step = _true(call, plain(out[0]), "the condition of the next step"), step + 1
        if step == MAX_STEPS:
            raise call.unsupported(f"the loop has more than {MAX_STEPS} steps")
    ports = body.outputs[1 + len(state) :]
    return (*state, *(together(call, row, 0) if row else _nothing(call, port) for row, port in zip(rows, ports)))


def _nothing(call: Call, port: Any) -> Tensor:
    """What a loop without steps gives."""
    sizes = [n if isinstance(n, int) else 0 for n in port.shape or ()]
    return Tensor.zeros(0, *sizes, dtype=port.dtype or dtypes.float32, device=call.device)


@op("Scan", since=9, raw=True)
def scan(call: Call, *inputs: Any) -> Any:
    body, scanned = call.graph("body"), call.integer("num_scan_inputs")
    state, sequences = list(inputs[: len(inputs) - scanned]), inputs[len(inputs) - scanned :]
    return tuple(_scan(call, body, state, sequences, 0))


def _scan(call: Call, body: Any, state: list[Any], sequences: Any, behind: int) -> list[Any]:
    outputs = len(body.outputs) - len(state)
    if not sequences:
        raise call.error("nothing is scanned")
    directions = call.integers("scan_input_directions", [0] * len(sequences))
    axes = call.integers("scan_input_axes", [0] * len(sequences))
    axes = [whole_axis(call, a, len(x.shape)) for a, x in zip(axes, sequences)]
    steps = {fixed(x.shape[a]) for a, x in zip(axes, sequences)}
    if len(steps) != 1:
        raise call.error(f"what is scanned has different lengths: {sorted(steps)}")
    (count,) = steps
    rows: list[list[Any]] = [[] for _ in range(outputs)]
    for i in range(count):
        parts = [x[(*(slice(None),) * a, count - 1 - i if d else i)] for x, a, d in zip(sequences, axes, directions)]
        out = call.run(body, [*state, *(np.asarray(p) if isinstance(p, np.generic) else p for p in parts)])
        state = out[: len(state)]
        for row, value in zip(rows, out[len(state) :]):
            row.append(value)
    backwards = call.integers("scan_output_directions", [0] * outputs)
    along = call.integers("scan_output_axes", [0] * outputs)
    made = [together(call, row[::-1] if b else row, a) for row, b, a in zip(rows, backwards, along)]
    return [*state, *made]


@op("Scan", since=8, raw=True)
def scan_of_batches(call: Call, lengths: Any, *inputs: Any) -> Any:
    """Version 8: for each element of a batch."""
    if lengths is not None:
        raise call.unsupported("sequence_lens of version 8")
    body, scanned = call.graph("body"), call.integer("num_scan_inputs")
    found = []
    for i in range(fixed(inputs[0].shape[0])):
        parts = [x[i] for x in inputs]
        state, sequences = parts[: len(parts) - scanned], parts[len(parts) - scanned :]
        found.append(_scan(call, body, state, sequences, 1))
    return tuple(together(call, [f[i] for f in found], 0) for i in range(len(found[0])))

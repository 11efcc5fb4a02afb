"""Graphs within graphs: conditions, loops, scans. Few steps are unrolled, as often as is known or read back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tinyweb.device import is_recording
from tinyweb.dtype import dtypes
from tinyweb.errors import ModelFormatError, TinywebError
from tinyweb.formats.onnx.call import Array, Call, Held, is_text, lift
from tinyweb.formats.onnx.graph import Graph
from tinyweb.formats.onnx.operators.common import fixed, join, number, reshape, whole_axis
from tinyweb.formats.onnx.operators.counted import has_host, number_of
from tinyweb.formats.onnx.operators.steps import is_long, looped, size_of_graph
from tinyweb.formats.onnx.registry import op
from tinyweb.graph.ir import Size, size_max, size_sub
from tinyweb.graph.schedule.indexing import same
from tinyweb.tensor import Tensor

MAX_STEPS = 1 << 16
KNOWN = "Make the input that decides known, as in --fix sr=16000, or choose sizes that go with both"


@op("If", raw=True)
def lower_if(call: Call, condition: Array) -> Any:
    if is_recording() and isinstance(condition, Tensor):
        return _both(call, condition.reshape(()))
    chosen = bool(number(call.known(condition, "the condition")))
    return tuple(call.run(call.graph("then_branch" if chosen else "else_branch"), []))


def _both(call: Call, condition: Tensor) -> Any:
    """In a recording both branches are computed, and one is taken, which has to have the other's shape."""
    pairs = zip(*(_branch(call, name) for name in ("then_branch", "else_branch")))
    found = []
    for a, b in pairs:
        if any(v is None or isinstance(v, list) for v in (a, b)):
            raise call.unsupported("the condition depends on inputs, and a branch gives no tensor")
        x, y = lift(plain(a), call.device), lift(plain(b), call.device)
        if x.dtype is y.dtype and x.ndim == y.ndim and has_host():
            found.append(_either(call, condition, x, y))
            continue
        if x.shape != y.shape or x.dtype is not y.dtype:
            raise call.unsupported(
                f"the condition depends on inputs, and the branches differ: {x.dtype.name} {list(x.shape)} and "
                f"{y.dtype.name} {list(y.shape)}. {KNOWN}"
            )
        found.append(condition.where(x, y))
    return tuple(found)


def _either(call: Call, condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """One of two values, whose sizes may differ: those of the result are told by the host."""
    sizes: list[Size] = []
    for a, b in zip(x.shape, y.shape):
        if not same(a, b):
            told = condition.where(*(call.whole(n, np.dtype(np.int32)) for n in (a, b)))
            a = number_of(call, told, max(size_max(a), size_max(b)))
        sizes.append(a)
    largest = [size_max(n) for n in sizes]
    x, y = (t.pad([(0, size_sub(n, s)) for n, s in zip(largest, t.shape)]) for t in (x, y))
    return call.part(condition.where(x, y), sizes)


def _branch(call: Call, name: str) -> list[Any]:
    try:
        return call.run(call.graph(name), [])
    except (TinywebError, NotImplementedError) as error:
        if KNOWN in str(error):
            raise
        raise call.unsupported(
            f"the condition depends on inputs, so both branches are computed, and the {name} cannot be, with these "
            f"inputs: {error}. {KNOWN}"
        ) from error


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
    if most < MAX_STEPS and is_long(most, size_of_graph(body)) and _are_tensors(call, state):
        try:
            return _long_loop(call, most, condition, state)
        except (NotImplementedError, ModelFormatError):  # what a step needs to know it may know of each step
            pass
    return _unrolled(call, most, condition, state)


def _are_tensors(call: Call, values: Sequence[Any]) -> bool:
    """Whether values are numbers, of types that Tensors have."""
    kinds = call.kinds[len(call.kinds) - len(values) :]
    return all(isinstance(v, Tensor | np.ndarray) and not is_text(v) for v in values) and not any(kinds)


def _long_loop(call: Call, most: int, condition: Array | None, carried: Sequence[Any]) -> Any:
    """`most` steps of which each computes the same. Where the condition of the next is computed, steps behind the last
    change nothing."""
    body, count = call.graph("body"), len(carried)
    state = [lift(v, call.device) for v in carried]
    first = None if condition is None else lift(condition, call.device).reshape(())
    computed = isinstance(condition, Tensor)

    def step(at: Tensor, before: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        going = before[count] if len(before) > count else np.array(True)
        given = call.run(body, [at.reshape(()).cast(dtypes.int64), going, *before[:count]])
        if isinstance(given[0], np.ndarray) and len(before) == count:
            if not given[0].all():
                raise call.unsupported("the loop ends after a step")
            return [lift(plain(v), call.device) for v in given[1 : 1 + count]], _rows(call, given[1 + count :])
        if len(given) > 1 + count:
            raise call.unsupported("the number of steps is computed, and so many rows are given")
        if len(before) == count:
            raise _ComputedError
        new = [before[count].where(lift(plain(v), call.device), old) for v, old in zip(given[1:], before)]
        return [*new, before[count] & lift(plain(given[0]), call.device).reshape(())], []

    read = _captured(call, body)
    try:
        if computed:
            raise _ComputedError
        if first is not None and not bool(number(condition)):
            raise call.unsupported("the loop has no steps")
        held, rows = looped(call, most, state, step, read)
    except _ComputedError:
        if not is_recording():  # steps end where the condition says so
            raise call.unsupported("the condition is computed") from None
        begun = Tensor.ones(dtype=dtypes.bool, device=call.device) if first is None else first
        held, rows = looped(call, most, [*state, begun], step, read)
    return (*held[:count], *rows)


class _ComputedError(Exception):
    """Whether a loop goes on is computed."""


def _rows(call: Call, values: Sequence[Any]) -> list[Tensor]:
    if any(isinstance(v, Held) or not isinstance(v, Tensor | np.ndarray) or is_text(v) for v in values):
        raise call.unsupported("steps give what is no tensor")
    return [lift(v, call.device) for v in values]


def _captured(call: Call, body: Any) -> list[Tensor]:
    """The Tensors from outside that a graph reads."""
    return [v for v in call.captured(body) if isinstance(v, Tensor)]


def _unrolled(call: Call, most: int, condition: Array | None, state: list[Any]) -> Any:
    body = call.graph("body")
    going = condition is None or _true(call, condition, "the condition")
    rows: list[list[Any]] = [[] for _ in body.outputs[1 + len(state) :]]
    step = 0
    if going and most >= MAX_STEPS and _never_ends(body):
        raise call.unsupported(f"the loop has more than {MAX_STEPS} steps")
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


def _never_ends(body: Graph) -> bool:
    """Whether the condition of the next step is that of this one."""
    makers, name = {n: node for node in body.nodes for n in node.outputs}, body.outputs[0].name
    while name in makers and makers[name].op == "Identity" and makers[name].inputs:
        name = makers.pop(name).inputs[0]
    return len(body.inputs) > 1 and name == body.inputs[1].name


def _nothing(call: Call, port: Any) -> Tensor:
    """What a loop or scan without steps gives, (0, …)."""
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
    length = sequences[0].shape[axes[0]]
    if not all(same(x.shape[a], length) for a, x in zip(axes, sequences)):
        raise call.error(f"what is scanned has different lengths: {[x.shape[a] for a, x in zip(axes, sequences)]}")
    backwards = [bool(b) for b in call.integers("scan_output_directions", [0] * outputs)]
    along = call.integers("scan_output_axes", [0] * outputs)
    varies = not isinstance(length, int)
    if (varies or is_long(length, size_of_graph(body))) and _are_tensors(call, [*state, *sequences]):
        try:
            return _long_scan(call, length, state, list(zip(sequences, axes, directions)), backwards, along)
        except (NotImplementedError, ModelFormatError):
            if varies:
                raise
    count = fixed(length)
    rows: list[list[Any]] = [[] for _ in range(outputs)]
    for i in range(count):
        parts = [x[(*(slice(None),) * a, count - 1 - i if d else i)] for x, a, d in zip(sequences, axes, directions)]
        out = call.run(body, [*state, *(np.asarray(p) if isinstance(p, np.generic) else p for p in parts)])
        state = out[: len(state)]
        for row, value in zip(rows, out[len(state) :]):
            row.append(value)
    if not count:
        empty = [_nothing(call, port) for port in body.outputs[len(state) :]]
        return [*state, *(e.movedim(0, whole_axis(call, a, e.ndim)) for e, a in zip(empty, along))]
    made = [together(call, row[::-1] if b else row, a) for row, b, a in zip(rows, backwards, along)]
    return [*state, *made]


def _long_scan(
    call: Call, length: Size, state: list[Any], sequences: list[tuple[Any, int, int]], backwards: list[bool],
    along: list[int],
) -> list[Any]:  # fmt: skip
    """Each step computes the same, of what lies at its place."""
    body = call.graph("body")
    last = length - 1 if isinstance(length, int) else call.whole(length, np.dtype(np.int32)) - 1
    scanned = [(lift(x, call.device), axis, direction) for x, axis, direction in sequences]

    def step(at: Tensor, before: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        parts = [
            x.take(last - at if direction else at, axis).reshape(*x.shape[:axis], *x.shape[axis + 1 :])
            for x, axis, direction in scanned
        ]
        given = _rows(call, call.run(body, [*before, *parts]))
        return given[: len(before)], given[len(before) :]

    read = [*(x for x, _, _ in scanned), *_captured(call, body)]
    held, rows = looped(call, length, [lift(v, call.device) for v in state], step, read, backwards)
    return [*held, *(r.movedim(0, whole_axis(call, a, r.ndim)) for r, a in zip(rows, along))]


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

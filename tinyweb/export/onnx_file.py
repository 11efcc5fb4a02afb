"""Functions of tensors as ONNX files.

onnx(model, {"image": Tensor.zeros(1, 3, 224, 224)}, "model.onnx")
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import tinyweb
from tinyweb.array.storage import leaf, next_number
from tinyweb.device import recording
from tinyweb.errors import ExportError
from tinyweb.export.memory import read_memory
from tinyweb.export.onnx_nodes import OPSET, Nodes, fixed
from tinyweb.export.recording import Examples, memory_names, named_inputs, named_results, only_numbers
from tinyweb.formats.onnx.encode import encode, port
from tinyweb.formats.onnx.messages import GraphMessage, ModelMessage, OperatorSet
from tinyweb.graph.ir import Ops, UOp, toposort
from tinyweb.graph.schedule import nbytes, new_buffer
from tinyweb.memory import BUFFERS
from tinyweb.tensor import Tensor

IR_VERSION = 8  # of files with opset 18
MAX_BYTES = (1 << 31) - 1  # of a protobuf
UNKNOWN = "The function computes values while it is written as a graph, by realize or item: return lazy tensors."


def onnx(function: Callable[..., Any], example_inputs: Examples, file: str | Path, *, name: str | None = None) -> None:
    """Write what `function` computes to `file` as an ONNX model of opset 18, with operators of the default domain.

    `example_inputs` have the shapes and dtypes of the arguments, by name or by position, and results are named, as in
    `export_function`. Shapes are fixed. Products of matrices and convolutions are MatMul and Conv, other work is
    written as it is done; tensors from outside that the function reads are initializers, by their names in the model.
    `name`: the graph's (default: the file's).

    ExportError where inputs or results are no tensors, the function asks for values or updates memory in place, or the
    file would be larger than 2 GiB; NotImplementedError, with the operation, for what ONNX has no operator for. The
    file appears whole or not at all.
    """
    inputs = only_numbers(named_inputs(function, example_inputs), "input")
    given = {n: _unknown(t) for n, t in inputs.items()}
    by_name = isinstance(example_inputs, Mapping)
    results = _results(lambda: function(**given) if by_name else function(*given.values()))
    if both := sorted(given.keys() & results.keys()):
        raise ExportError(f"An input and an output of the function are both called {both[0]!r}: rename one of them.")
    device = next((t.device for t in (*given.values(), *results.values())), "CPU")
    titles = memory_names(function)

    def read(buffer: UOp) -> tuple[str, bytes]:
        title = titles.get(buffer, ("weight", ()))[0]
        return title, read_memory(device, buffer, 0, nbytes(buffer))

    path = Path(file)
    message = _model(name or path.stem, given, results, read)
    _write(path, message)


def _results(call: Callable[[], Any]) -> dict[str, Tensor]:
    """What a function returns, which nothing has been computed of."""
    with recording(next_number()) as recorder:
        try:
            results = only_numbers(named_results(call()), "output")
        except RuntimeError as error:
            raise ExportError(f"The function asks for values while it is written as a graph: {error}") from None
        finally:
            for tensors in recorder.written.values():
                for held, before in tensors:
                    if (t := held()) is not None:
                        t.uop = before
    if recorder.refreshed:
        raise ExportError("The function draws random numbers: make them an input.")
    if recorder.written or any(u.op is Ops.ASSIGN for u in toposort([t.uop for t in results.values()])):
        raise ExportError("The function updates memory in place: a graph of ONNX has none; return the new values.")
    if recorder.schedules:
        raise ExportError(UNKNOWN)
    return results


def _unknown(t: Tensor) -> Tensor:
    """A tensor of that shape whose values nobody has."""
    buffer = new_buffer(int(np.prod(fixed(t.shape))), t.dtype)
    BUFFERS.withdraw(buffer, UNKNOWN)
    return Tensor._wrap(leaf(UOp(Ops.RESHAPE, t.dtype, (buffer,), tuple(t.shape))), t.device)


def _model(
    name: str, inputs: dict[str, Tensor], results: dict[str, Tensor], read: Callable[[UOp], tuple[str, bytes]]
) -> ModelMessage:
    nodes = Nodes({t.uop: n for n, t in inputs.items()}, read)
    nodes.taken |= set(results)
    for n, t in results.items():
        nodes.add("Identity", nodes.of(t.uop), output=n)
    ends = [[port(n, fixed(t.shape), t.dtype) for n, t in side.items()] for side in (inputs, results)]
    graph = GraphMessage(nodes.nodes, name, list(nodes.constants.values()), ends[0], ends[1])
    return ModelMessage(IR_VERSION, f"tinyweb {tinyweb.__version__}", graph, [OperatorSet("", OPSET)])


def _write(path: Path, message: ModelMessage) -> None:
    parts = list(encode(message))
    size = sum(memoryview(p).nbytes for p in parts)
    if size > MAX_BYTES:
        raise ExportError(f"The model would be a file of {size / 1e9:.1f} GB: one ONNX file holds 2 GiB at most.")
    unfinished = path.with_name(path.name + ".part")
    try:
        with unfinished.open("wb") as out:
            out.writelines(parts)
        os.replace(unfinished, path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise ExportError(f"{path} cannot be written: {error.strerror or error}") from None

"""ONNX models as functions of Tensors."""

from __future__ import annotations

import errno
import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tinyweb.device import Device, bindings
from tinyweb.dtype import DType, dtypes, from_numpy, promote
from tinyweb.errors import ModelFormatError
from tinyweb.formats.onnx.call import Grow, Held, lift, lift_sizes
from tinyweb.formats.onnx.graph import Builder, Graph, Port
from tinyweb.formats.onnx.interpret import Interpreter
from tinyweb.formats.onnx.messages import ModelMessage
from tinyweb.formats.onnx.protobuf import DamagedError, Reader
from tinyweb.formats.onnx.sizes import Sizes
from tinyweb.formats.onnx.stored import Kept
from tinyweb.formats.onnx.tensors import Files
from tinyweb.formats.words import Words
from tinyweb.graph.ir import Size
from tinyweb.graph.schedule.indexing import same
from tinyweb.nn.precision import Precision, Recipe
from tinyweb.nn.quantize import QuantizedWeight, activations_for
from tinyweb.tensor import Tensor


class OnnxModel:
    """An ONNX model: `model(**{name: Tensor})` gives its outputs by name.

    `inputs` and `outputs` list names, dtypes and shapes; a symbolic size is its name, None one that is not told. Nodes
    are lowered to methods of Tensor. What is known (shapes, initializers, and what is computed from them alone) is
    computed at the call, so that sizes are plain numbers; values of inputs that decide sizes are read back, which jit
    and exports refuse with the node's name. Opsets 7 to 28. `quant`: how matrices that are multiplied or looked up are
    stored, as of chats (docs/quantization.md), `precisions`: those of some names; other large weights are half floats.
    `activations`: what such matrices are multiplied with, "float", "int8", "scaled-half", None: what suits the device.

    ModelFormatError where the file is damaged, nodes form a circle, a name stands for nothing, or data lies outside of
    the model's folder; NotImplementedError, with the node, where an operator is not supported.
    """

    def __init__(
        self, source: str | Path | bytes, *, quant: str | Recipe | None = None,
        precisions: Mapping[str, Precision] | None = None,
    ):  # fmt: skip
        self.recipe = None if quant is None else Recipe.of(quant)
        self.precisions = dict(precisions or {})
        self.activations: str | None = None
        path = None if isinstance(source, bytes | bytearray | memoryview) else Path(source)
        data: Any = source if path is None else _mapped(path)
        self.path = path
        where = "the model" if path is None else str(path)
        try:
            message = Reader(data).message(ModelMessage, 0, len(data))
        except (DamagedError, ValueError):
            raise ModelFormatError(f"{where} is no ONNX model, or damaged: download it again") from None
        self._files = Files(path)
        self.metadata = {e.key: e.value for e in message.metadata}
        self.opsets = {o.domain: o.version for o in message.opsets}
        self.producer = message.producer
        try:
            self.graph: Graph = Builder(message, self._files).main()
        except RecursionError:
            raise ModelFormatError(f"{where}: graphs are nested too deep") from None
        constants = self.graph.constants
        self.inputs: list[Port] = [p for p in self.graph.inputs if p.name not in constants]
        self.outputs: list[Port] = self.graph.outputs
        self._kept: dict[str, Kept] = {}

    def __call__(self, /, **inputs: Any) -> dict[str, Any]:
        """The outputs by name. Inputs are Tensors; lists of them for sequences, None for an optional that is absent, a
        dict for a map; NumPy arrays are values known beforehand, and the way to give text, which in recordings may
        also be `Words`.

        TypeError for a name that is no input, one that is missing, or another dtype or shape than the model says.
        """
        return self.run(inputs, {})

    def run(self, inputs: Mapping[str, Any], growing: Mapping[str, Grow]) -> dict[str, Any]:
        """As a call. `growing`: for inputs that are caches what puts new elements behind them and gives all, in place
        of joining both: where these are kept, the graph's own output with them is not needed."""
        ports = {p.name: p for p in self.graph.inputs}
        for name in inputs:
            if name not in ports:
                raise TypeError(f"{name!r} is no input of the model, which has {', '.join(map(repr, ports)) or 'none'}")
        for p in self.inputs:
            if p.name not in inputs and not p.type.startswith("optional"):
                raise TypeError(f"input {p.name!r} is missing: {p.type} of shape {p.shape}")
        sizes: dict[str, Size] = {}
        given = {n: _given(ports[n], v, sizes) for n, v in inputs.items()}
        given |= {p.name: None for p in self.inputs if p.name not in given}
        device = next((t.device for v in given.values() for t in _tensors(v)), Device.DEFAULT)
        every = [t for v in given.values() for t in _tensors(v)]
        varies = [t.uop for t in every if not all(isinstance(n, int) for n in t.shape)]
        rounded = self.activations or activations_for(Device[device].runtime.target, dtypes.float32)
        kept = self._kept.setdefault(device, Kept(device, self.recipe, self.precisions))
        grows = {id(given[n]): grow for n, grow in growing.items()}
        run = Interpreter(device, self._files, kept, rounded, grows, bindings(varies) if varies else {})
        results = run.run(self.graph, given)
        return {p.name: _result(v, device, run.bound) for p, v in zip(self.outputs, results)}

    def weights(self, device: str) -> dict[str, Tensor]:
        """The Tensors of initializers, and of what is made of them alone, that calls on a device have used so far, by
        their names in the graph. Single numbers are no memory, but part of kernels."""
        kept = self._kept.get(device, Kept(device))
        return {kept.names[key]: tensor for key, (_, tensor) in kept.tensors.items() if tensor.is_realized()}

    def matrices(self, device: str) -> dict[str, QuantizedWeight]:
        """The quantised matrices that calls on a device have used so far, by their names in the graph."""
        return {name: weight for name, weight, _ in self._kept.get(device, Kept(device)).matrices.values()}

    def __repr__(self) -> str:
        return f"<OnnxModel {', '.join(p.name for p in self.inputs)} → {', '.join(p.name for p in self.outputs)}>"


def _mapped(path: Path) -> Any:
    try:
        if path.exists() and not path.is_file():  # opening a pipe would wait
            raise OSError(errno.EINVAL, "it is no file")
        with path.open("rb") as f:
            return mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as e:
        raise ModelFormatError(f"{path} cannot be read: {e.strerror or e}") from None
    except ValueError:  # mmap: the file is empty
        raise ModelFormatError(f"{path} is no ONNX model, or damaged: download it again") from None


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, list):
        return [t for v in value for t in _tensors(v)]
    value = value.value if isinstance(value, Held) else value.places if isinstance(value, Words) else value
    return [value] if isinstance(value, Tensor) else []


def _given(port: Port, value: Any, sizes: dict[str, Size]) -> Any:
    """An input, checked; `sizes` are the symbolic ones found so far."""
    if isinstance(value, Mapping) and port.type == "map":
        return dict(value)
    if value is None or isinstance(value, list | tuple):
        if port.type.startswith("tensor"):
            raise TypeError(f"input {port.name!r} is a Tensor, got {type(value).__name__}")
        return value if value is None else list(value)
    words = port.dtype is None and isinstance(value, Words)
    if not words and not isinstance(value, Tensor | np.ndarray):
        raise TypeError(f"input {port.name!r} is a Tensor, got {type(value).__name__}")
    kind = port.kind
    if isinstance(value, Tensor) and kind is not None and value.dtype is not kind.dtype:
        if kind.dtype is None or not _holds(value.dtype, kind.dtype):
            name = kind.name if kind.dtype is None else kind.dtype.name
            raise TypeError(f"input {port.name!r} has dtype {value.dtype.name}, the model takes {name}")
        value = value.cast(kind.dtype)
    if port.shape is not None:
        _fits(port, value.shape, sizes)
    return Held(value, kind) if kind is not None and kind.held else value


def _holds(given: DType, wanted: DType) -> bool:
    """Whether numbers of one type are taken for another: from a narrower one of its kind, or from the NumPy type that
    holds it."""
    if given.is_float is not wanted.is_float or "bool" in (given.kind, wanted.kind):
        return False
    return promote(given, wanted) is wanted or (wanted.held_wider and given is from_numpy(wanted.numpy))


def _fits(port: Port, shape: tuple[Any, ...], sizes: dict[str, Size]) -> None:
    wanted = port.shape
    assert wanted is not None
    fits = len(wanted) == len(shape) and all(not isinstance(w, int) or w == n for w, n in zip(wanted, shape))
    for w, n in zip(wanted, shape):
        if fits and isinstance(w, str):
            fits = same(sizes.setdefault(w, n), n)
    if not fits:
        names = f" with {', '.join(f'{k}={v}' for k, v in sizes.items())}" if sizes else ""
        raise TypeError(f"input {port.name!r} has shape {tuple(shape)}, the model takes {wanted}{names}")


def _result(value: Any, device: str, bound: Mapping[str, int]) -> Any:
    value = value.value if isinstance(value, Held) else value
    if isinstance(value, list):
        return [_result(v, device, bound) for v in value]
    if isinstance(value, Sizes):
        return lift_sizes(value, device, bound)
    if value is None or isinstance(value, Words) or (isinstance(value, np.ndarray) and value.dtype == object):
        return value
    return lift(value, device)

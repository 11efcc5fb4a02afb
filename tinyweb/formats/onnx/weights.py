"""The weights and the metadata of an ONNX model: its initializers, by name. What the graph computes is not looked at:
it is the caller who knows the architecture."""

from __future__ import annotations

import math
import mmap
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tinyweb.dtype import dtypes, from_bits
from tinyweb.errors import ModelFormatError
from tinyweb.formats.onnx.messages import GraphMessage, ModelMessage, NodeMessage, TensorMessage, joined
from tinyweb.formats.onnx.protobuf import DamagedError, Reader
from tinyweb.formats.tensors import NamedTensors

MAX_FIELDS = 1_000_000
MAX_AXES = 8
MAX_SIZE = 1 << 40

# onnx.TensorProto.DataType; bfloat16 as its bits
TYPES: dict[int, np.dtype[Any]] = {
    1: np.dtype("<f4"), 2: np.dtype("u1"), 3: np.dtype("i1"), 4: np.dtype("<u2"), 5: np.dtype("<i2"),
    6: np.dtype("<i4"), 7: np.dtype("<i8"), 9: np.dtype("?"), 10: np.dtype("<f2"), 11: np.dtype("<f8"),
    16: np.dtype("<u2"),
}  # fmt: skip
FLOAT, DOUBLE, BFLOAT16 = 1, 11, 16


class _Tensor(TensorMessage):
    FIELDS: ClassVar = {n: TensorMessage.FIELDS[n] for n in (1, 2, 4, 8, 9, 10, 14)}


class _Node(NodeMessage):
    FIELDS: ClassVar = {n: NodeMessage.FIELDS[n] for n in (1, 2, 4)}


class _Graph(GraphMessage):
    FIELDS: ClassVar = {1: ("nodes", (_Node,)), 5: ("initializers", (_Tensor,))}


class _Model(ModelMessage):
    """Only what weights need is read."""

    FIELDS: ClassVar = {7: ("graph", _Graph), 14: ModelMessage.FIELDS[14]}


class OnnxWeights(NamedTensors):
    """The initializers of a model. `metadata` is the text that an exporter left in it, by key.

    ModelFormatError where the file is damaged or its numbers lie in another file.
    """

    def __init__(self, path: str | Path):
        path = Path(path)
        try:
            with path.open("rb") as f:
                data = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
            message = Reader(data, MAX_FIELDS).message(_Model, 0, len(data))
            self._entries = _entries(message.graph or GraphMessage(), path)
        except OSError as e:
            raise ModelFormatError(f"{path} cannot be read: {e.strerror or e}") from None
        except (DamagedError, ValueError):  # mmap: the file is empty
            raise ModelFormatError(f"{path} is no ONNX model, or damaged: download it again") from None
        self.metadata = {e.key: e.value for e in message.metadata}
        if not self._entries:
            raise ModelFormatError(f"{path} holds no weights: it is no ONNX model, or keeps them elsewhere")
        super().__init__(path, {n: t.shape if _bytes(t) is not None else (-1,) for n, t in self._entries.items()})

    def _values(self, name: str) -> npt.NDArray[Any]:
        tensor = self._entries[name]
        raw = _bytes(tensor)
        if raw is None:  # refused only when it is asked for
            raise ModelFormatError(f"{self.path}: tensor {name!r} is of a kind that is no weight's, or damaged")
        values: npt.NDArray[Any] = np.frombuffer(raw, TYPES[tensor.kind])
        if tensor.kind == BFLOAT16:
            values = from_bits(values, dtypes.bfloat16)
        return values.reshape(tensor.shape)


def _entries(graph: GraphMessage, path: Path) -> dict[str, TensorMessage]:
    """Initializers by name, and by the names that an Identity gives them: exporters keep one of several equal
    tensors."""
    found: dict[str, TensorMessage] = {}
    for tensor in graph.initializers:
        if tensor.location == 1:
            raise ModelFormatError(f"{path} keeps its weights in another file: export it as one file")
        if len(tensor.shape) > MAX_AXES or any(not 0 <= n <= MAX_SIZE for n in tensor.shape):
            raise DamagedError
        found[tensor.name] = tensor
    for node in graph.nodes:
        if node.op == "Identity":
            original, name = (names[-1] if names else "" for names in (node.inputs, node.outputs))
            if original in found:
                found.setdefault(name, found[original])
    return found


def _bytes(tensor: TensorMessage) -> Any:
    """The bytes of a tensor; None if they are not those of its shape, or of a type that weights have not."""
    raw: Any = tensor.raw
    lists = {FLOAT: tensor.floats, DOUBLE: tensor.doubles}.get(tensor.kind)
    if raw is None and lists:
        raw = joined(lists, np.float32).tobytes()
    size = math.prod(tensor.shape) * TYPES[tensor.kind].itemsize if tensor.kind in TYPES else -1
    return raw if len(raw or b"") == size else None

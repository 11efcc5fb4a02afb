"""The weights and the metadata of an ONNX model: its initializers, by name.

An .onnx file is one Protocol Buffers message. Of it are read: in the model its graph (field 7) and metadata (14), in
the graph the initializers (5) and the nodes (1) that rename them. The numbers stay in the file until they are asked
for. What the graph computes is not looked at: it is the caller who knows the architecture.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tinyweb.dtype import dtypes, from_bits
from tinyweb.errors import ModelFormatError
from tinyweb.formats.tensors import NamedTensors

MAX_FIELDS = 1_000_000
MAX_AXES = 8
MAX_TEXT = 1 << 20  # bytes of a name or of a value of the metadata

# onnx.TensorProto.DataType; bfloat16 as its bits
TYPES: dict[int, np.dtype[Any]] = {
    1: np.dtype("<f4"), 2: np.dtype("u1"), 3: np.dtype("i1"), 4: np.dtype("<u2"), 5: np.dtype("<i2"),
    6: np.dtype("<i4"), 7: np.dtype("<i8"), 9: np.dtype("?"), 10: np.dtype("<f2"), 11: np.dtype("<f8"),
    16: np.dtype("<u2"),
}  # fmt: skip
BFLOAT16 = 16
# where numbers lie that are not raw bytes: fields of float and double values (packed or one by one)
TYPED: dict[int, np.dtype[Any]] = {4: np.dtype("<f4"), 10: np.dtype("<f8")}


class _Damaged(ValueError):
    pass


@dataclass(frozen=True)
class _Entry:
    """An initializer: its type, shape, and the byte ranges of its numbers in the file."""

    kind: int
    shape: tuple[int, ...]
    ranges: tuple[tuple[int, int], ...]


class OnnxWeights(NamedTensors):
    """The initializers of a model. `metadata` is the text that an exporter left in it, by key.

    ModelFormatError where the file is damaged or its numbers lie in another file.
    """

    def __init__(self, path: str | Path):
        path = Path(path)
        self.metadata: dict[str, str] = {}
        self._entries: dict[str, _Entry] = {}
        self._fields_left = MAX_FIELDS
        try:
            with path.open("rb") as f:
                self._data = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
            for field, wire, begin, end in self._fields(0, len(self._data)):
                if wire == 2 and field == 7:
                    self._graph(begin, end, path)
                elif wire == 2 and field == 14:
                    self._property(begin, end)
        except OSError as e:
            raise ModelFormatError(f"{path} cannot be read: {e.strerror or e}") from None
        except (_Damaged, ValueError):  # mmap: the file is empty
            raise ModelFormatError(f"{path} is no ONNX model, or damaged: download it again") from None
        if not self._entries:
            raise ModelFormatError(f"{path} holds no weights: it is no ONNX model, or keeps them elsewhere")
        super().__init__(path, {n: e.shape for n, e in self._entries.items()})

    def _values(self, name: str) -> npt.NDArray[Any]:
        entry = self._entries[name]
        if not entry.kind:
            raise ModelFormatError(f"{self.path}: tensor {name!r} is of a kind that is no weight's, or damaged")
        raw = b"".join(self._data[begin:end] for begin, end in entry.ranges)
        values: npt.NDArray[Any] = np.frombuffer(raw, TYPES[entry.kind])
        if entry.kind == BFLOAT16:
            values = from_bits(values, dtypes.bfloat16)
        return values.reshape(entry.shape)

    def _graph(self, begin: int, end: int, path: Path) -> None:
        same: list[tuple[str, str]] = []
        for field, wire, at, to in self._fields(begin, end):
            if field == 5 and wire == 2:
                name, entry = self._tensor(at, to, path)
                self._entries[name] = entry
            elif field == 1 and wire == 2:
                node = {n: self._text(b, e) for n, w, b, e in self._fields(at, to) if w == 2 and n in (1, 2, 4)}
                if node.get(4) == "Identity":
                    same.append((node.get(2, ""), node.get(1, "")))
        for name, original in same:  # exporters keep one of several equal tensors, and give it the others' names so
            if original in self._entries:
                self._entries.setdefault(name, self._entries[original])

    def _property(self, begin: int, end: int) -> None:
        texts = {field: self._text(at, to) for field, wire, at, to in self._fields(begin, end) if wire == 2}
        self.metadata[texts.get(1, "")] = texts.get(2, "")

    def _tensor(self, begin: int, end: int, path: Path) -> tuple[str, _Entry]:
        name, kind, shape, elsewhere = "", 0, [], False
        ranges: list[tuple[int, int]] = []
        typed: dict[int, list[tuple[int, int]]] = {n: [] for n in TYPED}
        for field, wire, at, to in self._fields(begin, end):
            if field == 1:
                shape += self._integers(wire, at, to)
            elif field == 2 and wire == 0:
                kind = at
            elif field == 8 and wire == 2:
                name = self._text(at, to)
            elif field == 9 and wire == 2:
                ranges = [(at, to)]
            elif field == 14 and wire == 0:
                elsewhere = at == 1
            elif field in TYPED and wire in (1, 2, 5):
                typed[field].append((at, to))
        if elsewhere:
            raise ModelFormatError(f"{path} keeps its weights in another file: export it as one file")
        if len(shape) > MAX_AXES or any(n > 1 << 40 for n in shape):
            raise _Damaged
        for number, held in TYPED.items():
            if typed[number] and not ranges and TYPES.get(kind) == held:
                ranges = typed[number]
        size = math.prod(shape) * TYPES[kind].itemsize if kind in TYPES else -1
        if sum(to - at for at, to in ranges) != size:
            return name, _Entry(0, (-1,), ())  # of a kind that is no weight's: refused when it is asked for
        return name, _Entry(kind, tuple(shape), tuple(ranges))

    def _integers(self, wire: int, at: int, to: int) -> list[int]:
        """One number, or several packed."""
        if wire == 0:
            return [at]
        found = []
        while wire == 2 and at < to:
            value, at = self._varint(at, to)
            found.append(value)
        return found

    def _text(self, begin: int, end: int) -> str:
        if end - begin > MAX_TEXT:
            raise _Damaged
        return self._data[begin:end].decode("utf-8", "replace")

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        value = 0
        for place in range(10):
            if at >= end:
                break
            byte = self._data[at]
            at += 1
            value |= (byte & 127) << 7 * place
            if byte < 128:
                return value, at
        raise _Damaged

    def _fields(self, begin: int, end: int) -> Iterator[tuple[int, int, int, int]]:
        """The fields of a message: number, wire type, and begin and end of the content (for wire type 0 the begin is
        the value itself)."""
        at = begin
        while at < end:
            self._fields_left -= 1
            tag, at = self._varint(at, end)
            wire = tag & 7
            if self._fields_left < 0 or tag < 8:
                raise _Damaged
            if wire == 0:
                value, at = self._varint(at, end)
                yield tag >> 3, wire, value, at
                continue
            if wire not in (1, 2, 5):
                raise _Damaged
            length, at = self._varint(at, end) if wire == 2 else ({1: 8, 5: 4}[wire], at)
            if length > end - at:
                raise _Damaged
            yield tag >> 3, wire, at, at + length
            at += length

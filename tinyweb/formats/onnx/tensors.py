"""The numbers of a TensorProto: raw, in lists, or in another file of the model's folder."""

from __future__ import annotations

import errno
import math
import mmap
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tinyweb.dtype import dtypes
from tinyweb.errors import ModelFormatError
from tinyweb.formats.onnx.messages import SparseMessage, TensorMessage, joined
from tinyweb.formats.onnx.types import STRING, ElementType, kind_of, numbers_of
from tinyweb.tensor import Tensor

MAX_AXES = 32
MAX_ELEMENTS = 1 << 40


class Files:
    """Files beside the model, mapped once each. None of them lies outside of its folder; where the model is a link, as
    in the hub's cache, a link to a file beside the one that it leads to will do."""

    def __init__(self, model: Path | None):
        self.folder = None if model is None else model.parent
        self.stored = None if model is None else model.resolve().parent
        self.mapped = dict[str, memoryview]()

    def part(self, tensor: TensorMessage) -> memoryview:
        """The bytes of a tensor that lies in another file."""
        entries = {e.key: e.value for e in tensor.external}
        where, name = entries.get("location", ""), f"tensor {tensor.name!r}"
        if self.folder is None:
            raise ModelFormatError(f"{name} lies in the file {where!r}: give the path of the model, not its bytes")
        try:
            begin = int(entries.get("offset", "0"))
            data = self._open(where, name)
            length = int(entries["length"]) if "length" in entries else len(data) - begin
        except ValueError:
            raise ModelFormatError(f"{name}: offset and length in {where!r} must be numbers") from None
        if begin < 0 or length < 0 or begin + length > len(data):
            raise ModelFormatError(
                f"{name} lies at {begin} to {begin + length} of {where!r}, which has {len(data)} bytes: "
                "download the file again"
            )
        return data[begin : begin + length]

    def _open(self, where: str, name: str) -> memoryview:
        if where in self.mapped:
            return self.mapped[where]
        assert self.folder is not None
        folder = self.folder.resolve()
        try:
            path = (folder / where).resolve()
        except (OSError, ValueError, RuntimeError):
            raise ModelFormatError(f"{name}: {where!r} is no name of a file") from None
        beside = path.is_relative_to(folder) or (path.parent == self.stored and where == Path(where).name)
        if not where or not beside:
            raise ModelFormatError(f"{name} lies in {where!r}, outside of the model's folder: it is not read")
        try:
            if path.exists() and not path.is_file():  # opening a pipe would wait
                raise OSError(errno.EINVAL, "it is no file")
            with path.open("rb") as f:
                size = path.stat().st_size
                self.mapped[where] = memoryview(mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) if size else b"")
        except OSError as e:
            raise ModelFormatError(
                f"{name} lies in {where!r}, which cannot be read ({e.strerror or e}): put it beside the model"
            ) from None
        return self.mapped[where]


def bytes_of(tensor: TensorMessage) -> int:
    """How many bytes the numbers of a tensor take."""
    kind, count = kind_of(tensor.kind, f"tensor {tensor.name!r}"), math.prod(tensor.shape)
    if kind.dtype is None:
        return sum(map(len, tensor.strings)) if kind is STRING else 8 * count * (1 + (kind.name == "complex128"))
    return (kind.bits * count + 7) // 8 if kind.held else kind.dtype.nbytes(count)


def value_of(tensor: TensorMessage, files: Files) -> tuple[npt.NDArray[Any] | Tensor, ElementType]:
    """The value of a tensor: as a NumPy array where NumPy has its type, else as a Tensor, on the CPU."""
    name, shape = f"tensor {tensor.name!r}", tensor.shape
    kind = kind_of(tensor.kind, name)
    if len(shape) > MAX_AXES or any(n < 0 for n in shape) or math.prod(n for n in shape if n) > MAX_ELEMENTS:
        raise ModelFormatError(f"{name} has no possible shape: {list(shape)[:MAX_AXES]}")
    count = math.prod(shape)
    if kind is STRING:
        if len(tensor.strings) != count:
            raise ModelFormatError(f"{name} has {len(tensor.strings)} texts for shape {list(shape)}")
        texts = np.array([s.decode("utf-8", "replace") for s in tensor.strings] + [""], object)[:-1]
        return texts.reshape(shape), kind
    if kind.dtype is None:
        raise ModelFormatError(f"{name} holds {kind.name}, which is not supported")
    if tensor.location == 1:
        raw: Any = files.part(tensor)
    else:
        raw = tensor.raw if tensor.raw is not None else _listed(tensor, kind, count)
    if len(raw) != bytes_of(tensor):
        raise ModelFormatError(
            f"{name} has {len(raw)} bytes, {kind.name} of shape {list(shape)} takes {bytes_of(tensor)}: "
            "it is damaged, or of another model"
        )
    if kind.held:
        return numbers_of(_fields(np.frombuffer(raw, np.uint8), kind.bits, count), kind).reshape(shape), kind
    if kind.dtype.held_wider:
        return Tensor.from_bytes(raw, shape, kind.dtype, "CPU"), kind
    return np.frombuffer(raw, kind.dtype.numpy, count).reshape(shape), kind


def _fields(raw: npt.NDArray[np.uint8], bits: int, count: int) -> npt.NDArray[np.uint8]:
    """Numbers of few bits, the first lowest in its byte."""
    if bits == 8:
        return raw
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return ((raw[:, None] >> shifts) & np.uint8((1 << bits) - 1)).reshape(-1)[:count]


def _listed(tensor: TensorMessage, kind: ElementType, count: int) -> bytes:
    """The bytes of numbers that are written as lists."""
    lists = {
        "float": tensor.floats, "double": tensor.doubles, "int64": tensor.longs, "uint64": tensor.unsigned,
        "uint32": tensor.unsigned,
    }  # fmt: skip
    parts = lists.get(kind.name, tensor.words)
    values = joined(parts, np.int64)
    assert kind.dtype is not None
    if kind.held or kind.dtype.held_wider or kind.dtype is dtypes.float16:
        # bits; several numbers below a byte share one
        size = np.uint16 if kind.dtype in (dtypes.float16, dtypes.bfloat16) else np.uint8
        return values.astype(size).tobytes()
    return values.astype(kind.dtype.numpy).tobytes()


def dense(sparse: SparseMessage, files: Files) -> npt.NDArray[Any]:
    """The array that a sparse tensor stands for."""
    name = f"sparse tensor {sparse.values.name!r}"
    shape = tuple(int(n) for part in sparse.dims for n in part)
    values, _ = value_of(sparse.values, files)
    at, _ = value_of(sparse.indices, files)
    if not isinstance(values, np.ndarray) or not isinstance(at, np.ndarray) or at.dtype != np.int64:
        raise ModelFormatError(f"{name}: values and indices are of types that are not supported")
    if any(n < 0 for n in shape) or math.prod(shape) > 1 << 26 or values.ndim != 1:
        raise ModelFormatError(f"{name} has no possible shape: {list(shape)}")
    if at.ndim == 2 and at.shape == (values.size, len(shape)):
        places = tuple(at.T)
        at = np.ravel_multi_index(places, shape, mode="clip") if values.size else np.zeros(0, np.int64)
    if at.shape != values.shape or (at.size and not 0 <= at.min() <= at.max() < math.prod(shape)):
        raise ModelFormatError(f"{name}: an index lies outside of shape {list(shape)}")
    full = np.zeros(math.prod(shape), values.dtype)
    full[at] = values
    return full.reshape(shape)

"""Messages written: the bytes of what `protobuf.py` reads, by the same tables of fields."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tinyweb.dtype import DType
from tinyweb.formats.onnx.messages import (
    Attribute,
    Dimension,
    ShapeMessage,
    TensorMessage,
    TensorType,
    TypeMessage,
    ValueMessage,
)
from tinyweb.formats.onnx.protobuf import BYTES, FIXED32, MASK, VARINT, Message
from tinyweb.formats.onnx.types import OF_DTYPE

Chunk = bytes | memoryview


def encode(message: Message) -> Iterator[Chunk]:
    """The bytes of a message, in parts: large ones are not copied. Lists, texts and bytes that are empty, and what is
    None, are left out."""
    return iter(_message(message)[0])


def varint(value: int) -> bytes:
    """Seven bits in each byte, the lowest first; negative numbers as those of 64 bits."""
    value &= MASK
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)


def _message(message: Message) -> tuple[list[Chunk], int]:
    """Its parts, and how many bytes these are."""
    parts: list[Chunk] = []
    for number, (name, kind) in type(message).FIELDS.items():
        value = getattr(message, name)
        if isinstance(kind, str):
            parts += _scalar(number, kind, value)
            continue
        for one in value if isinstance(kind, tuple) else [value] if value is not None else []:
            inner, size = _message(one)
            parts += [varint(number << 3 | BYTES) + varint(size), *inner]
    return parts, sum(map(_size, parts))


def _size(part: Chunk) -> int:
    return part.nbytes if isinstance(part, memoryview) else len(part)


def _scalar(number: int, kind: str, value: Any) -> Iterator[Chunk]:
    if kind in ("texts", "blobs"):
        for one in value:
            yield from _bytes(number, one.encode() if kind == "texts" else one)
    elif kind in ("ints", "uints", "floats", "doubles"):
        for one in value:
            yield from _bytes(number, _packed(kind, one))
    elif value is None or (kind in ("text", "bytes") and not value):
        return
    elif kind == "int":
        yield varint(number << 3 | VARINT) + varint(value)
    elif kind == "float":
        yield varint(number << 3 | FIXED32) + struct.pack("<f", value)
    else:
        yield from _bytes(number, value.encode() if kind == "text" else value)


def _bytes(number: int, value: Chunk) -> Iterator[Chunk]:
    yield varint(number << 3 | BYTES) + varint(_size(value))
    yield value


def _packed(kind: str, values: npt.NDArray[Any]) -> bytes:
    if kind in ("ints", "uints"):
        return b"".join(varint(int(v)) for v in values)
    return values.astype(np.dtype("<f4" if kind == "floats" else "<f8")).tobytes()


# -- messages of a graph -----------------------------------------------------------------------------------------------
class _Int(Attribute):
    FIELDS: ClassVar = {n: Attribute.FIELDS[n] for n in (1, 3, 20)}


class _Text(Attribute):
    FIELDS: ClassVar = {n: Attribute.FIELDS[n] for n in (1, 4, 20)}


class _Ints(Attribute):
    FIELDS: ClassVar = {n: Attribute.FIELDS[n] for n in (1, 8, 20)}


def attribute(name: str, value: int | str | Sequence[int]) -> Attribute:
    """An attribute of a node: of the fields for values only one may be there."""
    if isinstance(value, int):
        return _Int(name, i=value, kind=2)
    if isinstance(value, str):
        return _Text(name, s=memoryview(value.encode()), kind=3)
    return _Ints(name, ints=[np.array(value, np.int64)], kind=7)


def tensor(name: str, shape: Sequence[int], dtype: DType, raw: bytes) -> TensorMessage:
    """An initializer of these bytes, the lowest of each number first."""
    dims = [np.array(shape, np.int64)]
    return TensorMessage(dims, number_of(dtype), name=name, raw=memoryview(raw))


def port(name: str, shape: Sequence[int], dtype: DType) -> ValueMessage:
    """An input or output of fixed shape."""
    sizes = ShapeMessage([Dimension(n) for n in shape])
    return ValueMessage(name, TypeMessage(TensorType(number_of(dtype), sizes)))


def number_of(dtype: DType) -> int:
    """The number of a type in TensorProto.DataType. NotImplementedError where ONNX has none."""
    if dtype not in OF_DTYPE:
        raise NotImplementedError(f"ONNX has no type for {dtype.name}")
    return OF_DTYPE[dtype].number

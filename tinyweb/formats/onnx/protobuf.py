"""Protocol Buffers, read by tables of fields: https://protobuf.dev/programming-guides/encoding

A message is a dataclass whose `FIELDS` say which number is which attribute, and of what kind. What no table names, or
is of another wire type, is passed over. Bytes stay views of the file; nothing of it is copied or executed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

MAX_FIELDS = 20_000_000
MAX_DEPTH = 64  # of messages within messages: subgraphs in subgraphs
MAX_TEXT = 1 << 20  # bytes of a name

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
MASK = (1 << 64) - 1  # what is longer is cut off


class DamagedError(ValueError):
    """The bytes are no message."""


class Message:
    """`FIELDS`: number → (attribute, kind). Kinds are "int", "float", "text", "bytes" and messages; of lists
    "ints", "floats", "doubles", "uints", "texts", "blobs", and a message in a tuple."""

    FIELDS: ClassVar[dict[int, tuple[str, Any]]]


M = TypeVar("M", bound=Message)
Field: TypeAlias = tuple[int, int, int, int]


@dataclass
class Reader:
    """Reads messages from bytes; `left` is how many fields it takes until it calls them damaged."""

    data: Any  # bytes, memoryview or mmap
    left: int = MAX_FIELDS

    def message(self, kind: type[M], begin: int, end: int, depth: int = 0) -> M:
        """The message between two positions."""
        if depth > MAX_DEPTH:
            raise DamagedError
        found = kind()
        for number, wire, at, to in self.fields(begin, end):
            if number not in kind.FIELDS:
                continue
            name, content = kind.FIELDS[number]
            if isinstance(content, str):
                self._scalar(found, name, content, wire, at, to)
                continue
            if wire != BYTES:
                continue
            if isinstance(content, tuple):
                getattr(found, name).append(self.message(content[0], at, to, depth + 1))
            else:
                setattr(found, name, self.message(content, at, to, depth + 1))
        return found

    def _scalar(self, found: Message, name: str, kind: str, wire: int, at: int, to: int) -> None:
        if kind == "int" and wire == VARINT:
            setattr(found, name, signed(at))
        elif kind == "float" and wire == FIXED32:
            setattr(found, name, struct.unpack("<f", self.data[at:to])[0])
        elif kind == "text" and wire == BYTES:
            setattr(found, name, self.text(at, to))
        elif kind == "bytes" and wire == BYTES:
            setattr(found, name, memoryview(self.data)[at:to])
        elif kind == "texts" and wire == BYTES:
            getattr(found, name).append(self.text(at, to))
        elif kind == "blobs" and wire == BYTES:
            getattr(found, name).append(bytes(self.data[at:to]))
        elif kind in ("ints", "uints") and wire in (VARINT, BYTES):
            values = np.array([at & MASK], np.uint64) if wire == VARINT else self.varints(at, to)
            getattr(found, name).append(values.view(np.int64) if kind == "ints" else values)
        elif kind in ("floats", "doubles") and wire in (BYTES, FIXED32, FIXED64):
            dtype = np.dtype("<f4" if kind == "floats" else "<f8")
            if (to - at) % dtype.itemsize:
                raise DamagedError
            getattr(found, name).append(np.frombuffer(self.data, dtype, (to - at) // dtype.itemsize, at))

    def text(self, begin: int, end: int) -> str:
        if end - begin > MAX_TEXT:
            raise DamagedError
        return bytes(self.data[begin:end]).decode("utf-8", "replace")

    def varints(self, begin: int, end: int) -> npt.NDArray[np.uint64]:
        """Numbers packed one behind the other."""
        raw = np.frombuffer(self.data, np.uint8, end - begin, begin)
        if not raw.size:
            return np.zeros(0, np.uint64)
        ends = np.flatnonzero(raw < 128)
        if not ends.size or ends[-1] != raw.size - 1:
            raise DamagedError
        starts = np.concatenate([[0], ends[:-1] + 1])
        if (ends - starts).max() > 9:
            raise DamagedError
        place = np.arange(raw.size) - np.repeat(starts, ends - starts + 1)
        return np.add.reduceat((raw & 127).astype(np.uint64) << (7 * place).astype(np.uint64), starts)

    def varint(self, at: int, end: int) -> tuple[int, int]:
        value = 0
        for place in range(10):
            if at >= end:
                break
            byte = self.data[at]
            at += 1
            value |= (byte & 127) << 7 * place
            if byte < 128:
                return value, at
        raise DamagedError

    def fields(self, begin: int, end: int) -> Iterator[Field]:
        """The fields of a message: number, wire type, and begin and end of the content (for wire type 0 the begin is
        the value itself)."""
        at = begin
        while at < end:
            self.left -= 1
            tag, at = self.varint(at, end)
            wire = tag & 7
            if self.left < 0 or tag < 8:
                raise DamagedError
            if wire == VARINT:
                value, at = self.varint(at, end)
                yield tag >> 3, wire, value, at
                continue
            if wire not in (FIXED64, BYTES, FIXED32):
                raise DamagedError
            length, at = self.varint(at, end) if wire == BYTES else ({FIXED64: 8, FIXED32: 4}[wire], at)
            if length > end - at:
                raise DamagedError
            yield tag >> 3, wire, at, at + length
            at += length


def signed(value: int) -> int:
    """A varint as a number of 64 bits with a sign."""
    value &= MASK
    return value - (1 << 64) if value >> 63 else value

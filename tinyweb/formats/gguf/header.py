"""The header of a GGUF file: metadata and where each tensor lies, read from bytes that may be anything.

A file is: `GGUF`, a version, the numbers of tensors and of metadata entries; the entries (key, type, value); for each
tensor its name, axes (innermost first), type and offset; and, from the next multiple of `general.alignment` on, the
tensors' bytes. Everything is little-endian; a text or an array has its length before it, in 8 bytes. Source: the GGUF
specification (ggml, `docs/gguf.md`).

Every length is compared with the bytes that are left before anything is made of it.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from tinyweb.errors import ModelFormatError
from tinyweb.formats.gguf.types import FORMATS, NOT_STORED, TensorFormat

MAGIC = b"GGUF"
MAX_TENSORS = MAX_ENTRIES = 1 << 17  # the largest models have some ten thousand
MAX_NAME = 1 << 16  # bytes of a key or of a tensor's name
MAX_TEXT = 64 << 20  # bytes of one text
MAX_ITEMS = 1 << 22  # items of arrays of texts in one file: a Python object each
MAX_DEPTH = 4  # of arrays in arrays
MAX_AXES = 8
MAX_ALIGNMENT = 1 << 24

# numbers of fixed size by the code of their type; True and False are bytes 1 and 0
NUMBERS = {
    0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?", 10: "<u8", 11: "<i8", 12: "<f8",
}  # fmt: skip
TEXT, ARRAY = 8, 9


@dataclass(frozen=True)
class Entry:
    """Where a tensor lies. `shape`: outermost axis first. `begin`, `end`: byte offsets in the file."""

    name: str
    form: TensorFormat
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True)
class Header:
    """What stands before the tensors' bytes. Metadata: Python numbers, bool, str; arrays of numbers as NumPy arrays,
    of anything else as lists."""

    version: int
    metadata: dict[str, Any]
    tensors: dict[str, Entry]


def read_header(path: Path, data: memoryview) -> Header:
    """The header of the file whose bytes are `data`. Raises ModelFormatError naming `path` and what is wrong in it."""
    cursor = _Cursor(path, data)
    version = _version(cursor)
    tensors, entries = cursor.number("<Q"), cursor.number("<Q")
    if tensors > MAX_TENSORS or entries > MAX_ENTRIES:
        cursor.refuse(f"claims {tensors} tensors and {entries} entries of metadata, {MAX_TENSORS} each are possible")
    metadata: dict[str, Any] = {}
    for _ in range(entries):
        key = cursor.text(MAX_NAME, "a metadata key")
        if key in metadata:
            cursor.refuse(f"has the metadata {key[:80]!r} twice")
        metadata[key] = _value(cursor, cursor.number("<I"), key, 0)
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or not 1 <= alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
        cursor.refuse(f"has 'general.alignment' {str(alignment)[:40]}, not a power of two up to {MAX_ALIGNMENT}")
    described = [_describe(cursor) for _ in range(tensors)]
    start = -(-cursor.at // alignment) * alignment
    return Header(version, metadata, _place(cursor, described, start, alignment))


def _version(cursor: _Cursor) -> int:
    if bytes(cursor.take(4, "its first bytes")) != MAGIC:
        raise ModelFormatError(f"{cursor.path} is no GGUF file: it does not begin with the letters GGUF")
    version: int = cursor.number("<I")
    if version and version & 0xFFFF == 0:
        raise ModelFormatError(
            f"{cursor.path} is a GGUF file for big-endian machines, which are not supported: "
            "download the little-endian one, or convert it with gguf-convert-endian"
        )
    if version not in (2, 3):
        raise ModelFormatError(
            f"{cursor.path} is a GGUF file of version {version}, known are 2 and 3: download a newer one"
        )
    return version


def _value(cursor: _Cursor, kind: int, key: str, depth: int) -> Any:
    if kind == ARRAY:
        return _array(cursor, key, depth)
    if kind == TEXT:
        return cursor.text(MAX_TEXT, f"the metadata {key[:80]!r}")
    if kind == 7:
        return _truth(cursor, np.frombuffer(cursor.take(1, "a flag"), np.uint8), key).item()
    if kind not in NUMBERS:
        cursor.refuse(f"has metadata {key[:80]!r} of type {kind}, which is not known")
    return cursor.number(NUMBERS[kind])


def _array(cursor: _Cursor, key: str, depth: int) -> Any:
    if depth >= MAX_DEPTH:
        cursor.refuse(f"has metadata {key[:80]!r} with arrays in arrays more than {MAX_DEPTH} deep")
    kind, count = cursor.number("<I"), cursor.number("<Q")
    what = f"the array {key[:80]!r}"
    if kind == 7:
        return _truth(cursor, np.frombuffer(cursor.take(count, what), np.uint8), key)
    if kind in NUMBERS:
        held = np.dtype(NUMBERS[kind])
        return np.frombuffer(cursor.take(count * held.itemsize, what), held).copy()
    if kind not in (TEXT, ARRAY):
        cursor.refuse(f"has metadata {key[:80]!r}, an array of type {kind}, which is not known")
    cursor.items += count
    if cursor.items > MAX_ITEMS:
        cursor.refuse(f"has arrays of more than {MAX_ITEMS} texts and arrays, with {key[:80]!r}")
    cursor.expect(count * (8 if kind == TEXT else 12), what)
    return [_value(cursor, kind, key, depth + 1) for _ in range(count)]


def _truth(cursor: _Cursor, found: Any, key: str) -> Any:
    if (found > 1).any():
        cursor.refuse(f"has metadata {key[:80]!r} of type bool that is neither 0 nor 1")
    return found.astype(bool)


@dataclass(frozen=True)
class _Described:
    """What a file says of a tensor."""

    name: str
    form: TensorFormat
    shape: tuple[int, ...]
    offset: int
    bytes: int


def _describe(cursor: _Cursor) -> _Described:
    name = cursor.text(MAX_NAME, "a tensor's name")
    where = f"tensor {name[:80]!r}"
    axes = cursor.number("<I")
    if axes > MAX_AXES:
        cursor.refuse(f"has {where} of {axes} axes, of which {MAX_AXES} are possible")
    shape = tuple(reversed(cursor.numbers(f"<{axes}Q", where)))
    if math.prod(s or 1 for s in shape) >= 1 << 62:
        cursor.refuse(f"has {where} of shape {str(shape)[:80]}, which is none")
    code, offset = cursor.number("<I"), cursor.number("<Q")
    form = FORMATS.get(code)
    if form is None:
        old = f" ({NOT_STORED[code]}, which files no longer hold)" if code in NOT_STORED else ""
        known = ", ".join(f.name for f in FORMATS.values())
        cursor.refuse(f"has {where} of type {code}{old}, which is not supported; known: {known}", "")
    row = shape[-1] if shape else 1
    if row % form.elements:
        cursor.refuse(f"has {where} with rows of {row} numbers, {form.name} needs a multiple of {form.elements}")
    return _Described(name, form, shape, offset, math.prod(shape) // form.elements * form.bytes)


def _place(cursor: _Cursor, described: list[_Described], start: int, alignment: int) -> dict[str, Entry]:
    """Tensors by name; they overlap nowhere and end within the file."""
    found: dict[str, Entry] = {}
    for d in described:
        if d.name in found:
            cursor.refuse(f"names the tensor {d.name[:80]!r} twice")
        if d.offset % alignment:
            cursor.refuse(f"puts tensor {d.name[:80]!r} at offset {d.offset}, which is no multiple of {alignment}")
        begin, end = start + d.offset, start + d.offset + d.bytes
        if end > len(cursor.data):
            raise ModelFormatError(
                f"{cursor.path} is truncated: tensor {d.name[:80]!r} ends at byte {end}, "
                f"the file at {len(cursor.data)}; download it again"
            )
        found[d.name] = Entry(d.name, d.form, d.shape, begin, end)
    at = start
    for entry in sorted(found.values(), key=lambda e: (e.begin, e.end)):
        if entry.begin < at:
            cursor.refuse(f"has tensor {entry.name[:80]!r} overlapping the one before it")
        at = entry.end
    return found


class _Cursor:
    """A place in a file's bytes, which moves on as they are read."""

    def __init__(self, path: Path, data: memoryview):
        self.path, self.data, self.at, self.items = path, data, 0, 0

    def refuse(self, what: str, advice: str = "; the file is damaged, download it again") -> NoReturn:
        raise ModelFormatError(f"{self.path} {what}{advice}")

    def expect(self, size: int, what: str) -> None:
        if size > len(self.data) - self.at:
            raise ModelFormatError(
                f"{self.path} is truncated or damaged: {what} at byte {self.at} takes {size} bytes at least, "
                f"the file ends at {len(self.data)}; download it again"
            )

    def take(self, size: int, what: str) -> memoryview:
        self.expect(size, what)
        self.at += size
        return self.data[self.at - size : self.at]

    def numbers(self, form: str, what: str = "a number") -> tuple[Any, ...]:
        return struct.unpack(form, self.take(struct.calcsize(form), what))

    def number(self, form: str) -> Any:
        return self.numbers(_STRUCT.get(form, form))[0]

    def text(self, limit: int, what: str) -> str:
        size = self.number("<Q")
        self.expect(size, what)
        if size > limit:
            self.refuse(f"has {what} of {size} bytes, of which {limit} are possible")
        try:
            return str(self.take(size, what), "utf-8")
        except UnicodeDecodeError:
            self.refuse(f"has {what} that is not UTF-8 text")


# NumPy's names of numbers for struct
_STRUCT = {"<u1": "<B", "<i1": "<b", "<u2": "<H", "<i2": "<h", "<u4": "<I", "<i4": "<i", "<f4": "<f"} | {
    "<u8": "<Q", "<i8": "<q", "<f8": "<d",
}  # fmt: skip

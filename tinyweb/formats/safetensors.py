"""Reading `.safetensors` files.

A file is: the header's length (8 bytes, little-endian), a JSON header naming each tensor's dtype, shape and byte
range, and the tensors' bytes. The header is checked as a whole before any tensor is read, so that every message can
name the tensor it is about; the bytes themselves come through the `safetensors` library, mapped into memory and read
on demand.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from tinyweb.dtype import DType, dtypes, from_bits
from tinyweb.errors import ModelFormatError

MAX_HEADER = 16 << 20  # bytes; a model of a hundred thousand tensors stays below
MAX_AXES = 8

DTYPES: dict[str, DType] = {
    "BOOL": dtypes.bool, "I8": dtypes.int8, "U8": dtypes.uint8, "I16": dtypes.int16, "U16": dtypes.uint16,
    "I32": dtypes.int32, "U32": dtypes.uint32, "I64": dtypes.int64, "U64": dtypes.uint64,
    "F8_E4M3": dtypes.float8_e4m3, "F8_E5M2": dtypes.float8_e5m2, "F16": dtypes.float16, "BF16": dtypes.bfloat16,
    "F32": dtypes.float32, "F64": dtypes.float64,
}  # fmt: skip


@dataclass(frozen=True)
class TensorEntry:
    """Where one tensor lies: `begin` and `end` are byte offsets in the file."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    begin: int
    end: int


class SafetensorsFile:
    """One checked file. `entries` lists its tensors by name; `read` gives a tensor's values.

    Raises ModelFormatError where the file is missing, truncated or contradicts itself.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.entries: dict[str, TensorEntry] = {e.name: e for e in _read_header(self.path)}
        try:
            self._file = safe_open(self.path, framework="numpy")
        except (SafetensorError, OSError) as e:
            raise ModelFormatError(
                f"{self.path} cannot be read as safetensors ({e}): download the file again"
            ) from None

    def read(self, name: str) -> npt.NDArray[Any]:
        """The values of a tensor, as stored; floats that NumPy lacks come as float32, which holds them exactly."""
        entry = self.entries.get(name)
        if entry is None:
            raise ModelFormatError(
                f"{self.path} has no tensor {name[:80]!r}: the checkpoint is incomplete or of another model"
            )
        if entry.dtype.held_wider:  # unknown to NumPy, and with it to the library
            word = np.dtype(f"<u{entry.dtype.itemsize}")
            bits = np.fromfile(self.path, word, math.prod(entry.shape), offset=entry.begin)
            return from_bits(bits, entry.dtype).reshape(entry.shape)
        try:
            return np.asarray(self._file.get_tensor(name))  # type: ignore[no-untyped-call]
        except (SafetensorError, OSError) as e:
            raise ModelFormatError(
                f"{self.path}: tensor {name[:80]!r} cannot be read ({e}): download the file again"
            ) from None


def _read_header(path: Path) -> list[TensorEntry]:
    """All tensors of the file, in the order of their bytes, after checking that these tile the file exactly."""
    try:
        size = path.stat().st_size
        with path.open("rb") as f:
            prefix = f.read(8)
            length = int.from_bytes(prefix, "little")
            if len(prefix) < 8 or length > size - 8:
                raise ModelFormatError(
                    f"{path} is truncated or no safetensors file: it has {size} bytes, its header alone asks for more; "
                    "download the file again"
                )
            if length > MAX_HEADER:
                raise ModelFormatError(
                    f"{path}: a header of {length} bytes is beyond the limit of {MAX_HEADER}; refused"
                )
            text = f.read(length)
    except OSError as e:
        raise ModelFormatError(f"{path} cannot be read: {e.strerror or e}") from None
    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=lambda pairs: _unique(path, pairs))
    except (UnicodeDecodeError, ValueError, RecursionError):
        raise ModelFormatError(
            f"{path} is no safetensors file: its header is not JSON; download the file again"
        ) from None
    if not isinstance(header, dict):
        raise ModelFormatError(
            f"{path} is no safetensors file: its header is not a JSON object; download the file again"
        )
    header.pop("__metadata__", None)
    entries = sorted(
        (_entry(path, name, fields, 8 + length) for name, fields in header.items()), key=lambda e: (e.begin, e.end)
    )
    at = 8 + length
    for entry in entries:
        if entry.begin != at:
            what = "overlaps the tensor before it" if entry.begin < at else "leaves a gap before it"
            raise ModelFormatError(f"{path}: tensor {entry.name[:80]!r} {what}; the file is damaged, download it again")
        if entry.end > size:
            raise ModelFormatError(
                f"{path} is truncated: tensor {entry.name[:80]!r} ends at byte {entry.end}, the file at {size}; "
                "download it again"
            )
        at = entry.end
    if at != size:
        raise ModelFormatError(
            f"{path} has {size - at} bytes that belong to no tensor; the file is damaged, download it again"
        )
    return entries


def _unique(path: Path, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ModelFormatError(f"{path}: the header names a tensor twice; the file is damaged, download it again")
    return found


def _entry(path: Path, name: str, fields: Any, data_at: int) -> TensorEntry:
    """One header item, checked for itself."""
    where = f"{path}: tensor {name[:80]!r}"
    if not isinstance(fields, dict):
        raise ModelFormatError(f"{where} has no description; the file is damaged, download it again")
    kind, shape, offsets = fields.get("dtype"), fields.get("shape"), fields.get("data_offsets")
    dtype = DTYPES.get(kind) if isinstance(kind, str) else None
    if dtype is None:
        raise ModelFormatError(
            f"{where} has dtype {str(kind)[:40]!r}, which is not supported; known: {', '.join(DTYPES)}"
        )
    if not _is_sizes(shape) or len(shape) > MAX_AXES:
        raise ModelFormatError(
            f"{where} has the shape {str(shape)[:80]}, which is none; the file is damaged, download it again"
        )
    if not _is_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise ModelFormatError(f"{where} has data_offsets {str(offsets)[:80]}, which are none; the file is damaged")
    expected = math.prod(shape) * dtype.itemsize
    if offsets[1] - offsets[0] != expected:
        raise ModelFormatError(
            f"{where} of shape {tuple(shape)} and dtype {kind} takes {expected} bytes, "
            f"but {offsets[1] - offsets[0]} are given; the file is damaged"
        )
    return TensorEntry(name, dtype, tuple(shape), data_at + offsets[0], data_at + offsets[1])


def _is_sizes(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(v) is int and 0 <= v < 1 << 62 for v in value)

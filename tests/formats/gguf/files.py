"""GGUF files for tests: written by the gguf package, or byte by byte."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np

Kind = gguf.GGMLQuantizationType


def write(path: Path, metadata: dict[str, Any], tensors: dict[str, np.ndarray], kinds: dict[str, Any] | None = None,
          alignment: int | None = None) -> Path:  # fmt: skip
    """A file with metadata by key and tensors by name, quantised where `kinds` names a type for one."""
    writer = gguf.GGUFWriter(path, metadata.get("general.architecture", "llama"))
    if alignment:
        writer.add_custom_alignment(alignment)
    for key, value in metadata.items():
        if key != "general.architecture":
            writer.add_key_value(key, value, *value_type(value))
    for name, values in tensors.items():
        kind = (kinds or {}).get(name)
        if kind is None:
            writer.add_tensor(name, values)
        else:
            writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def value_type(value: Any) -> tuple[Any, ...]:
    types = gguf.GGUFValueType
    if isinstance(value, list):
        return types.ARRAY, value_type(value[0])[0]
    if isinstance(value, np.generic):
        return (types[{"f": "FLOAT", "i": "INT", "u": "UINT"}[value.dtype.kind] + str(8 * value.itemsize)],)
    usual: dict[type, Any] = {bool: types.BOOL, str: types.STRING, float: types.FLOAT32, int: types.UINT32}
    return (usual[type(value)],)


def text(value: str | bytes) -> bytes:
    data = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(data)) + data


def entry(key: str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def tensor(name: str | bytes, axes: list[int], code: int, offset: int) -> bytes:
    """`axes`: innermost first, as in the file."""
    return text(name) + struct.pack(f"<I{len(axes)}QIQ", len(axes), *axes, code, offset)


def raw(path: Path, entries: Sequence[bytes] = (), tensors: Sequence[bytes] = (), data: bytes = b"", version: int = 3,
        counts: tuple[int, int] | None = None) -> Path:  # fmt: skip
    """A file of these bytes, whatever they say."""
    head = b"GGUF" + struct.pack("<IQQ", version, *(counts or (len(tensors), len(entries))))
    head += b"".join(entries) + b"".join(tensors)
    path.write_bytes(head + bytes(-len(head) % 32) + data)
    return path

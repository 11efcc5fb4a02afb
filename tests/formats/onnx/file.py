"""Writes ONNX files for tests: the few fields of Protocol Buffers that hold weights and metadata."""

from collections.abc import Iterable, Mapping

import numpy as np

KINDS = {np.dtype("float32"): 1, np.dtype("int64"): 7, np.dtype("float16"): 10, np.dtype("float64"): 11}


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def field(number: int, content: bytes | int) -> bytes:
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 2) + varint(len(content)) + content


def tensor(name: str, values: np.ndarray, raw: bool = True) -> bytes:
    shape = b"".join(field(1, n) for n in values.shape)
    data = field(9 if raw else 4, np.ascontiguousarray(values).tobytes())
    return shape + field(2, KINDS[values.dtype]) + field(8, name.encode()) + data


def renamed(original: str, name: str) -> bytes:
    return field(1, original.encode()) + field(2, name.encode()) + field(4, b"Identity")


def onnx_model(
    weights: Mapping[str, np.ndarray], metadata: Mapping[str, str], names: Iterable[tuple[str, str]] = (),
    raw: bool = True,
) -> bytes:  # fmt: skip
    graph = b"".join(field(1, renamed(*pair)) for pair in names)
    graph += b"".join(field(5, tensor(name, values, raw)) for name, values in weights.items())
    texts = (field(1, k.encode()) + field(2, v.encode()) for k, v in metadata.items())
    return field(1, 9) + field(7, graph) + b"".join(field(14, text) for text in texts)

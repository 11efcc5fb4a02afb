"""Reading safetensors files: every type, and files that lie about themselves."""

import json
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tinyweb.errors import ModelFormatError
from tinyweb.formats.safetensors import MAX_HEADER, SafetensorsFile


def write(path: Path, header: Any, data: bytes = b"", length: int | None = None) -> Path:
    """A file with the given header (JSON or raw bytes) and data, whatever they say."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + data)
    return path


def item(begin: int, end: int, shape: list[int], dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def folder(path: Path) -> Path:
    path.mkdir()
    return path


TYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.bool, torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2,
]  # fmt: skip


def test_every_type(tmp_path: Path) -> None:
    values = {str(t): (torch.randn(3, 5) * 3).to(t) for t in TYPES} | {
        "scalar": torch.tensor(2.5),
        "empty": torch.zeros(0, 4),
    }
    save_file(values, tmp_path / "a.safetensors", metadata={"format": "pt"})
    file = SafetensorsFile(tmp_path / "a.safetensors")
    assert set(file.entries) == set(values)
    for name, value in values.items():
        narrow = (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)
        want = value.float().numpy() if value.dtype in narrow else value.numpy()
        got = file.read(name)
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


DAMAGED: list[tuple[str, Callable[[Path], Path], str]] = [
    ("empty file", lambda p: (p.write_bytes(b""), p)[1], "truncated"),
    ("five bytes", lambda p: (p.write_bytes(b"12345"), p)[1], "truncated"),
    ("header beyond the file", lambda p: write(p, {}, length=1 << 40), "truncated"),
    ("largest length", lambda p: write(p, {}, length=(1 << 64) - 1), "truncated"),
    ("not JSON", lambda p: write(p, b"hello, I am no header"), "not JSON"),
    ("not UTF-8", lambda p: write(p, b"\xff\xfe{}"), "not JSON"),
    ("a list", lambda p: write(p, []), "not a JSON object"),
    ("deep nesting", lambda p: write(p, b"[" * 200_000), "not JSON"),
    ("huge number", lambda p: write(p, b'{"a": ' + b"9" * 10_000 + b"}"), "not JSON"),
    ("no description", lambda p: write(p, {"a": 3}), "'a' has no description"),
    ("unknown dtype", lambda p: write(p, {"a": item(0, 4, [4], "F8_E8M0")}, bytes(4)), "'a' has dtype 'F8_E8M0'"),
    ("dtype no string", lambda p: write(p, {"a": {**item(0, 4, [1]), "dtype": ["F32"]}}, bytes(4)), "'a' has dtype"),
    ("negative size", lambda p: write(p, {"a": item(0, 4, [-1])}, bytes(4)), "'a' has the shape"),
    ("fractional size", lambda p: write(p, {"a": {**item(0, 4, []), "shape": [1.0]}}, bytes(4)), "'a' has the shape"),
    ("boolean size", lambda p: write(p, {"a": {**item(0, 4, []), "shape": [True]}}, bytes(4)), "'a' has the shape"),
    ("many axes", lambda p: write(p, {"a": item(0, 4, [1] * 9)}, bytes(4)), "'a' has the shape"),
    ("overflowing shape", lambda p: write(p, {"a": item(0, 4, [1 << 61] * 8)}, bytes(4)), "takes"),
    ("shape and bytes differ", lambda p: write(p, {"a": item(0, 4, [2])}, bytes(4)), "takes 8 bytes, but 4"),
    ("offsets reversed", lambda p: write(p, {"a": item(4, 0, [1])}, bytes(4)), "data_offsets"),
    ("one offset", lambda p: write(p, {"a": {**item(0, 4, [1]), "data_offsets": [0]}}, bytes(4)), "data_offsets"),
    ("negative offset", lambda p: write(p, {"a": item(-4, 0, [1])}, bytes(4)), "data_offsets"),
    ("overlap", lambda p: write(p, {"a": item(0, 8, [2]), "b": item(4, 12, [2])}, bytes(12)), "'b' overlaps"),
    ("gap", lambda p: write(p, {"a": item(0, 4, [1]), "b": item(8, 12, [1])}, bytes(12)), "'b' leaves a gap"),
    ("truncated data", lambda p: write(p, {"a": item(0, 4, [1]), "b": item(4, 12, [2])}, bytes(11)), "'b' ends at"),
    ("bytes left over", lambda p: write(p, {"a": item(0, 4, [1])}, bytes(5)), "1 bytes that belong to no tensor"),
    ("named twice", lambda p: write(p, b'{"a": {}, "a": {}}'), "names a tensor twice"),
    ("a folder", folder, "cannot be read"),
    ("missing", lambda p: p, "cannot be read"),
]


@pytest.mark.parametrize(("make", "message"), [d[1:] for d in DAMAGED], ids=[d[0] for d in DAMAGED])
def test_damaged(tmp_path: Path, make: Callable[[Path], Path], message: str) -> None:
    path = make(tmp_path / "model.safetensors")
    with pytest.raises(ModelFormatError) as error:
        SafetensorsFile(path)
    assert message in str(error.value)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_header_bomb(tmp_path: Path) -> None:
    """A header that claims (and has) gigabytes is refused by its length, before it is read."""
    path = tmp_path / "model.safetensors"
    with path.open("wb") as f:
        f.write(struct.pack("<Q", 8 << 30))
        f.truncate(8 + (8 << 30))  # sparse: takes no disk
    tracemalloc.start()
    with pytest.raises(ModelFormatError, match="beyond the limit"):
        SafetensorsFile(path)
    assert tracemalloc.get_traced_memory()[1] < MAX_HEADER
    tracemalloc.stop()


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    save_file({"a": torch.ones(2, 3), "b": torch.ones(4, dtype=torch.bfloat16)}, tmp_path / "whole")
    whole = (tmp_path / "whole").read_bytes()
    for length in range(len(whole)):
        (tmp_path / "cut").write_bytes(whole[:length])
        with pytest.raises(ModelFormatError):
            SafetensorsFile(tmp_path / "cut")


def test_flipped_bytes_never_escape(tmp_path: Path) -> None:
    """Any changed byte gives the same tensors, other values, or a ModelFormatError; nothing else."""
    save_file({"a": torch.ones(2, 3), "b": torch.ones(4, dtype=torch.float16)}, tmp_path / "whole")
    whole = (tmp_path / "whole").read_bytes()
    random = np.random.default_rng(0)
    refused = 0
    for _ in range(400):
        changed = bytearray(whole)
        changed[random.integers(len(whole) - 32)] = random.integers(256)
        (tmp_path / "changed").write_bytes(changed)
        try:
            file = SafetensorsFile(tmp_path / "changed")
            for name in file.entries:
                file.read(name)
        except ModelFormatError:
            refused += 1
    assert refused > 100


def test_unknown_name(tmp_path: Path) -> None:
    save_file({"a": torch.ones(1)}, tmp_path / "a.safetensors")
    with pytest.raises(ModelFormatError, match="no tensor 'b'"):
        SafetensorsFile(tmp_path / "a.safetensors").read("b")

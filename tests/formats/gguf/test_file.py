"""Reading GGUF files: what the gguf package writes, and files that lie about themselves."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import gguf as package
import numpy as np
import pytest

from tests.formats.gguf.files import Kind, entry, raw, tensor, text, write
from tinyweb.errors import ModelFormatError
from tinyweb.formats import gguf
from tinyweb.formats.gguf import header
from tinyweb.formats.gguf.file import parse

METADATA = {
    "u8": np.uint8(200), "i8": np.int8(-5), "u16": np.uint16(60000), "i16": np.int16(-300), "u32": 4_000_000_000,
    "i32": np.int32(-7), "u64": np.uint64(2**63), "i64": np.int64(-(2**62)), "f32": 0.1, "f64": np.float64(0.1),
    "yes": True, "no": False, "text": "äß€", "empty": "", "texts": ["a", "", "日本"],
    "numbers": [1, 2, 3], "floats": [0.5, -1.5], "flags": [True, False, True],
}  # fmt: skip


def test_what_the_package_writes(tmp_path: Path) -> None:
    values = np.random.randn(3, 4, 64).astype(np.float32)
    tensors = {"f32": values, "f16": values.astype(np.float16), "q8": values, "i32": np.arange(5, dtype=np.int32)}
    tensors |= {"q4": values, "bf16": values, "f64": values.astype(np.float64), "one": np.ones(1, np.float32)}
    kinds = {"q8": Kind.Q8_0, "q4": Kind.Q4_0, "bf16": Kind.BF16}
    path = write(tmp_path / "a.gguf", METADATA, tensors, kinds)
    file = gguf.read(path)
    assert file.version == 3 and file.paths == (path,)
    for key, value in METADATA.items():
        found = file.metadata[key]
        if isinstance(value, list) and not isinstance(value[0], str):
            assert isinstance(found, np.ndarray) and found.tolist() == value
        else:
            assert found == (np.float32(value) if key == "f32" else value) and type(found) in (
                int,
                float,
                bool,
                str,
                list,
            )
    assert file.metadata["general.architecture"] == "llama"
    for part in package.GGUFReader(path).tensors:
        t = file.tensors[part.name]
        assert t.type == part.tensor_type.name and t.shape == tuple(map(int, reversed(part.shape)))
        np.testing.assert_array_equal(t.raw, part.data.view(np.uint8).reshape(-1))
        assert not t.raw.flags.writeable and t.path == path
        if part.tensor_type in (Kind.I32, Kind.F64):
            expected = np.asarray(part.data).astype(np.float32)
        else:
            expected = package.quants.dequantize(part.data, part.tensor_type)
        np.testing.assert_array_equal(t.numpy(), expected.reshape(t.shape))
        assert t.numpy().dtype == np.float32
    assert set(file.tensors) == set(tensors)


@pytest.mark.parametrize("alignment", [8, 32, 64, 4096])
def test_alignment(alignment: int, tmp_path: Path) -> None:
    values = {n: np.random.randn(i + 1, 3).astype(np.float32) for i, n in enumerate("abc")}
    file = gguf.read(write(tmp_path / "a.gguf", {}, values, alignment=alignment))
    for name, value in values.items():
        np.testing.assert_array_equal(file.tensors[name].numpy(), value)


def test_version_2_and_arrays_in_arrays(tmp_path: Path) -> None:
    inner = struct.pack("<IQ", 4, 2) + struct.pack("<II", 7, 8)
    nested = struct.pack("<IQ", 9, 2) + inner + struct.pack("<IQ", 8, 1) + text("x")
    path = raw(tmp_path / "a", [entry("n", 9, nested)], [tensor("t", [2, 3], 0, 0)],
               np.arange(6, dtype=np.float32).tobytes(), version=2)  # fmt: skip
    file = gguf.read(path)
    assert file.version == 2 and file.metadata["n"][0].tolist() == [7, 8] and file.metadata["n"][1] == ["x"]
    assert file.tensors["t"].numpy().tolist() == [[0, 1], [2, 3], [4, 5]]


def test_nothing_is_read_that_is_not_asked_for(tmp_path: Path) -> None:
    """A file of 8 GB whose tensors are holes on the disk."""
    size = 8 << 30
    path = raw(tmp_path / "a", [], [tensor("big", [1 << 20, (size >> 20) - 1], 24, 0), tensor("t", [4], 0, size)])
    with path.open("r+b") as f:
        f.truncate(f.seek(0, 2) + size)
        f.seek(0, 2)
        f.write(np.arange(4, dtype=np.float32).tobytes())
    tracemalloc.start()
    file = gguf.read(path)
    assert file.tensors["t"].numpy().tolist() == [0, 1, 2, 3]
    assert file.tensors["big"].raw.nbytes == size - (1 << 20) and file.tensors["big"].raw[12345] == 0
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


# -- parts -------------------------------------------------------------------------------------------------------------
def parts(folder: Path, count: int = 3, **changes: int) -> list[Path]:
    """A model of `count` parts with one tensor in each."""
    found = []
    for i in range(count):
        metadata = {"split.no": np.uint16(i), "split.count": np.uint16(count), "split.tensors.count": np.int32(count)}
        metadata |= {key.replace("_", "."): np.uint16(v) for key, v in changes.items()}
        if i == 0:
            metadata["general.name"] = "whole"
        path = folder / f"model-{i + 1:05}-of-{count:05}.gguf"
        found.append(write(path, metadata, {f"t{i}": np.full((2, 3), i, np.float32)}))
    return found


def test_parts_are_one(tmp_path: Path) -> None:
    paths = parts(tmp_path)
    for given in paths:
        file = gguf.read(given)
        assert file.paths == tuple(paths) and file.metadata["general.name"] == "whole"
        assert {n: t.numpy()[0, 0] for n, t in file.tensors.items()} == {"t0": 0, "t1": 1, "t2": 2}


def test_damaged_parts(tmp_path: Path) -> None:
    def refuse(path: Path, message: str) -> None:
        with pytest.raises(ModelFormatError, match=message):
            gguf.read(path)

    paths = parts(tmp_path)
    moved = paths[1].rename(tmp_path / "model.gguf")
    refuse(paths[0], "model-00002-of-00003.gguf cannot be read: No such file")
    refuse(moved, r"is one of 3 parts and must be called …-00001-of-00003\.gguf")
    paths[0].with_name("model-00002-of-00003.gguf").write_bytes(paths[0].read_bytes())
    refuse(paths[0], r"model-00002-of-00003\.gguf is not part 2 of 3, as its name says")
    refuse(parts(tmp_path, split_count=5000)[0], "one of 5000 parts, of which 4096 are possible")
    refuse(parts(tmp_path, split_tensors_count=7)[0], "speaks of 7 tensors, its 3 parts hold 3")
    paths = parts(tmp_path)
    metadata = {"split.no": np.uint16(2), "split.count": np.uint16(3)}
    write(paths[2], metadata, {"t0": np.ones((1, 1), np.float32)})
    refuse(paths[0], "holds the tensor 't0', which an earlier part holds as well")
    write(paths[2], {"split.count": "three"}, {})
    refuse(paths[2], "'split.count' must be an integer, found 'three'")


# -- damage ------------------------------------------------------------------------------------------------------------
def array(kind: int, count: int, content: bytes = b"") -> bytes:
    return struct.pack("<IQ", kind, count) + content


F32 = bytes(32)
DAMAGED: list[tuple[str, Callable[[Path], Path], str]] = [
    ("missing", lambda p: p, "cannot be read: No such file"),
    ("a folder", lambda p: p.parent, "cannot be read"),
    ("empty", lambda p: (p.write_bytes(b""), p)[1], "is empty"),
    ("three bytes", lambda p: (p.write_bytes(b"GGU"), p)[1], "truncated or damaged: its first bytes"),
    ("another format", lambda p: (p.write_bytes(b"PK\3\4" + bytes(99)), p)[1], "is no GGUF file"),
    ("big-endian", lambda p: (p.write_bytes(b"GGUF" + struct.pack(">IQQ", 3, 0, 0)), p)[1], "for big-endian machines"),
    ("version 1", lambda p: raw(p, version=1), "GGUF file of version 1, known are 2 and 3"),
    ("version 0", lambda p: raw(p, version=0), "GGUF file of version 0, known are 2 and 3"),
    ("version 4", lambda p: raw(p, version=4), "GGUF file of version 4, known are 2 and 3"),
    ("many tensors", lambda p: raw(p, counts=(1 << 63, 0)), f"claims {1 << 63} tensors and 0 entries of metadata"),
    ("much metadata", lambda p: raw(p, counts=(0, (1 << 64) - 1)), "tensors and 18446744073709551615 entries"),
    ("tensors missing", lambda p: raw(p, counts=(5, 0)), "truncated or damaged"),
    ("metadata missing", lambda p: raw(p, counts=(0, 5)), "truncated or damaged"),
    ("long key", lambda p: raw(p, [struct.pack("<Q", 1 << 62)]), "a metadata key at byte 32 takes"),
    ("longer key", lambda p: raw(p, [text("k" * 65537)]), "a metadata key of 65537 bytes, of which 65536"),
    ("key no text", lambda p: raw(p, [text(b"\xff\xfe") + bytes(32)]), "a metadata key that is not UTF-8"),
    ("same key", lambda p: raw(p, [entry("k", 0, b"1"), entry("k", 0, b"2")]), "has the metadata 'k' twice"),
    ("unknown type", lambda p: raw(p, [entry("k", 13, b"")]), "metadata 'k' of type 13, which is not known"),
    ("neither 0 nor 1", lambda p: raw(p, [entry("k", 7, b"\2")]), "'k' of type bool that is neither 0 nor 1"),
    ("such an array", lambda p: raw(p, [entry("k", 9, array(7, 2, b"\1\3"))]), "bool that is neither 0 nor 1"),
    ("text beyond", lambda p: raw(p, [entry("k", 8, struct.pack("<Q", 1 << 40))]), "the metadata 'k' at byte"),
    ("text no text", lambda p: raw(p, [entry("k", 8, text(b"\x80"))]), "has the metadata 'k' that is not UTF-8 text"),
    ("array beyond", lambda p: raw(p, [entry("k", 9, array(12, 1 << 60))]), "the array 'k' at byte"),
    ("array of nothing", lambda p: raw(p, [entry("k", 9, array(99, 1))]), "an array of type 99, which is not known"),
    ("texts beyond", lambda p: raw(p, [entry("k", 9, array(8, 1 << 21))]), "the array 'k' at byte"),
    ("many texts", lambda p: raw(p, [entry("k", 9, array(8, 1 << 63))]), "more than 4194304 texts and arrays"),
    ("deep", lambda p: raw(p, [entry("k", 9, array(9, 1) * 9)]), "arrays in arrays more than 4 deep"),
    ("alignment 0", lambda p: raw(p, [entry("general.alignment", 4, bytes(4))]), "'general.alignment' 0, not a power"),
    ("alignment 24", lambda p: raw(p, [entry("general.alignment", 4, b"\x18\0\0\0")]), "alignment' 24, not a power"),
    ("alignment true", lambda p: raw(p, [entry("general.alignment", 7, b"\1")]), "alignment' True, not a power"),
    ("alignment high", lambda p: raw(p, [entry("general.alignment", 4, b"\0\0\0\x40")]), "not a power of two up to"),
    ("nine axes", lambda p: raw(p, [], [tensor("t", [1] * 9, 0, 0)], F32), "'t' of 9 axes, of which 8 are possible"),
    ("axes beyond", lambda p: raw(p, [], [text("t") + struct.pack("<I", 0xFFFFFFFF)]), "'t' of 4294967295 axes"),
    ("a shape that is none", lambda p: raw(p, [], [tensor("t", [0, 1 << 63], 0, 0)], F32), "which is none"),
    ("unknown tensors", lambda p: raw(p, [], [tensor("t", [4], 99, 0)], F32), "'t' of type 99, which is not supported"),
    ("old tensors", lambda p: raw(p, [], [tensor("t", [4], 4, 0)], F32), r"type 4 \(Q4_2, which files no longer hold"),
    ("half a block", lambda p: raw(p, [], [tensor("t", [48], 2, 0)], F32), "rows of 48 numbers, Q4_0 needs a multiple"),
    ("same name", lambda p: raw(p, [], [tensor("t", [4], 0, 0)] * 2, F32), "names the tensor 't' twice"),
    ("offset", lambda p: raw(p, [], [tensor("t", [4], 0, 4)], F32), "at offset 4, which is no multiple of 32"),
    ("overlap", lambda p: raw(p, [], [tensor("a", [9], 0, 0), tensor("b", [8], 0, 32)], F32 * 2), "'b' overlapping"),
    ("beyond", lambda p: raw(p, [], [tensor("t", [9], 0, 0)], F32), "is truncated: tensor 't' ends at byte"),
    ("far beyond", lambda p: raw(p, [], [tensor("t", [1 << 60], 0, 0)], F32), "is truncated: tensor 't' ends at byte"),
    ("offset far", lambda p: raw(p, [], [tensor("t", [1], 0, (1 << 64) - 32)], F32), "truncated: tensor 't' ends"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), [d[1:] for d in DAMAGED], ids=[d[0] for d in DAMAGED])
def test_damaged(tmp_path: Path, make: Callable[[Path], Path], message: str) -> None:
    path = make(tmp_path / "model.gguf")
    with pytest.raises(ModelFormatError, match=message) as error:
        gguf.read(path)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_limits_are_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exactly that much is read."""
    monkeypatch.setattr(header, "MAX_ITEMS", 3)
    deepest = array(9, 1) * 3 + array(0, 1, b"\7")
    names = [entry("k" * (1 << 16), 0, b"1"), entry("general.alignment", 4, struct.pack("<I", 1 << 24))]
    file = gguf.read(raw(tmp_path / "a", [*names, entry("deep", 9, deepest)]))
    assert np.asarray(file.metadata["deep"]).shape == (1, 1, 1, 1)
    shape = [2, *[1] * 7]
    file = gguf.read(raw(tmp_path / "a", [], [tensor("t", shape, 0, 0), tensor("none", [0], 0, 32)], F32))
    assert file.tensors["t"].shape == (1, 1, 1, 1, 1, 1, 1, 2) and file.tensors["none"].numpy().shape == (0,)
    assert file.tensors["t"].numpy().shape == file.tensors["t"].shape
    with pytest.raises(ModelFormatError, match="more than 3 texts and arrays, with 'k'"):
        gguf.read(raw(tmp_path / "a", [entry("deep", 9, deepest), entry("k", 9, array(8, 1, text("")))]))


def test_claims_cost_nothing(tmp_path: Path) -> None:
    """Lengths are compared with the file before memory is taken for them."""
    claims = [array(kind, count) for kind in (0, 6, 7, 8, 9, 10) for count in (1 << 22, 1 << 33, (1 << 64) - 1)]
    paths = [raw(tmp_path / f"{i}", [entry("k", 9, claim)]) for i, claim in enumerate(claims)]
    tracemalloc.start()
    for path in paths:
        with pytest.raises(ModelFormatError):
            gguf.read(path)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def whole_file(path: Path) -> bytes:
    """A small file that has one of everything."""
    values = np.arange(96, dtype=np.float32).reshape(3, 32) / 7
    tensors = {"a": values, "b": values, "c": values.astype(np.float16), "d": np.arange(3, dtype=np.int32)}
    return write(path, METADATA, tensors, {"b": Kind.Q8_0}).read_bytes()


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    whole = whole_file(tmp_path / "whole")
    end = max(e.end for e in header.read_header(tmp_path, memoryview(whole)).tensors.values())
    for length in range(end):
        with pytest.raises(ModelFormatError):
            parse(tmp_path / "cut", memoryview(whole[:length]))

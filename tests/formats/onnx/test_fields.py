"""ONNX files field by field: every type of number, wire types, limits, and what is passed over."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from tests.formats.onnx.file import field, onnx_model, varint
from tinyweb.errors import ModelFormatError
from tinyweb.formats.onnx import weights as onnx_weights
from tinyweb.formats.onnx.weights import OnnxWeights

NO_MODEL = "no ONNX model, or damaged"
NO_WEIGHT = "of a kind that is no weight's, or damaged"
FOUR = np.arange(4, dtype=np.float32)


def weights(path: Path, content: bytes) -> OnnxWeights:
    (path / "x.onnx").write_bytes(content)
    return OnnxWeights(path / "x.onnx")


def model(*tensors: bytes, before: bytes = b"", after: bytes = b"") -> bytes:
    return field(7, before + b"".join(field(5, t) for t in tensors) + after)


def tensor(data: bytes, *shape: int, kind: int = 1, name: bytes = b"a") -> bytes:
    return b"".join(field(1, n) for n in shape) + field(2, kind) + field(8, name) + data


def raw(values: np.ndarray) -> bytes:
    return field(9, values.tobytes())


def double_tag(number: int) -> bytes:
    return varint(number << 3 | 1)


def float_tag(number: int) -> bytes:
    return varint(number << 3 | 5)


def refuse(path: Path, content: bytes, message: str) -> None:
    with pytest.raises(ModelFormatError, match=message):
        weights(path, content).read("a", (4,))


KINDS = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 9: "bool", 10: "float16",
    11: "float64",
}  # fmt: skip


def test_every_kind_of_number(tmp_path: Path) -> None:
    for kind, dtype in KINDS.items():
        values = np.array([[1, 0], [1, 1], [0, 1]], dtype)
        found = weights(tmp_path, model(tensor(raw(values), 3, 2, kind=kind)))
        assert found.shape("a") == (3, 2)
        if "float" in dtype:
            got = found.read("a", (3, 2))
            assert got.dtype == dtype
            np.testing.assert_array_equal(got, values)
        else:
            with pytest.raises(ModelFormatError, match=f"'a' holds {dtype}, weights must be floating point"):
                found.read("a", (3, 2))
    bits = np.array([0x3F80, 0xC000], np.uint16)
    got = weights(tmp_path, model(tensor(raw(bits), 2, kind=16))).read("a", (2,))
    assert got.dtype == np.float32 and got.tolist() == [1.0, -2.0]
    for unknown in (0, 8, 12, 15, 17, 23):
        found = weights(tmp_path, model(tensor(raw(FOUR), 4, kind=unknown)))
        assert found.shape("a") == (-1,)
        with pytest.raises(ModelFormatError, match=NO_WEIGHT):
            found.read("a", (-1,))


def test_numbers_that_are_not_raw(tmp_path: Path) -> None:
    """Field 4 for float, 10 for double: packed, in runs, or one by one; raw bytes count where there are both."""
    doubles = FOUR.astype(np.float64)
    singly = b"".join(float_tag(4) + struct.pack("<f", v) for v in FOUR)
    doubly = b"".join(double_tag(10) + struct.pack("<d", v) for v in FOUR)
    for kind, data in {
        1: [field(4, FOUR.tobytes()), field(4, FOUR[:1].tobytes()) + field(4, FOUR[1:].tobytes()), singly,
            field(4, bytes(16)) + raw(FOUR), raw(FOUR) + field(4, bytes(16)), field(10, bytes(32)) + singly],
        11: [field(10, doubles.tobytes()), doubly, raw(doubles), field(4, bytes(32)) + doubly],
    }.items():  # fmt: skip
        for d in data:
            got = weights(tmp_path, model(tensor(d, 4, kind=kind))).read("a", (4,))
            assert got.dtype == (np.float32 if kind == 1 else np.float64)
            np.testing.assert_array_equal(got, FOUR)
    for wrong in (tensor(field(10, bytes(16)), 4), tensor(field(4, bytes(32)), 4, kind=11), tensor(field(4, 5), 4),
                  tensor(field(4, bytes(8)), 4, kind=10)):  # fmt: skip
        found = weights(tmp_path, model(wrong))
        with pytest.raises(ModelFormatError, match=NO_WEIGHT):
            found.read("a", (-1,))


def test_shapes(tmp_path: Path) -> None:
    packed = field(1, varint(2) + varint(300)) + field(2, 10) + field(8, b"a") + field(9, bytes(1200))
    assert weights(tmp_path, model(packed)).shape("a") == (2, 300)
    mixed = field(1, 3) + field(1, varint(2) + varint(1)) + field(2, 1) + field(8, b"a") + field(9, bytes(24))
    assert weights(tmp_path, model(mixed)).shape("a") == (3, 2, 1)
    shape: tuple[int, ...]
    for shape in ((1,) * 8, (0,), (4, 0), (1 << 40, 0)):
        size = int(np.prod(shape)) * 4
        assert weights(tmp_path, model(tensor(field(9, bytes(size)), *shape))).shape("a") == shape
    assert weights(tmp_path, model(tensor(field(9, bytes(4))))).read("a", ()).shape == ()
    for shape in ((1,) * 9, ((1 << 40) + 1, 0), (0, 1 << 41)):
        refuse(tmp_path, model(tensor(field(9, b""), *shape)), NO_MODEL)
    # a size that is no number is passed over: the numbers left are too many then
    assert weights(tmp_path, model(float_tag(1) + bytes(4) + tensor(raw(FOUR), 4))).read("a", (4,))[3] == 3
    for size in (15, 17, 0):
        assert weights(tmp_path, model(tensor(field(9, bytes(size)), 4))).shape("a") == (-1,)


def test_the_last_raw_bytes_count(tmp_path: Path) -> None:
    assert weights(tmp_path, model(tensor(field(9, bytes(3)) + raw(FOUR), 4))).read("a", (4,))[1] == 1


def test_what_is_none_of_ours_is_passed_over(tmp_path: Path) -> None:
    """Fields of every wire type and of unknown numbers, in the model, in its graph, and in a tensor."""
    extra = b"".join(
        varint(n << 3 | wire) + content
        for n in (3, 6, 11, 12, 13, 15, 16, 100, 1 << 20)
        for wire, content in ((0, varint(7)), (1, bytes(8)), (2, varint(3) + b"abc"), (5, bytes(4)))
    )
    graph = model(extra + tensor(raw(FOUR), 4) + extra, before=extra, after=extra)
    found = weights(tmp_path, extra + graph + field(14, extra + field(1, b"k") + field(2, b"v")) + extra)
    np.testing.assert_array_equal(found.read("a", (4,)), FOUR)
    assert list(found) == ["a"] and found.metadata == {"k": "v"}
    # numbers of ours in another wire type are passed over, too
    other = b"".join(varint(n << 3 | 1) + bytes(8) for n in (2, 7, 8, 9, 14))
    named = b"".join(field(n, 3) for n in (7, 8, 9)) + field(2, b"xx")
    found = weights(tmp_path, other + field(7, 1) + field(14, 1) + model(
        other + named + tensor(raw(FOUR), 4) + other + named, before=other + field(5, 1) + field(1, 1)))  # fmt: skip
    np.testing.assert_array_equal(found.read("a", (4,)), FOUR)
    assert found.metadata == {}


def test_names_and_their_twins(tmp_path: Path) -> None:
    """An Identity gives an initializer a second name; other operators, and names that are taken, do not."""

    def node(source: bytes, name: bytes, kind: bytes) -> bytes:
        passed = field(3, b"Add") + field(1, 7) + field(2, 7) + field(4, 7)  # numbers are no names
        return field(1, field(1, source) + field(2, name) + field(4, kind) + passed)

    twins = node(b"a", b"b", b"Identity") + node(b"a", b"c", b"Add") + node(b"b", b"d", b"Identity")
    twins += node(b"z", b"e", b"Identity") + node(b"a", b"f", b"Identity")
    other = tensor(raw(FOUR + 1), 4, name=b"f")
    for content in (model(tensor(raw(FOUR), 4), other, before=twins), model(tensor(raw(FOUR), 4), other, after=twins)):
        found = weights(tmp_path, content)
        assert sorted(found) == ["a", "b", "d", "f"]
        assert found.read("b", (4,)).tolist() == [0, 1, 2, 3] and found.read("f", (4,)).tolist() == [1, 2, 3, 4]
    unnamed = field(1, field(4, b"Identity") + field(1, b"a"))
    assert sorted(weights(tmp_path, model(tensor(raw(FOUR), 4), after=unnamed))) == ["", "a"]
    assert weights(tmp_path, model(field(1, 4) + field(2, 1) + raw(FOUR))).read("", (4,))[2] == 2


def test_metadata(tmp_path: Path) -> None:
    good = model(tensor(raw(FOUR), 4))
    entries = field(14, field(2, b"v") + field(1, b"k")) + field(14, field(1, b"only")) + field(14, field(2, b"x"))
    entries += field(14, field(1, b"\xff") + field(2, b"") + field(3, b"?"))
    assert weights(tmp_path, good + entries).metadata == {"k": "v", "only": "", "": "x", "\ufffd": ""}
    longest = field(14, field(1, b"k") + field(2, b"v" * (1 << 20)))
    assert len(weights(tmp_path, longest + good).metadata["k"]) == 1 << 20
    refuse(tmp_path, field(14, field(1, b"k") + field(2, b"v" * ((1 << 20) + 1))) + good, NO_MODEL)


def test_numbers_of_variable_length(tmp_path: Path) -> None:
    """Ten bytes at most; up to 2⁷⁰ − 1 is read, and a number is cut off by the end of its message."""
    good = model(tensor(raw(FOUR), 4))
    for value in (0, 1, 127, 128, 16383, 16384, (1 << 63) - 1, (1 << 70) - 1):
        assert list(weights(tmp_path, field(1, value) + good)) == ["a"]
    padded = tensor(raw(FOUR), 4).replace(field(2, 1), b"\x10\x81\x80\x00")
    assert weights(tmp_path, model(padded)).read("a", (4,))[3] == 3
    cut = field(7, field(5, b"\x08\x80")) + b"\1"
    for damaged in (b"\x08" + b"\x80" * 10 + b"\0", b"\x08\x80", b"\x08", b"\x80", cut):
        refuse(tmp_path, good + damaged, NO_MODEL)


def test_every_damage_of_a_field(tmp_path: Path) -> None:
    good = model(tensor(raw(FOUR), 4))
    for damaged in (
        b"\0\0", b"\7", b"\3", b"\4",  # no field has the number 0; nor any of a group
        varint(15 << 3 | 3), varint(15 << 3 | 4), varint(15 << 3 | 6), varint(15 << 3 | 7),
        varint(15 << 3 | 1) + bytes(7), varint(15 << 3 | 5) + bytes(3), varint(15 << 3 | 2) + b"\x05abcd",
    ):  # fmt: skip
        refuse(tmp_path, good + damaged, NO_MODEL)
    for fits in (varint(15 << 3 | 1) + bytes(8), varint(15 << 3 | 5) + bytes(4), varint(15 << 3 | 2) + b"\x04abcd",
                 varint(15 << 3 | 2) + b"\0", b"\x08\1"):  # fmt: skip
        assert list(weights(tmp_path, good + fits)) == ["a"]
        with pytest.raises(ModelFormatError, match=NO_MODEL):
            weights(tmp_path, (good + fits)[:-1])
    inner = tensor(raw(FOUR), 4)
    for cut in range(1, len(inner)):
        try:
            found = weights(tmp_path, model(inner[:cut]))
        except ModelFormatError as e:
            assert NO_MODEL in str(e)
        else:
            assert found.shape(next(iter(found))) == (-1,)


def test_weights_in_another_file(tmp_path: Path) -> None:
    assert weights(tmp_path, model(tensor(field(14, 0) + raw(FOUR), 4))).read("a", (4,))[1] == 1
    assert weights(tmp_path, model(tensor(field(14, 2) + raw(FOUR), 4))).read("a", (4,))[1] == 1
    refuse(tmp_path, model(tensor(field(14, 1) + raw(FOUR), 4)), "keeps its weights in another file: export it as one")


def test_as_many_fields_as_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fields of all levels count together: two of the model, one of its graph, four of the tensor."""
    assert onnx_weights.MAX_FIELDS == 1_000_000
    content = onnx_model({"a": FOUR}, {})
    fields = 2 + 1 + 4
    monkeypatch.setattr(onnx_weights, "MAX_FIELDS", fields)
    assert list(weights(tmp_path, content)) == ["a"]
    monkeypatch.setattr(onnx_weights, "MAX_FIELDS", fields - 1)
    refuse(tmp_path, content, NO_MODEL)

"""Weights out of ONNX files; damaged ones are refused in a sentence."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.formats.onnx.file import field, onnx_model
from tinyweb.errors import ModelFormatError
from tinyweb.formats.onnx.weights import OnnxWeights

WEIGHTS: dict[str, np.ndarray] = {
    "a.weight": np.arange(24, dtype=np.float32).reshape(2, 3, 4),
    "half": np.linspace(-1, 1, 5).astype(np.float16),
    "double": np.array(2.5),
    "shape": np.array([1, -1], np.int64),
}


def test_read(tmp_path: Path) -> None:
    path = tmp_path / "x.onnx"
    path.write_bytes(onnx_model(WEIGHTS, {"names": "{0: 'ä'}"}, [("half", "b.bias")]))
    found = OnnxWeights(path)
    for name in ("a.weight", "half", "double"):
        got = found.read(name, WEIGHTS[name].shape)
        assert got.dtype == WEIGHTS[name].dtype
        np.testing.assert_array_equal(got, WEIGHTS[name])
    np.testing.assert_array_equal(found.read("b.bias", (5,)), WEIGHTS["half"])
    assert found.metadata == {"names": "{0: 'ä'}"}
    with pytest.raises(ModelFormatError, match="'shape' holds int64, weights must be floating point"):
        found.read("shape", (2,))
    path.write_bytes(onnx_model({"a": WEIGHTS["a.weight"]}, {}, raw=False))
    np.testing.assert_array_equal(OnnxWeights(path).read("a", (2, 3, 4)), WEIGHTS["a.weight"])


def test_refused(tmp_path: Path) -> None:
    def refuse(content: bytes, message: str) -> None:
        (tmp_path / "x.onnx").write_bytes(content)
        with pytest.raises(ModelFormatError, match=message):
            OnnxWeights(tmp_path / "x.onnx").read("a", (2,))

    refuse(b"", "no ONNX model, or damaged")
    refuse(b"GGUF" * 10, "no ONNX model, or damaged")
    refuse(onnx_model({}, {"a": "b"}), "holds no weights")
    refuse(onnx_model(WEIGHTS, {})[:-9], "no ONNX model, or damaged")
    huge = field(1, 1 << 39) + field(2, 1) + field(8, b"a") + field(9, bytes(8))
    refuse(field(7, field(5, huge)), r"has shape \(-1,\)")  # more than it has bytes for
    elsewhere = field(1, 2) + field(2, 1) + field(8, b"a") + field(14, 1)
    refuse(field(7, field(5, elsewhere)), "keeps its weights in another file")
    with pytest.raises(ModelFormatError, match="cannot be read: No such file"):
        OnnxWeights(tmp_path / "none.onnx")


def test_any_damage_is_refused_or_read(tmp_path: Path) -> None:
    outcomes: Counter[bool] = Counter()
    with_damage(tmp_path / "damaged.onnx", outcomes)
    assert min(outcomes[True], outcomes[False]) >= 5, outcomes


@settings(max_examples=100)
@given(data=st.data())
def with_damage(path: Path, outcomes: Counter[bool], data: st.DataObject) -> None:
    floats = {name: array for name, array in WEIGHTS.items() if name != "shape"}
    changed = bytearray(onnx_model(floats, {"k": "v"}, [("half", "b.bias")]))
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(changed)
    try:
        found = OnnxWeights(path)
        for name in found:
            found.read(name, found.shape(name))
        outcomes[True] += 1
    except ModelFormatError:
        outcomes[False] += 1

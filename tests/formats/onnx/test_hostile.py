"""Graphs made to do harm end in one sentence: soon, in little memory, with nothing executed and no other file read."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.formats.onnx.file import field
from tests.formats.onnx.test_model import model
from tests.fuzz.watched import bounded, watched
from tinyweb import Tensor
from tinyweb.errors import ModelFormatError
from tinyweb.formats.onnx import OnnxModel
from tinyweb.formats.onnx.report import report

node, value = helper.make_node, helper.make_tensor_value_info
FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
FAR, MANY = 1 << 62, r"more than there is room for"
MARKUP = "<script>alert(1)</script>`${x}`{{7*7}}[/bold]\n*/"


def whole(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def one(operator: str, *inputs: str, held: dict[str, Any] | None = None, shape: Any = (3,), **options: Any) -> bytes:
    """A graph of one node, of which an input is x."""
    made = node(operator, inputs, ["y"], **options)
    return model([made], {"x": list(shape)}, {"y": None}, held or {}).SerializeToString()


def chain(operator: str, count: int, first: str = "x", held: dict[str, Any] | None = None, **options: Any) -> bytes:
    """Each node reads twice what the one before it makes."""
    names = [first, *(f"t{i}" for i in range(1, count)), "y"]
    nodes = [node(operator, [a, a], [b], **options) for a, b in itertools.pairwise(names)]
    return model(nodes, {"x": [3]}, {"y": None}, held or {}).SerializeToString()


def loop(count: int, step: str, **options: Any) -> bytes:
    """A loop that goes on as long as it is told."""
    inner = [node(step, ["s", "s"], ["s2"], **options), node("Identity", ["c"], ["c2"])]
    body = helper.make_graph(
        inner, "b", [value("i", INT, []), value("c", BOOL, []), value("s", FLOAT, None)],
        [value("c2", BOOL, []), value("s2", FLOAT, None)],
    )  # fmt: skip
    made = node("Loop", ["n", "", "x"], ["y"], body=body, name="long")
    return model([made], {"x": [3]}, {"y": None}, {"n": np.int64(count)}).SerializeToString()


def functions(calls: dict[str, list[str]]) -> bytes:
    """Functions by name, with those that each calls, one after the other."""
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    made = []
    for name, inner in calls.items():
        between = ["a", *(f"t{i}" for i in range(1, len(inner))), "b"]
        nodes = [node(f, [p], [q], domain="own") for f, p, q in zip(inner, between, between[1:])]
        made.append(helper.make_function("own", name, ["a"], ["b"], nodes or [node("Neg", ["a"], ["b"])], imports))
    first = node(next(iter(calls)), ["x"], ["y"], domain="own")
    return model([first], {"x": [3]}, {"y": None}, functions=made).SerializeToString()


def nested(depth: int) -> bytes:
    """Ifs within Ifs, as bytes: nothing writes so many."""
    graph = b""
    for _ in range(depth):
        branch = field(1, b"then_branch") + field(20, 5) + field(6, graph)
        graph = field(1, field(1, b"c") + field(2, b"y") + field(4, b"If") + field(5, branch))
    return field(1, 9) + field(7, graph) + field(8, field(2, 18))


def circle() -> bytes:
    return model(
        [node("Add", ["x", "q"], ["p"]), node("Neg", ["p"], ["q"])], {"x": [3]}, {"q": None}
    ).SerializeToString()


def declared(*dims: int) -> bytes:
    """An initializer with such a shape, and one number."""
    m = model([node("Add", ["x", "w"], ["y"])], {"x": [3]}, {"y": None}, {"w": np.ones(1, np.float32)})
    m.graph.initializer[0].dims[:] = dims
    return m.SerializeToString()


def elsewhere(location: str) -> bytes:
    """An initializer in another file."""
    m = model([node("Add", ["x", "w"], ["y"])], {"x": [3]}, {"y": None}, {"w": np.ones(3, np.float32)})
    w = m.graph.initializer[0]
    w.ClearField("raw_data")
    w.data_location = TensorProto.EXTERNAL
    w.external_data.add(key="location", value=location)
    return m.SerializeToString()


def typed(kind: int) -> bytes:
    m = model([node("Add", ["x", "w"], ["y"])], {"x": [3]}, {"y": None}, {"w": np.ones(3, np.float32)})
    m.graph.initializer[0].data_type = kind
    return m.SerializeToString()


TWICE = {f"f{i}": [f"f{i + 1}"] * 2 for i in range(28)} | {"f28": []}
CASES: dict[str, tuple[Callable[[], bytes], str]] = {
    "a circle": (circle, "nodes wait for each other in a circle"),
    "a missing initializer": (lambda: one("Add", "x", "none"), "'none', which is no input, no initializer"),
    "wrong types": (lambda: one("Add", "x", "k", held={"k": whole(1, 2, 3)}), "the operands are float32 and int64"),
    "a type there is not": (lambda: typed(77), "type 77"),
    "another type than its bytes": (lambda: typed(TensorProto.DOUBLE), "has 12 bytes, double of shape .3. takes 24"),
    "dims beyond all": (lambda: declared(FAR, FAR), "no possible shape"),
    "dims beyond its bytes": (lambda: declared(1 << 20, 1 << 10), "has 4 bytes"),
    "dims below 0": (lambda: declared(-1), "no possible shape"),
    "a function that calls itself": (lambda: functions({"f": ["f"]}), "call each other more than 32 deep"),
    "functions in a ring": (lambda: functions({"f": ["g"], "g": ["f"]}), "call each other more than 32 deep"),
    "functions that double": (lambda: functions(TWICE), "more than 262144 nodes"),
    "a loop of 2**63 steps": (lambda: loop((1 << 63) - 1, "Add"), r"long \(Loop\): the loop has more than 65536"),
    "conditions 10,000 deep": (lambda: nested(10_000), "is no ONNX model, or damaged"),
    "conditions 20 deep": (lambda: nested(20), "'c', which is no input"),
    "another folder": (lambda: elsewhere("../secret"), "outside of the model's folder"),
    "a link out of the folder": (lambda: elsewhere("link"), "outside of the model's folder"),
    "a folder by link": (lambda: elsewhere("beyond/secret"), "outside of the model's folder"),
    "a device": (lambda: elsewhere("/dev/zero"), "outside of the model's folder"),
    "a folder as data": (lambda: elsewhere("inner"), "cannot be read"),
    "a pipe as data": (lambda: elsewhere("pipe"), "it is no file"),
    "a name with a zero": (lambda: elsewhere("a\0b"), "no name of a file"),
    "ones without end": (lambda: one("ConstantOfShape", "s", held={"s": whole(1 << 20, 1 << 20)}), MANY),
    "a range without end": (lambda: one("Range", "a", "b", "c", held={
        "a": np.int64(0), "b": np.int64(FAR), "c": np.int64(1)}), MANY),
    "an endless mirror": (lambda: one("Pad", "x", "p", held={"p": whole(1 << 40, 0)}, mode="reflect"), MANY),
    "a picture without end": (lambda: one("Resize", "x", "", "s", held={"s": np.float32([1e18])}), MANY),
    "a scale that is no number": (lambda: one("Resize", "x", "", "s", held={"s": np.float32([np.nan])}), "NaN"),
    "a window without end": (lambda: one("HannWindow", "n", held={"n": np.int64(1 << 40)}), MANY),
    "repeated without end": (lambda: one("Tile", "k", "t", held={"k": whole(1, 2), "t": whole(1 << 40)}), MANY),
    "doubled again and again": (lambda: chain("Concat", 60, "k", {"k": np.ones(1024, np.float32)}, axis=0), MANY),
    "an outer product": (lambda: model(
        [node("Unsqueeze", ["k", "i"], ["u"]), node("Unsqueeze", ["k", "j"], ["v"]), node("Add", ["u", "v"], ["y"])],
        {"x": [3]}, {"y": None}, {"k": np.ones(1 << 17, np.float32), "i": whole(0), "j": whole(1)},
    ).SerializeToString(), MANY),
    "an eye without end": (lambda: model(
        [node("ConstantOfShape", ["s"], ["c"]), node("EyeLike", ["c"], ["y"])], {"x": [3]}, {"y": None},
        {"s": whole(1 << 14, 1 << 14)}).SerializeToString(), MANY),
    "parts without end": (lambda: one("Split", "x", num_outputs=FAR), "num_outputs does not go with 1"),
    "regions without end": (lambda: one("MaxRoiPool", "x", "r", held={"r": np.zeros((4, 5), np.float32)},
                                        shape=(1, 1, 4, 4), pooled_shape=[1 << 20, 1 << 20]), "maxima, more than"),
    "a region without end": (lambda: one("RoiAlign", "x", "r", "b", held={
        "r": np.float32([[0, 0, 1e30, 1e30]]), "b": whole(0)}, shape=(1, 1, 4, 4)), MANY),
    "known regions without end": (lambda: one("RoiAlign", "x", "r", "b", held={
        "r": np.zeros((1 << 13, 4), np.float32), "b": np.zeros(1 << 13, np.int64)}, shape=(1, 1, 4, 4)),
        "8192 regions are known, more than 4096"),
    "regions of fewer pictures": (lambda: one("RoiAlign", "x", "r", "b", held={
        "r": np.zeros((2, 4), np.float32), "b": whole(0)}, shape=(1, 1, 4, 4)), "RoiAlign"),
    "samples without end": (lambda: model(
        [node("Reshape", ["x", "s"], ["r"]), node("RoiAlign", ["x", "r", "b"], ["y"], sampling_ratio=FAR)],
        {"x": [1, 1, 4, 4]}, {"y": None}, {"s": whole(4, 4), "b": whole(0, 0, 0, 0)}).SerializeToString(), MANY),
    "a kernel of nothing": (lambda: one("Conv", "x", "w", held={"w": np.ones((0, 0, 0), np.float32)},
                                        shape=(1, 1, 4)), r"kernel \[0\]"),
    "groups of nothing": (lambda: one("Conv", "x", "w", held={"w": np.ones((1, 1, 3), np.float32)}, shape=(1, 1, 4),
                                      group=0), "groups must be at least 1"),
    "blocks of nothing": (lambda: one("DepthToSpace", "x", shape=(1, 4, 2, 2), blocksize=0), "blocks of 0"),
    "texts doubled again and again": (lambda: chain("StringConcat", 60, "k", {"k": np.array(["a" * 9], object)}), MANY),
    "a pattern that goes back for ever": (lambda: one("RegexFullMatch", "k", pattern="a*" * 9 + "b", held={
        "k": np.array(["a" * 2000], object)}), "9 repetitions on a text of 2000 characters"),
    "a pattern in a pattern": (lambda: one("RegexFullMatch", "k", pattern="(a|a)*b", held={
        "k": np.array(["a" * 99], object)}), "repeats repetitions"),
    "an index far outside": (lambda: one("Gather", "k", "i", held={"k": np.ones(3, np.float32), "i": whole(FAR)}),
                             "an index is outside"),
    "markup as an operator": (lambda: one(MARKUP, "x"), "is not supported in version 18"),
    "markup as an input": (lambda: one("Neg", MARKUP), "which is no input"),
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model's folder, with links out of it to what it may not read."""
    outside, inside = tmp_path_factory.mktemp("outside"), tmp_path_factory.mktemp("model")
    (outside / "secret").write_bytes(b"\0" * 12)
    (inside / "link").symlink_to(outside / "secret")
    (inside / "beyond").symlink_to(outside, target_is_directory=True)
    (inside / "inner").mkdir()
    os.mkfifo(inside / "pipe")
    return inside


def compute(path: Path) -> dict[str, Any]:
    m = OnnxModel(path)
    report(m)
    sizes = {p.name: [n if isinstance(n, int) else 1 for n in p.shape or ()] for p in m.inputs}
    return m(**{p.name: Tensor.ones(*sizes[p.name], dtype=p.dtype, device="INTERPRETER") for p in m.inputs})


SLOW = {"functions that double", "conditions 10,000 deep"}


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if n in SLOW else ()) for n in CASES])
def test_one_sentence(name: str, folder: Path) -> None:
    make, message = CASES[name]
    path = folder / "m.onnx"
    path.write_bytes(make())
    with bounded(), watched(), pytest.raises((ModelFormatError, NotImplementedError), match=message) as told:
        compute(path)
    assert len(str(told.value)) < 1000 and "Traceback" not in str(told.value)


def test_numbers_of_text(folder: Path) -> None:
    """A table with more n-grams than a text can have is looked for no longer than the text is."""
    options: dict[str, Any] = dict.fromkeys(("max_gram_length", "max_skip_count"), 1 << 40)
    path = folder / "m.onnx"
    held = {"t": whole(1, 2, 1)}
    path.write_bytes(one("TfIdfVectorizer", "t", held=held, min_gram_length=1, mode="TF", ngram_counts=[0],
                         ngram_indexes=[0], pool_int64s=[1], **options))  # fmt: skip
    with bounded(), watched():
        found = compute(path)
    np.testing.assert_array_equal(found["y"].numpy(), [2])

"""ONNX graphs with a bit of everything that the format has, and damage to their fields."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from onnx import AttributeProto, ModelProto, TensorProto, helper, numpy_helper

from tests.fuzz.damage import Random, damaged_bytes, pick
from tinyweb import Tensor
from tinyweb.formats.onnx import OnnxModel
from tinyweb.formats.onnx.report import report
from tinyweb.graph.lower import program_cache

FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
NUMBERS = [0, 1, -1, 2, 3, 4, 7, 64, 255, 1 << 20, (1 << 31) - 1, -(1 << 31), 1 << 40, (1 << 63) - 1, -(1 << 63)]
TEXTS = [
    "",
    "x",
    "y",
    "c",
    "r",
    "Add",
    "Loop",
    "If",
    "Reshape",
    "own",
    "com.microsoft",
    "../x",
    "a" * 3000,
    "\0",
    "é🦊",
]
FLOATS = [0.0, -1.0, 1.5, 1e30, float("nan"), float("inf")]
node, value = helper.make_node, helper.make_tensor_value_info


def whole() -> ModelProto:
    """Convolution, shapes, both kinds of control flow, a function, sequences, texts, and narrow and other numbers."""
    branch = helper.make_graph([node("Neg", ["x"], ["m"])], "b", [], [value("m", FLOAT, None)])
    other = helper.make_graph([node("Abs", ["x"], ["m2"])], "b2", [], [value("m2", FLOAT, None)])
    body = helper.make_graph(
        [node("Add", ["s", "s"], ["s2"]), node("Identity", ["c"], ["c2"])], "step",
        [value("i", INT, []), value("c", BOOL, []), value("s", FLOAT, None)],
        [value("c2", BOOL, []), value("s2", FLOAT, None)],
    )  # fmt: skip
    nodes = [
        node("Conv", ["x", "w"], ["c0"], pads=[1, 1, 1, 1], strides=[1, 1]), node("Relu", ["c0"], ["c1"]),
        node("Shape", ["c1"], ["shape"]), node("Slice", ["shape", "zero", "two"], ["front"]),
        node("Concat", ["front", "rest"], ["target"], axis=0), node("Reshape", ["c1", "target"], ["r"]),
        node("If", ["yes"], ["i0"], then_branch=branch, else_branch=other),
        node("Loop", ["count", "", "r"], ["l"], body=body), node("Double", ["l"], ["d"], domain="own", by=2.0),
        node("SequenceConstruct", ["d", "r"], ["q"]), node("SequenceAt", ["q", "one"], ["e"]),
        node("Constant", [], ["k"], value=numpy_helper.from_array(np.float32([1, 2]))),
        node("DequantizeLinear", ["bytes", "scale"], ["f"]), node("MatMul", ["e", "f"], ["p"]),
        node("TopK", ["p", "one1"], ["best", "at"]), node("Softmax", ["p"], ["y"], axis=-1),
        node("LabelEncoder", ["words"], ["labels"], domain="ai.onnx.ml", keys_strings=["a", "b"], values_int64s=[0, 1]),
        node("MaxPool", ["x"], ["pooled"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Resize", ["pooled", "", "twice"], ["large"], mode="linear"),
    ]  # fmt: skip
    held: dict[str, Any] = {
        "w": np.ones((1, 1, 3, 3), np.float32), "zero": np.array([0]), "two": np.array([2]), "rest": np.array([-1]),
        "yes": np.array(True), "count": np.array(3), "one": np.array(1), "one1": np.array([1]),
        "bytes": np.arange(32, dtype=np.int8).reshape(16, 2), "scale": np.float32(0.5),
        "words": np.array(["a", "b", "a"], object), "twice": np.float32([1, 1, 2, 2]),
    }  # fmt: skip
    by = AttributeProto(name="alpha", ref_attr_name="by", type=AttributeProto.FLOAT)
    square = node("LeakyRelu", ["a"], ["z"])
    square.attribute.append(by)
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1), helper.make_opsetid("ai.onnx.ml", 2)]
    function = helper.make_function("own", "Double", ["a"], ["z"], [square], imports, ["by"])
    outputs = [helper.make_empty_tensor_value_info(n) for n in ("y", "i0", "best", "at", "labels", "large")]
    graph = helper.make_graph(nodes, "g", [value("x", FLOAT, ["batch", 1, 4, 4])], outputs,
                              [numpy_helper.from_array(v, n) for n, v in held.items()])  # fmt: skip
    return helper.make_model(graph, opset_imports=imports, functions=[function])


def elsewhere(m: ModelProto) -> bytes:
    """The first initializer's bytes in another file."""
    first = m.graph.initializer[0]
    data = bytes(first.raw_data)
    first.ClearField("raw_data")
    first.data_location = TensorProto.EXTERNAL
    for key, told in (("location", "w.bin"), ("offset", "0"), ("length", str(len(data)))):
        first.external_data.add(key=key, value=told)
    return data


def fields(m: Any) -> Iterator[tuple[Any, Any]]:
    """Messages, and the fields that they have."""
    waiting = [m]
    while waiting:
        one = waiting.pop()
        for field, content in one.ListFields():
            yield one, field
            if field.message_type is not None:
                waiting.extend(content if field.is_repeated else [content])


def damaged_graph(content: bytes, random: Random) -> bytes:
    """One to three fields with another number, text or order, left out or doubled; one time in four the bytes."""
    if random.integers(4) == 0:
        return damaged_bytes(content, random)
    m = ModelProto.FromString(content)
    for _ in range(random.integers(1, 4)):
        found = list(fields(m))
        inside, field = pick(random, found)
        _change(inside, field, random)
    return bytes(m.SerializeToString())


def _change(inside: Any, field: Any, random: Random) -> None:
    if random.integers(6) == 0:
        inside.ClearField(field.name)
        return
    held = getattr(inside, field.name)
    if field.is_repeated:
        at = int(random.integers(len(held)))
        if random.integers(2) == 0:
            del held[at]
        elif field.message_type is not None:
            held.add().CopyFrom(held[int(random.integers(len(held)))])
        else:
            held[at] = _another(field, held[at], random)
    elif field.message_type is None:
        setattr(inside, field.name, _another(field, held, random))


def _another(field: Any, old: Any, random: Random) -> Any:
    if isinstance(old, bytes):
        return damaged_bytes(old, random) if old else b"x"
    if isinstance(old, str):
        return pick(random, [*TEXTS, old[:-1], old + "2"])
    if isinstance(old, float):
        return pick(random, FLOATS)
    number = int(pick(random, [*NUMBERS, old + 1, old - 1]))
    kind = field.cpp_type
    if kind == field.CPPTYPE_INT32:
        return max(-(1 << 31), min(number, (1 << 31) - 1))
    if kind == field.CPPTYPE_UINT64:
        return abs(number)
    if kind == field.CPPTYPE_ENUM:
        return pick(random, field.enum_type.values).number
    return max(-(1 << 63), min(number, (1 << 63) - 1))


def compute(path: Path) -> None:
    """Reads the model, says what it is made of, and computes what is small."""
    m = OnnxModel(path / "m.onnx")
    report(m)
    given = {}
    for p in m.inputs:
        shape = [n if isinstance(n, int) and n < 9 else 1 for n in p.shape or ()]
        if p.dtype is not None:
            given[p.name] = Tensor.ones(*shape, dtype=p.dtype, device="INTERPRETER")
    try:
        # programs of kernels are kept on disk by the compiler itself: that is none of the file's doing
        with patch.object(program_cache, "_sources", lambda: None):
            if given:  # which are on a device that compiles nothing
                m(**given)
    except TypeError as error:  # inputs that do not go with what the model says now
        if "input" not in str(error):
            raise

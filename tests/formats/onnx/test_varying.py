"""Sizes that are Variables: one trace for all of them gives what each fixed size gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tinyweb import Tensor, jit
from tinyweb.formats.onnx import OnnxModel
from tinyweb.formats.onnx.sizes import UndecidedError, compute, sizes
from tinyweb.graph.ir import Variable, size_add, size_mul

node = helper.make_node
FLOAT, TWO = TensorProto.FLOAT, numpy_helper.from_array(np.array([2], np.float32))
SMALL = {"batch": (1, 3), "length": (1, 9)}
SHAPES = {"x": ("batch", "length", 4)}


def model(nodes: Sequence[Any], held: Mapping[str, Any], shapes: Mapping[str, Any]) -> OnnxModel:
    inputs = [helper.make_tensor_value_info(n, FLOAT, s) for n, s in shapes.items()]
    outputs = [helper.make_empty_tensor_value_info(n) for n in nodes[-1].output]
    constants = [numpy_helper.from_array(np.asarray(v), n) for n, v in held.items()]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    return OnnxModel(helper.make_model(graph, opset_imports=opsets).SerializeToString())


def varying(array: np.ndarray, shape: Sequence[Any], ranges: Mapping[str, tuple[int, int]] = SMALL) -> Tensor:
    """The array in larger memory, with sizes that are bound to its own."""
    whole = np.full([ranges[s][1] if isinstance(s, str) else s for s in shape], 99, array.dtype)
    whole[tuple(map(slice, array.shape))] = array
    ends = [Variable(s, *ranges[s]).bind(n) if isinstance(s, str) else n for s, n in zip(shape, array.shape)]
    return Tensor(whole).realize().shrink([(0, e) for e in ends])


def check(nodes: Sequence[Any], held: Mapping[str, Any], shapes: Mapping[str, Any] = SHAPES) -> None:
    graph, random = model(nodes, held, shapes), np.random.default_rng(0)
    run = jit(lambda **given: graph(**given))
    for batch, length in ((3, 9), (1, 1), (2, 5)):
        now = {"batch": batch, "length": length}
        given = {n: random.standard_normal([now.get(k, k) for k in s]).astype(np.float32) for n, s in shapes.items()}
        found = run(**{n: varying(v, shapes[n]) for n, v in given.items()})
        for name, want in graph(**{n: Tensor(v) for n, v in given.items()}).items():
            np.testing.assert_allclose(found[name].numpy(), want.numpy(), rtol=1e-5, atol=1e-6)
            assert found[name].dtype is want.dtype
    assert len(run.traces) == 1


SIZE = [node("Shape", ["x"], ["s"]), node("Gather", ["s", "zero"], ["b"]), node("Gather", ["s", "one"], ["n"])]
HELD = {"zero": 0, "one": 1, "two": 2, "heads": [2], "rest": [-1], "none": [0], "first": [1], "five": 5}


def apart(name: str, *sizes_: str) -> list[Any]:
    """`name`: the sizes joined."""
    each = [node("Unsqueeze", [s, "none"], [f"{name}_{i}"]) for i, s in enumerate(sizes_)]
    return [*each, node("Concat", [f"{name}_{i}" for i in range(len(sizes_))], [name], axis=0)]


GRAPHS: dict[str, list[Any]] = {
    "heads": [*apart("t", "b", "n", "two", "two"), node("Reshape", ["x", "t"], ["h"]),
              node("Transpose", ["h"], ["y"], perm=[0, 2, 1, 3])],
    "rest": [node("Concat", ["s2", "rest"], ["t"], axis=0), node("Reshape", ["x", "t"], ["y"])],
    "merged": [node("Mul", ["b", "n"], ["bn"]), *apart("t", "bn", "zero"), node("Sub", ["t", "zero"], ["u"]),
               node("Where", ["kept", "u", "rest"], ["v"]), node("Reshape", ["x", "v"], ["y"])],
    "range": [node("Range", ["zero", "n", "one"], ["r"]), node("Cast", ["r"], ["f"], to=FLOAT),
              node("Unsqueeze", ["f", "first"], ["c"]), node("Add", ["x", "c"], ["y"])],
    "filled": [*apart("t", "n", "n"), node("ConstantOfShape", ["t"], ["c"], value=TWO),
               node("MatMul", ["c", "x"], ["y"])],
    "expanded": [*apart("t", "b", "n", "one"), node("Expand", ["half", "t"], ["e"]), node("Mul", ["x", "e"], ["y"])],
    "minus one": [*apart("t", "b", "n", "four"), node("Equal", ["t", "rest"], ["q"]),
                  node("Where", ["q", "ones", "t"], ["w"]), node("Reshape", ["x", "w"], ["y"])],
    "last": [node("Sub", ["n", "one"], ["m"]), node("Gather", ["x", "m"], ["y"], axis=1)],
    "slice": [node("Unsqueeze", ["n", "none"], ["e"]), node("Slice", ["table", "none", "e", "none"], ["p"]),
              node("Add", ["x", "p"], ["y"])],
    "from the end": [node("Slice", ["x", "rest", "most", "first"], ["y"])],
    "least": [node("Min", ["n", "five"], ["m"]), node("Unsqueeze", ["m", "none"], ["e"]),
              node("Slice", ["x", "none", "e", "first"], ["y"])],
    "tiled": [*apart("t", "one", "one", "two"), node("Tile", ["x", "t"], ["y"])],
    "split": [node("Split", ["x"], ["a", "c"], axis=2), node("Mul", ["a", "c"], ["y"])],
    "float": [node("Cast", ["n"], ["f"], to=FLOAT), node("Sqrt", ["f"], ["r"]), node("Div", ["x", "r"], ["y"])],
    "softmax": [node("Transpose", ["x"], ["t"], perm=[0, 2, 1]), node("MatMul", ["x", "t"], ["m"]),
                node("Softmax", ["m"], ["w"], axis=-1), node("MatMul", ["w", "x"], ["y"])],
    "padded": [node("Pad", ["x", "around"], ["y"])],
    "halves": [node("Mul", ["n", "two"], ["d"]), node("Div", ["d", "two"], ["h"]), *apart("t", "b", "h", "four"),
               node("Reshape", ["x", "t"], ["y"])],
    "product": [node("ReduceProd", ["s"], ["p"], keepdims=1), node("Reshape", ["x", "p"], ["y"])],
}  # fmt: skip


@pytest.mark.parametrize("name", GRAPHS)
def test_sizes_in_the_graph(name: str) -> None:
    held = HELD | {
        "four": 4, "ones": [1, 1, 1], "kept": [True, False], "half": np.float32(0.5), "most": [1 << 62],
        "table": np.arange(36, dtype=np.float32).reshape(9, 4), "around": [0, 1, 0, 0, 2, 0],
    }  # fmt: skip
    before = [node("Slice", ["s", "none", "two_first"], ["s2"])] if name == "rest" else []
    check([*SIZE, *before, *GRAPHS[name]], held | {"two_first": [2]})


def test_attention_operators() -> None:
    random = np.random.default_rng(1)
    held = {"w": random.standard_normal((4, 12)).astype(np.float32)}
    check([node("Attention", ["x", "w"], ["y"], domain="com.microsoft", num_heads=2, unidirectional=1)], held)
    mask = [node("Greater", ["m", "zero"], ["k"]), node("Cast", ["k"], ["i"], to=TensorProto.INT32)]
    layers = node("MultiHeadAttention", ["x", "x", "x", "", "i"], ["y"], domain="com.microsoft", num_heads=2)
    check([*mask, layers], {"zero": np.float32(-9)}, {**SHAPES, "m": ("batch", "length")})


def test_what_needs_a_number() -> None:
    """The node, and what to write, are named."""
    resize = node("Resize", ["x", "", "", "t"], ["y"], keep_aspect_ratio_policy="not_larger", name="resize")
    graph = model([resize], {"t": [1, 8, 8]}, SHAPES)
    x = varying(np.zeros((2, 5, 4), np.float32), SHAPES["x"])
    told = r"resize \(Resize\): a size varies.* --dim batch=16,64, or take steps .* batch=64:640:32"
    with pytest.raises(NotImplementedError, match=told):
        jit(lambda **given: graph(**given))(x=x)
    graph = model([node("Add", ["x", "z"], ["y"])], {}, {**SHAPES, "z": ("batch", "length", 4)})
    with pytest.raises(TypeError, match="input 'z' has shape"):
        graph(x=x, z=Tensor.zeros(2, 5, 4))


def test_arithmetic_of_sizes() -> None:
    n, m = Variable("n", 2, 9), Variable("m", 1, 4)

    def of(name: str, *given: Any) -> Any:
        found = compute(name, [sizes(g) for g in given])
        return found if isinstance(found, np.ndarray) and found.dtype == bool else sizes(found)

    assert of("Div", size_mul(size_mul(n, m), 6), size_mul(m, 3)).tolist() is size_mul(n, 2)
    assert of("Sub", size_add(n, m), m).tolist() is n and of("Sub", n, n).tolist() == 0
    assert of("Mod", size_mul(n, 4), 2).tolist() == 0
    assert of("Max", n, 1).tolist() is n and of("Min", size_add(n, 1), n).tolist() is n
    assert of("Equal", [n, n, 3], [size_add(n, 1), n, 3]).tolist() == [False, True, True]
    assert of("Less", [m, n], [size_add(m, n), 10]).tolist() == [True, True]
    assert compute("Cos", [sizes(n)]) is None
    for name in ("Equal", "Less"):
        with pytest.raises(UndecidedError):
            of(name, n, 5)

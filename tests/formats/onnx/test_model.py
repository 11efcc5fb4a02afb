"""OnnxModel beside its operators: inputs and outputs, what is refused and how, functions, data in other files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import AttributeProto, ModelProto, TensorProto, helper, numpy_helper

from tinyweb import Tensor, jit
from tinyweb.errors import ModelFormatError
from tinyweb.formats.onnx import OnnxModel
from tinyweb.graph.ir import Ops
from tinyweb.tracing import capture

FLOAT = TensorProto.FLOAT


def model(
    nodes: list[Any], inputs: dict[str, Any], outputs: dict[str, Any], constants: dict[str, Any] | None = None,
    **options: Any,
) -> ModelProto:  # fmt: skip
    def ports(d: dict[str, Any]) -> list[Any]:
        return [helper.make_tensor_value_info(n, FLOAT, s) for n, s in d.items()]

    held = [numpy_helper.from_array(v, n) for n, v in (constants or {}).items()]
    graph = helper.make_graph(nodes, "g", ports(inputs), ports(outputs), held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], **options)


def read(m: ModelProto) -> OnnxModel:
    return OnnxModel(m.SerializeToString())


ADD = helper.make_node("Add", ["x", "w"], ["y"], name="sum")
SMALL = model([ADD], {"x": ["batch", 3]}, {"y": ["batch", 3]}, {"w": np.arange(3, dtype=np.float32)})


def test_inputs_and_outputs() -> None:
    m = read(SMALL)
    (x,), (y,) = m.inputs, m.outputs
    assert (x.name, x.dtype.name, x.shape, x.type) == ("x", "float32", ("batch", 3), "tensor(float)")
    assert (y.name, y.shape) == ("y", ("batch", 3))
    np.testing.assert_array_equal(m(x=Tensor(np.ones((2, 3), np.float32)))["y"].numpy(), [[1, 2, 3]] * 2)
    for wrong, message in (
        ({}, "input 'x' is missing: tensor.float. of shape"),
        ({"z": Tensor([1.0])}, "'z' is no input of the model, which has 'x', 'w'"),
        ({"x": Tensor([[1, 2, 3]])}, "input 'x' has dtype int32, the model takes float32"),
        ({"x": Tensor.ones(2, 4)}, r"input 'x' has shape \(2, 4\), the model takes \('batch', 3\)"),
        ({"x": 1.0}, "input 'x' is a Tensor, got float"),
    ):
        with pytest.raises(TypeError, match=message.replace(", 'w'", "")):
            m(**wrong)


def test_sizes_of_one_name_are_one() -> None:
    m = read(model([helper.make_node("Add", ["a", "b"], ["y"])], {"a": ["n"], "b": ["n"]}, {"y": ["n"]}))
    with pytest.raises(TypeError, match=r"input 'b' has shape .* with n=3"):
        m(a=Tensor.ones(3), b=Tensor.ones(1))


def test_jit_sees_numbers_where_sizes_are_computed() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Concat", ["n", "rest"], ["t"], axis=0),
        helper.make_node("Reshape", ["x", "t"], ["y"]),
    ]
    constants = {"zero": np.zeros(1, np.int64), "rest": np.array([-1], np.int64)}
    m = read(model(nodes, {"x": [None, 2, 3]}, {"y": [None, 6]}, constants))
    step = jit(lambda x: m(x=x)["y"])
    for _ in range(2):
        assert step(Tensor.ones(4, 2, 3)).shape == (4, 6)


def test_a_shape_that_depends_on_inputs_names_the_node_in_a_recording() -> None:
    nodes = [helper.make_node("Cast", ["x"], ["t"], to=TensorProto.INT64),
             helper.make_node("ConstantOfShape", ["t"], ["y"], name="fill")]  # fmt: skip
    m = read(model(nodes, {"x": [2]}, {"y": [None, None]}))
    assert m(x=Tensor([2.0, 3.0]))["y"].shape == (2, 3)
    with pytest.raises(NotImplementedError, match=r"fill \(ConstantOfShape\): input 1 decides shapes"):
        jit(lambda x: m(x=x)["y"])(Tensor([2.0, 3.0]))


def test_a_branch_that_cannot_be_computed_says_what_to_make_known() -> None:
    """A recording computes both branches: of one that does not go with the other inputs the error says what helps."""
    m_out = [helper.make_tensor_value_info("m", FLOAT, None)]
    parts = [
        helper.make_graph([helper.make_node(op, given, ["m"])], "b", [], m_out)
        for op, given in (("Neg", ["x"]), ("MatMul", ["x", "w"]))
    ]
    m = read(
        model(
            [
                helper.make_node("Equal", ["rate", "k"], ["low"]),
                helper.make_node("If", ["low"], ["y"], "choice", then_branch=parts[0], else_branch=parts[1]),
            ],
            {"x": [2, 3], "rate": []}, {"y": None},
            {"w": np.ones((4, 3), np.float32), "k": np.array(8, np.float32)},
        )
    )  # fmt: skip
    x = np.ones((2, 3), np.float32)
    with pytest.raises(NotImplementedError, match=r"^choice \(If\): .*else_branch cannot be.*MatMul.*--fix sr=16000"):
        jit(lambda x, rate: m(x=x, rate=rate))(Tensor(x), Tensor(np.float32(8)).realize())
    known = jit(lambda x: m(x=x, rate=np.array(8, np.float32)))(Tensor(x))
    np.testing.assert_array_equal(known["y"].numpy(), -x)


def test_functions_of_the_model() -> None:
    body = [helper.make_node("Mul", ["a", "a"], ["s"]), helper.make_node("LeakyRelu", ["s"], ["b"])]
    body[1].attribute.append(AttributeProto(name="alpha", ref_attr_name="slope", type=AttributeProto.FLOAT))
    imports = [helper.make_opsetid("", 18)]
    function = helper.make_function("own", "Square", ["a"], ["b"], body, imports, ["slope"])
    nodes = [helper.make_node("Square", ["x"], ["y"], domain="own", slope=0.25)]
    m = read(model(nodes, {"x": [2]}, {"y": [2]}, functions=[function]))
    assert m(x=Tensor([2.0, -3.0]))["y"].tolist() == [4.0, 9.0]
    body.append(helper.make_node("Square", ["b"], ["c"], domain="own"))
    endless = helper.make_function("own", "Square", ["a"], ["c"], body, imports, ["slope"])
    with pytest.raises(ModelFormatError, match="functions call each other more than 32 deep"):
        read(model(nodes, {"x": [2]}, {"y": [2]}, functions=[endless]))


def test_graphs_that_cannot_be_computed() -> None:
    a, b = helper.make_node("Add", ["x", "q"], ["p"]), helper.make_node("Neg", ["p"], ["q"], name="back")
    for nodes, constants, message in (
        ([a, b], {}, r"nodes wait for each other in a circle: .*back \(Neg\)"),
        ([ADD], {}, r"sum \(Add\) reads 'w', which is no input, no initializer"),
        ([ADD, ADD], {"w": np.ones(3, np.float32)}, "'y' is made twice"),
    ):
        with pytest.raises(ModelFormatError, match=message):
            read(model(nodes, {"x": [3]}, {"y": [3]}, constants))
    with pytest.raises(ModelFormatError, match="output 'z' is no input, no initializer, and made by no node"):
        read(model([ADD], {"x": [3]}, {"z": [3]}, {"w": np.ones(3, np.float32)}))


def test_one_window_over_more_than_the_plane_is_the_plane() -> None:
    """As EfficientNet pools: a window of a thousand rows, most of them beyond the border that `ceil_mode` adds."""
    nodes = [helper.make_node(op, ["x"], [y], kernel_shape=[2**20] * 2, strides=[2**20] * 2, ceil_mode=1)
             for op, y in (("AveragePool", "mean"), ("MaxPool", "largest"))]  # fmt: skip
    found = read(model(nodes, {"x": [1, 1, 2, 3]}, {"mean": [1, 1, 1, 1], "largest": [1, 1, 1, 1]}))(
        x=Tensor([-1.0, -2.0, -3.0, -4.0, -5.0, -9.0]).reshape(1, 1, 2, 3)
    )
    assert found["mean"].tolist() == [[[[-4.0]]]] and found["largest"].tolist() == [[[[-1.0]]]]


def test_numbers_are_part_of_kernels() -> None:
    """Exponents that are known are products and roots; nothing of one element is memory that a kernel reads."""
    nodes = [helper.make_node("Pow", ["x", "three"], ["p"]), helper.make_node("Mul", ["p", "half"], ["y"])]
    m = read(
        model(nodes, {"x": [3]}, {"y": [1, 3]}, {"three": np.float32(3), "half": np.full((1, 1), 0.5, np.float32)})
    )
    plan = capture(lambda: m(x=Tensor.empty(3))["y"])
    (call,) = plan.calls
    assert len(call.buffers) == 2 and not any(u.op in (Ops.EXP2, Ops.POW) for u in call.kernel.toposort())
    assert m(x=Tensor([1.0, 2.0, -3.0]))["y"].tolist() == [[0.5, 4.0, -13.5]]


@pytest.mark.parametrize(("operator", "options", "mean", "deviation"), [
    ("RandomNormal", {"mean": 5.0, "scale": 2.0}, 5.0, 2.0), ("RandomUniform", {"low": 2.0, "high": 5.0}, 3.5, 0.866),
    ("RandomNormalLike", {"mean": -1.0}, -1.0, 1.0), ("RandomUniformLike", {}, 0.5, 0.289),
])  # fmt: skip
def test_random_numbers(operator: str, options: dict[str, float], mean: float, deviation: float) -> None:
    """Those of a seed are the same in every call, others are not."""
    like = operator.endswith("Like")
    shape = {} if like else {"shape": [40, 50]}
    found = []
    for seed in ({"seed": 3.0}, {}):
        node = helper.make_node(operator, ["x"] * like, ["y"], **options, **shape, **seed)
        m = read(model([node], {"x": [40, 50]}, {"y": None}))
        found += [m(x=Tensor.zeros(40, 50))["y"].numpy() for _ in range(2)]
    for y in found:
        assert y.shape == (40, 50) and abs(y.mean() - mean) < 0.2 and abs(y.std() / deviation - 1) < 0.1
    assert (found[0] == found[1]).all() and not (found[2] == found[3]).any()


def test_errors_name_the_node() -> None:
    x = Tensor.ones(3)
    for node, error, message in (
        (helper.make_node("Nonsense", ["x"], ["y"], name="n"), NotImplementedError, "not supported in version 18"),
        (
            helper.make_node("Concat", ["x", "x"], ["y"], name="n"),
            ModelFormatError,
            "'axis' is missing: a whole number",
        ),
        (helper.make_node("Concat", ["x"], ["y"], name="n", axis="a"), ModelFormatError, "'axis' is text, not a whole"),
        (helper.make_node("Concat", ["x"], ["y"], name="n", axis=4), ModelFormatError, "axis 4 is outside of 1 axes"),
        (helper.make_node("Add", ["x"], ["y"], name="n"), ModelFormatError, "has 1 inputs"),
        (helper.make_node("Cast", ["x"], ["y"], name="n", to=99), ModelFormatError, "type 99 of elements is none"),
    ):
        m = read(model([node], {"x": [3]}, {"y": [3]}))
        with pytest.raises(error, match=rf"^n \({node.op_type}\).*{message}"):
            m(x=x)


def test_data_in_another_file(tmp_path: Path) -> None:
    m = ModelProto()
    m.CopyFrom(SMALL)
    w = m.graph.initializer[0]
    w.ClearField("raw_data")
    w.data_location = TensorProto.EXTERNAL
    (tmp_path / "model").mkdir()

    def at(location: str, offset: str = "4", length: str = "12") -> OnnxModel:
        del w.external_data[:]
        for key, value in (("location", location), ("offset", offset), ("length", length)):
            w.external_data.add(key=key, value=value)
        (tmp_path / "model" / "m.onnx").write_bytes(m.SerializeToString())
        return OnnxModel(tmp_path / "model" / "m.onnx")

    data = np.array([9, 1, 2, 3], np.float32).tobytes()
    (tmp_path / "model" / "w.bin").write_bytes(data)
    (tmp_path / "secret").write_bytes(data)
    (tmp_path / "model" / "link").symlink_to(tmp_path / "secret")
    x = Tensor.zeros(1, 3)
    assert at("w.bin")(x=x)["y"].tolist() == [[1.0, 2.0, 3.0]]
    for location in ("../secret", str(tmp_path / "secret"), "link", ""):
        with pytest.raises(ModelFormatError, match=r"outside of the model's folder|cannot be read"):
            at(location)(x=x)
    for options, message in (
        ({"offset": "8"}, "lies at 8 to 20 of 'w.bin', which has 16 bytes"),
        ({"length": "8"}, "has 8 bytes, float of shape .3. takes 12"),
        ({"offset": "x"}, "must be numbers"),
        ({"offset": "-4"}, "lies at -4"),
        ({"location": "none"}, "'none', which cannot be read"),
    ):
        with pytest.raises(ModelFormatError, match=message):
            at(**{"location": "w.bin", **options})(x=x)
    with pytest.raises(ModelFormatError, match="give the path of the model, not its bytes"):
        OnnxModel(m.SerializeToString())(x=x)


@pytest.mark.parametrize("content", [b"", b"GGUF" * 10, b"\x08\x07", SMALL.SerializeToString()[:-5]])
def test_what_is_no_model(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(content)
    for source in (content, tmp_path / "m.onnx"):
        with pytest.raises(ModelFormatError):
            OnnxModel(source)
    with pytest.raises(ModelFormatError, match="cannot be read: No such file"):
        OnnxModel(tmp_path / "none.onnx")


SUB = helper.make_graph(
    [helper.make_node("Neg", ["x"], ["m"])], "b", [], [helper.make_tensor_value_info("m", FLOAT, [])]
)
RICH = model(
    [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Reshape", ["c", "s"], ["r"]),
        helper.make_node("If", ["yes"], ["i"], then_branch=SUB, else_branch=SUB),
        helper.make_node("Softmax", ["r"], ["y"], axis=-1),
    ],
    {"x": [1, 1, 4, 4]}, {"y": [None, None], "i": None},
    {"w": np.ones((1, 1, 3, 3), np.float32), "s": np.array([2, -1], np.int64), "yes": np.array(True)},
)  # fmt: skip


@settings(max_examples=80)
@given(data=st.data())
def test_any_damage_is_refused_or_computed(data: st.DataObject) -> None:
    changed = bytearray(RICH.SerializeToString())
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    try:
        m = OnnxModel(bytes(changed))
        m(**{p.name: Tensor.ones(1, 1, 4, 4) for p in m.inputs})
    except (ModelFormatError, NotImplementedError, TypeError):
        pass

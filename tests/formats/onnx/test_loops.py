"""Loops of many steps launch the kernels of one step again and again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tinyweb import Tensor, jit
from tinyweb.formats.onnx import OnnxModel, interpret
from tinyweb.tracing import capture

FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
node = helper.make_node
value = helper.make_tensor_value_info
WEIGHT = (np.random.default_rng(0).standard_normal((4, 4)) * 0.4).astype(np.float32)

HALF = np.float32(0.5)


def model(nodes: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[str], **held: Any) -> onnx.ModelProto:
    constants = [numpy_helper.from_array(np.asarray(v), n) for n, v in held.items()]
    ends = [helper.make_empty_tensor_value_info(n) for n in outputs]
    graph = helper.make_graph(nodes, "g", inputs, ends, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def check(made: onnx.ModelProto, given: dict[str, np.ndarray]) -> OnnxModel:
    """Called, and traced, it gives what the reference does."""
    want = ReferenceEvaluator(made).run(None, given)
    graph = OnnxModel(made.SerializeToString())
    run = jit(lambda **tensors: graph(**tensors))
    for call in (graph, run, run):
        found = call(**{n: Tensor(v) for n, v in given.items()})
        for name, array in zip((o.name for o in made.graph.output), want, strict=True):
            # the reference joins what steps give in place of stacking it
            np.testing.assert_allclose(found[name].numpy().ravel(), array.ravel(), rtol=1e-4, atol=1e-5)
    return graph


def counts(graph: OnnxModel, given: dict[str, np.ndarray]) -> tuple[int, int]:
    plan = capture(lambda: list(graph(**{n: Tensor(v) for n, v in given.items()}).values()))
    return len(plan.calls), len(plan.kernels)


BODY = helper.make_graph(
    [node("MatMul", ["h", "w"], ["m"]), node("Add", ["m", "x"], ["a"]), node("Add", ["a", "shift"], ["b"]),
     node("Tanh", ["b"], ["n"]), node("ReduceSum", ["n"], ["s"], keepdims=0)],
    "body", [value("h", FLOAT, [2, 4]), value("x", FLOAT, [2, 4])],
    [value("n", FLOAT, [2, 4]), value("n", FLOAT, [2, 4]), value("s", FLOAT, [])],
)  # fmt: skip


def scan(steps: int | str, **attributes: Any) -> onnx.ModelProto:
    nodes = [
        node("Mul", ["c", "two"], ["shift"]),
        node("Scan", ["h0", "xs"], ["h", "hs", "sums"], body=BODY, num_scan_inputs=1, **attributes),
    ]
    inputs = [value("h0", FLOAT, [2, 4]), value("xs", FLOAT, [steps, 2, 4]), value("c", FLOAT, [])]
    return model(nodes, inputs, ["h", "hs", "sums"], w=WEIGHT, two=np.float32(2))


def data(steps: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(1)
    xs = random.standard_normal((steps, 2, 4)).astype(np.float32)
    return {"h0": random.standard_normal((2, 4)).astype(np.float32), "xs": xs, "c": np.array(0.1, np.float32)}


def test_a_scan() -> None:
    """What its body reads from outside is computed once."""
    graph = check(scan(60), data(60))
    (launches, kernels) = counts(graph, data(60))
    (more, as_many) = counts(OnnxModel(scan(90).SerializeToString()), data(90))
    assert kernels == as_many <= 12 and (more - launches) % 30 == 0


def test_a_scan_from_the_end() -> None:
    made = scan(40, scan_input_directions=[1], scan_output_directions=[1, 0], scan_output_axes=[1, 0])
    given, graph = data(40), OnnxModel(made.SerializeToString())
    found = graph(**{n: Tensor(v) for n, v in given.items()})
    h, rows = given["h0"], []
    for x in given["xs"][::-1]:
        h = np.tanh(h @ WEIGHT + x + 2 * given["c"])
        rows.append(h)
    np.testing.assert_allclose(found["hs"].numpy(), np.stack(rows[::-1], 1), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["sums"].numpy(), [r.sum() for r in rows], rtol=1e-4, atol=1e-5)


def test_a_scan_of_nothing() -> None:
    graph = OnnxModel(scan(0, scan_output_axes=[-1, 0]).SerializeToString())
    found = graph(**{n: Tensor(v) for n, v in data(0).items()})
    assert [t.shape for t in found.values()] == [(2, 4), (2, 4, 0), (0,)]


def looping(nodes: Sequence[Any], outputs: Sequence[Any], steps: int) -> onnx.ModelProto:
    inputs = [value("i", INT, []), value("go", BOOL, []), value("h", FLOAT, [2, 4])]
    body = helper.make_graph(nodes, "body", inputs, outputs)
    names = ["h_end", "rows"][: len(outputs) - 1]
    return model([node("Loop", ["count", "yes", "h0"], names, body=body)], [value("h0", FLOAT, [2, 4])], names,
                 w=WEIGHT, count=np.array(steps), yes=np.array(True), least=HALF, half=HALF)  # fmt: skip


def test_loops_within_loops_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a node in the innermost, too."""
    monkeypatch.setattr(interpret, "MAX_NODES", 2000)
    held = [numpy_helper.from_array(np.asarray(v), n) for n, v in {"count": 1 << 62, "yes": True}.items()]
    given, going = [value("i", INT, []), value("go", BOOL, [])], value("yes", BOOL, [])
    body = helper.make_graph([], "body", given, [going])
    for depth in range(3):
        body = helper.make_graph([node("Loop", ["count", "yes"], [], body=body)], f"b{depth}", given, [going])
    graph = helper.make_graph([node("Loop", ["count", "yes"], [], body=body)], "g", [], [going], held)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    with pytest.raises(NotImplementedError, match=r"Loop.*more than 2000 nodes"):
        OnnxModel(made.SerializeToString())()


STEP = [node("MatMul", ["h", "w"], ["m"]), node("Cast", ["i"], ["f"], to=FLOAT), node("Cos", ["f"], ["c"]),
        node("Add", ["m", "c"], ["n"])]  # fmt: skip


def test_a_loop() -> None:
    """The number of the step is computed; so is what each step gives."""
    outputs = [value("going", BOOL, []), value("n", FLOAT, [2, 4]), value("m", FLOAT, [2, 4])]
    made = looping([*STEP, node("Identity", ["go"], ["going"])], outputs, 50)
    given = {"h0": data(1)["h0"]}
    graph = check(made, given)
    assert counts(graph, given)[1] <= 10 and graph(h0=Tensor(given["h0"]))["rows"].shape == (50, 2, 4)


def test_a_loop_that_ends_where_its_values_say() -> None:
    """In a recording the steps behind its end change nothing."""
    nodes = [node("Mul", ["h", "half"], ["n"]), node("Abs", ["n"], ["a"]), node("ReduceMax", ["a"], ["m"], keepdims=0),
             node("Greater", ["m", "least"], ["going"])]  # fmt: skip
    outputs = [value("going", BOOL, []), value("n", FLOAT, [2, 4])]
    check(looping(nodes, outputs, 100), {"h0": data(1)["h0"] * 100})


def test_what_no_loop_can_be() -> None:
    """Values that grow with every step are unrolled."""
    nodes = [node("Concat", ["h", "h0"], ["n"], axis=0), node("Identity", ["go"], ["going"])]
    outputs = [value("going", BOOL, []), value("n", FLOAT, [None, 4])]
    made = looping(nodes, outputs, 80)
    h0 = data(1)["h0"]
    found = OnnxModel(made.SerializeToString())(h0=Tensor(h0))["h_end"]
    np.testing.assert_array_equal(found.numpy(), np.tile(h0, (81, 1)))


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_recurrent_layers(kind: str) -> None:
    """Of both directions and texts of other lengths, as few steps are."""
    gates, steps, random = {"RNN": 1, "GRU": 3, "LSTM": 4}[kind], 30, np.random.default_rng(2)
    shapes = {"x": (steps, 2, 5), "w": (2, gates * 4, 5), "r": (2, gates * 4, 4), "b": (2, gates * 8)}
    given = {n: (random.standard_normal(s) * 0.5).astype(np.float32) for n, s in shapes.items()}
    lengths = np.array([30, 7], np.int32)
    nodes = [node(kind, ["x", "w", "r", "b", "lengths"], ["y", "h"], hidden_size=4, direction="bidirectional")]
    held = {n: v for n, v in given.items() if n != "x"}
    made = model(nodes, [value("x", FLOAT, [None, 2, 5])], ["y", "h"], lengths=lengths, **held)
    graph = OnnxModel(made.SerializeToString())
    found = graph(x=Tensor(given["x"]))
    assert counts(graph, {"x": given["x"]})[1] <= 24
    for i, n in enumerate(lengths):  # alone: its first three steps, which are unrolled
        for direction, name in enumerate(("forward", "reverse")):
            one = [node(kind, ["x", "w", "r", "b"], ["y", "h"], hidden_size=4, direction=name)]
            each = {k: v[direction : direction + 1] for k, v in held.items()}
            alone = OnnxModel(model(one, [value("x", FLOAT, [None, 1, 5])], ["y", "h"], **each).SerializeToString())
            first = slice(n - 3, n) if direction else slice(0, 3)
            want = alone(x=Tensor(given["x"][first, i : i + 1]))["y"].numpy()[:, 0, 0]
            y, end = found["y"].numpy()[:, direction, i], found["h"].numpy()[direction, i]
            np.testing.assert_allclose(y[first], want, rtol=1e-4, atol=1e-5)
            assert not y[n:].any()
            np.testing.assert_array_equal(end, y[0] if direction else y[n - 1])

"""ONNX graphs with the weights of tinyweb's models, for onnxruntime-web. Runs with the peers' interpreter.

usage: python -m benchmarks.browser.graphs matmul|chain OUT SIZE
       python -m benchmarks.browser.graphs nodes OUT 0 GRAPH              (what `benchmarks.cliffs.onnx_graph` wrote)
       python -m benchmarks.browser.graphs resnet|yolov8 OUT SIZE WEIGHTS      (an .npz of the model's tensors by name)
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
NODES_OPSET = 20  # has Gelu and Mish
CONTRIBUTED = "com.microsoft"  # the domain of onnxruntime's own operations
Floats = npt.NDArray[np.float32]


class Graph:
    """Nodes in order; values are named by numbers."""

    def __init__(self, weights: Mapping[str, Floats]):
        self.weights = weights
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []

    def add(self, op: str, inputs: Sequence[str], outputs: int = 1, **attributes: object) -> list[str]:
        names = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, **attributes))
        return names

    def one(self, op: str, *inputs: str, **attributes: object) -> str:
        return self.add(op, inputs, **attributes)[0]

    def constant(self, name: str, values: npt.NDArray[np.generic]) -> str:
        self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def conv(self, x: str, name: str, stride: int = 1) -> str:
        """The convolution `name` with its bias; the padding keeps the size where the stride is 1."""
        kernel = self.weights[f"{name}.weight"]
        weight, bias = (
            self.constant(f"{name}.weight", kernel),
            self.constant(f"{name}.bias", self.weights[f"{name}.bias"]),
        )
        size = kernel.shape[-1]
        return self.one("Conv", x, weight, bias, kernel_shape=[size, size], strides=[stride] * 2, pads=[size // 2] * 4)

    def silu(self, x: str) -> str:
        return self.one("Mul", x, self.one("Sigmoid", x))

    def pool(self, x: str, size: int, stride: int) -> str:
        return self.one("MaxPool", x, kernel_shape=[size] * 2, strides=[stride] * 2, pads=[size // 2] * 4)

    def save(self, path: str, inputs: Mapping[str, Sequence[int]], outputs: Mapping[str, str]) -> None:
        """`outputs`: the value that each is."""
        for name, value in outputs.items():
            self.nodes.append(helper.make_node("Identity", [value], [name]))
        ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, list(s)) for n, s in inputs.items()]
        results = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs]
        graph = helper.make_graph(self.nodes, "graph", ends, results, self.initializers)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
        model = onnx.shape_inference.infer_shapes(model)  # the outputs' shapes too
        onnx.checker.check_model(model, full_check=True)
        onnx.save(model, path)


def matmul(path: str, size: int) -> None:
    g = Graph({})
    g.save(path, {"a": (size, size), "b": (size, size)}, {"output": g.one("MatMul", "a", "b")})


def chain(path: str, size: int) -> None:
    """Layers of 256 × 256 weights, about `size` bytes together."""
    g = Graph({})
    random, x = np.random.default_rng(0), "x"
    for i in range(size // (256 * 256 * 4)):
        weight = random.standard_normal((256, 256), dtype=np.float32) / 16
        x = g.one("Relu", g.one("MatMul", x, g.constant(f"w{i}", weight)))
    g.save(path, {"x": (1, 256)}, {"output": x})


def resnet(path: str, size: int, weights: Mapping[str, Floats]) -> None:
    g = Graph(weights)
    x = g.pool(g.one("Relu", g.conv("x", "stem", 2)), 3, 2)
    channels, i = 64, 0
    while f"blocks.{i}.convolutions.0.weight" in weights:
        block = f"blocks.{i}."
        count = sum(f"{block}convolutions.{k}.weight" in weights for k in range(3))
        widths = [weights[f"{block}convolutions.{k}.weight"].shape[0] for k in range(count)]
        stride = 2 if channels != widths[-1] and i > 0 else 1
        y = x
        for k in range(count):
            # the stride stands at the first 3×3 convolution
            first = k == (0 if count == 2 else 1)
            y = g.conv(y, f"{block}convolutions.{k}", stride if first else 1)
            if k + 1 < count:
                y = g.one("Relu", y)
        shortcut = g.conv(x, f"{block}downsample", stride) if f"{block}downsample.weight" in weights else x
        x = g.one("Relu", g.one("Add", y, shortcut))
        channels, i = widths[-1], i + 1
    x = g.one("Flatten", g.one("GlobalAveragePool", x))
    head = g.constant("head.weight", weights["head.weight"])
    logits = g.one("Gemm", x, head, g.constant("head.bias", weights["head.bias"]), transB=1)
    g.save(path, {"x": (1, 3, size, size)}, {"output": logits})


def yolov8(path: str, size: int, weights: Mapping[str, Floats]) -> None:
    g = Graph(weights)
    halves = g.constant("halves", np.array([], np.float32))
    doubled = g.constant("doubled", np.array([1, 1, 2, 2], np.float32))

    def conv(x: str, name: str, stride: int = 1) -> str:
        return g.silu(g.conv(x, f"{name}.conv", stride))

    def c2f(x: str, name: str, shortcut: bool) -> str:
        parts, i = g.add("Split", [conv(x, f"{name}.cv1")], 2, axis=1), 0
        while f"{name}.m.{i}.0.conv.weight" in weights:
            y = conv(conv(parts[-1], f"{name}.m.{i}.0"), f"{name}.m.{i}.1")
            parts.append(g.one("Add", parts[-1], y) if shortcut else y)
            i += 1
        return conv(g.one("Concat", *parts, axis=1), f"{name}.cv2")

    def up(x: str, other: str) -> str:
        larger = g.one("Resize", x, halves, doubled, mode="nearest", coordinate_transformation_mode="asymmetric",
                       nearest_mode="floor")  # fmt: skip
        return g.one("Concat", larger, other, axis=1)

    x = c2f(conv(conv("x", "stem", 2), "down2", 2), "stage2", True)
    p3 = c2f(conv(x, "down3", 2), "stage3", True)
    p4 = c2f(conv(p3, "down4", 2), "stage4", True)
    parts = [conv(c2f(conv(p4, "down5", 2), "stage5", True), "pool.cv1")]
    for _ in range(3):
        parts.append(g.pool(parts[-1], 5, 1))
    p5 = conv(g.one("Concat", *parts, axis=1), "pool.cv2")
    n4 = c2f(up(p5, p4), "up4", False)
    n3 = c2f(up(n4, p3), "up3", False)
    n4 = c2f(g.one("Concat", conv(n3, "back3", 2), n4, axis=1), "merge4", False)
    n5 = c2f(g.one("Concat", conv(n4, "back4", 2), p5, axis=1), "merge5", False)
    outputs = {}
    for i, level in enumerate((n3, n4, n5)):
        made = []
        for branch in ("cv2", "cv3"):
            name = f"heads.{i}.{branch}"
            made.append(g.conv(conv(conv(level, f"{name}.0"), f"{name}.1"), f"{name}.2"))
        outputs[f"output{i}"] = g.one("Concat", *made, axis=1)
    g.save(path, {"x": (1, 3, size, size)}, outputs)


def nodes(path: str, record: str) -> None:
    """A model of a graph's nodes and constants, as `benchmarks.cliffs.onnx_graph.Graph.save` writes them."""
    found = json.loads(Path(record).read_text())
    with np.load(Path(record).with_suffix(".npz")) as file:
        constants = [numpy_helper.from_array(file[name], name) for name in file.files]
    made = []
    for op, inputs, outputs, attributes in found["nodes"]:
        if "to" in attributes:
            attributes["to"] = helper.np_dtype_to_tensor_dtype(np.dtype(attributes["to"]))
        domain, _, name = op.rpartition("::")
        made.append(helper.make_node(name, inputs, outputs, domain=domain, **attributes))
    types = {name: helper.np_dtype_to_tensor_dtype(np.dtype(t)) for name, t in found["types"].items()}
    ends = [helper.make_tensor_value_info(n, types[n], shape) for n, shape in found["inputs"].items()]
    results = [helper.make_tensor_value_info(n, types[n], shape) for n, shape in found["outputs"].items()]
    graph = helper.make_graph(made, "graph", ends, results, constants)
    versions = [helper.make_opsetid("", NODES_OPSET), helper.make_opsetid(CONTRIBUTED, 1)]
    model = helper.make_model(graph, opset_imports=versions, ir_version=9)
    onnx.checker.check_model(onnx.shape_inference.infer_shapes(model))
    onnx.save(model, path)


def main(kind: str, path: str, size: str, weights: str | None = None) -> None:
    if kind == "nodes":
        assert weights is not None
        nodes(path, weights)
        return
    if kind in ("matmul", "chain"):
        {"matmul": matmul, "chain": chain}[kind](path, int(size))
        return
    assert weights is not None
    with np.load(weights) as found:
        {"resnet": resnet, "yolov8": yolov8}[kind](path, int(size), dict(found))


if __name__ == "__main__":
    main(*sys.argv[1:])

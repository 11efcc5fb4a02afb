"""Graphs whose results have as many rows as values say, with their inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

node = helper.make_node
Arrays: TypeAlias = dict[str, np.ndarray]
FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64
HELD = {
    "half": np.float32(0.5), "least": np.float32([0.3]), "overlap": np.float32([0.4]), "most": np.array([4]),
    "two": np.array([2]), "one": np.array([1]), "zero": np.array(0), "ten": np.array([10]),
}  # fmt: skip


def _chosen() -> tuple[list[Any], Mapping[str, Any], Sequence[str]]:
    """The elements above a half, their places, their sum and number; the columns of which the first is so."""
    nodes = [
        node("Greater", ["x", "half"], ["m"]), node("NonZero", ["m"], ["places"]),
        node("Transpose", ["places"], ["at"]), node("GatherND", ["x", "at"], ["values"]),
        node("ReduceSum", ["values"], ["total"]), node("Shape", ["values"], ["count"]),
        node("Gather", ["m", "zero"], ["first"], axis=0), node("Compress", ["x", "first"], ["columns"], axis=1),
    ]  # fmt: skip
    return nodes, {"x": [4, 6]}, ("values", "places", "total", "count", "columns")


def _boxes() -> tuple[list[Any], Mapping[str, Any], Sequence[str]]:
    """Boxes that remain, at most ten, the likeliest first, or the scores of the first class where none does."""
    none = helper.make_graph([node("Identity", ["scores"], ["rows_a"])], "none", [], [_port("rows_a", None)])
    some = helper.make_graph([node("Unsqueeze", ["best", "zeros"], ["rows_b"])], "some", [], [_port("rows_b", None)])
    nodes = [
        node("NonMaxSuppression", ["boxes", "scores", "most", "overlap", "least"], ["chosen"]),
        node("GatherND", ["scores", "triples"], ["points"]),
        node("Gather", ["chosen", "order"], ["triples"], axis=1), node("Shape", ["points"], ["n"]),
        node("Min", ["n", "ten"], ["k"]), node("TopK", ["points", "k"], ["best0", "order2"]),
        node("Gather", ["chosen", "order2"], ["rows"], axis=0), node("Unsqueeze", ["best0", "one0"], ["best"]),
        node("Equal", ["n", "nothing"], ["empty0"]), node("Squeeze", ["empty0"], ["empty"]),
        node("If", ["empty"], ["result"], then_branch=none, else_branch=some),
    ]  # fmt: skip
    order = [nodes[0], nodes[2], nodes[1], *nodes[3:]]
    return order, {"boxes": [1, 30, 4], "scores": [1, 3, 30]}, ("rows", "result")


MORE = {"order": np.array([0, 1, 2]), "one0": np.array([0]), "nothing": np.array([0]), "zeros": np.array([0])}
GRAPHS = {"chosen": _chosen, "boxes": _boxes}


def _port(name: str, shape: Any, kind: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def graph(name: str) -> bytes:
    nodes, inputs, outputs = GRAPHS[name]()
    read = {n for each in nodes for n in each.input} | {"zeros"}
    held = [numpy_helper.from_array(np.asarray(v), n) for n, v in {**HELD, **MORE}.items() if n in read]
    ports = [_port(n, s) for n, s in inputs.items()]
    made = helper.make_graph(nodes, name, ports, [onnx.ValueInfoProto(name=n) for n in outputs], held)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def calls(name: str) -> list[Arrays]:
    """Inputs with many rows, with few, with none, and with many again; with many that are equal."""
    random, found = np.random.default_rng(5), []
    for scale in (1.0, 0.55, 0.2, 0.9):
        given = {n: random.random(s, np.float32) for n, s in GRAPHS[name]()[1].items()}
        found.append({n: v if n == "boxes" else v * np.float32(scale) for n, v in given.items()})
    return [*found, {n: v if n == "boxes" else np.ceil(4 * v) / 4 for n, v in found[0].items()}]

"""The order of equal values: what comes first in memory comes first."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tinyweb import Tensor
from tinyweb.formats.onnx import OnnxModel


def model(node: helper.NodeProto, held: dict[str, np.ndarray]) -> OnnxModel:
    """A graph of one node, whose other inputs are floats."""
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in node.input if n not in held]
    outputs = [helper.make_empty_tensor_value_info(n) for n in node.output]
    constants = [numpy_helper.from_array(v, n) for n, v in held.items()]
    graph = helper.make_graph([node], "g", inputs, outputs, constants)
    return OnnxModel(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString())


@pytest.mark.parametrize("largest", [1, 0])
@pytest.mark.parametrize(("n", "k", "levels"), [(50, 10, 1), (700, 300, 5), (9000, 1000, 2)])
def test_topk(n: int, k: int, levels: int, largest: int) -> None:
    """Given two equivalent values, the lower index comes first (TopK 11); here beyond the border of those chosen."""
    x = np.random.default_rng(n).integers(0, levels, (2, n)).astype(np.float32)
    node = helper.make_node("TopK", ["x", "k"], ["values", "places"], largest=largest)
    got = model(node, {"k": np.array([k])})(x=Tensor(x))
    want = np.argsort(-x if largest else x, -1, kind="stable")[:, :k]
    np.testing.assert_array_equal(got["places"].numpy(), want)
    np.testing.assert_array_equal(got["values"].numpy(), np.take_along_axis(x, want, -1))


def test_boxes_with_equal_scores() -> None:
    """Of boxes that overlap and have equal scores the first remains; rows go by batch, class, score, place."""
    corners = np.array([[0, 0, 2, 2], [0, 0, 2, 2.1], [5, 5, 6, 6], [0, 0, 2.1, 2], [5, 5, 6, 6]], np.float32)
    scores = np.array([[0.5, 0.5, 0.5, 0.5, 0.5], [0.5, 0.5, 0.5, 0.7, 0.7]], np.float32)
    node = helper.make_node("NonMaxSuppression", ["boxes", "scores", "most", "overlap"], ["rows"])
    held = {"most": np.array([9]), "overlap": np.array([0.5], np.float32)}
    got = model(node, held)(boxes=Tensor(np.stack([corners, corners[::-1]])), scores=Tensor(np.stack([scores, scores])))
    want = [[0, 0, 0], [0, 0, 2], [0, 1, 3], [0, 1, 4], [1, 0, 0], [1, 0, 1], [1, 1, 3], [1, 1, 0]]
    np.testing.assert_array_equal(got["rows"].numpy(), want)

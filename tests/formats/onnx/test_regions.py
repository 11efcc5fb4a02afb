"""Regions that are computed, and as many as values say, give what those that are known give."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tinyweb import Tensor, jit
from tinyweb.export import OnnxOptions, export_onnx
from tinyweb.formats.onnx import OnnxModel

RANDOM = np.random.default_rng(0)
FLOAT = TensorProto.FLOAT
X = RANDOM.standard_normal((2, 3, 9, 12)).astype(np.float32)
ROIS = np.float32([[0, 0, 5, 5], [1.5, 2, 9, 8.25], [3, 3, 3.5, 3.25], [-2, -1, 14, 11], [0, 0, 12, 9]])
COUNTER = Path(__file__).parents[2] / "export" / "count_rows.mjs"


@pytest.mark.parametrize("how", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("ratio", [0, 2])
def test_as_known_ones(how: str, mode: str, ratio: int) -> None:
    options: dict[str, Any] = {"coordinate_transformation_mode": how, "mode": mode, "sampling_ratio": ratio}
    made = helper.make_node("RoiAlign", ["x", "rois", "at"], ["y"], output_height=3, output_width=2, **options)
    ports = [helper.make_tensor_value_info("x", FLOAT, [2, 3, 9, 12]),
             helper.make_tensor_value_info("rois", FLOAT, ["regions", 4])]  # fmt: skip
    held = [numpy_helper.from_array(np.array([0, 1, 1, 0, 1]), "at")]
    graph = helper.make_graph([made], "g", ports, [helper.make_empty_tensor_value_info("y")], held)
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)]).SerializeToString()
    model = OnnxModel(content)
    # of those that reach beyond the picture no more samples are taken than of all of it
    rois = ROIS if ratio else ROIS.clip(0, np.float32([12, 9, 12, 9]))
    want = model(x=Tensor(X), rois=rois)["y"].numpy()
    found = jit(lambda x, rois: model(x=x, rois=rois))(Tensor(X), Tensor(rois))["y"].numpy()
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)


def test_as_many_as_values_say(tmp_path: Path) -> None:
    """A second stage of a detector: regions whose score is high enough, in a bundle."""
    node = helper.make_node
    nodes = [
        node("Greater", ["scores", "half"], ["good"]), node("NonZero", ["good"], ["places"]),
        node("Reshape", ["places", "flat"], ["at"]), node("Gather", ["rois", "at"], ["chosen"]),
        node("Mul", ["at", "none"], ["batch"]),
        node("RoiAlign", ["x", "chosen", "batch"], ["y"], output_height=2, output_width=2, sampling_ratio=2),
    ]  # fmt: skip
    constants = {"half": np.float32(0.5), "flat": np.array([-1]), "none": np.array(0), "rois": ROIS}
    ports = [helper.make_tensor_value_info("x", FLOAT, [2, 3, 9, 12]),
             helper.make_tensor_value_info("scores", FLOAT, [5])]  # fmt: skip
    held = [numpy_helper.from_array(v, n) for n, v in constants.items()]
    graph = helper.make_graph(nodes, "g", ports, [helper.make_empty_tensor_value_info("y")], held)
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)]), path)
    export_onnx(path, tmp_path / "site", OnnxOptions(page=False))
    scores = [np.float32(s) for s in ([0, 1, 1, 0, 1], [0] * 5, [1] * 5)]
    told = [{"x": [X.shape, X.ravel().tolist()], "scores": [[5], s.tolist()]} for s in scores]
    command = ["node", COUNTER, tmp_path / "site"]
    done = subprocess.run(command, input=json.dumps(told), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    model = OnnxModel(path)
    for s, said in zip(scores, json.loads(done.stdout)["said"], strict=True):
        want, (shape, numbers) = model(x=Tensor(X), scores=Tensor(s))["y"].numpy(), said["y"]
        assert tuple(shape) == want.shape
        np.testing.assert_allclose(np.reshape(numbers, shape), want, rtol=1e-4, atol=1e-5)

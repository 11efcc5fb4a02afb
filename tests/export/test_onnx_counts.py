"""Results whose number of rows depends on values: the host of a bundle finds them between launches."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.export import counted_graphs
from tinyweb import Tensor, jit
from tinyweb.export import OnnxOptions, export_onnx
from tinyweb.formats.onnx import OnnxModel


@pytest.mark.parametrize("name", counted_graphs.GRAPHS)
def test_as_a_call(name: str, tmp_path: Path) -> None:
    """In one bundle for all counts what a call gives, which computes them on the host at once."""
    content, given = counted_graphs.graph(name), counted_graphs.calls(name)
    (tmp_path / "graph.onnx").write_bytes(content)
    made = export_onnx(tmp_path / "graph.onnx", tmp_path / "site", OnnxOptions(page=False))
    steps = made["functions"]["run"]["host_steps"]
    assert [s["entry"] for s in steps] == [f"run__{i}" for i in range(len(steps))]
    told = [{n: [v.shape, v.ravel().tolist()] for n, v in call.items()} for call in given]
    command = ["node", Path(__file__).with_name("count_rows.mjs"), tmp_path / "site"]
    done = subprocess.run(command, input=json.dumps(told), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    entries = made["targets"]["wasm"]["entry_points"]
    assert result["kernels"] == sum(entries[e]["kernels"] for e in ("run", *(s["entry"] for s in steps)))
    model, counts = OnnxModel(content), set()
    for call, said in zip(given, result["said"], strict=True):
        for n, t in model(**{k: Tensor(v) for k, v in call.items()}).items():
            shape, numbers = said[n]
            assert tuple(shape) == t.shape
            counts.add(t.shape)
            np.testing.assert_allclose(np.reshape(numbers, shape), t.numpy(), rtol=1e-5, err_msg=n)
    assert len(counts) > 3


def test_jit_has_no_host() -> None:
    model, given = OnnxModel(counted_graphs.graph("chosen")), counted_graphs.calls("chosen")[0]
    with pytest.raises(NotImplementedError, match=r"NonZero.*must not depend on the model's inputs"):
        jit(lambda x: model(x=x)["values"])(Tensor(given["x"]))


def test_no_option_says_what_is_counted(tmp_path: Path) -> None:
    """Where an operator needs the number of rows, the error names no size of the model's inputs."""
    nodes = [helper.make_node("NonZero", ["x"], ["at"]), helper.make_node("Cast", ["at"], ["f"], to=TensorProto.FLOAT),
             helper.make_node("Unsqueeze", ["f", "first"], ["rows"]),
             helper.make_node("Resize", ["rows", "", "", "four"], ["y"], mode="linear", antialias=1)]  # fmt: skip
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [9])
    first = helper.make_tensor("first", TensorProto.INT64, [1], [0])
    four = helper.make_tensor("four", TensorProto.INT64, [3], [1, 1, 4])
    made = helper.make_graph(nodes, "g", [x], [helper.make_empty_tensor_value_info("y")], [first, four])
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)]), tmp_path / "graph.onnx")
    told = r"Resize.* nonzero_0 is counted while the model runs.*--fix"
    with pytest.raises(NotImplementedError, match=told) as caught:
        export_onnx(tmp_path / "graph.onnx", tmp_path / "site", OnnxOptions(targets=["wasm"], page=False))
    assert "nonzero_0=" not in str(caught.value)

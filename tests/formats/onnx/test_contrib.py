"""Operators of com.microsoft: what onnxruntime made of them (peer_answers.py)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from tinyweb import Tensor
from tinyweb.formats.onnx import OnnxModel

ANSWERS = np.load(Path(__file__).with_name("peer_answers.npz"))
NAMES = sorted({name.split("/")[0] for name in ANSWERS.files if not name.startswith("network_")})
QUICK = NAMES[::6]


def test_maps_are_the_matrix_below_them() -> None:
    """A column for each class, in the order of the labels."""
    node = helper.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", classlabels_int64s=[3, 5, 9])
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    graph = helper.make_graph([node], "g", [x], [helper.make_empty_tensor_value_info("y")])
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("ai.onnx.ml", 3)]).SerializeToString()
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(OnnxModel(content)(x=Tensor(values))["y"].numpy(), values)


def test_experts_stay_integers() -> None:
    """A matrix for all experts of a layer, of 4 bits, by the name of the initializer."""
    model = OnnxModel(ANSWERS["q_moe_4_16_zeros_swiglu/model"].tobytes())
    for _ in range(2):
        model(**{p.name: Tensor(ANSWERS[f"q_moe_4_16_zeros_swiglu/{p.name}"]) for p in model.inputs})["o0"].realize()
    held = model.matrices(Tensor([0.0]).device)
    assert {n: (w.shape, w.bits, w.group) for n, w in held.items()} == {
        "i2": ((128, 32), 4, 16),
        "i5": ((128, 16), 4, 16),
    }


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in NAMES])
def test_as_onnxruntime(name: str) -> None:
    model = OnnxModel(ANSWERS[f"{name}/model"].tobytes())
    got = model(**{p.name: Tensor(ANSWERS[f"{name}/{p.name}"]) for p in model.inputs})
    for p in model.outputs:
        want = ANSWERS[f"{name}/{p.name}"]
        if want.dtype.kind == "f":  # onnxruntime rounds what bytes of recurrent layers are multiplied with to bytes
            near = 0.03 if name.startswith("lstm_of") else 1e-4
            np.testing.assert_allclose(got[p.name].numpy(), want, rtol=1e-4, atol=near)
        else:
            steps = np.abs(got[p.name].numpy().astype(np.int64) - want.astype(np.int64))
            assert want.shape == got[p.name].shape and steps.max() <= 1

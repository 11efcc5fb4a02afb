"""Networks of integers, as onnxruntime.quantization makes them (peer_answers.py), run on instructions for integers."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tinyweb import Tensor
from tinyweb.formats.onnx import OnnxModel
from tinyweb.graph.ir import Ops
from tinyweb.graph.lower import program_for
from tinyweb.graph.target import Target, cpu_target, wasm_target, webgpu_target
from tinyweb.tracing import capture

ANSWERS = np.load(Path(__file__).with_name("peer_answers.npz"))
NAMES = sorted({name.split("/")[0] for name in ANSWERS.files if name.startswith("network_")})
QUICK = ["network_windows_QDQ_QUInt8_each", "network_heads_dynamic_QInt8", "network_layers_QOperator_QInt8"]
TARGETS = {"CPU": cpu_target(lanes=16), "WASM": wasm_target(), "WEBGPU": webgpu_target()}


def opened(name: str) -> tuple[OnnxModel, dict[str, Any]]:
    model = OnnxModel(ANSWERS[f"{name}/model"].tobytes())
    return model, {p.name: ANSWERS[f"{name}/{p.name}"] for p in model.inputs}


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in NAMES])
def test_as_onnxruntime(name: str) -> None:
    """Within a step of 8 bits; of static ones nearly all elements agree to rounding errors of floats."""
    model, given = opened(name)
    got = model(**{n: Tensor(v) for n, v in given.items()})["y"].numpy()
    want = ANSWERS[f"{name}/y"]
    step = np.abs(want).max() / 127
    if "dynamic" in name:
        assert np.abs(got - want).max() <= step
    else:
        assert np.abs(got - want).max() <= 1.01 * step and np.mean(np.abs(got - want) > step / 100) < 0.01


def test_the_same_in_webassembly() -> None:
    model, given = opened(QUICK[0])
    got = model(**{n: Tensor(v, device="WASM") for n, v in given.items()})["y"].numpy()
    np.testing.assert_allclose(got, ANSWERS[f"{QUICK[0]}/y"], rtol=1e-5)


def products(name: str, target: Target) -> tuple[int, int, int]:
    """Kernels of products: those of integers on instructions, others of integers, those of floats."""
    model, given = opened(name)
    inputs = {n: Tensor(v).realize() for n, v in given.items()}
    model(**inputs)["y"].realize()
    gc.collect()
    found = [0, 0, 0]
    for call in capture(lambda: model(**inputs)["y"].realize(), target).calls:
        sums = [u for u in call.kernel.toposort() if u.op is Ops.REDUCE and u.src[0].op is Ops.MUL]
        if sums:
            on = any(str(a).startswith("tensorize") for a in program_for(call.kernel, target).schedule)
            found[0 if on else 2 if any(u.dtype.is_float for u in sums) else 1] += 1
    return found[0], found[1], found[2]


@pytest.mark.parametrize("device", TARGETS)
@pytest.mark.parametrize("form", ["QDQ_QInt8", "QOperator_QUInt8", "dynamic_QInt8"])
def test_products_are_instructions(form: str, device: str) -> None:
    on, others, floats = products(f"network_layers_{form}", TARGETS[device])
    assert (on, others, floats) == (2, 0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("device", TARGETS)
def test_products_of_larger_networks(device: str) -> None:
    """But for sums of 9 keys, and on processors windows over 6 x 6; a convolution by channel keeps floats."""
    for form in ("QDQ_QInt8", "QOperator_QUInt8_each"):
        on, others, _ = products(f"network_windows_{form}", TARGETS[device])
        assert on >= (3 if device == "WEBGPU" else 1) and on + others == 3
        on, others, floats = products(f"network_heads_{form}", TARGETS[device])
        assert on >= 4 and on + others == 6 and floats == 0


def test_known_inputs_are_no_initializers() -> None:
    """Weights that a caller hands over as arrays are taken anew in each call."""
    node = helper.make_node("MatMulInteger", ["x", "w"], ["y"])
    ports = [helper.make_tensor_value_info(n, TensorProto.INT8, s) for n, s in (("x", [2, 8]), ("w", [8, 4]))]
    result = helper.make_tensor_value_info("y", TensorProto.INT32, [2, 4])
    model = OnnxModel(helper.make_model(helper.make_graph([node], "g", ports, [result])).SerializeToString())
    x, w = np.arange(16, dtype=np.int8).reshape(2, 8), np.ones((8, 4), np.int8)
    for k in (1, 2):
        w[:] = k
        got = model(x=Tensor(x), w=w)["y"].numpy()
        np.testing.assert_array_equal(got, x.astype(np.int32) @ w.astype(np.int32))
    held = helper.make_graph([node], "g", ports[:1], [result], [numpy_helper.from_array(w, "w")])
    got = OnnxModel(helper.make_model(held).SerializeToString())(x=Tensor(x))["y"].numpy()
    np.testing.assert_array_equal(got, x.astype(np.int32) @ w.astype(np.int32))


@pytest.mark.parametrize("columns", [7, 0])
def test_zero_points_far_apart(columns: int) -> None:
    """Weights less zero points of their own that are no bytes, and none at all."""
    random = np.random.default_rng(0)
    x, w = (random.integers(0, 256, shape, np.uint8) for shape in ((3, 5), (5, columns)))
    zeros = np.linspace(0, 255, columns).astype(np.uint8)
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "w", "zx", "zw"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [3, 5])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, [3, columns])],
        [numpy_helper.from_array(v, n) for n, v in {"w": w, "zx": np.array(9, np.uint8), "zw": zeros}.items()],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    got = OnnxModel(made.SerializeToString())(x=Tensor(x))["y"].numpy()
    np.testing.assert_array_equal(got, (x.astype(np.int32) - 9) @ (w.astype(np.int32) - zeros))

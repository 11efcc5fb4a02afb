"""Weights that a graph has as blocks of narrow integers stay so, and kernels compute from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from tinyweb import Tensor
from tinyweb.errors import ModelFormatError
from tinyweb.export.onnx_site import OnnxOptions, export_onnx
from tinyweb.formats.onnx import OnnxModel
from tinyweb.graph.ir import Ops
from tinyweb.graph.lower import program_for
from tinyweb.graph.target import VNNI, cpu_target
from tinyweb.tracing import capture

RANDOM = np.random.default_rng(0)
WIDTH, ROWS, BLOCK = 256, 96, 32
X = RANDOM.standard_normal((3, WIDTH)).astype(np.float32)
INT4 = TensorProto.INT4, TensorProto.UINT4


def tensor(name: str, values: np.ndarray, kind: int | None = None) -> TensorProto:
    if kind in INT4:
        return helper.make_tensor(name, kind, values.shape, values.flatten())
    return numpy_helper.from_array(values, name)


def model(nodes: list[Any], constants: list[TensorProto], ids: bool = False) -> ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.INT64 if ids else TensorProto.FLOAT, [3] if ids else X.shape)
    graph = helper.make_graph(nodes, "g", [x], [helper.make_empty_tensor_value_info("y")], constants)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def blocks(kind: int, low: int, high: int, axis: int, zero: bool) -> tuple[list[TensorProto], np.ndarray]:
    """A matrix (in, out), or with blocks along axis 1 (out, in), and its values."""
    shape = (WIDTH, ROWS) if axis == 0 else (ROWS, WIDTH)
    parts = tuple(n // BLOCK if i == axis else n for i, n in enumerate(shape))
    dtype = np.uint8 if low == 0 else np.int8
    q = RANDOM.integers(low, high, shape).astype(dtype)
    scale = RANDOM.random(parts).astype(np.float32) / 64
    zeros = RANDOM.integers(low, high, parts).astype(dtype) if zero else np.zeros(parts, dtype)
    each, beside = np.repeat(scale, BLOCK, axis), np.repeat(zeros, BLOCK, axis).astype(np.float32)
    made = [tensor("q", q, kind), tensor("s", scale)] + ([tensor("z", zeros, kind)] if zero else [])
    return made, (q - beside) * each


def capture_of(made: ModelProto, given: np.ndarray) -> Any:
    m = OnnxModel(made.SerializeToString())
    m.activations = "int8"
    x = Tensor(given).realize()
    m(x=x)["y"].realize()
    return m, capture(lambda: m(x=x)["y"].realize(), cpu_target(lanes=16, instructions=VNNI))


@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("kind, low, high", [
    (TensorProto.INT4, -8, 8), (TensorProto.UINT4, 0, 16), (TensorProto.INT8, -128, 128), (TensorProto.UINT8, 0, 256),
])  # fmt: skip
def test_dequantised_blocks_stay_integers(kind: int, low: int, high: int, zero: bool) -> None:
    """In both orders of axes, turned or not, multiplied or looked up."""
    names = ["q", "s", "z"][: 2 + zero]
    for axis in (0, 1):
        made, values = blocks(kind, low, high, axis, zero)
        dequantise = helper.make_node("DequantizeLinear", names, ["w"], axis=axis, block_size=BLOCK)
        product = {
            0: [helper.make_node("MatMul", ["x", "w"], ["y"])],
            1: [helper.make_node("Transpose", ["w"], ["t"]), helper.make_node("MatMul", ["x", "t"], ["y"])],
        }[axis]
        m, plan = capture_of(model([dequantise, *product], made), X)
        want = X @ (values if axis == 0 else values.T)
        np.testing.assert_allclose(m(x=Tensor(X))["y"].numpy(), want, rtol=1e-4, atol=1e-4)
        (weight,) = m.matrices("CPU").values()
        assert weight.bits == 4 + 4 * (high - low > 16) and weight.group == BLOCK and weight.shape == (ROWS, WIDTH)
        assert len(plan.calls) == 1, "no matrix of floats is made"
    rows = np.array([5, 0, -1])
    gathered = model([dequantise, helper.make_node("Gather", ["w", "x"], ["y"])], made, ids=True)
    m = OnnxModel(gathered.SerializeToString())
    np.testing.assert_allclose(m(x=Tensor(rows))["y"].numpy(), values[rows], rtol=1e-6)
    gemm = model([dequantise, helper.make_node("Gemm", ["x", "w"], ["y"], transB=1)], made)
    got = OnnxModel(gemm.SerializeToString())(x=Tensor(X))["y"].numpy()
    np.testing.assert_allclose(got, X @ values.T, rtol=1e-4, atol=1e-4)
    other = model([dequantise, helper.make_node("Neg", ["w"], ["y"])], made)
    np.testing.assert_allclose(OnnxModel(other.SerializeToString())(x=Tensor(X))["y"].numpy(), -values, rtol=1e-6)


def n_bits(level: int, bits: int = 4) -> tuple[ModelProto, np.ndarray]:
    packed = RANDOM.integers(0, 256, (ROWS, WIDTH // BLOCK, BLOCK * bits // 8)).astype(np.uint8)
    scale = RANDOM.integers(1, 64, (ROWS, WIDTH // BLOCK)).astype(np.float32) / 4096  # half floats hold these
    codes = packed if bits == 8 else np.stack([packed & 15, packed >> 4], -1)
    values = (codes.reshape(ROWS, -1, BLOCK) - 2.0 ** (bits - 1)) * scale[..., None]
    node = helper.make_node("MatMulNBits", ["x", "b", "s"], ["y"], domain="com.microsoft", K=WIDTH, N=ROWS, bits=bits,
                            block_size=BLOCK, accuracy_level=level)  # fmt: skip
    return model([node], [tensor("b", packed), tensor("s", scale)]), values.reshape(ROWS, WIDTH)


@pytest.mark.parametrize("bits", [4, 8])
def test_levels_of_accuracy(bits: int) -> None:
    """Level 4 multiplies integers, by instructions for such products; the others keep floats."""
    for level in (0, 1, 4):
        made, values = n_bits(level, bits)
        m, plan = capture_of(made, X)
        want = X @ values.T
        error = np.abs(m(x=Tensor(X))["y"].numpy() - want).max() / np.abs(want).max()
        assert error < (2e-2 if level == 4 else 1e-5), level
        target = cpu_target(lanes=16, instructions=VNNI)
        schedules = [str(program_for(c.kernel, target).schedule) for c in plan.calls]
        assert any("tensorize" in s for s in schedules) == (level == 4)
        floats = [u for c in plan.calls for u in c.kernel.toposort() if u.op is Ops.PARAM and u.dtype.is_float]
        assert max(int(u.arg.size) for u in floats) < ROWS * WIDTH, "no matrix of floats is in memory"


def test_a_bundle_holds_four_bits(tmp_path: Path) -> None:
    made, _ = n_bits(4)
    (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
    manifest = export_onnx(tmp_path / "m.onnx", tmp_path / "site", OnnxOptions(targets=["wasm"]))
    assert manifest["weights"]["bytes"] < ROWS * WIDTH // 2 + ROWS * WIDTH // BLOCK * 2 + 512


def test_sizes_that_do_not_go_together() -> None:
    node = helper.make_node("MatMulNBits", ["x", "b", "s"], ["y"], domain="com.microsoft", K=WIDTH, N=ROWS, bits=4,
                            block_size=BLOCK)  # fmt: skip
    wrong = [tensor("b", np.zeros((ROWS, 8, 15), np.uint8)), tensor("s", np.ones((ROWS, 7), np.float32))]
    with pytest.raises(ModelFormatError, match=r"MatMulNBits\): .* are not those of \[96, 256\] in 4 bits"):
        OnnxModel(model([node], wrong).SerializeToString())(x=Tensor(X))

"""Functions written as ONNX: the onnx package's checker takes the files, and its evaluator and our reader agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import tinyweb.export
from tinyweb import Tensor, jit
from tinyweb.errors import ExportError
from tinyweb.formats.onnx import OnnxModel
from tinyweb.models.resnet import ResNet

RANDOM = np.random.default_rng(0)


def normal(*shape: int) -> Any:
    return RANDOM.standard_normal(shape).astype(np.float32)


X, IDS = normal(4, 6), np.array([[0], [3], [-1], [5]], np.int32)
KERNEL, NARROW, WIDE, HALVES = (Tensor(normal(*s)) for s in ((8, 2, 3, 3), (4, 6, 3), (3, 4, 2, 2), (6, 3)))
NUMBERS = RANDOM.integers(-20, 20, (4, 6)).astype(np.int32)

CASES: dict[str, tuple[Callable[..., Any], dict[str, Any], dict[str, int]]] = {
    "convolution": (
        lambda x: x.conv2d(KERNEL, stride=2, padding=1, groups=2).relu(), {"x": normal(2, 4, 9, 9)}, {"Conv": 1}),
    "convolution-1d": (lambda x: x.conv1d(NARROW, padding=2, dilation=2), {"x": normal(1, 6, 11)}, {"Conv": 1}),
    "transposed": (lambda x: x.conv_transpose2d(WIDE, stride=2), {"x": normal(1, 3, 5, 5)}, {}),
    "pool": (lambda x: [x.max_pool2d(3, 2, 1), x.avg_pool2d(2)], {"x": normal(1, 3, 8, 8)}, {}),
    "products": (
        lambda a, b: [a @ b, (a[0] @ b[0]).softmax(-1)], {"a": normal(2, 5, 7), "b": normal(2, 7, 3)}, {"MatMul": 2}),
    "attention": (
        lambda q, k: q.scaled_dot_product_attention(k, k, is_causal=True),
        {"q": normal(1, 2, 5, 8), "k": normal(1, 2, 5, 8)}, {"MatMul": 2}),
    "norm": (lambda x: x.layer_norm(6).gelu(), {"x": X}, {}),
    "functions": (
        lambda x: [x.exp(), x.sin(), x.abs().log1p(), x.tanh(), x.erf(), x.round(), x.trunc(), x.floor(), x.sign(),
                   x.exp2(), x.abs().log2(), x.expm1(), x.abs().log10(), x.silu(), x.abs().pow(1.7), x.rsqrt().isnan(),
                   x.fmod(0.3), x % -0.7],
        {"x": X}, {}),
    "integers": (
        lambda x: [x // 3, x % 5, x < 2, x.eq(3), x.cast("int8") * 100, x.cast("uint8") + 200, x.clamp(-3, 3),
                   (x > 0) & (x < 5), x & 7, x ^ 3, x << 2, (x > 0).sum(), (x > 0).max(1), x.cast("int64").prod(0)],
        {"x": NUMBERS}, {}),
    "movement": (
        lambda x: [x.flip(0, 1), x[1:3, ::2], x.pad(((1, 1), (0, 2))), Tensor.cat(x, x * 2, axis=1), x.roll(1, 0),
                   x.repeat(2, 2), (x > 0).pad(((0, 1), (0, 0))), x.T],
        {"x": X}, {}),
    "indices": (
        lambda x, i: [x[i[:, 0].clamp(0, 3)], x.gather(1, i.clamp(0, 5)), x.cumsum(1), x.argmax(1)],
        {"x": X, "i": IDS}, {}),
    "scatter": (
        lambda x, i: [x.scatter(1, i.clamp(0, 5), x), x.scatter_reduce(1, i.clamp(0, 5), x, "sum"),
                      x.index_add(0, i[:, 0].clamp(0, 3), x)],
        {"x": X, "i": IDS}, {}),
    "resize": (lambda x: x.interpolate((7, 9), mode="bilinear"), {"x": normal(1, 2, 4, 4)}, {}),
    "halves": (lambda x: (x.half() @ HALVES.half()).float(), {"x": X}, {"MatMul": 1}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_as_computed(name: str, tmp_path: Path) -> None:
    function, arrays, operators = CASES[name]
    given, path = {n: Tensor(a) for n, a in arrays.items()}, tmp_path / "m.onnx"
    tinyweb.export.onnx(function, given, path)
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    counts = Counter(n.op_type for n in model.graph.node)
    assert {op: counts[op] for op in operators} == operators
    result = function(**given)
    wanted = [t.numpy() for t in (result if isinstance(result, list) else [result])]
    theirs = ReferenceEvaluator(model).run(None, arrays)
    read = OnnxModel(path)
    assert [list(p.shape or ()) for p in read.outputs] == [list(w.shape) for w in wanted]
    for want, their, mine in zip(wanted, theirs, read(**given).values(), strict=True):
        assert want.dtype == mine.numpy().dtype == np.asarray(their).dtype
        for found in (np.asarray(their), mine.numpy()):
            np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5, err_msg=name)


def test_a_model(tmp_path: Path) -> None:
    """Weights are initializers by their names, convolutions Conv; inputs by position have the parameters' names."""
    model, path, x = ResNet.random(18), tmp_path / "resnet.onnx", Tensor(normal(1, 3, 32, 32))
    tinyweb.export.onnx(model, [x], path, name="resnet18")
    graph = onnx.load(path).graph
    onnx.checker.check_model(str(path), full_check=True)
    assert graph.name == "resnet18" and Counter(n.op_type for n in graph.node)["Conv"] == 20
    assert "stem.weight" in {t.name for t in graph.initializer}
    (name,) = (p.name for p in graph.input)
    np.testing.assert_allclose(OnnxModel(path)(**{name: x})["output"].numpy(), model(x).numpy(), rtol=1e-3, atol=1e-4)


def test_a_jit_is_part_of_the_graph(tmp_path: Path) -> None:
    tinyweb.export.onnx(jit(lambda x: {"y": x * 2}), {"x": Tensor(X)}, tmp_path / "m.onnx")
    assert [o.name for o in onnx.load(tmp_path / "m.onnx").graph.output] == ["y"]


def test_what_cannot_be_written(tmp_path: Path) -> None:
    kept = Tensor(normal(4, 6)).realize()
    for function, error, message in (
        (lambda x: Tensor([x.sum().item()]), ExportError, "asks for values"),
        (lambda x: (x + 1).realize() * 2, ExportError, "computes values"),
        (lambda x: Tensor.rand(4, 6) + x, ExportError, "random numbers: make them an input"),
        (lambda x: kept.assign(x), ExportError, "in place"),
        (lambda x: {"x": x}, ExportError, "both called 'x'"),
        (lambda x: 3, ExportError, "return tensors"),
        (lambda x: x.sort(1)[0], NotImplementedError, "ONNX has no operator for the bits of float32 as int32"),
    ):
        before = kept.uop
        with pytest.raises(error, match=message):
            tinyweb.export.onnx(function, {"x": Tensor(X)}, tmp_path / "m.onnx")
        assert kept.uop is before and not list(tmp_path.iterdir())
    with pytest.raises(ExportError, match="cannot be written"):
        tinyweb.export.onnx(lambda x: x + 1, {"x": Tensor(X)}, tmp_path / "missing" / "m.onnx")

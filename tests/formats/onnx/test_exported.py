"""Graphs as PyTorch's two exporters write them, of networks with small random weights, give what onnxruntime gives."""

from __future__ import annotations

import pytest

from benchmarks.onnx.models import MODELS
from benchmarks.onnx.rows import NAMES
from tests.formats.onnx.answered import answered, networks
from tinyweb import Tensor, jit
from tinyweb.formats.onnx import OnnxModel

QUICK = {"gpt2"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in networks()]
)
def test_as_onnxruntime(name: str) -> None:
    graph = answered(name)
    model = OnnxModel(graph.model)
    run = jit(lambda **inputs: model(**inputs))
    found = run(**{n: Tensor(a) for n, a in graph.inputs.items()})
    graph.check({n: t.numpy() for n, t in found.items()})


def test_benchmarks_run_all_of_them() -> None:
    assert set(NAMES) == set(MODELS)

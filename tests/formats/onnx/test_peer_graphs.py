"""Graphs of scikit-learn's models, and quantised ones, give what onnxruntime gives."""

from __future__ import annotations

import pytest

from tests.formats.onnx.answered import answered, peers
from tinyweb import Tensor
from tinyweb.formats.onnx import OnnxModel


@pytest.mark.parametrize("name", peers())
def test_as_onnxruntime(name: str) -> None:
    graph = answered(name)
    found = OnnxModel(graph.model)(**{n: Tensor(a) for n, a in graph.inputs.items()})
    graph.check({n: t.numpy() for n, t in found.items()})
    assert {n: found[n].numpy().dtype for n in graph.outputs} == {n: a.dtype for n, a in graph.outputs.items()}

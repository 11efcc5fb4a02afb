"""Graphs as PyTorch's two exporters write them, of networks with small random weights, give what PyTorch gives."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.onnx.models import MODELS, make
from benchmarks.onnx.rows import NAMES
from tinyweb import Tensor, jit
from tinyweb.formats.onnx import OnnxModel

QUICK = {"gpt2"}
CASES = [
    pytest.param(name, dynamo, marks=() if name in QUICK and not dynamo else pytest.mark.slow)
    for dynamo in (False, True)
    for name in MODELS
]


@pytest.mark.parametrize("name, dynamo", CASES)
def test_as_pytorch(name: str, dynamo: bool) -> None:
    model = make(name, small=True)
    graph, wanted = OnnxModel(model.graph(dynamo)), model()
    run = jit(lambda **inputs: graph(**inputs))
    found = run(**{n: Tensor(t.numpy()) for n, t in model.inputs.items()})
    for output, want in wanted.items():
        np.testing.assert_allclose(found[output].numpy(), want, rtol=1e-4, atol=1e-4 * np.abs(want).max())


def test_benchmarks_run_all_of_them() -> None:
    assert set(NAMES) == set(MODELS)

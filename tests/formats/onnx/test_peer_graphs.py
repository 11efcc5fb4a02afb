"""Graphs of scikit-learn's models, and quantised ones, give what onnxruntime gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tinyweb import Tensor
from tinyweb.formats.onnx import OnnxModel

ANSWERS = dict(np.load(Path(__file__).with_name("peer_graphs.npz")))
NAMES = sorted({key.partition("/")[0] for key in ANSWERS})
STEP = 1 / 127  # of the largest value, in graphs of 8-bit integers


@pytest.mark.parametrize("name", NAMES)
def test_as_onnxruntime(name: str) -> None:
    arrays = {tuple(key.split("/", 2)[1:]): a for key, a in ANSWERS.items() if key.startswith(f"{name}/")}
    model = OnnxModel(arrays["model",].tobytes())
    found = model(**{k[1]: Tensor(a) for k, a in arrays.items() if k[0] == "in"})
    for key, want in arrays.items():
        if key[0] == "out":
            got = found[key[1]].numpy()
            assert got.dtype == want.dtype
            scale = float(np.abs(want).max())
            np.testing.assert_allclose(
                got, want, rtol=1e-4, atol=(STEP if name.endswith("int8") else 1e-5) * scale, err_msg=key[1]
            )

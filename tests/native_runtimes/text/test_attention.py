"""Attention by matrix instructions, by running the text of kernels."""

from __future__ import annotations

import numpy as np
import pytest

from tests.graph.optimize.test_attention_matrices import BF16, Shape, computed
from tests.native_runtimes.text.runtime import CudaText, HipText, TextRuntime
from tinyweb.graph.ir import Fragments

SHAPES = [
    Shape(2, 1, 40, 70, 32, 32, "causal"),
    Shape(1, 1, 16, 33, 48, 20, "bool", BF16),
    Shape(1, 1, 130, 140, 64, 64, "bias"),
]


@pytest.mark.parametrize("chip", ["sm_90", "gfx942", "gfx1100", "gfx1201"])
@pytest.mark.parametrize("s", SHAPES, ids=["causal", "masked", "biased"])
def test_values(chip: str, s: Shape) -> None:
    runtime: TextRuntime = CudaText(arch=chip) if chip.startswith("sm") else HipText(arch=chip)
    program, got, want = computed(s, runtime.target, runtime)
    tolerance = 2e-2 if s.dtype is BF16 else 3e-3
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
    assert any(isinstance(u.arg, Fragments) for u in program.uops)

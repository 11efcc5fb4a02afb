"""Convolutions by matrix instructions as CUDA C++ and HIP C++ on the processor: what windows read is gathered by copies
and stores into shared memory, while other steps multiply."""

from __future__ import annotations

import numpy as np
import pytest

from tests.graph.optimize.test_convolution_matrices import WINDOWS, Window
from tests.graph.optimize.test_half_products import by_matrices, computed
from tests.native_runtimes.text.runtime import CudaText, HipText
from tests.samples import slow_unless

LARGER = {
    "a workgroup for several lines": Window(1, (32, 64), (20, 20), (3, 3)),
    "warpgroups": Window(1, (16, 128), (16, 24), (3, 3)),
    "warpgroups of channels side by side": Window(1, (64, 32), (12, 16), (3, 3), last=True),
}
ARCHS = ("sm_75", "sm_80", "sm_90", "gfx942", "gfx1100", "gfx1201")
SAMPLE = {("short lines", "sm_80"), ("step", "gfx1100"), ("warpgroups", "sm_90"), ("channels side by side", "gfx942")}


@pytest.mark.parametrize(("name", "arch"), slow_unless(lambda *case: case in SAMPLE, WINDOWS | LARGER, ARCHS))
def test_values(name: str, arch: str) -> None:
    runtime = CudaText(arch=arch) if arch.startswith("sm") else HipText(arch=arch)
    s = (WINDOWS | LARGER)[name]
    want = s.wanted()
    program, got = computed(s.of, s.given(), want.size, runtime.target, runtime)
    assert by_matrices(program)
    np.testing.assert_array_equal(got.reshape(want.shape), want)

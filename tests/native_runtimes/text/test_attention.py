"""Attention by matrix instructions, by running the text of kernels."""

from __future__ import annotations

import numpy as np
import pytest

from tests.graph.optimize.test_attention_matrices import BF16, Shape, computed, halves, program_of
from tests.graph.optimize.test_online import attend
from tests.native_runtimes.text.library import library, run
from tests.native_runtimes.text.runtime import CudaText, HipText, TextRuntime
from tinyweb.graph.ir import Fragments
from tinyweb.render_c import CUDA, render_gpu

SHAPES = [
    Shape(2, 1, 40, 70, 32, 32, "causal"),
    Shape(1, 1, 16, 33, 48, 20, "bool", BF16),
    Shape(1, 1, 130, 140, 64, 64, "bias"),
]
# rows for warpgroups: one and two of them, one and several blocks, products of later steps, or at once
READ = [
    Shape(2, 1, 130, 300, 64, 64, "causal"),
    Shape(2, 2, 64, 250, 128, 128, "bool", BF16),
    Shape(1, 1, 120, 180, 256, 256),
    Shape(1, 1, 128, 40, 32, 96),
]


@pytest.mark.parametrize("s", READ, ids=["causal", "masked", "wide", "one block"])
def test_warpgroups(s: Shape) -> None:
    """Weights are in the registers that a product takes them of, keys and values in shared memory."""
    runtime = CudaText(arch="sm_90")
    program, got, want = computed(s, runtime.target, runtime)
    tolerance = 2e-2 if s.dtype is BF16 else 3e-3
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
    fragments = [u.arg for u in program.uops if isinstance(u.arg, Fragments)]
    assert all(f.shared for f in fragments) and {f.first_held for f in fragments} == {False, True}


# what is waited for too late, or not at all, shows
CASE = Shape(2, 2, 64, 400, 64, 64)
FAULTS = {
    "none": ("", "", ""),
    "scores are not waited for": ("wgmma.wait_group.sync.aligned 1;", "wgmma.wait_group.sync.aligned 2;", "values"),
    "sums are not waited for": ("wgmma.wait_group.sync.aligned 0;", "wgmma.wait_group.sync.aligned 1;", "values"),
    "weights have no fence": ('asm volatile("wgmma.fence.sync.aligned;" ::: "memory");', "", "without a fence"),
    "values are copied where they are read": ("cp.async.wait_group 0;", "cp.async.wait_group 1;", "values"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_show(fault: str) -> None:
    what, other, told = FAULTS[fault]
    runtime = CudaText(arch="sm_90")
    program = program_of(CASE, runtime.target)
    source = render_gpu([program], CUDA)
    assert what in source
    source = source.replace(what, other) if what else source
    q, k, v = (halves(2, n, 64) for n in (64, 400, 401))
    v = np.ascontiguousarray(v[:, 1:])
    memory = [np.zeros((2, 64, 64), np.float16), q, k, v]
    built = library(source, ((program.name, len(memory)),), CUDA.name, 32)
    grid = [int(n) for n in program.grid if isinstance(n, int)]
    arguments = built, program.name, grid, program.workgroup, [m.ctypes.data for m in memory]
    if told not in ("", "values"):
        with pytest.raises(AssertionError, match=told):
            run(*arguments)
        return
    run(*arguments)
    close = np.allclose(memory[0], attend(q, k, v, 0.125), rtol=3e-3, atol=3e-3)
    assert close == (fault == "none")


@pytest.mark.parametrize("chip", ["sm_90", "gfx942", "gfx1100", "gfx1201"])
@pytest.mark.parametrize("s", SHAPES, ids=["causal", "masked", "biased"])
def test_values(chip: str, s: Shape) -> None:
    runtime: TextRuntime = CudaText(arch=chip) if chip.startswith("sm") else HipText(arch=chip)
    program, got, want = computed(s, runtime.target, runtime)
    tolerance = 2e-2 if s.dtype is BF16 else 3e-3
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
    assert any(isinstance(u.arg, Fragments) for u in program.uops)

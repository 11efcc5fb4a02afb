"""Kernels of whole networks, and of works of array code, compile for AMD GPUs, and nothing is spilled."""

from __future__ import annotations

import pytest
from amd_kernels import compiled
from kernel_sets import CLIFFS, PRODUCTS, SETS

from tinyweb.graph.gpu_targets import AMD, amd_target

SAMPLE = [("Llama-1B q4", "gfx942"), ("Llama-1B f16", "gfx1201"), (PRODUCTS, "gfx90a")]
REST = [(name, chip) for name in SETS for chip in AMD if (name, chip) not in SAMPLE]


@pytest.mark.parametrize(("name", "chip"), [*SAMPLE, *(pytest.param(*both, marks=pytest.mark.slow) for both in REST)])
def test_no_kernel_spills(name: str, chip: str) -> None:
    target, found = amd_target(chip), compiled(name, chip)
    if name == PRODUCTS:
        assert all(k.matrices > 0 for k in found)
    else:
        assert len(found) >= 15
    assert {k.name: k.spills for k in found if k.spills} == {}
    assert all(k.scratch_bytes == 0 for k in found if name != CLIFFS), "no array of registers is memory"
    assert all(k.shared_bytes <= target.shared_bytes and k.waves >= 1 for k in found)
    assert all(k.wave == (32 if chip.startswith("gfx1") else 64) for k in found)
    assert sum(k.wide_loads for k in found) > 0 and sum(k.wide_shared_loads for k in found) > 0

"""Kernels of whole networks compile for AMD GPUs, and nothing is spilled."""

from __future__ import annotations

import pytest
from amd_kernels import compiled
from kernel_sets import NETWORKS, PRODUCTS

from tinyweb.graph.gpu_targets import AMD, amd_target

SAMPLE = [("Llama-1B q4", "gfx942"), ("Llama-1B f16", "gfx1201")]
REST = [(network, chip) for network in NETWORKS for chip in AMD if (network, chip) not in SAMPLE]


@pytest.mark.parametrize(
    ("network", "chip"), [*SAMPLE, *(pytest.param(*both, marks=pytest.mark.slow) for both in REST)]
)
def test_no_kernel_spills(network: str, chip: str) -> None:
    target, found = amd_target(chip), compiled(network, chip)
    if network == PRODUCTS:
        assert sum(k.matrices > 0 for k in found) >= len(found) - (chip == "gfx90a")  # which has none for bytes
    else:
        assert len(found) >= 15
    assert {k.name: k.spills + k.scratch_bytes for k in found if k.spills or k.scratch_bytes} == {}
    assert all(k.shared_bytes <= target.shared_bytes and k.waves >= 1 for k in found)
    assert all(k.wave == (32 if chip.startswith("gfx1") else 64) for k in found)
    assert sum(k.wide_loads for k in found) > 0 and sum(k.wide_shared_loads for k in found) > 0

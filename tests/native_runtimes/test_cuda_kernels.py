"""Kernels of whole networks, and of works of array code, compile for NVIDIA GPUs, and nothing is spilled."""

import pytest
from nvidia_kernels import CHIPS, CLIFFS, SETS, compiled

SAMPLE = [("Llama-1B q4", "sm_90"), ("Llama-1B f16", "sm_120")]
REST = [(name, chip) for name in SETS for chip in CHIPS if (name, chip) not in SAMPLE]


@pytest.mark.parametrize(("name", "chip"), [*SAMPLE, *(pytest.param(*both, marks=pytest.mark.slow) for both in REST)])
def test_no_kernel_spills(name: str, chip: str) -> None:
    found = compiled(name, chip)
    assert len(found) >= 15
    assert {k.name: k.resources for k in found if k.resources.spill_bytes} == {}
    assert all(k.resources.stack_bytes == 0 for k in found if name != CLIFFS), "no array of registers is memory"
    assert {"attention", "sums of rows, matrix × vector"} <= {k.kind for k in found}

"""Kernels of whole networks, and of works of array code, compile for NVIDIA GPUs, and nothing is spilled."""

import pytest
from kernel_sets import CLIFFS, PRODUCTS, SETS
from nvidia_kernels import CHIPS, compiled

from tests.graph.optimize.test_attention_matrices import Shape, program_of
from tinyweb.graph.gpu_targets import nvidia_target
from tinyweb.native_runtimes.cuda.compile import compile_cuda
from tinyweb.render_c import CUDA, render_gpu

SAMPLE = [("Llama-1B q4", "sm_90"), ("Llama-1B f16", "sm_120"), (PRODUCTS, "sm_75")]
REST = [(name, chip) for name in SETS for chip in CHIPS if (name, chip) not in SAMPLE]


@pytest.mark.parametrize(("name", "chip"), [*SAMPLE, *(pytest.param(*both, marks=pytest.mark.slow) for both in REST)])
def test_no_kernel_spills(name: str, chip: str) -> None:
    found = compiled(name, chip)
    assert {k.name: k.resources for k in found if k.resources.spill_bytes} == {}
    assert all(k.resources.shared_bytes <= nvidia_target(chip).shared_bytes for k in found)
    assert not any(k.remarks for k in found), "products of warpgroups go on side by side"
    assert all(k.resources.stack_bytes == 0 for k in found if name != CLIFFS), "no array of registers is memory"
    kinds = {k.kind for k in found}
    products = [k.matrices > 0 for k in found if k.kind == "product, convolution"]
    if name == PRODUCTS:
        assert kinds == {"product, convolution"}
        assert products.count(False) == (chip == "sm_75")  # which has none for brain floats
    else:
        assert len(found) >= 15 and "sums of rows, matrix × vector" in kinds
        assert ("attention" in kinds) == (name != "YOLOv8n")
    if name.startswith("Llama"):  # of a block of a prompt: beside a cache of half floats, and of half floats
        assert sum(k.matrices > 0 for k in found if k.kind == "attention") == 1
        assert all(products) or name != "Llama-1B f16"


LATER = [("sm_80", 64), ("sm_80", 128), ("sm_90", 32), ("sm_90", 256), ("sm_120", 128)]


@pytest.mark.parametrize(
    ("chip", "width"), [("sm_90", 64), ("sm_90", 128), *(pytest.param(*both, marks=pytest.mark.slow) for both in LATER)]
)
def test_attention_by_matrices(chip: str, width: int) -> None:
    """Sums of both products stay in registers, whatever the size of heads."""
    program = program_of(Shape(16, 16, 2048, 2048, width, width), nvidia_target(chip))
    compiled = compile_cuda(render_gpu([program], CUDA), chip)
    (found,) = compiled.resources.values()
    assert found.spill_bytes == 0 and found.stack_bytes == 0 and not compiled.remarks
    assert found.registers <= 255 and program.shared_bytes <= nvidia_target(chip).shared_bytes

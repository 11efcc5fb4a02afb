"""Kernels of whole networks, and of works of array code, compile for NVIDIA GPUs, and nothing is spilled."""

import pytest
from kernel_sets import CLIFFS, DEVICE, PRODUCTS, SETS
from nvidia_kernels import CHIPS, compiled, kind

from tests.graph.optimize.test_attention_matrices import Shape, program_of
from tinyweb import Tensor
from tinyweb.graph.gpu_targets import amd_target, nvidia_target
from tinyweb.graph.lower import program_for
from tinyweb.graph.program import Program
from tinyweb.graph.target import Target
from tinyweb.native_runtimes.cuda.compile import compile_cuda
from tinyweb.render_c import CUDA, render_gpu
from tinyweb.tracing import capture

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


LATER = [("sm_80", 64), ("sm_80", 128), ("sm_90", 32), ("sm_90", 160), ("sm_90", 256), ("sm_120", 128)]


@pytest.mark.parametrize(
    ("chip", "width"), [("sm_90", 64), ("sm_90", 128), *(pytest.param(*both, marks=pytest.mark.slow) for both in LATER)]
)
def test_attention_by_matrices(chip: str, width: int) -> None:
    """Sums of both products stay in registers, whatever the size of heads."""
    attends(chip, 2048, 2048, width)


FEW = [(320, 64), (256, 160), (256, 256)]


@pytest.mark.parametrize(
    ("keys", "width"), [(128, 160), (256, 64), *(pytest.param(*both, marks=pytest.mark.slow) for both in FEW)]
)
def test_attention_to_few_blocks_of_keys(keys: int, width: int) -> None:
    """Products of warpgroups go on side by side, however few steps their loop has."""
    attends("sm_90", 256, keys, width)


def attends(chip: str, queries: int, keys: int, width: int) -> None:
    program = program_of(Shape(16, 16, queries, keys, width, width), nvidia_target(chip))
    compiled = compile_cuda(render_gpu([program], CUDA), chip)
    (found,) = compiled.resources.values()
    assert found.spill_bytes == 0 and found.stack_bytes == 0 and not compiled.remarks
    assert found.registers <= 255 and program.shared_bytes <= nvidia_target(chip).shared_bytes


def weighted_twice(target: Target, width: int) -> Program:
    """Two sums of the same weights: one kernel, whose threads hold the sums of both."""
    q, k, v, w = (Tensor.empty(2048, width, device=DEVICE) for _ in range(4))

    def both() -> list[Tensor]:
        weights = (q @ k.T).softmax(-1)
        return [weights @ v, weights @ w]

    (call,) = capture(both, target).calls
    return program_for(call.kernel, target)


@pytest.mark.parametrize("width", [256, pytest.param(160, marks=pytest.mark.slow)])
def test_two_sums_of_the_same_weights(width: int) -> None:
    program = weighted_twice(nvidia_target("sm_90"), width)
    found = compile_cuda(render_gpu([program], CUDA), "sm_90", program.name).resources[program.name]
    assert kind(program) == "attention" and found.spill_bytes == found.stack_bytes == 0


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_what_two_sums_exchange_fits(arch: str) -> None:
    target = amd_target(arch)
    program = weighted_twice(target, 128)
    assert kind(program) == "attention" and program.shared_bytes <= target.shared_bytes

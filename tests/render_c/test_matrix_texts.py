"""Matrix instructions in the machine code for NVIDIA and AMD: that they are there, and what goes with them."""

import pytest

from tests.graph.optimize.test_fragments import BF16, E4M3, E5M2, F16, F32, I8, product
from tinyweb.dtype import DType
from tinyweb.errors import DeviceError
from tinyweb.graph.gpu_targets import amd_target, nvidia_target
from tinyweb.graph.ir import Fragments, Ops, RowsArg
from tinyweb.graph.lower import lower
from tinyweb.graph.optimize import optimize
from tinyweb.graph.program import Program
from tinyweb.graph.target import Target
from tinyweb.native_runtimes.cuda.compile import compile_cuda
from tinyweb.native_runtimes.cuda.resources import matrix_instructions
from tinyweb.native_runtimes.hip.compile import compile_code_object
from tinyweb.render_c import CUDA, HIP, render_gpu

SIZES = 4096, 4096, 1024
WHOLE = 2048, 2048, 192  # as many of the largest tiles of warpgroups as keep a GPU busy


def made(
    target: Target,
    dtype: DType,
    flipped: tuple[bool, bool] = (False, False),
    sizes: tuple[int, int, int] = SIZES,
) -> Program:
    return lower(optimize(product(*sizes, dtype, flipped).kernel, target), target)


@pytest.mark.parametrize(
    "chip", ["sm_90", pytest.param("sm_80", marks=pytest.mark.slow), pytest.param("sm_120", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (F16, "f16.f16"), (I8, "s8.s8"), (F32, "tf32.tf32"), (E4M3, "e4m3.e4m3"),
        *(pytest.param(*n, marks=pytest.mark.slow) for n in ((BF16, "bf16.bf16"), (E5M2, "e5m2.e5m2"))),
    ],
)  # fmt: skip
def test_nvidia(chip: str, dtype: DType, name: str) -> None:
    """Four matrices along each side of a subgroup's tile; nothing is spilled, and what is staged is copied ahead."""
    if dtype in (E4M3, E5M2) and chip == "sm_80":
        chip = "sm_89"  # is the first that has them
    if dtype in (F16, BF16, I8) and chip == "sm_90":
        chip = "sm_86"  # Hopper has others
    program = made(nvidia_target(chip, tf32=True), dtype, (False, True))
    text = render_gpu([program], CUDA)
    resources = compile_cuda(text, chip, program.name).resources[program.name]
    assert resources.spill_bytes == 0
    dots = [u for u in program.uops if u.op is Ops.DOT and isinstance(u.arg, Fragments)]
    assert len(dots) == 2 * sum(isinstance(u.arg, RowsArg) for u in program.uops) > 0
    assert f"mma.sync.aligned.m16n8k{dots[0].arg.a.shape[1]}" in text and name in text
    assert "cp.async.cg" in text and "ldmatrix" in text
    staged = [u for u in program.uops if u.op is Ops.STORE and u.arg == "ahead"]
    assert staged and all(u.src[2].dtype.nbytes(u.src[2].arg) == 16 for u in staged)


@pytest.mark.parametrize(("dtype", "shape"), [(F16, "m16n8k8"), (I8, "m8n8k16")])
def test_turing(dtype: DType, shape: str) -> None:
    """Smaller instructions of the same registers."""
    program = made(nvidia_target("sm_75"), dtype, (False, True))
    text = render_gpu([program], CUDA)
    compiled = compile_cuda(text, "sm_75", program.name)
    assert compiled.resources[program.name].spill_bytes == 0 and matrix_instructions(compiled.code) > 0
    assert f"mma.sync.aligned.{shape}." in text and "ldmatrix" in text and "cp.async" not in text


@pytest.mark.parametrize(
    ("dtype", "flipped"),
    [
        pytest.param(F16, (False, False), id="f16-rows"),
        pytest.param(F16, (True, True), id="f16-columns", marks=pytest.mark.slow),
        pytest.param(BF16, (False, False), id="bf16-rows", marks=pytest.mark.slow),
        pytest.param(BF16, (True, True), id="bf16-columns"),
        pytest.param(I8, (False, True), id="i8"),  # steps lie along memory
    ],
)
def test_warpgroups(dtype: DType, flipped: tuple[bool, bool]) -> None:
    """Hopper's products go on side by side: ptxas says of none that it waits, and sums stay where they are."""
    target, integers = nvidia_target("sm_90"), dtype is I8
    program = made(target, dtype, flipped, WHOLE)
    text = render_gpu([program], CUDA)
    compiled = compile_cuda(text, "sm_90", program.name)
    resources = compiled.resources[program.name]
    assert compiled.remarks == () and resources.spill_bytes == resources.stack_bytes == 0
    assert resources.registers <= 224 and program.shared_bytes <= target.shared_bytes
    types = "k32.s32.s8.s8" if integers else f"k16.f32.{dtype.short}.{dtype.short}"
    assert f"wgmma.mma_async.sync.aligned.m64n256{types}" in text
    assert "ldmatrix" not in text and "mma.sync" not in text
    assert matrix_instructions(compiled.code) > 0
    staged = [u for u in program.uops if u.op is Ops.STORE and u.arg == "ahead"]
    assert staged and all(u.src[2].dtype.nbytes(u.src[2].arg) == 16 for u in staged)
    with pytest.raises(DeviceError, match="sm_100"):  # machine code of Hopper alone
        compile_cuda(text, "sm_100", program.name)


def test_sums_that_are_touched_are_remarked() -> None:
    """What the test before looks for is told where it is so."""
    program = made(nvidia_target("sm_90"), F16, sizes=WHOLE)
    text = render_gpu([program], CUDA).replace(
        'asm volatile("wgmma.commit', 'r3_0[0] += 1.0f; asm volatile("wgmma.commit'
    )
    assert compile_cuda(text, "sm_90", program.name).remarks


@pytest.mark.parametrize(
    ("chip", "dtype", "instruction"),
    [
        ("gfx90a", BF16, "v_mfma_f32_16x16x16bf16_1k"), ("gfx90a", I8, "v_mfma_i32_16x16x16i8"),
        ("gfx942", F32, "v_mfma_f32_16x16x4_f32"), ("gfx942", I8, "v_mfma_i32_16x16x32_i8"),
        ("gfx1100", F16, "v_wmma_f32_16x16x16_f16"), ("gfx1201", BF16, "v_wmma_f32_16x16x16_bf16"),
        ("gfx950", E4M3, "v_mfma_f32_16x16x32_fp8_fp8"), ("gfx1201", E5M2, "v_wmma_f32_16x16x16_bf8_bf8"),
        # the same on another chip, or of another type of the same width
        *(pytest.param(*n, marks=pytest.mark.slow) for n in (
            ("gfx90a", F16, "v_mfma_f32_16x16x16f16"), ("gfx942", F16, "v_mfma_f32_16x16x16_f16"),
            ("gfx1100", I8, "v_wmma_i32_16x16x16_iu8"), ("gfx950", E5M2, "v_mfma_f32_16x16x32_bf8_bf8"),
            ("gfx1201", E4M3, "v_wmma_f32_16x16x16_fp8_fp8"),
        )),
    ],
)  # fmt: skip
def test_amd(chip: str, dtype: DType, instruction: str) -> None:
    program = made(amd_target(chip), dtype, (False, True))
    text = compile_code_object(render_gpu([program], HIP), chip).assembly
    dots = [u for u in program.uops if u.op is Ops.DOT and isinstance(u.arg, Fragments)]
    written = text.count(f"{instruction} ")  # once for each step of the loop around them that is written out
    assert dots and written and written % len(dots) == 0
    assert ".vgpr_spill_count: 0" in text

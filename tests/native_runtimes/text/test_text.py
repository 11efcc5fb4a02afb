"""What is written for GPUs, run thread by thread: what the compiler makes, and what only the languages have."""

from __future__ import annotations

import numpy as np
import pytest

from tests.native_runtimes.test_lowered import CASES, REDUCTIONS, compare
from tests.native_runtimes.text.library import library, run, without_assembly
from tests.native_runtimes.text.runtime import TEXTS, CudaText, HipText, TextRuntime
from tests.tensor.ops import compare_all, values
from tests.tensor.test_linalg import OPS as LINEAR_ALGEBRA
from tinyweb import Tensor
from tinyweb.dtype import BY_NAME, dtypes
from tinyweb.graph.ir import Ops
from tinyweb.nn.quantized_weight import of_codes
from tinyweb.render_c import CUDA

KINDS = {"CUDA": CudaText, "HIP": HipText}


@pytest.fixture(params=KINDS, scope="module")
def text(request: pytest.FixtureRequest) -> TextRuntime:
    """Each language in turn."""
    opened: TextRuntime = KINDS[request.param]()
    return opened


@pytest.mark.parametrize("name", CASES)
def test_lowered(text: TextRuntime, name: str) -> None:
    inputs, ours, numpy = CASES[name]
    compare(text, text.target, inputs, ours, numpy(*inputs))


@pytest.mark.parametrize("name", ["matvec", "odd rows", "halves"])
def test_sums_of_rows(text: TextRuntime, name: str) -> None:
    inputs, ours = REDUCTIONS[name]
    compare(text, text.target, inputs, ours, ours(*map(Tensor, inputs)).numpy())


@pytest.mark.parametrize("device", TEXTS)
@pytest.mark.parametrize("bits", [4, 8])
def test_long_rows_of_few_bits(bits: int, device: str) -> None:
    """A thread of a wave has words of several groups, and all scales of theirs in one load."""
    random, groups, group = np.random.default_rng(bits), 64, 32
    codes = random.integers(0, 1 << bits, (24, groups, group)).astype(np.uint8)
    scales = random.choice([-2.0, -1.0, 0.5, 1.0], (24, groups)).astype(np.float16)
    x = random.integers(-8, 9, groups * group).astype(np.float32)
    matrix = of_codes([{"codes": codes, "scales": scales}], bits, device)
    dense = (codes.astype(np.float32) - (1 << bits - 1)) * scales[..., None].astype(np.float32)
    got = matrix.product(Tensor(x, device=device)).numpy()
    np.testing.assert_array_equal(got, dense.reshape(24, -1) @ x)  # all sums are multiples of 1/2, and small


@pytest.mark.parametrize(("heads", "keys"), [(8, 1024), (8, 1000), (4, 1500), (8, 77)])
def test_neighbours_share_what_follows_from_sums(text: TextRuntime, heads: int, keys: int) -> None:
    """Each of the first threads computes a sigmoid of the sums that all of them have; rows, biases and halves too."""
    random = np.random.default_rng(keys)
    shapes = (heads, 1, 64), (heads, keys, 64), (keys,)
    q, k, b = (random.standard_normal(shape, np.float32) for shape in shapes)
    scores, before = np.einsum("hqd,hkd->hqk", q, k) / 8, len(text.programs)

    def ours(q: Tensor, k: Tensor, b: Tensor) -> Tensor:
        return ((q / 8) @ k.transpose(-1, -2) + b).sigmoid() * b.exp()

    want = np.exp(b) / (1 + np.exp(-scores - b))
    compare(text, text.target, [q, k, b], ours, want.astype(np.float32))
    choices = [u for p in text.programs[before:] for u in p.uops if u.op is Ops.WHERE]
    assert any(u.src[1].op is u.src[2].op is Ops.LOAD for u in choices) == (keys > 100)


@pytest.mark.parametrize(
    ("name", "arch"),
    [
        *((name, "sm_90") for name in ("float16", "bfloat16", "int8", "float8_e4m3", "float8_e5m2")),
        ("float16", "sm_75"), ("int8", "sm_75"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("order", ["rows", "columns"])
def test_products_on_tensor_cores(name: str, arch: str, order: str) -> None:
    """mma.sync with operands that are copied ahead (Turing's of fewer rows and steps, without), in either order; sizes
    that no tile divides."""
    random, dtype, runtime = np.random.default_rng(0), BY_NAME[name], CudaText(arch=arch)
    a, b = (random.integers(-8, 9, size).astype(np.float32) for size in ((130, 200), (200, 70)))
    result = dtypes.int32 if dtype.is_int else dtypes.float32

    def ours(x: Tensor, y: Tensor) -> Tensor:
        x, y = x.cast(dtype).contiguous(), (y.T if order == "columns" else y).cast(dtype).contiguous()
        return x.cast(result) @ (y.T if order == "columns" else y).cast(result)

    compare(runtime, runtime.target, [a, b], ours, (a @ b).astype(np.int32 if dtype.is_int else np.float32))
    assert any("mma_sync" in u.arg.name for p in runtime.programs for u in p.uops if hasattr(u.arg, "sums"))


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize("order", ["rows", "columns"])
def test_products_with_narrower_floats(name: str, order: str) -> None:
    """Instructions for float32 take half floats of either operand, which are widened as they are read."""
    random, dtype, runtime = np.random.default_rng(0), BY_NAME[name], HipText(arch="gfx942")
    a, b = (random.integers(-8, 9, size).astype(np.float32) for size in ((130, 100), (100, 70)))

    def ours(x: Tensor, y: Tensor) -> Tensor:
        narrow = (y.T if order == "columns" else y).cast(dtype).contiguous()
        product = x @ (narrow.T if order == "columns" else narrow).float()
        return product if order == "columns" else narrow.T.float() @ x.T.contiguous()

    compare(runtime, runtime.target, [a, b], ours, a @ b if order == "columns" else (a @ b).T)
    assert any(u.arg.name == "mfma_16x16x4_f32" for p in runtime.programs for u in p.uops if hasattr(u.arg, "sums"))


def test_sums_of_a_subgroup_in_vectors(text: TextRuntime) -> None:
    compare_all([op for op in LINEAR_ALGEBRA if op.name == "kron_ranks"], text.name, values)


def test_assembly_is_calls() -> None:
    text = 'asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" : : "r"(there(a, b)), "l"(from), "r"(n));'
    assert without_assembly(text) == "cp_async_cg_shared_global((there(a, b)), (from), 16, (n));"
    text = 'asm("{%0, %1};"\n  : "=f"(x[0]), "=f"(x[1]));'.replace("{", "mma.sync {")
    assert without_assembly(text) == "mma_sync((x[0]), (x[1]));"
    assert without_assembly('asm volatile("cp.async.wait_group 2;" ::: "memory");') == "cp_async_wait_group(2);"


WRONG = {
    "wait for others": "if (threadIdx.x) __syncthreads();",
    "not aligned": "*(double *)(p + 1) = 1.0;",
    "width of a number": "p[0] = 1 << (31 + threadIdx.x);",
    "leaves threads": "p[0] = __shfl_sync(1u, 1.0f, 0);",
}


@pytest.mark.parametrize("what", WRONG)
def test_what_a_kernel_must_not_do_is_told(what: str) -> None:
    kernel = f'extern "C" __global__ void wrong(float *p) {{ {WRONG[what]} }}'
    memory = np.zeros(64, np.float32)
    with pytest.raises(AssertionError, match=f"wrong: .*{what}"):
        run(library(kernel, (("wrong", 1),), CUDA.name, 32), "wrong", (1, 1, 1), (32, 1, 1), [memory.ctypes.data])

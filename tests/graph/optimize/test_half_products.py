"""Products and attention of half floats as models have them, by matrix instructions of subgroups."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from tests.graph.lower.hand_kernels import run
from tests.graph.optimize.test_attention_matrices import CHIPS, halves
from tests.graph.optimize.test_online import attend
from tinyweb import Tensor
from tinyweb.dtype import BY_NAME, dtypes
from tinyweb.graph.ir import Fragments, Ops
from tinyweb.graph.lower import program_for
from tinyweb.graph.program import Program
from tinyweb.graph.target import Target
from tinyweb.native_runtimes.cuda.compile import compile_cuda
from tinyweb.native_runtimes.protocol import Runtime
from tinyweb.render_c import CUDA, render_gpu
from tinyweb.tracing import capture

F32 = dtypes.float32


def computed(
    compute: Callable[..., Tensor], arrays: Sequence[np.ndarray], size: int, target: Target,
    runtime: Runtime | None = None,
) -> tuple[Program, np.ndarray]:  # fmt: skip
    """The only kernel of what is computed of arrays of different sizes, and what a runtime (or the interpreter) gives
    for it."""
    tensors = [Tensor.empty(*a.shape, dtype=BY_NAME[str(a.dtype)]) for a in arrays]
    (call,) = capture(lambda: compute(*tensors).realize(), target).calls
    program = program_for(call.kernel, target)
    params = sorted({u for u in program.uops if u.op is Ops.PARAM}, key=lambda u: u.arg.slot)
    given = [next(a for a in arrays if a.size == p.arg.size) for p in params[1:]]
    out = np.zeros(size, params[0].dtype.numpy)
    return program, run(program, target, [out, *map(np.ascontiguousarray, given)], {}, runtime)[0].astype(np.float32)


def by_matrices(program: Program) -> bool:
    return any(isinstance(u.arg, Fragments) for u in program.uops)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize(("rows", "inner", "columns"), [(64, 64, 96), (33, 80, 50)])
def test_two_products_of_the_same_rows(chip: str, rows: int, inner: int, columns: int) -> None:
    """As of a gated MLP: one kernel, in which both have their sums in registers."""
    x, both = halves(rows, inner), halves(2, columns, inner)

    def compute(x: Tensor, both: Tensor) -> Tensor:
        gate, up = (x.matmul(both[i].transpose(), F32) for i in range(2))
        return gate.silu() * up

    program, got = computed(compute, (x, both), rows * columns, CHIPS[chip])
    gate, up = (x.astype(np.float32) @ b.astype(np.float32).T for b in both)
    want = gate / (1 + np.exp(-gate)) * up
    assert by_matrices(program)
    np.testing.assert_allclose(got.reshape(rows, columns), want, rtol=2e-3, atol=2e-3 * np.abs(want).max())


def test_sums_of_two_products_fit_the_registers() -> None:
    """Of a size that a single product would have the largest tile for."""
    target = CHIPS["sm_90"]
    x, both = Tensor.empty(2048, 512, dtype=dtypes.float16), Tensor.empty(2, 2048, 512, dtype=dtypes.float16)

    def compute() -> Tensor:
        return (x.matmul(both[0].transpose(), F32) * x.matmul(both[1].transpose(), F32)).realize()

    (call,) = capture(compute, target).calls
    program = program_for(call.kernel, target)
    (found,) = compile_cuda(render_gpu([program], CUDA), "sm_90").resources.values()
    assert by_matrices(program) and found.spill_bytes == 0


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("group", [1, 4])
def test_heads_side_by_side(chip: str, group: int) -> None:
    """What a reshape merges behind an attention, heads and their columns, stays apart in its kernel."""
    kv, tokens, keys, width = 2, 32, 48, 32
    q, k, v = halves(tokens, kv, group, width), halves(kv, 1, keys, width), halves(kv, 1, keys, width + 16)

    def compute(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = q.permute(1, 2, 0, 3).matmul(k.transpose(-1, -2), F32) * width**-0.5
        mixed = scores.softmax(-1).matmul(v.cast(F32), F32)
        return mixed.permute(2, 0, 1, 3).reshape(tokens, kv * group * (width + 16)).cast(dtypes.float16)

    program, got = computed(compute, (q, k, v), tokens * kv * group * (width + 16), CHIPS[chip])
    want = attend(q.transpose(1, 2, 0, 3), np.repeat(k, group, 1), np.repeat(v, group, 1), width**-0.5)
    assert by_matrices(program)
    want = want.transpose(2, 0, 1, 3).reshape(got.shape)
    np.testing.assert_allclose(got, want, rtol=3e-3, atol=3e-3)

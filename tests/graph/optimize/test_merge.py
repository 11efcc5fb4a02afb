"""What scales a sum of products is summed beside it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.graph.lower.hand_kernels import Case, axes, check, kernel, param, total, zeros
from tinyweb import Tensor
from tinyweb.dtype import dtypes
from tinyweb.graph.gpu_targets import amd_target, nvidia_target
from tinyweb.graph.ir import Ops, UOp
from tinyweb.graph.lower import program_for
from tinyweb.graph.optimize import Factor, ScheduleError, apply
from tinyweb.graph.optimize.merge import Merge
from tinyweb.graph.target import Target, cpu_target, webgpu_target
from tinyweb.nn.quantize import quantize
from tinyweb.tracing import capture


def normed(rows: int, columns: int) -> UOp:
    """y[i] = sum over k of w[i, k] · x[k] · (1 / sum of x²)"""
    (i,), (k, n) = axes(rows), axes(columns, columns, reduce=True, first=1)
    x, w = param(1, columns), param(2, rows * columns)
    squares = total(x.load(n) * x.load(n), n)
    scale = UOp(Ops.RECIPROCAL, squares.dtype, (squares,))
    return kernel(param(0, rows).store(i, total(w.load(i * columns + k) * (x.load(k) * scale), k)))


def test_values() -> None:
    random = np.random.default_rng(3)
    x, w = random.standard_normal(24, dtype=np.float32), random.standard_normal((7, 24), dtype=np.float32)
    want = w @ x / (x @ x)
    case = Case("normed", normed(7, 24), [zeros(7), x, w], [want], {}, 1e-5)
    for target in (webgpu_target(), cpu_target(8, 1)):
        for actions in ((), (Factor(("r0",)),), (Factor(("r0",)), Merge(("r1",), ("r0",)))):
            check(case, apply(case.kernel, actions), target)


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ((Merge(("r1",), ("r0",)),), "one reduction needs the result of the other"),
        ((Factor(("r0",)), Merge(("r1",), ("i0",))), "the sizes of the axes differ"),
        ((Factor(("r0",)), Merge(("i0",), ("i0",))), "the axes must be all that is reduced"),
    ],
)
def test_refused(actions: tuple[Factor | Merge, ...], message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        apply(normed(7, 24), actions)


@pytest.mark.parametrize(
    "target", [webgpu_target(subgroups=True), nvidia_target("sm_90"), amd_target("gfx942")], ids=lambda t: t.name
)
@pytest.mark.parametrize("bits", [0, 8, 4])
def test_threads_wait_once_at_most(target: Target, bits: int) -> None:
    """A norm before a matrix: weights are loaded without waiting for the sum of squares."""
    weights = np.random.default_rng(1).standard_normal((512, 2048), dtype=np.float32)
    matrix = quantize(weights, bits) if bits else None
    half = Tensor(weights).cast(dtypes.float16).realize()
    x, gain = Tensor.empty(1, 2048).realize(), Tensor.empty(2048).realize()

    def step() -> Tensor:
        row = x.rms_norm(2048, gain, 1e-5)
        return (row @ half.float().T if matrix is None else matrix.product(row)).realize()

    program = program_for(capture(step, target).calls[-1].kernel, target)
    assert any(line.startswith("merge(") for line in program.schedule)
    assert sum(u.op is Ops.BARRIER for u in program.uops) <= 1  # none within a subgroup

"""Products by subgroup matrices: what Tint says of their text, and their values by what the instructions mean."""

import numpy as np
import pytest

from tests.graph.lower.hand_kernels import Case, axes, check, kernel, linear, normal, param, total, zeros
from tests.render_wgsl.test_tint import complaints
from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import MatrixArg, Ops
from tinyweb.graph.lower import lower
from tinyweb.graph.optimize import optimize
from tinyweb.graph.optimize.instructions import SUBGROUP
from tinyweb.graph.target import Target, webgpu_target
from tinyweb.render_wgsl import render

F32, F16 = dtypes.float32, dtypes.float16
NAMES = [i.name for i in SUBGROUP]


def target(name: str, threads: int = 32) -> Target:
    """An adapter that lists one configuration."""
    return webgpu_target(f16=name.endswith("f16"), matrices=(name,), subgroup_threads=threads)


def product(rows: int, columns: int, steps: int, dtype: DType) -> Case:
    """A product with an epilogue: a bias for each column, and a maximum."""
    (i, j), (k,) = axes(rows, columns), axes(steps, reduce=True, first=2)
    kind = dtype.numpy
    a, b, bias = normal(rows, steps).astype(kind), normal(steps, columns).astype(kind), normal(columns)
    left = param(1, a.size, dtype).load(i * steps + k).cast(F32)
    value = total(left * param(2, b.size, dtype).load(k * columns + j).cast(F32), k) + param(3, columns).load(j)
    want = np.maximum(a.astype(np.float64) @ b.astype(np.float64) + bias, 0).astype(np.float32)
    store = kernel(param(0, rows * columns).store(i * columns + j, value.maximum(0.0)))
    return Case(
        f"product_{rows}_{columns}_{steps}_{dtype.short}",
        store,
        [zeros(rows, columns), a, b, bias],
        [want],
        tolerance=1e-3,
    )


def squares(rows: int, steps: int) -> Case:
    """A product of a matrix, to which one is added on the way, with itself: both operands are read of one parameter."""
    (i, j), (k,) = axes(rows, rows), axes(steps, reduce=True, first=2)
    x = normal(rows, steps)
    a, b = (param(1, x.size).load(r * steps + k) for r in (i, j))
    store = kernel(param(0, rows * rows).store(i * rows + j, total((a + 1.0) * b, k)))
    return Case("squares", store, [zeros(rows, rows), x], [(x + 1) @ x.T], tolerance=1e-3)


CASES = {
    F32: [
        product(64, 96, 64, F32),
        product(67, 101, 40, F32),
        product(33, 257, 8, F32),
        linear(64, 96, 64),
        linear(32, 33, 104),
        squares(72, 64),
    ],
    F16: [product(64, 64, 64, F16), product(35, 71, 48, F16)],
}


@pytest.mark.parametrize("name", NAMES)
def test_products_are_made_of_matrices(name: str) -> None:
    """Whatever the numbers of rows and columns, and in which order an operand lies."""
    adapter = target(name)
    for case in CASES[F16 if name.endswith("f16") else F32]:
        program = check(case, optimize(case.kernel, adapter), adapter)
        assert any(u.op is Ops.DOT for u in program.uops), case.name
        assert {type(u.arg) for u in program.uops if u.op is Ops.DOT} == {tuple}
        # all multiplications but those of indices
        assert not any(u.op in (Ops.MUL, Ops.MULADD) and u.dtype.is_float for u in program.uops), case.name
        assert sum(isinstance(u.arg, MatrixArg) for u in program.uops) >= 3


def test_others_stay_what_they_are() -> None:
    """Too few rows or columns, or steps that matrices do not divide: the schedule that there was before."""
    adapter = target("mma_8x8x8_f32")
    for case in (product(7, 96, 64, F32), product(64, 31, 64, F32), product(64, 96, 44, F32)):
        program = lower(optimize(case.kernel, adapter), adapter)
        assert program.uops == lower(optimize(case.kernel, webgpu_target()), webgpu_target()).uops


@pytest.mark.parametrize("name", NAMES)
def test_text(name: str) -> None:
    """Tint, whose null backend has subgroups of 128 threads, takes it."""
    adapter, dtype = target(name, 128), F16 if name.endswith("f16") else F32
    cases = product(64, 256, 64, dtype), product(64, 129, 32, dtype)
    texts = [render(lower(optimize(c.kernel, adapter), adapter), {}) for c in cases]
    assert all("subgroupMatrixMultiplyAccumulate" in t for t in texts)
    assert complaints(texts) == ["", ""]
    wrong = texts[0].replace("subgroup_matrix_left", "subgroup_matrix_right"), texts[0].replace("(128", "(64")
    said = complaints([*wrong])
    assert "no matching call" in said[0] and "workgroup_size" in said[1]


def test_asks_for_the_feature() -> None:
    assert "chromium-experimental-subgroup-matrix" in target(NAMES[0]).features
    assert "chromium-experimental-subgroup-matrix" not in webgpu_target(subgroups=True).features

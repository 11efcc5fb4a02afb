"""Both operands of a product may be one tensor: they are staged as two are, and their schedules are as good."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from tests.graph.lower.hand_kernels import axes, kernel, param, total
from tests.samples import slow_unless
from tinyweb import Tensor
from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import Ops, Space, UOp
from tinyweb.graph.lower import program_for
from tinyweb.graph.optimize import (
    Hoist,
    Reorder,
    ScheduleError,
    Split,
    Stage,
    apply,
    from_json,
    heuristic,
    to_json,
)
from tinyweb.graph.optimize.rewrite import loops_of, ranges_of
from tinyweb.graph.target import Target, cpu_target, wasm_target, webgpu_target
from tinyweb.tracing import capture
from tinyweb.tuning.candidates import neighbours

TARGETS = {
    "cpu 1": cpu_target(8, 1),
    "cpu 2": cpu_target(8, 2),
    "cpu 16 8": cpu_target(16, 8),
    "wasm 1": wasm_target(1),
    "wasm 4": wasm_target(4),
    "webgpu": webgpu_target(),
    "webgpu subgroups": webgpu_target(subgroups=True, shared_bytes=32768),
}


def square(n: int = 32) -> UOp:
    """x @ x."""
    i, j = axes(n, n)
    (r,) = axes(n, reduce=True)
    x = param(1, n * n)
    return kernel(param(0, n * n).store(i * n + j, total(x.load(i * n + r) * x.load(r * n + j), r)))


def staged(k: UOp) -> list[tuple[str, ...]]:
    """The axes that each stage is filled over."""
    return sorted(tuple(sorted(r.arg.name for r in u.src[1:])) for u in loops_of(k).stages)


def test_one_of_two_loads_is_staged() -> None:
    k = square()
    both = apply(k, [Split("i0", 8), Stage(1, "i0.0", Space.REGISTER)])
    rows = apply(k, [Split("i0", 8), Stage(1, "i0.0", Space.REGISTER, axes=("i0", "r0"))])
    columns = apply(k, [Split("i0", 8), Stage(1, "i0.0", Space.REGISTER, axes=("r0", "i1"))])
    assert staged(both) == [("s1.i0.1", "s1.r0"), ("s1_1.i1", "s1_1.r0")]
    assert staged(rows) == [("s1.i0.1", "s1.r0")] and staged(columns) == [("s1.i1", "s1.r0")]


def test_axes_are_known_after_what_was_done_to_them() -> None:
    """Split, hoisted, bound: the same loads as in the kernel; and a second stage has names of its own."""
    k = apply(
        square(64),
        [
            Split("i0", 32), Split("i0.1", 4), Split("i1", 16), Split("r0", 16), Hoist("r0.0", "i0.0"),
            Stage(1, "r0.0", Space.REGISTER, axes=("i1", "r0")),
            Stage(1, "acc.i0.1.0", Space.REGISTER, axes=("i0", "r0")),
        ],
    )  # fmt: skip
    (columns, rows) = (u for u in staged(k) if u[0].startswith("s1"))
    assert all(".acc.i1" in n or ".r0" in n for n in columns), columns
    assert all(".acc.i0" in n or ".r0" in n for n in rows), rows
    names = [r.arg.name for r in ranges_of(k)]
    assert len(set(names)) == len(names)


def test_scales_that_are_staged_with_what_they_scale() -> None:
    """One stage for both, of each operand: what fills it is not staged again."""
    v, s = Tensor.empty(264, 2, 32, dtype=dtypes.int8), Tensor.empty(264, 2, dtype=dtypes.float16)

    def product() -> Tensor:
        w = (v.float() * s.float().unsqueeze(-1)).reshape(264, 64)
        return (w @ w.T).realize()

    k = capture(product).calls[-1].kernel
    for target in (cpu_target(8, 2), wasm_target(1)):
        assert len([a for a in heuristic(k, target) if isinstance(a, Stage)]) == 2


def test_axes_that_no_load_has() -> None:
    for which in (("i0",), ("i0", "i1"), ("i0", "i1", "r0"), ("r9",)):
        with pytest.raises(ScheduleError, match=r"stage\(p1, at=i0, register, axes="):
            apply(square(), [Stage(1, "i0", Space.REGISTER, axes=which)])


def test_schedules_written_before_are_read() -> None:
    old = [{"action": "stage", "param": 1, "at": "i0", "space": "register", "pad": 0}]
    assert from_json(old) == (Stage(1, "i0", Space.REGISTER),)
    new = Stage(1, "i0", Space.SHARED, 4, ("i0", "r0"))
    assert from_json(to_json([new])) == (new,) and str(new) == "stage(p1, at=i0, shared, pad=4, axes=[i0, r0])"


def test_search_proposes_either_operand() -> None:
    tiles = Split("i0", 4), Split("i1", 4), Reorder(("i0.0", "i1.0", "i0.1", "i1.1"))
    found = {str(a) for s in neighbours(square(), tiles, cpu_target(8, 1)) for a in s if isinstance(a, Stage)}
    assert {f"stage(p1, at=i0.0, register{w})" for w in ("", ", axes=[i0, r0]", ", axes=[i1, r0]")} <= found


# -- as good as those of distinct operands ------------------------------------------------------------------------
PRODUCTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "x @ y": lambda x, y: x @ y,
    "x @ y.T": lambda x, y: x @ y.T,
    "x.T @ y": lambda x, y: x.T @ y,
    "x.T @ y.T": lambda x, y: x.T @ y.T,
    "batches": lambda x, y: x.reshape(4, -1, x.shape[1]) @ y.reshape(4, -1, x.shape[1]).transpose(1, 2),
}


def kernels(function: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor) -> list[UOp]:
    return [c.kernel for c in capture(lambda: function(x, y).realize()).calls]


def kind(actions: tuple[object, ...]) -> list[str]:
    """The actions, whatever the operands and the axes are called: x @ x.T is its own mirror image."""
    return sorted(re.sub(r"\b[ir]\d+|(?<=\bp)\d+|, axes=\[[^]]*\]", "", str(a)) for a in actions)


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())
@pytest.mark.parametrize(
    ("dtype", "shape"),
    [
        (dtypes.float32, (64, 64)), (dtypes.float32, (512, 512)), (dtypes.float32, (5000, 64)),
        (dtypes.float16, (257, 257)), (dtypes.float16, (64, 3000)), (dtypes.int8, (64, 64)), (dtypes.int8, (512, 512)),
    ],
    ids=str,
)  # fmt: skip
def test_as_good_as_for_two_tensors(shape: tuple[int, int], dtype: DType, target: Target) -> None:
    x, y = Tensor.empty(*shape, dtype=dtype), Tensor.empty(*shape, dtype=dtype)
    compared = 0
    for name, function in PRODUCTS.items():
        if (name in ("x @ y", "x.T @ y.T") and shape[0] != shape[1]) or (name == "batches" and shape[0] % 4):
            continue
        for one, two in zip(kernels(function, x, x), kernels(function, x, y), strict=True):
            ours, usual = heuristic(one, target), heuristic(two, target)
            assert kind(ours) == kind(usual), (name, [str(a) for a in ours], [str(a) for a in usual])
            compared += 1
    assert compared >= 2


@pytest.mark.parametrize("target", [cpu_target(8, 2), webgpu_target()], ids=["cpu", "webgpu"])
def test_both_operands_are_staged(target: Target) -> None:
    x = Tensor.empty(512, 512, dtype=dtypes.float16)
    (k,) = kernels(lambda a, b: a.float().T @ b.float(), x, x)
    stages = [a for a in heuristic(k, target) if isinstance(a, Stage)]
    assert len(stages) == 2 and len({a.axes for a in stages}) == 2 and all(a.axes for a in stages)
    assert any(u.op is Ops.STAGE for u in apply(k, heuristic(k, target)).toposort())


def test_a_tensor_beside_what_is_staged_once() -> None:
    """x @ x[0]: only the row that all rows are multiplied with is the same for all of them."""
    x = np.random.default_rng(0).standard_normal((600, 512)).astype(np.float16)
    t = Tensor(x)
    for got, want in (((t @ t[0]), x @ x[0].astype(np.float64)), ((t[0] @ t.T), x[0].astype(np.float64) @ x.T)):
        np.testing.assert_allclose(got.numpy(), want, rtol=2e-3, atol=0.2)


def all_pairs(x: Tensor) -> Tensor:
    """The products of all pairs of rows, of integers exactly."""
    return (x.int().unsqueeze(0) * x.int().unsqueeze(1)).sum(-1)


def scaled_pairs(x: Tensor) -> Tensor:
    scales = Tensor.empty(300, 8, dtype=dtypes.float16).float()
    return (all_pairs(x).float() * (scales.unsqueeze(0) * scales.unsqueeze(1))).sum(-1)


KIN: dict[str, tuple[tuple[int, ...], DType, Callable[[Tensor], Tensor]]] = {
    "a row of halves": ((3000, 704), dtypes.float16, lambda x: x.float() @ x[0].float()),
    "a row of bytes": ((3000, 704), dtypes.int8, lambda x: (x.int() * x[0].int()).sum(-1)),
    "a row of int4": ((3000, 704), dtypes.int4, lambda x: (x.int() * x[0].int()).sum(-1)),
    "squares": ((3000, 704), dtypes.float16, lambda x: (x.float() * x.float()).sum(-1)),
    "pairs of bytes": ((300, 704), dtypes.int8, all_pairs),
    "pairs of int4": ((300, 704), dtypes.int4, all_pairs),
    "q8": ((300, 8, 32), dtypes.int8, scaled_pairs),
    "q4": ((300, 8, 32), dtypes.int4, scaled_pairs),
    "int16": ((300, 8, 32), dtypes.int16, scaled_pairs),
    "a picture": ((8, 16, 40, 40), dtypes.float32, lambda x: x.conv2d(x[:8, :, :3, :3])),
    "a padded picture": (
        (8, 16, 40, 40),
        dtypes.float16,
        lambda x: x.float().conv2d(x[:8, :, :3, :3].float(), padding=1),
    ),
    "attention": ((2, 4, 300, 64), dtypes.float32, lambda x: x.scaled_dot_product_attention(x, x)),
    "masked attention": (
        (2, 4, 300, 64),
        dtypes.float16,
        lambda x: x.scaled_dot_product_attention(x, x, is_causal=True),
    ),
    "correlations": ((300, 300), dtypes.float32, lambda x: x.corrcoef()),
    "covariances": ((64, 5000), dtypes.float32, lambda x: x.cov()),
    "bfloat16": ((5000, 64), dtypes.bfloat16, lambda x: x.float().T @ x.float()),
    "thrice": ((512, 512), dtypes.float32, lambda x: x @ x * x),
    "batches": ((4, 300, 300), dtypes.float16, lambda x: x.float() @ x.float()),
}


def outer(x: Tensor) -> Tensor:
    """A product of which no operand is one load, and whose loads do not all vary along what is summed."""
    rows = x[4].unsqueeze(1) * x[6].unsqueeze(0)
    return rows @ rows.T[:, 54:116]


KIN |= {
    "an outer product": ((512, 512), dtypes.float32, outer),
    "of halves": ((512, 512), dtypes.float16, lambda x: outer(x.float())),
    "two rows": ((300, 300), dtypes.float32, lambda x: (x[3].unsqueeze(1) * x) @ (x[5].unsqueeze(1) * x)),
    "sums of loads": ((300, 300), dtypes.float32, lambda x: (x + x.T) @ (x[0] + x)),
    "sums of bytes": ((300, 300), dtypes.int8, lambda x: (x.int() + x.int().T) @ (x[0].int() + x.int())),
    "three factors": (
        (40, 96), dtypes.float32,
        lambda x: (x.reshape(40, 1, 1, 96) * x.reshape(1, 40, 1, 96) * x.reshape(1, 1, 40, 96)).sum(-1),
    ),
    "windows": ((300, 300), dtypes.float32, lambda x: x[:200, :200] @ x[1:201, 2:202] * x[:200, 3:203]),
    "two sums": (
        (7, 300, 5), dtypes.float32,
        lambda x: (x * x[0]).sum((1, 2)) + (x[:, :1] * x[:, :1].maximum(0.5)).expand(7, 300, 5).sum((1, 2)),
    ),
}  # fmt: skip


def _alone(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda x, _: function(x)


@pytest.mark.parametrize(
    ("target", "part"), slow_unless(lambda target, part: list(TARGETS).index(target) % 2 == part, TARGETS, (0, 1))
)
def test_no_rule_is_wrong_about_their_kin(target: str, part: int) -> None:
    """A fallback raises here; values are looked at in tests/fuzz/test_self_products.py. Every other one of them."""
    for shape, dtype, function in list(KIN.values())[part::2]:
        x = Tensor.empty(*shape, dtype=dtype)
        for k in kernels(_alone(function), x, x):
            assert program_for(k, TARGETS[target]).uops

"""Reuse: rows whose reductions and outputs share what they compute, on every runtime, and how often it is computed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from benchmarks.count.program import count
from tests.graph.lower.hand_kernels import axes, kernel, param, run
from tests.graph.optimize.families import elementwise
from tests.samples import slow_unless
from tinyweb import Tensor
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import Axis, AxisKind, Ops, UOp
from tinyweb.graph.lower import lower, program_for
from tinyweb.graph.optimize import Bind, Peel, Reuse, ScheduleError, Split, apply, from_json, to_json
from tinyweb.graph.target import Target, cpu_target, wasm_target, webgpu_target
from tinyweb.tracing import capture

TARGETS = (cpu_target(8, 2), wasm_target(2), webgpu_target(), webgpu_target(subgroups=True))
DEVICES = ("CPU", "WASM", "WEBGPU", "INTERPRETER")
SHAPES = (((6, 7), 1), ((9, 17), 1), ((3, 1003), 1), ((70, 33), 0), ((3, 41, 19), 1), ((5, 1024), 1), ((2, 4099), 1))


def data(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def softmax_kernel(rows: int, columns: int) -> UOp:
    (kernel,) = capture(lambda: Tensor.empty(rows, columns).softmax(1).realize()).kernels
    return kernel


def gradient(x: Tensor, upstream: Tensor, axis: int) -> Tensor:
    return (x.softmax(axis) * upstream).sum().gradient(x)[0]


@pytest.mark.parametrize(
    ("device", "shape_axis"),
    slow_unless(lambda d, s: DEVICES.index(d) in (0, 1 + SHAPES.index(s) % 3), DEVICES, SHAPES),
)
def test_values(device: str, shape_axis: tuple[tuple[int, ...], int]) -> None:
    """On the first device, and on one of the others in turn."""
    shape, axis = shape_axis
    x, upstream = data(*shape), data(*shape, seed=1)
    tx, tu = Tensor(x, device=device).realize(), Tensor(upstream, device=device).realize()
    wanted = torch.from_numpy(x).requires_grad_()
    soft = wanted.softmax(axis)
    np.testing.assert_allclose(tx.softmax(axis).numpy(), soft.detach().numpy(), rtol=2e-6, atol=1e-7)
    (soft * torch.from_numpy(upstream)).sum().backward()
    assert wanted.grad is not None
    np.testing.assert_allclose(gradient(tx, tu, axis).numpy(), wanted.grad.numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_half_floats_masks_and_infinities(device: str) -> None:
    x = data(5, 203)
    x[0, 3], x[1, 7], x[2] = np.inf, np.nan, -np.inf
    x[3, :100] = -np.inf
    want = torch.from_numpy(x).softmax(1).numpy()
    np.testing.assert_allclose(Tensor(x, device=device).softmax(1).numpy(), want, rtol=2e-6, atol=1e-7)
    half = x.astype(np.float16)
    got = Tensor(half, device=device).float().softmax(1).half().numpy()
    want = torch.from_numpy(half).float().softmax(1).half().numpy()
    np.testing.assert_allclose(got, want, rtol=2e-3, atol=1e-6)


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: f"{t.name}{t.vector_lanes}{'s' * t.subgroups}")
@pytest.mark.parametrize(("shape", "axis"), [*SHAPES, ((64, 32000), 1), ((20001, 17), 1), ((1000, 1001), 0)])
def test_functions_are_computed_once(target: Target, shape: tuple[int, ...], axis: int) -> None:
    """An exponential takes a few more operations where its argument lies beyond the row; nothing is done twice."""
    elements, x = int(np.prod(shape)), Tensor.empty(*shape)
    one = _operations(lambda: Tensor.empty(4096).exp(), target) / 4096
    row = 25 * elements / shape[axis] * (256 if target.has_threads else 1)  # divisors, in each thread
    assert _operations(lambda: x.softmax(axis), target) <= elements * (1.45 * one + 8) + row


def _operations(make: Callable[[], Tensor], target: Target) -> int:
    calls = capture(lambda: make().realize()).calls
    return sum(count(program_for(call.kernel, target)).operations for call in calls)


def test_outputs_that_overlap_and_reductions_that_were_peeled() -> None:
    lanes = AxisKind.VECTOR
    bound = [
        Peel("r0", 8), Bind("r0.1", lanes), Peel("r1", 8), Bind("r1.1", lanes), Split("i1", 8, overlap=True),
        Bind("i1.1", lanes), Reuse("i1"),
    ]  # fmt: skip
    scheduled = apply(softmax_kernel(3, 43), bound)
    (stage,) = (u for u in scheduled.toposort() if u.op is Ops.STAGE)
    assert sum(u.op is Ops.EXP for u in scheduled.toposort()) == 1 and stage.src[0].op is Ops.EXP
    x = data(3, 43)
    program = lower(scheduled, cpu_target(8))
    got = run(program, cpu_target(8), [np.zeros(129, np.float32), x.reshape(-1)], {})[0]
    np.testing.assert_allclose(got.reshape(3, 43), torch.from_numpy(x).softmax(1).numpy(), rtol=2e-6)
    assert from_json(to_json(bound)) == tuple(bound)


def test_what_does_not_fit() -> None:
    for softmax, axis, why in (
        (softmax_kernel(4, 16), "r0", "no such output axis"),
        (softmax_kernel(4, 16), "i7", "no such output axis"),
        (softmax_kernel(4, 16), "i0", "nothing expensive"),
        (elementwise(4, 8), "i1", "nothing expensive"),
    ):
        with pytest.raises(ScheduleError, match=why):
            apply(softmax, [Reuse(axis)])
    with pytest.raises(ScheduleError, match="nothing expensive"):  # blocks of the outputs alone
        apply(softmax_kernel(4, 16), [Split("i1", 4), Reuse("i1")])


def test_a_constant_is_not_what_an_output_computes() -> None:
    """Behind the end of a join's first part lies a value that, along the reduction, is 0 everywhere."""
    (i,), steps = axes(30), UOp(Ops.RANGE, dtypes.index, (UOp.const(24, dtypes.index),), Axis("r0", 1000, reduce=True))
    x, y = (param(slot, 30).load(i) for slot in (1, 2))
    along = param(1, 30).load(steps)
    norm = UOp(Ops.REDUCE, dtypes.float32, (along * along, steps), Ops.ADD).alu(Ops.SQRT)
    zero, first = UOp.const(0.0, dtypes.float32), i < 24
    rest = first.where(zero, y.alu(Ops.SQRT).alu(Ops.SQRT) * y + y)
    joined = (i.cast(dtypes.int32) < UOp.const(24, dtypes.int32)).where(first.where(x * norm, zero), rest)
    split = (Split("r0", 8), Bind("r0.1", AxisKind.VECTOR), Split("i0", 8, overlap=True), Bind("i0.1", AxisKind.VECTOR))
    with pytest.raises(ScheduleError, match="nothing expensive is computed twice"):
        apply(kernel(param(0, 30).store(i, joined)), (*split, Reuse("i0")))


def test_a_value_that_does_not_vary_along_the_reduction_is_not_what_an_output_computes() -> None:
    """At the steps of a shorter reduction a condition on the output decides for what the row has once."""
    i, j = axes(3, 3)
    steps = UOp(Ops.RANGE, dtypes.index, (UOp.const(2, dtypes.index),), Axis("r0", 1000, reduce=True))
    largest = UOp(Ops.REDUCE, dtypes.float32, (param(1, 6).load(i * 2 + steps), steps), Ops.MAX)
    last = j.cast(dtypes.int32).equal(2)
    stored = param(0, 9).store(i * 3 + j, last.where(largest, largest * 0.5))
    with pytest.raises(ScheduleError, match="nothing expensive is computed twice"):
        apply(kernel(stored), (Bind("r0", AxisKind.UNROLL), Bind("i1", AxisKind.UNROLL), Reuse("i1", 1)))

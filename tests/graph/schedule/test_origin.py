"""Kernels that differ in where in memory they begin: one program, handed memory from there on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tinyweb import Tensor
from tinyweb.device import Device
from tinyweb.graph.ir import Ops, UOp, substitute
from tinyweb.graph.schedule import at_origin, schedule
from tinyweb.tracing import jit

SHAPE = (6, 5, 7)


def kernel_of(value: Tensor) -> UOp:
    (call,) = schedule([UOp(Ops.CONTIGUOUS, value.dtype, (value.uop,))]).calls
    return call.kernel


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.uint8])
def test_parts_of_the_same_memory_are_one_kernel(dtype: type) -> None:
    x = Tensor(np.zeros(SHAPE, dtype)).realize()
    kernels = [at_origin(kernel_of(x[i, 1:4] * 2)) for i in range(1, 6)]
    assert len({kernel for kernel, _ in kernels}) == 1
    size = np.dtype(dtype).itemsize
    assert [starts[1] for _, starts in kernels] == [(35 * i + 7) * size for i in range(1, 6)]
    (param,) = [u for u in kernels[0][0].toposort() if u.op is Ops.PARAM and u.arg.slot == 1]
    assert param.arg.size == 21


def test_what_is_read_from_its_first_element_on_stays() -> None:
    x = Tensor(np.zeros(SHAPE, np.float32)).realize()
    for value in (x[:3] + 1, x.flip(0) * 2, x[2:] + x[:4], x.pad((1, 1)) * 2, x[1:3].pad((1, 1)) + x[0, 0, 0]):
        kernel = kernel_of(value)
        assert at_origin(kernel) == (kernel, ())


def test_memory_that_is_laid_out_anew_stays() -> None:
    kernel = kernel_of(Tensor(np.zeros(64, np.float32)).realize()[8:] * 2)
    (param,) = [u for u in kernel.toposort() if u.op is Ops.PARAM and u.arg.slot == 1]
    assert at_origin(kernel)[1] == (0, 32)
    frozen = substitute(kernel, {param: param.replace(arg=replace(param.arg, frozen=True))})
    assert at_origin(frozen) == (frozen, ())


def steps(x: Tensor, w: Tensor) -> Tensor:
    out = Tensor.zeros(6, 5, 5).clone()
    for i in range(6):
        out[i] = x[i] @ w + i * x[(i + 1) % 6] @ w
    return out


def test_the_same_numbers_in_one_program() -> None:
    """Read and written at places of their own, also where a function runs again with other memory."""
    rng = np.random.default_rng(0)
    traced = jit(steps)
    for _ in range(3):
        x, w = (rng.standard_normal(s).astype(np.float32) for s in (SHAPE, (7, 5)))
        expected = np.stack([x[i] @ w + i * x[(i + 1) % 6] @ w for i in range(6)])
        for function in (steps, traced):
            np.testing.assert_allclose(function(Tensor(x), Tensor(w)).numpy(), expected, rtol=1e-4, atol=1e-4)


def test_steps_share_a_program() -> None:
    rng = np.random.default_rng(1)
    x = Tensor(rng.standard_normal((8, 11, 13)).astype(np.float32), device="CPU").realize()
    device = Device["CPU"]
    before = set(device.compiled)
    parts = [(x[i] * 3 - 1).exp() for i in range(8)]
    parts[0].realize(*parts[1:])
    made = [entry for kernel, entry in device.compiled.items() if kernel not in before]
    assert len(made) == 8 and len({program.name for program, _ in made}) == 2
    for i, part in enumerate(parts):
        np.testing.assert_allclose(part.numpy(), np.exp(x.numpy()[i] * 3 - 1), rtol=1e-5)

"""Memory larger than one binding: kernels on its parts give what they give on the whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tinyweb import Tensor
from tinyweb.device import Device, OpenDevice
from tinyweb.dtype import dtypes
from tinyweb.export.bindings import within
from tinyweb.graph.ir import UOp, Variable
from tinyweb.graph.ir.kernel_spec import kernel_spec
from tinyweb.graph.ir.spec import verify
from tinyweb.graph.schedule import nbytes
from tinyweb.graph.schedule.parts import Parts
from tinyweb.graph.target import webgpu_target
from tinyweb.memory import BUFFERS
from tinyweb.nn.layers import Embedding, Linear
from tinyweb.nn.quantize import quantize
from tinyweb.tracing import capture

LIMIT = 4096
RANDOM = np.random.default_rng(0)
DEVICES = ("INTERPRETER", "WEBGPU")


def divided(
    device: str, function: Callable[[], Tensor], limit: int = LIMIT, variables: Mapping[str, int] | None = None
) -> tuple[npt.NDArray[Any], int, list[UOp]]:
    """What a function computes with every binding within the limit; its launches, and the buffers that were divided."""
    results: list[Tensor] = []

    def recorded() -> Tensor:
        results.append(function())
        return results[-1]

    plan = capture(recorded, webgpu_target())
    (out,) = results
    plans, parts = within({"f": plan}, limit)
    calls, opened = plans["f"].calls, Device[device]
    for call in calls:
        verify("schedule", call.kernel, kernel_spec)
        assert len(call.buffers) <= webgpu_target().max_buffers
        assert all(nbytes(b) <= limit for b in call.buffers)
    for buffer, own in parts.items():
        if buffer in BUFFERS:
            _move(opened, buffer, own)
    opened.compile(c.kernel for c in calls)
    opened.replay(calls, {}, ())(variables or {})
    base = out.uop
    while base.src:
        base = base.src[0]
    data = b"".join(
        opened.runtime.copy_out(opened.memory(b).handle, b.dtype.nbytes(b.arg.size))
        for b in (parts[base].buffers if base in parts else [base])
    )
    return np.frombuffer(data, out.dtype.numpy).reshape(out.shape), len(calls), list(parts)


def _move(opened: OpenDevice, buffer: UOp, own: Parts) -> None:
    data = opened.runtime.copy_out(opened.memory(buffer).handle, buffer.dtype.nbytes(buffer.arg.size))
    for start, end, part in own.spans():
        first, last = buffer.dtype.nbytes(start), buffer.dtype.nbytes(end)
        opened.memory(part).fill(memoryview(data)[first:last])


def tensor(device: str, *shape: int) -> Tensor:
    return Tensor(RANDOM.standard_normal(shape).astype(np.float32), device=device)


@pytest.mark.parametrize("device", DEVICES)
def test_matrix_by_rows_is_a_launch_for_each_part(device: str) -> None:
    x, w = tensor(device, 3, 24), tensor(device, 100, 24)
    wanted = x.numpy() @ w.numpy().T
    found, launches, large = divided(device, lambda: x @ w.T)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    assert launches == 3  # 9600 bytes
    assert [b.arg.size for b in large] == [2400]


@pytest.mark.parametrize("device", DEVICES)
def test_sum_over_a_cut(device: str) -> None:
    x, w = tensor(device, 3, 100), tensor(device, 100, 24)
    wanted = x.numpy() @ w.numpy()
    found, launches, _ = divided(device, lambda: x @ w)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    assert launches == 1


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("quant", [None, 8, 4])
def test_rows_by_id_and_the_head_of_the_same_table(device: str, quant: int | None) -> None:
    table = RANDOM.standard_normal((200, 64)).astype(np.float32)
    weight = Tensor(table, device=device) if quant is None else quantize(table, quant, device)
    assert weight is not None
    embedding, head = Embedding.of(weight), Linear.of(weight)
    dense = weight.numpy() if isinstance(weight, Tensor) else weight.dense().numpy()
    ids = Tensor(np.array([[0, 199, 63, 64, 130, -1, 200]], np.int32), device=device)
    rows, launches, _ = divided(device, lambda: embedding(ids))
    assert launches == (4 if quant is None else 1)  # 13 parts are more than a kernel binds: copied in three steps
    np.testing.assert_array_equal(rows[0, :6], dense[[0, 199, 63, 64, 130, 199]])
    assert not rows[0, 6:].any()  # ids outside of the table read nothing
    x = tensor(device, 1, 64)
    found, _, _ = divided(device, lambda: head(x))
    np.testing.assert_allclose(found, x.numpy() @ dense.T, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("device", DEVICES)
def test_cache_that_is_written_and_read(device: str) -> None:
    heads, positions, width = 4, 32, 16
    start = Variable("start_pos", 0, positions - 1).bind(5)

    def step() -> Tensor:
        cache[:, :, start : start + 1].assign(new)
        keys, values = cache[0, :, : start + 1], cache[1, :, : start + 1]
        scores = (query.unsqueeze(1) * keys).sum(-1).softmax(-1)
        return (scores.unsqueeze(-1) * values).sum(1)

    before = RANDOM.standard_normal((2, heads, positions, width)).astype(np.float32)
    new, query = tensor(device, 2, heads, 1, width), tensor(device, heads, width)
    cache = Tensor(before, device=device)
    after = before.copy()
    after[:, :, 5:6] = new.numpy()
    scores = np.einsum("hw,hpw->hp", query.numpy(), after[0, :, :6])
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    wanted = np.einsum("hp,hpw->hw", weights / weights.sum(-1, keepdims=True), after[1, :, :6])
    found, _, large = divided(device, step, variables={"start_pos": 5})
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    assert 2 * heads * positions * width in [b.arg.size for b in large]


@pytest.mark.parametrize("device", DEVICES)
def test_large_results_and_temporaries(device: str) -> None:
    x = tensor(device, 60, 40)
    wanted = np.exp(x.numpy()) + np.exp(x.numpy()).sum(0)
    found, _, large = divided(device, lambda: x.exp().contiguous() + x.exp().contiguous().sum(0))
    np.testing.assert_allclose(found, wanted, rtol=1e-4)
    assert len(large) >= 2


def test_nothing_is_divided_that_fits() -> None:
    x = tensor("INTERPRETER", 4, 4)
    plan = capture(lambda: x + 1, webgpu_target())
    plans, parts = within({"f": plan}, LIMIT)
    assert plans["f"] is plan
    assert not parts
    assert dtypes.float32.nbytes(16) <= LIMIT

"""Multi-output fusion: what several kernels read is stored by the first that reads it along rows."""

from __future__ import annotations

import numpy as np
import pytest

from tests.graph.schedule.kernel_oracle import Oracle
from tinyweb import Tensor
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import Ops, UOp
from tinyweb.graph.schedule import schedule
from tinyweb.graph.schedule.work import LAUNCH

RNG = np.random.default_rng(7)


def rounded(x: Tensor, group: int) -> tuple[Tensor, Tensor]:
    """Rows of x in groups, as integers and their scales."""
    groups = x.reshape(*x.shape[:-1], -1, group)
    scales = (groups.abs().max(-1) * (1 / 127)).contiguous()
    return (groups / scales.unsqueeze(-1)).round().cast(dtypes.int8).contiguous(), scales


@pytest.mark.parametrize(
    ("rows", "width", "group"), [(1, 96, 32), (3, 64, 16), (2, 35, 5), (1, 7, 7), (5, 26, 13), (67, 300, 300)]
)
def test_scales_and_integers_are_one_kernel(rows: int, width: int, group: int) -> None:
    """Both results are right, in memory of their own, wherever they are computed."""
    x = RNG.standard_normal((rows, width)).astype(np.float32)
    groups = x.reshape(rows, -1, group)
    scales = np.abs(groups).max(-1) * np.float32(1 / 127)
    want = (np.rint(groups / scales[..., None]) * scales[..., None]).sum((0, 2)) + scales.sum()
    oracle = Oracle()
    integers, found = rounded(oracle.tensor(x), group)
    total = (integers * found.unsqueeze(-1)).sum((0, 2)) + found.sum()
    np.testing.assert_allclose(oracle.numpy(total), want, rtol=1e-4)
    for device in ("CPU", "WASM", "WEBGPU", "INTERPRETER"):
        integers, found = rounded(Tensor(x, device=device), group)
        Tensor.realize(integers, found)
        np.testing.assert_allclose(found.numpy(), scales, rtol=1e-6)
        assert np.abs(integers.numpy() - np.rint(groups / scales[..., None])).max() <= 1  # a half may round either way
        got = (integers * found.unsqueeze(-1)).sum((0, 2)) + found.sum()
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-2)


def calls(*roots: Tensor) -> list[int]:
    """How many results each kernel has."""
    plan = schedule([UOp(Ops.CONTIGUOUS, t.dtype, (t.uop,)) for t in roots])
    return [len(c.kernel.src) for c in plan.calls]


def test_what_has_several_readers_is_stored_by_the_first() -> None:
    x = Tensor.empty(24, 32)
    largest = x.max(-1, keepdim=True).contiguous()
    row = (x - largest).contiguous()
    assert calls(row @ Tensor.empty(32, 5) + largest) == [2, 1]
    # one reader: whoever asked for memory gets a kernel
    assert calls((x - largest) * 2.0) == [1, 1]
    # not along rows: the other axis, or steps of a sum
    assert calls((x.T.contiguous().reshape(24, 32) - largest).contiguous() @ Tensor.empty(32, 5) + largest) != [3, 1]
    assert calls((Tensor.empty(5, 24) @ largest) + largest.sum()) == [1, 1]


def test_large_ones_stay_apart() -> None:
    """Where a kernel takes longer than its launch, its own steps side by side are worth more."""
    for rows, want in ((8, [2, 1]), (LAUNCH // 32, [1, 1, 1])):
        x = Tensor.empty(rows, 32)
        largest = x.max(-1, keepdim=True).contiguous()
        assert calls((x - largest).contiguous() @ Tensor.empty(32, 5) + largest) == want


def test_large_ones_of_long_rows_are_one() -> None:
    """A row is long enough for a workgroup: its maximum, and what is made of the row with it. Columns stay apart, and
    so do rows of other memory, and sums over what is made.
    """
    x, w = Tensor.empty(LAUNCH // 32, 512), Tensor.empty(512, 5)
    largest = x.abs().max(-1, keepdim=True).contiguous()
    assert calls((x / largest).contiguous() @ w + largest) == [2, 1]
    assert calls((x.sqrt() / largest).cast(dtypes.float16).contiguous() @ w + largest) == [2, 1]
    assert calls((Tensor.empty(*x.shape) / largest).contiguous() @ w + largest) == [1, 1, 1]
    column = x.abs().max(0, keepdim=True).contiguous()
    assert max(calls((x / column).contiguous() @ w + column.sum())) == 1
    assert max(calls((x - largest).sum(0) @ w + largest)) == 1


def test_what_is_updated_in_place_is_read_as_it_was() -> None:
    """A kernel that reads what it replaces stays apart from one that would read it again in its rows."""
    for device in ("CPU", "WASM", "INTERPRETER"):
        held = Tensor(np.arange(4, dtype=np.float32), device=device).realize()
        x = Tensor(np.ones((4, 40), np.float32), device=device).realize()
        held.assign(held * 2.0)
        y = (x + held.unsqueeze(-1)).contiguous()
        total = y.sum(-1) + held
        np.testing.assert_array_equal(total.numpy(), np.arange(4) * 82.0 + 40)
        np.testing.assert_array_equal(held.numpy(), np.arange(4) * 2.0)

"""Places that are looked for in ascending order replace each other; others are compared."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tinyweb import Tensor
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import Ops
from tinyweb.graph.lower import program_for
from tinyweb.graph.target import webgpu_target
from tinyweb.tracing import capture

Find = Callable[[Tensor, Tensor], Tensor]
VALUES = np.random.default_rng(0).integers(-3, 4, (6, 21, 40)).astype(np.float32)
PLACES = np.random.default_rng(1).permutation(21).astype(np.int32)


def first(x: Tensor, _: Tensor) -> Tensor:
    return x.argmax(1)


def last(x: Tensor, _: Tensor) -> Tensor:
    return (x > 1).where(Tensor.arange(21, device=x.device).reshape(1, 21, 1), dtypes.int32.min).max(1)


def last_of_two(x: Tensor, _: Tensor) -> Tensor:
    rows, columns = Tensor.arange(21, device=x.device), Tensor.arange(40, device=x.device)
    place = rows.reshape(1, 21, 1) * 40 + columns.reshape(1, 1, 40)
    return (x > 1).where(place, dtypes.int32.min).max((1, 2))


def of_memory(x: Tensor, places: Tensor) -> Tensor:
    return (x > 1).where(places.reshape(1, 21, 1), dtypes.int32.min).max(1)


def folding(x: Tensor, _: Tensor) -> Tensor:
    return (x > 1).where((Tensor.arange(21, device=x.device) - 10).abs().reshape(1, 21, 1), dtypes.int32.min).max(1)


@pytest.mark.parametrize(
    ("find", "compares"), [(first, False), (last, False), (last_of_two, True), (of_memory, True), (folding, True)]
)
def test_places(find: Find, compares: bool) -> None:
    x, places = Tensor(VALUES).realize(), Tensor(PLACES).realize()
    (call,) = capture(lambda: find(x, places).realize(), webgpu_target()).calls
    program = program_for(call.kernel, webgpu_target())
    # threads that share a row compare what each of them has found
    assert any(u.op is Ops.MAX and u.dtype is dtypes.int32 for u in program.uops) == compares
    above = VALUES > 1
    where = np.where(above, np.arange(21)[None, :, None], dtypes.int32.min)
    expected = {
        first: lambda: VALUES.argmax(1),
        last: lambda: where.max(1),
        last_of_two: lambda: np.where(above, np.arange(21 * 40).reshape(1, 21, 40), dtypes.int32.min).max((1, 2)),
        of_memory: lambda: np.where(above, PLACES[None, :, None], dtypes.int32.min).max(1),
        folding: lambda: np.where(above, abs(np.arange(21) - 10)[None, :, None], dtypes.int32.min).max(1),
    }[find]()
    for device in ("CPU", "INTERPRETER"):
        np.testing.assert_array_equal(find(x.to(device), places.to(device)).numpy(), expected)

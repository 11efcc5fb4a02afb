"""Sorting beside PyTorch: short axes are counted, long ones merged; ties, NaN, zeros of both signs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.tensor.ops import Op, data, gradients_test, values_test
from tinyweb import Tensor, dtypes

MIXED = np.float32([[3, np.nan, -0.0, np.inf, 0.0, -np.inf, 3], [1, 1, 1, np.nan, -5, np.nan, 2]])
TIES = np.random.default_rng(0).integers(-4, 4, (3, 40)).astype(np.int32)
LONG = np.random.default_rng(1).integers(-99, 99, (2, 300)).astype(np.float32)

OPS = [
    Op("sort", lambda a: a.sort(-1), (data(3, 7),), sample=True),
    Op("sort_axis", lambda a: a.sort(1), (data(2, 5, 3),), lambda a: a.sort(dim=1)),
    Op("sort_dim_descending", lambda a: a.sort(dim=0, descending=True), (data(5, 4),), sample=True),
    Op("sort_specials", lambda a: a.sort(-1), (MIXED,), lambda a: torch.sort(a, dim=-1, stable=True), gradient=False,
       sample=True),
    Op("sort_specials_descending", lambda a: a.sort(-1, descending=True), (MIXED,),
       lambda a: torch.sort(a, dim=-1, descending=True, stable=True), gradient=False),
    Op("sort_ties", lambda a: a.sort(-1), (TIES,), lambda a: torch.sort(a, dim=-1, stable=True)),
    Op("sort_ties_descending", lambda a: a.sort(-1, descending=True), (TIES,),
       lambda a: torch.sort(a, dim=-1, descending=True, stable=True)),
    Op("sort_long", lambda a: a.sort(-1), (LONG,),
       lambda a: torch.sort(a, dim=-1, stable=True), gradient=False, interpreter=False),
    Op("sort_long_descending", lambda a: a.sort(0, descending=True), (LONG[0, :257],),
       lambda a: torch.sort(a, dim=0, descending=True, stable=True), interpreter=False),
    Op("sort_number", lambda a: a.sort(), (np.float32(3),), gradient=False),
    Op("sort_one", lambda a: a.sort(0), (data(1, 4),)),
    Op("sort_none", lambda a: a.sort(0), (data(0, 4),), gradient=False),
    Op("sort_bool", lambda a: a.sort(-1), (np.array([True, False, True, False]),),
       lambda a: torch.sort(a, dim=-1, stable=True)),
    Op("argsort", lambda a: a.argsort(0), (data(4, 3),), gradient=False),
    Op("msort", lambda a: a.msort(), (data(5, 2),)),
    Op("topk", lambda a: a.topk(3), (data(4, 9),), sample=True),
    Op("topk_smallest", lambda a: a.topk(2, 0, largest=False), (data(6, 3),)),
    Op("topk_all", lambda a: a.topk(5, -1), (data(2, 5),)),
    Op("kthvalue", lambda a: a.kthvalue(2), (data(3, 6),)),
    Op("kthvalue_keepdim", lambda a: a.kthvalue(3, 0, keepdim=True), (data(5, 2),), lambda a: a.kthvalue(3, 0, True)),
]  # fmt: skip

test_values = values_test(OPS)
test_gradients = gradients_test(OPS)


@pytest.mark.parametrize(
    "name", ["int8", "uint8", "int16", "uint32", "int64", "uint64", "float16", "bfloat16", "float64"]
)
def test_dtypes(name: str) -> None:
    dtype = getattr(dtypes, name)
    low, high = (-100, 100) if dtype.is_signed else (0, 200)
    values = np.random.default_rng(2).integers(low, high, 33)
    if dtype.kind in ("int", "uint"):
        values[:2] = int(dtype.min), int(dtype.max) if dtype.bits < 64 else 1 << 40
    got, order = Tensor(values, dtype=dtype).sort()
    assert got.dtype is dtype and order.dtype is dtypes.int32
    np.testing.assert_array_equal(order.numpy(), np.argsort(values, kind="stable"))
    np.testing.assert_array_equal(got.numpy(), np.sort(values))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: x.topk(9), ValueError, "topk: k must be between 0 and the size 3 of axis -1, got 9"),
        (lambda x: x.kthvalue(0), ValueError, "kthvalue: k must be between 1 and the size 3"),
        (lambda x: x.sort(2), IndexError, "argsort: axis 2 is outside"),
    ],
)
def test_errors(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(Tensor(data(2, 3)))

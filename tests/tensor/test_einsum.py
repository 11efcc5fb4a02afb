"""Einstein sums against PyTorch."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from tests.tensor.ops import Op, data, gradients_test, values_test
from tinyweb import Tensor
from tinyweb.array.einsum import _cheapest

A, B, C, S, V = data(3, 4), data(4, 5), data(2, 3, 4), data(4, 4), data(4)


def einsum(formula: str, *inputs: np.ndarray, **options: Any) -> Op:
    def call(*tensors: Any) -> Any:
        return (Tensor if isinstance(tensors[0], Tensor) else torch).einsum(formula, *tensors)

    return Op(formula.replace(" ", "_") or "empty", call, inputs, **options)


OPS = [
    einsum("ij,jk->ik", A, B, sample=True),
    einsum("ij,jk", A, B),
    einsum("ba,bc", A, data(3, 5)),
    einsum("bij,bjk->bik", C, data(2, 4, 5), sample=True),
    einsum("bij,kj->bki", C, data(5, 4)),
    einsum("ij->ji", A),
    einsum("ij->", A),
    einsum("ij->j", A),
    einsum("ij", A),
    einsum("ba", A),
    einsum("ii", S, sample=True),
    einsum("ii->i", S),
    einsum("iji->ij", data(3, 2, 3)),
    einsum("iii->i", data(3, 3, 3)),
    einsum("ii,ij->j", S, S),
    einsum("i,i->", V, V * 2),
    einsum("i,j->ij", V, data(3)),
    einsum("i,->i", V, data()),
    einsum("ij,ij->i", A, A * 2),
    einsum("ij,kl->", A, B),
    einsum("i j , j -> i", A, V),
    einsum("...ij,...jk->...ik", C, data(4, 5), sample=True),
    einsum("...ij->...ji", data(2, 3, 4, 5)),
    einsum("...,...->...", C, data(3, 1)),
    einsum("i...->...", C),
    einsum("...i", C),
    einsum("...i,i", C, V),
    einsum("b...i,ij->...bj", data(2, 3, 2, 4), B),
    einsum("ij,jk,kl,l->i", A, B, data(5, 6), data(6), sample=True),
    einsum("ij,ik,il->jkl", A, data(3, 2), data(3, 5)),
    einsum("abc,abd,acd->", data(2, 3, 4), data(2, 3, 5), data(2, 4, 5)),
    einsum("bqhd,bkhd->bhqk", data(2, 5, 3, 4), data(2, 6, 3, 4), sample=True),
    einsum("ij,jk->ik", data(3, 1), B),  # an axis of size 1 broadcasts
    einsum("ij,jk->ik", data(3, 0), data(0, 5), gradient=False),
    einsum("ij,jk->ik", A.astype(np.float16), B.astype(np.float16), rtol=2e-3, atol=2e-3),
    einsum("ij,jk->ik", (A * 5).astype(np.int32), (B * 5).astype(np.int32)),
    einsum("Ab,bC->CA", A, B),
    Op("numbers", lambda a, b: Tensor.einsum(a, [0, 1], b, [1, 2], [2, 0]), (A, B),
       lambda a, b: torch.einsum(a, [0, 1], b, [1, 2], [2, 0])),
    Op("numbers_dots", lambda a, b: Tensor.einsum(a, [..., 0, 1], b, [1, 2]), (C, B),
       lambda a, b: torch.einsum(a, [..., 0, 1], b, [1, 2])),
    Op("list", lambda a, b: Tensor.einsum("ij,jk->ik", [a, b]), (A, B), lambda a, b: a @ b),
]  # fmt: skip

test_values = values_test(OPS)
test_gradients = gradients_test(OPS)


def test_many_operands_are_contracted_from_the_cheap_end() -> None:
    sizes = (2, 300, 300, 300, 300)
    mats = [data(n, m, seed=i) / 10 for i, (n, m) in enumerate(pairwise(sizes))]
    want = np.linalg.multi_dot([m.astype(np.float64) for m in mats])
    got = Tensor.einsum("ab,bc,cd,de->ae", *map(Tensor, mats)).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3 * np.abs(want).max())


def test_the_order_multiplies_least() -> None:
    """Not by way of the smallest results: the first two operands leave a matrix for 40 times the work."""
    sizes = {"i": 20, "j": 30, "k": 40, "l": 25}
    pairs = [_cheapest([("i", "j", "k"), ("i", "k", "l"), ("i", "l")], ("j",), sizes)]
    assert pairs == [(1, 2)]
    rng = np.random.default_rng(3)
    a, b, c = (rng.standard_normal(s).astype(np.float32) for s in ((20, 30, 40), (20, 40, 25), (20, 25)))
    want = np.einsum("ijk,ik->j", a, np.einsum("ikl,il->ik", b, c))
    got = Tensor.einsum("ijk,ikl,il->j", *map(Tensor, (a, b, c))).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)


T, U = Tensor(A), Tensor(B)
WRONG: list[tuple[Any, type[Exception], str]] = [
    (lambda: Tensor.einsum("ij,jk->ik", T), ValueError, "names 2 operands, got 1"),
    (lambda: Tensor.einsum("ijk->i", T), ValueError, r"'ijk' in 'ijk->i' does not fit the shape \(3, 4\)"),
    (lambda: Tensor.einsum("i->i", T), ValueError, "does not fit"),
    (lambda: Tensor.einsum("ij,ik->jk", T, U), ValueError, "'i' is both 3 and 4"),
    (lambda: Tensor.einsum("ij->ik", T), ValueError, "each label of the operands once"),
    (lambda: Tensor.einsum("ij->ii", T), ValueError, "each label of the operands once"),
    (lambda: Tensor.einsum("ii", T), ValueError, "'i'"),
    (lambda: Tensor.einsum("i1->i", T), ValueError, "more than letters"),
    (lambda: Tensor.einsum("i..->i", T), ValueError, "more than letters"),
    (lambda: Tensor.einsum("ij->j->i", T), ValueError, "more than letters"),
    (lambda: Tensor.einsum("ij,jk->ik", T, 2.0), TypeError, "operands are tensors"),
    (lambda: Tensor.einsum("ij,jk->ik", T, U.to("INTERPRETER")), ValueError, "einsum: tensors live on"),
]


@pytest.mark.parametrize(("call", "error", "says"), WRONG, ids=range(len(WRONG)))
def test_errors_name_the_rule(call: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call()

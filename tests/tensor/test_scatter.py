"""Scatter and its kin against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.tensor.ops import Op, data, gradients_test, values_test
from tinyweb import Tensor, dtypes

A, C, V = data(3, 4), data(2, 3, 4), data(7)
INTS = np.arange(12, dtype=np.int32).reshape(3, 4) - 5
I = np.array([[2, 0, 1, 2], [0, 0, 2, 1]])  # noqa: E741
S = data(2, 4, seed=1)
UNIQUE = np.array([[2, 0, 1, 2], [0, 1, 2, 1]])
K, SK = np.array([2, 0, 2]), data(3, 4, seed=2)
ZEROS = np.float32([[0, 2, 0, 3], [1, 0, 0, 2]])
REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")

OPS = [
    Op("scatter", lambda a, i, s: a.scatter(0, i, s), (A, UNIQUE, S), exact=True, sample=True),
    Op("scatter_dim", lambda a, i, s: a.scatter(dim=-1, index=i, src=s), (A, UNIQUE[:, ::2], S),
       lambda a, i, s: a.scatter(-1, i, s[:, :2]), exact=True),
    Op("scatter_small", lambda a, i, s: a.scatter(2, i, s), (C, np.array([[[3], [0]]]), C),
       lambda a, i, s: a.scatter(2, i, s[:1, :2, :1]), exact=True),
    Op("scatter_number", lambda a, i: a.scatter(0, i, 2.5), (A, I), exact=True),
    Op("scatter_scalar", lambda a, i, s: a.scatter(0, i, s), (data(), np.array(0), data(seed=1)), exact=True),
    Op("scatter_none", lambda a, i, s: a.scatter(0, i, s), (A, np.zeros((0, 4), np.int64), S), exact=True,
       gradient=False),
    Op("scatter_add_reduce", lambda a, i, s: a.scatter(0, i, s, reduce="add"), (A, I, S), gradient=False),
    Op("scatter_multiply", lambda a, i: a.scatter(0, i, 3.0, reduce="multiply"), (A, I), gradient=False),
    Op("scatter_expanded", lambda a, i, s: a.scatter(1, i[None, :, None].expand(2, 2, 4), s),
       (C, np.array([2, 0]), data(2, 2, 4)), exact=True, sample=True),
    Op("scatter_ints", lambda a, i, s: a.scatter(0, i, s), (INTS, UNIQUE, INTS[:2]), gradient=False),
    Op("scatter_add", lambda a, i, s: a.scatter_add(0, i, s), (A, I, S), sample=True),
    Op("scatter_add_last", lambda a, i, s: a.scatter_add(-1, i, s), (C, np.array([[[1, 1, 0, 1, 1]]]), data(1, 1, 5))),
    Op("scatter_add_vector", lambda a, i, s: a.scatter_add(0, i, s), (V, np.array([6, 0, 6, 6, 1, 2, 3, 0]), data(8))),
    Op("scatter_add_bytes", lambda a, i, s: a.scatter_add(0, i, s),
       (INTS.astype(np.int8), I, np.full((2, 4), 100, np.int8)), gradient=False),
    Op("scatter_add_halves", lambda a, i, s: a.scatter_add(0, i, s), (A.astype(np.float16), I, S.astype(np.float16)),
       rtol=2e-3, atol=2e-3),
    *(
        Op(f"scatter_reduce_{r}{'' if own else '_alone'}",
           lambda a, i, s, r=r, own=own: a.scatter_reduce(0, i, s, r, include_self=own), (A, I, S), sample=own)
        for r in REDUCTIONS for own in (True, False)
    ),
    *(
        Op(f"scatter_reduce_{r}_ints", lambda a, i, s, r=r: a.scatter_reduce(0, i, s, r), (INTS, I, INTS[1:]),
           gradient=False)
        for r in REDUCTIONS
    ),
    Op("scatter_reduce_amax_ties", lambda a, i, s: a.scatter_reduce(0, i, s, "amax"), (np.ones((3, 4), np.float32), I,
       np.ones((2, 4), np.float32))),
    Op("scatter_reduce_prod_zeros", lambda a, i, s: a.scatter_reduce(0, i, s, "prod"), (A, I, ZEROS)),
    Op("scatter_reduce_nan", lambda a, i, s: a.scatter_reduce(0, i, s, "amin"),
       (A, I, np.float32([[np.nan, 1, -np.inf, 0]] * 2)), gradient=False),
    Op("index_add", lambda a, i, s: a.index_add(0, i, s), (A, K, SK), sample=True),
    Op("index_add_alpha", lambda a, i, s: a.index_add(dim=1, index=i, source=s, alpha=-2), (C, K, C)),
    Op("index_add_scalar", lambda a, i, s: a.index_add(0, i, s), (data(), np.array([0]), data(seed=1))),
    Op("index_copy", lambda a, i, s: a.index_copy(0, i, s), (A, np.array([2, 0]), SK[:2]), exact=True, sample=True),
    Op("index_fill", lambda a, i: a.index_fill(1, i, -1.5), (A, np.array([3, 0])), exact=True),
    *(
        Op(f"index_reduce_{n}", lambda a, i, s, r=r: a.index_reduce(0, i, s, r), (A, K, SK),
           lambda a, i, s, n=n: a.index_reduce(0, i, s, n))
        for r, n in (("prod", "prod"), ("mean", "mean"), ("amax", "amax"), ("amin", "amin"))
    ),
    Op("index_put", lambda a, i, j, v: a.index_put((i, j), v), (A, np.array([0, 2]), np.array([1, -1]), data(2)),
       exact=True, sample=True),
    Op("index_put_accumulate", lambda a, i, j, v: a.index_put((i, j), v, accumulate=True),
       (A, np.array([0, 2, 0]), np.array([1, -1, 1]), data(3)), sample=True),
    Op("index_put_rows", lambda a, i, v: a.index_put((i,), v, accumulate=True), (A, K, data(4))),
    Op("index_put_mask", lambda a, m, v: a.index_put((m,), v), (A, A > 0, np.float32(3)), exact=True),
    Op("index_put_mask_accumulate", lambda a, m, v: a.index_put((m,), v, accumulate=True), (A, A > 0, np.float32(3))),
    Op("put", lambda a, i, s: a.put(i, s), (A, np.array([[0, 11], [-2, 4]]), data(2, 2)), exact=True),
    Op("put_accumulate", lambda a, i, s: a.put(i, s, accumulate=True), (A, np.array([0, 11, 0]), data(3))),
    Op("masked_scatter", lambda a, m, s: a.masked_scatter(m, s), (A, A > 0, data(3, 5)), exact=True, sample=True),
    Op("masked_scatter_broadcast", lambda a, m, s: a.masked_scatter(m, s), (A, A[0] > 0, data(3, 5)), exact=True),
]  # fmt: skip

test_values = values_test(OPS)
test_gradients = gradients_test(OPS)
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # PyTorch calls two of them old, and one new


def test_the_last_of_several_wins_and_gets_the_gradient() -> None:
    a, s = Tensor.zeros(3), Tensor([1.0, 2.0, 3.0, 4.0])
    out = a.scatter(0, Tensor([1, 1, 2, 1]), s)
    ga, gs = out.sum().gradient(a, s)
    assert out.tolist() == [0, 4, 3]
    assert ga.tolist() == [1, 0, 0] and gs.tolist() == [0, 0, 1, 1]


def test_positions_outside_write_nothing() -> None:
    out = Tensor(A).scatter_add(0, Tensor([[3, -4, -1, 0]]), Tensor.ones(1, 4))
    want = A.copy()
    want[2, 2] += 1
    want[0, 3] += 1
    np.testing.assert_array_equal(out.numpy(), want)


def test_many_positions() -> None:
    rng = np.random.default_rng(0)
    index, source = rng.integers(0, 100, 20000), rng.normal(size=20000).astype(np.float32)
    want = torch.zeros(100).scatter_add(0, torch.from_numpy(index), torch.from_numpy(source)).numpy()
    got = Tensor.zeros(100).scatter_add(0, Tensor(index), Tensor(source)).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)


T = Tensor(A)
WRONG: list[tuple[Any, type[Exception], str]] = [
    (lambda: T.scatter(0, Tensor(I), Tensor(S), reduce="max"), ValueError, "'add', 'multiply' or None"),
    (lambda: T.scatter(0, Tensor([0]), Tensor(S)), ValueError, "as many axes"),
    (lambda: T.scatter(0, Tensor(I), Tensor(S[:1])), ValueError, "larger than the source"),
    (lambda: T.scatter(2, Tensor(I), Tensor(S)), IndexError, "scatter: axis 2"),
    (lambda: T.scatter(0, Tensor(S), Tensor(S)), IndexError, "must hold integers, got float32"),
    (lambda: T.scatter_add(0, Tensor(I), Tensor(S, device="INTERPRETER")), ValueError, "the value is on INTERPRETER"),
    (lambda: T.scatter_reduce(0, Tensor(I), Tensor(S), "max"), ValueError, "one of sum, prod, mean, amax, amin"),
    (lambda: T.index_add(0, Tensor(K), Tensor(S)), ValueError, r"index_add: index \(3,\) in axis 0 of \(3, 4\) needs"),
    (lambda: T.index_fill(0, Tensor(K), Tensor(S)), ValueError, "must be a number"),
    (lambda: T.index_put((slice(2), 1), 1.0), IndexError, "must be integer tensors or masks"),
    (lambda: T.put(Tensor([0]), Tensor(S)), ValueError, "1 indices and 8 elements"),
    (lambda: T.masked_scatter(Tensor(I), Tensor(S)), TypeError, "dtype bool"),
]


@pytest.mark.parametrize(("call", "error", "says"), WRONG, ids=[w[2] for w in WRONG])
def test_errors_name_the_rule(call: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call()


def test_sources_of_another_dtype_are_refused() -> None:
    for call in (
        lambda x, i: x.scatter(0, i, Tensor([[2.7]])),
        lambda x, i: x.scatter_add(0, i, Tensor([[2.7]])),
        lambda x, i: x.index_copy(0, i.flatten(), Tensor(np.ones((1, *INTS.shape[1:]), np.float32))),
        lambda x, i: x.put(i, Tensor([2.7])),
    ):
        with pytest.raises(TypeError, match="the source is float32, this tensor int32"):
            call(Tensor(INTS), Tensor([[0]]))
    out = Tensor(INTS).scatter(0, Tensor([[0]]), 2.7)  # a number takes the tensor's dtype
    assert out.dtype is dtypes.int32 and out.numpy()[0, 0] == 2

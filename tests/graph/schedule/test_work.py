"""Fusion repeats no work: what no single pass computes gets memory, whatever lies between scores and sum."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.graph.schedule.kernel_oracle import Oracle
from tinyweb import Tensor
from tinyweb.graph.ir import Ops, UOp
from tinyweb.graph.ir.spec import SpecError
from tinyweb.graph.schedule import schedule
from tinyweb.graph.schedule.work import LAUNCH, MOST_REPEATED, executed, verify_work

ROWS, WIDTH, VALUES = 48, 16, 24
PRODUCT = ROWS * ROWS * WIDTH
SUM = ROWS * ROWS * VALUES


def draw(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(7)
    return [rng.standard_normal(s).astype(np.float32) for s in shapes]


Q, K, V, BIAS = draw((ROWS, WIDTH), (ROWS, WIDTH), (ROWS, VALUES), (ROWS, ROWS))


def steps(*tensors: Tensor) -> int:
    roots = [UOp(Ops.CONTIGUOUS, t.dtype, (t.uop,)) for t in tensors]
    return sum(executed(call.kernel) for call in schedule(roots).calls)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def scores(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.transpose(0, 1) * 0.25


S = Q @ K.T * np.float32(0.25)
Make = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
ONE_PASS: dict[str, tuple[Make, np.ndarray]] = {
    "plain": (lambda q, k, v, b: scores(q, k).softmax(-1) @ v, softmax(S) @ V),
    "bias before": (lambda q, k, v, b: (scores(q, k) + b).softmax(-1) @ v, softmax(S + BIAS) @ V),
    "cap": (lambda q, k, v, b: scores(q, k).clip(-1, 1).softmax(-1) @ v, softmax(S.clip(-1, 1)) @ V),
    "scaled weights": (lambda q, k, v, b: (scores(q, k).softmax(-1) * b) @ v, softmax(S) * BIAS @ V),
}
STORED: dict[str, tuple[Make, np.ndarray]] = {
    "relu": (lambda q, k, v, b: scores(q, k).softmax(-1).relu() @ v, softmax(S) @ V),
    "bias after": (lambda q, k, v, b: (scores(q, k).softmax(-1) + b) @ v, (softmax(S) + BIAS) @ V),
    "square": (lambda q, k, v, b: scores(q, k).softmax(-1).square() @ v, softmax(S) ** 2 @ V),
    "threshold": (
        lambda q, k, v, b: (lambda p: (p > 0.05).where(p, 0.5))(scores(q, k).softmax(-1)) @ v,
        np.where(softmax(S) > 0.05, softmax(S), 0.5).astype(np.float32) @ V,
    ),
    "log": (lambda q, k, v, b: scores(q, k).log_softmax(-1) @ v, np.log(softmax(S)) @ V),
}
CASES = {**ONE_PASS, **STORED}


@pytest.mark.parametrize("name", CASES)
def test_attention_computes_its_scores_once(name: str) -> None:
    make, want = CASES[name]
    oracle = Oracle()
    result = make(*map(oracle.tensor, (Q, K, V, BIAS)))
    rows = 3 * ROWS * ROWS  # maximum, sum, and what a row may be summed up for besides
    assert PRODUCT + SUM <= steps(result) <= PRODUCT + SUM + rows
    np.testing.assert_allclose(oracle.numpy(result), want, rtol=2e-4, atol=2e-5)
    assert oracle.kernels == (1 if name in ONE_PASS else 3)


def test_differences_of_two_softmaxes() -> None:
    oracle = Oracle()
    q, k, v, q2 = map(oracle.tensor, (Q, K, V, Q[::-1].copy()))
    result = (scores(q, k).softmax(-1) - scores(q2, k).softmax(-1) * 0.3) @ v
    assert steps(result) <= 2 * PRODUCT + SUM + 4 * ROWS * ROWS
    want = (softmax(S) - np.float32(0.3) * softmax(S[::-1])) @ V
    np.testing.assert_allclose(oracle.numpy(result), want, rtol=2e-4, atol=2e-5)


def test_differences_of_two_attentions() -> None:
    """A kernel passes over the scores of one softmax: the other's sum is computed before."""
    oracle = Oracle()
    q, k, v, q2 = map(oracle.tensor, (Q, K, V, Q[::-1].copy()))
    result = scores(q, k).softmax(-1) @ v - (scores(q2, k).softmax(-1) @ v) * 0.3
    assert steps(result) <= 2 * (PRODUCT + SUM) + 6 * ROWS * ROWS
    want = softmax(S) @ V - np.float32(0.3) * softmax(S[::-1]) @ V
    np.testing.assert_allclose(oracle.numpy(result), want, rtol=2e-4, atol=2e-5)
    assert oracle.kernels == 2


def test_one_stored_row_of_scores_does_not_store_another() -> None:
    q, k, v, b = map(Tensor, (Q, K, V, BIAS))
    plain, relu = ONE_PASS["plain"][0](q, k, v, b), STORED["relu"][0](q, k + 1.0, v, b)
    assert len(schedule([UOp(Ops.CONTIGUOUS, t.dtype, (t.uop,)) for t in (plain, relu)]).calls) == 1 + 3


def test_a_border_around_long_work_is_put_around_its_result() -> None:
    small, large = (Tensor.empty(n, 4, 8).sum(2) for n in (10, 4000))
    assert (steps(small.pad(((0, n := 10), (0, 0)))), n) == (20 * 4 * 8, 10)
    assert steps(large.pad(((0, 4000), (0, 0)))) == 4000 * 4 * 8


def test_what_repeats_work_is_refused() -> None:
    make, _ = STORED["relu"]
    root = UOp(Ops.CONTIGUOUS, (t := make(*map(Tensor, (Q, K, V, BIAS)))).dtype, (t.uop,))
    once = UOp(Ops.REDUCE, t.dtype, (UOp(Ops.RESHAPE, t.dtype, (root,), (ROWS * VALUES,)),), (Ops.ADD, (0,)))
    kernel = schedule([root]).calls[0].kernel
    need = executed(kernel)
    verify_work(root, kernel)
    assert need > MOST_REPEATED * ROWS * VALUES + LAUNCH
    with pytest.raises(SpecError, match=f"a kernel takes {need} steps for what {ROWS * VALUES} do"):
        verify_work(once, kernel)


@pytest.mark.parametrize(
    "moved",
    [
        lambda x: x.maximum(x.roll(4, 0)),
        lambda x: Tensor.cat(x, x.flip(0)),
        lambda x: x.pad(((3, 2),)),
    ],
)
def test_the_sum_of_a_row_is_the_same_inside_of_borders_and_joins(moved: Callable[[Tensor], Tensor]) -> None:
    """What is broadcast does not vary along a border's axis: its condition makes no loop of the sum."""
    row = draw((400,))[0]
    centred = Tensor(row) - Tensor(row).mean(0, keepdim=True)
    assert steps(moved(centred)) <= 2 * len(row)
    np.testing.assert_allclose(moved(centred).numpy(), moved(Tensor(row - row.mean())).numpy(), atol=1e-6)


def test_conditions_that_an_index_needs_stay() -> None:
    """A condition of another range stays where one that bears on the index shares that range."""
    table, rows = draw((7, 5))[0], np.arange(6, dtype=np.int32)
    moved = Tensor(table).pad(((0, 3), (2, 0))).reshape(70)[Tensor(rows) * 11].reshape(6, 1).expand(6, 4)
    want = np.broadcast_to(np.pad(table, ((0, 3), (2, 0))).reshape(70)[rows * 11][:, None], (6, 4))
    np.testing.assert_array_equal(moved.numpy(), want)

"""Scheduled kernels compute what the tensor expression says, in as few kernels as fusion promises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graph.schedule.kernel_oracle import Oracle
from tinyweb import Tensor, Variable
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import Ops, UOp
from tinyweb.graph.schedule import schedule
from tinyweb.graph.schedule.indexing import reshape_groups
from tinyweb.graph.schedule.memory_plan import plan_memory
from tinyweb.graph.schedule.schedule import new_buffer
from tinyweb.tracing import capture

F32 = dtypes.float32


def data(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def layernorm(x: np.ndarray) -> np.ndarray:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


A, B = data(3, 4), data(4, 5)
CASES: list[tuple[str, Callable[[Any, Any], Any], Callable[[Any, Any], Any], int]] = [
    ("elementwise", lambda a, b: a * 2 + 1, lambda a, b: a * 2 + 1, 1),
    ("matmul_relu", lambda a, b: (a @ b).relu(), lambda a, b: np.maximum(a @ b, 0), 1),
    ("softmax", lambda a, b: a.softmax(), lambda a, b: softmax(a), 1),
    ("softmax_of_product", lambda a, b: (a @ b).softmax(), lambda a, b: softmax(a @ b), 2),
    ("product_of_softmax", lambda a, b: a.softmax() @ b, lambda a, b: softmax(a) @ b, 2),
    ("layernorm", lambda a, b: a.layernorm(), lambda a, b: layernorm(a), 1),
    ("variance", lambda a, b: a.var(1), lambda a, b: a.var(1, ddof=1), 1),
    ("argmax", lambda a, b: a.argmax(1), lambda a, b: a.argmax(1), 1),
    ("cat", lambda a, b: a.cat(a * 2, dim=1), lambda a, b: np.concatenate([a, a * 2], 1), 1),
    ("reshape_of_transpose", lambda a, b: a.T.reshape(2, 6).T, lambda a, b: a.T.reshape(2, 6).T, 1),
    ("two_products", lambda a, b: (a @ b) @ b.T, lambda a, b: (a @ b) @ b.T, 2),
    ("sum_of_sum", lambda a, b: (a @ b).sum(), lambda a, b: (a @ b).sum(), 2),
]  # fmt: skip


@pytest.mark.parametrize(("name", "ours", "theirs", "kernels"), CASES, ids=[c[0] for c in CASES])
def test_values_and_kernel_count(name: str, ours: Any, theirs: Any, kernels: int) -> None:
    oracle = Oracle()
    got = oracle.numpy(ours(oracle.tensor(A), oracle.tensor(B)))
    np.testing.assert_allclose(got, theirs(A, B), rtol=1e-5, atol=1e-6)
    assert oracle.kernels == kernels


@pytest.mark.parametrize("inner", [32, 48])
def test_a_product_of_a_product_is_not_stored_term_by_term(inner: int) -> None:
    """The second product's new axis may be as long as the first one's sum: that makes it no row to walk along."""
    x, up, down = Tensor.ones(2, 8, 32).realize(), Tensor.ones(inner, 32).realize(), Tensor.ones(32, inner).realize()
    plan = capture(lambda: [x.linear(up).gelu().linear(down)])
    assert len(plan.calls) == 2
    assert plan.pool_bytes == (2 * 8 * inner * 4,)


def test_grouped_attention_over_a_symbolic_length() -> None:
    oracle = Oracle()
    q, k, v = data(4, 2, 8), data(2, 16, 8, seed=1), data(2, 16, 8, seed=2)
    pos = Variable("pos", 0, 14)
    out = oracle.tensor(q).scaled_dot_product_attention(
        oracle.tensor(k)[:, 0 : pos + 2], oracle.tensor(v)[:, 0 : pos + 2], enable_gqa=True
    )
    for p in (0, 3, 14):
        kk, vv = (x[:, : p + 2].repeat(2, 0) for x in (k, v))
        want = softmax(q @ kk.swapaxes(-1, -2) / np.sqrt(8)) @ vv
        np.testing.assert_allclose(oracle.numpy(out, pos=p), want, rtol=1e-5, atol=1e-6)
        assert oracle.kernels == 1


def test_many_inputs_are_split_over_kernels() -> None:
    oracle = Oracle()
    values = [data(5, seed=i) for i in range(20)]
    parts = [oracle.tensor(v) for v in values]
    np.testing.assert_allclose(oracle.numpy(Tensor.cat(parts)), np.concatenate(values))
    total = parts[0]
    for p in parts[1:]:
        total = total + p
    np.testing.assert_allclose(oracle.numpy(total), np.sum(values, 0), rtol=1e-5, atol=1e-6)


@settings(max_examples=60)
@given(st.data())
def test_random_movement(draw: st.DataObject) -> None:
    x = np.arange(24, dtype=np.float32)
    shapes = [(24,), (2, 12), (4, 6), (2, 3, 4), (3, 8), (2, 2, 6), (1, 24, 1), (6, 1, 4)]
    oracle = Oracle()
    t, want = oracle.tensor(x), x
    for _ in range(draw.draw(st.integers(1, 6))):
        what = draw.draw(st.sampled_from(["reshape", "permute", "flip", "pad", "slice"]))
        if what == "reshape":
            new = draw.draw(st.sampled_from(shapes)) if want.size == 24 else (want.size,)
            t, want = t.reshape(new), want.reshape(new)
        elif what == "permute":
            order = draw.draw(st.permutations(range(want.ndim)))
            t, want = t.permute(*order), want.transpose(order)
        elif what == "flip":
            axis = draw.draw(st.integers(0, want.ndim - 1))
            t, want = t.flip(axis), np.flip(want, axis)
        elif what == "pad":
            pads = [draw.draw(st.tuples(st.integers(0, 2), st.integers(0, 2))) for _ in want.shape]
            t, want = t.pad(pads, value=7.0), np.pad(want, pads, constant_values=7.0)
        elif want.shape[0] > 1:
            t, want = t[1:], want[1:]
    np.testing.assert_array_equal(oracle.numpy(t), want)


def test_reshape_groups_are_short() -> None:
    assert reshape_groups((2, 3, 4), (6, 4)) == [(range(0, 2), range(0, 1)), (range(2, 3), range(1, 2))]
    with pytest.raises(ValueError, match="cannot reshape"):
        reshape_groups((2, 3), (5,))


def test_memory_plan_shares_what_is_not_alive_together() -> None:
    a, b, c, d = (new_buffer(n, dtypes.float32) for n in (100, 100, 80, 50))
    plan = plan_memory([[a], [a, b], [b, c], [c, d]], [a, b, c, d])
    assert sum(plan.pool_bytes) == 800
    assert plan.pool_of[a] != plan.pool_of[b] != plan.pool_of[c] != plan.pool_of[d]


def version(memory: UOp, value: UOp, number: int, begin: int = 0) -> UOp:
    """`memory` after `value` was written to it from element `begin` on."""
    end = begin + int(value.shape[0])  # type: ignore[arg-type]
    whole = (begin, end) == (0, memory.shape[0])
    view = memory if whole else UOp(Ops.SHRINK, F32, (memory,), ((begin, end),))
    return UOp(Ops.ASSIGN, F32, (view, value), number)


def part(u: UOp, begin: int, end: int) -> UOp:
    return UOp(Ops.SHRINK, F32, (u,), ((begin, end),))


def copy(u: UOp) -> UOp:
    return UOp(Ops.CONTIGUOUS, F32, (u,))


def old_and_new(m: UOp) -> list[UOp]:
    new = version(m, m + 1.0, 0)
    return [copy(m * 2.0 + new), new]


def old_after_new(m: UOp) -> list[UOp]:
    first = version(m, m + 1.0, 0)
    return [version(first, part(m, 0, 2) * 10.0, 1)]


def three_versions(m: UOp) -> list[UOp]:
    first = version(m, m + 1.0, 0)
    second = version(first, UOp(Ops.FLIP, F32, (first,), (0,)), 1)
    return [second, copy(m + first + second), copy(first * second)]


def overlap_twice(m: UOp) -> list[UOp]:
    first = version(m, part(m, 0, 3), 0, begin=1)
    return [version(first, part(first, 1, 4), 1)]


def numpy_three_versions(x: np.ndarray) -> list[np.ndarray]:
    first, second = x + 1, (x + 1)[::-1]
    return [second, x + first + second, first * second]


VERSIONS: list[tuple[Callable[[UOp], list[UOp]], list[float] | Callable[[Any], Any], int]] = [
    (old_and_new, lambda x: [x * 2 + x + 1, x + 1], 3),  # a copy of the old version, the update, the sum
    (old_after_new, lambda x: [np.concatenate([x[:2] * 10, x[2:] + 1])], 3),
    (three_versions, numpy_three_versions, 6),
    (overlap_twice, lambda x: [np.float32([x[0], x[1], x[2], x[2]])], 3),
]


@pytest.mark.parametrize(("roots", "want", "kernels"), VERSIONS, ids=[v[0].__name__ for v in VERSIONS])
def test_versions_of_memory(roots: Any, want: Any, kernels: int) -> None:
    oracle = Oracle()
    memory, x = new_buffer(4, F32), data(4)
    oracle.data[memory] = x.copy()
    plan = schedule(roots(memory))
    for call in plan.calls:
        oracle.run(call, {})
    for got, expected in zip(plan.results, want(x), strict=True):
        np.testing.assert_allclose(oracle.data[got], expected, rtol=1e-6)
    assert len(plan.calls) == kernels


def test_what_a_call_writes_whole() -> None:
    """Memory for it need not be cleared; what is updated in place, in parts or up to a variable's value must be."""
    n = Variable("n", 1, 4)
    x, square, held = Tensor(A), Tensor(data(5, 5)), Tensor(data(3, 4)).realize()

    def last(make: Callable[[], Tensor]) -> set[int]:
        call = capture(lambda: make().realize()).calls[-1]
        return {call.buffers.index(b) for b in call.written_whole()}

    def update() -> Tensor:
        held[1:2] = 3.0
        return held

    assert last(lambda: x.T.contiguous() + 1) == last(lambda: (x + 1).sum(0)) == {0}
    assert last(lambda: (square @ square).sum()) == {0}
    assert last(lambda: held.assign(held * 2)) == last(update) == set()
    assert last(lambda: x.cumsum(1)) == set()
    assert last(lambda: square[: n.bind(2)] + 1) == set()

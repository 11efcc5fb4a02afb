"""Operations that kernels on a GPU execute, beside what their expressions need."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from benchmarks.count.program import operations
from tinyweb import Tensor
from tinyweb.graph.ir import Ops, Space
from tinyweb.graph.lower import program_for
from tinyweb.graph.program import Program
from tinyweb.graph.target import webgpu_target
from tinyweb.tracing import capture

MOST = 1.25


def programs(make: Callable[[], Tensor]) -> list[Program]:
    return [program_for(call.kernel, webgpu_target()) for call in capture(lambda: make().realize()).calls]


def product(m: int, k: int, n: int, batches: int = 1) -> Callable[[], Tensor]:
    return lambda: Tensor.empty(batches, m, k) @ Tensor.empty(batches, k, n)


@pytest.mark.parametrize(
    ("m", "k", "n", "batches"),
    [(512, 17, 512, 1), (197, 197, 197, 12), (33, 64, 1500, 6), (131, 67, 784, 1), (97, 70, 203, 3), (200, 41, 150, 2)],
)
def test_products_compute_little_again(m: int, k: int, n: int, batches: int) -> None:
    (program,) = programs(product(m, k, n, batches))
    assert operations(program) <= MOST * 2 * batches * m * k * n


@pytest.mark.parametrize(
    ("heads", "queries", "keys", "width"),
    [(8, 15, 1024, 64), (6, 33, 1500, 64), (4, 256, 256, 40), (4, 77, 256, 96), (2, 50, 700, 80), (8, 1, 1024, 64)],
)
def test_attention_computes_little_again(heads: int, queries: int, keys: int, width: int) -> None:
    q, k, v = (Tensor.empty(1, heads, n, width) for n in (queries, keys, keys))
    (program,) = programs(lambda: q.scaled_dot_product_attention(k, v))
    score = 4 * width + 43  # with an exponential and what else a softmax takes
    assert operations(program) <= MOST * heads * queries * keys * score


def test_memory_changes_hands_behind_a_loop() -> None:
    """What weights lie in during the loop over keys takes sums after it, and a barrier lies between."""
    q, k, v = (Tensor.empty(1, 8, n, 64) for n in (15, 1024, 1024))
    (program,) = programs(lambda: q.scaled_dot_product_attention(k, v))
    shared = [u for u in program.uops if u.op in (Ops.LOAD, Ops.STORE) and u.src[0].buffer.arg in _shared(program)]
    depth, inside, behind = 0, set(), []
    for u in program.uops:
        depth += (u.op is Ops.RANGE) - (u.op is Ops.END)
        if u in shared and depth:
            inside.add(u.src[0].buffer)
        elif not depth and inside and (u.op is Ops.BARRIER or u in shared):
            behind.append(u)
    assert behind[0].op is Ops.BARRIER
    assert any(u.op is Ops.STORE and u.src[0].buffer in inside for u in behind)


def _shared(program: Program) -> set[object]:
    return {u.arg for u in program.uops if u.op is Ops.BUFFER and u.arg.space is Space.SHARED}


@pytest.mark.parametrize(("queries", "keys", "width"), [(15, 512, 64), (6, 37, 40), (11, 130, 24)])
def test_values_of_shared_memory_that_changes_hands(queries: int, keys: int, width: int) -> None:
    random = np.random.default_rng(queries)
    q, k, v = (random.standard_normal((2, n, width), np.float32) for n in (queries, keys, keys))
    tq, tk, tv = (Tensor(x, device="WEBGPU") for x in (q, k, v))
    scores = np.einsum("hqw,hkw->hqk", q.astype(np.float64), k) / width**0.5
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    want = weights / weights.sum(-1, keepdims=True) @ v
    got = tq.scaled_dot_product_attention(tk, tv).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("m", "k", "n"), [(130, 17, 70), (33, 41, 97), (197, 10, 50)])
def test_values_of_products_in_uneven_tiles(m: int, k: int, n: int) -> None:
    random = np.random.default_rng(m)
    a, b = random.standard_normal((m, k), np.float32), random.standard_normal((k, n), np.float32)
    got = (Tensor(a, device="WEBGPU") @ Tensor(b, device="WEBGPU")).numpy()
    np.testing.assert_allclose(got, a.astype(np.float64) @ b, rtol=1e-5, atol=1e-5)

"""Schedules are worked out once for graphs of one form, and each call has memory of its own."""

from __future__ import annotations

import gc
import importlib
from weakref import ref

import numpy as np
import pytest

from tinyweb import Tensor, Variable
from tinyweb.graph.ir import Ops, UOp
from tinyweb.graph.schedule import Schedule, schedule
from tinyweb.graph.target import Target, cpu_target, webgpu_target

known = importlib.import_module("tinyweb.graph.schedule.known")
schedules = importlib.import_module("tinyweb.graph.schedule.schedule")
START = Variable("start", 0, 7)


@pytest.fixture(autouse=True)
def worked_out(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many roots each schedule had that was not known."""
    found: list[int] = []
    plain = schedules._built

    def counted(roots, target):
        found.append(len(roots))
        return plain(roots, target)

    monkeypatch.setattr(schedules, "_built", counted)
    monkeypatch.setattr(known, "_known", {})
    return found


def of(*tensors: Tensor, target: Target | None = None) -> Schedule:
    return schedule([UOp(Ops.CONTIGUOUS, t.dtype, (t.uop,)) for t in tensors], target or cpu_target())


def test_values_in_memory_of_their_own(worked_out: list[int]) -> None:
    kept = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        x, w = rng.standard_normal((5, 16), np.float32), rng.standard_normal((16, 16), np.float32)
        kept.append(((Tensor(x) @ Tensor(w)).softmax(-1).realize(), x @ w))
    for got, scores in kept:
        e = np.exp(scores - scores.max(-1, keepdims=True))
        np.testing.assert_allclose(got.numpy(), e / e.sum(-1, keepdims=True), atol=1e-5)
    assert len(worked_out) == 1


def test_buffers_are_new_and_pools_are_the_same() -> None:
    x = [Tensor(np.ones((64, 64), np.float32) * i).realize() for i in range(2)]
    first, second = (of((t @ t).softmax(-1) @ t, t.sum(0)) for t in x)
    assert [c.kernel for c in first.calls] == [c.kernel for c in second.calls]
    assert first.memory.pool_bytes == second.memory.pool_bytes
    assert [*first.memory.pool_of.values()] == [*second.memory.pool_of.values()]
    a, b = ({buffer for c in s.calls for buffer in c.buffers} for s in (first, second))
    assert not a & b and {x[0].uop.buffer} <= a and {x[1].uop.buffer} <= b
    assert not set(first.results) & set(second.results) and set(second.results) <= b


def test_variables_and_updates(worked_out: list[int]) -> None:
    """At another place of a cache, with another value of the variable: what is read is as long as it says."""
    cache, held = Tensor.zeros(8, 4).contiguous().realize(), np.zeros((8, 4), np.float32)
    for at in (2, 5, 3):
        start = START.bind(at)
        cache[start : start + 1] = Tensor(np.full((1, 4), at + 1, np.float32))
        held[at] = at + 1
        np.testing.assert_array_equal(cache[0 : start + 1].sum(0).numpy(), held[: at + 1].sum(0))
        np.testing.assert_array_equal(cache.numpy(), held)
    count = len(worked_out)
    start = START.bind(6)
    cache[start : start + 1] = Tensor(np.full((1, 4), 9, np.float32))
    held[6] = 9
    np.testing.assert_array_equal(cache[0 : start + 1].sum(0).numpy(), held[:7].sum(0))
    assert len(worked_out) == count


def test_what_makes_another_form(worked_out: list[int]) -> None:
    """Shapes, types, constants, one memory for two, the order of updates, another target."""
    a, b = (Tensor(np.arange(6, dtype=np.float32)).realize() for _ in range(2))
    of(a + b)
    of(b + a)
    assert len(worked_out) == 1
    whole = Tensor(np.arange(6, dtype=np.int32)).realize()
    for others in (a + a, a + 1, a + 2, a + 1.5, whole + whole, a.reshape(2, 3) + b.reshape(2, 3), (a + b).sum()):
        count = len(worked_out)
        of(others)
        assert len(worked_out) == count + 1, others
    # how much of a row workgroups hold decides what gets memory
    for target in (webgpu_target(), webgpu_target(shared_bytes=1 << 15), webgpu_target(thread_registers=64)):
        count = len(worked_out)
        of(a + b, target=target)
        assert len(worked_out) == count + 1


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_updates_of_the_same_memory_stay_in_order(order: tuple[int, int]) -> None:
    t = Tensor(np.zeros(4, np.float32)).realize()
    for i in order:
        t[i : i + 2] = Tensor([float(i + 1)] * 2)
    want = [1.0, 2.0, 2.0, 0.0] if order == (0, 1) else [1.0, 1.0, 2.0, 0.0]
    assert t.tolist() == want


def test_no_more_is_kept_than_allowed(monkeypatch: pytest.MonkeyPatch, worked_out: list[int]) -> None:
    monkeypatch.setattr(known, "MOST", 4)
    x = Tensor(np.ones(16, np.float32)).realize()
    for n in range(9):
        of(x + n)
    assert len(known._known) == 4
    of(x + 8)
    assert len(worked_out) == 9
    of(x + 0)  # it was used longest ago
    assert len(worked_out) == 10
    monkeypatch.setattr(known, "MOST_NODES", 1)
    of(x + 20)
    assert not known._known


def test_no_memory_is_kept_alive() -> None:
    x = Tensor(np.ones(16, np.float32)).realize()
    y = (x * 2).realize()
    gone = [ref(x.uop.buffer), ref(y.uop.buffer)]
    del x, y
    gc.collect()
    assert [r() for r in gone] == [None, None]

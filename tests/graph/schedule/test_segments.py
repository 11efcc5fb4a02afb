"""Steps that are repeated from memory to memory are scheduled once, and compute what they did."""

from __future__ import annotations

import importlib
from collections.abc import Callable

import numpy as np
import pytest

from tinyweb import Tensor
from tinyweb.graph.ir import Ops, UOp
from tinyweb.graph.schedule import Schedule, schedule
from tinyweb.graph.schedule.segments import segments
from tinyweb.graph.target import cpu_target

schedules = importlib.import_module("tinyweb.graph.schedule.schedule")
known = importlib.import_module("tinyweb.graph.schedule.known")
parts = importlib.import_module("tinyweb.graph.schedule.segments")

Step = Callable[[Tensor], Tensor]


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "_known", {})


def normalised(x: Tensor) -> Tensor:
    return (x @ x.softmax(-1)).tanh()


def with_two_values(x: Tensor) -> Tensor:
    """The second is made of the first, and both of a sum that none of them is."""
    both = x.sum(-1, keepdim=True)
    first = (x * both).contiguous()
    return (first.flip(0) + both).sin()


def with_a_constant(x: Tensor) -> Tensor:
    """Its indices are worth being put into memory."""
    place = Tensor.arange(8).float().mul(0.3).sin().add(1).mul(3).cos().abs().mul(4).int()
    return x[place] * 0.5 + x.mean()


def around(x: Tensor) -> Tensor:
    """A segment on both sides of another: its second value needs that, and that its first."""
    shared = x.exp().sum(-1, keepdim=True)
    first = (x / shared).contiguous()
    other = (first @ first).contiguous()
    return (shared * other).contiguous()


STEPS = (normalised, with_two_values, with_a_constant, around)


def repeated(step: Step, times: int, start: Tensor) -> UOp:
    x = start
    for _ in range(times):
        x = step(x).contiguous()
    return x.uop


def start() -> Tensor:
    return Tensor(np.random.default_rng(3).standard_normal((8, 8), np.float32)).realize()


def worked_out(monkeypatch: pytest.MonkeyPatch, root: UOp) -> tuple[Schedule, int]:
    """The schedule, and how many segments, or wholes, were worked out for it."""
    found: list[int] = []
    plain = schedules._built_whole

    def counted(*given):
        found.append(1)
        return plain(*given)

    with monkeypatch.context() as patched:
        patched.setattr(schedules, "_built_whole", counted)
        return schedule([root], cpu_target()), len(found)


@pytest.mark.parametrize("step", STEPS)
def test_more_steps_are_no_more_work(monkeypatch: pytest.MonkeyPatch, step: Step) -> None:
    x = start()
    few, work = worked_out(monkeypatch, repeated(step, 20, x))
    many, more = worked_out(monkeypatch, repeated(step, 40, x))
    assert work == more < 20
    assert len({c.kernel for c in few.calls}) == len({c.kernel for c in many.calls})
    assert len(many.calls) < 2 * len(few.calls) + 1


@pytest.mark.parametrize("step", STEPS)
def test_kernels_are_those_of_the_whole(monkeypatch: pytest.MonkeyPatch, step: Step) -> None:
    root = repeated(step, 12, start())
    apart, _ = worked_out(monkeypatch, root)
    monkeypatch.setattr(parts, "REPEATED", 1 << 20)
    known._known.clear()
    whole, work = worked_out(monkeypatch, root)
    assert work == 1
    assert [c.kernel for c in apart.calls] == [c.kernel for c in whole.calls]
    assert apart.memory.pool_bytes == whole.memory.pool_bytes

    def numbers(of: Schedule) -> list[list[int]]:
        place: dict[UOp, int] = {}
        return [[place.setdefault(b, len(place)) for b in c.buffers] for c in of.calls]

    assert numbers(apart) == numbers(whole)


@pytest.mark.parametrize("step", STEPS)
def test_values(step: Step) -> None:
    x = start()
    expected = x
    for _ in range(9):
        expected = step(expected).realize()
    got = x._new(repeated(step, 9, x))
    np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-5)


def test_segments_come_after_what_they_read() -> None:
    known_values: set[UOp] = set()
    for segment in segments([repeated(around, 6, start())]):
        own = set(segment.values)
        assert all(u.op is Ops.BUFFER or u in known_values for u in segment.reads if u not in own)
        known_values |= own


def test_updates_in_place_keep_a_graph_whole() -> None:
    x = start()
    update = UOp(Ops.ASSIGN, x.dtype, (x.uop, UOp(Ops.CONTIGUOUS, x.dtype, (x.uop,))), 1)
    assert segments([update]) == []

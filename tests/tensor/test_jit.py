"""jit: state that lives across replays, structures of arguments and results, and what cannot be traced."""

from __future__ import annotations

import itertools
import subprocess
import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

from tinyweb import Tensor, Variable, jit
from tinyweb.array.storage import readers_beside_memory
from tinyweb.device import on_replay
from tinyweb.graph.schedule.views import view_base
from tinyweb.memory import BUFFERS
from tinyweb.tracing import capture


@dataclass
class Batch:
    x: Tensor
    parts: list[Tensor]
    scale: float


class Pair(NamedTuple):
    first: Tensor
    second: Tensor


def test_structures_in_and_out() -> None:
    @jit
    def step(batch: Batch, pair: Pair, *, table: dict[str, Any]) -> Any:
        total = batch.x * batch.scale + batch.parts[0]
        return Batch(total, [pair.second], 2.0), Pair(pair.first + 1, total[1:]), {"n": 3, "t": (table["w"] * 2,)}

    for i in range(3):
        x = Tensor([1.0 * i, 2.0])
        batch, pair, named = step(
            Batch(x, [Tensor([10.0, 20.0])], 3.0), Pair(x, Tensor([5.0])), table={"w": Tensor([float(i)])}
        )
        assert isinstance(batch, Batch) and isinstance(pair, Pair)
        assert batch.x.tolist() == [3.0 * i + 10, 26] and batch.parts[0].tolist() == [5] and batch.scale == 2
        assert pair.first.tolist() == [i + 1, 3] and pair.second.tolist() == [26]
        assert named["n"] == 3 and named["t"][0].tolist() == [2 * i]
    assert len(step.traces) == 1


def test_state_and_arguments_are_updated_on_every_call() -> None:
    count, weight = Tensor.zeros(1), Tensor([1.0, 2.0])

    @jit
    def step(x: Tensor) -> tuple[Tensor, Tensor]:
        count.assign(count + 1)
        weight[0] = weight[1] + x[0]
        x *= 2
        return count, (weight * 1)

    given, kept = Tensor([3.0]), []
    for i in range(1, 4):
        pending, view = weight * 10, weight[0:1]
        before = weight.tolist()
        counted, copy = step(given)
        kept.append(copy)
        assert counted.tolist() == count.tolist() == [i]
        assert pending.tolist() == [10 * b for b in before]  # what was computed from the state before
        assert view.tolist() == weight.tolist()[:1]
        assert given.tolist() == [3.0 * 2**i]
    assert [k.tolist()[0] for k in kept] == [5, 8, 14]  # results do not share memory
    weight.assign(weight + 100)  # an update between calls, pending
    step(given)
    assert weight.tolist() == [102 + 24, 102]


@pytest.mark.parametrize(
    "made",
    [lambda w: w.pad([(1, 1)]), lambda w: w.diag_embed(), lambda w: w[::2], lambda w: w.unfold(0, 2, 2)],
    ids=["padded", "diagonal", "every_second", "windows"],
)
def test_what_is_made_of_a_weight_and_used_twice_follows_it(made: Any) -> None:
    weight = Tensor([1.0, 2.0, 3.0]).realize()

    @jit
    def twice() -> tuple[Tensor, Tensor]:
        v = made(weight)
        a, b = v.flatten().contiguous(), (v * 2).contiguous()
        a.realize(b)
        return a, b

    for _ in range(3):
        a, b = twice()
        want = made(Tensor(weight.numpy())).numpy()
        np.testing.assert_array_equal(a.numpy(), want.flatten())
        np.testing.assert_array_equal(b.numpy(), want * 2)
        weight.assign(weight + 10).realize()


def test_views_are_arguments_like_any_other() -> None:
    row = jit(lambda a: a.sum(0) + 1)
    base = Tensor(np.arange(12, dtype=np.float32).reshape(3, 4))
    assert [row(base[i]).item() for i in (0, 0, 1)] == [7, 7, 23]
    assert row(base.T[1]).item() == 1 + 5 + 9 + 1


def test_what_a_traced_function_fills_begins_anew() -> None:
    at = Variable("at", 0, 3)

    @jit
    def scratch(x: Tensor, where: Any) -> tuple[Tensor, Tensor]:
        empty, filled = Tensor.empty(4), Tensor([1.0, 2.0])
        empty[where : where + 1] = x
        filled[0:1] = filled[0:1] + x
        return empty, filled

    for i in range(3):
        empty, filled = scratch(Tensor([float(i + 1)]), at.bind(i))
        assert empty.tolist() == [i + 1 if j == i else 0 for j in range(4)]
        assert filled.tolist() == [i + 2, 2]


def test_replays_refresh_what_differs_from_call_to_call() -> None:
    numbers = itertools.count()

    @jit
    def draw() -> Tensor:
        t = Tensor(np.array([next(numbers)], np.int32))
        on_replay(t.uop.buffer, lambda: np.array([next(numbers)], np.int32).tobytes())
        return t * 1

    assert [draw().item() for _ in range(4)] == [0, 1, 2, 3]


def test_temporaries_of_replays_are_memory_of_their_own() -> None:
    x, a, b = Tensor.rand(4, 16).realize(), Tensor.rand(16, 16).realize(), Tensor.rand(16, 4).realize()
    step = jit(lambda: ((x @ a).softmax(-1) @ b).sum(0))
    expected = step().numpy()
    others = [Tensor.full((4, 16), 7.0).contiguous().realize() for _ in range(8)]
    np.testing.assert_array_equal(step().numpy(), expected)
    assert all((t.numpy() == 7).all() for t in others)


def test_updates_between_replays_are_seen() -> None:
    weight = Tensor([1.0, 2.0])
    step = jit(lambda x: x + weight)
    one = Tensor([1.0, 1.0])
    assert step(one).tolist() == [2, 3]
    weight.assign(weight * 10)  # pending until it is asked for
    assert step(one).tolist() == [11, 21]
    weight[0:1] = 5.0
    kept = weight + 0
    assert step(one).tolist() == [6, 21] and kept.tolist() == [5, 20]


def test_a_jit_within_a_jit_is_part_of_it() -> None:
    inner = jit(lambda x: x + 1)
    outer = jit(lambda x: inner(x) * 2)
    assert [outer(Tensor([float(i)])).item() for i in range(3)] == [2, 4, 6]
    assert not inner.traces


class Model:
    def __init__(self) -> None:
        self.weight = Tensor([3.0])

    @jit
    def __call__(self, x: Tensor) -> Tensor:
        self.hidden = x * self.weight
        return self.hidden


def test_methods_and_what_they_leave_behind() -> None:
    model = Model()
    assert [model(Tensor([float(i)])).item() for i in range(3)] == [0, 3, 6]
    with pytest.raises(RuntimeError, match="inside of a jit function"):
        model.hidden.item()


@pytest.mark.parametrize(
    ("function", "argument", "error", "says"),
    [
        (lambda x: x.sum().item(), None, RuntimeError, "item: a value cannot be read"),
        (lambda x: x.numpy(), None, RuntimeError, "numpy: a value cannot be read"),
        (lambda x: capture(lambda: x + 1), None, RuntimeError, "capture: another capture"),
        (lambda x: x, np.zeros(3), TypeError, "ndarray can be neither traced nor compared"),
    ],
)
def test_what_cannot_be_traced(function: Any, argument: Any, error: type[Exception], says: str) -> None:
    state = Tensor([1.0])

    def traced(x: Any) -> Any:
        state.assign(state + 1)
        return function(x)

    with pytest.raises(error, match=says):
        jit(traced)(Tensor([1.0, 2.0]) if argument is None else argument)
    assert state.tolist() == [1]


def test_memory_that_is_both_argument_and_state() -> None:
    cache = Tensor([1.0, 2.0])

    @jit
    def reads(x: Tensor) -> Tensor:
        cache.assign(cache + 1)
        return x * 1

    @jit
    def writes(x: Tensor) -> Tensor:
        x.assign(x + cache)
        return x

    assert reads(Tensor([5.0, 5.0])).tolist() == [5, 5]
    assert reads(cache).tolist() == [2, 3] and cache.tolist() == [3, 4]  # the argument's value at the call
    with pytest.raises(ValueError, match="an argument that is updated in place is memory the function also uses"):
        writes(cache)
    assert cache.tolist() == [3, 4]


def test_replays_look_at_no_constants() -> None:
    constant, pending = Tensor(2.0), Tensor([1.0, 2.0]).realize() * 3
    looked_at = {id(t) for t in readers_beside_memory()}
    assert id(constant) not in looked_at and id(pending) in looked_at


def test_small_results_take_the_memory_of_those_that_nobody_holds() -> None:
    """New tensors in every call; what holds a result, be it a view, a pending value or a function that was traced with
    it, keeps its memory from being written again."""
    f = jit(lambda x: (x.cumsum(0), x * 2))

    def at(x: float) -> tuple[Tensor, Tensor]:
        return f(Tensor(np.full(3, x, np.float32)))

    seen = {id(BUFFERS.get(view_base(at(k)[1].uop))) for k in range(12)}
    assert len(seen) <= 3  # of 12 results
    view, pending = at(1)[1][1:], at(2)[1] + 1
    weights = [at(3)[1]]
    g = jit(lambda x: x + weights[0])
    g(Tensor([1.0, 1, 1]))
    weights.clear()
    updated, held = at(4)[1], []
    updated[0] = 9
    for k in range(10, 20):
        running, doubled = at(k)
        assert running.tolist() == [k, 2 * k, 3 * k] and doubled.tolist() == [2 * k] * 3
        held.append(doubled)
    assert [h.tolist()[0] for h in held] == [2 * k for k in range(10, 20)]
    assert view.tolist() == [2, 2] and pending.tolist() == [5] * 3 and updated.tolist() == [9, 8, 8]
    assert g(Tensor([1.0, 1, 1])).tolist() == [7] * 3


CALLS = """
import sys
import numpy as np
from tinyweb import Tensor, jit

x, calls = Tensor(np.ones((2, 3), np.float32)), []
f = jit(lambda x: x.softmax(-1))
for _ in range(4):
    f(x)
sys.setprofile(lambda frame, event, argument: calls.append(frame.f_code.co_name) if event == "call" else None)
f(x)
sys.setprofile(None)
print(*calls)
"""


def test_replays_of_small_functions_call_little_python() -> None:
    # in a process of its own: a replay looks at pending tensors, of which other tests may have left some
    done = subprocess.run([sys.executable, "-c", CALLS], capture_output=True, text=True, timeout=300, check=True)
    calls = done.stdout.split()
    assert "call" in calls and len(calls) <= 16, calls  # 64 where everything was decided in each call

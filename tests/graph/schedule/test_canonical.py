"""Equal parts of a graph become one kernel before any kernel is built, and scheduling takes time in proportion."""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from types import FrameType
from typing import Any

import numpy as np
import pytest

from tinyweb import Tensor, Variable
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import BufferArg, Ops, Space, UOp
from tinyweb.graph.schedule import canonical, schedule
from tinyweb.tracing import capture

schedule_module = importlib.import_module("tinyweb.graph.schedule.schedule")
known_module = importlib.import_module("tinyweb.graph.schedule.known")
F32 = dtypes.float32
START = Variable("start", 0, 63)


def buffer(number: int, *shape: int) -> UOp:
    size = int(np.prod(shape))
    return UOp(Ops.RESHAPE, F32, (UOp(Ops.BUFFER, F32, (), BufferArg(Space.DEVICE, 10000 + number, size)),), shape)


def canonical_form(node: UOp, *memories: UOp) -> canonical.Canonical:
    target = UOp(Ops.BUFFER, F32, (), BufferArg(Space.DEVICE, 20000, 6))
    return canonical.canonical_form(node, [target], lambda u: (u, u) if u.op is Ops.BUFFER else None)


def test_forms_forget_which_memory_is_read() -> None:
    a, b, c = (buffer(n, 2, 3) for n in range(3))
    first, second = canonical_form(a * b + a), canonical_form(c * a + c)
    assert first.root is second.root
    assert [m.arg.id for m in first.memories] == [20000, 10000, 10001]
    assert [m.arg.id for m in second.memories] == [20000, 10002, 10000]
    assert first.leaves == first.memories[1:]


def test_forms_tell_apart_what_makes_other_kernels() -> None:
    a, b, c = (buffer(n, 2, 3) for n in range(3))
    whole = UOp(Ops.RESHAPE, F32, (a.src[0],), (6,))
    different = [a * b + a, a * b + b, a * b + c, a * b + 1.0, a * b + 2.0, a + b, whole + 1.0, a + 1.0]
    assert len({canonical_form(u).root for u in different}) == len(different)


def network(layers: int) -> list[Tensor]:
    """Layers as a model has them: products, norms, a cache that is updated in place at a symbolic position."""
    x = Tensor.empty(1, 16)
    caches = [Tensor.empty(64, 16) for _ in range(layers)]
    start = START.bind(3)
    for cache in caches:
        h = (x * x).mean(-1, keepdim=True).sqrt() * Tensor.empty(16)
        cache[start : start + 1] = (h @ Tensor.empty(16, 16)).contiguous()
        scores = (x @ cache[: start + 1].transpose(0, 1)).softmax(-1)
        x = x + (scores @ cache[: start + 1]) @ Tensor.empty(16, 16)
    return [x]


def test_equal_layers_are_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[UOp] = []
    plain = schedule_module._recipe

    def counted(node: UOp, target: UOp) -> Any:
        built.append(node)
        return plain(node, target)

    monkeypatch.setattr(schedule_module, "_recipe", counted)
    monkeypatch.setattr(known_module, "_known", {})
    plans, counts = [], []
    for layers in (3, 9):
        built.clear()
        plans.append(capture(partial(network, layers)))
        counts.append(len(built))
    few, many = plans
    assert counts[0] == counts[1] <= 2 * len(few.kernels)
    assert len(many.kernels) == len(few.kernels)
    assert (len(many.calls) - len(few.calls)) % 6 == 0, "every layer launches the same"


def test_each_launch_has_its_own_memory() -> None:
    tensors = [Tensor(np.full((4,), float(n), np.float32)) for n in range(5)]
    outs = [a * b + a for a, b in pairwise(tensors)]
    outs[0].realize(*outs[1:])
    for n, o in enumerate(outs):
        np.testing.assert_array_equal(o.numpy(), np.full(4, n * (n + 1) + n, np.float32))


def training(layers: int) -> list[Tensor]:
    """Gradients of a deep network: what every layer computes is used again at the other end."""
    weights = [Tensor.empty(8, 8) for _ in range(layers)]
    x = Tensor.empty(4, 8)
    for w in weights:
        x = x + (x - x.mean(-1, keepdim=True)).softmax(-1) @ w
    return list((x * x).sum().gradient(*weights))


def calls_made(make: Callable[[int], list[Tensor]], layers: int) -> int:
    """Python functions entered while a network is scheduled: time, without a clock."""
    roots = [UOp(Ops.CONTIGUOUS, t.dtype, (t.uop,)) for t in make(layers)]
    count = 0

    def count_call(frame: FrameType, event: str, arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    gc.collect()  # or what other tests left is taken apart in between, and counted
    gc.disable()
    known_module._known.clear()
    sys.setprofile(count_call)
    try:
        schedule(roots)
    finally:
        sys.setprofile(before)
        gc.enable()
    return count


@pytest.mark.parametrize("make", [network, training])
def test_effort_grows_linearly_with_layers(make: Callable[[int], list[Tensor]]) -> None:
    calls_made(make, 2)
    few, some, many = (calls_made(make, n) for n in (4, 8, 16))
    assert many - some < 2.2 * (some - few)

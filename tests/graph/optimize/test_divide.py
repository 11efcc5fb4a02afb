"""Axes that constants divide: joins, pads, rotations and repeats are loops over their parts, which choose nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from benchmarks.count.program import operations
from tests.graph.lower.hand_kernels import BY_NAME, axes, check, kernel, param, total
from tests.samples import in_turn, slow_unless
from tinyweb import Tensor
from tinyweb.dtype import dtypes
from tinyweb.graph.gpu_targets import nvidia_target
from tinyweb.graph.ir import AxisKind, Ops, UOp, substitute
from tinyweb.graph.lower import program_for
from tinyweb.graph.optimize import Bind, ScheduleError, Split, apply, optimize
from tinyweb.graph.optimize.divide import Divide
from tinyweb.graph.symbolic import borders, simplify
from tinyweb.graph.target import Target, cpu_target, wasm_target, webgpu_target
from tinyweb.tracing import capture

Array = npt.NDArray[Any]
DEVICES = ("CPU", "WASM", "WEBGPU", "INTERPRETER")
PROCESSORS = (cpu_target(16, 2), cpu_target(8, 1), wasm_target(4))
MANY = ((31, "cpu", 8), (31, "webgpu", 4), (40, "cpu", 16), (40, "wasm", 4), (40, "sm_90", 4), (70, "sm_90", 4))


def arrays(*shapes: Sequence[int], dtype: str = "float32") -> list[Array]:
    random = np.random.default_rng(11)
    return [np.asarray(random.integers(-99, 99, s), dtype) for s in shapes]


# name, inputs, ours, NumPy's
JOINS: list[tuple[str, list[Array], Callable[..., Tensor], Callable[..., Array]]] = [
    *((f"cat-{n}", arrays(*((5, 17 + i) for i in range(n))), lambda *x: Tensor.cat(*x, axis=1),
       lambda *x: np.concatenate(x, 1)) for n in (2, 3, 7, 8, 15, 20)),
    ("cat-rows", arrays((40, 33), (1, 33), (37, 33)), lambda *x: Tensor.cat(*x), lambda *x: np.concatenate(x)),
    ("cat-vectors", arrays((70_001,), (3,), (40_003,)), lambda *x: Tensor.cat(*x), lambda *x: np.concatenate(x)),
    ("cat-bytes", arrays((9, 131), (9, 70), dtype="int8"), lambda *x: Tensor.cat(*x, axis=1),
     lambda *x: np.concatenate(x, 1)),
    ("cat-halves", arrays((9, 131), (9, 70), dtype="float16"), lambda *x: Tensor.cat(*x, axis=1),
     lambda *x: np.concatenate(x, 1)),
    ("cat-relu", arrays((6, 50), (6, 61)), lambda *x: Tensor.cat(*x, axis=1).relu(),
     lambda *x: np.maximum(np.concatenate(x, 1), 0)),
    ("cat-many-relu", arrays(*[(6, 50)] * 9), lambda *x: Tensor.cat(*x, axis=1).relu(),
     lambda *x: np.maximum(np.concatenate(x, 1), 0)),
    ("pad", arrays((3, 20, 45)), lambda x: x.pad([2, 3, 1, 4], value=7.0),
     lambda x: np.pad(x, ((0, 0), (1, 4), (2, 3)), constant_values=7)),
    *((mode, arrays((1, 3, 20, 45)), lambda x, m=mode: x.pad([2, 3, 1, 4], mode=m),
       lambda x, m=numpy: np.pad(x, ((0, 0), (0, 0), (1, 4), (2, 3)), mode=m))
      for mode, numpy in (("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap"))),
    *((f"roll-{a}", arrays((9, 33, 41)), lambda x, a=a: x.roll(4, a), lambda x, a=a: np.roll(x, 4, a))
      for a in (0, 1, 2)),
    ("roll-flat", arrays((33, 41)), lambda x: x.roll(-5), lambda x: np.roll(x, -5)),
    ("repeat", arrays((5, 37)), lambda x: x.repeat(1, 3), lambda x: np.tile(x, (1, 3))),
    ("mirrored", arrays((5, 37)), lambda x: x.cat(x.flip(1), axis=1), lambda x: np.concatenate((x, x[:, ::-1]), 1)),
]  # fmt: skip
REDUCED: list[tuple[str, list[Array], Callable[..., Tensor], Callable[..., Array]]] = [
    ("sum-1", arrays(*[(30, 67)] * 3), lambda *x: Tensor.cat(*x, axis=1).sum(1),
     lambda *x: np.concatenate(x, 1).sum(1)),
    ("sum-0", arrays(*[(67, 30)] * 3), lambda *x: Tensor.cat(*x).sum(0), lambda *x: np.concatenate(x).sum(0)),
    ("max", arrays((8, 70), (8, 40)), lambda *x: Tensor.cat(*x, axis=1).max(), lambda *x: np.concatenate(x, 1).max()),
    ("less-max", arrays((8, 70), (8, 40)), lambda *x: (c := Tensor.cat(*x, axis=1)) - c.max(1, keepdim=True),
     lambda *x: (c := np.concatenate(x, 1)) - c.max(1, keepdims=True)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("case", "device"), in_turn([*JOINS, *REDUCED], DEVICES), ids=lambda v: v if isinstance(v, str) else v[0]
)
def test_values(case: tuple[str, list[Array], Callable[..., Tensor], Callable[..., Array]], device: str) -> None:
    _, inputs, ours, theirs = case
    tensors = [Tensor(a, device=device).realize() for a in inputs]
    np.testing.assert_array_equal(ours(*tensors).numpy(), theirs(*inputs))


def kernels(make: Callable[..., Tensor], inputs: Sequence[Array]) -> list[UOp]:
    tensors = [Tensor(a).realize() for a in inputs]
    return [c.kernel for c in capture(lambda: make(*tensors).contiguous().realize()).calls]


@pytest.mark.parametrize("target", PROCESSORS, ids=lambda t: f"{t.name}{t.vector_lanes}")
@pytest.mark.parametrize(("name", "inputs", "ours", "theirs"), JOINS, ids=lambda v: str(v)[:20])
def test_no_vector_chooses(
    name: str, inputs: list[Array], ours: Callable[..., Tensor], theirs: Callable[..., Array], target: Target
) -> None:
    """What is loaded in lanes is loaded behind no gate that varies with them, and nothing is divided."""
    for k in kernels(ours, inputs):
        for u in optimize(k, target).toposort():
            lanes = {r for r in u.ranges if r.arg.kind is AxisKind.VECTOR}
            assert not (u.op in (Ops.MOD, Ops.FLOORDIV) and lanes), (name, u)
            assert not (u.op is Ops.LOAD and len(u.src) > 2 and lanes & u.src[2].ranges), (name, u)


@pytest.mark.parametrize(("name", "inputs", "ours", "theirs"), REDUCED, ids=lambda v: str(v)[:20])
def test_sums_of_joins_choose_nothing(
    name: str, inputs: list[Array], ours: Callable[..., Tensor], theirs: Callable[..., Array]
) -> None:
    for k in kernels(ours, inputs):
        scheduled = optimize(k, cpu_target(8, 2))
        assert not any(u.op is Ops.LOAD and len(u.src) > 2 for u in scheduled.toposort()), name


@pytest.mark.parametrize(("target", "inputs"), [(webgpu_target(), 7), (cpu_target(8, 2), 23), (wasm_target(2), 23)])
@pytest.mark.parametrize("count", [2, 7, 8, 14, 15, 21, 23, 24, 40])
def test_each_part_of_a_join_is_copied_once(count: int, target: Target, inputs: int) -> None:
    """By as few kernels as bind all parts."""
    parts = [Tensor.empty(4, 5 + i).realize() for i in range(count)]
    plan = capture(lambda: Tensor.cat(parts, axis=1).realize(), target)
    assert len(plan.calls) == -(-count // inputs)
    for call in plan.calls:
        assert len(call.kernel.src) == 1 and sum(u.op is Ops.PARAM for u in call.kernel.toposort()) <= inputs + 1


@pytest.mark.parametrize(
    ("count", "target"),
    slow_unless(
        lambda count, target: (count, target.name, target.vector_lanes) in MANY,
        (31, 40, 70),
        (webgpu_target(), nvidia_target(), *PROCESSORS),
    ),
    ids=lambda v: f"{v.name}{v.vector_lanes}" if isinstance(v, Target) else str(v),
)
def test_many_parts_of_one_memory_are_told_apart_by_loops(count: int, target: Target) -> None:
    """By as few kernels as have a loop for each part; where little is stored by one that chooses."""
    (x,) = arrays((256, count * 64))

    def turned(x: Tensor) -> Tensor:
        return Tensor.cat(*(x[:, i * 64 : (i + 1) * 64] * float(i + 1) for i in reversed(range(count))), axis=1)

    whole = Tensor(x).realize()
    plan = capture(lambda: turned(whole).realize(), target)
    assert len(plan.calls) == -(-count // 32)
    done = sum(operations(program_for(call.kernel, target)) for call in plan.calls)
    assert done <= 1.02 * x.size
    assert len(capture(lambda: turned(whole[:1]).realize(), target).calls) == 1
    theirs = [x[:, i * 64 : (i + 1) * 64] * (i + 1) for i in reversed(range(count))]
    np.testing.assert_array_equal(turned(whole).numpy(), np.concatenate(theirs, 1))


def test_joins_of_many_parts_are_computed_first_where_they_are_not_stored() -> None:
    parts = [Tensor(a).realize() for a in arrays(*[(4, 6)] * 9)]
    whole = np.concatenate([p.numpy() for p in parts])
    for ours, theirs in (
        (lambda c: c.sum(0), lambda c: c.sum(0)),
        (lambda c: c.reshape(6, 36), lambda c: c.reshape(6, 36)),
        (lambda c: c * parts[0].repeat(9, 1), lambda c: c * np.tile(parts[0].numpy(), (9, 1))),
        (lambda c: c.softmax(1).sum(), lambda c: np.float32(36)),
        (lambda c: Tensor.cat(c, *parts, axis=0), lambda c: np.concatenate([c, c])),
    ):
        np.testing.assert_allclose(ours(Tensor.cat(parts)).numpy(), theirs(whole), rtol=1e-6)


# -- borders -----------------------------------------------------------------------------------------------------------
def test_borders() -> None:
    (r,), (s,) = axes(40), axes(9, first=1)
    for u, at in (
        (r < 7, (7,)),
        ((r * 3 - 20) < 0, (7,)),
        ((-r + 30) < 0, (31,)),
        (r.cast(dtypes.int32) < 5, (5,)),
        ((r + 35) % 40, (5,)),
        ((r * 2) // 30, (15, 30)),
        ((-r + 39) // 16, (8, 24)),
        (r.maximum(-r + 10), (5,)),
        # the mirror's inner maximum first, then the outer one in what is left
        (-(-(r - 4).maximum(-r + 4)).maximum((r - 4).maximum(-r + 4) - 60), (4, 35)),
        (r < s, ()),
        ((r < 90) & (r >= 0), ()),
        (r % 6, tuple(range(6, 40, 6))),
    ):
        assert borders(simplify(u).toposort(), r) == at, u
    assert borders((r % 2).toposort(), r) == ()
    assert borders((r // 16).toposort(), r, together=16) == borders(((r + 32) % 48).toposort(), r, together=8) == ()
    assert borders((r // 16).toposort(), r, together=32) == (16, 32)
    assert borders(((r + 8) // 16).toposort(), r, together=16) == (8, 24)
    parts = (r % 10).toposort()
    assert len(borders([*parts, *(r < 7).toposort()], r, 3)) >= 3


def test_between_borders_an_expression_is_one_sum() -> None:
    (r,) = axes(61)
    folded = (r - 6).maximum(-r + 6)
    folded = -(-folded).maximum(folded - 96)
    ends = (0, *borders(folded.toposort(), r), 61)
    for start, end in pairwise(ends):
        values = [simplify(substitute(folded, {r: UOp.const(i, r.dtype)})).arg for i in range(start, end)]
        assert len({b - a for a, b in pairwise(values)}) <= 1


# -- the action --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("at", [(4, 14), (1,), (3, 4, 5), (15,)])
@pytest.mark.parametrize("blocks", [1, 2, 5, 30])
def test_outputs(at: tuple[int, ...], blocks: int) -> None:
    case = BY_NAME["padded"]
    divide = Divide("i1", at, blocks)
    check(case, apply(case.kernel, [divide]), cpu_target(8, 2))
    check(
        case,
        apply(case.kernel, [divide, Bind("i1.block", AxisKind.GRID)]) if blocks > 1 else apply(case.kernel, [divide]),
        cpu_target(8, 2),
    )
    rows = Divide("i0", (1, 5), blocks)
    check(
        case,
        apply(case.kernel, [rows, Split("i1.i0.1", 8, overlap=True), Bind("i1.i0.1.1", AxisKind.VECTOR)]),
        cpu_target(8, 2),
    )
    check(case, apply(case.kernel, [divide]), webgpu_target())


@pytest.mark.parametrize("name", ["matmul", "softmax_3_13", "argmax", "convolution"])
def test_what_is_reduced(name: str) -> None:
    case = BY_NAME[name]
    for r in (u for u in case.kernel.toposort() if u.op is Ops.RANGE and u.arg.reduce):
        size = r.vmax + 1
        for at in ((1,), (size // 2,), (1, size - 1)) if size > 2 else ():
            check(case, apply(case.kernel, [Divide(r.arg.name, at)]), cpu_target(8, 2))


def test_sums_outside_of_a_divided_axis_are_computed_once() -> None:
    case = BY_NAME["softmax_6_40"]
    divided = apply(case.kernel, [Divide("i1", (16, 24))])
    assert sum(u.op is Ops.REDUCE for u in divided.toposort()) == sum(
        u.op is Ops.REDUCE for u in case.kernel.toposort()
    )
    check(case, divided, cpu_target(8, 2))


def test_what_cannot_be_divided() -> None:
    k = BY_NAME["padded"].kernel
    for action, why in (
        (Divide("i1", (4, 4)), "in order"),
        (Divide("i1", (16,)), "in order"),
        (Divide("i1", (0,)), "in order"),
        (Divide("i1", (4,), 0), "not updated in place"),
    ):
        with pytest.raises(ScheduleError, match=why):
            apply(k, [action])
    with pytest.raises(ScheduleError, match="not updated in place"):
        apply(BY_NAME["in_place"].kernel, [Divide("i0", (2,))])
    with pytest.raises(ScheduleError, match="blocks are of outputs"):
        apply(BY_NAME["matmul"].kernel, [Divide("r0", (2,), 2)])
    (i,), (r, s) = axes(4), axes(10, 10, reduce=True, first=1)
    inner = total(param(1, 400).load((i * 10 + r) * 10 + s), s)
    nested = kernel(param(0, 4).store(i, total(inner * inner, r)))
    with pytest.raises(ScheduleError, match="a reduction inside depends on the axis"):
        apply(nested, [Divide("r0", (4,))])
    assert str(Divide("i1", (4, 14), 8)) == "divide(i1, at=[4, 14], blocks=8)"

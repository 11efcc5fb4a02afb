"""Scans and scatters against their definitions, on every runtime; what they take of memory and launches."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from benchmarks.count.program import operations
from tests.samples import slow_unless
from tests.tensor.graph_values import fetched, scanned, scattered
from tinyweb import Tensor, Variable
from tinyweb.graph.ir import AxisKind, Ops, UOp
from tinyweb.graph.lower import program_for
from tinyweb.graph.schedule import ordered, schedule
from tinyweb.graph.target import cpu_target, wasm_target, webgpu_target
from tinyweb.tensor import Tensor as Base
from tinyweb.tensor import realize_all
from tinyweb.tracing import capture

DEVICES = ["CPU", "WASM", "WEBGPU", "INTERPRETER"]
OPS = (Ops.ADD, Ops.MUL, Ops.MAX, Ops.MULADD)


def scan(op: Ops, axis: int, *arrays: np.ndarray, device: str = "CPU") -> Base:
    x, *more = (Tensor(a, device=device) for a in arrays)
    return x._new(UOp(Ops.SCAN, x.dtype, (x.uop, *(m.uop for m in more)), (op, axis)))


def scatter(op: Ops | None, shared: int, *arrays: np.ndarray, device: str = "CPU") -> Base:
    x, index, values = (Tensor(a, device=device) for a in arrays)
    return x._new(UOp(Ops.SCATTER, x.dtype, (x.uop, index.uop, values.uop), (shared, op)))


@pytest.mark.parametrize("device", DEVICES)
def test_scans(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if device == "INTERPRETER":  # where one step costs as much as a thousand elsewhere
        monkeypatch.setattr(ordered, "BLOCK", 16)
    rng, block = np.random.default_rng(1), ordered.BLOCK
    # one step, less than a block, whole blocks, blocks of blocks, as many rows as need no blocks
    shapes = [((1,), 0), ((7,), 0), ((3, 5), 0), ((2, 1, 3 * block - 68 % block), 2), ((4 * block, 3), 0)]
    shapes += [((2 * block * block + 300 % block,), 0), ((ordered.WIDE, 2 * block + 88 % block), 1), ((5, 0), 1)]
    shapes += [((3, 2 * block + 1, 2), 1)]
    found = []
    for (shape, axis), op in itertools.product(shapes, OPS):
        x = rng.uniform(0.9, 1.1, shape).astype(np.float32)
        arrays = [x, rng.uniform(-0.9, 0.9, shape).astype(np.float32)] if op is Ops.MULADD else [x]
        want = scanned(op, axis, [a.astype(np.float64) for a in arrays])
        found.append((scan(op, axis, *arrays, device=device), want, f"{shape} {op}", 2e-3 if op is Ops.MUL else 1e-4))
    realize_all([got for got, *_ in found])
    for got, want, case, rtol in found:
        np.testing.assert_allclose(got.numpy(), want, rtol=rtol, atol=1e-5, err_msg=case)
    whole = rng.integers(-1000, 1000, (3, 4 * block - 24 % block)).astype(np.int32)
    np.testing.assert_array_equal(scan(Ops.ADD, 1, whole, device=device).numpy(), whole.cumsum(1))
    np.testing.assert_array_equal(scan(Ops.MAX, 1, whole, device=device).numpy(), np.maximum.accumulate(whole, 1))


@pytest.mark.parametrize("device", DEVICES)
def test_scatters(device: str) -> None:
    rng = np.random.default_rng(2)
    Case = tuple[tuple[int, ...], int, int, tuple[int, ...]]
    cases: list[Case] = [
        ((), 10, 30, ()),
        ((), 1000, 300, ()),
        ((), 50, 200, (64,)),
        ((), 7, 40, (5,)),
        ((), 1, 9, (3,)),
    ]
    cases += [((2, 3), 9, 20, (4,)), ((4,), 33, 1, ()), ((), 5000, 4, (8,))]
    found = []
    for (lead, n, m, rest), op in itertools.product(cases, (Ops.ADD, Ops.MUL, Ops.MAX, None)):
        x = rng.uniform(0.5, 1.5, (*lead, n, *rest)).astype(np.float32)
        index = rng.integers(-2, n + 2, (*lead, m)).astype(np.int32)  # some are outside
        values = rng.uniform(0.5, 1.5, (*lead, m, *rest)).astype(np.float32)
        want = scattered(x.astype(np.float64), index, values, len(lead), op)
        got = scatter(op, len(lead), x, index, values, device=device)
        found.append((got, want, f"{lead} {n} {m} {rest} {op}"))
    realize_all([got for got, *_ in found])
    for got, want, case in found:
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-4, err_msg=case)


@pytest.mark.parametrize("device", DEVICES)
def test_sums_and_what_was_there_before(device: str) -> None:
    rng = np.random.default_rng(5)
    for lead, n, m in (((), 1, 1), ((), 16, 300), ((3,), 5, 40), ((2, 40), 7, 33)):
        x = rng.integers(-9, 9, (*lead, n)).astype(np.int32)
        index = rng.integers(-1, n + 1, (*lead, m)).astype(np.int32)  # some are outside
        values = rng.integers(-9, 9, (*lead, m)).astype(np.int32)
        a, b, c = (Tensor(t, device=device) for t in (x, index, values))
        got = a._new(UOp(Ops.FETCH_ADD, a.dtype, (a.uop, b.uop, c.uop), len(lead))).numpy()
        np.testing.assert_array_equal(got, fetched(x, index, values), err_msg=f"{lead} {n} {m}")


@pytest.mark.parametrize("device", DEVICES)
def test_scatters_to_different_places(device: str) -> None:
    rng = np.random.default_rng(6)
    for n, m, rest in ((40, 40, ()), (7, 40, ()), (40, 7, (3,)), (1, 1, ())):
        x, values = rng.normal(size=(2, n, *rest)), rng.normal(size=(2, m, *rest))
        index = np.stack([rng.permutation(max(n, m))[:m] for _ in range(2)]).astype(np.int32)
        arrays = [x.astype(np.float32), index, values.astype(np.float32)]
        a, b, c = (Tensor(t, device=device) for t in arrays)
        for op in (None, Ops.ADD):
            got = a._new(UOp(Ops.SCATTER, a.dtype, (a.uop, b.uop, c.uop), (1, op, True))).numpy()
            np.testing.assert_allclose(got, scattered(arrays[0], index, arrays[2], 1, op), rtol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_many_steps_to_few_places(device: str) -> None:
    """Parts of the steps go on side by side."""
    rng = np.random.default_rng(7)
    found = []
    for (lead, n, m, rest), op in itertools.product([((), 3, 2051, ()), ((2,), 2, 1500, (3,))], OPS[:3]):
        x = rng.uniform(0.99, 1.01, (*lead, n, *rest)).astype(np.float32)
        values = rng.uniform(0.99, 1.01, (*lead, m, *rest)).astype(np.float32)
        index = rng.integers(-1, n + 1, (*lead, m)).astype(np.int32)
        want = scattered(x.astype(np.float64), index, values, len(lead), op)
        found.append((scatter(op, len(lead), x, index, values, device=device), want, f"{n} {m} {op}"))
    realize_all([got for got, *_ in found])
    for got, want, case in found:
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-4, err_msg=case)


@pytest.mark.parametrize("steps", [4000, 4096, 4099])
def test_no_step_of_a_part_has_a_condition(steps: int) -> None:
    """Beyond whether its index names a place: what is left of the steps is done before."""
    arrays = [np.zeros(16, np.float32), np.zeros(steps, np.int32), np.ones(steps, np.float32)]
    x, index, values = (Tensor(a).realize() for a in arrays)
    node = UOp(Ops.SCATTER, x.dtype, (x.uop, index.uop, values.uop), (0, Ops.ADD))
    programs = [
        program_for(c.kernel, cpu_target(8, 1)) for c in schedule([UOp(Ops.CONTIGUOUS, x.dtype, (node,))]).calls
    ]
    most = max(programs, key=operations)
    assert operations(most) <= 3 * steps
    assert len(programs) <= 4


@pytest.mark.parametrize("op", [*OPS, Ops.SCATTER])
def test_gradients_are_slopes(op: Ops) -> None:
    """The gradient of a weighted sum against its differences, in float64."""
    rng = np.random.default_rng(3)
    x, a = rng.uniform(0.5, 1.5, (2, 9)), rng.uniform(-0.9, 0.9, (2, 9))
    index, weight = rng.integers(0, 9, (2, 9)).astype(np.int32), rng.normal(size=(2, 9))

    def total(t: Base, other: Base) -> Base:
        if op is Ops.SCATTER:
            out = t._new(UOp(Ops.SCATTER, t.dtype, (t.uop, Tensor(index).uop, other.uop), (1, Ops.MUL)))
        else:
            sources = (t.uop, other.uop) if op is Ops.MULADD else (t.uop,)
            out = t._new(UOp(Ops.SCAN, t.dtype, sources, (op, 1)))
        return out.mul(Tensor(weight)).sum()

    tensors = [Tensor(x), Tensor(a)]
    used = tensors if op in (Ops.MULADD, Ops.SCATTER) else tensors[:1]
    for slope, array in zip(total(*tensors).gradient(*used), (x, a), strict=False):
        for at in np.ndindex(*array.shape):
            near = [array.copy(), array.copy()]
            near[0][at] -= 1e-5
            near[1][at] += 1e-5
            low, high = (total(*(Tensor(n) if o is array else Tensor(o) for o in (x, a))).item() for n in near)
            assert abs((high - low) / 2e-5 - slope.numpy()[at]) < 1e-5, (at, op)


def test_a_product_with_zeros_has_the_gradient_of_its_definition() -> None:
    x = Tensor([2.0, 0.0, 3.0, 0.0, 5.0])
    (slope,) = x.cumprod(0).sum().gradient(x)
    np.testing.assert_allclose(slope.numpy(), [1.0, 2.0 * (1 + 3), 0.0, 0.0, 0.0])
    y, v = Tensor([0.0, 2.0]), Tensor([3.0, 0.0, 4.0])
    slopes = y.scatter_reduce(0, Tensor([0, 1, 0]), v, "prod").sum().gradient(y, v)
    np.testing.assert_allclose(slopes[0].numpy(), [12.0, 0.0])
    np.testing.assert_allclose(slopes[1].numpy(), [0.0, 2.0, 0.0])


def test_symbolic_sizes() -> None:
    n = Variable("n", 1, 40)
    x = np.arange(40, dtype=np.float32)
    for bound in (1, 2, 17, 40):
        part = Tensor(x).shrink([(0, n.bind(bound))])
        np.testing.assert_array_equal(part.cumsum(0).numpy(), x[:bound].cumsum())


def test_a_result_is_the_memory_it_was_computed_in_and_nobody_elses() -> None:
    x = Tensor(np.arange(6, dtype=np.float32)).realize()
    y = UOp(Ops.SCAN, x.dtype, (x.uop,), (Ops.ADD, 0))
    again = UOp(Ops.RESHAPE, y.dtype, (y,), (2, 3))
    s = schedule([UOp(Ops.CONTIGUOUS, y.dtype, (u,)) for u in (y, again)])
    assert len(s.calls) == 2 and len(set(s.results)) == 2  # the scan, and a copy for the second
    assert len(schedule([UOp(Ops.CONTIGUOUS, y.dtype, (y,))]).calls) == 1
    a, b = x.cumsum(0), x.cumsum(0)
    Tensor.realize(a, b)
    a.assign(Tensor([0.0] * 6))
    np.testing.assert_array_equal(b.numpy(), [0, 1, 3, 6, 10, 15])


def test_what_is_assigned_is_computed_where_it_belongs() -> None:
    x = Tensor(np.arange(6, dtype=np.float32)).realize()
    out = Tensor(np.zeros((2, 3), np.float32)).realize()
    value = out._new(UOp(Ops.SCAN, x.dtype, (x.uop,), (Ops.ADD, 0)))._reshape((2, 3))
    place = UOp(Ops.ASSIGN, x.dtype, (out.uop, value.uop))
    s = schedule([place])
    assert len(s.calls) == 1 and s.results == (out.uop.buffer,) and not s.temporaries
    # what is read again has memory of its own until then, and so has what is assigned twice
    y = Tensor(np.arange(6, dtype=np.float32)).realize()
    y.assign(y.cumsum(0) + y[0])
    y.assign(y.cumsum(0))
    np.testing.assert_array_equal(y.numpy(), np.arange(6).cumsum().cumsum())
    a, b, total = out.flatten().contiguous().realize(), Tensor(np.zeros(6, np.float32)).realize(), x.cumsum(0)
    a.assign(total)
    b.assign(total)
    Tensor.realize(a, b)
    a.assign(Tensor([0.0] * 6))
    np.testing.assert_array_equal(b.numpy(), [0, 1, 3, 6, 10, 15])


def test_a_scan_begins_without_a_condition() -> None:
    """Also where threads are more than rows."""
    for op, first in ((Ops.ADD, 0.0), (Ops.MUL, 1.0), (Ops.MAX, -np.inf)):
        x = Tensor(np.zeros((130, 40), np.float32)).realize()
        node = UOp(Ops.SCAN, x.dtype, (x.uop,), (op, 1))
        kernel = schedule([UOp(Ops.CONTIGUOUS, x.dtype, (node,))]).calls[0].kernel
        for target in (wasm_target(1), webgpu_target()):
            program = program_for(kernel, target)
            assert not any(u.op in (Ops.WHERE, Ops.EQUAL) for u in program.uops)
            assert any(u.op is Ops.STORE and u.src[2].op is Ops.CONST and u.src[2].arg == first for u in program.uops)


def test_work_grows_with_the_steps() -> None:
    """A scatter walks over its positions once, and a scan over its elements: no loop over pairs of them."""
    x, index = Tensor(np.zeros((300, 8), np.float32)).realize(), Tensor(np.zeros(500, np.int32)).realize()
    values = Tensor(np.zeros((500, 8), np.float32)).realize()
    nodes = [
        UOp(Ops.SCATTER, x.dtype, (x.uop, index.uop, values.uop), (0, Ops.ADD)),
        UOp(Ops.SCAN, x.dtype, (x.uop,), (Ops.ADD, 0)),
    ]
    for node, steps in zip(nodes, (500, 300), strict=True):
        kernel = schedule([UOp(Ops.CONTIGUOUS, node.dtype, (node,))]).calls[-1].kernel
        ranges = [u for u in kernel.toposort() if u.op is Ops.RANGE]
        assert {int(r.src[0].arg): r.arg.kind for r in ranges} == {steps: AxisKind.ORDERED, 8: AxisKind.LOOP}


def test_counting_takes_a_step_for_each_element() -> None:
    x = Tensor(np.zeros(3000, np.float32)).realize()
    whole, weights = Tensor(np.arange(300, dtype=np.int32) % 8).realize(), Tensor(np.ones(300, bool)).realize()
    for out in (x.histc(50, 0, 1), whole.bincount(), whole.bincount(weights)):
        for call in schedule([UOp(Ops.CONTIGUOUS, out.dtype, (out.uop,))]).calls:
            sizes = [int(u.src[0].arg) for u in call.kernel.toposort() if u.op is Ops.RANGE]
            assert np.prod(sizes) < 2 * 3000
    np.testing.assert_array_equal(whole.bincount(weights).numpy(), np.bincount(np.arange(300) % 8))


def test_inputs_of_many_memories_and_sums_are_computed_before() -> None:
    rng = np.random.default_rng(4)
    parts = [rng.normal(size=(4, 30)).astype(np.float32) for _ in range(12)]
    total = sum((Tensor(p) for p in parts[1:]), Tensor(parts[0]))
    np.testing.assert_allclose(total.cumsum(1).numpy(), sum(parts).cumsum(1), rtol=1e-4, atol=1e-4)
    soft = Tensor(parts[0]).softmax(-1)
    e = np.exp(parts[0] - parts[0].max(-1, keepdims=True))
    np.testing.assert_allclose(soft.cumsum(1).numpy(), (e / e.sum(-1, keepdims=True)).cumsum(1), rtol=1e-4)


LONG = (
    ((280003,), None),
    ((1 << 19,), None),
    ((523, 511), None),
    ((262147, 3), 0),
    ((2, 263001, 2), 1),
    ((3, 270000), 1),
)


@pytest.mark.parametrize(
    ("shape_axis", "device"),
    slow_unless(lambda long, device: device in ("CPU", "WEBGPU") or long in (LONG[0], LONG[4]), LONG, DEVICES),
)
def test_long_reductions_go_through_parts(shape_axis: tuple[tuple[int, ...], int | None], device: str) -> None:
    shape, axis = shape_axis
    x = np.random.default_rng(4).standard_normal(shape).astype(np.float32)
    t = Tensor(x, device=device).realize()
    np.testing.assert_allclose(t.sum(axis).numpy(), x.astype(np.float64).sum(axis), rtol=1e-5, atol=1e-2)
    np.testing.assert_array_equal(t.max(axis).numpy(), x.max(axis))
    np.testing.assert_array_equal(t.argmin(axis).numpy(), x.argmin(axis))
    np.testing.assert_allclose((t * t).mean(axis).numpy(), (x.astype(np.float64) ** 2).mean(axis), rtol=1e-5)
    turned = None if axis is None else len(shape) - 1 - axis
    for plan in (capture(lambda: t.sum(axis).realize()), capture(lambda: t.T.max(turned).realize())):
        first, *rest = plan.kernels
        outputs = [r for r in first.toposort() if r.op is Ops.RANGE and not r.arg.reduce]
        assert 1 <= len(rest) <= 2 and np.prod([r.src[0].arg for r in outputs]) >= 64


def test_gradients_of_long_maxima_are_shared() -> None:
    x = np.zeros(280001, np.float32)
    x[[3, 279999]] = 1
    t = Tensor(x).realize()
    (got,) = t.max().gradient(t)
    np.testing.assert_allclose(got.numpy(), x / 2)

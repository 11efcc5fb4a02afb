"""Tensors on several devices: the numbers of one device, with the copies that the parts need and no others.

Copies are counted as they happen. Devices of one kind have memory of their own, whatever the machine.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tinyweb import Tensor
from tinyweb.across import COPIES
from tinyweb.device import Device
from tinyweb.errors import DeviceError
from tinyweb.graph.schedule import CopyCall
from tinyweb.nn.optim import SGD, AdamW
from tinyweb.tracing import capture, jit

Floats = Any
KIND = os.environ.get("TINYWEB_TEST_SHARD", "CPU")  # of the devices: see test_several_opencl_devices
TWO, THREE, FOUR = (tuple(f"{KIND}:{i}" if i else KIND for i in range(n)) for n in (2, 3, 4))


@pytest.fixture(autouse=True)
def on_this_kind(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TINYWEB_DEVICE", KIND)
    yield


def values(*shape: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def counted(function: Callable[[], Any]) -> tuple[Any, int, int]:
    """What a function returns, and the number and the bytes of the copies between devices."""
    COPIES.count = COPIES.nbytes = 0
    found = function()
    return found, COPIES.count, COPIES.nbytes


def spread(array: Floats, axis: int | None, devices: tuple[str, ...] = TWO) -> Tensor:
    return Tensor(array).shard(devices, axis).realize()


@pytest.mark.parametrize("devices", [TWO, THREE])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_shard_and_gather(devices: tuple[str, ...], axis: int | None) -> None:
    a, n = values(6, 12, 18), len(devices)
    x = Tensor(a)
    t, copies, moved = counted(lambda: x.shard(devices, axis).realize())
    assert (t.device, t.shape) == (",".join(devices), (6, 12, 18))
    assert (copies, moved) == (n - 1, (n - 1) * a.nbytes // (1 if axis is None else n))
    back, copies, moved = counted(lambda: t.to(devices[-1]).realize())
    assert (copies, moved) == ((0, 0) if axis is None else (n - 1, (n - 1) * a.nbytes // n))
    assert back.device == devices[-1]
    np.testing.assert_array_equal(back.numpy(), a)
    np.testing.assert_array_equal(t.numpy(), a)


def test_divided_anew() -> None:
    a = values(4, 6)
    rows = spread(a, 0)
    columns, copies, moved = counted(lambda: rows.shard(TWO, 1).realize())
    assert (copies, moved) == (2, a.nbytes)
    np.testing.assert_array_equal(columns.numpy(), a)
    whole, copies, moved = counted(lambda: rows.shard(TWO).realize())
    assert (copies, moved) == (2, a.nbytes)
    again, copies, _ = counted(lambda: whole.shard(TWO, 0).realize())
    assert copies == 0
    np.testing.assert_array_equal((again + rows).numpy(), 2 * a)
    others, copies, moved = counted(lambda: rows.shard(("CPU:2", "CPU:3"), 0).realize())
    assert (copies, moved) == (2, a.nbytes)
    np.testing.assert_array_equal(others.numpy(), a)


PARTS: list[tuple[tuple[int, ...], int, tuple[str, ...], list[int] | None, list[int]]] = [
    # shape, axis, devices, sizes that are asked for, sizes
    ((10, 6), 0, THREE, None, [4, 3, 3]),
    ((4, 3, 5), 1, TWO, None, [2, 1]),
    ((2, 5), 0, FOUR, None, [1, 1, 0, 0]),
    ((3, 7), -1, THREE, [1, 6, 0], [1, 6, 0]),
    ((0, 3), 0, TWO, None, [0, 0]),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "axis", "devices", "asked", "sizes"), PARTS)
def test_parts_of_different_sizes(
    shape: tuple[int, ...], axis: int, devices: tuple[str, ...], asked: list[int] | None, sizes: list[int]
) -> None:
    a, rest = values(*shape), int(np.prod(shape)) // max(shape[axis], 1)
    t, copies, moved = counted(lambda: Tensor(a).shard(devices, axis, asked).realize())
    spread = t.uop.buffer.arg.spread
    assert spread is None or [spread.outer * s for s in spread.shares] == [rest * s for s in sizes] or not a.size
    assert (copies, moved) == (sum(s > 0 for s in sizes[1:]), 4 * rest * sum(sizes[1:]))
    back, copies, moved = counted(lambda: t.to(devices[0]).realize())
    assert (copies, moved) == (sum(s > 0 for s in sizes[1:]), 4 * rest * sum(sizes[1:]))
    np.testing.assert_array_equal(back.numpy(), a)
    each, copies, _ = counted(lambda: (t * 2 + Tensor.ones(*shape, device=t.device)).realize())
    assert copies == 0
    np.testing.assert_array_equal(each.numpy(), 2 * a + 1)
    total, copies, _ = counted(lambda: t.sum(axis).realize())
    assert copies == sum(s > 0 for s in sizes) * (len(devices) - 1)
    np.testing.assert_allclose(total.numpy(), a.sum(axis), rtol=1e-5, atol=1e-6)


def test_divided_anew_along_the_same_axis() -> None:
    """Each device gets what it does not have: of 4, 3, 3 rows, where it is to have 2, 5, 3."""
    a = values(10, 6)
    even = spread(a, 0, THREE)
    other, copies, moved = counted(lambda: even.shard(THREE, 0, [2, 5, 3]).realize())
    assert (copies, moved) == (1, 2 * 6 * 4)
    np.testing.assert_array_equal(other.numpy(), a)
    both, copies, moved = counted(lambda: (even + other).realize())
    assert (copies, moved) == (1, 2 * 6 * 4)
    np.testing.assert_array_equal(both.numpy(), 2 * a)
    other.assign(even * 3)
    np.testing.assert_array_equal(other.numpy(), 3 * a)
    last, copies, moved = counted(lambda: even.shard(THREE, 0, [0, 0, 10]).realize())
    assert (copies, moved) == (2, 7 * 6 * 4)
    np.testing.assert_array_equal(last.numpy(), a)


def test_constants_move_nothing() -> None:
    t, copies, _ = counted(
        lambda: (Tensor.zeros(4, 6).shard(TWO, 1) + Tensor.arange(6, device=",".join(TWO))).realize()
    )
    assert copies == 0
    np.testing.assert_array_equal(t.numpy(), np.tile(np.arange(6), (4, 1)))


CASES: list[tuple[str, Callable[..., Tensor], list[int | None], int, int]] = [
    # name, function of a (4, 6, 8) and b (4, 6, 8), axes, copies, bytes of all copies
    ("elementwise", lambda a, b: (a * b + 1).exp(), [1, 1], 0, 0),
    ("with whole", lambda a, b: a - b, [2, None], 0, 0),
    ("softmax", lambda a, b: a.softmax(-1), [0, None], 0, 0),
    ("norm", lambda a, b: a.rms_norm(8), [1, None], 0, 0),
    ("sum along another axis", lambda a, b: a.sum(1), [0, None], 0, 0),
    ("sum along the axis", lambda a, b: a.sum(1), [1, None], 2, 2 * 4 * 8 * 4),
    ("maximum of all", lambda a, b: a.max(), [1, None], 2, 2 * 4),
    ("matmul of rows", lambda a, b: a @ b.transpose(1, 2), [1, None], 0, 0),
    ("matmul of columns", lambda a, b: a @ b.transpose(1, 2), [None, 1], 0, 0),
    ("matmul along the sum", lambda a, b: a @ b.transpose(1, 2), [2, 2], 2, 2 * 4 * 6 * 6 * 4),
    ("matmul of a batch", lambda a, b: a @ b.transpose(1, 2), [0, 0], 0, 0),
    ("permute", lambda a, b: a.permute(2, 0, 1) * 2, [1, None], 0, 0),
    ("reshape that keeps the axis", lambda a, b: a.reshape(24, 8) * 2, [0, None], 0, 0),
    ("heads", lambda a, b: a.reshape(4, 6, 4, 2) * 2, [2, None], 0, 0),
    ("reshape that does not", lambda a, b: a.reshape(24, 8) * 2, [1, None], 2, 4 * 6 * 8 * 4),
    ("part of another axis", lambda a, b: a[:, 1:4] * 2, [2, None], 0, 0),
    ("joined along another axis", lambda a, b: a.cat(b, axis=1), [0, 0], 0, 0),
    ("joined along the axis", lambda a, b: a.cat(b, axis=1), [1, None], 2, 4 * 6 * 8 * 4),
    ("divided apart", lambda a, b: a * b, [0, 1], 2, 4 * 6 * 8 * 4),
    ("scan along another axis", lambda a, b: a.cumsum(1), [0, None], 0, 0),
    ("scan along the axis", lambda a, b: a.cumsum(1), [1, None], 2, 4 * 6 * 8 * 4),
    ("sort", lambda a, b: a.sort(-1)[0], [0, None], 0, 0),
    ("attention", lambda a, b: a.scaled_dot_product_attention(b, b), [0, 0], 0, 0),
    ("rows by index", lambda a, b: b[(a.abs() * 3).clamp(0, 3).int()[:, :, 0]], [0, None], 0, 0),
    ("variance", lambda a, b: a.var(1), [2, None], 0, 0),
]  # fmt: skip


@pytest.mark.parametrize(("name", "function", "axes", "copies", "moved"), CASES, ids=[c[0] for c in CASES])
def test_operations(
    name: str, function: Callable[..., Tensor], axes: list[int | None], copies: int, moved: int
) -> None:
    arrays = [values(4, 6, 8, seed=i) for i in range(2)]
    one = function(*map(Tensor, arrays)).numpy()
    given = [spread(a, axis) for a, axis in zip(arrays, axes)]
    t, *found = counted(lambda: function(*given).contiguous().realize())
    assert found == [copies, moved], name
    np.testing.assert_allclose(t.numpy(), one, rtol=1e-5, atol=1e-5)


REDUCED = ("sum along the axis", "maximum of all", "matmul along the sum")


@pytest.mark.parametrize(("name", "function", "axes", "copies", "moved"), CASES, ids=[c[0] for c in CASES])
def test_operations_on_parts_of_different_sizes(
    name: str, function: Callable[..., Tensor], axes: list[int | None], copies: int, moved: int
) -> None:
    """As many copies as of equal parts: three devices divide 4 and 8, and four 6, into different ones."""
    arrays = [values(4, 6, 8, seed=i) for i in range(2)]
    devices = FOUR if 1 in axes else THREE
    n = len(devices)
    one = function(*map(Tensor, arrays)).numpy()
    given = [spread(a, axis, devices) for a, axis in zip(arrays, axes)]
    t, *found = counted(lambda: function(*given).contiguous().realize())
    if name == "heads":  # 3, 3 and 2 elements are no heads of two
        copies, moved = 2, arrays[0].nbytes
    each = n * (n - 1) // 2 if name in REDUCED else n - 1  # what two devices send in turn, others send to all others
    assert found == [copies * n * (n - 1) // 2, moved * each], name
    np.testing.assert_allclose(t.numpy(), one, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("devices", [TWO, THREE, FOUR])
@pytest.mark.parametrize("size", [7, 24000])
def test_all_reduce(devices: tuple[str, ...], size: int) -> None:
    """Few bytes go from each to each; of many every device sends its share around a ring, two times."""
    n, a = len(devices), values(len(devices), size)
    t = spread(a, 0, devices)
    total, copies, moved = counted(lambda: t.sum(0).realize())
    ring = n > 2 and size > 7
    assert copies == (2 * n * (n - 1) if ring else n * (n - 1))
    assert moved == (2 * (n - 1) if ring else n * (n - 1)) * 4 * size
    np.testing.assert_allclose(total.numpy(), a.sum(0), rtol=1e-5, atol=1e-5)
    each = [total.to(d).numpy() for d in devices]
    assert all(np.array_equal(e, each[0]) for e in each)


@pytest.mark.parametrize("method", ["max", "prod"])
def test_other_reductions_in_a_ring(method: str) -> None:
    a = values(3, 20000)
    got = getattr(spread(a, 0, THREE), method)(0).numpy()
    np.testing.assert_allclose(got, getattr(a, method)(0), rtol=1e-5)


def test_kernels_are_fused_as_on_one_device() -> None:
    """Per device: the product with what precedes it, then the sum of what arrived with what follows."""
    a, b = spread(values(4, 8), 1), spread(values(8, 6), 0)
    c = spread(values(4, 6), None)
    plan = jit(lambda a, b, c: ((a.relu() @ b) + c).tanh())
    got = plan(a, b, c).numpy()
    (traced,) = plan.traces.values()
    calls = traced.record.plan.calls
    assert [type(x) is CopyCall for x in calls] == [False, False, True, True, False, False]
    assert [x.device for x in calls if not isinstance(x, CopyCall)] == ["CPU", "CPU:1"] * 2
    want = np.tanh(np.maximum(values(4, 8), 0) @ values(8, 6) + values(4, 6))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_updates_in_place() -> None:
    a = values(4, 6)
    t = spread(a, 0)
    view, before = t[:, 2:4], t * 1
    view.assign(Tensor(np.full((4, 2), 7, np.float32)).shard(TWO))
    a2 = a.copy()
    a2[:, 2:4] = 7
    np.testing.assert_array_equal(t.numpy(), a2)
    np.testing.assert_array_equal(before.numpy(), a)
    t.assign(t * 2 + spread(a, 1))
    np.testing.assert_allclose(t.numpy(), 2 * a2 + a, rtol=1e-6)
    with pytest.raises(ValueError, match="along the axis that devices divide"):
        t[1:2].assign(Tensor.zeros(1, 6, device=t.device)).realize()


def test_gradients_go_back_to_where_tensors_were() -> None:
    a, b = values(4, 6), values(6, 3)
    x, w = Tensor(a), Tensor(b)
    one = (x @ w).relu().sum().gradient(x, w)
    x2, w2 = Tensor(a, device="CPU:1"), Tensor(b)
    loss = (x2.shard(TWO, 0) @ w2.shard(TWO)).relu().sum()
    two = loss.gradient(x2, w2)
    assert [t.device for t in two] == ["CPU:1", "CPU"]
    for g, h in zip(one, two):
        np.testing.assert_allclose(h.numpy(), g.numpy(), rtol=1e-5, atol=1e-5)
    moved = (x.to("CPU:1") * 3).sum().gradient(x)[0]
    np.testing.assert_array_equal(moved.numpy(), np.full((4, 6), 3, np.float32))


def step_of(
    place: Callable[[Tensor], Tensor], weights: list[Tensor]
) -> tuple[Callable[[Tensor, Tensor], Tensor], tuple[Tensor, Tensor]]:
    """A training step by gradient descent, and the weights that it updates."""
    first, second = (place(w).realize().requires_grad_() for w in weights)

    def step(x: Tensor, y: Tensor) -> Tensor:
        first.grad = second.grad = None
        loss = (((x @ first).relu() @ second - y) ** 2).mean()
        loss.backward()
        for w in (first, second):
            w.assign((w - w.grad * 0.1).detach())
        loss.realize(first, second)
        return loss

    return step, (first, second)


@pytest.mark.parametrize(("devices", "batch"), [(TWO, 8), (FOUR, 8), (THREE, 10), (FOUR, 3)])
def test_data_parallel_training(devices: tuple[str, ...], batch: int) -> None:
    """Weights whole on each device, the batch divided: what moves are both gradients and the loss, once each, from all
    devices that have some of it.
    """
    weights = [values(16, 12, seed=1), values(12, 5, seed=2)]
    one, weights_of_one = step_of(lambda t: t, list(map(Tensor, weights)))
    many, weights_of_many = step_of(lambda t: t.shard(devices), list(map(Tensor, weights)))
    first, second, n = jit(one), jit(many), len(devices)
    sent = min(n, batch) * (n - 1)
    for i in range(3):
        x, y = values(batch, 16, seed=10 + i), values(batch, 5, seed=20 + i)
        loss = first(Tensor(x), Tensor(y)).item()
        given = spread(x, 0, devices), spread(y, 0, devices)
        other, copies, moved = counted(lambda: second(*given))  # noqa: B023
        assert (copies, moved) == (3 * sent, sent * 4 * (16 * 12 + 12 * 5 + 1))
        assert other.item() == pytest.approx(loss, rel=1e-5)
    (traced,) = second.traces.values()
    plan = traced.record.plan
    assert (len(plan.copies), sum(b for *_, b in plan.copies)) == (copies, moved)
    for a, b in zip(weights_of_one, weights_of_many):
        np.testing.assert_allclose(b.numpy(), a.numpy(), rtol=1e-5, atol=1e-6)


def test_jit_over_devices() -> None:
    """Arguments on one device, results on another; memory from outside is updated on every replay."""
    count = Tensor([0.0], device="CPU:1")

    @jit
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        count.assign(count + 1)
        y = x.to("CPU:1") * 2 + count
        return y, y.to("CPU:2").sum().realize(count)

    for i in range(3):
        y, total = f(Tensor(values(3, seed=i)))
        want = 2 * values(3, seed=i) + i + 1
        assert (y.device, total.device) == ("CPU:1", "CPU:2")
        np.testing.assert_allclose(y.numpy(), want, rtol=1e-6)
        np.testing.assert_allclose(total.numpy(), want.sum(), rtol=1e-5)
    assert count.tolist() == [3.0]


def test_what_reads_the_old_value_elsewhere() -> None:
    x = Tensor(values(4))
    y = x * 2
    z = y.shard(TWO)  # not computed yet
    x.assign(x + 1)
    np.testing.assert_allclose(z.numpy(), 2 * values(4), rtol=1e-6)
    np.testing.assert_allclose(x.to("CPU:1").numpy(), values(4) + 1, rtol=1e-6)


def test_errors() -> None:
    x = Tensor(values(4, 6))
    with pytest.raises(
        ValueError, match="\\[2, 3\\] do not divide the 4 elements of axis 0 of \\(4, 6\\) among 2 devices"
    ):
        x.shard(TWO, 0, [2, 3])
    with pytest.raises(ValueError, match="\\[4\\] do not divide"):
        x.shard(TWO, 0, [4])
    with pytest.raises(ValueError, match="an axis, which is missing"):
        x.shard(TWO, sizes=[2, 2])
    with pytest.raises(IndexError, match="shard: axis 2 is outside"):
        x.shard(TWO, 2)
    with pytest.raises(IndexError, match="without axes"):
        Tensor(1.0).shard(TWO, 0)
    with pytest.raises(DeviceError, match="names a device twice"):
        x.shard(["CPU:1", "cpu:1"])
    nothings: list[str | tuple[str, ...]] = [(), ""]
    for nothing in nothings:
        with pytest.raises(DeviceError, match="name one or several, as 'CPU' or"):
            x.shard(nothing)
    with pytest.raises(DeviceError, match="unknown device ''"):
        x.to("")
    with pytest.raises(DeviceError, match="unknown device 'GPU'"):
        x.shard("CPU,GPU")
    with pytest.raises(ValueError, match="CPU,CPU:1"):
        x + x.shard(TWO)
    with pytest.raises(DeviceError, match="are several devices, and one is needed here"):
        Device["CPU,CPU:1"]
    with pytest.raises(ValueError, match="capture: the computation uses several devices"):
        capture(lambda: x.shard(TWO) + 1)


def test_several_interpreters() -> None:
    a, b = values(4, 8), values(8, 6)
    devices = ["INTERPRETER", "INTERPRETER:1"]
    t = (Tensor(a).shard(devices, 1) @ Tensor(b).shard(devices, 0)).relu()
    np.testing.assert_allclose(t.numpy(), np.maximum(a @ b, 0), rtol=1e-5, atol=1e-5)


def on_opencl(file: str, chosen: str) -> None:
    """Run tests of this folder's kind on several devices that PoCL makes of the processor."""
    env = {**os.environ, "TINYWEB_TEST_SHARD": "OPENCL", "POCL_DEVICES": " ".join(["pthread"] * 4)}
    probe = "from tinyweb.native_runtimes.open import open_runtime; open_runtime('OPENCL:3')"
    there = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, env=env, timeout=500)
    if there.returncode:
        pytest.skip(f"several devices of PoCL are needed: {there.stderr.strip().splitlines()[-1]}")
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", file, "-k", chosen]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=500)
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout[-3000:] + done.stderr[-2000:]


def test_several_opencl_devices() -> None:
    on_opencl(__file__, "test_operations and along and sum or test_data_parallel_training and devices2")


def test_devices_of_different_kinds() -> None:
    a, b = values(4, 8), values(8, 6)
    devices = ["CPU:1", "INTERPRETER"]
    t = (Tensor(a).shard(devices, 1) @ Tensor(b).shard(devices, 0)).relu()
    np.testing.assert_allclose(t.numpy(), np.maximum(a @ b, 0), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("optimizer", "sizes"), [(AdamW, None), (SGD, None), (AdamW, [7, 5])])
def test_training_of_divided_weights(optimizer: type[Any], sizes: list[int] | None) -> None:
    """Columns of one matrix, rows of the next: two all-reduces, of the results; moments are divided as weights are."""
    arrays = [values(16, 12, seed=1) * 0.2, values(12, 4, seed=2) * 0.2]

    def trained(places: list[Callable[[Tensor], Tensor]]) -> tuple[list[Tensor], list[int]]:
        first, second = (place(Tensor(a)).realize().requires_grad_() for place, a in zip(places, arrays))
        steps = optimizer([first, second], lr=1e-2)

        @jit
        def step(x: Tensor) -> Tensor:
            steps.zero_grad()
            loss = ((x @ first).relu() @ second).square().mean().backward()
            return loss.realize(*steps.schedule_step())

        found: list[int] = []
        for i in range(3):
            x = places[2](Tensor(values(8, 16, seed=i))).realize()
            _, *found = counted(lambda: step(x))  # noqa: B023
        return [first, second], found

    one, _ = trained([lambda t: t] * 3)
    two, found = trained([lambda t: t.shard(TWO, 1, sizes), lambda t: t.shard(TWO, 0, sizes), lambda t: t.shard(TWO)])
    assert found == [2, 2 * 8 * 4 * 4]
    for a, b in zip(one, two):
        np.testing.assert_allclose(b.numpy(), a.numpy(), rtol=1e-5, atol=1e-6)


STEPS: list[Callable[[Tensor, Tensor], Tensor]] = [
    lambda x, y: x + y,
    lambda x, y: x.maximum(y) * 0.5,
    lambda x, y: x - x.mean(0, keepdim=True),
    lambda x, y: x.softmax(1),
    lambda x, y: (x @ y.transpose(1, 2)) @ y * 0.1,
    lambda x, y: x.permute(1, 0, 2).reshape(6, 12, 8).permute(1, 0, 2),
    lambda x, y: x.reshape(12, 48).reshape(12, 6, 8).flip(0),
    lambda x, y: x.cat(y, axis=2)[:, :, 4:12],
    lambda x, y: x.cumsum(2) * 0.2,
    lambda x, y: x[:, 1:].pad(((0, 0), (0, 1), (0, 0))),
    lambda x, y: x.roll(3, 0) + x.sum((0, 2), keepdim=True) * 0.01,
    lambda x, y: y.gather(1, (x.abs() * 3).clamp(0, 5).int()),
]


@pytest.mark.parametrize("seed", range(8))
def test_chains_of_operations(seed: int) -> None:
    """Any operations one after the other, on any parts, have the values and the gradients of one device."""
    random = np.random.default_rng(seed)
    devices = (TWO, THREE, FOUR)[seed % 3]
    arrays = [values(12, 6, 8, seed=seed), values(12, 6, 8, seed=seed + 100)]
    axes = [[None, 0, 1, 2][random.integers(0, 4)] for _ in arrays]
    steps = [STEPS[i] for i in random.integers(0, len(STEPS), 5)]

    def chain(x: Tensor, y: Tensor) -> list[Floats]:
        start = x
        for step in steps:
            x = step(x, y)
        (gradient,) = (x * x).sum().gradient(start, allow_unused=True)
        x.realize(*([] if gradient is None else [gradient]))
        return [x.numpy()] + ([] if gradient is None else [gradient.numpy()])

    one = chain(*map(Tensor, arrays))
    many = chain(*(spread(a, axis, devices) for a, axis in zip(arrays, axes)))
    for a, b in zip(one, many, strict=True):
        np.testing.assert_allclose(b, a, rtol=2e-4, atol=2e-5)

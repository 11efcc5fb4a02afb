"""Values that are read at several places: stored where computing them again would cost more, and the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import grid_sample

from benchmarks.count.program import operations
from tinyweb import Tensor
from tinyweb.graph.lower import program_for
from tinyweb.graph.program import Program
from tinyweb.graph.target import webgpu_target
from tinyweb.tracing import capture

SIZE = 4096


def neighbours(steps: int) -> Callable[..., Tensor]:
    """Each element and those beside it, averaged again and again."""

    def compute(x: Tensor) -> Tensor:
        for _ in range(steps):
            x = (x.roll(1, 0) + x.roll(-1, 0) + x.roll(1, 1) + x.roll(-1, 1)) * 0.25
        return x

    return compute


def slopes(steps: int) -> Callable[..., Tensor]:
    """The gradient of what neighbours come to: each step adds what eight parts of the one before have."""
    return lambda x: neighbours(steps)(x).square().sum().gradient(x)[0]


def recurrent(steps: int) -> Callable[..., Tensor]:
    """The last output of a long short-term memory, whose cells go on from step to step."""

    def compute(x: Tensor, w: Tensor) -> Tensor:
        size = w.shape[1] // 4
        output = cell = x[0, :, :size] * 0
        for i in range(steps):
            gates = x[i].cat(output, axis=-1) @ w
            keep, add, value, show = (gates[:, size * k : size * (k + 1)] for k in range(4))
            cell = keep.sigmoid() * cell + add.sigmoid() * value.tanh()
            output = show.sigmoid() * cell.tanh()
        return output

    return compute


def doubled(steps: int) -> Callable[..., Tensor]:
    """Running sums: each step adds what lies twice as far apart (Hillis and Steele 1986)."""

    def compute(x: Tensor) -> Tensor:
        for i in range(steps):
            x = x + x.pad((2**i, 0))[..., : x.shape[-1]]
        return x

    return compute


def butterflies(steps: int) -> Callable[..., Tensor]:
    """The Walsh-Hadamard transform."""

    def compute(x: Tensor) -> Tensor:
        for i in range(steps):
            y = x.reshape(-1, 2, 2**i)
            x = (y[:, 0] + y[:, 1]).stack(y[:, 0] - y[:, 1], axis=1).reshape(-1)
        return x

    return compute


def eliminated(size: int) -> Callable[..., Tensor]:
    """Inverses by Gauss and Jordan's elimination."""

    def compute(a: Tensor) -> Tensor:
        eye = Tensor.eye(size).expand(*a.shape)
        m = a.cat(eye, axis=-1)
        for i in range(size):
            row = m[..., i : i + 1, :] / m[..., i : i + 1, i : i + 1]
            m = m - (m[..., :, i : i + 1] - eye[..., :, i : i + 1]) * row
        return m[..., size:]

    return compute


def programs(compute: Callable[..., Tensor], *shapes: tuple[int, ...]) -> list[Program]:
    target = webgpu_target()
    inputs = [Tensor.empty(*s) for s in shapes]
    plan = capture(lambda: compute(*inputs).contiguous().realize(), target)
    return [program_for(call.kernel, target) for call in plan.calls]


@pytest.mark.parametrize(
    ("make", "shape", "steps", "each", "most"),
    [
        (neighbours, (200, 201), 6, 4, 1.25),
        (slopes, (200, 201), 6, 4 + 8, 2.5),
        (doubled, (64, SIZE), 10, 1, 3.5),
        (butterflies, (16 * SIZE,), 12, 1, 10),
        (eliminated, (1000, 8, 8), 8, 5, 3),
    ],
)
def test_work_grows_with_the_steps(
    make: Callable[[int], Callable[..., Tensor]], shape: tuple[int, ...], steps: int, each: int, most: float
) -> None:
    """Not by a factor with each of them: what a kernel may do again is a few operations for each element."""
    elements = int(np.prod(shape)) * (2 if make is eliminated else 1)
    found = sum(map(operations, programs(make(steps), shape)))
    assert found <= most * steps * each * elements


def test_little_work_is_done_again() -> None:
    """It costs less than another pass over memory; so does much work of few elements."""
    assert len(programs(lambda x: (x * 2)[1:] - (x * 2)[:-1], (1 << 20,))) == 1
    assert len(programs(neighbours(2), (8, 9))) == 1
    # halves and thirds of a value are read once each
    assert len(programs(lambda x: (y := x.gelu().silu())[:8] * y[8:16] + y[16:], (24,))) == 1
    assert len(programs(lambda x: (y := x.exp())[:SIZE] * y[SIZE:], (2 * SIZE,))) == 1
    assert len(programs(lambda x: (y := x.exp())[:-1] * y[1:], (1 << 16,))) == 2


def halved(steps: int) -> Callable[..., Tensor]:
    """Means of blocks of an image, by steps that each halve its sides."""

    def compute(x: Tensor) -> Tensor:
        for _ in range(steps):
            x = (x[0::2, 0::2] + x[0::2, 1::2] + x[1::2, 0::2] + x[1::2, 1::2]) * 0.25
        return x

    return compute


def test_text_does_not_grow_with_the_parts_of_parts() -> None:
    """Each mean has four of those before: of few elements too they are not written out down to the image."""
    few, many = (sum(len(p.uops) for p in programs(halved(n), (64, 64))) for n in (3, 5))
    assert many < 2.5 * few
    x = np.random.default_rng(6).standard_normal((64, 64)).astype(np.float32)
    means = x.reshape(4, 16, 4, 16).mean((1, 3))
    np.testing.assert_allclose(halved(4)(Tensor(x)).numpy(), means, rtol=1e-4, atol=1e-6)


def bilateral(x: Any) -> Any:
    """Means of nine neighbours, weighted by how much they are alike."""
    shape = tuple(n - 2 for n in x.shape)
    middle = x[1:-1, 1:-1]
    parts = [x[i : i + shape[0], j : j + shape[1]] for i in range(3) for j in range(3)]
    weights = [(-(y - middle).square()).exp() for y in parts]
    return sum((w * y for w, y in zip(weights[1:], parts[1:])), weights[0] * parts[0]) / sum(weights[1:], weights[0])


def test_what_gradients_of_many_places_share_is_computed_once() -> None:
    """The slopes of a quotient, which go to each place that its sums were made of."""
    values, slopes = (programs(f, (100, 101)) for f in (bilateral, lambda x: bilateral(x).sum().gradient(x)[0]))
    assert sum(map(operations, slopes)) < 3 * sum(map(operations, values))
    x = np.random.default_rng(7).standard_normal((12, 13)).astype(np.float32)
    t = torch.tensor(x, requires_grad=True)
    (want,) = torch.autograd.grad(bilateral(t).sum(), t)
    found = bilateral(tx := Tensor(x)).sum().gradient(tx)[0]
    np.testing.assert_allclose(found.numpy(), want.numpy(), rtol=1e-4, atol=1e-5)


def test_walks_do_not_grow_with_the_places_of_places() -> None:
    """A recursion of shifted values has paths without number, and as many nodes as steps."""
    a = Tensor.empty(8, 7)
    for _ in range(60):
        a = a + a.pad((1, 0))[:, :7].tanh()
    assert capture(lambda: a.logsumexp(-1).realize(), webgpu_target()).calls


def test_weights_of_sums_are_not_stored() -> None:
    """A matrix that is computed from narrower memory stays as it is, however many rows it is multiplied with."""

    def product(x: Tensor, w: Tensor, s: Tensor) -> Tensor:
        return x @ (((w * 3 + 1) * s - 2) * (w - 0.5) * s + (w * s).abs() * 2)

    assert len(programs(product, (64, 256), (256, 512), (1, 512))) == 1


def test_places_are_computed_once_for_all_channels() -> None:
    kernels = programs(lambda x, g: x.grid_sample(g), (2, 32, 20, 21), (2, 30, 31, 2))
    assert len(kernels) == 3 and sum(map(operations, kernels)) < 2 * 30 * 31 * (32 * 8 + 200)


def test_a_resized_image_computes_the_lines_that_are_read() -> None:
    """Two columns for each of the result, not all that there are."""
    kernels = programs(lambda x: x.interpolate((50, 60), mode="bilinear"), (1, 3, 110, 400))
    assert sum(map(operations, kernels)) <= 1.1 * 3 * 50 * (120 + 60) * 3


@pytest.mark.parametrize("make", [neighbours, doubled, butterflies])
def test_the_same_numbers(make: Callable[[int], Callable[..., Tensor]]) -> None:
    shape = {neighbours: (40, 41), doubled: (3, 500), butterflies: (1024,)}[make]
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    want = x.astype(np.float64)
    for i in range(7):
        if make is neighbours:
            want = (np.roll(want, 1, 0) + np.roll(want, -1, 0) + np.roll(want, 1, 1) + np.roll(want, -1, 1)) / 4
        elif make is doubled:
            want = want + np.pad(want, ((0, 0), (2**i, 0)))[:, : shape[1]]
        else:
            y = want.reshape(-1, 2, 2**i)
            want = np.stack([y[:, 0] + y[:, 1], y[:, 0] - y[:, 1]], 1).reshape(-1)
    np.testing.assert_allclose(make(7)(Tensor(x)).numpy(), want, rtol=1e-5, atol=1e-5)


def test_slopes() -> None:
    x = np.random.default_rng(3).standard_normal((20, 21)).astype(np.float32)
    leaf = y = torch.from_numpy(x).requires_grad_()
    for _ in range(4):
        y = (y.roll(1, 0) + y.roll(-1, 0) + y.roll(1, 1) + y.roll(-1, 1)) * 0.25
    (want,) = torch.autograd.grad(y.square().sum(), leaf)
    np.testing.assert_allclose(slopes(4)(Tensor(x)).numpy(), want.numpy(), rtol=1e-4, atol=1e-5)


def test_what_a_recurrent_network_carries_is_computed_once() -> None:
    """Not in each step anew from all before; with few elements neither, where kernels would grow."""
    for size in (8, 48):
        shapes = [(12, 5, size), (2 * size, 4 * size)]
        few, many = (sum(len(p.uops) for p in programs(recurrent(n), (n, *shapes[0][1:]), shapes[1])) for n in (6, 12))
        assert many < 2.6 * few
    rng = np.random.default_rng(4)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((12, 5, 8), (16, 32)))
    network = torch.nn.LSTM(8, 8, bias=False)
    order = [1, 0, 2, 3]  # PyTorch has the gate of what is added first
    rows = np.concatenate([w.T.reshape(4, 8, 16)[k] for k in order])
    with torch.no_grad():
        network.weight_ih_l0.copy_(torch.from_numpy(np.ascontiguousarray(rows[:, :8])))
        network.weight_hh_l0.copy_(torch.from_numpy(np.ascontiguousarray(rows[:, 8:])))
        want = network(torch.from_numpy(x))[0][-1].numpy()
    np.testing.assert_allclose(recurrent(12)(Tensor(x), Tensor(w)).numpy(), want, rtol=1e-3, atol=1e-4)


def state_space(steps: int) -> Callable[..., Tensor]:
    """A selective scan: a state that decays, of which each step shows a weighted sum."""

    def compute(x: Tensor, rates: Tensor, b: Tensor, c: Tensor) -> Tensor:
        state = x[0, :, None] * b[0]
        shown = [(state * c[0]).sum(-1)]
        for i in range(1, steps):
            state = state * (x[i, :, None].softplus() * rates).exp() + x[i, :, None] * b[i]
            shown.append((state * c[i]).sum(-1))
        return shown[0].stack(*shown[1:])

    return compute


def test_states_that_each_step_sums_are_computed_once() -> None:
    """A sum at the places of the state itself is a kernel of its own: none takes all steps before again."""
    few, many = (
        sum(len(p.uops) for p in programs(state_space(n), (n, 24), (24, 16), (n, 16), (n, 16))) for n in (6, 12)
    )
    assert many < 2.6 * few
    rng = np.random.default_rng(5)
    x, b, c = (rng.standard_normal(s).astype(np.float32) for s in ((12, 24), (12, 16), (12, 16)))
    rates = -rng.random((24, 16), np.float32)
    state, want = np.zeros((24, 16)), []
    for i in range(12):
        state = state * np.exp(np.log1p(np.exp(x[i]))[:, None] * rates) + x[i][:, None] * b[i]
        want.append((state * c[i]).sum(-1))
    found = state_space(12)(*map(Tensor, (x, rates, b, c))).numpy()
    np.testing.assert_allclose(found, np.stack(want), rtol=1e-4, atol=1e-4)


def test_sums_along_the_same_rows_need_no_memory() -> None:
    """However long what they sum takes: a norm of such a value is one kernel."""
    assert len(programs(lambda x: ((x.exp() + 1).log().sin() * x.cos()).layer_norm(64), (100, 64))) == 1


def test_inverses_by_elimination() -> None:
    rng = np.random.default_rng(1)
    a = (rng.standard_normal((100, 6, 6)) / 6 + np.eye(6)).astype(np.float32)
    np.testing.assert_allclose(eliminated(6)(Tensor(a)).numpy(), np.linalg.inv(a), rtol=2e-4, atol=2e-4)


def test_samples_of_a_grid_with_many_channels() -> None:
    rng = np.random.default_rng(2)
    x, grid = rng.standard_normal((2, 16, 20, 21)), rng.random((2, 25, 26, 2)) * 2.4 - 1.2
    x, grid = x.astype(np.float32), grid.astype(np.float32)
    want = grid_sample(torch.from_numpy(x), torch.from_numpy(grid), align_corners=False).numpy()
    np.testing.assert_allclose(Tensor(x).grid_sample(Tensor(grid)).numpy(), want, rtol=1e-4, atol=1e-4)


def gated(x: Tensor, h: Tensor, wi: Tensor, wh: Tensor) -> Tensor:
    """The last state of a gated recurrent network."""
    for i in range(len(x)):
        a, b = x[i] @ wi, h @ wh
        r, z = ((a[:, k : k + 64] + b[:, k : k + 64]).sigmoid() for k in (0, 64))
        h = (1 - z) * (a[:, 128:] + r * b[:, 128:]).tanh() + z * h
    return h


def test_gradients_of_recurrent_steps_are_alike() -> None:
    """Each step stores what the others do, so that few kernels come with more of them."""

    def kernels(steps: int) -> int:
        given = [Tensor.empty(*s) for s in ((steps, 8, 40), (8, 64), (40, 192), (64, 192))]
        plan = capture(lambda: gated(*given).square().sum().gradient(*given))
        return len({c.kernel for c in plan.calls})

    assert kernels(9) - kernels(5) <= 5

"""What a traced function reads of memory that nobody writes between its calls is laid out once: values stay right."""

from __future__ import annotations

import gc
from collections.abc import Callable

import numpy as np
import pytest

from tests.samples import in_turn
from tinyweb import Tensor, jit
from tinyweb.device import Device, Kept
from tinyweb.nn.optim import SGD
from tinyweb.nn.quantize import quantize

DEVICES = ("CPU", "WASM")


def numbers(*shape: int, seed: int = 0, device: str | None = None) -> Tensor:
    made = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return Tensor(made, device=device).realize()


def kept(function: jit[Tensor]) -> list[Kept]:
    """What all traces of a function have laid out."""
    return [k for traced in function.traces.values() for k in traced.kept]


def agree(got: Tensor, want: Tensor) -> None:
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-4, atol=1e-4)


CONVOLUTIONS = {  # input, weight, arguments
    "3x3": ((1, 64, 14, 14), (128, 64, 3, 3), {"padding": 1}),
    "deep": ((1, 256, 7, 7), (96, 256, 3, 3), {"padding": 1}),
    "odd": ((1, 29, 13, 11), (67, 29, 3, 3), {"padding": 1, "stride": 2}),
    "1x1": ((1, 61, 20, 20), (130, 61, 1, 1), {}),
    "groups": ((2, 64, 9, 9), (64, 32, 3, 3), {"groups": 2}),
    "stem": ((1, 3, 40, 40), (64, 3, 7, 7), {"stride": 2, "padding": 3}),
}


@pytest.mark.parametrize(("name", "device"), in_turn(CONVOLUTIONS, DEVICES))
def test_convolutions(name: str, device: str) -> None:
    shape, size, arguments = CONVOLUTIONS[name]
    w = numbers(*size, seed=1, device=device)
    step = jit(lambda x: x.conv2d(w, **arguments).relu().realize())
    for seed in (2, 3):
        x = numbers(*shape, seed=seed, device=device)
        agree(step(x), x.conv2d(w, **arguments).relu())
    assert len(kept(step)) == (name not in ("1x1", "groups"))  # there, pixels are in the lanes, and weights as they lie


SIZES = ((64, 64, 64), (49, 127, 131), (8, 512, 96), (1, 128, 128))  # rows, inner, columns


@pytest.mark.parametrize(("sizes", "device"), in_turn(SIZES, [*DEVICES, "INTERPRETER"]))
def test_products(sizes: tuple[int, int, int], device: str) -> None:
    rows, inner, columns = sizes
    w, t = numbers(inner, columns, seed=1, device=device), numbers(columns, inner, seed=2, device=device)
    step = jit(lambda x: ((x @ w).realize(), (x @ t.T).realize()))
    for seed in (3, 4):
        x = numbers(rows, inner, seed=seed, device=device)
        for got, want in zip(step(x), (x @ w, x @ t.T)):
            agree(got, want)


@pytest.mark.parametrize("rows", [1, 33])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_integers(rows: int, dtype: str) -> None:
    random = np.random.default_rng(5)
    w = Tensor(random.integers(-128, 128, (96, 256)).astype(np.int8)).realize()
    step = jit(lambda x: (x.cast("int32") @ w.T.cast("int32")).realize())
    for _ in range(2):
        a = random.integers(0, 127, (rows, 256)).astype(dtype)
        assert np.array_equal(step(Tensor(a)).numpy(), a.astype(np.int32) @ w.numpy().T.astype(np.int32))


def test_half_weights() -> None:
    w = numbers(96, 80, seed=1).cast("float16").realize()
    step = jit(lambda x: (x @ w.cast("float32")).realize())
    x = numbers(64, 96, seed=2)
    agree(step(x), x @ w.cast("float32"))


WRITES: dict[str, Callable[[Tensor], object]] = {
    "assigned": lambda w: w.assign(w * 2 + 1).realize(),
    "assigned later": lambda w: w.assign(w - 3),
    "a part": lambda w: w[3:5].assign(w[3:5] + 1).realize(),
    "by a traced function": lambda w: jit(lambda: w.assign(w * 0.5).realize())(),
    "as an argument": lambda w: jit(lambda t: t.assign(t + 1).realize())(w),
}


@pytest.mark.parametrize("how", WRITES)
def test_a_weight_is_written_between_calls(how: str) -> None:
    w, x = numbers(128, 96, seed=1), numbers(64, 128, seed=2)
    step = jit(lambda x: (x @ w).realize())
    for _ in range(3):
        agree(step(x), x @ w)
        agree(step(x), x @ w)
        WRITES[how](w)
    agree(step(x), x @ w)
    assert len(kept(step)) == 1


def test_nothing_is_laid_out_again_without_need(monkeypatch: pytest.MonkeyPatch) -> None:
    w, x = numbers(128, 96, seed=1), numbers(64, 128, seed=2)
    step = jit(lambda x: (x @ w).realize())
    step(x)
    monkeypatch.setattr(Kept, "refresh", lambda self: pytest.fail("looked at again"))
    numbers(128, 96).assign(numbers(128, 96, seed=3)).realize()
    step(x)


def test_a_weight_that_is_also_an_output() -> None:
    w, x = numbers(128, 96, seed=1), numbers(64, 128, seed=2)
    step = jit(lambda x: ((x @ w).realize(), w))
    y, same = step(x)
    agree(y, x @ w)
    same.assign(same * -2).realize()
    agree(step(x)[0], x @ w)
    assert np.array_equal(same.numpy(), w.numpy())


def test_what_the_function_writes_itself_is_not_laid_out() -> None:
    w, x = numbers(128, 96, seed=1), numbers(64, 128, seed=2)

    def step(x: Tensor) -> Tensor:
        y = (x @ w).realize()
        w.assign(w + 1).realize()
        return y

    traced = jit(step)
    for _ in range(3):
        want = (x @ w).numpy()
        np.testing.assert_allclose(traced(x).numpy(), want, rtol=1e-4, atol=1e-4)
    assert kept(traced) == []


def test_functions_share_what_is_laid_out_alike() -> None:
    w, x = numbers(128, 96, seed=1), numbers(64, 128, seed=2)
    first, second = jit(lambda x: (x @ w).realize()), jit(lambda x: (x @ w + 1).realize())
    agree(first(x), x @ w)
    agree(second(x), x @ w + 1)
    assert kept(first)[0] is kept(second)[0]
    w.assign(w + 1).realize()
    agree(second(x), x @ w + 1)
    agree(first(x), x @ w)


def test_memory_goes_with_the_last_function() -> None:
    w, x = numbers(128, 96, seed=1), numbers(64, 128, seed=2)
    before = len(Device["CPU"].kept)
    step = jit(lambda x: (x @ w).realize())
    step(x)
    assert len(Device["CPU"].kept) == before + 1
    del step
    gc.collect()
    assert len(Device["CPU"].kept) == before


def test_an_argument_is_not_laid_out() -> None:
    w, x = numbers(128, 96, seed=1), numbers(64, 128, seed=2)
    step = jit(lambda x, w: (x @ w).realize())
    agree(step(x, w), x @ w)
    assert kept(step) == []


def test_evaluation_between_steps_of_training() -> None:
    w, x = numbers(64, 32, 3, 3, seed=1).requires_grad_(), numbers(1, 32, 12, 12, seed=2)
    optimizer = SGD([w], lr=0.01)

    def step() -> Tensor:
        optimizer.zero_grad()
        with Tensor.train():
            loss = x.conv2d(w).relu().mean().backward()
        return loss.realize(*optimizer.schedule_step())

    train, evaluate = jit(step), jit(lambda x: x.conv2d(w.detach()).realize())
    before = evaluate(x).numpy()
    for _ in range(3):
        train()
        agree(evaluate(x), x.conv2d(w.detach()))
    assert not np.allclose(evaluate(x).numpy(), before)


def test_no_memory_to_spare(monkeypatch: pytest.MonkeyPatch) -> None:
    w, x = numbers(128, 96, seed=1), numbers(64, 128, seed=2)
    monkeypatch.setattr(Device["CPU"].runtime, "free_bytes", lambda: 1 << 16)
    step = jit(lambda x: (x @ w).realize())
    agree(step(x), x @ w)
    assert kept(step) == []


def test_nothing_is_laid_out_where_it_is_not_wanted() -> None:
    w, x = numbers(64, 64, seed=1), numbers(64, 64, seed=2)
    step = jit(lambda x: (x @ w).realize(), freeze=False)
    agree(step(x), x @ w)
    assert not kept(step)
    frozen = jit(lambda x: (x @ w).realize())
    agree(frozen(x), x @ w)
    assert kept(frozen)


@pytest.mark.parametrize("rows", [1, 4, 9])
def test_what_is_laid_out_of_what_is_laid_out(rows: int) -> None:
    """Scales that are converted together, and the weights that they are multiplied with."""
    weight = np.random.default_rng(3).standard_normal((512, 768)).astype(np.float32)
    stored = quantize(weight, 8)
    assert stored is not None
    step = jit(lambda x: stored.product(x, "float").realize())
    x = np.random.default_rng(4).standard_normal((rows, 768)).astype(np.float32)
    for _ in range(3):
        got = step(Tensor(x)).numpy()
    np.testing.assert_allclose(got, x @ stored.dense().numpy().T, rtol=1e-4, atol=1e-3)

"""Random tensors: the generator, equal numbers on every runtime, distributions, independence, replays."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.tensor.ops import RUNTIMES
from tinyweb import Generator, Tensor, dtypes, jit


def reference(seed: int, number: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Threefry-2x32-20 of the counters (0 … count - 1, number), as the paper writes it."""
    key = [np.uint32(seed & 0xFFFFFFFF), np.uint32(seed >> 32)]
    key.append(np.uint32(0x1BD11BDA) ^ key[0] ^ key[1])
    x0 = np.arange(count, dtype=np.uint32) + key[0]
    x1 = np.full(count, number, np.uint32) + key[1]
    rotations = (13, 15, 26, 6, 17, 29, 16, 24)
    for r in range(20):
        x0 = x0 + x1
        turn = np.uint32(rotations[r % 8])
        x1 = ((x1 << turn) | (x1 >> (np.uint32(32) - turn))) ^ x0
        if r % 4 == 3:
            s = r // 4 + 1
            x0, x1 = x0 + key[s % 3], x1 + key[(s + 1) % 3] + np.uint32(s)
    return x0, x1


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_bits_become_numbers_exactly(runtime: str) -> None:
    seed = 0x0123456789ABCDEF
    made = {"device": runtime, "generator": Generator(seed)}
    single, half, narrow, whole, coin = (
        Tensor.rand(5, 7, **made),
        Tensor.rand(33, dtype=dtypes.float16, **made),
        Tensor.rand(33, dtype=dtypes.bfloat16, **made),
        Tensor.randint(-5, 1000, (33,), **made),
        (Tensor.ones(33, device=runtime) * 0.25).bernoulli(generator=made["generator"]),
    )
    single.realize(half, narrow, whole, coin)
    a = reference(seed, 0, 35)[0].reshape(5, 7)
    np.testing.assert_array_equal(single.numpy(), (a >> 8).astype(np.float32) / 2**24)
    np.testing.assert_array_equal(half.numpy(), ((reference(seed, 1, 33)[0] >> 21) / 2**11).astype(np.float16))
    np.testing.assert_array_equal(narrow.numpy(), (reference(seed, 2, 33)[0] >> 24).astype(np.float32) / 2**8)
    a, b = (w.astype(object) for w in reference(seed, 3, 33))
    np.testing.assert_array_equal(whole.numpy(), [((int(x) << 32 | int(y)) * 1005 >> 64) - 5 for x, y in zip(a, b)])
    np.testing.assert_array_equal(coin.numpy(), (reference(seed, 4, 33)[0] >> 8) / 2**24 < 0.25)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_normal_numbers(runtime: str) -> None:
    a, b = (w.astype(np.float64) for w in reference(3, 0, 50))
    want = np.sqrt(-2 * np.log((a + 0.5) / 2**32)) * np.cos(2 * np.pi * np.floor(b / 256) / 2**24)
    got = Tensor.randn(50, device=runtime, generator=Generator(3))
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("runtime", ("CPU", "WASM", "INTERPRETER"))
def test_doubles(runtime: str) -> None:
    a, b = (w.astype(np.float64) for w in reference(9, 0, 20))
    got = Tensor.rand(20, dtype=dtypes.float64, device=runtime, generator=Generator(9)).numpy()
    np.testing.assert_array_equal(got, (np.floor(a / 32) * 2**26 + np.floor(b / 64)) / 2**53)


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-(2**31), 2**31), (0, 2**32), (-(2**62), 2**62), (5, 2**40)])
def test_whole_numbers_of_every_range(low: int, high: int) -> None:
    x = Tensor.randint(low, high, (4000,), dtype=dtypes.int64, generator=Generator(1)).numpy()
    assert x.min() >= low and x.max() < high
    assert abs(x.astype(float).mean() - (low + high - 1) / 2) <= 5 * (high - low) / math.sqrt(12 * 4000)


def ks(values: np.ndarray, distribution: Callable[[np.ndarray], np.ndarray]) -> float:
    """The Kolmogorov-Smirnov distance times √n: above 1.95 once in a thousand generators."""
    x = np.sort(values.astype(np.float64).reshape(-1))
    steps = np.arange(x.size + 1) / x.size
    at = distribution(x)
    return float(max(np.abs(at - steps[1:]).max(), np.abs(at - steps[:-1]).max()) * math.sqrt(x.size))


def bell(x: np.ndarray) -> np.ndarray:
    return np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in x])


def cut_bell(x: np.ndarray) -> np.ndarray:
    low, high = bell(np.array([-2.0, 2.0]))
    return (bell(x) - low) / (high - low)


G = {"generator": Generator(20)}
N = 20_000
DISTRIBUTIONS: list[tuple[str, Callable[[], Tensor], Callable[[np.ndarray], np.ndarray], float, float]] = [
    ("rand", lambda: Tensor.rand(N, **G), lambda x: x, 0.5, 1 / 12),
    ("uniform", lambda: Tensor.uniform(N, low=-3, high=5, **G), lambda x: (x + 3) / 8, 1.0, 64 / 12),
    ("randn", lambda: Tensor.randn(N, **G), bell, 0, 1),
    ("normal", lambda: Tensor.normal(N, mean=2, std=0.5, **G), lambda x: bell((x - 2) * 2), 2, 0.25),
    ("trunc_normal", lambda: Tensor.trunc_normal(N, **G), cut_bell, 0, 0.7737),
    ("exponential", lambda: Tensor.exponential(N, rate=2.0, **G), lambda x: 1 - np.exp(-2 * x), 0.5, 0.25),
    ("gumbel", lambda: Tensor.gumbel(N, **G), lambda x: np.exp(-np.exp(-x)), 0.5772, math.pi**2 / 6),
    ("scaled_uniform", lambda: Tensor.scaled_uniform(100, 200, **G),
     lambda x: (x * math.sqrt(N) + 1) / 2, 0, 1 / N / 3),
    ("xavier_uniform", lambda: Tensor.xavier_uniform(40, 20, 5, 5, **G),
     lambda x: (x / math.sqrt(6 / 1500) + 1) / 2, 0, 2 / 1500),
    ("xavier_normal", lambda: Tensor.xavier_normal(200, 100, **G), lambda x: bell(x / math.sqrt(2 / 300)), 0, 2 / 300),
    ("kaiming_uniform", lambda: Tensor.kaiming_uniform(40, 20, 5, 5, a=1, **G),
     lambda x: (x / math.sqrt(3 / 500) + 1) / 2, 0, 1 / 500),
    ("kaiming_normal", lambda: Tensor.kaiming_normal(200, 100, mode="fan_out", **G),
     lambda x: bell(x * 10), 0, 1 / 100),
]  # fmt: skip


def test_all_numbers_of_64_bits() -> None:
    for low, dtype in ((-(2**63), dtypes.int64), (0, dtypes.uint64)):
        x = Tensor.randint(low, low + 2**64, (4000,), dtype=dtype, generator=Generator(1)).numpy()
        quarters = np.bincount(((x.astype(object) - low) >> 62).astype(int), minlength=4)
        assert quarters.min() > 850 and len(np.unique(x)) == 4000
    high = Tensor.randint(2**64 - 3, 2**64, (50,), dtype=dtypes.uint64, generator=Generator(1)).tolist()
    assert set(high) == {2**64 - 3, 2**64 - 2, 2**64 - 1}


@pytest.mark.parametrize(("make", "distribution", "mean", "variance"), [d[1:] for d in DISTRIBUTIONS],
                         ids=[d[0] for d in DISTRIBUTIONS])  # fmt: skip
def test_distributions(make: Any, distribution: Any, mean: float, variance: float) -> None:
    G["generator"].manual_seed(20)
    x = make().numpy().astype(np.float64)
    assert ks(x, distribution) < 1.95
    assert abs(x.mean() - mean) < 4 * math.sqrt(variance / x.size)
    assert abs(x.var() / variance - 1) < 0.1


def test_calls_are_independent() -> None:
    G["generator"].manual_seed(23)
    a, b = Tensor.rand(N, **G), Tensor.rand(N, **G)
    assert abs(np.corrcoef(a.numpy(), b.numpy())[0, 1]) < 4 / math.sqrt(N)
    x = Tensor.rand(N, **G).numpy()
    assert abs(np.corrcoef(x[1:], x[:-1])[0, 1]) < 4 / math.sqrt(N)
    pairs = Tensor.randint(0, 16, (2, N), **G).numpy()
    counts = np.bincount(pairs[0] * 16 + pairs[1], minlength=256)
    assert ((counts - N / 256) ** 2 / (N / 256)).sum() < 255 + 4 * math.sqrt(2 * 255)


def test_order_of_computing_does_not_matter() -> None:
    Tensor.manual_seed(5)
    a, b = Tensor.rand(6), Tensor.randn(6)
    first_b, first_a = b.numpy(), a.numpy()
    Tensor.manual_seed(5)
    a = Tensor.rand(6)
    second_a = a.numpy()
    b = Tensor.randn(6)
    np.testing.assert_array_equal(first_a, second_a)
    np.testing.assert_array_equal(first_b, b.numpy())
    np.testing.assert_array_equal((a + 0).numpy(), first_a)
    Tensor.manual_seed(6)
    assert not np.array_equal(Tensor.rand(6).numpy(), first_a)


def test_generators_keep_their_place() -> None:
    g = Generator(11)
    Tensor.rand(3, generator=g)
    state = g.get_state()
    x = Tensor.rand(3, generator=g).numpy()
    np.testing.assert_array_equal(Tensor.rand(3, generator=Generator(0).set_state(state)).numpy(), x)
    assert g.initial_seed() == 11 and g.manual_seed(12).initial_seed() == 12 and g.seed() == g.initial_seed()


def test_equal_calls_share_a_kernel() -> None:
    from tinyweb.tracing import capture

    plan = capture(lambda: [Tensor.rand(64, generator=Generator(i)) for i in range(3)])
    assert len(plan.calls) == 3 and len(plan.kernels) == 1


@pytest.mark.parametrize("runtime", ("CPU", "WEBGPU"))
def test_replays_draw_new_numbers(runtime: str) -> None:
    g = Generator(7)

    @jit
    def step(x: Tensor) -> Tensor:
        return (x + Tensor.rand(4, device=runtime, generator=g)).realize()

    zero = Tensor.zeros(4, device=runtime).contiguous()
    got = [step(zero).numpy() for _ in range(4)]
    plain = Generator(7)
    for x in got:
        np.testing.assert_array_equal(x, Tensor.rand(4, generator=plain).numpy())


def test_like_another() -> None:
    x = Tensor.ones(2, 3, dtype=dtypes.float16)
    assert (x.rand_like().dtype, x.rand_like().shape) == (dtypes.float16, (2, 3))
    assert x.int().randn_like().dtype is dtypes.float32
    drawn = x.int().randint_like(3, 9)
    assert drawn.dtype is dtypes.int32 and drawn.numpy().min() >= 3 and drawn.numpy().max() < 9
    assert x.bernoulli(0.0).numpy().sum() == 0 and x.bernoulli(1.0).numpy().sum() == 6
    assert Tensor.rand(0, 3).shape == (0, 3) and Tensor.rand().shape == () and Tensor.randint(5, (2,)).shape == (2,)
    assert Tensor.randint(2, 3, low=0, high=5).shape == (2, 3)


@pytest.mark.parametrize(
    ("wrong", "error", "says"),
    [
        (lambda: Tensor.rand(3, dtype=dtypes.int32), TypeError, "rand: needs a float dtype"),
        (lambda: Tensor.randint(5, 5, (3,)), ValueError, "randint: needs whole numbers low < high, got 5 and 5"),
        (lambda: Tensor.randint(0, 300, (3,), dtype=dtypes.uint8), ValueError, "randint: 0 … 299 does not fit uint8"),
        (lambda: Tensor.rand(3, generator=7), TypeError, "generator= must be a tinyweb Generator, got int"),
        (lambda: Tensor.manual_seed(1.5), TypeError, "manual_seed: seed must be a whole number, got float 1.5"),
        (lambda: Tensor.ones(2).bernoulli(1.5), ValueError, r"bernoulli: p must be within \[0, 1\], got 1.5"),
        (lambda: Tensor.ones(2).int().bernoulli(), TypeError, "bernoulli: probabilities need a float dtype"),
        (lambda: Tensor.xavier_uniform(3), ValueError, "xavier_uniform: needs a shape"),
        (lambda: Tensor.kaiming_normal(3, 3, mode="in"), ValueError, "kaiming_normal: mode must be"),
    ],
)
def test_errors(wrong: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        wrong()


IN_PLACE: list[tuple[str, Callable[[Tensor], Tensor], Callable[[np.ndarray], np.ndarray]]] = [
    ("uniform_", lambda x: x.uniform_(2, 6, **G), lambda v: (v - 2) / 4),
    ("normal_", lambda x: x.normal_(1, 2, **G), lambda v: bell((v - 1) / 2)),
    ("exponential_", lambda x: x.exponential_(0.5, **G), lambda v: 1 - np.exp(-0.5 * v)),
    ("log_normal_", lambda x: x.log_normal_(0, 1, **G), lambda v: bell(np.log(v))),
    ("cauchy_", lambda x: x.cauchy_(1, 3, **G), lambda v: 0.5 + np.arctan((v - 1) / 3) / np.pi),
]


@pytest.mark.parametrize(("fill", "distribution"), [d[1:] for d in IN_PLACE], ids=[d[0] for d in IN_PLACE])
def test_filled_in_place(fill: Any, distribution: Any) -> None:
    G["generator"].manual_seed(21)
    x = Tensor.zeros(N)
    view = x[:5]
    assert fill(x) is x and ks(x.numpy(), distribution) < 1.95
    np.testing.assert_array_equal(view.numpy(), x.numpy()[:5])


def test_filled_with_whole_numbers() -> None:
    G["generator"].manual_seed(22)
    x = Tensor.zeros(N).geometric_(0.25, **G).numpy()
    assert x.min() == 1 and abs(x.mean() - 4) < 0.1 and abs((x == 1).mean() - 0.25) < 0.02
    y = Tensor.zeros(N, dtype=dtypes.int8).random_(**G).numpy()
    assert y.min() == 0 and y.max() == 127
    z = Tensor.zeros(N).bernoulli_(0.3, **G).numpy()
    assert abs(z.mean() - 0.3) < 0.02 and set(z) == {0, 1}
    with pytest.raises(TypeError, match="uniform_: the result is float32, which this int32 tensor cannot hold"):
        Tensor([1, 2]).uniform_()

"""Sorting and what is made of it: order statistics, bisection, counts, permutations, samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.native_runtimes.text.runtime import TEXTS
from tests.samples import slow_unless
from tests.tensor.ops import RUNTIMES, Op, data, gradients_test, values_test
from tinyweb import Generator, Tensor, dtypes, jit
from tinyweb.graph.schedule.origin import at_origin
from tinyweb.tensor import realize_all
from tinyweb.tracing import capture

INF, NAN = np.inf, np.nan
A, C = data(3, 5), data(2, 3, 4)
ODD = np.array([[3, NAN, -INF, 0, -0.0, INF, NAN, -1e-30], [2, 2, 1, 1, -1, 2, -INF, 1]], np.float32)
INFINITE = np.array([[INF, 1, 2], [-INF, INF, 0], [-INF, 1, INF]], np.float32)
TIES = np.random.default_rng(1).integers(-3, 3, (3, 40)).astype(np.float32)
LONG = np.random.default_rng(2).integers(-200, 200, (2, 700)).astype(np.float32)
INTS = np.array([[5, -3, 5, 2**31 - 1, -(2**31), 0], [1, 1, 1, 0, 0, 0]], np.int32)
EDGES = np.float32([-1, 0, 0, 0.5, 2])
POINTS = np.float32([[-2, -1, 0, 0.25], [0.5, 1, 2, NAN]])


def orders(axis: int) -> Any:
    """Sorted both ways along an axis, stably."""
    return lambda a: (
        *a.sort(dim=axis, stable=True),
        *a.sort(dim=axis, descending=True, stable=True),
        a.argsort(dim=axis, stable=True),
    )


def tops(a: Any) -> Any:
    return a.topk(3, dim=0)[0], a.topk(2, dim=-1, largest=False)[0], a.topk(0, dim=0)[0]


def middles(a: Any) -> Any:
    return a.median(), a.median(dim=0)[0], a.median(dim=-1, keepdim=True)[0], a.nanmedian(), a.nanmedian(dim=-1)[0]


def levels(*names: str) -> Any:
    """Quantiles of several kinds."""
    q = [0.0, 0.1, 0.5, 0.77, 1.0]

    def of(a: Any) -> Any:
        many = Tensor(q, device=a.device) if isinstance(a, Tensor) else torch.tensor(q)
        out = []
        for name in names:
            f = getattr(a, name)
            out += [f(0.3), f(many, dim=0), f(many, dim=-1, keepdim=True), f(many)]
            out += [f(0.6, dim=1, interpolation=i) for i in ("lower", "higher", "nearest", "midpoint")]
        return tuple(out)

    return of


def search(s: Any, v: Any) -> Any:
    if isinstance(s, Tensor):
        return s.searchsorted(v), s.searchsorted(v, right=True), v.bucketize(s), v.bucketize(s, right=True)
    return (torch.searchsorted(s, v), torch.searchsorted(s, v, right=True),
            torch.bucketize(v, s), torch.bucketize(v, s, right=True))  # fmt: skip


def rows_search(s: Any, v: Any) -> Any:
    return (s.searchsorted(v, side="right"),) if isinstance(s, Tensor) else (torch.searchsorted(s, v, side="right"),)


def counts(a: Any) -> Any:
    return a.histc(7), a.histc(4, -1, 1), (a * 0).histc(3)


OPS = [
    Op("sort", orders(-1), (A,), sample=True),
    Op("sort_axis", orders(1), (C,)),
    Op("sort_first", lambda a: (*orders(0)(a), a.msort()), (C,)),
    Op("sort_ties", orders(1), (TIES,), sample=True),
    Op("sort_odd", orders(1), (ODD,), gradient=False, sample=True),
    Op("sort_long", orders(1), (LONG,), sample=True),
    Op("sort_long_odd", orders(0), (np.concatenate([LONG[0], ODD[0], ODD[0]]),), gradient=False),
    Op("sort_long_axis", orders(0), (LONG.T.copy(),)),
    Op("sort_257", orders(0), (LONG[0, :257],)),
    Op("sort_int", orders(1), (INTS,), sample=True),
    Op("sort_int_long", orders(0), (LONG[0].astype(np.int32) % 50,)),
    Op("sort_uint8", orders(0), (np.array([200, 3, 255, 0, 3], np.uint8),)),
    Op("sort_bool", orders(0), (np.array([True, False, True, False]),)),
    Op("sort_half", orders(1), (ODD.astype(np.float16),), gradient=False),
    Op("sort_0d", orders(0), (np.float32(3),)),
    Op("sort_one", orders(0), (np.float32([[3, 4]]),)),
    Op("sort_none", orders(1), (np.zeros((2, 0), np.float32),), gradient=False),
    Op("topk", tops, (A,), sample=True),
    Op("topk_long", lambda a: (a.topk(5, dim=1)[0], a.kthvalue(200, dim=1)[0]), (LONG + data(2, 700),)),
    Op("kthvalue", lambda a: (*a.kthvalue(2), *a.kthvalue(1, dim=0, keepdim=True)), (A,)),
    Op("median", middles, (A,), sample=True),
    Op("median_even", middles, (C,)),
    Op("median_nan", middles, (np.float32([[NAN, 3, 1], [4, NAN, NAN], [NAN, NAN, NAN], [3, 2, 1]]),), gradient=False),
    Op("quantile", levels("quantile", "nanquantile"), (A,), sample=True),
    Op("quantile_nan", levels("quantile", "nanquantile"), (np.float32([[NAN, 3, 1], [4, NAN, NAN], [3, 2, 1]]),),
       gradient=False),
    Op("quantile_infinite", levels("quantile", "nanquantile"), (INFINITE,), gradient=False),
    Op("mode", lambda a: (a.mode()[0], a.mode(dim=0, keepdim=True)[0]), (TIES,), gradient=False, sample=True),
    Op("mode_gradient", lambda a: a.mode(), (np.float32([[1, 5, 2], [7, 3, 4]]),)),
    Op("mode_int", lambda a: (a.mode()[0], a.mode(dim=0)[0]), (INTS % 7,)),
    Op("searchsorted", search, (EDGES, POINTS), gradient=False, sample=True),
    Op("searchsorted_rows", rows_search, (np.sort(data(2, 9)), data(2, 4, seed=1)), gradient=False),
    Op("searchsorted_int", search, (np.array([1, 3, 3, 8], np.int32), np.array([0, 3, 9], np.int32))),
    Op("histc", counts, (A,), gradient=False, sample=True),
    Op("histogram", lambda a: tuple(a.histogram(5, range=(-1.0, 1.0))), (A,), gradient=False),
    Op("bincount", lambda a: (a.bincount(), a.bincount(minlength=9)), (np.array([1, 4, 1, 0], np.int32),)),
    Op("bincount_weights", lambda a, w: a.bincount(w), (np.array([1, 4, 1, 0], np.int32), data(4)),
       lambda a, w: a.bincount(w), gradient=False),
    Op("isin", lambda a, b: isin(a, b), (INTS, np.array([5, 0, 7], np.int32)), sample=True),
]  # fmt: skip


def isin(a: Any, b: Any) -> Any:
    return (a.isin(b), a.isin(b, invert=True)) if isinstance(a, Tensor) else (
        torch.isin(a, b), torch.isin(a, b, invert=True))  # fmt: skip


test_values = values_test(OPS)
test_gradients = gradients_test(OPS)


def test_a_hundred_thousand() -> None:
    x = np.random.default_rng(0).integers(0, 30_000, 100_003).astype(np.float32)
    t = Tensor(x)
    values, order = t.sort()
    (g,) = (values * Tensor.arange(x.size).float()).sum().gradient(t)
    values.realize(order, g)
    want = np.argsort(x, kind="stable")
    np.testing.assert_array_equal(order.numpy(), want)
    np.testing.assert_array_equal(values.numpy(), x[want])
    np.testing.assert_array_equal(g.numpy(), np.argsort(want))


def test_mode_says_where() -> None:
    values, places = Tensor(TIES).mode()
    np.testing.assert_array_equal(np.take_along_axis(TIES, places.numpy()[:, None], 1)[:, 0], values.numpy())


def test_unique() -> None:
    x = np.array([[3, 1, 3, 3], [1, 2, 1, 1]], np.int32)
    for axis in (None, 0, 1):
        got = Tensor(x).unique(return_inverse=True, return_counts=True, axis=axis)
        want = torch.from_numpy(x).unique(return_inverse=True, return_counts=True, dim=axis)
        run = Tensor(x).unique_consecutive(return_inverse=True, return_counts=True, axis=axis)
        want_run = torch.from_numpy(x).unique_consecutive(return_inverse=True, return_counts=True, dim=axis)
        for g, w in zip((*got, *run), (*want, *want_run), strict=True):
            assert g.dtype is dtypes.int32
            np.testing.assert_array_equal(g.numpy(), w.numpy())
    assert Tensor([2.0, 2.0, 1.0]).unique().tolist() == [1.0, 2.0]


def test_shapes_that_depend_on_values_cannot_be_recorded() -> None:
    with pytest.raises(RuntimeError, match="unique: the shape of the result depends on values"):
        jit(lambda x: x.unique())(Tensor([1.0, 2.0]).realize())


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_permutations(runtime: str) -> None:
    p = Tensor.randperm(50, device=runtime, generator=Generator(4)).numpy()
    assert sorted(p) == list(range(50)) and list(p) != list(range(50))
    np.testing.assert_array_equal(p, Tensor.randperm(50, device="CPU", generator=Generator(4)).numpy())


def test_samples_follow_their_weights() -> None:
    weights = np.array([[0, 1, 2, 0, 5], [3, 0, 0, 3, 0]], np.float32)
    drawn = Tensor(weights).multinomial(4000, replacement=True, generator=Generator(8)).numpy()
    for row, w in zip(drawn, weights, strict=True):
        share = np.bincount(row, minlength=5) / 4000
        assert np.all(share[w == 0] == 0) and np.abs(share - w / w.sum()).max() < 0.04
    many = np.tile(np.float32([1, 2, 0, 5]), (4000, 1))
    pairs = Tensor(many).multinomial(2, generator=Generator(9)).numpy()
    assert pairs.shape == (4000, 2) and np.all(pairs[:, 0] != pairs[:, 1]) and not np.any(pairs == 2)
    assert np.abs(np.bincount(pairs[:, 0], minlength=4) / 4000 - np.float32([1, 2, 0, 5]) / 8).max() < 0.04
    assert Tensor([0.0, 0.0, 1.0]).multinomial(3, replacement=True).tolist() == [2, 2, 2]


@pytest.mark.parametrize(
    ("wrong", "error", "says"),
    [
        (lambda a: a.sort(2), IndexError, "sort: axis 2 is outside of a tensor with 2 axes"),
        (lambda a: a.topk(6), ValueError, "topk: k must be between 0 and the size 5 of axis -1, got 6"),
        (lambda a: a.kthvalue(0), ValueError, "kthvalue: k must be between 1 and the size 5"),
        (lambda a: a.int().quantile(0.5), TypeError, "quantile: needs a float dtype, got int32"),
        (lambda a: a.quantile(1.5), ValueError, r"quantile: q must be within \[0, 1\], got 1.5"),
        (lambda a: a.quantile([0.5, 2.0]), ValueError, r"quantile: q must be within \[0, 1\], got \[0.5, 2.0\]"),
        (lambda a: a.quantile(0.5, interpolation="cubic"), ValueError, "quantile: interpolation must be one of linear"),
        (lambda a: a[:, :0].median(1), ValueError, r"median: axis 1 of \(3, 0\) has no elements"),
        (lambda a: a.histc(0), ValueError, "histc: the number of bins must be a whole number ≥ 1, got 0"),
        (lambda a: a.bincount(), TypeError, r"bincount: needs a vector of integers, got \(3, 5\) of float32"),
        (lambda a: Tensor([-1]).bincount(), ValueError, "bincount: the elements must not be negative"),
        (lambda a: a.searchsorted(a[:2]), ValueError, "searchsorted: .* differs before the last axis"),
        (lambda a: a.bucketize(a), ValueError, "bucketize: boundaries must be a vector"),
        (lambda a: a.multinomial(6), ValueError, "multinomial: cannot draw 6 of 5 elements"),
        (lambda a: Tensor.randperm(-1), ValueError, "randperm: needs a whole number ≥ 0, got -1"),
    ],
)
def test_errors(wrong: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        wrong(Tensor(A))


KEYS = {
    "ties": lambda rng, shape: rng.integers(-3, 3, shape).astype(np.int32),
    "floats": lambda rng, shape: rng.standard_normal(shape).astype(np.float32),
    "not numbers": lambda rng, shape: np.where(rng.random(shape) < 0.3, NAN, rng.integers(-2, 2, shape)).astype("f4"),
    "least": lambda rng, shape: np.full(shape, np.iinfo(np.int32).min, np.int32),
}


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize(("n", "k"), [(3, 1), (64, 31), (513, 1), (700, 8), (2600, 32), (5003, 3), (9000, 900)])
def test_the_first_of_a_stable_order(n: int, k: int, kind: str) -> None:
    x = KEYS[kind](np.random.default_rng(n), (2, n))
    found = [(largest, *Tensor(x).topk(k, largest=largest)) for largest in (True, False)]
    realize_all([t for _, values, order in found for t in (values, order)])
    for largest, values, order in found:
        key = (
            np.where(np.isnan(x), INF, x)
            if kind == "not numbers"
            else x.astype(np.int64 if x.dtype == np.int32 else np.float64)
        )
        want = np.argsort(-key if largest else key, axis=-1, kind="stable")[:, :k]
        np.testing.assert_array_equal(order.numpy(), want)
        np.testing.assert_array_equal(values.numpy(), np.take_along_axis(x, want, -1))


def test_gradient_of_the_first() -> None:
    x = np.random.default_rng(0).standard_normal((2, 600)).astype(np.float32)
    weight = np.float32([1, 2, 3, 4, 5])
    t, peer = Tensor(x), torch.tensor(x, requires_grad=True)
    (grad,) = (t.topk(5)[0] * Tensor(weight)).sum().gradient(t)
    (peer.topk(5)[0] * torch.tensor(weight)).sum().backward()
    assert peer.grad is not None
    np.testing.assert_array_equal(grad.numpy(), peer.grad.numpy())


SORTED = {
    "f4": lambda rng, shape: np.where(rng.random(shape) < 0.1, NAN, rng.integers(-2, 3, shape) * -0.5).astype("f4"),
    "f2": lambda rng, shape: (rng.normal(size=shape) * 10.0 ** rng.integers(-7, 4, shape)).astype("f2"),  # subnormals
    "i1": lambda rng, shape: rng.integers(-128, 128, shape).astype("i1"),
    "u4": lambda rng, shape: rng.integers(0, 1 << 32, shape).astype("u4"),
    "i8": lambda rng, shape: rng.integers(-5, 6, shape) << rng.integers(0, 60, shape),
    "bool": lambda rng, shape: rng.random(shape) < 0.5,
}


@pytest.mark.parametrize(
    ("kind", "device"),
    slow_unless(
        lambda kind, device: device == "CPU" or kind in ("f2", "i8"), SORTED, ("CPU", "WASM", "WEBGPU", "INTERPRETER")
    ),
)
def test_every_dtype_in_rows_short_and_long(device: str, kind: str) -> None:
    """By pairs, by digits in one block and in several; order statistics by digits; the first of one element."""
    for shape in ((2, 40), (70, 130), (1, 1003)):
        if device == "INTERPRETER" and shape != (2, 40):
            continue
        x = SORTED[kind](np.random.default_rng(shape[1]), shape)
        unknown = np.isnan(x) if x.dtype.kind == "f" else np.zeros(shape, bool)
        keys = x.astype(np.float64 if x.dtype.kind == "f" else np.int64)
        t = Tensor(x, device=device)
        orders = [t.argsort(1, descending) for descending in (False, True)]
        first = t.topk(1, 1)[1]
        values, places = t.kthvalue(shape[1] // 3, 1)
        realize_all([*orders, first, values, places])
        for descending, order in enumerate(orders):
            rows = zip(~keys if keys.dtype == np.int64 and descending else -keys if descending else keys, unknown)
            want = np.stack([np.lexsort((k, ~u if descending else u)) for k, u in rows])
            np.testing.assert_array_equal(order.numpy(), want, err_msg=f"{shape} {descending}")
        np.testing.assert_array_equal(first.numpy(), want[:, :1])
        np.testing.assert_array_equal(values.numpy(), x[np.arange(shape[0]), want[:, shape[1] - shape[1] // 3]])
        np.testing.assert_array_equal(x[np.arange(shape[0]), places.numpy()], values.numpy())


@pytest.mark.parametrize("device", ["CPU", "WEBGPU"])
def test_bytes_at_places_that_threads_find(device: str) -> None:
    """The place is found once, though a byte is stored as a part of a word and its place as a whole one."""
    x = np.random.default_rng(2).integers(-100, 100, (70, 130)).astype(np.int8)
    values, places = Tensor(x, device=device).kthvalue(43, 1)
    realize_all([values, places])
    np.testing.assert_array_equal(values.numpy(), np.sort(x, 1)[:, 42])
    np.testing.assert_array_equal(np.take_along_axis(x, places.numpy()[:, None], 1)[:, 0], values.numpy())


@pytest.mark.parametrize(
    ("device", "kind"),
    [
        *slow_unless(lambda d, k: d == "CPU" or k == ("f2" if d == "WASM" else "f4"), RUNTIMES, ("f2", "f4")),
        *slow_unless(lambda d, k: d in ("CPU", "CUDA_TEXT"), [d for d in RUNTIMES if d != "WEBGPU"], ("f8",)),
    ],
)
def test_zeros_infinities_and_nan_of_both_signs(device: str, kind: str) -> None:
    """In rows that are sorted by pairs and by digits: the zeros are equal, and so are all NaN, above the infinities."""
    rng, limits = np.random.default_rng(6), np.finfo(kind)
    special = [INF, -INF, 0.0, -0.0, NAN, -NAN, limits.max, -limits.max, limits.tiny / 4, -limits.tiny / 4]
    for n in (9, 300 if device == "INTERPRETER" else 1500):
        x = np.where(rng.random((2, n)) < 0.5, rng.choice(special, (2, n)), 20 * rng.standard_normal((2, n))).astype(
            kind
        )
        t, theirs = Tensor(x, device=device), torch.from_numpy(x)
        found = [t.argsort(-1), t.argsort(-1, True), t.topk(3)[0], t.median(-1)[0], t.kthvalue(n - 5)[0]]
        realize_all(found)
        orders = [torch.sort(theirs, stable=True, dim=-1, descending=descending)[1] for descending in (False, True)]
        for got, want in zip(found, (*orders, theirs.topk(3)[0], theirs.median(-1)[0], theirs.kthvalue(n - 5)[0])):
            np.testing.assert_array_equal(got.numpy(), want.numpy())


@pytest.mark.parametrize("device", [pytest.param(d, marks=pytest.mark.slow) if d in TEXTS else d for d in RUNTIMES])
def test_order_statistics_of_upper_words(device: str) -> None:
    """Elements that differ in their upper words alone have no digit of the lower ones in common."""
    x = np.array([[(3 << 32) + 5] * 900 + [1 << 32] * 700], np.int64)
    assert Tensor(x, device=device).kthvalue(1000)[0].numpy() == np.sort(x)[0, 999]


@pytest.mark.parametrize("n", [33, 300, 1003])
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("kind", ["f4", "f8", "i8", "u1"])
def test_the_first_of_many_by_the_last_of_them(n: int, largest: bool, kind: str) -> None:
    """Words of bits that do not divide a row, equal elements at the border, NaN."""
    x = np.random.default_rng(n).integers(0, 9 if kind == "u1" else n, (3, n)).astype(kind)
    if kind[0] == "f":
        x[:, ::7] = np.nan
    order = n - 1 - np.argsort(x[:, ::-1], 1, kind="stable")[:, ::-1] if largest else np.argsort(x, 1, kind="stable")
    keys, bits = Tensor(x)._order_keys(largest)
    for k in (1, n // 3, n - 1):
        assert np.array_equal(keys._least(k, bits).numpy(), order[:, :k])


@pytest.mark.parametrize("n", [7, 40, 700])
def test_modes_in_rows_of_any_length(n: int) -> None:
    x = np.random.default_rng(n).integers(-3, 4, (2, n))
    values, places = Tensor(x).mode()
    assert np.array_equal(values.numpy(), torch.tensor(x).mode()[0].numpy())
    assert np.array_equal(np.take_along_axis(x, places.numpy()[:, None], 1)[:, 0], values.numpy())


def test_passes_of_a_sort_are_one_program() -> None:
    """Eight of 8 bits each; the first reads keys as they lie."""
    x = Tensor(np.random.default_rng(0).permutation(3000).astype(np.int64)).realize()
    calls = capture(lambda: x.sort()).calls
    assert len(calls) > 30
    assert len({at_origin(call.kernel)[0] for call in calls}) <= 14

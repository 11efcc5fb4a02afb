"""Reductions: sums, extrema, truth, moments, norms, sums of exponentials."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tests.samples import slow_unless
from tests.tensor.ops import RUNTIMES, Op, data, gradients_test, values_test
from tinyweb import Tensor, Variable, dtypes
from tinyweb.tensor import realize_all

INF, NAN = np.inf, np.nan
A, C = data(3, 5), data(2, 3, 4)
ODD = np.array([[1, NAN, 3], [INF, -INF, 2], [INF, 1, 2], [-0.0, 0, -1]], np.float32)
TIES = np.array([[1, 3, 3], [2, 2, 2], [-1, -5, -5]], np.float32)
ZEROS = np.array([[0, 0, 0], [1, 0, 2]], np.float32)
INTS = np.array([[3, -1, 7], [0, 5, -9]], np.int32)
BYTES = np.array([[200, 100, 0], [255, 0, 1]], np.uint8)
BOOLS = np.array([[True, False], [False, False], [True, True]])
NONE = np.zeros((2, 0, 3), np.float32)
EXTREME = np.array([[1e4, -1e4, 0], [-INF, 0, 1], [-INF, -INF, -INF], [88, 89, 90]], np.float32)


def along(*names: str) -> Callable[[Any], tuple[Any, ...]]:
    """Methods over all axes, one, several, and one that is kept."""

    def of(a: Any) -> tuple[Any, ...]:
        out = []
        for name in names:
            f = getattr(a, name)
            out += [f(), f(dim=0), f(dim=-1, keepdim=True)] + ([f(dim=(0, 2))] if a.ndim > 2 else [])
        return tuple(out)

    return of


def each(*names: str) -> Callable[[Any], tuple[Any, ...]]:
    """Methods over one axis."""
    return lambda a: tuple(getattr(a, name)(dim=d) for name in names for d in (0, -1))


def extrema(a: Any) -> tuple[Any, ...]:
    if isinstance(a, Tensor):
        return a.max(), a.min(), a.max(1), a.min(0, keepdim=True), a.amax(1), a.amin(0), *a.aminmax()
    return (a.max(), a.min(), a.amax(1), a.amin(0, keepdim=True), a.amax(1), a.amin(0), *a.aminmax())


def arguments(a: Any) -> tuple[Any, ...]:
    return a.argmax(), a.argmin(), a.argmax(dim=1), a.argmin(dim=0, keepdim=True), a.argmax(dim=-1, keepdim=True)


def variances(a: Any) -> tuple[Any, ...]:
    plain = (a.var(), a.std(), a.var(dim=0), a.std(dim=-1, keepdim=True))
    corrected = (a.var(dim=0, correction=0), a.std(dim=0, unbiased=False), a.var(dim=1, correction=2))
    return *plain, *corrected, *var_mean(a), *var_mean(a, dim=0, keepdim=True)


def var_mean(a: Any, **options: Any) -> tuple[Any, ...]:
    if isinstance(a, Tensor):
        return *a.var_mean(**options), *a.std_mean(**options)
    return *torch.var_mean(a, **options), *torch.std_mean(a, **options)


def norms(*orders: float) -> Callable[[Any], tuple[Any, ...]]:
    return lambda a: tuple(a.norm(p, dim=1) for p in orders) + tuple(a.norm(p) for p in orders)


def of(a: Any, name: str) -> Any:
    return getattr(dtypes if isinstance(a, Tensor) else torch, name)


OPS = [
    Op("sum", along("sum", "mean", "nansum", "nanmean"), (C,), sample=True),
    Op("sum_0d", lambda a: (a.sum(), a.mean(), a.sum(dim=0), a.var(correction=0), a.prod()), (np.float32(3),)),
    Op("sum_none", lambda a: (a.sum(), a.sum(dim=1), a.sum(dim=0), a.prod(dim=1), a.mean(dim=1), a.sum(dim=())),
       (NONE,), gradient=False),
    Op("sum_odd", along("sum", "mean", "nansum", "nanmean"), (ODD,), gradient=False, sample=True),
    Op("sum_nan", along("nansum", "nanmean"), (np.float32([[1, NAN, 3], [2, 5, NAN]]),)),
    Op("sum_int", lambda a: (a.sum(), a.sum(dim=0), a.prod(), a.prod(dim=1), a.count_nonzero(dim=0)), (INTS,),
       sample=True),
    Op("sum_bytes", lambda a: (a.sum(), a.sum(dim=0), a.prod(dim=1)), (BYTES,), sample=True),
    Op("sum_bool", lambda a: (a.sum(), a.sum(dim=1), a.count_nonzero(), a.prod(dim=1)), (BOOLS,)),
    Op("sum_dtype", lambda a: (a.sum(dtype=of(a, "float32")), a.mean(dim=0, dtype=of(a, "float32")),
                               a.prod(dim=0, dtype=of(a, "float32"))), (INTS,)),
    Op("sum_half", lambda a: (a.sum(), a.mean(dim=0), a.var(dim=1)), (A.astype(np.float16),), rtol=1e-3),
    Op("sum_long", lambda a: (a.sum(), a.mean(), a.std(), a.max(), a.logsumexp(0)), (data(10_007),), atol=1e-5,
       gradient=False, sample=True),
    Op("prod", lambda a: (a.prod(), a.prod(dim=1), a.prod(dim=0, keepdim=True)), (C,), sample=True),
    Op("prod_zeros", lambda a: (a.prod(dim=1), a.prod(dim=0)), (ZEROS,)),
    Op("extrema", extrema, (C,), sample=True),
    Op("extrema_ties", lambda a: (a.amax(dim=1), a.amin(dim=1), a.amax(dim=(0, 1))), (TIES,)),
    Op("extrema_all_ties", lambda a: (a.max(), a.min()), (TIES,)),
    Op("extrema_odd", extrema, (ODD,), gradient=False, sample=True),
    Op("extrema_int", extrema, (INTS,), sample=True),
    Op("extrema_bytes", extrema, (BYTES,)),
    Op("extrema_bool", lambda a: (a.amax(dim=0), a.amin(dim=0)), (BOOLS,)),
    Op("extrema_of_two", lambda a, b: (a.max(b), a.min(b)), (A, A[::-1].copy() + 0.1)),
    Op("arguments", arguments, (A,), sample=True, gradient=False),
    Op("arguments_odd", arguments, (ODD,), sample=True, gradient=False),
    Op("arguments_ties", lambda a: (a.argmax(dim=1), a.argmin(dim=1)), (TIES[:2],), gradient=False),
    Op("arguments_int", arguments, (INTS,)),
    Op("arguments_0d", lambda a: (a.argmax(), a.argmin(dim=0)), (np.float32(3),), gradient=False),
    Op("truth", along("any", "all"), (BOOLS,), sample=True),
    Op("truth_float", along("any", "all"), (ODD,), gradient=False),
    Op("truth_none", lambda a: (a.any(), a.all(), a.any(dim=1), a.all(dim=1)), (NONE,), gradient=False),
    Op("variance", variances, (C,), sample=True),
    Op("variance_equal", lambda a: (a.std(), a.var(), a.std(dim=0)), (np.ones((3, 2), np.float32),)),
    Op("variance_one", lambda a: (a.std(), a.var(), a.var(dim=0), a.var(dim=1)), (np.ones((1, 2), np.float32),),
       gradient=False),
    Op("variance_offset", lambda a: (a.var(dim=1), a.std()), (data(3, 100) + 1000,), gradient=False, rtol=1e-4),
    Op("norm", norms(2, 1, INF, -INF, 0, 3, 0.5, 2.5, -1.5), (A,), gradient=False, sample=True),
    Op("norm_gradient", norms(2, 1, INF, -INF, 3, 0.5, -1.5), (A,), sample=True),
    Op("norm_zero", norms(2, 1, INF, 3), (ZEROS,)),
    Op("norm_none", lambda a: (a.norm(dim=1), a.norm(1, dim=1)), (NONE,), gradient=False),
    Op("norm_keep", lambda a: (a.norm(dim=(0, 2), keepdim=True), a.norm("fro"), a.dist(a * 2)), (C,)),
    Op("cov", lambda a: (a.cov(), a.cov(correction=0), a[0].cov(), a.corrcoef()), (A,), atol=4e-6, sample=True),
    Op("softmax", each("softmax", "log_softmax"), (C * 4,), sample=True),
    Op("softmin", lambda a: a.softmin(1), (C,), lambda a: torch.nn.functional.softmin(a, 1)),
    Op("softmax_extreme", each("softmax", "log_softmax"), (EXTREME,), gradient=False, sample=True),
    Op("softmax_0d", lambda a: (a.softmax(0), a.log_softmax(0)), (np.float32(3),)),
    Op("softmax_none", lambda a: (a.softmax(1), a.log_softmax(0)), (NONE,), gradient=False),
    Op("softmax_dtype", lambda a: a.softmax(1, dtype=of(a, "float32")), (INTS,)),
    Op("softmax_half", lambda a: a.softmax(1), (A.astype(np.float16),), rtol=2e-3, gradient=False),
    Op("logsumexp", lambda a: (a.logsumexp(1), a.logsumexp((0, 2), keepdim=True)), (C,), sample=True),
    Op("logsumexp_extreme", lambda a: (a.logsumexp(1), a.logsumexp(0)),
       (np.concatenate([EXTREME, np.float32([[INF, 0, -INF]])]),), gradient=False),
    Op("logsumexp_large", lambda a: a.logsumexp(1), (EXTREME[[0, 1, 3]],)),
    Op("logsumexp_int", lambda a: a.logsumexp(1), (INTS,)),
    Op("logsumexp_none", lambda a: a.logsumexp(1), (NONE,), gradient=False),
]  # fmt: skip

test_values = values_test(OPS)
test_gradients = gradients_test(OPS)


def test_symbolic_sizes() -> None:
    x = data(9, 4)
    n = Variable("n", 2, 9).bind(5)
    part = Tensor(x)[:n]
    np.testing.assert_allclose(part.mean(0).numpy(), x[:5].mean(0), rtol=1e-5)
    np.testing.assert_allclose(part.var(0).numpy(), x[:5].var(0, ddof=1), rtol=1e-5)
    np.testing.assert_array_equal(part.argmax(0).numpy(), x[:5].argmax(0))
    np.testing.assert_allclose(part.logsumexp(0).numpy(), np.log(np.exp(x[:5]).sum(0)), rtol=1e-5)


def test_gradients_are_finite_where_pytorchs_are_not() -> None:
    x = Tensor([[-INF, -INF], [0.0, -INF]])
    (g,) = x.logsumexp(1)[1:].sum().gradient(x)
    assert g.tolist() == [[0.0, 0.0], [1.0, 0.0]]


def test_allclose() -> None:
    x = Tensor([1.0, NAN])
    assert x.allclose(x, equal_nan=True) and not x.allclose(x) and Tensor([1.0]).allclose([1.000001])


@pytest.mark.parametrize(
    ("wrong", "error", "says"),
    [
        (lambda a: a.sum(2), IndexError, "sum: axis 2 is outside of a tensor with 2 axes"),
        (lambda a: a.sum((0, 0)), ValueError, "sum: axis .* names an axis twice"),
        (lambda a: a.sum(0, dim=1), TypeError, "sum"),
        (lambda a: a.int().mean(), TypeError, "mean: needs a float dtype, got int32"),
        (lambda a: (a > 0).var(), TypeError, "var: needs a float dtype, got bool"),
        (lambda a: a.int().norm(), TypeError, "norm: needs a float dtype, got int32"),
        (lambda a: a.norm("nuc"), ValueError, "norm: p must be a number"),
        (lambda a: a[:, :0].max(1), ValueError, r"max: no elements along the reduced axes \(1,\) of \(3, 0\)"),
        (lambda a: a[:0].min(), ValueError, "min: no elements"),
        (lambda a: a[:0].argmax(0), ValueError, "argmax: no elements"),
        (lambda a: a.argmin(4), IndexError, "argmin: axis 4"),
        (lambda a: a.softmax(2), IndexError, "softmax: axis 2"),
        (lambda a: Tensor(1.0).sum(1), IndexError, "sum: axis 1"),
    ],
)
def test_errors(wrong: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        wrong(Tensor(A))


@pytest.mark.parametrize("name", ["sum", "nansum", "prod"])
def test_sums_and_products_as_bool(name: str) -> None:
    x = np.array([[-0.25, 1.75, 0], [0, 0, 0], [0.5, 0.25, 1]], np.float32)
    want = getattr(torch.from_numpy(x), name)(1, dtype=torch.bool)
    got = getattr(Tensor(x), name)(1, dtype="bool")
    assert got.dtype.name == "bool" and got.tolist() == want.tolist()


LONG = (
    *(((2, 262_147), 1), ((300_001, 2), 0), ((2, 262_146, 2), 1), ((262_145,), 0)),
    *(((128_256,), 0), ((3, 65_538), 1), ((70_000, 2), 0), ((65_537,), 0)),  # in parts, where they are divided
)


@pytest.mark.parametrize(
    ("shape_axis", "device"),
    slow_unless(
        lambda long, device: device == "CPU" or long is LONG[2] or (device == "WEBGPU" and LONG.index(long) % 2 == 1),
        LONG,
        RUNTIMES,
    ),
)
def test_the_first_extremum_of_a_long_axis(shape_axis: tuple[tuple[int, ...], int], device: str) -> None:
    """Of an axis that is looked at in blocks, or in parts side by side: ties, integers, NaN."""
    shape, axis = shape_axis
    rng = np.random.default_rng(5)
    x = rng.integers(0, 50, shape).astype(np.float32)
    odd = np.where(rng.random(shape) < 1e-5, NAN, x).astype(np.float32)
    found = []
    for values in (x, x.astype(np.int32), odd):  # of tensors of their own: each is found by itself
        found.append((Tensor(values, device=device).argmax(axis), np.argmax(values, axis)))
        found.append((Tensor(values, device=device).argmin(axis, True), np.argmin(values, axis, keepdims=True)))
    realize_all([got for got, _ in found])
    for got, want in found:
        np.testing.assert_array_equal(got.numpy(), want)

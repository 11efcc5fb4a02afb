"""Integers at the ends of their types, shifts at the width, updates in place whose sizes no tile divides."""

from __future__ import annotations

import numpy as np
import pytest

from tinyweb import Tensor

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
RUNTIMES = ("CPU", "INTERPRETER")


def ends(dtype: str) -> np.ndarray:
    """Rows with the least and the largest number of a type at different places, twice each."""
    info = np.iinfo(dtype)
    near = [info.max - 1, info.max, 1, 0, info.min, info.min + 1, info.max, info.min]
    return np.array([near, near[::-1], near[3:] + near[:3], [info.min] * 8, [info.max] * 8], dtype)


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_extrema_of_integers(dtype: str, runtime: str) -> None:
    x = ends(dtype)
    a = Tensor(x, device=runtime)
    found = [a.argmin(1), a.argmax(1), a.argmin(0), a.argmax(0), a.min(1), a.max(1), a.argmin(), a.argmax()]
    wanted = [x.argmin(1), x.argmax(1), x.argmin(0), x.argmax(0), x.min(1), x.max(1), x.argmin(), x.argmax()]
    found[0].realize(*found[1:])
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(got.numpy(), want)


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_shifts_at_the_width(dtype: str, runtime: str) -> None:
    """To the left by the width or more nothing is left, to the right only the sign; by one less, one bit."""
    info = np.iinfo(dtype)
    values = [info.min, info.max, 1, 0, info.max - 1]
    amounts = [0, 1, info.bits - 1, info.bits, info.bits + 1]
    x, by = (g.ravel() for g in np.meshgrid(np.array(values, dtype), np.array(amounts, dtype)))
    pairs = [(int(a), int(b)) for a, b in zip(x, by)]
    wrap = lambda v: (v - info.min) % 2**info.bits + info.min  # noqa: E731
    left = [wrap(a << b) if b < info.bits else 0 for a, b in pairs]
    right = [a >> b if b < info.bits else (-1 if a < 0 else 0) for a, b in pairs]
    a, b = Tensor(x, device=runtime), Tensor(by, device=runtime)
    found, wanted = [a << b, a >> b], [np.array(left, dtype), np.array(right, dtype)]
    for n in amounts:  # constants are folded, or spelled into the kernel
        found += [a << n, a >> n]
        wanted += [np.array([wrap(v << n) if n < info.bits else 0 for v in x.tolist()], dtype)]
        wanted += [np.array([v >> n if n < info.bits else (-1 if v < 0 else 0) for v in x.tolist()], dtype)]
    found[0].realize(*found[1:])
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(got.numpy(), want)


@pytest.mark.parametrize("device", ["CPU", "WASM"])
@pytest.mark.parametrize(("m", "k", "n"), [(37, 29, 23), (101, 203, 77), (5, 700, 33)])
def test_products_added_in_place(m: int, k: int, n: int, device: str) -> None:
    """A last block that began earlier would add some products twice."""
    rng = np.random.default_rng(m)
    a, b, c = (rng.integers(-4, 5, s).astype(np.float32) for s in ((m, k), (k, n), (m, n)))  # sums are exact
    x = Tensor(c, device=device).realize()
    x += Tensor(a, device=device) @ Tensor(b, device=device)
    np.testing.assert_array_equal(x.numpy(), c + a @ b)


@pytest.mark.parametrize("size", [5, 33, 1001])
def test_elements_changed_in_place(size: int) -> None:
    x = Tensor(np.arange(size, dtype=np.float32)).realize()
    x += x * 2 + 1
    np.testing.assert_array_equal(x.numpy(), np.arange(size) * 3 + 1)

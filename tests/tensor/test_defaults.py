"""Methods called with only what they need, and refusals no grid reaches, beside PyTorch (see test_formulas.py)."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.tensor.graph_values import outcome, value
from tests.tensor.ops import data
from tests.tensor.test_formulas import SQUARE, A, C, V, agree, like, same
from tinyweb import Tensor


def test_without_options() -> None:
    for name in (
        "sort",
        "argsort",
        "softmax",
        "logsumexp",
        "median",
        "mode",
        "diff",
        "tril",
        "triu",
        "diagonal",
        "flatten",
        "msort",
    ):
        if name not in ("softmax", "logsumexp"):
            same(name, on=(A,), slope=0)
    for name in (
        "sum",
        "mean",
        "std",
        "var",
        "amax",
        "amin",
        "argmax",
        "argmin",
        "min",
        "max",
        "prod",
        "all",
        "any",
        "norm",
    ):
        same(name, on=(C,), slope=0)
    same("topk", 2)
    same("kthvalue", 2)
    for name in ("argmax", "argmin"):
        for axis, keep in itertools.product((None, 0, -1, 3), (False, True)):
            same(name, axis, keep, on=(C,), slope=0)
    for name in ("argmax", "argmin", "amax", "amin", "min", "max"):
        same(name, on=(np.zeros((0, 3), np.float32),), slope=0)
    like("conv1d", F.conv1d, on=(data(1, 2, 5), data(3, 2, 2)))
    like("conv2d", F.conv2d, on=(data(2, 5, 5), data(3, 2, 2, 2)))
    like("conv3d", F.conv3d, on=(data(1, 1, 3, 3, 3), data(1, 1, 2, 2, 2)))
    for n, shape in ((1, (1, 2, 5)), (2, (1, 2, 3, 4)), (3, (1, 2, 2, 3, 3))):
        name = f"conv_transpose{n}d"
        like(name, getattr(F, name), on=(data(*shape), data(2, 3, *(2,) * n)))
        for kind in ("max", "avg"):
            like(f"{kind}_pool{n}d", getattr(F, f"{kind}_pool{n}d"), 2, on=(data(*shape),))
    for name, given in {
        "leaky_relu": (),
        "hardtanh": (),
        "elu": (),
        "celu": (),
        "softplus": (),
        "hardshrink": (),
        "softshrink": (),
        "glu": (),
        "gelu": (),
        "normalize": (),
    }.items():
        like(name, getattr(F, name), *given, on=(data(4, 6),))


def test_made_tensors() -> None:
    for n, m in itertools.product((0, 1, 3), (None, 0, 2, 4)):
        got = value(Tensor.eye(n, m, device="INTERPRETER"))
        assert got.tolist() == np.eye(n, m).tolist() and got.shape == (n, n if m is None else m)
    for start, stop, steps in ((0, 1, 5), (2, -3, 4), (1, 1, 1), (0, 5, 1), (3, 4, 0), (-1, 1, 2)):
        np.testing.assert_allclose(
            value(Tensor.linspace(start, stop, steps, device="INTERPRETER")),
            torch.linspace(start, stop, steps).numpy(),
            rtol=1e-5,
        )
    given: Any
    for given in ((5,), (1, 5), (0, 10, 3), (5, 0, -2), (0.5, 3), (0, 1, 0.3), (1, 0, -0.25), (3, 3)):
        np.testing.assert_allclose(value(Tensor.arange(*given)), torch.arange(*given).numpy(), rtol=1e-5)
    for rows, columns, offset in itertools.product((0, 1, 3), (1, 4), (-2, 0, 1)):
        for name in ("tril_indices", "triu_indices"):
            got = value(getattr(Tensor, name)(rows, columns, offset, device="INTERPRETER"))
            assert got.tolist() == getattr(torch, name)(rows, columns, offset).tolist()


def test_functions_at_special_places() -> None:
    x = np.array([-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 30.0, -30.0], np.float32)
    for name in (
        "expm1",
        "log1p",
        "exp2",
        "erf",
        "erfc",
        "sigmoid",
        "log_sigmoid",
        "tanh",
        "sinh",
        "cosh",
        "asinh",
        "atan",
    ):
        if name == "log_sigmoid":
            like(name, F.logsigmoid, on=(x[:7],))
        else:
            same(name, on=(x[:7],))
    for name in ("asin", "acos", "atanh"):
        same(name, on=(data(9, low=-0.9, high=0.9),))
    for name in ("sqrt", "rsqrt", "log", "log2", "log10", "acosh"):
        same(name, on=(data(9, low=1.1, high=5.0),))
    bases = np.array([-2.0, -1.0, 1.0, 2.0, 0.0, -0.5], np.float32)
    for powers in ((2, -2, 3, -1, 0, 1), (0.5, 1.5, -0.5, 2, -3, 0)):
        exponent = np.array(powers, np.float32)
        same("pow", on=(bases, exponent), slope=0)
        same("float_power", on=(np.abs(bases) + 1, exponent), slope=0)
    ints = np.array([-3, -1, 0, 1, 2, 5], np.int32)
    for n in (0, 1, 2, 3):
        same("pow", n, on=(ints,))
    for n in (True, False):
        same("pow", n, on=(bases,), slope=0)


def test_attention() -> None:
    q, k, v = data(2, 4, 3, 8), data(2, 4, 5, 8, seed=1), data(2, 4, 5, 6, seed=2)
    mask = data(3, 5)
    f = F.scaled_dot_product_attention
    like("scaled_dot_product_attention", f, on=(q, k, v))
    like("scaled_dot_product_attention", f, on=(q, k, v), scale=0.3)
    like("scaled_dot_product_attention", f, on=(q, k, v), is_causal=True)
    like("scaled_dot_product_attention", f, on=(q, k, v, mask))
    like("scaled_dot_product_attention", f, on=(q, k, v, mask > 0), slope=0)
    like("scaled_dot_product_attention", f, on=(q, k[:, :2].copy(), v[:, :2].copy()), enable_gqa=True)
    for wrong in ((q, k, v[..., :4, :].copy()), (q, k[..., :6].copy(), v)):
        like("scaled_dot_product_attention", f, on=wrong, slope=0)


def test_decompositions() -> None:
    symmetric = (SQUARE + SQUARE.T).astype(np.float32)
    t = Tensor(symmetric, device="INTERPRETER")
    values, vectors = (value(x) for x in t.eigh())
    np.testing.assert_allclose(values, np.linalg.eigvalsh(symmetric), rtol=1e-4)
    np.testing.assert_allclose(vectors @ np.diag(values) @ vectors.T, symmetric, atol=1e-3)
    for shape in ((3, 4), (4, 3), (3, 3)):
        x = data(*shape)
        for full in (True, False):
            u, s, v = (value(p) for p in Tensor(x, device="INTERPRETER").svd(full))
            want = np.linalg.svd(x, full_matrices=full)
            assert [u.shape, s.shape, v.shape] == [w.shape for w in want]
            np.testing.assert_allclose(s, want[1], rtol=1e-4)
            np.testing.assert_allclose(u[:, :3] * s @ v[:3], x, atol=1e-4)


def test_words_of_refusals() -> None:
    t = Tensor(A, device="INTERPRETER")
    with pytest.raises(IndexError, match="an index may hold only one Ellipsis"):
        t[..., ...]
    with pytest.raises(IndexError, match=r"too many indices \(3\) for the shape \(3, 4\)"):
        t[0, 0, 0]
    with pytest.raises(IndexError, match=r"index 3 is outside of axis 0 of \(3, 4\)"):
        t[[0, 3]]
    with pytest.raises(IndexError, match=r"index -4 is outside of axis 0 of \(3, 4\)"):
        t[[0, -4]]
    for wrong in (
        lambda: t.scatter_reduce(0, [[0]], 1.0, "median"),
        lambda: t.gather(0, [0, 1]),
        lambda: t.split([4, -1]),
        lambda: t.inverse(),
        lambda: t.split((2, 2)),
        lambda: t.argmax(2),
        lambda: t.embedding(Tensor([0]), 3),
    ):
        assert outcome(wrong) is None
    for index, accepted in ((2, True), (-3, True), (3, False), (-4, False)):
        ids = Tensor(np.array([0, 2]), device="INTERPRETER")
        assert (outcome(lambda: t.embedding(ids, index)) is not None) == accepted  # noqa: B023
    same("broadcast_to", (2, 3, 4), on=(A,))
    agree("ones", lambda a, b: a + b, lambda a, b: a + b, data(1, 1), data(1))
    agree("vector", lambda a, b: a * b, lambda a, b: a * b, V, data(3, 1))

"""Methods that compute, over grids of their options: values and gradients of the graph beside PyTorch's."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from tests.tensor.graph_values import outcome, value
from tests.tensor.ops import data
from tinyweb import Tensor

A, B, V, C = data(3, 4), data(3, 4, seed=1), data(4), data(2, 3, 4)
SQUARE = data(3, 3) + 3 * np.eye(3, dtype=np.float32)
POSITIVE = (SQUARE @ SQUARE.T).astype(np.float32)
BATCH = np.stack([SQUARE, SQUARE.T + 1])


def agree(what: str, mine: Callable[..., Any], theirs: Callable[..., Any], *arrays: np.ndarray, slope: int = 9) -> None:
    """Both refuse, or values, shapes and gradients of the float inputs among the first `slope` are equal."""
    ours = [Tensor(a, device="INTERPRETER") for a in arrays]
    other = [torch.from_numpy(a.copy()) for a in arrays]
    floats = [i for i, a in enumerate(arrays[:slope]) if a.dtype.kind == "f"]
    for i in floats:
        other[i].requires_grad_()
    got, want = outcome(lambda: mine(*ours)), outcome(lambda: theirs(*other))
    assert (got is None) == (want is None), (
        f"{what}: {'refused' if got is None else 'accepted'}, PyTorch does not agree"
    )
    if want is None:
        return
    for a, b in zip(got, want, strict=True):
        assert np.shape(a) == np.shape(b), f"{what}: shape {np.shape(a)}, PyTorch has {np.shape(b)}"
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5, err_msg=what)
    if not floats:
        return
    total = theirs(*other)
    total = total[0] if isinstance(total, tuple | list) else total
    mine_total = mine(*ours)
    mine_total = mine_total[0] if isinstance(mine_total, tuple | list) else mine_total
    weights = data(*total.shape, seed=9)
    grads = torch.autograd.grad(
        (total * torch.from_numpy(weights)).sum(), [other[i] for i in floats], allow_unused=True
    )
    loss = (mine_total * Tensor(weights, device="INTERPRETER")).sum()
    found = loss.gradient(*(ours[i] for i in floats), allow_unused=True)
    for g, wanted in zip(found, grads, strict=True):
        if wanted is not None:
            slopes = np.zeros(wanted.shape) if g is None else value(g)
            np.testing.assert_allclose(slopes, wanted.numpy(), rtol=1e-3, atol=1e-4, err_msg=f"{what}: gradient")


def same(name: str, *args: Any, on: tuple[np.ndarray, ...] = (A,), slope: int = 9, **keywords: Any) -> None:
    """A method that PyTorch's tensors have, too."""
    call = lambda t, *more: getattr(t, name)(*more, *args, **keywords)  # noqa: E731
    agree(f"{name} {args} {keywords}", call, call, *on, slope=slope)


def like(
    name: str, theirs: Any, *args: Any, on: tuple[np.ndarray, ...] = (A,), slope: int = 9, **keywords: Any
) -> None:
    """A method that is a function of PyTorch's."""
    agree(
        f"{name} {args} {keywords}",
        lambda t, *m: getattr(t, name)(*m, *args, **keywords),
        lambda *t: theirs(*t, *args, **keywords),
        *on,
        slope=slope,
    )


def test_activations() -> None:
    x = data(4, 6, low=-4, high=4)
    for name in (
        "relu",
        "relu6",
        "hardsigmoid",
        "hardswish",
        "selu",
        "silu",
        "mish",
        "softsign",
        "tanhshrink",
        "logsigmoid",
    ):
        like(name, getattr(F, name), on=(x,))
    options: dict[str, list[Any]] = {
        "hardtanh": [(-1.0, 1.0), (-2.0, 0.5)],
        "leaky_relu": [(0.01,), (0.3,)],
        "hardshrink": [(0.5,), (1.5,)],
        "softshrink": [(0.5,), (1.5,)],
        "elu": [(1.0,), (0.5,)],
        "celu": [(1.0,), (0.5,)],
        "softplus": [(1.0, 20.0), (2.0, 3.0)],
        "threshold": [(0.5, 7.0)],
        "glu": [(-1,), (0,), (1,), (2,)],
    }
    for name, choices in options.items():
        for given in choices:
            like(name, getattr(F, name), *given, on=(x,))
    for approximate in ("none", "tanh", "other"):
        like("gelu", F.gelu, on=(x,), approximate=approximate)
    like("prelu", F.prelu, on=(x, data(6)))
    like("prelu", F.prelu, on=(x, data(1)))
    for axis in (-3, -2, -1, 0, 1, 2):
        for name in ("softmax", "log_softmax"):
            same(name, axis, on=(x,))
        like("softmin", F.softmin, axis, on=(x,))


REDUCTIONS = ("mean", "sum", "none", "other")


def test_losses() -> None:
    x, y, p = data(4, 5), data(4, 5, seed=2), data(4, 5, low=0.05, high=0.95)
    target, sign = np.array([0, 4, 2, 2]), np.sign(data(4, 5, seed=3))
    for reduction in REDUCTIONS:
        r: dict[str, Any] = {"reduction": reduction}
        for name in ("mse_loss", "l1_loss", "soft_margin_loss"):
            like(name, getattr(F, name), on=(x, sign if "margin" in name else y), **r, slope=1)
        for beta in (0.0, 0.5, 1.0):
            like("smooth_l1_loss", F.smooth_l1_loss, on=(x, y), beta=beta, **r, slope=1)
        for delta in (0.5, 1.5):
            like("huber_loss", F.huber_loss, on=(x, y), delta=delta, **r, slope=1)
        for log_input, full in itertools.product((False, True), repeat=2):
            like(
                "poisson_nll_loss",
                F.poisson_nll_loss,
                on=(np.abs(x), np.abs(y) * 3),
                log_input=log_input,
                full=full,
                **r,
                slope=1,
            )
        for full in (False, True):
            like("gaussian_nll_loss", F.gaussian_nll_loss, on=(x, y, p), full=full, **r, slope=1)
        for log_target in (False, True):
            like("kl_div", F.kl_div, on=(x, p), log_target=log_target, **r, slope=1)
        like("binary_cross_entropy", F.binary_cross_entropy, on=(p, data(4, 5, low=0.1, high=0.9)), **r, slope=0)
        like("binary_cross_entropy_with_logits", F.binary_cross_entropy_with_logits, on=(x, p), **r, slope=1)
        like("multilabel_soft_margin_loss", F.multilabel_soft_margin_loss, on=(x, p), **r, slope=1)
        for smooth, ignore in ((0.0, -100), (0.2, 2), (0.0, 2)):
            like(
                "cross_entropy",
                F.cross_entropy,
                on=(x, target),
                label_smoothing=smooth,
                ignore_index=ignore,
                **r,
                slope=1,
            )
        like("cross_entropy", F.cross_entropy, on=(x, p), **r, slope=1)
        agree(
            f"weighted {r}",
            lambda a, t, w, r=r: a.cross_entropy(t, weight=w, **r),
            lambda a, t, w, r=r: F.cross_entropy(a, t, weight=w.detach(), **r),
            x,
            target,
            data(5, low=0.1),
            slope=0,
        )
        like("nll_loss", F.nll_loss, on=(x, target), ignore_index=2, **r, slope=1)
        like("hinge_embedding_loss", F.hinge_embedding_loss, on=(x, sign), margin=0.7, **r, slope=1)
        like("margin_ranking_loss", F.margin_ranking_loss, on=(x, y, sign), margin=0.3, **r, slope=1)
        like("cosine_embedding_loss", F.cosine_embedding_loss, on=(x, y, sign[:, 0].copy()), margin=0.2, **r, slope=1)
        for power, swap in ((2.0, False), (1.0, True)):
            like(
                "triplet_margin_loss", F.triplet_margin_loss, on=(x, y, p), margin=0.8, p=power, swap=swap, **r, slope=1
            )
        for power in (1, 2):
            like("multi_margin_loss", F.multi_margin_loss, on=(x, target), p=power, margin=0.9, **r, slope=1)
        like("multilabel_margin_loss", F.multilabel_margin_loss, on=(x, np.array([[1, 3, -1, 0, 2]] * 4)), **r, slope=1)


def test_products() -> None:
    axis: Any
    shapes = ((4,), (3, 4), (4, 3), (2, 3, 4), (2, 4, 3), (1, 4, 2), (5, 1, 4, 2), ())
    for a, b in itertools.product(shapes, repeat=2):
        same("matmul", on=(data(*a), data(*b, seed=1)))
    for name, other in (
        ("mm", data(4, 2)),
        ("mv", V),
        ("inner", B),
        ("inner", V),
        ("outer", V),
        ("mm", V),
        ("mv", A),
        ("kron", data(2, 1)),
    ):
        same(name, on=(A, other))
    same("outer", on=(V, data(3)))
    same("bmm", on=(C, data(2, 4, 5)))
    same("vdot", on=(V, data(4, seed=3)))
    for beta, alpha in ((1, 1), (0, 2), (0.5, -1)):
        same("addmm", on=(data(3, 2), A, data(4, 2)), beta=beta, alpha=alpha)
        same("addmv", on=(data(3), A, V), beta=beta, alpha=alpha)
        same("addr", on=(A, data(3), V), beta=beta, alpha=alpha)
        same("baddbmm", on=(data(2, 3, 5), C, data(2, 4, 5)), beta=beta, alpha=alpha)
        same("addbmm", on=(data(3, 5), C, data(2, 4, 5)), beta=beta, alpha=alpha)
    for n in (-2, -1, 0, 1, 2, 3, 6):
        same("matrix_power", n, on=(SQUARE / 3,))
    for axis in (-2, -1, 0, 1, 2):
        like("cross", torch.linalg.cross, on=(data(3, 3), data(3, 3, seed=4)), **{"dim": axis})
        like("vecdot", torch.linalg.vecdot, on=(A, B), **{"dim": axis})
    for dims in (0, 1, 2, 3, ([0], [0]), ([1, 0], [1, 0]), ([1], [0])):
        like("tensordot", torch.tensordot, dims, on=(A, B))
    for p in (0.0, 1.0, 2.0, 3.0, float("inf")):
        like("cdist", torch.cdist, p, on=(A, data(2, 4)), slope=p == 2.0)
        like("dist", torch.dist, p, on=(A, B), slope=p in (1.0, 2.0, 3.0))
        like("pairwise_distance", F.pairwise_distance, p, on=(A, B), slope=p in (1.0, 2.0, 3.0))
        for axis, keep in itertools.product((None, 0, -1, (0, 1), 2), (False, True)):
            like("vector_norm", torch.linalg.vector_norm, p, axis, keep, slope=p in (1.0, 2.0, 3.0))
    same("trace", on=(SQUARE,))
    for formula in ("ij,kj->ik", "ij,ij->", "ij->ji", "ij,kj", "ij,ij->i", "ii->i"):
        operands = (A, B)[: formula.count(",") + 1]
        operands = (SQUARE,) if formula == "ii->i" else operands
        agree(formula, lambda *t, f=formula: Tensor.einsum(f, *t), lambda *t, f=formula: torch.einsum(f, *t), *operands)
    agree(
        "multi_dot",
        lambda *t: Tensor.multi_dot(t),
        lambda *t: torch.linalg.multi_dot(t),
        A,
        data(4, 2),
        data(2, 5),
        data(5),
    )


def test_matrices() -> None:
    for x in (SQUARE, BATCH, data(1, 1) + 3):
        like("inverse", torch.linalg.inv, on=(x,))
        like("det", torch.linalg.det, on=(x,))
        like("slogdet", torch.linalg.slogdet, on=(x,), slope=0)
        like("logdet", torch.logdet, on=(x,))
        for left in (True, False):
            b = data(*x.shape[:-1], 2) if left else data(*x.shape[:-2], 2, x.shape[-1])
            agree(
                "solve",
                lambda a, r, s=left: a.solve(r, left=s),
                lambda a, r, s=left: torch.linalg.solve(a, r, left=s),
                x,
                b,
            )
            for upper, unit in itertools.product((False, True), repeat=2):
                how: dict[str, Any] = {"upper": upper, "left": left, "unitriangular": unit}
                agree(
                    f"triangular {how}",
                    lambda a, r, h=how: a.solve_triangular(r, **h),
                    lambda a, r, h=how: torch.linalg.solve_triangular(a, r, **h),
                    x,
                    b,
                )
    for upper in (False, True):
        like("cholesky", torch.linalg.cholesky, on=(POSITIVE,), upper=upper)
        agree(
            "cholesky_solve",
            lambda b, m, u=upper: b.cholesky_solve(m.cholesky(u), u),
            lambda b, m, u=upper: torch.cholesky_solve(b, torch.linalg.cholesky(m, upper=u), u),
            data(3, 2),
            POSITIVE,
            slope=0,
        )
        agree(
            "cholesky_inverse",
            lambda m, u=upper: m.cholesky(u).cholesky_inverse(u),
            lambda m, u=upper: torch.cholesky_inverse(torch.linalg.cholesky(m, upper=u), u),
            POSITIVE,
            slope=0,
        )
    for wrong in (A, V):
        for name in ("inverse", "det", "slogdet", "cholesky"):
            like(name, getattr(torch.linalg, "inv" if name == "inverse" else name), on=(wrong,))
    for shape in ((3, 4), (4, 3), (3, 3), (2, 4, 2)):
        for mode in ("reduced", "complete", "r", "other"):
            t = Tensor(data(*shape), device="INTERPRETER")
            if mode == "other":
                assert outcome(lambda: t.qr(mode)) is None  # noqa: B023
            elif mode != "r":
                q, r = (value(part) for part in t.qr(mode))
                want = torch.linalg.qr(torch.from_numpy(data(*shape)), mode=mode)
                assert q.shape == tuple(want[0].shape) and r.shape == tuple(want[1].shape)
                np.testing.assert_allclose(q @ r, data(*shape), atol=1e-5)
                np.testing.assert_allclose(
                    np.swapaxes(q, -1, -2) @ q,
                    np.broadcast_to(np.eye(q.shape[-1]), (*q.shape[:-2], q.shape[-1], q.shape[-1])),
                    atol=1e-5,
                )
                np.testing.assert_allclose(np.tril(r, -1), 0, atol=1e-6)


def test_statistics() -> None:
    for axis, keep in itertools.product((0, 1, -1, None, 3), (False, True)):
        if axis is not None:
            for name in ("median", "nanmedian", "mode"):
                same(name, axis, keep, on=(np.round(A * 2),), slope=0)
        for q in (0.0, 0.3, 0.5, 1.0):
            for how in ("linear", "lower", "higher", "nearest", "midpoint"):
                same("quantile", q, axis, keep, interpolation=how, slope=0)
    for n in (1, 2, 3):
        for axis in (0, 1, -1):
            same("diff", n, axis, on=(C,))
    for name in ("cumsum", "cumprod", "logcumsumexp", "cummax", "cummin"):
        for axis in (-2, -1, 0, 1, 2):
            same(name, axis)
    for axis in (0, 1, -1):
        like("trapezoid", torch.trapezoid, dx=0.5, dim=axis)
        like("cumulative_trapezoid", torch.cumulative_trapezoid, dx=0.5, dim=axis)
    like("trapezoid", torch.trapezoid, on=(A, V))
    like("cov", torch.cov)
    like("corrcoef", torch.corrcoef)
    edges = np.sort(data(5))
    for right in (False, True):
        like("bucketize", torch.bucketize, on=(A, edges), right=right, slope=0)
        like("searchsorted", torch.searchsorted, on=(edges, A), right=right, slope=0)


def test_normalizations() -> None:
    x = data(2, 6, 5)
    for shape in ((5,), (6, 5), (6,), (5, 1)):
        like("layer_norm", F.layer_norm, shape, on=(x,))
        like("rms_norm", F.rms_norm, shape, on=(x,))
    for groups in (1, 2, 3, 6, 4):
        like("group_norm", F.group_norm, groups, on=(x,))
    for size, alpha, beta, k in ((1, 0.1, 0.75, 1.0), (2, 1.0, 0.5, 2.0), (3, 0.3, 0.75, 1.0), (9, 1.0, 1.0, 1.0)):
        like("local_response_norm", F.local_response_norm, size, alpha, beta, k, on=(x,))
    for p, axis in itertools.product((1.0, 2.0, 3.0), (-1, 0, 1)):
        like("normalize", F.normalize, p, axis, on=(x,))
    for axis in (-1, 0, 1, 2):
        like("cosine_similarity", F.cosine_similarity, axis, on=(A, B))
    mean, var = data(6), data(6, low=0.5)
    for eps in (1e-5, 0.1):
        agree(
            "batch_norm",
            lambda t, m, v, e=eps: t.batch_norm(m, v, eps=e),
            lambda t, m, v, e=eps: F.batch_norm(t, m.detach(), v.detach(), eps=e),
            x,
            mean,
            var,
            slope=0,
        )
        like("instance_norm", F.instance_norm, on=(x,), eps=eps)


def test_elements() -> None:
    x = np.array([-2.5, -1.5, -1.0, -0.5, -0.0, 0.0, 0.3, 0.5, 1.5, 2.5, 7.0], np.float32)
    odd = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5], np.float32)
    for name in (
        "isnan",
        "isinf",
        "isposinf",
        "isneginf",
        "isfinite",
        "isreal",
        "nan_to_num",
        "sign",
        "signbit",
        "angle",
    ):
        same(name, on=(odd,), slope=0)
    for name in ("floor", "ceil", "trunc", "frac", "round", "sign", "sinc", "deg2rad", "square", "abs"):
        same(name, on=(x,), slope=name in ("sinc", "square", "deg2rad"))
    for decimals in (-1, 0, 1, 2):
        same("round", on=(data(30),), decimals=decimals, slope=0)
    for low, high in ((-1, 1), (None, 0.5), (0.25, None), (1, -1), (None, None)):
        same("clamp", low, high, on=(x,))
    other = np.array([3.0, -2.0, 0.5, -0.5, 1.0, 2.0, -1.0, 4.0, -3.0, 0.7, 2.0], np.float32)
    for mode in (None, "floor", "trunc", "other"):
        same("div", on=(x, other), rounding_mode=mode, slope=mode is None)
    for name in (
        "remainder",
        "fmod",
        "copysign",
        "heaviside",
        "fmax",
        "fmin",
        "hypot",
        "xlogy",
        "logaddexp",
        "atan2",
        "floor_divide",
        "ldexp",
    ):
        same(name, on=(np.abs(x) if name == "xlogy" else x, other), slope=name in ("hypot", "logaddexp"))
    ints = np.array([-7, -6, 0, 3, 5, 12], np.int32)
    by = np.array([2, -4, 3, -3, 10, 18], np.int32)
    for name in (
        "gcd",
        "lcm",
        "remainder",
        "fmod",
        "floor_divide",
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
        "maximum",
    ):
        same(name, on=(ints, by))
    for mode in ("floor", "trunc"):
        same("div", on=(ints, by), rounding_mode=mode)
    for w in (0.0, 0.3, 1.0):
        same("lerp", w, on=(A, B))
    for number in (1, -0.5):
        same("addcmul", on=(A, B, data(3, 4, seed=7)), value=number)
        same("addcdiv", on=(A, B, data(3, 4, low=0.5, high=1.5)), value=number)
        same("add", on=(A, B), alpha=number)
        same("sub", on=(A, B), alpha=number)
    for eps in (None, 0.1):
        same("logit", eps, on=(data(3, 4, low=0.02, high=0.98),))
    for power in (-2, -1, 0, 0.5, 1, 2, 3):
        same("pow", power, on=(np.abs(A) + 0.1,))
    same("isclose", on=(x, x + np.float32(1e-6)), slope=0)
    same("nan_to_num", 1.0, 2.0, -3.0, on=(odd,), slope=0)

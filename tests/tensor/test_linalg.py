"""Linear algebra against PyTorch (in float64, where its float32 is no better than ours)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tests.tensor.ops import Op, data, gradients_test, values_test
from tinyweb import Tensor, Variable, dtypes
from tinyweb.tracing import capture

L = torch.linalg
A, B, C, V = data(3, 4), data(4, 5), data(2, 3, 4), data(4)
INTS = np.arange(12, dtype=np.int32).reshape(3, 4) - 5
SQUARE = data(4, 4) + 3 * np.eye(4, dtype=np.float32)
BATCH = data(2, 3, 3) + 3 * np.eye(3, dtype=np.float32)
PIVOTS = np.float32([[0, 2, 1], [1, 0, 0], [0, 1, 3]])  # needs rows exchanged
SYMMETRIC = data(4, 4) + data(4, 4).T
POSITIVE = (data(4, 4) @ data(4, 4).T + np.eye(4)).astype(np.float32)
RANK_ONE = np.outer(data(3), data(3, seed=1)).astype(np.float32)
TALL, WIDE = data(5, 3), data(3, 5)


def wide(function: Callable[..., Any]) -> Callable[..., Any]:
    """PyTorch's function computed in float64."""

    def call(*tensors: Any) -> Any:
        found = function(*(t.double() if t.is_floating_point() else t for t in tensors))
        if isinstance(found, tuple | list):
            return tuple(f.float() if f.is_floating_point() else f for f in found)
        return found.float()

    return call


def symmetric(a: Any) -> Any:
    return (a + a.mT) * 0.5


def op(name: str, ours: Any, *inputs: np.ndarray, theirs: Any = None, **options: Any) -> Op:
    return Op(name, ours, inputs, wide(theirs or ours), **({"atol": 1e-5, "rtol": 1e-5} | options))


OPS = [
    # -- products
    op("matmul", lambda a, b: a @ b, A, B, sample=True),
    op("matmul_batch", lambda a, b: a @ b, C, data(2, 4, 3)),
    op("matmul_broadcast", lambda a, b: a @ b, C, B),
    op("matmul_batches_broadcast", lambda a, b: a @ b, data(2, 1, 3, 4), data(3, 4, 2)),
    op("matmul_vector", lambda a, b: a @ b, A, V),
    op("vector_matmul", lambda a, b: a @ b, V, B),
    op("vectors", lambda a, b: a @ b, V, data(4, seed=1)),
    op("matmul_batch_vector", lambda a, b: a.matmul(b), C, V),
    op("matmul_odd", lambda a, b: a @ b, data(33, 65), data(65, 17), sample=True),
    op("matvec", lambda a, b: a @ b, data(1, 256), data(256, 192)),
    op("matmul_empty", lambda a, b: a @ b, data(3, 0), data(0, 2), gradient=False),
    op("matmul_none", lambda a, b: a @ b, data(0, 3), data(3, 2), gradient=False),
    Op("matmul_ints", lambda a, b: a @ b, (INTS, INTS.T)),
    Op("matmul_bytes", lambda a, b: a @ b, (INTS.astype(np.int8) * 20, INTS.T.astype(np.int8) * 20)),
    Op("matmul_halves", lambda a, b: a @ b, (A.astype(np.float16), B.astype(np.float16)), rtol=2e-3, atol=2e-3),
    op("mm", lambda a, b: a.mm(b), A, B),
    op("bmm", lambda a, b: a.bmm(b), C, data(2, 4, 5)),
    op("mv", lambda a, b: a.mv(b), A, V),
    op("dot", lambda a, b: a.dot(b), V, data(4, seed=1)),
    op("vdot", lambda a, b: a.vdot(b), V, data(4, seed=1)),
    op("vecdot", lambda a, b: a.vecdot(b, axis=1), C, data(2, 3, 1), theirs=lambda a, b: L.vecdot(a, b, dim=1)),
    op("inner", lambda a, b: a.inner(b), C, data(5, 4)),
    op("inner_number", lambda a, b: a.inner(b), A, data()),
    op("outer", lambda a, b: a.outer(b), V, data(3), sample=True),
    op("ger", lambda a, b: a.ger(b), V, data(3)),
    op("kron", lambda a, b: a.kron(b), A, data(2, 3), sample=True),
    op("kron_ranks", lambda a, b: a.kron(b), C, data(2)),
    op("tensordot", lambda a, b: a.tensordot(b, 1), C, B, theirs=lambda a, b: torch.tensordot(a, b, 1)),
    op("tensordot_lists", lambda a, b: a.tensordot(b, ([1, 2], [2, 0])), C, data(4, 2, 3),
       theirs=lambda a, b: torch.tensordot(a, b, ([1, 2], [2, 0])), sample=True),
    op("tensordot_none", lambda a, b: a.tensordot(b, 0), V, A, theirs=lambda a, b: torch.tensordot(a, b, 0)),
    op("addmm", lambda c, a, b: c.addmm(a, b, beta=0.5, alpha=2), data(5), A, B, sample=True),
    op("addmm_nan", lambda c, a, b: c.addmm(a, b, beta=0), np.full((3, 5), np.nan, np.float32), A, B, gradient=False),
    op("addmv", lambda c, a, b: c.addmv(a, b), data(3), A, V),
    op("addr", lambda c, a, b: c.addr(a, b, alpha=-1), data(4, 3), V, data(3)),
    op("baddbmm", lambda c, a, b: c.baddbmm(a, b, beta=2), data(2, 3, 5), C, data(2, 4, 5)),
    op("addbmm", lambda c, a, b: c.addbmm(a, b), data(3, 5), C, data(2, 4, 5)),
    op("multi_dot", lambda a, b, c, d: type(a).multi_dot([a, b, c, d]), A, B, data(5, 2), data(2),
       theirs=lambda *t: L.multi_dot(t)),
    op("matrix_power", lambda a: a.matrix_power(5), data(2, 3, 3, high=1.0, low=-1.0)),
    op("matrix_power_zero", lambda a: a.matrix_power(0), BATCH, gradient=False),
    op("matrix_power_negative", lambda a: a.matrix_power(-2), SQUARE),
    op("trace", lambda a: a.trace(), A),
    op("cross", lambda a, b: a.cross(b, axis=1), C, data(2, 3, 1), theirs=lambda a, b: L.cross(a, b, dim=1),
       sample=True),
    # -- distances and norms
    *(
        op(f"cdist_{p}", lambda a, b, p=p: a.cdist(b, p), data(2, 5, 3), data(4, 3), sample=p == 2,
           theirs=lambda a, b, p=p: torch.cdist(a, b, p, compute_mode="donot_use_mm_for_euclid_dist"))
        for p in (0.0, 0.5, 1.0, 2.0, 3.0, math.inf)
    ),
    op("cdist_equal_rows", lambda a: a.cdist(a * 1), A, theirs=lambda a: torch.cdist(a, a * 1)),
    *(
        op(f"vector_norm_{p}", lambda a, p=p: a.vector_norm(p, 1), np.concatenate([C, 0 * C]).astype(np.float32),
           theirs=lambda a, p=p: L.vector_norm(a, p, 1), sample=p == 3)
        for p in (0, 0.5, 1, 2, 3, math.inf, -math.inf)
    ),
    op("vector_norm_negative", lambda a: a.vector_norm(-2, (0, 2), keepdim=True), C,
       theirs=lambda a: L.vector_norm(a, -2, (0, 2), keepdim=True)),
    op("vector_norm_all", lambda a: a.vector_norm(), C, theirs=L.vector_norm),
    op("vector_norm_nan", lambda a: a.vector_norm(3), np.float32([1, np.nan]), theirs=lambda a: L.vector_norm(a, 3),
       gradient=False),
    *(
        op(f"matrix_norm_{p}", lambda a, p=p: a.matrix_norm(p), C, theirs=lambda a, p=p: L.matrix_norm(a, p))
        for p in ("fro", 1, -1, math.inf, -math.inf)
    ),
    # -- systems
    op("inverse", lambda a: a.inverse(), SQUARE, theirs=L.inv, sample=True),
    op("inverse_none", lambda a: a.inverse(), data(2, 0, 0), theirs=L.inv, gradient=False),
    op("solve", lambda a, b: a.solve(b), SQUARE, data(4, 2), theirs=L.solve, sample=True),
    op("solve_vector", lambda a, b: a.solve(b), SQUARE, V, theirs=L.solve),
    op("det", lambda a: a.det(), SQUARE, theirs=L.det, sample=True),
    op("det_singular", lambda a: a.det(), np.float32([[1, 2, 3], [2, 4, 6], [1, 0, 5]]),
       theirs=lambda a: a[0] @ L.cross(a[1], a[2])),
    op("det_none", lambda a: a.det(), data(2, 0, 0), theirs=L.det, gradient=False),
    op("slogdet", lambda a: a.slogdet(), BATCH, theirs=L.slogdet),
    op("slogdet_singular", lambda a: a.slogdet(), np.ones((3, 3), np.float32), theirs=L.slogdet, gradient=False),
    op("lu", lambda a: a.lu()[1:], SQUARE, theirs=lambda a: L.lu(a)[1:]),
    op("cholesky", lambda a: symmetric(a).cholesky(), POSITIVE, theirs=lambda a: L.cholesky(symmetric(a)), sample=True),
    # -- orthogonal factors
    op("qr", lambda a: a.qr(), SQUARE, theirs=lambda a: tuple(L.qr(a)), sample=True),
    op("qr_empty", lambda a: a.qr(), data(3, 0), theirs=lambda a: tuple(L.qr(a)), gradient=False),
    op("eigvalsh", lambda a: symmetric(a).eigvalsh(), SYMMETRIC, theirs=lambda a: L.eigvalsh(symmetric(a)),
       sample=True),
    op("svdvals", lambda a: a.svdvals(), SQUARE, theirs=L.svdvals, sample=True),
    op("pinv", lambda a: a.pinv(), TALL, theirs=L.pinv, sample=True),
]  # fmt: skip
# variants of what takes dozens of kernels
HEAVY = [
    *(
        op(f"matrix_norm_{p}", lambda a, p=p: a.matrix_norm(p), C, theirs=lambda a, p=p: L.matrix_norm(a, p))
        for p in ("nuc", 2, -2)
    ),
    op("matrix_norm_axes", lambda a: a.matrix_norm("nuc", (2, 0), keepdim=True), C,
       theirs=lambda a: L.matrix_norm(a, "nuc", (2, 0), keepdim=True)),
    # -- systems
    op("inv_batch", lambda a: a.inv(), BATCH, theirs=L.inv),
    op("inverse_pivots", lambda a: a.inverse(), PIVOTS, theirs=L.inv),
    op("inverse_one", lambda a: a.inverse(), data(1, 1), theirs=L.inv),
    op("solve_batch", lambda a, b: a.solve(b), BATCH, data(2, 3, 2), theirs=L.solve),
    op("solve_batch_vectors", lambda a, b: a.solve(b), BATCH, data(2, 3), theirs=L.solve),
    op("solve_broadcast", lambda a, b: a.solve(b), BATCH, data(3, 2), theirs=L.solve),
    op("solve_right", lambda a, b: a.solve(b, left=False), SQUARE, data(2, 4),
       theirs=lambda a, b: L.solve(a, b, left=False)),
    *(
        op(f"solve_triangular_{u}_{left}_{one}",
           lambda a, b, u=u, left=left, one=one: a.solve_triangular(b, upper=u, left=left, unitriangular=one),
           SQUARE, data(4, 4, seed=3),
           theirs=lambda a, b, u=u, left=left, one=one: L.solve_triangular(
               torch.triu(a) if u else torch.tril(a), b, upper=u, left=left, unitriangular=one))
        for u in (True, False) for left in (True, False) for one in (True, False)
    ),
    op("det_batch", lambda a: a.det(), BATCH, theirs=L.det),
    op("det_pivots", lambda a: a.det(), PIVOTS, theirs=L.det),
    op("det_rank_one", lambda a: a.det(), RANK_ONE, theirs=L.det),
    op("logdet", lambda a: a.logdet(), POSITIVE, theirs=torch.logdet),
    op("logdet_negative", lambda a: a.logdet(), PIVOTS, theirs=torch.logdet, gradient=False),
    op("lu_pivots", lambda a: a.lu()[0], PIVOTS, theirs=lambda a: L.lu(a)[0], gradient=False),
    op("lu_batch", lambda a: a.lu()[1:], BATCH, theirs=lambda a: L.lu(a)[1:]),
    op("lu_tall", lambda a: a.lu()[1:], TALL, theirs=lambda a: L.lu(a)[1:]),
    op("lu_wide", lambda a: a.lu()[1:], WIDE, theirs=lambda a: L.lu(a)[1:]),
    op("cholesky_upper", lambda a: symmetric(a).cholesky(upper=True), POSITIVE,
       theirs=lambda a: L.cholesky(symmetric(a), upper=True)),
    op("cholesky_batch", lambda a: (a @ a.mT).cholesky(), BATCH, theirs=lambda a: L.cholesky(a @ a.mT)),
    op("cholesky_solve", lambda b, f: b.cholesky_solve(f.tril()), data(4, 2), SQUARE),
    op("cholesky_inverse", lambda f: f.tril().cholesky_inverse(), SQUARE),
    # -- orthogonal factors
    op("qr_tall", lambda a: a.qr(), TALL, theirs=lambda a: tuple(L.qr(a))),
    op("qr_wide", lambda a: a.qr(), WIDE, theirs=lambda a: tuple(L.qr(a))),
    op("qr_batch", lambda a: a.qr(), C.swapaxes(1, 2).copy(), theirs=lambda a: tuple(L.qr(a))),
    op("qr_complete", lambda a: a.qr("complete")[1], TALL, theirs=lambda a: L.qr(a, "complete")[1], gradient=False),
    op("qr_r", lambda a: a.qr("r")[1], TALL, theirs=lambda a: L.qr(a, "r")[1], gradient=False),
    op("qr_triangle", lambda a: a.qr()[1], np.triu(SQUARE), theirs=lambda a: L.qr(a)[1], gradient=False),
    op("eigvalsh_upper", lambda a: a.eigvalsh(UPLO="U"), A.T @ A, theirs=lambda a: L.eigvalsh(a, UPLO="U"),
       gradient=False),
    op("eigvalsh_batch", lambda a: (a @ a.mT).eigvalsh(), C, theirs=lambda a: L.eigvalsh(a @ a.mT)),
    op("eigh_projector", lambda a: _projector(symmetric(a).eigh()[1]), SYMMETRIC,
       theirs=lambda a: _projector(L.eigh(symmetric(a))[1])),
    op("eigh_equal", lambda a: a.eigvalsh(), np.eye(3, dtype=np.float32), theirs=L.eigvalsh),
    op("svdvals_batch", lambda a: a.svdvals(), C, theirs=L.svdvals),
    op("svdvals_rank_one", lambda a: a.svdvals(), RANK_ONE, theirs=L.svdvals, gradient=False),
    *(
        op(f"svd_projectors_{n}", lambda a: _svd_facts(a.svd(full_matrices=False)), x,
           theirs=lambda a: _svd_facts(L.svd(a, full_matrices=False)))
        for n, x in (("square", SQUARE), ("tall", TALL), ("wide", WIDE))
    ),
    op("pinv_wide", lambda a: a.pinv(), WIDE, theirs=L.pinv),
    op("pinv_rank_one", lambda a: a.pinv(), RANK_ONE, theirs=lambda a: L.pinv(a, rtol=1e-6), gradient=False),
    op("lstsq", lambda a, b: a.lstsq(b)[:2], TALL, data(5, 2), theirs=lambda a, b: L.lstsq(a, b, driver="gelsd")[:2]),
    op("lstsq_wide", lambda a, b: a.lstsq(b)[0], WIDE, data(3, 2), theirs=lambda a, b: L.lstsq(a, b)[0]),
    Op("matrix_rank", lambda a: a.matrix_rank(), (np.stack([RANK_ONE, PIVOTS]),), L.matrix_rank, gradient=False),
    *(
        op(f"cond_{p}", lambda a, p=p: a.cond(p), SQUARE, theirs=lambda a, p=p: L.cond(a, p), gradient=p in (None, -2))
        for p in (None, -2, 1, "fro", math.inf)
    ),
]  # fmt: skip


def _projector(v: Any) -> Any:
    """What does not change with the signs of eigenvectors."""
    first = v[..., :2]
    return first @ first.mT


def _svd_facts(usv: Any) -> Any:
    u, s, v = usv
    return (u[..., :2] * s[..., None, :2]) @ v[..., :2, :], u[..., :1] @ u[..., :1].mT, v[..., :1, :].mT @ v[..., :1, :]


test_values = values_test(OPS)
test_gradients = gradients_test(OPS)
test_more_values = pytest.mark.slow(values_test(HEAVY))
test_more_gradients = pytest.mark.slow(gradients_test(HEAVY))


def test_products_of_integers_are_exact() -> None:
    large, small = Tensor(np.array([2**24 + 1, 5], np.int32)), Tensor(np.array([1, 0], np.int32))
    assert large.vecdot(small).item() == large.inner(small).item() == 2**24 + 1


@pytest.mark.parametrize("n", [5, pytest.param(32, marks=pytest.mark.slow)])
def test_residuals(n: int) -> None:
    x = data(n, n, seed=5)
    t = Tensor(x)
    unit = np.abs(x).max() * n
    w, v = Tensor(x + x.T).eigh()
    q, r = t.qr()
    u, s, vt = t.svd()
    p, lower, upper = t.lu()
    inverse = t.inverse()
    w.realize(v, q, r, u, s, vt, p, lower, upper, inverse)
    for what, residual in {
        "eigh": (x + x.T) @ v.numpy() - v.numpy() * w.numpy(),
        "eigenvectors": v.numpy().T @ v.numpy() - np.eye(n),
        "qr": q.numpy() @ r.numpy() - x,
        "q": q.numpy().T @ q.numpy() - np.eye(n),
        "svd": (u.numpy() * s.numpy()) @ vt.numpy() - x,
        "u": u.numpy().T @ u.numpy() - np.eye(n),
        "v": vt.numpy() @ vt.numpy().T - np.eye(n),
        "lu": p.numpy() @ lower.numpy() @ upper.numpy() - x,
    }.items():
        assert np.abs(residual).max() < 2e-7 * unit, what
    condition = np.linalg.cond(x)
    assert np.abs(inverse.numpy() @ x - np.eye(n)).max() < 2e-7 * condition * n


@pytest.mark.parametrize(("a", "b"), [((1, 1, 1), (1,)), ((2, 3, 3), (3, 2)), ((2, 3, 3), (2, 3)), ((3, 3, 3), (3,))])
def test_right_sides_that_look_like_vectors(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    generator = np.random.default_rng(4)
    x, y = generator.normal(size=a) + 3 * np.eye(a[-1]), generator.normal(size=b)
    want = torch.linalg.solve(torch.from_numpy(x), torch.from_numpy(y)).numpy()
    got = Tensor(x, dtype="float64").solve(Tensor(y, dtype="float64")).numpy()
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4), (2, 6, 1), (2, 1, 6)])
def test_sizes_of_factors(shape: tuple[int, ...]) -> None:
    x = Tensor.empty(*shape, device="INTERPRETER")
    for ours, theirs in (
        (x.lu(), L.lu(torch.zeros(shape))),
        (x.qr(), L.qr(torch.zeros(shape))),
        (x.svd(full_matrices=False), L.svd(torch.zeros(shape), full_matrices=False)),
    ):
        assert [f.shape for f in ours] == [tuple(f.shape) for f in theirs]
    for p in ("fro", "nuc", 2, -1, np.inf):
        assert x.matrix_norm(p).shape == shape[:-2]
        assert x.matrix_norm(p, keepdim=True).shape == (*shape[:-2], 1, 1)


def test_full_matrices_and_deficient_ranks() -> None:
    for x in (TALL, WIDE, RANK_ONE, np.zeros((3, 2), np.float32), 1e-25 * TALL, 1e25 * WIDE):
        u, s, v = Tensor(x).svd()
        u.realize(s, v)
        m, n = x.shape
        k = min(m, n)
        np.testing.assert_allclose(u.numpy() @ u.numpy().T, np.eye(m), atol=2e-6)
        np.testing.assert_allclose(v.numpy() @ v.numpy().T, np.eye(n), atol=2e-6)
        scale = np.abs(x).max() or 1.0
        product = (u.numpy()[:, :k] * (s.numpy() / scale)) @ v.numpy()[:k]
        np.testing.assert_allclose(product, x / scale, atol=3e-6)
        q, _ = Tensor(x).qr("complete")
        np.testing.assert_allclose(q.numpy() @ q.numpy().T, np.eye(m), atol=2e-6)


@pytest.mark.parametrize("tiny", ["ones", "graded columns", "graded rows"])
def test_what_is_nearly_nothing_leaves_factors_orthonormal(tiny: str) -> None:
    """Columns that depend on others leave rounding errors of rounding errors, of which no square is exact."""
    n, graded = 24, 10.0 ** -np.arange(24)
    a = np.ones((n, n)) if tiny == "ones" else data(n, n) * (graded if tiny == "graded columns" else graded[:, None])
    a = a.astype(np.float32)
    q, r = (x.numpy() for x in Tensor(a).qr())
    u, s, v = (x.numpy() for x in Tensor(a).svd())
    for each in (q, u, v.T):
        np.testing.assert_allclose(each.T @ each, np.eye(n), atol=4e-6)
    np.testing.assert_allclose((q @ r - a) / np.abs(a).max(0), np.zeros((n, n)), atol=4e-6)
    np.testing.assert_allclose((u * s) @ v, a, atol=8e-6 * s[0])


def test_singular_matrices_have_no_finite_inverse() -> None:
    assert not np.isfinite(Tensor(np.ones((3, 3), np.float32)).inverse().numpy()).any()
    assert np.isnan(Tensor(-np.eye(2, dtype=np.float32)).cholesky().numpy()).any()
    assert np.isnan(Tensor(np.full((3, 3), np.nan, np.float32)).eigvalsh().numpy()).all()


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (3, 9, 9), (33, 33), (65, 65)])
def test_eigenvalues_without_vectors(shape: tuple[int, ...]) -> None:
    """To within few rounding errors of the largest; of more than 64 rows by rotations, as with vectors."""
    a = data(*shape)
    a = a + np.swapaxes(a, -1, -2)
    want = np.linalg.eigvalsh(a.astype(np.float64))
    np.testing.assert_allclose(Tensor(a).eigvalsh().numpy(), want, rtol=0, atol=2e-6 * np.abs(want).max())
    halvings = capture(Tensor(a).realize().eigvalsh).calls
    assert shape[-1] > 64 or len({c.kernel for c in halvings}) <= 20


def test_gradients_of_values_are_written_down_when_they_are_asked_for() -> None:
    """Vectors are there for them alone; gradients of gradients go through the rule as well."""
    a = Tensor(data(5, 5)).realize()
    assert len(a.svdvals().uop.toposort()) < len(a.svd()[1].uop.toposort())
    a.requires_grad = True
    a.svdvals().square().sum().backward()  # of the sum of all squares
    assert a.grad is not None
    np.testing.assert_allclose(a.grad.numpy(), 2 * a.numpy(), atol=2e-5)


def test_small_singular_values_have_all_digits() -> None:
    """Of a matrix that is bidiagonal already; below 2^-32 of the largest they are 0. No vectors are computed."""
    a = np.diag(np.float32([1, 3e-9, 1e-6, 1e-3, 0])) * np.float32(1e20)
    np.testing.assert_allclose(Tensor(a).svdvals().numpy(), np.sort(np.diag(a))[::-1], rtol=1e-6)
    np.testing.assert_allclose(Tensor(a[:4, :4]).cond().numpy(), 1 / 3e-9, rtol=1e-6)
    assert Tensor(a).cond().item() == math.inf and Tensor(a).matrix_rank().item() == 3
    assert math.isnan(Tensor(np.float32([[1, math.nan], [2, 3]])).cond().item())
    wide_ = Tensor(np.diag([1.0, 1e-9, 3.0]))
    np.testing.assert_allclose(wide_.svdvals().numpy(), [3, 1, 1e-9], rtol=1e-13)
    wide_ = Tensor(np.diag([1e-18, 1e-14, 1e-200, 1.0]))
    np.testing.assert_allclose(wide_.svdvals().numpy(), [1, 1e-14, 1e-18, 0], rtol=1e-13)
    hilbert = Tensor(1.0 / (np.arange(8.0)[:, None] + np.arange(8.0) + 1))
    np.testing.assert_allclose(hilbert.cond().item(), np.linalg.cond(hilbert.numpy()), rtol=1e-4)
    x = Tensor(data(12, 12)).realize()
    assert len(capture(x.cond).calls) < 110 and len(capture(x.matrix_rank).calls) < 110


@pytest.mark.parametrize("upper", [False, True])
def test_a_cholesky_factor_is_of_the_lower_triangle(upper: bool) -> None:
    """Whatever is above it, for a matrix wider than a vector."""
    a = data(37, 37)
    a = a @ a.T / 37 + np.eye(37, dtype=np.float32)
    found = Tensor(np.where(np.tri(37, dtype=bool), a, np.nan).astype(np.float32)).cholesky(upper).numpy()
    want = np.linalg.cholesky(a.astype(np.float64))
    np.testing.assert_allclose(found, want.T if upper else want, rtol=1e-5, atol=1e-5)


def test_dtypes_of_results() -> None:
    assert Tensor(SQUARE).half().inverse().dtype is dtypes.float16
    assert Tensor(INTS[:, :3]).det().dtype is dtypes.float32
    wide_ = Tensor(SQUARE.astype(np.float64), dtype=dtypes.float64)
    inverse = wide_.inverse()
    assert inverse.dtype is dtypes.float64
    np.testing.assert_allclose(inverse.numpy(), np.linalg.inv(SQUARE.astype(np.float64)), rtol=1e-12, atol=1e-13)
    values = np.linalg.svd(SQUARE.astype(np.float64))[1]
    np.testing.assert_allclose(wide_.svdvals().numpy(), values, rtol=1e-13)


@pytest.mark.slow
def test_second_derivatives() -> None:
    x = torch.from_numpy(SQUARE).double().requires_grad_()
    (g,) = torch.autograd.grad((torch.linalg.inv(x) ** 2).sum() + torch.linalg.det(x), x, create_graph=True)
    (want,) = torch.autograd.grad((g**2).sum(), x)
    t = Tensor(SQUARE.astype(np.float64), dtype=dtypes.float64)
    (ours,) = (t.inverse().square().sum() + t.det()).gradient(t)
    (got,) = ours.square().sum().gradient(t)
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-8, atol=1e-10)


def test_all_steps_of_a_factorisation_are_one_kernel() -> None:
    x = Tensor(data(8, 8)).realize()
    for name, most in (("inverse", 24), ("qr", 40), ("cholesky", 12)):
        calls = capture(getattr(x, name)).calls
        different = len({c.kernel for c in calls})
        assert len(calls) <= most and different <= 30, f"{name}: {len(calls)} launches of {different} kernels"


def test_symbolic_products() -> None:
    n = Variable("n", 1, 6)
    x, y = data(6, 4), data(6, 5)
    for k in (1, 5):
        a, b = Tensor(x)[: n.bind(k)], Tensor(y)[: n.bind(k)]
        np.testing.assert_allclose((a.T @ b).numpy(), x[:k].T @ y[:k], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose((a @ a.T).numpy(), x[:k] @ x[:k].T, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(Tensor.einsum("ni,nj->ij", a, b).numpy(), x[:k].T @ y[:k], rtol=1e-5, atol=1e-6)


T = Tensor(A)
WRONG: list[tuple[Any, type[Exception], str]] = [
    (lambda: T @ T, ValueError, r"matmul: shapes \(3, 4\) and \(3, 4\)"),
    (lambda: T @ Tensor(1.0), ValueError, "numbers have no matrix product"),
    (lambda: T.bool() @ T.bool().T, TypeError, "booleans have no product"),
    (lambda: T @ Tensor(A.T, device="INTERPRETER"), ValueError, "matmul: tensors live on CPU and INTERPRETER"),
    (lambda: T.matmul(NO_TENSOR), TypeError, "matmul: other must be a tensor, got int 2"),
    (lambda: T.mm(NO_TENSOR), TypeError, "mm: mat2 must be a tensor, got int 2"),
    (lambda: T.addbmm(NO_TENSOR, NO_TENSOR), TypeError, "addbmm: batch1 must be a tensor, got int 2"),
    (lambda: T.mm(Tensor(C)), ValueError, r"mm: needs tensors of 2 and 2 axes, got \(3, 4\), \(2, 3, 4\)"),
    (lambda: Tensor(C).bmm(Tensor(data(3, 4, 2))), ValueError, "differ in the number of matrices"),
    (lambda: Tensor.ones(7).addmm(T, T.T), ValueError, "addmm"),
    (lambda: T.inner(Tensor(data(3))), ValueError, "differ in their last axis"),
    (lambda: T.tensordot(T, 1), ValueError, "must be of equal sizes"),
    (lambda: T.tensordot(T, 3), ValueError, "cannot be summed over"),
    (lambda: T.tensordot(T, ([0], [0], [1])), ValueError, "a number or two lists of axes"),
    (lambda: T.tensordot(T, "01"), ValueError, "a number or two lists of axes"),
    (lambda: T.cross(T), ValueError, "must be of size 3"),
    (lambda: Tensor.ones(3).cross(Tensor.ones(1)), ValueError, r"of \(3,\) and \(1,\) must be of size 3"),
    (lambda: Tensor.ones(3, 1).cross(Tensor.ones(3, 1, 2), 0), ValueError, "must have the same number of axes"),
    (lambda: Tensor(C).trace(), ValueError, "needs a matrix"),
    (lambda: T.cdist(Tensor(data(3))), ValueError, "cdist: needs"),
    (lambda: T.matrix_power(2), ValueError, r"matrix_power: needs square matrices \(…, n, n\), got \(3, 4\)"),
    (lambda: T.inverse(), ValueError, "inverse: needs square matrices"),
    (lambda: T.det(), ValueError, "det: needs square matrices"),
    (lambda: T.cholesky(), ValueError, "cholesky: needs square"),
    (lambda: T.eigh(), ValueError, "eigh: needs square"),
    (lambda: Tensor(SQUARE).eigh("X"), ValueError, "UPLO is 'L' or 'U'"),
    (lambda: Tensor(SQUARE).solve(T), ValueError, "differ in size"),
    (lambda: Tensor(SQUARE).solve_triangular(T, upper=True), ValueError, "differ in size"),
    (lambda: T.qr("full"), ValueError, "mode is 'reduced'"),
    (lambda: Tensor(V).svd(), ValueError, "svd: needs matrices"),
    (lambda: T.lstsq(Tensor(V)), ValueError, "differ in the number of rows"),
    (lambda: T.matrix_norm(3), ValueError, "ord is 'fro'"),
    (lambda: T.matrix_norm("fro", (0, 0)), ValueError, "two different axes"),
]
NO_TENSOR: Any = 2


@pytest.mark.parametrize(("call", "error", "says"), WRONG, ids=range(len(WRONG)))
def test_errors_name_the_rule(call: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call()


def test_a_repeated_step_is_written_once_and_its_kernel_is_one() -> None:
    x, times, called = Tensor(data(5, 5)).realize(), 4, 0

    def step(t: Tensor) -> Tensor:
        nonlocal called
        called += 1
        return t.flip(0).mul(t).add(x)

    def written_out() -> Tensor:
        t = x
        for _ in range(times):
            t = step(t.contiguous())
        return t

    expected = capture(written_out)
    called = 0
    found = capture(lambda: x._repeated(times, step))
    assert called == 1
    assert [c.kernel for c in found.calls] == [c.kernel for c in expected.calls]
    assert x._repeated(0, step) is x

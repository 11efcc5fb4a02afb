"""Products of matrices and what torch.linalg has."""

from __future__ import annotations

from typing import Any

import torch

from tests.tensor.arguments import invariants, pools
from tests.tensor.arguments.pools import FLOATS
from tests.tensor.arguments.spec import Spec, define, tensor

LINALG: dict[str, Spec] = {}
floats, vectors, matrices = tensor(FLOATS), tensor(shape="a"), tensor(FLOATS, shape="ab")
square = tensor(("float32", "float64"), shape="aa aa baa")


def _(names: str, maker: Any, arguments: str = "", **options: Any) -> None:
    define(LINALG, names, maker, arguments, **options)


m = {f"m{i}": pools.matrix(*s.split()) for i, s in enumerate(("bp", "acp cp", "b bp b", "p", "b", "ab b"))}
one = tensor((*FLOATS, "int32", "int64", "bool"), shape="ab")
_("mm", one, "mat2:m0", pool=m)
_(
    "matmul",
    tensor((*FLOATS, "int32", "bool"), shape="ab ab a"),
    "other:o",
    pool={"o": lambda d, ok: pools.matrix("bp", "b", "qbp")(d, ok) if d.ndim == 2 else pools.matrix("a", "ap")(d, ok)},
)
_("bmm", tensor((*FLOATS, "int32"), shape="abc"), "mat2:m1", pool=m)
_("mv", one, "vec:m4", pool=m)
_("dot", tensor((*FLOATS, "int32"), shape="a"), "tensor:same")
_("vdot", tensor((*FLOATS, "int32"), shape="a"), "other:same")
_("inner", one, "other:o", pool={"o": pools.matrix("pb", "b")})
_("outer ger", vectors, "vec2:m3", pool=m)
_("addmm", one, "mat1:l mat2:r * beta:number? alpha:number?", pool={"l": pools.matrix("ap"), "r": pools.matrix("pb")})
_("addmv", vectors, "mat:l vec:r * beta:number? alpha:number?", pool={"l": pools.matrix("ap"), "r": pools.matrix("p")})
_("addr", one, "vec1:l vec2:r * beta:number? alpha:number?", pool={"l": pools.matrix("a"), "r": pools.matrix("b")})
_(
    "baddbmm",
    tensor((*FLOATS, "int32"), shape="abc 1bc"),
    "batch1:l batch2:r * beta:number? alpha:number?",
    pool={"l": pools.matrix("abp"), "r": pools.matrix("apc")},
)
_(
    "addbmm",
    one,
    "batch1:l batch2:r * beta:number? alpha:number?",
    pool={"l": pools.matrix("qap"), "r": pools.matrix("qpb")},
)
_(
    "kron",
    tensor(("float32", "int32", "float16", "bool"), ranks=(0, 1, 2, 2, 3)),
    "other:o",
    pool={"o": pools.matrix("p", "pq", "")},
)
_("cross", tensor(FLOATS, shape="a3 3 3a a3"), "other:same dim:axis", theirs=torch.linalg.cross)
_("vecdot", tensor(FLOATS), "x:like * dim:axis?")
_(
    "tensordot",
    matrices,
    "other:o dims:dims",
    pool={
        "o": pools.matrix("bp", "b"),
        "dims": lambda d, ok: (
            d.rng.choice((1, ([1], [0]), ([-1], [0])))
            if ok
            else d.rng.choice((5, -1, 1.5, None, ([0, 0], [0, 0]), ([3], [0]), "x", ([0],)))
        ),
    },
)
_("multi_dot", tensor(("float32",), shape="aa aa"), "tensors:tensors", joins=True)
_("matrix_power", square, "n:int", rtol=1e-2)
_(
    "cdist",
    tensor(("float32", "float64"), shape="ab cab"),
    "x2:o p:real?",
    pool={"o": pools.matrix("pb")},
    theirs=lambda x, x2, *a, **k: torch.cdist(x, x2, *a, **({"compute_mode": "donot_use_mm_for_euclid_dist"} | k)),
)
_("vector_norm", floats, "ord:order_of_norm? dim:axes? keepdim:flag?")
_(
    "matrix_norm",
    tensor(("float32", "float64"), shape="ab abc"),
    "ord:ord? dim:two_axes? keepdim:flag?",
    pool={"ord": lambda d, ok: d.rng.choice(("fro", 1, -1, float("inf"))) if ok else d.rng.choice(("x", 3, None, 0.5))},
)
_("det slogdet logdet inverse inv pinv svdvals", square, rtol=5e-2)
_("cond", square, rtol=5e-2, theirs=torch.linalg.cond)
_("matrix_rank", square, theirs=torch.linalg.matrix_rank)
_("cholesky cholesky_inverse", square, "upper:flag?", rtol=5e-2)
_(
    "cholesky_solve",
    tensor(("float32",), shape="ab"),
    "input2:o upper:flag?",
    rtol=5e-2,
    pool={"o": pools.matrix("aa")},
)
_("lu", square, values=False, invariant=invariants.lu, rtol=1e-3, theirs=torch.linalg.lu)
_(
    "qr",
    tensor(("float32", "float64"), shape="ab cab"),
    "mode:mode?",
    values=False,
    theirs=torch.linalg.qr,
    invariant=invariants.qr,
    rtol=1e-3,
    pool={"mode": pools.words("reduced", "complete", "r")},
)
_(
    "svd",
    tensor(("float32", "float64"), shape="ab cab"),
    "full_matrices:flag?",
    values=False,
    theirs=torch.linalg.svd,
    invariant=invariants.svd,
    rtol=1e-3,
)
uplo = {"uplo": pools.words("L", "U")}
_("eigh", square, "UPLO:uplo?", values=False, invariant=invariants.eigh, rtol=1e-3, pool=uplo)
_("eigvalsh", square, "UPLO:uplo?", rtol=1e-3, pool=uplo)
_(
    "solve",
    square,
    "B:o * left:flag?",
    rtol=5e-2,
    pool={"o": pools.matrix("ap", "aa", "a")},
    theirs=torch.linalg.solve,
)
_(
    "solve_triangular",
    square,
    "B:o * upper:flag left:flag? unitriangular:flag?",
    rtol=5e-2,
    pool={"o": pools.matrix("aa")},
)
_(
    "lstsq",
    tensor(("float32",), shape="ab"),
    "b:o",
    values=False,
    invariant=invariants.solution,
    rtol=1e-2,
    pool={"o": pools.matrix("ap")},
    theirs=torch.linalg.lstsq,
)
_("cov", tensor(FLOATS, shape="ab a"), "* correction:count?")
_("corrcoef", tensor(FLOATS, shape="ab a"))

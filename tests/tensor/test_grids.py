"""Methods over grids of arguments, each combination beside PyTorch: shapes, values, and what is refused.

The values are those of the graph (graph_values.py), so that thousands of combinations cost what one kernel does.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.tensor.graph_values import compare
from tests.tensor.ops import data
from tinyweb import Tensor

Case = tuple[str, Callable[..., Any], Callable[..., Any], tuple[np.ndarray, ...]]


def ours(*arrays: np.ndarray) -> list[Tensor]:
    return [Tensor(a, device="INTERPRETER") for a in arrays]


def check(cases: Iterable[Case], accepted: int, refused: int = 0) -> None:
    """Every case agrees, and at least so many of them are accepted and refused."""
    counts = [0, 0]
    for what, mine, theirs, arrays in cases:
        mine_in, theirs_in = ours(*arrays), [torch.from_numpy(a.copy()) for a in arrays]
        counts[compare(what, lambda: mine(*mine_in), lambda: theirs(*theirs_in))] += 1  # noqa: B023
    assert counts[1] >= accepted and counts[0] >= refused, counts


def method(name: str, *args: Any, **keywords: Any) -> Callable[[Any], Any]:
    return lambda t, *more: getattr(t, name)(*more, *args, **keywords)


def function(name: str, *args: Any, **keywords: Any) -> Callable[[Any], Any]:
    return lambda *t: getattr(F, name)(*t, *args, **keywords)


def both(array: np.ndarray, name: str, *args: Any, **keywords: Any) -> Case:
    call = method(name, *args, **keywords)
    return f"{array.shape}.{name}({args}, {keywords})", call, call, (array,)


E, V, A, C, D = data(), data(5), data(3, 4), data(2, 3, 4), data(2, 1, 3, 2)
EMPTY = np.zeros((2, 0, 3), np.float32)
ALL = (E, V, A, C, D, EMPTY)


def test_axes() -> None:
    names = ("unsqueeze", "squeeze", "flip", "unbind", "cumsum", "argmax")
    single = [both(x, n, a) for n in names for x in ALL if n != "argmax" or x.size for a in range(-5, 5)]
    pairs = itertools.product(range(-4, 4), repeat=2)
    double = [both(x, n, a, b) for a, b in pairs for n in ("transpose", "movedim", "flatten") for x in (E, A, C)]
    check(single, 140, 100)
    check(double, 150, 200)
    for x in (A, C):
        check((both(x, "permute", p) for p in itertools.product(range(-2, 3), repeat=x.ndim)), 5, 5)
    check(
        (
            both(x, n)
            for x in ALL
            for n in ("squeeze", "t", "ravel", "fliplr", "flipud", "flatten", "atleast")
            for n in ((n,) if n != "atleast" else ())
        ),
        25,
        3,
    )
    for n in ("atleast_1d", "atleast_2d", "atleast_3d"):
        check(((n, method(n), getattr(torch, n), (x,)) for x in ALL), 6)
    check((both(D, "squeeze", a) for a in ((0, 1), (1, -1), (1, 1), (-3, 1), (4,), ())), 3, 2)


def test_reductions() -> None:
    names = ("sum", "mean", "amax", "amin", "prod", "all", "any", "var", "std", "logsumexp")
    cases = []
    for x, n, keep in itertools.product((V, A, C, D), names, (False, True)):
        for axis in (*range(-x.ndim - 1, x.ndim + 1), None):
            if axis is None and n in ("prod", "all", "any", "logsumexp"):
                continue
            cases.append(both(x, n, axis, keepdim=keep))
    check(cases, 350, 100)
    several = ((0, 1), (-1, 0), (1, 1), (0, -3), (2,), (0, 1, 2), (0, 3))
    check(
        (
            both(x, n, a, keepdim=k)
            for x in (C,)
            for n in ("sum", "mean", "amax", "amin")
            for a in several
            for k in (False, True)
        ),
        30,
        15,
    )
    for correction in (0, 1, 2, 4):
        check([both(C, n, 1, correction=correction) for n in ("var", "std")], 2)
    check([both(EMPTY, n, a) for n in ("sum", "prod", "all", "any", "mean") for a in (0, 1, 2)], 12)


def test_shapes() -> None:
    sizes = [
        (-1,),
        (6, -1),
        (-1, 4),
        (2, 3, 4),
        (24,),
        (4, -1, 3),
        (5, -1),
        (-1, -1),
        (2, -2, 6),
        (0, -1),
        (25,),
        (1, 24, 1),
    ]
    check(
        [both(C, "reshape", s) for s in sizes] + [both(EMPTY, "reshape", s) for s in ((0,), (-1,), (0, -1), (-1, 3))],
        9,
        6,
    )
    expand = [(3, 4), (2, 3, 4), (-1, 4), (-1, 3, 4), (5, -1, -1), (3, 5), (4,), (2, -1, 4), (0, 3, 4), (3, -2)]
    check([both(A, "expand", s) for s in expand] + [both(D, "expand", s) for s in ((2, 0, 3, 2), (2, 5, -1, 2))], 7, 4)
    check(
        [
            both(C, "unflatten", a, s)
            for a in (0, -1, 2, 3)
            for s in ((2, -1), (2, 2), (-1,), (3, -1), (4, 1), (-1, -1))
        ],
        8,
        8,
    )
    check(
        [
            both(x, n, s)
            for x in (A, E, C)
            for n in ("repeat", "tile")
            for s in ((2,), (2, 3), (1, 0), (2, 1, 2), (-1, 2), ())
        ],
        22,
        6,
    )
    starts = itertools.product((0, 1, -1, -2), range(-5, 6), range(-1, 6))
    check((both(A, "narrow", a, s, n) for a, s, n in starts), 60, 150)
    check((both(x, "select", a, i) for x in (A, C) for a in range(-4, 4) for i in range(-5, 5)), 60, 40)
    check(
        (
            both(x, "roll", s, d)
            for x in (A, C)
            for s, d in (
                (1, 0),
                (-1, 1),
                (5, -1),
                ((1, 2), (0, 1)),
                ((1, -1), (0, 0)),
                (4, None),
                (0, 0),
                ((1, 2), 0),
                (1, 3),
            )
        ),
        14,
        3,
    )
    check(
        (both(x, "rot90", k, d) for x in (A, C) for k in range(-5, 6) for d in ((0, 1), (1, 0), (-1, 0), (0, 0), (0,))),
        60,
        40,
    )
    check((both(A, "diagonal", o) for o in range(-4, 6)), 8)
    check((both(C, "diagonal", o, a, b) for o in (-1, 0, 2) for a in range(-3, 3) for b in range(-3, 3)), 60, 30)
    check((both(x, n, d) for x in (A, C) for n in ("tril", "triu") for d in range(-5, 6)), 44)
    check((both(V, n, d) for n in ("diag", "diag_embed", "diagflat") for d in range(-2, 3)), 15)
    check((both(A, "unfold", a, n, s) for a in (-3, -1, 0, 1, 2) for n in range(6) for s in range(4)), 30, 40)


def test_cuts() -> None:
    check(
        (
            both(x, "split", n, a)
            for x in (V, A)
            for n in (0, 1, 2, 3, 9, (2, 1), (1, 2), (2, 3), (3, 1), (5, 0), (-1, 4))
            for a in (0, -1, 2)
        ),
        20,
        20,
    )
    check((both(x, "chunk", n, a) for x in (V, A, EMPTY) for n in range(-1, 7) for a in (0, -1)), 30, 10)
    cuts = (1, 2, 3, 7, 0, (1,), (1, 3), (-1,), (0, 0), (3, 1), (9,), ())
    check((both(x, "tensor_split", n, a) for x in (V, C) for n in cuts for a in (0, -1)), 40, 3)
    check(
        (both(x, n, k) for x in (E, V, A, C) for n in ("hsplit", "vsplit", "dsplit") for k in (1, 2, 3, (1,), (1, 2))),
        20,
        15,
    )
    parts = [(A, A), (A, A, A), (A, data(2, 4)), (A, data(3, 1)), (A, V), (A, data(0, 4)), (C, C), (V, data(2)), (A,)]
    for name in ("cat", "stack"):
        check(
            (
                (
                    f"{name} {a} {[p.shape for p in ps]}",
                    lambda *t, a=a, n=name: getattr(Tensor, n)(list(t), a),
                    lambda *t, a=a, n=name: getattr(torch, n)(t, a),
                    ps,
                )
                for ps in parts
                for a in range(-4, 4)
            ),
            20,
            25,
        )


KEYS: list[Any] = [
    None,
    Ellipsis,
    0,
    -1,
    2,
    3,
    -4,
    slice(None),
    slice(1, None),
    slice(-2, None),
    slice(None, -1),
    slice(3, 1),
    slice(-9, 9),
    slice(0, 9, 2),
    slice(1, 4, 3),
    slice(None, None, 5),
    [0, -1],
    [2, 0, 1],
    [True, False, True],
    True,
    False,
    [],
    np.array([[0, 1], [1, 0]]),
    1.5,
]


def test_indices() -> None:
    check((both(A, "__getitem__", k) for k in KEYS), 15, 3)
    check((both(A, "__getitem__", (k, m)) for k in KEYS for m in KEYS if not k is m is Ellipsis), 250, 100)
    some = [None, 0, -1, slice(None), slice(1, None, 2), [1, 0], Ellipsis, np.array([[0], [1]]), np.array(1)]
    check(
        (both(C, "__getitem__", k) for k in itertools.product(some, repeat=3) if sum(x is Ellipsis for x in k) < 2),
        400,
    )


def test_backward_slices() -> None:
    """PyTorch has no negative steps; NumPy has."""
    bounds = (None, -6, -5, -2, 0, 1, 4, 5, 9)
    for start, stop, step in itertools.product(bounds, bounds, (-1, -2, -3, -7, 1, 2)):
        part = slice(start, stop, step)
        x = np.arange(10, dtype=np.float32).reshape(5, 2)
        compare(str(part), lambda: ours(x)[0][part], lambda: torch.from_numpy(x[part].copy()))  # noqa: B023


def test_padding_with_elements_of_one_or_of_none() -> None:
    one, none = Tensor.ones(2, 1, device="INTERPRETER"), Tensor.ones(2, 0, device="INTERPRETER")
    for mode, around, fits in (
        ("replicate", (3, 2), True), ("circular", (1, 1), True),
        ("circular", (2, 0), False), ("reflect", (1, 0), False),
    ):  # fmt: skip
        if fits:
            assert one.pad(around, mode=mode).shape == (2, 1 + sum(around))
        for x in (none,) if fits else (one, none):
            with pytest.raises(ValueError, match=f"pad: mode '{mode}' can add"):
                x.pad(around, mode=mode)


def test_padding() -> None:
    around = [
        (1, 2),
        (0, -1),
        (-1, 2),
        (2, 0, 1, 1),
        (-1, -1, 0, 2),
        (3, 3),
        (4, 4),
        (-2, -2),
        (-3, -2),
        (1,),
        (0, 0, 0, 0, 1, 0),
    ]
    for mode in ("constant", "reflect", "replicate", "circular"):
        ranks = {1: (2,), 2: (3,), 4: (4,), 6: (5,)} if mode != "constant" else {1: (), 2: (1, 3), 4: (2, 4), 6: (3, 5)}
        check(
            (
                (
                    f"pad {p} {mode} {n}",
                    lambda t, p=p, m=mode: Tensor.pad(t, p, mode=m),
                    function("pad", p, mode=mode),
                    (data(*(2, 2, 2, 3, 4)[-n:]),),
                )
                for p in around
                for n in ranks[len(p)]
                if p != (-2, -2) or mode == "constant"
            ),
            4,
            1,
        )
    check(
        ((f"pad {p} 7", lambda t, p=p: t.pad(p, value=7.0), function("pad", p, value=7.0), (A,)) for p in around), 7, 2
    )


def test_scatter_and_gather() -> None:
    call: Any
    pick: Any
    put: Any
    how: Any
    index = np.array([[0, 2, 1, 0], [1, 1, 0, 2]])
    x, src = data(3, 4), data(2, 4, seed=1)
    for name, how in (
        ("scatter_add", ()),
        *(("scatter_reduce", (r,)) for r in ("sum", "prod", "mean", "amax", "amin")),
    ):
        for own in (True, False):
            keywords = {"include_self": own} if how else {}
            call = lambda t, i, s, n=name, h=how, k=keywords: getattr(t, n)(0, i, s, *h, **k)  # noqa: E731
            check([(f"{name} {how} {own}", call, call, (x, index, src))], 1)
    one = np.array([0, 2, 2])
    for axis in (-2, -1, 0, 1, 2):
        rows = data(3, 4) if axis in (0, -2) else data(3, 3)
        for name in ("index_add", "index_copy"):
            call = lambda t, i, s, n=name, a=axis: getattr(t, n)(a, i, s)  # noqa: E731
            unique = one if name == "index_add" else np.array([0, 2, 1])
            check([(f"{name} {axis}", call, call, (x, unique, rows))], 0)
        for how in ("prod", "mean", "amax", "amin"):
            call = lambda t, i, s, h=how, a=axis: t.index_reduce(a, i, s, h)  # noqa: E731
            check([(f"index_reduce {how} {axis}", call, call, (x, one, rows))], 0)
        pick = lambda t, i, a=axis: t.gather(a, i)  # noqa: E731
        check(
            [
                (f"gather {axis}", pick, pick, (x, np.array([[0, 1], [2, 0]]))),
                (f"gather {axis}", pick, pick, (x, index)),
            ],
            0,
        )
    for accumulate in (False, True):
        put = lambda t, i, s, a=accumulate: t.put(i, s, a)  # noqa: E731
        check([("put", put, put, (x, np.array([0, 5, -1]), data(3)))], 1)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_sorting(k: int) -> None:
    x = np.random.default_rng(k).permutation(60).reshape(3, 4, 5).astype(np.float32)
    for axis, down in itertools.product((-3, -1, 0, 1, 2, 3), (False, True)):
        check(
            [
                both(x, "sort", axis, descending=down),
                both(x, "topk", min(k, 3), axis, largest=down),
                both(x, "argsort", axis, descending=down),
                both(x, "kthvalue", min(k, 3), axis, keepdim=down),
                both(x, "median", axis, keepdim=down),
            ],
            0,
        )

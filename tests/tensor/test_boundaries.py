"""Arguments at the ends of what is possible: the last that is taken, and the first that is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tinyweb import Tensor

X = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
ONE = X[:, :1]  # an axis of size 1

TAKEN: dict[str, tuple[Callable[[Any], Any], np.ndarray]] = {
    "narrow to the end": (lambda a: a.narrow(2, 1, 3), X[:, :, 1:]),
    "narrow, all": (lambda a: a.narrow(1, 0, 3), X),
    "narrow, nothing": (lambda a: a.narrow(1, 3, 0), X[:, 3:]),
    "narrow from the end": (lambda a: a.narrow(-1, -4, 2), X[:, :, :2]),
    "select, first": (lambda a: a.select(1, -3), X[:, 0]),
    "select, last": (lambda a: a.select(1, 2), X[:, 2]),
    "expand in front": (lambda a: a.expand(5, -1, 3, -1), np.broadcast_to(X, (5, 2, 3, 4))),
    "expand to nothing": (lambda a: a[:, :1].expand(2, 0, 4), X[:, :0]),
    "repeat nothing": (lambda a: a.repeat(1, 0, 2), X[:, :0].repeat(2, 2)),
    "repeat with new axes": (lambda a: a.repeat(2, 1, 1, 3), np.tile(X, (2, 1, 1, 3))),
    "tile fewer": (lambda a: a.tile(2, 3), np.tile(X, (2, 3))),
    "tile none": (lambda a: a.tile(), X),
    "flip an axis of one": (lambda a: a[:, :1].flip(1, 2), ONE[:, :, ::-1]),
    "flip all": (lambda a: a.flip(0, 1, 2), X[::-1, ::-1, ::-1]),
    "flip none": (lambda a: a.flip(()), X),
    "reshape, unknown": (lambda a: a.reshape(-1, 8), X.reshape(3, 8)),
    "reshape, unknown of one": (lambda a: a.reshape(24, -1), X.reshape(24, 1)),
    "reshape of nothing": (lambda a: a[:, :0].reshape(4, 0), X[:, :0].reshape(4, 0)),
    "unflatten": (lambda a: a.unflatten(2, (2, -1)), X.reshape(2, 3, 2, 2)),
    "unflatten, last": (lambda a: a.unflatten(-1, (-1, 4)), X.reshape(2, 3, 1, 4)),
    "flatten, first axes": (lambda a: a.flatten(0, 1), X.reshape(6, 4)),
    "flatten, one axis": (lambda a: a.flatten(1, 1), X),
    "flatten, last axes": (lambda a: a.flatten(1), X.reshape(2, 12)),
    "squeeze what is larger": (lambda a: a.squeeze(1), X),
    "squeeze one of two": (lambda a: a[:1, :1].squeeze(1), X[:1, 0]),
    "squeeze all": (lambda a: a[:1, :1].squeeze(), X[0, 0]),
    "unsqueeze behind": (lambda a: a.unsqueeze(3), X[..., None]),
    "unsqueeze in front": (lambda a: a.unsqueeze(-4), X[None]),
    "movedim": (lambda a: a.movedim((0, 1), (2, 0)), np.moveaxis(X, (0, 1), (2, 0))),
    "swapaxes": (lambda a: a.transpose(0, -1), X.swapaxes(0, -1)),
    "matrix transposed": (lambda a: a.mT, X.swapaxes(1, 2)),
    "all axes": (lambda a: a.T, X.T),
    "quarter turn": (lambda a: a.rot90(1, (1, 2)), np.rot90(X, 1, (1, 2))),
    "quarter turn back": (lambda a: a.rot90(-1, (1, 2)), np.rot90(X, -1, (1, 2))),
    "half turn": (lambda a: a.rot90(6, (2, 0)), np.rot90(X, 2, (2, 0))),
    "roll by the size": (lambda a: a.roll(3, 1), X),
    "roll by less": (lambda a: a.roll(-1, 2), np.roll(X, -1, 2)),
    "roll by more": (lambda a: a.roll((7, -5), (2, 1)), np.roll(X, (7, -5), (2, 1))),
    "roll, flat": (lambda a: a.roll(5), np.roll(X, 5)),
    "shrink nothing": (lambda a: a.shrink([None, (0, 3), (0, 4)]), X),
    "shrink to nothing": (lambda a: a.shrink([None, (3, 3), (1, 4)]), X[:, 3:, 1:]),
    "two axes": (lambda a: a[0, 0].atleast_2d(), X[0, 0][None]),
    "three axes": (lambda a: a[0].atleast_3d(), X[0][..., None]),
    "three axes of one": (lambda a: a[0, 0].atleast_3d(), X[0, 0][None, :, None]),
    "slice, all back": (lambda a: a[:, ::-1, -1:-5:-2], X[:, ::-1, -1:-5:-2]),
    "slice, beyond": (lambda a: a[:, 1:99, -99:2], X[:, 1:99, -99:2]),
    "slice, steps": (lambda a: a[:, ::2, 1::3], X[:, ::2, 1::3]),
    "index, ends": (lambda a: a[-2, 2, -4], X[-2, 2, -4]),
    "index of lists": (lambda a: a[:, [2, -3, 0]], X[:, [2, -3, 0]]),
    "mirrored columns": (lambda a: a.fliplr(), X[:, ::-1]),
    "mirrored rows": (lambda a: a[0].flipud(), X[0, ::-1]),
    "counted": (lambda a: a.count_nonzero(2), np.count_nonzero(X, 2)),
    "counted, axis kept": (lambda a: a.count_nonzero(0, True), np.count_nonzero(X, 0, keepdims=True)),
    "counted, all": (lambda a: a.count_nonzero(), np.array(23)),
    "place of the least": (lambda a: a.argmin(2), X.argmin(2)),
    "place of the greatest": (lambda a: a.argmax(2, True), X.argmax(2, keepdims=True)),
    "place in all": (lambda a: a.argmax(keepdim=True), np.full((1, 1, 1), 23)),
    "shrink at the beginning": (lambda a: a.shrink([(0, 1), None, (0, 3)]), X[:1, :, :3]),
    "shrink by the first": (lambda a: a.shrink([None, None, (1, 4)]), X[:, :, 1:]),
    "cumulative": (lambda a: a.cumsum(-1), X.cumsum(-1)),
    "sorted": (lambda a: a.flip(2).sort(2)[0], X),
    "largest three": (lambda a: a.topk(3, 1)[0], X[:, ::-1]),
    "least of all": (lambda a: a.kthvalue(1, 2)[0], X[:, :, 0]),
    "greatest of all": (lambda a: a.kthvalue(4, 2)[0], X[:, :, 3]),
}


def test_the_last_that_is_taken() -> None:
    a = Tensor(X, device="INTERPRETER")
    found = {name: f(a) for name, (f, _) in TAKEN.items()}
    for name, (_, want) in TAKEN.items():
        got = found[name]
        assert got.shape == want.shape, name
        np.testing.assert_array_equal(got.numpy(), want, err_msg=name)


REFUSED: list[tuple[Callable[[Any], Any], type[Exception], str]] = [
    (lambda a: a.narrow(2, 2, 3), ValueError, "leave axis 2"),
    (lambda a: a.narrow(2, -5, 1), ValueError, "leave axis 2"),
    (lambda a: a.narrow(2, 1, -1), ValueError, "leave axis 2"),
    (lambda a: a.select(1, 3), IndexError, "index 3 is outside of axis 1"),
    (lambda a: a.select(1, -4), IndexError, "index -4 is outside of axis 1"),
    (lambda a: a.expand(-1, 2, 3, 4), ValueError, "size -1 of axis 0"),
    (lambda a: a.expand(2, -2, 4), ValueError, "size -2 of axis 1"),
    (lambda a: a.expand(2, 6, 4), ValueError, "only axes of size 1 can grow"),
    (lambda a: a.expand(3, 4), ValueError, "more axes"),
    (lambda a: a.repeat(1, 2), ValueError, "needs a count"),
    (lambda a: a.repeat(1, -1, 1), ValueError, "at least 0"),
    (lambda a: a.reshape(-1, -1), ValueError, "only one size"),
    (lambda a: a.reshape(5, -1), ValueError, "has no value"),
    (lambda a: a[:, :0].reshape(0, -1), ValueError, "has no value"),
    (lambda a: a.reshape(2, 3, 5), ValueError, "has 24 elements"),
    (lambda a: a.reshape(-2, -12), ValueError, "not be negative"),
    (lambda a: a.permute(0, 1), ValueError, "no permutation"),
    (lambda a: a.permute(0, 1, 1), ValueError, "no permutation"),
    (lambda a: a.flatten(2, 1), ValueError, "lies behind"),
    (lambda a: a.unflatten(2, (3, -1)), ValueError, "do not multiply to 4"),
    (lambda a: a.unflatten(2, (2, 3)), ValueError, "do not multiply to 4"),
    (lambda a: a.shrink([None, (0, 4), None]), ValueError, "leave the shape"),
    (lambda a: a.shrink([None, (2, 1), None]), ValueError, "leave the shape"),
    (lambda a: a.shrink([None, (-1, 1), None]), ValueError, "leave the shape"),
    (lambda a: a.shrink([None, None]), ValueError, "2 bounds"),
    (lambda a: a.unsqueeze(4), IndexError, "axis 4"),
    (lambda a: a.unsqueeze(-5), IndexError, "axis -5"),
    (lambda a: a.squeeze(3), IndexError, "axis 3"),
    (lambda a: a.movedim((0, 0), (1, 2)), ValueError, "none twice"),
    (lambda a: a.movedim((0, 1), (2,)), ValueError, "as many axes"),
    (lambda a: a.rot90(1, (1, 1)), ValueError, "two different axes"),
    (lambda a: a.rot90(1, (0, 1, 2)), ValueError, "two different axes"),
    (lambda a: a.roll((1, 2), (0,)), ValueError, "2 shifts"),
    (lambda a: a.roll((1, 2)), ValueError, "2 shifts"),
    (lambda a: a.t(), ValueError, "at most two axes"),
    (lambda a: a[0, 0].mT, ValueError, "two axes"),
    (lambda a: a[0, 0].fliplr(), ValueError, "two axes"),
    (lambda a: a[0, 0, 0].flipud(), ValueError, "0-d"),
    (lambda a: a[2], IndexError, "2"),
    (lambda a: a[-3], IndexError, "-3"),
    (lambda a: a[:, :, ::0], IndexError, "nonzero"),
    (lambda a: a.sum((1, -2)), ValueError, "twice"),
    (lambda a: a.sum(3), IndexError, "axis 3"),
    (lambda a: a[:, :0].max(1), ValueError, "no elements"),
    (lambda a: a[:, :0].argmin(1), ValueError, "no elements"),
]


def test_the_first_that_is_refused() -> None:
    a = Tensor(X, device="INTERPRETER")
    for f, kind, message in REFUSED:
        with pytest.raises(kind, match=message):
            f(a)

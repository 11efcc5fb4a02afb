"""Operators that fold axes, running sums, and where extrema are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tinyweb.dtype import dtypes
from tinyweb.formats.onnx.call import Call, Host
from tinyweb.formats.onnx.operators.common import cast, number, size_of, whole_axes, whole_axis, wide
from tinyweb.formats.onnx.registry import op
from tinyweb.graph.ir import size_max, size_sub
from tinyweb.tensor import Tensor

Fold = Callable[[Tensor, Sequence[int], bool], Tensor]


def axes_of(call: Call, ndim: int, axes: Host | None) -> list[int] | None:
    """The axes that are folded; None: none of them."""
    named = call.integers("axes", []) if axes is None else axes.reshape(-1).tolist()
    if named:
        return whole_axes(call, named, ndim)
    return None if call.integer("noop_with_empty_axes", 0) else list(range(ndim))


def reduction(name: str, fold: Fold, each: Callable[[Tensor], Tensor] | None = None) -> None:
    """`each` is what the operator does where no axis is folded."""

    def lower(call: Call, x: Tensor, axes: Host | None = None) -> Tensor:
        along, keep = axes_of(call, x.ndim, axes), bool(call.integer("keepdims", 1))
        if along is None:
            return cast(each(x), x.dtype) if each is not None else x
        if not along:
            x, along = x.reshape(1), [0]
            return cast(fold(x, along, False), x.dtype)
        return cast(fold(x, along, keep), x.dtype)

    op(name, host=(1,))(lower)


def _sum(x: Tensor, axes: Sequence[int], keep: bool) -> Tensor:
    return x.sum(tuple(axes), keep, dtype=x.dtype if x.dtype.bits >= 32 else None)


def _mean(x: Tensor, axes: Sequence[int], keep: bool) -> Tensor:
    count = size_of([x.shape[a] for a in axes])
    if x.dtype.is_float:
        return _sum(wide(x), axes, keep) / count
    return _sum(x, axes, keep).div(count, rounding_mode="trunc")


def _extremum(x: Tensor, axes: Sequence[int], keep: bool, largest: bool) -> Tensor:
    if size_of([x.shape[a] for a in axes]) == 0:
        low: Any = {"bool": False}.get(x.dtype.kind, x.dtype.min if largest else x.dtype.max)
        if x.dtype.kind == "bool":
            low = not largest
        shape = [1 if i in axes else n for i, n in enumerate(x.shape) if keep or i not in axes]
        return Tensor.full(tuple(shape), low, dtype=x.dtype, device=x.device)
    if x.dtype.kind == "bool":
        return x.any(tuple(axes), keep) if largest else x.all(tuple(axes), keep)
    for a in sorted(axes, reverse=True):
        found: Any = x.max(a, keep) if largest else x.min(a, keep)
        x = found if isinstance(found, Tensor) else found[0]
    return x


def _log_sum_exp(x: Tensor, axes: Sequence[int], keep: bool) -> Tensor:
    if size_of([x.shape[a] for a in axes]) == 0:
        return _sum(x.exp(), axes, keep).log()
    y = wide(x)
    if not y.dtype.is_float:
        y = y.cast(dtypes.float32)
    return y.logsumexp(tuple(axes), keep)


def _root(x: Tensor, axes: Sequence[int], keep: bool) -> Tensor:
    y = _squares(x, axes, keep)
    return (y if y.dtype.is_float else y.cast(dtypes.float32)).sqrt()


def _squares(x: Tensor, axes: Sequence[int], keep: bool) -> Tensor:
    y = wide(x) if x.dtype.is_float else x
    return _sum(y * y, axes, keep)


def _float(x: Tensor) -> Tensor:
    return x if x.dtype.is_float else x.cast(dtypes.float32)


reduction("ReduceSum", _sum)
reduction("ReduceMean", _mean)
reduction("ReduceMax", lambda x, axes, keep: _extremum(x, axes, keep, True))
reduction("ReduceMin", lambda x, axes, keep: _extremum(x, axes, keep, False))
reduction("ReduceProd", lambda x, axes, keep: x.prod(tuple(axes), keep, dtype=x.dtype if x.dtype.bits >= 32 else None))
reduction("ReduceL1", lambda x, axes, keep: _sum(x.abs(), axes, keep), lambda x: x.abs())
reduction("ReduceL2", _root, lambda x: x.abs())
reduction("ReduceSumSquare", _squares, lambda x: x * x)
reduction("ReduceLogSum", lambda x, axes, keep: _float(_sum(x, axes, keep)).log(), lambda x: _float(x).log())
reduction("ReduceLogSumExp", _log_sum_exp)


@op("ArgMax", "ArgMin")
def arg_extremum(call: Call, x: Tensor) -> Tensor:
    axis, keep = whole_axis(call, call.integer("axis", 0), x.ndim), bool(call.integer("keepdims", 1))
    last = bool(call.integer("select_last_index", 0))
    y = x.flip(axis) if last else x
    found = y.argmax(axis, keep) if call.op == "ArgMax" else y.argmin(axis, keep)
    found = found.cast(dtypes.int64)
    return -found + (x.shape[axis] - 1) if last else found


def scan(call: Call, x: Tensor, axis: Any, compute: Callable[[Tensor, int], Tensor], neutral: int) -> Tensor:
    """A running result, from either end, with or without the element it stands at."""
    at = whole_axis(call, int(number(axis)), x.ndim)
    backwards, exclusive = call.integer("reverse", 0), call.integer("exclusive", 0)
    y = x.flip(at) if backwards else x
    if exclusive:
        n = x.shape[at]
        around = [(1, 0) if i == at else (0, 0) for i in range(x.ndim)]
        y = y.shrink([(0, size_sub(n, 1)) if i == at else None for i in range(x.ndim)]).pad(around, value=neutral)
    y = cast(compute(y, at), x.dtype)
    return y.flip(at) if backwards else y


@op("CumSum", host=(1,))
def cumsum(call: Call, x: Tensor, axis: Host) -> Tensor:
    return scan(call, x, axis, lambda t, a: t.cumsum(a, dtype=x.dtype), 0)


@op("CumProd", host=(1,))
def cumprod(call: Call, x: Tensor, axis: Host) -> Tensor:
    return scan(call, x, axis, lambda t, a: t.cumprod(a, dtype=x.dtype), 1)


# -- along one axis, as long as it was --------------------------------------------------------------------------------
def _rows(call: Call, x: Tensor, compute: Callable[[Tensor, int], Tensor]) -> Tensor:
    """Before version 13 all axes from `axis` on were one."""
    axis = call.integer("axis", -1 if call.version >= 13 else 1)
    if call.version >= 13:
        return cast(compute(x, whole_axis(call, axis, x.ndim)), x.dtype)
    axis += x.ndim if axis < 0 else 0
    flat = x.reshape(size_of(x.shape[:axis]), size_of(x.shape[axis:]))
    return cast(compute(flat, 1), x.dtype).reshape(*x.shape)


@op("Softmax")
def softmax(call: Call, x: Tensor) -> Tensor:
    return _rows(call, x, lambda t, a: wide(t).softmax(a))


@op("LogSoftmax")
def log_softmax(call: Call, x: Tensor) -> Tensor:
    return _rows(call, x, lambda t, a: wide(t).log_softmax(a))


@op("Hardmax")
def hardmax(call: Call, x: Tensor) -> Tensor:
    def one(t: Tensor, axis: int) -> Tensor:
        first = t.argmax(axis, True)
        n = t.shape[axis]
        steps = call.part(Tensor.arange(size_max(n), dtype=dtypes.int32, device=t.device), [n])
        return first.cast(dtypes.int32).eq(steps.reshape(*(n if i == axis else 1 for i in range(t.ndim))))

    return _rows(call, x, one)

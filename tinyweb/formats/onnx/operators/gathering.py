"""Operators that pick elements by their places, write to places, sort and search."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinyweb.dtype import dtypes
from tinyweb.formats.onnx.call import Array, Call, Host, is_text
from tinyweb.formats.onnx.operators.common import cast, filled, fixed, number, size_of, whole_axis, wide
from tinyweb.formats.onnx.operators.counted import found, has_host
from tinyweb.formats.onnx.operators.movement import steps
from tinyweb.formats.onnx.registry import op
from tinyweb.formats.onnx.sizes import Sizes, UndecidedError
from tinyweb.formats.onnx.stored import Stored
from tinyweb.graph.ir import Size, size_max, size_prod, smaller_size
from tinyweb.tensor import Tensor


def from_the_front(index: Tensor, n: Size) -> Tensor:
    """Places of which negative ones count from the end."""
    at = index.cast(dtypes.int32)
    return (at < 0).where(at + (n if isinstance(n, int) else Tensor(n, device=index.device)), at)


@op("Gather", folds=True, sizes=True, stored=(0,))
def gather(call: Call, x: Array | Stored, index: Array) -> Any:
    axis = whole_axis(call, call.integer("axis", 0), len(x.shape))
    n = x.shape[axis]
    if isinstance(x, np.ndarray) and isinstance(index, np.ndarray):
        if isinstance(index, Sizes):
            raise UndecidedError
        if index.size and not -n <= index.min() <= index.max() < n:
            raise call.error(f"an index is outside of axis {axis} of {list(x.shape)}")
        call.afford(size_of([*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]]))
        return np.take(np.asarray(x), np.asarray(index), axis)
    assert isinstance(index, Tensor)
    table = call.matrix(0, x, False) if axis == 0 else None
    if table is not None and not table.turned:
        return table.rows(from_the_front(index, n))
    return call.given(x).take(from_the_front(index, n), axis)


@op("GatherElements")
def gather_elements(call: Call, x: Tensor, index: Tensor) -> Tensor:
    axis = whole_axis(call, call.integer("axis", 0), x.ndim)
    return x.gather(axis, from_the_front(index, x.shape[axis]))


def _flat_places(index: Tensor, shape: Sequence[Size]) -> Tensor:
    """(…, axes) places as places in the flattened first axes of `shape`."""
    parts = [from_the_front(index[..., i], n) * size_prod(shape[i + 1 :]) for i, n in enumerate(shape)]
    return sum(parts[1:], parts[0])


@op("GatherND")
def gather_nd(call: Call, x: Tensor, index: Tensor) -> Tensor:
    batch, depth, sizes = call.integer("batch_dims", 0), fixed(index.shape[-1]), x.shape
    if not 0 <= batch < x.ndim or not 1 <= depth <= x.ndim - batch:
        raise call.error(f"batch_dims {batch} and {depth} places do not go with {x.ndim} axes")
    at = _flat_places(index, sizes[batch : batch + depth])  # (batch…, rest…)
    inner = size_prod(sizes[batch : batch + depth])
    for i, n in enumerate(sizes[:batch]):
        numbers = call.lift(cast(steps(call, n), dtypes.int32)) * size_prod([*sizes[i + 1 : batch], inner])
        at = at + numbers.reshape(n, *(1,) * (at.ndim - i - 1))
    return x.reshape(size_prod(sizes[: batch + depth]), *sizes[batch + depth :]).take(at, 0)


_REDUCE = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@op("ScatterElements", "Scatter")
def scatter_elements(call: Call, x: Tensor, index: Tensor, updates: Tensor) -> Tensor:
    axis, how = whole_axis(call, call.integer("axis", 0), x.ndim), call.choice("reduction", "none", ("none", *_REDUCE))
    at = from_the_front(index, fixed(x.shape[axis]))
    if how == "none":
        return x.scatter(axis, at, updates)
    return cast(x.scatter_reduce(axis, at, updates, _REDUCE[how]), x.dtype)


@op("ScatterND")
def scatter_nd(call: Call, x: Tensor, index: Tensor, updates: Tensor) -> Tensor:
    how, depth = call.choice("reduction", "none", ("none", *_REDUCE)), fixed(index.shape[-1])
    sizes = [fixed(n) for n in x.shape]
    rows, width = math.prod(sizes[:depth]), math.prod(sizes[depth:])
    at = _flat_places(index, sizes[:depth]).reshape(-1, 1)
    flat, new = x.reshape(rows, width), updates.reshape(-1, width)
    at = at.broadcast_to((fixed(at.shape[0]), width))
    if how == "none":
        return flat.scatter(0, at, new).reshape(*sizes)
    return cast(flat.scatter_reduce(0, at, new, _REDUCE[how]), x.dtype).reshape(*sizes)


@op("TensorScatter", host=(2,))
def tensor_scatter(call: Call, past: Tensor, update: Tensor, at: Host | None = None) -> Tensor:
    axis = whole_axis(call, call.integer("axis", -2), past.ndim)
    n, new, batch = fixed(past.shape[axis]), fixed(update.shape[axis]), fixed(past.shape[0])
    begin = np.zeros(batch, np.int64) if at is None else at
    places = begin.reshape(-1, 1) + np.arange(new)
    if call.choice("mode", "linear", ("linear", "circular")) == "circular":
        places = places % n
    elif places.size and places.max() >= n:
        raise call.error(f"{new} steps from {int(begin.max())} on are more than the {n} there are")
    sizes = [batch if i == 0 else new if i == axis else 1 for i in range(past.ndim)]
    index = Tensor(places.astype(np.int32).reshape(sizes), device=past.device)
    return past.scatter(axis, index.broadcast_to(tuple(update.shape)), update)


@op("OneHot", host=(1,))
def one_hot(call: Call, index: Tensor, depth: Host, values: Tensor) -> Tensor:
    n = int(number(depth))
    axis = whole_axis(call, call.integer("axis", -1), index.ndim + 1)
    at = index.cast(dtypes.int64) if index.dtype.is_int else index.trunc().cast(dtypes.int64)
    at = (at < 0).where(at + n, at).unsqueeze(axis)
    steps = Tensor.arange(n, dtype=dtypes.int64, device=index.device)
    hot = at.eq(steps.reshape(*(n if i == axis else 1 for i in range(at.ndim))))
    return hot.where(values[1], values[0])


@op("TopK", host=(1,), sizes=True)
def topk(call: Call, x: Tensor, k: Host | None = None) -> Any:
    count: Size = call.integer("k") if k is None else k.reshape(-1).tolist()[0]
    axis = whole_axis(call, call.integer("axis", -1), x.ndim)
    largest, ordered = bool(call.integer("largest", 1)), bool(call.integer("sorted", 1))
    most = min(size_max(count), size_max(x.shape[axis]))
    values, places = filled(x, [axis], worst(x, largest)).topk(most, axis, largest, ordered)
    if not isinstance(count, int):
        shape = [count if i == axis else n for i, n in enumerate(values.shape)]
        values, places = call.part(values, shape), call.part(places, shape)
    return values, places.cast(dtypes.int64)


def worst(x: Tensor, largest: bool) -> float:
    """What is never chosen before another value."""
    if x.dtype.is_int:
        return float(x.dtype.min if largest else x.dtype.max)
    return -math.inf if largest else math.inf


@op("NonZero", folds=True)
def nonzero(call: Call, x: Array) -> Any:
    x = x if len(x.shape) else x.reshape(1)
    if isinstance(x, Tensor) and has_host():
        rows = found(call, "nonzero", [x.ne(0)], size_max(size_of(x.shape)), len(x.shape))
        return rows.transpose(0, 1).cast(dtypes.int64)
    return np.array(np.nonzero(call.known(x)), np.int64)


@op("Compress", folds=True)
def compress(call: Call, x: Array, kept: Array) -> Any:
    axis = call.integer("axis", None)
    data: Any = x.reshape(-1) if axis is None else x
    at = 0 if axis is None else whole_axis(call, axis, len(x.shape))
    if isinstance(kept, Tensor) and has_host():
        chosen = kept.reshape(-1)
        n = smaller_size(chosen.shape[0], data.shape[at])
        rows = found(call, "nonzero", [call.part(chosen.ne(0), [n])], size_max(n), 1)
        return call.lift(data).take(rows.reshape(rows.shape[0]), at)
    kept = call.known(kept)
    places = np.flatnonzero(kept[: fixed(data.shape[at])]).astype(np.int32)
    return (
        np.take(data, places, at) if isinstance(data, np.ndarray) else data.take(Tensor(places, device=data.device), at)
    )


@op("Unique", host=(0,))
def unique(call: Call, x: Host) -> Any:
    axis = call.integer("axis", None)
    data, along = (x.reshape(-1), 0) if axis is None else (x, whole_axis(call, axis, x.ndim))
    values, first, inverse, counts = np.unique(data, True, True, True, axis=along)
    inverse = inverse.reshape(-1)
    if not call.integer("sorted", 1):
        order = np.argsort(first)
        rank = np.empty_like(order)
        rank[order] = np.arange(order.size)
        values, first, counts, inverse = np.take(values, order, along), first[order], counts[order], rank[inverse]
    return values, first.astype(np.int64), inverse.astype(np.int64), counts.astype(np.int64)


@op("ArrayFeatureExtractor", domain="ai.onnx.ml", raw=True)
def array_feature_extractor(call: Call, x: Any, index: Any) -> Any:
    """Columns by their numbers, which are read back where the columns are text."""
    if is_text(x):
        found = np.take(x, call.known(index, "the place of a text").reshape(-1), -1)
    else:
        x = call.given(x)
        found = x.take(from_the_front(call.given(index).reshape(-1), fixed(x.shape[-1])), x.ndim - 1)
    return found.reshape(1, -1) if x.ndim == 1 else found


@op("NonMaxSuppression", host=(2, 3, 4), folds=True)
def non_max_suppression(
    call: Call,
    boxes: Array,
    scores: Array,
    most: Host | None = None,
    overlap: Host | None = None,
    least: Host | None = None,
) -> Any:
    """How many boxes remain depends on their values, so that it is computed on the host."""
    limit = 0 if most is None else int(number(most))
    bound = 0.0 if overlap is None else float(number(overlap))
    centres = bool(call.integer("center_point_box", 0))
    if not isinstance(scores, np.ndarray) and has_host():
        batches, kinds, count = map(size_max, scores.shape)
        limit = max(min(limit, count), 0)
        numbers = {"most": limit, "overlap": bound, "centres": int(centres)}
        numbers |= {} if least is None else {"least": float(number(least))}
        given = [wide(call.lift(t)) for t in (boxes, scores)]
        rows = found(call, "nonmaxsuppression", given, batches * kinds * limit, 3, numbers)
        return rows.cast(dtypes.int64)
    return np.array(_suppressed(call.known(boxes), call.known(scores), limit, bound, least, centres), np.int64).reshape(
        -1, 3
    )


def _suppressed(boxes: Host, scores: Host, limit: int, bound: float, least: Host | None, centres: bool) -> list[Any]:
    """(batch, class, place) of the boxes that remain, the likeliest of each class first."""
    rows = []
    for batch in range(scores.shape[0]):
        low, high = _corners(boxes[batch].astype(np.float32), centres)
        area = np.prod(high - low, 1)
        for kind in range(scores.shape[1]):
            points = scores[batch, kind]
            order = np.argsort(-points, kind="stable")
            if least is not None:
                order = order[points[order] > float(number(least))]
            kept = 0
            while order.size and kept < limit:
                best, order = order[0], order[1:]
                rows.append((batch, kind, int(best)))
                kept += 1
                both = np.maximum(np.minimum(high[best], high[order]) - np.maximum(low[best], low[order]), 0)
                common = np.prod(both, 1)
                union = area[best] + area[order] - common
                shared = np.where(union > 0, common / np.where(union > 0, union, 1), 0)
                order = order[shared <= bound]
    return rows


def _corners(boxes: Host, centres: bool) -> tuple[Host, Host]:
    if centres:  # x, y, width, height
        half = boxes[:, 2:] / 2
        return boxes[:, :2] - half, boxes[:, :2] + half
    return np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])

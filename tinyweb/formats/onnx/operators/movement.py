"""Operators that rename, join, cut, repeat or pad elements."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from tinyweb.array.movement import broadcast_shapes
from tinyweb.dtype import dtypes
from tinyweb.formats.onnx.call import Array, Call, Host
from tinyweb.formats.onnx.operators.common import (
    broadcast_to,
    cast,
    fixed,
    join,
    permute,
    reshape,
    size_of,
    whole_axes,
    whole_axis,
)
from tinyweb.formats.onnx.operators.integer import how_many
from tinyweb.formats.onnx.registry import op
from tinyweb.formats.onnx.sizes import UndecidedError, fixed_hint, quotient, size_low, sizes
from tinyweb.formats.onnx.stored import Scaled, Stored
from tinyweb.graph.ir import Size, larger_size, size_add, size_div, size_max, size_mul, size_sub, smaller_size
from tinyweb.graph.schedule.indexing import same
from tinyweb.tensor import Tensor

FAR = 1 << 30  # no axis is longer


@op("Shape", raw=True)
def shape(call: Call, x: Array) -> Host:
    return sizes(list(x.shape[slice(call.integer("start", 0), call.integer("end", None))]))


@op("Size", raw=True)
def size(call: Call, x: Array) -> Host:
    return sizes(size_of(x.shape))


@op("Reshape", host=(1,), folds=True, sizes=True)
def lower_reshape(call: Call, x: Array, target: Host | None = None) -> Any:
    wanted: list[Any] = call.integers("shape") if target is None else target.reshape(-1).tolist()
    if not call.integer("allowzero", 0):
        if any(isinstance(n, int) and n == 0 and i >= len(x.shape) for i, n in enumerate(wanted)):
            raise call.error(f"shape {wanted} takes a size that {list(x.shape)} has not")
        wanted = [x.shape[i] if isinstance(n, int) and n == 0 else n for i, n in enumerate(wanted)]
    open_at = [i for i, n in enumerate(wanted) if isinstance(n, int) and n == -1]
    if len(open_at) == 1:
        rest = size_of([n for i, n in enumerate(wanted) if i not in open_at])
        if isinstance(rest, int) and rest == 0:
            raise call.error(f"shape {wanted} leaves a size open that may be anything")
        wanted[open_at[0]] = quotient(size_of(x.shape), rest)
    if not same(size_of(wanted), size_of(x.shape)):
        raise call.error(f"{list(x.shape)} has not as many elements as {wanted}")
    return reshape(x, wanted)


@op("Flatten", folds=True, sizes=True)
def flatten(call: Call, x: Array) -> Any:
    axis = call.integer("axis", 1)
    if not -len(x.shape) <= axis <= len(x.shape):
        raise call.error(f"axis {axis} is outside of {len(x.shape)} axes")
    axis += len(x.shape) if axis < 0 else 0
    return reshape(x, (size_of(x.shape[:axis]), size_of(x.shape[axis:])))


@op("Transpose", folds=True, sizes=True, stored=(0,))
def transpose(call: Call, x: Array | Stored | Scaled) -> Any:
    axes = call.integers("perm", list(range(len(x.shape)))[::-1])
    if isinstance(x, Stored) and axes == [1, 0]:
        return x.transposed
    if isinstance(x, Scaled) and how_many(x.scale) == how_many(x.zero) == 1:
        return x.moved(lambda t: permute(t, axes))
    x = x if isinstance(x, np.ndarray) else call.given(x)
    if sorted(axes) != list(range(len(x.shape))):
        raise call.error(f"perm {axes} is no order of {len(x.shape)} axes")
    return permute(x, axes)


@op("Squeeze", host=(1,), folds=True, sizes=True)
def squeeze(call: Call, x: Array, axes: Host | None = None) -> Any:
    named = call.integers("axes", None) if axes is None else axes.tolist()
    if named is None:
        named = [i for i, n in enumerate(x.shape) if isinstance(n, int) and n == 1]
    out = whole_axes(call, named, len(x.shape))
    if any(x.shape[a] != 1 for a in out):
        raise call.error(f"axes {named} of {list(x.shape)} are not all of size 1")
    return reshape(x, [n for i, n in enumerate(x.shape) if i not in out])


@op("Unsqueeze", host=(1,), folds=True, sizes=True)
def unsqueeze(call: Call, x: Array, axes: Host | None = None) -> Any:
    named = call.integers("axes") if axes is None else axes.reshape(-1).tolist()
    new = whole_axes(call, named, len(x.shape) + len(named))
    rest = iter(x.shape)
    return reshape(x, [1 if i in new else next(rest) for i in range(len(x.shape) + len(new))])


@op("Expand", host=(1,), folds=True, sizes=True)
def expand(call: Call, x: Array, target: Host) -> Any:
    shape = broadcast_shapes("Expand", tuple(x.shape), tuple(target.tolist()))
    if isinstance(x, np.ndarray):
        call.afford(size_of(shape), 4)
    return broadcast_to(x, shape)


@op("Concat", folds=True, sizes=True)
def concat(call: Call, *values: Array) -> Any:
    if not values:
        raise call.error("nothing is joined")
    axis = whole_axis(call, call.integer("axis", 1) if call.version < 4 else call.integer("axis"), len(values[0].shape))
    if len(values) == 2 and call.grows(values[0]):
        return call.grown(call.lift(values[0]), call.lift(values[1]), axis)
    if all(isinstance(v, np.ndarray) for v in values):
        call.afford(sum(math.prod(v.shape) for v in values))
    # an empty list of sizes has one axis and no elements
    return join(values, axis)


@op("Split", host=(1,), folds=True, sizes=True)
def split(call: Call, x: Array, sizes: Host | None = None) -> Any:
    axis = whole_axis(call, call.integer("axis", 0), len(x.shape))
    total, count = x.shape[axis], len(call.node.outputs)
    parts: Any = call.integers("split", None) if sizes is None else sizes.tolist()
    if parts is None:
        if call.integer("num_outputs", count) != count:
            raise call.error(f"num_outputs does not go with {count} outputs")
        each = size_div(size_add(total, count - 1), count)
        begins = [smaller_size(size_mul(each, i), total) for i in range(count)]
        parts = [size_sub(end, begin) for begin, end in itertools.pairwise([*begins, total])]
    ends: list[Size] = [0]
    for n in parts:
        ends.append(size_add(ends[-1], n))
    if not same(ends[-1], total) or min((size_low(n) for n in parts), default=0) < 0:
        raise call.error(f"parts {parts} are not what axis {axis} of {list(x.shape)} has")
    return tuple(x[(slice(None),) * axis + (slice(b, e),)] for b, e in itertools.pairwise(ends))


@op("Slice", host=(1, 2, 3, 4), folds=True, sizes=True)
def lower_slice(
    call: Call,
    x: Array,
    starts: Host | None = None,
    ends: Host | None = None,
    axes: Host | None = None,
    steps: Host | None = None,
) -> Any:
    begin = call.integers("starts") if starts is None else starts.tolist()
    end = call.integers("ends") if ends is None else ends.tolist()
    named = (call.integers("axes", None) if starts is None else None) if axes is None else axes.tolist()
    step = [1] * len(begin) if steps is None else steps.tolist()
    along = whole_axes(call, range(len(begin)) if named is None else named, len(x.shape))
    if not len(begin) == len(end) == len(along) == len(step) or 0 in step:
        raise call.error(f"starts {begin}, ends {end}, axes {along} and steps {step} do not go together")
    where: list[Any] = [slice(None)] * len(x.shape)
    for a, b, e, s in zip(along, begin, end, step):
        n = x.shape[a]
        if s == 1:
            first, last = _held(b, n, 0, n), _held(e, n, 0, n)
            where[a] = slice(first, larger_size(first, last))
            continue
        s = fixed(s)
        if s > 0:
            first, last = _held(b, n, 0, n), _held(e, n, 0, n)
            where[a] = slice(first, larger_size(first, last), s)
            continue
        end_of = size_sub(n, 1)
        first, last = _held(b, n, -1, end_of), _held(e, n, -1, end_of)
        if all(isinstance(v, int) for v in (n, first, last)):
            where[a] = slice(first, None if last < 0 else last, s) if first >= 0 else slice(0, 0)
            continue
        if not isinstance(x, Tensor):
            raise UndecidedError
        x = x.flip(a)
        first = size_sub(end_of, first)
        where[a] = slice(first, larger_size(first, size_sub(end_of, last)), -s)
    return x[tuple(where)]


def _held(at: Size, n: Size, low: Size, high: Size) -> Any:
    """A bound of a slice, counted from the front, within the axis."""
    at = max(-FAR, min(at, FAR)) if isinstance(at, int) else at
    if size_low(at) < 0:
        if not isinstance(at, int) and at.vmax >= 0:
            raise UndecidedError
        at = size_add(at, n)
    return larger_size(low, smaller_size(high, at))


@op("Tile", host=(1,), folds=True, sizes=True)
def tile(call: Call, x: Array, repeats: Host) -> Any:
    counts = repeats.tolist()
    if len(counts) != len(x.shape):
        raise call.error(f"repeats {counts} are not one for each of {len(x.shape)} axes")
    if isinstance(x, np.ndarray):
        call.afford(size_of([*x.shape, *counts]))
        return np.tile(x, counts)
    return x.repeat(*counts) if counts else x


@op("Pad", host=(1, 3), sizes=True)
def pad(
    call: Call, x: Tensor, pads: Host | None = None, value: Tensor | None = None, axes: Host | None = None
) -> Tensor:
    if not isinstance(x, Tensor):
        raise UndecidedError
    around: Any = call.integers("pads" if call.version > 1 else "paddings") if pads is None else pads.tolist()
    mode = call.choice("mode", "constant", ("constant", "reflect", "edge", "wrap"))
    along = range(x.ndim) if axes is None else whole_axes(call, axes.tolist(), x.ndim)
    if len(around) != 2 * len(along):
        raise call.error(f"pads {around} are not two for each of {len(along)} axes")
    by_axis: list[tuple[Size, Size]] = [(0, 0)] * x.ndim
    for i, a in enumerate(along):
        by_axis[a] = (around[i], around[i + len(along)])
    if mode != "constant":
        return _around(call, x, by_axis, mode)
    number = call.real("value", 0.0) if value is None else value
    if isinstance(number, float):
        return cast(padded(x, by_axis, number), x.dtype)
    # what is not there is told from what is by a border of ones
    ones = padded(Tensor.ones(*x.shape, dtype=dtypes.bool, device=x.device), by_axis, 0)
    return cast(ones.where(padded(x, by_axis, 0), number.reshape(())), x.dtype)


def padded(x: Tensor, by_axis: list[tuple[Size, Size]], value: float) -> Tensor:
    return x.pad(by_axis, value=value)


def _around(call: Call, x: Tensor, by_axis: list[tuple[Size, Size]], mode: str) -> Tensor:
    """By reading elements again: borders may be wider than what they mirror."""
    for axis, (before, after) in enumerate(by_axis):
        n = x.shape[axis]
        if before == 0 and after == 0:
            continue
        call.afford(size_add(n, size_add(before, after)))
        at = steps(call, size_add(n, size_add(before, after))) - before
        if mode == "edge":
            at = at.clip(0, n - 1)
        elif mode == "wrap":
            at = at % n
        else:
            at = abs((at + (n - 1)) % larger_size(size_sub(size_mul(n, 2), 2), 1) - (n - 1))
        x = x.take(at if isinstance(at, Tensor) else Tensor(at.astype(np.int32), device=x.device), axis)
    return x


def steps(call: Call, n: Size) -> Any:
    """0 … n - 1: an array, or where n varies an int32 Tensor."""
    if isinstance(n, int):
        return np.arange(n)
    return call.part(Tensor.arange(size_max(n), dtype=dtypes.int32, device=call.device), [n])


@op("SpaceToDepth")
def space_to_depth(call: Call, x: Tensor) -> Tensor:
    b = call.integer("blocksize")
    dcr = call.choice("mode", "DCR", ("DCR", "CRD")) == "DCR"
    n, c = x.shape[0], fixed(x.shape[1])
    for s in x.shape[2:]:
        left = size_sub(s, size_mul(size_div(s, b), b))
        if size_low(size_sub(0, left)) < 0:
            if isinstance(left, int):
                raise call.error(f"planes of {list(x.shape[2:])} are not made of blocks of {b}")
            raise call.unsupported(f"planes need not be made of blocks of {b}: {fixed_hint([s])}")
    t = x.unfold(2, b, b).unfold(3, b, b)  # (n, c, h / b, w / b, b, b)
    t = t.permute(0, 4, 5, 1, 2, 3) if dcr else t.permute(0, 1, 4, 5, 2, 3)
    return t.reshape(n, c * b * b, *t.shape[4:])


@op("DepthToSpace")
def depth_to_space(call: Call, x: Tensor) -> Tensor:
    b = call.integer("blocksize")
    (n, _, h, w), c = x.shape, fixed(x.shape[1])
    if b < 1 or c % b**2:
        raise call.error(f"{c} channels are not made of blocks of {b} × {b}")
    if call.choice("mode", "DCR", ("DCR", "CRD")) == "DCR":
        t = x.reshape(n, b, b, c // b**2, h, w).permute(0, 3, 4, 1, 5, 2)
    else:
        t = x.reshape(n, c // b**2, b, b, h, w).permute(0, 1, 4, 2, 5, 3)
    return t.reshape(n, c // b**2, size_mul(h, b), size_mul(w, b))


@op("CenterCropPad", host=(1,), sizes=True)
def center_crop_pad(call: Call, x: Tensor, target: Host) -> Tensor:
    if not isinstance(x, Tensor):
        raise UndecidedError
    along = whole_axes(call, call.integers("axes", range(x.ndim)), x.ndim)
    around: list[tuple[Size, Size]] = [(0, 0)] * x.ndim
    cut: list[tuple[Size, Size]] = [(0, n) for n in x.shape]
    for a, wanted in zip(along, target.tolist()):
        less, more = (larger_size(size_sub(*pair), 0) for pair in ((x.shape[a], wanted), (wanted, x.shape[a])))
        begin, before = size_div(less, 2), size_div(more, 2)
        cut[a] = begin, size_add(begin, smaller_size(x.shape[a], wanted))
        around[a] = before, size_sub(more, before)
    return cast(x.shrink(cut).pad(around), x.dtype)


@op("Trilu", host=(1,))
@op("Trilu", domain="com.microsoft", host=(1,))
def trilu(call: Call, x: Tensor, k: Host | None = None) -> Tensor:
    at = 0 if k is None else int(k.reshape(-1)[0])
    if size_of(x.shape) == 0:
        return x
    at = max(-fixed(x.shape[-2]) - 1, min(fixed(x.shape[-1]) + 1, at))
    return cast(x.triu(at) if call.integer("upper", 1) else x.tril(at), x.dtype)


@op("ReverseSequence", host=(1,))
def reverse_sequence(call: Call, x: Tensor, lengths: Host) -> Tensor:
    batch, time = call.integer("batch_axis", 1), call.integer("time_axis", 0)
    if {batch, time} != {0, 1}:
        raise call.error("batch_axis and time_axis must be 0 and 1")
    steps = np.arange(fixed(x.shape[time]))[None, :]
    each = lengths.reshape(-1, 1)
    at = np.where(steps < each, each - 1 - steps, steps).astype(np.int32)  # (batch, time)
    rows = np.arange(fixed(x.shape[batch]), dtype=np.int32)[:, None]
    if batch == 1:
        at, rows = at.T, rows.T
    place = Tensor(np.ascontiguousarray(at), device=x.device), Tensor(np.ascontiguousarray(rows), device=x.device)
    return x[place[1], place[0]] if batch == 0 else x[place[0], place[1]]

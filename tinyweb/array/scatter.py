"""Writing parts: `x[...] = value`, scatter and its kin.

Positions are worked off one after the other, side by side along all axes that share an index: that is deterministic and
needs no atomic operations. Positions outside of the axis write nothing; where several write the same place, the last
one wins (or all are combined).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from tinyweb.array.core import TensorCore
from tinyweb.array.gathering import host_value
from tinyweb.array.indexing import Indexing, Pick, View, place
from tinyweb.array.movement import broadcast_shapes
from tinyweb.device import is_recording
from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import Ops, Shape, UOp, size_max, size_prod
from tinyweb.graph.schedule.indexing import same

REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")


class Scatter(Indexing):
    """Methods that write to chosen places."""

    __slots__ = ()

    # -- x[...] = value -----------------------------------------------------------------------------------------------
    def __setitem__(self, key: Any, value: Any) -> None:
        """Write into this tensor's memory (see `assign`) what `self[key]` names: the value is broadcast to its shape
        and cast to this dtype. Integer tensors that name a place twice: the last one wins."""
        view = self._view(key)
        x = self._value(value, "index")
        if view.picks:
            x = view.tensor._placed(view.picks, x, accumulate=False)
        else:
            x = x._fitted(view.tensor.shape)
        if view.padded:
            written = self._new(UOp.const(True, dtypes.bool))._broadcast_to(view.tensor.shape)
            self.assign(written._put_back(view, self.shape).where(x._put_back(view, self.shape), self))
        else:
            self._assign_into(view.tensor.uop, x)

    def _value(self, value: Any, method: str) -> Self:
        """What is to be written, as a tensor of this dtype."""
        if not isinstance(value, TensorCore):
            return type(self)(value, dtype=self.dtype, device=self.device)
        if value.device != self.device:
            raise ValueError(f"{method}: the value is on {value.device}, the tensor on {self.device}")
        return self._new(value.uop).cast(self.dtype)

    def _fitted(self, shape: Shape) -> Self:
        """Broadcast to `shape`; axes of size 1 in front may be too many."""
        t = self
        while t.ndim > len(shape) and t.shape[0] == 1:
            t = t._reshape(tuple(t.shape[1:]))
        if t.ndim > len(shape) or any(
            n != 1 and not same(n, m) for n, m in zip(reversed(t.shape), reversed(shape), strict=False)
        ):
            raise ValueError(
                f"index: a value of shape {self.shape} does not broadcast to {shape}, which the index names"
            )
        return t._broadcast_to(shape)

    def _put_back(self, view: View[Any], shape: Shape) -> Self:
        """What stands in the view put where it belongs in the indexed tensor, zeros elsewhere."""
        bounds = list(zip(view.lows, view.ends, view.steps, strict=True))
        counts = [-(-(e - b) // abs(s)) if isinstance(b, int) and isinstance(e, int) else e - b for b, e, s in bounds]
        t = self._reshape(tuple(counts))
        for a, (low, end, step) in enumerate(bounds):
            t = t.flip(a) if step < 0 else t
            if abs(step) > 1:
                inner = (*t.shape[:a], t.shape[a] * abs(step), *t.shape[a + 1 :])
                t = t.unsqueeze(a + 1)._pad_along(a + 1, 0, abs(step) - 1)._reshape(inner)._along(a, 0, end - low)
            t = t._pad_along(a, low, shape[a] - end)
        return t

    def _placed(self, picks: Sequence[Pick[Self]], value: Self, accumulate: bool) -> Self:
        """This view with `value` at what the picks name."""
        if len(picks) == 1 and picks[0].is_mask and not accumulate:
            return self._masked(picks[0], value)
        t, picks = self._merge_masks(self, picks)
        wanted = broadcast_shapes("index", *(p.index.shape for p in picks))
        axes = [p.axis for p in picks]
        rest = [a for a in range(t.ndim) if a not in axes]
        others = tuple(t.shape[a] for a in rest)
        # axes of single numbers are dropped first: they do not keep the others apart
        gone = [p.axis for p in picks if p.index.ndim == 0]
        before = place([a - sum(g < a for g in gone) for a in axes if a not in gone] or [0])
        v = value._fitted((*others[:before], *wanted, *others[before:]))
        k = len(wanted)
        v = v.permute(*range(before, before + k), *range(before), *range(before + k, v.ndim))
        v = v._reshape((size_prod(wanted), *others))
        index: Any = None
        for p, n in zip(picks, (t.shape[a] for a in axes), strict=True):
            i = t._from_front(p.index, n)._broadcast_to(wanted)
            inside = i.less(n) if not i.dtype.is_signed else i.greater(-1).logical_and(i.less(n))
            i = i if i.dtype.is_signed else i.cast(dtypes.int32)
            # a place that is outside in one axis is outside of the merged ones
            index = inside.where(i, -1) if index is None else inside.logical_and(index > -1).where(index * n + i, -1)
        order = [*axes, *rest]
        front = t.permute(*order)
        flat = front._reshape((size_prod(front.shape[: len(axes)]), *others))
        index = index._reshape((size_prod(wanted),))
        out = flat._combined(index, v, 0, "sum", True) if accumulate else flat._last(index, v, 0)
        back = out._reshape(tuple(front.shape)).permute(*(order.index(a) for a in range(t.ndim)))
        return back._reshape(tuple(self.shape))

    def _masked(self, pick: Pick[Self], value: Self) -> Self:
        """This view with `value` where a mask is true: one for all places, or one after the other."""
        axis, mask = pick.axis, pick.index
        lead, inner = tuple(self.shape[:axis]), tuple(self.shape[axis + pick.axes :])
        if pick.axes == 0:
            lead, inner = tuple(self.shape[:axis]), tuple(self.shape[axis + 1 :])
        wide = mask._reshape((*(1,) * len(lead), *mask.shape, *(1,) * (len(self.shape) - len(lead) - mask.ndim)))
        count = value.shape[-1 - len(inner)] if value.ndim > len(inner) else 1
        if count == 1:
            x = value._fitted((*lead, 1, *inner))
            x = x._reshape((*lead, *(1,) * (self.ndim - len(lead) - len(inner)), *inner))
            return wide.where(x, self)
        if pick.value is not None or not is_recording():
            true = int((host_value(mask, "index") if pick.value is None else pick.value).sum())
            if true != count:
                raise ValueError(f"index: a value of shape {value.shape} for a mask that is true {true} times")
        rank = mask.flatten()._rank()
        x = value._fitted((*lead, count, *inner))._take(rank, axis)
        return wide.where(x._reshape(tuple(self.shape)), self)

    # -- one axis: the target's view ----------------------------------------------------------------------------------
    # below, `self` is (shared…, n, rest…), `index` (shared…, positions) and `values` (shared…, positions, rest…)
    def _last(self, index: Self, values: Self, shared: int) -> Self:
        """The value of the last position that names a place."""
        return self._written(index, values, shared, None)

    def _written(self, index: Self, values: Self, shared: int, op: Ops | None) -> Self:
        """Every value in turn combined by `op` with what is at its place, or put there."""
        if index.numel() == 0 or self.numel() == 0:
            return self
        index = index.cast(dtypes.int32) if index.dtype.bits < 32 else index
        return self._new(UOp(Ops.SCATTER, self.dtype, (self.uop, index.uop, values.uop), (shared, op)))

    def _combined(self, index: Self, values: Self, shared: int, reduce: str, include_self: bool) -> Self:
        """All values that name a place combined, with what was there or without."""
        if index.numel() == 0 or self.numel() == 0:
            return self
        narrow = self.dtype
        wide = _accumulator(narrow)
        mine, v = self.cast(wide), values.cast(wide)
        places = self.shape[: shared + 1]
        counted = self._new(UOp.const(0, dtypes.int32))._broadcast_to(places)
        ones = self._new(UOp.const(1, dtypes.int32))._broadcast_to(index.shape)
        count = counted._written(index, ones, shared, Ops.ADD)._reshape((*places, *(1,) * (self.ndim - shared - 1)))
        if reduce in ("amax", "amin"):
            v, own = (v, mine) if reduce == "amax" else (_mirrored(v), _mirrored(mine))
            lowest = self._new(UOp.const(wide.min, wide))._broadcast_to(self.shape)
            best = (own if include_self else lowest)._written(index, v, shared, Ops.MAX)
            best = best if reduce == "amax" else _mirrored(best)
            out = best if include_self else count.greater(0).where(best, mine)
        else:
            op, neutral = (Ops.MUL, 1) if reduce == "prod" else (Ops.ADD, 0)
            start = mine if include_self else self._new(UOp.const(neutral, wide))._broadcast_to(self.shape)
            out = start._written(index, v, shared, op)
            if reduce == "mean":
                n = count.add(1) if include_self else count.maximum(1)
                out = out.div(n) if wide.is_float else out.floordiv(n)
            out = out if include_self else count.greater(0).where(out, mine)
        return out.cast(narrow)

    # -- scatter ------------------------------------------------------------------------------------------------------
    def _scattered(self, method: str, axis: int, index: Any, src: Any, reduce: str | None, include_self: bool) -> Self:
        i = self._indices(index, method)
        _check_source(method, self, src)
        if self.ndim == 0:
            self._axis(axis, method=method)
            if i.ndim > 1 or size_max(i.numel()) > 1:
                raise ValueError(f"{method}: index {i.shape} must have as many axes as {self.shape}")
            flat = self._value(src, method).flatten()
            if not flat.numel():
                raise ValueError(f"{method}: the source {flat.shape} has no element for the index {i.shape}")
            flat = flat._along(0, 0, 1)
            return self._reshape((1,))._scattered(method, 0, i._reshape((1,)), flat, reduce, include_self)._reshape(())
        a = self._axis(axis, method=method)
        v = self._value(src, method)
        v = v._broadcast_to(i.shape) if v.ndim == 0 else v
        if i.ndim != self.ndim or v.ndim != self.ndim:
            raise ValueError(f"{method}: index {i.shape} and source {v.shape} must have as many axes as {self.shape}")
        for d, (m, n, s) in enumerate(zip(i.shape, self.shape, v.shape, strict=True)):
            if size_max(m) > size_max(s) or (d != a and size_max(m) > size_max(n)):
                raise ValueError(
                    f"{method}: index {i.shape} is larger than the source {v.shape}, or outside of axis {axis} larger "
                    f"than {self.shape}"
                )
        v = v.shrink([None if same(m, s) else (0, m) for m, s in zip(i.shape, v.shape, strict=True)])
        part = [None if d == a or same(m, n) else (0, m) for d, (m, n) in enumerate(zip(i.shape, self.shape))]
        t = self.shrink(part)
        i = t._from_front(i, t.shape[a])
        shared, rest = self._shared_axes(a, i)
        if rest:
            i = i.shrink([(0, 1) if d in rest else None for d in range(i.ndim)])
        order = [*shared, a, *rest]
        i = i.permute(*order)._reshape(tuple(v.shape[d] for d in (*shared, a)))
        front, v = t.permute(*order), v.permute(*order)
        k = len(shared)
        out = front._last(i, v, k) if reduce is None else front._combined(i, v, k, reduce, include_self)
        out = out.permute(*(order.index(d) for d in range(self.ndim)))
        if t is self:
            return out
        around = [(0, 0) if b is None else (0, n - b[1]) for b, n in zip(part, self.shape, strict=True)]
        inside = self._new(UOp.const(True, dtypes.bool))._broadcast_to(out.shape)._pad(around)
        return inside.where(out._pad(around), self)

    def scatter(self, axis: int, index: Any, src: Any, reduce: str | None = None) -> Self:
        """self with out[index[i][j]][j] = src[i][j] for axis 0, and so on; `src` may be a number.

        `reduce` "add" or "multiply" combines with what is there. Where an index names a place twice the last one wins,
        and gets the gradient.
        """
        if reduce not in (None, "add", "multiply"):
            raise ValueError(f"scatter: reduce is 'add', 'multiply' or None, got {reduce!r}")
        kind = {"add": "sum", "multiply": "prod", None: None}[reduce]
        return self._scattered("scatter", axis, index, src, kind, True)

    def scatter_add(self, axis: int, index: Any, src: Any) -> Self:
        """self with src[i][j] added to element [index[i][j]][j] for axis 0, and so on."""
        return self._scattered("scatter_add", axis, index, src, "sum", True)

    def scatter_reduce(self, axis: int, index: Any, src: Any, reduce: str, include_self: bool = True) -> Self:
        """Like scatter_add with `reduce` "sum", "prod", "mean", "amax" or "amin" of what arrives, and of what is there
        unless `include_self` is False."""
        _check_reduce("scatter_reduce", reduce)
        return self._scattered("scatter_reduce", axis, index, src, reduce, include_self)

    # -- whole slices -------------------------------------------------------------------------------------------------
    def _sliced(self, method: str, axis: int, index: Any, src: Any, reduce: str | None, include_self: bool) -> Self:
        _check_source(method, self, src)
        if self.ndim == 0:
            self._axis(axis, method=method)
            flat = self._value(src, method)
            flat = flat if not flat.ndim else flat.reshape(1)
            return self._reshape((1,))._sliced(method, 0, index, flat, reduce, include_self)._reshape(())
        a = self._axis(axis, method=method)
        i = self._indices(index, method).atleast_1d()
        v = self._value(src, method)
        wanted = (*self.shape[:a], i.shape[0], *self.shape[a + 1 :])
        if v.ndim == 0:
            v = v._broadcast_to(wanted)
        if i.ndim != 1 or v.ndim != len(wanted) or not all(map(same, v.shape, wanted)):
            raise ValueError(
                f"{method}: index {i.shape} in axis {axis} of {self.shape} needs a source of {wanted}, got {v.shape}"
            )
        front, v = self.movedim(a, 0), v.movedim(a, 0)
        i = front._from_front(i, front.shape[0])
        out = front._last(i, v, 0) if reduce is None else front._combined(i, v, 0, reduce, include_self)
        return out.movedim(0, a)

    def index_add(self, axis: int, index: Any, source: Any, alpha: float = 1) -> Self:
        """self with alpha · the slices of `source` along an axis added to those that the vector `index` names."""
        _check_source("index_add", self, source)
        v = self._value(source, "index_add")
        return self._sliced("index_add", axis, index, v if alpha == 1 else v.mul(alpha), "sum", True)

    def index_copy(self, axis: int, index: Any, source: Any) -> Self:
        """self with the slices along an axis that the vector `index` names replaced by those of `source`."""
        return self._sliced("index_copy", axis, index, source, None, True)

    def index_fill(self, axis: int, index: Any, value: Any) -> Self:
        """self with the slices along an axis that the vector `index` names filled with a number."""
        v = self._value(value, "index_fill")
        if v.ndim:
            raise ValueError(f"index_fill: the value must be a number, got shape {v.shape}")
        return self._sliced("index_fill", axis, index, v, None, True)

    def index_reduce(self, axis: int, index: Any, source: Any, reduce: str, include_self: bool = True) -> Self:
        """scatter_reduce of whole slices: those that the vector `index` names, with those of `source`."""
        _check_reduce("index_reduce", reduce)
        return self._sliced("index_reduce", axis, index, source, reduce, include_self)

    # -- places by coordinates, or in row-major order -----------------------------------------------------------------
    def index_put(self, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Self:
        """self with `values` (broadcast) at self[indices], a tuple of integer tensors or masks; added to what is there
        if `accumulate`."""
        if not isinstance(indices, tuple | list):
            raise TypeError(f"index_put: indices must be a tuple of tensors, got {type(indices).__name__}")
        _check_source("index_put", self, values)
        view = self._view(tuple(indices))
        new = [p.axis for p in view.picks if p.axes == 0]  # axes that masks without axes pick from
        shape = tuple(s for a, s in enumerate(view.tensor.shape) if a not in new)
        if view.padded or not view.picks or shape != tuple(self.shape):
            raise IndexError(f"index_put: indices must be integer tensors or masks, got {indices}")
        return view.tensor._placed(view.picks, self._value(values, "index_put"), accumulate)._reshape(shape)

    def put(self, index: Any, source: Any, accumulate: bool = False) -> Self:
        """self with the elements of `source` at the places `index` of the flattened tensor; added if `accumulate`."""
        _check_source("put", self, source)
        i = self._indices(index, "put").flatten()
        v = self._value(source, "put").flatten()
        if not same(v.shape[0], i.shape[0]):
            raise ValueError(f"put: {i.numel()} indices and {v.numel()} elements of the source must be as many")
        flat = self.flatten()
        i = flat._from_front(i, flat.shape[0])
        out = flat._combined(i, v, 0, "sum", True) if accumulate else flat._last(i, v, 0)
        return out._reshape(tuple(self.shape))

    def masked_scatter(self, mask: TensorCore, source: Any) -> Self:
        """self with the elements of `source` one after the other where `mask` is true, in row-major order."""
        m = mask
        if m.dtype is not dtypes.bool:
            raise TypeError(f"masked_scatter: the mask must be of dtype bool, got {m.dtype.name}")
        _check_source("masked_scatter", self, source)
        v = self._value(source, "masked_scatter").flatten()
        shape = broadcast_shapes("masked_scatter", self.shape, m.shape)
        wide = self._new(m.uop)._broadcast_to(shape)
        rank = wide.flatten()._rank()
        return wide.where(v._take(rank, 0)._reshape(shape), self)


def _check_source(method: str, target: TensorCore, source: Any) -> None:
    """A tensor is not cast silently; numbers and arrays take the target's dtype."""
    if isinstance(source, TensorCore) and source.dtype is not target.dtype:
        raise TypeError(
            f"{method}: the source is {source.dtype.name}, this tensor {target.dtype.name}: cast one of them"
        )


def _check_reduce(method: str, reduce: str) -> None:
    if reduce not in REDUCTIONS:
        raise ValueError(f"{method}: reduce is one of {', '.join(REDUCTIONS)}, got {reduce!r}")


def _accumulator(dtype: DType) -> DType:
    """What values of `dtype` are combined in."""
    if dtype.is_float:
        return dtypes.float32 if dtype.bits < 32 else dtype
    if dtype.bits >= 32:
        return dtype
    return dtypes.uint32 if dtype.kind == "uint" else dtypes.int32


def _mirrored(t: Any) -> Any:
    """In the reverse order: the complement of integers, as negation may overflow."""
    return t.neg() if t.dtype.is_float else t.bitwise_not()

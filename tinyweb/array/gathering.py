"""Elements picked by integer tensors and masks."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tinyweb.array.core import TensorCore
from tinyweb.array.creation import Creation
from tinyweb.array.joining import Joining
from tinyweb.array.movement import broadcast_shapes
from tinyweb.array.reduction import Reduction
from tinyweb.device import is_recording
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import Ops, Size, UOp, size_max, size_prod
from tinyweb.graph.schedule.indexing import same


def host_value(t: TensorCore, method: str) -> npt.NDArray[Any]:
    """The value of a tensor that decides a shape."""
    if is_recording():
        raise RuntimeError(
            f"{method}: the shape of the result depends on values, which are not known while a jit or an export records"
        )
    return t.numpy()


class Gathering(Joining, Reduction, Creation):
    """take, gather and their kin. An index outside of its axis gives 0; negative ones count from the end.

    The gradient of what is picked along an axis of n is a masked sum: it costs n times what was picked.
    """

    __slots__ = ()

    # -- indices ------------------------------------------------------------------------------------------------------
    def _indices(self, index: Any, method: str) -> Self:
        """Integers as a tensor of at least 32 bits on this device."""
        i = index if isinstance(index, TensorCore) else type(self)(np.asarray(index), device=self.device)
        if not isinstance(index, TensorCore) and i.numel() == 0:
            i = i._new(UOp.const(0, dtypes.int32))  # an empty list has no dtype of its own
            i = self._new(i.uop)._broadcast_to(np.asarray(index).shape)
        if not i.dtype.is_int:
            raise IndexError(f"{method}: an index must hold integers, got {i.dtype.name}")
        if i.device != self.device:
            raise ValueError(f"{method}: tensors live on {self.device} and {i.device}: move one with .to()")
        found = self._new(i.uop)
        small = found.dtype.bits < 32 or isinstance(index, np.ndarray | list | tuple)
        return found.cast(dtypes.int32) if small else found

    def _from_front(self, index: Self, n: Size) -> Self:
        """Negative indices of an axis of n counted from its front."""
        if not index.dtype.is_signed or index.uop.op is Ops.IOTA:
            return index
        return index.less(0).where(index.add(n), index)

    def _pick(self, index: Self, shared: int) -> Self:
        """The primitive: axis `shared` picked by an index whose first axes are those before it."""
        return self._new(UOp(Ops.TAKE, self.dtype, (self.uop, index.uop), shared))

    def _take(self, index: Self, axis: int) -> Self:
        """Slices along an axis picked by an index that counts from its front."""
        picked = self.movedim(axis, 0)._pick(index, 0)
        k = index.ndim
        return picked.permute(*range(k, k + axis), *range(k), *range(k + axis, picked.ndim))

    # -- picks --------------------------------------------------------------------------------------------------------
    def take(self, index: Any, axis: int | None = None) -> Self:
        """Elements of the flattened tensor, or with `axis` slices along it: shape[:axis] + index.shape +
        shape[axis+1:]."""
        t = self.flatten() if axis is None else self
        a = t._pick_axis(axis or 0, "take")
        return t._take(t._from_front(t._indices(index, "take"), t.shape[a]), a)

    def _pick_axis(self, axis: int, method: str) -> int:
        if self.ndim == 0:
            raise IndexError(f"{method}: a 0-d tensor has no axis {axis}")
        return self._axis(axis, method=method)

    def index_select(self, axis: int, index: Any) -> Self:
        """Slices along an axis, in the order of the vector `index`."""
        t = self.atleast_1d()
        i = t._indices(index, "index_select").atleast_1d()
        if i.ndim != 1:
            raise ValueError(f"index_select: index must be a vector, got {i.shape}")
        a = t._pick_axis(axis, "index_select")
        out = t._take(t._from_front(i, t.shape[a]), a)
        return out if self.ndim else out._reshape(())

    def gather(self, axis: int, index: Any) -> Self:
        """out[i][j][k] = self[index[i][j][k]][j][k] for axis 0, and so on; `index` may be smaller in the other axes."""
        i = self._indices(index, "gather")
        if i.ndim != self.ndim:
            raise ValueError(f"gather: index {i.shape} must have as many axes as {self.shape}")
        if self.ndim == 0:
            return self._reshape((1,))._take(self._from_front(i, 1), 0)
        a = self._axis(axis, method="gather")
        for d, (m, n) in enumerate(zip(i.shape, self.shape, strict=True)):
            if d != a and size_max(m) > size_max(n):
                raise ValueError(f"gather: index {i.shape} is larger than {self.shape} in axis {d}, not only in {axis}")
        t = self.shrink([None if d == a or same(m, n) else (0, m) for d, (m, n) in enumerate(zip(i.shape, self.shape))])
        return t._gather(a, t._from_front(i, t.shape[a]))

    def _gather(self, axis: int, index: Self) -> Self:
        """gather with an index of this shape but in `axis`; only where the index varies it is looked at anew."""
        shared, rest = self._shared_axes(axis, index)
        own = index
        if rest:
            own = index.shrink([(0, 1) if d in rest else None for d in range(self.ndim)])
        own = own.permute(*shared, axis, *rest)._reshape(tuple(index.shape[d] for d in (*shared, axis)))
        order = [*shared, axis, *rest]
        picked = self.permute(*order)._pick(own, len(shared))
        return picked.permute(*(order.index(d) for d in range(self.ndim)))

    @staticmethod
    def _shared_axes(axis: int, index: TensorCore) -> tuple[list[int], list[int]]:
        """The other axes along which an index varies, and those along which it was expanded."""
        old = index.uop.src[0].shape if index.uop.op is Ops.EXPAND else index.shape
        rest = [d for d, (o, n) in enumerate(zip(old, index.shape, strict=True)) if d != axis and not same(o, n)]
        return [d for d in range(index.ndim) if d != axis and d not in rest], rest

    def take_along_dim(self, indices: Any, axis: int | None = None) -> Self:
        """gather in which the other axes broadcast; of the flattened tensors without an axis."""
        i = self._indices(indices, "take_along_dim")
        if axis is None:
            return self.flatten()._gather(0, self._from_front(i.flatten(), self.numel()))
        if i.ndim != self.ndim or self.ndim == 0:
            raise ValueError(f"take_along_dim: indices {i.shape} must have as many axes as {self.shape}, at least one")
        a = self._axis(axis, method="take_along_dim")
        rest = broadcast_shapes(
            "take_along_dim", (*i.shape[:a], *i.shape[a + 1 :]), (*self.shape[:a], *self.shape[a + 1 :])
        )
        n, m = self.shape[a], i.shape[a]
        t = self._broadcast_to((*rest[:a], n, *rest[a:]))
        return t._gather(a, self._from_front(i, n)._broadcast_to((*rest[:a], m, *rest[a:])))

    def _rank(self) -> Self:
        """For each true element of this vector, how many are before it."""
        running: Any = self.int()
        rank: Self = running.cumsum(0).sub(1)
        return rank

    # -- masks --------------------------------------------------------------------------------------------------------
    def nonzero(self, as_tuple: bool = False) -> Any:
        """int32 (count, axes): the places of the elements that are not 0, in row-major order; with `as_tuple` one
        vector per axis. Computes the tensor."""
        found = np.nonzero(np.atleast_1d(host_value(self.not_equal(0), "nonzero")))
        if as_tuple:
            return tuple(type(self)(f.astype(np.int32), device=self.device) for f in found)
        rows = np.stack(found, axis=1).astype(np.int32)[:, : self.ndim]
        return type(self)(rows, device=self.device)

    def argwhere(self) -> Self:
        """`nonzero`."""
        found: Self = self.nonzero()
        return found

    def masked_select(self, mask: TensorCore) -> Self:
        """The elements where `mask` is true, in row-major order, as a vector. Computes the mask; broadcasts with it."""
        m = mask
        if m.dtype is not dtypes.bool:
            raise TypeError(f"masked_select: the mask must be of dtype bool, got {m.dtype.name}")
        shape = broadcast_shapes("masked_select", self.shape, m.shape)
        if m.device != self.device:
            raise ValueError(f"masked_select: tensors live on {self.device} and {m.device}: move one with .to()")
        wide = self._new(m.uop)._broadcast_to(shape)
        return self._broadcast_to(shape)._select(wide, 0, host_value(wide, "masked_select"))

    def _select(self, mask: Self, axis: int, value: npt.NDArray[Any]) -> Self:
        """The elements where `mask`, whose value is known, is true; they take the place of its axes, which begin at
        `axis`."""
        lead, inner = tuple(self.shape[:axis]), tuple(self.shape[axis + mask.ndim :])
        where = np.flatnonzero(value).astype(np.int32)
        t = self._reshape((*lead, size_prod(mask.shape), *inner))
        picked = t._take(t._indices(where, "masked_select"), axis)
        if not self.dtype.is_float or where.size == 0:
            return picked
        flat = mask.flatten()
        # each element goes to at most one place, so the gradient comes from there: no sum over what was picked
        rank = flat._rank()
        keep = flat._reshape((flat.numel(), *(1,) * len(inner)))
        zero = self._new(UOp.const(0, self.dtype))
        return picked._with_gradients([t], lambda g: [keep.where(g._take(rank, axis), zero)])

    def repeat_interleave(self, repeats: Any, axis: int | None = None, output_size: int | None = None) -> Self:
        """Every element along an axis (of the flattened tensor without it) repeated in place: all as often, or each as
        an integer vector says, which is read now unless the repeats are a number."""
        x = self.flatten() if axis is None else self.atleast_1d()
        a = x._axis(axis or 0, method="repeat_interleave")
        n = x.shape[a]
        if isinstance(repeats, int | UOp):
            if isinstance(repeats, int) and repeats < 0:
                raise ValueError(f"repeat_interleave: repeats must not be negative, got {repeats}")
            wide = x.unsqueeze(a + 1)._broadcast_to((*x.shape[: a + 1], repeats, *x.shape[a + 1 :]))
            return wide._reshape((*x.shape[:a], size_prod((n, repeats)), *x.shape[a + 1 :]))
        counts = host_value(repeats, "repeat_interleave") if isinstance(repeats, TensorCore) else np.asarray(repeats)
        if counts.dtype.kind not in "iu" or counts.ndim > 1 or (counts < 0).any():
            raise ValueError(f"repeat_interleave: repeats must be a vector of integers of at least 0, got {repeats!r}")
        if counts.size == 1:
            return x.repeat_interleave(int(counts.reshape(())), a)
        if counts.size != n:
            raise ValueError(f"repeat_interleave: {counts.size} repeats for axis {a} of {x.shape}")
        if output_size is not None and counts.sum() != output_size:
            raise ValueError(f"repeat_interleave: output_size {output_size}, but the repeats sum to {counts.sum()}")
        return x._take(x._indices(np.repeat(np.arange(counts.size), counts), "repeat_interleave"), a)

    def combinations(self, r: int = 2, with_replacement: bool = False) -> Self:
        """All combinations of r elements of a vector, one per row, in the order of itertools."""
        if self.ndim != 1:
            raise ValueError(f"combinations: needs a vector, got {self.shape}")
        if r < 0:
            raise ValueError(f"combinations: r must not be negative, got {r}")
        n = self._fixed(0, "combinations")
        choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
        rows: Sequence[tuple[int, ...]] = list(choose(range(n), r))
        return self._take(self._indices(np.array(rows, np.int32).reshape(len(rows), r), "combinations"), 0)

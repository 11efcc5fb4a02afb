"""Reading and writing parts: numbers, slices (symbolic bounds too), None, Ellipsis, integer tensors."""

from __future__ import annotations

from typing import Any, Self

from tinyweb.array.core import TensorCore
from tinyweb.array.reduction import Reduction
from tinyweb.dtype import dtypes
from tinyweb.graph.ir import Ops, Size, UOp, size_add, size_max
from tinyweb.graph.schedule.indexing import same


def _is_size(x: Any) -> bool:
    return isinstance(x, int | UOp) and not isinstance(x, bool)


class Indexing(Reduction):
    """`x[...]`, `x[...] = value`, and gathers."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> Self:
        """Basic indexing is a view; an integer tensor picks along its axis (indices outside give 0)."""
        view, picks = self._view(key)
        if not picks:
            return view
        axis, indices = picks
        return view.take(indices, axis)

    def __setitem__(self, key: Any, value: Any) -> None:
        """Write into this tensor's memory (see `assign`); the key must be basic."""
        view, picks = self._view(key)
        if picks:
            raise NotImplementedError("writing through an integer tensor (scatter) is not available yet: use slices")
        x = value if isinstance(value, TensorCore) else type(self)(value, dtype=self.dtype, device=self.device)
        self._assign_into(view.uop, x)

    def _view(self, key: Any) -> tuple[Self, tuple[int, Any] | None]:
        """The view that the basic part of `key` names, and the (axis of the view, indices) of a tensor in it."""
        items = list(key) if isinstance(key, tuple) else [key]
        used = sum(1 for k in items if k is not None and k is not Ellipsis)
        if sum(1 for k in items if k is Ellipsis) > 1:
            raise IndexError("an index may hold only one Ellipsis")
        if used > self.ndim:
            raise IndexError(f"too many indices ({used}) for the shape {self.shape}")
        at = next((i for i, k in enumerate(items) if k is Ellipsis), len(items))
        items[at : at + 1] = [slice(None)] * (self.ndim - used)

        bounds: list[tuple[Size, Size]] = []
        steps: list[int] = []
        layout: list[str] = []  # what happens to each axis, or "new"
        picks: Any = None
        axis = 0
        for k in items:
            if k is None:
                layout.append("new")
                continue
            n = self.shape[axis]
            if isinstance(k, slice):
                begin, end, step = self._slice(k, n, axis)
                bounds.append((begin, end))
                steps.append(step)
                layout.append("keep")
            elif _is_size(k):
                if isinstance(k, int):
                    if isinstance(n, int) and not -n <= k < n:
                        raise IndexError(f"index {k} is outside of axis {axis} of {self.shape}")
                    k = k % n if isinstance(n, int) else k
                elif k.vmin < 0 or k.vmax >= size_max(n):
                    raise IndexError(f"index with bounds [{k.vmin}, {k.vmax}] can leave axis {axis} of {self.shape}")
                bounds.append((k, k + 1))
                steps.append(1)
                layout.append("drop")
            elif isinstance(k, TensorCore | list):
                t = k if isinstance(k, TensorCore) else type(self)(k, dtype=dtypes.int32, device=self.device)
                if not t.dtype.is_int:
                    raise IndexError(f"a tensor used as index must hold integers, got {t.dtype.name}")
                if picks is not None:
                    raise NotImplementedError("more than one index tensor in one index is not available yet")
                bounds.append((0, n))
                steps.append(1)
                layout.append("pick")
                picks = t
            else:
                raise IndexError(
                    f"cannot index with {type(k).__name__}: use numbers, slices, None, Ellipsis or integer tensors"
                )
            axis += 1
        t = self.shrink(bounds)
        for a, step in enumerate(steps):
            if step < 0:
                t = t.flip(a)
            if abs(step) > 1:
                t = t._every(a, abs(step))
        shape: list[Size] = []
        pick_axis = 0
        sizes = iter(t.shape)
        for what in layout:
            s = 1 if what == "new" else next(sizes)
            if what == "pick":
                pick_axis = len(shape)
            if what != "drop":
                shape.append(s)
        t = t._reshape(tuple(shape))
        return t, None if picks is None else (pick_axis, picks)

    def _slice(self, k: slice, n: Size, axis: int) -> tuple[Size, Size, int]:
        step = 1 if k.step is None else k.step
        if not isinstance(step, int) or step == 0:
            raise IndexError(f"the step of a slice must be a nonzero integer, got {step!r}")
        if isinstance(n, int) and not isinstance(k.start, UOp) and not isinstance(k.stop, UOp):
            first, last, step = k.indices(n)
            if step > 0:
                return first, max(first, last), step
            return min(last + 1, first + 1), first + 1, step
        if step != 1:
            raise IndexError("a slice with symbolic bounds must have step 1")
        begin: Size = 0 if k.start is None else k.start
        end: Size = n if k.stop is None else k.stop
        if isinstance(begin, int) and begin < 0:
            begin = size_add(n, begin)
        if isinstance(end, int) and end < 0:
            end = size_add(n, end)
        low = begin if isinstance(begin, int) else begin.vmin
        if low < 0 or size_max(end) > size_max(n):
            raise IndexError(f"slice [{k.start}:{k.stop}] can leave axis {axis} of size {n}")
        return begin, end, 1

    def _every(self, axis: int, step: int) -> Self:
        """Every `step`-th element along an axis."""
        n = self.shape[axis]
        assert isinstance(n, int)
        count = -(-n // step)
        padded = self.pad([(0, count * step - n) if a == axis else None for a in range(self.ndim)])
        pairs = padded._reshape((*self.shape[:axis], count, step, *self.shape[axis + 1 :]))
        first = pairs.shrink([(0, 1) if a == axis + 1 else None for a in range(self.ndim + 1)])
        return first._reshape((*self.shape[:axis], count, *self.shape[axis + 1 :]))

    def take(self, indices: Any, axis: int = 0) -> Self:
        """Slices along `axis` picked by an integer tensor: shape[:axis] + indices.shape + shape[axis+1:].

        An index outside of the axis gives zeros; negative ones count from the end.
        """
        a = self._axis(axis, method="take")
        n = self.shape[a]
        if not isinstance(n, int):
            raise ValueError("take: the axis has a symbolic size")
        i = indices if isinstance(indices, TensorCore) else type(self)(indices, dtype=dtypes.int32, device=self.device)
        if i.device != self.device:
            raise ValueError(f"take: tensors live on {self.device} and {i.device}: move one with .to()")
        index = self._new(i.uop)
        if index.dtype.is_signed and index.uop.op is not Ops.IOTA:
            index = index.less(0).where(index.add(n), index)
        order = [a, *(x for x in range(self.ndim) if x != a)]
        front = self.permute(order)
        picked = self._new(UOp(Ops.TAKE, self.dtype, (front.uop, index.uop), 0))
        k = index.ndim
        back = [*range(k, k + a), *range(k), *range(k + a, picked.ndim)]
        return picked.permute(back)

    def index_select(self, dim: int, index: Any) -> Self:
        return self.take(index, dim)

    def gather(self, dim: int, index: TensorCore) -> Self:
        """out[i][j][k] = self[index[i][j][k]][j][k] for dim 0, and so on (PyTorch's gather)."""
        a = self._axis(dim, method="gather")
        if index.ndim != self.ndim:
            raise ValueError(f"gather: index {index.shape} must have as many axes as {self.shape}")
        if any(
            size_max(i) > size_max(s) for d, (i, s) in enumerate(zip(index.shape, self.shape, strict=True)) if d != a
        ):
            raise ValueError(f"gather: index {index.shape} is larger than {self.shape} outside of axis {dim}")
        # a flat address picks the element: the other coordinates are the index's own
        flat: Any = None
        step: Any = 1
        own = self._new(index.uop).cast(dtypes.int32)
        for d in reversed(range(self.ndim)):
            if d == a:
                place = own.less(0).where(own.add(size_max(self.shape[d])), own)
            else:
                n = size_max(index.shape[d])
                iota = self._new(UOp(Ops.IOTA, dtypes.int32, (), n))
                place = iota._reshape(tuple(n if i == d else 1 for i in range(self.ndim)))._broadcast_to(index.shape)
            term = place.mul(step)
            flat = term if flat is None else flat.add(term)
            step = step * size_max(self.shape[d])
        return self.flatten().take(flat, 0)

    def tril(self, diagonal: int = 0) -> Self:
        """Zero above a diagonal of the last two axes."""
        return self._triangle(diagonal, lower=True)

    def triu(self, diagonal: int = 0) -> Self:
        """Zero below a diagonal of the last two axes."""
        return self._triangle(diagonal, lower=False)

    def _triangle(self, diagonal: int, lower: bool) -> Self:
        if self.ndim < 2:
            raise ValueError(f"tril/triu: needs two axes, got {self.shape}")
        rows, columns = (self._iota(s) for s in self.shape[-2:])
        distance = columns.unsqueeze(0).sub(rows.unsqueeze(1))
        keep = distance.less(diagonal + 1) if lower else distance.greater(diagonal - 1)
        return keep.where(self, self._new(UOp.const(0, self.dtype)))

    def _iota(self, n: Size) -> Self:
        """0 … n-1 as int32."""
        full = self._new(UOp(Ops.IOTA, dtypes.int32, (), size_max(n)))
        return full if same(n, size_max(n)) else full.shrink([(0, n)])

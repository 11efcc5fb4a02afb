"""Methods that fold axes: sums, products, extrema and where they are, truth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self, cast

from tinyweb.array.core import TensorCore
from tinyweb.array.operators import Operators
from tinyweb.dtype import DType, DTypeLike, dtypes, to_dtype
from tinyweb.graph.ir import Ops, Size, UOp, numel_max, size_max, size_prod
from tinyweb.graph.schedule.ordered import FEW, MANY

LONG, PART = 1 << 16, 1 << 9  # elements from which an extremum is looked for in parts, and of a part


class Reduction(Operators):
    """Reductions over one, several or (without an axis) all axes. With `keepdim` these keep the size 1."""

    __slots__ = ()

    def _axes(self, axis: Any, method: str) -> tuple[int, ...]:
        axes = tuple(axis) if isinstance(axis, Sequence) else (axis,)
        if axis is None or not axes:
            return tuple(range(self.ndim))
        found = tuple(self._axis(a, method=method) for a in axes)
        if len(set(found)) != len(found):
            raise ValueError(f"{method}: axis {axis} names an axis twice")
        return tuple(sorted(found)) if self.ndim else ()

    def _reduce(self, op: Ops, axis: Any, keepdim: bool, method: str) -> Self:
        axes = self._axes(axis, method)
        out = self._new(UOp(Ops.REDUCE, self.dtype, (self.uop,), (op, axes))) if axes else self._same()
        return out if keepdim else out._without(axes)

    def _without(self, axes: Sequence[int]) -> Self:
        """Axes of size 1 dropped."""
        return self._reshape(tuple(s for i, s in enumerate(self.shape) if i not in axes))

    def _count(self, axes: tuple[int, ...]) -> Any:
        n: Size = size_prod(self.shape[a] for a in axes)
        return float(n) if isinstance(n, int) else self._new(n.cast(dtypes.float32))

    def _not_empty(self, axes: Sequence[int], method: str) -> None:
        if any(self.shape[a] == 0 for a in axes):
            raise ValueError(f"{method}: no elements along the reduced axes {tuple(axes)} of {self.shape}")

    def _accumulated(self, dtype: DTypeLike | None) -> tuple[Self, DType]:
        """What is summed (half floats as float32, small integers as 32 bits), and the dtype of the result."""
        if dtype is not None:
            dtype = to_dtype(dtype)
            wide = dtypes.float32 if dtype.is_float and dtype.bits < 32 else dtype
            return self.cast(wide), dtype
        if self.dtype.bits >= 32:
            return self, self.dtype
        if self.dtype.is_float:
            return self.cast(dtypes.float32), self.dtype
        wide = dtypes.uint32 if self.dtype.kind == "uint" else dtypes.int32
        return self.cast(wide), wide

    # -- sums and products --------------------------------------------------------------------------------------------
    def sum(self, axis: Any = None, keepdim: bool = False, dtype: DTypeLike | None = None) -> Self:
        """The sum; booleans and small integers are summed as int32 (uint32), half floats in float32. As bool: `any`."""
        x, result = self._accumulated(dtype)
        if result is dtypes.bool:
            return x._reduce(Ops.MAX, axis, keepdim, "sum")
        return x._reduce(Ops.ADD, axis, keepdim, "sum").cast(result)

    def nansum(self, axis: Any = None, keepdim: bool = False, dtype: DTypeLike | None = None) -> Self:
        """The sum of what is not NaN."""
        x = self.isnan().where(0, self) if self.dtype.is_float else self
        return x.sum(axis, keepdim, dtype)

    def prod(self, axis: Any = None, keepdim: bool = False, dtype: DTypeLike | None = None) -> Self:
        """The product, in dtypes as those of `sum`. As bool: `all`."""
        x, result = self._accumulated(dtype)
        if result is dtypes.bool:
            return x.logical_not()._reduce(Ops.MAX, axis, keepdim, "prod").logical_not()
        return x._reduce(Ops.MUL, axis, keepdim, "prod").cast(result)

    def count_nonzero(self, axis: Any = None, keepdim: bool = False) -> Self:
        """How many elements are not 0 (int32)."""
        return self.ne(0).sum(axis, keepdim)

    # -- extrema ------------------------------------------------------------------------------------------------------
    def max(self, axis: Any = None, keepdim: bool = False) -> Self:
        """The maximum, NaN if there is one; equal maxima share the gradient. Of two tensors: `maximum`. ValueError for
        an axis of size 0."""
        if isinstance(axis, TensorCore):
            return self.maximum(axis)
        self._not_empty(self._axes(axis, "max"), "max")
        return self._reduce(Ops.MAX, axis, keepdim, "max")

    def min(self, axis: Any = None, keepdim: bool = False) -> Self:
        """The minimum, NaN if there is one; equal minima share the gradient. Of two tensors: `minimum`. ValueError for
        an axis of size 0."""
        if isinstance(axis, TensorCore):
            return self.minimum(axis)
        self._not_empty(self._axes(axis, "min"), "min")
        turned = self.neg() if self.dtype.is_float else self.bitwise_not()
        least = turned._reduce(Ops.MAX, axis, keepdim, "min")
        return least.neg() if self.dtype.is_float else least.bitwise_not()

    amax, amin = max, min

    def aminmax(self, axis: Any = None, keepdim: bool = False) -> tuple[Self, Self]:
        """(minimum, maximum)."""
        return self.min(axis, keepdim), self.max(axis, keepdim)

    def argmax(self, axis: int | None = None, keepdim: bool = False) -> Self:
        """Where the maximum is (int32, the first of equal ones), along an axis or in the flattened tensor; a NaN counts
        as the maximum. ValueError for an axis of size 0."""
        return self._arg_extremum(axis, keepdim, "argmax")

    def argmin(self, axis: int | None = None, keepdim: bool = False) -> Self:
        """Where the minimum is (int32, the first of equal ones), along an axis or in the flattened tensor; a NaN counts
        as the minimum. ValueError for an axis of size 0."""
        turned = self.neg() if self.dtype.is_float else self.bitwise_not()
        return turned._arg_extremum(axis, keepdim, "argmin")

    def _arg_extremum(self, axis: int | None, keepdim: bool, method: str) -> Self:
        if axis is None or not self.ndim:
            if axis is not None:
                self._axis(axis, method=method)
            flat = self.flatten()._arg_extremum(0, False, method)
            return flat._reshape((1,) * self.ndim) if keepdim else flat
        a = self._axis(axis, method=method)
        self._not_empty((a,), method)
        if size := _block_size(self.shape, a):
            return self._extremum_in_blocks(a, size, keepdim, method)
        n = self.shape[a]
        # of negative positions the first one is the largest
        place = self._new(UOp(Ops.IOTA, dtypes.int32, (), size_max(n)))
        place = place.shrink([(0, n)])._reshape(tuple(n if i == a else 1 for i in range(self.ndim))).neg()
        place = place._broadcast_to(self.shape)
        if not (size := _part_size(self.shape, a)):
            return self._place_of_extremum(place, a, keepdim, method).neg()
        # in each part, by workgroups side by side, then where the first of the largest of these is
        parts = (*self.shape[:a], size_max(n) // size, size, *self.shape[a + 1 :])
        first = self._reshape(parts)._place_of_extremum(place._reshape(parts), a + 1, False, method).contiguous()
        whole: Any = self  # rows are picked by a method of what has these
        return cast(Self, whole._gather(a, first.neg())._place_of_extremum(first, a, keepdim, method).neg())

    def _place_of_extremum(self, place: Self, a: int, keepdim: bool, method: str) -> Self:
        """Of what is equal to the maximum along an axis, the largest place."""
        hit = self.eq(self._reduce(Ops.MAX, a, True, method))
        if self.dtype.is_float:
            hit = hit.logical_or(self.isnan())
        return hit.where(place, dtypes.int32.min)._reduce(Ops.MAX, a, keepdim, method)

    def _extremum_in_blocks(self, a: int, size: int, keepdim: bool, method: str) -> Self:
        """The first of the blocks with the largest maximum, then the first of its elements: elsewhere no position is
        looked at."""
        n, k = size_max(self.shape[a]), self.ndim - 1
        count = -(-n // size)

        def begin(block: Self) -> Self:
            last = block.mul(-size).maximum(size - n).neg()  # begins earlier than it would
            return last if n % size else block.mul(size)

        begins = begin(self._new(UOp(Ops.IOTA, dtypes.int32, (), count))._reshape((count, 1)))
        place = begins.add(self._new(UOp(Ops.IOTA, dtypes.int32, (), size)))
        x = self.movedim(a, 0)
        x = x._new(UOp(Ops.TAKE, x.dtype, (x.uop, place.uop), 0)).permute(*range(2, k + 2), 0, 1)
        largest = x._reduce(Ops.MAX, k + 1, False, method).movedim(k, a).contiguous()
        block = largest._arg_extremum(a, True, method).contiguous()
        own = x._new(UOp(Ops.TAKE, x.dtype, (x.uop, block.movedim(a, k).uop), k))._reshape((*x.shape[:k], size))
        found = begin(block).add(own.movedim(k, a).contiguous()._arg_extremum(a, True, method))
        return found if keepdim else found.squeeze(a)

    # -- truth --------------------------------------------------------------------------------------------------------
    def any(self, axis: Any = None, keepdim: bool = False) -> Self:
        """Whether an element is not 0."""
        return self.bool()._reduce(Ops.MAX, axis, keepdim, "any")

    def all(self, axis: Any = None, keepdim: bool = False) -> Self:
        """Whether no element is 0."""
        return self.logical_not()._reduce(Ops.MAX, axis, keepdim, "all").logical_not()

    def allclose(self, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
        """Whether all elements are close (see `isclose`), as a Python bool: the tensors are computed."""
        return bool(self.isclose(other, rtol, atol, equal_nan).all().item())


def _part_size(shape: Sequence[Size], axis: int) -> int:
    """Elements of the parts of a long axis that workgroups of their own look for an extremum in: about `PART`, whole
    vectors where some divide the axis; 0 where one launch costs less."""
    n, count = shape[axis], numel_max(shape)
    if not isinstance(n, int) or not all(isinstance(s, int) for s in shape) or n < LONG or count >= FEW * n:
        return 0
    sizes = (size for size in range(PART // 8, PART * 8 + 1) if n % size == 0)
    return min(sizes, key=lambda size: (size % 4 > 0, abs(math.log2(size / PART))), default=0)


def _block_size(shape: Sequence[Size], axis: int) -> int:
    """Elements of the blocks in which a position along an axis is looked for; 0 for an axis whose maximum is taken in
    one launch: another pass over what is near costs less than more launches."""
    n, count = shape[axis], numel_max(shape)
    if not isinstance(n, int) or not all(isinstance(s, int) for s in shape) or n <= MANY or count >= FEW * n:
        return 0
    return 1 << round(math.log2(n) / 2)

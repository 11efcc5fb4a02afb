"""Sorting along an axis.

Elements are compared by integer keys of a total order: NaN is above everything, and equal keys keep their order,
because the comparison falls back on where an element was. What is sorted is the positions; values are gathered at the end, so
that gradients are those of a gather.

Short axes count, for every element, how many come before it: two kernels. Long axes go through Batcher's bitonic
network (1968) in the form whose comparators all point the same way: about log²(n)/2 steps, each a kernel, but only
about 2·log(n) different ones.
"""

from __future__ import annotations

from typing import Self

from tinyweb.array.core import accepts_dim
from tinyweb.array.random import Random
from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import UOp, size_max

COUNTED = 256  # axes up to here are sorted by counting: the square of it is a small kernel still
_KEYS: dict[int, DType] = {32: dtypes.int32, 64: dtypes.int64}


class Sorting(Random):
    """Methods that put elements in order."""

    __slots__ = ()

    @accepts_dim
    def argsort(self, axis: int = -1, descending: bool = False, stable: bool = True) -> Self:
        """The positions (int32) along an axis that put the elements in order; equal ones keep theirs.

        NaN counts as larger than any number. `stable` is always true and only there for PyTorch's sake.
        """
        if not self.shape:
            return self._new(UOp.const(0, dtypes.int32))
        a = self._axis(axis, method="argsort")
        n = self.shape[a]
        if not isinstance(n, int):
            raise ValueError("argsort: the axis has a symbolic size")
        rows = self._order_keys(descending).transpose(a, -1)
        order = rows._count_order(n) if n <= COUNTED else rows._merge_order(n)
        return order.transpose(a, -1)

    @accepts_dim
    def sort(self, axis: int = -1, descending: bool = False, stable: bool = True) -> tuple[Self, Self]:
        """(values, positions) of the elements in order along an axis; see `argsort`."""
        order = self.argsort(axis, descending)
        return (self.gather(axis, order) if self.shape else self), order

    def msort(self) -> Self:
        """The elements in order along the first axis."""
        return self.sort(0)[0]

    @accepts_dim
    def topk(self, k: int, axis: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Self, Self]:
        """(values, positions) of the `k` largest (or smallest) elements along an axis, in order, NaN being the largest.

        ValueError where the axis has fewer than `k` elements.
        """
        a = self._axis(axis, method="topk")
        n = self.shape[a] if self.shape else 1
        if not isinstance(k, int) or not 0 <= k <= size_max(n):
            raise ValueError(f"topk: k must be between 0 and the size {n} of axis {axis}, got {k}")
        values, order = self.sort(axis, descending=largest)
        if not self.shape:
            return values, order
        bounds = [(0, k) if i == a else None for i in range(self.ndim)]
        return values.shrink(bounds), order.shrink(bounds)

    @accepts_dim
    def kthvalue(self, k: int, axis: int = -1, keepdim: bool = False) -> tuple[Self, Self]:
        """(value, position) of the k-th smallest element along an axis, counted from 1."""
        a = self._axis(axis, method="kthvalue")
        n = self.shape[a] if self.shape else 1
        if not isinstance(k, int) or not 1 <= k <= size_max(n):
            raise ValueError(f"kthvalue: k must be between 1 and the size {n} of axis {axis}, got {k}")
        values, order = self.sort(axis)
        if not self.shape:
            return values, order
        bounds = [(k - 1, k) if i == a else None for i in range(self.ndim)]
        picked = values.shrink(bounds), order.shrink(bounds)
        return picked if keepdim else (picked[0].squeeze(a), picked[1].squeeze(a))

    # -- the two ways -------------------------------------------------------------------------------------------------
    def _order_keys(self, descending: bool) -> Self:
        """Integers in the order of the elements, without gradients."""
        x = self.detach()
        if x.dtype.is_float:
            x = x.cast(dtypes.float32) if x.dtype.bits < 32 else x
            kind = _KEYS[x.dtype.bits]
            bits = x.equal(0).where(0.0, x).bitcast(kind)  # the zeros are equal
            # negative floats order the other way round: all bits but the sign turn
            ordered = bits.less(0).where(bits.bitwise_xor(int(kind.max)), bits)
            x = x.isnan().where(int(kind.max), ordered)
        elif x.dtype.bits < 32:
            x = x.cast(dtypes.int32)
        return (x.bitwise_not() if descending else x).contiguous()

    def _count_order(self, n: int) -> Self:
        """The order along the last axis of keys: the rank of an element is the number of those before it."""
        key, other = self.unsqueeze(-1), self.unsqueeze(-2)
        place = self._iota(n)
        earlier = place.unsqueeze(0).less(place.unsqueeze(1))
        before = other.less(key).logical_or(other.equal(key).logical_and(earlier))
        rank = before.cast(dtypes.int32).sum(-1).contiguous()
        here = rank.unsqueeze(-2).equal(place.unsqueeze(1))  # (…, rank, element)
        return here.where(place.unsqueeze(0), 0).sum(-1)

    def _merge_order(self, n: int) -> Self:
        """The order along the last axis of keys: sorted blocks are merged until there is one."""
        size = 1 << (n - 1).bit_length()
        largest = int(self.dtype.max)
        keys = self.pad([None] * (self.ndim - 1) + [(0, size - n)], value=largest).contiguous()
        order = self._iota(size)._broadcast_to(keys.shape)
        block = 2
        while block <= size:
            # the first step compares a block with its mirror image, so that all others look alike
            for span in (block, *(block >> s for s in range(1, block.bit_length() - 1))):
                order = keys._exchange(order, span, mirrored=span == block).contiguous()
            block *= 2
        return order.shrink([None] * (order.ndim - 1) + [(0, n)])

    def _exchange(self, order: Self, span: int, mirrored: bool) -> Self:
        """One step of the network: within spans, each position takes the smaller or the larger of itself and its
        partner, the same place of the other half, or of its mirror image."""
        *rows, size = order.shape
        if mirrored:
            shape = (*rows, size_max(size) // span, span)
            partner = order._reshape(shape).flip(-1)._reshape(order.shape)
        else:
            shape = (*rows, size_max(size) // span, 2, span // 2)
            partner = order._reshape(shape).flip(-2)._reshape(order.shape)
        low = self._iota(size).bitwise_and(span // 2).equal(0)._broadcast_to(order.shape)
        mine, theirs = self._gather(self.ndim - 1, order), self._gather(self.ndim - 1, partner)
        first = theirs.less(mine).logical_or(theirs.equal(mine).logical_and(partner.less(order)))
        return first.equal(low).where(partner, order)

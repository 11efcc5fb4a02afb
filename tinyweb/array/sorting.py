"""Sorting along an axis.

Elements are compared by integer keys of a total order: NaN is above everything, and equal elements keep their order.
Blocks of up to 256 are sorted by counting, for every element, how many come before it. Longer axes merge sorted blocks,
pairs at a time: where an output comes from is found by bisection along the diagonal of the two blocks (Green, Odeh
and Birk: Merge Path, 2014). That is n·log²(n) steps in three kernels for each doubling, two of which are the same for
all. Single elements and the first few are found by bisection of their keys, without sorting.

The gradient of what is sorted is a gather through the inverse permutation.
"""

from __future__ import annotations

import math
from typing import Self

from tinyweb.array.gathering import Gathering
from tinyweb.array.scan import Scan
from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import Ops, UOp, size_max

COUNTED = 256  # axes up to here are sorted by counting: the square of it is a small kernel still
SMALL = 32  # longer axes are searched for single elements, not sorted
_KEYS: dict[int, DType] = {32: dtypes.int32, 64: dtypes.int64}
_WORDS: dict[int, DType] = {32: dtypes.uint32, 64: dtypes.uint64}


class Sorting(Gathering, Scan):
    """Methods that put elements in order."""

    __slots__ = ()

    def argsort(self, axis: int = -1, descending: bool = False, stable: bool = True) -> Self:
        """The positions (int32) along an axis that put the elements in order; equal ones keep theirs.

        NaN counts as larger than any number. `stable` is always true and only there for PyTorch's sake.
        """
        return self._sorted(axis, descending, "argsort")[0]

    def sort(self, axis: int = -1, descending: bool = False, stable: bool = True) -> tuple[Self, Self]:
        """(values, positions) of the elements in order along an axis; see `argsort`."""
        order, inverse, a = self._sorted(axis, descending, "sort")
        if not self.shape:
            return self._same(), order
        values = self._gather(a, order)
        if not self.dtype.is_float:
            return values, order
        return values._with_gradients([self], lambda g: [g._gather(a, inverse)]), order

    def msort(self) -> Self:
        """The elements in order along the first axis."""
        return self.sort(0)[0]

    def topk(self, k: int, axis: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Self, Self]:
        """(values, positions) of the `k` largest (or smallest) elements along an axis, in order, NaN being the largest.

        ValueError where the axis has fewer than `k` elements.
        """
        a = self._axis(axis, method="topk")
        n = self.shape[a] if self.shape else 1
        if not isinstance(k, int) or not 0 <= k <= size_max(n):
            raise ValueError(f"topk: k must be between 0 and the size {n} of axis {axis}, got {k}")
        if isinstance(n, int) and 0 < k < n and n > SMALL:
            order = self._order_keys(largest).transpose(a, -1)._first(k).transpose(a, -1)
            return self._gather(a, order), order
        values, order = self.sort(axis, descending=largest)
        return (values._along(a, 0, k), order._along(a, 0, k)) if self.shape else (values, order)

    def kthvalue(self, k: int, axis: int = -1, keepdim: bool = False) -> tuple[Self, Self]:
        """(value, position) of the k-th smallest element along an axis, counted from 1."""
        a = self._axis(axis, method="kthvalue")
        n = self.shape[a] if self.shape else 1
        if not isinstance(k, int) or not 1 <= k <= size_max(n):
            raise ValueError(f"kthvalue: k must be between 1 and the size {n} of axis {axis}, got {k}")
        if not self.shape:
            return self.sort(axis)
        picked = self._order_statistic(a, self.full_like(k - 1, dtypes.int32)._along(a, 0, 1))
        return picked if keepdim else (picked[0].squeeze(a), picked[1].squeeze(a))

    # -- how ----------------------------------------------------------------------------------------------------------
    def _sorted(self, axis: int, descending: bool, method: str) -> tuple[Self, Self, int]:
        """(order, its inverse, the axis): which element comes i-th, and where element i comes."""
        a = self._axis(axis, method=method)
        if not self.shape:
            none = self._new(UOp.const(0, dtypes.int32))
            return none, none, a
        n = self.shape[a]
        if not isinstance(n, int):
            raise ValueError(f"{method}: axis {axis} of {self.shape} has a symbolic size")
        keys = self._order_keys(descending).transpose(a, -1)
        if n <= COUNTED:
            rank = keys._ranks()
            order = rank._inverted()
        else:
            order = keys._merged()
            place = self._iota(n)._broadcast_to(order.shape)
            rank = order._new(UOp(Ops.SCATTER, order.dtype, (order.uop, order.uop, place.uop), (order.ndim - 1, None)))
        return order.transpose(a, -1), rank.transpose(a, -1), a

    def _order_keys(self, descending: bool) -> Self:
        """Integers in the order of the elements, without gradients."""
        x = self.detach()
        if x.dtype.is_float:
            x = x.cast(dtypes.float32) if x.dtype.bits < 32 else x
            kind = _KEYS[x.dtype.bits]
            bits = x.eq(0).where(0.0, x).bitcast(kind)  # the zeros are equal
            # negative floats order the other way round: all bits but the sign turn
            ordered = bits.less(0).where(bits.bitwise_xor(int(kind.max)), bits)
            x = x.isnan().where(int(kind.max), ordered)
        elif x.dtype.bits < 32:
            x = x.cast(dtypes.int32)
        return x.bitwise_not() if descending else x

    def _order_statistic(self, axis: int, rank: Self) -> tuple[Self, Self]:
        """(value, position) of the element that so many others along an axis precede in order; `rank` is int32, with
        an axis of size 1."""
        if self._fixed(axis, "order statistic") > SMALL:
            keys = self._order_keys(False).transpose(axis, -1)
            place = keys._selected(rank.transpose(axis, -1)).transpose(axis, -1)
            return self._gather(axis, place), place
        values, order = self.sort(axis)
        return values._gather(axis, rank), order._gather(axis, rank)

    def _selected(self, rank: Self) -> Self:
        """The position of the key of the last axis that `rank` (…, 1) others precede in order: bit by bit, the largest
        number that no more keys than that are below, then the largest position that no more of its equals are before.
        """
        keys = self.contiguous()
        word = _WORDS[keys.dtype.bits]
        ordered = keys.bitcast(word).bitwise_xor(1 << (word.bits - 1))
        found = rank.cast(word).mul(0)
        for bit in reversed(range(word.bits)):
            higher = found.add(1 << bit)
            found = ordered.less(higher).sum(-1, keepdim=True).le(rank).where(higher, found)
        among = rank.sub(ordered.less(found).sum(-1, keepdim=True))
        n = size_max(keys.shape[-1])
        equal, position, place = ordered.eq(found), self._iota(n)._broadcast_to(keys.shape), rank.mul(0)
        for bit in reversed(range((n - 1).bit_length())):
            later = place.add(1 << bit)
            before = equal.logical_and(position.less(later)).sum(-1, keepdim=True)
            place = before.le(among).where(later, place)
        return place.contiguous()

    def _first(self, k: int) -> Self:
        """The positions of the k least keys of the last axis, in order."""
        *rows, n = self.shape
        assert isinstance(n, int)
        keys = self.contiguous()
        if n <= 2 * COUNTED:
            return keys._ranks()._inverted(k)
        # ranks are quadratic in the number of blocks, and in that of the elements in k of them: both alike
        size = 1 << max(round(math.log2(n / k) / 2), 0)
        blocks = -(-n // size)
        if max(blocks, k * size) <= 2 * COUNTED:
            # they are in the k blocks whose least keys are those
            longer = keys._extended(blocks * size)
            least = longer._reshape((*rows, blocks, size)).min(-1).contiguous()
            begins = least._ranks()._inverted(k).mul(size).unsqueeze(-1)
            places = begins.add(self._iota(size))._reshape((*rows, k * size)).contiguous()
            found = longer._pick(places, len(rows))._ranks(places)._inverted(k)
            return places._pick(found, len(rows)).contiguous()
        # those up to the k-th, found by their number
        at = keys._selected(self._new(UOp.const(k - 1, dtypes.int32))._broadcast_to((*rows, 1)))
        last = keys._pick(at, len(rows))
        chosen = keys.less(last).logical_or(keys.eq(last).logical_and(self._iota(n).le(at)))
        number = self._iota(k)._broadcast_to((*rows, k))
        places = chosen.cast(dtypes.int32).cumsum(-1)._insertion(number, after=True).contiguous()
        found = keys._pick(places, len(rows))
        order = found._ranks()._inverted() if k <= COUNTED else found._merged()
        return places._pick(order, len(rows)).contiguous()

    def _insertion(self, wanted: Self, after: bool) -> Self:
        """Where values belong in this sorted last axis (int32): before equal elements, or after them."""
        n, shared = self._fixed(self.ndim - 1, "searchsorted"), self.ndim - 1
        low = wanted.full_like(0, dtypes.int32)
        high = low.add(n)
        for _ in range(n.bit_length()):
            middle = low.add(high).bitwise_right_shift(1)
            here = self._pick(middle, shared)
            # NaN comes behind everything
            before = here.gt(wanted).logical_not() if after else here.ge(wanted).logical_not()
            inside = low.less(high)
            low, high = (
                inside.logical_and(before).where(middle.add(1), low),
                inside.logical_and(before.logical_not()).where(middle, high),
            )
        return low

    def _extended(self, size: int) -> Self:
        """Keys of a longer last axis: what is added is no smaller than any key, and comes after all that are equal."""
        *rows, n = self.shape
        if n == size:
            return self.contiguous()
        longer = self._pad([*[(0, 0)] * len(rows), (0, size - n)]).contiguous()
        return self._iota(size).less(n).where(longer, longer._constant(self.dtype.max)).contiguous()

    def _ranks(self, place: Self | None = None) -> Self:
        """How many keys of the last axis come before each: of equal ones those of a lower `place`, or position."""
        keys = self.contiguous()
        place = self._iota(keys.shape[-1]) if place is None else place
        mine, other = keys.unsqueeze(-1), keys.unsqueeze(-2)
        earlier = place.unsqueeze(-2).less(place.unsqueeze(-1))
        before = other.less(mine).logical_or(other.eq(mine).logical_and(earlier))
        return before.sum(-1).contiguous()

    def _inverted(self, k: int | None = None) -> Self:
        """Of a permutation along a short last axis: where each number, or each below k, stands."""
        place = self._iota(self.shape[-1])
        number = place if k is None else self._iota(k)
        here = self.unsqueeze(-2).eq(number.unsqueeze(1))  # (…, number, position)
        return here.where(place, 0).sum(-1).contiguous()

    def _merged(self) -> Self:
        """The order of the keys of a long last axis: sorted blocks are merged in pairs until there is one."""
        *rows, n = self.shape
        assert isinstance(n, int)
        blocks = 1 << max(math.ceil(n / COUNTED) - 1, 0).bit_length()
        size = -(-n // blocks)
        total = blocks * size
        unsorted = self._extended(total)
        split = (*rows, blocks, size)
        within = unsorted._reshape(split)._ranks()._inverted()
        begins = self._iota(blocks).mul(size)._reshape((blocks, 1))
        order = within.add(begins)._reshape((*rows, total)).contiguous()
        shared = len(rows)
        keys = unsorted._pick(order, shared).contiguous()
        while size < total:
            source = keys._merge_sources(size).contiguous()
            order = order._pick(source, shared).contiguous()
            size *= 2
            if size < total:
                keys = keys._pick(source, shared).contiguous()
        return order._along(shared, 0, n)

    def _merge_sources(self, size: int) -> Self:
        """Where, in the last axis of blocks of `size` sorted keys, the elements of merged pairs of blocks come from."""
        shared, shape = self.ndim - 1, self.shape
        place = self._iota(shape[-1])._broadcast_to(shape).uop
        at = place % (2 * size)  # in the output of its pair
        begin = place - at

        def key(position: UOp) -> UOp:
            return UOp(Ops.TAKE, self.dtype, (self.uop, position), shared)

        # how many of the first `at` outputs come from the first block, by bisection; written with nodes rather than
        # tensors, as they are many
        low = (at - size).maximum(0)
        high = at - low
        mirror = begin + at + (size - 1)
        for _ in range(size.bit_length()):
            middle = (low + high).alu(Ops.SHR, 1)
            open_ = low < high
            first = open_ & (key(begin + middle) <= key(mirror - middle))
            low, high = first.where(middle + 1, low), (open_ ^ first).where(middle, high)
        rest = at - low
        in_order = key(begin + low) <= key(begin + rest + size)
        first = (rest >= size) | ((low < size) & in_order)
        return self._new(begin + first.where(low, rest + size))

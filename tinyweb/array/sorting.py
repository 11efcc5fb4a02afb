"""Sorting along an axis.

Elements are ordered by unsigned words: NaN is above everything, and equal elements keep their order. Short axes are
sorted by counting, for every pair, which comes first; others digit by digit from the lowest (Knuth, The Art of Computer
Programming, volume 3, 5.2.5: radix sort), each pass a stable counting sort. A pass counts the digits of a block and
numbers equal ones in one walk (FETCH_ADD), blocks side by side; sums of the counts say where each element goes.
The first few are looked for in the blocks whose first elements are the first few, and single elements bit by bit, each
by counting the keys that are less; of more the last is looked for so, and those before it are sorted.

The gradient of what is sorted is a gather through the inverse permutation.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Self

from tinyweb.array.gathering import Gathering
from tinyweb.array.scan import Scan
from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import Ops, UOp, size_max, size_prod
from tinyweb.graph.schedule.ordered import BLOCK, WIDE
from tinyweb.graph.schedule.work import LAUNCH

DIGIT = 8  # bits of a digit: so many counts of a block are about as many as its elements
PAIR, STEP, COUNT = 1, 12, 3  # costs of a pair of keys; of a key in a pass, and of a count: steps of a reduction
ROUND = 8  # bits of a selected key that one kernel finds
WORD = 32  # bits that say of as many keys whether they are selected
BLOCKS = 16  # at least so many are compared with each other at once
KERNELS = 5  # launches of a pass
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
        if self.shape and isinstance(n, int) and 0 < k < n:
            order = self.detach().transpose(a, -1)._rows()._first(k, largest)
            order = order._reshape((*self.transpose(a, -1).shape[:-1], k)).transpose(a, -1)
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
        if not isinstance(self.shape[a], int):
            raise ValueError(f"{method}: axis {axis} of {self.shape} has a symbolic size")
        turned = self.transpose(a, -1)
        keys, bits = turned._order_keys(descending)
        order = keys._rows()._order(bits)
        rank = order._inverse()
        return order._reshape(turned.shape).transpose(a, -1), rank._reshape(turned.shape).transpose(a, -1), a

    def _rows(self) -> Self:
        """All axes but the last as one."""
        return self._reshape((size_prod(self.shape[:-1]), self.shape[-1]))

    def _order_keys(self, descending: bool) -> tuple[Self, int]:
        """Unsigned words in the order of the elements, without gradients; and how many of their bits there are."""
        x = self.detach()
        if x.dtype.is_float:
            # a narrow float is a float32 whose last bits are zeros
            spare = 0 if x.dtype.bits >= 32 else 23 - x.dtype.mantissa
            x = x.cast(dtypes.float32) if x.dtype.bits < 32 else x
            bits, word = x.dtype.bits, _WORDS[x.dtype.bits]
            signed = dtypes.int32 if bits == 32 else dtypes.int64
            # a sign and a magnitude become a number, in which the zeros are equal; negative NaN wrap around, so that
            # all NaN come to lie above the infinities, and become one
            infinity = ((1 << bits - 1 - x.dtype.mantissa) - 1) << x.dtype.mantissa
            whole = x.bitcast(signed)
            key = whole.less(0).where(whole.neg().add(int(signed.min) + infinity), whole.add(infinity)).bitcast(word)
            nan = 2 * infinity + (1 << spare)
            key = key.less(nan).where(key, nan)
            key = key.bitwise_right_shift(spare) if spare else key
            bits -= spare
        else:
            bits = 1 if x.dtype is dtypes.bool else x.dtype.bits
            word = _WORDS[max(bits, 32)]
            if x.dtype.is_signed and bits >= 32:
                key = x.bitcast(word).bitwise_xor(1 << (bits - 1))
            else:
                key = (x.cast(dtypes.int32).add(1 << (bits - 1)) if x.dtype.is_signed else x).cast(word)
        return (key.bitwise_xor((1 << bits) - 1) if descending else key), bits

    # below, `self` is (rows, n), keys of `bits` bits unless it says otherwise
    def _order(self, bits: int) -> Self:
        """(rows, n): which key comes i-th."""
        return self._ranks()._inverse() if self._is_short(bits) else self._by_digits(bits)

    def _is_short(self, bits: int) -> bool:
        """Whether comparing all pairs of a row costs less than sorting its digits."""
        rows, n = self._fixed(0, "sort"), self._fixed(1, "sort")
        return n < 2 or _by_pairs(rows, n) <= _by_digits(rows, n, bits)

    def _ranks(self, place: Self | None = None) -> Self:
        """How many keys of its row come before each: of equal ones those of a lower place, or position."""
        keys = self.contiguous()
        place = self._iota(self.shape[-1]) if place is None else place
        mine, other = keys.unsqueeze(-1), keys.unsqueeze(-2)
        earlier = place.unsqueeze(-2).less(place.unsqueeze(-1))
        before = other.less(mine).logical_or(other.eq(mine).logical_and(earlier))
        return before.sum(-1)

    def _inverse(self, k: int | None = None, place: Self | None = None) -> Self:
        """Of permutations: the position, or `place`, where each number stands, or each below k."""
        rows, n = self.shape
        empty = self._new(UOp.const(0, dtypes.int32))._broadcast_to((rows, n if k is None else k))
        place = (self._iota(n) if place is None else place)._broadcast_to(self.shape)
        return self._new(UOp(Ops.SCATTER, dtypes.int32, (empty.uop, self.uop, place.uop), (1, None, True)))

    def _by_digits(self, bits: int) -> Self:
        """The order by stable counting sorts of the digits, the lowest first."""
        rows, n = self._fixed(0, "sort"), self._fixed(1, "sort")
        passes, width, blocks = _digits(rows, n, bits)
        size, bins = -(-n // blocks), 1 << width
        keys = self._extended(blocks * size, bits)
        order = self._iota(blocks * size)._broadcast_to(keys.shape)
        zeros = order._new(UOp.const(0, dtypes.int32))._broadcast_to((rows, blocks, bins))
        ones = order._new(UOp.const(1, dtypes.int32))._broadcast_to((rows, blocks, size))
        begins = self._iota(passes).mul(width).cast(keys.dtype).contiguous()  # in memory: all passes are one program
        for p in range(passes):
            ordered = keys._pick(order, 1).contiguous() if p else keys
            digit = ordered.bitwise_right_shift(begins._along(0, p, p + 1)) if p else ordered
            digit = digit.bitwise_and(bins - 1).cast(dtypes.uint32).bitcast(dtypes.int32)
            digit = digit._reshape((rows, blocks, size))
            counted = order._new(UOp(Ops.FETCH_ADD, dtypes.int32, (zeros.uop, digit.uop, ones.uop), 2))
            counts, earlier = counted._along(2, 0, bins), counted._along(2, bins, bins + size)
            # before an element come those of lower digits, those of its digit in blocks before, and in its own
            until = counts.permute(0, 2, 1)._reshape((rows, bins * blocks)).cumsum(1)
            before = until._along(1, 0, bins * blocks - 1)._pad_along(1, 1, 0)
            before = before._reshape((rows, bins, blocks)).permute(0, 2, 1)._pick(digit, 2)
            place = before.add(earlier)._reshape(keys.shape)
            order = order._new(UOp(Ops.SCATTER, dtypes.int32, (order.uop, place.uop, order.uop), (1, None, True)))
        return order._along(1, 0, n)

    def _extended(self, size: int, bits: int) -> Self:
        """Keys of longer rows: what is added is no smaller than any key, and comes after all that are equal."""
        rows, n = self.shape
        if n == size:
            return self.contiguous()
        inside = self._iota(size).less(n)._broadcast_to((size_max(rows), size))
        return inside.where(self._pad_along(1, 0, size - size_max(n)), (1 << bits) - 1).contiguous()

    def _first(self, k: int, largest: bool) -> Self:
        """(rows, k): the positions of the largest or least k of n elements (no keys), in order.

        They are in the k blocks of any size whose first elements are the first: those of large blocks are divided into
        smaller ones, down to single elements.
        """
        rows, n = self._fixed(0, "topk"), self._fixed(1, "topk")
        sizes = _block_sizes(rows, n, k)
        blocks, digits = _by_blocks(rows, n, k, sizes), _by_digits(rows, n, self.dtype.bits)
        if blocks > (selected := _by_selection(rows, n, k, self.dtype.bits)) or blocks > digits:
            keys, bits = self._order_keys(largest)
            return keys._least(k, bits) if selected < digits else keys._by_digits(bits)._along(1, 0, k)
        x = self
        if not largest and x.dtype.is_float:
            x, largest = x._order_keys(True)[0].contiguous(), True  # NaN is the last, which no minimum says
        last = x._constant(x.dtype.min if largest else x.dtype.max)
        count = -(-n // sizes[0])
        begins = self._iota(count).mul(sizes[0])._reshape((1, count))._broadcast_to((rows, count))
        for i, size in enumerate(sizes):
            place = begins.unsqueeze(-1).add(self._iota(size))
            if i:
                here = x._pick(place._reshape((rows, count * size)), 1)._reshape(place.shape)
            else:
                here = x._pad_along(1, 0, count * size - n)._reshape(place.shape)
            here = place.less(n).where(here, last) if n % sizes[0] else here
            least = here.max(-1) if largest else here.min(-1)
            rank = least._order_keys(largest)[0]._ranks(begins)
            chosen = rank._inverse(k, begins)
            if i + 1 < len(sizes):
                smaller = sizes[i + 1]
                count = k * (size // smaller)
                begins = chosen.unsqueeze(-1).add(self._iota(size // smaller).mul(smaller))._reshape((rows, count))
        return chosen

    def _least(self, k: int, bits: int) -> Self:
        """(rows, k): the positions of the least k keys, in order: those before the k-th, then the first that equal it.

        Bits of words say which they are; the i-th of them is in the word before whose end more than i bits are set.
        """
        rows, n = self._fixed(0, "topk"), self._fixed(1, "topk")
        keys, count = self.contiguous(), -(-n // WORD)
        found = keys._selected_key(self._iota(1).add(k - 1)._broadcast_to((rows, 1)), bits).unsqueeze(1)
        row = keys.unsqueeze(1)
        equal = self._iota(2)._reshape((2, 1)).eq(1)
        flags = equal.where(row.eq(found), row.less(found))._pad_along(2, 0, count * WORD - n)
        flags = flags._reshape((rows, 2 * count, WORD))
        bit = self._iota(WORD).cast(dtypes.uint32)
        words = flags.where(bit.full_like(1).bitwise_left_shift(bit), 0).sum(-1).contiguous()
        until = flags.sum(-1).cumsum(1).contiguous()
        wanted = self._iota(k)._broadcast_to((rows, k))
        at = until._insertion(wanted, after=True)
        before = until._pad_along(1, 1, 0)._pick(at, 1)
        place = words._pick(at, 1)._set_bit(wanted.sub(before))
        place = at.ge(count).where(at.sub(count), at).mul(WORD).add(place).contiguous()
        first = keys._pick(place, 1)
        if first._is_short(bits):
            return first._ranks()._inverse(place=place)
        return place._pick(first._by_digits(bits), 1)

    def _set_bit(self, i: Self) -> Self:
        """Where the i-th of the bits that are set in words of 32 is."""
        counts = [self]
        for width in (1, 2, 4, 8):  # of 2, 4, 8 and 16 bits side by side
            mask = sum(((1 << width) - 1) << at for at in range(0, WORD, 2 * width))
            x = counts[-1]
            counts.append(x.bitwise_and(mask).add(x.bitwise_right_shift(width).bitwise_and(mask)))
        at = self.full_like(0)
        for width, count in zip((16, 8, 4, 2, 1), reversed(counts)):
            low = count.bitwise_right_shift(at).bitwise_and((1 << width) - 1).cast(dtypes.int32)
            above = low.le(i)
            i, at = above.where(i.sub(low), i), above.where(at.add(width), at)
        return at.cast(dtypes.int32)

    def _order_statistic(self, axis: int, rank: Self) -> tuple[Self, Self]:
        """(value, position) of the element that so many others along an axis precede in order; `rank` is int32, with
        an axis of size 1."""
        turned, wanted = self.transpose(axis, -1), rank.transpose(axis, -1)
        keys, bits = turned._order_keys(False)
        place = keys._rows()._selected(wanted._rows(), bits)._reshape(wanted.shape).transpose(axis, -1)
        return self._gather(axis, place), place

    def _selected(self, rank: Self, bits: int) -> Self:
        """The position of the key of each row that `rank` (rows, 1) others precede, the first of equal ones."""
        rows, n = self._fixed(0, "order statistic"), self._fixed(1, "order statistic")
        if _by_pairs(rows, n) <= _by_bisection(rows, n, bits):
            return self._ranks()._inverse()._pick(rank, 1)
        keys = self.contiguous()
        behind = keys.eq(keys._selected_key(rank, bits)).where(self._iota(n).flip(0), -1).max(-1, keepdim=True)
        return behind.neg().add(n - 1)

    def _selected_key(self, rank: Self, bits: int) -> Self:
        """The key of each row that `rank` (rows, 1) others precede in order: its bits from the highest, each by
        counting the keys below it.

        What is found so far is followed by a bit that is set, and zeros: the next candidate, which says by itself how
        far it is, so that the kernels of all `ROUND` bits are one program.
        """
        rows = self._fixed(0, "order statistic")
        rounds = -(-bits // ROUND)
        found = self._constant(1 << (rounds * ROUND - 1))._broadcast_to((rows, 1)).contiguous()
        for _ in range(rounds):
            step = found.bitwise_and(found.bitwise_not().add(1))
            for _ in range(ROUND):
                is_set = self.less(found).sum(-1, keepdim=True).le(rank)
                found, step = is_set.where(found, found.sub(step)), step.bitwise_right_shift(1)
                found = found.add(step)
            found = found.contiguous()
        return found

    def _insertion(self, wanted: Self, after: bool) -> Self:
        """Where values belong in this sorted last axis (int32): before equal elements, or after them."""
        n, shared = self._fixed(self.ndim - 1, "searchsorted"), self.ndim - 1

        def before(place: Self) -> Self:
            here = self._pick(place, shared)
            # NaN comes behind everything
            return (here.gt(wanted) if after else here.ge(wanted)).logical_not()

        last = wanted.full_like(-1, dtypes.int32)  # the last place known to be before
        if n == 0:
            return last.add(1)
        # of the first and the last 2 ** k - 1 elements, which overlap, one has the place: no probe is outside
        step = 1 << (n.bit_length() - 1)
        last = before(last.full_like(step - 1)).where(n - step, last)
        while step > 1:
            step //= 2
            probe = last.add(step)
            last = before(probe).where(probe, last)
        return last.add(1)


def _by_pairs(rows: int, n: int) -> int:
    """What sorting by pairs costs, in steps of a reduction."""
    return rows * n * n * PAIR + 2 * LAUNCH


def _digits(rows: int, n: int, bits: int) -> tuple[int, int, int]:
    """(passes, bits of a digit, blocks of a row) that sort at the least cost."""
    blocks = 1 << max(round(math.log2(n / BLOCK)), 0) if rows < WIDE else 1
    widths = {-(-bits // passes): passes for passes in range(-(-bits // DIGIT), bits + 1)}

    def cost(width: int) -> int:
        return -(-bits // width) * (KERNELS * LAUNCH + rows * (STEP * n + COUNT * blocks * (1 << width)))

    width = min(widths, key=cost)
    return -(-bits // width), width, blocks


def _by_digits(rows: int, n: int, bits: int) -> int:
    """What sorting by digits costs, in steps of a reduction."""
    passes, width, blocks = _digits(rows, n, bits)
    return passes * (KERNELS * LAUNCH + rows * (STEP * n + COUNT * blocks * (1 << width)))


def _by_bisection(rows: int, n: int, bits: int) -> int:
    """What finding a key by its bits costs, in steps of a reduction."""
    return rows * n * bits + (2 + -(-bits // ROUND)) * LAUNCH


def _by_selection(rows: int, n: int, k: int, bits: int) -> int:
    """What finding the first k of n by the k-th costs, in steps of a reduction."""
    order = min(_by_pairs(rows, k), _by_digits(rows, k, bits))
    return _by_bisection(rows, n, bits) + KERNELS * LAUNCH + rows * (COUNT * n + STEP * k) + order


def _block_sizes(rows: int, n: int, k: int) -> list[int]:
    """Sizes of blocks, each a divisor of the one before, down to 1, those that cost least."""
    found = []
    for most in (least << i for least in (max(BLOCKS, 2 * k),) for i in range(4)):
        first = [n // count for count in range(most, most // 4, -1) if n % count == 0]
        for size in [*first, 1 << max((n - 1) // most, 0).bit_length()]:
            sizes = [size]
            while size > 1:
                parts = [p for p in range(2, min(size, most) + 1) if size % p == 0] or [size]
                size //= max((p for p in parts if k * p <= most), default=parts[0])
                sizes.append(size)
            found.append(sizes)
    return min(found, key=lambda sizes: _by_blocks(rows, n, k, sizes))


def _by_blocks(rows: int, n: int, k: int, sizes: Sequence[int]) -> int:
    """What finding the first k of n by way of their blocks costs, in steps of a reduction."""
    counts = [-(-n // sizes[0]), *(k * a // b for a, b in itertools.pairwise(sizes))]
    gates = n % sizes[0] != 0
    return rows * n * (1 + gates) + sum(3 * LAUNCH + rows * PAIR * count * count for count in counts)

"""What the heuristics ask of a kernel: its axes, how loads and stores walk over memory, where the work is."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from math import gcd, prod

from tinyweb.graph.ir import Axis, AxisKind, Ops, Size, UOp, as_index, axis_size, below, size_max
from tinyweb.graph.optimize.rewrite import loads_summed, ranges_of, updates_in_place
from tinyweb.graph.symbolic import const_factor, simplify, split_by, substitute_ranges

MOST_IDLE = 16  # of so many threads one may have nothing to do


def fewest_steps(size: int, among: Iterable[int], each: int = 0) -> int:
    """Of steps that blocks of an axis may have those by which it is done soonest, where every block costs `each` steps
    beside its own: the first of such; 0 if there are none."""
    return min(among, key=lambda n: -(-size // n) * (n + each), default=0)


def largest_divisor(size: int, most: int) -> int:
    """The largest divisor of a size that is at most `most`."""
    return fewest_steps(size, range(max(most, 1), 0, -1))


def power_of_two(size: int, most: int) -> int:
    """The largest power of two up to `most` that divides a size."""
    return gcd(size, 1 << max(most, 1).bit_length() - 1)


def even(size: int, room: int) -> int:
    """The threads of an axis, at most `room`: a power of two of which few are idle, or half of it if that divides a
    short axis, or an even share.
    """
    count = min(1 << (size - 1).bit_length(), 1 << room.bit_length() - 1)
    if -size % count * MOST_IDLE <= size:
        return count
    half = count // 2
    return half if size % half == 0 and size < 2 * count else -(-size // -(-size // min(room, size)))


class Analysis:
    """A kernel before any axis is bound."""

    def __init__(self, kernel: UOp):
        self.kernel = kernel
        self.nodes = kernel.toposort()
        ranges = ranges_of(kernel)
        self.outputs = [r for r in ranges if not r.arg.reduce and r.arg.kind is AxisKind.LOOP]
        self.reduced = [r for r in ranges if r.arg.reduce]
        self.reduces = [u for u in self.nodes if u.op is Ops.REDUCE]
        self.stores = list(kernel.src)
        self._split: dict[tuple[UOp, UOp], tuple[int, UOp] | None] = {}
        self._in_blocks: dict[tuple[UOp, UOp, int], tuple[int, UOp] | None] = {}

    def size(self, r: UOp) -> int:
        """The largest size of an axis."""
        return size_max(self.exact(r))

    def exact(self, r: UOp) -> Size:
        return axis_size(r)

    def constant(self, *axes: UOp) -> bool:
        """Whether the sizes of axes are known."""
        return all(isinstance(self.exact(r), int) for r in axes)

    def volume(self, ranges: frozenset[UOp] | set[UOp] | list[UOp]) -> int:
        return prod(self.size(r) for r in ranges)

    def split(self, access: UOp, r: UOp) -> tuple[int, UOp] | None:
        """(stride, rest) of a LOAD's or STORE's index in an axis; None if the stride is not one number."""
        key = (access.src[1], r)
        if key not in self._split:
            self._split[key] = split_by(*key)
        return self._split[key]

    def step(self, access: UOp, r: UOp) -> int:
        """Elements of memory between two steps of an axis; 0 if that is not one number."""
        return (self.split(access, r) or (0,))[0]

    def contiguous(self, access: UOp, r: UOp) -> bool:
        return self.step(access, r) == 1

    def in_blocks(self, access: UOp, r: UOp, width: int) -> tuple[int, UOp] | None:
        """(stride, rest) of an index within each (aligned) block of `width` steps, maybe through divisions."""
        if r not in access.src[1].ranges:
            return 0, access.src[1]
        key = (access.src[1], r, width)
        if key not in self._in_blocks:
            outer, inner = (
                UOp(Ops.RANGE, r.dtype, (as_index(size),), Axis(f" {name}", r.arg.order))
                for name, size in (("outer", max(self.size(r) // width, 1)), ("inner", width))
            )
            if (whole := self.split(access, r)) is not None:
                stride, rest = whole
                self._in_blocks[key] = stride, simplify(rest + outer * (width * stride))
            else:
                self._in_blocks[key] = split_by(substitute_ranges(access.src[1], {r: outer * width + inner}), inner)
        return self._in_blocks[key]

    def follows(self, access: UOp, r: UOp, width: int, aligned: bool = True) -> bool:
        """Whether (aligned) blocks of `width` steps of the axis walk over neighbours, maybe through a division."""
        if not aligned and (whole := self.split(access, r)) is not None:
            return whole[0] == 1
        stride, rest = self.in_blocks(access, r, width) or (0, r)
        return stride == 1 and not (aligned and const_factor(rest) % width)

    def slides(self, access: UOp, r: UOp, q: UOp) -> bool:
        """Whether a step of an axis moves what is accessed along another one by few of its steps."""
        mine, other = self.split(access, r), self.split(access, q)
        return bool(mine and other and other[0] and not mine[0] % other[0] and 0 < mine[0] // other[0] < self.size(q))

    def merit(self, accesses: list[UOp], r: UOp, width: int, aligned: bool = True) -> tuple[int, int]:
        """How good a vector along an axis is: accesses that follow it less those that jump; then the traffic it
        serves.
        """
        follow = [a for a in accesses if self.follows(a, r, width, aligned)]
        # a block that reads one element, the scale of a group, neither follows nor jumps
        others = [a for a in accesses if r in a.src[1].ranges and a not in follow]
        jump = [a for a in others if (self.in_blocks(a, r, width) or (1,))[0] != 0]
        return len(follow) - len(jump), width * sum(self.traffic(a) for a in follow)

    @cached_property
    def apart(self) -> list[UOp]:
        """The output axes that no reduction varies along."""
        return [r for r in self.outputs if not any(r in u.ranges for u in self.reduces)]

    @cached_property
    def dominant(self) -> UOp | None:
        """The REDUCE with most steps in all."""
        return max(self.reduces, key=lambda u: self.volume(u.ranges | set(u.src[1:])), default=None)

    @cached_property
    def work(self) -> int:
        """Roughly how many elements are computed."""
        stores = sum(self.volume(s.src[1].ranges) for s in self.stores)
        return stores + sum(self.volume(u.ranges | set(u.src[1:])) for u in self.reduces)

    def loads_of(self, reduce: UOp) -> list[UOp]:
        """The loads in a reduction's value, those of reductions inside it left out."""
        return [u for u in below(reduce.src[:1], lambda u: u.op is not Ops.REDUCE) if u.op is Ops.LOAD]

    @cached_property
    def summed(self) -> tuple[UOp, ...]:
        """All loads inside of reductions."""
        return loads_summed(self.kernel)

    def traffic(self, access: UOp) -> int:
        """Bits of the elements that an access touches, each once."""
        return self.volume(access.src[1].ranges) * access.src[0].dtype.bits

    @cached_property
    def pointer_chasing(self) -> bool:
        """Whether addresses are loaded in long chains: lanes gain nothing where loads wait for each other."""
        depth: dict[UOp, int] = {}
        for u in self.nodes:
            depth[u] = max((depth[s] for s in u.src), default=0) + (u.op is Ops.LOAD)
        return max(depth.values(), default=0) > 6

    @cached_property
    def in_place(self) -> bool:
        """Whether the kernel loads what it stores to."""
        return updates_in_place(self.kernel)

    def kernel_stores(self, access: UOp) -> bool:
        """Whether the memory of an access is also stored to."""
        return any(s.src[0] is access.src[0] for s in self.stores)

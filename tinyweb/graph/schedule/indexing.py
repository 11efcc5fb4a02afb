"""From array expressions to scalar expressions: `value(node, index)` is what one element of a tensor-graph node is.

Movement ops vanish into index arithmetic, elementwise ops stay, reduces open new ranges, realised nodes become loads.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import reduce
from typing import TypeAlias

from tinyweb.dtype import dtypes
from tinyweb.graph.ir import ELEMENTWISE, Axis, Ops, Shape, Size, UOp, as_index, size_max, size_mul, size_prod
from tinyweb.graph.ir.axes import identity
from tinyweb.graph.ir.ops import AxisKind
from tinyweb.graph.symbolic import clauses, deciding

Index: TypeAlias = "tuple[UOp, ...]"
Request: TypeAlias = "tuple[UOp, Index, UOp | None]"  # node, index, gate

ZERO = UOp.const(0, dtypes.index)
MAX_INDEX = 2**31 - 2**16  # what 32 bits hold, less what blocks may reach beyond an end
FIRST_REDUCE_ORDER = 1000  # reduce ranges nest inside all output ranges


def both(a: UOp | None, b: UOp | None) -> UOp | None:
    """The conjunction of two gates, None meaning true."""
    if a is None or b is None or a is b:
        return b if a is None else a
    return a & b


def unbound(s: Size) -> UOp:
    """A size or bound as an index expression in which bound variables are plain variables."""
    u = as_index(fits(s) if isinstance(s, int) else s)
    return u.src[0] if u.op is Ops.BIND else (u if not u.src else u.replace(src=tuple(unbound(x) for x in u.src)))


def fits(n: int) -> int:
    """A size or stride; NotImplementedError for one that is beyond 32 bits."""
    if n > MAX_INDEX:
        raise NotImplementedError(
            f"a computation goes through {n} elements with one index, and {MAX_INDEX} are the most, as there are no "
            "64-bit indices: divide the tensor, or do not merge axes by reshape"
        )
    return n


def strides(shape: Shape) -> list[int]:
    """Row-major strides of memory that holds `shape`: symbolic sizes take their maximum, so addresses are constant."""
    out, step = [], 1
    for s in reversed(shape):
        out.append(fits(step))
        step *= size_max(s)
    return out[::-1]


def flat_index(index: Index, shape: Shape) -> UOp:
    """The address of `index` in row-major memory that holds `shape`. NotImplementedError where it may be beyond 32
    bits."""
    total: UOp | None = None
    fits(sum(max(min(i.vmax, size_max(s) - 1), 0) * step for i, s, step in zip(index, shape, strides(shape))) + 1)
    for i, s in zip(index, strides(shape), strict=True):
        if i is not ZERO:
            term = i if s == 1 else i * s
            total = term if total is None else total + term
    return ZERO if total is None else total


def present(s: Size) -> UOp | None:
    """Whether there is an element, of an axis that has one or none; None for other axes.

    A loop of one step or none would vanish from all that depends on it, and what is in it would happen even so.
    """
    return None if isinstance(s, int) or size_max(s) != 1 else unbound(s) > 0


def same(a: Size, b: Size) -> bool:
    return a == b if isinstance(a, int) or isinstance(b, int) else a is b


def reshape_groups(old: Shape, new: Shape) -> list[tuple[range, range]]:
    """Split a reshape into independent parts: pairs of axis runs (in old, in new) of equal size, each as short as
    possible."""
    if 0 in old or 0 in new:
        return [(range(len(old)), range(len(new)))]  # no elements: nothing tells the axes apart
    groups: list[tuple[range, range]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        i0, j0 = i, j
        a: Size = old[i] if i < len(old) else 1
        b: Size = new[j] if j < len(new) else 1
        i, j = min(i + 1, len(old)), min(j + 1, len(new))
        while not same(a, b):
            # grow the smaller side; symbolic sides grow together
            if j < len(new) and (i >= len(old) or size_max(b) <= size_max(a)):
                b, j = size_mul(b, new[j]), j + 1
            elif i < len(old):
                a, i = size_mul(a, old[i]), i + 1
            else:
                raise ValueError(f"cannot reshape {old} to {new}: the number of elements differs")
        groups.append((range(i0, i), range(j0, j)))
    return groups


def reshape_index(index: Index, old: Shape, new: Shape) -> Index:
    """The index into `old` of the element that `index` names in `new`."""
    if 0 in old or 0 in new:
        return (ZERO,) * len(old)
    out: list[UOp] = []
    for olds, news in reshape_groups(old, new):
        rest = [k for k in olds if old[k] != 1]
        flat: UOp | None = None
        for k in news:
            if new[k] == 1 and index[k] is ZERO:
                continue
            flat = index[k] if flat is None else flat * unbound(new[k]) + index[k]
        flat = ZERO if flat is None else flat
        for k in olds:
            if old[k] == 1:
                out.append(ZERO)
                continue
            inner = size_prod(old[m] for m in rest if m > k)
            part = flat if inner == 1 else flat // unbound(inner)
            out.append(part if k == rest[0] else part % unbound(old[k]))
    return tuple(out)


def _relevant(index: Index, gate: UOp | None) -> UOp | None:
    """Of a gate the clauses that say where an index may be read: those that ranges of the index are in, and those that
    share ranges with them. The others would only make a loop of what is the same in all of its steps.
    """
    if gate is None:
        return None
    ranges = frozenset[UOp]().union(*(i.ranges for i in index))
    rest, kept = clauses(gate), list[UOp]()
    while near := [c for c in rest if not c.ranges or c.ranges & ranges]:
        rest = [c for c in rest if c not in near]
        kept += near
        ranges = ranges.union(*(c.ranges for c in near))
    return reduce(both, (c for c in clauses(gate) if c in kept), None)


def _zero_beyond(value: UOp, gate: UOp) -> bool:
    """Whether a value is certainly zero where `gate` is false."""
    return set(clauses(gate)) <= set(deciding(value, 0))


class ElementBuilder:
    """Builds the expressions of one kernel.

    `leaf(node)` returns the memory (a BUFFER node) a realised node lives in, else None. Ranges are numbered per
    kernel in
    the order they are met, so equal computations give equal kernels.
    """

    def __init__(self, leaf: Callable[[UOp], UOp | None], slot: Callable[[UOp], UOp]):
        self.leaf, self.slot = leaf, slot
        self.memo: dict[Request, UOp] = {}
        self.reduces = 0

    def range(self, size: Size, *, reduce: bool, number: int, kind: AxisKind = AxisKind.LOOP) -> UOp:
        name, order = (f"r{number}", FIRST_REDUCE_ORDER + number) if reduce else (f"i{number}", number)
        return UOp(Ops.RANGE, dtypes.index, (unbound(size),), Axis(name, order, kind, reduce))

    def value(self, node: UOp, index: Index, gate: UOp | None = None) -> UOp:
        """The element of `node` at `index`; loads are guarded by `gate`. Works off a stack: graphs outgrow Python's."""
        root: Request = (node, index, gate)
        pending: list[tuple[Request, Generator[Request, UOp, UOp]]] = [(root, self._element(*root))]
        answer: UOp | None = None
        while pending:
            request, work = pending[-1]
            try:
                wanted = next(work) if answer is None else work.send(answer)
            except StopIteration as stop:
                answer = self.memo[request] = stop.value
                pending.pop()
                continue
            answer = self.memo.get(wanted)
            if answer is None:
                pending.append((wanted, self._element(*wanted)))
        return self.memo[root]

    def _element(self, node: UOp, index: Index, gate: UOp | None) -> Generator[Request, UOp, UOp]:
        memory = self.leaf(node)
        if memory is not None:
            return self.slot(memory).load(flat_index(index, node.shape), gate)
        op, src = node.op, node.src
        if op in (Ops.CONST, Ops.VARIABLE):
            return node
        if op is Ops.BIND:
            return src[0]
        if op in ELEMENTWISE:
            parts = []
            for s in src:
                parts.append((yield (s, index if s.shape else (), gate)))
            return node.replace(src=tuple(parts))
        if op is Ops.CONTIGUOUS:
            return (yield (src[0], index, gate))
        if op is Ops.RESHAPE:
            return (yield (src[0], reshape_index(index, src[0].shape, node.shape), gate))
        if op is Ops.PERMUTE:
            back = [ZERO] * len(index)
            for i, axis in zip(index, node.arg, strict=True):
                back[axis] = i
            return (yield (src[0], tuple(back), gate))
        if op is Ops.EXPAND:
            inner = tuple(ZERO if s == 1 else i for i, s in zip(index, src[0].shape, strict=True))
            return (yield (src[0], inner, _relevant(inner, gate)))
        if op is Ops.SHRINK:
            moved = tuple(i if b == 0 else i + unbound(b) for i, (b, _) in zip(index, node.arg, strict=True))
            return (yield (src[0], moved, gate))
        if op is Ops.FLIP:
            flipped = tuple(
                unbound(s) - 1 - i if a in node.arg else i
                for a, (i, s) in enumerate(zip(index, node.shape, strict=True))
            )
            return (yield (src[0], flipped, gate))
        if op is Ops.PAD:
            inside: UOp | None = None
            moved_back: list[UOp] = []
            for at, length, (before, after) in zip(index, src[0].shape, node.arg, strict=True):
                place = at - unbound(before) if before != 0 else at
                if before != 0:
                    inside = both(inside, place >= 0)
                if after != 0:
                    inside = both(inside, place < unbound(length))
                moved_back.append(place)
            value = yield (src[0], tuple(moved_back), both(gate, inside))
            if inside is None or _zero_beyond(value, inside):
                return value
            return inside.where(value, UOp.const(0, node.dtype))
        if op is Ops.IOTA:
            return index[0].cast(node.dtype)
        if op is Ops.TAKE:
            shared, picks = node.arg, len(src[1].shape)
            row = (yield (src[1], index[:picks], gate)).cast(dtypes.index)
            # an index outside of the table reads nothing and gives 0: ids may come from anywhere
            inside = (row >= 0) & (row < unbound(src[0].shape[shared]))
            value = yield (src[0], (*index[:shared], row, *index[picks:]), both(gate, inside))
            return value if _zero_beyond(value, inside) else inside.where(value, UOp.const(0, node.dtype))
        if op is Ops.REDUCE:
            reduce_op, axes = node.arg
            if any(size_max(src[0].shape[a]) == 0 for a in axes):
                return identity(reduce_op, node.dtype)
            ranges, inner_index, some = [], list(index), None
            for a in axes:
                size = src[0].shape[a]
                if size_max(size) == 1:
                    inner_index[a], some = ZERO, both(some, present(size))
                    continue
                ranges.append(self.range(size, reduce=True, number=self.reduces))
                inner_index[a] = ranges[-1]
                self.reduces += 1
            body = yield (src[0], tuple(inner_index), both(gate, some))
            if some is not None:
                body = some.where(body, identity(reduce_op, node.dtype))
            return UOp(Ops.REDUCE, node.dtype, (body, *ranges), reduce_op) if ranges else body
        raise NotImplementedError(f"{op.name} cannot be part of a kernel")

"""Stage: what a step of a loop reads of one parameter goes through shared or register memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, replace
from itertools import chain, count, takewhile
from math import gcd, prod
from typing import TypeAlias

from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import (
    ELEMENTWISE,
    AxisKind,
    Ops,
    Space,
    StageArg,
    UOp,
    axis_size,
    nest_key,
    row_major,
    substitute,
    users,
)
from tinyweb.graph.ir.shared_matrices import PATTERN
from tinyweb.graph.optimize.action import WALKED, Action, find_axis
from tinyweb.graph.optimize.instructions import DOT_PAIRS, DOT_STEPS, MATRIX_STEPS, shift_into
from tinyweb.graph.optimize.rewrite import filling, loops_of, ranges_of
from tinyweb.graph.symbolic import simplify, stride_of, substitute_ranges

WORDS = (8, 16, 32)  # 4-bit integers that are unpacked together
TOGETHER = (16, 8, 4)  # elements that are converted together; 16 where bytes are but moved
VECTORS: dict[int, tuple[int, ...]] = {
    bits: (128 // bits, 64 // bits, 32 // bits) for bits in (8, 16, 32)
}  # of 16, 8 and 4 bytes
SQUARE = 16  # most rows and columns of what is transposed in registers
Reads: TypeAlias = dict[UOp, tuple[UOp, ...]]
COPIES = re.compile(r"^((acc|s\d+(_\d+)?|raised\d+(_\d+)?)\.)+")  # what actions call an axis made after another
MOST_SLOTS = 8
SWIZZLES = (128, 64, 32)  # bytes of rows of matrices that instructions read in shared memory
MOST_OPERATIONS = 16  # of a value between a load and what all of it goes through


@dataclass(frozen=True)
class Stage(Action):
    """Everything that one step of loop `at` loads of parameter `param` inside reductions goes through `space`.

    `axes`: only the loads that vary along exactly these of the kernel's axes (`axes_of`), for both operands of x @
    x are loads of one parameter; without them all of its loads. What is staged is the value the loads are for:
    casts and products that vary over the same axes are done once, on the way. SHARED memory is filled by all
    threads of the workgroup together; REGISTER memory is an array of one invocation. What is made of frozen
    parameters alone goes to DEVICE memory instead, all of it, which is filled before the first launch. `pad`
    elements of SHARED memory are left unused after what one step of the staged loops reads, so that threads that
    fill different steps write to different banks. `raw`: loads are staged as they lie in memory, narrower than what
    they are cast to; of what threads multiply as matrices, `turned` puts the steps of a product side by side, which in
    the parameter lie apart. With `slots`, SHARED memory has what so many steps of a reduced loop read: it is filled for
    the last of them while the first is computed, and with `lag` so many steps before that one may still be read.
    `swizzle`: matrices are cut into rows of so many bytes, whose parts change places, as instructions want them that
    read them in SHARED memory.
    """

    param: int
    at: str
    space: Space
    pad: int = 0
    axes: tuple[str, ...] = ()
    raw: bool = False
    slots: int = 1
    swizzle: int = 0
    lag: int = 0
    turned: bool = False

    def apply(self, kernel: UOp) -> UOp:
        at = find_axis(kernel, self.at, stays=True)
        kind, shared, slots = at.arg.kind, self.space is Space.SHARED, self.slots
        padded = self.pad == 0 or (self.pad > 0 and shared)
        ahead = slots == 1 or (1 < slots <= MOST_SLOTS and shared and at.arg.reduce)
        swizzled = self.swizzle in SWIZZLES and shared and self.pad == 0
        for fits, why in (
            (shared or self.space is Space.REGISTER, "values are staged in shared or register memory"),
            (padded, "shared memory is padded, by a number of elements that is not negative"),
            (ahead, f"up to {MOST_SLOTS} steps of a reduced loop are in shared memory at a time"),
            (0 <= self.lag < max(slots - 1, 1), "one step at least is asked for before it is computed"),
            (swizzled or not self.swizzle, "rows without padding are swizzled in shared memory"),
            (kind in WALKED, f"the axis is bound to {kind.name.lower()}; stage at a loop or at the grid"),
            (all(s.src[0].arg.slot != self.param for s in kernel.src), "the kernel stores to that parameter"),
        ):  # fmt: skip
            self.require(fits, why)
        above, stages = users([kernel]), loops_of(kernel).stages
        table: dict[UOp, UOp] = {}
        taken = {r.arg.name.partition(".")[0] for u in stages for r in u.src[1:]}
        filled = {u.src[0] for u in stages if u.arg.space is self.space}
        again = self._copied(kernel)
        reused, others = self._reads(kernel, at, again)
        # what is read once is worth it only where something is computed on the way: many at a time, not one by one
        for load, summed in (reused or others).items():
            value = load if self.raw else whole_value(load, above, self._tile(load, self._space(load), at))
            if value in table or value in filled or (value is load and not reused and self._space(load) is self.space):
                continue
            narrow = _factor_type(value, load)
            factor = value if narrow is None else (value.src[0] if value.op is Ops.CAST else value).cast(narrow)
            table[value] = self._staged(factor, load, summed, at, taken).cast(value.dtype)
        self.require(table, "no reduction reads that parameter more than once, or converts it, in a step of that axis")
        for copies in again.values():
            table |= {substitute(value, copies): substitute(staged, copies) for value, staged in table.items()}
        return substitute(kernel, table)

    def _copied(self, kernel: UOp) -> dict[UOp, dict[UOp, UOp]]:
        """Loads in the loops of another stage that are also in the kernel's own, such as those of the sums of a shift:
        they read the same memory, with what stands there for the kernel's axes.
        """
        named, nodes = {r.arg.name: r for r in ranges_of(kernel)}, set(kernel.toposort())
        out: dict[UOp, dict[UOp, UOp]] = {}
        for x in (x for u in loops_of(kernel).stages for x in u.toposort() if self._means(x)):
            copies = {named[n]: r for r in x.ranges if (n := COPIES.sub("", r.arg.name)) in named and named[n] is not r}
            if copies and substitute(x, {r: own for own, r in copies.items()}) in nodes:
                out[x] = copies
        return out

    def _reads(self, kernel: UOp, at: UOp, again: Container[UOp]) -> tuple[Reads, Reads]:
        """Loads of the parameter that a reduction repeats within one step of `at`, in a loop or in another thread, and
        the axes it reduces; and the loads that are not repeated. Not those of `again`.
        """
        reused, others = Reads(), Reads()
        # a loop that fills other memory repeats what is read for that, not what reads it afterwards
        around_at = next((u.src[0] for u in loops_of(kernel).stages if at in u.src[1:]), kernel)
        for u in around_at.toposort():
            if u.op is not Ops.REDUCE:
                continue
            around = [
                r for r in u.ranges.union(u.src[1:])
                if r.arg.kind in (AxisKind.LOOP, AxisKind.THREAD) and walked_inside(r, at, self.space)
            ]  # fmt: skip
            together = self.space is Space.SHARED and any(r.arg.kind is AxisKind.DOT for r in u.src[1:])
            for x in u.src[0].toposort():
                if self._means(x) and (not at.arg.reduce or at in x.ranges) and x not in again:
                    # threads that multiply matrices together read each element for a row or a column of sums
                    found = reused if together or any(r not in x.ranges for r in around) else others
                    found.setdefault(x, u.src[1:])
        return reused, others

    def _means(self, u: UOp) -> bool:
        if u.op is not Ops.LOAD or u.src[0].op is not Ops.PARAM or u.src[0].arg.slot != self.param:
            return False
        return not self.axes or axes_of(u) == {axis_name(a) for a in self.axes}

    def _space(self, value: UOp) -> Space:
        """DEVICE where a value is made of frozen parameters alone, and takes little more memory than they do."""
        params, sizes = [u.arg for u in value.toposort() if u.op is Ops.PARAM], [r.src[0] for r in value.ranges]
        fits = all(n.op is Ops.CONST for n in sizes) and prod(n.arg for n in sizes) <= 2 * sum(p.size for p in params)
        known = fits and all(p.frozen for p in params) and not value.variables()
        return Space.DEVICE if known and self.space is Space.REGISTER else self.space

    @staticmethod
    def _tile(value: UOp, space: Space, at: UOp) -> list[UOp]:
        """The axes of what is staged."""
        return [r for r in value.ranges if space is Space.DEVICE or walked_inside(r, at, space)]

    def _staged(self, value: UOp, load: UOp, summed: tuple[UOp, ...], at: UOp, taken: set[str]) -> UOp:
        space = self._space(value)
        tile = self._tile(value, space, at)
        self.require(tile, "a step of that axis reads one element only")
        reduced = {r.arg.kind for u in value.toposort() if u.op is Ops.REDUCE for r in u.src[1:]}
        together = space is Space.SHARED and AxisKind.THREAD in reduced
        self.require(not together, "threads cannot fill apart what they reduce together")
        if space is not Space.DEVICE:
            self.require_small(tile)
        # filled in the order of the parameter's memory
        tile.sort(key=lambda r: (-_stride(load, r), nest_key(r)))
        name = next(n for n in chain([f"s{self.param}"], (f"s{self.param}_{i}" for i in count(1))) if n not in taken)
        taken.add(name)
        copies: dict[UOp, UOp] = {}
        if space is Space.SHARED and any(r.arg.kind is AxisKind.DOT for r in tile):
            return self._as_in_memory(value, load, tile, name)
        self.require(not self.swizzle, "what is swizzled is a matrix whose steps are an instruction's")
        layout = sorted(tile, key=_thread_order(load) if space is Space.SHARED else _panels(summed, load))
        beside: dict[UOp, AxisKind] = {}
        kinds = [r.arg.kind for r in layout[-2:]]
        if kinds == [AxisKind.VECTOR, AxisKind.DOT] and _stride(load, layout[-2]) == 1:
            # whole vectors of what lies along memory, for each step of a dot, which are mixed when they are stored
            beside = {layout[-2]: AxisKind.VECTOR, layout[-1]: AxisKind.UNROLL}
        woven = _woven(load, layout) if space is Space.REGISTER else None
        if woven is not None:
            beside = {woven: AxisKind.UNROLL}
        for i, r in enumerate(tile):
            # lanes stay lanes only along what is filled; whatever else carried out the axis, filling is a loop over it
            # … except over what 4-bit integers are unpacked from: whole words
            words = load.dtype.bits < 8 and int(r.src[0].arg) in WORDS and r is tile[-1] and _stride(load, r) == 1
            lanes = (words or r.arg.kind is AxisKind.VECTOR) and r is layout[-1]
            kind = AxisKind.VECTOR if lanes else beside.get(r, AxisKind.LOOP)
            copies[r] = filling(r, f"{name}.{r.arg.name}", i, kind)
        filled = [copies[r] for r in layout]
        run, vector = _side_by_side(value, load, layout, copies, 1 if woven is None else 2), layout[-1]
        if space is Space.REGISTER and run and (value is not load or woven is not None):
            filled[-len(run) :] = _in_parts(run, copies, TOGETHER[woven is None :], AxisKind.VECTOR)
        elif space is Space.REGISTER and copies[vector].arg.kind is AxisKind.VECTOR and _stride(load, vector) != 1:
            # what lies apart is read as it lies, several elements at a time, and transposed in registers
            run = _side_by_side(value, load, layout[:-1], copies, 1)
            block = gcd(int(vector.src[0].arg), prod(int(r.src[0].arg) for r in run), SQUARE)
            if run and block >= min(TOGETHER):
                filled[-len(run) - 1 : -1] = _in_parts(run, copies, (block,), AxisKind.UNROLL)
                filled[-1:] = _in_parts([vector], copies, (gcd(int(vector.src[0].arg), SQUARE),), AxisKind.VECTOR)
        row = max(sum(_place_in_row(r) > 0 for r in layout), 1) if self.pad else 0
        self.require(not self.pad or row < len(layout), "there is one row, which needs no padding")
        arg = StageArg(space, self.pad, row, self.slots)
        return _read(UOp(Ops.STAGE, value.dtype, (substitute(value, copies), *filled), arg), layout, arg)

    def _as_in_memory(self, value: UOp, load: UOp, tile: list[UOp], name: str) -> UOp:
        """What threads multiply as matrices: in the order of the parameter's memory, copied in whole vectors. Padding
        is behind each run of neighbours."""
        tile = sorted(tile, key=lambda r: (-_apart(load, r), nest_key(r)))
        copies = {r: filling(r, f"{name}.{r.arg.name}", i) for i, r in enumerate(tile)}
        run, last = _side_by_side(value, load, tile, copies, 1), axis_name(tile[-1].arg.name)
        along = [*takewhile(lambda r: axis_name(r.arg.name) == last, reversed(tile))][::-1]
        if self.swizzle or (self.pad and len(run) == len(tile)):  # a row is what lies along one axis
            run = [r for r in run if r in along]
        widths = VECTORS.get(value.dtype.bits, ())
        if not run and not self.turned:  # of words that lie apart
            widths = tuple(n for n in widths if _in_blocks(load, tile[-1], n))
            run = tile[-1:] if widths else []
        row = max(len(run), len(along))
        products = {axis_name(r.arg.name) for r in tile if r.arg.kind is AxisKind.DOT} if self.turned else ()
        steps = [r for r in tile if axis_name(r.arg.name) in products]
        if steps:
            apart = bool(run) and not set(steps) & set(run) and not self.swizzle
            self.require(apart, "steps lie side by side in memory, or nothing does")
            tile, row = [*(r for r in tile if r not in steps), *steps], len(steps)
        if self.swizzle:
            length, rows = (prod(int(r.src[0].arg) for r in part) for part in (along, tile[: len(tile) - len(along)]))
            whole = run and value.dtype.nbytes(length) % self.swizzle == 0 and rows % PATTERN == 0
            self.require(whole, f"a matrix is whole rows of {self.swizzle} bytes, {PATTERN} at a time")
        filled = [copies[r] for r in tile]
        arg = StageArg(self.space, self.pad if row < len(tile) else 0, row)
        if run:
            parts = _in_parts(run, copies, widths, AxisKind.VECTOR)
            end = len(filled) - len(steps)
            filled[end - len(run) : end] = parts
            row += 0 if steps else len(parts) - len(run)
        swizzled = replace(arg, row=row, slots=self.slots, swizzle=self.swizzle, lag=self.lag)
        return _read(UOp(Ops.STAGE, value.dtype, (substitute(value, copies), *filled), swizzled), tile, arg)


def _read(stage: UOp, layout: list[UOp], arg: StageArg) -> UOp:
    """What is staged for a step of the kernel's axes, which lie in memory as `arg` says."""
    index = UOp.const(0, dtypes.index)
    for r, stride in zip(layout, arg.strides([int(r.src[0].arg) for r in layout])[0]):
        index = index + r * stride
    return stage.load(index)


def axis_name(part: str) -> str:
    """The axis that a part of it, or a loop that fills what is staged of it, is called after."""
    return COPIES.sub("", part).partition(".")[0]


def axes_of(load: UOp) -> frozenset[str]:
    """The kernel's axes that a load varies along: what tells the loads of one parameter apart, whatever was done."""
    return frozenset(axis_name(r.arg.name) for r in load.ranges)


def stages_of(
    loads: Iterable[UOp], others: Iterable[UOp], at: str, space: Space, pad: int = 0, raw: bool = False
) -> list[Stage]:
    """What stages these loads but none of the others: parameters as a whole, except where others read them too."""
    shared = {u.src[0] for u in others}
    out: dict[Stage, None] = {}
    for u in loads:
        axes = tuple(sorted(axes_of(u))) if u.src[0] in shared else ()
        out[Stage(u.src[0].arg.slot, at, space, pad, axes, raw)] = None
    return list(out)


def _woven(load: UOp, layout: list[UOp]) -> UOp | None:
    """The axis of two elements side by side in memory of which the last axes of what is staged take one each."""
    step = _stride(load, layout[-1])
    fits = (r for r in layout[:-1] if r.arg.kind is AxisKind.UNROLL and r.src[0].arg == step == 2)
    return next((r for r in fits if _stride(load, r) == 1), None)


def _side_by_side(value: UOp, load: UOp, layout: list[UOp], copies: dict[UOp, UOp], step: int) -> list[UOp]:
    """The last axes of what is staged, loops over elements `step` apart in memory; all loads of a value vary alike."""
    run: list[UOp] = []
    loads = [u for u in value.toposort() if u.op is Ops.LOAD]
    for r in reversed(layout):
        apart = run and any((r in u.ranges) != (run[0] in u.ranges) for u in loads)
        if apart or copies[r].arg.kind is not AxisKind.LOOP or _stride(load, r) != step:
            break
        run.insert(0, r)
        step *= int(r.src[0].arg)
    return run


def _in_blocks(load: UOp, r: UOp, width: int) -> bool:
    """Whether steps of an axis lie side by side in memory, so many of them from each multiple on."""
    size = axis_size(r)
    if not isinstance(size, int) or size % width:
        return False
    block, lane = (
        r.replace(src=(UOp.const(n, r.dtype),), arg=replace(r.arg, name=f"{r.arg.name}.{i}"))
        for i, n in enumerate((size // width, width))
    )
    return stride_of(simplify(substitute(load.src[1], {r: block * width + lane})), lane) == 1


def _in_parts(run: list[UOp], copies: dict[UOp, UOp], widths: tuple[int, ...], kind: AxisKind) -> list[UOp]:
    """The loops that copy `run`, whose steps lie side by side, as one over blocks and their lanes; as one loop where no
    width divides it. The copies become what stands there for each of the axes.
    """
    r, sizes = copies[run[0]], [int(axis.src[0].arg) for axis in run]
    size = prod(sizes)
    width = next((w for w in widths if size % w == 0), 1)
    lanes = replace(r.arg, name=f"{r.arg.name}.v", order=r.arg.order + 1, kind=kind)
    parts = [
        r.replace(src=(UOp.const(size // width, r.dtype),), arg=replace(r.arg, kind=AxisKind.LOOP)),
        UOp(Ops.RANGE, r.dtype, (UOp.const(width, r.dtype),), lanes),
    ]
    parts = [part for part in parts if part.src[0].arg > 1] or parts[:1]
    for i, axis in enumerate(run):
        place = row_major(parts) // prod(sizes[i + 1 :])
        copies[axis] = place % sizes[i] if i else place
    return parts


def walked_inside(r: UOp, at: UOp, space: Space = Space.REGISTER) -> bool:
    """Whether a range is walked within one step of `at`, by one invocation or (SHARED) by a workgroup."""
    if r is at or r.arg.kind is AxisKind.GRID:
        return False
    if r.arg.kind is AxisKind.THREAD:
        return space is Space.SHARED
    if r.arg.kind is not AxisKind.LOOP or at.arg.kind is AxisKind.GRID:
        return True
    if r.arg.reduce != at.arg.reduce:
        return bool(r.arg.reduce)
    return nest_key(r) > nest_key(at)


def whole_value(load: UOp, above: dict[UOp, list[UOp]], tile: Iterable[UOp] = ()) -> UOp:
    """The largest value with the load in it that varies over the same axes and is all that the load is for. Loops over
    the axes of a `tile` fill nothing else that is staged, as weights of a softmax are."""
    value = load
    while (following := _next_value(value, above, load.ranges)) is not None:
        if any(x.op is Ops.STAGE and not x.ranges.isdisjoint(tile) for x in following.toposort()):
            break
        value = following
    return value


def _next_value(value: UOp, above: dict[UOp, list[UOp]], ranges: frozenset[UOp]) -> UOp | None:
    """The first value that all that a value is for goes through; None where there is none that varies over `ranges`."""
    waiting = list(above[value])
    if len(waiting) > 1:
        place = {u: i for i, u in enumerate(above)}  # sources first
    seen = 0
    while waiting and seen < MOST_OPERATIONS:
        # an index must stay arithmetic
        if any(u.op not in ELEMENTWISE or u.ranges != ranges or u.dtype is dtypes.index for u in waiting):
            return None
        if len(waiting) == 1:
            return waiting[0]
        first = min(waiting, key=place.__getitem__)
        waiting = list(dict.fromkeys([*(u for u in waiting if u is not first), *above[first]]))
        seen += 1
    return None


def _factor_type(value: UOp, load: UOp) -> DType | None:
    """What integers for a dot, and floats that were rounded for one, are staged as: the type of its factors."""
    dot = next((r for r in load.src[1].ranges if r.arg.kind is AxisKind.DOT), None)
    if dot is not None and value.op is Ops.CAST and value.dtype.is_float and value.src[0].dtype.is_float:
        return value.src[0].dtype if value.src[0].dtype.bits < value.dtype.bits else None
    if dot is None or value.dtype is not dtypes.int32 or not load.dtype.is_int:
        return None
    narrow = dtypes.int16 if dot.src[0].arg == DOT_PAIRS else dtypes.int8
    if dot.src[0].arg == DOT_STEPS and value.vmax > dtypes.int8.max:
        narrow = dtypes.uint8
    return narrow if shift_into(value, narrow) == 0 else None


def _panels(summed: tuple[UOp, ...], load: UOp) -> Callable[[UOp], tuple[int, tuple[int, str]]]:
    """The order of memory that one invocation reads from the first element to the last: output loops as they nest,
    then a panel for a tile of outputs: its single lanes, what is reduced, the lanes of a vector, the steps of a dot.
    Of a matrix single lanes lie beside each other too, for each step of what is reduced.
    """
    matrix = any(r.arg.kind is AxisKind.DOT and r.src[0].arg in MATRIX_STEPS for r in load.ranges)
    last, lanes = {AxisKind.DOT: 4, AxisKind.VECTOR: 3}, {AxisKind.UNROLL: 3 if matrix else 1}
    return lambda r: (last.get(r.arg.kind) or (2 if r in summed else lanes.get(r.arg.kind, 0)), nest_key(r))


def _thread_order(load: UOp) -> Callable[[UOp], tuple[int, int]]:
    """Threads side by side read elements side by side: loops outermost, then single lanes, then threads (x innermost),
    then the lanes of a vector; the steps of an instruction innermost, or outside of a vector that lies in memory so.
    """
    kinds = [AxisKind.LOOP, AxisKind.UNROLL, AxisKind.THREAD, AxisKind.VECTOR, AxisKind.DOT]
    if any(r.arg.kind is AxisKind.VECTOR and _stride(load, r) == 1 for r in load.ranges):
        kinds[3:] = reversed(kinds[3:])
    return lambda r: (kinds.index(r.arg.kind) if _place_in_row(r) else 0, -r.arg.dim)


def _place_in_row(r: UOp) -> int:
    """0 for steps of a reduction that are loops or written out: what one of them reads is a row."""
    return int(r.arg.kind is not AxisKind.LOOP and not (r.arg.kind is AxisKind.UNROLL and r.arg.reduce))


def _apart(load: UOp, r: UOp) -> float:
    """Elements of memory between steps of an axis: their mean, where it is not one number."""
    index, size = load.src[1], axis_size(r)
    if stride_of(index, r) or r not in index.ranges or not isinstance(size, int) or size == 1:
        return _stride(load, r)
    zeros = {x: UOp.const(0, x.dtype) for x in index.ranges}
    ends = (substitute_ranges(index, {**zeros, r: UOp.const(i, r.dtype)}) for i in (0, size - 1))
    first, last = (simplify(end) for end in ends)
    return abs(last.arg - first.arg) / (size - 1) if first.op is last.op is Ops.CONST else 1 << 30


def _stride(load: UOp, r: UOp) -> int:
    return abs(stride_of(load.src[1], r)) or 1 << 30

"""The steps of which schedules for GPUs are made: axes over threads, lanes and the grid, reductions over threads."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from tinyweb.graph.ir import AxisKind, UOp
from tinyweb.graph.optimize.actions import Action, Bind, GroupReduce, Split
from tinyweb.graph.optimize.analysis import Analysis
from tinyweb.graph.target import Target

WORKGROUP = 64  # threads: a multiple of every subgroup size in use, small enough to have many workgroups
LARGE_WORKGROUP = 256


class Plan:
    """A schedule in the making; `left` is what of each axis is a loop still."""

    def __init__(self, k: Analysis, target: Target):
        self.k, self.target = k, target
        self.actions: list[Action] = []
        # what is left of an axis as a loop: its name and (largest) size
        self.left: dict[UOp, tuple[str, int]] = {r: (r.arg.name, k.size(r)) for r in [*k.outputs, *k.reduced]}
        self.grouped: dict[int, list[UOp]] = {}  # reduced axes over the threads of a dimension
        self.threads = 1
        self.dims = 0
        self.results = 1  # of a thread: lanes and unrolled steps of outputs
        self.most = min(LARGE_WORKGROUP, target.max_invocations)

    # -- steps -------------------------------------------------------------------------------------------------
    def tile(self, r: UOp, factor: int, kind: AxisKind, dim: int = 0) -> None:
        """The inner `factor` of what is left of an axis is bound."""
        name, size = self.left[r]
        if factor <= 1 and kind is not AxisKind.THREAD:
            return
        if kind is not AxisKind.THREAD and r in self.k.outputs:
            self.results *= factor
        exact = self.k.exact(r)
        if name == r.arg.name and exact == factor:
            self.actions.append(Bind(name, kind, dim))
            del self.left[r]
            return
        self.actions += [Split(name, factor), Bind(f"{name}.1", kind, dim)]
        self.left[r] = (f"{name}.0", -(-size // factor))

    def tile_overlapping(self, r: UOp, factor: int, kind: AxisKind) -> None:
        """Blocks of `factor` of a whole axis are bound; the last one begins earlier if they do not divide it."""
        name, size = r.arg.name, self.k.size(r)
        if size % factor == 0:
            self.tile(r, factor, kind)
            return
        self.actions += [Split(name, factor, overlap=True), Bind(f"{name}.1", kind)]
        self.left[r] = (f"{name}.0", -(-size // factor))

    def spread(self, axes: Iterable[UOp], wanted: int) -> None:
        """Output axes over threads, one dimension each, until the workgroup has about `wanted` threads."""
        for r in axes:
            room = min(wanted // self.threads, self.target.max_workgroup[min(self.dims, 2)])
            if room <= 1 or self.dims > 2:
                return
            if r not in self.left or self.left[r][1] <= 1:
                continue
            count = fitting(self.left[r][1], room)
            self.tile(r, count, AxisKind.THREAD, self.dims)
            self.threads *= count
            self.dims += 1

    def share(self, heavy: UOp, count: int, dims: int) -> int:
        """All reductions over at most `count` threads in up to `dims` dimensions, made for the heavy one: as many as
        can exchange their results through shared memory; their number.
        """
        team = self.threads
        before = self.actions[:], dict(self.left), {d: rs[:] for d, rs in self.grouped.items()}, team, self.dims
        while (total := self._share(heavy, count, dims)) > 1 and self._exchanged(
            team, total
        ) > self.target.shared_bytes:
            self.actions, self.left = before[0][:], dict(before[1])
            self.grouped, self.threads, self.dims = {d: rs[:] for d, rs in before[2].items()}, *before[3:]
            count //= 2
        return total

    def _exchanged(self, teams: int, count: int) -> int:
        """Bytes through which so many teams of `count` threads exchange results, at most: with many of them in two
        rounds.
        """
        over_threads = {r for axes in self.grouped.values() for r in axes}
        sums = sum(not over_threads.isdisjoint(u.src[1:]) for u in self.k.reduces)
        second = 1 << (((count - 1).bit_length() + 1) // 2)
        return 4 * self.results * sums * teams * (count + second)

    def _share(self, heavy: UOp, count: int, dims: int) -> int:
        parts: list[tuple[int, int]] = []  # dimension, threads in it
        done: set[UOp] = set()
        loads = self.k.loads_of(heavy)
        for r in self.along(loads, [r for r in heavy.src[1:] if r in self.left]):
            if count < 2 or len(parts) == dims:
                break
            part = fitting(self.left[r][1], count)
            if part > 1:
                self._group(r, part, self.dims)
                parts.append((self.dims, part))
                self.dims += 1
                count //= part
        done.update(heavy.src[1:])
        for u in self.k.reduces:
            bound = [r for r in u.src[1:] if r in self.left and r not in done]
            for dim, part in parts if bound else []:
                r = max(bound, key=lambda r: self.left[r][1])
                if not self._meets(r, dim):
                    self._group(r, part, dim)
            done.update(bound)
        total = prod(part for _, part in parts)
        self.threads *= total
        return total

    def _meets(self, r: UOp, dim: int) -> bool:
        """Whether an axis over the threads of that dimension occurs in one value with `r`: they share one index."""
        others = [o for o in self.grouped.get(dim, []) if o is not r]
        used = [u.ranges.union(u.src[1:]) for u in self.k.reduces] if others else []
        return any(r in found and any(o in found for o in others) for found in used)

    def group(self, r: UOp, count: int) -> None:
        """A reduced axis over `count` threads in a dimension of their own; and other reductions, outer ones first."""
        self._group(r, count, self.dims)
        for u in reversed(self.k.reduces):
            bound = [o for o in u.src[1:] if o in self.left]
            if bound and not any(o in self.grouped[self.dims] for o in u.src[1:]):
                other = max(bound, key=lambda o: self.left[o][1])
                if not self._meets(other, self.dims):
                    self._group(other, count, self.dims)
        self.threads *= count
        self.dims += 1

    def _group(self, r: UOp, count: int, dim: int) -> None:
        self.grouped.setdefault(dim, []).append(r)
        name, size = self.left[r]
        self.actions.append(GroupReduce(name, count, dim))
        self.left[r] = (f"{name}.0", -(-size // count))

    def along(self, loads: list[UOp], axes: list[UOp]) -> list[UOp]:
        """Axes in the order in which neighbouring threads should walk them: those that the loads follow first."""
        main = max(loads, key=self.k.traffic, default=None)
        return sorted(axes, key=lambda r: distance(self.k, main, r)) if main is not None else axes

    def grid(self) -> None:
        """All output loops that are left, over up to three dimensions; the last ones share one if need be."""
        loops = [(r, *self.left[r]) for r in self.k.outputs if r in self.left]
        loops.sort(key=lambda entry: -entry[2])
        for i, (_, name, _size) in enumerate(loops):
            self.actions.append(Bind(name, AxisKind.GRID, min(i, self.target.grid_dims - 1)))

    def vector_along_stores(self, axes: list[UOp]) -> UOp | None:
        """The axis, if there was one."""
        k = self.k
        best, width = None, 1
        if k.chases:
            return None
        for r in axes:
            follow = [s for s in k.stores if k.contiguous(s, r)]
            # a word of packed elements is stored as a whole where the vector covers it
            narrow = min((s.src[0].dtype.bits for s in follow), default=32)
            fits = k.width(follow, r, max(self.target.max_vector, 32 // narrow)) if follow else 1
            if fits > width:
                best, width = r, fits
        if best is not None:
            self.tile(best, width, AxisKind.VECTOR)
        return best

    def by_nearness(self, axes: Iterable[UOp]) -> list[UOp]:
        """Axes in the order in which neighbouring threads should walk them: those that stores follow first."""
        main = max(self.k.stores, key=lambda s: self.k.volume(s.src[1].ranges))
        return sorted(axes, key=lambda r: distance(self.k, main, r))

    def unroll(self, axes: list[UOp], threads: int, enough: int, most: int = 4) -> None:
        """The longest of the axes, up to `most` times, as long as enough threads are left."""
        r = max((r for r in axes if r in self.left), key=self.k.size, default=None)
        factor = 1
        while (
            r is not None and factor < most and threads >= 2 * factor * enough and self.left[r][1] % (2 * factor) == 0
        ):
            factor *= 2
        if r is not None:
            self.tile(r, factor, AxisKind.UNROLL)

    def vector_axis(self, loads: list[UOp], bound: list[UOp], rows: list[UOp]) -> tuple[UOp | None, int]:
        """The axis that most loads follow, and the vector's width along it."""
        best: tuple[tuple[int, int], UOp | None, int] = ((0, 0), None, 1)
        for r in [*bound, *rows]:
            width = self.k.width(loads, r, self.target.max_vector)
            if width > 1 and (merit := self.k.merit(loads, r, width)) > best[0]:
                best = (merit, r, width)
        return best[1], best[2]


def distance(k: Analysis, access: UOp, r: UOp) -> int:
    """Elements between neighbours along an axis; much where the access does not follow it."""
    parts = k.split(access, r)
    return abs(parts[0]) if parts is not None and parts[0] else 1 << 40


def fitting(size: int, room: int) -> int:
    """How many threads an axis of that size should have, at most `room`: a power of two that wastes little."""
    count = 1
    while count * 2 <= room and count < size:
        count *= 2
    exact = count
    while exact > 1 and size % exact:
        exact //= 2
    # gating off up to a quarter of the threads is better than having half as many
    waste = -size % count / size
    return count if exact == count or waste <= 0.25 or exact * 2 < count else exact


def fitting_divisor(size: int, most: int) -> int:
    """The largest power of two up to `most` that divides the size."""
    factor = 1
    while factor * 2 <= most and size % (factor * 2) == 0:
        factor *= 2
    return factor

"""A sensible schedule for any kernel, without timing anything: one recipe per kind of kernel and kind of target.

What decides is how the loads move along the axes: an axis along which the heavy loads are contiguous is read in vectors, an
axis they do not depend on is unrolled (the loaded values are reused), and what is left is spread over the machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tinyweb.graph.ir import AxisKind, Ops, UOp, size_max
from tinyweb.graph.optimize.actions import Action, Bind, GroupReduce, Reorder, Split
from tinyweb.graph.optimize.actions import axis_size as size_of
from tinyweb.graph.optimize.merge import merge_reduces
from tinyweb.graph.optimize.rewrite import ranges_of
from tinyweb.graph.symbolic import split_by
from tinyweb.graph.target import Target

HEAVY_REDUCE = 16  # steps from which a reduce is worth a schedule of its own
WORKGROUP = 64  # threads of a workgroup, a multiple of every GPU's subgroup
MATMUL_ROWS = 8  # rows of the other operand from which a product is a matmul rather than a matvec


def heuristic(kernel: UOp, target: Target) -> tuple[Action, ...]:
    """A schedule for this kernel on this target."""
    plan = _Plan(merge_reduces(kernel), target)
    if target.has_threads:
        plan.gpu()
    elif target.language == "c":
        plan.cpu()
    return tuple(plan.actions)


@dataclass(frozen=True)
class _Reduce:
    """A REDUCE and what matters about it."""

    node: UOp
    inner: UOp  # the range its loads are contiguous along, else its last
    contiguous: bool
    steps: int  # at most
    nested: bool  # lies in the body of another reduce and depends on its range


def _stride(index: UOp, r: UOp) -> int | None:
    """The constant step of an index along a range; 0 if it does not depend on it, None if it is not linear."""
    if r not in index.ranges:
        return 0
    parts = split_by(index, r)
    if parts is None:
        return None
    step = parts[0]
    return int(step.arg) if isinstance(step, UOp) and step.op is Ops.CONST else (step if isinstance(step, int) else None)


def _loads(u: UOp) -> list[UOp]:
    return [x for x in u.toposort() if x.op is Ops.LOAD]


def _steps(r: UOp) -> int:
    return size_max(size_of(r))


class _Plan:
    """Collects actions; keeps the current sizes of axes by name."""

    def __init__(self, kernel: UOp, target: Target):
        self.kernel, self.target = kernel, target
        self.actions: list[Action] = []
        self.out = [r for r in ranges_of(kernel) if not r.arg.reduce]
        self.store = kernel.src[0]
        self.rest: dict[str, int] = {r.arg.name: _steps(r) for r in ranges_of(kernel)}
        self.exact: dict[str, bool] = {r.arg.name: isinstance(size_of(r), int) for r in ranges_of(kernel)}
        self.reduces = self._find_reduces()
        heavy = [r for r in self.reduces if r.steps >= HEAVY_REDUCE]
        # the main reduce does the most work: its steps times the elements that need one of their own
        self.main = max(heavy, key=lambda r: r.steps * prod(_steps(o) for o in self.out if o in r.node.ranges), default=None)

    def _find_reduces(self) -> list[_Reduce]:
        found = []
        nodes = [u for u in self.kernel.toposort() if u.op is Ops.REDUCE]
        bound = {r for u in nodes for r in u.src[1:]}
        for u in nodes:
            loads = _loads(u.src[0])
            ranges = sorted(u.src[1:], key=lambda r: r.arg.order)
            scores = [
                (sum(1 for x in loads if _stride(x.src[1], r) == 1), -sum(1 for x in loads if _stride(x.src[1], r) not in (0, 1)), i)
                for i, r in enumerate(ranges)
            ]
            best = max(range(len(ranges)), key=lambda i: scores[i])
            inner = ranges[best]
            # group scales (an index divided by the group) come along; what must not happen is a stride along the range
            strided = [x for x in loads if _stride(x.src[1], inner) not in (0, 1, None)]
            contiguous = scores[best][0] > 0 and not strided
            found.append(_Reduce(u, inner, contiguous, prod(_steps(r) for r in ranges), bool(bound & u.ranges)))
        return found

    # -- steps --------------------------------------------------------------------------------------------------------
    def split(self, name: str, factor: int) -> tuple[str, str]:
        """Split an axis; a factor of 1 or of the whole size is left out by the callers."""
        self.actions.append(Split(name, factor))
        outer, inner = f"{name}.0", f"{name}.1"
        self.rest[outer], self.rest[inner] = -(-self.rest[name] // factor), factor
        self.exact[outer], self.exact[inner] = self.exact[name], True
        del self.rest[name]
        return outer, inner

    def lanes(self, name: str, factor: int, kind: AxisKind) -> str:
        """Bind `factor` neighbouring steps of an axis to lanes; the name of what is left."""
        if factor <= 1:
            return name
        if self.rest[name] == factor and self.exact[name]:
            self.actions.append(Bind(name, kind))
            self.rest[name] = 1
            return name
        outer, inner = self.split(name, factor)
        self.actions.append(Bind(inner, kind))
        return outer

    def fits(self, name: str, *factors: int) -> int:
        """The first factor that divides the axis exactly, else 1."""
        if not self.exact.get(name, False):
            return 1
        return next((f for f in factors if f > 1 and self.rest[name] % f == 0), 1)

    def bind_grid(self, names: list[str], dim: int = 0) -> None:
        for name in names:
            self.actions.append(Bind(name, AxisKind.GRID, dim))

    # -- analysis -----------------------------------------------------------------------------------------------------
    def contiguous_output(self) -> UOp | None:
        """The output axis along which the store and the main reduce's loads are contiguous (or do not move)."""
        loads = _loads(self.main.node.src[0]) if self.main else _loads(self.store.src[2])
        for r in reversed(self.out):
            if _stride(self.store.src[1], r) != 1:
                continue
            strides = [_stride(x.src[1], r) for x in loads]
            if all(s in (0, 1) for s in strides) and (not self.main or 1 in strides):
                return r
        return None

    def row_axes(self) -> list[UOp]:
        """Output axes that no heavy reduce depends on: the kernel walks a row and shares what was reduced over it."""
        heavy = [r for r in self.reduces if r.steps >= HEAVY_REDUCE and not r.nested]
        return [o for o in self.out if not any(o in r.node.ranges for r in heavy)] if heavy else []

    def reused(self, axis: UOp) -> bool:
        """Whether some load of the main reduce does not move along an output axis (unrolling the axis reuses it)."""
        assert self.main is not None
        loads = _loads(self.main.node.src[0])
        return axis in self.main.node.ranges and any(_stride(x.src[1], axis) == 0 for x in loads)

    # -- CPU and WASM -------------------------------------------------------------------------------------------------
    def cpu(self) -> None:
        lanes = self.target.vector_lanes
        names = [r.arg.name for r in self.out]
        vector = None if self.main and self.main.contiguous else self.contiguous_output()
        if vector is not None and not (self.main is None and self.reduces):
            i = names.index(vector.arg.name)
            width = self.fits(names[i], lanes, 4)
            names[i] = self.lanes(names[i], width, AxisKind.VECTOR)
            if self.main and width > 1:
                names[i] = self.lanes(names[i], self.fits(names[i], 4, 2), AxisKind.UNROLL)
        else:
            vector = None
        budget = 8  # accumulators kept in registers
        if self.main and self.main.contiguous and not self.main.nested:
            # the axis whose rows are read from memory first, then the one that shares them
            tiled = [o for o in self.out if self.reused(o)]
            for o in sorted(tiled, key=_steps, reverse=True)[:2]:
                i = next(k for k, r in enumerate(self.out) if r is o)
                factor = self.fits(names[i], min(4, budget), 2)
                names[i] = self.lanes(names[i], factor, AxisKind.UNROLL)
                budget //= max(factor, 1)
            if len(tiled) < len(self.out) and budget == 8:
                for o in reversed(self.out):
                    i = self.out.index(o)
                    if o in self.main.node.ranges and self.fits(names[i], 4, 2) > 1:
                        names[i] = self.lanes(names[i], self.fits(names[i], 4, 2), AxisKind.UNROLL)
                        break
        for r in self.reduces:
            if r.inner.arg.name not in self.rest:
                continue  # shares its range with a reduce that was done before
            if r.contiguous and not r.nested and not (vector is not None and vector in r.node.ranges):
                self.lanes(r.inner.arg.name, self.fits(r.inner.arg.name, lanes, 4), AxisKind.VECTOR)
        # the axis with the most steps goes to the threads: it is moved outside of the others
        shared = {o.arg.name for o in self.row_axes()} if self.main else set()
        free = [n for n, o in zip(names, self.out, strict=True) if self.rest[n] > 1 and o.arg.name not in shared]
        if free:
            most = max(free, key=lambda n: self.rest[n])
            if most != free[0] and self.rest[free[0]] < 4 * self.target.parallel_threads:
                self.actions.append(Reorder((most, *(n for n in free if n != most))))
            else:
                most = free[0]
            self.bind_grid([most])

    # -- GPU ----------------------------------------------------------------------------------------------------------
    def gpu(self) -> None:
        names = {r: r.arg.name for r in self.out}
        work = prod(_steps(r) for r in self.out)
        if self.main is None:
            self._gpu_elementwise(names)
        elif self.row_axes():
            self._gpu_rows(names)
        elif (column := self._gpu_column(work)) is not None:
            self._gpu_columns(names, column)
        elif self._is_matmul() and work >= 2048:
            self._gpu_matmul(names)
        else:
            self._gpu_matvec(names)

    def _gpu_grid(self, names: list[str]) -> None:
        """What is left of the output axes, over the grid: the last dimension first."""
        left = [n for n in names if self.rest[n] > 1]
        for i, name in enumerate(reversed(left)):
            self.actions.append(Bind(name, AxisKind.GRID, min(i, self.target.grid_dims - 1)))

    def _gpu_threads(self, name: str, most: int, dim: int = 0) -> str:
        """Bind up to `most` steps of an axis to threads; the name of what is left of the axis."""
        size = self.rest[name]
        if size <= 1:
            return name
        if self.exact[name] and size <= most:
            self.actions.append(Bind(name, AxisKind.THREAD, dim))
            self.rest[name] = 1
            return name
        count = next((f for f in (most, most // 2) if self.exact[name] and size % f == 0), most)
        outer, inner = self.split(name, count)
        self.actions.append(Bind(inner, AxisKind.THREAD, dim))
        return outer

    def _gpu_elementwise(self, names: dict[UOp, str]) -> None:
        vector = self.contiguous_output()
        if vector is not None:
            names[vector] = self.lanes(names[vector], self.fits(names[vector], 4), AxisKind.VECTOR)
        for r in reversed(self.out):
            if self.rest[names[r]] > 1:
                names[r] = self._gpu_threads(names[r], WORKGROUP)
                break
        self._gpu_grid([names[r] for r in self.out])

    def _gpu_reduces(self, threads: int, dim: int = 0, *, vector: bool = True) -> None:
        """Share every reduce of the kernel among the threads; only one whose body belongs to another stays whole."""
        for r in self.reduces:
            name = r.inner.arg.name
            if r.nested or self.rest.get(name, 1) < 2:
                continue
            if vector and r.contiguous:
                width = self.fits(name, 4)
                if self.rest[name] >= threads * width or self.rest[name] // max(width, 1) >= threads // 2:
                    name = self.lanes(name, width, AxisKind.VECTOR)
            if self.rest[name] >= threads // 2:
                self.actions.append(GroupReduce(name, threads, dim))

    def _threads_for(self, steps: int) -> int:
        n = 16
        while n < min(256, self.target.max_invocations) and n * 8 <= steps:
            n *= 2
        return n

    def _gpu_rows(self, names: dict[UOp, str]) -> None:
        rows = set(self.row_axes())
        longest = max(r.steps for r in self.reduces)
        threads = min(256, max(32, self._threads_for(longest)))
        inner = max(rows, key=_steps)
        if self.rest[names[inner]] > 1:
            self.split_threads(names, inner, threads)
        self._gpu_reduces(threads, vector=False)
        self._gpu_grid([names[r] for r in self.out if r not in rows])

    def split_threads(self, names: dict[UOp, str], axis: UOp, threads: int) -> None:
        """Exactly `threads` threads along an axis, gated where they do not divide it."""
        outer, inner = self.split(names[axis], threads)
        self.actions.append(Bind(inner, AxisKind.THREAD, 0))
        names[axis] = outer

    def _gpu_column(self, work: int) -> UOp | None:
        """The output axis to read along when the reduce strides through memory (attention's weights times values)."""
        assert self.main is not None
        if self.main.contiguous:
            return None
        r = self.contiguous_output()
        return r if r is not None and _steps(r) >= 8 else None

    def _gpu_columns(self, names: dict[UOp, str], column: UOp) -> None:
        names[column] = self._gpu_threads(names[column], WORKGROUP)
        for r in reversed(self.out):
            if r is not column and 1 < self.rest[names[r]] and self.exact[names[r]]:
                names[r] = self.lanes(names[r], self.fits(names[r], 4, 2), AxisKind.UNROLL) if self.reused(r) else names[r]
                break
        self._gpu_grid([names[r] for r in self.out])

    def _is_matmul(self) -> bool:
        assert self.main is not None
        tiled = [o for o in self.out if self.reused(o) and _steps(o) >= MATMUL_ROWS]
        return len(tiled) >= 2 and not any(r.nested for r in self.reduces)

    def _gpu_matmul(self, names: dict[UOp, str]) -> None:
        """Every thread a tile of two output axes; the reduce is walked whole, in vectors where it is contiguous."""
        assert self.main is not None
        tiled = sorted((o for o in self.out if self.reused(o)), key=_steps, reverse=True)[:2]
        tiled.sort(key=lambda r: r.arg.order)
        for dim, r in enumerate(reversed(tiled)):
            names[r] = self.lanes(names[r], self.fits(names[r], 4, 2), AxisKind.UNROLL)
            names[r] = self._gpu_threads(names[r], 8, dim)
        for x in self.reduces:
            if x.contiguous and x.inner.arg.name in self.rest:
                self.lanes(x.inner.arg.name, self.fits(x.inner.arg.name, 4), AxisKind.VECTOR)
        self._gpu_grid([names[r] for r in self.out])

    def _gpu_matvec(self, names: dict[UOp, str]) -> None:
        """A workgroup shares each row's reduce; a few rows together reuse what they all read."""
        assert self.main is not None
        for r in sorted((o for o in self.out if self.reused(o)), key=_steps, reverse=True)[:1]:
            names[r] = self.lanes(names[r], self.fits(names[r], 4, 2), AxisKind.UNROLL)
        self._gpu_reduces(min(256, self._threads_for(self.main.steps)))
        self._gpu_grid([names[r] for r in self.out])

"""One program, uop by uop, on arrays with one row per invocation.

A scalar value is an array of shape (N,), or (1,) where it is the same for all invocations; a vector of n lanes has
shape (N, n) or (1, n). Invocations advance in step. What could go wrong elsewhere is an error here: an index outside
of its buffer, a negative numerator of FLOORDIV, two invocations that store different values in one place, a barrier
that some do not come to, and shared memory that one thread writes and another accesses with no barrier in between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tinyweb.graph.ir import DescribedArg, Fragments, MatrixArg, Neighbours, Ops, Products, RowsArg, Space, UOp
from tinyweb.graph.program import Program
from tinyweb.native_runtimes.interpreter.fragments import described, multiplied, rows_of
from tinyweb.native_runtimes.interpreter.memory import DeviceMemory, Registers, SharedMemory
from tinyweb.native_runtimes.interpreter.spelling import COMPUTE
from tinyweb.render_common import lanes

Array: TypeAlias = npt.NDArray[Any]

MAX_INVOCATIONS = 1 << 16  # carried out at once, to bound the memory that values take


class Executor:
    """A program ready to run. `aligned`: vectors in memory begin at a multiple of their width. `subgroup`: threads in
    one.
    """

    def __init__(self, program: Program, aligned: bool = True, subgroup: int = 32):
        self.program, self.aligned, self.subgroup = program, aligned, subgroup
        self.uops = program.uops
        self.ends: dict[UOp, int] = {u.src[-1]: i for i, u in enumerate(self.uops) if u.op is Ops.END}

    def run(
        self, buffers: Sequence[npt.NDArray[np.uint8]], variables: Mapping[str, int], grid: tuple[int, int, int]
    ) -> None:
        """Carry out all workgroups; buffers by slot, as bytes."""
        groups = grid[0] * grid[1] * grid[2]
        threads = int(np.prod(self.program.workgroup))
        step = max(MAX_INVOCATIONS // threads, 1)
        with np.errstate(all="ignore"):
            for first in range(0, groups, step):
                _Run(self, buffers, variables, grid, first, min(step, groups - first), threads).block(0, len(self.uops))


class _Run:
    """Workgroups `first … first+groups-1` of one launch."""

    def __init__(
        self, executor: Executor, buffers: Sequence[npt.NDArray[np.uint8]], variables: Mapping[str, int],
        grid: tuple[int, int, int], first: int, groups: int, threads: int,
    ):  # fmt: skip
        self.executor, self.program, self.uops = executor, executor.program, executor.uops
        self.buffers, self.variables, self.grid = buffers, variables, grid
        self.invocations, self.threads, self.groups = groups * threads, threads, groups
        invocation = np.arange(self.invocations)
        self.group = invocation // threads + first
        self.thread = invocation % threads
        self.epoch = 0
        self.active: Array | None = None  # the invocations that are still in a loop whose size differs between them
        self.values: dict[UOp, Array] = {}
        self.memory: dict[UOp, DeviceMemory | Registers | SharedMemory] = {}

    def block(self, begin: int, end: int) -> None:
        """Uops begin … end-1; loops call this for their bodies."""
        i = begin
        while i < end:
            u = self.uops[i]
            if u.op is Ops.RANGE:
                last = self.executor.ends[u]
                sizes, outer = self.values[u.src[0]], self.active
                for count in range(int(sizes.max())):
                    self.values[u] = np.array([count], np.int32)
                    if (inside := count < sizes).size > 1 and not inside.all():
                        self.active = inside if outer is None else outer & inside
                    self.block(i + 1, last)
                self.active = outer
                i = last + 1
                continue
            if isinstance(u.arg, Fragments):
                self._fragments(u)
            elif (compute := COMPUTE.get(u.op)) is not None:
                self.values[u] = compute(u, *[self.values[s] for s in u.src])
            elif (step := STEPS.get(u.op)) is not None:
                step(self, u)
            else:
                raise NotImplementedError(f"kernel {self.program.name}: the interpreter does not know {u.op.name}")
            i += 1

    def _const(self, u: UOp) -> None:
        self.values[u] = np.array([u.arg]).astype(u.dtype.numpy)

    def _variable(self, u: UOp) -> None:
        self.values[u] = np.array([self.variables[u.arg[0]]], np.int32)

    def _subgroup_size(self, u: UOp) -> None:
        self.values[u] = np.array([self.executor.subgroup], np.int32)

    def _param(self, u: UOp) -> None:
        self.memory[u] = DeviceMemory(self.program.name, u.dtype, u.arg, self.buffers[u.arg.slot])

    def _buffer(self, u: UOp) -> None:
        if u.arg.space is Space.SHARED:
            self.memory[u] = SharedMemory(self.program.name, u.dtype, u.arg, self.groups)
        else:
            self.memory[u] = Registers(self.program.name, u.dtype, u.arg, self.invocations)

    def _barrier(self, u: UOp) -> None:
        if isinstance(u.arg, str | Products):
            return  # here what is stored has arrived at once, and products are made
        groups = None if self.active is None else self.active.reshape(self.groups, self.threads)
        if groups is not None and (groups != groups[:, :1]).any():
            raise ArithmeticError(f"kernel {self.program.name}: some invocations do not come to a barrier")
        self.epoch += 1

    def _stack(self, u: UOp) -> None:
        self.values[u] = np.stack(np.broadcast_arrays(*(self.values[s] for s in u.src)), axis=-1)

    def _lane(self, u: UOp) -> None:
        self.values[u] = self.values[u.src[0]][:, u.arg]

    def _nothing(self, u: UOp) -> None:
        """Order alone."""

    def _special(self, u: UOp) -> None:
        kind, dim = u.arg
        flat, sizes = (self.group, self.grid) if kind == "grid" else (self.thread, self.program.workgroup)
        for d in range(dim):
            flat = flat // max(sizes[d], 1)
        self.values[u] = (flat % max(sizes[dim], 1)).astype(np.int32)

    def _subgroup(self, u: UOp) -> None:
        """A value combined over neighbouring threads of a workgroup; its last subgroup may have fewer."""
        value = self.values[u.src[0]]
        few = isinstance(u.arg, Neighbours)
        op, size = (u.arg.op, u.arg.count) if few else (u.arg, self.executor.subgroup)
        shape = (self.invocations, *value.shape[1:])
        each = np.broadcast_to(value, shape).reshape(self.groups, self.threads, *shape[1:])
        starts = np.arange(0, self.threads, size)
        combined = (np.add if op is Ops.ADD else np.maximum).reduceat(each, starts, axis=1)
        self.values[u] = np.repeat(combined, size, axis=1)[:, : self.threads].reshape(shape)

    def _fragments(self, u: UOp) -> None:
        """Matrices multiplied by the threads of subgroups, which are neighbours in a workgroup."""
        values = (self.values[s].reshape(-1, lanes(s)) for s in u.src)
        parts = [np.broadcast_to(v, (self.invocations, v.shape[1])) for v in values]
        self.values[u] = multiplied(u.arg, *parts)

    def _elements(self, index: Array, width: int, arg: object) -> Array:
        """Element numbers of an access: shape (rows, width)."""
        rows = index.astype(np.int64)[:, None]
        return rows if width == 1 else rows + np.array(arg.offsets if isinstance(arg, MatrixArg) else range(width))

    def _gate(self, u: UOp, position: int) -> Array | None:
        gate = self.values[u.src[position]] if len(u.src) > position else None
        if self.active is None:
            return gate
        if u.op is Ops.LOAD and isinstance(self.memory[u.src[0].buffer], Registers) and len(self.values[u.src[1]]) == 1:
            return gate  # an element that is the same for all: there is one for those outside of the loop too
        if gate is None:
            return self.active
        return gate & (self.active if gate.ndim == 1 else self.active[:, None])

    def _load(self, u: UOp) -> None:
        memory = self.memory[u.src[0].buffer]
        width = lanes(u)
        index, gate = self.values[u.src[1]], self._gate(u, 2)
        if width > 1 and self.executor.aligned and isinstance(u.arg, int) and (index % width).any():
            raise IndexError(
                f"kernel {self.program.name}: a load of {width} elements from {memory.name} is not aligned"
            )
        if isinstance(u.arg, RowsArg):
            index = np.broadcast_to(index, (self.invocations,))
            self.values[u] = memory.load(rows_of(u.arg, index.astype(np.int64)), None, self)
            return
        if isinstance(u.arg, DescribedArg):
            self.values[u] = memory.load(described(u.arg, index.astype(np.int64), u.dtype.bits), None, self)
            return
        if gate is not None and gate.ndim == 1:
            gate = gate[:, None]  # one for all lanes
        value = memory.load(self._elements(index, width, u.arg), gate, self)
        if len(u.src) > 3:
            value = np.where(self.values[u.src[2]].reshape(-1, 1), value, self.values[u.src[3]].reshape(-1, width))
        self.values[u] = value if width > 1 else value[:, 0]

    def _store(self, u: UOp) -> None:
        memory = self.memory[u.src[0].buffer]
        index, value, gate = self.values[u.src[1]], self.values[u.src[2]], self._gate(u, 3)
        width = value.shape[1] if value.ndim > 1 else 1
        if isinstance(u.arg, MatrixArg):
            gate = self.thread == 0  # the threads do it together
        elif width > 1 and self.executor.aligned and (index % width).any():
            raise IndexError(f"kernel {self.program.name}: a store of {width} elements to {memory.name} is not aligned")
        where = self._elements(index, width, u.arg)
        memory.store(where, value.reshape(-1, width), None if gate is None else gate.reshape(-1, 1), self, u.arg)


STEPS: dict[Ops, Callable[[_Run, UOp], None]] = {
    Ops.CONST: _Run._const,
    Ops.VARIABLE: _Run._variable,
    Ops.SPECIAL: _Run._special,
    Ops.SUBGROUP_SIZE: _Run._subgroup_size,
    Ops.SUBGROUP: _Run._subgroup,
    Ops.PARAM: _Run._param,
    Ops.BUFFER: _Run._buffer,
    Ops.BARRIER: _Run._barrier,
    Ops.LOAD: _Run._load,
    Ops.STORE: _Run._store,
    Ops.STACK: _Run._stack,
    Ops.LANE: _Run._lane,
    Ops.AFTER: _Run._nothing,
    Ops.END: _Run._nothing,
    Ops.SINK: _Run._nothing,
}

__all__ = ["Executor"]

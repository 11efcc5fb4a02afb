"""Launches that run again and again: at first one by one, from the second run on as one CUDA graph.

What varies between runs is changed in the graph where it is: addresses of memory and sizes of grids in the parameters
of its kernels, values of VARIABLEs in the memory that kernels read them from.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tinyweb.errors import DeviceError
from tinyweb.graph.program import Program
from tinyweb.native_runtimes.checks import check_launch, evaluate, variable_values
from tinyweb.native_runtimes.cuda.driver import Driver
from tinyweb.native_runtimes.cuda.memory import CudaBuffer

MAX_GRID = (2**31 - 1, 65535, 65535)  # workgroups per dimension, on every GPU


@dataclass(frozen=True, eq=False)
class CudaExecutable:
    """One program's module, for the driver to load."""

    program: Program
    code: bytes
    dynamic_shared: int  # bytes of shared memory that a launch gives


class _Launch:
    """One kernel of a list: its arguments as the driver wants them."""

    def __init__(self, executable: CudaExecutable, function: Any, slots: Sequence[int]) -> None:
        self.executable, self.function, self.slots = executable, function, tuple(slots)
        count = len(executable.program.params) + bool(executable.program.variables)
        self.values = (ctypes.c_uint64 * max(count, 1))()
        first = ctypes.addressof(self.values)
        self._pointers = (ctypes.c_void_p * max(count, 1))(*(first + 8 * i for i in range(count)))
        self.arguments = ctypes.addressof(self._pointers)
        self.grid = (0, 0, 0)

    @property
    def is_any(self) -> bool:
        """Whether there is a workgroup at all."""
        return self.grid[0] > 0

    def resize_once(self) -> bool:
        """Whether the grid varies; if not, it is set."""
        varies = any(not isinstance(size, int) for size in self.executable.program.grid)
        if not varies:
            self.resize({})
        return varies

    def launch(self, driver: Driver, stream: Any) -> None:
        if self.is_any:
            block, shared = self.executable.program.workgroup, self.executable.dynamic_shared
            driver.cuLaunchKernel(self.function, *self.grid, *block, shared, stream, self.arguments, 0)

    def parameters(self, driver: Driver) -> Any:
        """The same for a node of a graph, which a grid of nothing is not allowed in."""
        out = driver.module.CUDA_KERNEL_NODE_PARAMS()
        out.func, out.kernelParams = self.function, self.arguments
        out.gridDimX, out.gridDimY, out.gridDimZ = (max(n, 1) for n in self.grid)
        out.blockDimX, out.blockDimY, out.blockDimZ = self.executable.program.workgroup
        out.sharedMemBytes = self.executable.dynamic_shared
        return out

    def resize(self, variables: Mapping[str, int]) -> bool:
        """Evaluate the grid; whether it is another than before."""
        program = self.executable.program
        x, y, z = (evaluate(size, variables) for size in program.grid)
        grid = (x, y, z) if min(x, y, z) > 0 else (0, 0, 0)
        if any(n > most for n, most in zip(grid, MAX_GRID)):
            raise DeviceError(f"kernel {program.name}: a grid of {grid} exceeds {MAX_GRID} workgroups")
        changed, self.grid = grid != self.grid, grid
        return changed


class Replayed:
    """Launches in memory, of which some is given to each run. `words`: how much memory the values of VARIABLEs take;
    `table`: its address, 0 before `hold`. `generation`: of the context that it belongs to.
    """

    def __init__(
        self,
        driver: Driver,
        function: Callable[[CudaExecutable], Any],
        executables: Sequence[CudaExecutable],
        slots: Sequence[Sequence[int]],
        fixed: Sequence[CudaBuffer],
        generation: int,
    ) -> None:
        self._driver, self._fixed, self.generation = driver, len(fixed), generation
        self.launches = [_Launch(e, function(e), s) for e, s in zip(executables, slots)]
        self.names = tuple(dict.fromkeys(e.program.name for e in executables))
        self._users: dict[int, list[int]] = {}  # the launches that a slot's memory is handed to
        for number, s in enumerate(slots):
            for i in s:
                self._users.setdefault(i, []).append(number)
        last = max(self._users, default=-1)
        self._memory: list[tuple[int, int] | None] = [
            (b.address, b.nbytes) for b in fixed
        ]  # address and bytes, by slot
        self._memory += [None] * (last + 1 - len(fixed))
        self._tables: dict[tuple[str, ...], int] = {}  # where the values of each list of variables begin
        self.words = self.table = 0
        for names in dict.fromkeys(_variables(x.executable.program) for x in self.launches):
            self._tables[names], self.words = self.words, self.words + len(names)
        self._known: list[int | None] = [None] * self.words  # what the table holds
        self.graph: Any = None  # what is launched
        self.source: Any = None  # what that was made of: its nodes name those of `graph`
        self._nodes: list[Any] = []
        self._changed: set[int] = set()  # launches that the graph has as they were
        self._runs = 0
        self._sized = [n for n, x in enumerate(self.launches) if x.resize_once()]
        varying = {n for i in range(len(fixed), last + 1) for n in self._users.get(i, ())}
        self._place(n for n in range(len(self.launches)) if n not in varying)

    def hold(self, table: int) -> None:
        """Take the address of memory for the values of variables."""
        self.table = table
        for x in self.launches:
            if names := _variables(x.executable.program):
                x.values[len(x.executable.program.params)] = table + 4 * self._tables[names]

    def run(self, handles: Sequence[CudaBuffer], variables: Mapping[str, int], stream: Any) -> None:
        """Ask for all launches, in order."""
        self._use(handles)
        for n in self._sized:
            if self.launches[n].resize(variables):
                self._changed.add(n)
        for names, start in self._tables.items():
            for at, value in enumerate(variable_values(names, variables), start):
                if self._known[at] != value:
                    self._driver.cuMemsetD32Async(self.table + 4 * at, value & 0xFFFFFFFF, 1, stream)
                    self._known[at] = value
        self._runs += 1
        if self._runs == 1 or len(self.launches) == 1:
            for x in self.launches:
                x.launch(self._driver, stream)
            return
        if self.graph is None:
            self._build()
        for n in self._changed:
            self._update(n)
        self._changed.clear()
        self._driver.cuGraphLaunch(self.graph, stream)

    # -- memory -------------------------------------------------------------------------------------------------------
    def _use(self, handles: Sequence[CudaBuffer]) -> None:
        memory, changed = self._memory, []
        for i, handle in enumerate(handles, self._fixed):
            if i < len(memory) and memory[i] != (handle.address, handle.nbytes):
                memory[i] = handle.address, handle.nbytes
                changed.append(i)
        if changed:
            try:
                self._place({n for i in changed for n in self._users.get(i, ())})
            except DeviceError:
                for i in changed:
                    memory[i] = None  # to be refused again
                raise

    def _place(self, launches: Iterable[int]) -> None:
        """Check the memory of some launches, and hand it to them."""
        for n in launches:
            x = self.launches[n]
            found = [m for i in x.slots if (m := self._memory[i]) is not None]
            check_launch(x.executable.program, [nbytes for _, nbytes in found], [address for address, _ in found])
            for info in x.executable.program.params:
                x.values[info.slot] = found[info.slot][0]
            self._changed.add(n)

    # -- the graph ----------------------------------------------------------------------------------------------------
    def _build(self) -> None:
        graph = self._driver.cuGraphCreate(0)
        try:
            for x, before in zip(self.launches, dependencies([(x.slots, x.executable.program) for x in self.launches])):
                nodes = [self._nodes[n] for n in before]
                self._nodes.append(
                    self._driver.cuGraphAddKernelNode(graph, nodes, len(nodes), x.parameters(self._driver))
                )
            self.graph, self.source = self._driver.cuGraphInstantiate(graph, 0), graph
        except BaseException:
            self._nodes.clear()
            self._driver.cuGraphDestroy(graph)
            raise
        self._changed = {n for n, x in enumerate(self.launches) if not x.is_any}

    def _update(self, n: int) -> None:
        x = self.launches[n]
        self._driver.cuGraphNodeSetEnabled(self.graph, self._nodes[n], int(x.is_any))
        if x.is_any:
            self._driver.cuGraphExecKernelNodeSetParams(self.graph, self._nodes[n], x.parameters(self._driver))


def _variables(program: Program) -> tuple[str, ...]:
    return tuple(v.arg[0] for v in program.variables)


def dependencies(launches: Iterable[tuple[Sequence[int], Program]]) -> Iterator[list[int]]:
    """For each launch (the numbers of its memory, its program) those before it that it has to wait for: who wrote last
    what it touches, and who has read since what it writes.
    """
    writer: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    for n, (slots, program) in enumerate(launches):
        before: set[int] = set()
        for info in program.params:
            memory = slots[info.slot]
            before |= {writer[memory]} if memory in writer else set()
            if info.written:
                before |= set(readers.pop(memory, ()))
        for info in program.params:
            memory = slots[info.slot]
            if info.written:
                writer[memory] = n
            else:
                readers.setdefault(memory, []).append(n)
        yield sorted(before)

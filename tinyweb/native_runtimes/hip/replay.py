"""Launches on a HIP device that run again and again: one by one at first, as a graph from the second time on."""

from __future__ import annotations

import ctypes
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from ctypes import c_uint64, c_void_p
from typing import TYPE_CHECKING, NamedTuple

from tinyweb.errors import DeviceError
from tinyweb.graph.ir import Size
from tinyweb.graph.program import Program
from tinyweb.native_runtimes.checks import check_launch, evaluate, variable_values
from tinyweb.native_runtimes.hip.library import LOST, HipError
from tinyweb.native_runtimes.hip.memory import HipBuffer

if TYPE_CHECKING:
    from tinyweb.native_runtimes.hip.runtime import HipExecutable, HipRuntime

GRAPHS = 4  # of one list of launches: for as many kinds of memory and grids it keeps them
REMEMBERED = 64  # kinds that ran once
THREAD_LOCAL = 1  # hipStreamCaptureModeThreadLocal: what other threads do does not end a recording
Grid = tuple[int, int, int]


class Owned(NamedTuple):
    """Something that the driver made: the function that gives it back, its handle, the device's life it belongs to."""

    release: str
    pointer: c_void_p
    life: int


class Prepared:
    """Launches with their arguments. What differs from run to run is filled in before each: addresses of memory that is
    not fixed, and the values of variables, which lie in device memory so that graphs need not know them.
    """

    def __init__(
        self,
        runtime: HipRuntime,
        executables: Sequence[HipExecutable],
        slots: Sequence[Sequence[int]],
        fixed: Sequence[HipBuffer],
    ) -> None:
        self.runtime, self.executables, self.slots = runtime, executables, slots
        self.life = runtime.life
        self.names = tuple(e.program.name for e in executables)
        self.addresses = [(c_uint64 * (len(e.program.params) + 1))() for e in executables]
        self.memory: list[HipBuffer | None] = [*fixed]
        self.fixed = len(fixed)
        self.memory += [None] * (max((i + 1 for s in slots for i in s), default=0) - self.fixed)
        self._place([n for n, s in enumerate(slots) if all(i < self.fixed for i in s)])
        self.tables: dict[tuple[str, ...], tuple[HipBuffer, list[int | None]]] = {}
        self.parameters = []
        for executable, addresses in zip(executables, self.addresses):
            names = tuple(v.arg[0] for v in executable.program.variables)
            if names:
                addresses[-1] = self._table(names)
            places = [ctypes.addressof(addresses) + 8 * i for i in range(len(addresses))]
            self.parameters.append((c_void_p * len(places))(*places))
        self.varying_grids = any(not isinstance(size, int) for e in executables for size in e.program.grid)
        self.grids = () if self.varying_grids else self._grids({})
        self.graphs: OrderedDict[object, c_void_p] = OrderedDict()
        self.seen: OrderedDict[object, None] = OrderedDict()
        self.records = len(executables) > 1

    def _table(self, names: tuple[str, ...]) -> int:
        """The address of the values of variables, in their order."""
        if names not in self.tables:
            self.tables[names] = self.runtime.take(4 * len(names)), [None] * len(names)
        return self.tables[names][0].address

    def run(self, handles: Sequence[HipBuffer], variables: Mapping[str, int]) -> None:
        """Launch all, within the runtime's turn."""
        if self.life != self.runtime.life:
            raise DeviceError(f"{self.runtime.name}: memory of this computation was lost when the device was reset")
        self._use(handles)
        grids = self._grids(variables) if self.varying_grids else self.grids
        for names, (table, last) in self.tables.items():
            for i, value in enumerate(variable_values(names, variables)):
                if value != last[i]:
                    self.runtime.set_word(table, i, value)
                    last[i] = value
        if self.records:
            self._replay((grids, tuple(m.address for m in self.memory[self.fixed :] if m)), grids)
        else:
            self._launch(grids)
        self.runtime.queue.mark(self.names)

    def _replay(self, kind: object, grids: tuple[Grid, ...]) -> None:
        """Launch a graph where the same memory and grids have been asked for before."""
        queue = self.runtime.queue
        graph = self.graphs.get(kind)
        if graph is None and kind in self.seen:
            graph = self._record(kind, grids)
        if graph is None:
            self.seen[kind] = None
            if len(self.seen) > REMEMBERED:
                self.seen.popitem(last=False)
            self._launch(grids)
        else:
            self.graphs.move_to_end(kind)
            queue.ask("hipGraphLaunch", graph)

    def _record(self, kind: object, grids: tuple[Grid, ...]) -> c_void_p | None:
        """A graph of the launches; None where the driver makes none of them."""
        hip, stream = self.runtime.hip, self.runtime.queue.stream
        try:
            hip.call("hipStreamBeginCapture", stream, THREAD_LOCAL)
            try:
                self._launch(grids)
            finally:
                graph = hip.made_with("hipStreamEndCapture", stream)
            try:
                made = hip.made("hipGraphInstantiate", graph, None, None, 0)
            finally:
                hip.call("hipGraphDestroy", graph)
        except HipError as error:
            if error.number in LOST:
                raise
            self.records = False
            return None
        self.graphs[kind] = made
        if len(self.graphs) > GRAPHS:
            self.runtime.release(Owned("hipGraphExecDestroy", self.graphs.popitem(last=False)[1], self.life))
        return made

    def _launch(self, grids: tuple[Grid, ...]) -> None:
        hip, queue = self.runtime.hip, self.runtime.queue
        queue.marked, stream = False, queue.stream
        for executable, grid, parameters in zip(self.executables, grids, self.parameters):
            if min(grid) <= 0:
                continue
            function, group = self.runtime.function(executable), executable.program.workgroup
            number = hip.ask("hipModuleLaunchKernel", function, *grid, *group, 0, stream, parameters, None)
            if number:
                raise hip.error(number, f"launch of kernel {executable.program.name}")

    def _grids(self, variables: Mapping[str, int]) -> tuple[Grid, ...]:
        return tuple(grid_of(e.program, variables, self.runtime.target.max_grid) for e in self.executables)

    def _use(self, handles: Sequence[HipBuffer]) -> None:
        given = list(enumerate(handles, self.fixed))[: len(self.memory) - self.fixed]
        changed = {i for i, h in given if self.memory[i] is not h or not h.address}
        for i in changed:
            self.memory[i] = handles[i - self.fixed]
        try:
            if changed:
                self._place([n for n, s in enumerate(self.slots) if changed.intersection(s)])
        except DeviceError:
            for i in changed:
                self.memory[i] = None  # to be refused again
            raise

    def _place(self, launches: Sequence[int]) -> None:
        """Check the memory of some launches, and hand it to them."""
        for n in launches:
            found = [m for i in self.slots[n] if (m := self.memory[i])]
            for m in found:
                if m.address:  # what is freed is too small
                    self.runtime.check_live(m)
            program = self.executables[n].program
            check_launch(program, [m.nbytes for m in found], [m.address for m in found])
            self.addresses[n][: len(program.params)] = [m.address for m in found[: len(program.params)]]

    def owned(self) -> list[Owned | HipBuffer]:
        """What goes with it."""
        graphs = [Owned("hipGraphExecDestroy", g, self.life) for g in self.graphs.values()]
        return [*graphs, *(table for table, _ in self.tables.values())]


def grid_of(program: Program, variables: Mapping[str, int], most: int) -> Grid:
    """The workgroups of a launch; DeviceError where they are more than `most` in a dimension."""

    def number(size: Size) -> int:
        return size if isinstance(size, int) else evaluate(size, variables)

    x, y, z = map(number, program.grid)
    if max(x, y, z) > most:
        raise DeviceError(f"kernel {program.name}: a grid of {(x, y, z)} exceeds {most} workgroups")
    return x, y, z

"""What every runtime offers. Handles are opaque: only the runtime that gave one out understands it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from tinyweb.graph.program import Program
from tinyweb.graph.target import Target

Handle: TypeAlias = Any  # a piece of device memory
Executable: TypeAlias = Any  # a compiled program
Replay: TypeAlias = Callable[[Sequence[Handle], Mapping[str, int]], None]
"""Carries out prepared launches with the memory and the values of VARIABLEs of one run."""


class Launch(NamedTuple):
    """One kernel call: the executable, its memory arguments in slot order."""

    executable: Executable
    buffers: tuple[Handle, ...]


class Runtime(Protocol):
    """One kind of machine, opened."""

    name: str
    target: Target

    def allocate(self, nbytes: int, zeroed: bool = True) -> Handle:
        """Memory of at least `nbytes` (0 is allowed), filled with zeros or, without `zeroed`, with anything: for what
        is written as a whole before it is read. MemoryError naming the bytes when there is none.
        """

    def free_bytes(self) -> int | None:
        """Bytes that can still be allocated, all together; None where that is not known."""

    def free(self, handle: Handle) -> None:
        """Give memory back, at any moment and from any thread; the handle must not be used again."""

    def copy_in(self, handle: Handle, data: memoryview, offset: int = 0) -> None:
        """Host bytes to the device at byte `offset`, ordered after all launches so far."""

    def copy_out(self, handle: Handle, nbytes: int, offset: int = 0) -> bytes:
        """Device bytes to the host, after all launches so far have finished."""

    # A runtime may also have `copy_from(handle, source: Runtime, memory: Handle, nbytes: int) -> bool`, which copies
    # from another runtime's memory (or its own) without the host, in the order of launches on both; False where it
    # cannot. And `beginning(executable: Executable, starts: Sequence[int]) -> Executable`: the same program, handed the
    # memory of each slot from a byte on.

    def compile(self, programs: Iterable[Program]) -> list[Executable]:
        """Compile programs together, beside what makes them; executables in the same order. Cached on disk by
        content."""

    def run(self, launches: Sequence[Launch], variables: Mapping[str, int]) -> None:
        """Carry out the launches in order, with these values of VARIABLEs. May return before they finish."""

    def prepare(
        self, executables: Sequence[Executable], slots: Sequence[Sequence[int]], fixed: Sequence[Handle]
    ) -> Replay:
        """Launches that run again and again. `slots` has the memory arguments of each, as numbers among `fixed` and
        then what each run is given. Different numbers that are written are different memory.
        """

    def synchronize(self) -> None:
        """Wait until everything asked for has happened."""


class Unprepared:
    """Base of runtimes that make nothing of launches before they run."""

    def run(self, launches: Sequence[Launch], variables: Mapping[str, int]) -> None:
        raise NotImplementedError(f"{type(self).__name__} does not say how it runs launches")

    def prepare(
        self, executables: Sequence[Executable], slots: Sequence[Sequence[int]], fixed: Sequence[Handle]
    ) -> Replay:
        def replay(handles: Sequence[Handle], variables: Mapping[str, int]) -> None:
            memory = (*fixed, *handles)
            self.run([Launch(e, tuple(memory[i] for i in s)) for e, s in zip(executables, slots)], variables)

        return replay


class Replaying:
    """Base of runtimes for which each run is a replay of launches that were prepared for it."""

    def run(self, launches: Sequence[Launch], variables: Mapping[str, int]) -> None:
        if launches:
            handles = list({id(b): b for launch in launches for b in launch.buffers}.values())
            slot = {id(b): i for i, b in enumerate(handles)}
            slots = [tuple(slot[id(b)] for b in launch.buffers) for launch in launches]
            self.prepare([launch.executable for launch in launches], slots, handles)((), variables)

    def prepare(
        self, executables: Sequence[Executable], slots: Sequence[Sequence[int]], fixed: Sequence[Handle]
    ) -> Replay:
        raise NotImplementedError(f"{type(self).__name__} does not say how it prepares launches")

"""The CPU runtime: programs of one `compile` call become one shared object, a `run` is one native call."""

from __future__ import annotations

import ctypes
import functools
import itertools
import operator
import os
import platform
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from weakref import finalize

import numpy as np

from tinyweb.errors import DeviceError
from tinyweb.graph.ir import Ops
from tinyweb.graph.program import Program
from tinyweb.graph.target import DOTPROD, I8MM, SSE, VNNI, Target, cpu_target
from tinyweb.native_runtimes.checks import check_launch, check_range, variable_values
from tinyweb.native_runtimes.cpu.pool import LaunchRecord, Pool
from tinyweb.native_runtimes.host_memory import available_bytes
from tinyweb.native_runtimes.protocol import Replay, Replaying
from tinyweb.native_runtimes.turns import Turns, in_turn
from tinyweb.render_c import render
from tinyweb.render_c.ordering import Access, barriers
from tinyweb.toolchain import SCATTERED_FLAGS, compile_shared

if sys.platform == "win32":
    from _ctypes import FreeLibrary as unload
else:
    from _ctypes import dlclose as unload

WORTH_COMPILING = 1500  # operations of programs that take longer to compile than another compiler to start
SCATTERED = 256  # lanes of vectors that are put together from scalars, in the text of a source
SHARED = 1 << 15  # operations of a program that are done before another thread knows of them and has what they read
KNOWN = 8  # sets of memory that runs were given whose addresses are kept
ALIGNMENT = 64  # bytes: a cache line, and the widest vector


_place_of = operator.attrgetter("address", "nbytes")


class CpuBuffer:
    """Aligned memory of this process. `address` and `nbytes` are 0 once it has been freed."""

    def __init__(self, nbytes: int) -> None:
        try:
            whole = np.zeros(nbytes + ALIGNMENT, np.uint8)
        except (MemoryError, ValueError) as error:
            raise MemoryError(f"the CPU has no memory for a buffer of {nbytes} bytes") from error
        start = -whole.ctypes.data % ALIGNMENT
        self._memory = memoryview(whole.data)[start : start + nbytes], whole.ctypes.data + start
        self.use()

    def use(self) -> None:
        self.bytes, self.address = self._memory
        self.nbytes = len(self.bytes)

    def free(self) -> None:
        self.bytes, self.address, self.nbytes = memoryview(b""), 0, 0

    @property
    def held(self) -> int:
        """Bytes that it takes, free or not."""
        return len(self._memory[0])


@dataclass(frozen=True, eq=False)
class CpuExecutable:
    """One program's two functions; `library` keeps their code loaded. `starts`: the byte of a launch's memory that is
    the program's first, by slot, where it is not that memory's.
    """

    program: Program
    run: int
    grid: int
    library: ctypes.CDLL
    starts: tuple[int, ...] = ()

    @functools.cached_property
    def cheap(self) -> int:
        """Iterations of the grid that are not worth sharing out, at least 1."""
        operations, around = 0, [1]
        for u in self.program.uops:
            if u.op is Ops.RANGE:
                around.append(around[-1] * max(u.src[0].vmax, 1))
            elif u.op is Ops.END:
                around.pop()
            else:
                operations += around[-1]
        return max(SHARED // operations, 1)


class _Prepared:
    """Launches as the pool wants them. What differs from run to run is filled in before each: the addresses of memory
    that is not fixed, and the values of variables.
    """

    def __init__(
        self, executables: Sequence[CpuExecutable], slots: Sequence[Sequence[int]], fixed: Sequence[CpuBuffer]
    ) -> None:
        self.executables, self.slots, self.fixed = executables, slots, fixed
        self.records = (LaunchRecord * len(executables))()
        tables: dict[tuple[str, ...], ctypes.Array[ctypes.c_int]] = {}
        starts = list(itertools.accumulate((max(len(s), 1) for s in slots), initial=0))
        self.block = (ctypes.c_void_p * max(starts[-1], 1))()  # what all launches are handed, one behind the other
        self.pointers = [
            (ctypes.c_void_p * max(len(s), 1)).from_buffer(self.block, 8 * at) for s, at in zip(slots, starts)
        ]
        self.users: dict[int, list[int]] = {}  # the launches that a slot's memory is handed to
        accesses = []
        for number, (record, executable, s) in enumerate(zip(self.records, executables, slots)):
            names = tuple(v.arg[0] for v in executable.program.variables)
            table = tables.setdefault(names, (ctypes.c_int * max(len(names), 1))())
            record.run, record.grid, record.cheap = executable.run, executable.grid, executable.cheap
            record.buffers, record.variables = ctypes.addressof(self.pointers[number]), ctypes.addressof(table)
            for i in s:
                self.users.setdefault(i, []).append(number)
            spans = [(i, i + 1) for i in s]
            used = executable.program.params[: len(s)]
            reads = tuple(spans[p.slot] for p in used if p.read)
            writes = tuple(spans[p.slot] for p in used if p.written)
            accesses.append(Access(reads, writes))
        for record, barrier in zip(self.records, barriers(accesses)):
            record.barrier = barrier
        self.unnamed = tables.get(())  # what the C side is handed where there are no variables
        self.tables = [(names, table) for names, table in tables.items() if names]
        self.bytes = memoryview(self.block).cast("B")
        self.given: tuple[tuple[int, int], ...] | None = None  # the memory of the last run
        self.known: dict[tuple[tuple[int, int], ...], bytes] = {}  # what the block was with memory that was checked
        last = max(self.users, default=-1)
        self.memory: list[tuple[int, int] | None] = [None] * max(last + 1, len(fixed))  # address and bytes, by slot
        varying = {n for i in range(len(fixed), last + 1) for n in self.users.get(i, ())}
        for i, handle in enumerate(fixed):
            self.memory[i] = handle.address, handle.nbytes
        self._place(n for n in range(len(slots)) if n not in varying)

    def use(self, handles: Sequence[CpuBuffer]) -> None:
        """Get ready for a run with `handles` in the slots after the fixed ones."""
        given = tuple(map(_place_of, handles))
        if given == self.given:
            return
        known, memory, changed = self.known.get(given), self.memory, []
        for i, place in enumerate(given, len(self.fixed)):
            if memory[i] != place:
                memory[i] = place
                changed.append(i)
        if known is not None:
            self.bytes[:] = known
        else:
            try:
                self._place({n for i in changed for n in self.users[i]})
            except DeviceError:
                for i in changed:
                    memory[i] = None  # to be refused again
                self.given = None
                raise
            if len(self.known) >= KNOWN:
                self.known.clear()
            self.known[given] = bytes(self.bytes)
        self.given = given

    def _place(self, launches: Iterable[int]) -> None:
        """Check the memory of some launches, and hand it to them."""
        for n in launches:
            found = [m for i in self.slots[n] if (m := self.memory[i])]
            addresses: list[Any] = [address for address, _ in found]
            sizes = [nbytes for _, nbytes in found]
            starts = self.executables[n].starts
            for slot, start in enumerate(starts):
                sizes[slot] -= start
            check_launch(self.executables[n].program, sizes, addresses)
            for slot, start in enumerate(starts):
                addresses[slot] += start
            self.pointers[n][: len(addresses)] = addresses


class CpuRuntime(Turns, Replaying):
    """Runtime (see `native_runtimes.protocol`) for this machine's processor. Every call returns when its work is done.

    `threads` workers, by default TINYWEB_THREADS or as many as there are processors. Whatever its `index`: each runtime
    has memory of its own.
    """

    name = "CPU"
    # memory given back that is kept, as the system would clear new pages one by one; here, as memory is also given back
    # when the interpreter exits and modules are empty
    max_spare, spare_bytes = 32, 128 << 20

    def __init__(self, threads: int | None = None, index: int = 0) -> None:
        super().__init__()
        self.threads = threads if threads is not None else thread_count()
        registers = 32 if _is_arm() else None
        self.target: Target = cpu_target(
            vector_lanes(), self.threads, registers, integer_products(), _is_arm() or "fma" in _processor_flags()
        )
        self._pool: Pool | None = None
        self._spare: list[CpuBuffer] = []  # what was given back last at the end
        if hasattr(os, "register_at_fork"):  # Windows has no fork
            os.register_at_fork(after_in_child=self._forget_threads)

    def _forget_threads(self) -> None:
        self._pool, self._turn = None, threading.Lock()  # a forked child has the memory, not the threads

    def allocate(self, nbytes: int, zeroed: bool = True) -> CpuBuffer:
        for spare in reversed(self._spare):
            if spare.held == nbytes:
                try:
                    self._spare.remove(spare)
                except ValueError:
                    continue  # another thread has taken it
                spare.use()
                if zeroed:
                    ctypes.memset(spare.address, 0, nbytes)
                return spare
        try:
            return CpuBuffer(nbytes)
        except MemoryError:
            self._give_up()
            return CpuBuffer(nbytes)

    @in_turn
    def _give_up(self) -> None:
        while self._spare:
            self._spare.pop()

    def free_bytes(self) -> int | None:
        free = available_bytes()
        return None if free is None else free + sum(b.held for b in self._spare)

    def _free(self, handle: CpuBuffer) -> None:
        if not handle.address:
            return
        handle.free()
        self._spare.append(handle)
        while len(self._spare) > self.max_spare or sum(b.held for b in self._spare) > self.spare_bytes:
            self._spare.pop(0)

    def copy_in(self, handle: CpuBuffer, data: memoryview, offset: int = 0) -> None:
        check_range(handle.nbytes, data.nbytes, offset)
        if data.nbytes:
            handle.bytes[offset : offset + data.nbytes] = data.cast("B")

    def copy_out(self, handle: CpuBuffer, nbytes: int, offset: int = 0) -> bytes:
        check_range(handle.nbytes, nbytes, offset)
        return bytes(handle.bytes[offset : offset + nbytes])

    def copy_from(self, handle: CpuBuffer, source: object, memory: object, nbytes: int) -> bool:
        """From another processor's runtime, whose memory is that of this process too."""
        if not isinstance(source, CpuRuntime) or type(handle) is not CpuBuffer or type(memory) is not CpuBuffer:
            return False
        check_range(handle.nbytes, nbytes, 0)
        check_range(memory.nbytes, nbytes, 0)
        if nbytes:
            ctypes.memmove(handle.address, memory.address, nbytes)
        return True

    def compile(self, programs: Iterable[Program]) -> list[CpuExecutable]:
        asked: list[Program] = []
        rest = parts(programs, asked)
        first = next(rest, None)
        if first is None:
            return []
        library = _loaded(compile_shared(map(_source, itertools.chain([first], rest))))
        made = {}
        for p in asked:
            if p.name not in made:
                # neither kept by the library, nor by `cast`, which would make a circle of references
                run, grid = (ctypes.c_void_p.from_buffer(library[n]).value for n in (p.name, f"{p.name}_grid"))
                assert run is not None and grid is not None
                made[p.name] = CpuExecutable(p, run, grid, library)
        return [made[p.name] for p in asked]

    def beginning(self, executable: CpuExecutable, starts: Sequence[int]) -> CpuExecutable:
        """The same program, handed the memory of each slot from these bytes on."""
        return replace(executable, starts=tuple(starts))

    def prepare(
        self, executables: Sequence[CpuExecutable], slots: Sequence[Sequence[int]], fixed: Sequence[CpuBuffer]
    ) -> Replay:
        prepared = _Prepared(executables, slots, fixed)
        first, count = ctypes.addressof(prepared.records), len(executables)

        def replay(handles: Sequence[CpuBuffer], variables: Mapping[str, int]) -> None:
            try:
                with self._turn:
                    if handles:
                        prepared.use(handles)
                    for names, table in prepared.tables:
                        for i, value in enumerate(variable_values(names, variables)):
                            table[i] = value
                    if self._pool is None:
                        self._pool = Pool(self.threads)
                    self._pool.run(first, count)
            finally:
                if self._given_back:
                    self._settle()

        return replay

    def synchronize(self) -> None:
        pass


def _source(programs: list[Program]) -> tuple[str, Sequence[str]]:
    """The text of some programs, and what the compiler is told for it."""
    lanes = sum(len(u.src) for p in programs for u in p.uops if u.op is Ops.STACK and u.src[0].op is not Ops.CONST)
    return render(programs), SCATTERED_FLAGS if lanes >= SCATTERED else ()


def _loaded(path: Path) -> ctypes.CDLL:
    """A library, unloaded when nobody refers to it any more: a process may map some 10 000 of them."""
    library = ctypes.CDLL(str(path))
    finalize(library, unload, library._handle).atexit = False
    return library


def parts(programs: Iterable[Program], asked: list[Program]) -> Iterator[list[Program]]:
    """The distinct ones of `programs`, as soon as they take longer to compile than starting the compiler does; all of
    them are appended to `asked`."""
    part: list[Program] = []
    names: set[str] = set()
    for p in programs:
        asked.append(p)
        if p.name not in names:
            names.add(p.name)
            part.append(p)
        if sum(len(q.uops) for q in part) >= WORTH_COMPILING:
            yield part
            part = []
    if part:
        yield part


def thread_count() -> int:
    """TINYWEB_THREADS, or the processors this process may use."""
    chosen = os.environ.get("TINYWEB_THREADS")
    if chosen:
        if not chosen.isdecimal() or not 1 <= int(chosen) <= 1024:
            raise DeviceError(f"TINYWEB_THREADS is {chosen!r}: set it to a number from 1 to 1024")
        return int(chosen)
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # only Linux has it
        return os.cpu_count() or 1


def vector_lanes() -> int:
    """32-bit lanes of a vector register worth aiming at: 16 on x86 with AVX-512, 8 with AVX2, 4 elsewhere."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return 4
    flags = _processor_flags()
    if not flags:
        return 8
    if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= flags:
        return 16
    return 8 if "avx2" in flags else 4


def integer_products() -> tuple[str, ...]:
    """What the processor does with small integers in one step; where it does not say, what most today have."""
    flags = _processor_flags()
    known = {"i8mm": I8MM, "asimddp": DOTPROD, "avx_vnni": VNNI, "avx512_vnni": VNNI}
    unknown = SSE if flags else DOTPROD if _is_arm() else VNNI
    return next((found for flag, found in known.items() if flag in flags), unknown)


def _is_arm() -> bool:
    return platform.machine() in ("aarch64", "arm64")


def _processor_flags() -> set[str]:
    """What Linux calls the processor's features; empty elsewhere."""
    try:
        info = Path("/proc/cpuinfo").read_text()
    except OSError:
        return set()
    named = (line for line in info.splitlines() if line.startswith(("flags", "Features")))
    return {flag for line in named for flag in line.split()}

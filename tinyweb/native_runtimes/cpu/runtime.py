"""The CPU runtime: programs of one `compile` call become one shared object, a `run` is one native call."""

from __future__ import annotations

import ctypes
import os
import platform
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tinyweb.errors import DeviceError
from tinyweb.graph.program import Program
from tinyweb.graph.target import Target, cpu_target
from tinyweb.native_runtimes.checks import check_launch, check_range, variable_values
from tinyweb.native_runtimes.cpu.pool import LaunchRecord, Pool
from tinyweb.native_runtimes.host_memory import available_bytes
from tinyweb.native_runtimes.protocol import Launch
from tinyweb.native_runtimes.turns import Turns, in_turn
from tinyweb.render_c import render
from tinyweb.render_c.ordering import Access, barriers
from tinyweb.toolchain import compile_shared

MAX_PREPARED = 32  # lists whose native form is kept, for when they run again
WORTH_COMPILING = 1000  # operations of programs that take longer to compile than another compiler to start
ALIGNMENT = 64  # bytes: a cache line, and the widest vector


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
    """One program's two functions; `library` keeps their code loaded."""

    program: Program
    run: int
    grid: int
    library: ctypes.CDLL


class _List:
    """A list of launches as the pool wants it; values of variables are filled in before each run."""

    def __init__(self, launches: Sequence[Launch]) -> None:
        self.records = (LaunchRecord * len(launches))()
        self.tables: dict[tuple[str, ...], ctypes.Array[ctypes.c_int]] = {}
        self.handles = {b for launch in launches for b in launch.buffers}
        self.keep: list[object] = []
        accesses = []
        for record, launch in zip(self.records, launches):
            executable, program = launch.executable, launch.executable.program
            addresses = [b.address for b in launch.buffers]
            check_launch(program, [b.nbytes for b in launch.buffers], addresses)
            pointers = (ctypes.c_void_p * max(len(addresses), 1))(*addresses)
            names = tuple(v.arg[0] for v in program.variables)
            table = self.tables.setdefault(names, (ctypes.c_int * max(len(names), 1))())
            record.run, record.grid = executable.run, executable.grid
            record.buffers, record.variables = ctypes.addressof(pointers), ctypes.addressof(table)
            self.keep.append(pointers)
            spans = [(b.address, b.address + b.nbytes) for b in launch.buffers]
            reads = tuple(spans[i.slot] for i in program.params if i.read)
            writes = tuple(spans[i.slot] for i in program.params if i.written)
            accesses.append(Access(reads, writes))
        for record, barrier in zip(self.records, barriers(accesses)):
            record.barrier = barrier

    def fill(self, variables: Mapping[str, int]) -> None:
        for names, table in self.tables.items():
            for i, value in enumerate(variable_values(names, variables)):
                table[i] = value


class CpuRuntime(Turns):
    """Runtime (see `native_runtimes.protocol`) for this machine's processor. Every call returns when its work is done.

    `threads` workers, by default TINYWEB_THREADS or as many as there are processors.
    """

    name = "CPU"
    # memory given back that is kept, as the system would clear new pages one by one; here, as memory is also given back
    # when the interpreter exits and modules are empty
    max_spare, spare_bytes = 32, 128 << 20

    def __init__(self, threads: int | None = None) -> None:
        super().__init__()
        self.threads = threads if threads is not None else thread_count()
        self.target: Target = cpu_target(
            vector_lanes(), self.threads, 32 if platform.machine() in ("aarch64", "arm64") else None, dot_products()
        )
        self._pool: Pool | None = None
        self._prepared: OrderedDict[tuple[Launch, ...], _List] = OrderedDict()
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
            self._release(self._spare.pop())

    def free_bytes(self) -> int | None:
        free = available_bytes()
        return None if free is None else free + sum(b.held for b in self._spare)

    def _free(self, handle: CpuBuffer) -> None:
        if not handle.address:
            return
        handle.free()
        self._spare.append(handle)
        while len(self._spare) > self.max_spare or sum(b.held for b in self._spare) > self.spare_bytes:
            self._release(self._spare.pop(0))

    def _release(self, handle: CpuBuffer) -> None:
        for key in [k for k, prepared in self._prepared.items() if handle in prepared.handles]:
            del self._prepared[key]

    def copy_in(self, handle: CpuBuffer, data: memoryview, offset: int = 0) -> None:
        check_range(handle.nbytes, data.nbytes, offset)
        if data.nbytes:
            handle.bytes[offset : offset + data.nbytes] = data.cast("B")

    def copy_out(self, handle: CpuBuffer, nbytes: int, offset: int = 0) -> bytes:
        check_range(handle.nbytes, nbytes, offset)
        return bytes(handle.bytes[offset : offset + nbytes])

    def compile(self, programs: Sequence[Program]) -> list[CpuExecutable]:
        if not programs:
            return []
        library = ctypes.CDLL(str(compile_shared(*map(render, parts(programs, self.threads)))))
        made = {}
        for p in programs:
            if p.name not in made:
                run, grid = (
                    ctypes.cast(getattr(library, n), ctypes.c_void_p).value for n in (p.name, f"{p.name}_grid")
                )
                assert run is not None and grid is not None
                made[p.name] = CpuExecutable(p, run, grid, library)
        return [made[p.name] for p in programs]

    @in_turn
    def run(self, launches: Sequence[Launch], variables: Mapping[str, int]) -> None:
        if not launches:
            return
        prepared = self._prepare(launches)
        prepared.fill(variables)
        if self._pool is None:
            self._pool = Pool(self.threads)
        self._pool.run(prepared.records, len(launches))

    def _prepare(self, launches: Sequence[Launch]) -> _List:
        """What the pool needs: a replayed plan runs the same list again and again, and gets what was made for it."""
        key = tuple(launches)
        prepared = self._prepared.get(key)
        if prepared is None or not prepared.handles.isdisjoint(self._spare):  # which is refused
            prepared = self._prepared[key] = _List(launches)
            if len(self._prepared) > MAX_PREPARED:
                self._prepared.popitem(last=False)
        else:
            self._prepared.move_to_end(key)
        return prepared

    def synchronize(self) -> None:
        pass


def parts(programs: Sequence[Program], count: int) -> list[list[Program]]:
    """At most `count` lists that take about as long to compile, and as long as starting the compiler at least."""
    distinct = {p.name: p for p in programs}.values()
    total = sum(len(p.uops) for p in distinct)
    count = max(min(count, total // WORTH_COMPILING), 1)
    lists: list[list[Program]] = [[] for _ in range(count)]
    lengths = [0] * count
    for p in sorted(distinct, key=lambda p: (-len(p.uops), p.name)):
        shortest = lengths.index(min(lengths))
        lists[shortest].append(p)
        lengths[shortest] += len(p.uops)
    return [one for one in lists if one]


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


def dot_products() -> bool:
    """Whether the processor adds up products of four bytes in one step; where it does not say, as most today do."""
    flags = _processor_flags()
    return not flags or not flags.isdisjoint({"avx_vnni", "avx512_vnni", "asimddp"})


def _processor_flags() -> set[str]:
    """What Linux calls the processor's features; empty elsewhere."""
    try:
        info = Path("/proc/cpuinfo").read_text()
    except OSError:
        return set()
    named = (line for line in info.splitlines() if line.startswith(("flags", "Features")))
    return {flag for line in named for flag in line.split()}

"""The WASM runtime: one wasmtime store, one memory that all modules share and that grows; one thread."""

from __future__ import annotations

import ctypes
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import wasmtime

from tinyweb.errors import DeviceError
from tinyweb.graph.program import Program
from tinyweb.graph.target import Target, wasm_target
from tinyweb.native_runtimes.checks import check_launch, check_range, evaluate, variable_values
from tinyweb.native_runtimes.host_memory import available_bytes
from tinyweb.native_runtimes.protocol import Launch, Unprepared
from tinyweb.native_runtimes.turns import Turns, in_turn
from tinyweb.native_runtimes.wasm.allocator import Allocator
from tinyweb.render_wasm import compile_module, static_data_bytes

PAGE = 65536
MAX_PAGES = 65536
STACK_BYTES = 1 << 20  # at address 0, shared by all modules: one runs at a time
MAX_PREPARED = 32  # lists that stay in the memory, for when they run again
GROWTH = 256  # pages: the memory grows by at least 16 MiB


@dataclass(eq=False)
class WasmBuffer:
    """A range of the memory; `address` is 0 once it has been freed."""

    address: int
    nbytes: int


@dataclass(frozen=True, eq=False)
class WasmExecutable:
    """One program, and where its function stands in the table."""

    program: Program
    function: int


# Carries out a list: records of (function in the table, pointer to the buffers' addresses, pointer to variables, size).
# The position reached is kept in memory, so that a trap can be told from which kernel it came.
_DRIVER = """
(module
  (import "env" "memory" (memory 1))
  (import "env" "table" (table 0 funcref))
  (type $kernel (func (param i32 i32 i32 i32)))
  (func (export "run") (param $record i32) (param $end i32) (param $reached i32)
    (loop $next
      (if (i32.lt_u (local.get $record) (local.get $end))
        (then
          (i32.store (local.get $reached) (local.get $record))
          (call_indirect (type $kernel)
            (i32.load offset=4 (local.get $record)) (i32.load offset=8 (local.get $record))
            (i32.const 0) (i32.load offset=12 (local.get $record))
            (i32.load (local.get $record)))
          (local.set $record (i32.add (local.get $record) (i32.const 16)))
          (br $next))))))
"""
RECORD_WORDS = 4


class _List:
    """A list of launches written into the memory; values of variables and grid sizes are filled in before each run."""

    def __init__(self, launches: Sequence[Launch], first_word: Callable[[int], int]) -> None:
        """`first_word(count)` takes memory for 32-bit words and returns its address."""
        self.handles = {b for launch in launches for b in launch.buffers}
        self.programs = [launch.executable.program for launch in launches]
        names = dict.fromkeys(tuple(v.arg[0] for v in p.variables) for p in self.programs)
        for program, launch in zip(self.programs, launches):
            check_launch(program, [b.nbytes for b in launch.buffers], [b.address for b in launch.buffers])
        count = RECORD_WORDS * len(launches) + 1 + sum(len(n) for n in names) + sum(len(x.buffers) for x in launches)
        self.nbytes = 4 * count
        self.address = first_word(count)
        self.end = self.address + 4 * RECORD_WORDS * len(launches)
        self.reached = self.end
        self.words: list[int] = [0] * count
        position = RECORD_WORDS * len(launches) + 1
        self.tables: dict[tuple[str, ...], int] = {}
        for n in names:
            self.tables[n] = position
            position += len(n)
        for i, launch in enumerate(launches):
            addresses = [b.address for b in launch.buffers]
            table = self.tables[tuple(v.arg[0] for v in self.programs[i].variables)]
            pointers = (self.address + 4 * position, self.address + 4 * table)
            self.words[RECORD_WORDS * i : RECORD_WORDS * (i + 1)] = [launch.executable.function, *pointers, 0]
            self.words[position : position + len(addresses)] = addresses
            position += len(addresses)

    def filled(self, variables: Mapping[str, int]) -> list[int]:
        """All words of the list for these values."""
        for names, position in self.tables.items():
            self.words[position : position + len(names)] = variable_values(names, variables)
        for i, p in enumerate(self.programs):
            self.words[RECORD_WORDS * i + 3] = evaluate(p.grid[0], variables)
        return self.words


class WasmRuntime(Turns, Unprepared):
    """Runtime (see `native_runtimes.protocol`) for WebAssembly with SIMD. Every call returns when its work is done."""

    name = "WASM"

    def __init__(self, index: int = 0) -> None:  # whatever the index: each has memory of its own
        super().__init__()
        self.target: Target = wasm_target()
        config = wasmtime.Config()
        config.cache = True  # machine code, by content, in wasmtime's own cache folder
        self._engine = wasmtime.Engine(config)
        self._store = wasmtime.Store(self._engine)
        # by now, not by the interpreter's end, when wasmtime's own modules may be gone
        weakref.finalize(self, _close, self._store, self._engine)
        limits = wasmtime.Limits(1 + GROWTH, MAX_PAGES)
        self._memory = wasmtime.Memory(self._store, wasmtime.MemoryType(limits))
        self._allocator = Allocator(STACK_BYTES, (1 + GROWTH) * PAGE)
        self._table = wasmtime.Table(
            self._store, wasmtime.TableType(wasmtime.ValType.funcref(), wasmtime.Limits(0, None)), None
        )
        driver = wasmtime.Module(self._engine, _DRIVER)
        run = wasmtime.Instance(self._store, driver, [self._memory, self._table]).exports(self._store)["run"]
        assert isinstance(run, wasmtime.Func)
        self._run = run
        self._prepared: OrderedDict[tuple[Launch, ...], _List] = OrderedDict()

    # -- memory -------------------------------------------------------------------------------------------------------
    @in_turn
    def allocate(self, nbytes: int, zeroed: bool = True) -> WasmBuffer:
        address = self._take(nbytes)
        if zeroed:
            ctypes.memset(self._base() + address, 0, nbytes)
        return WasmBuffer(address, nbytes)

    @in_turn
    def free_bytes(self) -> int | None:
        held, host = self._allocator.free_bytes(), available_bytes()
        grown = MAX_PAGES * PAGE - self._allocator.end
        return held + (grown if host is None else min(grown, host))

    def _free(self, handle: WasmBuffer) -> None:
        for key in [k for k, prepared in self._prepared.items() if handle in prepared.handles]:
            self._forget(key)
        if handle.address:
            self._allocator.give_back(handle.address, handle.nbytes)
        handle.address = handle.nbytes = 0

    @in_turn
    def copy_in(self, handle: WasmBuffer, data: memoryview, offset: int = 0) -> None:
        check_range(handle.nbytes, data.nbytes, offset)
        if data.nbytes:
            self._bytes(handle.address + offset, data.nbytes)[:] = data.cast("B")

    @in_turn
    def copy_out(self, handle: WasmBuffer, nbytes: int, offset: int = 0) -> bytes:
        check_range(handle.nbytes, nbytes, offset)
        return ctypes.string_at(self._base() + handle.address + offset, nbytes) if nbytes else b""

    def _take(self, nbytes: int) -> int:
        address = self._allocator.take(nbytes)
        if address is not None:
            return address
        missing = -(-self._allocator.missing(nbytes) // PAGE)
        free = MAX_PAGES - self._memory.size(self._store)
        try:
            if missing > free:
                raise wasmtime.WasmtimeError("the memory would exceed 4 GiB")
            self._memory.grow(self._store, min(max(missing, GROWTH), free))
        except wasmtime.WasmtimeError as error:
            raise MemoryError(f"WASM has no memory for a buffer of {nbytes} bytes ({error})") from error
        self._allocator.extend(self._memory.size(self._store) * PAGE)
        address = self._allocator.take(nbytes)
        assert address is not None
        return address

    def _base(self) -> int:
        address = ctypes.cast(self._memory.data_ptr(self._store), ctypes.c_void_p).value
        assert address is not None
        return address

    def _bytes(self, address: int, nbytes: int) -> memoryview:
        return memoryview((ctypes.c_ubyte * nbytes).from_address(self._base() + address)).cast("B")

    # -- programs -----------------------------------------------------------------------------------------------------
    @in_turn
    def compile(self, programs: Iterable[Program]) -> list[WasmExecutable]:
        programs = list(programs)
        if not programs:
            return []
        module = compile_module(programs, stack_bytes=STACK_BYTES)
        if static := static_data_bytes(module):
            # static data of different modules must not meet in the shared memory; the module's stack lies behind it
            module = compile_module(programs, self._take(static + STACK_BYTES + 1024), STACK_BYTES)
        try:
            instance = wasmtime.Instance(self._store, wasmtime.Module(self._engine, module), [self._memory])
        except wasmtime.WasmtimeError as error:
            raise DeviceError(f"wasmtime refused a module of {len(programs)} kernels: {error}") from error
        exports = instance.exports(self._store)
        made: dict[str, WasmExecutable] = {}
        for p in programs:
            if p.name not in made:
                function = exports[p.name]
                assert isinstance(function, wasmtime.Func)
                made[p.name] = WasmExecutable(p, self._table.grow(self._store, 1, function))
        return [made[p.name] for p in programs]

    @in_turn
    def run(self, launches: Sequence[Launch], variables: Mapping[str, int]) -> None:
        if not launches:
            return
        # a replayed plan runs the same list again and again, and gets what was made for it
        key = tuple(launches)
        prepared = self._prepared.get(key)
        if prepared is None:
            prepared = self._prepared[key] = _List(key, lambda count: self._take(4 * count))
            if len(self._prepared) > MAX_PREPARED:
                self._forget(next(iter(self._prepared)))
        else:
            self._prepared.move_to_end(key)
        words = prepared.filled(variables)
        block = (ctypes.c_int32 * len(words))(*words)
        ctypes.memmove(self._base() + prepared.address, block, ctypes.sizeof(block))
        try:
            self._run(self._store, *(_signed(a) for a in (prepared.address, prepared.end, prepared.reached)))
        except wasmtime.Trap as trap:
            reached = int.from_bytes(self._bytes(prepared.reached, 4), "little")
            program = prepared.programs[(reached - prepared.address) // (4 * RECORD_WORDS)]
            cause = trap.message.strip().splitlines()[-1].strip()  # what stands above is a backtrace of numbers
            raise DeviceError(f"kernel {program.name} trapped: {cause}") from trap

    def _forget(self, key: tuple[Launch, ...]) -> None:
        prepared = self._prepared.pop(key)
        self._allocator.give_back(prepared.address, prepared.nbytes)

    def synchronize(self) -> None:
        pass


def _close(store: wasmtime.Store, engine: wasmtime.Engine) -> None:
    store.close()
    engine.close()


def _signed(address: int) -> int:
    """An address as wasmtime takes i32 arguments."""
    return address - (1 << 32) if address >= 1 << 31 else address

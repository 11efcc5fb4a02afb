"""The HIP runtime: code objects and launches on one stream of an AMD GPU, graphs for what runs again."""

from __future__ import annotations

import ctypes
import functools
import os
import re
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from ctypes import c_int, c_void_p
from typing import Any, Concatenate, ParamSpec, TypeVar

from tinyweb.errors import DeviceError
from tinyweb.graph.gpu_targets import amd_target
from tinyweb.graph.program import Program
from tinyweb.graph.target import Target
from tinyweb.native_runtimes.checks import check_range
from tinyweb.native_runtimes.hip.compile import CodeObject, compile_code_object
from tinyweb.native_runtimes.hip.library import LOST, Hip, HipError, hip_library
from tinyweb.native_runtimes.hip.memory import HipBuffer, Memory
from tinyweb.native_runtimes.hip.queue import VARIABLE, Queue
from tinyweb.native_runtimes.hip.replay import Owned, Prepared
from tinyweb.native_runtimes.protocol import Replay, Replaying
from tinyweb.native_runtimes.runs import Stuck, some_of
from tinyweb.native_runtimes.turns import Turns, in_turn
from tinyweb.render_c import render_gpu
from tinyweb.render_c.dialect import HIP

P = ParamSpec("P")
R = TypeVar("R")


class HipExecutable:
    """One program's code object. `function` is its handle in the device's life `life`, once it has been loaded."""

    def __init__(self, program: Program, code: CodeObject) -> None:
        self.program, self.code = program, code
        self.life = 0
        self.function = c_void_p()


def guarded(method: Callable[Concatenate[HipRuntime, P], R]) -> Callable[Concatenate[HipRuntime, P], R]:
    """A method that takes its turn at the device, and says in a sentence what went wrong there."""

    @in_turn
    @functools.wraps(method)
    def call(self: HipRuntime, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            self.enter()
            return method(self, *args, **kwargs)
        except Stuck as stuck:
            raise self.hang(stuck) from None
        except HipError as error:
            if error.number not in LOST:
                raise
            raise self.reset(error) from error

    return call


class HipRuntime(Turns, Replaying):
    """Runtime (see `native_runtimes.protocol`) for AMD GPUs, `index` counting from 0. `run` returns once the work is
    launched.

    DeviceError that says what is missing where there is no such GPU, no driver or no HIP library. A kernel that does
    not end within TINYWEB_HIP_SECONDS (120), and an error after which nothing works on the device, raise a DeviceError
    from the call that waits for it; in the second case the device is reset, and all memory on it is lost.
    """

    def __init__(self, index: int = 0) -> None:
        super().__init__()
        self.index, self.name = index, f"HIP:{index}" if index else "HIP"
        self.hip = hip_library()
        self.life = 0  # counts how often the device was opened
        self._stuck: Stuck | None = None
        self._dead: DeviceError | None = None
        self._later: list[Owned] = []  # what goes as soon as nothing is in flight
        count = device_count(self.hip)
        if not 0 <= index < count:
            there = f"choose HIP:0 … HIP:{count - 1}" if count else "there is none"
            raise DeviceError(f"there is no AMD GPU number {index} ({self.name}): {there}")
        self.chip = chip_of(self.hip, index)
        try:
            self.target: Target = amd_target(self.chip)
        except ValueError as error:
            raise DeviceError(
                f"{self.name} is an AMD GPU of the kind {self.chip}, which kernels are not made for: choose another "
                "device, as OPENCL"
            ) from error
        self.hip.call("hipSetDevice", index)
        self._open()

    def _open(self) -> None:
        self.life += 1
        self.queue = Queue(self.hip)
        self.pool = Memory(self.hip, self._settle_queue)

    # -- what goes wrong ----------------------------------------------------------------------------------------------
    def enter(self) -> None:
        """Before each use of the device; DeviceError where a kernel still keeps it from working."""
        if self._dead is not None:
            raise self._dead
        self.hip.call("hipSetDevice", self.index)  # of this thread
        if self._stuck is not None:
            if not self.queue.idle():
                raise self.hang(self._stuck)
            self._stuck = None

    def hang(self, stuck: Stuck) -> DeviceError:
        """What is raised while kernels do not end."""
        self._stuck = stuck
        return DeviceError(
            f"{self.name}: {some_of(stuck.names)} did not end within {stuck.seconds:g} "
            f"seconds ({VARIABLE}); the device can be used again as soon as it ends or the driver resets it"
        )

    def reset(self, error: HipError) -> DeviceError:
        """Open the device anew after an error that it keeps; what is raised."""
        self._later.clear()
        self._stuck = None
        try:
            self.hip.call("hipDeviceReset")
            self._open()
        except HipError as again:
            self._dead = DeviceError(f"{error}; the device could not be reset ({again}): start the process anew")
            return self._dead
        return DeviceError(f"{error}; the device was reset, and what was in its memory is lost")

    def check_live(self, handle: HipBuffer) -> None:
        """DeviceError for memory that is not there any more."""
        if not handle.address:
            raise DeviceError(f"{self.name}: memory was used after it had been freed")
        if handle.life != self.life:
            raise DeviceError(f"{self.name}: this memory was lost when the device was reset; make the tensor anew")

    # -- memory -------------------------------------------------------------------------------------------------------
    @guarded
    def allocate(self, nbytes: int, zeroed: bool = True) -> HipBuffer:
        buffer = self.take(nbytes)
        if zeroed and nbytes:
            self.queue.ask("hipMemsetAsync", buffer.address, 0, nbytes)
        return buffer

    def take(self, nbytes: int) -> HipBuffer:
        """Memory with anything in it, within the runtime's turn."""
        address, held = self.pool.take(nbytes)
        return HipBuffer(address, nbytes, held, self.life)

    @guarded
    def free_bytes(self) -> int | None:
        return self.pool.free_bytes()

    def _free(self, handle: HipBuffer | Owned) -> None:
        if isinstance(handle, Owned):
            self.release(handle)
        elif handle.address:
            if handle.life == self.life:
                self.pool.put(handle.address, handle.held)
            handle.address = handle.nbytes = 0

    def release(self, owned: Owned) -> None:
        """Give something back to the driver as soon as nothing in flight uses it."""
        if owned.life == self.life:
            self._later.append(owned)
            with suppress(HipError):  # whoever uses the device next hears of it
                self.hip.call("hipSetDevice", self.index)  # of this thread
                if self._stuck is None and self.queue.idle():
                    self._release_now()

    def _release_now(self) -> None:
        while self._later:
            owned = self._later.pop()
            self.hip.ask(owned.release, owned.pointer)

    def _settle_queue(self) -> None:
        self.queue.wait()
        self._release_now()

    @guarded
    def copy_in(self, handle: HipBuffer, data: memoryview, offset: int = 0) -> None:
        check_range(handle.nbytes, data.nbytes, offset)
        if data.nbytes:
            self.check_live(handle)
            self.queue.staging.copy_in(handle.address + offset, data.cast("B"))

    @guarded
    def copy_out(self, handle: HipBuffer, nbytes: int, offset: int = 0) -> bytes:
        check_range(handle.nbytes, nbytes, offset)
        if not nbytes:
            return b""
        self.check_live(handle)
        return self.queue.staging.copy_out(handle.address + offset, nbytes)

    # -- programs -----------------------------------------------------------------------------------------------------
    def compile(self, programs: Iterable[Program]) -> list[HipExecutable]:
        def compiled(program: Program) -> HipExecutable:
            return HipExecutable(program, compile_code_object(render_gpu([program], HIP), self.chip))

        with ThreadPoolExecutor(os.cpu_count()) as threads:  # they wait for processes
            asked = list(programs)
            made = {p.name: threads.submit(compiled, p) for p in asked}
            return [made[p.name].result() for p in asked]

    def function(self, executable: HipExecutable) -> c_void_p:
        """A kernel's handle, within the runtime's turn; loaded on first use."""
        if executable.life != self.life:
            name = executable.program.name
            module = self.hip.made("hipModuleLoadData", executable.code.binary)
            executable.function = self.hip.made("hipModuleGetFunction", module, name.encode())
            executable.life = self.life
            self._owns(executable, [Owned("hipModuleUnload", module, self.life)])
        return executable.function

    def _owns(self, owner: object, things: Sequence[Owned | HipBuffer]) -> None:
        """Give things back when their owner goes; at the interpreter's exit the driver does so itself."""
        for thing in things:
            weakref.finalize(owner, self.free, thing).atexit = False

    def prepare(
        self, executables: Sequence[HipExecutable], slots: Sequence[Sequence[int]], fixed: Sequence[HipBuffer]
    ) -> Replay:
        return _Replay(self, self._prepare(executables, slots, fixed))

    @guarded
    def _prepare(self, *arguments: Any) -> Prepared:
        return Prepared(self, *arguments)

    @guarded
    def replay(self, prepared: Prepared, handles: Sequence[HipBuffer], variables: Mapping[str, int]) -> None:
        """Run prepared launches."""
        prepared.run(handles, variables)

    def set_word(self, buffer: HipBuffer, index: int, value: int) -> None:
        """Store a 32-bit integer after all launches so far, within the runtime's turn."""
        self.queue.ask("hipMemsetD32Async", buffer.address + 4 * index, value, 1)

    @guarded
    def synchronize(self) -> None:
        self._settle_queue()

    @guarded
    def close(self) -> None:
        """Give everything back that is not memory somebody holds; the runtime must not be used again."""
        self._settle_queue()
        self.pool.give_up()
        self.queue.close()
        self.abandon()

    def abandon(self) -> None:
        """Own nothing on the device any more: what is given back from now on is gone already."""
        self.life = -1
        self._later.clear()


class _Replay:
    """What `prepare` returns: with it go its graphs and the memory of its variables."""

    def __init__(self, runtime: HipRuntime, prepared: Prepared) -> None:
        self._runtime, self._prepared = runtime, prepared

    def __call__(self, handles: Sequence[HipBuffer], variables: Mapping[str, int]) -> None:
        self._runtime.replay(self._prepared, handles, variables)

    def __del__(self) -> None:
        if self._prepared.life == self._runtime.life:
            for thing in self._prepared.owned():
                self._runtime.free(thing)


def device_count(hip: Hip) -> int:
    """AMD GPUs that are there; HipError with advice where HIP does not start."""
    count = c_int()
    hip.call("hipInit", 0)
    hip.call("hipGetDeviceCount", ctypes.byref(count))
    return count.value


def chip_of(hip: Hip, index: int) -> str:
    """A device's kind, as "gfx1100"."""
    found = re.search(rb"gfx[0-9a-f]+", hip.properties(index))
    if found is None:
        raise DeviceError(f"HIP:{index} does not say what kind of AMD GPU it is: update ROCm")
    return found[0].decode()


def devices() -> list[str]:
    """The AMD GPUs that are there, by number: their names and kinds. DeviceError where HIP does not start."""
    hip, name = hip_library(), ctypes.create_string_buffer(256)
    found = []
    for index in range(device_count(hip)):
        hip.call("hipDeviceGetName", name, len(name), index)
        found.append(f"{name.value.decode(errors='replace') or 'AMD GPU'} ({chip_of(hip, index)})")
    return found

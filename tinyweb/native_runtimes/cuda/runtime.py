"""The Runtime protocol on the CUDA driver."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Concatenate, ParamSpec, TypeVar

from tinyweb.errors import DeviceError
from tinyweb.graph.gpu_targets import nvidia_target
from tinyweb.graph.program import Program
from tinyweb.graph.target import Target
from tinyweb.native_runtimes.checks import check_range
from tinyweb.native_runtimes.cuda.compile import architecture, compile_cuda, version
from tinyweb.native_runtimes.cuda.driver import FAULTS, NEWER_DRIVER, OUT_OF_MEMORY, CudaError, Driver, open_device
from tinyweb.native_runtimes.cuda.memory import CudaBuffer, Memory
from tinyweb.native_runtimes.cuda.queue import VARIABLE, Queue
from tinyweb.native_runtimes.cuda.replay import CudaExecutable, Replayed
from tinyweb.native_runtimes.protocol import Replay, Replaying
from tinyweb.native_runtimes.runs import Stuck, some_of
from tinyweb.native_runtimes.turns import Turns, in_turn
from tinyweb.render_c import CUDA, dynamic_shared, render_gpu

P = ParamSpec("P")
R = TypeVar("R")

MAJOR, MINOR = 75, 76  # CUdevice_attribute
MAX_DYNAMIC_SHARED = 8  # CUfunction_attribute


def on_device(method: Callable[Concatenate[CudaRuntime, P], R]) -> Callable[Concatenate[CudaRuntime, P], R]:
    """One call at a time, in the device's context; what the driver reports is told as this package's errors."""

    @functools.wraps(method)
    def call(self: CudaRuntime, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self.reporting():
            return method(self, *args, **kwargs)

    return in_turn(call)


class CudaRuntime(Turns, Replaying):
    """Runtime (see `native_runtimes.protocol`) for the `index`-th of NVIDIA's GPUs. `run` returns once the work is
    asked for. `driver`: what stands for the module `cuda.bindings.driver`.

    After a kernel has faulted the device is opened anew if the driver allows it; all memory on it is lost.
    """

    def __init__(self, index: int = 0, driver: Any = None) -> None:
        super().__init__()
        self.name = f"CUDA:{index}" if index else "CUDA"
        self._driver = Driver(driver)
        self._device = open_device(self._driver, index, version()[0])
        self.device_name = device_name(self._driver, self._device)
        self.arch = architecture(10 * self._attribute(MAJOR) + self._attribute(MINOR))
        kind, _, number = self.arch.partition("_")
        self.target: Target = nvidia_target(f"sm_{number}", portable=kind != "sm")
        self._generation = 0
        self._why_not: str | None = None  # the device cannot be used any more
        self._stuck: str | None = None  # a kernel that has not ended
        self._later: list[CudaBuffer | Replayed] = []  # what was given back meanwhile
        self._functions: dict[str, Any] = {}
        self._context: Any = None
        with self.reporting():
            self._open()

    def _attribute(self, number: int) -> int:
        return int(self._driver.cuDeviceGetAttribute(self._driver.module.CUdevice_attribute(number), self._device))

    def _open(self) -> None:
        self._context = self._driver.cuDevicePrimaryCtxRetain(self._device)
        self._driver.cuCtxSetCurrent(self._context)
        self._queue = Queue(self._driver)
        self._memory = Memory(self._driver, self._device, self._queue)

    # -- what goes wrong ----------------------------------------------------------------------------------------------
    @contextlib.contextmanager
    def reporting(self) -> Iterator[None]:
        """Within this context the device's is this thread's, and the driver's errors become DeviceErrors."""
        try:
            self._usable()
            yield
        except Stuck as stuck:
            kernels = some_of(stuck.names)
            self._stuck = (
                f"{self.name} ({self.device_name}): {kernels} has not ended after {stuck.seconds:g} seconds; "
                f"wait for it or end the process, and raise {VARIABLE} where it needs longer"
            )
            raise DeviceError(self._stuck) from None
        except CudaError as error:
            raise self._failure(error) from error

    def _usable(self) -> None:
        if self._why_not is not None:
            raise DeviceError(self._why_not)
        if self._context is None:
            return
        self._driver.cuCtxSetCurrent(self._context)
        if self._stuck is not None:
            if not self._queue.idle():
                raise DeviceError(self._stuck)
            self._stuck = None
            self._given_back.extend(self._later)
            self._later.clear()

    def _failure(self, error: CudaError) -> Exception:
        if error.code == OUT_OF_MEMORY:
            return MemoryError(f"{self.name} ({self.device_name}) has too little memory left: {error}")
        if error.code in NEWER_DRIVER:
            what = f"the driver does not load code for {self.arch}: install a newer driver"
            return DeviceError(f"{self.name} ({self.device_name}): {what} ({error})")
        if error.code not in FAULTS:
            return DeviceError(f"{self.name} ({self.device_name}): {error}")
        lost = f"{self.name} ({self.device_name}): {some_of(self._queue.names)} {FAULTS[error.code]} ({error})"
        lost += ", and all memory on the device is lost"
        self._generation += 1
        self._functions.clear()
        try:
            self._driver.cuDevicePrimaryCtxReset(self._device)
            self._open()
        except CudaError as second:
            self._why_not = f"{lost}; the driver does not open the device again ({second}): start the process anew"
            return DeviceError(self._why_not)
        return DeviceError(f"{lost}; the device is open again: make its tensors anew")

    def _alive(self, handle: CudaBuffer) -> CudaBuffer:
        if handle.generation != self._generation:
            raise DeviceError(self._lost())
        return handle

    def _lost(self) -> str:
        return f"memory on {self.name} was lost when a kernel faulted: make its tensors anew"

    # -- memory -------------------------------------------------------------------------------------------------------
    @on_device
    def allocate(self, nbytes: int, zeroed: bool = True) -> CudaBuffer:
        try:
            return CudaBuffer(self._memory.allocate(nbytes, zeroed), nbytes, self._generation)
        except CudaError as error:
            if error.code != OUT_OF_MEMORY:
                raise
            free = self._memory.free_bytes()
            raise MemoryError(
                f"{self.name} ({self.device_name}) has no memory for a buffer of {nbytes} bytes: {free} are left"
            ) from error

    @on_device
    def free_bytes(self) -> int | None:
        return self._memory.free_bytes()

    def _free(self, handle: CudaBuffer | Replayed) -> None:
        """Also in a finaliser, where nobody could be told of an error: the next call is."""
        if self._stuck is not None:  # until the device is used again
            self._later.append(handle)
            return
        with contextlib.suppress(DeviceError, MemoryError), self.reporting():
            if isinstance(handle, Replayed):
                address, graph, source = handle.table, handle.graph, handle.source
                handle.table, handle.graph, handle.source = 0, None, None
            else:
                address, graph, source = handle.address, None, None
                handle.address, handle.nbytes = 0, 0
            if handle.generation != self._generation:
                return
            if graph is not None:
                self._driver.cuGraphExecDestroy(graph)
                self._driver.cuGraphDestroy(source)
            if address:
                self._memory.free(address)

    @on_device
    def copy_in(self, handle: CudaBuffer, data: memoryview, offset: int = 0) -> None:
        check_range(self._alive(handle).nbytes, data.nbytes, offset)
        if data.nbytes:
            self._memory.staging.copy_in(handle.address + offset, data.cast("B"))

    @on_device
    def copy_out(self, handle: CudaBuffer, nbytes: int, offset: int = 0) -> bytes:
        check_range(self._alive(handle).nbytes, nbytes, offset)
        return self._memory.staging.copy_out(handle.address + offset, nbytes)

    # -- programs -----------------------------------------------------------------------------------------------------
    def compile(self, programs: Iterable[Program]) -> list[CudaExecutable]:
        asked: list[Program] = []
        made: dict[str, Any] = {}
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            for p in programs:
                asked.append(p)
                if p.name not in made:
                    made[p.name] = threads.submit(compile_cuda, render_gpu([p], CUDA), self.arch, p.name)
        executables = {p.name: CudaExecutable(p, made[p.name].result().code, dynamic_shared(p, CUDA)) for p in asked}
        self._load(list(executables.values()))
        return [executables[p.name] for p in asked]

    @on_device
    def _load(self, executables: Sequence[CudaExecutable]) -> None:
        for e in executables:
            self._function(e)

    def _function(self, executable: CudaExecutable) -> Any:
        """The kernel in the context as it is now."""
        name = executable.program.name
        if name not in self._functions:
            module = self._driver.cuModuleLoadData(executable.code)
            function = self._driver.cuModuleGetFunction(module, name.encode())
            if size := executable.dynamic_shared:
                attribute = self._driver.module.CUfunction_attribute(MAX_DYNAMIC_SHARED)
                self._driver.cuFuncSetAttribute(function, attribute, size)
            self._functions[name] = function
        return self._functions[name]

    @on_device
    def prepare(
        self, executables: Sequence[CudaExecutable], slots: Sequence[Sequence[int]], fixed: Sequence[CudaBuffer]
    ) -> Replay:
        for handle in fixed:
            self._alive(handle)
        replayed = Replayed(self._driver, self._function, executables, slots, fixed, self._generation)
        return _Prepared(self, replayed)

    @on_device
    def replay(self, prepared: Replayed, handles: Sequence[CudaBuffer], variables: Mapping[str, int]) -> None:
        """Ask for what was prepared, with this memory for what varies."""
        if prepared.generation != self._generation:
            raise DeviceError(self._lost())
        for handle in handles:
            self._alive(handle)
        if prepared.words and not prepared.table:
            prepared.hold(self._memory.allocate(4 * prepared.words, zeroed=False))
        prepared.run(handles, variables, self._queue.stream)
        self._queue.mark(prepared.names)

    @on_device
    def synchronize(self) -> None:
        self._queue.wait()


class _Prepared:
    """What `prepare` returns: it gives back what the driver keeps for it."""

    def __init__(self, runtime: CudaRuntime, replayed: Replayed) -> None:
        self._runtime, self._replayed = runtime, replayed

    def __call__(self, handles: Sequence[CudaBuffer], variables: Mapping[str, int]) -> None:
        self._runtime.replay(self._replayed, handles, variables)

    def __del__(self) -> None:
        if self._runtime is not None:  # at the interpreter's exit
            self._runtime.free(self._replayed)


def device_name(driver: Driver, device: Any) -> str:
    """What the driver calls a GPU."""
    return str(driver.cuDeviceGetName(128, device).decode(errors="replace").rstrip("\0"))


def devices(module: Any = None) -> list[str]:
    """The names of all GPUs, CUDA:0 first; DeviceError where there is none."""
    driver = Driver(module)
    open_device(driver, 0, version()[0])
    return [device_name(driver, driver.cuDeviceGet(i)) for i in range(driver.cuDeviceGetCount())]

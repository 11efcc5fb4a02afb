"""The OpenCL runtime: kernels in source, one queue that works in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from tinyweb.errors import DeviceError
from tinyweb.graph.program import Program
from tinyweb.native_runtimes.checks import check_launch, check_range, evaluate, variable_values
from tinyweb.native_runtimes.host_memory import available_bytes
from tinyweb.native_runtimes.opencl.device import Lost, build, open_device
from tinyweb.native_runtimes.protocol import Launch, Replay
from tinyweb.native_runtimes.runs import some_of
from tinyweb.native_runtimes.turns import Turns, in_turn
from tinyweb.render_c import OPENCL, render_gpu

LEAST = 16  # bytes of a buffer: the widest vector
TOGETHER = 16  # kernels in one source: a compiler reads its own headers each time


@dataclass(eq=False)
class OpenClBuffer:
    """Device memory; `memory` is None once it has been freed. `nbytes` is what was asked for."""

    memory: Any
    nbytes: int
    life: int  # of the device: what was there before it was opened anew is lost


@dataclass(eq=False)
class OpenClExecutable:
    """One program's kernel, with what was handed to it last, and memory that holds the values of its variables.
    `life`: of the device, that it was compiled in."""

    program: Program
    kernel: Any
    life: int
    handed: list[Any] = field(default_factory=list)
    values: Sequence[int] = field(default_factory=list)
    variables: Any = None

    def again(self, cl: Any) -> OpenClExecutable:
        """The same kernel with arguments of its own."""
        return OpenClExecutable(self.program, cl.Kernel(self.kernel.program, self.program.name), self.life)


class OpenClRuntime(Turns):
    """Runtime (see `native_runtimes.protocol`) for the `index`-th OpenCL device: GPUs before other accelerators and
    processors. `run` returns once the work is queued.

    After a kernel has failed the device is opened anew if the driver allows it; all memory on it is lost.
    """

    name = "OPENCL"

    def __init__(self, index: int = 0) -> None:
        super().__init__()
        self._index, self._life = index, 0
        self._why_not: DeviceError | None = None  # the device cannot be used any more
        self._open()
        self.target = self._opened.target
        self.device_name = self._opened.name  # what the driver calls it

    def _open(self) -> None:
        self._opened = open_device(self._index)
        self._cl, self._queue = self._opened.cl, self._opened.queue
        self._executables: WeakValueDictionary[str, OpenClExecutable] = WeakValueDictionary()

    # -- what goes wrong ----------------------------------------------------------------------------------------------
    @contextmanager
    def _speaking(self, what: str) -> Iterator[None]:
        """Errors of the driver as ours; where the queue is lost, it is opened anew."""
        if self._why_not is not None:
            raise self._why_not
        try:
            with self._opened.speaking(what):
                yield
        except Lost as error:
            raise self._anew(error) from error

    def _anew(self, error: Lost) -> DeviceError:
        """The device opened again; what is raised."""
        lost = f"{some_of(error.names)} failed on {self.device_name} ({error}), and all memory on the device is lost"
        self._life += 1
        try:
            self._open()
        except DeviceError as again:
            self._why_not = DeviceError(f"{lost}; it does not open again ({again}): start the process anew")
            return self._why_not
        return DeviceError(f"{lost}; the device is open again: make its tensors anew")

    def _alive(self, handle: OpenClBuffer) -> Any:
        """The memory behind a handle."""
        if handle.life != self._life:
            raise DeviceError(f"memory on {self.device_name} was lost when a kernel failed: make its tensors anew")
        return handle.memory

    # -- memory -------------------------------------------------------------------------------------------------------
    @in_turn
    def allocate(self, nbytes: int, zeroed: bool = True) -> OpenClBuffer:
        limit = self.target.max_binding_bytes
        if nbytes > limit:
            raise MemoryError(
                f"OpenCL has no memory for a buffer of {nbytes} bytes: {self.device_name} allows {limit} in one; use "
                "several smaller tensors, a narrower type (as --quant q4 of a model's weights), or another device"
            )
        size = -(-max(nbytes, 1) // LEAST) * LEAST
        with self._speaking(f"allocating {nbytes} bytes"):
            memory = self._cl.Buffer(self._opened.context, self._cl.mem_flags.READ_WRITE, size)
            if zeroed:
                self._cl.enqueue_fill_buffer(self._queue, memory, np.zeros(1, np.uint32), 0, size)
        return OpenClBuffer(memory, nbytes, self._life)

    def free_bytes(self) -> int | None:
        return available_bytes() if self._opened.is_processor else None

    def _free(self, handle: OpenClBuffer) -> None:
        if handle.memory is not None and handle.life == self._life:
            handle.memory.release()
        handle.memory, handle.nbytes = None, 0

    @in_turn
    def copy_in(self, handle: OpenClBuffer, data: memoryview, offset: int = 0) -> None:
        check_range(handle.nbytes, data.nbytes, offset)
        if data.nbytes:
            host = np.frombuffer(data.cast("B"), np.uint8)
            with self._speaking(f"copying {data.nbytes} bytes to the device"):
                self._opened.finish()  # the copy itself would wait for kernels without a limit
                self._cl.enqueue_copy(self._queue, self._alive(handle), host, dst_offset=offset, is_blocking=True)

    @in_turn
    def copy_out(self, handle: OpenClBuffer, nbytes: int, offset: int = 0) -> bytes:
        check_range(handle.nbytes, nbytes, offset)
        host = np.empty(nbytes, np.uint8)
        if nbytes:
            with self._speaking(f"copying {nbytes} bytes from the device"):
                self._opened.finish()
                self._cl.enqueue_copy(self._queue, host, self._alive(handle), src_offset=offset, is_blocking=True)
        return host.tobytes()

    # -- programs -----------------------------------------------------------------------------------------------------
    @in_turn
    def compile(self, programs: Iterable[Program]) -> list[OpenClExecutable]:
        return self._compiled(programs)

    def _compiled(self, programs: Iterable[Program]) -> list[OpenClExecutable]:
        asked = list(programs)
        named = {p.name: p for p in asked}
        made = {name: e for name in named if (e := self._executables.get(name)) is not None}
        missing = [p for name, p in named.items() if name not in made]
        for start in range(0, len(missing), TOGETHER):
            part = missing[start : start + TOGETHER]
            kernels = build(self._opened, [p.name for p in part], render_gpu(part, OPENCL))
            for program, kernel in zip(part, kernels):
                made[program.name] = self._executables[program.name] = OpenClExecutable(program, kernel, self._life)
        return [made[p.name] for p in asked]

    @in_turn
    def run(self, launches: Sequence[Launch], variables: Mapping[str, int]) -> None:
        self._run(launches, variables)

    def prepare(
        self, executables: Sequence[OpenClExecutable], slots: Sequence[Sequence[int]], fixed: Sequence[OpenClBuffer]
    ) -> Replay:
        own = [e.again(self._cl) for e in executables]  # what stays the same from run to run is handed over once

        def replay(handles: Sequence[OpenClBuffer], variables: Mapping[str, int]) -> None:
            memory = (*fixed, *handles)
            self.run([Launch(e, tuple(memory[i] for i in s)) for e, s in zip(own, slots)], variables)

        return replay

    def _run(self, launches: Sequence[Launch], variables: Mapping[str, int]) -> None:
        for executable, buffers in launches:
            program: Program = executable.program
            grid = [evaluate(size, variables) for size in program.grid]
            if min(grid) <= 0:
                continue
            with self._speaking(f"kernel {program.name}"):
                self._hand_over(executable, buffers, variables)
                threads = [n * size for n, size in zip(grid, program.workgroup)]
                self._cl.enqueue_nd_range_kernel(self._queue, executable.kernel, threads, program.workgroup)
        with self._speaking(f"{len(launches)} kernels"):
            self._opened.runs.mark(tuple(x.executable.program.name for x in launches))

    def _hand_over(
        self, executable: OpenClExecutable, buffers: Sequence[OpenClBuffer], variables: Mapping[str, int]
    ) -> None:
        """Set the arguments that are not what they were."""
        program = executable.program
        if executable.life != self._life:
            (again,) = self._compiled([program])
            executable.kernel, executable.life = again.again(self._cl).kernel, self._life
            executable.handed, executable.values = [], []
        arguments = [self._alive(b) for b in buffers[: len(program.params)]]
        if program.variables:
            arguments.append(self._variables(executable, variables))
        if list(map(id, arguments)) != list(map(id, executable.handed)):
            check_launch(program, [b.nbytes for b in buffers], [id(b) for b in buffers])
            executable.handed = []  # where the driver refuses one of them, some are new
            executable.kernel.set_args(*arguments)
            executable.handed = arguments

    def _variables(self, executable: OpenClExecutable, variables: Mapping[str, int]) -> Any:
        """Memory with the values of a program's variables; what a queued launch reads is never changed."""
        values = variable_values([v.arg[0] for v in executable.program.variables], variables)
        if values != executable.values:
            flags = self._cl.mem_flags.READ_ONLY | self._cl.mem_flags.COPY_HOST_PTR
            executable.variables = self._cl.Buffer(self._opened.context, flags, hostbuf=np.array(values, np.int32))
            executable.values = values
        return executable.variables

    @in_turn
    def synchronize(self) -> None:
        with self._speaking("waiting for kernels"):
            self._opened.finish()

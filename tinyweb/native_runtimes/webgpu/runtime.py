"""The WebGPU runtime: pipelines, bind groups and grids in, one command buffer per run."""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from tinyweb.errors import DeviceError
from tinyweb.graph.program import Program
from tinyweb.graph.target import THREAD_REGISTERS, Target, webgpu_target
from tinyweb.native_runtimes.checks import check_launch, check_range, evaluate, variable_values
from tinyweb.native_runtimes.host_memory import available_bytes
from tinyweb.native_runtimes.protocol import Launch, Unprepared
from tinyweb.native_runtimes.turns import Turns, in_turn
from tinyweb.native_runtimes.webgpu.backend import Adapter, Backend, Dispatch, open_backend
from tinyweb.render_wgsl import bindings, has_uniform, render

MAX_VARIABLES = 64  # of one process: the uniform buffer has a slot for each
MAX_BIND_GROUPS = 4096
DISCRETE_REGISTERS = 255  # of a thread, as cards of NVIDIA and AMD have


@dataclass(eq=False)
class WebGpuBuffer:
    """Device memory; `buffer` is None once it has been freed. `nbytes` is what was asked for."""

    buffer: Any
    nbytes: int


@dataclass(eq=False)
class WebGpuExecutable:
    """One program's pipeline."""

    program: Program
    pipeline: Any
    uniform: bool


def target_of(adapter: Adapter) -> Target:
    """What programs for an adapter may use."""
    return webgpu_target(
        subgroups="subgroups" in adapter.features and not adapter.is_software,
        f16="shader-f16" in adapter.features,
        shared_bytes=adapter.shared_bytes,
        max_binding_bytes=min(adapter.max_buffer_bytes, adapter.max_binding_bytes),
        thread_registers=DISCRETE_REGISTERS if adapter.discrete else THREAD_REGISTERS,
    )


class WebGpuRuntime(Turns, Unprepared):
    """Runtime (see `native_runtimes.protocol`) for GPUs. `run` returns once the work is submitted.

    `backend`: an open one, or "wgpu" or "dawn", by default TINYWEB_WEBGPU or wgpu. `target` says what its adapter
    can do.
    """

    name = "WEBGPU"

    def __init__(self, backend: Backend | str | None = None, index: int = 0) -> None:
        super().__init__()
        if index:
            raise DeviceError(f"WEBGPU:{index} is not there: WebGPU shows a program one adapter, the device WEBGPU")
        self._backend = open_backend(backend) if backend is None or isinstance(backend, str) else backend
        self.backend_name = self._backend.name
        self.adapter: Adapter = self._backend.adapter
        self.target: Target = target_of(self.adapter)
        self._slots: dict[str, int] = {}
        self._uniform = self._backend.create_buffer(4 * MAX_VARIABLES, uniform=True)
        self._uniform_holds = b""
        self._pipelines: WeakValueDictionary[tuple[str, tuple[tuple[str, int], ...]], WebGpuExecutable]
        self._pipelines = WeakValueDictionary()
        self._groups: OrderedDict[tuple[WebGpuExecutable, tuple[WebGpuBuffer, ...]], Any] = OrderedDict()
        self._groups_of: dict[WebGpuBuffer, set[tuple[WebGpuExecutable, tuple[WebGpuBuffer, ...]]]] = {}

    # -- memory -------------------------------------------------------------------------------------------------------
    @in_turn
    def allocate(self, nbytes: int, zeroed: bool = True) -> WebGpuBuffer:
        limit = min(self.adapter.max_buffer_bytes, self.adapter.max_binding_bytes)
        if nbytes > limit:
            raise MemoryError(
                f"WebGPU has no memory for a buffer of {nbytes} bytes: {self.adapter.name} allows {limit}; "
                "use several smaller tensors, a narrower type (as --quant q4 of a model's weights), or another device; "
                "only exported sites divide memory"
            )
        return WebGpuBuffer(self._backend.create_buffer(max(_words(nbytes), 4)), nbytes)

    def free_bytes(self) -> int | None:
        # a software adapter's memory is the host's; of others WebGPU tells nothing but the largest buffer
        return available_bytes() if self.adapter.is_software else None

    def _free(self, handle: WebGpuBuffer) -> None:
        for key in self._groups_of.pop(handle, ()):
            self._forget_group(key)
        if handle.buffer is not None:
            self._backend.destroy_buffer(handle.buffer)
        handle.buffer, handle.nbytes = None, 0

    @in_turn
    def copy_in(self, handle: WebGpuBuffer, data: memoryview, offset: int = 0) -> None:
        check_range(handle.nbytes, data.nbytes, offset)
        if not data.nbytes:
            return
        data = data.cast("B")
        before, end = offset % 4, offset + data.nbytes
        after = -end % 4
        if before or after:
            # only whole words can be written: the rest of the first and the last one is what it was
            first = self._backend.read(handle.buffer, offset - before, 4)[:before] if before else b""
            last = self._backend.read(handle.buffer, end + after - 4, 4)[4 - after :] if after else b""
            self._backend.write(handle.buffer, offset - before, first + bytes(data) + last)
        else:
            self._backend.write(handle.buffer, offset, data)

    @in_turn
    def copy_out(self, handle: WebGpuBuffer, nbytes: int, offset: int = 0) -> bytes:
        check_range(handle.nbytes, nbytes, offset)
        if not nbytes:
            return b""
        before = offset % 4
        return self._backend.read(handle.buffer, offset - before, _words(before + nbytes))[before : before + nbytes]

    # -- programs -----------------------------------------------------------------------------------------------------
    @in_turn
    def compile(self, programs: Iterable[Program]) -> list[WebGpuExecutable]:
        return [self._compile(p) for p in programs]

    def _compile(self, program: Program) -> WebGpuExecutable:
        uniform = has_uniform(program)
        names = [v.arg[0] for v in program.variables] if uniform else []
        for name in names:
            if self._slots.setdefault(name, len(self._slots)) >= MAX_VARIABLES:
                raise DeviceError(f"more than {MAX_VARIABLES} different variables are in use: {name} is one too many")
        # equal programs with equal places of their variables are one pipeline
        key = (program.name, tuple((n, self._slots[n]) for n in names))
        found = self._pipelines.get(key)
        if found is None:
            layout = [*bindings(program), *(["uniform"] if uniform else [])]
            slots = {n: self._slots[n] for n in self._slots}
            pipeline = self._backend.create_pipeline(program.name, render(program, slots), layout)
            found = self._pipelines[key] = WebGpuExecutable(program, pipeline, uniform)
        return found

    @in_turn
    def run(self, launches: Sequence[Launch], variables: Mapping[str, int]) -> None:
        dispatches: list[Dispatch] = []
        used: dict[str, None] = {}
        for launch in launches:
            executable: WebGpuExecutable = launch.executable
            program = executable.program
            grid = tuple(evaluate(size, variables) for size in program.grid)
            if min(grid) <= 0:
                continue
            if max(grid) > self.target.max_grid:
                raise DeviceError(f"kernel {program.name}: a grid of {grid} exceeds {self.target.max_grid} workgroups")
            if executable.uniform:
                used.update((v.arg[0], None) for v in program.variables)
            group = self._group(executable, launch.buffers)
            dispatches.append((executable.pipeline, group, (grid[0], grid[1], grid[2])))
        if not dispatches:
            return
        if used:
            self._set_variables(variable_values(used, variables), list(used))
        self._backend.submit(dispatches)

    def _set_variables(self, values: Sequence[int], names: Sequence[str]) -> None:
        words = [0] * MAX_VARIABLES
        for name, value in zip(names, values):
            words[self._slots[name]] = value
        data = struct.pack(f"<{MAX_VARIABLES}i", *words)
        if data != self._uniform_holds:
            self._backend.write(self._uniform, 0, data)
            self._uniform_holds = data

    def _group(self, executable: WebGpuExecutable, buffers: tuple[WebGpuBuffer, ...]) -> Any:
        key = (executable, buffers)
        found = self._groups.get(key)
        if found is not None:
            self._groups.move_to_end(key)
            return found
        check_launch(executable.program, [b.nbytes for b in buffers], [id(b) for b in buffers])
        bound = [buffers[i.slot].buffer for i in executable.program.params]
        if executable.uniform:
            bound.append(self._uniform)
        found = self._backend.create_bind_group(executable.pipeline, bound)
        self._groups[key] = found
        for b in buffers:
            self._groups_of.setdefault(b, set()).add(key)
        if len(self._groups) > MAX_BIND_GROUPS:
            self._forget_group(next(iter(self._groups)))
        return found

    def _forget_group(self, key: tuple[WebGpuExecutable, tuple[WebGpuBuffer, ...]]) -> None:
        self._groups.pop(key, None)
        for b in key[1]:
            self._groups_of.get(b, set()).discard(key)

    @in_turn
    def synchronize(self) -> None:
        self._backend.wait()


def _words(nbytes: int) -> int:
    """Bytes rounded up to whole 32-bit words."""
    return -(-nbytes // 4) * 4

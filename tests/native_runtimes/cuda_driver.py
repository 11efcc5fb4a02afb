"""A stand-in for `cuda.bindings.driver` on a machine without a GPU: the functions that the runtime calls, each of which
checks what it is given, and memory and a stream that the processor plays.

Work on the stream happens when somebody asks how far it has come, not before, so that whoever changes memory too early
is found. Kernels are carried out by the interpreter, from the program of the same name in `programs`.
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from cuda.bindings import driver as real

from tinyweb.graph.program import Program
from tinyweb.native_runtimes.interpreter.execute import Executor
from tinyweb.render_c import CUDA, dynamic_shared

Result = real.CUresult
DONE, NOT_READY, INVALID = Result.CUDA_SUCCESS, Result.CUDA_ERROR_NOT_READY, Result.CUDA_ERROR_INVALID_VALUE
NO_MEMORY = Result.CUDA_ERROR_OUT_OF_MEMORY
ATTRIBUTES = {75: 9, 76: 0, 97: 227 << 10, 115: 1}
TYPES = {
    "CUdevice_attribute", "CUmemPool_attribute", "CUfunction_attribute", "CUDA_KERNEL_NODE_PARAMS", "cuuint64_t",
}  # fmt: skip


@dataclass
class Endless:
    """Work that does not end before it is told to."""

    work: Callable[[], None]

    def __call__(self) -> None:
        self.work()


class CudaDriver:
    """`total`: bytes of the GPU. `refuse`: results of functions by name, which do nothing then. A launch of a kernel in
    `faulty` breaks the context with that result; one in `endless` does not end before `end` is called.
    """

    def __init__(self, total: int = 1 << 30, attributes: dict[int, int] | None = None) -> None:
        self.total, self.attributes = total, {**ATTRIBUTES, **(attributes or {})}
        self.programs: dict[str, Program] = {}
        self.refuse: dict[str, Any] = {}
        self.faulty: dict[str, Any] = {}
        self.endless: set[str] = set()
        self.calls: list[str] = []
        self.reset_works = True
        self.broken: Any = None
        self.memory: dict[int, np.ndarray] = {}
        self.pinned: dict[int, np.ndarray] = {}
        self.stream: list[Callable[[], None]] = []
        self.graphs: dict[int, list[Any]] = {}
        self.events: dict[int, bool] = {}
        self.functions: dict[int, str] = {}
        self.reserved = self._number = 0
        self._next = 1 << 20

    def __getattr__(self, name: str) -> Any:
        if name in TYPES:
            return getattr(real, name)
        if not name.startswith("cu"):
            raise AttributeError(name)
        known = getattr(type(self), f"_{name}")
        assert hasattr(real, name), f"the driver has no function {name}"

        def call(*arguments: Any) -> Any:
            self.calls.append(name)
            taken = real.__dict__[name].__doc__.split(")")[0].count(",") + 1
            assert len(arguments) == (0 if "()" in real.__dict__[name].__doc__.split("\n")[0] else taken), name
            if self.broken is not None and name not in ("cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxRetain"):
                return (self.broken,)
            if name in self.refuse:
                return (self.refuse[name],)
            try:
                value = known(self, *arguments)
            except Refused as refused:
                return (refused.result,)
            return (DONE, *(value if isinstance(value, tuple) else () if value is None else (value,)))

        return call

    def new(self) -> int:
        self._number += 1
        return self._number

    # -- the device ---------------------------------------------------------------------------------------------------
    def _cuInit(self, flags: int) -> None:
        assert flags == 0

    def _cuDriverGetVersion(self) -> int:
        return 13000

    def _cuDeviceGetCount(self) -> int:
        return 1

    def _cuDeviceGet(self, index: int) -> Any:
        return real.CUdevice(index)

    def _cuDeviceGetName(self, size: int, device: Any) -> bytes:
        return b"Stand-in".ljust(size, b"\0")

    def _cuDeviceGetAttribute(self, attribute: Any, device: Any) -> int:
        assert isinstance(attribute, real.CUdevice_attribute) and isinstance(device, real.CUdevice)
        return self.attributes[int(attribute)]

    def _cuDevicePrimaryCtxRetain(self, device: Any) -> Any:
        if self.broken is not None:
            raise Refused(self.broken)
        self.context = real.CUcontext(self.new())
        return self.context

    def _cuDevicePrimaryCtxReset(self, device: Any) -> None:
        if not self.reset_works:
            raise Refused(self.broken)
        self.broken = None
        self.memory.clear()
        self.stream.clear()
        self.graphs.clear()

    def _cuCtxSetCurrent(self, context: Any) -> None:
        assert context is self.context, "a context that was reset"

    # -- the stream ---------------------------------------------------------------------------------------------------
    def _cuStreamCreate(self, flags: int) -> Any:
        return real.CUstream(self.new())

    def _cuEventCreate(self, flags: int) -> Any:
        return real.CUevent(self.new())

    def _cuEventRecord(self, event: Any, stream: Any) -> None:
        self.events[int(event)] = False
        self._ask(stream, lambda: self.events.__setitem__(int(event), True))

    def _cuEventQuery(self, event: Any) -> None:
        reached = self.events
        if reached[int(event)]:
            return
        while self.stream and not reached[int(event)]:
            work = self.stream[0]
            if isinstance(work, Endless):
                raise Refused(NOT_READY)
            self.stream.pop(0)()
            if self.broken is not None:
                raise Refused(self.broken)
        if not reached[int(event)]:
            raise Refused(NOT_READY)

    def _ask(self, stream: Any, work: Callable[[], None]) -> None:
        assert isinstance(stream, real.CUstream)
        self.stream.append(work)

    def end(self) -> None:
        """What did not end does."""
        self.endless.clear()
        self.stream = [w for w in self.stream if not isinstance(w, Endless)]

    # -- memory -------------------------------------------------------------------------------------------------------
    def _cuDeviceGetDefaultMemPool(self, device: Any) -> Any:
        return real.CUmemoryPool(self.new())

    def _cuMemPoolSetAttribute(self, pool: Any, attribute: Any, value: Any) -> None:
        assert isinstance(pool, real.CUmemoryPool) and isinstance(attribute, real.CUmemPool_attribute)
        assert isinstance(value, real.cuuint64_t)

    def _cuMemPoolGetAttribute(self, pool: Any, attribute: Any) -> Any:
        used = sum(map(len, self.memory.values()))
        return real.cuuint64_t({5: max(self.reserved, used), 7: used}[int(attribute)])

    def _cuMemPoolTrimTo(self, pool: Any, size: int) -> None:
        self.reserved = 0

    def _cuMemGetInfo(self) -> tuple[int, int]:
        return self.total - max(self.reserved, sum(map(len, self.memory.values()))), self.total

    def _cuMemAllocAsync(self, size: int, stream: Any) -> Any:
        assert size > 0 and isinstance(stream, real.CUstream)
        if sum(map(len, self.memory.values())) + size > self.total:
            raise Refused(NO_MEMORY)
        address, self._next = self._next, self._next + -(-size // 256) * 256 + 4096
        self.memory[address] = np.random.default_rng(0).integers(0, 256, size, np.uint8)  # what was there before
        self.reserved = max(self.reserved, sum(map(len, self.memory.values())))
        return real.CUdeviceptr(address)

    def _cuMemAlloc(self, size: int) -> Any:
        return self._cuMemAllocAsync(size, real.CUstream(1))

    def _cuMemFreeAsync(self, address: int, stream: Any) -> None:
        assert address in self.memory, "memory that was not allocated, or was freed before"
        self._ask(stream, lambda: self.memory.__delitem__(address))

    def _cuMemFree(self, address: int) -> None:
        self.stream_to_end()
        del self.memory[address]

    def stream_to_end(self) -> None:
        while self.stream:
            self.stream.pop(0)()

    def at(self, address: int, size: int | None = None) -> np.ndarray:
        """The device's bytes from an address on, at least `size`, which must lie in one piece of memory."""
        for start, data in self.memory.items():
            if start <= address < start + len(data):
                found = data[address - start :]
                assert size is None or size <= len(found), "beyond the end of memory"
                return found if size is None else found[:size]
        raise AssertionError(f"{address} is not in memory")

    def _cuMemHostAlloc(self, size: int, flags: int) -> int:
        data = np.zeros(size, np.uint8)
        self.pinned[data.ctypes.data] = data
        return data.ctypes.data

    def host(self, address: int, size: int) -> np.ndarray:
        for start, data in self.pinned.items():
            if start <= address and address + size <= start + len(data):
                return data[address - start :][:size]
        raise AssertionError("host memory that is not pinned")

    def _cuMemsetD8Async(self, address: int, value: int, count: int, stream: Any) -> None:
        assert 0 <= value < 256
        self._ask(stream, lambda: self.at(address, count).fill(value))

    def _cuMemsetD32Async(self, address: int, value: int, count: int, stream: Any) -> None:
        assert 0 <= value < 1 << 32 and address % 4 == 0
        self._ask(stream, lambda: self.at(address, 4 * count).view(np.uint32).fill(value))

    def _cuMemcpyHtoDAsync(self, to: int, source: int, count: int, stream: Any) -> None:
        self._ask(stream, lambda: np.copyto(self.at(to, count), self.host(source, count)))

    def _cuMemcpyDtoHAsync(self, to: int, source: int, count: int, stream: Any) -> None:
        self._ask(stream, lambda: np.copyto(self.host(to, count), self.at(source, count)))

    # -- kernels ------------------------------------------------------------------------------------------------------
    def _cuModuleLoadData(self, code: bytes) -> Any:
        assert code.startswith(b"\x7fELF") or b".version" in code
        return real.CUmodule(self.new())

    def _cuModuleGetFunction(self, module: Any, name: bytes) -> Any:
        function = real.CUfunction(self.new())
        self.functions[int(function)] = name.decode()
        return function

    def _cuFuncSetAttribute(self, function: Any, attribute: Any, value: int) -> None:
        assert isinstance(attribute, real.CUfunction_attribute) and value > 48 << 10

    def _cuLaunchKernel(
        self, function: Any, gx: int, gy: int, gz: int, bx: int, by: int, bz: int, shared: int, stream: Any,
        arguments: int, extra: int,
    ) -> None:  # fmt: skip
        assert isinstance(function, real.CUfunction)
        self._ask(stream, self.launch(int(function), (gx, gy, gz), (bx, by, bz), shared, arguments))

    def launch(self, function: int, grid: Any, block: Any, shared: int, arguments: int) -> Callable[[], None]:
        """What carries a launch out; its arguments are read here and now."""
        program = self.programs[self.functions[function]]
        assert min(grid) > 0 and block == program.workgroup and shared == dynamic_shared(program, CUDA)
        count = len(program.params) + bool(program.variables)
        pointers = (ctypes.c_void_p * count).from_address(arguments)
        values = [ctypes.c_uint64.from_address(p).value for p in pointers]

        def work() -> None:
            if program.name in self.faulty:
                self.broken = self.faulty[program.name]
                return
            names = [str(v.arg[0]) for v in program.variables]
            table = self.at(values[-1], 4 * len(names)).view(np.int32).tolist() if names else []
            buffers = [self.at(v) for v in values[: len(program.params)]]
            Executor(program).run(buffers, dict(zip(names, table)), grid)

        return Endless(work) if program.name in self.endless else work

    # -- graphs -------------------------------------------------------------------------------------------------------
    def _cuGraphCreate(self, flags: int) -> Any:
        graph = real.CUgraph(self.new())
        self.graphs[int(graph)] = []
        return graph

    def _cuGraphAddKernelNode(self, graph: Any, before: list[Any], count: int, parameters: Any) -> Any:
        assert len(before) == count
        node = real.CUgraphNode(self.new())
        nodes = self.graphs[int(graph)]
        assert {int(n) for n in before} <= {n["node"] for n in nodes}
        nodes.append(
            {"node": int(node), "before": [int(n) for n in before], "enabled": 1, "work": self._of(parameters)}
        )
        return node

    def _of(self, p: Any) -> Callable[[], None]:
        assert isinstance(p, real.CUDA_KERNEL_NODE_PARAMS)
        grid, block = (p.gridDimX, p.gridDimY, p.gridDimZ), (p.blockDimX, p.blockDimY, p.blockDimZ)
        return self.launch(int(p.func), grid, block, p.sharedMemBytes, int(p.kernelParams))

    def _cuGraphInstantiate(self, graph: Any, flags: int) -> Any:
        executable = real.CUgraphExec(self.new())
        self.graphs[int(executable)] = [dict(n) for n in self.graphs[int(graph)]]
        return executable

    def _cuGraphDestroy(self, graph: Any) -> None:
        del self.graphs[int(graph)]

    def _cuGraphExecDestroy(self, graph: Any) -> None:
        del self.graphs[int(graph)]

    def _node(self, graph: Any, node: Any) -> Any:
        found = next(n for n in self.graphs[int(graph)] if n["node"] == int(node))
        known = [n["node"] for nodes in self.graphs.values() for n in nodes]
        assert known.count(int(node)) > 1, "the graph that the node is of was destroyed"
        return found

    def _cuGraphNodeSetEnabled(self, graph: Any, node: Any, enabled: int) -> None:
        self._node(graph, node)["enabled"] = enabled

    def _cuGraphExecKernelNodeSetParams(self, graph: Any, node: Any, parameters: Any) -> None:
        self._node(graph, node)["work"] = self._of(parameters)

    def _cuGraphLaunch(self, graph: Any, stream: Any) -> None:
        left = [dict(n) for n in self.graphs[int(graph)]]
        while left:  # any order that the edges allow: the last that may go first
            waiting = {n["node"] for n in left}
            ready = [n for n in left if not waiting & set(n["before"])]
            left.remove(ready[-1])
            if ready[-1]["enabled"]:
                self._ask(stream, ready[-1]["work"])


class Refused(Exception):
    """What a function returns instead of a value."""

    def __init__(self, result: Any):
        super().__init__(result)
        self.result = result

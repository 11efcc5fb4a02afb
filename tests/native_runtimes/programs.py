"""Programs written by hand, as lowering would make them, and running one of them on a runtime."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tinyweb.dtype import DType, dtypes
from tinyweb.graph.ir import Axis, BufferArg, Ops, ParamArg, Size, Space, UOp, as_index, toposort
from tinyweb.graph.program import ParamInfo, Program
from tinyweb.native_runtimes.protocol import Executable, Launch, Runtime


def index(value: int) -> UOp:
    return UOp.const(value, dtypes.index)


class Writer:
    """Appends nodes in execution order; constants and other sources come along by themselves."""

    def __init__(self) -> None:
        self.uops: list[UOp] = []
        self._have: set[UOp] = set()
        self._params: list[UOp] = []
        self._buffers = self._ranges = 0

    def emit(self, *nodes: UOp) -> UOp:
        """Compute these nodes here; returns the last."""
        for u in toposort(nodes):
            if u not in self._have:
                self._have.add(u)
                self.uops.append(u)
        return nodes[-1]

    def param(self, dtype: DType, size: int, ahead: int = 0) -> UOp:
        self._params.append(UOp(Ops.PARAM, dtype, (), ParamArg(len(self._params), size, ahead)))
        return self.emit(self._params[-1])

    def buffer(self, dtype: DType, size: int, space: Space = Space.REGISTER) -> UOp:
        self._buffers += 1
        return self.emit(UOp(Ops.BUFFER, dtype, (), BufferArg(space, self._buffers, size)))

    def grid(self, size: Size, dim: int = 0) -> UOp:
        return self.emit(UOp(Ops.SPECIAL, dtypes.index, (as_index(size),), ("grid", dim)))

    def thread(self, size: int, dim: int = 0) -> UOp:
        return self.emit(UOp(Ops.SPECIAL, dtypes.index, (index(size),), ("thread", dim)))

    def loop(self, size: Size) -> UOp:
        self._ranges += 1
        return self.emit(UOp(Ops.RANGE, dtypes.index, (as_index(size),), Axis(f"i{self._ranges}", self._ranges)))

    def end(self, loop: UOp, *dependencies: UOp) -> UOp:
        return self.emit(UOp(Ops.END, dtypes.void, (*dependencies, loop)))

    def load(self, memory: UOp, at: UOp, n: int = 1, gate: UOp | None = None) -> UOp:
        src = (memory, at) if gate is None else (memory, at, gate)
        return self.emit(UOp(Ops.LOAD, memory.dtype, src, n))

    def store(self, memory: UOp, at: UOp, value: UOp, gate: UOp | None = None, kind: str | None = None) -> UOp:
        src = (memory, at, value) if gate is None else (memory, at, value, gate)
        return self.emit(UOp(Ops.STORE, dtypes.void, src, kind))

    def barrier(self, *dependencies: UOp) -> UOp:
        return self.emit(UOp(Ops.BARRIER, dtypes.void, dependencies))

    def program(
        self, name: str, grid: Sequence[Size] = (1, 1, 1), workgroup: tuple[int, int, int] = (1, 1, 1)
    ) -> Program:
        used: dict[int, set[str]] = {p.arg.slot: set() for p in self._params}
        shared = 0
        for u in self.uops:
            if u.op in (Ops.LOAD, Ops.STORE) and (memory := u.src[0].buffer).op is Ops.PARAM:
                used[memory.arg.slot].add("read" if u.op is Ops.LOAD else "atomic" if u.arg else "written")
            if u.op is Ops.BUFFER and u.arg.space is Space.SHARED:
                shared += u.dtype.nbytes(u.arg.size)
        params = tuple(
            ParamInfo(
                p.arg.slot,
                p.dtype,
                p.arg.size,
                "read" in (how := used[p.arg.slot]),
                bool(how - {"read"}),
                "atomic" in how,
            )
            for p in self._params
        )
        variables = {u for u in toposort([*self.uops, *map(as_index, grid)]) if u.op is Ops.VARIABLE}
        by_name = tuple(sorted(variables, key=lambda v: v.arg[0]))
        return Program(name, tuple(self.uops), params, by_name, (grid[0], grid[1], grid[2]), workgroup, shared)


def stack(*values: UOp) -> UOp:
    return UOp(Ops.STACK, values[0].dtype, values)


def splat(value: UOp, n: int) -> UOp:
    return value if n == 1 else stack(*[value] * n)


def execute(
    runtime: Runtime, program: Program, arrays: Sequence[np.ndarray], variables: Mapping[str, int] | None = None
) -> list[np.ndarray]:
    """Run once with copies of `arrays` as buffers; what the buffers then hold."""
    (executable,) = runtime.compile([program])
    return launch(runtime, executable, arrays, variables)


def launch(
    runtime: Runtime, executable: Executable, arrays: Sequence[np.ndarray], variables: Mapping[str, int] | None = None
) -> list[np.ndarray]:
    """Run what is compiled, with copies of `arrays` as buffers; what the buffers then hold."""
    handles = [runtime.allocate(a.nbytes) for a in arrays]
    for h, a in zip(handles, arrays):
        runtime.copy_in(h, memoryview(np.ascontiguousarray(a)).cast("B") if a.size else memoryview(b""))
    runtime.run([Launch(executable, tuple(handles))], variables or {})
    out = [np.frombuffer(runtime.copy_out(h, a.nbytes), a.dtype).reshape(a.shape) for h, a in zip(handles, arrays)]
    for h in handles:
        runtime.free(h)
    return out


def elementwise(
    name: str, inputs: Sequence[DType], output: DType, compute: Callable[..., UOp], count: int, width: int
) -> Program:
    """out[i] = compute(in0[i], in1[i], …), `width` lanes at a time, one grid iteration (or workgroup) each."""
    w = Writer()
    out = w.param(output, count)
    sources = [w.param(t, count) for t in inputs]
    g = w.grid(count // width)
    at = g * width
    loads = [w.load(s, at, width) for s in sources]
    w.store(out, at, compute(*loads))
    return w.program(name, (count // width, 1, 1))

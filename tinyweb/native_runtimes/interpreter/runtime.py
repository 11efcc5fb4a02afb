"""The Runtime protocol on NumPy arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tinyweb.errors import DeviceError
from tinyweb.graph.program import Program
from tinyweb.graph.target import Target, interpreter_target
from tinyweb.native_runtimes.checks import check_launch, check_range, evaluate, variable_values
from tinyweb.native_runtimes.host_memory import available_bytes
from tinyweb.native_runtimes.interpreter.execute import Executor
from tinyweb.native_runtimes.protocol import Launch, Unprepared

Bytes = npt.NDArray[np.uint8]


class InterpreterRuntime(Unprepared):
    """Runs programs of any target: vectors, threads with shared memory, subgroups of a size to choose, and packed
    atomics included.
    """

    name = "INTERPRETER"

    def __init__(self, target: Target | None = None, subgroup: int = 32, index: int = 0):
        self.target = interpreter_target() if target is None else target
        self.subgroup = subgroup

    def allocate(self, nbytes: int, zeroed: bool = True) -> Bytes:
        try:
            # whole words, since packed memory is accessed in words
            return np.zeros(-(-nbytes // 16) * 16, np.uint8)
        except MemoryError:
            raise MemoryError(f"no room for a buffer of {nbytes} bytes") from None

    def free_bytes(self) -> int | None:
        return available_bytes()

    def free(self, handle: Bytes) -> None:
        pass  # the array's last reference frees it

    def copy_in(self, handle: Bytes, data: memoryview, offset: int = 0) -> None:
        data = data.cast("B") if data.nbytes else data
        check_range(handle.size, data.nbytes, offset)
        if data.nbytes:
            handle[offset : offset + data.nbytes] = np.frombuffer(data, np.uint8)

    def copy_out(self, handle: Bytes, nbytes: int, offset: int = 0) -> bytes:
        check_range(handle.size, nbytes, offset)
        return handle[offset : offset + nbytes].tobytes()

    def compile(self, programs: Iterable[Program]) -> list[Executor]:
        return [Executor(p, self.target.language != "c", self.subgroup) for p in programs]

    def run(self, launches: Sequence[Launch], variables: Mapping[str, int]) -> None:
        for launch in launches:
            executor = launch.executable
            if not isinstance(executor, Executor):
                raise DeviceError("the interpreter was given something it did not compile")
            program = executor.program
            check_launch(program, [b.size for b in launch.buffers], [id(b) for b in launch.buffers])
            names = [str(v.arg[0]) for v in program.variables]
            values = dict(zip(names, variable_values(names, variables)))
            grid = [evaluate(size, values) for size in program.grid]
            executor.run(launch.buffers, values, (grid[0], grid[1], grid[2]))

    def synchronize(self) -> None:
        pass

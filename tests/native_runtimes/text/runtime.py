"""The Runtime protocol on this processor, by the text that is written for a GPU: CUDA_TEXT and HIP_TEXT.

What is around each piece of memory is looked at after each launch, and memory that nobody asked to be zero is not.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tests.native_runtimes.text.library import libraries, run
from tinyweb.graph.gpu_targets import amd_target, nvidia_target
from tinyweb.graph.program import Program
from tinyweb.graph.target import Target
from tinyweb.native_runtimes import open as opening
from tinyweb.native_runtimes.checks import check_launch, check_range, evaluate, variable_values
from tinyweb.native_runtimes.protocol import Launch, Unprepared
from tinyweb.render_c import CUDA, HIP, Dialect, render_gpu

GUARD = 256  # bytes on both sides; GPUs begin memory at multiples of so many
TOGETHER = 12  # kernels that are compiled at a time


class Memory:
    """`nbytes` of anything but zeros, and what is around them."""

    def __init__(self, nbytes: int) -> None:
        self.whole = np.full(nbytes + 3 * GUARD, 0xA5, np.uint8)
        begin = GUARD + -self.whole.ctypes.data % GUARD
        self.data: npt.NDArray[np.uint8] = self.whole[begin : begin + nbytes]
        self.address = self.data.ctypes.data
        self._around = self.whole[:begin], self.whole[begin + nbytes :]

    def check(self, kernel: str) -> None:
        """AssertionError where something was written beside it."""
        assert all((side == 0xA5).all() for side in self._around), f"{kernel} wrote beside its memory"


@dataclass(frozen=True)
class Executable:
    """A program and the library that has its kernel."""

    program: Program
    library: ctypes.CDLL


class TextRuntime(Unprepared):
    """A GPU of a target, whose kernels are texts in a dialect."""

    def __init__(self, name: str, target: Target, dialect: Dialect, wave: int = 32) -> None:
        self.name, self.target, self._dialect, self._wave = name, target, dialect, wave
        self._compiled: dict[str, Executable] = {}

    def allocate(self, nbytes: int, zeroed: bool = True) -> Memory:
        try:
            memory = Memory(nbytes)
        except MemoryError:
            raise MemoryError(f"no room for a buffer of {nbytes} bytes") from None
        if zeroed:
            memory.data[:] = 0
        return memory

    def free_bytes(self) -> int | None:
        return None

    def free(self, handle: Memory) -> None:
        handle.data = handle.data[:0]  # the array's last reference frees it

    def copy_in(self, handle: Memory, data: memoryview, offset: int = 0) -> None:
        check_range(handle.data.size, data.nbytes, offset)
        if data.nbytes:
            handle.data[offset : offset + data.nbytes] = np.frombuffer(data.cast("B"), np.uint8)

    def copy_out(self, handle: Memory, nbytes: int, offset: int = 0) -> bytes:
        check_range(handle.data.size, nbytes, offset)
        return handle.data[offset : offset + nbytes].tobytes()

    def compile(self, programs: Iterable[Program]) -> list[Executable]:
        every = list(programs)
        new = list({p.name: p for p in every if p.name not in self._compiled}.values())
        parts = [new[i : i + TOGETHER] for i in range(0, len(new), TOGETHER)]
        sources = [
            (render_gpu(part, self._dialect), tuple((p.name, len(p.params) + bool(p.variables)) for p in part))
            for part in parts
        ]
        for part, built in zip(parts, libraries(sources, self._dialect, self._wave), strict=True):
            self._compiled |= {p.name: Executable(p, built) for p in part}
        return [self._compiled[p.name] for p in every]

    def run(self, launches: Sequence[Launch], variables: Mapping[str, int]) -> None:
        for launch in launches:
            self._launch(launch.executable, launch.buffers, variables)

    def _launch(self, executable: Executable, buffers: Sequence[Memory], variables: Mapping[str, int]) -> None:
        program = executable.program
        check_launch(program, [b.data.size for b in buffers], [b.address for b in buffers])
        names = [str(v.arg[0]) for v in program.variables]
        numbers = np.array(variable_values(names, variables), np.int32)
        grid = [evaluate(size, dict(zip(names, numbers.tolist()))) for size in program.grid]
        addresses = [b.address for b in buffers[: len(program.params)]] + ([numbers.ctypes.data] if names else [])
        if all(grid):
            run(executable.library, program.name, grid, program.workgroup, addresses)
        for b in buffers:
            b.check(program.name)

    def synchronize(self) -> None:
        pass

    @property
    def programs(self) -> list[Program]:
        """All that were compiled."""
        return [e.program for e in self._compiled.values()]


class CudaText(TextRuntime):
    """CUDA C++ as for sm_90."""

    def __init__(self, index: int = 0, arch: str = "sm_90") -> None:
        super().__init__("CUDA_TEXT", nvidia_target(arch), CUDA)


class HipText(TextRuntime):
    """HIP C++ as for gfx1100."""

    def __init__(self, index: int = 0, arch: str = "gfx1100") -> None:
        super().__init__("HIP_TEXT", amd_target(arch), HIP, 32 if arch.startswith("gfx1") else 64)


opening.RUNTIMES |= {"CUDA_TEXT": (__name__, "CudaText"), "HIP_TEXT": (__name__, "HipText")}
TEXTS = ("CUDA_TEXT", "HIP_TEXT")

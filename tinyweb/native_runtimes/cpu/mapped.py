"""The CPU with its memory in temporary files: for weights that wait, and are more than a process should hold.

What is copied in and out leaves the process's resident memory at once; kernels run as they do on the CPU, on pages that
the system drops as it needs the room. The files have no names: they go with the process.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tinyweb.native_runtimes.checks import check_range
from tinyweb.native_runtimes.cpu.runtime import CpuBuffer, CpuRuntime

SMALL = 64 << 10  # bytes below which a buffer is ordinary memory
ARENA = 256 << 20  # bytes of a file, which several buffers share
STEP = 16 << 20  # bytes that are copied before their pages are let go
LASTING = "/var/tmp"  # for what is large, where it is there: the usual folder may itself be memory


class Arena:
    """A temporary file in memory: buffers take it one behind the other, and it goes with the last of them."""

    def __init__(self, nbytes: int) -> None:
        chosen = os.environ.get("TMPDIR") or (LASTING if Path(LASTING).is_dir() else None)
        with tempfile.TemporaryFile(dir=chosen) as file:
            try:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, nbytes)  # or a full disk would end the process later
                else:
                    file.truncate(nbytes)
            except OSError as error:
                error.filename = f"{chosen or tempfile.gettempdir()} (TMPDIR)"
                raise
            self.map = mmap.mmap(file.fileno(), nbytes)
        self.view = memoryview(self.map)
        self.address: int = np.frombuffer(self.view, np.uint8).ctypes.data
        self.used, self.nbytes = 0, nbytes

    def take(self, nbytes: int) -> int | None:
        """Where so many bytes begin, at a page; None where they do not fit."""
        at = self.used
        if at + nbytes > self.nbytes:
            return None
        self.used += -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        return at


class MappedBuffer(CpuBuffer):
    """A part of an arena."""

    def __init__(self, arena: Arena, at: int, nbytes: int) -> None:
        self.arena, self.at = arena, at
        self._memory = arena.view[at : at + nbytes], arena.address + at
        self.use()

    def let_go(self, begin: int, end: int) -> None:
        """Drop the pages of these bytes from the process; the file has them."""
        first = (self.at + begin) // mmap.PAGESIZE * mmap.PAGESIZE
        if hasattr(self.arena.map, "madvise"):
            self.arena.map.madvise(mmap.MADV_DONTNEED, first, self.at + end - first)


class DiskRuntime(CpuRuntime):
    """Runtime (see `native_runtimes.protocol`) of the device DISK. OSError where the disk has no room."""

    name = "DISK"

    def __init__(self, threads: int | None = None, index: int = 0) -> None:
        super().__init__(threads, index)
        self._arena: Arena | None = None

    def allocate(self, nbytes: int, zeroed: bool = True) -> Any:
        if nbytes < SMALL:
            return super().allocate(nbytes, zeroed)
        at = self._arena.take(nbytes) if self._arena is not None else None
        if self._arena is None or at is None:
            self._arena = Arena(max(ARENA, -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE))
            at = self._arena.take(nbytes)
            assert at is not None
        return MappedBuffer(self._arena, at, nbytes)  # new files are zeros

    def free_bytes(self) -> int | None:
        return None

    def _free(self, handle: CpuBuffer) -> None:
        if isinstance(handle, MappedBuffer):
            handle.free()  # its arena goes with the last of its buffers
        else:
            super()._free(handle)

    def copy_in(self, handle: CpuBuffer, data: memoryview, offset: int = 0) -> None:
        check_range(handle.nbytes, data.nbytes, offset)
        source = data.cast("B") if data.nbytes else data
        for begin in range(0, source.nbytes, STEP):
            part = source[begin : begin + STEP]
            super().copy_in(handle, part, offset + begin)
            if isinstance(handle, MappedBuffer):
                handle.let_go(offset + begin, offset + begin + len(part))

    def copy_out(self, handle: CpuBuffer, nbytes: int, offset: int = 0) -> bytes:
        found = super().copy_out(handle, nbytes, offset)
        if isinstance(handle, MappedBuffer) and nbytes:
            handle.let_go(offset, offset + nbytes)
        return found

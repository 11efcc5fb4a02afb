"""The memory behind BUFFER nodes, on one device or several."""

from __future__ import annotations

from typing import ClassVar
from weakref import ref

from tinyweb.dtype import DType
from tinyweb.graph.ir import UOp
from tinyweb.native_runtimes.protocol import Handle, Runtime

_ALWAYS_THERE = 64 << 20  # bytes for which nobody asks how much is left


class Buffer:
    """Device memory for `size` elements of `dtype`, zeros at first, or anything without `zeroed`. It is freed when
    nobody refers to it any more.
    """

    __slots__ = ("__weakref__", "dtype", "handle", "nbytes", "runtime", "size", "version")
    changes: ClassVar[int] = 0  # to memory that something was laid out from, or computed once from

    def __init__(self, runtime: Runtime, size: int, dtype: DType, zeroed: bool = True):
        self.runtime, self.size, self.dtype = runtime, size, dtype
        self.nbytes = -(-dtype.nbytes(size) // 4) * 4  # whole words, as runtimes allocate
        reserve(runtime, self.nbytes, "a buffer")
        self.handle: Handle = runtime.allocate(self.nbytes, zeroed)
        self.version: int | None = None  # counts changes once somebody keeps what was made of it

    @property
    def device(self) -> str:
        """The name of the device that the memory is on."""
        return self.runtime.name

    def fill(self, data: memoryview, offset: int = 0) -> None:
        """Write bytes from the host."""
        self.runtime.copy_in(self.handle, data, offset)
        self.change()

    def read(self, nbytes: int, offset: int = 0) -> bytes:
        """Bytes for the host."""
        return self.runtime.copy_out(self.handle, nbytes, offset)

    def change(self) -> None:
        """Somebody has written to it, or is about to."""
        if self.version is not None:
            self.version += 1
            Buffer.changes += 1

    def __del__(self) -> None:
        # a failed allocation leaves no handle; at interpreter exit the runtime may be gone before its memory
        if hasattr(self, "handle") and self.runtime is not None:
            self.runtime.free(self.handle)


class SpreadBuffer(Buffer):
    """Memory on several devices: a Buffer of each. The host writes to all and reads the first, where each has all."""

    __slots__ = ("parts",)

    def __init__(self, parts: tuple[Buffer, ...], size: int):
        self.parts, self.size, self.dtype = parts, size, parts[0].dtype
        self.runtime, self.nbytes = parts[0].runtime, sum(p.nbytes for p in parts)
        self.handle: Handle = tuple(p.handle for p in parts)
        self.version = None

    @property
    def device(self) -> str:
        return ",".join(p.device for p in self.parts)

    def fill(self, data: memoryview, offset: int = 0) -> None:
        for p in self.parts:
            p.fill(data, offset)

    def read(self, nbytes: int, offset: int = 0) -> bytes:
        return self.parts[0].read(nbytes, offset)

    def change(self) -> None:
        for p in self.parts:
            p.change()

    def __del__(self) -> None:
        pass  # each part gives its own memory back


class _Entry(ref[UOp]):
    """What a BUFFER node stands for, as long as the node lives: its memory, or why it has none any more."""

    __slots__ = ("buffer", "key", "lost")
    key: int
    buffer: Buffer | None
    lost: str | None


class _Buffers:
    """The memory behind BUFFER nodes: the one owner of it beside computations under way. An entry goes with its node.

    Keyed by identity, as nodes are interned: a lookup is one step, and happens for every buffer of every launch.
    """

    def __init__(self) -> None:
        self.entries: dict[int, _Entry] = {}

    def get(self, node: UOp) -> Buffer | None:
        """The memory of a node, None before it has any; RuntimeError where it was withdrawn."""
        entry = self.entries.get(id(node))
        if entry is None:
            return None
        if entry.lost is not None:
            raise RuntimeError(entry.lost)
        return entry.buffer

    def __contains__(self, node: UOp) -> bool:
        entry = self.entries.get(id(node))
        return entry is not None and entry.buffer is not None

    def __len__(self) -> int:
        return len(self.entries)

    def set(self, node: UOp, buffer: Buffer) -> None:
        """From now on `node` stands for this memory."""
        self._put(node, buffer, None)

    def withdraw(self, node: UOp, why: str) -> None:
        """Release the memory of a node that must not be used any more: whoever does is told `why`."""
        self._put(node, None, why)

    def _put(self, node: UOp, buffer: Buffer | None, lost: str | None) -> None:
        entry = _Entry(node, self._leave)
        entry.key, entry.buffer, entry.lost = id(node), buffer, lost
        self.entries[entry.key] = entry

    def _leave(self, entry: _Entry) -> None:
        if self.entries.get(entry.key) is entry:
            del self.entries[entry.key]


BUFFERS = _Buffers()


def reserve(runtime: Runtime, size: int, what: str) -> None:
    """MemoryError where `size` bytes are more than can be had: nothing is swapped out, no process killed."""
    if size < _ALWAYS_THERE:
        return
    free = runtime.free_bytes()
    if free is not None and size > free:
        raise MemoryError(
            f"{what} needs {size} bytes ({size / 2**30:.2f} GiB) on {runtime.name}, which has {free} bytes "
            f"({free / 2**30:.2f} GiB) left"
        )

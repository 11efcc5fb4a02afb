"""Weights into shards: one stream of bytes, cut into files of a fixed size, each with its SHA-256.

Tensors are written one after the other, a piece at a time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO

from tinyweb.errors import ExportError

if TYPE_CHECKING:
    from tinyweb.export.compile import Progress
    from tinyweb.export.memory import Memory

ALIGNMENT = 64  # of every tensor's first byte in its shard: a cache line, and whole words for both targets
MIN_SHARD_BYTES = 4096
MAX_SHARD_BYTES = 2**31 - ALIGNMENT  # what an ArrayBuffer of any browser can hold
DEFAULT_SHARD_BYTES = 16 * 2**20  # any static host and any phone takes files of this size
SHARES, LEAST_SHARE = 16, 2**20  # a loader holds two shards at a time: each is a small part of a small model, too


@dataclass(frozen=True)
class Segment:
    """A piece of a buffer: `bytes` bytes at `offset` of shard number `shard` belong at byte `at` of the buffer."""

    shard: int
    offset: int
    bytes: int
    at: int


@dataclass(frozen=True)
class Shard:
    """One file of weights; `file` is relative to the bundle."""

    file: str
    bytes: int
    sha256: str


def check_shard_bytes(shard_bytes: int) -> int:
    """The size shards are really cut to: `shard_bytes` rounded down to whole cache lines; ExportError out of bounds."""
    if not MIN_SHARD_BYTES <= shard_bytes <= MAX_SHARD_BYTES:
        raise ExportError(
            f"Shards of {shard_bytes} bytes cannot be written: "
            f"choose from {MIN_SHARD_BYTES} to {MAX_SHARD_BYTES} with --shard-bytes."
        )
    return shard_bytes // ALIGNMENT * ALIGNMENT


class ShardWriter:
    """Writes tensors into `bundle`/weights/000.bin and so on. A context manager: leaving it closes the last shard."""

    def __init__(self, bundle: Path, shard_bytes: int = DEFAULT_SHARD_BYTES):
        self.bundle, self.shard_bytes = bundle, check_shard_bytes(shard_bytes)
        self.shards: list[Shard] = []  # the finished ones
        self._file: BinaryIO | None = None
        self._filled = 0  # bytes of the open shard
        self._digest = hashlib.sha256()

    def __enter__(self) -> ShardWriter:
        (self.bundle / "weights").mkdir(parents=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._finish()

    def limit(self, shard_bytes: int) -> None:
        """Cut shards of at most so many bytes; before the first tensor."""
        self.shard_bytes = min(self.shard_bytes, check_shard_bytes(min(shard_bytes, MAX_SHARD_BYTES)))

    def add(self, data: bytes | memoryview | Iterator[bytes | memoryview]) -> list[Segment]:
        """Write one tensor, as a whole or in pieces; the segments that put it together again. Every cut lies at a
        multiple of `ALIGNMENT`."""
        segments: list[Segment] = []
        at = 0
        for piece in (data,) if isinstance(data, bytes | memoryview) else data:
            view = memoryview(piece).cast("B")
            if at == 0 and self._filled % ALIGNMENT and len(view):
                self._write(memoryview(bytes(-self._filled % ALIGNMENT)))
            while len(view):
                if self._filled == self.shard_bytes:
                    self._finish()
                part = view[: self.shard_bytes - self._filled]
                last = segments[-1] if segments else None
                if last and (last.shard, last.offset + last.bytes) == (len(self.shards), self._filled):
                    segments[-1] = replace(last, bytes=last.bytes + len(part))
                else:
                    segments.append(Segment(len(self.shards), self._filled, len(part), at))
                self._write(part)
                at, view = at + len(part), view[len(part) :]
        return segments

    def _write(self, data: memoryview) -> None:
        if self._file is None:
            self._file = (self.bundle / self._name()).open("wb")
        self._file.write(data)
        self._digest.update(data)
        self._filled += len(data)

    def _finish(self) -> None:
        if self._file is None:
            return
        self._file.close()
        self.shards.append(Shard(self._name(), self._filled, self._digest.hexdigest()))
        self._file, self._filled, self._digest = None, 0, hashlib.sha256()

    def _name(self) -> str:
        return f"weights/{len(self.shards):03}.bin"

    @property
    def bytes(self) -> int:
        """Bytes of all finished shards together."""
        return sum(s.bytes for s in self.shards)

    @property
    def sha256(self) -> str:
        """The SHA-256 of the finished shards' hashes (as hexadecimal text, in order): names the weights as a whole."""
        return combined_sha256([s.sha256 for s in self.shards])


def write_weights(writer: ShardWriter, memory: Memory, progress: Progress) -> dict[int, list[Segment]]:
    """Write all weights, one after the other, so that none is held twice; their segments by id."""
    writer.limit(max(LEAST_SHARE, memory.total("weight") // SHARES))
    weights = [(id, n) for id, n in enumerate(memory.named) if n.read is not None]
    segments: dict[int, list[Segment]] = {}
    for done, (id, n) in enumerate(weights):
        progress("writing weights", done, len(weights))
        segments[id] = writer.add(n.content())
    progress("writing weights", len(weights), len(weights))
    return segments


def combined_sha256(hashes: list[str]) -> str:
    """The hash of hashes a manifest carries."""
    return hashlib.sha256("".join(hashes).encode()).hexdigest()

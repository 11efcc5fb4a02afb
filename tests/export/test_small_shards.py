"""Shards of a model: at most a sixteenth of it each, but not below 1 MiB, as a loader holds two at a time."""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path

import pytest

from tests.export.conftest import buffer
from tinyweb.dtype import dtypes
from tinyweb.errors import ExportError
from tinyweb.export.memory import Memory, Named
from tinyweb.export.weights import Segment, ShardWriter, check_shard_bytes, write_weights

MIB = 1 << 20


def model(*sizes: int) -> Memory:
    """Weights of so many bytes, each of one byte of its own, between states that are not written."""

    def read(i: int, at: int, n: int) -> bytes:
        assert at + n <= sizes[i]
        return bytes([i + 1]) * n

    named = []
    for i, n in enumerate(sizes):
        weight = buffer(2 * i, dtypes.uint8, n)
        named.append(Named(f"w{i}", "weight", weight, dtypes.uint8, (n,), n, partial(read, i)))
        named.append(Named(f"s{i}", "state", buffer(2 * i + 1, dtypes.uint8, 999), dtypes.uint8, (999,), 999, None))
    return Memory(tuple(named), (), {n.buffer: i for i, n in enumerate(named)})


@pytest.mark.parametrize(
    ("sizes", "wanted", "cut"),
    [
        ((MIB, MIB + 64, MIB - 100), 16 * MIB, MIB),  # a sixteenth would be less than 1 MiB
        ((5 * MIB, 15 * MIB + 640), 16 * MIB, (20 * MIB + 640) // 16 // 64 * 64),
        ((5 * MIB, 15 * MIB), 65536, 65536),  # as was asked
    ],
)
def test_size_of_shards(tmp_path: Path, sizes: tuple[int, ...], wanted: int, cut: int) -> None:
    told: list[tuple[str, int, int]] = []
    with ShardWriter(tmp_path, wanted) as writer:
        segments = write_weights(writer, model(*sizes), lambda *said: told.append(said))
    assert list(segments) == [2 * i for i in range(len(sizes))]
    assert told == [("writing weights", i, len(sizes)) for i in range(len(sizes) + 1)]
    assert writer.shard_bytes == cut and {s.bytes for s in writer.shards[:-1]} <= {cut}
    assert writer.shards[-1].bytes <= cut and writer.bytes == sum(s.bytes for s in writer.shards)
    whole = [(tmp_path / s.file).read_bytes() for s in writer.shards]
    assert [s.file for s in writer.shards] == [f"weights/{i:03}.bin" for i in range(len(whole))]
    for i, n in enumerate(sizes):
        pieces = segments[2 * i]
        assert b"".join(whole[s.shard][s.offset : s.offset + s.bytes] for s in pieces) == bytes([i + 1]) * n
        assert [s.at for s in pieces] == [sum(p.bytes for p in pieces[:j]) for j in range(len(pieces))]


def test_tensors_begin_at_cache_lines(tmp_path: Path) -> None:
    with ShardWriter(tmp_path, 4096) as writer:
        first, empty, second, third = (writer.add(bytes([7]) * n) for n in (100, 0, 4000, 1))
        writer.limit(1 << 40)  # never more than asked for
        assert writer.shard_bytes == 4096
    assert first == [Segment(0, 0, 100, 0)] and empty == []
    assert second == [Segment(0, 128, 3968, 0), Segment(1, 0, 32, 3968)]
    assert third == [Segment(1, 64, 1, 0)]
    data = [(tmp_path / s.file).read_bytes() for s in writer.shards]
    assert (
        data[0] == bytes([7]) * 100 + bytes(28) + bytes([7]) * 3968 and data[1] == bytes([7]) * 32 + bytes(32) + b"\7"
    )
    hashes = [hashlib.sha256(d).hexdigest() for d in data]
    assert [s.sha256 for s in writer.shards] == hashes
    assert writer.sha256 == hashlib.sha256("".join(hashes).encode()).hexdigest()


def test_bounds_of_the_size() -> None:
    assert [check_shard_bytes(n) for n in (4096, 4097, 4159, 4160, 2**31 - 64)] == [4096, 4096, 4096, 4160, 2**31 - 64]
    for n in (4095, 2**31 - 63):
        with pytest.raises(ExportError, match=f"{n} bytes cannot be written: choose from 4096 to 2147483584"):
            check_shard_bytes(n)

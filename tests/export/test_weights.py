"""Shards: every tensor comes back from its segments, files are full, hashes are right."""

import hashlib
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinyweb.errors import ExportError
from tinyweb.export.weights import (
    ALIGNMENT,
    LEAST_SHARE,
    MIN_SHARD_BYTES,
    SHARES,
    Segment,
    ShardWriter,
    check_shard_bytes,
    combined_sha256,
    write_weights,
)


def write(folder: Path, tensors: list[bytes], shard_bytes: int) -> tuple[ShardWriter, list[list[Segment]]]:
    with ShardWriter(folder, shard_bytes) as writer:
        segments = [writer.add(t) for t in tensors]
    return writer, segments


def read_back(folder: Path, writer: ShardWriter, segments: list[Segment]) -> bytes:
    out = bytearray(sum(s.bytes for s in segments))
    for s in segments:
        data = (folder / writer.shards[s.shard].file).read_bytes()
        out[s.at : s.at + s.bytes] = data[s.offset : s.offset + s.bytes]
    return bytes(out)


@settings(max_examples=60)
@given(sizes=st.lists(st.integers(0, 20000), max_size=8), shard_bytes=st.integers(MIN_SHARD_BYTES, 9000))
def test_every_tensor_comes_back(tmp_path_factory: pytest.TempPathFactory, sizes: list[int], shard_bytes: int) -> None:
    folder = tmp_path_factory.mktemp("bundle")
    tensors = [bytes((i * 7 + j) % 251 for j in range(size)) for i, size in enumerate(sizes)]
    writer, segments = write(folder, tensors, shard_bytes)
    for tensor, pieces in zip(tensors, segments, strict=True):
        assert read_back(folder, writer, pieces) == tensor
        assert [p.at for p in pieces] == [sum(q.bytes for q in pieces[:i]) for i in range(len(pieces))]
        assert all(p.at % ALIGNMENT == 0 and p.offset % ALIGNMENT == 0 and p.bytes > 0 for p in pieces)
    cut = shard_bytes // ALIGNMENT * ALIGNMENT
    files = sorted(p.name for p in (folder / "weights").iterdir())
    assert files == [Path(s.file).name for s in writer.shards]
    for i, shard in enumerate(writer.shards):
        data = (folder / shard.file).read_bytes()
        assert len(data) == shard.bytes and hashlib.sha256(data).hexdigest() == shard.sha256
        assert shard.bytes == cut if i < len(writer.shards) - 1 else 0 < shard.bytes <= cut
    assert writer.bytes == sum(s.bytes for s in writer.shards)
    assert writer.sha256 == combined_sha256([s.sha256 for s in writer.shards])


def test_shards_of_a_small_model_are_a_small_part_of_it(tmp_path: Path) -> None:
    """A loader holds two shards at a time."""
    for total, wanted, cut in ((1000, 2**24, 2**20), (2**25, 2**24, 2**21), (2**29, 2**24, 2**24), (2**25, 8192, 8192)):
        writer = ShardWriter(tmp_path, wanted)
        writer.limit(max(LEAST_SHARE, total // SHARES))
        assert writer.shard_bytes == cut


def test_no_weights_at_all(tmp_path: Path) -> None:
    writer, _ = write(tmp_path, [b""], MIN_SHARD_BYTES)
    assert writer.shards == [] and writer.bytes == 0


@pytest.mark.parametrize(
    ("size", "cut"), [(4096, 4096), (4097, 4096), (4159, 4096), (4160, 4160), (2**31 - 64, 2**31 - 64), (2**24, 2**24)]
)
def test_sizes_are_whole_cache_lines(size: int, cut: int, tmp_path: Path) -> None:
    assert check_shard_bytes(size) == cut == ShardWriter(tmp_path, size).shard_bytes
    assert ShardWriter(tmp_path).shard_bytes == 2**24


def test_where_segments_lie(tmp_path: Path) -> None:
    """Each tensor begins at a multiple of 64 bytes; one that goes on in the next shard begins there at 0."""
    tensors = [b"a" * 10, b"", b"b" * 64, b"c" * 4000, b"d" * 8192, b"e"]
    writer, segments = write(tmp_path, tensors, 4100)
    assert segments == [
        [Segment(0, 0, 10, 0)], [], [Segment(0, 64, 64, 0)], [Segment(0, 128, 3968, 0), Segment(1, 0, 32, 3968)],
        [Segment(1, 64, 4032, 0), Segment(2, 0, 4096, 4032), Segment(3, 0, 64, 8128)], [Segment(3, 64, 1, 0)],
    ]  # fmt: skip
    assert [(s.file, s.bytes) for s in writer.shards] == [
        ("weights/000.bin", 4096), ("weights/001.bin", 4096), ("weights/002.bin", 4096), ("weights/003.bin", 65)
    ]  # fmt: skip
    first = (tmp_path / "weights/000.bin").read_bytes()
    assert first == b"a" * 10 + bytes(54) + b"b" * 64 + b"c" * 3968
    assert writer.shards[0].sha256 == hashlib.sha256(first).hexdigest() and writer.bytes == 3 * 4096 + 65
    assert combined_sha256(["ab", "c"]) == hashlib.sha256(b"abc").hexdigest()
    with pytest.raises(FileExistsError):
        write(tmp_path, [], 4096)
    matrix = memoryview(bytes(range(8))).cast("H")
    with ShardWriter(tmp_path / "deeper" / "still") as other:
        assert other.add(matrix) == [Segment(0, 0, 8, 0)]


def test_writing_all_weights(tmp_path: Path) -> None:
    """What has nothing to be read is no weight; progress is told before each; shards are a sixteenth, or 1 MiB."""
    told: list[tuple[str, int, int]] = []
    contents: tuple[list[bytes] | None, ...] = ([b"x" * 60, b"x" * 40], None, [b"y", b"y" * 2**20])
    named = [SimpleNamespace(read=c, content=lambda c=c: iter(c)) for c in contents]
    for total, cut in ((2**24, 2**20), (2**24 + 16 * 64, 2**20 + 64), (5, 2**20), (2**40, 2**22)):
        memory = SimpleNamespace(named=named, total=lambda kind, total=total: total if kind == "weight" else 0)
        with ShardWriter(tmp_path / str(total), 2**22) as writer:
            segments = write_weights(writer, memory, lambda *what: told.append(what))
        assert writer.shard_bytes == cut and list(segments) == [0, 2]
        assert segments[0] == [Segment(0, 0, 100, 0)] and segments[2][0] == Segment(
            0, 128, min(cut - 128, 2**20 + 1), 0
        )
    assert told[:3] == [("writing weights", i, 2) for i in range(3)]


@pytest.mark.parametrize("size", [-1, 0, 4095, 2**31 - 63, 2**31])
def test_sizes_that_cannot_be(size: int) -> None:
    with pytest.raises(ExportError, match="--shard-bytes"):
        check_shard_bytes(size)

"""Shards: every tensor comes back from its segments, files are full, hashes are right."""

import hashlib
from pathlib import Path

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


@pytest.mark.parametrize("size", [-1, 0, MIN_SHARD_BYTES - 1, 2**31])
def test_sizes_that_cannot_be(size: int) -> None:
    with pytest.raises(ExportError, match="--shard-bytes"):
        check_shard_bytes(size)

"""Files of text: what cannot be one is said, and how it is divided."""

from pathlib import Path

import numpy as np
import pytest

from tinyweb.errors import TinywebError
from tinyweb.quantization.texts import blocks, hold_out, read_text, spread


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "--calibrate .*text.txt does not exist: give a file of plain text"),
        (b"", "is empty: give a file of text"),
        (b" \n\t \n", "is empty"),
        (b"\x00\x01\x02", "is no plain text"),
        (b"\xff\xfe\x80 words", "is no plain text"),
        (b"PK\x03\x04\x00\x00", "is no plain text"),
    ],
)
def test_files_that_are_no_text(content: bytes | None, said: str, tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(TinywebError, match=said):
        read_text(path, "--calibrate")
    with pytest.raises(TinywebError, match="is a folder"):
        read_text(tmp_path, "--evaluate")


def test_a_file_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tinyweb.quantization.texts.MOST_BYTES", 3)
    (tmp_path / "text.txt").write_text("four")
    with pytest.raises(TinywebError, match="give a part"):
        read_text(tmp_path / "text.txt", "--evaluate")


@pytest.mark.parametrize("bos", [None, 7])
@pytest.mark.parametrize("count", [128, 200, 1024, 5000])
def test_blocks(count: int, bos: int | None) -> None:
    ids = list(range(100, 100 + count))
    found = blocks(ids, 512, bos, 4, "the text")
    assert len(found) >= 4 and len({len(b) for b in found}) == 1 and len(found[0]) <= 256
    assert all(b[0] == bos for b in found if bos is not None)
    joined = np.concatenate([b[bos is not None :] for b in found])
    assert joined.tolist() == ids[: len(joined)] and count - len(joined) < len(found[0])
    fitted, held = hold_out(found)
    assert len(fitted) + len(held) == len(found) and held[-1] is found[-1] and fitted
    assert len(spread(found, 3)) == 3 and spread(found, 3)[0] is found[0]


def test_too_few_tokens() -> None:
    with pytest.raises(TinywebError, match="--calibrate has 100 tokens, too few to say anything: give at least 128"):
        blocks(list(range(100)), 512, None, 4, "--calibrate")
    with pytest.raises(TinywebError, match="blocks of 2 tokens: choose a larger --context"):
        blocks(list(range(200)), 2, 1, 4, "--calibrate")

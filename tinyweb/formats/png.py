"""Writing PNG files: 8 bits for each of red, green and blue, with texts."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

SIGNATURE = b"\x89PNG\r\n\x1a\n"


def write_png(path: str | Path, picture: npt.NDArray[np.uint8], texts: Mapping[str, str] | None = None) -> None:
    """Write a picture (H, W, 3), uint8. `texts`: keyword (1 to 79 Latin-1 characters) → text, as any viewer of
    metadata shows it; text beyond Latin-1 goes into a chunk of UTF-8."""
    if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3 or 0 in picture.shape:
        raise ValueError(f"write_png: needs uint8 (H, W, 3), got {picture.dtype} {picture.shape}")
    height, width, _ = picture.shape
    # filter 2: each row as differences to the row above, which smooth pictures compress well
    above = np.vstack([np.zeros((1, width * 3), np.uint8), picture.reshape(height, -1)[:-1]])
    rows = np.empty((height, 1 + width * 3), np.uint8)
    rows[:, 0], rows[:, 1:] = 2, picture.reshape(height, -1) - above
    data = SIGNATURE + _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    for keyword, text in (texts or {}).items():
        data += _text(keyword, text)
    Path(path).write_bytes(data + _chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)) + _chunk(b"IEND", b""))


def _text(keyword: str, text: str) -> bytes:
    key = keyword.encode("latin-1")
    if not 1 <= len(key) <= 79:
        raise ValueError(f"write_png: a keyword has 1 to 79 characters, got {keyword!r}")
    try:
        return _chunk(b"tEXt", key + b"\0" + text.encode("latin-1"))
    except UnicodeEncodeError:
        return _chunk(b"iTXt", key + b"\0\0\0\0\0" + text.encode())


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

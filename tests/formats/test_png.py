"""PNG files as Pillow reads them."""

import re
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tinyweb.errors import ModelFormatError
from tinyweb.formats.images import cover, read_image
from tinyweb.formats.png import write_png


@pytest.mark.parametrize("shape", [(1, 1, 3), (5, 7, 3), (64, 33, 3)])
def test_what_was_written_is_read(shape: tuple[int, int, int], tmp_path: Path) -> None:
    picture = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    texts = {"parameters": "a café\nSteps: 4", "tinyweb": '{"prompt": "猫"}', "Software": "tinyweb"}
    write_png(tmp_path / "a.png", picture, texts)
    with Image.open(tmp_path / "a.png") as image:
        image.verify()
    with Image.open(tmp_path / "a.png") as image:
        assert image.mode == "RGB" and dict(getattr(image, "text")) == texts  # noqa: B009
    assert np.array_equal(read_image(tmp_path / "a.png"), picture)


def test_refusals(tmp_path: Path) -> None:
    for wrong in (np.zeros((2, 2, 4), np.uint8), np.zeros((2, 2, 3)), np.zeros((0, 2, 3), np.uint8)):
        with pytest.raises(ValueError, match="needs uint8"):
            write_png(tmp_path / "a.png", wrong)
    with pytest.raises(ValueError, match="1 to 79 characters"):
        write_png(tmp_path / "a.png", np.zeros((1, 1, 3), np.uint8), {"": "x"})


def test_cover() -> None:
    picture = np.zeros((10, 40, 3), np.uint8)
    picture[:, 10:30] = 200  # the middle is what is left of a wide picture
    assert cover(picture, 20, 20).shape == (20, 20, 3) and (cover(picture, 20, 20)[:, 2:-2] > 150).all()


def test_bytes_of_a_file(tmp_path: Path) -> None:
    """Every chunk as the standard has it: filter 2 in each row, the keyword's end, language and translation empty."""
    picture = np.array([[[1, 2, 3], [4, 5, 6]], [[7, 5, 3], [0, 255, 9]]], np.uint8)
    write_png(tmp_path / "a.png", picture, {"k" * 79: "x", "é": "猫"})
    data, chunks = (tmp_path / "a.png").read_bytes(), []
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at = 8
    while at < len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        content = data[at + 8 : at + 8 + size]
        assert struct.unpack_from(">I", data, at + 8 + size)[0] == zlib.crc32(kind + content)
        chunks.append((kind, content))
        at += 12 + size
    assert at == len(data) and [kind for kind, _ in chunks] == [b"IHDR", b"tEXt", b"iTXt", b"IDAT", b"IEND"]
    assert chunks[0][1] == struct.pack(">II", 2, 2) + bytes([8, 2, 0, 0, 0]) and chunks[4][1] == b""
    assert chunks[1][1] == b"k" * 79 + b"\0x" and chunks[2][1] == b"\xe9\0\0\0\0\0" + "猫".encode()
    rows = bytes([2, 1, 2, 3, 4, 5, 6, 2, 6, 3, 0, 252, 250, 3])
    assert zlib.decompress(chunks[3][1]) == rows and chunks[3][1] == zlib.compress(rows, 9)
    with pytest.raises(ValueError, match="1 to 79 characters"):
        write_png(tmp_path / "a.png", picture, {"k" * 80: "x"})
    with pytest.raises(UnicodeEncodeError):
        write_png(tmp_path / "a.png", picture, {"猫": "x"})
    for wrong in (np.zeros((2, 3), np.uint8), np.zeros((2, 0, 3), np.uint8), np.zeros((1, 2, 2, 3), np.uint8)):
        with pytest.raises(ValueError, match=re.escape(f"needs uint8 (H, W, 3), got uint8 {wrong.shape}")):
            write_png(tmp_path / "a.png", wrong)


def test_pictures_of_every_kind(tmp_path: Path) -> None:
    """What is transparent shows white paper, turned pictures are turned back, of an animation the first counts."""
    path = tmp_path / "a.png"
    Image.new("RGBA", (1, 1), (255, 0, 0, 0)).save(path)
    assert read_image(path).tolist() == [[[255, 255, 255]]]
    Image.new("RGBA", (2, 1), (255, 0, 0, 255)).save(path)
    assert read_image(path).tolist() == [[[255, 0, 0]] * 2]
    Image.new("L", (1, 2), 7).save(path)
    assert read_image(path).tolist() == [[[7, 7, 7]]] * 2
    turned = Image.fromarray(np.array([[[9, 0, 0], [0, 9, 0]]], np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    turned.save(path, exif=exif)
    assert read_image(path).tolist() == [[[9, 0, 0]], [[0, 9, 0]]]
    frames = [Image.new("RGB", (1, 1), c) for c in ("red", "blue")]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert read_image(tmp_path / "a.gif").tolist() == [[[255, 0, 0]]]


def test_pictures_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelFormatError, match="cannot be read: No such file"):
        read_image(tmp_path / "none.png")
    (tmp_path / "a.png").write_bytes(b"hello")
    with pytest.raises(ModelFormatError, match="is no picture that can be read: use PNG, JPEG, WebP, GIF or BMP"):
        read_image(tmp_path / "a.png")
    Image.new("RGB", (1, 1)).save(tmp_path / "a.tiff")  # what Pillow could read, too
    with pytest.raises(ModelFormatError, match="is no picture that can be read"):
        read_image(tmp_path / "a.tiff")
    write_png(tmp_path / "a.png", np.zeros((9, 11, 3), np.uint8))
    whole = (tmp_path / "a.png").read_bytes()
    (tmp_path / "a.png").write_bytes(whole[:45])
    with pytest.raises(ModelFormatError, match=r"a\.png cannot be read: .+"):
        read_image(tmp_path / "a.png")
    monkeypatch.setattr("tinyweb.formats.images.MAX_PIXELS", 99)
    (tmp_path / "a.png").write_bytes(whole)
    assert read_image(tmp_path / "a.png").shape == (9, 11, 3)
    monkeypatch.setattr("tinyweb.formats.images.MAX_PIXELS", 98)
    with pytest.raises(ModelFormatError, match="has 11×9 pixels, too many for a picture; refused"):
        read_image(tmp_path / "a.png")


def sized(path: Path, width: int, height: int) -> Path:
    """A file that says how large its picture is, and has none."""
    write_png(path, np.zeros((1, 1, 3), np.uint8))
    data = bytearray(path.read_bytes())
    data[16:24] = struct.pack(">II", width, height)
    data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))
    path.write_bytes(data)
    return path


def test_a_hundred_million_pixels(tmp_path: Path) -> None:
    with pytest.raises(ModelFormatError, match="has 100000001×1 pixels, too many"):
        read_image(sized(tmp_path / "a.png", 100_000_001, 1))
    with pytest.raises(ModelFormatError, match="has too many pixels for a picture; refused"):
        read_image(sized(tmp_path / "a.png", 100_000, 100_000))

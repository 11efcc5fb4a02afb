"""PNG files as Pillow reads them."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

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

"""Pictures scaled as Pillow does it."""

import numpy as np
import pytest
from PIL import Image

from tinyweb.formats.resize import resize

SIZES = [
    ((40, 30), (224, 224)),
    ((41, 30), (28, 28)),
    ((60, 60), (20, 40)),
    ((120, 300), (37, 61)),
    ((100, 100), (100, 50)),
    ((7, 9), (5, 9)),
    ((1, 1), (4, 3)),
]


@pytest.mark.parametrize(("number", "name"), [(1, "lanczos"), (2, "bilinear"), (3, "bicubic")])
@pytest.mark.parametrize(("have", "want"), SIZES)
def test_against_pillow(number: int, name: str, have: tuple[int, int], want: tuple[int, int]) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (*have, 3)).astype(np.uint8)
    height, width = want
    theirs = np.asarray(Image.fromarray(pixels).resize((width, height), number)).astype(int)
    ours = resize(pixels, height, width, name)
    assert ours.dtype == np.uint8 and ours.shape == (height, width, 3)
    np.testing.assert_array_equal(ours, theirs)


def test_a_filter_that_is_none() -> None:
    with pytest.raises(KeyError):
        resize(np.zeros((2, 2, 3), np.uint8), 1, 1, "nearest")

"""Reading picture files, with Pillow where it is installed (`pip install tinyweb[images]`)."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tinyweb.errors import ModelFormatError, TinywebError

MAX_PIXELS = 100_000_000
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")


def read_image(path: str | Path) -> npt.NDArray[np.uint8]:
    """A picture uint8 (H, W, 3), the right way up, what is transparent in front of white as in a page; of an animation
    the first image. ModelFormatError where it cannot be read."""
    try:
        from PIL import Image, ImageOps, UnidentifiedImageError
    except ImportError:
        raise TinywebError("reading picture files needs Pillow: pip install pillow") from None
    try:
        # of doubtful metadata
        with warnings.catch_warnings(action="ignore"), Image.open(path, formats=FORMATS) as image:
            if image.width * image.height > MAX_PIXELS:
                size = f"{image.width}×{image.height}"
                raise ModelFormatError(f"{path} has {size} pixels, too many for a picture; refused")
            upright = ImageOps.exif_transpose(image)
            if upright.has_transparency_data:
                paper = Image.new("RGBA", upright.size, "white")
                upright = Image.alpha_composite(paper, upright.convert("RGBA"))
            return np.array(upright.convert("RGB"))
    except UnidentifiedImageError:
        raise ModelFormatError(f"{path} is no picture that can be read: use PNG, JPEG, WebP, GIF or BMP") from None
    except Image.DecompressionBombError:
        raise ModelFormatError(f"{path} has too many pixels for a picture; refused") from None
    except (OSError, SyntaxError, ValueError, EOFError) as e:
        why = e.strerror if isinstance(e, OSError) and e.strerror else str(e)
        raise ModelFormatError(f"{path} cannot be read: {why}") from None


def cover(pixels: npt.NDArray[np.uint8], width: int, height: int) -> npt.NDArray[np.uint8]:
    """A picture (H, W, 3) scaled until it covers (height, width), and cut evenly at the edges."""
    from PIL import Image, ImageOps

    return np.array(ImageOps.fit(Image.fromarray(pixels), (width, height), Image.Resampling.LANCZOS))

"""Image files, decoded on the host."""

from __future__ import annotations

import io

import numpy as np

from tinyweb.formats.onnx.call import Call, Host
from tinyweb.formats.onnx.registry import op

MAX_PIXELS = 1 << 28
FORMATS = ("BMP", "JPEG", "JPEG2000", "TIFF", "PNG", "WEBP", "PPM")


@op("ImageDecoder", host=(0,))
def image_decoder(call: Call, data: Host) -> Host:
    """What cannot be decoded gives an image without pixels, as the operator says."""
    form = call.choice("pixel_format", "RGB", ("RGB", "BGR", "Grayscale"))
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise call.unsupported("image files are decoded by Pillow: pip install 'tinyweb[images]'") from None
    channels = 1 if form == "Grayscale" else 3
    try:
        image = Image.open(io.BytesIO(data.astype(np.uint8).tobytes()), formats=FORMATS)
        if image.width * image.height > MAX_PIXELS:
            raise call.unsupported(f"an image of {image.width} × {image.height} pixels")
        pixels = np.array(image.convert("L" if channels == 1 else "RGB"))
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        return np.zeros((0, 0, channels), np.uint8)
    pixels = pixels.reshape(*pixels.shape[:2], channels)
    return pixels[:, :, ::-1].copy() if form == "BGR" else pixels

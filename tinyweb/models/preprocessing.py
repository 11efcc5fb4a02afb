"""What a picture goes through before a network reads it, by a model's preprocessor_config.json."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tinyweb.errors import ModelFormatError
from tinyweb.formats.huggingface import Config, ModelFolder
from tinyweb.formats.resize import resize

RESAMPLING = {1: "lanczos", 2: "bilinear", 3: "bicubic"}  # Pillow's numbers
CLIP_COLOURS = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
HALVES = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
MOST = 1 << 12  # pixels of a side that a network reads
LONGEST = 1 << 16  # of a picture that was scaled to it


@dataclass(frozen=True)
class Preprocessing:
    """A picture is scaled with a `filter` so that its shorter side has `shortest` pixels, or, where that is None, to
    the square of `size` itself; its middle is cut out; then (x · scale − mean) / deviation for each colour."""

    size: int
    shortest: int | None
    filter: str
    scale: float
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @classmethod
    def of_folder(cls, folder: ModelFolder, size: int, clip: bool) -> Self:
        """What preprocessor_config.json says, or, without it, what is usual: for CLIP (`clip`), or for SigLIP.
        ModelFormatError for what is not supported. `size`: what the network reads."""
        c = _preprocessor(folder)
        for key in ("do_resize", "do_rescale", "do_normalize"):
            if not c.flag(key, True):
                raise ModelFormatError(f"{c.where}: {key!r} false is not supported")
        if c.flag("do_pad", False):
            raise ModelFormatError(f"{c.where}: 'do_pad' is not supported")
        crops = c.flag("do_center_crop", clip)
        shortest, wide = _size(c, "size", {"shortest_edge": size} if clip else {"height": size, "width": size})
        if crops:
            _, cut = _size(c, "crop_size", {"height": size, "width": size})
            if (shortest or wide) < cut:
                raise ModelFormatError(f"{c.where}: 'crop_size' is larger than what pictures are scaled to")
            if shortest is None and wide != cut:
                raise ModelFormatError(f"{c.where}: a part of a picture scaled to a square is not supported")
            wide = cut
        elif shortest is not None:
            raise ModelFormatError(f"{c.where}: pictures that are not cut to squares are not supported")
        if wide != size:
            raise ModelFormatError(f"{c.where}: pictures get {wide} pixels a side, but the network reads {size}")
        number = c.integer("resample", 0, 5, 3)
        if number not in RESAMPLING:
            known = ", ".join(f"{n} ({name})" for n, name in RESAMPLING.items())
            raise ModelFormatError(f"{c.where}: 'resample' {number} is not supported; known: {known}")
        mean, deviation = CLIP_COLOURS if clip else HALVES
        return cls(
            size, shortest, RESAMPLING[number], c.number("rescale_factor", 1e-6, 1e6, 1 / 255),
            _colours(c, "image_mean", mean, -1e6), _colours(c, "image_std", deviation, 1e-6),
        )  # fmt: skip

    def __call__(self, picture: Any) -> npt.NDArray[np.uint8]:
        """uint8 (size, size, 3) of a picture: an array uint8 (H, W, 3) or (H, W), or what has Pillow's `convert`."""
        pixels = np.asarray(picture.convert("RGB") if hasattr(picture, "convert") else picture)
        if pixels.ndim == 2:
            pixels = np.repeat(pixels[..., None], 3, -1)
        if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3 or 0 in pixels.shape:
            raise ValueError(f"a picture is uint8 of shape (height, width, 3), got {pixels.dtype} {pixels.shape}")
        height, width = self.scaled(*pixels.shape[:2])
        if max(height, width) > LONGEST:
            raise ValueError(f"a picture of {pixels.shape[1]} × {pixels.shape[0]} pixels is too long for its width")
        scaled = resize(pixels, height, width, self.filter)
        top, left = (height - self.size) // 2, (width - self.size) // 2
        return np.ascontiguousarray(scaled[top : top + self.size, left : left + self.size])

    def scaled(self, height: int, width: int) -> tuple[int, int]:
        """What a picture of this size is scaled to, before its middle is cut out."""
        if self.shortest is None:
            return self.size, self.size
        if width <= height:
            return int(self.shortest * height / width), self.shortest
        return self.shortest, int(self.shortest * width / height)


def _preprocessor(folder: ModelFolder) -> Config:
    if folder.text("preprocessor_config.json") is not None:
        return folder.read_config("preprocessor_config.json")
    both = folder.read_config("processor_config.json", required=False)
    return both.section("image_processor") or Config({}, both.where)


def _size(c: Config, key: str, usual: dict[str, int]) -> tuple[int | None, int]:
    """(pixels of the shorter side or None, pixels of a square's side)."""
    value = c.values.get(key)
    if type(value) is int:
        value = {"shortest_edge": value} if key == "size" and "shortest_edge" in usual else dict.fromkeys(usual, value)
    section = Config({key: value}, c.where).section(key)
    found = usual if section is None else section.values
    sizes = Config({k: v for k, v in found.items() if v is not None}, f"{c.where}, {key}")
    if set(sizes.values) == {"shortest_edge"}:
        short = sizes.integer("shortest_edge", 1, MOST)
        return short, short
    height, width = sizes.integer("height", 1, MOST), sizes.integer("width", 1, MOST)
    if height != width or set(sizes.values) != {"height", "width"}:
        raise ModelFormatError(f"{c.where}: {key!r} {str(value)[:60]} is not supported, only squares")
    return None, width


def _colours(c: Config, key: str, usual: tuple[float, ...], low: float) -> tuple[float, ...]:
    value = c.values.get(key)
    if value is None:
        return usual
    each = value if isinstance(value, list) else [value] * 3
    if len(each) != 3:
        raise ModelFormatError(f"{c.where}: {key!r} must be 3 numbers, one for each colour")
    return tuple(Config({key: v}, c.where).number(key, low, 1e6) for v in each)

"""Images (…, C, H, W) with values in [0, 1], and boxes in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from tinyweb.array.core import TensorCore
from tinyweb.array.resampling import Resampling
from tinyweb.dtype import dtypes

BOX_FORMATS = ("xyxy", "xywh", "cxcywh")
GRAY = (0.299, 0.587, 0.114)  # ITU-R BT.601


class Image(Resampling):
    """From bytes to a model's input, and the geometry of boxes (…, 4)."""

    __slots__ = ()

    # -- images -------------------------------------------------------------------------------------------------------
    @classmethod
    def image_from_bytes(cls, data: Any, height: int, width: int, channels: int = 3, device: str | None = None) -> Self:
        """Raw 8-bit pixels, row by row, channels interleaved, as float32 (channels, height, width) in [0, 1]."""
        pixels = np.frombuffer(data, np.uint8)
        if pixels.size != height * width * channels:
            raise ValueError(
                f"image_from_bytes: {height} × {width} × {channels} pixels take {height * width * channels} bytes, got "
                f"{pixels.size}"
            )
        stored = cls(pixels.reshape(height, width, channels), device=device)
        return stored.permute(2, 0, 1).cast(dtypes.float32).div(255.0)

    def _image(self, method: str) -> tuple[int, int]:
        if self.ndim < 3:
            raise ValueError(f"{method}: needs (…, C, H, W), got {self.shape}")
        return self._fixed(self.ndim - 2, method), self._fixed(self.ndim - 1, method)

    def resize(self, size: int | Sequence[int], mode: str = "bilinear", antialias: bool = True) -> Self:
        """Resized to (height, width), or so that the shorter edge is `size`; see `interpolate`."""
        h, w = self._image("resize")
        if isinstance(size, int):
            short = min(h, w)
            size = (max(size * h // short, 1), max(size * w // short, 1))
        plane = self.reshape(1, -1, h, w) if self.ndim != 4 else self
        smooth = antialias and mode in ("linear", "bilinear", "bicubic")
        resized = plane.interpolate(tuple(size), mode=mode, antialias=smooth)
        return resized.reshape(*self.shape[:-2], *size)

    def crop(self, top: int, left: int, height: int, width: int) -> Self:
        """The part of `height` × `width` that begins at (top, left); zeros where it leaves the image."""
        h, w = self._image("crop")
        if height < 0 or width < 0:
            raise ValueError(f"crop: height and width must not be negative, got {height} and {width}")
        around = [(-top, top + height - h), (-left, left + width - w)]
        grown = self.pad([*((0, 0),) * (self.ndim - 2), *((max(b, 0), max(a, 0)) for b, a in around)])
        y, x = max(top, 0), max(left, 0)
        y, x = (y if top >= 0 else 0), (x if left >= 0 else 0)
        return grown.shrink([*(None,) * (self.ndim - 2), (y, y + height), (x, x + width)])

    def center_crop(self, size: int | Sequence[int]) -> Self:
        """The middle, of (height, width); zeros around where the image is smaller."""
        h, w = self._image("center_crop")
        height, width = (size, size) if isinstance(size, int) else size
        return self.crop(round((h - height) / 2), round((w - width) / 2), height, width)

    def hflip(self) -> Self:
        """Left and right exchanged."""
        return self.flip(-1)

    def vflip(self) -> Self:
        """Top and bottom exchanged."""
        return self.flip(-2)

    def normalize_channels(self, mean: Sequence[float], std: Sequence[float]) -> Self:
        """(x - mean) / std of each channel."""
        self._image("normalize_channels")
        c = self.shape[-3]
        if len(mean) != c or len(std) != c or any(s == 0 for s in std):
            raise ValueError(f"normalize_channels: needs {c} means and {c} deviations (not 0), got {mean} and {std}")
        x = self._floating()
        shift, scale = (
            x._operand(np.asarray(v, np.float32), "normalize_channels")._reshape((c, 1, 1)) for v in (mean, std)
        )
        return x.sub(shift).div(scale).cast(x.dtype)

    def rgb_to_grayscale(self, channels: int = 1) -> Self:
        """The luminance of (…, 3, H, W), once or `channels` times."""
        if self.ndim < 3 or self.shape[-3] != 3:
            raise ValueError(f"rgb_to_grayscale: needs (…, 3, H, W), got {self.shape}")
        x = self._floating()
        factors = x._operand(np.asarray(GRAY, np.float32), "rgb_to_grayscale")._reshape((3, 1, 1)).cast(x.dtype)
        gray = x.mul(factors).sum(-3, keepdim=True)
        return gray.expand(*self.shape[:-3], channels, *self.shape[-2:])

    def grayscale_to_rgb(self) -> Self:
        """(…, 1, H, W) → (…, 3, H, W)."""
        if self.ndim < 3 or self.shape[-3] != 1:
            raise ValueError(f"grayscale_to_rgb: needs (…, 1, H, W), got {self.shape}")
        return self.expand(*self.shape[:-3], 3, *self.shape[-2:])

    def letterbox(
        self, size: int | Sequence[int], value: float = 114 / 255, mode: str = "bilinear"
    ) -> tuple[Self, float, tuple[int, int]]:
        """Resized, in proportion, to fit into (height, width), `value` around: the image, the factor, and (left, top).

        A point (x, y) of the original is at (x · factor + left, y · factor + top).
        """
        h, w = self._image("letterbox")
        height, width = (size, size) if isinstance(size, int) else size
        factor = min(height / h, width / w)
        inner = (max(round(h * factor), 1), max(round(w * factor), 1))
        top, left = (height - inner[0]) // 2, (width - inner[1]) // 2
        around = ((top, height - inner[0] - top), (left, width - inner[1] - left))
        image = self._floating().resize(inner, mode)
        return image.pad([*((0, 0),) * (self.ndim - 2), *around], value=value), factor, (left, top)

    # -- boxes --------------------------------------------------------------------------------------------------------
    def box_convert(self, in_fmt: str, out_fmt: str) -> Self:
        """Boxes (…, 4) in another format: "xyxy" (two corners), "xywh" (corner and size) "cxcywh" (centre, size)."""
        if in_fmt not in BOX_FORMATS or out_fmt not in BOX_FORMATS:
            raise ValueError(f"box_convert: formats are {', '.join(BOX_FORMATS)}, got {in_fmt!r} and {out_fmt!r}")
        first, second = self._box("box_convert")
        if in_fmt == out_fmt:
            return self
        size = second.sub(first) if in_fmt == "xyxy" else second
        corner = first.sub(size.div(2)) if in_fmt == "cxcywh" else first
        if out_fmt == "xyxy":
            parts = (corner, corner.add(size))
        else:
            parts = (corner.add(size.div(2)) if out_fmt == "cxcywh" else corner, size)
        joined: Self = parts[0].cat(parts[1], axis=-1)
        return joined

    def _box(self, method: str) -> tuple[Self, Self]:
        if not self.ndim or self.shape[-1] != 4:
            raise ValueError(f"{method}: needs boxes (…, 4), got {self.shape}")
        lead = (None,) * (self.ndim - 1)
        x = self._floating()
        return x.shrink([*lead, (0, 2)]), x.shrink([*lead, (2, 4)])

    def box_area(self) -> Self:
        """The areas (…) of boxes "xyxy"; 0 for those that are inside out."""
        low, high = self._box("box_area")
        return high.sub(low).clamp(min=0.0).prod(-1)

    def box_iou(self, other: TensorCore) -> Self:
        """Intersection over union of each box "xyxy" (N, 4) with each of others (M, 4): (N, M); 0 for empty ones."""
        o = self._operand(other, "box_iou")
        (low, high), (other_low, other_high) = self._box("box_iou"), o._box("box_iou")
        begin = low.unsqueeze(-2).maximum(other_low.unsqueeze(-3))
        end = high.unsqueeze(-2).minimum(other_high.unsqueeze(-3))
        shared = end.sub(begin).clamp(min=0.0).prod(-1)
        union = self.box_area().unsqueeze(-1).add(o.box_area().unsqueeze(-2)).sub(shared)
        return shared.div(union.eq(0).where(1.0, union))

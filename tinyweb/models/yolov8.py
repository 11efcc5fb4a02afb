"""YOLOv8: object detection in one pass, with the layout and parameter names of Ultralytics' checkpoints.

    model = YOLOv8.from_folder("assets/models/tinyyolo")
    boxes, scores = model.decode(model.maps(image))   # (1, 3, 320, 320) → (1, 2100, 4), (1, 2100, classes)

What is notable:
- The backbone halves the size five times. Its C2f blocks pass half of their channels through a chain of bottlenecks and
  keep what each of them gives; SPPF pools in growing windows, as three poolings one after the other.
- The neck carries coarse features up to finer maps and back down; three maps, of strides 8, 16 and 32, have heads.
- The heads have no anchors: at each position they give, for each of a box's four sides, a distribution over 16
  distances from the position (Li et al. 2020, "Generalized focal loss"), and a logit for each class.
- For inference only: batch norms are folded into the convolutions before them as weights are read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tinyweb.formats.huggingface import Config, ModelFolder
from tinyweb.models.convnet import RandomWeights, Weights, convolution
from tinyweb.nn.convolutions import Conv2d
from tinyweb.nn.parameters import parameter
from tinyweb.tensor import Tensor

SCALES = {"n": (0.33, 0.25, 1024), "s": (0.33, 0.5, 1024), "m": (0.67, 0.75, 768), "l": (1.0, 1.0, 512),
          "x": (1.0, 1.25, 512)}  # depth, width, most channels  # fmt: skip
STRIDES = (8, 16, 32)


@dataclass(frozen=True)
class YOLOv8Config:
    """The numbers that make a YOLOv8: `depth` scales the repeats of bottlenecks, `width` channels (of which there are
    at most `max_channels` before scaling); boxes' distances have `reg_max` bins."""

    depth: float
    width: float
    max_channels: int
    classes: int
    reg_max: int = 16
    eps: float = 1e-3

    @classmethod
    def of_scale(cls, scale: str, classes: int = 80) -> Self:
        """The sizes n, s, m, l and x; ValueError for another."""
        if scale not in SCALES:
            raise ValueError(f"there is no YOLOv8{scale}: choose one of {', '.join(SCALES)}")
        return cls(*SCALES[scale], classes)

    @classmethod
    def from_json(cls, c: Config) -> Self:
        """Checks a config.json; ModelFormatError names the field that is missing or wrong."""
        return cls(
            depth=c.number("depth_multiple", 0.01, 8),
            width=c.number("width_multiple", 0.01, 8),
            max_channels=c.integer("max_channels", 8, 1 << 14, 1024),
            classes=c.integer("nc", 1, 1 << 16),
            reg_max=c.integer("reg_max", 1, 256, 16),
            eps=c.number("bn_eps", 0, 1, 1e-3),
        )

    def channels(self, count: int) -> int:
        """Scaled, a multiple of 8."""
        return math.ceil(min(count, self.max_channels) * self.width / 8) * 8

    def repeats(self, count: int) -> int:
        return max(round(count * self.depth), 1)


@dataclass(frozen=True)
class Reader:
    """Reads layers below a prefix."""

    config: YOLOv8Config
    weights: Weights
    device: str | None
    prefix: str

    def at(self, name: str | int) -> Reader:
        return Reader(self.config, self.weights, self.device, f"{self.prefix}{name}.")

    def convolution(self, name: str, out: int, channels: int, size: int = 1, stride: int = 1) -> Convolution:
        at = self.at(name).prefix if name else self.prefix
        shape = (out, channels, size)
        return Convolution(
            convolution(self.weights, at + "conv", at + "bn", shape, stride, self.config.eps, self.device)
        )

    def plain(self, name: str, out: int, channels: int) -> Conv2d:
        """A 1×1 convolution with a bias and no norm."""
        weight = self.weights.read(f"{self.prefix}{name}.weight", (out, channels, 1, 1))
        bias = self.weights.read(f"{self.prefix}{name}.bias", (out,))
        return Conv2d.of(parameter(weight, self.device), parameter(bias, self.device))


class Convolution:
    """Convolution (with its batch norm) and SiLU."""

    def __init__(self, conv: Conv2d):
        self.conv = conv

    def __call__(self, x: Tensor) -> Tensor:
        return self.conv(x).silu()


class C2f:
    """Half of the channels go through `repeats` bottlenecks; all that comes by is joined and mixed by a convolution."""

    def __init__(self, read: Reader, channels: int, out: int, repeats: int, shortcut: bool):
        half = out // 2
        self.shortcut = shortcut
        self.cv1 = read.convolution("cv1", 2 * half, channels)
        self.cv2 = read.convolution("cv2", out, (2 + repeats) * half)
        self.m = [
            [read.at("m").at(i).convolution(name, half, half, 3) for name in ("cv1", "cv2")] for i in range(repeats)
        ]

    def __call__(self, x: Tensor) -> Tensor:
        parts = list(self.cv1(x).contiguous().chunk(2, axis=1))
        for first, second in self.m:
            y = second(first(parts[-1]))
            parts.append(parts[-1] + y if self.shortcut else y)
        return self.cv2(Tensor.cat(parts, axis=1))


class SPPF:
    """The maxima of windows of 5, 9 and 13, joined to what they are of."""

    def __init__(self, read: Reader, channels: int, out: int):
        self.cv1 = read.convolution("cv1", channels // 2, channels)
        self.cv2 = read.convolution("cv2", out, 4 * (channels // 2))

    def __call__(self, x: Tensor) -> Tensor:
        parts = [self.cv1(x)]
        for _ in range(3):
            parts.append(parts[-1].max_pool2d(5, 1, 2))
        return self.cv2(Tensor.cat(parts, axis=1))


class Head:
    """For one map: `cv2` gives the bins of the box's sides, `cv3` the classes."""

    def __init__(self, read: Reader, level: int, channels: int, finest: int):
        c = read.config
        boxes, classes = max(16, finest // 4, 4 * c.reg_max), max(finest, min(c.classes, 100))
        self.cv2 = self._branch(read.at("cv2").at(level), channels, boxes, 4 * c.reg_max)
        self.cv3 = self._branch(read.at("cv3").at(level), channels, classes, c.classes)

    @staticmethod
    def _branch(read: Reader, channels: int, width: int, out: int) -> tuple[Convolution, Convolution, Conv2d]:
        first = read.convolution("0", width, channels, 3)
        return first, read.convolution("1", width, width, 3), read.plain("2", out, width)

    def __call__(self, x: Tensor) -> Tensor:
        made = []
        for branch in (self.cv2, self.cv3):
            y = x
            for layer in branch:
                y = layer(y)
            made.append(y)
        return Tensor.cat(made, axis=1)


class YOLOv8:
    """Images (N, 3, H, W), RGB from 0 to 1, H and W multiples of 32, to boxes and scores of all positions."""

    def __init__(self, config: YOLOv8Config, weights: Weights, device: str | None = None):
        self.config = config
        root = Reader(config, weights, device, "model.")
        c1, c2, c3, c4, c5 = (config.channels(n) for n in (64, 128, 256, 512, 1024))

        def conv(i: int, channels: int, out: int) -> Convolution:
            return root.at(i).convolution("", out, channels, 3, 2)

        def c2f(i: int, channels: int, out: int, repeats: int, shortcut: bool = False) -> C2f:
            return C2f(root.at(i), channels, out, config.repeats(repeats), shortcut)

        self.stem = conv(0, 3, c1)
        self.down2, self.stage2 = conv(1, c1, c2), c2f(2, c2, c2, 3, shortcut=True)
        self.down3, self.stage3 = conv(3, c2, c3), c2f(4, c3, c3, 6, shortcut=True)
        self.down4, self.stage4 = conv(5, c3, c4), c2f(6, c4, c4, 6, shortcut=True)
        self.down5, self.stage5 = conv(7, c4, c5), c2f(8, c5, c5, 3, shortcut=True)
        self.pool = SPPF(root.at(9), c5, c5)
        self.up4, self.up3 = c2f(12, c5 + c4, c4, 3), c2f(15, c4 + c3, c3, 3)
        self.back3, self.merge4 = conv(16, c3, c3), c2f(18, c3 + c4, c4, 3)
        self.back4, self.merge5 = conv(19, c4, c4), c2f(21, c4 + c5, c5, 3)
        self.heads = [Head(root.at(22), i, channels, c3) for i, channels in enumerate((c3, c4, c5))]

    @classmethod
    def from_folder(cls, path: str | Path, device: str | None = None) -> Self:
        """Reads config.json and the safetensors checkpoint of a folder; ModelFormatError where it is no YOLOv8's."""
        folder = ModelFolder(path)
        return cls(YOLOv8Config.from_json(folder.config), folder.weights(), device)

    @classmethod
    def random(cls, scale: str = "n", classes: int = 80, seed: int = 0, device: str | None = None) -> Self:
        """Random weights, the same for the same seed."""
        return cls(YOLOv8Config.of_scale(scale, classes), RandomWeights(seed), device)

    def maps(self, x: Tensor) -> list[Tensor]:
        """The heads' raw maps (N, 4 · reg_max + classes, H / s, W / s) for the strides s of 8, 16 and 32.

        ValueError for images of another shape.
        """
        height, width = x.shape[-2:]
        fits = isinstance(height, int) and isinstance(width, int) and height % 32 == width % 32 == 0
        if x.ndim != 4 or x.shape[1] != 3 or not fits:
            raise ValueError(f"YOLOv8 needs images of shape (N, 3, H, W), H and W multiples of 32, got {x.shape}")
        x = self.stage2(self.down2(self.stem(x)))
        p3 = self.stage3(self.down3(x))
        p4 = self.stage4(self.down4(p3))
        p5 = self.pool(self.stage5(self.down5(p4)))
        n4 = self.up4(_doubled(p5).cat(p4, axis=1))
        n3 = self.up3(_doubled(n4).cat(p3, axis=1))
        n4 = self.merge4(self.back3(n3).cat(n4, axis=1))
        n5 = self.merge5(self.back4(n4).cat(p5, axis=1))
        return [head(n) for head, n in zip(self.heads, (n3, n4, n5), strict=True)]

    def decode(self, maps: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Boxes (N, positions, 4) as x1 y1 x2 y2 in pixels of the input, and scores (N, positions, classes) from 0 to
        1, the positions of the finest map first, row by row."""
        bins = self.config.reg_max
        boxes, scores = [], []
        for stride, level in zip(STRIDES, maps, strict=True):
            batch, channels, height, width = (int(s) for s in level.shape if isinstance(s, int))
            flat = level.reshape(batch, channels, height * width).transpose(1, 2)
            sides = flat[:, :, : 4 * bins].reshape(batch, height * width, 4, bins).softmax(-1)
            sides = (sides * Tensor.arange(bins, device=level.device)).sum(-1)  # left, top, right, bottom
            xs = (Tensor.arange(width, device=level.device) + 0.5).unsqueeze(0).expand(height, width)
            ys = (Tensor.arange(height, device=level.device) + 0.5).unsqueeze(1).expand(height, width)
            centre = Tensor.stack([xs, ys], axis=-1).reshape(1, height * width, 2)
            boxes.append((centre - sides[:, :, :2]).cat(centre + sides[:, :, 2:], axis=2) * stride)
            scores.append(flat[:, :, 4 * bins :].sigmoid())
        return Tensor.cat(boxes, axis=1), Tensor.cat(scores, axis=1)

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Boxes and scores of `decode` for images."""
        return self.decode(self.maps(x))


def _doubled(x: Tensor) -> Tensor:
    """Every pixel twice in each direction."""
    return x.interpolate(scale_factor=2, mode="nearest")

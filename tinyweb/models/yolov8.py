"""YOLOv8: object detection in one pass, with the layout and parameter names of Ultralytics' checkpoints.

    model = YOLOv8.load("assets/models/tinyyolo")     # or yolov8n.pt, .safetensors, .onnx
    for found in model.detect(image): ...             # uint8 (H, W, 3) → label, score, box
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
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from tinyweb.errors import ModelFormatError
from tinyweb.formats.huggingface import Config
from tinyweb.formats.tensors import NamedTensors
from tinyweb.graph.ir import size_max
from tinyweb.models import convnet
from tinyweb.models.convnet import FLOATS, RandomWeights, Weights, convolution, kernel
from tinyweb.models.detection import MAX_BOXES, Detection, Detector, Settings
from tinyweb.models.yolov8_source import FIRST, SIZE, labels_for, open_source
from tinyweb.nn.parameters import parameter
from tinyweb.nn.precision import Recipe
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

    @classmethod
    def of_weights(cls, weights: NamedTensors) -> Self:
        """From the names and shapes of a checkpoint's weights; ModelFormatError where they are of another model."""
        other = next((n for n in weights if re.match(r"model\.22\.(cv4|proto|one2one_cv2)\.", n)), None)
        if other is not None:
            raise ModelFormatError(
                f"{weights.path} is a YOLO for another task (it has {other}): only YOLOv8 that finds boxes can be read"
            )
        (first, *_), (widest, *_) = weights.shape(FIRST), weights.shape("model.7.conv.weight")
        sides, classes = (weights.shape(f"model.22.{branch}.0.2.weight")[0] for branch in ("cv2", "cv3"))
        repeats = 0
        while f"model.4.m.{repeats}.cv1.conv.weight" in weights:
            repeats += 1
        for scale in SCALES:
            c = replace(cls.of_scale(scale, classes), reg_max=max(sides // 4, 1))
            if (c.channels(64), c.channels(1024), c.repeats(6)) == (first, widest, repeats):
                return c
        raise ModelFormatError(
            f"{weights.path} is no YOLOv8 of the scales {', '.join(SCALES)}: its first and widest layers have {first} "
            f"and {widest} channels, its fourth {repeats} bottlenecks"
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
    recipe: Recipe
    prefix: str

    def at(self, name: str | int) -> Reader:
        return replace(self, prefix=f"{self.prefix}{name}.")

    def convolution(self, name: str, out: int, channels: int, size: int = 1, stride: int = 1) -> Convolution:
        at = self.at(name).prefix if name else self.prefix
        shape = (out, channels, size)
        return Convolution(
            convolution(self.weights, at + "conv", at + "bn", shape, stride, self.config.eps, self.device, self.recipe)
        )

    def plain(self, name: str, out: int, channels: int) -> convnet.Convolution:
        """A 1×1 convolution with a bias and no norm."""
        weight = self.weights.read(f"{self.prefix}{name}.weight", (out, channels, 1, 1))
        bias = parameter(self.weights.read(f"{self.prefix}{name}.bias", (out,)), self.device)
        return convnet.Convolution(kernel(weight, self.device, self.recipe), bias, weight.shape)


class Convolution:
    """Convolution (with its batch norm) and SiLU."""

    def __init__(self, conv: convnet.Convolution):
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
    def _branch(
        read: Reader, channels: int, width: int, out: int
    ) -> tuple[Convolution, Convolution, convnet.Convolution]:
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

    def __init__(
        self, config: YOLOv8Config, weights: Weights, device: str | None = None, quant: str | Recipe = FLOATS,
        labels: Sequence[str] | None = None, size: tuple[int, int] = (SIZE, SIZE), defaults: Settings | None = None,
    ):  # fmt: skip
        """`quant`: how weights are stored, "f32", "f16", "q8" … "q3"; `labels` name the classes; `size` (height, width)
        and `defaults` are what `detector` uses."""
        self.config, self.device, self.size, self.defaults = config, device, size, defaults or Settings()
        self.labels: Sequence[str] = labels_for(labels, config.classes, "labels")
        root = Reader(config, weights, device, Recipe.of(quant), "model.")
        c1, c2, c3, c4, c5 = (config.channels(n) for n in (64, 128, 256, 512, 1024))

        def conv(i: int, channels: int, out: int) -> Convolution:
            return root.at(i).convolution("", out, channels, 3, 2)

        def c2f(i: int, channels: int, out: int, repeats: int, shortcut: bool = False) -> C2f:
            return C2f(root.at(i), channels, out, config.repeats(repeats), shortcut)

        self._detector: Detector | None = None
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
    def load(cls, path: str | Path, device: str | None = None, quant: str | Recipe = FLOATS) -> Self:
        """Reads a model folder or a .pt, .safetensors or .onnx file; nothing in it is executed. `quant`: how weights
        are stored, "f32", "f16", "q8" … "q3". ModelFormatError where it is no YOLOv8's."""
        source = open_source(path)
        if source.config is not None:
            config = YOLOv8Config.from_json(source.config)
        else:
            assert isinstance(source.weights, NamedTensors)
            config = YOLOv8Config.of_weights(source.weights)
        labels = labels_for(source.labels, config.classes, str(path))
        return cls(config, source.weights, device, quant, labels, source.size, source.defaults)

    @classmethod
    def from_folder(cls, path: str | Path, device: str | None = None) -> Self:
        """Reads a model folder: the same as `load`."""
        return cls.load(path, device)

    @classmethod
    def random(cls, scale: str = "n", classes: int = 80, seed: int = 0, device: str | None = None) -> Self:
        """Random weights, the same for the same seed."""
        return cls(YOLOv8Config.of_scale(scale, classes), RandomWeights(seed), device)

    def detector(
        self, size: tuple[int, int] | None = None, defaults: Settings | None = None, max_boxes: int = MAX_BOXES
    ) -> Detector:
        """The whole detector, for pictures of any size; `size` (height, width) of the network's input, each a multiple
        of 32. ValueError for another size."""
        height, width = size or self.size
        if min(height, width) < 32 or height % 32 or width % 32:
            raise ValueError(f"YOLOv8 needs images whose sides are multiples of 32, got {width}×{height}")
        return Detector(self, (height, width), defaults or self.defaults, max_boxes)

    def detect(
        self, image: npt.NDArray[np.uint8], confidence: float | None = None, iou: float | None = None
    ) -> list[Detection]:
        """The objects in an image uint8 (H, W), (H, W, 3) or (H, W, 4), highest score first: see `Detector.detect`."""
        if self._detector is None:
            self._detector = self.detector()
        return self._detector.detect(image, confidence, iou)

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
        flat, bins = _flattened(maps), 4 * self.config.reg_max
        return self._boxes(flat[:, :, :bins], _positions(maps)), flat[:, :, bins:].sigmoid()

    def candidates(self, x: Tensor, limit: int) -> tuple[Tensor, Tensor, Tensor]:
        """Of one image: boxes (n, 4), scores (n,) of the best class and classes int32 (n,) of the `limit` positions of
        highest score, or all there are, highest first. Only their boxes are computed."""
        maps = self.maps(x)
        flat, positions, bins = _flattened(maps)[0], _positions(maps), 4 * self.config.reg_max
        logits = flat[:, bins:]
        scores, order = logits.max(1).sigmoid().contiguous().topk(min(limit, size_max(positions.shape[0])), 0)
        classes = logits.take(order, 0).argmax(1).int()
        return self._boxes(flat[:, :bins].take(order, 0), positions.take(order, 0)), scores, classes

    def _boxes(self, sides: Tensor, positions: Tensor) -> Tensor:
        """From the bins (…, n, 4 · reg_max) of positions (n, 3): x, y in strides and the stride."""
        bins = self.config.reg_max
        sides = sides.reshape(*sides.shape[:-1], 4, bins).softmax(-1)
        sides = (sides * Tensor.arange(bins, device=sides.device)).sum(-1)  # left, top, right, bottom
        centre, stride = positions[:, :2], positions[:, 2:]
        return (centre - sides[..., :2]).cat(centre + sides[..., 2:], axis=-1) * stride

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Boxes and scores of `decode` for images."""
        return self.decode(self.maps(x))


def _doubled(x: Tensor) -> Tensor:
    """Every pixel twice in each direction."""
    return x.interpolate(scale_factor=2, mode="nearest")


def _flattened(maps: list[Tensor]) -> Tensor:
    """(N, positions, channels) of all maps, the finest first."""
    flat = [m.reshape(*m.shape[:2], -1) for m in maps]
    return Tensor.cat(flat, axis=2).transpose(1, 2)


def _positions(maps: list[Tensor]) -> Tensor:
    """x, y (in strides) and the stride of the centres of all cells (positions, 3), in the order of `_flattened`."""
    cells = []
    for stride, (height, width) in zip(STRIDES, (m.shape[-2:] for m in maps), strict=True):
        y, x = np.mgrid[:height, :width]
        cells.append(np.stack([x + 0.5, y + 0.5, np.full_like(x, stride)], -1).reshape(-1, 3))
    return Tensor(np.concatenate(cells).astype(np.float32), device=maps[0].device)

"""Networks in PyTorch whose libraries are not at hand: written from their papers, with random weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional as f


def conv(
    given: int, made: int, size: int = 1, stride: int = 1, groups: int = 1, act: type[nn.Module] | None = None
) -> Any:
    """A convolution that keeps the size but for its stride, a batch norm, and an activation."""
    layers = [nn.Conv2d(given, made, size, stride, size // 2, groups=groups, bias=False), nn.BatchNorm2d(made)]
    return nn.Sequential(*layers, *([act()] if act else []))


class Excite(nn.Module):
    """Squeeze and excitation: https://arxiv.org/abs/1709.01507"""

    def __init__(self, channels: int):
        super().__init__()
        self.first, self.second = nn.Conv2d(channels, channels // 4, 1), nn.Conv2d(channels // 4, channels, 1)

    def forward(self, x: torch.Tensor) -> Any:
        return x * f.hardsigmoid(self.second(f.relu(self.first(x.mean((2, 3), keepdim=True)))))


class Inverted(nn.Module):
    """An inverted residual of MobileNetV3."""

    def __init__(self, given: int, size: int, wide: int, made: int, excite: bool, act: type[nn.Module], stride: int):
        super().__init__()
        layers = [conv(given, wide, act=act), conv(wide, wide, size, stride, wide, act)]
        self.layers = nn.Sequential(*layers, *([Excite(wide)] if excite else []), conv(wide, made))
        self.joins = stride == 1 and given == made

    def forward(self, x: torch.Tensor) -> Any:
        return x + self.layers(x) if self.joins else self.layers(x)


class MobileNetV3(nn.Module):
    """MobileNetV3-Large, table 1 of https://arxiv.org/abs/1905.02244; every other row of it where `small`."""

    ROWS = (
        (3, 16, 16, 0, 0, 1), (3, 64, 24, 0, 0, 2), (3, 72, 24, 0, 0, 1), (5, 72, 40, 1, 0, 2), (5, 120, 40, 1, 0, 1),
        (5, 120, 40, 1, 0, 1), (3, 240, 80, 0, 1, 2), (3, 200, 80, 0, 1, 1), (3, 184, 80, 0, 1, 1),
        (3, 184, 80, 0, 1, 1), (3, 480, 112, 1, 1, 1), (3, 672, 112, 1, 1, 1), (5, 672, 160, 1, 1, 2),
        (5, 960, 160, 1, 1, 1), (5, 960, 160, 1, 1, 1),
    )  # fmt: skip

    def __init__(self, small: bool, classes: int = 1000):
        super().__init__()
        layers, given = [conv(3, 16, 3, 2, act=nn.Hardswish)], 16
        for size, wide, made, excite, hard, stride in self.ROWS[:: 4 if small else 1]:
            layers.append(Inverted(given, size, wide, made, bool(excite), nn.Hardswish if hard else nn.ReLU, stride))
            given = made
        self.layers = nn.Sequential(*layers, conv(given, 6 * given, act=nn.Hardswish))
        self.head = nn.Sequential(nn.Linear(6 * given, 8 * given), nn.Hardswish(), nn.Linear(8 * given, classes))

    def forward(self, x: torch.Tensor) -> Any:
        return self.head(self.layers(x).mean((2, 3)))


class Split(nn.Module):
    """YOLOv8's C2f: halves, a chain of residuals from the second, all joined."""

    def __init__(self, given: int, made: int, count: int, joins: bool):
        super().__init__()
        half = made // 2
        self.first, self.last, self.joins = (
            conv(given, made, act=nn.SiLU),
            conv((2 + count) * half, made, act=nn.SiLU),
            joins,
        )
        self.chain = nn.ModuleList(
            nn.Sequential(conv(half, half, 3, act=nn.SiLU), conv(half, half, 3, act=nn.SiLU)) for _ in range(count)
        )

    def forward(self, x: torch.Tensor) -> Any:
        parts = list(self.first(x).chunk(2, 1))
        for block in self.chain:
            parts.append(parts[-1] + block(parts[-1]) if self.joins else block(parts[-1]))
        return self.last(torch.cat(parts, 1))


class Yolo(nn.Module):
    """A detector of the shape of YOLOv8n, with the decoding of its boxes. Returns (N, 4 + classes, places)."""

    BINS = 16

    def __init__(self, width: int = 16, classes: int = 80):
        super().__init__()
        w = [width * 2**i for i in range(5)]
        self.stem = nn.Sequential(
            conv(3, w[0], 3, 2, act=nn.SiLU), conv(w[0], w[1], 3, 2, act=nn.SiLU), Split(w[1], w[1], 1, True)
        )
        self.third = nn.Sequential(conv(w[1], w[2], 3, 2, act=nn.SiLU), Split(w[2], w[2], 2, True))
        self.fourth = nn.Sequential(conv(w[2], w[3], 3, 2, act=nn.SiLU), Split(w[3], w[3], 2, True))
        self.fifth = nn.Sequential(conv(w[3], w[4], 3, 2, act=nn.SiLU), Split(w[4], w[4], 1, True))
        self.narrow, self.wide = conv(w[4], w[4] // 2, act=nn.SiLU), conv(2 * w[4], w[4], act=nn.SiLU)
        self.up4, self.up3 = Split(w[4] + w[3], w[3], 1, False), Split(w[3] + w[2], w[2], 1, False)
        self.down3, self.down4 = conv(w[2], w[2], 3, 2, act=nn.SiLU), conv(w[3], w[3], 3, 2, act=nn.SiLU)
        self.merge4, self.merge5 = Split(w[2] + w[3], w[3], 1, False), Split(w[3] + w[4], w[4], 1, False)
        self.boxes = nn.ModuleList(self._head(n, 4 * self.BINS, 4 * self.BINS) for n in w[2:])
        self.classes = nn.ModuleList(self._head(n, max(w[2], min(classes, 100)), classes) for n in w[2:])

    @staticmethod
    def _head(given: int, wide: int, made: int) -> nn.Module:
        return nn.Sequential(
            conv(given, wide, 3, act=nn.SiLU), conv(wide, wide, 3, act=nn.SiLU), nn.Conv2d(wide, made, 1)
        )

    def forward(self, x: torch.Tensor) -> Any:
        p3 = self.third(self.stem(x))
        p4 = self.fourth(p3)
        pooled = [self.narrow(self.fifth(p4))]
        for _ in range(3):
            pooled.append(f.max_pool2d(pooled[-1], 5, 1, 2))
        p5 = self.wide(torch.cat(pooled, 1))
        n4 = self.up4(torch.cat([f.interpolate(p5, scale_factor=2.0), p4], 1))
        n3 = self.up3(torch.cat([f.interpolate(n4, scale_factor=2.0), p3], 1))
        n4 = self.merge4(torch.cat([self.down3(n3), n4], 1))
        n5 = self.merge5(torch.cat([self.down4(n4), p5], 1))
        boxes = torch.cat([head(n).flatten(2) for head, n in zip(self.boxes, (n3, n4, n5))], 2)
        scores = torch.cat([head(n).flatten(2) for head, n in zip(self.classes, (n3, n4, n5))], 2).sigmoid()
        return torch.cat([self._decoded(boxes, [n.shape[2:] for n in (n3, n4, n5)]), scores], 1)

    def _decoded(self, boxes: torch.Tensor, sizes: Sequence[Any]) -> torch.Tensor:
        """Boxes (N, 4 · BINS, places) as centre and size."""
        bins = boxes.unflatten(1, (4, self.BINS)).softmax(2)
        sides = (bins * torch.arange(self.BINS, dtype=torch.float32)[:, None]).sum(2)
        places, strides = [], []
        for i, (height, width) in enumerate(sizes):
            y, x = torch.meshgrid(*(torch.arange(n).float() + 0.5 for n in (height, width)), indexing="ij")
            places.append(torch.stack([x.flatten(), y.flatten()]))
            strides.append(torch.full((height * width,), 8.0 * 2**i))
        centre = torch.cat(places, 1)
        low, high = centre - sides[:, :2], centre + sides[:, 2:]
        return torch.cat([(low + high) / 2, high - low], 1) * torch.cat(strides)


class UNet(nn.Module):
    """https://arxiv.org/abs/1505.04597 with padding, batch norms, and transposed convolutions upwards."""

    def __init__(self, width: int, depth: int, classes: int = 2):
        super().__init__()
        w = [width * 2**i for i in range(depth)]
        self.down = nn.ModuleList(self._twice(a, b) for a, b in zip([3, *w], w))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * n, n, 2, 2) for n in w[:-1])
        self.join = nn.ModuleList(self._twice(2 * n, n) for n in w[:-1])
        self.head = nn.Conv2d(width, classes, 1)

    @staticmethod
    def _twice(given: int, made: int) -> nn.Module:
        return nn.Sequential(conv(given, made, 3, act=nn.ReLU), conv(made, made, 3, act=nn.ReLU))

    def forward(self, x: torch.Tensor) -> Any:
        kept = []
        for i, block in enumerate(self.down):
            x = block(f.max_pool2d(x, 2) if i else x)
            kept.append(x)
        for i in reversed(range(len(self.up))):
            x = self.join[i](torch.cat([kept[i], self.up[i](x)], 1))
        return self.head(x)


class Tagger(nn.Module):
    """A class for each word, by recurrent layers in both directions. ids: (batch, length)."""

    def __init__(self, words: int, width: int, layers: int = 2, classes: int = 7):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True, bidirectional=True)
        self.gru, self.head = nn.GRU(2 * width, width, batch_first=True), nn.Linear(width, classes)

    def forward(self, ids: torch.Tensor) -> Any:
        return self.head(self.gru(self.lstm(self.embed(ids))[0])[0])

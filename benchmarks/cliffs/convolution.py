"""Convolutions of all kinds, pooling, interpolation, padding."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from torch.nn import functional

from benchmarks.cliffs.work import Inputs, Work, alike, function, needs, normal


def works() -> Iterator[Work]:
    yield convolution("1x1", (1, 64, 56, 56), 128, (1, 1))
    yield convolution("1x1-odd-channels", (1, 67, 28, 28), 131, (1, 1))
    yield convolution("1x1-stride-2", (1, 256, 28, 28), 512, (1, 1), stride=2)
    yield convolution("3x3-64", (1, 64, 56, 56), 64, (3, 3), padding=1)
    yield convolution("3x3-256", (1, 256, 14, 14), 256, (3, 3), padding=1)
    yield convolution("3x3-512-7x7", (1, 512, 7, 7), 512, (3, 3), padding=1)
    yield convolution("3x3-batch-8", (8, 32, 28, 28), 32, (3, 3), padding=1)
    yield convolution("3x3-no-padding", (1, 48, 40, 40), 48, (3, 3))
    yield convolution("3x3-stride-2", (1, 64, 56, 56), 128, (3, 3), stride=2, padding=1)
    yield convolution("3x3-odd-channels", (1, 37, 45, 45), 41, (3, 3), padding=1)
    yield convolution("3x3-3-channels", (1, 3, 224, 224), 32, (3, 3), stride=2, padding=1)
    yield convolution("3x3-one-out", (1, 64, 64, 64), 1, (3, 3), padding=1)
    yield convolution("5x5", (1, 32, 28, 28), 64, (5, 5), padding=2)
    yield convolution("7x7-stem", (1, 3, 224, 224), 64, (7, 7), stride=2, padding=3)
    yield convolution("1x7", (1, 64, 28, 28), 64, (1, 7), padding=(0, 3))
    yield convolution("depthwise-3x3", (1, 128, 56, 56), 128, (3, 3), padding=1, groups=128)
    yield convolution("depthwise-3x3-stride-2", (1, 144, 56, 56), 144, (3, 3), stride=2, padding=1, groups=144)
    yield convolution("depthwise-5x5", (1, 96, 28, 28), 96, (5, 5), padding=2, groups=96)
    yield convolution("depthwise-7x7", (1, 96, 56, 56), 96, (7, 7), padding=3, groups=96)
    yield convolution("groups-4", (1, 64, 56, 56), 64, (3, 3), padding=1, groups=4)
    yield convolution("groups-32", (1, 128, 28, 28), 128, (3, 3), padding=1, groups=32)
    yield convolution("dilation-2", (1, 64, 28, 28), 64, (3, 3), padding=2, dilation=2)
    yield convolution("patches-16", (1, 3, 224, 224), 192, (16, 16), stride=16)
    yield convolution("1d-3", (1, 80, 3000), 384, (3,), padding=1)
    yield convolution("1d-3-stride-2", (1, 384, 1500), 384, (3,), stride=2, padding=1)
    yield convolution("1d-depthwise-31", (1, 256, 400), 256, (31,), padding=15, groups=256)
    yield convolution("3d-3", (1, 16, 8, 28, 28), 16, (3, 3, 3), padding=1)
    yield transposed("2d-2-stride-2", (1, 64, 28, 28), 32, (2, 2), stride=2)
    yield transposed("2d-4-stride-2", (1, 64, 28, 28), 32, (4, 4), stride=2, padding=1)
    yield transposed("2d-3", (1, 64, 28, 28), 64, (3, 3), padding=1)
    yield transposed("1d-16-stride-8", (1, 128, 200), 64, (16,), stride=8, padding=4)
    yield epilogue()
    yield from pooling()
    yield from resampling()
    yield from padding()


def _of_axes(value: Any, axes: int) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, tuple) else (value,) * axes


def convolution(name: str, shape: Sequence[int], out: int, kernel: Sequence[int], **keywords: Any) -> Work:
    axes, groups = len(kernel), keywords.get("groups", 1)
    steps, pads, apart = (
        _of_axes(keywords.get(k, none), axes) for k, none in (("stride", 1), ("padding", 0), ("dilation", 1))
    )
    sizes = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in zip(shape[2:], kernel, steps, pads, apart)]
    weight = (out, shape[1] // groups, *kernel)
    count = shape[0] * math.prod(sizes) * math.prod(weight)
    return function(f"conv-{name}", normal(shape, weight, (out,)), f"conv{axes}d", needs(2 * count), **keywords)


def transposed(name: str, shape: Sequence[int], out: int, kernel: Sequence[int], **keywords: Any) -> Work:
    weight = (shape[1], out, *kernel)
    needed = needs(2 * math.prod(shape) * math.prod(weight[1:]))
    return function(
        f"conv-transposed-{name}", normal(shape, weight), f"conv_transpose{len(kernel)}d", needed, **keywords
    )


def epilogue() -> Work:
    count = 64 * 56 * 56
    return Work(
        "conv-3x3-relu-add",
        normal((1, 64, 56, 56), (64, 64, 3, 3), (64,), (1, 64, 56, 56)),
        lambda x, w, b, y: (x.conv2d(w, b, padding=1) + y).relu(),
        lambda x, w, b, y: (functional.conv2d(x, w, b, padding=1) + y).relu(),
        needs(2 * count * 64 * 9 + count, relu=count),
    )


def pooling() -> Iterator[Work]:
    image = normal((1, 64, 112, 112))
    yield function(
        "pool-max-3-stride-2", image, "max_pool2d", needs(max=64 * 56 * 56 * 8), kernel_size=3, stride=2, padding=1
    )
    yield function("pool-max-2", image, "max_pool2d", needs(max=64 * 56 * 56 * 3), kernel_size=2)
    yield function(
        "pool-max-5-stride-1",
        normal((1, 128, 20, 20)),
        "max_pool2d",
        needs(max=128 * 400 * 24),
        kernel_size=5,
        stride=1,
        padding=2,
    )
    yield function("pool-average-2", image, "avg_pool2d", needs(64 * 56 * 56 * 4), kernel_size=2)
    yield function("pool-average-7", normal((8, 512, 7, 7)), "avg_pool2d", needs(8 * 512 * 49), kernel_size=7)
    yield function("pool-adaptive-7", image, "adaptive_avg_pool2d", needs(64 * 112 * 112), output_size=7)
    yield function("pool-max-1d", normal((8, 64, 1003)), "max_pool1d", needs(max=8 * 64 * 501), kernel_size=2)


def resampling() -> Iterator[Work]:
    image, small = normal((1, 32, 64, 64)), normal((1, 3, 480, 640))
    for mode, taps in (("nearest", 0), ("bilinear", 2), ("bicubic", 4)):
        needed = needs(32 * _resampled((64, 64), (128, 128), taps))
        yield function(f"interpolate-{mode}-2", image, "interpolate", needed, scale_factor=2, mode=mode)
    needed = needs(3 * _resampled((480, 640), (224, 224), 2))
    yield function("interpolate-bilinear-224", small, "interpolate", needed, size=(224, 224), mode="bilinear")
    # sums of 15 / 7 + 6 / 7 rows, of 20 / 7 + 6 / 7 columns, and their scale
    needed = needs(3 * 224 * (640 * 2 + 224 * (26 / 7 - 1)), divide_by_constant=3 * 224 * 224)
    yield function("interpolate-area-224", small, "interpolate", needed, size=(224, 224), mode="area")
    yield function(
        "interpolate-linear-1d",
        normal((4, 64, 1000)),
        "interpolate",
        needs(3 * 4 * 64 * 2003),
        size=2003,
        mode="linear",
    )
    # a weighted sum of 4 for each channel; coordinates of a place, 4 places and weights once for all of them
    for channels in (3, 32):
        yield Work(
            f"grid-sample-{channels}",
            sampled(channels),
            lambda x, grid: x.grid_sample(grid),
            lambda x, grid: functional.grid_sample(x, grid, align_corners=False),
            needs(2 * 45 * 47 * (7 * channels + 4 * (2 + 4 + 3) + 12)),
            tolerance=1e-4,
        )
    yield function("pixel-shuffle-2", normal((1, 128, 64, 64)), "pixel_shuffle", needs(), upscale_factor=2)


def sampled(channels: int) -> Inputs:
    """Images, and places some of which are outside."""
    return lambda random: [
        random.standard_normal((2, channels, 50, 61), np.float32),
        2.2 * random.random((2, 45, 47, 2), np.float32) - 1.1,
    ]


def _resampled(old: tuple[int, int], new: tuple[int, int], taps: int) -> int:
    """Weighted sums along one axis, of those lines that the sums along the other one read; the axes in either order."""
    lines = min(new[i] * min(old[1 - i], taps * new[1 - i]) for i in range(2))
    return max(2 * taps - 1, 0) * (lines + math.prod(new))


def padding() -> Iterator[Work]:
    image = normal((1, 64, 112, 112))
    for mode in ("constant", "reflect", "replicate", "circular"):
        yield Work(
            f"pad-{mode}",
            image,
            lambda x, mode=mode: x.pad((3, 3, 3, 3), mode=mode),
            lambda x, mode=mode: functional.pad(x, (3, 3, 3, 3), mode=mode),
            needs(),
        )
    yield alike("roll", normal((1000, 1003)), lambda x: x.roll((3, -5), (0, 1)), needs())
    yield alike("transpose-2048", normal((2048, 2048)), lambda x: x.T, needs())
    yield alike("permute-heads", normal((4, 512, 8, 64)), lambda x: x.permute(0, 2, 1, 3), needs())

"""ResNet: image classifiers of residual blocks (He et al. 2015), with torchvision's layout and parameter names.

    model = ResNet.from_folder("resnet18")            # model.safetensors; the depth is read off the names in it
    logits = model(image)                             # (1, 3, 224, 224) → (1, 1000)

What is notable:
- A block adds what its convolutions compute to its input: two 3×3 convolutions (18, 34 layers), or a 3×3 one between
  two of 1×1 (50 and more), whose stride stands at the 3×3 as in torchvision. Where sizes change, a 1×1 convolution
  fits the input.
- For inference only: batch norms are folded into the convolutions before them as weights are read.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tinyweb.errors import ModelFormatError
from tinyweb.formats.huggingface import Checkpoint
from tinyweb.models.convnet import Convolution, RandomWeights, Weights, convolution
from tinyweb.nn.layers import Linear
from tinyweb.nn.parameters import parameter
from tinyweb.tensor import Tensor

EPS = 1e-5  # of the batch norms
WIDTHS = (64, 128, 256, 512)  # of the four stages' 3×3 convolutions
EXPANSION = 4  # a bottleneck's output is as many times as wide


@dataclass(frozen=True)
class ResNetConfig:
    """Blocks of the four stages, and whether they are bottlenecks."""

    blocks: tuple[int, int, int, int]
    bottleneck: bool
    classes: int = 1000

    @classmethod
    def of_depth(cls, depth: int, classes: int = 1000) -> Self:
        """ResNet-18, -34, -50, -101 and -152; ValueError for another depth."""
        if depth not in DEPTHS:
            raise ValueError(f"there is no ResNet-{depth}: choose one of {', '.join(map(str, DEPTHS))}")
        return cls(DEPTHS[depth], depth >= 50, classes)


DEPTHS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}


class Block:
    """One residual block; `convolutions` one after the other, ReLU behind each."""

    def __init__(self, convolutions: list[Convolution], downsample: Convolution | None):
        self.convolutions, self.downsample = convolutions, downsample

    def __call__(self, x: Tensor) -> Tensor:
        y = x
        for conv in self.convolutions[:-1]:
            y = conv(y).relu()
        shortcut = x if self.downsample is None else self.downsample(x)
        return (self.convolutions[-1](y) + shortcut).relu()


class ResNet:
    """Images (N, 3, H, W), normalised as the checkpoint wants it, to logits (N, classes), float32."""

    def __init__(self, config: ResNetConfig, weights: Weights, device: str | None = None):
        self.config = config
        self.stem = convolution(weights, "conv1", "bn1", (64, 3, 7), 2, EPS, device)
        self.blocks: list[Block] = []
        channels = 64
        for stage, (width, count) in enumerate(zip(WIDTHS, config.blocks, strict=True)):
            for i in range(count):
                stride = 2 if stage and not i else 1
                prefix = f"layer{stage + 1}.{i}."
                self.blocks.append(_block(weights, prefix, channels, width, stride, config.bottleneck, device))
                channels = width * EXPANSION if config.bottleneck else width
        bias = parameter(weights.read("fc.bias", (config.classes,)), device)
        self.head = Linear.of(parameter(weights.read("fc.weight", (config.classes, channels)), device), bias)

    @classmethod
    def from_folder(cls, path: str | Path, device: str | None = None) -> Self:
        """Reads `model.safetensors` (or its shards) of a folder; ModelFormatError where it is no ResNet's."""
        checkpoint = Checkpoint(Path(path))
        return cls(_config_of(checkpoint), checkpoint, device)

    @classmethod
    def random(cls, depth: int = 18, classes: int = 1000, seed: int = 0, device: str | None = None) -> Self:
        """Random weights, the same for the same seed."""
        return cls(ResNetConfig.of_depth(depth, classes), RandomWeights(seed), device)

    def __call__(self, x: Tensor) -> Tensor:
        if x.ndim != 4 or x.shape[1] != 3:
            raise ValueError(f"ResNet needs images of shape (N, 3, H, W), got {x.shape}")
        x = self.stem(x).relu().max_pool2d(3, 2, 1)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((2, 3)))


def _block(
    weights: Weights, prefix: str, channels: int, width: int, stride: int, bottleneck: bool, device: str | None
) -> Block:
    out = width * EXPANSION if bottleneck else width
    shapes = [((width, channels, 3), stride), ((width, width, 3), 1)]
    if bottleneck:
        shapes = [((width, channels, 1), 1), ((width, width, 3), stride), ((out, width, 1), 1)]
    convolutions = [
        convolution(weights, f"{prefix}conv{i}", f"{prefix}bn{i}", shape, by, EPS, device)
        for i, (shape, by) in enumerate(shapes, 1)
    ]
    fits = stride == 1 and channels == out
    name = prefix + "downsample."
    downsample = None if fits else convolution(weights, name + "0", name + "1", (out, channels, 1), stride, EPS, device)
    return Block(convolutions, downsample)


def _config_of(checkpoint: Checkpoint) -> ResNetConfig:
    """What the names of a checkpoint say of the network."""
    for name in ("conv1.weight", "bn1.running_mean", "layer4.0.conv1.weight", "fc.weight"):
        if name not in checkpoint:
            raise ModelFormatError(
                f"{checkpoint.folder} holds no ResNet (there is no tensor {name!r}): "
                "give a checkpoint with torchvision's names"
            )
    counts = [
        next(i for i in itertools.count() if f"layer{stage}.{i}.conv1.weight" not in checkpoint)
        for stage in range(1, 5)
    ]
    first, second, third, fourth = counts
    bottleneck = "layer1.0.conv3.weight" in checkpoint
    return ResNetConfig((first, second, third, fourth), bottleneck, checkpoint.entry("fc.weight").shape[0])

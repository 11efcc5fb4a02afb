"""ResNets against a PyTorch implementation of the paper, written here, with the same weights."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from tinyweb.errors import ModelFormatError
from tinyweb.models.resnet import DEPTHS, ResNet
from tinyweb.tensor import Tensor

CLASSES = 7


class TorchBlock(nn.Module):
    def __init__(self, channels: int, width: int, stride: int, bottleneck: bool):
        super().__init__()
        out = 4 * width if bottleneck else width
        plan = [(channels, width, 3, stride), (width, width, 3, 1)]
        if bottleneck:
            plan = [(channels, width, 1, 1), (width, width, 3, stride), (width, out, 1, 1)]
        self.count = len(plan)
        for i, (a, b, k, s) in enumerate(plan, 1):
            setattr(self, f"conv{i}", nn.Conv2d(a, b, k, s, k // 2, bias=False))
            setattr(self, f"bn{i}", nn.BatchNorm2d(b))
        self.downsample = None
        if stride != 1 or channels != out:
            self.downsample = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        y = x
        for i in range(1, self.count + 1):
            y = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(y))
            if i < self.count:
                y = y.relu()
        return (y + (x if self.downsample is None else self.downsample(x))).relu()


class TorchResNet(nn.Module):
    def __init__(self, depth: int):
        super().__init__()
        bottleneck = depth >= 50
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        channels = 64
        for stage, count in enumerate(DEPTHS[depth]):
            blocks, width = [], 64 << stage
            for i in range(count):
                blocks.append(TorchBlock(channels, width, 2 if stage and not i else 1, bottleneck))
                channels = 4 * width if bottleneck else width
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(channels, CLASSES)

    def forward(self, x):
        x = nn.functional.max_pool2d(self.bn1(self.conv1(x)).relu(), 3, 2, 1)
        for stage in range(1, 5):
            x = getattr(self, f"layer{stage}")(x)
        return self.fc(x.mean((2, 3)))


@pytest.mark.parametrize("depth", [18, 50])
def test_logits(depth: int, tmp_path: Path) -> None:
    torch.manual_seed(depth)
    theirs = TorchResNet(depth).eval()
    with torch.no_grad():
        for name, value in theirs.state_dict().items():
            if ("bn" in name or "downsample.1" in name) and value.is_floating_point():
                value.copy_(torch.rand_like(value) + 0.5 if "bias" not in name else torch.randn_like(value) * 0.2)
        save_file(theirs.state_dict(), tmp_path / "model.safetensors")
        x = torch.randn(2, 3, 47, 64)
        want = theirs(x).numpy()
    ours = ResNet.from_folder(tmp_path)
    assert ours.config.blocks == DEPTHS[depth] and ours.config.classes == CLASSES
    got = ours(Tensor(x.numpy())).numpy()
    assert np.abs(got - want).max() <= 1e-4 * np.abs(want).max()


def test_random_weights_depend_on_the_seed() -> None:
    first, again, other = (ResNet.random(18, CLASSES, seed).stem.weight.numpy() for seed in (1, 1, 2))
    assert (first == again).all() and (first != other).any()


def test_errors(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no ResNet-19: choose one of 18, 34"):
        ResNet.random(19)
    save_file({"weight": torch.zeros(3)}, tmp_path / "model.safetensors")
    with pytest.raises(ModelFormatError, match=r"holds no ResNet \(there is no tensor 'conv1.weight'"):
        ResNet.from_folder(tmp_path)

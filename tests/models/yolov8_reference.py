"""YOLOv8's graph in plain PyTorch, written from its published description, with the parameter names of checkpoints.

Only for tests: whole modules of it can be saved, as trainers save theirs.
"""

import math

import torch
from torch import nn


class Conv(nn.Module):
    def __init__(self, c1, c2, k=1, s=1):
        super().__init__()
        self.conv = nn.Conv2d(c1, c2, k, s, k // 2, bias=False)
        self.bn = nn.BatchNorm2d(c2, eps=1e-3)

    def forward(self, x):
        return nn.functional.silu(self.bn(self.conv(x)))


class Bottleneck(nn.Module):
    def __init__(self, c, add):
        super().__init__()
        self.cv1, self.cv2, self.add = Conv(c, c, 3), Conv(c, c, 3), add

    def forward(self, x):
        y = self.cv2(self.cv1(x))
        return x + y if self.add else y


class C2f(nn.Module):
    def __init__(self, c1, c2, n, add=False):
        super().__init__()
        self.cv1, self.cv2 = Conv(c1, c2), Conv((2 + n) * (c2 // 2), c2)
        self.m = nn.ModuleList(Bottleneck(c2 // 2, add) for _ in range(n))

    def forward(self, x):
        parts = [*self.cv1(x).chunk(2, 1)]
        for m in self.m:
            parts.append(m(parts[-1]))
        return self.cv2(torch.cat(parts, 1))


class SPPF(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.cv1, self.cv2, self.pool = Conv(c, c // 2), Conv(2 * c, c), nn.MaxPool2d(5, 1, 2)

    def forward(self, x):
        parts = [self.cv1(x)]
        for _ in range(3):
            parts.append(self.pool(parts[-1]))
        return self.cv2(torch.cat(parts, 1))


class Expectation(nn.Module):
    def __init__(self, bins):
        super().__init__()
        self.conv = nn.Conv2d(bins, 1, 1, bias=False).requires_grad_(False)
        self.conv.weight.data[:] = torch.arange(bins, dtype=torch.float).view(1, bins, 1, 1)

    def forward(self, x):
        n, _, a = x.shape
        return self.conv(x.view(n, 4, -1, a).transpose(2, 1).softmax(1)).view(n, 4, a)


class Detect(nn.Module):
    def __init__(self, channels, classes, bins=16):
        super().__init__()
        self.classes, self.bins = classes, bins
        c2, c3 = max(16, channels[0] // 4, bins * 4), max(channels[0], min(classes, 100))
        self.cv2 = nn.ModuleList(
            nn.Sequential(Conv(c, c2, 3), Conv(c2, c2, 3), nn.Conv2d(c2, 4 * bins, 1)) for c in channels
        )
        self.cv3 = nn.ModuleList(
            nn.Sequential(Conv(c, c3, 3), Conv(c3, c3, 3), nn.Conv2d(c3, classes, 1)) for c in channels
        )
        self.dfl = Expectation(bins)

    def forward(self, maps):
        boxes, scores = [], []
        for stride, two, three, x in zip((8, 16, 32), self.cv2, self.cv3, maps):
            height, width = x.shape[-2:]
            left, top, right, bottom = self.dfl(two(x).flatten(2)).unbind(1)
            y, x0 = torch.meshgrid(torch.arange(height) + 0.5, torch.arange(width) + 0.5, indexing="ij")
            y, x0 = y.flatten(), x0.flatten()
            boxes.append(torch.stack([x0 - left, y - top, x0 + right, y + bottom], -1) * stride)
            scores.append(three(x).flatten(2).transpose(1, 2).sigmoid())
        return torch.cat(boxes, 1), torch.cat(scores, 1)


class Marker(nn.Module):
    """Upsampling and joining: layers without weights, which are counted all the same."""


class YOLOv8Reference(nn.Module):
    """(N, 3, H, W) → boxes (N, positions, 4) as x1 y1 x2 y2 and scores (N, positions, classes)."""

    def __init__(self, depth, width, most, classes):
        super().__init__()
        c1, c2, c3, c4, c5 = (math.ceil(min(n, most) * width / 8) * 8 for n in (64, 128, 256, 512, 1024))
        few, many = max(round(3 * depth), 1), max(round(6 * depth), 1)
        self.names = {i: f"kind {i}" for i in range(classes)}
        self.model = nn.Sequential(
            Conv(3, c1, 3, 2), Conv(c1, c2, 3, 2), C2f(c2, c2, few, True), Conv(c2, c3, 3, 2),
            C2f(c3, c3, many, True), Conv(c3, c4, 3, 2), C2f(c4, c4, many, True), Conv(c4, c5, 3, 2),
            C2f(c5, c5, few, True), SPPF(c5), Marker(), Marker(), C2f(c5 + c4, c4, few), Marker(), Marker(),
            C2f(c4 + c3, c3, few), Conv(c3, c3, 3, 2), Marker(), C2f(c3 + c4, c4, few), Conv(c4, c4, 3, 2), Marker(),
            C2f(c4 + c5, c5, few), Detect((c3, c4, c5), classes),
        )  # fmt: skip

    def forward(self, x):
        m, up = self.model, nn.Upsample(scale_factor=2)
        p3 = m[4](m[3](m[2](m[1](m[0](x)))))
        p4 = m[6](m[5](p3))
        p5 = m[9](m[8](m[7](p4)))
        n4 = m[12](torch.cat([up(p5), p4], 1))
        n3 = m[15](torch.cat([up(n4), p3], 1))
        n4 = m[18](torch.cat([m[16](n3), n4], 1))
        n5 = m[21](torch.cat([m[19](n4), p5], 1))
        return m[22]([n3, n4, n5])

    def randomized(self, seed=0):
        """Every weight and statistic drawn, values kept in range."""
        torch.manual_seed(seed)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.weight.data.uniform_(0.5, 1.5)
                module.running_var.uniform_(0.5, 1.5)
                module.bias.data.normal_(0, 0.2)
                module.running_mean.normal_(0, 0.2)
            elif isinstance(module, nn.Conv2d) and module.weight.requires_grad:
                nn.init.kaiming_normal_(module.weight)
        return self.eval()

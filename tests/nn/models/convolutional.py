"""ResNet-50, ConvNeXt and MobileNetV2, as timm and torchvision define them."""

from __future__ import annotations

import numpy as np

from cubepy import nn
from cubepy.nn import functional as F
from cubepy.tensor import Tensor


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3 and 1 x 1 convolutions beside what came in."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * width)
        self.downsample = None
        if stride != 1 or channels != 4 * width:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels, 4 * width, 1, stride=stride, bias=False),
                nn.BatchNorm2d(4 * width),
            )

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn3(self.conv3(F.relu(self.bn2(self.conv2(y)))))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet50(nn.Module):
    """Images -> classes; `width` is 64 in the paper."""

    def __init__(self, width: int = 4, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.layers, channels = nn.ModuleList(), width
        for n, blocks in enumerate((3, 4, 6, 3)):
            stage = nn.Sequential()
            for k in range(blocks):
                stride = 2 if n and not k else 1
                stage.append(Bottleneck(channels, width * 2**n, stride))
                channels = 4 * width * 2**n
            self.layers.append(stage)
        self.fc = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, stride=2, padding=1)
        for stage in self.layers:
            x = stage(x)
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))  # type: ignore[no-any-return]


class LayerNorm2d(nn.LayerNorm):
    """Layer norm over the channels of (N, C, H, W)."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNextBlock(nn.Module):
    """A depthwise 7 x 7 convolution, and a network at each pixel."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv_dw = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.gamma = nn.Parameter(np.ones(width, np.float32))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.conv_dw(x).permute(0, 2, 3, 1))
        y = self.fc2(F.gelu(self.fc1(y))) * self.gamma
        return x + y.permute(0, 3, 1, 2)  # type: ignore[no-any-return]


class ConvNext(nn.Module):
    """Images -> classes."""

    def __init__(
        self,
        widths: tuple[int, ...] = (8, 16, 24),
        depths: tuple[int, ...] = (1, 2, 1),
        classes: int = 10,
    ) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, widths[0], 4, stride=4)
        self.stem_norm = LayerNorm2d(widths[0], eps=1e-6)
        self.stages = nn.ModuleList()
        for n, (width, depth) in enumerate(zip(widths, depths, strict=True)):
            stage = nn.Sequential()
            if n:
                stage.append(LayerNorm2d(widths[n - 1], eps=1e-6))
                stage.append(nn.Conv2d(widths[n - 1], width, 2, stride=2))
            for _ in range(depth):
                stage.append(ConvNextBlock(width))
            self.stages.append(stage)
        self.norm, self.fc = nn.LayerNorm(widths[-1], eps=1e-6), nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem_norm(self.stem(x))
        for stage in self.stages:
            x = stage(x)
        return self.fc(self.norm(x.mean(axis=(2, 3))))  # type: ignore[no-any-return]


class InvertedResidual(nn.Module):
    """A wide depthwise convolution between two narrow 1 x 1 ones."""

    def __init__(self, channels: int, out: int, stride: int, expand: int) -> None:
        super().__init__()
        wide = channels * expand
        self.same = stride == 1 and channels == out
        layers: list[nn.Module] = []
        if expand != 1:
            layers += [nn.Conv2d(channels, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6()]
        layers += [
            nn.Conv2d(wide, wide, 3, stride=stride, padding=1, groups=wide, bias=False),
            nn.BatchNorm2d(wide),
            nn.ReLU6(),
            nn.Conv2d(wide, out, 1, bias=False),
            nn.BatchNorm2d(out),
        ]
        self.conv = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        return x + y if self.same else y  # type: ignore[no-any-return]


class MobileNetV2(nn.Module):
    """Images -> classes; `settings` are rows of (expand, channels, repeats, stride)."""

    def __init__(
        self,
        settings: tuple[tuple[int, ...], ...] = ((1, 4, 1, 1), (6, 6, 2, 2), (6, 8, 2, 2)),
        first: int = 8,
        last: int = 32,
        classes: int = 10,
    ) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, first, 3, stride=2, padding=1, bias=False)
        self.stem_norm = nn.BatchNorm2d(first)
        self.features, channels = nn.Sequential(), first
        for expand, out, repeats, stride in settings:
            for n in range(repeats):
                self.features.append(InvertedResidual(channels, out, 1 if n else stride, expand))
                channels = out
        self.head, self.head_norm = nn.Conv2d(channels, last, 1, bias=False), nn.BatchNorm2d(last)
        self.classifier = nn.Linear(last, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.features(F.relu6(self.stem_norm(self.stem(x))))
        x = F.relu6(self.head_norm(self.head(x)))
        return self.classifier(x.mean(axis=(2, 3)))  # type: ignore[no-any-return]

"""ResNet-50, RoBERTa, GPT-2, ViT-S and YOLOv8n, written once for `torch.nn` and for `cubepy.nn`, as
timm, transformers and ultralytics define them, with random weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from benchmarks.networks import Library


def _encoder(lib: Library, width: int, heads: int, order: str, activation: str) -> Any:
    """A block of a transformer: `order` is "before" or "after", where its norms are; "causal" ones
    see what came before alone.
    """
    nn, functional = lib.nn, lib.functional
    causal = activation == "tanh"

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

        def attended(self, x: Any) -> Any:
            batch, length, _ = x.shape
            q, k, v = (
                part.reshape(batch, length, heads, width // heads).transpose(1, 2)
                for part in self.qkv(x).chunk(3, -1)
            )
            seen = functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
            return self.proj(seen.transpose(1, 2).reshape(batch, length, width))

        def network(self, x: Any) -> Any:
            return self.down(functional.gelu(self.up(x), approximate=activation))

        def forward(self, x: Any) -> Any:
            if order == "before":
                x = x + self.attended(self.norm1(x))
                return x + self.network(self.norm2(x))
            x = self.norm1(x + self.attended(x))
            return self.norm2(x + self.network(x))

    return Block()


def _language(lib: Library, tokens: int, length: int, order: str, activation: str) -> Any:
    nn, width = lib.nn, 768

    class Model(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(tokens, width), nn.Embedding(length, width)
            blocks = [_encoder(lib, width, 12, order, activation) for _ in range(12)]
            self.norm, self.blocks = nn.LayerNorm(width), nn.Sequential(*blocks)
            self.head = nn.Linear(width, tokens)

        def forward(self, codes: Any) -> Any:
            x = self.tokens(codes) + self.places.weight[: codes.shape[1]]
            first = order == "after"
            x = self.blocks(self.norm(x)) if first else self.norm(self.blocks(x))
            return self.head(x).reshape(-1, tokens)

    return Model()


def roberta(lib: Library) -> Any:
    """Base: norms behind, attention to both sides."""
    return _language(lib, 50265, 514, "after", "none")


def gpt2(lib: Library) -> Any:
    """Small: norms before, attention to what came before."""
    return _language(lib, 50257, 1024, "before", "tanh")


def vit(lib: Library) -> Any:
    """ViT-S, patches of 16 x 16."""
    nn, width = lib.nn, 384

    class Vit(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(3, width, 16, stride=16)
            self.places = nn.Embedding(196, width)
            blocks = [_encoder(lib, width, 6, "before", "none") for _ in range(12)]
            self.blocks, self.norm = nn.Sequential(*blocks), nn.LayerNorm(width)
            self.head = nn.Linear(width, 1000)

        def forward(self, images: Any) -> Any:
            x = self.patches(images).flatten(2).transpose(1, 2) + self.places.weight
            return self.head(self.norm(self.blocks(x)).mean(1))

    return Vit()


def resnet50(lib: Library) -> Any:
    """Bottlenecks of 3, 4, 6 and 3 blocks."""
    nn, functional = lib.nn, lib.functional

    def normed(channels: int, filters: int, kernel: int, stride: int = 1) -> Any:
        conv = nn.Conv2d(channels, filters, kernel, stride, kernel // 2, bias=False)
        return nn.Sequential(conv, nn.BatchNorm2d(filters))

    class Bottleneck(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, channels: int, width: int, stride: int) -> None:
            super().__init__()
            self.one, self.two = normed(channels, width, 1), normed(width, width, 3, stride)
            self.three, self.down = normed(width, 4 * width, 1), None
            if channels != 4 * width or stride > 1:
                self.down = normed(channels, 4 * width, 1, stride)

        def forward(self, x: Any) -> Any:
            y = self.three(functional.relu(self.two(functional.relu(self.one(x)))))
            return functional.relu(y + (x if self.down is None else self.down(x)))

    layers, channels = [normed(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
    for n, blocks in enumerate((3, 4, 6, 3)):
        for k in range(blocks):
            layers.append(Bottleneck(channels, 64 * 2**n, 2 if n and not k else 1))
            channels = 256 * 2**n
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


def _concat(lib: Library) -> Callable[..., Any]:
    """What puts tensors side by side along an axis, 1 by default."""
    if lib.nn.__name__.startswith("torch"):
        import torch

        return lambda xs, axis=1: torch.cat(xs, axis)
    from cubepy import tensor

    return lambda xs, axis=1: tensor.concat(xs, axis=axis)


def yolov8n(lib: Library) -> Any:
    """YOLOv8n: 80 classes' probabilities and four distances to the edges for each of 8,400 cells,
    before boxes are chosen.
    """
    nn, functional, concat = lib.nn, lib.functional, _concat(lib)

    def conv(channels: int, filters: int, kernel: int = 1, stride: int = 1) -> Any:
        made = nn.Conv2d(channels, filters, kernel, stride, kernel // 2, bias=False)
        return nn.Sequential(made, nn.BatchNorm2d(filters, eps=1e-3), nn.SiLU())

    class Bottleneck(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, width: int, residual: bool) -> None:
            super().__init__()
            self.one, self.two = conv(width, width, 3), conv(width, width, 3)
            self.residual = residual

        def forward(self, x: Any) -> Any:
            y = self.two(self.one(x))
            return x + y if self.residual else y

    class Split(nn.Module):  # type: ignore[misc, name-defined]
        """C2f: halves, one of them through bottlenecks, all put together."""

        def __init__(self, channels: int, filters: int, blocks: int, residual: bool) -> None:
            super().__init__()
            width = filters // 2
            self.first = conv(channels, filters)
            self.blocks = nn.ModuleList([Bottleneck(width, residual) for _ in range(blocks)])
            self.last = conv((2 + blocks) * width, filters)

        def forward(self, x: Any) -> Any:
            parts = list(self.first(x).chunk(2, 1))
            for block in self.blocks:
                parts.append(block(parts[-1]))
            return self.last(concat(parts))

    class Pyramid(nn.Module):  # type: ignore[misc, name-defined]
        """SPPF: three pools one after the other, and what went in."""

        def __init__(self, width: int) -> None:
            super().__init__()
            self.first, self.last = conv(width, width // 2), conv(2 * width, width)
            self.pool = nn.MaxPool2d(5, 1, 2)

        def forward(self, x: Any) -> Any:
            parts = [self.first(x)]
            for _ in range(3):
                parts.append(self.pool(parts[-1]))
            return self.last(concat(parts))

    def ends(channels: int, width: int, results: int) -> Any:
        return nn.Sequential(
            conv(channels, width, 3), conv(width, width, 3), nn.Conv2d(width, results, 1)
        )

    class Yolo(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.to3 = nn.Sequential(
                conv(3, 16, 3, 2), conv(16, 32, 3, 2), Split(32, 32, 1, True),
                conv(32, 64, 3, 2), Split(64, 64, 2, True),
            )  # fmt: skip
            self.to4 = nn.Sequential(conv(64, 128, 3, 2), Split(128, 128, 2, True))
            self.to5 = nn.Sequential(conv(128, 256, 3, 2), Split(256, 256, 1, True), Pyramid(256))
            self.up4, self.up3 = Split(384, 128, 1, False), Split(192, 64, 1, False)
            self.step4, self.down4 = conv(64, 64, 3, 2), Split(192, 128, 1, False)
            self.step5, self.down5 = conv(128, 128, 3, 2), Split(384, 256, 1, False)
            self.boxes = nn.ModuleList([ends(c, 64, 64) for c in (64, 128, 256)])
            self.classes = nn.ModuleList([ends(c, 80, 80) for c in (64, 128, 256)])
            self.bins = nn.Conv2d(16, 1, 1, bias=False)

        def forward(self, images: Any) -> Any:
            def larger(x: Any) -> Any:
                return functional.interpolate(x, scale_factor=2, mode="nearest")

            three = self.to3(images)
            four = self.to4(three)
            five = self.to5(four)
            four = self.up4(concat([larger(five), four]))
            three = self.up3(concat([larger(four), three]))
            four = self.down4(concat([self.step4(three), four]))
            five = self.down5(concat([self.step5(four), five]))
            boxes, classes = [], []
            for n, x in enumerate((three, four, five)):
                box = self.boxes[n](x)
                cells = box.shape[2] * box.shape[3]
                shares = box.reshape(box.shape[0], 4, 16, cells).transpose(1, 2).softmax(1)
                boxes.append(self.bins(shares).reshape(box.shape[0], 4, cells).transpose(1, 2))
                classes.append(self.classes[n](x).flatten(2).sigmoid().transpose(1, 2))
            return concat([concat(boxes), concat(classes)], -1)

    return Yolo()


def codes(length: int) -> Callable[[int], np.ndarray]:
    """What draws batches of tokens."""
    return lambda batch: np.random.default_rng(5).integers(2, 50000, (batch, length))


def images(batch: int, side: int = 224) -> np.ndarray:
    """Square images."""
    return np.random.default_rng(5).standard_normal((batch, 3, side, side), np.float32)


def large_images(batch: int) -> np.ndarray:
    """Images of 640 x 640."""
    return images(batch, 640)


class Whole(NamedTuple):
    """A model, what draws its inputs, and the batch that it is trained with (0: it is not)."""

    make: Callable[[Library], Any]
    draw: Callable[[int], np.ndarray]
    trained: int


MODELS = {
    "resnet50": Whole(resnet50, images, 8),
    "roberta": Whole(roberta, codes(128), 8),
    "gpt2": Whole(gpt2, codes(256), 4),
    "vit": Whole(vit, images, 8),
    "yolov8n": Whole(yolov8n, large_images, 0),
}

"""ResNet-50, RoBERTa, GPT-2 and ViT-S, written once for `torch.nn` and for `cubepy.nn`, as timm and
transformers define them, with random weights.
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


def codes(length: int) -> Callable[[int], np.ndarray]:
    """What draws batches of tokens."""
    return lambda batch: np.random.default_rng(5).integers(2, 50000, (batch, length))


def images(batch: int) -> np.ndarray:
    """Images of 224 x 224."""
    return np.random.default_rng(5).standard_normal((batch, 3, 224, 224), np.float32)


class Whole(NamedTuple):
    """A model, what draws its inputs, and the batch that it is trained with."""

    make: Callable[[Library], Any]
    draw: Callable[[int], np.ndarray]
    trained: int


MODELS = {
    "resnet50": Whole(resnet50, images, 8),
    "roberta": Whole(roberta, codes(128), 8),
    "gpt2": Whole(gpt2, codes(256), 4),
    "vit": Whole(vit, images, 8),
}

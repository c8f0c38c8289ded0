"""ConvNeXt: convolutions with the manners of transformers (Liu et al., 2022)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.errors import ShapeError
from cubepy.models.architectures.vision.layers import of_length_one
from cubepy.models.architectures.vision.preparing import Prepared
from cubepy.models.architectures.vision.transformer import images_of
from cubepy.models.repeated_calls import RepeatedCalls, repeated
from cubepy.nn import Conv2d, LayerNorm, Linear, Module, ModuleList, Parameter, init
from cubepy.tensor import Tensor

EPS = 1e-6
"""Of all norms but the last."""


@dataclass(frozen=True)
class ConvNextConfig:
    """What it is made of.

    Attributes:
        widths, depths: channels and blocks of each stage.
        patch: sides of what the first convolution sees.
        channels: of an image.
        eps: of the last norm.
        activation: a name of `nn.functional.ACTIVATIONS`.
        scaled: what a block gives is multiplied by a vector before it is added.
        responses: channels are weighed by their norms over the image (ConvNeXt V2).
        outputs: numbers that the head gives, 0: there is none.
        labels: what they stand for.
    """

    widths: tuple[int, ...]
    depths: tuple[int, ...]
    patch: int = 4
    channels: int = 3
    eps: float = 1e-12
    activation: str = "gelu"
    scaled: bool = True
    responses: bool = False
    outputs: int = 0
    labels: tuple[str, ...] = field(default=(), compare=False)


class Responses(Module):
    """Channels weighed by their norms over the image, against the mean one (Woo et al., 2023)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = Parameter(init.constant((width,), 0.0))
        self.bias = Parameter(init.constant((width,), 0.0))

    def forward(self, x: Tensor) -> Tensor:
        """(B, H, W, width) -> the same."""
        norms = x.square().sum((1, 2), keepdims=True).sqrt()
        share = norms / (norms.mean(-1, keepdims=True) + 1e-6)
        return self.weight * (x * share) + self.bias + x


class Block(Module):
    """A convolution of each channel with 7 x 7, then a network at each pixel."""

    def __init__(self, width: int, c: ConvNextConfig) -> None:
        super().__init__()
        self.activation = c.activation
        self.depthwise = Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = LayerNorm(width, EPS)
        self.up, self.down = Linear(width, 4 * width), Linear(4 * width, width)
        self.responses = Responses(4 * width) if c.responses else None
        self.scale = Parameter(init.constant((width,), 1.0)) if c.scaled else None

    def forward(self, x: Tensor) -> Tensor:
        """(B, width, H, W) -> the same."""
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.up(y, activation=self.activation)
        y = self.down(y if self.responses is None else self.responses(y))
        return x + (y if self.scale is None else y * self.scale).permute(0, 3, 1, 2)


class Stage(Module):
    """Fewer pixels (but for the first stage), then blocks."""

    def __init__(self, before: int, width: int, depth: int, c: ConvNextConfig) -> None:
        super().__init__()
        self.norm = LayerNorm(before, EPS) if before else None
        self.halved = Conv2d(before, width, 2, 2) if before else None
        self.blocks = ModuleList(Block(width, c) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        """(B, before, H, W) -> (B, width, H / 2, W / 2)."""
        if self.norm is not None and self.halved is not None:
            x = self.halved(self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2))
        for block in self.blocks:
            x = block(x)
        return x


class ConvNext(RepeatedCalls, Prepared):
    """Images -> what the head gives; without one, the last feature maps.

    Example:
        >>> c = ConvNextConfig(widths=(4, 8), depths=(1, 1), outputs=3)
        >>> ConvNext(c)(np.zeros((1, 3, 8, 8), np.float32)).shape
        (1, 3)
    """

    def __init__(self, c: ConvNextConfig) -> None:
        super().__init__()
        self.config, self.labels = c, c.labels
        self.stem = Conv2d(c.channels, c.widths[0], c.patch, c.patch)
        self.stem_norm = LayerNorm(c.widths[0], EPS)
        befores = (0, *c.widths[:-1])
        self.stages = ModuleList(
            Stage(before, width, depth, c)
            for before, width, depth in zip(befores, c.widths, c.depths, strict=True)
        )
        self.norm = LayerNorm(c.widths[-1], c.eps)
        self.head = Linear(c.widths[-1], c.outputs) if c.outputs else None

    def forward(self, pixels: Any) -> Tensor:
        """Numbers of the head, (B, outputs), or what `hidden` gives where there is none.

        Args:
            pixels: floats (B, channels, height, width), scaled as the model was trained.

        Raises:
            ShapeError: images of another shape, or too small to be halved so often.
        """
        x = self.hidden(pixels)
        return x if self.head is None else self.head(self.pooled(x))

    def hidden(self, pixels: Any) -> Tensor:
        """The feature maps of the last stage, (B, width, H, W)."""
        c = self.config
        x = images_of(pixels, c.channels).to(self.stem.weight.device)
        least = c.patch << (len(c.widths) - 1)
        if min(x.shape[2:]) < least:
            raise ShapeError(f"images must have {least} pixels along each side, not {x.shape[2:]}")
        x = self.stem_norm(self.stem(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        for stage in self.stages:
            x = stage(x)
        return x

    def pooled(self, maps: Tensor) -> Tensor:
        """The normalised mean of all pixels, (B, width)."""
        return self.norm(maps.mean((2, 3)))  # type: ignore[no-any-return]

    def embed(self, pixels: Any, *, normalize: bool = False) -> np.ndarray:
        """A vector of each image, (B, width) f32; of length 1 if `normalize`."""
        with cb.no_grad():
            found = self.pooled(repeated(self, "hidden", ConvNext.hidden, (pixels,))).numpy()
        return of_length_one(found) if normalize else found

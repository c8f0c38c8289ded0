"""One vision transformer (Dosovitskiy et al., 2021) for ViT, DeiT, DINOv2 and CLIP's images."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.errors import DTypeError, ShapeError
from cubepy.models.architectures.vision.layers import LayerConfig, PreNormLayer, of_length_one
from cubepy.models.architectures.vision.preparing import CUBIC, Prepared, weights_of
from cubepy.models.repeated_calls import RepeatedCalls, repeated
from cubepy.nn import LayerNorm, Linear, ModuleList, Parameter, init
from cubepy.nn import functional as F
from cubepy.tensor import Tensor, as_tensor
from cubepy.tensor.namespace import concat


@dataclass(frozen=True)
class VisionConfig:
    """What a vision transformer is made of.

    Attributes:
        layer: of each layer.
        layers: how many.
        image: height and width that positions were made for; others are interpolated.
        patch: height and width of a patch.
        channels: of an image.
        extra: tokens before the patches: 1, 2 with DeiT's for distillation, or more (registers).
        smooth: positions of other images are averaged where they become fewer (registers).
        patch_bias: whether patches have a bias.
        before: whether there is a norm before the layers (CLIP).
        head: "": none; "first": of the first token; "both": the mean of two heads, of the first and
            the second token (DeiT); "mean": of the first token and the mean of the patches
            (DINOv2); "projection": of the first token, without a bias (CLIP).
        outputs: numbers that the head gives.
        labels: what they stand for.
    """

    layer: LayerConfig
    layers: int
    image: tuple[int, int]
    patch: tuple[int, int]
    channels: int = 3
    extra: int = 1
    smooth: bool = False
    patch_bias: bool = True
    before: bool = False
    head: str = ""
    outputs: int = 0
    labels: tuple[str, ...] = field(default=(), compare=False)

    @property
    def grid(self) -> tuple[int, int]:
        """Patches along each side."""
        return self.image[0] // self.patch[0], self.image[1] // self.patch[1]


def images_of(pixels: Any, channels: int) -> Tensor:
    """Images as f32 (B, channels, height, width).

    Raises:
        DTypeError: integers, such as the bytes of a picture: images are scaled.
        ShapeError: another shape.
    """
    x = as_tensor(pixels)
    if not x.dtype.is_float:
        raise DTypeError(
            f"images are floats, scaled as the model was trained, not {x.dtype.name}",
            hint="model.prepare makes them of pictures",
        )
    if x.ndim != 4 or x.shape[1] != channels:
        raise ShapeError(
            f"images are (batch, {channels}, height, width), not {x.shape}",
            hint="model.prepare makes them of pictures",
        )
    return x if x.dtype in (cb.f32, cb.f64) else x.astype(cb.f32)


class VisionTransformer(RepeatedCalls, Prepared):
    """Images -> what the head gives; without one, a vector for each token.

    Attributes:
        config: what it is made of.
        labels: what the numbers of the head stand for.

    Example:
        >>> c = VisionConfig(LayerConfig(8, 2, 16), layers=1, image=(8, 8), patch=(4, 4))
        >>> VisionTransformer(c)(np.zeros((2, 3, 8, 8), np.float32)).shape
        (2, 5, 8)
    """

    def __init__(self, c: VisionConfig) -> None:
        super().__init__()
        width = c.layer.width
        self.config, self.labels = c, c.labels
        self.patch = Linear(c.channels * c.patch[0] * c.patch[1], width, c.patch_bias)
        self.extra = Parameter(init.normal((c.extra, width), 0.02))
        rows = c.extra + c.grid[0] * c.grid[1]
        self.positions = Parameter(init.normal((rows, width), 0.02))
        self.before = LayerNorm(width, c.layer.eps) if c.before else None
        self.layers = ModuleList(PreNormLayer(c.layer) for _ in range(c.layers))
        self.norm = LayerNorm(width, c.layer.eps)
        wide = 2 * width if c.head == "mean" else width
        self.head = Linear(wide, c.outputs, c.head != "projection") if c.head else None
        self.second_head = Linear(width, c.outputs) if c.head == "both" else None

    def forward(self, pixels: Any) -> Tensor:
        """Numbers of the head, (B, outputs), or what `hidden` gives where there is none.

        Args:
            pixels: floats (B, channels, height, width), scaled as the model was trained.

        Raises:
            ShapeError: images of another shape, or smaller than a patch.
        """
        x = self.hidden(pixels)
        if self.head is None:
            return x
        first = x[:, 0]
        if self.config.head == "mean":
            return self.head(concat([first, x[:, self.config.extra :].mean(1)], axis=-1))
        if self.second_head is not None:
            return (self.head(first) + self.second_head(x[:, 1])) / 2
        return self.head(first)

    def hidden(self, pixels: Any) -> Tensor:
        """A vector of each token after the last norm, (B, extra + patches, width)."""
        c = self.config
        x = images_of(pixels, c.channels).to(self.patch.weight.device)
        batch, channels, height, width = x.shape
        rows, columns = height // c.patch[0], width // c.patch[1]
        if not rows or not columns:
            raise ShapeError(f"an image of {height} x {width} is smaller than a patch of {c.patch}")
        x = x[:, :, : rows * c.patch[0], : columns * c.patch[1]]
        x = x.reshape(batch, channels, rows, c.patch[0], columns, c.patch[1])
        x = x.permute(0, 2, 4, 1, 3, 5).reshape(batch, rows * columns, -1)
        extra = self.extra.unsqueeze(0).expand(batch, *self.extra.shape)
        x = concat([extra, self.patch(x)], axis=1) + self.positions_of(rows, columns)
        if self.before is not None:
            x = self.before(x)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)  # type: ignore[no-any-return]

    def embed(self, pixels: Any, *, normalize: bool = False) -> np.ndarray:
        """A vector of each image: of the first token, through a projection where there is one.

        Args:
            pixels: (B, channels, height, width).
            normalize: whether vectors have length 1.

        Returns:
            (B, width) f32.
        """
        with cb.no_grad():
            if self.config.head == "projection":
                found = self(pixels)
            else:
                found = repeated(self, "hidden", VisionTransformer.hidden, (pixels,))[:, 0]
        return of_length_one(found.numpy()) if normalize else found.numpy()

    def positions_of(self, rows: int, columns: int) -> Tensor:
        """Vectors of positions; those of another grid lie between the trained ones (bicubic)."""
        c = self.config
        if (rows, columns) == c.grid:
            return self.positions
        width = self.positions.shape[1]
        trained = self.positions[c.extra :].T.reshape(1, width, *c.grid)
        if c.smooth:
            down, along = (
                as_tensor(weights_of(before, now, CUBIC).astype(np.float32)).to(trained.device)
                for before, now in zip(c.grid, (rows, columns), strict=True)
            )
            found = down @ trained @ along.T
        else:
            found = F.interpolate(trained, (rows, columns), mode="bicubic", align_corners=False)
        return concat([self.positions[: c.extra], found.reshape(width, -1).T], axis=0)

"""Layers of transformers with norms in front, of images and of CLIP's texts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cubepy.nn import LayerNorm, Linear, Module, Parameter, init
from cubepy.nn import functional as F
from cubepy.tensor import Tensor

QUICK = "quick_gelu"
"""x times the sigmoid of 1.702 x, which CLIP calls so; no activation of linear layers."""


@dataclass(frozen=True)
class LayerConfig:
    """What a layer is made of.

    Attributes:
        width, heads, inner: of the layer.
        eps: of norms.
        activation: a name of `nn.functional.ACTIVATIONS`, or `QUICK`.
        attention_bias: of queries, keys and values.
        gated: the network multiplies by a gate (DINOv2's giant).
        scaled: what a part gives is multiplied by a vector before it is added (DINOv2).
        causal: positions see those before them alone.
    """

    width: int
    heads: int
    inner: int
    eps: float = 1e-12
    activation: str = "gelu"
    attention_bias: bool = True
    gated: bool = False
    scaled: bool = False
    causal: bool = False


class PreNormLayer(Module):
    """Attention, then a network, each of what was normalised, added to what came in.

    Example:
        >>> from cubepy.tensor import as_tensor
        >>> layer = PreNormLayer(LayerConfig(width=8, heads=2, inner=16))
        >>> layer(as_tensor([[[0.5] * 8] * 3])).shape
        (1, 3, 8)
    """

    def __init__(self, c: LayerConfig) -> None:
        super().__init__()
        self.config = c
        self.before_attention, self.before_network = (LayerNorm(c.width, c.eps) for _ in range(2))
        self.q, self.k, self.v = (Linear(c.width, c.width, c.attention_bias) for _ in range(3))
        self.o = Linear(c.width, c.width)
        self.gate = Linear(c.width, c.inner) if c.gated else None
        self.up, self.down = Linear(c.width, c.inner), Linear(c.inner, c.width)
        scales = [Parameter(init.constant((c.width,), 1.0)) for _ in range(2)]
        self.attention_scale = scales[0] if c.scaled else None
        self.network_scale = scales[1] if c.scaled else None

    def forward(self, x: Tensor) -> Tensor:
        """(B, L, width) -> the same."""
        x = self.added(x, self.o, self.attention(self.before_attention(x)), self.attention_scale)
        return self.added(x, self.down, self.inner(self.before_network(x)), self.network_scale)

    def attention(self, x: Tensor) -> Tensor:
        """What positions see of each other, before the last product."""
        batch, length, width = x.shape
        q, k, v = (
            part(x).reshape(batch, length, self.config.heads, -1).transpose(1, 2)
            for part in (self.q, self.k, self.v)
        )
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=self.config.causal)
        return seen.transpose(1, 2).reshape(batch, length, width)

    def inner(self, x: Tensor) -> Tensor:
        """The network at each position, before the last product."""
        if self.gate is not None:
            return self.gate(x, activation="silu") * self.up(x)  # type: ignore[no-any-return]
        if self.config.activation == QUICK:
            y = self.up(x)
            return y * (y * 1.702).sigmoid()
        return self.up(x, activation=self.config.activation)  # type: ignore[no-any-return]

    def added(self, x: Tensor, last: Linear, y: Tensor, scale: Tensor | None) -> Tensor:
        """The residual stream with what a part gave."""
        return last(y, residual=x) if scale is None else x + last(y) * scale


def of_length_one(x: np.ndarray) -> np.ndarray:
    """Vectors (..., width) by their lengths; those of length 0 stay.

    Example:
        >>> of_length_one(np.array([3.0, 4.0]))
        array([0.6, 0.8])
    """
    found: np.ndarray = x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12)
    return found

"""ModernBERT (Warner et al., 2024): rotary positions, layers that see all and layers that see
neighbours, gated networks, norms in front.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cubepy.models.architectures.decoder import rotated
from cubepy.models.architectures.encoder import embedded
from cubepy.models.architectures.experts import ACTIVATIONS
from cubepy.models.architectures.names import Names
from cubepy.models.architectures.rotary import Rotary, rotary
from cubepy.models.architectures.settings import Settings
from cubepy.nn import Embedding, LayerNorm, Linear, Module, ModuleList
from cubepy.nn import functional as F
from cubepy.tensor import Tensor, as_tensor
from cubepy.tensor.namespace import concat

GLOBAL, LOCAL = "full_attention", "sliding_attention"


@dataclass(frozen=True)
class ModernConfig:
    """What the encoder is made of.

    Attributes:
        vocabulary, width, layers, heads, inner, context: of the model.
        eps: of norms.
        activation: one of `ACTIVATIONS`.
        norm_bias, attention_bias, network_bias: whether there are biases.
        padding: the token that fills texts up.
        local: for each layer, whether it sees neighbours alone; empty: all but each third.
        reach: how many positions to each side such a layer sees.
        angles: of layers that see all, and of the others; None: bases of 160,000 and 10,000.
    """

    vocabulary: int
    width: int
    layers: int
    heads: int
    inner: int
    context: int
    eps: float = 1e-5
    activation: str = "gelu"
    norm_bias: bool = False
    attention_bias: bool = False
    network_bias: bool = False
    padding: int = 0
    local: tuple[bool, ...] = ()
    reach: int = 64
    angles: tuple[Rotary, Rotary] | None = field(default=None, compare=False)

    def is_local(self, layer: int) -> bool:
        """Whether a layer sees neighbours alone."""
        return self.local[layer] if self.local else layer % 3 != 0


def _norm(c: ModernConfig) -> LayerNorm:
    found = LayerNorm(c.width, c.eps)
    if not c.norm_bias:
        found.bias = None
    return found


BLOCKS = 8
"""Texts of so many reaches and more: blocks of queries see blocks of keys, not all of them."""


def windows_of(x: Tensor, reach: int) -> Tensor:
    """(B, H, L, D) -> (B, blocks, H, 4 * reach, D): what a block of twice the reach, and the reach
    before and behind it, have; zeros beyond the ends.
    """
    batch, heads, length, depth = x.shape
    blocks = -(-length // (2 * reach))
    x = F.pad(x, (0, 0, reach, (2 * blocks + 1) * reach - length))
    x = x.reshape(batch, heads, 2 * blocks + 2, reach, depth)
    parts = [x[:, :, n : n + 2 * blocks - 1 : 2] for n in range(4)]
    return concat(parts, axis=3).permute(0, 2, 1, 3, 4)  # type: ignore[no-any-return]


def seen_in_blocks(looks: Tensor, reach: int) -> Tensor:
    """What blocks of queries see of their windows, (B * blocks, 1, 2 * reach, 4 * reach): keys that
    are near, and where `looks` (B, L) says that there are tokens.
    """
    batch, length = looks.shape
    there = windows_of(looks.astype("f32").reshape(batch, 1, length, 1), reach)
    query, key = np.ogrid[: 2 * reach, : 4 * reach]
    near = as_tensor(abs(query + reach - key) <= reach).to(looks.device)
    return (there.reshape(-1, 1, 1, 4 * reach) != 0) & near  # type: ignore[no-any-return]


def attention_in_blocks(q: Tensor, k: Tensor, v: Tensor, seen: Tensor, reach: int) -> Tensor:
    """Attention (B, H, L, D) to keys that are near, as `seen_in_blocks` says."""
    batch, heads, length, depth = q.shape
    size = 2 * reach
    blocks = -(-length // size)
    q = F.pad(q, (0, 0, 0, blocks * size - length))
    q = q.reshape(batch, heads, blocks, size, depth).permute(0, 2, 1, 3, 4)
    keys, values = (windows_of(t, reach).reshape(-1, heads, 2 * size, depth) for t in (k, v))
    y = F.scaled_dot_product_attention(q.reshape(-1, heads, size, depth), keys, values, seen)
    y = y.reshape(batch, blocks, heads, size, depth).permute(0, 2, 1, 3, 4)
    return y.reshape(batch, heads, -1, depth)[:, :, :length]


class ModernLayer(Module):
    """Attention, then the network, each of what was normalised, added to what came in."""

    def __init__(self, c: ModernConfig, number: int) -> None:
        super().__init__()
        self.heads, self.activation = c.heads, ACTIVATIONS[c.activation]
        self.before_attention = _norm(c) if number else None
        self.qkv = Linear(c.width, 3 * c.width, c.attention_bias)
        self.o = Linear(c.width, c.width, c.attention_bias)
        self.before_network = _norm(c)
        self.gate_up = Linear(c.width, 2 * c.inner, c.network_bias)
        self.down = Linear(c.inner, c.width, c.network_bias)

    def forward(
        self, x: Tensor, angles: tuple[Tensor, Tensor], mask: Tensor, reach: int = 0
    ) -> Tensor:
        """(B, L, width) -> the same; angles (B, L, pairs), a mask of (B, 1, 1 or L, L); with a
        `reach` that of `seen_in_blocks`.
        """
        batch, length, width = x.shape
        first = x if self.before_attention is None else self.before_attention(x)
        heads = self.qkv(first).reshape(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k = rotated(heads[0], *angles), rotated(heads[1], *angles)
        if reach:
            seen = attention_in_blocks(q, k, heads[2], mask, reach)
        else:
            seen = F.scaled_dot_product_attention(q, k, heads[2], mask)
        x = self.o(seen.transpose(1, 2).reshape(batch, length, width), residual=x)
        gate, up = self.gate_up(self.before_network(x)).chunk(2, -1)
        return self.down(self.activation(gate) * up, residual=x)


class ModernEncoder(Module):
    """Tokens -> a vector for each.

    Example:
        >>> c = ModernConfig(vocabulary=9, width=8, layers=2, heads=2, inner=16, context=32)
        >>> ModernEncoder(c)([[1, 2, 3]]).shape
        (1, 3, 8)
    """

    def __init__(self, c: ModernConfig) -> None:
        super().__init__()
        self.config = c
        self.words, self.norm = Embedding(c.vocabulary, c.width), _norm(c)
        self.layers = ModuleList(ModernLayer(c, n) for n in range(c.layers))
        self.last_norm = _norm(c)
        depth = c.width // c.heads
        self.angles = c.angles or (rotary(depth, 160000.0), rotary(depth, 10000.0))
        for name, one in zip(("global", "local"), self.angles, strict=True):
            frequencies = as_tensor(one.frequencies)
            self.register_buffer(f"{name}_frequencies", frequencies, persistent=False)

    def forward(self, tokens: Any, mask: Any = None) -> Tensor:
        """A vector of each token, (B, L, width).

        Args:
            tokens: integers (B, L).
            mask: (B, L), 1 where a token is; by default where it is not the padding.

        Raises:
            OutOfBoundsError: tokens that there are not.
        """
        tokens, looks, x = embedded(self.words, tokens, mask, self.config.padding)
        x = self.norm(x)
        batch, length = tokens.shape
        everything = looks.reshape(batch, 1, 1, length)
        positions = np.arange(length)
        reach = self.config.reach
        if length >= BLOCKS * reach > 0:
            neighbours = seen_in_blocks(looks.reshape(batch, length), reach)
        else:
            near = np.abs(positions[:, None] - positions) <= reach
            neighbours, reach = everything & as_tensor(near).to(tokens.device), 0
        at = as_tensor(positions.astype(np.float32)).to(tokens.device).reshape(1, length, 1)
        angles = [self.rotations(at, local) for local in (False, True)]
        for n, layer in enumerate(self.layers):
            if self.config.is_local(n):
                x = layer(x, angles[True], neighbours, reach)
            else:
                x = layer(x, angles[False], everything)
        return self.last_norm(x)  # type: ignore[no-any-return]

    def rotations(self, at: Tensor, local: bool) -> tuple[Tensor, Tensor]:
        """cos and sin of the angles at positions (1, L, 1), each (1, L, pairs)."""
        frequencies = self.local_frequencies if local else self.global_frequencies
        angles, factor = at * frequencies, self.angles[local].factor
        return angles.cos() * factor, angles.sin() * factor


def modern_config(s: Settings) -> ModernConfig:
    """What a config says.

    Raises:
        FileFormatError: what is missing, or has a value that cannot be.
    """
    width, heads = s.size("hidden_size"), s.size("num_attention_heads")
    layers = s.layers("num_hidden_layers")
    if width % heads:
        raise s.refuse(f"{heads} heads do not divide a width of {width}")
    every = s.size("global_attn_every_n_layers", default=3)
    kinds = s.values.get("layer_types") or [
        GLOBAL if n % every == 0 else LOCAL for n in range(layers)
    ]
    if not isinstance(kinds, list) or len(kinds) != layers or set(kinds) - {GLOBAL, LOCAL}:
        raise s.refuse(f"layer_types must name {layers} layers of {GLOBAL} or {LOCAL}")
    activation = s.activation("hidden_activation", default="gelu")
    padding = s.values.get("pad_token_id")
    return ModernConfig(
        vocabulary=s.size("vocab_size"),
        width=width,
        layers=layers,
        heads=heads,
        inner=s.size("intermediate_size"),
        context=s.size("max_position_embeddings", default=8192),
        eps=s.number("norm_eps", default=1e-5),
        activation=activation,
        norm_bias=s.flag("norm_bias", False),
        attention_bias=s.flag("attention_bias", False),
        network_bias=s.flag("mlp_bias", False),
        padding=padding if isinstance(padding, int) else 0,
        local=tuple(kind == LOCAL for kind in kinds),
        reach=s.size("local_attention", default=128) // 2,
        angles=(
            _angles(s, GLOBAL, "global_rope_theta", 160000.0),
            _angles(s, LOCAL, "local_rope_theta", 10000.0),
        ),
    )


def _angles(s: Settings, kind: str, old: str, base: float) -> Rotary:
    given = s.table("rope_parameters").get(kind)
    scaling = given if isinstance(given, dict) else {}
    theta = Settings(scaling, s.source).number("rope_theta", default=s.number(old, default=base))
    if theta <= 0:
        raise s.refuse(f"a rotary base of {theta}")
    depth = s.size("hidden_size") // s.size("num_attention_heads")
    return rotary(depth, theta, scaling, s.size("max_position_embeddings", default=8192))


MODERN_NAMES = Names(
    layer=re.compile(r"layers\.(?P<number>\d+)\.(?P<part>.+)"),
    prefix=re.compile(r"^model\."),
    ignored=re.compile(r"^(head|decoder|classifier)\."),
    parts={
        "attn_norm": "before_attention",
        "attn.Wqkv": "qkv",
        "attn.Wo": "o",
        "mlp_norm": "before_network",
        "mlp.Wi": "gate_up",
        "mlp.Wo": "down",
    },
    whole={
        "embeddings.tok_embeddings": "words",
        "embeddings.norm": "norm",
        "final_norm": "last_norm",
    },
)

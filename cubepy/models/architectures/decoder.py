"""One decoder for the families of models that write text: GPT-2, GPT-NeoX, Llama and what came of
it. What differs between them is in `DecoderConfig`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.lang.dtypes import DType
from cubepy.models.architectures.cached_bytes import stored
from cubepy.models.architectures.experts import ExpertConfig, Experts
from cubepy.models.architectures.rotary import Rotary
from cubepy.models.architectures.tokens import as_tokens
from cubepy.models.packed import joined
from cubepy.nn import Embedding, LayerNorm, Linear, Module, ModuleList, Parameter, init
from cubepy.nn import functional as F
from cubepy.runtime.device import Device, gpu_of
from cubepy.tensor import Tensor, apply, as_tensor
from cubepy.tensor.namespace import concat, minimum, where


@dataclass(frozen=True)
class DecoderConfig:
    """What a decoder is made of.

    Attributes:
        vocabulary, width, layers, heads: of the model.
        groups: heads of keys and values.
        depth: of a head.
        inner: width of the network at each position.
        context: positions that it was made for.
        norm: "rms", "layer" or "plain" (layer norm without weights).
        eps: of norms.
        norm_bias: whether layer norms have a bias.
        before, after: whether there is a norm before, behind attention and network.
        parallel: attention and network read the same input (GPT-NeoX).
        head_norms: norms of queries and keys: "", "head" (each head) or "all" (all together).
        activation: a name of `nn.functional.ACTIVATIONS`.
        gated: the network multiplies by a gate.
        attention_bias: of queries, keys and values.
        output_bias, network_bias: of the other layers.
        learned_positions: positions are rows of a table.
        rotary, local_rotary: angles of layers that see all, and of those with a window.
        rotated: for each layer, whether it rotates; empty: all do.
        windows: for each layer, how many positions a query sees, 0: all; empty: all see all.
        scale: of products of queries and keys.
        attention_cap, logits_cap: soft limits, 0: none.
        embedding_scale, residual_scale, logits_scale: factors.
        tied: the last layer is the table of words.
        experts: networks of which each position picks some, or None.
    """

    vocabulary: int
    width: int
    layers: int
    heads: int
    groups: int
    depth: int
    inner: int
    context: int
    norm: str = "rms"
    eps: float = 1e-5
    norm_bias: bool = False
    before: bool = True
    after: bool = False
    parallel: bool = False
    head_norms: str = ""
    activation: str = "silu"
    gated: bool = True
    attention_bias: bool = False
    output_bias: bool = False
    network_bias: bool = False
    learned_positions: bool = False
    rotary: Rotary | None = field(default=None, compare=False)
    local_rotary: Rotary | None = field(default=None, compare=False)
    rotated: tuple[bool, ...] = ()
    windows: tuple[int, ...] = ()
    scale: float = 0.0
    attention_cap: float = 0.0
    logits_cap: float = 0.0
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    logits_scale: float = 1.0
    tied: bool = True
    experts: ExpertConfig | None = None

    def window(self, layer: int) -> int:
        """How many positions a query of a layer sees, 0: all."""
        return self.windows[layer] if self.windows else 0


class RootNorm(Module):
    """Division by the root of the mean square, in one launch."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = Parameter(init.constant((width,), 1.0))

    def forward(self, x: Tensor) -> Tensor:
        """(..., width) -> the same."""
        shape = self.weight.shape
        return apply("rms_norm", x, self.weight, normalized_shape=shape, eps=self.eps)  # type: ignore[no-any-return]


class PlainNorm(Module):
    """Layer norm without weights (OLMo)."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.width, self.eps = width, eps

    def forward(self, x: Tensor) -> Tensor:
        """(..., width) -> the same."""
        return F.layer_norm(x, self.width, eps=self.eps)


def norm_of(c: DecoderConfig, width: int) -> Module:
    """A norm of the model's kind."""
    if c.norm == "plain":
        return PlainNorm(width, c.eps)
    if c.norm == "rms":
        return RootNorm(width, c.eps)
    found = LayerNorm(width, c.eps)
    if not c.norm_bias:
        found.bias = None
    return found


@dataclass(frozen=True)
class Positions:
    """Where the tokens of a call are.

    Attributes:
        rotations: by whether a layer has a window: cos and sin (B, L, pairs), or None.
        starts: (B,) how many positions the caches hold, or None without caches.
        fresh: whether the caches are empty, so that new positions see each other alone.
    """

    rotations: dict[bool, tuple[Tensor, Tensor] | None]
    starts: Tensor | None = None
    fresh: bool = False


class Attention(Module):
    """Attention to what came before."""

    def __init__(self, c: DecoderConfig, layer: int) -> None:
        super().__init__()
        self.heads, self.groups, self.depth = c.heads, c.groups, c.depth
        self.scale = c.scale or c.depth**-0.5
        self.window, self.cap = c.window(layer), c.attention_cap
        self.local = bool(self.window)
        self.rotates = not c.rotated or c.rotated[layer]
        self.each_head = c.head_norms == "head"
        self.q = Linear(c.width, c.heads * c.depth, c.attention_bias)
        self.k = Linear(c.width, c.groups * c.depth, c.attention_bias)
        self.v = Linear(c.width, c.groups * c.depth, c.attention_bias)
        self.o = Linear(c.heads * c.depth, c.width, c.output_bias)
        self.q_norm: Module | None = None
        self.k_norm: Module | None = None
        if c.head_norms:
            widths = (
                (c.depth, c.depth) if self.each_head else (c.heads * c.depth, c.groups * c.depth)
            )
            self.q_norm, self.k_norm = (norm_of(c, width) for width in widths)

    def parted(self, x: Tensor, heads: int, norm: Module | None) -> Tensor:
        """(B, L, heads * depth) -> (B, heads, L, depth)."""
        if norm is not None and not self.each_head:
            x = norm(x)
        x = x.reshape(*x.shape[:2], heads, self.depth)
        if norm is not None and self.each_head:
            x = norm(x)
        return x.transpose(1, 2)

    def forward(
        self, x: Tensor, at: Positions, cache: Sequence[Tensor] | None, residual: Tensor | None
    ) -> Tensor:
        """(B, L, width) -> the same, plus `residual`."""
        batch, length = x.shape[:2]
        layers = (self.q, self.k, self.v)
        if joined.aligned(x, layers):
            q, k, v = joined.side_by_side(x, layers)
        else:
            q, k, v = (layer(x) for layer in layers)
        q = self.parted(q, self.heads, self.q_norm)
        k = self.parted(k, self.groups, self.k_norm)
        v = self.parted(v, self.groups, None)
        rotations = at.rotations[self.local] if self.rotates else None
        if cache is not None and not at.fresh:
            assert at.starts is not None
            cos, sin = (None, None) if rotations is None else rotations
            seen = apply(
                "cached_attention",
                *(q, k, v, *cache[:2], at.starts, cos, sin, *cache[2:]),
                scale=self.scale,
                window=self.window,
                cap=self.cap,
            )
        else:
            if rotations is not None:
                q, k = rotated(q, *rotations), rotated(k, *rotations)
            if cache is not None:
                k, v = stored(cache, k, v)
            seen = self.whole(q, k, v)
        return self.o(seen.transpose(1, 2).reshape(batch, length, -1), residual=residual)

    def whole(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attention of positions to each other."""
        length = q.shape[2]
        if self.cap:
            groups = self.heads // self.groups
            wide = [t.unsqueeze(2).expand(*t.shape[:2], groups, *t.shape[2:]) for t in (k, v)]
            k, v = (t.reshape(q.shape[0], self.heads, length, -1) for t in wide)
            scores = (q @ k.transpose(-1, -2)) * (self.scale / self.cap)
            scores = scores.tanh() * self.cap
            mask = as_tensor(window_mask(length, self.window)).to(q.device)
            return where(mask, scores, -math.inf).softmax(-1) @ v
        if self.window and self.window < length:
            mask = as_tensor(window_mask(length, self.window)).to(q.device)
            return F.scaled_dot_product_attention(q, k, v, mask, scale=self.scale)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=self.scale)


def window_mask(length: int, window: int) -> np.ndarray:
    """(length, length): true where a query may look.

    Example:
        >>> window_mask(3, 2).astype(int)
        array([[1, 0, 0],
               [1, 1, 0],
               [0, 1, 1]])
    """
    back = np.arange(length)[:, None] - np.arange(length)
    return (back >= 0) & ((back < window) if window else True)


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Pairs (number n, number n + pairs) of each head, turned by the angle of their position.

    Args:
        x: (B, H, L, D).
        cos, sin: (B, L, pairs).
    """
    half = cos.shape[-1]
    c, s = cos.unsqueeze(1), sin.unsqueeze(1)
    a, b = x[..., :half], x[..., half : 2 * half]
    parts = [a * c - b * s, b * c + a * s]
    if 2 * half < x.shape[-1]:
        parts.append(x[..., 2 * half :])
    return concat([part.astype(x.dtype) for part in parts], axis=-1)


class Network(Module):
    """The network at each position."""

    def __init__(self, c: DecoderConfig, inner: int) -> None:
        super().__init__()
        self.activation = c.activation
        self.gate = Linear(c.width, inner, c.network_bias) if c.gated else None
        self.up = Linear(c.width, inner, c.network_bias)
        self.down = Linear(inner, c.width, c.network_bias)

    def forward(self, x: Tensor, residual: Tensor | None) -> Tensor:
        """(B, L, width) -> the same, plus `residual`."""
        if self.gate is None:
            return self.down(self.up(x, activation=self.activation), residual=residual)
        if joined.fits(x, (self.gate, self.up)):
            return self.down(
                joined.gated(x, self.gate, self.up, self.activation), residual=residual
            )
        return self.down(self.gate(x, activation=self.activation) * self.up(x), residual=residual)


def network_of(c: DecoderConfig, layer: int) -> Module:
    """The network of a layer, or its experts."""
    if c.experts is None or layer in c.experts.plain:
        return Network(c, c.inner)
    shared = Network(c, c.experts.shared) if c.experts.shared else None
    return Experts(c.width, c.experts, c.activation, shared)


class Layer(Module):
    """Attention, then the network, each added to what came in."""

    def __init__(self, c: DecoderConfig, number: int) -> None:
        super().__init__()
        self.parallel, self.factor = c.parallel, c.residual_scale
        self.attention, self.network = Attention(c, number), network_of(c, number)
        norms = [norm_of(c, c.width) for _ in range(4)]
        self.before_attention = norms[0] if c.before else None
        self.before_network = norms[1] if c.before else None
        self.after_attention = norms[2] if c.after else None
        self.after_network = norms[3] if c.after else None

    def forward(self, x: Tensor, at: Positions, cache: Sequence[Tensor] | None) -> Tensor:
        """(B, L, width) -> the same."""
        first = x if self.before_attention is None else self.before_attention(x)
        if self.parallel:
            second = x if self.before_network is None else self.before_network(x)
            return self.network(second, self.attention(first, at, cache, x))
        plain = self.after_attention is None and self.factor == 1
        x = self.added(
            x, self.after_attention, self.attention(first, at, cache, x if plain else None)
        )
        second = x if self.before_network is None else self.before_network(x)
        return self.added(x, self.after_network, self.network(second, x if plain else None))

    def added(self, x: Tensor, norm: Module | None, y: Tensor) -> Tensor:
        """The residual stream with what a part gave."""
        if norm is None and self.factor == 1:
            return y  # the part added it
        if norm is not None:
            y = norm(y)
        return x + (y if self.factor == 1 else y * self.factor)


def stream_of(dtype: DType, device: Device) -> DType:
    """What is passed from layer to layer where the table of words has this dtype.

    Example:
        >>> stream_of(cb.bf16, Device("cpu")), stream_of(cb.bf16, Device("cuda"))
        (cb.f32, cb.bf16)
    """
    if dtype is cb.f64 or (dtype is cb.bf16 and gpu_of(device) is not None):
        return dtype
    return cb.f32


class Decoder(Module):
    """Tokens before -> a number for each token that may come next.

    Example:
        >>> c = DecoderConfig(vocabulary=9, width=8, layers=1, heads=2, groups=1, depth=4, inner=16,
        ...     context=32)
        >>> Decoder(c)([[1, 2, 3]]).shape
        (1, 3, 9)
    """

    def __init__(self, c: DecoderConfig) -> None:
        super().__init__()
        self.config = c
        self.words = Embedding(c.vocabulary, c.width)
        self.positions = Embedding(c.context, c.width) if c.learned_positions else None
        self.layers = ModuleList(Layer(c, n) for n in range(c.layers))
        self.norm = norm_of(c, c.width)
        self.head = Linear(c.width, c.vocabulary, bias=False)
        if c.tied:
            self.head.weight = self.words.weight
        for name, angles in (("global", c.rotary), ("local", c.local_rotary)):
            found = None if angles is None else as_tensor(angles.frequencies)
            self.register_buffer(f"{name}_frequencies", found, persistent=False)
        long = None if c.rotary is None or c.rotary.long is None else as_tensor(c.rotary.long)
        self.register_buffer("long_frequencies", long, persistent=False)

    def forward(self, tokens: Any) -> Tensor:
        """Integers (B, L) -> (B, L, vocabulary): position i sees positions 0 to i."""
        tokens = as_tokens(tokens, self.words.weight.device)
        return self.logits(self.hidden(tokens, None, None))

    def hidden(
        self,
        tokens: Tensor,
        starts: Tensor | None,
        caches: Sequence[Sequence[Tensor]] | None,
        long: bool | None = None,
        fresh: bool = False,
    ) -> Tensor:
        """What the last layer gives, (B, L, width), after the last norm. It is f32 (bf16 on a GPU,
        where the weights are).

        Args:
            tokens: (B, L).
            starts: (B,) how many positions the caches hold; None: none, without caches.
            caches: of each layer, keys and values (B, groups, capacity, depth), written in place,
                and scales of bytes (B, groups, capacity, groups of 32 numbers).
            long: whether angles are those of long texts; None: where a position says so.
            fresh: the caches hold nothing, so that what is new sees itself alone.
        """
        c = self.config
        length = tokens.shape[1]
        if starts is not None and length == 1:
            at_positions = starts.unsqueeze(1)
        else:
            offsets = as_tensor(np.arange(length)).to(tokens.device).unsqueeze(0)
            at_positions = offsets if starts is None else starts.unsqueeze(1) + offsets
        x = self.words(tokens)
        x = x.astype(stream_of(x.dtype, x.device))
        if c.embedding_scale != 1:
            x = x * c.embedding_scale
        if self.positions is not None:
            at_rows = at_positions
            if starts is not None and length > 1:  # behind the last one nobody looks
                at_rows = minimum(at_rows, c.context - 1)
            x = x + self.positions(at_rows)
        at_positions = at_positions.astype(cb.f32).expand(*tokens.shape)
        rotations = {False: self.rotations(False, at_positions, long)}
        rotations[True] = (
            rotations[False]
            if self.local_frequencies is None
            else self.rotations(True, at_positions)
        )
        at = Positions(rotations, starts, fresh)
        for n, layer in enumerate(self.layers):
            x = layer(x, at, None if caches is None else caches[n])
        return self.norm(x)

    def rotations(
        self, local: bool, at_positions: Tensor, long: bool | None = None
    ) -> tuple[Tensor, Tensor] | None:
        """cos and sin of the angles at positions (B, L), each (B, L, pairs)."""
        angles = self.config.local_rotary if local else self.config.rotary
        if angles is None:
            return None
        frequencies = self.local_frequencies if local else self.global_frequencies
        grown = angles.at_length(at_positions.shape[1])
        if grown is not None:
            frequencies = as_tensor(grown).to(frequencies.device)
        if not local and self.long_frequencies is not None:
            if long is None:
                beyond = at_positions.max(axis=1, keepdims=True) >= angles.original  # of each row
                frequencies = where(beyond.unsqueeze(-1), self.long_frequencies, frequencies)
            elif long:
                frequencies = self.long_frequencies
        turned = at_positions.unsqueeze(-1) * frequencies
        cos, sin = turned.cos(), turned.sin()
        return (cos, sin) if angles.factor == 1 else (cos * angles.factor, sin * angles.factor)

    def logits(self, hidden: Tensor) -> Tensor:
        """(..., width) -> (..., vocabulary), f32 or f64."""
        c = self.config
        found = self.head(hidden)
        found = found if found.dtype is cb.f64 else found.astype(cb.f32)
        if c.logits_scale != 1:
            found = found * c.logits_scale
        return (found * (1 / c.logits_cap)).tanh() * c.logits_cap if c.logits_cap else found

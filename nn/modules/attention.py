"""Attention with several heads."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cubepy.errors import ShapeError
from cubepy.lang.dtypes import bool_
from cubepy.nn import arguments, init
from cubepy.nn import functional as F
from cubepy.nn.module import Module
from cubepy.nn.modules.linear import Linear
from cubepy.nn.parameter import Parameter
from cubepy.tensor import Tensor, as_tensor
from cubepy.tensor.array import constant
from cubepy.tensor.namespace import concat, where


class MultiHeadAttention(Module):
    """Attention with several heads; the weights have the layout of `torch.nn.MultiheadAttention`.

    Args:
        embed_dim: width of queries, keys and values.
        num_heads: it divides `embed_dim`.
        bias: whether the projections have one.
        batch_first: inputs are (batch, length, embed_dim); otherwise (length, batch, embed_dim).

    Attributes:
        in_proj_weight: (3 * embed_dim, embed_dim): the projections of query, key and value, one
            above the other.
        in_proj_bias: (3 * embed_dim,) or None.
        out_proj: the last `Linear`.

    Raises:
        ShapeError: `num_heads` does not divide `embed_dim`, or one of them is below 1.

    Example:
        >>> attention = MultiHeadAttention(8, num_heads=2)
        >>> attention([[[1.0] * 8, [2.0] * 8]], is_causal=True).shape
        (1, 2, 8)
    """

    def __init__(
        self, embed_dim: int, num_heads: int, bias: bool = True, batch_first: bool = True
    ) -> None:
        super().__init__()
        embed_dim, num_heads = (
            arguments.size("embed_dim", embed_dim, 1),
            arguments.size("num_heads", num_heads, 1),
        )
        if embed_dim % num_heads:
            raise ShapeError(
                f"num_heads must divide embed_dim, but {num_heads} heads do not divide {embed_dim}"
            )
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.batch_first, bias = (
            arguments.flag("batch_first", batch_first),
            arguments.flag("bias", bias),
        )
        bound = init.xavier_bound(embed_dim, 3 * embed_dim)
        self.in_proj_weight: Any = Parameter(init.uniform((3 * embed_dim, embed_dim), bound))
        self.in_proj_bias = Parameter(init.constant((3 * embed_dim,), 0.0)) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, bias=bias)
        if bias:
            self.out_proj.bias = Parameter(init.constant((embed_dim,), 0.0))

    def forward(
        self,
        query: Any,
        key: Any = None,
        value: Any = None,
        attn_mask: Any = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Attend.

        Args:
            query: (B, L, embed_dim).
            key, value: (B, S, embed_dim); by default the query (self-attention), and the key.
            attn_mask: broadcastable to (B, heads, L, S); bool (true: may look) or floats that are
                added.
            is_causal: position i sees positions 0 to i.

        Returns:
            (B, L, embed_dim): the result alone, where torch gives a pair with the weights of
            attention.
        """
        key = query if key is None else key
        value = key if value is None else value
        q, k, v = (self._heads(p) for p in self._projected(query, key, value))
        return self._joined(F.scaled_dot_product_attention(q, k, v, attn_mask, is_causal=is_causal))

    def _projected(self, query: Any, key: Any, value: Any) -> list[Tensor]:
        """Query, key and value times their weights: one product where they are the same."""
        if query is key and key is value:
            projected = F.linear(query, self.in_proj_weight, self.in_proj_bias)
            return [projected[..., i * self.embed_dim : (i + 1) * self.embed_dim] for i in range(3)]
        return [self._project(x, i) for i, x in enumerate((query, key, value))]

    def _joined(self, out: Tensor) -> Tensor:
        """(B, heads, L, E / heads) -> the result."""
        order = (0, 2, 1, 3) if self.batch_first else (2, 0, 1, 3)
        return self.out_proj(out.permute(order).flatten(2))  # type: ignore[no-any-return]

    def _project(self, x: Any, part: int) -> Tensor:
        rows = slice(part * self.embed_dim, (part + 1) * self.embed_dim)
        bias = None if self.in_proj_bias is None else self.in_proj_bias[rows]
        return F.linear(x, self.in_proj_weight[rows], bias)

    def _heads(self, x: Tensor) -> Tensor:
        """(B, L, E) -> (B, heads, L, E / heads), a view."""
        split = x.reshape(*x.shape[:2], self.num_heads, self.embed_dim // self.num_heads)
        return split.permute((0, 2, 1, 3) if self.batch_first else (1, 2, 0, 3))

    def extra_repr(self) -> str:
        return f"embed_dim={self.embed_dim}, num_heads={self.num_heads}"


SPLIT = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
"""The weights of queries, keys and values that differ in their features."""


class MultiheadAttention(MultiHeadAttention):
    """Attention with the arguments, masks and results of `torch.nn.MultiheadAttention`.

    Args:
        embed_dim, num_heads, bias: see `MultiHeadAttention`.
        dropout: which part of the weights is left out while training.
        add_bias_kv: whether a learned key and value are added to all.
        add_zero_attn: whether a key and value of zeros are added to all.
        kdim, vdim: features of keys and values; embed_dim, if left out. Where they differ the
            weights are `q_proj_weight`, `k_proj_weight` and `v_proj_weight`.
        batch_first: inputs are (batch, length, embed_dim), else (length, batch, embed_dim).

    Example:
        >>> import numpy as np
        >>> x = np.ones((2, 5, 8), np.float32)
        >>> y, weights = MultiheadAttention(8, 2, batch_first=True)(x, x, x)
        >>> y.shape, weights.shape
        ((2, 5, 8), (2, 5, 5))
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
    ) -> None:
        super().__init__(embed_dim, num_heads, bias, batch_first)
        self.dropout = arguments.number("dropout", dropout, 0, 1)
        self.add_zero_attn = arguments.flag("add_zero_attn", add_zero_attn)
        self.kdim = embed_dim if kdim is None else arguments.size("kdim", kdim, 1)
        self.vdim = embed_dim if vdim is None else arguments.size("vdim", vdim, 1)
        if (self.kdim, self.vdim) != (embed_dim, embed_dim):
            self.in_proj_weight = None
            for name, n in zip(SPLIT, (embed_dim, self.kdim, self.vdim), strict=True):
                bound = init.xavier_bound(n, embed_dim)
                setattr(self, name, Parameter(init.uniform((embed_dim, n), bound)))
        self.bias_k: Parameter | None = None
        self.bias_v: Parameter | None = None
        if arguments.flag("add_bias_kv", add_bias_kv):
            std = math.sqrt(2 / (2 * embed_dim))
            self.bias_k = Parameter(init.normal((1, 1, embed_dim), std))
            self.bias_v = Parameter(init.normal((1, 1, embed_dim), std))

    def forward(  # type: ignore[override]
        self,
        query: Any,
        key: Any,
        value: Any,
        key_padding_mask: Any = None,
        need_weights: bool = True,
        attn_mask: Any = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend.

        Args:
            query: (B, L, embed_dim), or (L, B, embed_dim) where `batch_first` is false.
            key: (B, S, kdim).
            value: (B, S, vdim).
            key_padding_mask: (B, S): true, or -inf, where a key is not looked at.
            need_weights: whether the weights are wanted; without them they are never written.
            attn_mask: (L, S) or (B * num_heads, L, S): true where a query may not look, or floats
                that are added.
            average_attn_weights: whether the weights are the mean over heads.
            is_causal: position i sees positions 0 to i.

        Returns:
            The result, and the weights (B, L, S) or None. Without a batch, (L, embed_dim) and so
            on, both are without one.
        """
        if as_tensor(query).ndim == 2:
            axis = 0 if self.batch_first else 1
            q, k, v = (as_tensor(x).unsqueeze(axis) for x in (query, key, value))
            q, k, v = (q, q, q) if query is key and key is value else (q, k, v)
            padding = None if key_padding_mask is None else as_tensor(key_padding_mask).unsqueeze(0)
            how = (need_weights, attn_mask, average_attn_weights, is_causal)
            out, found = self.forward(q, k, v, padding, *how)
            return out.squeeze(axis), None if found is None else found.squeeze(0)
        q, k, v = (self._heads(p) for p in self._projected(query, key, value))
        mask = self._mask(q, k, attn_mask, key_padding_mask)
        added = self._added(k)
        if added:
            if is_causal and mask is None:
                seen = np.tri(q.shape[2], k.shape[2], dtype=bool)
                mask = as_tensor(np.where(seen, 0, -np.inf)).astype(q.dtype).to(q.device)
            k, v = (concat([x, *more], axis=2) for x, more in zip((k, v), added, strict=True))
            if mask is not None:
                mask = F.pad(mask, (0, len(added[0])))
            is_causal = False
        dropout = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            out, weights = F.attention_with_weights(q, k, v, mask, dropout, is_causal)
            weights = weights.mean(axis=1) if average_attn_weights else weights
        else:
            out = F.scaled_dot_product_attention(q, k, v, mask, dropout, is_causal)
        return self._joined(out), weights

    def _projected(self, query: Any, key: Any, value: Any) -> list[Tensor]:
        if self.in_proj_weight is not None:
            return super()._projected(query, key, value)
        e, bias = self.embed_dim, self.in_proj_bias
        parts = [None if bias is None else bias[i * e : (i + 1) * e] for i in range(3)]
        weights = (getattr(self, name) for name in SPLIT)
        given = zip((query, key, value), weights, parts, strict=True)
        return [F.linear(x, weight, part) for x, weight, part in given]

    def _added(self, k: Tensor) -> list[list[Tensor]]:
        """Keys and values (batch, heads, 1, depth) that are added to all; nothing without them."""
        shape = (k.shape[0], self.num_heads, 1, k.shape[3])
        found: list[list[Tensor]] = [[], []]
        for parts, learned in zip(found, (self.bias_k, self.bias_v), strict=True):
            if learned is not None:
                parts.append(learned.reshape(1, self.num_heads, 1, -1).expand(*shape))
            if self.add_zero_attn:
                parts.append(constant(0.0, k.dtype).to(k.device).reshape(1, 1, 1, 1).expand(*shape))
        return found if found[0] else []

    def _mask(self, q: Tensor, k: Tensor, mask: Any, padding: Any) -> Tensor | None:
        """What is added to the scores."""
        total = None
        for given, own in ((mask, False), (padding, True)):
            if given is None:
                continue
            m = as_tensor(given)
            if m.dtype is bool_:
                m = where(m, constant(-math.inf, q.dtype).to(q.device), constant(0.0, q.dtype))
            if own:
                m = m.reshape(q.shape[0], 1, 1, k.shape[2])
            elif m.ndim == 3:
                m = m.reshape(*q.shape[:3], k.shape[2])
            total = m if total is None else total + m
        return total

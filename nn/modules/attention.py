"""Attention with several heads."""

from __future__ import annotations

from typing import Any

from cubepy.errors import ShapeError
from cubepy.nn import arguments, init
from cubepy.nn import functional as F
from cubepy.nn.module import Module
from cubepy.nn.modules.linear import Linear
from cubepy.nn.parameter import Parameter
from cubepy.tensor import Tensor


class MultiHeadAttention(Module):
    """Attention with several heads; the weights have the layout of `torch.nn.MultiheadAttention`.

    Args:
        embed_dim: width of queries, keys and values.
        num_heads: it divides `embed_dim`.
        bias: whether the projections have one.
        batch_first: inputs are (batch, length, embed_dim); otherwise (length, batch, embed_dim).

    Attributes: in_proj_weight: (3 * embed_dim, embed_dim): the projections of query, key and value,
        one above the other. in_proj_bias: (3 * embed_dim,) or None. out_proj: the last `Linear`.

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
        self.in_proj_weight = Parameter(init.uniform((3 * embed_dim, embed_dim), bound))
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

        Args: query: (B, L, embed_dim). key, value: (B, S, embed_dim); by default the query
            (self-attention), and the key. attn_mask: broadcastable to (B, heads, L, S); bool (true:
            may look) or floats that are added. is_causal: position i sees positions 0 to i.

        Returns: (B, L, embed_dim): the result alone, where torch gives a pair with the weights of
            attention.
        """
        key = query if key is None else key
        value = key if value is None else value
        if query is key and key is value:
            projected = F.linear(query, self.in_proj_weight, self.in_proj_bias)
            parts = [
                projected[..., i * self.embed_dim : (i + 1) * self.embed_dim] for i in range(3)
            ]
        else:
            parts = [self._project(x, i) for i, x in enumerate((query, key, value))]
        q, k, v = (self._heads(p) for p in parts)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask, is_causal=is_causal)
        order = (0, 2, 1, 3) if self.batch_first else (2, 0, 1, 3)
        return self.out_proj(out.permute(order).flatten(2))

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


MultiheadAttention = MultiHeadAttention

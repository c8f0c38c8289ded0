"""Layers with the names, parameters, weight layouts and first values of `torch.nn`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cubepy.errors import ShapeError
from cubepy.nn import arguments, init
from cubepy.nn import functional as F
from cubepy.nn.module import Module
from cubepy.nn.parameter import Parameter
from cubepy.tensor import Tensor, apply


class Linear(Module):
    """`x @ weight.T + bias`.

    Args:
        in_features, out_features: lengths of the last axis of input and output.
        bias: whether there is one.

    Attributes:
        weight: (out_features, in_features); its storage may be quantized.
        bias: (out_features,) or None.

    Raises:
        ShapeError: a negative length.
        ArgumentError: a length that is no integer.

    Example:
        >>> Linear(3, 2)
        Linear(in_features=3, out_features=2, bias=True)
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__()
        self.in_features = arguments.size("in_features", in_features)
        self.out_features = arguments.size("out_features", out_features)
        bound = init.linear_bound(self.in_features)
        self.weight = Parameter(init.uniform((self.out_features, self.in_features), bound))
        biased = arguments.flag("bias", bias)
        self.bias = Parameter(init.uniform((self.out_features,), bound)) if biased else None

    def forward(self, input: Any, activation: str | None = None, residual: Any = None) -> Tensor:
        """(..., in_features) -> (..., out_features); `activation` and `residual` as in
        `functional.linear`.
        """
        if activation is not None or residual is not None or not isinstance(input, Tensor):
            return F.linear(input, self.weight, self.bias, activation=activation, residual=residual)
        return apply("linear", input, self.weight, self.bias, None, activation=None)

    def extra_repr(self) -> str:
        text = (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )
        kind = self.weight.storage.kind
        return text if kind == "dense" else f"{text}, storage={kind}"


class Embedding(Module):
    """A table of vectors, looked up by index.

    Attributes:
        weight: (num_embeddings, embedding_dim).

    Example:
        >>> Embedding(10, 4)([[1, 2, 3]]).shape
        (1, 3, 4)
    """

    def __init__(self, num_embeddings: int, embedding_dim: int) -> None:
        super().__init__()
        self.num_embeddings = arguments.size("num_embeddings", num_embeddings)
        self.embedding_dim = arguments.size("embedding_dim", embedding_dim)
        self.weight = Parameter(init.normal((self.num_embeddings, self.embedding_dim)))

    def forward(self, input: Any) -> Tensor:
        """Integers (...) -> (..., embedding_dim).

        Raises:
            OutOfBoundsError: as for `nn.functional.embedding`.
        """
        return F.embedding(input, self.weight)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}"


class LayerNorm(Module):
    """Normalisation over the last axes, with a learned scale and shift.

    Attributes:
        weight, bias: of shape `normalized_shape`, or None.

    Example:
        >>> LayerNorm(2)([[1.0, 3.0]]).numpy().round(3)
        array([[-1.,  1.]], dtype=float32)
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.normalized_shape = arguments.shape("normalized_shape", normalized_shape)
        self.eps = arguments.number("eps", eps, 0)
        self.elementwise_affine = arguments.flag("elementwise_affine", elementwise_affine)
        shape, biased = (
            self.normalized_shape,
            self.elementwise_affine and arguments.flag("bias", bias),
        )
        self.weight = Parameter(init.constant(shape, 1.0)) if self.elementwise_affine else None
        self.bias = Parameter(init.constant(shape, 0.0)) if biased else None

    def forward(self, input: Any) -> Tensor:
        """Any shape that ends with `normalized_shape` -> the same."""
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
        )


class GELU(Module):
    """Gaussian error linear unit; `approximate` is "none" or "tanh".

    Example:
        >>> GELU()([-1.0, 0.0, 1.0])
        tensor([-0.15865523,  0.        ,  0.8413448 ])
    """

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        if not isinstance(approximate, str) or approximate not in ("none", "tanh"):
            raise ShapeError(f'approximate is "none" or "tanh", not {approximate!r}')
        self.approximate = approximate

    def forward(self, input: Any) -> Tensor:
        """Any shape -> the same."""
        return F.gelu(input, self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class ReLU(Module):
    """max(x, 0).

    Example:
        >>> ReLU()([-1.0, 0.0, 1.0])
        tensor([0., 0., 1.])
    """

    def forward(self, input: Any) -> Tensor:
        """Any shape -> the same."""
        return F.relu(input)


class SiLU(Module):
    """x / (1 + exp(-x)).

    Example:
        >>> SiLU()([-1.0, 0.0, 1.0])
        tensor([-0.26894143,  0.        ,  0.7310586 ])
    """

    def forward(self, input: Any) -> Tensor:
        """Any shape -> the same."""
        return F.silu(input)


class Tanh(Module):
    """Hyperbolic tangent.

    Example:
        >>> Tanh()([-1.0, 0.0, 1.0])
        tensor([-0.7615942,  0.       ,  0.7615942])
    """

    def forward(self, input: Any) -> Tensor:
        """Any shape -> the same."""
        return F.tanh(input)


class Dropout(Module):
    """Zeroes elements with probability p while training; the identity otherwise.

    Example:
        >>> drop = Dropout(0.5)
        >>> sorted(set(drop([1.0] * 100).numpy().tolist()))  # what is kept is scaled by 1 / (1 - p)
        [0.0, 2.0]
        >>> drop.eval()([1.0, 1.0])
        tensor([1., 1.])
    """

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self.p = arguments.number("p, the probability of dropout,", p, 0, 1)

    def forward(self, input: Any) -> Tensor:
        """Any shape -> the same."""
        return F.dropout(input, self.p, self.training)

    def extra_repr(self) -> str:
        return f"p={self.p}"


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

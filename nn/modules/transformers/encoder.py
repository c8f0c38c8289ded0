"""Encoders: positions look at each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cubepy.errors import LaunchError
from cubepy.nn import arguments
from cubepy.nn import functional as F
from cubepy.nn.module import Module
from cubepy.nn.modules.attention import MultiheadAttention
from cubepy.nn.modules.containers import ModuleList
from cubepy.nn.modules.dropout import Dropout
from cubepy.nn.modules.linear import Linear
from cubepy.nn.modules.norms.rows import LayerNorm
from cubepy.tensor import Tensor, as_tensor

ACTIVATIONS: dict[str, Callable[..., Tensor]] = {"relu": F.relu, "gelu": F.gelu}


def activation_of(activation: str | Callable[..., Any]) -> Callable[..., Any]:
    """The function of a name, or the one that was given.

    Raises:
        LaunchError: another name.

    Example:
        >>> activation_of("relu")([-1.0, 2.0])
        tensor([0., 2.])
    """
    if not isinstance(activation, str):
        return activation
    if activation not in ACTIVATIONS:
        raise LaunchError(f'activation is "relu", "gelu" or a function, not {activation!r}')
    return ACTIVATIONS[activation]


class TransformerEncoderLayer(Module):
    """Attention and a network of two linear layers, each with a residual and a norm.

    Args:
        d_model: width of the positions.
        nhead: heads of the attention.
        dim_feedforward: width between the linear layers.
        dropout: after each part, and of the weights of attention.
        activation: "relu", "gelu", or a function.
        layer_norm_eps: of the norms.
        batch_first: inputs are (batch, length, width), else (length, batch, width).
        norm_first: norms come before each part, else after the residual.
        bias: whether linear layers and norms have one.

    Example:
        >>> import numpy as np
        >>> layer = TransformerEncoderLayer(8, 2, dim_feedforward=16, batch_first=True)
        >>> layer(np.ones((2, 5, 8), np.float32)).shape
        (2, 5, 8)
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[..., Any] = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.activation: Any = activation_of(activation)
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first)
        self.linear1 = Linear(d_model, dim_feedforward, bias)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias)
        self.norm_first = arguments.flag("norm_first", norm_first)
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias)
        self.dropout1, self.dropout2 = Dropout(dropout), Dropout(dropout)

    def forward(
        self,
        src: Any,
        src_mask: Any = None,
        src_key_padding_mask: Any = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Positions -> positions.

        Args:
            src: (batch, length, d_model) as `batch_first` says.
            src_mask: `attn_mask` of `MultiheadAttention`.
            src_key_padding_mask: `key_padding_mask` of `MultiheadAttention`.
            is_causal: position i sees positions 0 to i.
        """
        x = as_tensor(src)
        masks = (src_mask, src_key_padding_mask, is_causal)
        if self.norm_first:
            x = x + self._attend(self.norm1(x), *masks)
            return x + self._feed(self.norm2(x))
        x = self.norm1(x + self._attend(x, *masks))
        return self.norm2(x + self._feed(x))  # type: ignore[no-any-return]

    def _attend(self, x: Tensor, mask: Any, padding: Any, is_causal: bool) -> Tensor:
        found, _ = self.self_attn(
            x, x, x, padding, need_weights=False, attn_mask=mask, is_causal=is_causal
        )
        return self.dropout1(found)  # type: ignore[no-any-return]

    def _feed(self, x: Tensor) -> Tensor:
        inner = self.dropout(self.activation(self.linear1(x)))
        return self.dropout2(self.linear2(inner))  # type: ignore[no-any-return]


class TransformerEncoder(Module):
    """Copies of a layer, one after the other; they begin with the same values.

    Args:
        encoder_layer: what is copied.
        num_layers: how many there are.
        norm: a module for the end, or None.
        enable_nested_tensor, mask_check: PyTorch's; they change nothing here.

    Example:
        >>> import numpy as np
        >>> encoder = TransformerEncoder(TransformerEncoderLayer(8, 2, 16), num_layers=3)
        >>> encoder(np.ones((5, 2, 8), np.float32), is_causal=True).shape
        (5, 2, 8)
    """

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__()
        arguments.flag("enable_nested_tensor", enable_nested_tensor)
        arguments.flag("mask_check", mask_check)
        self.num_layers = arguments.size("num_layers", num_layers, 1)
        self.layers = ModuleList(encoder_layer.clone() for _ in range(num_layers))
        self.norm = norm

    def forward(
        self, src: Any, mask: Any = None, src_key_padding_mask: Any = None, is_causal: bool = False
    ) -> Tensor:
        """Positions -> positions; see `TransformerEncoderLayer.forward`."""
        for layer in self.layers:
            src = layer(src, mask, src_key_padding_mask, is_causal)
        return src if self.norm is None else self.norm(src)  # type: ignore[no-any-return]

"""Decoders, whose positions look at each other and at those of an encoder; both together."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from cubepy.nn import arguments, init
from cubepy.nn.module import Module
from cubepy.nn.modules.attention import MultiheadAttention
from cubepy.nn.modules.containers import ModuleList
from cubepy.nn.modules.dropout import Dropout
from cubepy.nn.modules.linear import Linear
from cubepy.nn.modules.norms.rows import LayerNorm
from cubepy.nn.modules.transformers.encoder import (
    TransformerEncoder,
    TransformerEncoderLayer,
    activation_of,
)
from cubepy.tensor import Tensor, as_tensor, no_grad


class TransformerDecoderLayer(Module):
    """Attention, attention to what an encoder gave, and a network of two linear layers, each with a
    residual and a norm.

    Args:
        d_model: width of the positions.
        nhead: heads of the attentions.
        dim_feedforward: width between the linear layers.
        dropout: after each part, and of the weights of attention.
        activation: "relu", "gelu", or a function.
        layer_norm_eps: of the norms.
        batch_first: inputs are (batch, length, width), else (length, batch, width).
        norm_first: norms come before each part, else after the residual.
        bias: whether linear layers and norms have one.

    Example:
        >>> import numpy as np
        >>> layer = TransformerDecoderLayer(4, 2, dim_feedforward=8, batch_first=True)
        >>> layer(np.ones((1, 3, 4), np.float32), np.ones((1, 2, 4), np.float32)).shape
        (1, 3, 4)
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
        self.multihead_attn = MultiheadAttention(
            d_model, nhead, dropout, bias, batch_first=batch_first
        )
        self.linear1 = Linear(d_model, dim_feedforward, bias)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias)
        self.norm_first = arguments.flag("norm_first", norm_first)
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias)
        self.norm3 = LayerNorm(d_model, layer_norm_eps, bias=bias)
        self.dropout1, self.dropout2 = Dropout(dropout), Dropout(dropout)
        self.dropout3 = Dropout(dropout)

    def forward(
        self,
        tgt: Any,
        memory: Any,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Positions, and those of an encoder -> positions.

        Args:
            tgt: (batch, length, d_model) as `batch_first` says.
            memory: (batch, length of the encoder, d_model).
            tgt_mask, memory_mask: `attn_mask` of `MultiheadAttention`, of both attentions.
            tgt_key_padding_mask, memory_key_padding_mask: `key_padding_mask` of both.
            tgt_is_causal, memory_is_causal: position i sees positions 0 to i, of both.
        """
        x, memory = as_tensor(tgt), as_tensor(memory)
        own = (tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        other = (memory_mask, memory_key_padding_mask, memory_is_causal)
        if self.norm_first:
            x = x + self._attend(self.norm1(x), *own)
            x = x + self._look(self.norm2(x), memory, *other)
            return x + self._feed(self.norm3(x))
        x = self.norm1(x + self._attend(x, *own))
        x = self.norm2(x + self._look(x, memory, *other))
        return self.norm3(x + self._feed(x))  # type: ignore[no-any-return]

    def _attend(self, x: Tensor, mask: Any, padding: Any, is_causal: bool) -> Tensor:
        found, _ = self.self_attn(
            x, x, x, padding, need_weights=False, attn_mask=mask, is_causal=is_causal
        )
        return self.dropout1(found)  # type: ignore[no-any-return]

    def _look(self, x: Tensor, memory: Tensor, mask: Any, padding: Any, is_causal: bool) -> Tensor:
        found, _ = self.multihead_attn(
            x, memory, memory, padding, need_weights=False, attn_mask=mask, is_causal=is_causal
        )
        return self.dropout2(found)  # type: ignore[no-any-return]

    def _feed(self, x: Tensor) -> Tensor:
        inner = self.dropout(self.activation(self.linear1(x)))
        return self.dropout3(self.linear2(inner))  # type: ignore[no-any-return]


class TransformerDecoder(Module):
    """Copies of a layer, one after the other; they begin with the same values.

    Args:
        decoder_layer: what is copied.
        num_layers: how many there are.
        norm: a module for the end, or None.

    Example:
        >>> import numpy as np
        >>> decoder = TransformerDecoder(TransformerDecoderLayer(4, 2, 8), num_layers=2)
        >>> decoder(np.ones((3, 1, 4), np.float32), np.ones((2, 1, 4), np.float32)).shape
        (3, 1, 4)
    """

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.num_layers = arguments.size("num_layers", num_layers, 1)
        self.layers = ModuleList(decoder_layer.clone() for _ in range(num_layers))
        self.norm = norm

    def forward(
        self,
        tgt: Any,
        memory: Any,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Positions and those of an encoder -> positions; see `TransformerDecoderLayer.forward`."""
        masks = (tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)
        for layer in self.layers:
            tgt = layer(tgt, memory, *masks, bool(tgt_is_causal), memory_is_causal)
        return tgt if self.norm is None else self.norm(tgt)  # type: ignore[no-any-return]


class Transformer(Module):
    """An encoder and a decoder, as in the paper.

    Args:
        d_model, nhead: of the layers; see `TransformerDecoderLayer` for these and the others.
        num_encoder_layers, num_decoder_layers: how many layers there are.
        custom_encoder, custom_decoder: modules instead of them, or None.

    Example:
        >>> import numpy as np
        >>> model = Transformer(4, 2, 1, 1, 8, batch_first=True).eval()
        >>> model(np.ones((1, 3, 4), np.float32), np.ones((1, 2, 4), np.float32)).shape
        (1, 2, 4)
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[..., Any] = "relu",
        custom_encoder: Module | None = None,
        custom_decoder: Module | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first
        how = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first)

        def norm() -> LayerNorm:
            return LayerNorm(d_model, layer_norm_eps, bias=bias)

        self.encoder = custom_encoder or TransformerEncoder(
            TransformerEncoderLayer(*how, norm_first, bias), num_encoder_layers, norm()
        )
        self.decoder = custom_decoder or TransformerDecoder(
            TransformerDecoderLayer(*how, norm_first, bias), num_decoder_layers, norm()
        )
        with no_grad():
            for p in self.parameters():
                if p.ndim == 2:
                    p.assign_(init.uniform(p.shape, init.xavier_bound(*p.shape)))

    def forward(
        self,
        src: Any,
        tgt: Any,
        src_mask: Any = None,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        src_key_padding_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Positions of the encoder and of the decoder -> positions of the decoder.

        Args:
            src: (batch, length of the encoder, d_model) as `batch_first` says.
            tgt: (batch, length, d_model).
            src_mask, src_key_padding_mask, src_is_causal: see `TransformerEncoderLayer.forward`.
            tgt_mask, memory_mask: see `TransformerDecoderLayer.forward` for these and the others.
        """
        memory = self.encoder(src, src_mask, src_key_padding_mask, bool(src_is_causal))
        padding = (tgt_key_padding_mask, memory_key_padding_mask)
        return self.decoder(  # type: ignore[no-any-return]
            tgt, memory, tgt_mask, memory_mask, *padding, tgt_is_causal, memory_is_causal
        )

    @staticmethod
    def generate_square_subsequent_mask(sz: int) -> Tensor:
        """(sz, sz): 0 where position i sees position j, up to i, and -inf elsewhere."""
        n = arguments.size("sz", sz)
        return as_tensor(np.triu(np.full((n, n), -math.inf, np.float32), 1))

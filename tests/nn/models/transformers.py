"""RoBERTa, GPT-2, Llama and ViT, as Hugging Face's transformers define them."""

from __future__ import annotations

import numpy as np

import cubepy as cb
from cubepy import nn
from cubepy.nn import functional as F
from cubepy.tensor import Tensor, concat


def heads_of(x: Tensor, heads: int) -> Tensor:
    """(batch, length, width) -> (batch, heads, length, width / heads)."""
    batch, length, width = x.shape
    return x.reshape(batch, length, heads, width // heads).transpose(1, 2)


def joined(x: Tensor) -> Tensor:
    """(batch, heads, length, depth) -> (batch, length, heads * depth)."""
    batch, heads, length, depth = x.shape
    return x.transpose(1, 2).reshape(batch, length, heads * depth)


class RobertaLayer(nn.Module):
    """Attention to both sides and a network, each followed by a norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.attention_output, self.attention_norm = nn.Linear(width, width), nn.LayerNorm(width)
        self.intermediate, self.output = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.output_norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        parts = [heads_of(part(x), self.heads) for part in (self.query, self.key, self.value)]
        seen = joined(F.scaled_dot_product_attention(*parts, attn_mask=mask))
        x = self.attention_norm(x + self.attention_output(seen))
        return self.output_norm(x + self.output(F.gelu(self.intermediate(x))))


class Roberta(nn.Module):
    """Tokens and where they are (1 is padding) -> a number for each token of the vocabulary."""

    def __init__(
        self, tokens: int = 50, width: int = 16, heads: int = 2, layers: int = 2, length: int = 20
    ) -> None:
        super().__init__()
        self.word = nn.Embedding(tokens, width)
        self.position = nn.Embedding(length, width)
        self.kind = nn.Embedding(1, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList([RobertaLayer(width, heads) for _ in range(layers)])
        self.dense, self.head_norm = nn.Linear(width, width), nn.LayerNorm(width)
        self.head = nn.Linear(width, tokens)

    def forward(self, ids: Tensor) -> Tensor:
        known = ids != 1
        count = known.astype("i64").cumsum(1)
        positions = cb.tensor.where(known, count + 1, 1)
        x = self.norm(self.word(ids) + self.position(positions) + self.kind(ids * 0))
        mask = known.reshape(ids.shape[0], 1, 1, ids.shape[1])
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(self.head_norm(F.gelu(self.dense(x))))  # type: ignore[no-any-return]


class Conv1D(nn.Module):
    """A linear layer whose weight is (in, out), as GPT-2 has it."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(np.zeros((width, out), np.float32))
        self.bias = nn.Parameter(np.zeros(out, np.float32))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias  # type: ignore[no-any-return]


class Gpt2Block(nn.Module):
    """Attention to what came before, and a network; norms come first."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = Conv1D(width, 3 * width), Conv1D(width, width)
        self.c_fc, self.c_out = Conv1D(width, 4 * width), Conv1D(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.c_attn(self.ln_1(x)).split(x.shape[-1], 2)
        q, k, v = (heads_of(part, self.heads) for part in parts)
        x = x + self.c_proj(joined(F.scaled_dot_product_attention(q, k, v, is_causal=True)))
        return x + self.c_out(F.gelu(self.c_fc(self.ln_2(x)), "tanh"))  # type: ignore[no-any-return]


class Gpt2(nn.Module):
    """Tokens -> a number for each token that may come next; the head is the table of tokens."""

    def __init__(
        self, tokens: int = 50, width: int = 16, heads: int = 2, layers: int = 2, length: int = 20
    ) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(tokens, width), nn.Embedding(length, width)
        self.h = nn.ModuleList([Gpt2Block(width, heads) for _ in range(layers)])
        self.ln_f = nn.LayerNorm(width)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.wte(ids) + self.wpe(cb.tensor.arange(ids.shape[1]))
        for block in self.h:
            x = block(x)
        return self.ln_f(x) @ self.wte.weight.T  # type: ignore[no-any-return]


class LlamaBlock(nn.Module):
    """RMS norms, rotated queries and keys that groups of heads share, a gated network."""

    def __init__(self, width: int = 16, heads: int = 4, groups: int = 2, hidden: int = 24) -> None:
        super().__init__()
        self.heads, self.groups, self.depth = heads, groups, width // heads
        self.input_layernorm = nn.RMSNorm(width, eps=1e-6)
        self.post_attention_layernorm = nn.RMSNorm(width, eps=1e-6)
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj, self.v_proj = (
            nn.Linear(width, groups * self.depth, bias=False) for _ in range(2)
        )
        self.o_proj = nn.Linear(width, width, bias=False)
        self.gate_proj, self.up_proj = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down_proj = nn.Linear(hidden, width, bias=False)

    def rotated(self, x: Tensor) -> Tensor:
        """Pairs of elements turned by an angle that grows with the position."""
        half = self.depth // 2
        frequencies = 10000.0 ** (-np.arange(half) / half)
        angles = np.outer(np.arange(x.shape[2]), np.concatenate([frequencies, frequencies]))
        cos, sin = (cb.tensor(part, dtype=x.dtype) for part in (np.cos(angles), np.sin(angles)))
        turned = concat([-x[..., half:], x[..., :half]], axis=-1)
        return x * cos + turned * sin

    def forward(self, x: Tensor) -> Tensor:
        h = self.input_layernorm(x)
        q = self.rotated(heads_of(self.q_proj(h), self.heads))
        k = self.rotated(heads_of(self.k_proj(h), self.groups))
        v = heads_of(self.v_proj(h), self.groups)
        x = x + self.o_proj(joined(F.scaled_dot_product_attention(q, k, v, is_causal=True)))
        h = self.post_attention_layernorm(x)
        return x + self.down_proj(F.silu(self.gate_proj(h)) * self.up_proj(h))  # type: ignore[no-any-return]


class VitBlock(nn.Module):
    """Attention among patches, and a network; norms come first."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).reshape(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        x = x + self.proj(joined(F.scaled_dot_product_attention(q, k, v)))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))  # type: ignore[no-any-return]


class Vit(nn.Module):
    """Images -> classes, by the token that is put before the patches."""

    def __init__(
        self,
        size: int = 16,
        patch: int = 4,
        width: int = 16,
        heads: int = 2,
        layers: int = 2,
        classes: int = 10,
    ) -> None:
        super().__init__()
        count = (size // patch) ** 2
        self.patch_embed = nn.Conv2d(3, width, patch, stride=patch)
        self.cls_token = nn.Parameter(np.zeros((1, 1, width), np.float32))
        self.pos_embed = nn.Parameter(np.zeros((1, count + 1, width), np.float32))
        self.blocks = nn.Sequential(*(VitBlock(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patch_embed(images).flatten(2).transpose(1, 2)
        first = self.cls_token.expand(x.shape[0], 1, x.shape[2])
        x = self.blocks(concat([first, x], axis=1) + self.pos_embed)
        return self.head(self.norm(x)[:, 0])  # type: ignore[no-any-return]


class Translator(nn.Module):
    """Tokens (1 is padding) -> numbers for each of their first seven, by `nn.Transformer` and a
    layer of a decoder whose norms come first.
    """

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.transformer = nn.Transformer(16, 2, 2, 2, 24, 0.0, batch_first=True)
        self.layer = nn.TransformerDecoderLayer(
            16, 4, 24, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.head = nn.Linear(16, 50)

    def forward(self, ids: Tensor) -> Tensor:
        x, mask = self.embed(ids), self.transformer.generate_square_subsequent_mask(7)
        absent = ids == 1
        y = self.transformer(
            x,
            x[:, :7],
            tgt_mask=mask.astype(x.dtype),
            src_key_padding_mask=absent,
            memory_key_padding_mask=absent,
        )
        y = self.layer(y, x, memory_key_padding_mask=absent, tgt_is_causal=True)
        return self.head(y)

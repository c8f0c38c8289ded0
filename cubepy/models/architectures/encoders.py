"""The configs and weights of Hugging Face's encoders, as ours have them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from cubepy.models.architectures.encoder import EncoderConfig
from cubepy.models.architectures.names import Names
from cubepy.models.architectures.settings import Settings

ENCODER_NAMES = Names(
    layer=re.compile(r"(?:encoder|transformer)\.layer\.(?P<number>\d+)\.(?P<part>.+)"),
    prefix=re.compile(r"^(bert|roberta|distilbert|mpnet)\."),
    ignored=re.compile(
        r"^(\w+\.)?(pooler|cls|lm_head|classifier|pre_classifier|qa_outputs|vocab_\w+)\."
        r"|position_ids$"
    ),
    kinds={"gamma": "weight", "beta": "bias"},
    parts={
        "attention.self.query": "q",
        "attention.self.key": "k",
        "attention.self.value": "v",
        "attention.output.dense": "o",
        "attention.output.LayerNorm": "after_attention",
        "attention.q_lin": "q",
        "attention.k_lin": "k",
        "attention.v_lin": "v",
        "attention.out_lin": "o",
        "sa_layer_norm": "after_attention",
        "attention.attn.q": "q",
        "attention.attn.k": "k",
        "attention.attn.v": "v",
        "attention.attn.o": "o",
        "attention.LayerNorm": "after_attention",
        "intermediate.dense": "up",
        "ffn.lin1": "up",
        "output.dense": "down",
        "ffn.lin2": "down",
        "output.LayerNorm": "after_network",
        "output_layer_norm": "after_network",
    },
    whole={
        "embeddings.word_embeddings": "words",
        "embeddings.position_embeddings": "positions",
        "embeddings.token_type_embeddings": "types",
        "embeddings.LayerNorm": "norm",
        "encoder.relative_attention_bias": "distances",
    },
)
"""Of all encoders; those of 2018 call the weights of norms gamma and beta. Heads on top of the
encoder are left out.
"""


def encoder_config(values: Mapping[str, Any], source: str) -> EncoderConfig:
    """The encoder that a config describes.

    Raises:
        FileFormatError: what is missing, or has a value that cannot be.
    """
    s = Settings(values, source)
    c = EncoderConfig(**ENCODERS[values["model_type"]](s))
    if c.width % c.heads:
        raise s.refuse(f"{c.heads} heads do not divide a width of {c.width}")
    if values.get("position_embedding_type", "absolute") != "absolute":
        raise s.refuse(f"positions of the kind {values['position_embedding_type']!r}")
    return c


def _bert(s: Settings) -> dict[str, Any]:
    return {
        "vocabulary": s.size("vocab_size"),
        "width": s.size("hidden_size"),
        "layers": s.layers("num_hidden_layers"),
        "heads": s.size("num_attention_heads"),
        "inner": s.size("intermediate_size"),
        "context": s.size("max_position_embeddings", default=512),
        "types": s.size("type_vocab_size", default=2),
        "eps": s.number("layer_norm_eps", default=1e-12),
        "activation": s.activation("hidden_act", default="gelu"),
        "padding": _padding(s, 0),
    }


def _padding(s: Settings, default: int) -> int:
    found = s.values.get("pad_token_id", default)
    return found if isinstance(found, int) else default


def _roberta(s: Settings) -> dict[str, Any]:
    padding = _padding(s, 1)
    return _bert(s) | {"padding": padding, "first": padding + 1}


def _mpnet(s: Settings) -> dict[str, Any]:
    return _bert(s) | {
        "types": 0,
        "padding": 1,
        "first": 2,
        "buckets": s.size("relative_attention_num_buckets", default=32),
    }


def _distilbert(s: Settings) -> dict[str, Any]:
    return {
        "vocabulary": s.size("vocab_size"),
        "width": s.size("dim", "hidden_size"),
        "layers": s.layers("n_layers", "num_hidden_layers"),
        "heads": s.size("n_heads", "num_attention_heads"),
        "inner": s.size("hidden_dim"),
        "context": s.size("max_position_embeddings", default=512),
        "types": 0,
        "activation": s.activation("activation", default="gelu"),
        "padding": _padding(s, 0),
    }


ENCODERS: dict[str, Callable[[Settings], dict[str, Any]]] = {
    "bert": _bert,
    "roberta": _roberta,
    "xlm-roberta": _roberta,
    "camembert": _roberta,
    "distilbert": _distilbert,
    "mpnet": _mpnet,
}
"""By `model_type`."""

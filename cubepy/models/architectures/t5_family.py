"""The configs and weights of T5 and mT5 folders, as ours have them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from cubepy.models.architectures.names import Names
from cubepy.models.architectures.settings import Settings
from cubepy.models.architectures.t5 import T5Config
from cubepy.models.formats.stored import Stored
from cubepy.tensor import Tensor

T5_FAMILIES = ("t5", "mt5")
_STACKS = ("encoder", "decoder")
T5_NAMES = Names(
    layer=re.compile(
        r"(?P<stack>encoder|decoder)\.block\.(?P<number>\d+)\.layer\.(?P<part>\d\..+)"
    ),
    stacks={stack: f"{stack}.layers" for stack in _STACKS},
    ignored=re.compile(
        r"^(encoder|decoder)\.embed_tokens\.|EncDecAttention\.relative_attention_bias\."
    ),
    parts={
        f"{n}.{kind}.{part}": f"{ours}.{part}"
        for n, kind, ours in ((0, "SelfAttention", "attention"), (1, "EncDecAttention", "cross"))
        for part in "qkvo"
    }
    | {
        f"{n}.DenseReluDense.{theirs}": f"network.{ours}"
        for n in (1, 2)
        for theirs, ours in (("wi", "up"), ("wi_0", "gate"), ("wi_1", "up"), ("wo", "down"))
    }
    | {
        f"{n}.layer_norm": f"{ours}.norm"
        for n, ours in enumerate(("attention", "cross", "network"))
    },
    whole={"shared": "words", "lm_head": "head"}
    | {f"{stack}.final_layer_norm": f"{stack}.norm" for stack in _STACKS}
    | {
        f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias": f"{stack}.distances"
        for stack in _STACKS
    },
)


def t5_weights(files: Mapping[str, Stored], family: str) -> dict[str, Tensor]:
    """The tensors of both stacks, or of the encoder alone, by our names.

    Raises:
        FileFormatError: names that are not known.
    """
    unified = {}
    for name, one in files.items():
        if name == "encoder.embed_tokens.weight" and "shared.weight" not in files:
            name = "shared.weight"
        if name.startswith("encoder."):  # its networks come second, a decoder's third
            name = name.replace(".layer.1.", ".layer.2.")
        unified[name] = one
    return T5_NAMES.renamed(unified, family)


def t5_config(s: Settings, tensors: Mapping[str, Tensor]) -> T5Config:
    """What a config says; the weights decide whether there is a decoder, and a last layer.

    Raises:
        FileFormatError: what is missing, or has a value that cannot be.
    """
    kind = s.first(("feed_forward_proj",), "relu")
    gate, _, name = str(kind).rpartition("-")
    if gate not in ("", "gated"):
        raise s.refuse(f"feed_forward_proj {kind!r} is not known: relu, gated-gelu or their like")
    name = "gelu_new" if kind == "gated-gelu" else name
    activation = Settings({"feed_forward_proj": name}, s.source).activation("feed_forward_proj")
    count = s.size("relative_attention_num_buckets", default=32)
    farthest = s.size("relative_attention_max_distance", default=128)
    if count % 4 or farthest <= count // 2:
        raise s.refuse(f"{count} buckets of distances up to {farthest}")
    layers = s.layers("num_layers")
    scaled = s.first(("scale_decoder_outputs",), s.values.get("tie_word_embeddings") is not False)
    decodes = any(name.startswith("decoder.") for name in tensors)
    return T5Config(
        vocabulary=s.size("vocab_size"),
        width=s.size("d_model"),
        depth=s.size("d_kv"),
        heads=s.size("num_heads"),
        inner=s.size("d_ff"),
        layers=layers,
        decoder_layers=s.layers("num_decoder_layers", default=layers) if decodes else 0,
        buckets=count,
        farthest=farthest,
        eps=s.number("layer_norm_epsilon", default=1e-6),
        activation=activation,
        gated=gate == "gated",
        scaled=scaled is True and s.values.get("model_type") == "t5",
        tied="head.weight" not in tensors,
        padding=_token(s, "pad_token_id"),
        start=_token(s, "decoder_start_token_id"),
    )


def _token(s: Settings, name: str) -> int:
    found = s.values.get(name)
    return found if isinstance(found, int) and 0 <= found < s.size("vocab_size") else 0

"""The configs and weights of Whisper's folders, as ours have them."""

from __future__ import annotations

import re

from cubepy.models.architectures.names import Names
from cubepy.models.architectures.settings import Settings
from cubepy.models.architectures.speech.whisper import WhisperConfig

_LINEAR = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "out_proj": "o"}
WHISPER_NAMES = Names(
    layer=re.compile(r"(?P<stack>encoder|decoder)\.layers\.(?P<number>\d+)\.(?P<part>.+)"),
    stacks={"encoder": "encoder.layers", "decoder": "layers"},
    prefix=re.compile(r"^model\."),
    ignored=re.compile(r"^proj_out\."),
    parts={f"self_attn.{theirs}": f"attention.{ours}" for theirs, ours in _LINEAR.items()}
    | {f"encoder_attn.{theirs}": f"cross.{ours}" for theirs, ours in _LINEAR.items()}
    | {
        "self_attn_layer_norm": "attention_norm",
        "encoder_attn_layer_norm": "cross_norm",
        "final_layer_norm": "network_norm",
        "fc1": "up",
        "fc2": "down",
    },
    whole={
        "encoder.conv1": "encoder.first",
        "encoder.conv2": "encoder.second",
        "encoder.embed_positions": "encoder.positions",
        "encoder.layer_norm": "encoder.norm",
        "decoder.embed_tokens": "words",
        "decoder.embed_positions": "positions",
        "decoder.layer_norm": "norm",
    },
)


def whisper_config(s: Settings) -> WhisperConfig:
    """What a config says.

    Raises:
        FileFormatError: what is missing, or has a value that cannot be.
    """
    c = WhisperConfig(
        vocabulary=s.size("vocab_size"),
        width=s.size("d_model"),
        bands=s.size("num_mel_bins", default=80),
        layers=s.layers("encoder_layers"),
        heads=s.size("encoder_attention_heads"),
        inner=s.size("encoder_ffn_dim"),
        decoder_layers=s.layers("decoder_layers"),
        decoder_heads=s.size("decoder_attention_heads"),
        decoder_inner=s.size("decoder_ffn_dim"),
        frames=s.size("max_source_positions", default=1500),
        context=s.size("max_target_positions", default=448),
        activation=s.activation("activation_function", default="gelu"),
    )
    if c.width % c.heads or c.width % c.decoder_heads:
        raise s.refuse(f"{c.heads}, {c.decoder_heads} heads do not divide a width of {c.width}")
    return c

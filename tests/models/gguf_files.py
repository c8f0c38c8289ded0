"""Small Llamas as GGUF files."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.models import written

NAMES = {
    "attention.q": "attn_q",
    "attention.k": "attn_k",
    "attention.v": "attn_v",
    "attention.o": "attn_output",
    "network.gate": "ffn_gate",
    "network.up": "ffn_up",
    "network.down": "ffn_down",
    "before_attention": "attn_norm",
    "before_network": "ffn_norm",
}


def gguf_of(model: Any, more: Any = (), **metadata: Any) -> bytes:
    """A llama as GGUF: rows of queries and keys lie in pairs of neighbours."""
    tensors = list(more)
    for name, p in model.named_parameters():
        array = p.numpy()
        if name == "head.weight":
            continue
        if name.startswith("layers."):
            _, number, *part, kind = name.split(".")
            if part[-1] in ("q", "k"):
                heads = model.config.heads if part[-1] == "q" else model.config.groups
                array = (
                    array.reshape(heads, 2, -1, array.shape[1]).swapaxes(1, 2).reshape(array.shape)
                )
            name = f"blk.{number}.{NAMES['.'.join(part)]}.{kind}"
        else:
            name = {"embed": "token_embd", "norm": "output_norm"}[name[:-7]] + ".weight"
        tensors.append(written.plain(name, np.ascontiguousarray(array)))
    values = metadata_of(model.config)
    return written.gguf(values | metadata, tensors)


def metadata_of(c: Any) -> dict[str, Any]:
    """What a GGUF file says of a llama."""
    return {
        "general.architecture": "llama",
        "llama.embedding_length": c.width,
        "llama.block_count": c.layers,
        "llama.context_length": c.context,
        "llama.feed_forward_length": c.inner,
        "llama.attention.head_count": c.heads,
        "llama.attention.head_count_kv": c.groups,
        "llama.attention.layer_norm_rms_epsilon": c.eps,
        "llama.rope.freq_base": 10000.0,
        "llama.rope.dimension_count": c.depth,
    }


LLAMA_KEYS = [
    "llama.embedding_length",
    "llama.block_count",
    "llama.context_length",
    "llama.feed_forward_length",
    "llama.attention.head_count",
    "llama.attention.head_count_kv",
    "llama.attention.layer_norm_rms_epsilon",
    "llama.rope.freq_base",
    "llama.rope.dimension_count",
    "llama.rope.scaling.type",
    "llama.attention.key_length",
    "tokenizer.ggml.tokens",
]

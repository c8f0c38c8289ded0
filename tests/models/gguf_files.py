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
EXPERTS = {
    "network.router.weight": "ffn_gate_inp.weight",
    "network.gate": "ffn_gate_exps.weight",
    "network.up": "ffn_up_exps.weight",
    "network.down": "ffn_down_exps.weight",
    "network.shared_gate.weight": "ffn_gate_inp_shexp.weight",
    "network.shared.gate.weight": "ffn_gate_shexp.weight",
    "network.shared.up.weight": "ffn_up_shexp.weight",
    "network.shared.down.weight": "ffn_down_shexp.weight",
    "attention.q_norm.weight": "attn_q_norm.weight",
    "attention.k_norm.weight": "attn_k_norm.weight",
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
            name = {"words": "token_embd", "norm": "output_norm"}[name[:-7]] + ".weight"
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


def experts_of(model: Any, architecture: str) -> bytes:
    """A decoder with experts as GGUF."""
    tensors, c = [], model.config
    for name, p in model.named_parameters():
        array = p.numpy()
        if name.startswith("layers."):
            _, number, rest = name.split(".", 2)
            if architecture == "llama" and rest in ("attention.q.weight", "attention.k.weight"):
                heads = c.heads if ".q." in rest else c.groups
                shape = (heads, 2, -1, array.shape[1])
                array = array.reshape(shape).swapaxes(1, 2).reshape(array.shape)
            if rest == "network.shared_gate.weight":
                array = array[0]
            part, _, kind = rest.rpartition(".")
            ours = EXPERTS.get(rest) or f"{NAMES[part]}.{kind}"
            name = f"blk.{number}.{ours}"
        else:
            name = {"words": "token_embd", "norm": "output_norm", "head": "output"}[name[:-7]]
            name += ".weight"
        tensors.append(written.plain(name, np.ascontiguousarray(array)))
    values = {
        key.replace("llama", architecture): value for key, value in metadata_of(c).items()
    } | {
        "general.architecture": architecture,
        f"{architecture}.attention.key_length": c.depth,
        f"{architecture}.expert_count": c.experts.count,
        f"{architecture}.expert_used_count": c.experts.chosen,
        f"{architecture}.expert_feed_forward_length": c.experts.inner,
    }
    if c.experts.shared:
        values[f"{architecture}.expert_shared_feed_forward_length"] = c.experts.shared
    return written.gguf(values, tensors)

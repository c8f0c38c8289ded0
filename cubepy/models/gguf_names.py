"""The names of GGUF files: architectures, and weights."""

from __future__ import annotations

FAMILIES = {
    "llama": "llama",
    "qwen2": "qwen2",
    "qwen2moe": "qwen2_moe",
    "qwen3": "qwen3",
    "qwen3moe": "qwen3_moe",
    "gemma": "gemma",
    "gemma2": "gemma2",
    "gemma3": "gemma3_text",
    "phi3": "phi3",
    "smollm3": "smollm3",
    "olmo2": "olmo2",
    "granite": "granite",
    "gpt2": "gpt2",
    "gptneox": "gpt_neox",
}
"""`model_type` of Hugging Face by `general.architecture`."""
PARTS = {
    "attn_q": "attention.q",
    "attn_k": "attention.k",
    "attn_v": "attention.v",
    "attn_output": "attention.o",
    "attn_q_norm": "attention.q_norm",
    "attn_k_norm": "attention.k_norm",
    "attn_qkv": "attention.qkv",
    "attn_norm": "before_attention",
    "ffn_norm": "before_network",
    "post_attention_norm": "after_attention",
    "post_ffw_norm": "after_network",
    "ffn_gate": "network.gate",
    "ffn_up": "network.up",
    "ffn_down": "network.down",
    "ffn_gate_inp": "network.router",
    "ffn_gate_inp_shexp": "network.shared_gate",
    "ffn_gate_shexp": "network.shared.gate",
    "ffn_up_shexp": "network.shared.up",
    "ffn_down_shexp": "network.shared.down",
}
EXPERTS = {
    "ffn_gate_exps": "network.gate",
    "ffn_up_exps": "network.up",
    "ffn_down_exps": "network.down",
}
"""Matrices of all experts of a layer."""
WHOLE = {
    "token_embd": "words",
    "position_embd": "positions",
    "output_norm": "norm",
    "output": "head",
}
IGNORED = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
PERMUTED = ("llama", "granite", "smollm3")
"""Architectures whose queries and keys are stored for rotation of neighbours."""

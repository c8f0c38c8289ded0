"""Write the small files that `tests/models` reads: needs torch, transformers and gguf.

    python scripts/make_text_fixture.py

Weights are random; what other libraries compute with them is in the files.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

FIXTURES = Path(__file__).resolve().parent.parent / "tests" / "models" / "fixtures"


def pickles() -> None:
    """Two files of `torch.save`, of the kind of today and the old one."""
    import torch

    weight = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    state: dict[str, Any] = {
        "weight": torch.nn.Parameter(weight),
        "half": torch.tensor([0.5, -2.0], dtype=torch.bfloat16),
        "shared": weight.T,
        "inner": [torch.zeros(2), torch.tensor([1, 2])],
        "epoch": 3,
    }
    torch.save(state, FIXTURES / "zip.pt")
    torch.save(state, FIXTURES / "legacy.pt", _use_new_zipfile_serialization=False)


SMALL: dict[str, Any] = {
    "vocab_size": 61,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 20,
    "max_position_embeddings": 64,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 16,
}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0, 1.5],
    "long_factor": [2.0, 4.0],
    "partial_rotary_factor": 1.0,
}
LAYERS = ["sliding_attention", "full_attention"]
DECODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": (
        "GPT2Config",
        {"vocab_size": 61, "n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 64},
    ),
    "gpt_neox": (
        "GPTNeoXConfig",
        {k: v for k, v in SMALL.items() if "heads" not in k} | {"num_attention_heads": 2},
    ),
    "llama": ("LlamaConfig", SMALL | {"tie_word_embeddings": True}),
    "llama_biased": ("LlamaConfig", SMALL | {"attention_bias": True, "mlp_bias": True}),
    "llama3": ("LlamaConfig", SMALL | {"rope_parameters": LLAMA3}),
    "yarn": ("LlamaConfig", SMALL | {"rope_parameters": YARN}),
    "mistral": ("MistralConfig", SMALL | {"sliding_window": 7}),
    "qwen2": ("Qwen2Config", SMALL),
    "qwen3": ("Qwen3Config", SMALL | {"head_dim": 8}),
    "gemma": ("GemmaConfig", SMALL | {"head_dim": 8}),
    "gemma2": (
        "Gemma2Config",
        SMALL | {"head_dim": 8, "sliding_window": 6, "query_pre_attn_scalar": 20},
    ),
    "gemma3": (
        "Gemma3TextConfig",
        SMALL | {"head_dim": 8, "sliding_window": 6, "layer_types": LAYERS},
    ),
    "phi3": ("Phi3Config", SMALL | {"pad_token_id": 0, "partial_rotary_factor": 0.5}),
    "phi3_long": (
        "Phi3Config",
        SMALL
        | {"pad_token_id": 0, "original_max_position_embeddings": 32, "rope_parameters": LONGROPE},
    ),
    "smollm3": ("SmolLM3Config", SMALL | {"no_rope_layers": [1, 0], "pad_token_id": 0}),
    "olmo2": ("Olmo2Config", SMALL | {"pad_token_id": 0}),
    "granite": (
        "GraniteConfig",
        SMALL
        | {
            "embedding_multiplier": 2.0,
            "attention_multiplier": 0.3,
            "residual_multiplier": 0.5,
            "logits_scaling": 3.0,
        },
    ),
}


def rounded(model: Any) -> None:
    """Weights with a little noise (norms too) that float16 holds."""
    import torch

    for p in model.parameters():
        p.data = (p.data + torch.randn_like(p) * 0.08).half().float()


def kept(model: Any, folder: Path) -> dict[str, np.ndarray]:
    """Config and weights as Hugging Face's library writes them."""
    from safetensors.numpy import load_file

    model.save_pretrained(folder)
    arrays = {
        f"w:{k}": v.astype(np.float16) for k, v in load_file(folder / "model.safetensors").items()
    }
    config = (folder / "config.json").read_bytes()
    return arrays | {"config": np.frombuffer(config, np.uint8)}


def decoders() -> None:
    """Small decoders of every family: weights, logits and what they write."""
    import tempfile

    import torch
    import transformers

    arrays: dict[str, np.ndarray] = {}
    for name, (config, values) in DECODERS.items():
        torch.manual_seed(len(name))
        model = transformers.AutoModelForCausalLM.from_config(
            getattr(transformers, config)(**values)
        )
        model.eval().float()
        rounded(model)
        tokens = torch.randint(1, 61, (2, 19))
        with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
            found = kept(model, Path(folder))
            found["tokens"] = tokens.numpy()
            found["logits"] = model(tokens).logits[:, -5:].numpy()
            long = torch.randint(1, 61, (1, 50))
            found["long"], found["long_logits"] = long.numpy(), model(long).logits[:, -1].numpy()
            options = {
                "max_new_tokens": 20,
                "do_sample": False,
                "eos_token_id": None,
                "pad_token_id": 0,
            }
            found["greedy"] = model.generate(tokens, **options)[:, 19:].numpy()
        arrays |= {f"{name}/{k}": v for k, v in found.items()}
    np.savez_compressed(FIXTURES / "decoders.npz", **arrays)


ENCODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("BertConfig", {}),
    "roberta": ("RobertaConfig", {"max_position_embeddings": 42}),
    "distilbert": ("DistilBertConfig", {"dim": 16, "n_layers": 2, "n_heads": 4, "hidden_dim": 20}),
    "mpnet": ("MPNetConfig", {"max_position_embeddings": 42}),
}


def encoders() -> None:
    """Small encoders of every family: weights, and vectors of texts of two lengths."""
    import tempfile

    import torch
    import transformers

    arrays: dict[str, np.ndarray] = {}
    for name, (config, values) in ENCODERS.items():
        torch.manual_seed(len(name))
        shared = {k: v for k, v in SMALL.items() if "key_value" not in k}
        shared["max_position_embeddings"] = 40
        made = getattr(transformers, config)(**(shared | values))
        model = transformers.AutoModel.from_config(made).eval().float()
        rounded(model)
        padding = model.config.pad_token_id
        tokens = torch.randint(3, 61, (2, 19))
        tokens[1, 11:] = padding
        mask = (tokens != padding).long()
        with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
            found = kept(model, Path(folder))
            found["tokens"], found["mask"] = tokens.numpy(), mask.numpy()
            found["hidden"] = model(tokens, attention_mask=mask).last_hidden_state.numpy()
        arrays |= {f"{name}/{k}": v for k, v in found.items()}
    np.savez_compressed(FIXTURES / "encoders.npz", **arrays)


BLOCKS = "Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS MXFP4".split()


def blocks() -> None:
    """Random blocks of every type, and the numbers that `gguf` makes of them."""
    import gguf

    rng = np.random.default_rng(0)
    arrays = {}
    for name in BLOCKS:
        kind = gguf.GGMLQuantizationType[name]
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        raw = rng.integers(0, 256, (4, 512 // elements * size), np.uint8)
        view = raw.reshape(-1, size)
        if name == "MXFP4":
            view[:, 0] = rng.integers(100, 150, len(view))
        for at in HALVES.get(name, (0,)):  # scales that are no NaN
            half = rng.standard_normal((len(view), 1)).astype(np.float16)
            view[:, at : at + 2] = half.view(np.uint8)
        arrays[f"{name}/raw"] = raw
        arrays[f"{name}/values"] = gguf.quants.dequantize(raw, kind)
    np.savez_compressed(FIXTURES / "blocks.npz", **arrays)


HALVES: dict[str, tuple[int, ...]] = {
    "Q4_1": (0, 2),
    "Q5_1": (0, 2),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "MXFP4": (),
}
"""Where blocks have numbers of 16 bits."""


def main(names: list[str]) -> None:
    """Make all fixtures, or those named."""
    FIXTURES.mkdir(exist_ok=True)
    made = {"pickles": pickles, "decoders": decoders, "blocks": blocks, "encoders": encoders}
    for name in names or made:
        made[name]()


if __name__ == "__main__":
    main(sys.argv[1:])

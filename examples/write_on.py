"""Text out of a trained model: a GGUF file, or a folder of Hugging Face.

    python examples/write_on.py MODEL "Once upon a time" [--temperature 0.7]

Without a model it makes a small one with random weights, loads it from its folder, and checks that
a text does not depend on how it is asked for: alone, in a batch, or piece by piece.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import cubepy as cb
from cubepy import nn

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 100,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 128,
    "tie_word_embeddings": True,
}


def small_model(folder: Path) -> Path:
    """The folder of a Llama with random weights."""
    rng = np.random.default_rng(0)
    width, inner, keys = 32, 64, 16
    shapes: dict[str, tuple[int, ...]] = {"embed_tokens": (100, width), "norm": (width,)}
    for n in range(2):
        parts = {
            "self_attn.q_proj": (width, width),
            "self_attn.k_proj": (keys, width),
            "self_attn.v_proj": (keys, width),
            "self_attn.o_proj": (width, width),
            "mlp.gate_proj": (inner, width),
            "mlp.up_proj": (inner, width),
            "mlp.down_proj": (width, inner),
            "input_layernorm": (width,),
            "post_attention_layernorm": (width,),
        }
        shapes |= {f"layers.{n}.{part}": shape for part, shape in parts.items()}
    weights = {
        f"model.{name}.weight": np.ones(shape, np.float32)
        if len(shape) == 1
        else rng.standard_normal(shape, np.float32) * np.float32(0.3)
        for name, shape in shapes.items()
    }
    nn.save_safetensors(weights, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


def check() -> None:
    """The small model says the same, however it is asked."""
    with tempfile.TemporaryDirectory() as folder:
        path = small_model(Path(folder))
        print(cb.look(path))
        model = cb.load(path)
        prompts = [[1, 2, 3], [40, 50]]
        options: dict[str, Any] = {"max_new_tokens": 12, "temperature": 0.8, "seed": 5}
        together = model.generate(prompts, **options)
        assert together == [model.generate(p, **options) for p in prompts]
        assert together[0] == list(model.stream(prompts[0], **options))
        print("tokens:", together[0])


def main(arguments: list[str] | None = None) -> None:
    """Write on from a text, or check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", help="a GGUF file or a folder with config.json")
    parser.add_argument("prompt", nargs="?", default="Once upon a time")
    parser.add_argument("--temperature", type=float, default=0.0)
    options = parser.parse_args(arguments)
    if options.model is None:
        check()
        return
    model = cb.load(options.model)
    print(options.prompt, end="")
    for piece in model.stream(options.prompt, temperature=options.temperature):
        print(piece, end="", flush=True)
    print()


if __name__ == "__main__":
    main()

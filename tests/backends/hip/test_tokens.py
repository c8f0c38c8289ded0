"""A quantized transformer of two layers and 64 features writes with `device="hip"` what it writes on
the CPU.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cb
from cubepy import nn
from tests.backends.hip.emulator.driver import emulated_hip

FEATURES, INNER, HEADS, WORDS = 64, 128, 4, 96
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": FEATURES,
    "intermediate_size": INNER,
    "num_hidden_layers": 2,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS // 2,
    "head_dim": FEATURES // HEADS,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "max_position_embeddings": 64,
    "vocab_size": WORDS,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def written(folder: Path) -> Path:
    """A model's folder."""
    rng = np.random.default_rng(5)

    def draw(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)

    weights = {"model.embed_tokens.weight": draw(WORDS, FEATURES)}
    weights["lm_head.weight"] = draw(WORDS, FEATURES)
    weights["model.norm.weight"] = np.ones(FEATURES, np.float32)
    for n in range(2):
        own = f"model.layers.{n}"
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{own}.{name}.weight"] = np.ones(FEATURES, np.float32)
        for name, rows in (("q", FEATURES), ("k", FEATURES // 2), ("v", FEATURES // 2)):
            weights[f"{own}.self_attn.{name}_proj.weight"] = draw(rows, FEATURES)
        weights[f"{own}.self_attn.o_proj.weight"] = draw(FEATURES, FEATURES)
        for name in ("gate", "up"):
            weights[f"{own}.mlp.{name}_proj.weight"] = draw(INNER, FEATURES)
        weights[f"{own}.mlp.down_proj.weight"] = draw(FEATURES, INNER)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    nn.save_safetensors(weights, folder / "model.safetensors")
    return folder


def quantized(folder: Path, scheme: str) -> Any:
    model = cb.load(folder, device="cpu")
    return cb.quant.quantize(model, scheme, measure_speed=False).model


@pytest.mark.turns(3)
@pytest.mark.parametrize(("scheme", "processor"), [("int8", "gfx942"), ("int4", "gfx1100")])
def test_the_tokens_are_the_cpus(
    scheme: str, processor: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = quantized(written(tmp_path), scheme)
    prompt = [7, 2, 33]
    right = model.generate(prompt, max_new_tokens=3)
    with emulated_hip(monkeypatch, processor) as fake:
        there = model.to(str(cb.current_device()))
        assert there.generate(prompt, max_new_tokens=3) == right
        assert fake.launched > 0 and len(set(right)) > 1

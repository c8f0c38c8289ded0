"""Write what small models of transformers give into fixtures that `tests/models` reads.

    python scripts/make_architecture_fixture.py [experts decoders ...]

Needs torch and transformers, not cubepy. Weights are drawn from their names (tests/models/drawn.py)
and are not in the files: configs, names and shapes, inputs and results are.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.numpy import load_file, save_file

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.models.drawn import drawn, noise

FIXTURES = Path(__file__).resolve().parents[1] / "tests" / "models" / "fixtures"
Arrays = dict[str, np.ndarray]
SMALL: dict[str, Any] = {
    "vocab_size": 61,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 20,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}


def made(kind: str, config: Any) -> tuple[Any, Arrays]:
    """A model with drawn weights, and what a test needs to write its folder."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        model = getattr(transformers, kind)
        (model._from_config if hasattr(model, "forward") else model.from_config)(
            config
        ).save_pretrained(path)
        file = path / "model.safetensors"
        shapes = {name: a.shape for name, a in load_file(file).items()}
        save_file({n: drawn(n, s) for n, s in shapes.items()}, file, {"format": "pt"})
        loaded = model.from_pretrained(path).eval().float()
        text = (path / "config.json").read_bytes()
    return loaded, {"config": coded(text), "shapes": coded(json.dumps(shapes).encode())}


def coded(text: bytes) -> np.ndarray:
    return np.frombuffer(text, np.uint8)


def write(name: str, models: dict[str, Arrays]) -> None:
    """Write results as `model/name`."""
    flat = {f"{model}/{key}": a for model, arrays in models.items() for key, a in arrays.items()}
    np.savez_compressed(FIXTURES / f"{name}.npz", **flat)
    print(name, (FIXTURES / f"{name}.npz").stat().st_size, "bytes")


EXPERTS = {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 12}
WINDOW = {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1}
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 16,
    "mscale": 1.0,
    "mscale_all_dim": 0.5,
}
DECODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "mixtral": ("MixtralConfig", SMALL | {"num_local_experts": 4, "sliding_window": 9}),
    "qwen2_moe": (
        "Qwen2MoeConfig",
        SMALL | EXPERTS | {"shared_expert_intermediate_size": 10, "mlp_only_layers": [0]},
    ),
    "qwen3_moe": ("Qwen3MoeConfig", SMALL | EXPERTS | {"head_dim": 8, "norm_topk_prob": True}),
    "qwen3_moe_step": (
        "Qwen3MoeConfig",
        SMALL | EXPERTS | {"head_dim": 8, "decoder_sparse_step": 2, "num_experts": 20},
    ),
    "linear": ("LlamaConfig", SMALL | {"rope_parameters": LINEAR}),
    "dynamic": ("LlamaConfig", SMALL | {"rope_parameters": DYNAMIC}),
    "yarn": ("Qwen3Config", SMALL | {"rope_parameters": YARN, "head_dim": 8}),
    "mistral_depth": ("MistralConfig", SMALL | {"head_dim": 6, "sliding_window": None}),
    "qwen2_window": (
        "Qwen2Config",
        SMALL | {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1},
    ),
    "gpt_neox_serial": (
        "GPTNeoXConfig",
        {k: v for k, v in SMALL.items() if "key_value" not in k}
        | {"num_attention_heads": 2, "use_parallel_residual": False, "hidden_act": "gelu_new"}
        | {"attention_bias": False},
    ),
    "gemma3_linear": (
        "Gemma3TextConfig",
        SMALL
        | {
            "head_dim": 8,
            "sliding_window": 6,
            "layer_types": ["sliding_attention", "full_attention"],
            "rope_parameters": {
                "full_attention": LINEAR | {"rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
            },
        },
    ),
    "gpt2_inner": (
        "GPT2Config",
        {"vocab_size": 61, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64}
        | {"n_inner": 24, "activation_function": "relu", "tie_word_embeddings": False},
    ),
    "gemma_biased": ("GemmaConfig", SMALL | {"head_dim": 8, "attention_bias": True}),
    "gemma_silu": ("GemmaConfig", SMALL | {"head_dim": 8, "hidden_act": "silu"}),
    "mixtral_gelu": (
        "MixtralConfig",
        SMALL | {"num_local_experts": 4, "hidden_act": "gelu_pytorch_tanh"},
    ),
    "qwen2_moe_window": (
        "Qwen2MoeConfig",
        SMALL | EXPERTS | WINDOW | {"shared_expert_intermediate_size": 10, "num_hidden_layers": 3},
    ),
    "qwen3_moe_window": ("Qwen3MoeConfig", SMALL | EXPERTS | WINDOW | {"head_dim": 8}),
    "gpt2_unscaled": (
        "GPT2Config",
        {"vocab_size": 61, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64}
        | {"scale_attn_weights": False},
    ),
}


def decoders() -> None:
    """Logits, those of long texts, and what is written greedily."""
    models = {}
    for name, (config, values) in DECODERS.items():
        model, found = made("AutoModelForCausalLM", getattr(transformers, config)(**values))
        torch.manual_seed(len(name))
        tokens, long = torch.randint(1, 61, (2, 19)), torch.randint(1, 61, (1, 50))
        with torch.no_grad():
            found["logits"] = model(tokens).logits[:, -5:].numpy()
            found["long_logits"] = model(long).logits[:, -1].numpy()
            options = {"max_new_tokens": 12, "do_sample": False, "eos_token_id": None}
            found["greedy"] = model.generate(tokens, **options)[:, 19:].numpy()
        models[name] = found | {"tokens": tokens.numpy(), "long": long.numpy()}
    write("more_decoders", models)


IMAGE: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 20,
    "image_size": 12,
    "patch_size": 4,
}
CLIP_TEXT: dict[str, Any] = {
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 20,
    "vocab_size": 61,
    "max_position_embeddings": 20,
    "eos_token_id": 60,
    "bos_token_id": 59,
}
CLIP_BOTH = {"text_config": CLIP_TEXT, "vision_config": IMAGE, "projection_dim": 8}
STAGES: dict[str, Any] = {"hidden_sizes": [8, 12, 16], "depths": [1, 2, 1], "num_stages": 3}
VISION: dict[str, tuple[str, str, dict[str, Any]]] = {
    "vit": ("ViTForImageClassification", "ViTConfig", IMAGE | {"num_labels": 5}),
    "vit_body": ("ViTModel", "ViTConfig", IMAGE | {"qkv_bias": False}),
    "deit": ("DeiTForImageClassification", "DeiTConfig", IMAGE | {"num_labels": 5}),
    "deit_both": ("DeiTForImageClassificationWithTeacher", "DeiTConfig", IMAGE),
    "dinov2": ("Dinov2ForImageClassification", "Dinov2Config", IMAGE | {"num_labels": 5}),
    "dinov2_gated": ("Dinov2Model", "Dinov2Config", IMAGE | {"use_swiglu_ffn": True}),
    "convnext": ("ConvNextForImageClassification", "ConvNextConfig", STAGES | {"num_labels": 5}),
    "convnext_body": ("ConvNextModel", "ConvNextConfig", STAGES | {"layer_scale_init_value": 0.0}),
    "registers": (
        "Dinov2WithRegistersForImageClassification",
        "Dinov2WithRegistersConfig",
        IMAGE | {"num_labels": 5, "num_register_tokens": 3},
    ),
    "convnextv2": (
        "ConvNextV2ForImageClassification",
        "ConvNextV2Config",
        STAGES | {"num_labels": 5},
    ),
    "clip": ("CLIPModel", "CLIPConfig", CLIP_BOTH),
    "clip_old": (
        "CLIPModel",
        "CLIPConfig",
        CLIP_BOTH | {"text_config": CLIP_TEXT | {"eos_token_id": 2}},
    ),
    "clip_image": ("CLIPVisionModel", "CLIPVisionConfig", IMAGE),
    "clip_image_projected": (
        "CLIPVisionModelWithProjection",
        "CLIPVisionConfig",
        IMAGE | {"projection_dim": 8, "hidden_act": "gelu"},
    ),
    "clip_text": ("CLIPTextModel", "CLIPTextConfig", CLIP_TEXT),
}


def vision() -> None:
    """What models give for images, and for texts."""
    models = {}
    for name, (kind, config, values) in VISION.items():
        model, found = made(kind, getattr(transformers, config)(**values))
        torch.manual_seed(len(name))
        side = 48 if "convnext" in name else 12
        shape = (2, 3, side, side)
        pixels, tokens = torch.from_numpy(noise(name, shape)), torch.randint(3, 60, (2, 9))
        tokens[0, 5:] = tokens[1, 8] = 60
        given: dict[str, Any] = {} if name == "clip_text" else {"pixel_values": pixels}
        if name in ("clip", "clip_old", "clip_text"):
            given["input_ids"] = tokens
        with torch.no_grad():
            result = model(**given)
            for key in ("logits", "last_hidden_state", "pooler_output", "image_embeds"):
                if getattr(result, key, None) is not None:
                    found[key] = getattr(result, key).numpy()
            for key in ("text_embeds", "logits_per_image"):
                if getattr(result, key, None) is not None:
                    found[key] = getattr(result, key).numpy()
            if name in ("vit_body", "dinov2", "dinov2_gated", "registers"):
                wide = torch.from_numpy(noise("wide", (1, 3, 20, 8)))
                extra = {"interpolate_pos_encoding": True} if name == "vit_body" else {}
                hidden = model(wide, output_hidden_states=True, **extra)
                found["wide_result"] = (
                    hidden.logits if name in ("dinov2", "registers") else hidden.last_hidden_state
                ).numpy()
        found |= {"input_ids": tokens.numpy()} if "input_ids" in given else {}
        models[name] = found | {"pixels": np.array(shape)}
    write("vision", models)


MODERN: dict[str, Any] = {
    "vocab_size": 61,
    "hidden_size": 16,
    "intermediate_size": 20,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "max_position_embeddings": 64,
    "local_attention": 8,
} | {f"{name}_token_id": 0 for name in ("pad", "bos", "eos", "cls", "sep")}
MODERN_MORE: dict[str, Any] = {
    "norm_bias": True,
    "attention_bias": True,
    "mlp_bias": True,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
}
ENCODERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "modernbert": ("ModernBertModel", "ModernBertConfig", MODERN),
    "modernbert_tanh": (
        "ModernBertModel",
        "ModernBertConfig",
        MODERN | {"hidden_activation": "gelu_pytorch_tanh"},
    ),
    "modernbert_biased": ("ModernBertForMaskedLM", "ModernBertConfig", MODERN | MODERN_MORE),
}


def encoders() -> None:
    """Vectors of tokens of texts of two lengths."""
    models = {}
    for name, (kind, config, values) in ENCODERS.items():
        model, found = made(kind, getattr(transformers, config)(**values))
        torch.manual_seed(len(name))
        tokens = torch.randint(3, 61, (2, 19))
        tokens[1, 11:] = 0
        body = model if kind.endswith("Model") else model.model
        with torch.no_grad():
            hidden = body(tokens, attention_mask=tokens != 0).last_hidden_state.numpy()
        models[name] = found | {"tokens": tokens.numpy(), "hidden": hidden}
    write("more_encoders", models)


T5: dict[str, Any] = {
    "vocab_size": 61,
    "d_model": 16,
    "d_kv": 6,
    "d_ff": 20,
    "num_layers": 3,
    "num_decoder_layers": 2,
    "num_heads": 2,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "decoder_start_token_id": 0,
}
SEQUENCES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "t5": ("T5ForConditionalGeneration", "T5Config", T5),
    "t5_gated": (
        "T5ForConditionalGeneration",
        "T5Config",
        T5
        | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
        | {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 20},
    ),
    "mt5": ("MT5ForConditionalGeneration", "MT5Config", T5),
    "t5_encoder": ("T5EncoderModel", "T5Config", T5),
}


def sequences() -> None:
    """Scores and greedy texts of encoders with decoders, for texts of two lengths."""
    models = {}
    for name, (kind, config, values) in SEQUENCES.items():
        model, found = made(kind, getattr(transformers, config)(**values))
        torch.manual_seed(len(name))
        tokens, later = torch.randint(3, 61, (2, 33)), torch.randint(3, 61, (2, 40))
        tokens[1, 21:], later[:, 0] = 0, 0
        given = {"input_ids": tokens, "attention_mask": (tokens != 0).long()}
        with torch.no_grad():
            if kind == "T5EncoderModel":
                found["hidden"] = model(**given).last_hidden_state.numpy()
            else:
                logits = model(**given, decoder_input_ids=later).logits
                found["logits"] = logits[:, [0, 1, 2, 20, 39]].numpy()
                options = {"max_new_tokens": 40, "do_sample": False, "eos_token_id": None}
                found["greedy"] = model.generate(**given, **options)[:, 1:].numpy()
        models[name] = found | {"tokens": tokens.numpy(), "later": later.numpy()}
    write("sequences", models)


WHISPER: dict[str, Any] = {
    "vocab_size": 111,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 20,
    "decoder_ffn_dim": 24,
    "num_mel_bins": 8,
    "max_source_positions": 50,
    "max_target_positions": 32,
    "pad_token_id": 50,
    "bos_token_id": 50,
    "eos_token_id": 50,
    "decoder_start_token_id": 51,
}
SPEECH: dict[str, Any] = {
    "decoder_start_token_id": 51,
    "eos_token_id": 50,
    "pad_token_id": 50,
    "lang_to_id": {"<|en|>": 52, "<|de|>": 53},
    "task_to_id": {"translate": 54, "transcribe": 55},
    "is_multilingual": True,
    "prev_sot_token_id": 57,
    "no_timestamps_token_id": 59,
    "suppress_tokens": [7, 8, 51, 52, 53, 54, 55, 56, 57, 58],
    "begin_suppress_tokens": [5, 50],
    "max_initial_timestamp_index": 10,
    "max_length": 32,
    "return_timestamps": True,
}
ALONE = ("lang_to_id", "task_to_id", "is_multilingual")


def sound() -> np.ndarray:
    """Three seconds and a third of noise that swells and falls."""
    swell = np.sin(np.arange(52800) / 4000) ** 2 + 0.01
    return (noise("sound", (52800,)) * swell * 0.2).astype(np.float32)


def speech() -> None:
    """Features, scores and segments of small models of many languages and of one."""
    models = {}
    for bands in (8, 80):
        extractor = transformers.WhisperFeatureExtractor(feature_size=bands)
        heard = np.concatenate([sound(), np.zeros(16000, np.float32)])
        features = extractor._np_extract_fbank_features(heard[None], "cpu")[0][:, :330]
        models[f"mel_{bands}"] = {"features": features[:, :: 1 if bands == 8 else 7]}
    features = torch.from_numpy(models["mel_8"]["features"].astype(np.float32))[None]
    for name in ("many", "alone"):
        config = transformers.WhisperConfig(**WHISPER)
        model, found = made("WhisperForConditionalGeneration", config)
        given = {k: v for k, v in SPEECH.items() if name != "alone" or k not in ALONE}
        if name == "alone":
            given["is_multilingual"] = False
        model.generation_config = transformers.GenerationConfig(**given)
        torch.manual_seed(len(name))
        tokens = torch.randint(0, 50, (1, 9))
        with torch.no_grad():
            found["logits"] = model(features[:, :, :100], decoder_input_ids=tokens).logits.numpy()
            options: dict[str, Any] = {"return_timestamps": True, "return_segments": True}
            options |= {"task": "transcribe"} if name == "many" else {}
            written = model.generate(
                features, attention_mask=torch.ones(1, 330), **options, num_beams=1
            )["segments"][0]
        found["segments"] = coded(
            json.dumps(
                [
                    [
                        float(s["start"]),
                        float(s["end"]),
                        [t for t in s["tokens"].tolist() if t < 50],
                    ]
                    for s in written
                ]
            ).encode()
        )
        found["generation"] = coded(json.dumps(given).encode())
        models[name] = found | {"tokens": tokens.numpy()}
    write("speech", models)


MADE = {
    "speech": speech,
    "sequences": sequences,
    "decoders": decoders,
    "vision": vision,
    "encoders": encoders,
}

if __name__ == "__main__":
    for name in sys.argv[1:] or MADE:
        MADE[name]()

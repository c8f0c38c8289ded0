"""A Whisper of CTranslate2's layout as a folder of Hugging Face, which `cb.load` reads.

A file is a version, a name, a revision and a count, then for each variable its name, lengths, type
and bytes; all numbers are little-endian.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

DTYPES = (np.float32, np.int8, np.int16, np.int32, np.float16)
BLOCK = {  # parts of a layer: theirs, then Hugging Face's
    "self_attention/layer_norm": "self_attn_layer_norm",
    "self_attention/linear_1": "self_attn.out_proj",
    "attention/layer_norm": "encoder_attn_layer_norm",
    "attention/linear_0": "encoder_attn.q_proj",
    "attention/linear_2": "encoder_attn.out_proj",
    "ffn/layer_norm": "final_layer_norm",
    "ffn/linear_0": "fc1",
    "ffn/linear_1": "fc2",
}
JOINED = {  # matrices that are rows of one
    "self_attention/linear_0": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attention/linear_1": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
}
OTHERS = {
    "conv1": "conv1",
    "conv2": "conv2",
    "layer_norm": "layer_norm",
    "embeddings": "embed_tokens",
    "position_encodings": "embed_positions",
}
LAST = {
    "gamma": "weight",
    "beta": "bias",
    "encodings": "weight",
    "weight": "weight",
    "bias": "bias",
}
ENGLISH_END = 50256
"""What ends a text in the vocabulary of English alone; that of many languages has a word more."""


def variables(file: BinaryIO) -> Iterator[tuple[str, np.ndarray]]:
    """Names and values."""

    def number(form: str) -> int:
        return int(struct.unpack(f"<{form}", file.read(struct.calcsize(form)))[0])

    def name() -> str:
        return file.read(number("H")).rstrip(b"\0").decode()

    version = number("I")
    if version != 6:
        raise ValueError(f"layout {version} of CTranslate2, not 6")
    name(), number("I")
    for _ in range(number("I")):
        found = name()
        shape = [number("I") for _ in range(number("B"))]
        dtype = DTYPES[number("B")]
        yield found, np.frombuffer(file.read(number("I")), dtype).reshape(shape)


def renamed(name: str, value: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """A variable as Hugging Face names it; keys have no bias there, numbers are in the config."""
    stack, *parts, last = name.split("/")
    if last not in LAST:
        return
    if parts[0].startswith("layer_") and parts[0] != "layer_norm":
        part, prefix = "/".join(parts[1:]), f"model.{stack}.layers.{parts[0][6:]}"
        if part in JOINED:
            pieces = np.split(value, len(JOINED[part]))
            for theirs, piece in zip(JOINED[part], pieces, strict=True):
                if (theirs.endswith("k_proj"), last) != (True, "bias"):
                    yield f"{prefix}.{theirs}.{LAST[last]}", piece
            return
        yield f"{prefix}.{BLOCK[part]}.{LAST[last]}", value
    else:
        yield f"model.{stack}.{OTHERS[parts[0]]}.{LAST[last]}", value


def config(found: dict[str, np.ndarray], tensors: dict[str, np.ndarray]) -> dict[str, Any]:
    """config.json."""
    heads = {s: int(found[f"{s}/num_heads"]) for s in ("encoder", "decoder")}
    layers = dict.fromkeys(heads, 0)
    for name in found:
        stack, part = name.split("/")[:2]
        if part.startswith("layer_") and part[6:].isdigit():
            layers[stack] = max(layers[stack], int(part[6:]) + 1)
    words, width = tensors["model.decoder.embed_tokens.weight"].shape
    made: dict[str, Any] = {
        "model_type": "whisper",
        "architectures": ["WhisperForConditionalGeneration"],
        "vocab_size": words,
        "d_model": width,
        "num_mel_bins": tensors["model.encoder.conv1.weight"].shape[1],
        "max_source_positions": len(tensors["model.encoder.embed_positions.weight"]),
        "max_target_positions": len(tensors["model.decoder.embed_positions.weight"]),
        "activation_function": "gelu",
    }
    for stack in heads:
        made[f"{stack}_layers"] = layers[stack]
        made[f"{stack}_attention_heads"] = heads[stack]
        made[f"{stack}_ffn_dim"] = len(tensors[f"model.{stack}.layers.0.fc1.weight"])
    return made


def generation(theirs: dict[str, Any], words: dict[str, int]) -> dict[str, Any]:
    """generation_config.json."""
    many = "<|en|>" in words and words["<|endoftext|>"] != ENGLISH_END
    made = {
        "decoder_start_token_id": words["<|startoftranscript|>"],
        "eos_token_id": words["<|endoftext|>"],
        "no_timestamps_token_id": words["<|notimestamps|>"],
        "prev_sot_token_id": words["<|startofprev|>"],
        "suppress_tokens": theirs["suppress_ids"],
        "begin_suppress_tokens": theirs["suppress_ids_begin"],
        "max_initial_timestamp_index": 50,
        "is_multilingual": many,
    }
    if many:
        made["lang_to_id"] = {word: n for word, n in words.items() if n in set(theirs["lang_ids"])}
        made["task_to_id"] = {t: words[f"<|{t}|>"] for t in ("transcribe", "translate")}
    return made


def convert(folder: Path) -> Path:
    """A folder with model.bin, config.json and tokenizer.json; gives the folder of Hugging Face
    beside it.
    """
    from safetensors.numpy import save_file

    made = folder.with_name(f"{folder.name}-hf")
    if (made / "config.json").exists():
        return made
    made.mkdir(exist_ok=True)
    with (folder / "model.bin").open("rb") as file:
        found = dict(variables(file))
    tensors = {n: np.ascontiguousarray(v) for name, x in found.items() for n, v in renamed(name, x)}
    save_file(tensors, made / "model.safetensors")
    tokenizer = (folder / "tokenizer.json").read_text()
    words = {t["content"]: t["id"] for t in json.loads(tokenizer)["added_tokens"]}
    (made / "tokenizer.json").write_text(tokenizer)
    settings = generation(json.loads((folder / "config.json").read_text()), words)
    (made / "generation_config.json").write_text(json.dumps(settings))
    (made / "config.json").write_text(json.dumps(config(found, tensors)))  # last: it is complete
    return made

"""`cb.look`: what a model file holds, without reading its weights."""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path
from typing import Any

from cubepy.models.exported.archive import operators
from cubepy.models.families import kind_of
from cubepy.models.formats.block_types import BY_NAME
from cubepy.models.formats.dequantize import READ_AS, UNPACK
from cubepy.models.formats.gguf import GGUF, read_gguf
from cubepy.models.formats.pickled import read_pickled
from cubepy.models.formats.shards import read_index, read_json, read_safetensors
from cubepy.models.formats.stored import Stored
from cubepy.models.gguf_names import FAMILIES as GGUF_FAMILIES
from cubepy.models.report import Look, TensorInfo
from cubepy.models.source import INDEX, format_of
from cubepy.nn import safetensors_metadata

_COUNTS = ("block_count", "context_length", "embedding_length", "feed_forward_length")
_CONFIG = (
    *("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads"),
    *("num_local_experts", "num_experts", "num_experts_per_tok", "moe_intermediate_size"),
    *("d_model", "d_kv", "d_ff", "num_layers", "num_decoder_layers", "num_heads"),
    *("encoder_layers", "decoder_layers", "encoder_attention_heads", "num_mel_bins"),
    *("image_size", "patch_size", "hidden_sizes", "depths", "projection_dim"),
)


def look(source: str | os.PathLike[str]) -> Look:
    """What a model file or folder holds: format, dtypes, parameters, bytes; printing it shows a
    table.

    Args:
        source: a GGUF, safetensors, PyTorch (.pt, .pt2) or ONNX file, an index of shards, or a
            folder with `config.json`.

    Raises:
        FileFormatError: a file that is damaged, or of no known format.
        FileNotFoundError: there is none.

    Example:
        >>> import numpy as np, tempfile
        >>> from cubepy import nn
        >>> path = tempfile.mkdtemp() + "/w.safetensors"
        >>> nn.save_safetensors({"w": np.zeros((2, 3), np.float32)}, path)
        >>> found = look(path)
        >>> found.format, found.parameters, found.nbytes, found.dtypes
        ('safetensors', 6, 24, {'f32': 1})
    """
    kind = format_of(source)
    if kind == "onnx":
        found: Look = importlib.import_module("cubepy.models.onnx").look(source)
        return found
    path = os.fspath(source)
    if kind == "exported":
        counted = operators(path)
        records = importlib.import_module("cubepy.models.exported.model")
        unread = {name: ("",) * n for name, n in counted.items() if not records.runs(name)}
        return Look(path, "PyTorch exported program", operators=counted, unsupported=unread)
    if kind == "gguf":
        return _look_gguf(path, read_gguf(path))
    if kind == "folder":
        return _look_folder(Path(path))
    if kind == "safetensors":
        facts = {f"metadata {key}": text for key, text in safetensors_metadata(path).items()}
        return Look(path, "safetensors", facts, tensors=_infos(read_safetensors(path)))
    if kind == "index":
        return Look(path, "safetensors in shards", tensors=_infos(read_index(path)))
    return Look(path, "PyTorch pickle", tensors=_infos(read_pickled(path)))


def _infos(tensors: dict[str, Stored]) -> tuple[TensorInfo, ...]:
    return tuple(info_of(t) for t in tensors.values())


def info_of(tensor: Stored) -> TensorInfo:
    """A tensor of a file for the table."""
    return TensorInfo(tensor.name, tensor.kind, tensor.shape, tensor.nbytes)


def _look_gguf(path: str, file: GGUF) -> Look:
    facts = {"architecture": file.architecture or "not said"}
    name = file.metadata.get("general.name")
    if isinstance(name, str):
        facts["name"] = name
    for key in _COUNTS:
        if (value := file.metadata.get(f"{file.architecture}.{key}")) is not None:
            facts[key.replace("_", " ")] = str(value)
    words = file.metadata.get("tokenizer.ggml.tokens")
    if isinstance(words, list):
        facts["vocabulary"] = f"{len(words):,} ({file.metadata.get('tokenizer.ggml.model')})"
    if "tokenizer.chat_template" in file.metadata:
        facts["chat template"] = "yes"
    kinds = dict.fromkeys(t.kind for t in file.tensors.values() if t.kind in BY_NAME)
    notes = [f"{kind} is read as {other}" for kind in kinds if (other := READ_AS.get(kind))]
    unread = {k for k in kinds if BY_NAME[k].plain == "" and k not in UNPACK}
    notes += [f"{kind} cannot be read" for kind in sorted(unread)]
    if file.architecture not in GGUF_FAMILIES:
        notes.append("models of this architecture cannot be loaded")
    tensors = _infos(file.tensors)
    return Look(path, f"GGUF {file.version}", facts, tensors=tensors, notes=tuple(notes))


def _look_folder(folder: Path) -> Look:
    facts: dict[str, str] = {}
    notes: tuple[str, ...] = ()
    if (folder / "config.json").is_file():
        config = read_json(folder / "config.json")
        facts["architecture"] = _listed(config.get("architectures")) or str(
            config.get("model_type")
        )
        facts |= {
            key.replace("_", " "): str(config[key])
            for key in _CONFIG
            if config.get(key) is not None
        }
        if "quantization_config" in config:
            facts["quantization"] = json.dumps(config["quantization_config"])[:200]
        if (kind := kind_of(config.get("model_type"))) is None:
            notes = ("models of this architecture cannot be loaded",)
        else:
            facts["kind"] = kind
    tensors = _infos(folder_tensors(folder))
    return Look(str(folder), "folder", facts, tensors=tensors, notes=notes)


def _listed(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else ""


def folder_tensors(folder: Path) -> dict[str, Stored]:
    """The weights of a Hugging Face folder: shards, one file, or PyTorch's.

    Raises:
        FileNotFoundError: there are none.
    """
    if (folder / INDEX).is_file():
        return read_index(folder / INDEX)
    if (folder / "model.safetensors").is_file():
        return read_safetensors(folder / "model.safetensors")
    if (folder / "pytorch_model.bin").is_file():
        return read_pickled(folder / "pytorch_model.bin")
    raise FileNotFoundError(
        f"{folder}: no weights: expected model.safetensors, {INDEX} or pytorch_model.bin"
        f"{models_in(folder)}"
    )


def models_in(folder: Path) -> str:
    """What a folder has that could be meant, as the end of an error.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> (folder / "net.onnx").touch()
        >>> models_in(folder)
        '; give the path of a file in it: net.onnx'
    """
    kinds = (".onnx", ".gguf", ".safetensors", ".pt2", ".pt", ".pth", ".bin")
    found = sorted(p.name for p in folder.iterdir() if p.suffix in kinds)
    more = f" and {len(found) - 4} more" if len(found) > 4 else ""
    return f"; give the path of a file in it: {', '.join(found[:4])}{more}" if found else ""

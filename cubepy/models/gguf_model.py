"""Models in GGUF files: their config from the metadata, their weights from the blocks."""

from __future__ import annotations

import os
import re
from functools import partial
from typing import Any

import numpy as np

from cubepy.errors import FileFormatError
from cubepy.models.architectures.decoder import DecoderConfig
from cubepy.models.architectures.decoders import decoder_config
from cubepy.models.architectures.weights import listed
from cubepy.models.folder import built
from cubepy.models.formats.dequantize import UNPACK, dequantize
from cubepy.models.formats.gguf import GGUF, read_gguf
from cubepy.models.formats.stored import Stored
from cubepy.models.generation.text_model import TextModel
from cubepy.models.generation.tokenizer import gguf_ends, gguf_tokenizer
from cubepy.models.gguf_names import EXPERTS, FAMILIES, IGNORED, PARTS, PERMUTED, WHOLE
from cubepy.models.packed.kernels import KINDS
from cubepy.models.packed.storage import Blocks, check_activations
from cubepy.tensor import Tensor, as_tensor

_LAYER = re.compile(r"^blk\.(\d+)\.(\w+)\.(weight|bias)$")


def load_gguf(path: str | os.PathLike[str], activations: str = "int8") -> TextModel:
    """The model of a GGUF file: weights stay in their blocks where kernels read them.

    Args:
        path: of the file.
        activations: what meets the blocks, bytes or floats (`Blocks`).

    Raises:
        ArgumentError: activations of another kind.
        FileFormatError: an architecture or a block type that is not known, or weights that do not
            fit the metadata.
    """
    check_activations(activations)
    file, source = read_gguf(path), os.fspath(path)
    if file.architecture not in FAMILIES:
        raise FileFormatError(
            f"{source}: models of the architecture {file.architecture!r} cannot be loaded",
            hint=f"those that can: {', '.join(FAMILIES)}",
        )
    unread = [
        f"{t.name} ({t.kind})"
        for t in file.tensors.values()
        if t.data.dtype == np.uint8 and t.kind not in UNPACK
    ]
    if unread:
        raise FileFormatError(
            f"{source}: tensors of types that cannot be read: {listed(unread)}",
            hint=f"quantize the model to one of {', '.join(UNPACK)}",
        )
    for name, stored in file.tensors.items():
        axes = (3,) if any(f".{part}." in name for part in EXPERTS) else (1, 2)
        if len(stored.shape) not in axes:
            raise FileFormatError(f"{source}: {name} cannot have the shape {stored.shape}")
    c = gguf_config(file, source)
    model = built(c, _weights(file, c, source, activations), source)
    model.ends = gguf_ends(file)
    words = {key: value for key, value in file.metadata.items() if key.startswith("tokenizer.")}
    model.give_tokenizer(partial(gguf_tokenizer, GGUF(file.version, words, {}), source))
    return model


def gguf_config(file: GGUF, source: str) -> DecoderConfig:
    """The decoder that the metadata describe.

    Raises:
        FileFormatError: what is missing, or has a value that cannot be.
    """
    family = FAMILIES[file.architecture]
    if file.architecture == "llama" and file.metadata.get("llama.expert_count"):
        family = "mixtral"
    values = _as_config(file, family)
    return decoder_config(values, source)


def _as_config(file: GGUF, family: str) -> dict[str, Any]:
    """The metadata under Hugging Face's names."""

    def get(key: str) -> Any:
        value = file.metadata.get(f"{file.architecture}.{key}")
        return value.tolist() if isinstance(value, np.ndarray) else value

    def alike(key: str) -> Any:
        value = get(key)
        if isinstance(value, list):
            if len(set(value)) != 1:
                raise FileFormatError(f"{key} differs between layers: {value[:8]}")
            return value[0]
        return value

    embedding = file.tensors.get("token_embd.weight")
    width, heads = get("embedding_length"), alike("attention.head_count")
    depth = get("attention.key_length")
    if depth is None and isinstance(heads, int) and isinstance(width, int) and heads > 0:
        depth = width // heads
    rotated, layers = get("rope.dimension_count"), get("block_count")
    for key, value in (("depth of heads", depth), ("part that is rotated", rotated)):
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, int) or value < 1
        ):
            raise FileFormatError(f"the {key} must be a positive integer, not {value!r}")
    values = {
        "model_type": family,
        "vocab_size": None if embedding is None else embedding.shape[0],
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": alike("attention.head_count_kv"),
        "intermediate_size": alike("feed_forward_length"),
        "max_position_embeddings": get("context_length"),
        "rms_norm_eps": get("attention.layer_norm_rms_epsilon"),
        "layer_norm_eps": get("attention.layer_norm_epsilon"),
        "layer_norm_epsilon": get("attention.layer_norm_epsilon"),
        "head_dim": depth,
        "rope_theta": get("rope.freq_base"),
        "rope_scaling": _scaling(file),
        "sliding_window": get("attention.sliding_window"),
        "use_parallel_residual": get("use_parallel_residual"),
        "attn_logit_softcapping": get("attn_logit_softcapping"),
        "final_logit_softcapping": get("final_logit_softcapping"),
        "embedding_multiplier": get("embedding_scale"),
        "attention_multiplier": get("attention.scale"),
        "residual_multiplier": get("residual_scale"),
        "logits_scaling": get("logit_scale"),
        "num_local_experts": get("expert_count"),
        "num_experts_per_tok": get("expert_used_count"),
        "moe_intermediate_size": get("expert_feed_forward_length"),
        "shared_expert_intermediate_size": get("expert_shared_feed_forward_length"),
        "norm_topk_prob": file.architecture == "qwen3moe",
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "attention_bias": "blk.0.attn_q.bias" in file.tensors
        or "blk.0.attn_qkv.bias" in file.tensors,
        "mlp_bias": "blk.0.ffn_down.bias" in file.tensors,
    }
    if family in ("gemma2", "gemma3_text") and depth:  # the models of 27B are told by their layers
        large = layers == (46 if family == "gemma2" else 62)
        values["query_pre_attn_scalar"] = width // heads if large else depth
    if family == "gpt2":
        values |= {"n_embd": width, "n_head": heads, "n_positions": get("context_length")}
        values |= {"n_inner": get("feed_forward_length")}
    if rotated and depth and rotated != depth:
        values["partial_rotary_factor"] = rotated / depth
    return {key: value for key, value in values.items() if value is not None}


def _weights(file: GGUF, c: DecoderConfig, source: str, activations: str) -> dict[str, Tensor]:
    """The tensors of a decoder by our names."""
    found: dict[str, Tensor] = {}
    unknown = []
    for name, stored in file.tensors.items():
        if name in IGNORED:
            continue
        layer = _LAYER.match(name)
        part, _, kind = name.rpartition(".")
        if layer and layer[2] in EXPERTS:
            found[f"layers.{layer[1]}.{EXPERTS[layer[2]]}"] = stack_of(stored)
            continue
        if layer and layer[2] in PARTS:
            ours = f"layers.{layer[1]}.{PARTS[layer[2]]}.{layer[3]}"
        elif part in WHOLE:
            ours = f"{WHOLE[part]}.{kind}"
        else:
            unknown.append(name)
            continue
        for key, one in _split(ours, stored, c):
            if file.architecture in PERMUTED and re.search(r"attention\.[qk]\.", key):
                one = _neighbours_parted(one, c.heads if ".q." in key else c.groups, source)
            as_norm = "norm" in key or "before" in key or "after" in key
            found[key] = tensor_of(one, as_norm, activations)
            if key.endswith("shared_gate.weight"):  # stored as a vector
                found[key] = found[key].reshape(1, -1)
    if unknown:
        raise FileFormatError(f"{source}: weights that are not known: {listed(unknown)}")
    return found


def _scaling(file: GGUF) -> dict[str, Any] | None:
    """How rotary frequencies are scaled: by divisors that are tensors, or by the metadata."""

    def get(key: str) -> Any:
        value = file.metadata.get(f"{file.architecture}.rope.scaling.{key}")
        return value.tolist() if isinstance(value, np.ndarray) else value

    def factors(name: str) -> list[float] | None:
        stored = file.tensors.get(name)
        return None if stored is None else np.asarray(stored.data, np.float64).ravel().tolist()

    short, long = (factors(f"rope_factors_{name}.weight") for name in ("short", "long"))
    if short and long:
        return {
            "rope_type": "longrope",
            "short_factor": short,
            "long_factor": long,
            "original_max_position_embeddings": get("original_context_length"),
            "attention_factor": get("attn_factor"),
        }
    if divisors := factors("rope_freqs.weight"):
        return {"rope_type": "factors", "factors": divisors}
    if get("type") in (None, "none"):
        return None
    return {
        "rope_type": get("type"),
        "factor": get("factor"),
        "original_max_position_embeddings": get("original_context_length"),
    }


def _rows(stored: Stored, rows: Any) -> Stored:
    data = stored.data[rows]
    return Stored(stored.name, stored.kind, (len(data), *stored.shape[1:]), data)


def _split(name: str, stored: Stored, c: DecoderConfig) -> list[tuple[str, Stored]]:
    """Joined projections in parts: whole rows of blocks."""
    base, _, kind = name.rpartition(".")
    if base.endswith(".qkv"):
        ends = np.cumsum([0, c.heads * c.depth, c.groups * c.depth, c.groups * c.depth])
        return [
            (f"{base[:-3]}{part}.{kind}", _rows(stored, slice(ends[n], ends[n + 1])))
            for n, part in enumerate("qkv")
        ]
    if base.endswith("network.up") and c.gated and stored.shape[0] == 2 * c.inner:  # phi3
        return [
            (f"{base[:-2]}{part}.{kind}", _rows(stored, slice(n * c.inner, (n + 1) * c.inner)))
            for n, part in enumerate(("gate", "up"))
        ]
    return [(name, stored)]


def _neighbours_parted(stored: Stored, heads: int, source: str) -> Stored:
    """Rows of each head in the order of halves: stored are pairs of neighbours."""
    if stored.shape[0] % (2 * heads):
        raise FileFormatError(
            f"{source}: {stored.name} has {stored.shape[0]} rows of {heads} heads"
        )
    order = np.arange(stored.shape[0]).reshape(heads, -1, 2).swapaxes(1, 2).ravel()
    return _rows(stored, order)


def tensor_of(stored: Stored, as_norm: bool = False, activations: str = "int8") -> Tensor:
    """A tensor of a file as kernels read it: blocks stay; types without kernels become Q8_0 where
    that is exact, else f16.
    """
    if as_norm:
        kind = stored.kind
        floats = dequantize(kind, stored.data) if kind in UNPACK else stored.data
        return as_tensor(np.asarray(floats, np.float32))
    if stored.kind not in UNPACK:
        return as_tensor(stored.data)
    if len(stored.shape) != 2:
        return as_tensor(dequantize(stored.kind, stored.data))
    if stored.kind in KINDS:
        return Tensor(Blocks(stored.kind, stored.data, activations))
    if stored.kind == "IQ4_NL":
        return Tensor(Blocks("Q8_0", _widened(stored.data), activations))
    return as_tensor(dequantize(stored.kind, stored.data).astype(np.float16))


def stack_of(stored: Stored) -> Tensor:
    """The matrices of experts: blocks become f16, which no kernel picks out of them yet."""
    if stored.kind not in UNPACK:
        return as_tensor(stored.data)
    out = np.empty(stored.shape, np.float16)
    for matrix, raw in zip(out, stored.data, strict=True):
        matrix[...] = dequantize(stored.kind, raw)
    return as_tensor(out)


def _widened(raw: np.ndarray) -> np.ndarray:
    """IQ4_NL as Q8_0: the same scales, and the numbers that codes stand for, which are bytes."""
    blocks = np.ascontiguousarray(raw).reshape(-1, 18)
    codes = UNPACK["IQ4_NL"](blocks).codes.astype(np.int8).view(np.uint8)
    return np.concatenate([blocks[:, :2], codes], axis=1).reshape(len(raw), -1)

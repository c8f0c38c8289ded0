"""From the names and layouts of Hugging Face's weights to those of our decoder."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from cubepy.errors import FileFormatError
from cubepy.models.architectures.decoder import DecoderConfig
from cubepy.models.formats.stored import Stored
from cubepy.nn import Module
from cubepy.tensor import Tensor, as_tensor

PREFIXES = ("language_model.", "model.", "transformer.", "gpt_neox.", "language_model.", "model.")
IGNORED = re.compile(
    r"rotary_emb\.inv_freq$|\.attn\.(masked_)?bias$|\.attention\.(masked_)?bias$|"
    r"^vision_tower\.|^multi_modal_projector\."
)
"""Constants that are computed, and parts that see images."""
PARTS = {
    "self_attn.q_proj": "attention.q",
    "self_attn.k_proj": "attention.k",
    "self_attn.v_proj": "attention.v",
    "self_attn.o_proj": "attention.o",
    "self_attn.q_norm": "attention.q_norm",
    "self_attn.k_norm": "attention.k_norm",
    "self_attn.qkv_proj": "attention.qkv",
    "attn.c_attn": "attention.qkv",
    "attn.c_proj": "attention.o",
    "attention.query_key_value": "attention.qkv",
    "attention.dense": "attention.o",
    "mlp.gate_proj": "network.gate",
    "mlp.up_proj": "network.up",
    "mlp.down_proj": "network.down",
    "mlp.gate_up_proj": "network.gate_up",
    "mlp.gate": "network.router",
    "block_sparse_moe.gate": "network.router",
    "mlp.shared_expert.gate_proj": "network.shared.gate",
    "mlp.shared_expert.up_proj": "network.shared.up",
    "mlp.shared_expert.down_proj": "network.shared.down",
    "mlp.shared_expert_gate": "network.shared_gate",
    "mlp.c_fc": "network.up",
    "mlp.c_proj": "network.down",
    "mlp.dense_h_to_4h": "network.up",
    "mlp.dense_4h_to_h": "network.down",
    "input_layernorm": "before_attention",
    "ln_1": "before_attention",
    "ln_2": "before_network",
    "pre_feedforward_layernorm": "before_network",
    "post_feedforward_layernorm": "after_network",
}
WHOLE = {
    "embed_tokens": "words",
    "wte": "words",
    "embed_in": "words",
    "wpe": "positions",
    "norm": "norm",
    "ln_f": "norm",
    "final_layer_norm": "norm",
    "lm_head": "head",
    "embed_out": "head",
}
EXPERT_PARTS = {
    "w1": "gate",
    "w2": "down",
    "w3": "up",
    "gate_proj": "gate",
    "down_proj": "down",
    "up_proj": "up",
}
_EXPERT = re.compile(r"^(?:mlp|block_sparse_moe)\.experts\.(\d+)\.(\w+)$")
_NUMBER = re.compile(r"\.network\.experts\.(\d+)\.")
_LAYER = re.compile(r"^(?:layers|h)\.(\d+)\.(.+)\.(weight|bias)$")


def named(name: str, c: DecoderConfig) -> str | None:
    """Our name of a weight; None where it is not wanted.

    Raises:
        KeyError: it is not known.
    """
    if IGNORED.search(name):
        return None
    for prefix in PREFIXES:
        name = name.removeprefix(prefix)
    if IGNORED.search(name):
        return None
    if found := _LAYER.match(name):
        number, part, kind = found.groups()
        if expert := _EXPERT.match(part):
            ours = f"network.experts.{expert[1]}.{EXPERT_PARTS[expert[2]]}"
        elif part == "post_attention_layernorm":
            ours = "after_attention" if c.after else "before_network"
        else:
            ours = PARTS[part]
        return f"layers.{number}.{ours}.{kind}"
    part, _, kind = name.rpartition(".")
    return f"{WHOLE[part]}.{kind}"


def decoder_weights(
    stored: Mapping[str, Stored], c: DecoderConfig, family: str
) -> dict[str, Tensor]:
    """The tensors of a decoder by our names.

    Args:
        stored: by the names of the file.
        c: of the model.
        family: its `model_type`.

    Raises:
        FileFormatError: names that are not known.
    """
    found: dict[str, Tensor] = {}
    unknown = []
    for name, one in stored.items():
        try:
            ours = named(name, c)
        except KeyError:
            unknown.append(name)
            continue
        if ours is not None:
            for key, array in _parts(ours, one.data, c, family):
                if ".norm." in f".{key}" or "_norm." in key or "before_" in key or "after_" in key:
                    array = array.astype(np.float32)
                    if family.startswith("gemma"):  # weights are kept around zero
                        array = array + np.float32(1)
                found[key] = as_tensor(array)
    if unknown:
        raise FileFormatError(
            f"weights that a model of the kind {family} does not have: {listed(unknown)}",
            hint="does config.json belong to these weights?",
        )
    return found if c.experts is None else _stacked(found, c)


def _stacked(tensors: Mapping[str, Tensor], c: DecoderConfig) -> dict[str, Tensor]:
    """The matrices of a layer's experts as one tensor, where all are there and alike."""
    assert c.experts is not None
    there = {part[1] for part in map(_NUMBER.search, tensors) if part}
    if c.experts.count > len(there):  # before so many are looked for
        first = next(n for n in range(c.experts.count) if str(n) not in there)
        raise FileFormatError(
            f"the weights of experts do not fit the config: missing: experts.{first}; of "
            f"{c.experts.count} experts there are {len(there)}"
        )
    found, problems = dict(tensors), []
    for layer in sorted(set(range(c.layers)) - set(c.experts.plain)):
        for part in ("gate", "up", "down"):
            shape = (c.experts.inner, c.width)[:: -1 if part == "down" else 1]
            some = []
            for n in range(c.experts.count):
                name = f"layers.{layer}.network.experts.{n}.{part}.weight"
                t = found.pop(name, None)
                if t is not None and t.shape == shape:
                    some.append(t.numpy())
                else:
                    got = "missing" if t is None else f"expected {shape}, got {t.shape}"
                    problems.append(f"{name}: {got}")
            if len(some) == c.experts.count:
                found[f"layers.{layer}.network.{part}"] = as_tensor(np.stack(some))
    problems += [f"{name}: unexpected" for name in found if ".experts." in name]
    if problems:
        raise FileFormatError(f"the weights of experts do not fit the config: {listed(problems)}")
    return found


def _parts(
    name: str, array: np.ndarray, c: DecoderConfig, family: str
) -> list[tuple[str, np.ndarray]]:
    """Joined projections in parts, matrices as (out, in)."""
    if family == "gpt2" and array.ndim == 2 and name.startswith("layers."):
        array = np.ascontiguousarray(array.T)
    base, _, kind = name.rpartition(".")
    if base.endswith(".qkv"):
        sizes = [c.heads * c.depth, c.groups * c.depth, c.groups * c.depth]
        if array.shape[0] != sum(sizes):
            raise FileFormatError(
                f"{name}: expected {sum(sizes)} rows of queries, keys and values, got {array.shape}"
            )
        if family == "gpt_neox":  # each head has its query, key and value
            mixed = array.reshape(c.heads, 3, c.depth, *array.shape[1:])
            rows = [
                np.ascontiguousarray(mixed[:, n]).reshape(-1, *array.shape[1:]) for n in range(3)
            ]
        else:
            rows = np.split(array, np.cumsum(sizes)[:2])
        return [(f"{base[:-3]}{part}.{kind}", r) for part, r in zip("qkv", rows, strict=True)]
    if base.endswith(".gate_up"):
        return [
            (f"{base[: -len('gate_up')]}{part}.{kind}", r)
            for part, r in zip(("gate", "up"), np.array_split(array, 2), strict=True)
        ]
    return [(name, array)]


def fill(module: Module, tensors: Mapping[str, Tensor], source: str) -> None:
    """Let the parameters of a module have tensors as they are: of any dtype and storage, shared.

    Args:
        module: whose parameters are given.
        tensors: by name.
        source: for errors.

    Raises:
        FileFormatError: all that is missing, unexpected, or of another shape, in one message.
    """
    own = dict(module.named_parameters())
    missing = [name for name in own if name not in tensors]
    unexpected = [name for name in tensors if name not in own]
    wrong = [
        f"{name}: expected {own[name].shape}, got {t.shape}"
        for name, t in tensors.items()
        if name in own and own[name].shape != t.shape
    ]
    kinds = (("missing", missing), ("unexpected", unexpected), ("wrong shapes", wrong))
    problems = [f"{kind}: {listed(names)}" for kind, names in kinds if names]
    if problems:
        raise FileFormatError(
            f"{source}: the weights do not fit the config: " + "; ".join(problems),
            hint="do they belong to each other? fetch both again",
        )
    for name, t in tensors.items():
        own[name].requires_grad_(False)
        own[name].take_over_(t)


def listed(names: list[str], most: int = 12) -> str:
    """Names in one line; a long list is cut."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")

"""The configs and weights of Hugging Face's vision models, as ours have them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from cubepy.models.architectures.names import Names
from cubepy.models.architectures.settings import Settings
from cubepy.models.architectures.vision.clip import Clip, ClipText, ClipTextConfig
from cubepy.models.architectures.vision.convnext import ConvNext, ConvNextConfig
from cubepy.models.architectures.vision.layers import QUICK, LayerConfig
from cubepy.models.architectures.vision.transformer import VisionConfig, VisionTransformer
from cubepy.models.formats.stored import Stored
from cubepy.nn import Module
from cubepy.tensor import Tensor, as_tensor

Files = Mapping[str, Stored]
Found = tuple[Callable[[], Module], dict[str, Tensor]]
"""What makes a model, and its weights by our names."""
VIT = Names(
    layer=re.compile(r"encoder\.layer\.(?P<number>\d+)\.(?P<part>.+)"),
    prefix=re.compile(r"^(vit|deit|dinov2_with_registers|dinov2)\."),
    ignored=re.compile(r"(^|\.)(pooler\.|mask_token$)|^decoder\."),
    parts={
        "attention.attention.query": "q",
        "attention.attention.key": "k",
        "attention.attention.value": "v",
        "attention.output.dense": "o",
        "layernorm_before": "before_attention",
        "layernorm_after": "before_network",
        "norm1": "before_attention",
        "norm2": "before_network",
        "intermediate.dense": "up",
        "output.dense": "down",
        "mlp.fc1": "up",
        "mlp.fc2": "down",
        "mlp.weights_in": "gate_up",
        "mlp.weights_out": "down",
        "layer_scale1.lambda1": "attention_scale",
        "layer_scale2.lambda1": "network_scale",
    },
    whole={
        "embeddings.cls_token": "first",
        "embeddings.distillation_token": "second",
        "embeddings.register_tokens": "second",
        "embeddings.position_embeddings": "positions",
        "embeddings.patch_embeddings.projection": "patch",
        "layernorm": "norm",
        "classifier": "head",
        "cls_classifier": "head",
        "distillation_classifier": "second_head",
    },
)
CLIP = Names(
    layer=re.compile(r"(?P<stack>\w+)\.encoder\.layers\.(?P<number>\d+)\.(?P<part>.+)"),
    stacks={"text_model": "text.layers", "vision_model": "image.layers"},
    ignored=re.compile(r"position_ids$"),
    parts={
        "self_attn.q_proj": "q",
        "self_attn.k_proj": "k",
        "self_attn.v_proj": "v",
        "self_attn.out_proj": "o",
        "layer_norm1": "before_attention",
        "layer_norm2": "before_network",
        "mlp.fc1": "up",
        "mlp.fc2": "down",
    },
    whole={
        "logit_scale": "log_scale",
        "text_projection": "text.head",
        "visual_projection": "image.head",
        "text_model.embeddings.token_embedding": "text.words",
        "text_model.embeddings.position_embedding": "text.positions",
        "text_model.final_layer_norm": "text.norm",
        "vision_model.embeddings.class_embedding": "image.first",
        "vision_model.embeddings.patch_embedding": "image.patch",
        "vision_model.embeddings.position_embedding": "image.positions",
        "vision_model.pre_layrnorm": "image.before",
        "vision_model.post_layernorm": "image.norm",
    },
)
MOST_STAGES = 8
CONVNEXT = Names(
    layer=re.compile(r"encoder\.stages\.(?P<stack>\d)\.layers\.(?P<number>\d+)\.(?P<part>.+)"),
    stacks={str(n): f"stages.{n}.blocks" for n in range(MOST_STAGES)},
    prefix=re.compile(r"^convnext(v2)?\."),
    parts={
        "dwconv": "depthwise",
        "layernorm": "norm",
        "pwconv1": "up",
        "pwconv2": "down",
        "layer_scale_parameter": "scale",
        "grn": "responses",
    },
    whole={
        "embeddings.patch_embeddings": "stem",
        "embeddings.layernorm": "stem_norm",
        "layernorm": "norm",
        "classifier": "head",
    }
    | {
        f"encoder.stages.{n}.downsampling_layer.{k}": f"stages.{n}.{ours}"
        for n in range(MOST_STAGES)
        for k, ours in enumerate(("norm", "halved"))
    },
)


def _layer(s: Settings, **changed: Any) -> LayerConfig:
    """What a layer of a config is made of."""
    given: dict[str, Any] = {
        "width": s.size("hidden_size"),
        "heads": s.size("num_attention_heads"),
        "inner": s.size("intermediate_size"),
        "eps": s.number("layer_norm_eps", default=1e-12),
    }
    if s.values.get("hidden_act") == QUICK:
        given["activation"] = QUICK
    else:
        given["activation"] = s.activation("hidden_act", default="gelu")
    c = LayerConfig(**given | changed)
    if c.width % c.heads:
        raise s.refuse(f"{c.heads} heads do not divide a width of {c.width}")
    return c


def _sides(s: Settings, name: str, default: int) -> tuple[int, int]:
    """Height and width: one number, or a list of two."""
    found = s.values.get(name, default)
    if isinstance(found, list) and len(found) == 2:
        rows, columns = (Settings({name: n}, s.source).size(name) for n in found)
        return rows, columns
    side = s.size(name, default=default)
    return side, side


def _transformer(s: Settings, layer: LayerConfig, image: int, patch: int) -> dict[str, Any]:
    sides, patches = _sides(s, "image_size", image), _sides(s, "patch_size", patch)
    if patches[0] > sides[0] or patches[1] > sides[1]:
        raise s.refuse(f"patches of {patches} are larger than images of {sides}")
    return {
        "layer": layer,
        "layers": s.layers("num_hidden_layers"),
        "image": sides,
        "patch": patches,
        "channels": s.size("num_channels", default=3),
    }


def _head(tensors: Mapping[str, Tensor], s: Settings, kind: str) -> dict[str, Any]:
    """The head that weights have: numbers, and what they stand for."""
    if "head.weight" not in tensors:
        return {}
    count = tensors["head.weight"].shape[0]
    named = s.table("id2label")
    labels = tuple(str(named.get(str(n), f"LABEL_{n}")) for n in range(count))
    return {"head": kind, "outputs": count, "labels": labels}


def _reshaped(tensors: dict[str, Tensor], at: str = "") -> dict[str, Tensor]:
    """Patches as rows of a matrix, positions as one, the tokens before the patches together."""
    found = dict(tensors)
    if (patch := found.get(f"{at}patch.weight")) is not None:
        found[f"{at}patch.weight"] = patch.reshape(patch.shape[0], -1)
    for old in ("positions", "positions.weight"):
        if (rows := found.pop(f"{at}{old}", None)) is not None:
            found[f"{at}positions"] = rows.reshape(-1, rows.shape[-1])
    some = [found.pop(f"{at}{name}", None) for name in ("first", "second")]
    arrays = [t.numpy().reshape(-1, t.shape[-1]) for t in some if t is not None]
    if arrays:
        found[f"{at}extra"] = as_tensor(np.concatenate(arrays))
    return found


def _vit(s: Settings, files: Files) -> Found:
    tensors = _reshaped(VIT.renamed(files, "vit"))
    layer = _layer(s, attention_bias=s.flag("qkv_bias", True))
    c = VisionConfig(**_transformer(s, layer, 224, 16), **_head(tensors, s, "first"))
    return partial(VisionTransformer, c), tensors


def _deit(s: Settings, files: Files) -> Found:
    tensors = _reshaped(VIT.renamed(files, "deit"))
    layer = _layer(s, attention_bias=s.flag("qkv_bias", True))
    kind = "both" if "second_head.weight" in tensors else "first"
    head = _head(tensors, s, kind)
    return partial(
        VisionTransformer, VisionConfig(**_transformer(s, layer, 224, 16), extra=2, **head)
    ), tensors


def _dinov2(s: Settings, files: Files) -> Found:
    tensors = _reshaped(VIT.renamed(files, "dinov2"))
    registers = s.values["model_type"] == "dinov2_with_registers"
    extra = 1 + s.size("num_register_tokens", default=4) if registers else 1
    if registers and "positions" in tensors:  # registers have none
        rows = tensors["positions"].numpy()
        none = np.zeros((extra - 1, rows.shape[1]), rows.dtype)
        tensors["positions"] = as_tensor(np.concatenate([rows[:1], none, rows[1:]]))
    for name in [n for n in tensors if ".gate_up." in n]:
        gate, up = np.array_split(tensors.pop(name).numpy(), 2)
        tensors[name.replace("gate_up", "gate")] = as_tensor(gate)
        tensors[name.replace("gate_up", "up")] = as_tensor(up)
    gated = s.flag("use_swiglu_ffn", False)
    inner = s.size("hidden_size") * s.size("mlp_ratio", default=4)
    layer = _layer(
        Settings({**s.values, "intermediate_size": inner}, s.source),
        attention_bias=s.flag("qkv_bias", True),
        eps=s.number("layer_norm_eps", default=1e-6),
        gated=gated,
        scaled=True,
        inner=(int(inner * 2 / 3) + 7) // 8 * 8 if gated else inner,
    )
    c = VisionConfig(
        **_transformer(s, layer, 224, 14),
        extra=extra,
        smooth=registers,
        **_head(tensors, s, "mean"),
    )
    return partial(VisionTransformer, c), tensors


def _convnext(s: Settings, files: Files) -> Found:
    second = s.values["model_type"] == "convnextv2"
    tensors = CONVNEXT.renamed(files, "convnext")
    for name in [n for n in tensors if ".responses." in n]:
        tensors[name] = tensors[name].reshape(-1)
    lists = [
        s.first((name,), default)
        for name, default in (("hidden_sizes", [96, 192, 384, 768]), ("depths", [3, 3, 9, 3]))
    ]
    if any(not isinstance(found, list) for found in lists) or len(lists[0]) != len(lists[1]):
        raise s.refuse("hidden_sizes and depths must be lists of one length")
    if not 0 < len(lists[0]) <= MOST_STAGES:
        raise s.refuse(f"1 to {MOST_STAGES} stages, not {len(lists[0])}")
    widths, depths = (
        tuple(
            Settings({"hidden_sizes, depths": n}, s.source).size("hidden_sizes, depths")
            for n in found
        )
        for found in lists
    )
    head = _head(tensors, s, "")
    head.pop("head", None)
    c = ConvNextConfig(
        widths,
        depths,
        patch=s.size("patch_size", default=4),
        channels=s.size("num_channels", default=3),
        eps=s.number("layer_norm_eps", default=1e-12),
        activation=s.activation("hidden_act", default="gelu"),
        scaled=not second and s.number("layer_scale_init_value", default=1e-6) > 0,
        responses=second,
        **head,
    )
    return partial(ConvNext, c), tensors


CLIP_IMAGE = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "hidden_act": QUICK,
}
CLIP_TEXT = {
    "hidden_size": 512,
    "intermediate_size": 2048,
    "num_hidden_layers": 12,
    "num_attention_heads": 8,
    "hidden_act": QUICK,
    "vocab_size": 49408,
}
"""What the tables of a config leave out: files of transformers 4 have what differs from these."""


def _filled(s: Settings, usual: Mapping[str, Any]) -> Settings:
    said = {key: value for key, value in s.values.items() if value is not None}
    return Settings({**usual, **said}, s.source)


def _clip_image(s: Settings, outputs: int) -> VisionConfig:
    s = _filled(s, CLIP_IMAGE)
    layer = _layer(s, eps=s.number("layer_norm_eps", default=1e-5))
    head: dict[str, Any] = {"head": "projection", "outputs": outputs} if outputs else {}
    return VisionConfig(**_transformer(s, layer, 224, 32), patch_bias=False, before=True, **head)


def _clip_text(s: Settings, outputs: int) -> ClipTextConfig:
    s = _filled(s, CLIP_TEXT)
    end = s.first(("eos_token_id",), 49407)
    if isinstance(end, bool) or not isinstance(end, int):
        raise s.refuse(f"eos_token_id must be an integer, not {end!r}")
    return ClipTextConfig(
        layer=_layer(s, eps=s.number("layer_norm_eps", default=1e-5), causal=True),
        layers=s.layers("num_hidden_layers"),
        vocabulary=s.size("vocab_size"),
        context=s.size("max_position_embeddings", default=77),
        end=end,
        outputs=outputs,
    )


def _clip_tensors(files: Files) -> tuple[dict[str, Tensor], dict[str, int]]:
    """Weights by our names, and how many numbers each tower's projection gives."""
    tensors = _reshaped(CLIP.renamed(files, "clip"), "image.")
    heads = {at: tensors.get(f"{at}.head.weight") for at in ("image", "text")}
    return tensors, {at: 0 if t is None else t.shape[0] for at, t in heads.items()}


def _clip(s: Settings, files: Files) -> Found:
    tensors, _ = _clip_tensors(files)
    size = s.size("projection_dim", default=512)
    image = _clip_image(Settings(s.table("vision_config"), s.source), size)
    text = _clip_text(Settings(s.table("text_config"), s.source), size)
    return partial(Clip, image, text), tensors


def _clip_tower(
    at: str, make: Callable[[Any], Module], config: Callable[[Settings, int], Any]
) -> Callable[[Settings, Files], Found]:
    """One tower of CLIP alone; files since 2026 leave out its name."""
    tower = "vision" if at == "image" else at

    def found(s: Settings, files: Files) -> Found:
        if not any(name.startswith(f"{tower}_model.") for name in files):
            joined = ("text_projection", "visual_projection")
            files = {
                name if name.startswith(joined) else f"{tower}_model.{name}": one
                for name, one in files.items()
            }
        tensors, outputs = _clip_tensors(files)
        inner = Settings(s.table(f"{tower}_config") or s.values, s.source)
        own = {
            name.removeprefix(f"{at}."): t
            for name, t in tensors.items()
            if name.startswith(f"{at}.")
        }
        return partial(make, config(inner, outputs[at])), own

    return found


VISION: dict[str, Callable[[Settings, Files], Found]] = {
    "vit": _vit,
    "deit": _deit,
    "dinov2": _dinov2,
    "dinov2_with_registers": _dinov2,
    "convnext": _convnext,
    "convnextv2": _convnext,
    "clip": _clip,
    "clip_vision_model": _clip_tower("image", VisionTransformer, _clip_image),
    "clip_text_model": _clip_tower("text", ClipText, _clip_text),
}
"""By `model_type`."""

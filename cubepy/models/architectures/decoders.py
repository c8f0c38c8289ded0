"""What the configs of Hugging Face's decoders say, as a `DecoderConfig`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from cubepy.models.architectures.decoder import DecoderConfig
from cubepy.models.architectures.experts import ExpertConfig
from cubepy.models.architectures.rotary import Rotary, rotary
from cubepy.models.architectures.settings import Settings

Given = dict[str, Any]


def decoder_config(values: Mapping[str, Any], source: str) -> DecoderConfig:
    """The decoder that a config describes.

    Args:
        values: `config.json`, with a `model_type` of `DECODERS`.
        source: its path, for errors.

    Raises:
        FileFormatError: what is missing, or has a value that cannot be.
    """
    s = Settings(values, source)
    found = DECODERS[values["model_type"]](s)
    c = DecoderConfig(**found)
    if c.heads % c.groups:
        raise s.refuse(f"{c.groups} heads of keys do not divide {c.heads} heads")
    for name, listed in (("windows", c.windows), ("rotated", c.rotated)):
        if listed and len(listed) != c.layers:
            raise s.refuse(f"{name} are given for {len(listed)} of {c.layers} layers")
    if c.experts is not None:
        if c.experts.chosen > c.experts.count:
            raise s.refuse(f"{c.experts.chosen} of {c.experts.count} experts cannot be chosen")
    return c


def _llama(s: Settings) -> Given:
    """What Llama and all that came of it share."""
    width, heads = s.size("hidden_size"), s.size("num_attention_heads")
    depth = s.size("head_dim", default=max(width // heads, 1))
    attention_bias = s.flag("attention_bias", False)
    return {
        "vocabulary": s.size("vocab_size"),
        "width": width,
        "layers": s.layers("num_hidden_layers"),
        "heads": heads,
        "groups": s.size("num_key_value_heads", default=heads),
        "depth": depth,
        "inner": s.size("intermediate_size"),
        "context": s.size("max_position_embeddings", default=2048),
        "eps": s.number("rms_norm_eps", default=1e-6),
        "activation": s.activation("hidden_act", "hidden_activation", default="silu"),
        "attention_bias": attention_bias,
        "output_bias": attention_bias,
        "network_bias": s.flag("mlp_bias", False),
        "rotary": _rotary(s, depth),
        "tied": s.flag("tie_word_embeddings", False),
    }


def _rotary(s: Settings, depth: int, kind: str = "full_attention", base: float = 10000.0) -> Rotary:
    """Angles: `rope_parameters` (of a kind of layer), or `rope_theta` and `rope_scaling`."""
    given = s.table("rope_parameters")
    given = Settings(given, s.source).table(kind) or given
    scaling = Settings(given or s.table("rope_scaling"), s.source)
    own = scaling.values.get("rope_theta")
    theta = float(own) if isinstance(own, (int, float)) else s.number("rope_theta", default=base)
    whole = Settings({**s.values, **scaling.values}, s.source)
    part = whole.number("partial_rotary_factor", "rotary_pct", default=1.0)
    if not 0 < part <= 1 or theta <= 0:
        raise s.refuse(f"a rotary base of {theta} for a part of {part} of each head")
    rotated = int(depth * part) // 2 * 2
    context = s.size("max_position_embeddings", default=2048)
    original = s.values.get("original_max_position_embeddings")
    extra = {} if original is None else {"original_max_position_embeddings": original}
    return rotary(rotated, theta, {**extra, **scaling.values}, context)


def _windows(s: Settings, has_one: Callable[[int], bool]) -> tuple[int, ...]:
    """The window of each layer: by `layer_types`, else by the layer's number."""
    layers, window = s.layers("num_hidden_layers"), s.values.get("sliding_window")
    kinds = s.values.get("layer_types")
    if kinds is None:
        kinds = ["sliding_attention" if has_one(n) else "full_attention" for n in range(layers)]
    if not isinstance(kinds, list):
        raise s.refuse("layer_types must be a list")
    if other := {str(k) for k in kinds} - {"full_attention", "sliding_attention"}:
        raise s.refuse(f"layers of the kind {other.pop()!r} are not known")
    if "sliding_attention" not in kinds or window is None:
        return ()
    size = s.size("sliding_window")
    return tuple(size if kind == "sliding_attention" else 0 for kind in kinds)


def _all(_: int) -> bool:
    return True


def _but_every(count: int) -> Callable[[int], bool]:
    """Each layer but every n-th one."""
    return lambda n: (n + 1) % count != 0


def _mistral(s: Settings) -> Given:
    return _llama(s) | {"windows": _windows(s, _all)}


def _switched_windows(s: Settings, has_one: Callable[[int], bool] | None = None) -> tuple[int, ...]:
    """Windows where a switch says so, from a layer on."""
    if not s.flag("use_sliding_window", False):
        return ()
    first = s.number("max_window_layers", default=28)
    return _windows(s, (lambda n: n >= first) if has_one is None else has_one)


def _qwen2(s: Settings) -> Given:
    windows = _switched_windows(s)
    return _llama(s) | {"attention_bias": True, "output_bias": False, "windows": windows}


def _qwen3(s: Settings) -> Given:
    windows = _switched_windows(s)
    depth = s.size("head_dim", default=128)
    return _llama(s) | {
        "depth": depth,
        "rotary": _rotary(s, depth),
        "head_norms": "head",
        "windows": windows,
    }


def _experts(s: Settings, shared: int = 0) -> ExpertConfig:
    """Experts of Qwen's models: in each n-th layer, but for those that are named."""
    layers, step = s.layers("num_hidden_layers"), s.size("decoder_sparse_step", default=1)
    named = s.values.get("mlp_only_layers") or []
    if not isinstance(named, list):
        raise s.refuse("mlp_only_layers must be a list")
    return ExpertConfig(
        count=s.size("num_experts", "num_local_experts"),
        chosen=s.size("num_experts_per_tok"),
        inner=s.size("moe_intermediate_size"),
        shared=shared,
        normalized=s.flag("norm_topk_prob", False),
        plain=tuple(n for n in range(layers) if n in named or (n + 1) % step),
    )


def _mixtral(s: Settings) -> Given:
    count, chosen = s.size("num_local_experts"), s.size("num_experts_per_tok", default=2)
    return _mistral(s) | {"experts": ExpertConfig(count, chosen, s.size("intermediate_size"))}


def _qwen2_moe(s: Settings) -> Given:
    shared = s.size("shared_expert_intermediate_size")
    biased, last = s.flag("qkv_bias", True), s.number("max_window_layers", default=28)
    windows = _switched_windows(s, lambda n: n % 2 == 0 and n < last)
    experts = _experts(s, shared)
    return _qwen2(s) | {"attention_bias": biased, "experts": experts, "windows": windows}


def _qwen3_moe(s: Settings) -> Given:
    plain = Settings({**s.values, "layer_types": None}, s.source)  # transformers asks for no list
    return _qwen3(s) | {"experts": _experts(s), "windows": _switched_windows(plain, _all)}


def _gemma(s: Settings) -> Given:
    given = s.first(("hidden_act", "hidden_activation"), "gelu_pytorch_tanh")
    if given == "gelu":  # the first configs said so, and meant the other one
        return _gemmas(s)
    return _gemmas(s) | {
        "activation": s.activation("hidden_act", "hidden_activation", default="gelu_pytorch_tanh")
    }


def _gemmas(s: Settings) -> Given:
    """What all of them share."""
    if s.flag("use_bidirectional_attention", False):
        raise s.refuse("a decoder whose positions see those behind them")
    depth = s.size("head_dim", default=256)
    return _llama(s) | {
        "depth": depth,
        "rotary": _rotary(s, depth),
        "activation": s.activation("hidden_activation", default="gelu_pytorch_tanh"),
        "embedding_scale": math.sqrt(s.size("hidden_size")),
        "tied": s.flag("tie_word_embeddings", True),
    }


def _scale(s: Settings) -> float:
    scalar = s.number("query_pre_attn_scalar", default=256)
    if scalar <= 0:
        raise s.refuse(f"query_pre_attn_scalar must be positive, not {scalar}")
    return float(scalar**-0.5)


def _gemma2(s: Settings) -> Given:
    return _gemmas(s) | {
        "after": True,
        "scale": _scale(s),
        "windows": _windows(s, _but_every(2)),
        "attention_cap": s.number("attn_logit_softcapping", default=0.0),
        "logits_cap": s.number("final_logit_softcapping", default=0.0),
    }


def _gemma3(s: Settings) -> Given:
    depth = s.size("head_dim", default=256)
    every = s.size("sliding_window_pattern", "_sliding_window_pattern", default=6)
    local = s.number("rope_local_base_freq", default=10000.0)
    if s.table("rope_parameters"):
        angles = _rotary(s, depth, "sliding_attention")
    else:
        angles = rotary(depth, local)
    return _gemma2(s) | {
        "head_norms": "head",
        "rotary": _rotary(s, depth, base=1e6),
        "local_rotary": angles,
        "windows": _windows(s, _but_every(every)),
    }


def _gemma3_with_images(s: Settings) -> Given:
    return _gemma3(Settings(s.table("text_config"), s.source))


def _phi3(s: Settings) -> Given:
    return _mistral(s)


def _smollm3(s: Settings) -> Given:
    layers = s.layers("num_hidden_layers")
    every = s.size("no_rope_layer_interval", default=4)
    default = [int((n + 1) % every != 0) for n in range(layers)]
    listed = s.first(("no_rope_layers",), default)
    if not isinstance(listed, list):
        raise s.refuse("no_rope_layers must be a list")
    windows = _switched_windows(s, lambda n: n < len(listed) and not listed[n])
    tied = s.flag("tie_word_embeddings", True)
    return _llama(s) | {"rotated": tuple(map(bool, listed)), "windows": windows, "tied": tied}


def _olmo2(s: Settings) -> Given:
    return _llama(s) | {"before": False, "after": True, "head_norms": "all"}


def _granite(s: Settings) -> Given:
    return _llama(s) | {
        "embedding_scale": s.number("embedding_multiplier", default=1.0),
        "scale": s.number("attention_multiplier", default=1.0),
        "residual_scale": s.number("residual_multiplier", default=1.0),
        "logits_scale": 1 / s.number("logits_scaling", default=1.0),
    }


def _gpt2(s: Settings) -> Given:
    width, heads = s.size("n_embd", "hidden_size"), s.size("n_head", "num_attention_heads")
    if s.flag("scale_attn_by_inverse_layer_idx", False):
        raise s.refuse("attention that each layer scales otherwise")
    scaled = s.flag("scale_attn_weights", True)
    return {
        "scale": 0.0 if scaled else 1.0,
        "vocabulary": s.size("vocab_size"),
        "width": width,
        "layers": s.layers("n_layer", "num_hidden_layers"),
        "heads": heads,
        "groups": heads,
        "depth": max(width // heads, 1),
        "inner": s.size("n_inner", default=4 * width),
        "context": s.size("n_positions", "max_position_embeddings"),
        "norm": "layer",
        "eps": s.number("layer_norm_epsilon", default=1e-5),
        "norm_bias": True,
        "activation": s.activation("activation_function", default="gelu_new"),
        "gated": False,
        "attention_bias": True,
        "output_bias": True,
        "network_bias": True,
        "learned_positions": True,
        "tied": s.flag("tie_word_embeddings", True),
    }


def _gpt_neox(s: Settings) -> Given:
    width, heads = s.size("hidden_size"), s.size("num_attention_heads")
    depth = max(width // heads, 1)
    base = s.number("rotary_emb_base", default=10000.0)
    partly = Settings({"rotary_pct": 0.25, **s.values}, s.source)
    biased = s.flag("attention_bias", True)
    return {
        "vocabulary": s.size("vocab_size"),
        "width": width,
        "layers": s.layers("num_hidden_layers"),
        "heads": heads,
        "groups": heads,
        "depth": depth,
        "inner": s.size("intermediate_size"),
        "context": s.size("max_position_embeddings"),
        "norm": "layer",
        "eps": s.number("layer_norm_eps", default=1e-5),
        "norm_bias": True,
        "parallel": s.flag("use_parallel_residual", True),
        "activation": s.activation("hidden_act", default="gelu"),
        "gated": False,
        "attention_bias": biased,
        "output_bias": biased,
        "network_bias": True,
        "rotary": _rotary(partly, depth, base=base),
        "tied": s.flag("tie_word_embeddings", False),
    }


DECODERS: dict[str, Callable[[Settings], Given]] = {
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "llama": _llama,
    "mistral": _mistral,
    "ministral": _mistral,
    "mixtral": _mixtral,
    "qwen2": _qwen2,
    "qwen2_moe": _qwen2_moe,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3,
    "gemma3": _gemma3_with_images,
    "phi3": _phi3,
    "smollm3": _smollm3,
    "olmo2": _olmo2,
    "granite": _granite,
}
"""By `model_type`."""

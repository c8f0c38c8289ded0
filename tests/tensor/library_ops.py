"""Functions of the ops that stand on the library's larger kernels, and inputs for them: what is
compared on several devices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cubepy.tensor import apply

HOW = {"stride": (2, 2), "padding": (1, 1), "dilation": (1, 1), "groups": 2, "precision": None}
WINDOWS = {"kernel": (3, 3), "stride": (2, 2), "padding": (1, 1), "ceil_mode": False}
MEANS = {**WINDOWS, "count_include_pad": True, "divisor": None}
PEAKS = {**WINDOWS, "dilation": (1, 1), "indices": True}
SIZED = {"factors": None, "mode": "bilinear", "align_corners": False}
IMAGE = (2, 4, 7, 8)

CALLS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "conv": (lambda x, w, b: apply("conv", x, w, b, **HOW), (IMAGE, (6, 2, 3, 3), (6,))),
    "conv_transpose": (
        lambda x, w, b: apply("conv_transpose", x, w, b, size=(13, 15), **HOW),
        (IMAGE, (4, 3, 3, 3), (6,)),
    ),
    "conv_weight": (
        lambda x, g: apply("conv_weight", x, g, window=(3, 3), **HOW),
        (IMAGE, (2, 6, 4, 4)),
    ),
    "max_pool": (lambda x: apply("max_pool", x, **PEAKS)[0], (IMAGE,)),
    "adaptive_max_pool": (
        lambda x: apply("adaptive_max_pool", x, size=(3, 2), indices=True)[0],
        (IMAGE,),
    ),
    "avg_pool": (lambda x: apply("avg_pool", x, **MEANS), (IMAGE,)),
    "adaptive_avg_pool": (lambda x: apply("adaptive_avg_pool", x, size=(3, 2)), (IMAGE,)),
    "interpolate": (lambda x: apply("interpolate", x, size=(5, 11), **SIZED), (IMAGE,)),
    "unfold": (
        lambda x: apply("unfold", x, how=((3, 2), (1, 2), (1, 0), (2, 1)), counts=(4, 6)),
        (IMAGE,),
    ),
    "grid_sample": (
        lambda x, g: apply("grid_sample", x, g, mode="linear", padding="border", align=False),
        (IMAGE, (2, 3, 5, 2)),
    ),
    "log_softmax": (lambda x: apply("log_softmax", x, axis=-1), ((5, 12),)),
    "rms_norm": (
        lambda x, w: apply("rms_norm", x, w, normalized_shape=(12,), eps=1e-5),
        ((5, 12), (12,)),
    ),
    "group_norm": (
        lambda x, w, b: apply("group_norm", x, w, b, groups=2, eps=1e-5),
        (IMAGE, (4,), (4,)),
    ),
    "batch_norm": (lambda x, w, b: apply("batch_norm", x, w, b, eps=1e-5)[0], (IMAGE, (4,), (4,))),
    "channel_norm": (
        lambda x, m, v, w, b: apply("channel_norm", x, m, v * v + 1, w, b, eps=1e-5),
        (IMAGE, (4,), (4,), (4,), (4,)),
    ),
    "attention": (
        lambda q, k, v: apply("attention", q, k, v, None, is_causal=True, scale=None),
        ((2, 4, 6, 8), (2, 2, 6, 8), (2, 2, 6, 8)),
    ),
}
"""By the name of an op: what uses it, and shapes of what that is given."""

"""Attention: the result alone, the result for training, and its gradients."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

import numpy as np

from cubepy.errors import ShapeError
from cubepy.lang.dtypes import f32, i8
from cubepy.tensor.ops.library import kernels
from cubepy.tensor.ops.normalization import float_of
from cubepy.tensor.ops.op import Spec, broadcast, define


def _run_attention(
    dtype: np.dtype, q: Any, k: Any, v: Any, mask: Any, is_causal: bool, scale: Any
) -> Any:
    return kernels().attention(q, k, v, attn_mask=mask, is_causal=is_causal, scale=scale)


@define("product", {"attention": _run_attention})
def _attention(
    q: Spec, k: Spec, v: Spec, mask: Spec | None, is_causal: bool, scale: float | None
) -> Spec:
    if len(q.shape) != 4 or len(k.shape) != 4 or len(v.shape) != 4:
        raise ShapeError(
            f"attention: expected rank 4 (batch, heads, length, depth), got {q.shape}, "
            f"{k.shape}, {v.shape}"
        )
    if (q.shape[0], q.shape[3]) != (k.shape[0], k.shape[3]) or k.shape[:3] != v.shape[:3]:
        raise ShapeError(
            f"attention: query {q.shape}, key {k.shape} and value {v.shape} do not go together"
        )
    if k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        raise ShapeError(
            f"attention: {k.shape[1]} key heads do not divide {q.shape[1]} query heads"
        )
    if mask is not None:
        full = (*q.shape[:3], k.shape[2])
        try:
            fits = broadcast(mask, Spec(full, q.dtype)) == full
        except ShapeError:
            fits = False
        if not fits:
            raise ShapeError(
                f"attention: expected a mask that broadcasts to {full}, got {mask.shape}"
            )
    return Spec((*q.shape[:3], v.shape[3]), float_of(q))


def _run_forward(
    dtype: np.dtype, q: Any, k: Any, v: Any, mask: Any, is_causal: bool, scale: Any
) -> Any:
    return list(kernels().attention_forward(q, k, v, is_causal, scale, mask))


@define("product", {"attention_forward": _run_forward}, keeps=True)
def _attention_forward(
    q: Spec, k: Spec, v: Spec, mask: Spec | None, is_causal: bool, scale: float | None
) -> list[Spec]:
    """The result, and the log-sum-exp of each row of scores."""
    return [_attention(q, k, v, mask, is_causal, scale), Spec(q.shape[:3], f32)]


def _run_gradients(
    dtype: np.dtype,
    g: Any,
    q: Any,
    k: Any,
    v: Any,
    result: Any,
    lse: Any,
    mask: Any,
    is_causal: bool,
    scale: Any,
) -> Any:
    return list(kernels().attention_gradients(g, q, k, v, result, lse, is_causal, scale, mask))


@define("product", {"attention_gradients": _run_gradients})
def _attention_gradients(
    g: Spec,
    q: Spec,
    k: Spec,
    v: Spec,
    result: Spec,
    lse: Spec,
    mask: Spec | None,
    is_causal: bool,
    scale: float | None,
) -> list[Spec]:
    """The gradients by query, key and value."""
    made = _attention(q, k, v, mask, is_causal, scale)
    if g.shape != made.shape or result.shape != made.shape or lse.shape != q.shape[:3]:
        raise ShapeError(
            f"attention: a gradient {g.shape}, a result {result.shape} and sums {lse.shape} do not "
            f"go with a query {q.shape}"
        )
    return [Spec(x.shape, float_of(x)) for x in (q, k, v)]


@cache
def _cached() -> Any:
    return importlib.import_module("cubepy.kernels.attention.cached").cached_attention


CACHES = (3, 4, 8, 9)
"""The inputs of attention to a cache that it writes: keys and values, and the scales of both."""


def _run_cached(dtype: np.dtype, *arrays: Any, scale: float, window: int, cap: float) -> Any:
    scales = arrays[8:] if len(arrays) > 8 and arrays[8] is not None else None
    return _cached()(*arrays[:8], (scale, window, cap), scales)


@define("effect", {"cached_attention": _run_cached}, writes=CACHES)
def _cached_attention(
    q: Spec,
    k: Spec,
    v: Spec,
    keys: Spec,
    values: Spec,
    starts: Spec,
    cos: Spec | None,
    sin: Spec | None,
    key_scales: Spec | None = None,
    value_scales: Spec | None = None,
    *,
    scale: float,
    window: int,
    cap: float,
) -> Spec:
    """Attention to a cache, to which new keys and values are appended in place."""
    made = _attention(q, k, v, None, False, scale)
    batch, groups, _, depth = k.shape
    if keys.shape[:2] != (batch, groups) or keys.shape[3:] != (depth,):
        raise ShapeError(f"a cache of keys {keys.shape} does not go with keys {k.shape}")
    if values.shape != (*keys.shape[:3], v.shape[3]):
        raise ShapeError(f"a cache of values {values.shape} does not go with values {v.shape}")
    if starts.shape != (batch,) or not starts.dtype.is_int:
        raise ShapeError(f"expected a start for each of {batch} rows, got {starts.shape}")
    for held, scales in ((keys, key_scales), (values, value_scales)):
        wanted = None if held.dtype is not i8 else (*held.shape[:3], -(-held.shape[3] // 32))
        shape = None if scales is None else scales.shape
        if shape != wanted:
            raise ShapeError(
                f"a cache {held.shape} of {held.dtype} needs scales {wanted}, not {shape}"
            )
    for x in (cos, sin):
        if x is not None and (x.shape[:-1] != (batch, q.shape[2]) or 2 * x.shape[-1] > depth):
            raise ShapeError(f"rotations {x.shape} do not go with queries {q.shape}")
    return made

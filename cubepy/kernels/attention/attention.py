"""Scaled dot-product attention in one pass over keys and values, in constant extra memory.

The running maximum and sum of each row make the softmax online (Milakov and Gimelshein, 2018), as
in FlashAttention (Dao et al., 2022): no matrix of scores is ever written.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cubepy.errors import DTypeError, ShapeError
from cubepy.kernels.attention.problem import described
from cubepy.kernels.attention.routines import ATTENTION
from cubepy.kernels.entry.arguments import array_of, float_array, number_of
from cubepy.kernels.entry.dispatch import repeated
from cubepy.kernels.entry.results import finish, output, wrapper
from cubepy.kernels.movement.copy import convert_into, copy
from cubepy.runtime import memory
from cubepy.tune import choose


@repeated
def attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    is_causal: bool = False,
    scale: float | None = None,
    *,
    enable_gqa: bool = False,
    out: Any = None,
) -> Any:
    """softmax(scale * query @ key.T + mask) @ value, as
    `torch.nn.functional.scaled_dot_product_attention`.

    Args:
        query: (B, H, L, D) floats.
        key: (B, G, S, D); G divides H (grouped queries).
        value: (B, G, S, E).
        attn_mask: broadcastable to (B, H, L, S): bool (true: may look) or floats that are added; on
            a GPU those below -8.8e29 hide a key as -infinity does.
        is_causal: query i sees keys 0 to i.
        scale: factor of the products, 1 / sqrt(D) by default.
        enable_gqa: taken for the sake of torch's signature; grouped queries need no permission.
        out: (B, H, L, E) to write.

    Returns:
        (B, H, L, E). A query that may look at nothing gives zeros.

    Raises:
        ShapeError: shapes that do not go together.

    Example:
        >>> import numpy as np
        >>> q = np.eye(2, dtype=np.float32).reshape(1, 1, 2, 2)
        >>> attention(q, q, q, is_causal=True)[0, 0].round(3)
        array([[1.  , 0.  ],
               [0.33, 0.67]], dtype=float32)
    """
    wrap = wrapper(query, key, value)
    q, k, v = (float_array(a, n) for a, n in ((query, "query"), (key, "key"), (value, "value")))
    if q.ndim != 4 or k.ndim != 4 or v.ndim != 4:
        raise ShapeError(
            f"attention needs rank 4 (batch, heads, length, depth), not {q.shape}, "
            f"{k.shape}, {v.shape}"
        )
    if (q.shape[0], q.shape[3]) != (k.shape[0], k.shape[3]) or k.shape[:3] != v.shape[:3]:
        raise ShapeError(f"query {q.shape}, key {k.shape} and value {v.shape} do not go together")
    if q.shape[1] % max(k.shape[1], 1):
        raise ShapeError(f"{k.shape[1]} key heads do not divide {q.shape[1]} query heads")
    if any(a.dtype == np.float64 for a in (q, k, v)):
        raise DTypeError(
            "attention works on f32, f16 and bf16", hint="convert with .astype(numpy.float32)"
        )
    length, depth, width = q.shape[2], q.shape[3], v.shape[3]
    result = output(out, (*q.shape[:3], width), q.dtype, k, v)
    if result.size == 0 or k.shape[2] == 0:
        result[...] = 0
        return finish(result, out, wrap)
    q, k, v = (a if a.strides[3] == a.itemsize else copy(a) for a in (q, k, v))
    full = (q.shape[0], q.shape[1], length, k.shape[2])
    mask, kind = stretched_mask(attn_mask, full)
    factor = scale_of(scale, depth)
    target = (
        result if result.strides[3] == result.itemsize else memory.empty(result.shape, result.dtype)
    )
    problem = described(q, k, v, mask, kind, bool(is_causal), factor)
    choose(ATTENTION, problem).launch(problem, q, k, v, mask, target, None, factor)
    if target is not result:
        convert_into(result, target)
    return finish(result, out, wrap)


def scale_of(scale: float | None, depth: int) -> float:
    """The factor of the products of queries and keys, 1 / sqrt(depth) where none is given."""
    if depth == 0:
        raise ShapeError("attention needs queries and keys of depth 1 or more, not 0")
    return 1.0 / math.sqrt(depth) if scale is None else number_of(scale, "scale")


def stretched_mask(value: Any, shape: tuple[int, ...]) -> tuple[Any, str]:
    """The mask stretched to (B, H, L, S) with unit stride at its end, and its kind."""
    if value is None:
        return None, "none"
    mask = array_of(value, "attn_mask")
    if mask.dtype != np.bool_:
        mask = float_array(mask, "attn_mask")
    if mask.ndim and mask.shape[-1] == 1 != shape[-1]:
        mask = np.broadcast_to(mask, (*mask.shape[:-1], shape[-1]))
    if mask.ndim == 0 or (mask.strides[-1] != mask.itemsize and shape[-1] > 1):
        mask = copy(mask)
    try:
        return np.broadcast_to(mask, shape), "bool" if mask.dtype == np.bool_ else "float"
    except ValueError:
        raise ShapeError(f"attn_mask of shape {mask.shape} does not broadcast to {shape}") from None

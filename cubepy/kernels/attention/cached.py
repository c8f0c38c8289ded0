"""Attention with a cache of keys and values that is written in place."""

from __future__ import annotations

from typing import Any

from cubepy.kernels.attention.append import rolls
from cubepy.kernels.attention.cpu import cached as on_lines
from cubepy.kernels.attention.gpu import cached as on_planes
from cubepy.kernels.attention.problem import empty_like_heads
from cubepy.runtime.device import current, device_properties
from cubepy.runtime.memory.device_array import DeviceArray
from cubepy.runtime.memory.device_array import empty as empty_on


def cached_attention(
    q: Any,
    k: Any,
    v: Any,
    keys: Any,
    values: Any,
    starts: Any,
    cos: Any,
    sin: Any,
    options: tuple[float, int, float],
    scales: tuple[Any, Any] | None = None,
) -> Any:
    """Append keys and values to their caches, and attend to all that they hold.

    With a window, and room for what all its queries see (window + L - 1 positions), a cache
    rolls: position p is at p % C. Without, positions from C on are dropped.

    Args:
        q: (B, H, L, D) floats.
        k: (B, G, L, D); G divides H.
        v: (B, G, L, E).
        keys: (B, G, C, D): the cache, written at starts[b] to starts[b] + L.
        values: (B, G, C, E): the same.
        starts: (B,) integers: how many positions each row of the cache holds.
        cos, sin: (B, L, R / 2) f32: queries and keys are rotated by these; None: as they are.
        options: factor of the products; how many positions a query sees, 0: all up to its own; soft
            limit of scores, 0: none.
        scales: of keys and values, (B, G, C, groups of 32 numbers) f32, where these are int8: codes
            times scales; None: they are floats.

    Returns:
        (B, H, L, E) in the dtype of q.
    """
    scale, window, cap = options
    shape = (*q.shape[:3], v.shape[3])
    if isinstance(q, DeviceArray):
        out = empty_on(shape, q.dtype, q.device)
    else:
        out = empty_like_heads(q, shape, q.dtype)
    if not out.size:
        return out
    properties = device_properties(current())
    rotation = None if cos is None else (cos, sin)
    rest = (q, k, v), (keys, values, starts, scales), rotation, out
    if properties.plane_size > 1:
        on_planes.launch(*rest, options, properties)
        return out
    rotated = 0 if cos is None else 2 * cos.shape[-1]
    lanes = properties.register_bytes // 4
    rolling = rolls(window, q.shape[2], keys.shape[2])
    plan = on_lines.Blueprint(lanes, q.shape[3], v.shape[3], rotated, window, cap, rolling)
    on_lines.launch(*rest, scale, plan)
    return out

"""Attention for training: the result with its log-sum-exp, and the gradients.

`attention_forward` keeps the log-sum-exp of each row, `attention_gradients` computes the weights
again from it (Dao et al., 2022). On a CPU, and with matrix units that the routines use, no matrix
of scores is ever written.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.errors import ShapeError
from cubepy.kernels.attention.attention import scale_of, stretched_mask
from cubepy.kernels.attention.cpu import flash_backward as lines
from cubepy.kernels.attention.cpu import short
from cubepy.kernels.attention.problem import AttentionGradients, described, empty_like_heads
from cubepy.kernels.attention.routines import ATTENTION
from cubepy.kernels.entry.arguments import array_of, float_array
from cubepy.kernels.entry.dispatch import placed
from cubepy.kernels.entry.results import wrapper
from cubepy.kernels.movement.copy import copy
from cubepy.runtime import memory
from cubepy.tune import CpuRoutine, Op, choose

FOR_GPUS = "cubepy.kernels.attention.gradients_gpu"


class Short(CpuRoutine):
    """Short sequences with narrow heads, in one launch."""

    name = "short"

    def unfit(self, p: AttentionGradients, properties: cb.DeviceProperties) -> str | None:
        """Without a mask."""
        widths = p.query.shape[3], p.value.shape[3]
        return short.unfit(*widths, p.key.shape[2], p.kind, short.BACKWARD)

    def launch(self, p: AttentionGradients, properties: cb.DeviceProperties) -> tuple[Any, ...]:
        """A cube does a head of keys."""
        arrays = (p.grad, p.query, p.key, p.value, p.result, p.lse)
        return short.gradients(arrays, p.causal, p.scale, properties)


class Lines(CpuRoutine):
    """Block by block in the caches."""

    name = "lines"

    def launch(self, p: AttentionGradients, properties: cb.DeviceProperties) -> tuple[Any, ...]:
        """Heads, and parts of their keys, side by side."""
        return lines.gradients(p, properties)


GRADIENTS = Op("attention_gradients", [Short(), Lines()], FOR_GPUS)


@placed
def attention_forward(
    query: Any,
    key: Any,
    value: Any,
    is_causal: bool = False,
    scale: float | None = None,
    attn_mask: Any = None,
) -> tuple[Any, Any]:
    """The attention, and the log-sum-exp of each row of scores, which the gradients need.

    Args:
        query: (B, H, L, D) floats; key: (B, G, S, D), G divides H; value: (B, G, S, E).
        is_causal: query i sees keys 0 to i.
        scale: factor of the products, 1 / sqrt(D) by default.
        attn_mask: broadcastable to (B, H, L, S): bool (true: may look) or floats that are added.

    Returns:
        The result (B, H, L, E), and f32 (B, H, L): -inf for a query that may look at nothing.

    Raises:
        ShapeError: shapes that do not go together.

    Example:
        >>> import numpy as np
        >>> q = np.ones((1, 2, 3, 4), np.float32)
        >>> [a.shape for a in attention_forward(q, q, q)]
        [(1, 2, 3, 4), (1, 2, 3)]
    """
    wrap = wrapper(query, key, value)
    q, k, v = (float_array(a, n) for a, n in ((query, "query"), (key, "key"), (value, "value")))
    _check(q, k, v)
    out = empty_like_heads(q, (*q.shape[:3], v.shape[3]), q.dtype)
    lse = memory.empty(q.shape[:3], np.dtype(np.float32))
    factor = scale_of(scale, q.shape[3])
    q, k, v = (a if a.strides[3] == a.itemsize else copy(a) for a in (q, k, v))
    mask, kind = stretched_mask(attn_mask, (*q.shape[:3], k.shape[2]))
    if out.size == 0 or k.shape[2] == 0:
        out[...] = 0
        lse[...] = -np.inf
    else:
        problem = described(q, k, v, mask, kind, bool(is_causal), factor)
        alone = problem.units == "" and problem.on_gpu
        choose(ATTENTION, problem).launch(
            problem, q, k, v, mask, out, None if alone else lse, factor
        )
        if alone:
            import_module(FOR_GPUS).log_sums(q, k, mask, kind, lse, factor, bool(is_causal))
    return wrap(out), wrap(lse)


@placed
def attention_gradients(
    grad: Any,
    query: Any,
    key: Any,
    value: Any,
    result: Any,
    lse: Any,
    is_causal: bool = False,
    scale: float | None = None,
    attn_mask: Any = None,
) -> tuple[Any, Any, Any]:
    """The gradients of `attention_forward` by query, key and value.

    Args:
        grad: (B, H, L, D), the gradient of the result.
        query, key, value, is_causal, scale, attn_mask: as they were given.
        result, lse: what `attention_forward` returned.

    Returns:
        Arrays like query, key and value, in memory that does not grow with L * S. Devices with
        `wgmma` have a routine for 16-bit floats whose widths are multiples of 8 up to 256, without
        a mask or with one that is the same for all heads and queries; its sums are in f32, and the
        order in which the query's are added varies.

    Raises:
        ShapeError: shapes that do not go together.

    Example:
        >>> import numpy as np
        >>> q = np.ones((1, 2, 3, 4), np.float32)
        >>> result, lse = attention_forward(q, q, q)
        >>> [float(np.abs(g).max().round(2)) for g in attention_gradients(q, q, q, q, result, lse)]
        [0.0, 0.0, 1.0]
    """
    wrap = wrapper(grad, query, key, value)
    q, k, v, do, out = (array_of(a) for a in (query, key, value, grad, result))
    _check(q, k, v)
    if do.shape != out.shape or out.shape[:3] != q.shape[:3]:
        raise ShapeError(
            f"a gradient of shape {do.shape} does not go with a result of shape {out.shape}"
        )
    sums = array_of(lse, "lse")
    if sums.shape != q.shape[:3] or sums.dtype != np.float32:
        raise ShapeError(
            f"lse has shape {sums.shape} and dtype {sums.dtype}, but must be f32 of shape "
            f"{q.shape[:3]}"
        )
    mask, kind = stretched_mask(attn_mask, (*q.shape[:3], k.shape[2]))
    if q.size == 0 or k.size == 0 or v.size == 0:
        empty = [memory.empty(a.shape, a.dtype) for a in (q, k, v)]
        for a in empty:
            a[...] = 0
        return wrap(empty[0]), wrap(empty[1]), wrap(empty[2])
    factor = scale_of(scale, q.shape[3])
    dq, dk, dv = GRADIENTS.run(
        AttentionGradients(do, q, k, v, mask, kind, out, sums, factor, bool(is_causal))
    )
    return wrap(dq), wrap(dk), wrap(dv)


def _check(q: Any, k: Any, v: Any) -> None:
    if (
        any(a.ndim != 4 for a in (q, k, v))
        or q.shape[3] != k.shape[3]
        or k.shape[:3] != v.shape[:3]
    ):
        raise ShapeError(f"query {q.shape}, key {k.shape} and value {v.shape} do not go together")
    if q.shape[0] != k.shape[0] or q.shape[1] % max(k.shape[1], 1):
        raise ShapeError(
            f"{k.shape[1]} key heads do not divide {q.shape[1]} query heads, or the batches differ"
        )

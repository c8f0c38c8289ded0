"""Zeros between the positions of an image, as a transposed convolution with strides sees it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cubepy.kernels.movement.copy import contiguous
from cubepy.kernels.movement.pad import pad
from cubepy.runtime import memory


def spread_out(view: Any, step: tuple[int, ...]) -> Any:
    """(N, *size, C) with s - 1 zeros between neighbours along each axis; launches alone, which a
    repetition does again.
    """
    if not isinstance(view, np.ndarray):
        size = tuple((n - 1) * s + 1 for n, s in zip(view.shape[1:-1], step, strict=True))
        spread = memory.empty((view.shape[0], *size, view.shape[-1]), view.dtype)
        spread[...] = 0
        spread[(slice(None), *(slice(None, None, s) for s in step), slice(None))] = view
        return spread
    x = contiguous(view)
    for axis, s in enumerate(step, 1):
        if s > 1:
            each, inner = math.prod(x.shape[: axis + 1]), math.prod(x.shape[axis + 1 :])
            rows = pad(x.reshape(each, 1, inner), (0, 0, 0, s - 1))
            size = (*x.shape[:axis], x.shape[axis] * s, *x.shape[axis + 1 :])
            x = contiguous(rows.reshape(size)[(slice(None),) * axis + (slice(None, 1 - s),)])
    return x

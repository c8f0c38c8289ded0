"""Layer normalization along the last axes."""

from __future__ import annotations

import math
from typing import Any

from cubepy.errors import ShapeError
from cubepy.kernels.entry.arguments import array_of, float_array, number_of, wholes
from cubepy.kernels.entry.dispatch import repeated
from cubepy.kernels.entry.results import finish, output, wrapper
from cubepy.kernels.movement.copy import contiguous, convert_into
from cubepy.kernels.normalization.problem import Norm
from cubepy.kernels.normalization.routines import NORM
from cubepy.kernels.normalization.rows_cpu import as_rows
from cubepy.runtime import memory


@repeated
def layer_norm(
    x: Any,
    normalized_shape: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *,
    out: Any = None,
) -> Any:
    """Normalise over the last axes to mean 0 and variance 1, then scale and shift (Ba et al.,
    2016).

    Args:
        x: array of floats whose last axes have the shape `normalized_shape`.
        normalized_shape: int or tuple.
        weight, bias: of that shape, or None.
        eps: added to the variance.
        out: array to write.

    Raises:
        ShapeError: the last axes of x, weight or bias have another shape.

    Example:
        >>> import numpy as np
        >>> layer_norm(np.array([[1, 3], [2, 2]], np.float32), 2).round(3)
        array([[-1.,  1.],
               [ 0.,  0.]], dtype=float32)
    """
    wrap, array = wrapper(x), float_array(x, "x")
    eps = number_of(eps, "eps")
    shape = wholes(normalized_shape, "normalized_shape")
    if not shape or array.shape[array.ndim - len(shape) :] != shape:
        raise ShapeError(
            f"layer_norm over {shape}: the last axes of x {array.shape} are not of that shape"
        )
    n = math.prod(shape)
    parts = []
    for name, value in (("weight", weight), ("bias", bias)):
        part = None if value is None else array_of(value, name)
        if part is not None and part.shape != shape:
            raise ShapeError(f"{name} has shape {part.shape}, but layer_norm is over {shape}")
        parts.append(None if part is None else contiguous(part).reshape(n))
    result = output(out, array.shape, array.dtype)
    if result.size:
        rows = as_rows(
            array.reshape(*array.shape[: array.ndim - len(shape)], n), array.ndim - len(shape)
        )
        flat = (
            result.reshape(-1, n)
            if result.flags.c_contiguous
            else memory.empty((rows.shape[0], n), result.dtype)
        )
        NORM.run(Norm(rows, parts[0], parts[1], flat, eps))
        if not result.flags.c_contiguous:
            convert_into(result, flat.reshape(result.shape))
    return finish(result, out, wrap)

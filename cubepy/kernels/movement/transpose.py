"""Moving data: transpose (any permutation of axes) through register-transposed tiles."""

from __future__ import annotations

from typing import Any

from cubepy.errors import ShapeError
from cubepy.kernels.entry.arguments import array_of, wholes
from cubepy.kernels.entry.dispatch import repeated
from cubepy.kernels.entry.results import finish, output, wrapper
from cubepy.kernels.movement.routines import TRANSPOSE, Transpose


@repeated
def transpose(x: Any, axes: Any = None, *, out: Any = None) -> Any:
    """A contiguous copy with the axes permuted (reversed by default), as
    `numpy.transpose(x, axes).copy()`.

    Raises:
        ShapeError: `axes` is no permutation.

    Example:
        >>> import numpy as np
        >>> transpose(np.arange(6, dtype=np.float32).reshape(2, 3)).shape
        (3, 2)
    """
    wrap, array = wrapper(x), array_of(x)
    order = tuple(range(array.ndim))[::-1] if axes is None else wholes(axes, "axes")
    if sorted(a % array.ndim if -array.ndim <= a < array.ndim else -1 for a in order) != list(
        range(array.ndim)
    ):
        raise ShapeError(
            f"axes {axes} are no permutation of the {array.ndim} axes of shape {array.shape}"
        )
    moved = array.transpose(order)
    result = output(
        out, moved.shape, array.dtype, *([] if moved.strides == array.strides else [array])
    )
    if result.size:
        TRANSPOSE.run(Transpose(moved, result))
    return finish(result, out, wrap)

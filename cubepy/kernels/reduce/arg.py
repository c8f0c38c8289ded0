"""Where the largest and the smallest elements are."""

from __future__ import annotations

from typing import Any

import numpy as np

from cubepy.errors import ShapeError
from cubepy.kernels.entry.arguments import array_of, axes_of
from cubepy.kernels.entry.dispatch import repeated
from cubepy.kernels.reduce.problem import Arg
from cubepy.kernels.reduce.reduce import arranged, over_axes
from cubepy.kernels.reduce.routines import ARG


def _arg(x: Any, axis: Any, keepdims: bool, out: Any, largest: bool) -> Any:
    array = array_of(x)
    axes = axes_of(axis, array.ndim)
    if axis is not None and array.ndim and len(axes) != 1:
        raise ShapeError(f"argmax and argmin take one axis or None, not {axis!r}")
    if 0 in (array.shape[d] for d in axes):
        raise ShapeError(f"the argmax of an empty axis is not defined (shape {array.shape})")

    def run(array: Any, axes: tuple[int, ...], flat: Any) -> None:
        ARG.run(Arg(arranged(array, axes), flat, largest))

    bits = array.view(np.uint8) if array.dtype == np.bool_ else array
    return over_axes(x, bits, axis, keepdims, out, np.int64, 0, run)


@repeated
def argmax(x: Any, axis: Any = None, keepdims: bool = False, *, out: Any = None) -> Any:
    """Index of the largest element (i64): the first of equals, the first NaN if any, as
    `numpy.argmax`.

    Example:
        >>> import numpy as np
        >>> argmax(np.array([[1, 5, 2], [7, 0, 7]]), axis=1)
        array([1, 0])
    """
    return _arg(x, axis, keepdims, out, largest=True)


@repeated
def argmin(x: Any, axis: Any = None, keepdims: bool = False, *, out: Any = None) -> Any:
    """Index of the smallest element (i64), as `numpy.argmin`.

    Example:
        >>> import numpy as np
        >>> argmin(np.array([[1, 5, 2], [7, 0, 7]]), axis=1)
        array([0, 1])
    """
    return _arg(x, axis, keepdims, out, largest=False)

"""Gradients of max pooling."""

from __future__ import annotations

import math
from typing import Any

from cubepy.errors import DTypeError, ShapeError
from cubepy.kernels.entry.arguments import array_of, float_array
from cubepy.kernels.entry.dispatch import repeated_back
from cubepy.kernels.entry.results import wrapper
from cubepy.kernels.indexing.bounds import check_indices, validating
from cubepy.kernels.movement.copy import contiguous
from cubepy.kernels.pooling.max_pool import LAYOUTS, batched, equal_parts, five, windows_along
from cubepy.kernels.pooling.problem import MaxPoolBack
from cubepy.kernels.pooling.routines import MAX_POOL_INPUT
from cubepy.runtime import memory


def pooled_back(
    input_size: Any, grad: Any, indices: Any, axes: int, how: Any, layout: str, name: str
) -> Any:
    """The gradient of the largest values by the input."""
    wrap = wrapper(grad)
    g, last, alone = batched(float_array(grad, "grad_output"), axes, layout, name)
    spots = array_of(indices, "indices")
    if spots.dtype.kind not in "iu":
        raise DTypeError(f"indices must be ints, not {spots.dtype}")
    spots, shape = spots.reshape(1, *spots.shape) if alone else spots, tuple(input_size)
    shape = (1, *shape) if alone else shape
    if len(shape) != axes + 2:
        raise ShapeError(
            f"{name} needs an input of {axes + 2 - alone} axes, not {tuple(input_size)}"
        )
    settings, counts, parts = how(shape[1:-1] if last else shape[2:])
    wanted = (shape[0], *counts, shape[-1]) if last else (*shape[:2], *counts)
    if g.shape != wanted or spots.shape != wanted:
        raise ShapeError(
            f"the gradient and the indices have shapes {g.shape} and {spots.shape}, not {wanted}"
        )
    if validating():
        check_indices(spots, math.prod(shape[1:-1] if last else shape[2:]), name)
    out = memory.empty(shape, g.dtype)
    if out.size:
        arrays = [five(contiguous(a), axes, last) for a in (g, spots)]
        MAX_POOL_INPUT.run(MaxPoolBack(*arrays, five(out, axes, last), settings, parts, last))  # type: ignore[call-arg]
    return wrap(out.reshape(shape[1:]) if alone else out)


def _gradient(axes: int) -> Any:
    def max_pool_input(
        input_size: Any,
        grad_output: Any,
        indices: Any,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        *,
        layout: str = LAYOUTS[axes][0],
    ) -> Any:
        how = windows_along(kernel_size, stride, padding, dilation, ceil_mode)
        return pooled_back(
            input_size, grad_output, indices, axes, how, layout, f"max_pool{axes}d_input"
        )

    max_pool_input.__name__ = max_pool_input.__qualname__ = f"max_pool{axes}d_input"
    max_pool_input.__doc__ = f"""The gradient of `max_pool{axes}d` by its input of shape
    `input_size`.

    Args:
        input_size: shape of the input.
        grad_output: gradient by the result; floats.
        indices: what `return_indices` gave.
        kernel_size, stride, padding, dilation, ceil_mode, layout: as for `max_pool{axes}d`.

    Windows that overlap add up, in an order that never changes.

    Raises:
        ShapeError: shapes that do not go together.
        DTypeError: indices that are no ints.
        OutOfBoundsError: in validate mode or with CUBEPY_DEBUG=1, an index outside of its plane.
            Else what it names is dropped, on every device: indices come from `return_indices`, and
                are not looked at again.

    Example:
        >>> import numpy as np
        >>> x = np.arange({2**axes}, dtype=np.float32).reshape({(1, 1) + (2,) * axes})
        >>> from cubepy.kernels import max_pool{axes}d
        >>> values, indices = max_pool{axes}d(x, 2, return_indices=True)
        >>> max_pool{axes}d_input(x.shape, 7 * np.ones_like(values), indices, 2).ravel().tolist()
        {[0.0] * (2**axes - 1) + [7.0]}
    """
    return repeated_back(max_pool_input)


max_pool1d_input, max_pool2d_input, max_pool3d_input = (_gradient(axes) for axes in (1, 2, 3))


def _adaptive_gradient(axes: int) -> Any:
    def adaptive_max_pool_input(
        input_size: Any, grad_output: Any, indices: Any, *, layout: str = LAYOUTS[axes][0]
    ) -> Any:
        shape = array_of(grad_output, "grad_output").shape
        size = shape[-1 - axes : -1] if layout == LAYOUTS[axes][1] else shape[-axes:]
        name = f"adaptive_max_pool{axes}d_input"
        return pooled_back(
            input_size, grad_output, indices, axes, equal_parts(tuple(size)), layout, name
        )

    adaptive_max_pool_input.__name__ = adaptive_max_pool_input.__qualname__ = (
        f"adaptive_max_pool{axes}d_input"
    )
    adaptive_max_pool_input.__doc__ = f"""The gradient of `adaptive_max_pool{axes}d` by its input of
    shape `input_size`.

    Args:
        input_size: shape of the input.
        grad_output: gradient by the result; floats.
        indices: what `return_indices` gave.
        layout: as for `max_pool{axes}d`.

    Raises:
        ShapeError: shapes that do not go together.
        DTypeError: indices that are no ints.
        OutOfBoundsError: in validate mode or with CUBEPY_DEBUG=1, an index outside of its plane.
            Else what it names is dropped, on every device: indices come from `return_indices`, and
                are not looked at again.

    Example:
        >>> import numpy as np
        >>> x = np.arange({2**axes}, dtype=np.float32).reshape({(1, 1) + (2,) * axes})
        >>> from cubepy.kernels import adaptive_max_pool{axes}d
        >>> values, indices = adaptive_max_pool{axes}d(x, 1, return_indices=True)
        >>> adaptive_max_pool{axes}d_input(x.shape, 7 * np.ones_like(values),
        ...     indices).ravel().tolist()
        {[0.0] * (2**axes - 1) + [7.0]}
    """
    return repeated_back(adaptive_max_pool_input)


adaptive_max_pool1d_input, adaptive_max_pool2d_input, adaptive_max_pool3d_input = (
    _adaptive_gradient(axes) for axes in (1, 2, 3)
)

"""Elementwise work: any function of any number of arrays, with broadcasting, in one pass over
memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cubepy.errors import KernelTypeError, LaunchError
from cubepy.kernels.elementwise.problem import described
from cubepy.kernels.elementwise.routines import MAP
from cubepy.kernels.entry.arguments import array_of
from cubepy.kernels.entry.dispatch import repeated
from cubepy.kernels.entry.results import finish, output, wrapper
from cubepy.kernels.entry.shapes import broadcast_shape, empty_as
from cubepy.lang import mathematics
from cubepy.lang.builtins import Builtin
from cubepy.lang.declare import Func
from cubepy.lang.dtypes import as_dtype, float_for, promote
from cubepy.runtime.memory.constants import constant_on
from cubepy.runtime.memory.device_array import DeviceArray

OF_FLOATS = {"exp", "log", "tanh", "erf", "sqrt", "sin", "cos", "rsqrt"}.union(
    mathematics.UNARY, mathematics.BINARY
)
"""Builtins that give floats of integers."""


@repeated
def map(function: Any, *arrays: Any, out: Any = None, dtype: Any = None) -> Any:
    """Apply a function to every element of broadcast arrays, in one pass.

    Args:
        function: a `@cb.func` of as many values as there are arrays, or a builtin such as `cb.exp`.
        arrays: arrays that broadcast together (any strides, any dtypes).
        out: array to write; it may be one of the inputs.
        dtype: of the result; by default the promoted dtype of the inputs, or that of `out`.

    Returns:
        An array of the broadcast shape, of the kind that came in; where all arrays of that shape
        have their channels (axis 1) last in memory, so has the result.

    Raises:
        ShapeError: the shapes do not broadcast, or `out` has another shape.
        KernelTypeError: `function` is an ordinary Python function.

    Example:
        >>> import numpy as np, cubepy as cb
        >>> @cb.func
        ... def swish(x):
        ...     return x / (1 + cb.exp(-x))
        >>> map(swish, np.zeros(3, np.float32))
        array([0., 0., 0.], dtype=float32)
    """
    if not isinstance(function, (Func, Builtin)):
        raise KernelTypeError(
            f"K.map needs a @cb.func or a cubepy builtin, not {function!r}",
            hint="decorate the function with @cb.func",
        )
    if not arrays:
        raise LaunchError("K.map needs at least one array")
    wrap = wrapper(*arrays)
    xs = [array_of(a) for a in arrays]
    shape = broadcast_shape(*xs)
    where = next((x.device for x in xs if type(x) is DeviceArray), None)
    if where is not None:  # numbers beside its arrays are at home on any device
        xs = [constant_on(where, x) if isinstance(x, np.ndarray) and x.ndim == 0 else x for x in xs]
    if dtype is None:
        dtype = array_of(out).dtype if out is not None else result_dtype(function, xs)
    kind = as_dtype(dtype).numpy
    result = empty_as(xs, shape, kind) if out is None else output(out, shape, kind)
    run(function, xs, result)
    return finish(result, out, wrap)


def result_dtype(function: Any, xs: list[np.ndarray]) -> np.dtype:
    """The promoted dtype of the inputs; float functions of integers give floats."""
    found = as_dtype(xs[0].dtype).compute
    for x in xs[1:]:
        found = promote(found, as_dtype(x.dtype).compute)
    if isinstance(function, Builtin) and function.name in OF_FLOATS:
        found = float_for(found)
    return found.numpy


def run(function: Any, xs: list[np.ndarray], result: np.ndarray) -> None:
    """Launch the map kernel that fits the layouts."""
    if result.size:
        MAP.run(described(function, xs, result))

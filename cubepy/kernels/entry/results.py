"""What the library gives back: arrays of the kind that came in, or `out=`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cubepy.errors import AliasError, ArgumentError, DTypeError, ReadOnlyError, ShapeError
from cubepy.kernels.entry.arguments import array_of
from cubepy.kernels.entry.options import shown
from cubepy.runtime import memory
from cubepy.runtime.interop.arrays import kind_of, made
from cubepy.runtime.memory.spans import meet


def wrapper(*values: Any) -> Callable[[Any], Any]:
    """What makes a result of the kind that came in: tensors give tensors, PyTorch's are PyTorch's,
    arrays give arrays.
    """
    for v in values:
        wrap = getattr(v, "__cubepy_wrap__", None)
        if wrap is not None:
            return wrap  # type: ignore[no-any-return]
    make = kind_of(values)
    return (lambda result: result) if make is None else (lambda result: made(result, make))


def output(out: Any, shape: tuple[int, ...], dtype: Any, *sources: Any) -> Any:
    """The array to write: `out`, checked, or a new one on the current device.

    Args:
        out, shape, dtype: what was given, and what it has to be.
        sources: arrays that are read after some of the result is written, so that it cannot be in
            their memory.

    Raises:
        AliasError: `out` overlaps one of `sources`; of other inputs a launch sees to it.
        ArgumentError: `out` has no memory to write.
        ShapeError: `out` has another shape.
        DTypeError: `out` has another dtype.
        ReadOnlyError: `out` cannot be written.
    """
    if out is None:
        return memory.empty(shape, dtype)
    if isinstance(out, (list, tuple, int, float, np.generic)):
        raise ArgumentError(
            f"out must be an array, not {shown(out)}", hint="the result has nowhere to go in it"
        )
    array = array_of(out, "out")
    if array.shape != shape:
        raise ShapeError(f"out has shape {array.shape}, but the result has shape {shape}")
    if array.dtype != np.dtype(dtype):
        raise DTypeError(f"out has dtype {array.dtype}, but the result has dtype {np.dtype(dtype)}")
    if not array.flags.writeable:
        raise ReadOnlyError(
            "out is read-only", hint="give another array, or set out.flags.writeable"
        )
    for other in sources:
        if meet(array, other):
            raise AliasError(
                "out overlaps an input in memory, of which more is read after some "
                "of out is written",
                hint="leave out away, or copy the input",
            )
    return array


def finish(result: Any, out: Any, wrap: Callable[[Any], Any]) -> Any:
    """What a function returns: `out` itself when it was given."""
    return out if out is not None else wrap(result)

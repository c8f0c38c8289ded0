"""Copies: contiguous ones, and into an array of another dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cubepy.kernels.elementwise.map import run
from cubepy.kernels.elementwise.problem import identity
from cubepy.kernels.entry.arguments import array_of
from cubepy.kernels.entry.dispatch import repeated
from cubepy.kernels.entry.results import finish, output, wrapper
from cubepy.runtime import memory


def convert_into(target: Any, source: Any) -> None:
    """Write an array into another one of the same shape, converting the dtype."""
    run(identity, [source], target)


def fill(result: Any, write: Callable[[Any], Any]) -> None:
    """Let a function write an array; one with strides gets a copy of what it writes."""
    flat = result if result.flags.c_contiguous else memory.empty(result.shape, result.dtype)
    write(flat)
    if flat is not result:
        convert_into(result, flat)


def contiguous(x: Any) -> Any:
    """The array itself if it is C-contiguous, else a copy that is."""
    return x if x.flags.c_contiguous else copy(x)


@repeated
def copy(x: Any, *, out: Any = None) -> Any:
    """A contiguous copy of an array.

    Example:
        >>> import numpy as np
        >>> copy(np.arange(6).reshape(2, 3).T).flags.c_contiguous
        True
    """
    wrap, array = wrapper(x), array_of(x)
    result = output(out, array.shape, array.dtype)
    if out is not None and result.strides != array.strides:
        output(
            result, array.shape, array.dtype, array
        )  # tiles that are transposed in place would be read too late
    run(identity, [array], result)
    return finish(result, out, wrap)

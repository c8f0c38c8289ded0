"""What ops run on: the kernel library, and functions of elements by name."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from cubepy.lang.dtypes import as_dtype
from cubepy.runtime import memory, recording
from cubepy.runtime.device import use
from cubepy.runtime.memory.constants import constant_on
from cubepy.runtime.memory.device_array import empty

LINE = 128
"""Bytes of a line of a GPU's caches."""


@cache
def kernels() -> Any:
    """The kernel library, loaded when the first op runs."""
    return importlib.import_module("cubepy.kernels")


@cache
def bounds() -> Any:
    """What looks at indices."""
    return importlib.import_module("cubepy.kernels.indexing.bounds")


@cache
def searches() -> Any:
    """What searches in what is in order."""
    return importlib.import_module("cubepy.kernels.indexing.search")


@cache
def counts() -> Any:
    """What counts numbers."""
    return importlib.import_module("cubepy.kernels.indexing.counts")


@cache
def gathering() -> Any:
    """What reads by index."""
    return importlib.import_module("cubepy.kernels.indexing.gather")


@cache
def masks() -> Any:
    """What finds where masks hold."""
    return importlib.import_module("cubepy.kernels.scan.mask")


@cache
def embeddings() -> Any:
    """What sums rows by index."""
    return importlib.import_module("cubepy.kernels.indexing.embedding")


@cache
def columns() -> Any:
    """What writes windows as columns."""
    return importlib.import_module("cubepy.kernels.windows.columns")


@cache
def grids() -> Any:
    """What reads images at positions."""
    return importlib.import_module("cubepy.kernels.interpolate.grid_sample")


@cache
def concatenation() -> Any:
    """What puts arrays side by side."""
    return importlib.import_module("cubepy.kernels.movement.concat")


@cache
def norms() -> Any:
    """What computes with the means and variances of channels."""
    return importlib.import_module("cubepy.kernels.normalization.norms")


@cache
def statistics() -> Any:
    """What reduces in several walks."""
    return importlib.import_module("cubepy.kernels.reduce.statistics")


@cache
def sequence() -> Any:
    """What makes numbers in even steps."""
    return importlib.import_module("cubepy.kernels.elementwise.sequence")


@cache
def stateful() -> Any:
    """What draws random numbers of a state."""
    return importlib.import_module("cubepy.kernels.random.stateful")


_MODULES = {
    "f": "cubepy.kernels.primitives.functions",
    "t": "cubepy.tensor.functions",
    "b": "cubepy",
}


@cache
def function(text: str) -> Any:
    """A function of elements: "f:name" of the kernel library, "t:name" of this package, "b:name" a
    builtin.
    """
    where, name = text.split(":")
    return getattr(importlib.import_module(_MODULES[where]), name)


def reduced_array(
    function: Callable[..., Any], x: Any, axis: Any, keepdims: bool, **options: Any
) -> Any:
    """What a reduction of the library gives, as an array also where it gives a number."""
    axes = x.ndim if axis is None else len(axis) if isinstance(axis, tuple) else 1
    if axes < x.ndim or (keepdims and x.ndim):
        return function(x, axis=axis, keepdims=keepdims, **options)
    whole = x if x.ndim else x.reshape(1)
    return function(whole, axis=None, keepdims=True, **options).reshape(())


def flat(x: Any) -> Any:
    """An array as one row, which repetitions know too: NumPy copies none."""
    return (x if x.flags.c_contiguous else kernels().copy(x)).reshape(-1)


def number(like: Any, value: Any, dtype: Any) -> Any:
    """A number (or a few) as an array where another array is, which repetitions know."""
    made = np.asarray(value, dtype)
    if not isinstance(like, np.ndarray):
        return constant_on(like.device, made)
    if recording.active and (recorder := recording.current()) is not None:
        recorder.constant(made)
    return made


def zeros(like: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """A new array of zeros where another array is, written by work that can be repeated."""
    return filled(like, shape, dtype, 0)


def aligned_rows(shape: tuple[int, ...], dtype: Any) -> Any:
    """Memory for an array whose rows along the last axis begin in lines of the cache."""
    size = np.dtype(dtype).itemsize
    width = -(-shape[-1] * size // LINE) * LINE // size
    return memory.empty((*shape[:-1], width), np.dtype(dtype))[..., : shape[-1]]


def rows_for(shape: tuple[int, ...], dtypes: Sequence[Any], aligned: Sequence[int]) -> list[Any]:
    """Memory for arrays of a shape, some of them, by their numbers, with aligned rows."""
    return [
        aligned_rows(shape, d) if n in aligned else memory.empty(shape, np.dtype(d))
        for n, d in enumerate(dtypes)
    ]


def filled(like: Any, shape: tuple[int, ...], dtype: Any, value: Any) -> Any:
    """A new array of one number where another array is (None: on the current device), written by
    work that can be repeated.
    """
    home = memory.empty(shape, dtype) if like is None else like
    if isinstance(home, np.ndarray):
        return kernels().copy(np.broadcast_to(number(home, value, dtype), shape))
    out = home if like is None else empty(shape, dtype, like.device)
    one = np.asarray(value, out.dtype)
    if one.size == 1 and len(set(one.tobytes())) > 1 and not as_dtype(out.dtype).storage_only:
        with use(out.device):
            sequence().fill(out, one[()])
    else:
        out[...] = value
    return out

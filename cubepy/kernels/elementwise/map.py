"""Elementwise work: any function of any number of arrays, with broadcasting, in one pass over
memory.
"""

from __future__ import annotations

import ast
import builtins
import functools
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.compiler.source import source_of
from cubepy.errors import KernelTypeError, LaunchError
from cubepy.kernels.elementwise import map_gpu
from cubepy.kernels.elementwise.map_cpu import CHUNK, CUBES, map_flat, map_past, map_rows
from cubepy.kernels.elementwise.transposed_cpu import swapped
from cubepy.kernels.entry.arguments import array_of
from cubepy.kernels.entry.dispatch import has_planes, repeated
from cubepy.kernels.entry.results import finish, output, wrapper
from cubepy.kernels.entry.shapes import broadcast_shape, merged
from cubepy.kernels.primitives.vector_width import PAST, beside, lanes_for, to_line
from cubepy.lang import mathematics
from cubepy.lang.builtins import Builtin
from cubepy.lang.declare import Func
from cubepy.lang.dtypes import as_dtype, float_for, promote
from cubepy.runtime import memory
from cubepy.runtime.memory.device_array import DeviceArray, constant_on

OF_FLOATS = {"exp", "log", "tanh", "erf", "sqrt", "sin", "cos", "rsqrt"}.union(
    mathematics.UNARY, mathematics.BINARY
)
"""Builtins that give floats of integers."""


@cb.func
def identity(x):
    """x"""
    return x


@repeated
def map(function: Any, *arrays: Any, out: Any = None, dtype: Any = None) -> Any:
    """Apply a function to every element of broadcast arrays, in one pass.

    Args:
        function: a `@cb.func` of as many values as there are arrays, or a builtin such as `cb.exp`.
        arrays: arrays that broadcast together (any strides, any dtypes).
        out: array to write; it may be one of the inputs.
        dtype: of the result; by default the promoted dtype of the inputs, or that of `out`.

    Returns:
        An array of the broadcast shape, of the kind that came in.

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
    result = output(out, shape, as_dtype(dtype).numpy)
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
    if result.size == 0:
        return
    spread = [x if x.shape == result.shape else np.broadcast_to(x, result.shape) for x in xs]
    dest, *inputs = merged(as_stored([result, *spread]))
    moves = function is identity and dest.dtype == inputs[0].dtype
    if (
        moves and as_dtype(dest.dtype).is_float and dest.itemsize == 2
    ):  # as bits: nothing is to be computed in f32
        dest, inputs = dest.view(np.uint16), [inputs[0].view(np.uint16)]
    elif moves and dest.dtype == np.bool_:  # squares of bools are not turned
        dest, inputs = dest.view(np.uint8), [inputs[0].view(np.uint8)]
    if has_planes():
        map_gpu.run(function, dest, inputs, function is not identity)
        return
    lanes = lanes_for(dest, *inputs)
    head = to_line(dest) if dest.nbytes >= PAST else None
    past = (
        head is not None
        and head < dest.size
        and not builtins.any(np.may_share_memory(dest, x) for x in inputs)
    )
    if moves and dest.ndim > 1 and swapped(dest, inputs[0], past):
        return
    across = [lies_across(x) and not np.may_share_memory(x, dest) for x in inputs]
    if builtins.any(across) and dest.size >= CHUNK and dest.strides[-1] == dest.itemsize:
        order = memory_order(inputs[across.index(True)])
        if across.count(True) > 1 + sum(
            lies_across(x.transpose(order)) for x in inputs
        ):  # rather turn the result
            made = memory.empty(tuple(dest.shape[d] for d in order), dest.dtype)
            run(function, [x.transpose(order) for x in inputs], made)
            run(identity, [made], dest.transpose(order))
            return
        inputs = [turned(x) if turns else x for x, turns in zip(inputs, across, strict=True)]
    if isinstance(function, Builtin) or not plain(function):
        lanes *= beside(lanes, dest)
    if all(a.ndim == 1 and a.strides[0] == a.itemsize for a in (dest, *inputs)):
        if past and head:
            map_flat[1, 1](
                dest[:head],
                tuple(x[:head] for x in inputs),
                function,
                lanes,
                CHUNK,
                mode="unchecked",
            )
            dest, inputs = dest[head:], [x[head:] for x in inputs]
        cubes = -(-dest.size // CHUNK)
        if past:
            map_past[cubes, 1](dest, tuple(inputs), function, lanes, CHUNK, mode="unchecked")
        else:
            map_flat[cubes, 1](dest, tuple(inputs), function, lanes, CHUNK, mode="unchecked")
        return
    fixed = tuple(a.strides[-1] == 0 and a.shape[-1] > 1 for a in inputs)
    count, pieces = dest.size // dest.shape[-1], -(-dest.shape[-1] // CHUNK)
    rows = builtins.max(1, builtins.min(CHUNK // dest.shape[-1], count // CUBES))
    map_rows[-(-count // rows) * pieces, 1](
        dest, tuple(inputs), function, fixed, rows, lanes, CHUNK, mode="unchecked"
    )


def memory_order(x: Any) -> list[int]:
    """The axes of an array, those whose neighbours are furthest apart in memory first."""
    return sorted(range(x.ndim), key=lambda d: -abs(x.strides[d]))


def as_stored(arrays: list[Any]) -> list[Any]:
    """Arrays of one shape with their axes in the order in which the first one lies in memory."""
    first = arrays[0]
    if first.flags.c_contiguous:
        return arrays
    order = memory_order(first)
    return arrays if order == list(range(first.ndim)) else [a.transpose(order) for a in arrays]


def lies_across(x: Any) -> bool:
    """Whether neighbours in memory are neighbours along another axis than the last."""
    apart = x.strides[-1] not in (0, x.itemsize) and x.shape[-1] > 1
    return apart and builtins.any(
        s == x.itemsize and n > 1 for s, n in zip(x.strides, x.shape, strict=True)
    )


def turned(x: Any) -> Any:
    """The same numbers with neighbours along the last axis: squares are turned several times as
    fast as lanes are gathered one by one.
    """
    part = x[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in x.strides)]
    made = memory.empty(part.shape, x.dtype)
    run(identity, [part], made)
    return made if part.shape == x.shape else np.broadcast_to(made, x.shape)


@functools.lru_cache(256)
def plain(function: Func) -> bool:
    """Whether a function calls nothing."""
    return not any(
        isinstance(node, ast.Call)
        for part in source_of(function.fn).tree.body
        for node in ast.walk(part)
    )

"""Elementwise work: any function of any number of arrays, with broadcasting, in one pass over memory."""

from __future__ import annotations

import ast
import builtins
import functools
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.compiler.source import source_of
from cubepy.errors import KernelTypeError, LaunchError
from cubepy.kernels import elementwise_cubes
from cubepy.kernels.arguments import array_of, finish, output, repeated, wrapper
from cubepy.kernels.cube_wide import has_planes
from cubepy.kernels.elementwise_cubes import converted, unravelled, widened
from cubepy.kernels.movement_tiles import swapped
from cubepy.kernels.shapes import broadcast_shape, merged
from cubepy.lang import mathematics
from cubepy.lang.builtins import Builtin
from cubepy.lang.declare import Func
from cubepy.lang.dtypes import as_dtype, float_for, promote
from cubepy.runtime import memory
from cubepy.runtime.device_array import DeviceArray, constant_on
from cubepy.runtime.pointers import address

CHUNK = 8192  # elements of a cube
CUBES = 32  # at least, so that threads finish together
LINE = 128  # bytes of what a long function takes at once
PAST = 32 << 20  # bytes of a result that no cache holds
OF_FLOATS = {"exp", "log", "tanh", "erf", "sqrt", "sin", "cos", "rsqrt"}.union(
    mathematics.UNARY, mathematics.BINARY
)
"""Builtins that give floats of integers."""


@cb.kernel
def map_flat(
    out: cb.Array, inputs, function: cb.Comptime, lanes: cb.Comptime[int], chunk: cb.Comptime[int]
):
    """out[i] = function(inputs[0][i], ...); a cube does `chunk` neighbours."""
    first = cb.CUBE_POS * chunk
    map_run(
        out,
        inputs,
        (),
        function,
        (False,) * len(inputs),
        first,
        cb.min(first + chunk, out.size),
        lanes,
        False,
    )


@cb.kernel
def map_past(
    out: cb.Array, inputs, function: cb.Comptime, lanes: cb.Comptime[int], chunk: cb.Comptime[int]
):
    """The same, stored past the caches: for lines that are aligned."""
    first = cb.CUBE_POS * chunk
    map_run(
        out,
        inputs,
        (),
        function,
        (False,) * len(inputs),
        first,
        cb.min(first + chunk, out.size),
        lanes,
        True,
    )


@cb.kernel
def map_rows(
    out: cb.Array,
    inputs,
    function: cb.Comptime,
    fixed: cb.Comptime[tuple],
    rows,
    lanes: cb.Comptime[int],
    chunk: cb.Comptime[int],
):
    """The same for strided arrays of one shape; `fixed[k]`: input k is constant along the last axis.

    A cube does a piece of a row, or several rows where they are short.
    """
    last = out.ndim - 1
    pieces = (out.shape[last] + chunk - 1) // chunk
    row = cb.CUBE_POS // pieces * rows
    first = (cb.CUBE_POS % pieces) * chunk
    stop = cb.min(first + chunk, out.shape[last])
    count = cb.min(rows, out.size // out.shape[last] - row)
    lead = unravelled(row, out.shape, last) if last > 0 else ()
    for _ in range(count):
        map_run(out, inputs, lead, function, fixed, first, stop, lanes, False)
        lead = following(lead, out.shape)


@cb.func
def following(lead, shape):
    """The coordinates of the next row, without a division."""
    found = ()
    carry = True
    for d in cb.unroll(range(len(lead) - 1, -1, -1)):
        at = cb.select(carry, lead[d] + 1, lead[d])
        carry = at >= shape[d]
        found = (cb.select(carry, 0 * at, at),) + found
    return found


@cb.func
def map_run(
    out,
    inputs,
    lead,
    function,
    fixed: cb.Comptime[tuple],
    first,
    stop,
    lanes: cb.Comptime[int],
    past: cb.Comptime[bool],
):
    """Elements [first, stop) of a row: lines whole, without a look at bounds, and what is left."""
    whole = first + (stop - first) // lanes * lanes
    for k in range(first, whole, lanes):
        line = converted(function(*lines_at(inputs, lead, fixed, k, None, lanes)), out.dtype, lanes)
        if past:
            out.store_stream(lead + (k,), line)
        else:
            out.store(lead + (k,), line)
    if whole < stop:
        values = lines_at(inputs, lead, fixed, whole, stop - whole, lanes)
        out.store(
            lead + (whole,), converted(function(*values), out.dtype, lanes), valid=stop - whole
        )


@cb.func
def lines_at(inputs, lead, fixed: cb.Comptime[tuple], k, count, lanes: cb.Comptime[int]):
    """What the function takes from place k of a row on: a line of every input; narrow floats as f32."""
    values = ()
    for n in cb.unroll(range(len(inputs))):
        values = values + (widened(line_at(inputs[n], lead, fixed[n], k, count, lanes)),)
    return values


@cb.func
def line_at(x, lead, fixed: cb.Comptime[bool], k, count, lanes: cb.Comptime[int]):
    """Neighbours along the last axis; `count` of them are there, None: all."""
    if fixed:
        return cb.splat(x[lead + (0,)], lanes)
    if count is None:
        return x.load(lead + (k,), lanes)
    return x.load(lead + (k,), lanes, valid=count)


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
        elementwise_cubes.run(function, dest, inputs, function is not identity)
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
    """The same numbers with neighbours along the last axis: squares are turned several times as fast as lanes are
    gathered one by one.
    """
    part = x[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in x.strides)]
    made = memory.empty(part.shape, x.dtype)
    run(identity, [part], made)
    return made if part.shape == x.shape else np.broadcast_to(made, x.shape)


def lanes_for(*arrays: np.ndarray) -> int:
    """Lanes that fill a register with the widest element."""
    width = max(4, *(a.itemsize for a in arrays)) if len(arrays) > 1 else max(4, arrays[0].itemsize)
    return max(1, cb.device_properties_of().register_bytes // width)


def beside(lanes: int, dest: Any) -> int:
    """How many registers side by side a function takes that calls others: more is under way in its long chains of
    instructions. With AVX2 it is four, where rows are not short.
    """
    if dest.shape[-1] < 8 * lanes:
        return 2
    return builtins.max(2, LINE // cb.device_properties_of().register_bytes)


def to_line(out: Any, lanes: int = memory.ALIGNMENT) -> int | None:
    """How many elements of an array on the host come before one where a line of so many, or of the cache, may be stored
    whole; None where it is nowhere.
    """
    if not isinstance(out, np.ndarray):
        return None
    head, rest = divmod(
        -address(out) % builtins.min(lanes * out.itemsize, memory.ALIGNMENT), out.itemsize
    )
    return None if rest else head


def aligned(out: Any, lanes: int) -> bool:
    """Whether an array on the host begins where a line of so many elements, or of the cache, may be stored whole."""
    return to_line(out, lanes) == 0


@functools.lru_cache(256)
def plain(function: Func) -> bool:
    """Whether a function calls nothing."""
    return not any(
        isinstance(node, ast.Call)
        for part in source_of(function.fn).tree.body
        for node in ast.walk(part)
    )


def convert_into(target: Any, source: Any) -> None:
    """Write an array into another one of the same shape, converting the dtype."""
    run(identity, [source], target)


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
        )  # tiles that are turned in place would be read too late
    run(identity, [array], result)
    return finish(result, out, wrap)

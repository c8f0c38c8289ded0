"""`K.matmul`: batched products of any strides, with bias, activation and residual fused into the
last step.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.errors import ArgumentError, DTypeError, LaunchError, ShapeError
from cubepy.kernels.elementwise.map import map as map_
from cubepy.kernels.elementwise.map import run as elementwise
from cubepy.kernels.entry.arguments import array_of, number_of, rounds_to_tf32
from cubepy.kernels.entry.dispatch import repeated_with
from cubepy.kernels.entry.results import finish, output, wrapper
from cubepy.kernels.entry.shapes import joined_shape, view_as
from cubepy.kernels.matmul.cpu.vnni import widened
from cubepy.kernels.matmul.gpu.operands import suits_copy_engine
from cubepy.kernels.matmul.prepack import Packed
from cubepy.kernels.matmul.problem import (
    Epilogue,
    Layout,
    Product,
    layout_of,
    name_of,
    result_dtype,
)
from cubepy.kernels.matmul.routines import MATMUL
from cubepy.kernels.movement.copy import convert_into, copy
from cubepy.kernels.primitives.functions import activation_of, mul
from cubepy.lang.dtypes import DType, as_dtype, promote
from cubepy.runtime import memory
from cubepy.runtime.device import current
from cubepy.runtime.memory.device_array import DeviceArray
from cubepy.tune import choose


@repeated_with("b", Packed, "panels", "shape", "dtype")
def matmul(
    a: Any,
    b: Any,
    *,
    bias: Any = None,
    activation: Any = None,
    residual: Any = None,
    add: Any = None,
    gate: Any = None,
    mask: Any = None,
    fill: float = 0.0,
    alpha: float = 1.0,
    out: Any = None,
    dtype: Any = None,
    precision: str | None = None,
) -> Any:
    """Matrix product with broadcast batch axes: `activation(alpha * a @ b + bias) + residual`,
    where a mask allows it.

    Args:
        a: (..., M, K) or (K,).
        b: (..., K, N) or (K,); a transposed view is as good as any. Or a matrix from `prepack`.
        bias: (N,), added to every row.
        activation: "gelu", "gelu_tanh", "relu", "silu", "sigmoid", "tanh", or a `@cb.func` of one
            value.
        residual: of the result's shape, added last.
        add: instead of a residual, an array that is added before the activation.
        gate: instead of both, one that the result is multiplied by, last.
        mask: bools that broadcast to the result's shape; where one is false, the result is `fill`.
        fill: what the result is where the mask is false, such as `-math.inf` for scores; whatever
            the sums are there.
        alpha: factor of the product.
        out: array to write.
        dtype: of the result; the promoted dtype by default. f32 for f16 and bf16, i32 for 8-bit
            integers.
        precision: "tf32" lets matrix units round f32 operands to 10 bits of fraction; by default
            they are not used.

    Returns:
        (..., M, N) in the promoted dtype; sums are in f32 (f64 and integers: exact types, without
        epilogue tiles).

    Raises:
        ShapeError: the inner lengths differ, or batches or the mask do not broadcast.
        DTypeError: the mask does not hold bools.
        ArgumentError: more than one of residual, add and gate.

    Example:
        >>> import numpy as np
        >>> x, y = np.ones((2, 3), np.float32), np.ones((3, 2), np.float32)
        >>> matmul(x, y)
        array([[3., 3.],
               [3., 3.]], dtype=float32)
        >>> matmul(x, y, mask=np.tri(2, dtype=bool), fill=-1)
        array([[ 3., -1.],
               [ 3.,  3.]], dtype=float32)
        >>> matmul(x, y, activation="relu", add=np.full((2, 2), -2, np.float32))
        array([[1., 1.],
               [1., 1.]], dtype=float32)
    """
    alpha, fill = (
        number_of(alpha, "alpha"),
        fill if isinstance(fill, int) else number_of(fill, "fill"),
    )
    activation, tf32 = activation_of(activation), rounds_to_tf32(precision)
    residual, joined = _joined(residual, add, gate)
    if isinstance(b, Packed):
        _in_one_position(array_of(a, "a"), b.panels)
        b = b.panels if b.panels.ndim == 2 else b
    if isinstance(b, Packed):
        ending = Epilogue(bias, residual, activation, alpha, mask, fill, joined)
        return _with_packed(a, b, ending, out, dtype)
    wrap = wrapper(a, b)
    x, y = array_of(a, "a"), array_of(b, "b")
    if x.ndim == 0 or y.ndim == 0:
        raise ShapeError(
            f"matmul needs arrays of rank 1 or more, not shapes {x.shape} and {y.shape}"
        )
    row, column = x.ndim == 1, y.ndim == 1
    x = x[None, :] if row else x
    y = y[:, None] if column else y
    if x.shape[-1] != y.shape[-2]:
        raise ShapeError(
            f"matmul of {array_of(a).shape} and {array_of(b).shape}: "
            f"the inner lengths are {x.shape[-1]} and {y.shape[-2]}",
            hint="the last axis of a must be as long as the second last of b",
        )
    try:
        plain = x.ndim == y.ndim == 2
        batch = () if plain else joined_shape(x.shape[:-2], y.shape[:-2])
    except ValueError:
        raise ShapeError(
            f"the batch axes {x.shape[:-2]} and {y.shape[:-2]} do not broadcast together"
        ) from None
    m, n = x.shape[-2], y.shape[-1]
    full = (*batch, m, n)
    shape = (*batch, *(() if row else (m,)), *(() if column else (n,)))
    kept = None if mask is None else _mask(mask, shape)
    dtype = _asked_dtype(x.dtype, y.dtype, dtype)
    if not dtype.is_float or dtype.bits == 64:
        result = _general(x, y, shape, full, dtype, bias, activation, residual, alpha, out)
        if kept is not None and result.size:
            _fill(result, kept, fill)
        return finish(result, out, wrap)
    result = output(out, shape, dtype.numpy, x, y)
    extra = _epilogue(bias, residual, full, joined)
    if result.size:
        on_host = not isinstance(result, DeviceArray)
        fused = kept.reshape(full) if kept is not None and on_host else None
        target = result.reshape(full) if result.flags.c_contiguous else result
        ending = Epilogue(*extra, activation, alpha, fused, fill, joined)
        _products(x, y, target, full, ending, tf32)
        if kept is not None and not on_host:
            _fill(result, kept, fill)
    return finish(result, out, wrap)


def _asked_dtype(a: Any, b: Any, asked: Any) -> DType:
    """The dtype of a product of arrays of these dtypes, if need be as it was asked for."""
    promoted = promote(as_dtype(a).compute, as_dtype(b).compute)
    dtype = promoted if asked is None else as_dtype(asked)
    if promoted.is_float != dtype.is_float or dtype.bits < promoted.bits:
        raise DTypeError(f"the product of {np.dtype(a)} and {np.dtype(b)} cannot be {dtype.name}")
    return dtype


def _mask(mask: Any, shape: tuple[int, ...]) -> Any:
    """The mask, stretched to the result's shape."""
    kept = array_of(mask, "mask")
    if kept.dtype != np.bool_:
        raise DTypeError(
            f"the mask of matmul holds bools, not {kept.dtype}", hint="compare it: mask=weights > 0"
        )
    try:
        return np.broadcast_to(kept, shape)
    except ValueError:
        raise ShapeError(
            f"a mask of shape {kept.shape} does not broadcast to the product's {shape}"
        ) from None


@cb.func
def kept_or(kept, value, fill):
    """The value where it is kept."""
    return cb.select(kept, value, fill)


def _fill(result: Any, mask: Any, fill: float) -> None:
    """Write `fill` where the mask is false."""
    if result.dtype.kind in "iu" and not float(fill).is_integer():
        raise DTypeError(f"a product of {result.dtype} cannot be filled with {fill}")
    map_(kept_or, mask, result, np.asarray(fill, result.dtype), out=result)


def _in_one_position(x: Any, panels: Any) -> None:
    """Refuse a matrix that was packed elsewhere than it is needed."""
    where, packed = (
        str(v.device) if isinstance(v, DeviceArray) else "the host" for v in (x, panels)
    )
    if where != packed:
        raise LaunchError(
            f"a is on {where}, and b was packed on {packed}",
            hint="pack the matrix where the products are: K.prepack of an array there",
        )


def _with_packed(a: Any, b: Packed, ending: Epilogue, out: Any, dtype: Any) -> Any:
    """The product with a matrix that is laid out in panels already."""
    wrap, x = wrapper(a), array_of(a, "a")
    rows, columns = b.shape
    if x.ndim < 1 or x.shape[-1] != rows:
        raise ShapeError(f"matmul of {x.shape} and a packed {b.shape}: the inner lengths differ")
    full = (*x.shape[:-1], columns)
    kept = None if ending.mask is None else _mask(ending.mask, full)
    dtype = _asked_dtype(x.dtype, b.dtype.numpy, dtype)
    if dtype.bits == 64:
        raise DTypeError(
            f"a packed matrix of {b.dtype.name} does not make products of f64: a holds {x.dtype}",
            hint="give the matrix itself instead of prepack's, or an a of f32",
        )
    result = output(out, full, dtype.numpy, x)
    bias, residual = _epilogue(ending.bias, ending.residual, full, ending.joined)
    if result.size:
        if not as_dtype(x.dtype).is_float or as_dtype(x.dtype).storage_only:
            x, given = memory.empty(x.shape, np.float32), x
            convert_into(x, given)
        x3 = _batched(x, (1, math.prod(x.shape[:-1]), rows))
        if x3.strides[2] != x3.itemsize and rows > 1:
            x3 = copy(x3)
        target = result if result.flags.c_contiguous else memory.empty(full, result.dtype)
        out3 = target.reshape(1, -1, columns)
        r3 = None if residual is None else _batched(residual, out3.shape)
        m3 = None if kept is None else _lines(_batched(kept, out3.shape))
        panels = b.panels
        if panels.dtype == np.uint32 and x3.dtype != as_dtype("bf16").numpy:
            panels = widened(panels, rows)
        epilogue = ending._replace(bias=bias, residual=r3, mask=m3)
        _launch(x3, panels, out3, epilogue, "rows", panels.shape[3])
        if target is not result:
            convert_into(result, target)
    return finish(result, out, wrap)


def _general(
    x: np.ndarray,
    y: np.ndarray,
    shape: Any,
    full: Any,
    dtype: Any,
    bias: Any,
    activation: Any,
    residual: Any,
    alpha: Any,
    out: Any,
) -> np.ndarray:
    """f64 and integers: exact types, without an epilogue."""
    if bias is not None or activation is not None or residual is not None or alpha != 1.0:
        raise DTypeError(f"the epilogue of matmul works on f32, f16 and bf16, not {dtype.name}")
    result = output(out, shape, dtype.numpy, x, y)
    if result.size:
        target = result.reshape(full) if result.flags.c_contiguous else result
        _products(x, y, target, full, Epilogue())
    return result


def _joined(residual: Any, add: Any, gate: Any) -> tuple[Any, str]:
    """The array that is joined with the sums, and what is done with it."""
    given = {"residual": residual, "add": add, "gate": gate}
    there = [name for name, array in given.items() if array is not None]
    if len(there) > 1:
        raise ArgumentError(
            f"matmul takes one of residual, add and gate, not {' and '.join(there)}",
            hint="add or multiply the other one afterwards",
        )
    name = there[0] if there else "residual"
    return given[name], name


def _epilogue(
    bias: Any, residual: Any, full: tuple[int, ...], joined: str = "residual"
) -> tuple[Any, Any]:
    b = None if bias is None else array_of(bias, "bias")
    r = None if residual is None else array_of(residual, "residual")
    if b is not None and b.shape != (full[-1],):
        raise ShapeError(f"bias has shape {b.shape}, but the product has {full[-1]} columns")
    if r is not None and r.shape != full and r.size != int(np.prod(full)):
        raise ShapeError(f"{joined} has shape {r.shape}, but the product has shape {full}")
    return b, r


def _products(
    x: np.ndarray, y: np.ndarray, result: Any, full: Any, epilogue: Epilogue, tf32: bool = False
) -> None:
    if y.shape[-2] == 0:  # a sum of nothing is zero; the epilogue still follows
        x, y = (
            memory.empty((*x.shape[:-1], 1), x.dtype),
            memory.empty((*y.shape[:-2], 1, y.shape[-1]), y.dtype),
        )
        x[...] = 0
        y[...] = 0
    k, n = y.shape[-2:]
    m = full[-2]
    if k == 1 and not epilogue.there and _is_outer(x, y, result, full):
        elementwise(mul, [x, y], result)
        return
    if y.ndim == 2 or math.prod(y.shape[:-2]) == 1:  # one matrix for all batches: more rows
        y3 = y.reshape(1, k, n) if y.ndim > 2 else y[None]
        x3 = _batched(
            x if x.shape[:-1] == full[:-1] else np.broadcast_to(x, (*full[:-1], k)), (1, -1, k)
        )
        m = x3.shape[1]
    else:
        x3 = _batched(np.broadcast_to(x, (*full[:-1], k)), (-1, m, k))
        y3 = _batched(np.broadcast_to(y, (*full[:-2], k, n)), (-1, k, n))
    shape = (x3.shape[0], m, n)
    try:
        out3, copied = view_as(result, shape), False
    except AttributeError:  # strides that three axes cannot have
        out3, copied = memory.empty(shape, result.dtype), True
    residual, mask = epilogue.residual, epilogue.mask
    r3 = None if residual is None else _batched(residual, shape)
    m3 = None if mask is None else _lines(_batched(mask, shape))
    _launch(x3, y3, out3, epilogue._replace(residual=r3, mask=m3), layout_of(y3), 0, tf32)
    if copied:
        convert_into(result, out3.reshape(result.shape))


def _is_outer(x: Any, y: Any, result: Any, full: Any) -> bool:
    """Whether products of columns and rows are those of elements, of one dtype on the host: memory
    counts, and a map stores large results past the caches.
    """
    if isinstance(result, DeviceArray) or result.shape != full or full[-2] == 1 or full[-1] == 1:
        return False
    return bool(x.dtype == y.dtype == result.dtype)


def _launch(
    x: Any, y: Any, out: Any, epilogue: Epilogue, layout: Layout, packed: int, tf32: bool = False
) -> None:
    """out = epilogue(x @ y) by the routine that is chosen: x (batch, M, K), y (batch, K, N) or
    panels.
    """
    batch, m, n = out.shape
    second = "bf16" if packed and y.dtype == np.uint32 else name_of(y.dtype)
    dtypes = name_of(x.dtype), second
    problem = Product(
        str(current()), m, x.shape[2], n, batch, *dtypes, layout, packed, epilogue.there
    )
    if out.dtype != result_dtype(problem).numpy:
        problem = problem._replace(out=name_of(out.dtype))
    if isinstance(out, DeviceArray):
        aligned = suits_copy_engine(x, y, out, epilogue.residual)
        problem = problem._replace(aligned=aligned, tf32=tf32)
    chosen = choose(MATMUL, problem)
    if x.strides[2] != x.itemsize and x.shape[2] > 1 and not isinstance(x, DeviceArray):
        across = getattr(chosen.routine, "reads_across", None)
        if across is None or not across(chosen.blueprint, x, y):
            x = copy(x)
    chosen.launch(problem, x, y, out, *epilogue.given)


def _lines(mask: Any) -> Any:
    """The mask with neighbours along its rows, which are read in lines."""
    return mask if mask.strides[2] == 1 else copy(mask)


def _batched(a: np.ndarray, shape: Any) -> np.ndarray:
    """Reshape to three axes, copying only when strides forbid it."""
    known = math.prod(s for s in shape if s != -1)
    shape = tuple(a.size // known if s == -1 else s for s in shape)
    try:
        return view_as(a, shape)  # type: ignore[no-any-return]
    except AttributeError:
        return copy(a).reshape(shape)

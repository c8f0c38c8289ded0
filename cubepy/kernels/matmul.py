"""`K.matmul`: batched products of any strides, with bias, activation and residual fused into the last step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import cubepy as cb
from cubepy.errors import DTypeError, ShapeError
from cubepy.kernels.arguments import array_of, finish, output, wrapper
from cubepy.kernels.elementwise import copy
from cubepy.kernels.functions import ACTIVATIONS
from cubepy.kernels.matmul_kernels import Blueprint, block_product, pack_columns, pack_rows
from cubepy.kernels.matmul_skinny import skinny_product
from cubepy.lang.dtypes import as_dtype, promote

DEPTH = 256  # a panel of 32 columns of this depth fills the first-level cache


@dataclass(frozen=True)
class Packed:
    """A matrix (K, N) laid out for products: give it to `matmul` as `b` any number of times.

    Attributes:
        panels: (1, panels, K, width) f32.
        rows, columns: K and N.
    """

    panels: np.ndarray
    rows: int
    columns: int


def prepack(b: Any) -> Packed:
    """Lay a constant matrix out once, so that later products need not; it takes as much memory as the matrix.

    Args:
        b: (K, N), any strides; the transposed view of a linear layer's weight is as good as any.

    Example:
        >>> import numpy as np
        >>> w = prepack(np.eye(3, dtype=np.float32))
        >>> matmul(np.ones((5, 3), np.float32), w).shape
        (5, 3)
    """
    matrix = array_of(b, "b")
    if matrix.ndim != 2:
        raise ShapeError(f"prepack needs a matrix, not shape {matrix.shape}")
    return Packed(pack(matrix[None]), *matrix.shape)


def matmul(
    a: Any,
    b: Any,
    *,
    bias: Any = None,
    activation: Any = None,
    residual: Any = None,
    alpha: float = 1.0,
    out: Any = None,
) -> Any:
    """Matrix product with broadcast batch axes: `activation(alpha * a @ b + bias) + residual`.

    Args:
        a: (..., M, K) or (K,).
        b: (..., K, N) or (K,); a transposed view is as good as any. Or a matrix from `prepack`.
        bias: (N,), added to every row.
        activation: "gelu", "gelu_tanh", "relu", "silu", "sigmoid", "tanh", or a `@cb.func` of one value.
        residual: of the result's shape, added last.
        alpha: factor of the product.
        out: array to write.

    Returns:
        (..., M, N) in the promoted dtype; sums are in f32 (f64 and integers: exact types, without epilogue tiles).

    Raises:
        ShapeError: the inner lengths differ, or batches do not broadcast.

    Example:
        >>> import numpy as np
        >>> matmul(np.ones((2, 3), np.float32), np.ones((3, 2), np.float32))
        array([[3., 3.],
               [3., 3.]], dtype=float32)
    """
    if isinstance(b, Packed):
        return _with_packed(a, b, bias, activation, residual, alpha, out)
    wrap = wrapper(a, b)
    x, y = array_of(a, "a"), array_of(b, "b")
    if x.ndim == 0 or y.ndim == 0:
        raise ShapeError(f"matmul needs arrays of rank 1 or more, not shapes {x.shape} and {y.shape}")
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
        batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    except ValueError:
        raise ShapeError(f"the batch axes {x.shape[:-2]} and {y.shape[:-2]} do not broadcast together") from None
    m, n = x.shape[-2], y.shape[-1]
    full = (*batch, m, n)
    shape = (*batch, *(() if row else (m,)), *(() if column else (n,)))
    dtype = promote(as_dtype(x.dtype).compute, as_dtype(y.dtype).compute)
    if not dtype.is_float or dtype.bits == 64:
        return finish(_general(x, y, shape, dtype, bias, activation, residual, alpha, out), out, wrap)
    result = output(out, shape, dtype.numpy)
    if result.size:
        extra = _epilogue(bias, residual, full)
        _floats(x, y, result.reshape(full) if result.flags.c_contiguous else result, full, *extra, activation, alpha)
    return finish(result, out, wrap)


def _with_packed(a: Any, b: Packed, bias: Any, activation: Any, residual: Any, alpha: float, out: Any) -> Any:
    """The product with a matrix that is laid out already."""
    wrap, x = wrapper(a), array_of(a, "a")
    if x.ndim < 1 or x.shape[-1] != b.rows:
        raise ShapeError(f"matmul of {x.shape} and a packed ({b.rows}, {b.columns}): the inner lengths differ")
    full = (*x.shape[:-1], b.columns)
    result = output(out, full, x.dtype)
    if result.size:
        add, residual = _epilogue(bias, residual, full)
        x3 = _batched(x, (1, -1, b.rows))
        if x3.strides[2] != x3.itemsize and b.rows > 1:
            x3 = copy(x3)
        target = result if result.flags.c_contiguous else np.empty(full, result.dtype)
        out3 = target.reshape(1, -1, b.columns)
        r3 = None if residual is None else _batched(residual, out3.shape)
        function = ACTIVATIONS[activation] if isinstance(activation, str) else activation
        product(x3, b.panels, out3, add, r3, function, alpha)
        if target is not result:
            result[...] = target
    return finish(result, out, wrap)


def _general(
    x: np.ndarray, y: np.ndarray, shape: Any, dtype: Any, bias: Any, activation: Any, residual: Any, alpha: Any,
    out: Any,
) -> np.ndarray:
    """f64 and integers: the plain kernel, one dot product an element."""
    from cubepy.kernels.matmul_plain import plain_product

    if bias is not None or activation is not None or residual is not None or alpha != 1.0:
        raise DTypeError(f"the epilogue of matmul works on f32, f16 and bf16, not {dtype.name}")
    result = output(out, shape, dtype.numpy)
    if result.size:
        plain_product(x, y, result, dtype)
    return result


def _epilogue(bias: Any, residual: Any, full: tuple[int, ...]) -> tuple[Any, Any]:
    b = None if bias is None else array_of(bias, "bias")
    r = None if residual is None else array_of(residual, "residual")
    if b is not None and b.shape != (full[-1],):
        raise ShapeError(f"bias has shape {b.shape}, but the product has {full[-1]} columns")
    if r is not None and r.shape != full and r.size != int(np.prod(full)):
        raise ShapeError(f"residual has shape {r.shape}, but the product has shape {full}")
    return b, r


@cache
def tile() -> tuple[int, int, int]:
    """Rows, lines and lanes of the register tile for this CPU."""
    p = cb.device_properties_of()
    lanes = p.register_bytes // 4
    return (6, 4, lanes) if p.vector_registers >= 32 else (6, 2, lanes)


def pack(b: np.ndarray) -> np.ndarray:
    """Panels of (batch, K, N): shape (batch, panels, K, width), zero where a panel is wider than what is left."""
    _, lines, lanes = tile()
    width = lines * lanes
    batch, k, n = b.shape
    panels = -(-n // width)
    out = np.empty((batch, panels, k, width), np.float32)
    if b.strides[2] == b.itemsize or n == 1:
        pack_columns[batch * panels, 1](b, out, width, lanes)
    else:
        t = b.transpose(0, 2, 1)
        if t.strides[2] != t.itemsize and k > 1:
            t = copy(t)
        pack_rows[batch * panels, 1](t, out, width, lanes)
    return out


def _floats(
    x: np.ndarray, y: np.ndarray, result: np.ndarray, full: Any, bias: Any, residual: Any, activation: Any, alpha: float
) -> None:
    if y.shape[-2] == 0:  # a sum of nothing is zero; the epilogue still follows
        x = np.zeros((*x.shape[:-1], 1), x.dtype)
        y = np.zeros((*y.shape[:-2], 1, y.shape[-1]), y.dtype)
    k, n = y.shape[-2:]
    m = full[-2]
    if y.ndim == 2 or math.prod(y.shape[:-2]) == 1:  # one matrix for all batches: more rows
        y3 = y.reshape(1, k, n) if y.ndim > 2 else y[None]
        x3 = _batched(x if x.shape[:-1] == full[:-1] else np.broadcast_to(x, (*full[:-1], k)), (1, -1, k))
        m = x3.shape[1]
    else:
        x3 = _batched(np.broadcast_to(x, (*full[:-1], k)), (-1, m, k))
        y3 = _batched(np.broadcast_to(y, (*full[:-2], k, n)), (-1, k, n))
    out3 = result.reshape(x3.shape[0], m, n)
    r3 = None if residual is None else _batched(residual, out3.shape)
    if x3.strides[2] != x3.itemsize and k > 1:
        x3 = copy(x3)
    function = ACTIVATIONS[activation] if isinstance(activation, str) else activation
    if x3.shape[0] == 1 and skinny_product(x3[0], y3[0], out3, bias, r3, function, float(alpha)):
        return
    product(x3, pack(y3), out3, bias, r3, function, alpha)


def _batched(a: np.ndarray, shape: Any) -> np.ndarray:
    """Reshape to three axes, copying only when strides forbid it."""
    known = math.prod(s for s in shape if s != -1)
    shape = tuple(a.size // known if s == -1 else s for s in shape)
    view = a.view()
    try:
        view.shape = shape
        return view
    except AttributeError:
        return copy(a).reshape(shape)


def product(
    x: np.ndarray, packed: np.ndarray, out: np.ndarray, bias: Any, residual: Any, function: Any, alpha: float
) -> None:
    """out = epilogue(x @ packed): x (batch, M, K) with unit stride along K, out (batch, M, N)."""
    rows, lines, lanes = tile()
    batch, m, n = out.shape
    k, panels = packed.shape[2], packed.shape[1]
    block_rows = max(1, min(8, -(-m // rows)))
    block_panels = 8
    while block_panels > 1 and batch * -(-m // (rows * block_rows)) * -(-panels // block_panels) < 4:
        block_panels //= 2
    depth = DEPTH if out.dtype == np.float32 and k > 2 * DEPTH else max(k, 1)
    extras = (bias is not None, residual is not None, function)
    blueprint = Blueprint(rows, lines, lanes, block_rows, block_panels, 0, *extras)
    cubes = batch * -(-m // (rows * block_rows)) * -(-panels // block_panels)
    for first in range(0, max(k, 1), depth):
        block_product[cubes, 1](
            x, packed, out, bias, residual, float(alpha), n, first, min(k, first + depth),
            first > 0, first + depth >= k, blueprint, mode="unchecked",
        )  # fmt: skip

"""Routines of `K.matmul` on a GPU: which kernel fits a product, and how large its tiles are."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, TypeVar

import cubepy as cb
from cubepy.kernels.entry.shapes import strided
from cubepy.kernels.matmul.problem import Epilogue as Ending
from cubepy.kernels.primitives.epilogue import Epilogue
from cubepy.kernels.primitives.functions_half import NARROW
from cubepy.kernels.primitives.vector_width import address
from cubepy.lang.dtypes import DType, as_dtype

P = TypeVar("P", bound=Epilogue)
ALIGNMENT = 16
"""Bytes by which the copy engine and asynchronous copies want rows to be aligned."""
NARROW_FLOATS = ("f16", "bf16")
EARLY_BYTES = 8192, 2048
"""Bytes of K up to which launches overlap: of several rows of tiles of 128 rows, and of others
(measured on an H200). Where they do, cubes are not in order on the cores, so that neighbours no
longer read together what they share.
"""
FUSED_END = 4
"""How much more a round's end costs with an epilogue, where nothing hides it."""


def aligned(a: Any) -> bool:
    """Whether neighbours lie along the last axis of (batch, rows, columns), and every row starts at
    16 bytes.
    """
    if a.strides[2] != a.itemsize and a.shape[2] != 1:
        return False
    steps = (s for n, s in zip(a.shape[:2], a.strides[:2], strict=True) if n != 1)
    return address(a) % ALIGNMENT == 0 and all(s > 0 and s % ALIGNMENT == 0 for s in steps)


def copies(a: Any) -> bool:
    """Whether copies of 16 bytes suit an operand: aligned rows that are whole numbers of them."""
    return aligned(a) and a.shape[2] * a.itemsize % ALIGNMENT == 0


def suits_copy_engine(x: Any, y: Any, out: Any, residual: Any) -> bool:
    """Whether tensor maps can be made of all matrices of a product: only 16-bit operands may lie
    across K, and b of f32.
    """
    narrow = x.itemsize == 2
    a, b = once(x), once(y)
    a_fits = aligned(a) or (narrow and aligned(a.transpose(0, 2, 1)))
    b_fits = aligned(b.transpose(0, 2, 1)) or (x.itemsize in (2, 4) and aligned(b))
    r_fits = residual is None or (residual.dtype == out.dtype and aligned(residual))
    return a_fits and b_fits and aligned(out) and r_fits


def oriented(a: Any) -> tuple[Any, bool]:
    """An operand (batch, own axis, K) with its contiguous axis last, and whether that is K."""
    swapped = a.transpose(0, 2, 1)
    if not aligned(a) and (
        aligned(swapped) or (a.strides[2] != a.itemsize and a.strides[1] == a.itemsize)
    ):
        return swapped, False
    return a, True


def once(a: Any) -> Any:
    """The first batch alone where all batches are the same memory."""
    return a[:1] if a.strides[0] == 0 else a


def map_of(a: Any, rows: int, columns: int, tf32: bool = False) -> Any:
    """A tensor map with boxes of one batch; axes of length 1 get strides that maps allow."""
    step = -(-a.shape[2] * a.itemsize // ALIGNMENT) * ALIGNMENT
    row = a.strides[1] if a.shape[1] != 1 else step
    batch = a.strides[0] if a.shape[0] != 1 else row * a.shape[1]
    return cb.tensor_map(
        strided(a, a.shape, (batch, row, a.itemsize)), (1, rows, columns), tf32=tf32
    )


def activation_for(function: Any, dtype: DType) -> Any:
    """An activation as good as the result's dtype can show."""
    return NARROW.get(function, function) if dtype.bits == 16 else function


def fitted(blueprint: P, args: tuple[Any, ...], **orders: bool) -> P:
    """A blueprint with the epilogue of a product's arguments, and with the orders of its
    operands.
    """
    ending = Ending(*args[3:])
    function = activation_for(ending.function, as_dtype(args[2].dtype))
    there = ending.bias is not None, ending.residual is not None
    return _fitted(blueprint, *there, function, ending.alpha != 1, ending.joined, **orders)


@cache
def _fitted(
    blueprint: P,
    bias: bool,
    residual: bool,
    activation: Any,
    scaled: bool,
    joined: str,
    **orders: Any,
) -> P:
    ending = replace(blueprint, bias=bias, residual=residual, activation=activation, joined=joined)
    return replace(ending, scaled=scaled, **orders)

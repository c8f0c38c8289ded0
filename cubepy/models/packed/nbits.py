"""Weights of ONNX's MatMulNBits as they lie in the file: codes of 2, 4 or 8 bits by block, each
with a scale and a zero point; of MatMulBnb4 a table says what codes mean.

Up to 16 rows of activations meet the codes, unpacked in registers; more meet a float copy, which
lives for a call. With less than 8 bits a byte holds neighbours, so activations are put in order
once: of each block those of the lowest codes of bytes, then those of the next ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from cubepy.kernels.matmul.matmul import matmul
from cubepy.kernels.movement.copy import contiguous, copy
from cubepy.kernels.movement.pad import pad
from cubepy.kernels.primitives.functions import ACTIVATIONS
from cubepy.lang.dtypes import f32
from cubepy.models.packed.nbits_kernels import CHANNELS, Blueprint, product, unpack
from cubepy.quant.schemes.scheme import parse_scheme
from cubepy.quant.storage import product_of_floats
from cubepy.quant.weights import packing
from cubepy.quant.weights.weight import QuantizedWeight
from cubepy.runtime.device import Device, gpu_of
from cubepy.runtime.memory.pool import empty
from cubepy.tensor import Dense, Storage, register
from cubepy.tensor.ops.library import function, kernels
from cubepy.tensor.storage import HOST, moved, packed_linear

ROWS = 8
"""Rows of activations that meet a line of codes at once."""
MOST_ROWS = 16
"""Rows that meet the codes; more meet a float copy."""


class BlockCodes(Storage):
    """A matrix (N, K) of codes by block of K.

    Args:
        codes: u8 (N, bytes).
        scales, zeros: f32 (N, blocks).
        columns: K; the last block may reach beyond.
        bits: 2, 4 or 8.
        block: elements of a block, 16 or more and a power of two.
        table: what codes of 4 bits mean, and then no zeros; None: themselves, less the zero point.

    Example:
        >>> codes = np.arange(16, dtype=np.uint8).reshape(1, 16)
        >>> one = np.ones((1, 1), np.float32)
        >>> stored = BlockCodes(codes, 2 * one, 8 * one, 16, 8, 16)
        >>> stored.host()[0, :3], stored.nbytes
        (array([-16., -14., -12.], dtype=float32), 24)
    """

    kind: ClassVar[str] = "block_codes"
    __slots__ = ("bits", "block", "codes", "scales", "table", "zeros")

    def __init__(
        self,
        codes: np.ndarray,
        scales: np.ndarray,
        zeros: np.ndarray | None,
        columns: int,
        bits: int,
        block: int,
        table: tuple[float, ...] | None = None,
    ) -> None:
        super().__init__((codes.shape[0], columns), f32, HOST)
        self.codes, self.scales, self.zeros = codes, scales, zeros
        self.bits, self.block, self.table = bits, block, table

    def arrays(self) -> dict[str, Any]:
        found = {"codes": self.codes, "scales": self.scales}
        return found if self.zeros is None else found | {"zeros": self.zeros}

    def plan(self) -> Any:
        return self.kind, self.bits, self.block, self.shape, self.table

    def dense(self) -> Any:
        """A float copy: for looking at it, never for computing."""
        return self.host()

    def host(self) -> np.ndarray:
        rows, blocks = self.scales.shape
        codes = bytes_of(self.codes, self.bits).reshape(rows, blocks, -1)
        if self.zeros is None:
            wide = np.array(self.table, np.float32)[codes]
        else:
            wide = codes.astype(np.float32) - self.zeros[..., None]
        wide = wide * self.scales[..., None]
        found: np.ndarray = wide.reshape(rows, -1)[:, : self.shape[1]]
        return found

    def floats(self, dtype: np.dtype) -> np.ndarray:
        """All elements as floats."""
        return self.host().astype(dtype, copy=False)

    def to(self, device: Device) -> Storage:
        """On a GPU floats."""
        if device == self.device or gpu_of(device) is None:
            return self
        return Dense(moved(self.host(), device))

    def blueprint(self, rows: int = 1, activation: Any = None) -> Blueprint:
        """What changes the code of kernels that read it."""
        lanes = min(16, self.block * self.bits // 8)
        return Blueprint(self.bits, self.block, lanes, rows, activation, self.table)


def bytes_of(codes: np.ndarray, bits: int) -> np.ndarray:
    """Codes of a byte each, low bits first, of rows of packed ones.

    Example:
        >>> bytes_of(np.array([[0x21, 0x43]], np.uint8), 4)
        array([[1, 2, 3, 4]], dtype=uint8)
    """
    if bits == 8:
        return codes
    parts = [(codes >> k) & ((1 << bits) - 1) for k in range(0, 8, bits)]
    return np.stack(parts, axis=-1).reshape(*codes.shape[:-1], -1)


def ordered(x: np.ndarray, weight: BlockCodes) -> np.ndarray:
    """Rows (M, K) as kernels meet the codes: filled up to whole blocks; of less than 8 bits
    those of the lowest codes of bytes first.
    """
    rows, blocks = len(x), weight.scales.shape[1]
    behind = blocks * weight.block - x.shape[1]
    if x.dtype != np.float32:
        x = kernels().map(function("t:identity"), x, dtype=np.float32)
    full = pad(x, (0, behind)) if behind else x
    if weight.bits == 8:
        return full
    each = 8 // weight.bits
    made = empty((rows, blocks, each, weight.block // each), np.float32)
    bytewise = full.reshape(rows, blocks, weight.block // each, each)
    copy(bytewise.transpose(0, 1, 3, 2), out=made)
    return made.reshape(rows, blocks * weight.block)


register("packed_product", "block_codes")(product_of_floats)


@register("linear", "block_codes")
def _linear(inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
    x, weight, bias, residual = packed_linear(inputs, BlockCodes, "in blocks")
    count, columns = weight.shape
    given, shape = x.dense(), (*x.shape[:-1], count)
    out = empty(shape, np.float32)
    if out.size == 0:
        return out
    rows = ordered(contiguous(given.reshape(-1, columns)), weight)
    facts = (weight.codes, weight.scales, weight.zeros)
    if len(rows) > MOST_ROWS:
        wide = empty((count, rows.shape[1]), np.float32)
        unpack[count, 1](*facts, wide, weight.blueprint(), mode="unchecked")
        options = {"bias": bias, "activation": attrs["activation"], "residual": residual}
        return matmul(rows.reshape(*x.shape[:-1], -1), wide.T, **options)
    function = None if attrs["activation"] is None else ACTIVATIONS[attrs["activation"]]
    if residual is not None:
        residual = contiguous(residual).reshape(1, len(rows), count)
    flat = out.reshape(1, len(rows), count)
    cubes = -(-count // CHANNELS)
    for first in range(0, len(rows), ROWS):
        part = slice(first, first + ROWS)
        added = None if residual is None else residual[:, part]
        plan = weight.blueprint(len(rows[part]), function)
        product[cubes, 1](rows[part], *facts, bias, added, flat[:, part], plan, mode="unchecked")
    return out


def int4_of(weight: BlockCodes) -> QuantizedWeight | None:
    """The same as int4 by group, whose activations become bytes; None where groups do not go.

    Scales and minimums are rounded to 16 bits, all over a power of two that leaves none too small.
    """
    rows, columns = weight.shape
    if weight.zeros is None or weight.bits != 4 or columns % weight.block:
        return None
    top = float(np.abs(weight.scales).max(initial=0)) * 16
    if not 0 < top < np.inf:
        return None
    gain = 2.0 ** (int(np.frexp(top)[1]) - 11)
    symmetric = bool((weight.zeros == 8).all())
    scheme = parse_scheme("int4", group=weight.block, symmetric=symmetric)
    scales = (weight.scales / gain).astype(np.float16)
    least = (-weight.zeros * weight.scales / gain).astype(np.float16)
    codes = bytes_of(weight.codes, 4)
    wide = codes.reshape(rows, -1, weight.block).sum(2, dtype=np.float64)
    minimums = -8 * scales.astype(np.float64) if symmetric else least.astype(np.float64)
    sums = (wide * scales + minimums * weight.block).sum(1).astype(np.float32)
    return QuantizedWeight(
        (rows, columns),
        scheme,
        packing.pack_int4(codes),
        packing.pack_groups(scales),
        None if symmetric else packing.pack_groups(least),
        packing.pack_channels(sums),
        np.ones(columns, np.float16),
        gain,
    )

"""Blocks of more or less than four bits on a GPU: bytes with a scale, and where there is one a
minimum, for 16 or 32 neighbours. They stand for the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from cubepy.kernels.indexing.bounds import check_indices
from cubepy.kernels.matmul.matmul import matmul
from cubepy.kernels.movement.copy import contiguous
from cubepy.kernels.primitives.functions import ACTIVATIONS
from cubepy.lang.dtypes import bf16, promote
from cubepy.models.packed.grouped_kernels import (
    LINE,
    PLANES,
    TOGETHER,
    Blueprint,
    grouped_product,
    regroup,
    take_grouped,
)
from cubepy.quant.storage import product_of_floats
from cubepy.runtime.device import Device, device_properties
from cubepy.runtime.memory.pool import empty
from cubepy.tensor import Storage, register
from cubepy.tensor.storage import HOST, moved, packed_linear

MINIMUMS = ("Q4_1", "Q5_1", "Q2_K", "Q4_K", "Q5_K")
MOST_ROWS = 4
"""Rows of activations that meet bytes; more meet a copy of 16 bits, which lives for a call."""
UNITS = 128


class GroupedBytes(Storage):
    """A matrix of bytes times scales, on a GPU.

    Args:
        codes: (N, K) i8.
        scales: (N, groups) f16 or f32.
        minimums: the same, or None.
        device: where they are.
    """

    kind: ClassVar[str] = "grouped bytes"
    __slots__ = ("codes", "minimums", "scales")

    def __init__(self, codes: Any, scales: Any, minimums: Any, device: Device) -> None:
        super().__init__(codes.shape, bf16, device)
        self.codes, self.scales, self.minimums = codes, scales, minimums

    @classmethod
    def of(cls, raw: np.ndarray, halves: np.ndarray, plan: Any, device: Device) -> GroupedBytes:
        """Blocks of the host on a device.

        Args:
            raw: (N, bytes).
            halves: the same as f16.
            plan: what the kernels of blocks are told.
            device: where it will be.
        """
        count, columns = len(raw), raw.shape[1] // plan.nbytes * plan.elements
        group, dtype = (32, np.float16) if plan.elements == 32 else (16, np.float32)
        shape = (count, columns // group)
        codes, scales = np.empty((count, columns), np.int8), np.empty(shape, dtype)
        minimums = np.empty(shape, dtype) if plan.kind in MINIMUMS else None
        if count:
            regroup[count, 1](
                raw, halves, codes, scales, minimums, plan, mode="unchecked", device=HOST
            )
        there = None if minimums is None else moved(minimums, device)
        return cls(moved(codes, device), moved(scales, device), there, device)

    @property
    def words(self) -> Any:
        """The codes, four to a word."""
        return self.codes.view(np.uint32)

    @property
    def group(self) -> int:
        """Neighbours that share a scale."""
        return int(self.codes.shape[1] // self.scales.shape[1])

    def arrays(self) -> dict[str, Any]:
        named = {"codes": self.codes, "scales": self.scales, "minimums": self.minimums}
        return {name: array for name, array in named.items() if array is not None}

    def plan(self) -> Any:
        return self.kind, self.shape, self.group, self.minimums is None

    def taken(self, indices: Any, dtype: Any) -> Any:
        """Rows as a dense array; all without indices."""
        count = self.shape[0] if indices is None else len(indices)
        out = empty((count, self.shape[1]), dtype)
        if out.size:
            take_grouped[-(-out.size // (LINE * UNITS)), UNITS](
                indices, self.words, self.scales, self.minimums, out, self.group, mode="unchecked"
            )
        return out

    def floats(self, dtype: np.dtype) -> Any:
        """All elements as floats, where they are."""
        return self.taken(None, dtype)

    def dense(self) -> Any:
        """A float copy: for looking at it, never for computing."""
        return moved(self.host(), self.device)

    def host(self) -> np.ndarray:
        codes, scales = moved(self.codes, HOST), moved(self.scales, HOST).astype(np.float32)
        grouped = codes.reshape(*scales.shape, -1) * scales[..., None]
        if self.minimums is not None:
            grouped = grouped + moved(self.minimums, HOST).astype(np.float32)[..., None]
        found: np.ndarray = grouped.reshape(self.shape).astype(self.dtype.numpy)
        return found

    def to(self, device: Device) -> Storage:
        if device == self.device:
            return self
        named = {name: moved(array, device) for name, array in self.arrays().items()}
        return GroupedBytes(named["codes"], named["scales"], named.get("minimums"), device)


register("packed_product", "grouped bytes")(product_of_floats)


@register("linear", "grouped bytes")
def _linear(inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
    x, weight, bias, residual = packed_linear(inputs, GroupedBytes, "in blocks")
    count, columns = weight.shape
    given = contiguous(x.dense())
    dtype = promote(x.dtype, weight.dtype).numpy
    out = empty((*given.shape[:-1], count), dtype)
    if out.size == 0:
        return out
    rows = given.reshape(-1, columns)
    if len(rows) > MOST_ROWS:
        wide = weight.taken(None, rows.dtype)
        options = {"bias": bias, "activation": attrs["activation"], "residual": residual}
        return matmul(given, wide.T, dtype=dtype, **options)
    function = None if attrs["activation"] is None else ACTIVATIONS[attrs["activation"]]
    flat = out.reshape(1, len(rows), count)
    if residual is not None:
        residual = contiguous(residual).reshape(flat.shape)
    plane = device_properties(weight.device).plane_size
    grouped_product[-(-count // (PLANES * TOGETHER)), PLANES * plane](
        rows,
        weight.words,
        weight.scales,
        weight.minimums,
        bias,
        residual,
        flat,
        Blueprint(len(rows), weight.group, function),
        mode="unchecked",
    )
    return out


@register("embedding", "grouped bytes")
def _embedding(inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
    indices, table = inputs[0].dense(), inputs[1]
    check_indices(indices, table.shape[0], "embedding")
    flat = contiguous(indices).reshape(-1)
    return table.taken(flat, table.dtype.numpy).reshape(*indices.shape, table.shape[1])

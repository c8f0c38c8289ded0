"""Quantized weights as tensors: a storage kind, and the ops that read it.

`nn.Linear` asks for the op "linear" and does not know what its weight is made of.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from cubepy.errors import KernelTypeError
from cubepy.kernels.indexing.bounds import check_indices
from cubepy.kernels.matmul.matmul import matmul
from cubepy.kernels.movement.copy import contiguous
from cubepy.lang.dtypes import DType, f32, promote
from cubepy.quant.linear.gpu.dequantize import dense_copy, taken
from cubepy.quant.linear.gpu.layout import arranged_of
from cubepy.quant.linear.linear import quantized_linear
from cubepy.quant.weights.joined import joinable, joined
from cubepy.quant.weights.weight import QuantizedWeight
from cubepy.runtime import recording
from cubepy.runtime.device import Device, gpu_of
from cubepy.tensor import Storage, register
from cubepy.tensor.storage import HOST, home, moved, packed_linear


class Quantized(Storage):
    """A weight that stays packed in memory.

    Attributes:
        weight: the packed arrays.
        whole: the weight of several layers of which this one's rows are some, if they became
            `one_weight`.

    Example:
        >>> from cubepy import nn, quant
        >>> storage = quant.quantize(nn.Linear(64, 8), "int4",
        ...     measure_speed=False).model.weight.storage
        >>> isinstance(storage, Quantized), storage.weight.scheme.bits, storage.dense().shape
        (True, 4, (8, 64))
    """

    kind: ClassVar[str] = "quantized"
    __slots__ = ("_weight", "whole")

    def __init__(
        self, weight: QuantizedWeight, dtype: DType = f32, device: Device | None = None
    ) -> None:
        super().__init__(weight.shape, dtype, home(weight.codes) if device is None else device)
        self.weight = weight

    @property
    def weight(self) -> QuantizedWeight:
        """The packed arrays."""
        return self._weight

    @weight.setter
    def weight(self, weight: QuantizedWeight) -> None:
        self._weight, self.packed = weight, None
        self.whole: QuantizedWeight | None = None

    def arrays(self) -> dict[str, Any]:
        return self.weight.arrays()

    def read(self) -> list[Any]:
        weights = [self.weight] if self.whole is None else [self.weight, self.whole]
        found = [array for weight in weights for array in weight.arrays().values()]
        for arranged in filter(None, map(arranged_of, weights)):
            found += arranged.arrays()
        return found

    def plan(self) -> Any:
        w = self.weight
        return self.kind, w.shape, w.scheme, w.gain, w.minimums is None, self.dtype

    def operands(self) -> tuple[Any, ...] | None:
        found = super().operands()
        if gpu_of(self.device) is None:  # there, arrays that are arranged may come later
            self.packed = found
        return found

    def dense(self) -> Any:
        """A float copy of the whole weight: for looking at it, never for computing."""
        return moved(self.host(), self.device)

    def host(self) -> np.ndarray:
        return self.weight.on(HOST).dequantize().astype(self.dtype.numpy, copy=False)

    def floats(self, dtype: np.dtype) -> Any:
        """All elements as floats, where the weight is."""
        if gpu_of(self.device) is not None:
            return dense_copy(self.weight, dtype, scaled=True)
        return self.weight.dequantize().astype(dtype, copy=False)

    def with_dtype(self, dtype: DType) -> Quantized:
        if dtype is self.dtype:
            return self
        made = Quantized(self.weight, dtype, self.device)
        made.whole = self.whole
        return made

    def to(self, device: Device) -> Quantized:
        return (
            self if device == self.device else Quantized(self.weight.on(device), self.dtype, device)
        )


def parts_of_one(stores: Sequence[Quantized]) -> bool:
    """Whether weights are parts of one, in this order, or may become that."""
    whole = stores[0].whole
    if any(store.whole is not whole for store in stores):
        return False
    if whole is None:
        return joinable([store.weight for store in stores])
    return all(s.weight is part for s, part in zip(stores, _parts(whole, stores), strict=True))


def _parts(whole: QuantizedWeight, stores: Sequence[Quantized]) -> list[QuantizedWeight]:
    ends = list(itertools.accumulate(store.shape[0] for store in stores))
    return [whole.rows(a, b) for a, b in zip([0, *ends], ends, strict=False)]


def one_weight(stores: Sequence[Quantized]) -> QuantizedWeight:
    """One weight on a GPU with the rows of several, of `parts_of_one`. It is made at the first use,
    and they become parts of it: nothing is stored twice.
    """
    whole = stores[0].whole
    if whole is None:
        recording.spoil()  # a repetition of what is recorded now would join them again
        whole = joined([store.weight for store in stores])
        for store, part in zip(stores, _parts(whole, stores), strict=True):
            store.weight = part
            store.whole = whole
    return whole


@register("linear", "quantized")
def _linear(inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
    x, weight, bias, residual = packed_linear(inputs, Quantized, "quantized")
    dtype = promote(x.dtype, weight.dtype).numpy
    return quantized_linear(x.dense(), weight.weight, bias, residual, attrs["activation"], dtype)


@register("clone", "quantized")
def _clone(inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """Itself: packed weights never change."""
    return inputs[0]


@register("packed_product", "quantized")
def product_of_floats(inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """A product with the weight as floats, which live for the call."""
    a, weight = inputs
    return matmul(a.dense(), weight.floats(promote(a.dtype, weight.dtype).numpy))


@register("embedding", "quantized")
def _embedding(inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """Rows of an int4 table."""
    indices, table = inputs[0].dense(), inputs[1]
    if not isinstance(table, Quantized) or table.weight.scheme.group is None:
        raise KernelTypeError(
            "rows are taken of tables in int4, not of other quantized ones",
            hint="leave the embedding in float",
        )
    check_indices(indices, table.shape[0], "embedding")
    flat = contiguous(indices).reshape(-1)
    found = taken(table.weight, flat, table.dtype.numpy)
    return found.reshape(*indices.shape, table.shape[1])


@register("slice", "quantized")
def _slice(inputs: Sequence[Any], attrs: dict[str, Any]) -> Quantized:
    """Some rows of a weight, as attention takes its query, key and value projections from one
    weight.
    """
    storage = inputs[0]
    index = attrs["index"]
    whole = all(isinstance(part, tuple) for part in index) and all(
        p == (None, None, None) for p in index[1:]
    )
    if not index or not whole or (index[0][2] or 1) != 1:
        raise KernelTypeError(
            "of a quantized weight only whole rows can be taken, as weight[a:b]; the index "
            f"was {index}",
            hint="use weight.numpy() for a float copy",
        )
    start, stop, _ = slice(*index[0]).indices(storage.shape[0])
    if stop <= start:
        raise KernelTypeError(f"the rows {start}:{stop} of a quantized weight are none")
    return Quantized(storage.weight.rows(start, stop), storage.dtype, storage.device)

"""Keys and values of all positions that came, for every layer; programs write them in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from cubepy.errors import LaunchError, OutOfMemoryError
from cubepy.kernels.movement.copy import convert_into
from cubepy.kernels.movement.copy import copy as copied
from cubepy.lang.dtypes import DType, bf16, f16, f32
from cubepy.models.architectures.decoder import Decoder, DecoderConfig
from cubepy.runtime.device import gpu_of
from cubepy.tensor import Tensor, as_tensor
from cubepy.tensor.exposed import expose
from cubepy.tensor.namespace import zeros
from cubepy.tensor.storage import Dense

LEAST = 512
"""Positions of a first cache: pages that nobody wrote take no memory."""


def dtype_of(weights: DType, device: Any) -> DType:
    """The dtype of a cache: that of 16-bit weights on a GPU, else f32."""
    return weights if gpu_of(device) is not None and weights in (bf16, f16) else f32


class KeyValueCache:
    """The caches of all layers for a batch.

    Args:
        c: of the model.
        batch: rows.
        positions: that must have room.
        device: where they are.
        dtype: of keys and values.

    Attributes:
        layers: keys and values of each layer, (batch, groups, capacity, depth).
        lengths: how many positions each row holds.

    Raises:
        LaunchError: more positions than the model can see.
        OutOfMemoryError: there is no room for it.
    """

    def __init__(
        self, c: DecoderConfig, batch: int, positions: int, device: Any = None, dtype: DType = f32
    ) -> None:
        self.config, self.device, self.dtype = c, device, dtype
        self.lengths = np.zeros(batch, np.int64)
        self.capacity = self.rounded(positions)
        self.layers = [self.pair(self.capacity) for _ in range(c.layers)]

    def rounded(self, positions: int) -> int:
        """Positions in steps of powers of two, at most what the model can see."""
        if positions > self.config.context:
            raise LaunchError(
                f"{positions} positions are more than the {self.config.context} of the model",
                hint="give a shorter prompt",
            )
        return min(max(LEAST, 1 << (positions - 1).bit_length()), self.config.context)

    def pair(self, capacity: int, rows: int | None = None) -> tuple[Tensor, Tensor]:
        """Empty keys and values of a layer."""
        c = self.config
        shape = (len(self.lengths) if rows is None else rows, c.groups, capacity, c.depth)
        try:
            if self.device is not None and gpu_of(self.device) is not None:
                keys, values = (
                    zeros(shape, dtype=self.dtype, device=self.device) for _ in range(2)
                )
            else:  # pages that nobody writes take no memory
                both = (as_tensor(np.zeros(shape, self.dtype.numpy)) for _ in range(2))
                keys, values = both if self.device is None else (t.to(self.device) for t in both)
        except MemoryError:
            size = 2 * c.layers * self.dtype.itemsize * int(np.prod(shape))
            raise OutOfMemoryError(f"no memory for a cache of {size} bytes") from None
        return keys, values

    def grow(self, positions: int) -> None:
        """Make room for so many positions; what was there stays."""
        if positions <= self.capacity:
            return
        capacity = self.rounded(positions)
        larger = []
        for old in self.layers:
            new = self.pair(capacity)
            for small, large in zip(old, new, strict=True):
                large[:, :, : self.capacity] = small
            larger.append(new)
        self.layers, self.capacity = larger, capacity

    def copy_rows(self, sources: Sequence[int], targets: Sequence[int], positions: int) -> None:
        """Give rows what others hold, all at once: rows may be among both.

        Args:
            sources, targets: numbers of rows; a target takes what its source had before.
            positions: how many are copied.
        """
        moved = [(s, t) for s, t in zip(sources, targets, strict=True) if s != t]
        if not moved or not positions:
            return
        for pair in self.layers:
            for tensor in pair:
                array = cast(Dense, tensor.storage).array
                expose(array)
                taken = [copied(array[s, :, :positions]) for s, _ in moved]
                for (_, t), rows in zip(moved, taken, strict=True):
                    convert_into(array[t, :, :positions], rows)
        before = self.lengths.copy()
        for s, t in moved:
            self.lengths[t] = before[s]

    def row(self, number: int) -> list[tuple[Tensor, Tensor]]:
        """The caches of one row, in the same memory."""
        found = []
        for pair in self.layers:
            arrays = [cast(Dense, t.storage).array[number : number + 1] for t in pair]
            found.append((as_tensor(arrays[0]), as_tensor(arrays[1])))
        return found

    def store(self, number: int, given: Sequence[Sequence[Tensor]]) -> None:
        """Write a row's first positions: of each layer keys and values (1, groups, n, depth)."""
        for pair, new in zip(self.layers, given, strict=True):
            for held, one in zip(pair, new, strict=True):
                array = cast(Dense, held.storage).array
                expose(array)
                convert_into(
                    array[number : number + 1, :, : one.shape[2]], cast(Dense, one.storage).array
                )


def cache_for(model: Decoder, rows: int, positions: int) -> KeyValueCache:
    """Empty caches where a model is, in the dtype that it has there; as far as it can see.

    Example:
        >>> c = DecoderConfig(vocabulary=9, width=8, layers=1, heads=2, groups=1, depth=4, inner=16,
        ...     context=32)
        >>> cache_for(Decoder(c), 3, 1000).layers[0][0].shape
        (3, 1, 32, 4)
    """
    weight, c = model.embed.weight, model.config
    dtype = dtype_of(weight.dtype, weight.device)
    return KeyValueCache(c, rows, min(positions, c.context), weight.device, dtype)

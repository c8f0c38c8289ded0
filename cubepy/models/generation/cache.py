"""Keys and values of all positions that came, for every layer; programs write them in place."""

from __future__ import annotations

from typing import Any

import numpy as np

from cubepy.errors import LaunchError, OutOfMemoryError
from cubepy.lang.dtypes import DType, bf16, f16, f32
from cubepy.models.architectures.decoder import DecoderConfig
from cubepy.runtime.device import gpu_of
from cubepy.tensor import Tensor, as_tensor
from cubepy.tensor.namespace import zeros

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

    def pair(self, capacity: int) -> tuple[Tensor, Tensor]:
        """Empty keys and values of a layer."""
        c = self.config
        shape = (len(self.lengths), c.groups, capacity, c.depth)
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

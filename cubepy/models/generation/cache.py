"""Keys and values of all positions that came, for every layer; programs write them in place."""

from __future__ import annotations

from typing import Any

import numpy as np

from cubepy.errors import LaunchError, OutOfMemoryError
from cubepy.models.architectures.decoder import DecoderConfig
from cubepy.tensor import Tensor, as_tensor

LEAST = 512
"""Positions of a first cache: pages that nobody wrote take no memory."""


class KeyValueCache:
    """The caches of all layers for a batch.

    Args:
        c: of the model.
        batch: rows.
        positions: that must have room.
        device: where they are.

    Attributes:
        layers: keys and values of each layer, (batch, groups, capacity, depth).
        lengths: how many positions each row holds.

    Raises:
        LaunchError: more positions than the model can see.
        OutOfMemoryError: there is no room for it.
    """

    def __init__(self, c: DecoderConfig, batch: int, positions: int, device: Any = None) -> None:
        self.config, self.device = c, device
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
            found = [as_tensor(np.zeros(shape, np.float32)) for _ in range(2)]
        except MemoryError:
            raise OutOfMemoryError(
                f"no memory for a cache of {2 * c.layers * 4 * int(np.prod(shape))} bytes"
            ) from None
        keys, values = found if self.device is None else (t.to(self.device) for t in found)
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

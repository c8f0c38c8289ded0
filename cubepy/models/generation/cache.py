"""Keys and values of all positions that came, for every layer; programs write them in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from cubepy.errors import LaunchError, OutOfMemoryError
from cubepy.kernels.movement.copy import convert_into
from cubepy.kernels.movement.copy import copy as copied
from cubepy.models.architectures.decoder import DecoderConfig
from cubepy.tensor import Tensor, as_tensor
from cubepy.tensor.exposed import expose
from cubepy.tensor.storage import Dense

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

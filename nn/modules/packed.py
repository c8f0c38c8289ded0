"""Sequences of several lengths, step by step: what recurrent layers take in the place of padded
ones.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cubepy.tensor import Tensor, as_tensor
from cubepy.tensor.namespace import where


class PackedSequence(NamedTuple):
    """The elements of all sequences at step 0, then those at step 1 of the sequences that have one,
    and so on; sequences are in the order of falling lengths. `nn.utils.rnn` makes them.

    Attributes:
        data: (sum of lengths, ...).
        batch_sizes: how many sequences have each step; numbers of the host.
        sorted_indices: which sequences those of the packed order are, or None.
        unsorted_indices: the other way round.
    """

    data: Tensor
    batch_sizes: np.ndarray
    sorted_indices: np.ndarray | None = None
    unsorted_indices: np.ndarray | None = None

    def padded(self, value: float = 0.0) -> tuple[Tensor, np.ndarray]:
        """(L, N, ...) in the packed order, and the lengths."""
        sizes, n = self.batch_sizes, int(self.batch_sizes.max(initial=0))
        steps = np.arange(len(sizes))
        lengths = (sizes[:, None] > np.arange(n)[None]).sum(0)
        index = np.minimum(
            (np.cumsum(sizes) - sizes)[:, None] + np.arange(n)[None], len(self.data) - 1
        )
        given = steps[:, None] < lengths[None]
        x = self.data[as_tensor(index.reshape(-1))].reshape(*index.shape, *self.data.shape[1:])
        seen = as_tensor(given.reshape(*given.shape, *(1,) * (x.ndim - 2))).to(x.device)
        return where(seen, x, value).astype(x.dtype), lengths

    def like(self, x: Tensor) -> PackedSequence:
        """What a layer made of the padded sequences, packed again."""
        flat = x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])
        rows = as_tensor(rows_of(self.batch_sizes, x.shape[1]))
        return self._replace(data=flat[rows])

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """With its data on another device or in another dtype."""
        return self._replace(data=self.data.to(*args, **kwargs))


def rows_of(batch_sizes: np.ndarray, batch: int) -> np.ndarray:
    """Which rows of (L * N, ...) are packed."""
    steps = np.arange(len(batch_sizes))[:, None]
    n = np.arange(batch)[None]
    return (steps * batch + n)[n < batch_sizes[:, None]]

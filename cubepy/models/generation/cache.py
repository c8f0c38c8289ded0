"""Keys and values of the positions that came, for every layer; programs write them in place.

A layer that looks back at a window keeps a ring: position p is at p modulo its room, which is the
window and what is read at once. Keys and values are floats, or bytes with a scale for each group of
32 numbers of a head.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from cubepy.errors import ArgumentError, DTypeError, LaunchError, OutOfMemoryError
from cubepy.kernels.attention.append import groups_of
from cubepy.kernels.entry.options import shown
from cubepy.kernels.movement.copy import convert_into
from cubepy.kernels.movement.copy import copy as copied
from cubepy.lang.dtypes import DType, as_dtype, bf16, f16, f32, i8
from cubepy.models.architectures.decoder import Decoder, DecoderConfig
from cubepy.runtime.device import current, gpu_of, use
from cubepy.tensor import Tensor, as_tensor
from cubepy.tensor.exposed import expose
from cubepy.tensor.namespace import zeros
from cubepy.tensor.program.plans.steady import Steady
from cubepy.tensor.storage import Dense

LEAST = 512
"""Positions of a first cache: pages that nobody wrote take no memory."""
PIECE = 512
"""Tokens of a prompt that are read at once."""


def dtype_of(weights: DType, device: Any) -> DType:
    """The dtype of a cache: that of 16-bit weights on a GPU, else f32."""
    return weights if gpu_of(device) is not None and weights in (bf16, f16) else f32


def cache_dtype_of(given: Any) -> DType:
    """What a cache can hold: f32, f16, bf16, or int8 with scales of groups.

    Raises:
        ArgumentError: something else.

    Example:
        >>> cache_dtype_of("int8")
        cb.i8
    """
    try:
        found = as_dtype(given)
    except DTypeError:
        found = None
    if found not in (f32, f16, bf16, i8):
        raise ArgumentError(
            f"cache_dtype must be f32, f16, bf16 or int8, not {shown(given)}",
            hint="None is the dtype that goes with the model",
        )
    return found


class KeyValueCache:
    """The caches of all layers for a batch.

    Args:
        c: of the model.
        batch: rows.
        positions: that must have room.
        device: where they are.
        dtype: of keys and values; i8: bytes with scales (f32) of groups of 32 numbers.
        chunk: positions that a launch writes to a row at most; rings have room for them and the
            window.

    Attributes:
        layers: of each layer keys and values (batch, groups, room, depth), and with bytes the
            scales of both (batch, groups, room, groups of numbers).
        capacity: positions of a layer without a window.
        oldest: (batch, windows) the first position that rings still have, by their windows.

    Raises:
        LaunchError: more positions than the model can see.
        OutOfMemoryError: there is no room for it.
    """

    def __init__(
        self,
        c: DecoderConfig,
        batch: int,
        positions: int,
        device: Any = None,
        dtype: DType = f32,
        chunk: int = PIECE,
    ) -> None:
        self.config, self.device, self.dtype = c, device, dtype
        self.batch, self.chunk = batch, chunk
        self.windows = sorted({w for w in c.windows if w})
        self.oldest = np.zeros((batch, len(self.windows)), np.int64)
        self.capacity = self.rounded(positions)
        self.layers = Steady([self.empty(n, self.room(n, self.capacity)) for n in range(c.layers)])

    def rounded(self, positions: int) -> int:
        """Positions in steps of powers of two, at most what the model can see."""
        if positions > self.config.context:
            raise LaunchError(
                f"{positions} positions are more than the {self.config.context} of the model",
                hint="give a shorter prompt",
            )
        return min(max(LEAST, 1 << (positions - 1).bit_length()), self.config.context)

    def room(self, layer: int, capacity: int) -> int:
        """Positions of a layer, where layers without a window have so many."""
        window = self.config.window(layer)
        return min(capacity, window + self.chunk) if window else capacity

    @property
    def nbytes(self) -> int:
        """Bytes of all layers."""
        return sum(t.size * t.dtype.itemsize for layer in self.layers for t in layer)

    def empty(self, layer: int, room: int, rows: int | None = None) -> tuple[Tensor, ...]:
        """Empty keys and values of a layer, and scales of bytes."""
        c = self.config
        shape = (self.batch if rows is None else rows, c.groups, room)
        kinds = [(c.depth, self.dtype)] * 2
        if self.dtype is i8:
            kinds += [(groups_of(c.depth), f32)] * 2
        try:
            return tuple(self.zeros((*shape, width), dtype) for width, dtype in kinds)
        except MemoryError:
            size = sum(int(np.prod(shape)) * width * d.itemsize for width, d in kinds)
            raise OutOfMemoryError(f"no memory for a cache of {c.layers} x {size} bytes") from None

    def zeros(self, shape: tuple[int, ...], dtype: DType) -> Tensor:
        """Zeros where the cache is."""
        if self.device is not None and gpu_of(self.device) is not None:
            return zeros(shape, dtype=dtype, device=self.device)
        found = as_tensor(np.zeros(shape, dtype.numpy))  # pages that nobody writes take no memory
        return found if self.device is None else found.to(self.device)

    def grow(self, positions: int) -> None:
        """Make room for so many positions; what was there stays. Rings grow as long as no text went
        round in them.
        """
        if positions <= self.capacity:
            return
        capacity = self.rounded(positions)
        larger = []
        for n, old in enumerate(self.layers):
            before, room = old[0].shape[2], self.room(n, capacity)
            if before == room:
                larger.append(old)
                continue
            new = self.empty(n, room)
            for small, large in zip(old, new, strict=True):
                self.write(array_of(large)[:, :, :before], array_of(small))
            larger.append(new)
        self.layers, self.capacity = Steady(larger), capacity

    def write(self, target: Any, source: Any) -> None:
        """Write an array of the same dtype where the cache is."""
        if type(target) is np.ndarray:  # a row is small, and launches are not free
            target[...] = source
            return
        with use(current() if self.device is None else self.device):
            convert_into(target, source)

    # What rings have

    def wrote(self, rows: Any, ends: Any, length: int) -> None:
        """Take note that so many positions of rows were written, the last ones before `ends`."""
        for k, window in enumerate(self.windows):
            room = min(self.capacity, window + self.chunk)
            if room >= window + length - 1:  # else what is beyond was dropped
                self.oldest[rows, k] = np.maximum(self.oldest[rows, k], np.subtract(ends, room))

    def keeps(self, row: int, positions: int) -> bool:
        """Whether a text can go on behind so many positions of a row."""
        return all(
            max(0, positions - window + 1) >= int(self.oldest[row, k])
            for k, window in enumerate(self.windows)
        )

    def forget(self, row: int) -> None:
        """A row begins anew."""
        self.oldest[row] = 0

    # Rows

    def copy_rows(self, sources: Sequence[int], targets: Sequence[int], positions: int) -> None:
        """Give rows what others hold, all at once: rows may be among both.

        Args:
            sources, targets: numbers of rows; a target takes what its source had before.
            positions: how many are copied.
        """
        moved = [(s, t) for s, t in zip(sources, targets, strict=True) if s != t]
        if not moved or not positions:
            return
        for layer in self.layers:
            for tensor in layer:
                array = array_of(tensor)
                with use(current() if self.device is None else self.device):
                    taken = [copied(array[s, :, :positions]) for s, _ in moved]
                for (_, t), rows in zip(moved, taken, strict=True):
                    self.write(array[t, :, :positions], rows)
        before = self.oldest.copy()
        for s, t in moved:
            self.oldest[t] = before[s]

    def row(self, number: int) -> list[tuple[Tensor, ...]]:
        """The caches of one row, in the same memory."""
        return [
            tuple(as_tensor(array_of(t)[number : number + 1]) for t in layer)
            for layer in self.layers
        ]

    def store(self, number: int, given: Sequence[Sequence[Tensor]], at: int, length: int) -> None:
        """Write the first positions of a row: what `at` of other caches, no rings, begins with."""
        for layer, new in zip(self.layers, given, strict=True):
            for held, one in zip(layer, new, strict=True):
                target, source = array_of(held), cast(Dense, one.storage).array
                room = target.shape[2]
                first = max(0, length - room)  # what is before a ring's last round is gone
                wrap = -(-first // room) * room  # where a round begins
                for low, high in ((first, min(wrap, length)), (wrap, length)):
                    if low < high:
                        slot = low % room
                        self.write(
                            target[number, :, slot : slot + high - low], source[at, :, low:high]
                        )
        self.wrote(number, length, 1)


def array_of(tensor: Tensor) -> Any:
    """The memory of a tensor, to be written."""
    array = cast(Dense, tensor.storage).array
    expose(array)
    return array


def cache_for(
    model: Decoder, rows: int, positions: int, dtype: DType | None = None, chunk: int = PIECE
) -> KeyValueCache:
    """Empty caches where a model is, in the dtype that it has there; as far as it can see.

    Example:
        >>> c = DecoderConfig(vocabulary=9, width=8, layers=1, heads=2, groups=1, depth=4, inner=16,
        ...     context=32)
        >>> cache_for(Decoder(c), 3, 1000).layers[0][0].shape
        (3, 1, 32, 4)
    """
    weight, c = model.words.weight, model.config
    dtype = dtype_of(weight.dtype, weight.device) if dtype is None else dtype
    return KeyValueCache(c, rows, min(positions, c.context), weight.device, dtype, chunk)

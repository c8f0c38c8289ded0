"""Keys and values that `GroupQueryAttention` keeps: as floats or codes, all of them or those of a
window.
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from cubepy import tensor as T
from cubepy.models.onnx.ops.shapes import padded
from cubepy.models.onnx.records import Call
from cubepy.tensor import Tensor
from cubepy.tensor.array import apply

FP8 = np.dtype(ml_dtypes.float8_e4m3fn)
LARGEST_FP8 = 448.0
HIDDEN = 1 << 40
"""A position behind all others: where a cache of a window holds nothing yet."""


@dataclass(frozen=True)
class Form:
    """How numbers of keys, or of values, are kept.

    Attributes:
        dtype: of the cache.
        bits: of a code; 4 are two in a byte, 0 no codes.
        scale: what a code is multiplied by, one or one for each channel of a head; None: no codes.
    """

    dtype: np.dtype
    bits: int
    scale: Tensor | None

    @staticmethod
    def of(call: Call, name: str, cache: Tensor, scale: Tensor | None, groups: int) -> Form:
        """That of the cache of a node.

        Args:
            call: the node.
            name: "k" or "v".
            cache: (B, G, S, D).
            scale: as the file has it.
            groups: heads of keys.
        """
        kind = call.get(f"{name}_quant_type", "NONE")
        if kind == "NONE":
            return Form(cache.dtype.numpy, 0, None)
        if scale is None:
            raise call.refuse(f"a cache of codes without {name}_scale")
        one = kind == "PER_TENSOR" or scale.size == 1
        shape = (1,) * 4 if one else (1, groups, 1, scale.size // groups)
        bits = 4 if call.get("kv_cache_bit_width", 8) == 4 else 8
        return Form(cache.dtype.numpy, bits, scale.astype("f32").reshape(*shape))

    def kept(self, x: Tensor) -> Tensor:
        """Numbers (B, G, L, D) as they stand in the cache."""
        if self.scale is None:
            return x
        y = x.astype("f32") / self.scale
        if self.dtype == FP8:
            return y.maximum(-LARGEST_FP8).minimum(LARGEST_FP8).astype(FP8)
        half = 1 << (self.bits - 1)
        codes = y.round().maximum(-half).minimum(half - 1)
        if self.bits == 8:
            return codes.astype(self.dtype)
        codes = (codes + half).astype("u8")
        return codes[..., 0::2] | codes[..., 1::2] * 16

    def read(self, cache: Tensor, dtype: np.dtype) -> Tensor:
        """What stands in a cache as numbers."""
        if self.scale is None:
            return cache
        if self.bits == 4 and self.dtype != FP8:
            pair = T.stack([cache & 15, cache >> 4], axis=-1)
            codes = pair.reshape(*cache.shape[:3], 2 * cache.shape[3]).astype("f32") - 8.0
        else:
            codes = cache.astype("f32")
        return (codes * self.scale).astype(dtype)


@dataclass(frozen=True)
class Window:
    """A cache of `room` positions of which a window stays: rows lie in the order of positions,
    from row 0 on, and `room - window + 1` of them go at once.

    Attributes:
        room: positions that there is memory for.
        window: how many keys a query sees.
        before: how many positions each sequence has had, (B,).
        after: how many it has with the new ones, (B,).
        new: how many rows come, of which the first may be new ones.
    """

    room: int
    window: int
    before: Tensor
    after: Tensor
    new: int

    def held(self, count: Tensor) -> Tensor:
        """How many positions are there once there were `count`."""
        step = self.room - self.window + 1
        return count - ((count - self.room).maximum(0) + (step - 1)) // step * step

    def positions(self) -> Tensor:
        """Of the rows of the old cache and of the new ones, (B, room + new)."""
        before = self.before.reshape(-1, 1)
        held = self.held(before)
        row = T(np.arange(self.room, dtype=np.int64), device=before.device).reshape(1, -1)
        old = T.where(row < held, row + (before - held), T.full_like(row + before, HIDDEN))
        new = T(np.arange(self.new, dtype=np.int64), device=before.device).reshape(1, -1) + before
        return T.concat([old, new], axis=1)

    def moved(self, both: Tensor) -> Tensor:
        """The next cache (B, G, room, D), of the old one and the new rows behind it."""
        before = self.before.reshape(-1, 1)
        after = self.after.reshape(-1, 1)
        row = T(np.arange(self.room, dtype=np.int64), device=before.device).reshape(1, -1)
        position = row + (after - self.held(after))
        old = position - (before - self.held(before))
        row = T.where(position < before, old, position - before + self.room)
        return rows_of(both, row.minimum(both.shape[2] - 1), 2)

    def columns(self, bias: Tensor) -> Tensor:
        """What is added to scores of all positions (B or 1, H or 1, L, S), for those of
        `positions`.
        """
        return rows_of(bias, self.positions().minimum(bias.shape[3] - 1), 3)


def rows_of(x: Tensor, index: Tensor, axis: int) -> Tensor:
    """Of each batch of x (B or 1, G, ...) its own rows (B, R) along an axis."""
    if index.shape[0] == 1:
        return apply("take", x, index.reshape(-1), axis=axis)
    shape = [index.shape[0], *x.shape[1:]]
    x = x.expand(*shape)
    shape[axis] = index.shape[1]
    index = index.reshape(*(n if k in (0, axis) else 1 for k, n in enumerate(shape)))
    return apply("take_along_axis", x, index.expand(*shape), axis=axis)


def appended(old: Tensor, new: Tensor, before: Tensor, valid: Tensor | None, size: int) -> Tensor:
    """A cache (B, G, S, D) of so many positions to which each sequence's own are written behind
    those that it has.

    Args:
        old: the cache.
        new: (B, G, L, D).
        before: how many positions each has, (B,).
        valid: how many new ones are there, (B,); None: all.
        size: positions of the result.
    """
    count, room = new.shape[2], old.shape[2]
    if count == 0:
        return old
    if count == 1 and size > room and valid is None:  # behind all, or among what is there
        column = T(np.arange(room, dtype=np.int64), device=new.device).reshape(1, 1, room, 1)
        here = column == before.reshape(-1, 1, 1, 1)
        return T.concat([T.where(here, new, old), new], axis=2)
    if size > room:
        old = padded(old, [(0, 0), (0, 0), (0, size - room), (0, 0)], 0)
    column = T(np.arange(size, dtype=np.int64), device=new.device).reshape(1, 1, size, 1)
    at = column - before.reshape(-1, 1, 1, 1)
    inside = (at >= 0) & (at < (count if valid is None else valid.reshape(-1, 1, 1, 1)))
    if count > 1:
        index = at.maximum(0).minimum(count - 1).expand(*new.shape[:2], size, new.shape[3])
        new = apply("take_along_axis", new, index, axis=2)
    return T.where(inside, new, old)

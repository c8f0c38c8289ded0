"""Elements as unsigned keys whose order is theirs (NaN last), and back."""

from __future__ import annotations

from dataclasses import dataclass

import cubepy as cb


@dataclass(frozen=True)
class Keys:
    """How bits become keys.

    Attributes:
        kind: "float", "signed" or "unsigned".
        bits: of an element.
        infinity: the bits of positive infinity, for floats; what is larger is NaN.
        descending: whether large keys come first.
        same_zeros: whether -0 and +0 have one key (then the sign is lost).
    """

    kind: str
    bits: int
    infinity: int
    descending: bool
    same_zeros: bool

    @property
    def ones(self) -> int:
        """All bits set."""
        return (1 << self.bits) - 1

    @property
    def top(self) -> int:
        """The highest bit."""
        return 1 << (self.bits - 1)

    def masks(self) -> tuple[int, ...]:
        """Numbers that say the same: `masked_key` and `unmasked_key` take them, so that one code
        serves all kinds.

        Keys of 64 bits are signed here, as bits: units without AVX-512 compare no others.
        """
        turned = self.top if self.bits == 64 else 0
        other = (self.ones if self.descending else 0) ^ turned
        first = {
            "float": (self.ones, self.top),
            "signed": (self.top, self.top),
            "unsigned": (0, 0),
        }[self.kind]
        negative, positive = (mask ^ other for mask in first)
        largest = self.infinity if self.kind == "float" else self.top - 1
        high = (negative, positive) if (negative ^ self.top) & self.top else (positive, negative)
        return (negative, positive, *high, largest, self.ones ^ other)


@cb.func
def masked_key(value, bits: cb.Comptime[int], masks):
    """`to_key` of what has so many bits, by `Keys.masks`."""
    v = cb.cast(value, masks[0].dtype)
    size = v & v.dtype((1 << (bits - 1)) - 1)
    key = v ^ cb.select(size != v, cb.splat(masks[0], v.lanes), cb.splat(masks[1], v.lanes))
    return cb.select(size > masks[4], cb.splat(masks[5], v.lanes), key)


@cb.func
def unmasked_key(key, bits: cb.Comptime[int], masks):
    """The bits that `masked_key` made a key of."""
    size = key & key.dtype((1 << (bits - 1)) - 1)
    return key ^ cb.select(
        size != key, cb.splat(masks[2], key.lanes), cb.splat(masks[3], key.lanes)
    )


@cb.func
def to_key(value, keys):
    """The key of an element's bits: larger elements have larger keys, NaN (of any sign) the
    largest.
    """
    wide = cb.u64 if keys.bits == 64 else cb.u32
    v = cb.cast(value, wide)
    if keys.kind == "float":
        size = v & wide(keys.top - 1)
        key = cb.select(size == v, v | wide(keys.top), v ^ wide(keys.ones))
        if keys.same_zeros:
            key = cb.select(size == 0, wide(keys.top), key)
        v = cb.select(size > wide(keys.infinity), wide(keys.ones), key)
    elif keys.kind == "signed":
        v = v ^ wide(keys.top)
    if keys.descending:
        v = v ^ wide(keys.ones)
    return v


@cb.func
def from_key(key, keys):
    """The bits that a key was made of."""
    wide = cb.u64 if keys.bits == 64 else cb.u32
    v = key
    if keys.descending:
        v = v ^ wide(keys.ones)
    if keys.kind == "float":
        v = cb.select(v >= wide(keys.top), v ^ wide(keys.top), v ^ wide(keys.ones))
    elif keys.kind == "signed":
        v = v ^ wide(keys.top)
    return v


@cb.func
def digit_of(key, shift, digits: cb.Comptime[int]):
    """`digits` bits of a key from `shift` on."""
    return cb.cast((key >> cb.cast(shift, key.dtype)) & key.dtype((1 << digits) - 1), cb.i32)


@cb.func
def key_at(x, row, i, keys, first: cb.Comptime[bool]):
    """The key of element i of a row; only the first pass reads elements, later ones keys."""
    if first:
        return to_key(x[row, i], keys)
    return x[row, i]

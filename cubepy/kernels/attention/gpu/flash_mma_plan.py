"""How the attention by the matrix units of a plane is cut: blocks, planes and stages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cubepy.kernels.attention.gpu.operands import copyable
from cubepy.runtime.device import DeviceProperties

PAD = 4
"""Words between rows of a tile in shared memory, so that eight rows lie in different banks."""


class Blocks:
    """What blocks of keys and values take; a plan has `depth`, `width`, `keys` and `parts`."""

    depth: int
    width: int
    keys: int
    parts: int

    @property
    def key_words(self) -> int:
        """Words of a block of keys in shared memory."""
        return self.parts * self.keys * (self.depth // 2 + PAD)

    @property
    def value_words(self) -> int:
        """Words of a block of values in shared memory."""
        return self.parts * self.keys * (self.width // 2 + PAD)


@dataclass(frozen=True)
class PlaneAttention(Blocks):
    """What changes the code.

    Attributes:
        depth, width: columns of queries and keys, and of values, rounded up to 16.
        planes: planes of a cube, each with 16 query rows.
        keys: keys of a block, a multiple of 16.
        parts: 1, or 3 for f32.
        dtype: of operands: "f16" or "bf16".
        causal: a query sees keys up to its own position.
        mask: "none", "bool" (true: may look), "words" (the same, four of them a word) or "float"
            (added to the scores).
        words: inputs are whole blocks of 16 bytes and come as arrays of words; one part.
    """

    depth: int
    width: int
    planes: int
    keys: int
    parts: int
    dtype: str
    causal: bool
    mask: str
    words: bool = False

    @property
    def stages(self) -> int:
        """Blocks of keys that are there or under way."""
        return 2 if self.words else 1

    @property
    def mask_words(self) -> int:
        """Words of a block's part of the mask in shared memory."""
        return 16 * self.planes * (self.keys // 4 + PAD) if self.mask == "words" else 0

    def shared_bytes(self) -> int:
        """Shared memory of a cube."""
        queries = self.parts * 16 * self.planes * (self.depth // 2 + PAD)
        return 4 * (
            queries + self.stages * (self.key_words + self.value_words + self.mask_words) + 4
        )


@dataclass(frozen=True)
class Shape:
    """What may be chosen by measuring: planes of a cube and keys of a block; zeros leave it to the
    rules.
    """

    planes: int = 0
    keys: int = 0


SHAPES = tuple(
    Shape(planes, keys) for planes, keys in ((4, 64), (4, 32), (4, 16), (2, 16), (1, 16))
)
"""What the rules choose from, the first that fits."""


def plan_for(
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    kind: str,
    causal: bool,
    p: DeviceProperties,
    shape: Shape = Shape(),
) -> PlaneAttention | None:
    """The blueprint for a problem, or None where this routine cannot do it; `kind` of mask as
    `PlaneAttention.mask`.
    """
    depth, width = -(-q.shape[3] // 16) * 16, -(-v.shape[3] // 16) * 16
    if "mma" not in p.features or max(depth, width) > 256 or min(depth, width) == 0:
        return None
    narrow = q.dtype.itemsize == 2 and q.dtype == k.dtype == v.dtype
    dtype = "bf16" if not narrow or q.dtype.name == "bfloat16" else "f16"
    words = (
        narrow and "copy_async" in p.features and all(copyable(a, repeats=True) for a in (q, k, v))
    )
    if kind == "bool" and words and copyable(mask, repeats=True):
        kind = "words"
    for one in SHAPES if shape == Shape() else (shape,):
        plan = PlaneAttention(
            depth, width, one.planes, one.keys, 1 if narrow else 3, dtype, causal, kind, words
        )
        few = q.shape[2] <= 8 * one.planes and one.planes > 1 and shape == Shape()
        if plan.shared_bytes() <= p.max_shared_memory and not few:
            return plan
    return None

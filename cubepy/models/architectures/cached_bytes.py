"""New keys and values in an empty cache, and what it has of them: the same, or bytes with scales.

A prompt sees what the cache has, so that a text does not depend on how its prompt was read: at
once, piece by piece, or from what another text left.
"""

from __future__ import annotations

from collections.abc import Sequence

import cubepy as cb
from cubepy.kernels.attention.append import GROUP, LARGEST, groups_of
from cubepy.tensor import Tensor
from cubepy.tensor.namespace import concat, where, zeros


def stored(cache: Sequence[Tensor], k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Write keys and values (B, G, L, D), rotated already, to the beginning of a cache; gives them
    as it has them.
    """
    length = k.shape[2]
    found = []
    for held, scales, new in zip(cache[:2], cache[2:] or (None, None), (k, v), strict=True):
        if scales is None:
            kept = new.astype(held.dtype)
            held[:, :, :length] = kept
            found.append(kept.astype(new.dtype))
            continue
        codes, by = quantized(new)
        held[:, :, :length] = codes.astype(cb.i8)
        scales[:, :, :length] = by
        found.append(dequantized(codes, by).astype(new.dtype))
    return found[0], found[1]


def quantized(x: Tensor) -> tuple[Tensor, Tensor]:
    """Codes from -127 to 127 (..., D), as f32, and the scales (..., groups of 32 numbers).

    Example:
        >>> codes, scales = quantized(cb.tensor([[-2.0, 1.0, 0.5]]))
        >>> codes.numpy(), scales.shape
        (array([[-127.,   64.,   32.]], dtype=float32), (1, 1))
    """
    width, groups = x.shape[-1], groups_of(x.shape[-1])
    x = x.astype(cb.f32)
    if width % GROUP:
        rest = groups * GROUP - width
        x = concat([x, zeros((*x.shape[:-1], rest), dtype=cb.f32, device=x.device)], axis=-1)
    parted = x.reshape(*x.shape[:-1], groups, GROUP)
    largest = parted.abs().max(axis=-1, keepdims=True)
    inverse = where(largest > 0, LARGEST / where(largest > 0, largest, 1.0), 0.0)
    codes = (parted * inverse).round().reshape(*x.shape[:-1], groups * GROUP)[..., :width]
    return codes, (largest / LARGEST).squeeze(-1)


def dequantized(codes: Tensor, scales: Tensor) -> Tensor:
    """Codes (..., D) times the scales of their groups."""
    width, groups = codes.shape[-1], scales.shape[-1]
    by = scales.unsqueeze(-1).expand(*scales.shape, GROUP).reshape(*codes.shape[:-1], -1)
    return codes * by[..., :width] if groups * GROUP != width else codes * by

"""What models are called with: tokens, and which of them are to be seen."""

from __future__ import annotations

from typing import Any

from cubepy.errors import DTypeError, ShapeError
from cubepy.tensor import Tensor, as_tensor


def as_tokens(tokens: Any, device: Any) -> Tensor:
    """Tokens (batch, length) on a device.

    Raises:
        DTypeError: what are no integers.
        ShapeError: another number of axes, or no token at all.

    Example:
        >>> as_tokens([[1, 2, 3]], "cpu").shape
        (1, 3)
    """
    found = as_tensor(tokens).to(device)
    if not found.dtype.is_int and found.shape[-1:] != (0,):
        raise DTypeError(f"tokens are integers, not {found.dtype.name}")
    if found.ndim != 2 or 0 in found.shape:
        raise ShapeError(
            f"tokens are (batch, length), at least one of each, not {found.shape}",
            hint="one text is a batch of one: [tokens]",
        )
    return found


def seen_of(tokens: Tensor, mask: Any, padding: int) -> Tensor:
    """Which tokens are to be seen: where a mask (batch, length) is not 0, or, without one, those
    that are not the padding.

    Raises:
        ShapeError: a mask of another shape than the tokens.
    """
    if mask is None:
        return tokens != padding
    found = as_tensor(mask).to(tokens.device)
    if found.shape != tokens.shape:
        raise ShapeError(f"a mask has the shape of the tokens, {tokens.shape}, not {found.shape}")
    return found != 0

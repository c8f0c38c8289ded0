"""Activations as functions of arrays."""

from __future__ import annotations

from typing import Any

from cubepy.errors import DTypeError, ShapeError
from cubepy.kernels.elementwise.map import map
from cubepy.kernels.entry.arguments import array_of
from cubepy.kernels.primitives import functions


def gelu(x: Any, approximate: str = "none", *, out: Any = None) -> Any:
    """Gaussian error linear unit, as `torch.nn.functional.gelu`.

    Args:
        x: array of floats.
        approximate: "none" (with the error function) or "tanh".
        out: array to write, x itself included.

    Raises:
        ShapeError: another `approximate`, or a shape of `out` that does not fit.
        DTypeError: x holds integers.

    Example:
        >>> import numpy as np
        >>> gelu(np.zeros(2, np.float32))
        array([0., 0.], dtype=float32)
    """
    forms = {"none": functions.gelu_erf, "tanh": functions.gelu_tanh}
    if not isinstance(approximate, str) or approximate not in forms:
        raise ShapeError(f'approximate is "none" or "tanh", not {approximate!r}')
    dtype = x.dtype if hasattr(x, "__cubepy_function__") else array_of(x, "x").dtype
    if dtype.kind in "iub":
        raise DTypeError(f"x must hold floats, not {dtype}", hint="x.astype(np.float32)")
    return map(forms[approximate], x, out=out)

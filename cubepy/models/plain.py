"""Lists and numbers, as the tensors that a graph takes."""

from __future__ import annotations

from typing import Any

import numpy as np

from cubepy.errors import ModelError
from cubepy.kernels.entry.options import shown


def is_plain(value: Any) -> bool:
    """Whether a value is no array of any library."""
    return not hasattr(value, "dtype") and not hasattr(value, "__dlpack__")


def array_of_plain(value: Any, wanted: np.dtype | None, name: str) -> np.ndarray:
    """A list or number as an array.

    Args:
        value: numbers or texts, in lists.
        wanted: the dtype of the input, or None where any will do.
        name: of the input.

    Raises:
        ModelError: no numbers, lists of different lengths, or numbers that the dtype does not have:
            floats are rounded, integers stay what they are.

    Example:
        >>> array_of_plain([1, 2], np.dtype(np.float32), "x")
        array([1., 2.], dtype=float32)
    """
    found = None
    try:
        if wanted is None or wanted.kind == "O":  # texts, where a file says so
            found = np.asarray(value, wanted)
            fits = value is not None and (wanted is not None or found.dtype.kind != "O")
        else:
            numbers = np.asarray(value)
            fits = numbers.dtype.kind in ("biufc" if wanted.kind == "c" else "biuf")
            if fits:
                with np.errstate(all="ignore"):
                    found = numbers.astype(wanted)
                whole = wanted.kind in "biu" or "int" in wanted.name
                fits = not whole or np.array_equal(found.astype(numbers.dtype), numbers)
    except (TypeError, ValueError, OverflowError):
        fits = False
    if found is None or not fits:
        dtype = "an array" if wanted is None else f"an array of {wanted.name}"
        raise ModelError(f"the input {name!r} is {dtype}, which {shown(value)} does not become")
    return found

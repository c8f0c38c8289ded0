"""What sorts and searches for the best elements are to their routines."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from cubepy.errors import DTypeError
from cubepy.kernels.sort.keys import Keys
from cubepy.lang.dtypes import as_dtype


class Sort(NamedTuple):
    """Rows of x (m, n), contiguous: sorted ones into `values`, and their order into `indices`,
    contiguous, too; one of them may be None.
    """

    x: Any
    values: Any
    indices: Any
    keys: Keys

    @property
    def wide(self) -> int:
        """Bytes of a key while it is sorted."""
        return max(4, int(self.x.itemsize))

    @property
    def source(self) -> Any:
        """Elements as unsigned integers."""
        return self.x.view(f"u{self.x.itemsize}")

    @property
    def target(self) -> Any:
        """The sorted elements as unsigned integers, or None."""
        return None if self.values is None else self.values.view(f"u{self.x.itemsize}")


class Top(NamedTuple):
    """The first k of the sorted rows of x (m, n), contiguous, into `values`, and their places into
    `indices` (m, k).
    """

    x: Any
    values: Any
    indices: Any
    k: int
    keys: Keys

    @property
    def source(self) -> Any:
        """Elements as unsigned integers."""
        return self.x.view(f"u{self.x.itemsize}")

    @property
    def target(self) -> Any:
        """The first elements as unsigned integers."""
        return self.values.view(f"u{self.x.itemsize}")


def keys_of(dtype: Any, descending: bool, same_zeros: bool) -> Keys:
    """How elements of a dtype are ordered."""
    found = as_dtype(dtype)
    if found.storage_only:
        raise DTypeError(f"sort works on dtypes that kernels compute with, not {found.name}")
    bits = 8 * found.itemsize
    kind = "float" if found.is_float else ("signed" if found.kind == "i" else "unsigned")
    infinity = (
        int(np.array(np.inf, found.numpy).view(f"u{found.itemsize}")) if kind == "float" else 0
    )
    return Keys(kind, bits, infinity, descending, same_zeros and kind == "float")

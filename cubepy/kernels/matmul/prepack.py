"""Matrices packed once for many products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cubepy.errors import ShapeError
from cubepy.kernels.entry.arguments import array_of
from cubepy.kernels.entry.dispatch import placed, properties_here
from cubepy.kernels.matmul.cpu.blocked import laid_in_panels
from cubepy.lang.dtypes import DType, as_dtype
from cubepy.runtime.memory.device_array import DeviceArray
from cubepy.runtime.replay.standing import one_tuple


@dataclass(frozen=True)
class Packed:
    """A matrix (K, N) laid out for products: give it to `matmul` as `b` any number of times.

    Attributes:
        panels: (1, panels, K, width) f32, or half as many words of bf16 pairs; the matrix itself on
            a GPU, and of f64 and integers, which panels do not hold.
        shape: (K, N), the same object for equal shapes.
        dtype: of the matrix.
    """

    panels: np.ndarray | DeviceArray
    shape: tuple[int, ...]
    dtype: DType

    def __post_init__(self) -> None:
        """Calls that are repeated know options by their addresses."""
        object.__setattr__(self, "shape", one_tuple(self.shape))


@placed
def prepack(b: Any) -> Packed:
    """Lay a constant matrix out once, so that later products need not; it takes as much memory as
    the matrix in f32.

    A matrix of bf16 takes half of that where the machine multiplies pairs of bf16, and is then best
    for an a of bf16. Products are those of the matrix itself, dtypes too. f64 and integers gain
    nothing: the matrix is kept as it is.

    Args:
        b: (K, N), any strides; the transposed view of a linear layer's weight is as good as any.

    Raises:
        ShapeError: b is no matrix.
        DTypeError: b holds no numbers that kernels know.

    Example:
        >>> import numpy as np
        >>> from cubepy.kernels import matmul
        >>> w = prepack(np.eye(3, dtype=np.float32))
        >>> matmul(np.ones((5, 3), np.float32), w).shape
        (5, 3)
    """
    matrix = array_of(b, "b")
    if matrix.ndim != 2:
        raise ShapeError(f"prepack needs a matrix, not shape {matrix.shape}")
    if isinstance(matrix, DeviceArray):  # a GPU's routines read a matrix where it stands
        return Packed(matrix, matrix.shape, as_dtype(matrix.dtype))
    dtype = as_dtype(matrix.dtype)
    if not dtype.is_float or dtype.bits == 64:
        return Packed(matrix.copy(order="K"), matrix.shape, dtype)
    return Packed(laid_in_panels(matrix[None], properties_here()), matrix.shape, dtype)

"""Where the elements of a tensor are: a plain buffer, or a packed form that only some ops can read.

A storage has a `kind`; ops look up their executor by it (`cubepy.tensor.execute`). A new form of storage, such
as quantized weights, subclasses `Storage`, names its kind, and registers executors for the ops that read it.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from cubepy.lang.dtypes import DType, as_dtype
from cubepy.runtime.device import Device, current


class Storage:
    """The elements of a tensor, in some form.

    Attributes:
        kind: the name under which executors are registered.
        shape: of the logical tensor.
        dtype: of the logical elements, which is what reading one gives.
        device: where the bytes are.
    """

    kind: ClassVar[str] = "abstract"
    __slots__ = ("device", "dtype", "shape")

    def __init__(self, shape: tuple[int, ...], dtype: DType, device: Device | None = None) -> None:
        self.shape, self.dtype = shape, dtype
        self.device = current() if device is None else device

    @property
    def nbytes(self) -> int:
        """Bytes that the storage takes in memory."""
        return sum(a.nbytes for a in self.arrays().values())

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays that the storage consists of, by name."""
        raise NotImplementedError

    def dense(self) -> np.ndarray:
        """The logical elements as one array (a copy, unless the storage is dense)."""
        raise NotImplementedError


class Dense(Storage):
    """One NumPy array of any strides."""

    kind = "dense"
    __slots__ = ("array",)

    def __init__(self, array: np.ndarray, device: Device | None = None) -> None:
        self.array = array
        super().__init__(array.shape, as_dtype(array.dtype), device)

    def arrays(self) -> dict[str, np.ndarray]:
        return {"data": self.array}

    def dense(self) -> np.ndarray:
        return self.array

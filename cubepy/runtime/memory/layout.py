"""The shape of device memory: everything about an array but its address, shared by all arrays that
have it.

Views are worked out by NumPy, on an array that has the shape and strides but no memory that anyone
may touch; each layout remembers what it gave, so that slicing in a loop costs one look-up.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import numpy as np

from cubepy.errors import DTypeError
from cubepy.lang.dtypes import as_dtype
from cubepy.runtime.device import Device
from cubepy.runtime.tables import room

_PHANTOM = (
    1 << 44
)  # where phantoms claim to be: no process has memory mapped there for NumPy to read
_MEMO_LIMIT = 512
_TABLE_LIMIT = 16384


class Flags(NamedTuple):
    """What NumPy calls the flags of an array."""

    c_contiguous: bool
    writeable: bool

    def __getitem__(self, name: Any) -> Any:
        if isinstance(name, str):
            return getattr(self, name.lower())
        return tuple.__getitem__(self, name)


class Layout:
    """Shape, strides in bytes, dtype and device; equal layouts are one object, so `is` compares
    them.

    Attributes:
        size: number of elements.
        nbytes: bytes of the elements.
        contiguous: whether the elements lie in C order without gaps.
        element: the dtype as the language names it, or None if it does not.
        extent: the bytes that an array spans, relative to its address: first and one past the last.
        spec: what of it decides the code of kernels, as soon as that was asked for and it was found
            right.
    """

    __slots__ = (
        "contiguous",
        "device",
        "dtype",
        "element",
        "extent",
        "itemsize",
        "memo",
        "nbytes",
        "ndim",
        "shape",
        "size",
        "spec",
        "strides",
    )

    def __init__(
        self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype, device: Device
    ) -> None:
        self.shape, self.strides, self.dtype, self.device = shape, strides, dtype, device
        self.element = _element(dtype)
        self.itemsize, self.ndim, self.size = dtype.itemsize, len(shape), math.prod(shape)
        self.nbytes = self.size * self.itemsize
        self.contiguous = (
            self.size == 0 or strides == c_strides(shape, self.itemsize) or self._ignoring_ones()
        )
        low = high = 0
        for n, s in zip(shape, strides, strict=True):
            low, high = (low + (n - 1) * s, high) if s < 0 else (low, high + (n - 1) * s)
        self.extent = (low, high + self.itemsize) if self.size else (0, 0)
        self.memo: dict[Hashable, tuple[Layout, int]] = {}
        self.spec: Any = None

    def _ignoring_ones(self) -> bool:
        """Whether the strides of all axes that are longer than 1 are those of C order."""
        step = self.itemsize
        for n, s in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if n != 1:
                if s != step:
                    return False
                step *= n
        return True

    def view(self, key: Hashable, make: Callable[[np.ndarray], np.ndarray]) -> tuple[Layout, int]:
        """The layout of a view and where it begins, in bytes from here.

        Args:
            key: names what `make` does.
            make: gives a view of an array, without reading an element.
        """
        found = self.memo.get(key)
        if found is None:
            view = make(_phantom(self))
            layout = layout_of(view.shape, view.strides, view.dtype, self.device)
            found = layout, (view.__array_interface__["data"][0] - _PHANTOM if layout.size else 0)
            room(self.memo, _MEMO_LIMIT)
            self.memo[key] = found
        return found

    def alike(self, shape: tuple[int, ...], strides: tuple[int, ...] | None) -> Layout:
        """The layout of another shape and other strides (None: C order), else like this one."""
        return layout_of(shape, strides, self.dtype, self.device)

    def __repr__(self) -> str:
        return f"{self.dtype}{list(self.shape)} on {self.device}"


def _element(dtype: np.dtype) -> Any:
    try:
        return as_dtype(dtype)
    except DTypeError:
        return None


class _Claim:
    """What NumPy makes a phantom from."""

    def __init__(self, layout: Layout) -> None:
        dtype = layout.dtype
        self.__array_interface__ = {
            "version": 3,
            "shape": layout.shape,
            "strides": layout.strides,
            "data": (_PHANTOM, False),
            "typestr": dtype.str if dtype.isbuiltin == 1 else f"|V{dtype.itemsize}",
        }


def _phantom(layout: Layout) -> np.ndarray:
    array = np.asarray(_Claim(layout))
    return array if array.dtype == layout.dtype else array.view(layout.dtype)


def c_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Strides in bytes of C order.

    Example:
        >>> c_strides((2, 3), 4)
        (12, 4)
    """
    out, step = [], itemsize
    for n in reversed(shape):
        out.append(step)
        step *= max(n, 1)
    return tuple(reversed(out))


_layouts: dict[tuple[Any, ...], Layout] = {}
devices_seen: set[Device] = set()
"""Devices that an array was ever made on."""


def layout_of(
    shape: tuple[int, ...], strides: tuple[int, ...] | None, dtype: np.dtype, device: Device
) -> Layout:
    """The one layout of this shape, strides (None: C order), dtype and device."""
    key = (shape, strides, dtype.num, device.backend, device.ordinal)
    found = _layouts.get(key)
    if found is None:
        full = c_strides(shape, dtype.itemsize) if strides is None else tuple(strides)
        if strides is None:
            found = layout_of(shape, full, dtype, device)
        else:
            found = Layout(tuple(shape), full, dtype, device)
            devices_seen.add(device)
        room(_layouts, _TABLE_LIMIT)
        _layouts[key] = found
    return found


def whole(value: Any) -> int:
    """A whole number, as it is if it is an int, or stands for one (`cubepy.runtime.symbolic`)."""
    return value if isinstance(value, int) else operator.index(value)


def reshaped(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """A view in another shape.

    Raises:
        AttributeError: the strides allow no view.
        ValueError: the shape does not hold the elements.
    """
    if hasattr(np, "unstack"):  # NumPy 2.1: reshape can refuse to copy
        try:
            return array.reshape(shape, copy=False)
        except ValueError as error:
            if "copy" in str(error):
                raise AttributeError(str(error)) from None
            raise
    view = array.view()
    known = math.prod(n for n in shape if n != -1)
    if (-1 not in shape and known != array.size) or (
        -1 in shape and (known == 0 or array.size % known)
    ):
        raise ValueError(f"cannot reshape array of size {array.size} into shape {shape}")
    view.shape = shape
    return view

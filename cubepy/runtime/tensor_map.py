"""Tensor maps on the host: an array, and the box of it that one copy of a copy engine takes."""

from __future__ import annotations

from typing import Any

import numpy as np

from cubepy.compiler.signature import TensorMapSpec
from cubepy.errors import ArgumentError, DTypeError, LaunchError, ShapeError
from cubepy.lang.annotations import TensorMap
from cubepy.lang.dtypes import as_dtype
from cubepy.runtime.interop.arrays import array_like
from cubepy.runtime.memory.address import address
from cubepy.runtime.memory.device_array import DeviceArray

SWIZZLES = (0, 32, 64, 128)
MAX_BOX = 256
LINE = 16
"""Bytes that addresses, strides and rows of a box are multiples of."""


class ArrayMap(TensorMap):
    """A tensor map of an array; the array lives as long as it does.

    Attributes:
        array: the array, whose address, shape and strides count.
        box: elements that one copy takes along each axis.
        strides: in bytes, those of the array; an axis of one element, which has no next one, gets
            one that suits.
        swizzle: bytes of a row in shared memory whose 16-byte blocks are permuted.
        tf32: whether copies to shared memory round to tf32.
        spec: what of it decides the code.
        key: what of it decides the 128 bytes that the hardware reads, besides the address.
    """

    __slots__ = ("array", "box", "key", "source", "spec", "strides", "swizzle", "tf32")

    def __init__(
        self,
        source: Any,
        array: np.ndarray | DeviceArray,
        box: tuple[int, ...],
        swizzle: int,
        tf32: bool = False,
    ) -> None:
        self.source, self.array, self.box, self.swizzle, self.tf32 = (
            source,
            array,
            box,
            swizzle,
            tf32,
        )
        self.spec = TensorMapSpec(as_dtype(array.dtype), box, swizzle)
        self.strides = _strides(array)
        self.key = (array.dtype, array.shape, self.strides, box, swizzle, tf32)

    @property
    def address(self) -> int:
        """Where the array's data starts, on its device."""
        return self.array.address if isinstance(self.array, DeviceArray) else address(self.array)

    def __repr__(self) -> str:
        return (
            f"<tensor map of {self.array.dtype.name}{list(self.array.shape)}, box {list(self.box)}>"
        )


def tensor_map(
    array: Any, box: tuple[int, ...], swizzle: int = 128, tf32: bool = False
) -> ArrayMap:
    """A tensor map, to be passed to a parameter annotated `cb.TensorMap`.

    Args:
        array: of rank 2 to 5, on the GPU; the last axis has unit stride (strides of axes of one
            element do not count).
        box: elements that one copy takes along each axis, innermost last, at most 256.
        swizzle: 0, 32, 64 or 128: the bytes of a row of the box, at most; blocks of 16 bytes are
            permuted in shared memory so that columns are read without bank conflicts, as `cb.wgmma`
            expects.
        tf32: f32 is rounded to tf32 (10 bits of fraction, to nearest) on its way to shared memory.
            Matrix units would cut off what they do not take, which is less exact, and they use more
            power for it.

    Raises:
        ShapeError: a rank, or a box that does not fit the array's rank or the limits.
        LaunchError: an address, stride or row that is no multiple of 16 bytes, or an unknown
            swizzle.
        DTypeError: elements that the copy engine does not have, or others than f32 to be rounded to
            tf32.

    Example:
        >>> import numpy as np, cubepy as cb
        >>> cb.tensor_map(np.zeros((64, 64), np.float16), box=(16, 64))
        <tensor map of float16[64, 64], box [16, 64]>
    """
    data: Any = array if isinstance(array, DeviceArray) else array_like(array)
    if data is None:
        raise LaunchError(f"a tensor map is made of an array, not of {type(array).__name__}")
    dtype = as_dtype(data.dtype)
    if dtype.bits not in (8, 16, 32, 64) or dtype.kind == "b":
        raise DTypeError(f"a tensor map cannot hold {dtype.name}", hint="view its bytes as uint8")
    if tf32 and dtype.name != "f32":
        raise DTypeError(f"{dtype.name} is not rounded to tf32", hint="leave out tf32=True")
    if not isinstance(box, (tuple, list)) or not all(hasattr(n, "__index__") for n in box):
        raise ArgumentError(
            f"box must be a tuple with a side for each axis, not {box!r}",
            hint="such as box=(64, 64)",
        )
    box = tuple(int(n) for n in box)
    if not 2 <= data.ndim <= 5 or len(box) != data.ndim:
        raise ShapeError(
            f"a tensor map has 2 to 5 axes and a box of as many, not {data.ndim} and {len(box)}"
        )
    if any(not 1 <= n <= MAX_BOX for n in box):
        raise ShapeError(
            f"the sides of a box are 1 to {MAX_BOX}, not {list(box)}", hint="copy it in parts"
        )
    if swizzle not in SWIZZLES:
        raise LaunchError(f"there is no swizzle of {swizzle} bytes", hint=f"choose from {SWIZZLES}")
    row = box[-1] * data.itemsize
    if row % LINE or (swizzle and row > swizzle):
        limit = f" and at most the swizzle, {swizzle}" if swizzle else ""
        raise ShapeError(
            f"a row of the box {list(box)} is {row} bytes; it must be a multiple of {LINE}{limit}"
        )
    strides = _strides(data)
    if strides[-1] != data.itemsize or any(s % LINE or s <= 0 for s in strides[:-1]):
        raise LaunchError(
            f"the strides {data.strides} do not suit a tensor map: the last must be "
            f"{data.itemsize}, the others positive multiples of {LINE}",
            hint="copy it, or pad its rows",
        )
    made = ArrayMap(array, data, box, swizzle, tf32)
    if made.address % LINE:
        raise LaunchError(f"the data of a tensor map must start at a multiple of {LINE} bytes")
    return made


def _strides(array: np.ndarray | DeviceArray) -> tuple[int, ...]:
    """The strides of an array in bytes; an axis of one element gets that of a block of all axes
    within it.
    """
    if 1 not in array.shape:
        return array.strides
    found: list[int] = []
    block = array.itemsize
    for n, stride in zip(reversed(array.shape), reversed(array.strides), strict=True):
        found.insert(0, block if n == 1 else stride)
        block = max(LINE, -(-found[0] * n // LINE) * LINE)
    return tuple(found)

"""What only NVIDIA's launches have: clusters, launches by configuration, tensor maps."""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Sequence
from ctypes import c_int, c_uint, c_void_p
from dataclasses import dataclass

from cubepy.backends.cuda.native.driver import DRIVER
from cubepy.backends.gpu.native import module
from cubepy.errors import LaunchError

_NONPORTABLE_CLUSTER = 14


class Loadable(module.Loadable):
    """A cubin that is loaded on each device at first use there.

    Args:
        image: the cubin (or PTX, ending in a zero byte).
        name: the kernel's symbol.
        shared_bytes: dynamic shared memory of its launches.
        cluster: cubes of a cluster.
    """

    def __init__(self, image: bytes, name: str, shared_bytes: int = 0, cluster: int = 1) -> None:
        super().__init__(DRIVER, image, name, shared_bytes)
        self.cluster = cluster

    def permit(self, function: module.Function) -> None:
        super().permit(function)
        if self.cluster > 8:
            where = function.context
            with where.active():
                code = DRIVER.api().set_function_attribute(function.handle, _NONPORTABLE_CLUSTER, 1)
                where.check(code, "asking for large clusters")


def check_clusters(cubes: Sequence[int], cluster: Sequence[int], name: str) -> None:
    """Refuse grids that are not whole clusters.

    Raises:
        LaunchError: an axis with cubes left over.
    """
    if any(n % c for n, c in zip(cubes, cluster, strict=True)):
        raise LaunchError(
            f"{name} is launched on {tuple(cubes)} cubes, which are not whole clusters of "
            f"{tuple(cluster)}",
            hint="round the number of cubes up, and let the cubes too many do nothing",
        )


class _AttributeValue(ctypes.Union):
    _fields_ = (("pad", ctypes.c_char * 64), ("dims", c_uint * 3), ("value", c_int))


class _Attribute(ctypes.Structure):
    _fields_ = (("id", c_int), ("pad", ctypes.c_char * 4), ("value", _AttributeValue))


class _LaunchConfig(ctypes.Structure):
    _fields_ = (
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared", c_uint),
        ("stream", c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", c_uint),
    )


@dataclass(frozen=True)
class Wish:
    """What a launch may ask for beyond grid and shared memory.

    Attributes:
        cluster: cubes of a cluster along x, y, z, or None.
        cooperative: all cubes must be resident at once.
        overlap: may begin while the launch before it drains (programmatic dependent launch).
    """

    cluster: tuple[int, int, int] | None = None
    cooperative: bool = False
    overlap: bool = False


def launch_config(
    cubes: Sequence[int], units: Sequence[int], shared_bytes: int, wish: Wish = Wish()
) -> _LaunchConfig:
    """The native description of a launch, for a launch by it; its stream is set before each
    use.
    """
    made = []
    if wish.cluster is not None:
        made.append(_Attribute(4, b"", _AttributeValue(dims=(c_uint * 3)(*wish.cluster))))
    if wish.cooperative:
        made.append(_Attribute(2, b"", _AttributeValue(value=1)))
    if wish.overlap:
        made.append(_Attribute(6, b"", _AttributeValue(value=1)))
    attributes = (_Attribute * max(1, len(made)))(*made)
    config = _LaunchConfig(
        (c_uint * 3)(*cubes), (c_uint * 3)(*units), shared_bytes, None, attributes, len(made)
    )
    config.alive = attributes
    return config


TENSOR_DTYPES = {
    "uint8": 0,
    "int8": 0,
    "bool": 0,
    "float8_e4m3fn": 0,
    "float8_e5m2": 0,
    "uint16": 1,
    "int16": 1,
    "uint32": 2,
    "int32": 3,
    "uint64": 4,
    "int64": 5,
    "float16": 6,
    "float32": 7,
    "float64": 8,
    "bfloat16": 9,
    "tf32": 11,
}
SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
PROMOTIONS = {0: 0, 64: 1, 128: 2, 256: 3}


_ALIGNED = 64
"""Bytes: where a tensor map is written."""
_room = threading.local()


def tensor_map(
    address: int,
    dtype: str,
    shape: Sequence[int],
    strides: Sequence[int],
    box: Sequence[int],
    *,
    swizzle: int = 128,
    promotion: int = 128,
) -> bytes:
    """A tensor map: how the copy engine (TMA) reads boxes of an array.

    Args:
        address: of the data, a multiple of 16.
        dtype: name of a dtype of `TENSOR_DTYPES`; "tf32" is f32 that copies round.
        shape: of the array, outermost axis first, 1 to 5 axes.
        strides: in bytes, outermost first; the last must be the element's size, the others
            multiples of 16.
        box: what one copy takes along each axis, at most 256; the last axis at most `swizzle`
            bytes.
        swizzle: bytes of the pattern in shared memory: 0, 32, 64 or 128.
        promotion: bytes that L2 fetches at once: 0, 64, 128 or 256.

    Returns:
        Its 128 bytes.
    """
    rank = len(shape)
    longs, words, ones = _PACKED[rank]
    try:
        target, at = _room.target
    except AttributeError:
        raw = (ctypes.c_char * (128 + _ALIGNED))()
        at = ctypes.addressof(raw) + -ctypes.addressof(raw) % _ALIGNED
        target = (ctypes.c_char * 128).from_buffer(raw, at - ctypes.addressof(raw))
        _room.target = target, at
    code = DRIVER.api().encode_tensor_map(
        at,
        TENSOR_DTYPES[dtype],
        rank,
        address,
        longs(*shape[::-1]),
        longs(*strides[-2::-1], 0),
        words(*box[::-1]),
        ones,
        0,
        SWIZZLES[swizzle],
        PROMOTIONS[promotion],
        0,
    )
    if code:
        DRIVER.check(
            code,
            f"encoding a tensor map of {dtype}{list(shape)}, strides {list(strides)}, "
            f"box {list(box)}",
        )
    return target.raw


_PACKED = {
    rank: (
        struct.Struct(f"<{rank}Q").pack,
        struct.Struct(f"<{rank}I").pack,
        struct.pack(f"<{rank}I", *[1] * rank),
    )
    for rank in range(1, 6)
}
"""By the number of axes: what packs lengths, what packs boxes, and steps of 1."""

"""What only NVIDIA's launches have: clusters, launches by configuration, tensor maps."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_int, c_uint, c_void_p
from dataclasses import dataclass
from typing import Any

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


def tensor_map(
    address: int,
    dtype: Any,
    shape: Sequence[int],
    strides: Sequence[int],
    box: Sequence[int],
    *,
    swizzle: int = 128,
    promotion: int = 128,
    steps: Sequence[int] | None = None,
    target: Any = None,
) -> Any:
    """A tensor map: how the copy engine (TMA) reads boxes of an array.

    Args: address: of the data, a multiple of 16. dtype: name of a dtype of `TENSOR_DTYPES`, or
        something with a `name`; "tf32" is f32 that copies round. shape: of the array, outermost
        axis first, 1 to 5 axes. strides: in bytes, outermost first; the last must be the element's
        size, the others multiples of 16. box: what one copy takes along each axis, at most 256; the
        last axis at most `swizzle` bytes. swizzle: bytes of the pattern in shared memory: 0, 32, 64
        or 128. promotion: bytes that L2 fetches at once: 0, 64, 128 or 256. steps: element stride
        of a copy along each axis (1). target: a ctypes buffer of 128 bytes at a multiple of 64 to
        write to.

    Returns:
        The buffer of 128 bytes.
    """
    rank = len(shape)
    name = dtype if isinstance(dtype, str) else dtype.name
    if target is None:
        target = aligned(128, 64)
    dims = (ctypes.c_uint64 * rank)(*reversed(shape))
    outer = (ctypes.c_uint64 * max(1, rank - 1))(*list(reversed(strides))[1:])
    boxes = (ctypes.c_uint32 * rank)(*reversed(box))
    step = (ctypes.c_uint32 * rank)(*reversed(steps or [1] * rank))
    code = DRIVER.api().encode_tensor_map(
        target,
        TENSOR_DTYPES[name],
        rank,
        address,
        dims,
        outer,
        boxes,
        step,
        0,
        SWIZZLES[swizzle],
        PROMOTIONS[promotion],
        0,
    )
    DRIVER.check(
        code,
        f"encoding a tensor map of {name}{list(shape)}, strides {list(strides)}, box {list(box)}",
    )
    return target


def aligned(size: int, alignment: int) -> Any:
    """A zeroed ctypes buffer whose address is a multiple of `alignment`."""
    raw = (ctypes.c_char * (size + alignment))()
    shift = -ctypes.addressof(raw) % alignment
    return (ctypes.c_char * size).from_buffer(raw, shift)

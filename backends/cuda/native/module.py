"""Machine code on a GPU: modules from cubins, their functions, launching them, tensor maps."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from ctypes import byref, c_int, c_uint, c_void_p
from dataclasses import dataclass
from typing import Any

from cubepy.backends.cuda.native import driver
from cubepy.backends.cuda.native.driver import Context, api, check, context
from cubepy.backends.cuda.native.memory import with_room
from cubepy.errors import BackendCompileError, LaunchError, SharedMemoryError

STATIC_SHARED = 48 * 1024  # more than this for a cube must be asked for
GRID_LIMITS = (2**31 - 1, 65535, 65535)
UNITS_ALONG_Z = 64
_FUNCTION_ATTRIBUTES = {
    "max_units": 0,
    "shared_bytes": 1,
    "const_bytes": 2,
    "local_bytes": 3,
    "registers": 4,
    "binary_version": 6,
    "max_dynamic_shared": 8,
    "preferred_carveout": 9,
}
_NONPORTABLE_CLUSTER = 14


@driver.until_exit
class Module:
    """Loaded machine code; unloaded when collected."""

    def __init__(self, image: bytes, where: Context) -> None:
        self.context, handle = where, c_void_p()
        log = ctypes.create_string_buffer(8192)
        options = (c_int * 2)(5, 6)  # CU_JIT_ERROR_LOG_BUFFER and its size
        values = (c_void_p * 2)(ctypes.addressof(log), len(log))
        with where.active():
            code = with_room(
                where.ordinal,
                lambda: api().cuModuleLoadDataEx(byref(handle), image, 2, options, values),
            )
        if code and log.value:
            raise BackendCompileError(
                f"the driver refuses generated code: {log.value.decode(errors='replace')}"
            )
        check(code, "loading a module", where.label)
        self.handle = handle.value

    def function(self, name: str) -> Function:
        """The kernel of this name."""
        handle = c_void_p()
        with self.context.active():
            code = api().cuModuleGetFunction(byref(handle), self.handle, name.encode())
        check(code, f"finding the kernel {name}", self.context.label)
        return Function(self, handle.value or 0, name)

    def __del__(self) -> None:
        handle = getattr(self, "handle", None)
        if handle is not None and driver.usable():
            driver.api().cuModuleUnload(handle)


class Function:
    """A kernel that can be launched.

    Attributes:
        handle: the native function.
        context: of the device that it is loaded on.
    """

    def __init__(self, module: Module, handle: int, name: str) -> None:
        self.module, self.handle, self.name, self.context = module, handle, name, module.context

    def attribute(self, name: str | int) -> int:
        """A number about the function: "registers", "local_bytes", "shared_bytes",
        "max_units", ...
        """
        value = c_int()
        number = _FUNCTION_ATTRIBUTES[name] if isinstance(name, str) else name
        with self.context.active():
            check(
                api().cuFuncGetAttribute(byref(value), number, self.handle),
                f"asking for {name} of {self.name}",
            )
        return value.value

    def allow_shared(self, size: int) -> None:
        """Allow so many bytes of dynamic shared memory at a launch.

        Raises:
            SharedMemoryError: the device has less for a cube.
        """
        limit = self.context.attribute("shared_opt_in") - self.attribute("shared_bytes")
        if size > limit:
            raise SharedMemoryError(
                f"{self.name} asks for {size} bytes of shared memory; {self.context.label} "
                f"has {limit} for a cube"
            )
        with self.context.active():
            code = api().cuFuncSetAttribute(
                self.handle, _FUNCTION_ATTRIBUTES["max_dynamic_shared"], size
            )
        check(code, f"asking for {size} bytes of shared memory for {self.name}", self.context.label)

    def allow_large_clusters(self) -> None:
        """Allow clusters of more than 8 cubes."""
        with self.context.active():
            check(
                api().cuFuncSetAttribute(self.handle, _NONPORTABLE_CLUSTER, 1),
                "asking for large clusters",
            )

    def occupancy(self, units: int, shared_bytes: int = 0) -> int:
        """How many cubes of so many units a core holds at once."""
        value = c_int()
        with self.context.active():
            code = api().cuOccupancyMaxActiveBlocksPerMultiprocessor(
                byref(value), self.handle, units, shared_bytes
            )
        check(code, f"asking for the occupancy of {self.name}")
        return value.value


class Loadable:
    """A cubin that is loaded on each device at first use there.

    Args:
        image: the cubin (or PTX, ending in a zero byte).
        name: the kernel's symbol.
        shared_bytes: dynamic shared memory of its launches.
    """

    def __init__(self, image: bytes, name: str, shared_bytes: int = 0, cluster: int = 1) -> None:
        self.image, self.name, self.shared_bytes, self.cluster = image, name, shared_bytes, cluster
        self._loaded: dict[int, Function] = {}
        self._lock = threading.Lock()

    def on(self, ordinal: int = 0) -> Function:
        """The function, loaded on this GPU.

        Raises:
            DeviceError: no such GPU.
            SharedMemoryError: it has too little shared memory.
        """
        found = self._loaded.get(ordinal)
        if found is None:
            with self._lock:
                found = self._loaded.get(ordinal)
                if found is not None:
                    return found
                found = Module(self.image, context(ordinal)).function(self.name)
                if self.shared_bytes > STATIC_SHARED:
                    found.allow_shared(self.shared_bytes)
                if self.cluster > 8:
                    found.allow_large_clusters()
                self._loaded[ordinal] = found
        return found


def check_grid(cubes: Sequence[int], name: str, units: Sequence[int] = (1, 1, 1)) -> None:
    """Refuse grids that the hardware cannot count.

    Raises:
        LaunchError: too many cubes, or units of a cube, along an axis.
    """
    if units[2] > UNITS_ALONG_Z:
        raise LaunchError(
            f"{name} is launched on cubes of {tuple(units)} units; a GPU takes at most "
            f"{UNITS_ALONG_Z} along z",
            hint="put the longest axis first",
        )
    for n, most, axis in zip(cubes, GRID_LIMITS, "xyz", strict=True):
        if n > most:
            raise LaunchError(
                f"{name} is launched on {n} cubes along {axis}; a GPU takes at most {most}",
                hint="put the longest axis first, or give each unit more elements",
            )


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
    """The native description of a launch, for `cuLaunchKernelEx`; its stream is set before each
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
    code = api().cuTensorMapEncodeTiled(
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
    check(
        code,
        f"encoding a tensor map of {name}{list(shape)}, strides {list(strides)}, box {list(box)}",
    )
    return target


def aligned(size: int, alignment: int) -> Any:
    """A zeroed ctypes buffer whose address is a multiple of `alignment`."""
    raw = (ctypes.c_char * (size + alignment))()
    shift = -ctypes.addressof(raw) % alignment
    return (ctypes.c_char * size).from_buffer(raw, shift)

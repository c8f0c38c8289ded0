"""Machine code on a GPU: modules, their functions, what a launch may ask for."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from ctypes import byref, c_int, c_void_p

from cubepy.backends.gpu.native.driver import Context, Driver, until_exit
from cubepy.backends.gpu.native.memory import with_room
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
}
"""Numbers that HIP took from CUDA."""


@until_exit
class Module:
    """Loaded machine code; unloaded when collected."""

    def __init__(self, image: bytes, where: Context) -> None:
        self.context, self.handle, log = where, 0, ""

        def load() -> int:
            nonlocal log
            code, self.handle, log = where.driver.load_module(image)
            return code

        with where.active():
            code = with_room(where, load)
        if code and log:
            raise BackendCompileError(f"the driver refuses generated code: {log}")
        where.check(code, "loading a module")

    def function(self, name: str) -> Function:
        """The kernel of this name."""
        where, handle = self.context, c_void_p()
        with where.active():
            code = where.driver.api().function(byref(handle), self.handle, name.encode())
        where.check(code, f"finding the kernel {name}")
        return Function(self, handle.value or 0, name)

    def __del__(self) -> None:
        if getattr(self, "handle", 0) and self.context.driver.usable():
            self.context.driver.api().unload(self.handle)


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
        where, value = self.context, c_int()
        number = _FUNCTION_ATTRIBUTES[name] if isinstance(name, str) else name
        with where.active():
            code = where.driver.api().function_attribute(byref(value), number, self.handle)
            where.check(code, f"asking for {name} of {self.name}")
        return value.value

    def allow_shared(self, size: int) -> None:
        """Allow so many bytes of dynamic shared memory at a launch.

        Raises:
            SharedMemoryError: the device has less for a cube.
        """
        where = self.context
        limit = where.attribute("shared_opt_in") - self.attribute("shared_bytes")
        if size > limit:
            raise SharedMemoryError(
                f"{self.name} asks for {size} bytes of shared memory; {where.label} "
                f"has {limit} for a cube"
            )
        with where.active():
            code = where.driver.allow_shared(self.handle, size)
        where.check(code, f"asking for {size} bytes of shared memory for {self.name}")

    def occupancy(self, units: int, shared_bytes: int = 0) -> int:
        """How many cubes of so many units a core holds at once."""
        where, value = self.context, c_int()
        with where.active():
            code = where.driver.api().occupancy(byref(value), self.handle, units, shared_bytes)
        where.check(code, f"asking for the occupancy of {self.name}")
        return value.value


class Loadable:
    """Machine code that is loaded on each device at first use there.

    Args:
        driver: of the devices.
        image: the machine code.
        name: the kernel's symbol.
        shared_bytes: dynamic shared memory of its launches.
    """

    def __init__(self, driver: Driver, image: bytes, name: str, shared_bytes: int = 0) -> None:
        self.driver, self.image, self.name, self.shared_bytes = driver, image, name, shared_bytes
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
                if found is None:
                    found = Module(self.image, self.driver.context(ordinal)).function(self.name)
                    self.permit(found)
                    self._loaded[ordinal] = found
        return found

    def permit(self, function: Function) -> None:
        """Ask for what launches need beyond what every kernel may have."""
        if self.shared_bytes > STATIC_SHARED:
            function.allow_shared(self.shared_bytes)


def check_grid(
    cubes: Sequence[int], name: str, units: Sequence[int] = (1, 1, 1), most_units: int = 1 << 63
) -> None:
    """Refuse grids that the hardware cannot count.

    Args:
        cubes, units: of the launch, and of a cube.
        name: of the kernel.
        most_units: of a launch along an axis.

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
    for n, u, axis in zip(cubes, units, "xyz", strict=True):
        if n * u > most_units:
            raise LaunchError(
                f"{name} is launched on {n * u} units along {axis}; the GPU counts at most "
                f"{most_units}",
                hint="give each unit more elements",
            )

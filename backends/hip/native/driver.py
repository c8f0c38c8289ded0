"""AMD's driver (HIP): what its library calls the functions, and where they differ from NVIDIA's.

A thread always has a device (the first, until it takes another), so the number of a device stands
for its context; HIP's functions for contexts are deprecated, and some are not there. The struct of
a device's properties changed with ROCm 6, the name of the processor in it did not. Numbers of
attributes: hip_runtime_api.h, the same from ROCm 5 to 7.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
from ctypes import byref, c_char_p, c_int, c_void_p
from pathlib import Path
from typing import Any, ClassVar

from cubepy.backends.gpu.native.driver import Driver
from cubepy.backends.gpu.native.driver_errors import NO_DEVICE
from cubepy.backends.gpu.native.functions import Functions, names
from cubepy.errors import DeviceError

_out = ctypes.POINTER(c_void_p)

NAMES = names(
    "hip",
    {
        "version": "hipRuntimeGetVersion",
        "count": "hipGetDeviceCount",
        "current": "hipGetDevice",
        "set_current": "hipSetDevice",
        "synchronize": "hipDeviceSynchronize",
        "occupancy": "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor",
        "launch": "hipModuleLaunchKernel",
        "allocate": "hipMalloc",
        "free": "hipFree",
        "event": "hipEventCreateWithFlags",
        "error_name": "hipGetErrorName",
        "error_text": "hipGetErrorString",
        "load_module": "hipModuleLoadData",
        "properties": "hipGetDevicePropertiesR0600",
        "properties_before_6": "hipGetDeviceProperties",
    },
)
_TAKES: dict[str, tuple[Any, ...]] = {
    "error_name": (c_int,),
    "error_text": (c_int,),
    "load_module": (_out, c_char_p),
    "properties": (c_void_p, c_int),
    "properties_before_6": (c_void_p, c_int),
}
_TEXTS = ("error_name", "error_text")
_NAME_BYTES, _PROPERTIES_BYTES = 256, 8192
_PROCESSOR = re.compile(rb"gfx[0-9a-f]{3,}[0-9a-z:+-]*")
_INVALID_DEVICE = 101
_DEFAULT = 0


class HipDriver(Driver):
    """The driver of AMD's GPUs."""

    name, vendor = "hip", "AMD"
    libraries = (
        "libamdhip64.so",
        "libamdhip64.so.7",
        "libamdhip64.so.6",
        "libamdhip64.so.5",
        "/opt/rocm/lib/libamdhip64.so",
    )
    handle = c_int
    most_units = (1 << 32) - 1
    tools = "AMD_LOG_LEVEL=3 makes HIP say what it does"
    attributes: ClassVar = {
        "clock_khz": 5,
        "cooperative": 10,
        "l2_bytes": 19,
        "max_units": 56,
        "units_of_a_core": 57,
        "memory_bus_bits": 59,
        "memory_clock_khz": 60,
        "cores": 63,
        "registers_for_a_cube": 71,
        "shared_for_a_cube": 74,
        "shared_opt_in": 74,
        "shared_of_a_core": 76,
        "plane_size": 87,
    }

    def candidates(self) -> tuple[str, ...]:
        """The library that the process has already, PyTorch's own for example, comes first: two of
        them in one process do not know each other's memory.
        """
        with contextlib.suppress(OSError):
            found = re.search(r"/\S*libamdhip64\.so\S*", Path("/proc/self/maps").read_text())
            if found:
                return (found[0], *self.libraries)
        return self.libraries

    def functions(self, library: Any) -> Functions:
        functions = Functions(library, NAMES, self.handle, _TAKES)
        for name in _TEXTS:
            getattr(functions, name).restype = c_char_p
        return functions

    def described(self, code: int, functions: Functions) -> tuple[str, str]:
        name, text = functions.error_name(code), functions.error_text(code)
        return (name or b"unknown error").decode(), (text or b"no description").decode()

    def refused(self, code: int, functions: Functions) -> str:
        if code in (0, NO_DEVICE, _INVALID_DEVICE):
            return (
                f"the AMD driver sees no GPU ({self.described(code, functions)[0]}; "
                "HIP_VISIBLE_DEVICES and "
                "ROCR_VISIBLE_DEVICES may hide them, and the user must be in the groups video and "
                "render)"
            )
        return super().refused(code, functions)

    def open(self, ordinal: int) -> tuple[int, int]:
        device = c_int()
        code = self.api().device(byref(device), ordinal)
        self.check(code, "opening a device", f"{self.name}:{ordinal}")
        return device.value, ordinal

    def processor(self, ordinal: int) -> str:
        """What HIP calls the processor of a GPU, such as "gfx942:sramecc+:xnack-".

        Raises:
            DeviceError: it does not say.
        """
        api, raw = self.api(), ctypes.create_string_buffer(_PROPERTIES_BYTES)
        try:
            code = api.properties(raw, ordinal)
        except DeviceError:
            code = api.properties_before_6(raw, ordinal)
        self.check(code, "asking for the device's properties", f"{self.name}:{ordinal}")
        found = _PROCESSOR.search(raw.raw, _NAME_BYTES)
        if found is None:
            raise DeviceError(
                f"HIP does not say which processor '{self.name}:{ordinal}' has",
                hint="update ROCm; versions from 5.2 on say it",
            )
        return found[0].decode()

    def load_module(self, image: bytes) -> tuple[int, int, str]:
        handle = c_void_p()
        code = self.api().load_module(byref(handle), image)
        return code, handle.value or 0, ""

    def consumer(self, stream: int | None) -> int:
        if stream in (1, 2):
            raise BufferError(f"DLPack forbids the stream {stream} for ROCm")
        return _DEFAULT if stream is None else int(stream)

    def version(self) -> tuple[int, int]:
        number = c_int()
        self.check(self.api().version(byref(number)), "asking for the driver's version")
        return number.value // 10_000_000, number.value // 100_000 % 100


DRIVER = HipDriver()

"""NVIDIA's driver: what its library calls the functions, and what only it has.

Every device's primary context is retained once, the one that PyTorch, CuPy and JAX use too.
"""

from __future__ import annotations

import ctypes
import sys
from ctypes import byref, c_char_p, c_int, c_uint, c_void_p
from typing import Any, ClassVar

from cubepy.backends.gpu.native.driver import Driver
from cubepy.backends.gpu.native.driver_errors import NO_DEVICE
from cubepy.backends.gpu.native.functions import Functions, names

_out, _numbers = ctypes.POINTER(c_void_p), ctypes.POINTER(c_int)

NAMES = names(
    "cu",
    {
        "device_memory": "cuDeviceTotalMem_v2",
        "allocate": "cuMemAlloc_v2",
        "free": "cuMemFree_v2",
        "memory": "cuMemGetInfo_v2",
        "upload": "cuMemcpyHtoDAsync_v2",
        "download": "cuMemcpyDtoHAsync_v2",
        "copy": "cuMemcpyDtoDAsync_v2",
        "destroy_stream": "cuStreamDestroy_v2",
        "destroy_event": "cuEventDestroy_v2",
        "begin_capture": "cuStreamBeginCapture_v2",
        "error_name": "cuGetErrorName",
        "error_text": "cuGetErrorString",
        "retain_context": "cuDevicePrimaryCtxRetain",
        "load_module": "cuModuleLoadDataEx",
        "address_attributes": "cuPointerGetAttributes",
        "launch_configured": "cuLaunchKernelEx",
        "encode_tensor_map": "cuTensorMapEncodeTiled",
        "move_tensor_map": "cuTensorMapReplaceAddress",
    },
)
_TAKES: dict[str, tuple[Any, ...]] = {
    "error_name": (c_int, ctypes.POINTER(c_char_p)),
    "error_text": (c_int, ctypes.POINTER(c_char_p)),
    "retain_context": (_out, c_int),
    "load_module": (_out, c_char_p, c_uint, _numbers, _out),
    "address_attributes": (c_uint, _numbers, _out, c_void_p),
    "launch_configured": (c_void_p, c_void_p, c_void_p, c_void_p),
    "encode_tensor_map": (c_void_p, c_int, c_uint, *[c_void_p] * 5, *[c_int] * 4),
    "move_tensor_map": (c_void_p, c_void_p),
}
_JIT_LOG, _JIT_LOG_BYTES = 5, 6
_MAX_DYNAMIC_SHARED = 8
_MEMORY_TYPE, _HOST = 2, 1
_LEGACY = 1


class CudaDriver(Driver):
    """The driver of NVIDIA's GPUs."""

    name, vendor = "cuda", "NVIDIA"
    libraries = ("nvcuda.dll",) if sys.platform == "win32" else ("libcuda.so.1", "libcuda.so")
    tools = '"compute-sanitizer python ..." names the instruction'
    attributes: ClassVar = {
        "max_units": 1,
        "max_units_x": 2,
        "max_units_y": 3,
        "max_units_z": 4,
        "shared_for_a_cube": 8,
        "plane_size": 10,
        "registers_for_a_cube": 12,
        "clock_khz": 13,
        "cores": 16,
        "memory_clock_khz": 36,
        "memory_bus_bits": 37,
        "l2_bytes": 38,
        "units_of_a_core": 39,
        "major": 75,
        "minor": 76,
        "shared_of_a_core": 81,
        "registers_of_a_core": 82,
        "cooperative": 95,
        "shared_opt_in": 97,
        "cubes_of_a_core": 106,
        "shared_reserved": 111,
        "cluster_launch": 120,
    }

    def functions(self, library: Any) -> Functions:
        return Functions(library, NAMES, self.handle, _TAKES)

    def described(self, code: int, functions: Functions) -> tuple[str, str]:
        name, text = c_char_p(), c_char_p()
        functions.error_name(code, byref(name))
        functions.error_text(code, byref(text))
        return (name.value or b"unknown error").decode(), (text.value or b"no description").decode()

    def refused(self, code: int, functions: Functions) -> str:
        if code == 0:
            return "the NVIDIA driver sees no GPU (CUDA_VISIBLE_DEVICES may hide them)"
        text = "there is no NVIDIA GPU" if code == NO_DEVICE else self.described(code, functions)[1]
        return f"the NVIDIA driver cannot be used: {text} (cuInit gave {code})"

    def open(self, ordinal: int) -> tuple[int, int]:
        api, device, handle = self.api(), c_int(), c_void_p()
        label = f"{self.name}:{ordinal}"
        self.check(api.device(byref(device), ordinal), "opening a device", label)
        self.check(api.retain_context(byref(handle), device.value), "making a context", label)
        return device.value, handle.value or 0

    def load_module(self, image: bytes) -> tuple[int, int, str]:
        handle, log = c_void_p(), ctypes.create_string_buffer(8192)
        options = (c_int * 2)(_JIT_LOG, _JIT_LOG_BYTES)
        values = (c_void_p * 2)(ctypes.addressof(log), len(log))
        code = self.api().load_module(byref(handle), image, 2, options, values)
        return code, handle.value or 0, log.value.decode(errors="replace")

    def allow_shared(self, function: int, size: int) -> int:
        code: int = self.api().set_function_attribute(function, _MAX_DYNAMIC_SHARED, size)
        return code

    def reads_later(self, address: int) -> bool:
        """Memory that the driver knows (pinned by another library) is not staged."""
        kind, which = c_int(), c_int(_MEMORY_TYPE)
        results = (c_void_p * 1)(ctypes.addressof(kind))
        # Unlike its singular, it takes memory that the driver does not know for no error.
        code = self.api().address_attributes(1, byref(which), results, address)
        return bool(code == 0 and kind.value == _HOST)

    def consumer(self, stream: int | None) -> int:
        if stream == 0:
            raise BufferError("DLPack forbids the stream 0 for CUDA")
        return _LEGACY if stream is None else int(stream)

    def version(self) -> tuple[int, int]:
        number = c_int()
        self.check(self.api().version(byref(number)), "asking for the driver's version")
        return number.value // 1000, number.value % 1000 // 10


DRIVER = CudaDriver()

"""The CUDA driver by ctypes: loading it, its errors, its devices and their contexts.

Nothing here needs a package. The library is loaded at first use; where there is none, `missing()`
says why. Every device's primary context is retained once, the one that PyTorch, CuPy and JAX use
too.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import sys
import threading
from collections.abc import Iterator
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_ushort, c_void_p
from typing import Any

from cubepy.backends.cuda.native.driver_errors import NO_DEVICE, failure
from cubepy.errors import DeviceError

_out, _handles = POINTER(c_void_p), POINTER(c_void_p)
_PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (POINTER(c_int),),
    "cuGetErrorName": (c_int, POINTER(c_char_p)),
    "cuGetErrorString": (c_int, POINTER(c_char_p)),
    "cuDeviceGetCount": (POINTER(c_int),),
    "cuDeviceGet": (POINTER(c_int), c_int),
    "cuDeviceGetName": (c_char_p, c_int, c_int),
    "cuDeviceTotalMem_v2": (POINTER(c_size_t), c_int),
    "cuDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "cuDeviceCanAccessPeer": (POINTER(c_int), c_int, c_int),
    "cuDevicePrimaryCtxRetain": (_out, c_int),
    "cuCtxGetCurrent": (_out,),
    "cuCtxSetCurrent": (c_void_p,),
    "cuCtxPushCurrent_v2": (c_void_p,),
    "cuCtxPopCurrent_v2": (_out,),
    "cuCtxSynchronize": (),
    "cuCtxEnablePeerAccess": (c_void_p, c_uint),
    "cuModuleLoadDataEx": (_out, c_char_p, c_uint, POINTER(c_int), _handles),
    "cuModuleUnload": (c_void_p,),
    "cuModuleGetFunction": (_out, c_void_p, c_char_p),
    "cuModuleGetGlobal_v2": (_out, POINTER(c_size_t), c_void_p, c_char_p),
    "cuFuncGetAttribute": (POINTER(c_int), c_int, c_void_p),
    "cuFuncSetAttribute": (c_void_p, c_int, c_int),
    "cuOccupancyMaxActiveBlocksPerMultiprocessor": (POINTER(c_int), c_void_p, c_int, c_size_t),
    "cuOccupancyMaxActiveClusters": (POINTER(c_int), c_void_p, c_void_p),
    "cuLaunchKernel": (c_void_p, *[c_uint] * 7, c_void_p, c_void_p, c_void_p),
    "cuLaunchKernelEx": (c_void_p, c_void_p, c_void_p, c_void_p),
    "cuMemAlloc_v2": (_out, c_size_t),
    "cuMemFree_v2": (c_void_p,),
    "cuMemGetInfo_v2": (POINTER(c_size_t), POINTER(c_size_t)),
    "cuMemcpyHtoDAsync_v2": (c_void_p, c_void_p, c_size_t, c_void_p),
    "cuMemcpyDtoHAsync_v2": (c_void_p, c_void_p, c_size_t, c_void_p),
    "cuMemcpyDtoDAsync_v2": (c_void_p, c_void_p, c_size_t, c_void_p),
    "cuMemcpyPeerAsync": (c_void_p, c_void_p, c_void_p, c_void_p, c_size_t, c_void_p),
    "cuMemsetD8Async": (c_void_p, ctypes.c_ubyte, c_size_t, c_void_p),
    "cuMemsetD16Async": (c_void_p, c_ushort, c_size_t, c_void_p),
    "cuMemsetD32Async": (c_void_p, c_uint, c_size_t, c_void_p),
    "cuPointerGetAttribute": (POINTER(c_int), c_int, c_void_p),
    "cuPointerGetAttributes": (c_uint, POINTER(c_int), POINTER(c_void_p), c_void_p),
    "cuStreamCreateWithPriority": (_out, c_uint, c_int),
    "cuStreamDestroy_v2": (c_void_p,),
    "cuStreamSynchronize": (c_void_p,),
    "cuStreamQuery": (c_void_p,),
    "cuStreamWaitEvent": (c_void_p, c_void_p, c_uint),
    "cuStreamBeginCapture_v2": (c_void_p, c_int),
    "cuStreamEndCapture": (c_void_p, _out),
    "cuStreamIsCapturing": (c_void_p, POINTER(c_int)),
    "cuThreadExchangeStreamCaptureMode": (POINTER(c_int),),
    "cuEventCreate": (_out, c_uint),
    "cuEventDestroy_v2": (c_void_p,),
    "cuEventRecord": (c_void_p, c_void_p),
    "cuEventQuery": (c_void_p,),
    "cuEventSynchronize": (c_void_p,),
    "cuEventElapsedTime": (POINTER(c_float), c_void_p, c_void_p),
    "cuGraphInstantiateWithFlags": (_out, c_void_p, ctypes.c_ulonglong),
    "cuGraphGetNodes": (c_void_p, _handles, POINTER(c_size_t)),
    "cuGraphNodeGetType": (c_void_p, POINTER(c_int)),
    "cuGraphKernelNodeGetParams_v2": (c_void_p, c_void_p),
    "cuGraphExecKernelNodeSetParams_v2": (c_void_p, c_void_p, c_void_p),
    "cuGraphExecUpdate_v2": (c_void_p, c_void_p, c_void_p),
    "cuGraphLaunch": (c_void_p, c_void_p),
    "cuGraphUpload": (c_void_p, c_void_p),
    "cuGraphDestroy": (c_void_p,),
    "cuGraphExecDestroy": (c_void_p,),
    "cuTensorMapEncodeTiled": (
        c_void_p,
        c_int,
        c_uint,
        c_void_p,
        c_void_p,
        c_void_p,
        c_void_p,
        c_void_p,
        c_int,
        c_int,
        c_int,
        c_int,
    ),
}

ATTRIBUTES = {
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

_lock = threading.RLock()
_library: ctypes.CDLL | None = None
_reason: str | None = None
_count = 0
_process = 0
forked = False


def _names() -> tuple[str, ...]:
    return ("nvcuda.dll",) if sys.platform == "win32" else ("libcuda.so.1", "libcuda.so")


def _load() -> None:
    """Load the library and initialise it, once; what goes wrong is kept as `_reason`."""
    global _library, _reason, _count, _process
    if _library is not None:
        return
    with _lock:
        if _library is not None or _reason is not None:
            return
        library = None
        for name in _names():
            with contextlib.suppress(OSError):
                library = ctypes.CDLL(name)
                break
        if library is None:
            _reason = "no NVIDIA driver is installed (libcuda.so.1 cannot be loaded)"
            return
        for name, arguments in _PROTOTYPES.items():
            function = getattr(library, name, None)
            if function is not None:
                function.argtypes, function.restype = list(arguments), c_int
        code = library.cuInit(0)
        if code:
            text = "there is no NVIDIA GPU" if code == NO_DEVICE else _described(library, code)[1]
            _reason = f"the NVIDIA driver cannot be used: {text} (cuInit gave {code})"
            return
        number = c_int()
        library.cuDeviceGetCount(byref(number))
        if number.value == 0:
            _reason = "the NVIDIA driver sees no GPU (CUDA_VISIBLE_DEVICES may hide them)"
            return
        _library, _count, _process = library, number.value, os.getpid()


def _described(library: Any, code: int) -> tuple[str, str]:
    name, text = c_char_p(), c_char_p()
    library.cuGetErrorName(code, byref(name))
    library.cuGetErrorString(code, byref(text))
    return (name.value or b"unknown error").decode(), (text.value or b"no description").decode()


def _after_fork() -> None:
    global forked
    if _library is not None:
        forked = True


os.register_at_fork(after_in_child=_after_fork)


def missing() -> str:
    """Why there is no usable NVIDIA GPU, or an empty text when there is one."""
    _load()
    if forked:
        return f"this process was forked from {_process}, which had used the GPU already"
    return _reason or ""


def count() -> int:
    """How many GPUs can be used; 0 without a driver, never an error."""
    return 0 if missing() else _count


def api() -> Any:
    """The driver library, initialised, with the types of its functions set.

    Raises:
        DeviceError: no driver, no GPU, or a forked child of a process that had used it.
    """
    if _library is None:
        _load()
    if _library is None:
        raise DeviceError(
            f"no GPU can be used: {_reason}",
            hint='cb.devices() lists what there is; use device="cpu"',
        )
    if forked:
        raise DeviceError(
            f"no GPU can be used: {missing()}",
            hint='start processes with multiprocessing.get_context("spawn"), or fork before the '
            "first use of the GPU",
        )
    return _library


def check(code: int, what: str, device: str = "") -> None:
    """Raise the exception for a driver's error code; nothing when it is 0.

    Args:
        code: what a driver function returned.
        what: what was being done.
    """
    if code:
        library = api()
        raise failure(code, *_described(library, code), what, device)


def usable() -> bool:
    """Whether destructors may call the driver: it is loaded, and this is not a forked child."""
    return _library is not None and not forked


def until_exit(owner: type) -> type:
    """A class whose destructor stops with the interpreter, which empties modules; the driver frees
    what is left.
    """
    atexit.register(setattr, owner, "__del__", lambda _: None)
    return owner


def version() -> tuple[int, int]:
    """The newest CUDA version that the driver knows, such as (13, 0)."""
    number = c_int()
    check(api().cuDriverGetVersion(byref(number)), "asking for the driver's version")
    return number.value // 1000, number.value % 1000 // 10


class Context:
    """The primary context of one GPU, retained for the life of the process.

    Attributes: ordinal: the number of the GPU. handle: the native context. name: of the GPU.
        memory_bytes: all of its memory. captures: how many graphs are being captured; it changes
        under `whole`, which is held, too, while somebody waits for all of the GPU: the driver
        refuses that during a capture, and spoils the graph. streams: native streams that nobody
        uses, by flags and priority.
    """

    def __init__(self, ordinal: int) -> None:
        library = api()
        if not 0 <= ordinal < _count:
            raise DeviceError(
                f"the device 'cuda:{ordinal}' does not exist: there are {_count} NVIDIA GPUs"
            )
        device, handle = c_int(), c_void_p()
        self.ordinal, self.label = ordinal, f"cuda:{ordinal}"
        self.captures, self.whole = 0, threading.RLock()
        self.streams: dict[tuple[int, int], list[int]] = {}
        check(library.cuDeviceGet(byref(device), ordinal), "opening a device", self.label)
        self.device = device.value
        check(
            library.cuDevicePrimaryCtxRetain(byref(handle), self.device),
            "making a context",
            self.label,
        )
        self.handle = handle.value
        text = ctypes.create_string_buffer(128)
        check(
            library.cuDeviceGetName(text, 128, self.device),
            "asking for the device's name",
            self.label,
        )
        self.name = text.value.decode()
        size = c_size_t()
        check(
            library.cuDeviceTotalMem_v2(byref(size), self.device),
            "asking for the device's memory",
            self.label,
        )
        self.memory_bytes = size.value

    def attribute(self, name: str | int) -> int:
        """A number of the device: a name of `ATTRIBUTES`, or the driver's own number for it."""
        value = c_int()
        number = ATTRIBUTES[name] if isinstance(name, str) else name
        check(
            api().cuDeviceGetAttribute(byref(value), number, self.device),
            f"asking for {name}",
            self.label,
        )
        return value.value

    @property
    def capability(self) -> tuple[int, int]:
        """The compute capability, such as (9, 0)."""
        return self.attribute("major"), self.attribute("minor")

    def memory(self) -> tuple[int, int]:
        """Free bytes and all bytes of the device's memory."""
        free, total = c_size_t(), c_size_t()
        with self.active():
            check(
                api().cuMemGetInfo_v2(byref(free), byref(total)),
                "asking for free memory",
                self.label,
            )
        return free.value, total.value

    def synchronize(self) -> bool:
        """Wait for everything that the device was given; False, with nothing done, while a graph is
        being captured.
        """
        with self.whole:
            if self.captures:
                return False
            with self.active():
                check(api().cuCtxSynchronize(), "waiting for the device", self.label)
        return True

    def ready(self) -> None:
        """Make this the thread's context when it has none yet (as the CUDA runtime does)."""
        library, now = api(), c_void_p()
        check(library.cuCtxGetCurrent(byref(now)), "asking for the thread's context", self.label)
        if now.value is None:
            check(library.cuCtxSetCurrent(self.handle), "taking a context", self.label)

    @contextlib.contextmanager
    def active(self) -> Iterator[Context]:
        """Do the block in this context; the thread's own context is back afterwards."""
        library, now = api(), c_void_p()
        check(library.cuCtxGetCurrent(byref(now)), "asking for the thread's context", self.label)
        if now.value == self.handle:
            yield self
        elif now.value is None:
            check(library.cuCtxSetCurrent(self.handle), "taking a context", self.label)
            yield self
        else:
            check(library.cuCtxPushCurrent_v2(self.handle), "taking a context", self.label)
            try:
                yield self
            finally:
                library.cuCtxPopCurrent_v2(byref(now))


_contexts: dict[int, Context] = {}


def context(ordinal: int = 0) -> Context:
    """The context of a GPU.

    Raises:
        DeviceError: no GPU of this number.
    """
    found = _contexts.get(ordinal)
    if found is None or forked:
        with _lock:
            api()
            found = _contexts.setdefault(ordinal, Context(ordinal))
    return found

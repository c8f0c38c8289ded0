"""Functions of GPUs' drivers, under names that no vendor has.

A driver says how its library calls each of them; what they take is the same. `HANDLE` stands for
what the driver knows a context by: a pointer or a number.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_float, c_int, c_size_t, c_uint, c_void_p
from typing import Any

from cubepy.errors import DeviceError

HANDLE = object()
_OUT_HANDLE = object()
_out, _handles = POINTER(c_void_p), POINTER(c_void_p)

TAKES: dict[str, tuple[Any, ...]] = {
    "initialise": (c_uint,),
    "version": (POINTER(c_int),),
    "count": (POINTER(c_int),),
    "device": (POINTER(c_int), c_int),
    "device_name": (c_char_p, c_int, c_int),
    "device_memory": (POINTER(c_size_t), c_int),
    "device_attribute": (POINTER(c_int), c_int, c_int),
    "current": (_OUT_HANDLE,),
    "set_current": (HANDLE,),
    "synchronize": (),
    "unload": (c_void_p,),
    "function": (_out, c_void_p, c_char_p),
    "function_attribute": (POINTER(c_int), c_int, c_void_p),
    "set_function_attribute": (c_void_p, c_int, c_int),
    "occupancy": (POINTER(c_int), c_void_p, c_int, c_size_t),
    "launch": (c_void_p, *[c_uint] * 7, c_void_p, c_void_p, c_void_p),
    "allocate": (_out, c_size_t),
    "free": (c_void_p,),
    "memory": (POINTER(c_size_t), POINTER(c_size_t)),
    "upload": (c_void_p, c_void_p, c_size_t, c_void_p),
    "download": (c_void_p, c_void_p, c_size_t, c_void_p),
    "copy": (c_void_p, c_void_p, c_size_t, c_void_p),
    "copy_between": (c_void_p, HANDLE, c_void_p, HANDLE, c_size_t, c_void_p),
    "fill": (c_void_p, ctypes.c_ubyte, c_size_t, c_void_p),
    "address_attribute": (POINTER(c_int), c_int, c_void_p),
    "stream": (_out, c_uint, c_int),
    "destroy_stream": (c_void_p,),
    "synchronize_stream": (c_void_p,),
    "query_stream": (c_void_p,),
    "wait_event": (c_void_p, c_void_p, c_uint),
    "event": (_out, c_uint),
    "destroy_event": (c_void_p,),
    "record_event": (c_void_p, c_void_p),
    "query_event": (c_void_p,),
    "synchronize_event": (c_void_p,),
    "milliseconds": (POINTER(c_float), c_void_p, c_void_p),
    "begin_capture": (c_void_p, c_int),
    "end_capture": (c_void_p, _out),
    "instantiate": (_out, c_void_p, ctypes.c_ulonglong),
    "nodes": (c_void_p, _handles, POINTER(c_size_t)),
    "node_type": (c_void_p, POINTER(c_int)),
    "launch_graph": (c_void_p, c_void_p),
    "destroy_graph": (c_void_p,),
    "destroy_executable": (c_void_p,),
}
"""What functions take that every driver has; all give an error code, 0 for none."""
STEMS = {
    "initialise": "Init",
    "version": "DriverGetVersion",
    "count": "DeviceGetCount",
    "device": "DeviceGet",
    "device_name": "DeviceGetName",
    "device_memory": "DeviceTotalMem",
    "device_attribute": "DeviceGetAttribute",
    "current": "CtxGetCurrent",
    "set_current": "CtxSetCurrent",
    "synchronize": "CtxSynchronize",
    "unload": "ModuleUnload",
    "function": "ModuleGetFunction",
    "function_attribute": "FuncGetAttribute",
    "set_function_attribute": "FuncSetAttribute",
    "occupancy": "OccupancyMaxActiveBlocksPerMultiprocessor",
    "launch": "LaunchKernel",
    "allocate": "MemAlloc",
    "free": "MemFree",
    "memory": "MemGetInfo",
    "upload": "MemcpyHtoDAsync",
    "download": "MemcpyDtoHAsync",
    "copy": "MemcpyDtoDAsync",
    "copy_between": "MemcpyPeerAsync",
    "fill": "MemsetD8Async",
    "address_attribute": "PointerGetAttribute",
    "stream": "StreamCreateWithPriority",
    "destroy_stream": "StreamDestroy",
    "synchronize_stream": "StreamSynchronize",
    "query_stream": "StreamQuery",
    "wait_event": "StreamWaitEvent",
    "event": "EventCreate",
    "destroy_event": "EventDestroy",
    "record_event": "EventRecord",
    "query_event": "EventQuery",
    "synchronize_event": "EventSynchronize",
    "milliseconds": "EventElapsedTime",
    "begin_capture": "StreamBeginCapture",
    "end_capture": "StreamEndCapture",
    "instantiate": "GraphInstantiateWithFlags",
    "nodes": "GraphGetNodes",
    "node_type": "GraphNodeGetType",
    "launch_graph": "GraphLaunch",
    "destroy_graph": "GraphDestroy",
    "destroy_executable": "GraphExecDestroy",
}
"""What both vendors call them, but for what stands before, and a version behind."""


def names(prefix: str, others: dict[str, str]) -> dict[str, str]:
    """A library's names for functions.

    Args:
        prefix: of its names.
        others: names of functions that it calls otherwise, and of those that only it has.
    """
    return {name: prefix + stem for name, stem in STEMS.items()} | others


class Functions:
    """The functions of a driver's library as attributes, found at first use.

    Args:
        library: what ctypes loaded.
        named: how the library calls them.
        handle: the type of ctypes for `HANDLE`.
        takes: what functions take that only this driver has, or that take something else here.
    """

    def __init__(
        self,
        library: Any,
        named: dict[str, str],
        handle: Any = c_void_p,
        takes: dict[str, tuple[Any, ...]] | None = None,
    ) -> None:
        self._library, self._names, self._handle = library, named, handle
        self._takes = {**TAKES, **(takes or {})}
        self._untyped: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in self._names:
            raise AttributeError(name)
        try:
            function = getattr(self._library, self._names[name])
        except AttributeError:
            raise DeviceError(
                f"the driver has no function {self._names[name]}", hint="install a newer driver"
            ) from None
        types = {HANDLE: self._handle, _OUT_HANDLE: POINTER(self._handle)}
        function.argtypes = [types.get(t, t) for t in self._takes[name]]
        function.restype = c_int
        self.__dict__[name] = function
        return function

    def untyped(self, name: str) -> Any:
        """A function without declared types, which ctypes calls faster; pointers are `c_void_p`."""
        found = self._untyped.get(name)
        if found is None:
            # Indexing makes a new object, without the types that attribute access keeps.
            found = self._untyped[name] = self._library[self._names[name]]
            found.restype = c_int
        return found

    def address(self, name: str) -> int:
        """Where a function is, for machine code; 0 when the driver has none."""
        if name not in self._names:
            return 0
        try:
            return ctypes.cast(self.untyped(name), c_void_p).value or 0
        except AttributeError:
            return 0

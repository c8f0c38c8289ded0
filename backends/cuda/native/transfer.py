"""Copies between the host and a GPU.

The driver stages copies of ordinary host memory itself; on an H200's host that was as fast as two
pinned buffers of our own that one thread fills (9 GB/s up) or faster (16 against 9 GB/s down), so
there are none.
"""

from __future__ import annotations

import ctypes
from ctypes import byref

from cubepy.backends.cuda.native.driver import Context, api, check
from cubepy.backends.cuda.native.stream import NativeStream

_MEMORY_TYPE, _HOST = 2, 1


def upload(target: int, source: int, size: int, stream: NativeStream) -> None:
    """Copy bytes of the host to a GPU; the host memory may change when this returns.

    Args:
        target, source: addresses on the device and on the host.
        stream: the copy takes its place there.
    """
    if size:
        with stream.context.active():
            code = api().cuMemcpyHtoDAsync_v2(target, source, size, stream.handle)
        check(code, f"copying {size} bytes to the device", stream.label)
        if _pinned(source):  # the copy engine reads it later
            stream.synchronize()


def _pinned(address: int) -> bool:
    """Whether host memory is known to the driver (pinned by another library): it is not staged
    then.
    """
    kind, which = ctypes.c_int(), ctypes.c_int(_MEMORY_TYPE)
    results = (ctypes.c_void_p * 1)(ctypes.addressof(kind))
    # Unlike its singular, it takes memory that the driver does not know for no error.
    code = api().cuPointerGetAttributes(1, byref(which), results, address)
    return bool(code == 0 and kind.value == _HOST)


def download(target: int, source: int, size: int, stream: NativeStream) -> None:
    """Copy bytes of a GPU to the host; finished when this returns.

    Raises:
        OutOfBoundsError, KernelAssertionError, DeviceError: what went wrong in work before it.
    """
    stream.check_faults()
    if size:
        with stream.context.active():
            code = api().cuMemcpyDtoHAsync_v2(target, source, size, stream.handle)
        check(code, f"copying {size} bytes from the device", stream.label)
    stream.synchronize()


def fill_bytes(address: int, value: int, size: int, stream: NativeStream) -> None:
    """Set every byte of a range."""
    if size:
        with stream.context.active():
            check(
                api().cuMemsetD8Async(address, value, size, stream.handle),
                "filling memory",
                stream.label,
            )


def copy_on_device(target: int, source: int, size: int, stream: NativeStream) -> None:
    """Copy bytes on one device."""
    if size:
        with stream.context.active():
            check(
                api().cuMemcpyDtoDAsync_v2(target, source, size, stream.handle),
                "copying",
                stream.label,
            )


def copy_between(
    target: int, to: Context, source: int, origin: Context, size: int, stream: NativeStream
) -> None:
    """Copy bytes from one device to another."""
    if size:
        with stream.context.active():
            code = api().cuMemcpyPeerAsync(
                target, to.handle, source, origin.handle, size, stream.handle
            )
        check(code, f"copying from {origin.label} to {to.label}", stream.label)

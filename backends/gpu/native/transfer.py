"""Copies between the host and a GPU.

The driver stages copies of ordinary host memory itself; on an H200's host that was as fast as two
pinned buffers of our own that one thread fills (9 GB/s up) or faster (16 against 9 GB/s down), so
there are none.
"""

from __future__ import annotations

from cubepy.backends.gpu.native.driver import Context
from cubepy.backends.gpu.native.stream import NativeStream


def upload(target: int, source: int, size: int, stream: NativeStream) -> None:
    """Copy bytes of the host to a GPU; the host memory may change when this returns.

    Args:
        target, source: addresses on the device and on the host.
        stream: the copy takes its place there.
    """
    if size:
        where = stream.context
        with where.active():
            code = where.driver.api().upload(target, source, size, stream.handle)
        where.check(code, f"copying {size} bytes to the device")
        if where.driver.reads_later(source):
            stream.synchronize()


def download(target: int, source: int, size: int, stream: NativeStream) -> None:
    """Copy bytes of a GPU to the host; finished when this returns.

    Raises:
        OutOfBoundsError, KernelAssertionError, DeviceError: what went wrong in work before it.
    """
    stream.check_faults()
    if size:
        where = stream.context
        with where.active():
            code = where.driver.api().download(target, source, size, stream.handle)
        where.check(code, f"copying {size} bytes from the device")
    stream.synchronize()


def fill_bytes(address: int, value: int, size: int, stream: NativeStream) -> None:
    """Set every byte of a range."""
    if size:
        where = stream.context
        with where.active():
            code = where.driver.api().fill(address, value, size, stream.handle)
            where.check(code, "filling memory")


def copy_on_device(target: int, source: int, size: int, stream: NativeStream) -> None:
    """Copy bytes on one device."""
    if size:
        where = stream.context
        with where.active():
            code = where.driver.api().copy(target, source, size, stream.handle)
            where.check(code, "copying")


def copy_between(
    target: int, to: Context, source: int, origin: Context, size: int, stream: NativeStream
) -> None:
    """Copy bytes from one device to another of the same vendor."""
    if size:
        where = stream.context
        with where.active():
            code = where.driver.api().copy_between(
                target, to.handle, source, origin.handle, size, stream.handle
            )
        where.check(code, f"copying from {origin.label} to {to.label}")

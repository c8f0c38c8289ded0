"""Arrays of other libraries, taken without a copy: PyTorch directly, others by DLPack or the
protocol of NumPy or CUDA.

Order against work that the other library has not finished: DLPack and the CUDA array interface tell
the producer or us to wait. PyTorch tensors given to a launch are taken by their address; the
streams of cubepy are ordered against the default stream, where PyTorch works unless it is told
otherwise.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from cubepy.errors import LaunchError
from cubepy.lang.dtypes import as_dtype
from cubepy.runtime.device import GPUS, Device, backend_named, gpu_of
from cubepy.runtime.memory import dlpack
from cubepy.runtime.memory.device_array import DeviceArray, aligned
from cubepy.runtime.memory.hazards import Tracked
from cubepy.runtime.memory.layout import Layout, layout_of
from cubepy.runtime.tables import room

_GPUS = (dlpack.CUDA, dlpack.ROCM)


class Borrowed(Tracked):
    """Memory that another library owns; the object keeps it alive."""

    __slots__ = ("holder",)

    def __init__(self, holder: Any) -> None:
        super().__init__()
        self.holder = holder


def device_array(value: Any) -> DeviceArray | None:
    """The device array behind a value of another library, or None if it is none."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return from_torch(value) if value.is_cuda else None
    where = getattr(value, "__dlpack_device__", None)
    if where is not None:
        kind, ordinal = where()
        return from_dlpack(value, int(ordinal)) if kind in _GPUS else None
    interface = getattr(value, "__cuda_array_interface__", None)
    return None if interface is None else from_interface(value, interface)


BITS = {"bfloat16": "int16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}
"""PyTorch's dtypes that NumPy lacks, and integers as wide."""


def host_array(value: Any) -> np.ndarray:
    """An array of another library in the memory of the host, by DLPack; PyTorch's bf16 and fp8,
    too.

    Raises:
        LaunchError: its library does not give it away: it requires a gradient, is sparse, or has no
        memory.
    """
    torch = sys.modules.get("torch")
    try:
        if (
            torch is not None
            and isinstance(value, torch.Tensor)
            and (bits := BITS.get(_torch_name(value)))
        ):
            return np.from_dlpack(value.view(getattr(torch, bits))).view(_torch_dtype(value))
        return np.from_dlpack(value)
    except (
        BufferError,
        RuntimeError,
        TypeError,
    ) as error:  # what producers raise, and NumPy for dtypes it lacks
        raise LaunchError(
            f"an array of the type {type(value).__name__} cannot be used as it is: {error}",
            hint=_dense_hint(value),
        ) from error


def _dense_hint(value: Any) -> str:
    """What to do about an array that its library does not give away."""
    if getattr(value, "requires_grad", False):
        return "pass x.detach()"
    sparse = str(getattr(value, "layout", "")).startswith("torch.sparse")
    return "it is sparse: pass x.to_dense()" if sparse else "pass a dense NumPy array"


def _torch_name(tensor: Any) -> str:
    return str(tensor.dtype).rpartition(".")[2]


def _torch_dtype(tensor: Any) -> np.dtype:
    name = _torch_name(tensor)
    return as_dtype({"float8_e4m3fn": "fp8_e4m3", "float8_e5m2": "fp8_e5m2"}.get(name, name)).numpy


def _torch_gpus() -> str:
    """The backend of PyTorch's GPUs: built for ROCm, it calls AMD's "cuda", too."""
    version = getattr(sys.modules.get("torch"), "version", None)
    return "hip" if getattr(version, "hip", None) else "cuda"


_torch_layouts: dict[Any, Layout] = {}


def from_torch(tensor: Any) -> DeviceArray:
    """A PyTorch tensor on a GPU.

    Raises:
        LaunchError: it requires a gradient: writes would be lost to autograd.
    """
    try:
        key = (
            tensor.dtype,
            tensor.shape,
            tensor.stride(),
            tensor.get_device(),
            tensor.requires_grad,
        )
    except RuntimeError as error:  # a sparse tensor has no strides
        raise LaunchError(
            f"a PyTorch tensor cannot be used as it is: {error}", hint=_dense_hint(tensor)
        ) from error
    layout = _torch_layouts.get(key)
    if layout is None:
        if tensor.requires_grad:
            raise LaunchError(
                "a PyTorch tensor that requires a gradient cannot be used", hint="pass x.detach()"
            )
        dtype = _torch_dtype(tensor)
        strides = tuple(s * dtype.itemsize for s in key[2])
        layout = layout_of(tuple(key[1]), strides, dtype, Device(_torch_gpus(), key[3]))
        room(_torch_layouts, 4096)
        _torch_layouts[key] = layout
    return DeviceArray(tensor.data_ptr(), layout, Borrowed(tensor))


def from_torch_or_none(tensor: Any) -> DeviceArray | None:
    """A PyTorch tensor if it is on a GPU."""
    return from_torch(tensor) if tensor.get_device() >= 0 else None


def from_dlpack(value: Any, ordinal: int = 0) -> DeviceArray:
    """An array by DLPack: its producer orders its work before the stream of this thread."""
    kind, ordinal = value.__dlpack_device__()
    backend = "cuda" if kind == dlpack.CUDA else "hip"
    handle = gpu_of(Device(backend, int(ordinal))).thread_stream(int(ordinal)).handle
    try:
        capsule = value.__dlpack__(stream=handle, max_version=(1, 0))
    except TypeError:  # a producer of version 0
        capsule = value.__dlpack__(stream=handle)
    address, layout, owner, writeable = dlpack.take(capsule)
    return aligned(DeviceArray(address, layout, owner, writeable))


def from_interface(value: Any, interface: dict[str, Any]) -> DeviceArray:
    """An array by `__cuda_array_interface__`, which libraries for AMD GPUs have, too."""
    address, read_only = interface["data"]
    dtype = np.dtype(interface["typestr"])
    as_dtype(dtype)
    gpus = next((name for name in GPUS if backend_named(name).count()), GPUS[0])
    ordinal = _ordinal_of(value, address, gpus)
    shape, strides = tuple(interface["shape"]), interface.get("strides")
    layout = layout_of(
        shape, None if strides is None else tuple(strides), dtype, Device(gpus, ordinal)
    )
    stream = interface.get("stream")
    if stream is not None:
        gpu = gpu_of(layout.device)
        mine = gpu.thread_stream(ordinal)
        if stream != mine.handle:
            mine.wait(gpu.new_stream(ordinal, int(stream)))
    return aligned(DeviceArray(address or 0, layout, Borrowed(value), not read_only))


def _ordinal_of(value: Any, address: int, gpus: str) -> int:
    device = getattr(value, "device", None)
    for name in ("id", "index", "ordinal"):
        found = getattr(device, name, None)
        if isinstance(found, int):
            return found
    return int(gpu_of(Device(gpus, 0)).ordinal_of(address)) if address else 0

"""`DeviceArray`: an n-dimensional array in the memory of a device, with the shape operations of a
NumPy array.

It is no NumPy array: nothing on the host can touch an element, so nothing can crash by it. Views
share memory, everything that moves elements is a kernel, and only `numpy()` and `item()` bring
elements to the host.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from cubepy.errors import DeviceError, DTypeError, LaunchError, ShapeError
from cubepy.lang.dtypes import as_dtype
from cubepy.runtime import masked, recording
from cubepy.runtime.device import Device, gpu_of
from cubepy.runtime.memory import dlpack
from cubepy.runtime.memory.layout import Flags, Layout, layout_of, reshaped, whole

FUNCTIONS: dict[Any, Callable[..., Any]] = {}
"""What NumPy's functions do with device arrays (`numpy_protocol` fills it)."""


class DeviceArray:
    """An n-dimensional array in device memory.

    Attributes:
        address: of the first element.
        layout: shape, strides in bytes, dtype and device.
        owner: the memory, kept alive; it remembers the streams that use it.
        writeable: whether kernels may write it.
    """

    __slots__ = ("__weakref__", "address", "layout", "owner", "writeable")
    __array_priority__ = 50
    __hash__ = object.__hash__

    def __init__(self, address: int, layout: Layout, owner: Any, writeable: bool = True) -> None:
        self.address, self.layout, self.owner, self.writeable = address, layout, owner, writeable

    # What it is

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes."""
        return self.layout.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next, for each axis."""
        return self.layout.strides

    @property
    def dtype(self) -> np.dtype:
        """The element type."""
        return self.layout.dtype

    @property
    def device(self) -> Device:
        """Where the elements are."""
        return self.layout.device

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self.layout.ndim

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.layout.size

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.layout.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.layout.nbytes

    @property
    def flags(self) -> Flags:
        """`c_contiguous` and `writeable`."""
        return Flags(self.layout.contiguous, self.writeable)

    @property
    def base(self) -> Any:
        """The memory that the array is a view of."""
        return self.owner

    def __len__(self) -> int:
        if not self.layout.shape:
            raise TypeError("len() of an array of rank 0")
        return self.layout.shape[0]

    def __repr__(self) -> str:
        return f"DeviceArray({self.layout!r})"

    # Views

    def _view(self, key: Any, make: Any) -> DeviceArray:
        layout, offset = self.layout.view(key, make)
        return DeviceArray(self.address + offset, layout, self.owner, self.writeable)

    @property
    def T(self) -> DeviceArray:
        """The axes reversed."""
        layout = self.layout
        turned = layout.alike(layout.shape[::-1], layout.strides[::-1])
        return DeviceArray(self.address, turned, self.owner, self.writeable)

    def _in_order(self, shape: tuple[int, ...]) -> DeviceArray | None:
        """Contiguous elements in another shape; None where NumPy has to look at it."""
        layout = self.layout
        if not layout.contiguous or not shape or min(shape) < 1 or math.prod(shape) != layout.size:
            return None
        return DeviceArray(self.address, layout.alike(shape, None), self.owner, self.writeable)

    def transpose(self, *axes: Any) -> DeviceArray:
        """The axes in another order (reversed by default)."""
        order = (
            axes[0]
            if len(axes) == 1 and (axes[0] is None or isinstance(axes[0], (tuple, list)))
            else axes
        )
        order = tuple(map(operator.index, order)) if order else None
        return self._view(("transpose", order), lambda a: a.transpose(order))

    def view(self, dtype: Any = None) -> DeviceArray:
        """The same bytes, as another dtype if one is given.

        Raises:
            LaunchError: the address is no multiple of the new element.
        """
        if dtype is None:
            return DeviceArray(self.address, self.layout, self.owner, self.writeable)
        wanted = np.dtype(dtype)
        return aligned(self._view(("view", wanted.num), lambda a: a.view(wanted)))

    def reshape(self, *shape: Any) -> DeviceArray:
        """The elements in another shape: a view where the strides allow one, else a contiguous
        copy.
        """
        wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        wanted = tuple(map(whole, wanted))
        found = self._in_order((self.layout.size,) if wanted == (-1,) else wanted)
        if found is not None:
            return found
        try:
            return self._view(("reshape", wanted), lambda a: reshaped(a, wanted))
        except AttributeError:
            return self.copy().reshape(wanted)

    def reshape_view(self, shape: tuple[int, ...]) -> DeviceArray:
        """A view in another shape.

        Raises:
            AttributeError: the strides allow none (as setting the shape of a NumPy array).
        """
        found = self._in_order(shape)
        return (
            self._view(("reshape", shape), lambda a: reshaped(a, shape)) if found is None else found
        )

    def ravel(self) -> DeviceArray:
        """The elements in one axis."""
        return self.reshape(-1)

    def squeeze(self, axis: Any = None) -> DeviceArray:
        """Without axes of length 1."""
        return self._view(("squeeze", axis), lambda a: a.squeeze(axis))

    def strided(self, shape: tuple[int, ...], strides: tuple[int, ...]) -> DeviceArray:
        """Another shape and other strides from the same address; what they reach is not checked."""
        layout = self.layout.alike(tuple(shape), tuple(strides))
        return DeviceArray(self.address, layout, self.owner, self.writeable)

    def __getitem__(self, index: Any) -> DeviceArray:
        parts = index if isinstance(index, tuple) else (index,)
        key: list[Any] = ["["]
        plain: list[Any] = []
        for p in parts:
            if p is None or p is Ellipsis:
                key.append(p)
            elif isinstance(p, slice):
                p = slice(*(None if v is None else whole(v) for v in (p.start, p.stop, p.step)))
                key.append((p.start, p.stop, p.step))
            elif isinstance(p, (list, np.ndarray, DeviceArray, bool, np.bool_)) or not hasattr(
                p, "__index__"
            ):
                raise DTypeError(
                    "an array on a device is indexed by integers, slices, None and ..., not "
                    f"by {type(p).__name__}",
                    hint="use kernels.embedding(indices, x) for rows, or x.numpy()[indices]",
                )
            else:
                p = whole(p)
                key.append(p)
            plain.append(p)
        if Ellipsis not in parts:
            plain.append(Ellipsis)  # even one element is a view of rank 0, not a number
        found = tuple(plain)
        return self._view(tuple(key), lambda a: a[found])

    # Elements

    def numpy(self) -> np.ndarray:
        """The elements as a NumPy array: waits for the work that makes them, and copies.

        Raises:
            OutOfBoundsError, KernelAssertionError, DeviceError: what went wrong in that work.
        """
        source = self if self.layout.contiguous else self.copy()
        target = np.empty(self.layout.shape, self.layout.dtype)
        recording.spoil()
        gpu_of(self.layout.device).download(target, source)
        return target

    def item(self) -> Any:
        """The only element, as a Python number."""
        if self.layout.size != 1:
            raise ShapeError(
                f"item() needs one element; this array of shape {self.shape} has {self.size}"
            )
        return self.numpy().item()

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers."""
        return self.numpy().tolist()

    def copy(self) -> DeviceArray:
        """A contiguous copy on the same device."""
        out = empty(self.layout.shape, self.layout.dtype, self.layout.device)
        assign(out, self)
        return out

    def __deepcopy__(self, memo: dict[int, Any]) -> DeviceArray:
        """Memory of its own, with the axes in the order that they have here."""
        order = sorted(range(self.ndim), key=lambda a: -abs(self.strides[a]))
        return self.transpose(order).copy().transpose([order.index(a) for a in range(self.ndim)])

    def __reduce__(self) -> tuple[Any, ...]:
        return upload, (self.numpy(), self.device)

    def astype(self, dtype: Any, copy: bool = True) -> DeviceArray:
        """The elements in another dtype; floats to integers truncate and saturate."""
        wanted = as_dtype(dtype).numpy
        if wanted == self.layout.dtype:
            return self.copy() if copy else self
        out = empty(self.layout.shape, wanted, self.layout.device)
        assign(out, self)
        return out

    def fill(self, value: Any) -> None:
        """Set every element to a number."""
        assign(self, value)

    def __setitem__(self, index: Any, value: Any) -> None:
        if not self.writeable:
            raise LaunchError("the array is read-only", hint="write to a copy")
        assign(self if index is Ellipsis else self[index], value)

    # To and from others

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        raise DeviceError(
            f"an array on {self.device} does not turn into a NumPy array by itself",
            hint="copy it to the host with x.numpy(); write functions of it as kernels or with "
            "cubepy.kernels",
        )

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        raise DeviceError(
            f"numpy.{ufunc.__name__} cannot work on an array on {self.device}",
            hint="use cubepy.kernels, a tensor, or x.numpy()",
        )

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """What a function of NumPy gives.

        Raises:
            DeviceError: a function that would need the elements on the host.
        """
        found = FUNCTIONS.get(function)
        if found is None:
            raise DeviceError(
                f"numpy.{function.__name__} cannot work on an array on {self.device}",
                hint="use cubepy.kernels, a tensor, or x.numpy()",
            )
        return found(*args, **kwargs)

    def _host(self, *args: Any) -> Any:
        raise DeviceError(
            f"the value of an array on {self.device} is not known on the host",
            hint="use x.item() or x.numpy()",
        )

    __bool__ = __float__ = __int__ = __index__ = __iter__ = __contains__ = _host

    def __eq__(self, other: object) -> Any:
        return self is other or self._host()

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.layout.device.backend != "cuda":
            raise AttributeError("__cuda_array_interface__")
        if not self.layout.dtype.isbuiltin == 1:
            raise DTypeError(
                f"__cuda_array_interface__ has no name for {self.dtype}",
                hint="use DLPack: torch.from_dlpack(x)",
            )
        gpu = gpu_of(self.layout.device)
        recording.spoil()
        return {
            "version": 3,
            "shape": self.layout.shape,
            "typestr": self.layout.dtype.str,
            "descr": [("", self.dtype.str)],
            "strides": None if self.layout.contiguous else self.layout.strides,
            "data": (self.address if self.layout.size else 0, not self.writeable),
            "stream": gpu.stream_for(self).handle,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.device_of(self.layout.device)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: Any = None,
        dl_device: Any = None,
        copy: bool | None = None,
    ) -> Any:
        if dl_device is not None and tuple(map(int, dl_device)) != self.__dlpack_device__():
            raise BufferError(
                f"an array on {self.device} is not given to the DLPack device {dl_device}"
            )
        recording.spoil()
        source = self.copy() if copy else self
        gpu_of(self.layout.device).hand_over(source, stream)
        return dlpack.export(
            source, versioned=max_version is not None and max_version[0] >= 1, copied=bool(copy)
        )


def aligned(array: DeviceArray) -> DeviceArray:
    """The array, unless it begins inside an element: a GPU loads whole ones only.

    Raises:
        LaunchError: it does.
    """
    if array.itemsize > 1 and array.address % array.itemsize and array.size:
        raise LaunchError(
            f"an array of {array.dtype} on {array.device} is at the address "
            f"{array.address:#x}, which is no multiple of its element ({array.itemsize} "
            "bytes)",
            hint="copy it to memory of its own first",
        )
    return array


def empty(shape: tuple[int, ...], dtype: Any, device: Device) -> DeviceArray:
    """An uninitialised array on a device.

    Raises:
        OutOfMemoryError: the device has no memory for it.
    """
    recorder = recording.current() if recording.active else None
    if recorder is not None and recorder.symbolic:
        return recorder.empty(tuple(shape), np.dtype(dtype), device)  # type: ignore[no-any-return]
    layout = layout_of(tuple(shape), None, np.dtype(dtype), device)
    owner = gpu_of(device).allocate(device.ordinal, layout.nbytes)
    if recorder is not None:
        recorder.allocation(owner, layout.nbytes)
    return DeviceArray(owner.address, layout, owner)


def upload(array: np.ndarray, device: Device) -> DeviceArray:
    """A copy of a NumPy array on a device."""
    source = array if array.flags.c_contiguous else array.copy()
    owner = gpu_of(device).upload_new(device.ordinal, source)
    out = DeviceArray(owner.address, layout_of(source.shape, None, source.dtype, device), owner)
    if recording.active and (recorder := recording.current()) is not None:
        recorder.constant(out)
    return out


def assign(target: DeviceArray, value: Any) -> None:
    """Write a number, a NumPy array or a device array into an array, broadcast and converted.

    Raises:
        ShapeError: the value does not broadcast to the target.
    """
    if not isinstance(value, DeviceArray):
        host = np.asarray(masked.refused(value, "the value"), target.dtype)
        if host.size == 1 and target.layout.contiguous and len(set(host.tobytes())) == 1:
            _put(gpu_of(target.device).fill, target, host.tobytes()[0])
            return
        if target.layout.contiguous and host.shape == target.shape and host.flags.c_contiguous:
            recording.spoil()
            gpu_of(target.device).upload(target, host)
            return
        value = upload(host, target.device)
    if target.layout.size == 0 and value.layout.size <= 1:
        return
    if value.shape != target.shape:
        try:
            value = broadcast_to(value, target.shape)
        except ValueError:
            raise ShapeError(
                f"an array of shape {value.shape} does not fit into one of {target.shape}"
            ) from None
    if target.layout.size:
        gpu = gpu_of(target.device)
        plain = target.dtype == value.dtype and target.layout.contiguous and value.layout.contiguous
        if plain or value.device != target.device:
            _put(gpu.copy, target, value)
        else:
            gpu.copy(target, value)


def _put(function: Callable[..., None], *arguments: Any) -> None:
    """Put a copy or a fill on the stream."""
    if recording.active and (recorder := recording.current()) is not None:
        recorder.call(function, *arguments)
        if recorder.symbolic:
            return
    function(*arguments)


def broadcast_to(array: DeviceArray, shape: Any, subok: bool = False) -> DeviceArray:
    """A read-only view stretched to a shape."""
    wanted = (operator.index(shape),) if not isinstance(shape, (tuple, list)) else tuple(shape)
    view = array._view(("broadcast", wanted), lambda a: np.broadcast_to(a, wanted))
    view.writeable = array.writeable and view.shape == array.shape
    return view


def host(array: Any) -> np.ndarray:
    """The elements as a NumPy array, copied only from a device."""
    return array.numpy() if isinstance(array, DeviceArray) else array

"""Where the elements of a tensor are: a plain buffer, or a packed form that only some ops can read.

A storage has a `kind`; ops look up their executor by it (`cubepy.tensor.execute`). A new form of
storage, such as quantized weights, subclasses `Storage`, names its kind, and registers executors
for the ops that read it.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, ClassVar

import numpy as np

from cubepy.compiler.signature import exact
from cubepy.errors import DeviceError, DTypeError, KernelTypeError, ShapeError
from cubepy.lang.dtypes import DType, as_dtype
from cubepy.runtime.device import Device, current, gpu_of
from cubepy.runtime.interop.accepted import hint_for, host_data
from cubepy.runtime.memory.device_array import DeviceArray, empty, host, upload
from cubepy.runtime.tables import room


class Storage:
    """The elements of a tensor, in some form.

    Attributes:
        kind: the name under which executors are registered.
        shape: of the logical tensor.
        dtype: of the logical elements, which is what reading one gives.
        device: where the bytes are.
        packed: what `operands` gave, where that stays so.
    """

    kind: ClassVar[str] = "abstract"
    __slots__ = ("device", "dtype", "packed", "shape")

    def __init__(self, shape: tuple[int, ...], dtype: DType, device: Device | None = None) -> None:
        self.shape, self.dtype = shape, dtype
        self.packed: tuple[Any, ...] | None = None
        self.device = home(None) if device is None else device

    @property
    def nbytes(self) -> int:
        """Bytes that the storage takes in memory."""
        return sum(a.nbytes for a in self.arrays().values())

    def arrays(self) -> dict[str, Any]:
        """The arrays that the storage consists of, by name."""
        raise NotImplementedError

    def read(self) -> Iterable[Any]:
        """All arrays that launches may read, in an order that the plan decides; `arrays` and what
        is made of them.
        """
        return self.arrays().values()

    def plan(self) -> Any:
        """What of the storage besides its arrays decides how an op runs: hashable, or None if that
        is not known.
        """
        return None

    def operands(self) -> tuple[Any, ...] | None:
        """A text that stands for the plan, and the arrays: what an op is known by; None where it is
        not.
        """
        plan = self.plan()
        arrays = () if plan is None else tuple(self.read())
        known = bool(arrays) and {*map(type, arrays)} <= {np.ndarray, DeviceArray}
        return (text_of(plan), *arrays) if known else None

    def dense(self) -> Any:
        """The logical elements as one array on the storage's device (a copy, unless the storage is
        dense).
        """
        raise NotImplementedError

    def host(self) -> np.ndarray:
        """The logical elements as a NumPy array."""
        return host(self.dense())

    def with_dtype(self, dtype: DType) -> Storage:
        """The storage with results in another dtype; itself where they have their own."""
        return self

    def to(self, device: Device) -> Storage:
        """The storage on another device."""
        raise DeviceError(
            f"{self.kind} storage cannot move to {device}", hint="convert it: cb.tensor(x.numpy())"
        )


class Dense(Storage):
    """One array of any strides, of NumPy or on a device."""

    kind = "dense"
    __slots__ = ("array",)

    def __init__(self, array: Any, device: Device | None = None) -> None:
        self.array = array
        super().__init__(
            array.shape, as_dtype(array.dtype), home(array) if device is None else device
        )

    def arrays(self) -> dict[str, Any]:
        return {"data": self.array}

    def plan(self) -> Any:
        return "dense"

    def dense(self) -> Any:
        return self.array

    def to(self, device: Device) -> Dense:
        return self if device == self.device else Dense(moved(self.array, device), device)


_elements: Any = Dense.__dict__["array"]
_copying = threading.Lock()


class Unaligned(Dense):
    """Elements of the host at an address that kernels cannot read, in a file for instance: copied
    when somebody asks for them, not before.
    """

    __slots__ = ()

    def __init__(self, array: np.ndarray, device: Device) -> None:
        Storage.__init__(self, array.shape, as_dtype(array.dtype), device)
        _elements.__set__(self, array)

    @property
    def array(self) -> Any:  # type: ignore[override]
        copied = _elements.__get__(self).copy(order="K")
        with _copying:  # who comes second takes what the first one copied
            if type(self) is Unaligned:
                _elements.__set__(self, copied)
                self.__class__ = Dense  # type: ignore[assignment]
        return _elements.__get__(self)

    @property
    def nbytes(self) -> int:
        return int(_elements.__get__(self).nbytes)

    def turned(self) -> Dense:
        """The transposed matrix, as late as this one."""
        with _copying:
            late, array = type(self) is Unaligned, _elements.__get__(self)
        return Unaligned(array.T, self.device) if late else Dense(array.T, self.device)


class Gone(Dense):
    """No elements: whoever asks for them is told why."""

    __slots__ = ()

    def __init__(self, store: Storage) -> None:
        Storage.__init__(self, store.shape, store.dtype, store.device)

    def why(self) -> Exception:
        """The error for whoever asks."""
        raise NotImplementedError

    @property
    def array(self) -> Any:  # type: ignore[override]
        raise self.why()

    @property
    def nbytes(self) -> int:
        return 0

    def arrays(self) -> dict[str, Any]:
        raise self.why()

    def operands(self) -> tuple[Any, ...] | None:
        return None

    def dense(self) -> Any:
        raise self.why()


_texts: dict[Any, str] = {}
_numbers = itertools.count()


def text_of(plan: Any) -> str:
    """One text for equal plans, and another one for each other plan.

    Example:
        >>> four, eight = text_of(("packed", 4)), text_of(("packed", 8))
        >>> four is text_of(("packed", 4)), four == eight
        (True, False)
    """
    key = exact(plan)
    found = _texts.get(key)
    if found is None:
        room(_texts, 4096)
        found = _texts.setdefault(key, f"plan {next(_numbers)}")
    return found


def home(array: Any) -> Device:
    """The device that a new storage of an array is on; NumPy arrays are at home on any device
    without own memory.
    """
    if isinstance(array, DeviceArray):
        return array.device
    here = current()
    return HOST if gpu_of(here) is not None else here


HOST = Device("cpu")


@cache
def one_of(dtype: DType) -> Dense:
    """The number 1 on the host, which nobody writes."""
    array = np.ones((), dtype.numpy)
    array.flags.writeable = False
    return Dense(array, HOST)


def moved(array: Any, device: Device) -> Any:
    """An array in the memory of a device: copied only when it is elsewhere."""
    if isinstance(array, DeviceArray):
        if array.device == device:
            return array
        if gpu_of(device) is None:
            return array.numpy()
        out = empty(array.shape, array.dtype, device)
        out[...] = array
        return out
    return array if gpu_of(device) is None else upload(array, device)


def packed_linear(
    inputs: Sequence[Any], packed: type[Storage], said: str
) -> tuple[Any, Any, Any, Any]:
    """The inputs of the op "linear" where the weight is packed: x and the weight as storages, bias
    and residual as arrays or None.

    Args:
        inputs: of the op.
        packed: the class of the weight.
        said: what a message says of it: "in blocks".

    Raises:
        KernelTypeError: another input is packed.
    """
    x, weight, bias, residual = inputs
    if not isinstance(weight, packed):
        raise KernelTypeError(
            f"in a linear layer only the weight can be {said}, not its input, bias or residual",
            hint="convert the other: cb.tensor(x.numpy())",
        )
    bias, residual = (None if s is None else s.dense() for s in (bias, residual))
    return x, weight, bias, residual


KINDS = {"S": "bytes", "U": "texts", "c": "complex numbers", "O": "objects", "M": "dates"}
"""What arrays hold that are of no numeric dtype."""


def array_of_data(data: Any, wanted: DType | None) -> np.ndarray:
    """Numbers of a tensor as an array: of an array, nested lists or a number; floats of Python are
    f32.

    Raises:
        ShapeError: nested lists of different lengths.
        DTypeError: no numbers.
    """
    array = host_data(data, "the data of a tensor")
    if array is None:
        try:
            array = np.asarray(data)
        except ValueError as error:
            raise ShapeError(f"the nested lists have different lengths: {error}") from None
        if array.dtype == np.float64 and not hasattr(data, "dtype"):
            array = array.astype(np.float32 if wanted is None else wanted.numpy)
    if array.dtype.kind in "OUSMmc":
        otherwise = "give numbers, or an array of a numeric dtype"
        what = KINDS.get(array.dtype.kind, str(array.dtype))
        if what == "objects" and array.ndim == 0 and not isinstance(data, np.ndarray):
            what = f"a {type(data).__name__}"
        if isinstance(data, dict):
            otherwise = "take one of its values, as in x['output']"
        raise DTypeError(
            f"a tensor holds numbers, not {'None' if data is None else what}",
            hint=otherwise if isinstance(data, (list, tuple)) else hint_for(data, otherwise),
        )
    array = array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
    if wanted is not None and array.dtype != wanted.numpy:
        array = array.astype(wanted.numpy)
    return array

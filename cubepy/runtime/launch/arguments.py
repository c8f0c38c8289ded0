"""Taking launch arguments apart: what decides the code (specs) and what is passed at run time
(leaves).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from cubepy.compiler.signature import (
    ArraySpec,
    ComptimeSpec,
    ScalarSpec,
    Spec,
    StructSpec,
    TupleSpec,
)
from cubepy.errors import ComptimeError, DTypeError, KernelTypeError, LaunchError
from cubepy.lang import dtypes as dt
from cubepy.lang.annotations import TensorMap
from cubepy.lang.declare import Kernel, Param
from cubepy.lang.dtypes import as_dtype
from cubepy.lang.struct import Struct
from cubepy.lang.views import plain
from cubepy.runtime import device as devices
from cubepy.runtime.interop.accepted import hint_for
from cubepy.runtime.interop.arrays import NUMBERS, array_like
from cubepy.runtime.memory.device_array import DeviceArray
from cubepy.runtime.memory.spans import ARRAYS
from cubepy.runtime.symbolic.number import Symbol
from cubepy.runtime.tables import room

_I32 = ScalarSpec(dt.i32)


def layout_of(array: Any) -> str:
    """The layout class of an array."""
    if array.layout.contiguous if type(array) is DeviceArray else array.flags.c_contiguous:
        return "contiguous"
    return "last" if array.ndim and array.strides[-1] == array.itemsize else "strided"


def check_array(array: Any, name: str, what: str) -> Any:
    """Refuse what no kernel can address: the array in a parameter, or in a field of it.

    Raises:
        DTypeError: a dtype without meaning in kernels.
        LaunchError: strides that are no multiple of the element, or misaligned data.
    """
    try:
        as_dtype(array.dtype)
    except DTypeError as error:
        field = f" ({name})" if "." in name else ""
        message = f"{what}{field} is an array of {array.dtype}, which cannot be used in a kernel"
        raise DTypeError(message, hint=error.hint) from None
    size = array.dtype.itemsize  # an axis of one element takes no step, whatever its stride
    if size > 1 and any(
        s % size and n > 1 for s, n in zip(array.strides, array.shape, strict=True)
    ):
        raise LaunchError(
            f"the strides {array.strides} of {what} are no multiple of its element "
            f"({array.itemsize} bytes)",
            hint="copy it with numpy.ascontiguousarray",
        )
    return array


@lru_cache(4096)
def named(parameter: str, kernel: str) -> str:
    """What messages call a parameter."""
    return f"the parameter {parameter!r} of {kernel}"


def flatten(param: Param, value: Any, kernel: Kernel) -> tuple[Spec, list[Any]]:
    """The spec of one argument, and its runtime leaves (arrays and numbers) in order.

    Raises:
        KernelTypeError, ComptimeError, DTypeError: the value does not fit the parameter.
    """
    if (
        type(value) is DeviceArray
        and param.kind in ("array", "any")
        and value.layout.spec is not None
    ):
        return value.layout.spec, [value]
    what = named(param.name, kernel.__name__)
    if param.kind == "comptime":
        return comptime(value, what), []
    if type(value) is np.ndarray and param.kind in ("array", "any"):
        return _array(value, param.name, what)
    if param.kind == "scalar":
        if not isinstance(value, NUMBERS):
            name = param.dtype.name  # type: ignore[union-attr]
            raise KernelTypeError(
                f"{what} is a number of dtype {name} but is given {_short(value)}",
                hint="pass a number; a parameter for an array is annotated cb.Array",
            )
        return scalar(value, param.dtype, what)
    if param.kind == "array":
        array = array_like(value)
        if array is None:
            raise KernelTypeError(
                f"{what} is an array but is given {_short(value)}",
                hint=hint_for(value, "pass a NumPy array or a tensor"),
            )
        return _array(array, param.name, what)
    if param.kind == "map" and not isinstance(value, TensorMap):
        raise KernelTypeError(
            f"{what} is a tensor map but is given {_short(value)}",
            hint="pass cb.tensor_map(array, box)",
        )
    if param.kind == "struct" and not (
        isinstance(value, Struct) and value.__cubepy_type__ is param.struct
    ):
        fields = ", ".join(f.name for f in param.struct.fields)
        raise KernelTypeError(
            f"{what} is a {param.struct.__name__} but is given {_short(value)}",
            hint=f"pass {param.struct.__name__}({fields})",
        )
    if param.kind == "view" and not isinstance(value, Struct):
        array = array_like(value)
        if array is None:
            raise KernelTypeError(f"{what} is a view but is given {_short(value)}")
        value = plain(array)
    return _any(value, param.name, what)


def _any(value: Any, name: str, what: str) -> tuple[Spec, list[Any]]:
    kind = type(value)
    if kind is DeviceArray or kind is np.ndarray:
        return _array(value, name, what)
    if kind is int or kind is float or kind is Symbol:
        return scalar(value, None, what)
    if isinstance(value, Struct):
        fields, leaves = [], []
        for f in value.__cubepy_type__.fields:
            v = value.__cubepy_values__[f.name]
            if f.kind == "comptime":
                spec: Spec = comptime(v, f"the field {value.__cubepy_type__.__name__}.{f.name}")
                mine: list[Any] = []
            elif f.kind == "scalar":
                spec, mine = scalar(
                    v, f.dtype, f"the field {value.__cubepy_type__.__name__}.{f.name}"
                )
            else:
                spec, mine = _any(v, f"{name}.{f.name}", what)
            fields.append((f.name, spec))
            leaves += mine
        return StructSpec(value.__cubepy_type__, tuple(fields)), leaves
    if isinstance(value, NUMBERS):
        return scalar(value, None, what)
    if isinstance(value, TensorMap):
        return value.spec, [value]  # type: ignore[attr-defined]
    if isinstance(value, tuple):
        parts = [_any(v, f"{name}.{i}", what) for i, v in enumerate(value)]
        if all(isinstance(s, ComptimeSpec) for s, _ in parts):
            return ComptimeSpec(tuple(s.value for s, _ in parts)), []  # type: ignore[union-attr]
        return TupleSpec(tuple(s for s, _ in parts)), [operand for _, ls in parts for operand in ls]
    array = array_like(value)
    if array is not None:
        return _array(array, name, what)
    if value is None or isinstance(value, str) or callable(value):
        return comptime(value, what), []
    raise KernelTypeError(
        f"{what} cannot be {_short(value)}",
        hint="runtime arguments are arrays, views, structs and numbers; annotate it "
        "cb.Comptime[...] to pass anything hashable",
    )


def _array(array: Any, name: str, what: str) -> tuple[Spec, list[Any]]:
    if type(array) is DeviceArray and array.layout.spec is not None:
        return array.layout.spec, [array]
    layout = layout_of(array)
    known = _arrays.get((array.dtype, array.ndim, layout))
    if known is None or layout != "contiguous":
        check_array(array, name, what)
    given = array.reshape(1) if array.ndim == 0 else array
    if known is None:
        room(_arrays, 1024)
        known = _arrays[array.dtype, array.ndim, layout] = array_spec(
            as_dtype(array.dtype), given.ndim, layout_of(given)
        )
    if type(array) is DeviceArray:
        given.layout.spec = known
    return known, [given]


_arrays: dict[tuple[Any, int, str], ArraySpec] = {}
"""Specs of arrays by dtype of NumPy, rank and layout class."""


@lru_cache(1024)
def array_spec(dtype: dt.DType, ndim: int, layout: str) -> ArraySpec:
    """The one object for this spec, since specs are compared at every launch of a new shape."""
    return ArraySpec(dtype, ndim, layout)


def scalar(value: Any, dtype: dt.DType | None, what: str) -> tuple[Spec, list[Any]]:
    """A runtime number, converted for an annotated dtype."""
    if type(value) is Symbol:
        return _symbolic(value, dtype, what)
    if dtype is None:
        if type(value) is int and -(1 << 31) <= value < 1 << 31:
            return _I32, [value]
        weak = isinstance(value, float) and not isinstance(value, np.generic)
        found = dt.scalar_dtype(value)
        return ScalarSpec(found.compute, weak), [number(value, found)]
    return ScalarSpec(dtype.compute), [fitting(value, dtype, what)]


def _symbolic(value: Any, dtype: dt.DType | None, what: str) -> tuple[Spec, list[Any]]:
    """The same for a symbol."""
    found = dt.scalar_dtype(value) if dtype is None else dtype
    spec = ScalarSpec(found.compute, dtype is None and found.is_float)
    if found.is_int:
        if not isinstance(value, int) or not dt.fits(value, found):
            fitting(value.value, found, what)  # says what is wrong
        return spec, [value]
    return spec, [value.trace.apply(number, value, found)]


def fitting(value: Any, dtype: dt.DType, what: str) -> Any:
    """A number as a dtype has it.

    Raises:
        DTypeError: the dtype cannot hold it.
    """
    if dtype.is_int and isinstance(value, (float, np.floating)):
        raise DTypeError(
            f"{what} is {dtype.name} but is given the float {value!r}",
            hint="convert it with int(...)",
        )
    if isinstance(value, np.generic) and value.dtype.kind not in "biufV":  # V: narrow floats
        raise KernelTypeError(f"{what} is {dtype.name} but is given {value!r}")
    if dtype.is_int and not dt.fits(int(value), dtype):
        raise DTypeError(
            f"{what} is {dtype.name}, which cannot hold {value}",
            hint="annotate it with a wider dtype, or with none: an int takes i32 or i64",
        )
    try:
        return number(value, dtype)
    except OverflowError:  # an integer of more digits than floats have
        raise DTypeError(f"{what} is {dtype.name}, which cannot hold {value}") from None


def conversion(param: Param, kernel: Kernel) -> Callable[[Any], Any]:
    """What makes the leaf of a number that is given for a parameter.

    Raises (when called):
        DTypeError: a number that the parameter's dtype cannot hold.
    """
    if param.kind != "scalar":
        return lambda value: number(value, dt.scalar_dtype(value))
    dtype, what = param.dtype, f"the parameter {param.name!r} of {kernel.__name__}"
    assert dtype is not None
    return lambda value: fitting(value, dtype, what)


def number(value: Any, dtype: dt.DType) -> Any:
    """A Python number that is exactly the value in its dtype."""
    if dtype is dt.f32 and isinstance(value, (float, np.float32, np.float16)):
        return ctypes.c_float(float(value)).value
    if dtype.is_float and dtype is not dt.f64:
        with np.errstate(over="ignore"):
            return float(dtype.numpy.type(value))
    return float(value) if dtype.is_float else (bool(value) if dtype.kind == "b" else int(value))


def comptime(value: Any, what: str) -> Spec:
    """A comptime value; it must be hashable and plain.

    Raises:
        ComptimeError: an array, or something unhashable.
    """
    if isinstance(value, (np.ndarray, DeviceArray)):
        raise ComptimeError(
            f"{what} is comptime and cannot be an array", hint="pass it as a runtime argument"
        )
    spec = ComptimeSpec(value)
    try:
        hash(spec)
    except TypeError:
        raise ComptimeError(
            f"{what} is comptime and must be hashable, not {_short(value)}",
            hint="use a tuple instead of a list, a frozen dataclass instead of a dict",
        ) from None
    return spec


def _short(value: Any) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) < 60 else text[:57] + '...'}"


class HostMemoryError(LaunchError):
    """An array in the memory of the host is given to a launch on a device that has its own."""


def device_of(where: Any, leaves: list[Any], kernel: str) -> Any:
    """The device of a launch: the one that is named, else that of its arrays, else the current one.

    Raises:
        LaunchError: an array that lives elsewhere.
    """
    arrays = [
        v.array if isinstance(v, TensorMap) else v  # type: ignore[attr-defined]
        for v in leaves
        if isinstance(v, (*ARRAYS, TensorMap))
    ]
    if where is not None:
        dev = devices.as_device(where)
    else:
        dev = next((a.device for a in arrays if type(a) is DeviceArray), None) or devices.current()
    own_memory = devices.gpu_of(dev) is not None
    for a in arrays:
        if type(a) is not DeviceArray:
            if own_memory:
                raise HostMemoryError(
                    f"{kernel} is launched on {dev} with a NumPy array, which is in the "
                    "memory of the host",
                    hint=f'copy it to the device: cb.tensor(x, device="{dev}")',
                )
        elif a.device != dev:
            raise LaunchError(
                f"{kernel} is launched on {dev} with an array on {a.device}",
                hint=f'move it: x.to("{dev}")',
            )
    return dev

"""What the library's functions accept and give back: NumPy arrays in, NumPy arrays out; tensors likewise.

Arrays on a GPU (`DeviceArray`, or tensors of other libraries) give arrays on that GPU: `placed` makes the device of
the inputs the current one, and whatever a function allocates or asks of the device follows.
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from cubepy.compiler.signature import exact
from cubepy.errors import (
    AliasError,
    ArgumentError,
    CubeError,
    DTypeError,
    LaunchError,
    OutOfMemoryError,
    ReadOnlyError,
    ShapeError,
)  # fmt: skip
from cubepy.kernels.options import looked_at, shown
from cubepy.lang.declare import Struct
from cubepy.lang.dtypes import DType, as_dtype
from cubepy.runtime import memory, recording
from cubepy.runtime.device import Device, current, gpu_of, use
from cubepy.runtime.interop.arrays import PLAIN, lift
from cubepy.runtime.interop.foreign import device_array, host_array
from cubepy.runtime.launch.arguments import HostMemoryError
from cubepy.runtime.memory.device_array import DeviceArray
from cubepy.runtime.memory.spans import meet
from cubepy.runtime.replay import trace
from cubepy.runtime.replay.front import Opened, front
from cubepy.runtime.replay.gpu_arguments import ON_GPU, TENSORS, array_in, note_torch
from cubepy.runtime.replay.record import Recorder
from cubepy.runtime.stats import active

F = TypeVar("F", bound=Callable[..., Any])
_INTS = {int}
LONGEST = 2**31 - 1  # places of an axis of an image, and of a window
_NOWHERE = frozenset({np.ndarray, int, float, bool, str, tuple, list, type(None)})


def placed(function: F) -> F:
    """Run a library function on the device of its inputs, whatever the current device is.

    On a device with its own memory the second call with arrays of the same layouts repeats the launches of the
    first one (see `cubepy.runtime.replay.trace`). Options are looked at first (see `cubepy.kernels.options`).
    """
    look = looked_at(function)

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        look(args, kwargs)
        return _at_home(function, args, kwargs)

    return run  # type: ignore[return-value]


def _at_home(function: Any, args: tuple, kwargs: dict[str, Any], seen: Seen | None = None) -> Any:
    """Run a function where the first argument is that lives on a device."""
    try:
        for value in args:
            if type(value) not in _NOWHERE:
                where = home_of(value)
                if where is not None:
                    return _run_on(where, function, args, kwargs, seen)
        return function(*args, **kwargs)
    except MemoryError as error:
        if isinstance(error, CubeError):
            raise
        raise _too_much(function, error) from error


def _too_much(function: Any, error: MemoryError) -> OutOfMemoryError:
    """What a function raises where NumPy found no memory."""
    message = f"{function.__name__} needs more memory than there is: {error}"
    return OutOfMemoryError(message, hint="check the shapes and sizes that were given")


def repeated(function: F) -> F:
    """`placed`, and on a CPU the launches of an earlier call with arrays of the same layouts are repeated.

    Only for functions whose work is all launches, and whose launches depend on layouts, alignment of what is written,
    and options alone: no look at elements on the host, no step of NumPy that writes what a launch writes, too.
    Outputs may begin anywhere; a call that finds one at a line of the cache is repeated for such only.
    """
    return front(placed(function), _maybe_on_gpu)  # type: ignore[return-value]


def repeated_with(parameter: str, holder: type, *parts: str) -> Callable[[F], F]:
    """`repeated`, where a parameter may also be a `holder`, of which the attributes `parts` decide (see `Opened`)."""
    return lambda function: front(placed(function), _maybe_on_gpu, Opened(parameter, holder, parts))  # type: ignore[return-value]


def repeated_back(function: F) -> F:
    """`repeated`, for gradients by an input, whose shape is the first argument and whose first array is the second."""
    signature = inspect.signature(function)
    size, grad, *rest = signature.parameters.values()

    def by_array(grad_output: Any, input_size: Any, *args: Any, **kwargs: Any) -> Any:
        return function(input_size, grad_output, *args, **kwargs)

    by_array.__name__, by_array.__signature__ = (
        function.__name__,
        signature.replace(parameters=[grad, size, *rest]),
    )  # type: ignore[attr-defined]
    known = repeated(by_array)

    @functools.wraps(function)
    def run(input_size: Any, grad_output: Any, *args: Any, **kwargs: Any) -> Any:
        return known(grad_output, size_of(input_size, "input_size"), *args, **kwargs)

    return run  # type: ignore[return-value]


def size_of(value: Any, name: str) -> tuple[int, ...]:
    """A shape that is an argument of a call that is repeated.

    Raises:
        ArgumentError: it is no tuple of ints.
    """
    plain = type(value) is tuple and {*map(type, value)} == _INTS
    return one_object(value if plain else wholes(value, name))


@functools.lru_cache(maxsize=1024)
def one_object(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The same object for equal shapes, since calls are known by the addresses of options."""
    return shape


def _maybe_on_gpu(function: Any, args: tuple, kwargs: dict[str, Any], seen: Seen) -> Any:
    """A call of which an argument may be on a GPU."""
    looked_at(function)(args, kwargs)
    return _at_home(function, args, kwargs, seen)


_traces = trace.Traces()
Seen = Callable[[trace.Trace, list[DeviceArray]], None]


def _run_on(
    where: Device, function: Any, args: tuple, kwargs: dict[str, Any], seen: Seen | None = None
) -> Any:
    """Run a function on a device, from a trace where there is one; `seen` gets a trace that was used again."""
    if where.backend == "cpu" or gpu_of(where) is None or active or recording.current() is not None:
        return _run_at(where, function, args, kwargs)
    arrays: list[DeviceArray] = []
    parts: list[Any] = [function, *kwargs]
    values: list[Any] = []
    wrap = None
    for given in (*args, *kwargs.values()):
        array = array_in(given)
        if array is not None:  # a tensor stays one: it decides what the result is
            given.__cubepy_array__()  # refuses what is being recorded
            wrap = given.__cubepy_wrap__
            TENSORS.add(type(given))
            ON_GPU.add(type(given))
            arrays.append(array)
            values.append(given)
            parts.append(type(given))
            continue
        v = given if type(given) in PLAIN else lift(given)
        values.append(v)
        if type(v) is DeviceArray:
            if hasattr(given, "__cubepy_wrap__"):  # a packed tensor
                return _run_at(where, function, args, kwargs)
            if type(given) is not DeviceArray and hasattr(given, "data_ptr"):
                note_torch(type(given), gpu_of(where))
            arrays.append(v)
            parts.append(DeviceArray)
        elif isinstance(v, Struct) or (type(v) is tuple and any(type(x) is DeviceArray for x in v)):
            return _run_at(where, function, args, kwargs)
        else:
            parts.append(exact(v))
    key = (tuple(parts), trace.settings(where), trace.kind_of(arrays))
    out = kwargs.get("out")
    try:
        known = _traces.known.get(key)
    except (TypeError, ValueError):  # something unhashable, such as a host array
        try:
            return _run_at(where, function, args, kwargs)
        except HostMemoryError:
            message = f"{function.__name__} is given arrays on {where} and a NumPy array, in the memory of the host"
            raise LaunchError(
                message, hint=f'copy them to the device: cb.tensor(x, device="{where}")'
            ) from None
    if known is not None and known.holds():
        result = known.replay(arrays)
        if seen is not None:
            seen(known, arrays)
        return (
            out
            if out is not None
            else wrap(result)
            if wrap is not None and known.wrapped
            else result
        )
    # The arrays themselves, not what they were made of (a tensor of PyTorch): the recorder knows them by their owners.
    with Recorder(arrays) as recorder:
        options = dict(zip(kwargs, values[len(args) :], strict=True))
        result = _run_at(where, function, tuple(values[: len(args)]), options)
    done = array_in(result) if wrap is not None and type(result) in TENSORS else result
    if out is not None:
        done = next((v for v in arrays if v.address == _address(out)), None)
    kept = _traces.keep(key, recorder, done, where)
    if kept is not None:
        kept.wrapped = done is not result
    return result if out is None else out


def _address(out: Any) -> int:
    return int(array_of(out, "out").address)


def _run_at(where: Device, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    if where == current():
        return function(*args, **kwargs)
    with use(where):
        return function(*args, **kwargs)


def home_of(value: Any) -> Device | None:
    """The device whose memory a value is in, or None when it is not known to be in any."""
    if type(value) is DeviceArray:
        return value.layout.device
    inner = getattr(value, "__cubepy_array__", None)
    if inner is not None:
        found = getattr(value, "device", None)
        return found if isinstance(found, Device) else None
    found = device_array(value)
    return None if found is None else found.device


def array_of(value: Any, name: str = "x") -> Any:
    """The array (of NumPy, or on a device) behind an argument, without a copy where there is one already."""
    if isinstance(value, (np.ndarray, DeviceArray)):
        if isinstance(value, np.ma.MaskedArray):
            raise ArgumentError(
                f"{name} is a masked array, and masks are not heeded", hint="pass x.filled(...)"
            )
        return value
    inner = getattr(value, "__cubepy_array__", None)
    if inner is not None:
        return inner()
    found = device_array(value)
    if found is not None:
        return found
    if hasattr(value, "__dlpack__") and not isinstance(value, np.generic):
        return host_array(value)
    try:
        array = np.asarray(value)
    except ValueError:
        raise ShapeError(f"{name} must be an array, but its parts differ in shape") from None
    if array.dtype == object:
        raise DTypeError(f"{name} must be an array of numbers, not {type(value).__name__}")
    if isinstance(value, float) or (isinstance(value, (list, tuple)) and array.dtype == np.float64):
        array = array.astype(np.float32)
    if recording.active and (recorder := recording.current()) is not None:
        recorder.number(array)
    return array


def wrapper(*values: Any) -> Callable[[Any], Any]:
    """What makes a result of the kind that came in: tensors give tensors, arrays give arrays."""
    for v in values:
        wrap = getattr(v, "__cubepy_wrap__", None)
        if wrap is not None:
            return wrap  # type: ignore[no-any-return]
    return lambda result: result


def output(out: Any, shape: tuple[int, ...], dtype: Any, *apart: Any) -> Any:
    """The array to write: `out`, checked, or a new one on the current device.

    Args:
        out, shape, dtype: what was given, and what it has to be.
        apart: arrays that are read after some of the result is written, so that it cannot be in their memory.

    Raises:
        AliasError: `out` overlaps one of `apart`; of other inputs a launch sees to it.
        ArgumentError: `out` has no memory to write.
        ShapeError: `out` has another shape.
        DTypeError: `out` has another dtype.
        ReadOnlyError: `out` cannot be written.
    """
    if out is None:
        return memory.empty(shape, dtype)
    if isinstance(out, (list, tuple, int, float, np.generic)):
        raise ArgumentError(
            f"out must be an array, not {shown(out)}", hint="the result has nowhere to go in it"
        )
    array = array_of(out, "out")
    if array.shape != shape:
        raise ShapeError(f"out has shape {array.shape}, but the result has shape {shape}")
    if array.dtype != np.dtype(dtype):
        raise DTypeError(f"out has dtype {array.dtype}, but the result has dtype {np.dtype(dtype)}")
    if not array.flags.writeable:
        raise ReadOnlyError(
            "out is read-only", hint="give another array, or set out.flags.writeable"
        )
    for other in apart:
        if meet(array, other):
            raise AliasError("out overlaps an input in memory, of which more is read after some of out is written",
                             hint="leave out away, or copy the input")  # fmt: skip
    return array


def finish(result: Any, out: Any, wrap: Callable[[Any], Any]) -> Any:
    """What a function returns: `out` itself when it was given."""
    return out if out is not None else wrap(result)


def whole(value: Any, name: str, least: int | None = None) -> int:
    """An argument as an int.

    Raises:
        ArgumentError: it is no whole number.
        ShapeError: it is less than `least`.
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise ArgumentError(f"{name} must be an int, not {shown(value)}") from None
    if least is not None and number < least:
        raise ShapeError(f"{name} must be at least {least}, not {number}")
    return number


def wholes(value: Any, name: str) -> tuple[int, ...]:
    """An argument as a tuple of ints; one int is a tuple of one.

    Raises:
        ArgumentError: it is neither.
    """
    if hasattr(value, "__index__") and not getattr(value, "shape", ()):
        return (whole(value, name),)
    if not isinstance(value, (tuple, list)) and getattr(value, "ndim", 0) != 1:
        raise ArgumentError(f"{name} must be an int or a tuple of ints, not {shown(value)}")
    return tuple(whole(v, f"{name}[{k}]") for k, v in enumerate(value))


def per_axis(value: Any, axes: int, name: str, least: int) -> tuple[int, ...]:
    """An int for each of some axes; one int is for all of them.

    Raises:
        ArgumentError: it is neither an int nor a tuple of ints.
        ShapeError: another number of them, or one that is less than `least`, or 2**31 or more.
    """
    given = wholes(value, name)
    given = given * axes if len(given) == 1 else given
    if len(given) != axes or any(v < least for v in given):
        raise ShapeError(
            f"{name} must be an int of at least {least} or {axes} of them, not {value!r}"
        )
    if any(v > LONGEST for v in given):
        raise ShapeError(
            f"{name} must be below 2**31, not {value!r}", hint="no axis of an image is so long"
        )
    return given


def number_of(value: Any, name: str) -> float:
    """An argument as a float.

    Raises:
        ArgumentError: it is no real number.
    """
    if isinstance(value, (int, float)):
        return float(value)
    if getattr(value, "shape", None) == () and np.asarray(value).dtype.kind in "fiub":
        return float(value)
    raise ArgumentError(f"{name} must be a number, not {shown(value)}")


def rounds_to_tf32(precision: str | None) -> bool:
    """Whether f32 operands may be rounded for matrix units."""
    if precision not in (None, "tf32"):
        raise DTypeError(f"there is no precision {precision!r}", hint='precision="tf32", or none')
    return precision is not None


def axes_of(axis: Any, ndim: int) -> tuple[int, ...]:
    """Normalised axes; None means all. An array of rank 0 has none; it may be asked for 0 or -1, as NumPy's may.

    Raises:
        ShapeError: an axis out of range or named twice.
        ArgumentError: an axis that is no int.
    """
    if axis is None:
        return tuple(range(ndim))
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    out = []
    for a in given:
        a = whole(a, "axis")
        if ndim == 0 and a in (0, -1):
            continue
        if not -ndim <= a < ndim:
            raise ShapeError(f"axis {a} is out of range for an array of rank {ndim}")
        out.append(a % ndim)
    if len(set(out)) != len(out):
        raise ShapeError(f"the axes {tuple(given)} name one axis twice")
    return tuple(sorted(out))


def axis_of(axis: Any, ndim: int) -> int:
    """One normalised axis.

    Raises:
        ShapeError: an axis out of range.
        ArgumentError: it is no int.
    """
    if ndim == 0:
        raise ShapeError(
            f"axis {axis} is out of range for an array of rank 0", hint="reshape it to (1,)"
        )
    return axes_of(whole(axis, "axis"), ndim)[0]


def float_array(value: Any, name: str) -> Any:
    """An array of floats; integers become f32.

    Raises:
        DTypeError: booleans or dtypes that kernels do not know.
    """
    array = array_of(value, name)
    dtype: DType = as_dtype(array.dtype)
    if dtype.is_float and not dtype.storage_only:
        return array
    if dtype.is_int or dtype.storage_only:
        return array.astype(np.float32)
    raise DTypeError(f"{name} must hold floats, not {array.dtype}")

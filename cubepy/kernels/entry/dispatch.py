"""Where a library function runs, and calls that repeat the launches of an earlier one.

Arrays on a GPU (`DeviceArray`, or tensors of other libraries) give arrays on that GPU: `placed`
makes the device of the inputs the current one, and whatever a function allocates or asks of the
device follows.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

import cubepy as cb
from cubepy.compiler.signature import exact
from cubepy.errors import (
    CubeError,
    LaunchError,
    OutOfMemoryError,
)  # fmt: skip
from cubepy.kernels.entry.arguments import array_of, home_of, wholes
from cubepy.kernels.entry.options import looked_at
from cubepy.lang.struct import Struct
from cubepy.runtime import recording
from cubepy.runtime.device import Device, current, gpu_of, use
from cubepy.runtime.interop.arrays import PLAIN, lift
from cubepy.runtime.interop.kinds import kind_of, made
from cubepy.runtime.launch.arguments import HostMemoryError
from cubepy.runtime.memory.device_array import DeviceArray
from cubepy.runtime.replay import trace
from cubepy.runtime.replay.front import Opened, front
from cubepy.runtime.replay.gpu_arguments import ON_GPU, TENSORS, array_in, note_torch
from cubepy.runtime.replay.record import Recorder
from cubepy.runtime.stats import active

F = TypeVar("F", bound=Callable[..., Any])
_INTS = {int}
_NOWHERE = frozenset({np.ndarray, int, float, bool, str, tuple, list, type(None)})


def placed(function: F) -> F:
    """Run a library function on the device of its inputs, whatever the current device is.

    On a device with its own memory the second call with arrays of the same layouts repeats the
    launches of the first one (see `cubepy.runtime.replay.trace`). Options are looked at first (see
    `cubepy.kernels.entry.options`).
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
        if kwargs.get("out") is None:
            make = kind_of((*args, *kwargs.values()))
            if make is not None:
                return made(function(*args, **kwargs), make)
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
    """`placed`, and on a CPU the launches of an earlier call with arrays of the same layouts are
    repeated.

    Only for functions whose work is all launches, and whose launches depend on layouts, alignment
    of what is written, and options alone: no look at elements on the host, no step of NumPy that
    writes what a launch writes, too. Outputs may begin anywhere; a call that finds one at a line of
    the cache is repeated for such only.
    """
    return front(placed(function), _maybe_on_gpu)  # type: ignore[return-value]


def repeated_with(parameter: str, holder: type, *parts: str) -> Callable[[F], F]:
    """`repeated`, where a parameter may also be a `holder`, of which the attributes `parts` decide
    (see `Opened`).
    """
    return lambda function: front(placed(function), _maybe_on_gpu, Opened(parameter, holder, parts))  # type: ignore[return-value]


def repeated_back(function: F) -> F:
    """`repeated`, for gradients by an input, whose shape is the first argument and whose first
    array is the second.
    """
    signature = inspect.signature(function)
    size, grad, *rest = signature.parameters.values()

    def by_array(grad_output: Any, input_size: Any, *args: Any, **kwargs: Any) -> Any:
        return function(input_size, grad_output, *args, **kwargs)

    by_array.__name__ = function.__name__
    order = signature.replace(parameters=[grad, size, *rest])
    by_array.__signature__ = order  # type: ignore[attr-defined]
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
    """Run a function on a device, from a trace where there is one; `seen` gets a trace that was
    used again.
    """
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
    # The arrays themselves, not what they were made of (a tensor of PyTorch): the recorder knows
    # them by their owners.
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


def has_planes() -> bool:
    """Whether units of the current device work in planes, so that kernels of whole cubes are the
    fast ones.
    """
    return bool(cb.device_properties_of().plane_size > 1)

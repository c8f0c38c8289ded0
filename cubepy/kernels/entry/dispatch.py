"""Where a library function runs, and calls that repeat the launches of an earlier one.

Arrays on a GPU (`DeviceArray`, or tensors of other libraries) give arrays on that GPU: `placed`
makes the device of the inputs the current one, and whatever a function allocates or asks of the
device follows.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, TypeVar

import numpy as np

from cubepy.errors import CubeError, LaunchError, OutOfMemoryError
from cubepy.kernels.entry.arguments import home_of, wholes
from cubepy.kernels.entry.options import looked_at
from cubepy.lang.struct import Struct
from cubepy.runtime import recording
from cubepy.runtime.device import Device, DeviceProperties, current, device_properties, gpu_of, use
from cubepy.runtime.interop.arrays import PLAIN, kind_of, lift, made
from cubepy.runtime.launch.arguments import HostMemoryError
from cubepy.runtime.memory.device_array import DeviceArray
from cubepy.runtime.profile import active
from cubepy.runtime.replay.arguments import REFUSED, array_in, key_of, note_type
from cubepy.runtime.replay.calls import Calls
from cubepy.runtime.replay.front import Opened, front
from cubepy.runtime.replay.gpu import GpuOperands
from cubepy.runtime.replay.standing import one_tuple

F = TypeVar("F", bound=Callable[..., Any])
_INTS = {int}
_NOWHERE = frozenset({np.ndarray, int, float, bool, str, tuple, list, type(None)})
_NO_TENSORS = _NOWHERE - {tuple, list}


def placed(function: F) -> F:
    """Run a library function on the device of its inputs, whatever the current device is.

    On a GPU calls with arrays of the same layouts repeat the launches of the first one (see
    `cubepy.runtime.replay`). Options are looked at first (see `cubepy.kernels.entry.options`).
    """
    return _placed(function, Calls())


def _placed(function: F, calls: Calls) -> F:
    look = looked_at(function)

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        look(args, kwargs)
        return _at_home(function, calls, args, kwargs)

    return run  # type: ignore[return-value]


def _at_home(
    function: Any, calls: Calls, args: tuple, kwargs: dict[str, Any], key: Any = None
) -> Any:
    """Run a function where the first argument is that lives on a device; what an argument makes of
    it by `__cubepy_function__`, if one does.
    """
    if recording.asked:
        found = by_argument(function, args, kwargs)
        if found is not NotImplemented:
            return found
    try:
        named = [v for name, v in kwargs.items() if name != "out"] if kwargs else ()
        for value in (*args, *named):
            if type(value) not in _NOWHERE:
                where = home_of(value)
                if where is not None:
                    return _run_on(where, function, calls, args, kwargs, key)
        if kwargs.get("out") is None:
            make = kind_of((*args, *kwargs.values()))
            if make is not None:
                return made(function(*args, **kwargs), make)
        return function(*args, **kwargs)
    except MemoryError as error:
        if isinstance(error, CubeError):
            raise
        raise _too_much(function, error) from error


def by_argument(function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """What an argument, or one within a list, makes of a call; NotImplemented where none does."""
    for value in (*args, *kwargs.values()):
        kind = type(value)
        if kind in _NO_TENSORS:
            continue
        for part in value if kind is tuple or kind is list else (value,):
            if type(part) in _NO_TENSORS:
                continue
            asked = getattr(type(part), "__cubepy_function__", None)
            if asked is not None:
                found = asked(part, function, args, kwargs)
                if found is not NotImplemented:
                    return found
    return NotImplemented


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
    return _repeated(function)


def _repeated(function: F, opened: Opened | None = None) -> F:
    calls, look = Calls(), looked_at(function)

    def on_gpu(args: tuple, kwargs: dict[str, Any], key: Any) -> Any:
        look(args, kwargs)
        return _at_home(function, calls, args, kwargs, key)

    return front(_placed(function, calls), calls, on_gpu, opened)  # type: ignore[return-value]


def repeated_with(parameter: str, holder: type, *parts: str) -> Callable[[F], F]:
    """`repeated`, where a parameter may also be a `holder`, of which the attributes `parts` decide
    (see `Opened`).
    """
    return lambda function: _repeated(function, Opened(parameter, holder, parts))


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
    return one_tuple(value if plain else wholes(value, name))


def _run_on(
    where: Device, function: Any, calls: Calls, args: tuple, kwargs: dict[str, Any], key: Any
) -> Any:
    """Run a function on a device, where it is known on a GPU as it was run before; `key` is what
    the front of the function formed.
    """
    if gpu_of(where) is None or active or recording.current() is not None:
        return _run_at(where, function, args, kwargs)
    given = (*args, *kwargs.values())
    lifted = tuple([_lifted(v) for v in given])
    if any(_unplanned(v, w) for v, w in zip(given, lifted, strict=True)):
        return _run_at(where, function, args, kwargs)
    for v in given:
        note_type(v)
    values = lifted if key is None else given
    options = dict(zip(kwargs, lifted[len(args) :], strict=True))
    out = kwargs.get("out")
    at = None if out is None else len(args) + list(kwargs).index("out")

    def call() -> Any:
        result = _run_at(where, function, lifted[: len(args)], options)
        return values[at] if at is not None else result

    def of(given: Sequence[Any]) -> Any:
        named = dict(zip(kwargs, given[len(args) :], strict=True))
        return _run_at(where, function, tuple(given[: len(args)]), named)

    result = REFUSED
    if key is None:
        try:
            key = key_of(values, len(args), *kwargs)
            result = calls.repeat(key, values)
        except (TypeError, ValueError):  # something unhashable
            return _run_at(where, function, args, kwargs)
        if result is REFUSED:
            result = calls.other_length(key, values)
    if result is REFUSED:
        result = calls.long_way(key, values, call, GpuOperands, at, None, of)
    return result if out is None else out


def _lifted(value: Any) -> Any:
    """An argument as the function gets it on a GPU: arrays themselves, not what they were made of
    (a tensor of PyTorch). A plain tensor stays one: it decides what the result is.
    """
    if array_in(value) is None:
        return value if type(value) in PLAIN else lift(value)
    value.__cubepy_array__()  # refuses what is being recorded
    return value


def _unplanned(given: Any, lifted: Any) -> bool:
    """Whether an argument is no array or option of a plan: a struct, a packed tensor, a tuple of
    arrays, an array on the host.
    """
    if type(lifted) is DeviceArray:
        return hasattr(given, "__cubepy_wrap__")
    if type(lifted) is tuple:
        return any(type(v) is DeviceArray for v in lifted)
    return isinstance(lifted, (Struct, np.ndarray))


def _run_at(where: Device, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    try:
        with use(where) if where != current() else nullcontext():
            return function(*args, **kwargs)
    except HostMemoryError:
        message = (
            f"{function.__name__} is given arrays on {where} and a NumPy array, in the "
            "memory of the host"
        )
        hint = f'copy them to the device: cb.tensor(x, device="{where}")'
        raise LaunchError(message, hint=hint) from None


def properties_here() -> DeviceProperties:
    """What the device can do that a function runs on: for the public function, which passes it on
    to what it calls.
    """
    return device_properties(current())

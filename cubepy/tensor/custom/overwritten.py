"""Memory of tensors that kernels of users wrote, so that no gradient is computed of what is gone.

Values do not change, but a launch outside of programs writes the memory that it is given. Gradients
that would read elements as they were before are an error with both lines.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from cubepy.compiler.signature import exact
from cubepy.errors import GradientError
from cubepy.lang.declare import Kernel
from cubepy.lang.grid import Over
from cubepy.runtime.launch.prepared import outputs_of
from cubepy.runtime.memory.spans import ARRAYS, beginning, extent
from cubepy.runtime.tables import room
from cubepy.tensor.storage import Dense, Gone, Storage
from cubepy.tensor.value import Value, identities, located, outside

LIMIT = 1024


class Written(NamedTuple):
    """Memory that a kernel wrote.

    Attributes:
        end: its last byte, plus one.
        time: when, as the number that a value would have got then.
        kernel: the name of the kernel.
        line: where the user launched it.
    """

    end: int
    time: int
    kernel: str
    line: Any


written: dict[int, Written] = {}
"""By the address of its first byte."""
latest = [-1]
"""When a kernel wrote last."""
_outputs: dict[Any, list[tuple[Any, int]]] = {}
"""By kernel and arguments, which arguments (and which of a tuple) it writes."""


def note_launch(kernel: Kernel, grid: Any, args: tuple, kwargs: dict[str, Any]) -> bool:
    """Note what a kernel is about to write; gives False: it is not launched yet.

    Raises:
        CompileError, LaunchError: it does not take such arguments.
    """
    if isinstance(grid, Over) and grid.size == 0:
        return False
    given: list[tuple[Any, Any]] = [*enumerate(args), *kwargs.items()]
    try:
        key = kernel, *[(name, _kind(value)) for name, value in given]
        known = _outputs.get(key)
    except TypeError:  # something unhashable, or no argument of kernels: launching says which
        return False
    if known is None:
        room(_outputs, LIMIT)
        known = _outputs[key] = _written_by(kernel, grid, args, kwargs)
    for name, j in known:
        value = args[name] if type(name) is int else kwargs[name]
        array = _plain(value[j] if type(value) is tuple else value)
        low, high = extent(array)
        room(written, LIMIT)
        latest[0] = next(identities)
        start = beginning(array)
        written[start + low] = Written(start + high, latest[0], kernel.__name__, outside())
    return False


def _written_by(
    kernel: Kernel, grid: Any, args: tuple, kwargs: dict[str, Any]
) -> list[tuple[Any, int]]:
    """The arguments that a kernel writes; which of a tuple."""
    plain = tuple([_plain(v) for v in args])
    named = {name: _plain(v) for name, v in kwargs.items()}
    launcher = kernel.launches
    values, _, mode, where, _ = launcher.bound(plain, named)
    executable, _, leaves, _, _ = launcher.find(grid, mode, where, values)
    outputs = [leaves[n] for n in outputs_of(executable.program, leaves)[0]]
    return [
        (name, j)
        for name, v in [*enumerate(plain), *named.items()]
        for j, part in enumerate(v if type(v) is tuple else (v,))
        if isinstance(part, ARRAYS) and any(_same(part, one) for one in outputs)
    ]


def _same(array: Any, operand: Any) -> bool:
    """Whether an operand of a launch is an array; those of no axes get one."""
    return array is operand or not array.ndim and beginning(array) == beginning(operand)


def _kind(value: Any) -> Any:
    """What of an argument may decide whether it is written."""
    if type(value) is tuple:
        return tuple([_kind(v) for v in value])
    if hasattr(value, "ndim") and hasattr(value, "dtype"):
        return value.dtype, value.ndim
    return float if type(value) is float else exact(value)


def _plain(value: Any) -> Any:
    """An argument with the arrays of tensors."""
    if type(value) is tuple:
        return tuple([_plain(v) for v in value])
    array = getattr(type(value), "__cubepy_array__", None)
    return value if array is None else array(value)


def overwritten(value: Value, time: int) -> Written | None:
    """What wrote the memory of a value since a time."""
    store = value.storage
    if type(store) is not Dense or not isinstance(store.array, ARRAYS):
        return None
    low, high = extent(store.array)
    start = beginning(store.array)
    for first, one in tuple(written.items()):
        if one.time > time and first < start + high and start + low < one.end:
            return one
    return None


class Overwritten(Gone):
    """No elements: whoever asks for them is told what wrote over them."""

    __slots__ = ("by", "line", "op")

    def __init__(self, store: Storage, by: Written, op: str, line: Any) -> None:
        super().__init__(store)
        self.by, self.op, self.line = by, op, line

    def why(self) -> Exception:
        where = located(self.by.line)
        said = "" if where is None else f" ({where.file}:{where.line})"
        return GradientError(
            f"the gradient of {self.op!r} needs elements that the kernel {self.by.kernel} wrote "
            f"over{said}",
            location=self.line,
            hint="give the kernel x.clone(), or launch it after backward()",
        )


def checked(value: Value, time: int, op: str, line: Any) -> Value:
    """A value as it was at a time; without elements, if these are gone."""
    by = overwritten(value, time)
    if by is None:
        return value
    return Value(Overwritten(value.storage, by, op, line))

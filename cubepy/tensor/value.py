"""What every tensor is: a handle of a value. A value is never changed: its elements, and where they
come from as far as gradients need it. Nothing here computes.
"""

from __future__ import annotations

import itertools
import math
import sys
import weakref
from collections.abc import Callable, Sequence
from functools import lru_cache
from types import CodeType
from typing import Any, overload

import numpy as np

from cubepy.errors import ArgumentError, Location, ShapeError
from cubepy.lang.dtypes import DType, bool_, f32, i64
from cubepy.runtime.device import Device, gpu_of
from cubepy.tensor.exposed import expose
from cubepy.tensor.program import observe
from cubepy.tensor.storage import Storage

identities = itertools.count()


class Size(int):
    """A number of elements, as NumPy's `size`, which gives lengths where it is called.

    Attributes:
        shape: the lengths.
    """

    shape: tuple[int, ...]

    @overload
    def __call__(self, dim: None = None) -> tuple[int, ...]: ...

    @overload
    def __call__(self, dim: int) -> int: ...

    def __call__(self, dim: int | None = None) -> Any:
        """The shape, or the length of the axis `dim`.

        Raises:
            ShapeError: there is no such axis.
        """
        if dim is None:
            return self.shape
        rank = len(self.shape)
        if not hasattr(dim, "__index__") or not -rank <= dim < rank:
            raise ShapeError(f"size: axis {dim} is out of range for a tensor of rank {rank}")
        return self.shape[dim]

    def __reduce__(self) -> Any:
        return int, (int(self),)


class Value:
    """The elements that an op gave, or that came from outside.

    Attributes:
        storage: where the elements are.
        id: its identity, by which nodes of graphs name it; values that come later have larger ones.
        needs_grad: whether a gradient by it, or by what it was computed from, is wanted.
        call: the op that made it, if gradients go through it.
        handle: of a leaf (a value that needs a gradient and was not computed): whose gradient it
            is, as a weak reference to the tensor.
    """

    __slots__ = ("__weakref__", "call", "handle", "id", "needs_grad", "storage")

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.id = next(identities)
        self.needs_grad = False
        self.call: Call | None = None
        self.handle: weakref.ref[Handle] | None = None


class Number(Value):
    """A number beside tensors: at home on any device."""

    __slots__ = ()


class Call:
    """An op that ran, as gradients remember it: they keep its inputs alive.

    Attributes:
        op: its name.
        inputs: values, None for absent ones; None when they are not needed any more.
        attrs: its attributes.
        results: weak references to what it gave, where that is several values.
        kept: other values of the elements of these, where the gradient reads them.
        place: the code outside cubepy that asked for it, and the instruction there: looked for, if
            it is not given.
    """

    __slots__ = ("attrs", "inputs", "kept", "op", "place", "results")

    def __init__(
        self,
        op: str,
        inputs: tuple[Value | None, ...],
        attrs: dict[str, Any],
        given: Sequence[Value],
        asked: tuple[CodeType, int] | None = None,
    ) -> None:
        self.op, self.attrs = op, attrs
        self.inputs: tuple[Value | None, ...] | None = inputs
        self.results = [weakref.ref(value) for value in given] if len(given) > 1 else ()
        self.kept: Sequence[Value] = ()
        self.place = outside() if asked is None else asked

    def free(self) -> None:
        """Let go of what gradients need."""
        self.inputs, self.kept = None, ()

    def location(self) -> Location | None:
        """The user's line that asked for the op."""
        return located(self.place)


def located(at: tuple[CodeType, int] | None) -> Location | None:
    """The line of some code and an instruction there."""
    return None if at is None else _line(*at)


@lru_cache(4096)
def _line(code: CodeType, instruction: int) -> Location:
    lines = [line for start, end, line in code.co_lines() if start <= instruction < end]
    line = (lines[0] if lines else None) or code.co_firstlineno
    return Location(code.co_filename, line, function=code.co_name)


_ours: set[int] = set()
"""Identities of the globals of cubepy's modules, as they are met."""


_latest: list[tuple[CodeType, int] | None] = [None]
"""Where the last op was asked for: most are asked for where the one before was."""


def outside() -> tuple[CodeType, int] | None:
    """The innermost code outside cubepy that runs, and where it is."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        if id(frame.f_globals) not in _ours:
            name = frame.f_globals.get("__name__", "cubepy")
            if not name.startswith("cubepy.") and name != "cubepy":
                latest, code, at = _latest[0], frame.f_code, frame.f_lasti
                if latest is None or latest[0] is not code or latest[1] != at:
                    latest = _latest[0] = code, at
                return latest
            if name in sys.modules:  # what is generated goes, and others may get its identity
                _ours.add(id(frame.f_globals))
        frame = frame.f_back
    return None


class GradientForms:
    """What the gradients are that every call of a program gives.

    Attributes:
        numbers: which of them is a handle's, by the handle's id.
        make: what makes a tensor of an array.
    """

    __slots__ = ("make", "numbers")

    def __init__(self, numbers: dict[int, int], make: Callable[[np.ndarray], Handle]) -> None:
        self.numbers, self.make = numbers, make


class Pending:
    """Gradients that a call of a program gave: most are never looked at before the next call gives
    others, so tensors are made of their arrays when somebody looks.

    Attributes:
        forms: what they are.
        arrays: their elements.
        made: tensors by their numbers.
    """

    __slots__ = ("arrays", "forms", "made")

    def __init__(self, forms: GradientForms, arrays: tuple[np.ndarray, ...]) -> None:
        self.forms, self.arrays = forms, arrays
        self.made: dict[int, Handle] = {}

    def of(self, handle: Handle) -> Handle:
        """The gradient of a handle that has it from here; the same one to whoever asks."""
        n = self.forms.numbers[id(handle)]
        found = self.made.get(n)
        if found is None:
            found = self.made.setdefault(n, self.forms.make(self.arrays[n]))
        return found


def gradient_of(handle: Handle) -> Any:
    """The gradient that a handle has, or None."""
    found = getattr(handle, "_grad", None)
    if type(found) is Pending:
        found = handle._grad = found.of(handle)
    return found


class Handle:
    """What users hold: a value, which `assign_` and augmented operators exchange for another one.

    Attributes:
        value: its elements now.
    """

    __slots__ = ("__weakref__", "_grad", "value")
    _grad: Any

    def __init__(self, storage: Storage, *more: Any) -> None:
        if more or not isinstance(storage, Storage):
            raise ArgumentError(
                f"{type(self).__name__} is the class of tensors, made of a storage",
                hint="cb.tensor(data) makes one of numbers, cb.tensor.zeros(shape) one of a shape",
            )
        self.value = Value(storage)

    @property
    def storage(self) -> Storage:
        """Where the elements are."""
        return self.value.storage

    @property
    def id(self) -> int:
        """The identity of the value."""
        return self.value.id

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes."""
        return self.value.storage.shape

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.value.storage.dtype

    @property
    def device(self) -> Device:
        """Where the elements are."""
        return self.value.storage.device

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.value.storage.shape)

    @property
    def size(self) -> Size:
        """Number of elements; called, as PyTorch's `size`, the shape or the length of an axis.

        Example:
            >>> import cubepy as cb
            >>> x = cb.tensor([[1, 2, 3]])
            >>> x.size, x.size(-1), x.size()
            (3, 3, (1, 3))
        """
        shape = self.value.storage.shape
        made = Size(math.prod(shape))
        made.shape = shape
        return made

    @property
    def nbytes(self) -> int:
        """Bytes in memory (of packed storage: what it really takes)."""
        return self.value.storage.nbytes

    def __len__(self) -> int:
        if not self.shape:
            raise ShapeError("a tensor of rank 0 has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        extra = "" if self.dtype in (f32, i64, bool_) else f", dtype={self.dtype!r}"
        extra += "" if gpu_of(self.device) is None else f", device={str(self.device)!r}"
        if self.value.storage.kind != "dense":
            return f"tensor({self.value.storage.kind}, shape={self.shape}, {self.nbytes} bytes)"
        text = np.array2string(self.numpy(), separator=", ", prefix="tensor(", threshold=1000)
        return f"tensor({text}{extra})"

    def __format__(self, spec: str) -> str:
        """One number as Python formats it (f"{loss}", f"{loss:.4f}"), as in PyTorch; a tensor of
        axes has no such words.
        """
        return format(repr(self) if self.shape else self.item(), spec)

    def numpy(self) -> np.ndarray:
        """The elements as a NumPy array: the tensor's own memory when it is dense and on the CPU,
        else a copy.

        On a GPU it waits for the work that makes them; errors of that work are raised here.
        """
        if observe.blocks:
            observe.looked(self)
        array = self.value.storage.host()
        expose(array)
        return array

    def item(self) -> Any:
        """The only element as a Python number."""
        if self.size != 1:
            raise ShapeError(
                f"item() needs one element; this tensor of shape {self.shape} has {self.size}"
            )
        return self.numpy().item()

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers."""
        return self.numpy().tolist()

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ShapeError(
                f"the truth of a tensor of shape {self.shape} is not defined",
                hint="use x.any() or x.all()",
            )
        return bool(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        if not self.dtype.is_int:
            raise TypeError(f"only an integer tensor can be an index, not {self.dtype.name}")
        return int(self.item())

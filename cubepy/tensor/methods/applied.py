"""What the families of methods stand on: applying an op."""

from __future__ import annotations

import contextlib
import functools
import importlib
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from cubepy.errors import ArgumentError, LaunchError, ShapeError
from cubepy.runtime.memory.device_array import DeviceArray
from cubepy.tensor.record import blocks
from cubepy.tensor.value import Handle

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
FEW = 1 << 11
"""Elements that NumPy picks by integers faster than ops do."""


SPARE = 1 << 20
"""Bytes that what a mask selects may keep beside its own."""


@functools.cache
def formulas() -> Any:
    """Methods that are several ops, loaded with the first.

    Example:
        >>> formulas().__name__
        'cubepy.tensor.control.formulas'
    """
    return importlib.import_module("cubepy.tensor.control.formulas")


def several(method: F) -> F:
    """A method that is several ops: where calls of one kind come often, one program does them, and
    another one their gradients (`control.composed`).
    """
    made: list[Callable[..., Any]] = []

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not made:
            made.append(importlib.import_module("cubepy.tensor.control.composed").composed(method))
        return made[0](*args, **kwargs)

    return call  # type: ignore[return-value]


class Applied(Handle, Generic[T]):
    """A tensor as the families of its methods see it.

    Args:
        T: what ops give, `Tensor`.
    """

    __slots__ = ()

    @staticmethod
    def _apply(op: str, *inputs: Any, **attrs: Any) -> Any:
        """The result of an op on any tensors."""
        raise NotImplementedError

    def _unary(self, op: str, **attrs: Any) -> T:
        """`op(self)`."""
        raise NotImplementedError

    def _view(self, op: str, attribute: str, given: Any) -> T:
        """`op(self)` where it mostly gives the same elements with other strides."""
        raise NotImplementedError

    def _slices(self, indices: Sequence[tuple[Any, Any]]) -> tuple[T, ...]:
        """Slices that are there, of indices as the op "slice" takes them and as NumPy does."""
        raise NotImplementedError

    def _binary(self, op: str, other: Any) -> T:
        """`op(self, other)`; a Python number takes the tensor's dtype."""
        raise NotImplementedError

    def _operand(self, value: Any) -> T:
        """The other side of an operator: a Python number takes the tensor's dtype."""
        raise NotImplementedError

    def __cubepy_hosted__(self) -> np.ndarray | None:
        """The array of a tensor on the host of which no ops need to be made; else None."""
        raise NotImplementedError

    def __cubepy_wrap__(self, array: Any) -> T:
        """An array as a tensor where this one is."""
        raise NotImplementedError

    def _like(self, data: Any) -> T:
        """Data as a tensor."""
        raise NotImplementedError

    def _exchanged(self, new: Any) -> Any:
        """This handle with another value of the same shape and dtype."""
        raise NotImplementedError

    def astype(self, dtype: Any) -> T:
        """The tensor in another dtype."""
        raise NotImplementedError

    def to(self, target: Any = None, dtype: Any = None, *, device: Any = None) -> T:
        """The tensor as another dtype or on another device."""
        raise NotImplementedError

    def _of_line(self, op: str, attrs: dict[str, Any]) -> Any:
        """An op along axis 0 or -1 of a tensor of no axes, which stands for a line of one element,
        as in PyTorch.
        """
        axis = attrs["axis"]
        if any(a not in (0, -1) for a in (axis if isinstance(axis, tuple) else (axis,))):
            return self._apply(op, self, **attrs)  # says what is wrong
        line: Any = self.reshape(1)  # type: ignore[attr-defined]
        return line._unary(op, **attrs).reshape(())

    def _dim(self, dim: Any, op: str, line: bool = False) -> int:
        """An axis counted from the front; of a tensor of no axes that of a line, where it stands
        for one.
        """
        if isinstance(dim, bool) or not hasattr(dim, "__index__"):
            raise ArgumentError(f"{op}: an axis is an integer, not {dim!r}")
        rank = self.ndim or int(line)
        if not -rank <= dim < rank:
            raise ShapeError(f"{op}: axis {dim} is out of range for a tensor of rank {self.ndim}")
        return operator.index(dim) % rank

    def _dims(self, dims: Any, op: str, line: bool = False) -> tuple[int, ...]:
        """Axes counted from the front; None for all."""
        if dims is None:
            return tuple(range(self.ndim))
        given = dims if isinstance(dims, (tuple, list)) else (dims,)
        found = tuple(self._dim(d, op, line) for d in given)
        if len(set(found)) != len(found):
            raise ShapeError(f"{op}: the axes {dims} name one axis twice")
        return found


def of_lines(method: F) -> F:
    """A method along an axis that takes a tensor of no axes as a line of one element, too, as
    PyTorch does; what it gives has no axes then.
    """

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.shape:
            return method(self, *args, **kwargs)
        lines = [_lined(a) for a in args]
        found = method(self.reshape(1), *lines, **{n: _lined(a) for n, a in kwargs.items()})
        if isinstance(found, tuple):
            return tuple([one.reshape(()) for one in found])
        return found.reshape(())

    return call  # type: ignore[return-value]


def _lined(given: Any) -> Any:
    """A tensor of no axes as a line; anything else as it is."""
    is_number = isinstance(given, Handle) and not given.shape
    return given.reshape(1) if is_number else given  # type: ignore[attr-defined]


def ints(values: Sequence[Any]) -> tuple[int, ...]:
    """Lengths or axes that were given one by one, or as one list."""
    if len(values) == 1 and isinstance(values[0], (tuple, list)):
        values = values[0]
    for v in values:
        if type(v) is not int and not hasattr(v, "__index__"):
            raise ArgumentError(f"lengths and axes are integers, not {v!r}")
    return tuple([operator.index(v) for v in values])


def by_integers(x: Any, parts: tuple[Any, ...]) -> Any:
    """What integers of one shape pick from the first axes; None of other indices."""
    kind, like, count = type(x), parts[0], len(parts)
    shape, home = like.shape, x.device
    if not shape or count > x.ndim:
        return None
    for p in parts:
        if type(p) is not kind or not p.dtype.is_int or p.shape != shape or p.device != home:
            return None
    whole = x.shape
    if math.prod(shape) * math.prod(whole[count:]) <= FEW:
        host = x.__cubepy_hosted__()
        given = [p.__cubepy_hosted__() for p in parts]
        if host is not None and not any(p is None for p in given):
            with contextlib.suppress(IndexError):  # ops say why
                return x.__cubepy_wrap__(host[tuple(given)])
    picked = formulas().picked
    return picked(x, *parts) if x.requires_grad else picked.__wrapped__(x, *parts)


def picked_of(x: Any, parts: tuple[Any, ...], most: int) -> np.ndarray | None:
    """What NumPy picks by a few indices of a tensor on the host of which no op needs to be made;
    None where one does, or where it refuses them: ops say why.
    """
    host = x.__cubepy_hosted__()
    if host is None:
        return None
    index, shapes = list[Any](), list[tuple[int, ...]]()
    for p in parts:
        if isinstance(p, Handle):
            p = p.__cubepy_hosted__()  # type: ignore[attr-defined]
            if p is None or p.dtype.kind not in "iu":
                return None
            shapes.append(p.shape)
        elif type(p) is not slice and type(p) is not int and p is not None:
            return None
        index.append(p)
    try:
        spots = shapes[0] if len(shapes) == 1 else np.broadcast_shapes(*shapes)
        if math.prod(spots) * host.size > most * min(host.shape, default=1):
            return None
        return host[tuple(index)]  # type: ignore[no-any-return]
    except (IndexError, ValueError):
        return None


def sets_of(x: Any, inverse: bool, counts: bool) -> list[Any] | None:
    """What NumPy says of the different elements of a tensor on the host of which no op needs to be
    made: they, where each one is among them, how often each is there. None where ops say
    otherwise: to them each NaN is one, of which NumPy numbers any first.
    """
    host = x.__cubepy_hosted__()
    if host is None or host.dtype.kind not in "iuf":
        return None
    if inverse and host.dtype.kind == "f" and np.isnan(host).any():
        return None
    given: Any = {"return_inverse": inverse, "return_counts": counts}
    found = np.unique(host.reshape(-1), **given, equal_nan=False)
    parts = list(found) if type(found) is tuple else [found]
    if inverse:
        parts[1] = parts[1].reshape(x.shape)
    return [x.__cubepy_wrap__(part) for part in parts]


def positions_of(mask: Any) -> Any:
    """The positions (i64) of the elements of a mask, as if they were in one axis, that hold.

    Raises:
        LaunchError: while ops are recorded, since how many they are is not known before.
    """
    host = _host_of(mask)
    if host is not None:
        return mask.__cubepy_wrap__(np.flatnonzero(host))
    return found_by(mask.reshape(-1))[0]


def indices_of(mask: Any) -> Any:
    """The same, as indices of each axis of the mask: a list of tensors, or their matrix."""
    host = _host_of(mask)
    if host is None:
        return found_by(mask)
    rest, columns = positions_of(mask), list[Any]()
    for n in reversed(mask.shape[1:]):
        columns.append(rest % n)
        rest = rest // n
    return [rest, *reversed(columns)]


def selected_by(x: Any, mask: Any) -> Any:
    """What a mask of the first axes selects of a tensor on a GPU, where no gradient is wanted; else
    None.
    """
    fits = 0 < mask.ndim <= x.ndim and mask.shape == x.shape[: mask.ndim]
    if not fits or x.requires_grad or mask.device != x.device or _host_of(mask) is not None:
        return None
    return _first(*x._apply("mask_selected", x, mask))


def found_by(mask: Any) -> Any:
    """The indices of the elements of a mask that hold, a row for each of its axes."""
    found, count = mask._apply("mask_positions", mask)
    return _first(found, count, axis=1)


def _first(found: Any, count: Any, axis: int = 0) -> Any:
    """As many of the elements along an axis as a count says; without the memory of the others, if
    they are many.
    """
    n, array = count.item(), getattr(found.value.storage, "array", None)
    if isinstance(array, DeviceArray):  # a view of its own: another length is no other plan
        kept = found.__cubepy_wrap__(array[:, :n] if axis else array[:n])
    else:
        kept = found.narrow(axis, 0, n)
    spare = (found.size - kept.size) * found.dtype.bits // 8
    return kept if spare <= SPARE else kept.clone()


def _host_of(mask: Any) -> np.ndarray | None:
    """The array of a mask on the host."""
    if blocks:
        raise LaunchError(
            "how many elements of a mask hold is not known before it is computed",
            hint="use cubepy.tensor.where(mask, x, 0), whose shape does not depend on elements",
        )
    return mask.__cubepy_hosted__()  # type: ignore[no-any-return]

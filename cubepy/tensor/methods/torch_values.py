"""PyTorch's names of what gives a handle another value, of new tensors like one, of dtypes and
strides.
"""

from __future__ import annotations

import itertools
import operator
from functools import cache
from typing import Any, TypeVar

from cubepy.errors import DTypeError, ShapeError
from cubepy.lang.dtypes import as_dtype
from cubepy.tensor.differentiable import loses
from cubepy.tensor.methods.applied import ints
from cubepy.tensor.methods.torch_arithmetic import TorchArithmetic
from cubepy.tensor.modes import no_grad
from cubepy.tensor.storage import Dense

T = TypeVar("T")


class TorchValues(TorchArithmetic[T]):
    """What `Tensor` inherits: methods that end with `_`, `new_zeros` and the like.

    Args:
        T: what the methods give, `Tensor`.
    """

    __slots__ = ()

    def assign_(self, other: Any) -> Any:
        """Let this tensor have the elements of another one from here on."""
        raise NotImplementedError

    @property
    def data(self) -> T:
        """The same elements without gradients; what is written to it in place is written to this
        tensor, and no gradient knows of it. `with cb.no_grad():` around what is done with the
        tensor itself does the same.

        Example:
            >>> import cubepy as cb
            >>> x = cb.tensor([-3.0, 0.5], requires_grad=True)
            >>> _ = x.data.clamp_(-1, 1)
            >>> x.data *= 2
            >>> x.detach(), x.data.requires_grad
            (tensor([-2.,  1.]), False)
        """
        alone: Any = self.detach()  # type: ignore[attr-defined]
        kind: Any = type(alone)
        made = object.__new__(_writes_on(kind))
        made.value, made.owner = alone.value, self
        return made  # type: ignore[no-any-return]

    @data.setter
    def data(self, data: Any) -> None:
        with no_grad():
            self.assign_(data)

    # Another value for the same handle: what was computed from it keeps the elements that it had

    def add_(self, other: Any, *, alpha: Any = 1) -> T:
        """`self += alpha * other`; gives the tensor, of its shape and dtype, as all of these."""
        return self._in_place("add", self._times(other, alpha))

    def sub_(self, other: Any, *, alpha: Any = 1) -> T:
        """`self -= alpha * other`"""
        return self._in_place("sub", self._times(other, alpha))

    def lerp_(self, end: Any, weight: Any) -> T:
        """`self += weight * (end - self)`, as running means of weights go."""
        return self._in_place("add", (end - self) * weight)

    def mul_(self, other: Any) -> T:
        """`self *= other`"""
        return self._in_place("mul", other)

    def div_(self, other: Any, *, rounding_mode: str | None = None) -> T:
        """`self /= other`; rounded as by `div`."""
        if rounding_mode is None:
            return self._in_place("div", other)
        return self._changed(self.div(other, rounding_mode=rounding_mode))

    def clamp_(self, min: Any = None, max: Any = None) -> T:
        """Limited to [min, max]; None leaves a side open."""
        return self._changed(self.clip(min, max))

    def copy_(self, src: Any, non_blocking: bool = False) -> T:
        """The elements of another tensor, broadcast, in this tensor's dtype."""
        return self.assign_(src)  # type: ignore[no-any-return]

    def fill_(self, value: Any) -> T:
        """A number everywhere."""
        number: Any = self._operand(value)
        if number.ndim:
            raise ShapeError(f"fill_ takes a number, not the shape {number.shape}")
        return self.assign_(self._filled(number, self.shape, self.dtype))  # type: ignore[no-any-return]

    def zero_(self) -> T:
        """Zeros everywhere."""
        return self.fill_(0)

    # New ones

    def new_tensor(self, data: Any, dtype: Any = None, device: Any = None) -> T:
        """A tensor of data, in this one's dtype and where it is."""
        made: Any = self._like(data)
        made = made.astype(self.dtype if dtype is None else dtype).detach()
        return made.to(device=self.device if device is None else device)  # type: ignore[no-any-return]

    def new_full(self, size: Any, fill_value: Any, dtype: Any = None, device: Any = None) -> T:
        """A number everywhere, in this one's dtype and where it is."""
        wanted = self.dtype if dtype is None else as_dtype(dtype)
        home = self.device if device is None else device
        if type(fill_value) in (int, float) and (wanted.is_float or fill_value in (0, 1)):
            full = self.__array_namespace__().full
            return full(ints((size,)), fill_value, dtype=wanted, device=home)  # type: ignore[no-any-return]
        made: Any = self._filled(self._operand(fill_value), ints((size,)), wanted)
        return made if device is None else made.to(device=device)  # type: ignore[no-any-return]

    def new_zeros(self, *size: Any, dtype: Any = None, device: Any = None) -> T:
        """Zeros of a shape, in this one's dtype and where it is."""
        return self.new_full(ints(size), 0, dtype, device)

    def new_ones(self, *size: Any, dtype: Any = None, device: Any = None) -> T:
        """Ones of a shape, in this one's dtype and where it is."""
        return self.new_full(ints(size), 1, dtype, device)

    def new_empty(self, *size: Any, dtype: Any = None, device: Any = None) -> T:
        """As `new_zeros`: there is no memory without values."""
        return self.new_full(ints(size), 0, dtype, device)

    # Dtypes and strides

    def type(self, dtype: Any = None) -> Any:
        """The tensor in another dtype; without one, the name of its dtype."""
        return self.dtype.name if dtype is None else self.astype(dtype)

    def short(self) -> T:
        """The tensor in i16."""
        return self.astype("i16")

    def byte(self) -> T:
        """The tensor in u8."""
        return self.astype("u8")

    def char(self) -> T:
        """The tensor in i8."""
        return self.astype("i8")

    def stride(self, dim: Any = None) -> Any:
        """How many elements lie between neighbours of an axis, or of each axis. While a program is
        traced, and of packed storage, those of C order.
        """
        if self.storage.__class__ is Dense:
            array = self.storage.array
            found = tuple(n // self.dtype.numpy.itemsize for n in array.strides)
        else:
            sizes = [max(n, 1) for n in self.shape[:0:-1]]
            found = tuple(itertools.accumulate([1, *sizes], operator.mul))[: self.ndim][::-1]
        return found if dim is None else found[self._dim(dim, "stride")]

    def is_contiguous(self) -> bool:
        """Whether the elements lie in C order without gaps."""
        expected = 1
        for n, step in zip(reversed(self.shape), reversed(self.stride()), strict=True):
            if n > 1 and step != expected:
                return not self.size
            expected *= n
        return True

    def _filled(self, number: Any, shape: tuple[int, ...], dtype: Any) -> Any:
        """A number everywhere, in memory of its own."""
        return number.astype(dtype).to(self.device).detach().expand(shape).clone()

    def _changed(self, new: Any) -> T:
        """This handle with what was computed, in its dtype."""
        if new.shape != self.shape:
            raise ShapeError(
                f"in place a tensor keeps its shape {self.shape}; the result has {new.shape}"
            )
        if loses(new.dtype, self.dtype):
            raise DTypeError(
                f"in place a tensor keeps its dtype {self.dtype.name}; the result is "
                f"{new.dtype.name}",
                hint="call the method without _, or convert the tensor before",
            )
        return self._exchanged(new.astype(self.dtype))  # type: ignore[no-any-return]


@cache
def _writes_on(kind: Any) -> Any:
    """The class of tensors that another one gets the elements of, too."""

    class Data(kind):  # type: ignore[misc]
        """The elements of a tensor without gradients."""

        __slots__ = ("owner",)

        def _exchanged(self, new: Any) -> Any:
            super()._exchanged(new)
            with no_grad():
                self.owner._exchanged(new.detach())
            return self

        def __reduce_ex__(self, protocol: Any) -> Any:
            return self.detach().__reduce_ex__(protocol)

    return Data

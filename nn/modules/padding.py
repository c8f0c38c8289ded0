"""More elements at the ends of axes, as modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cubepy.errors import ShapeError
from cubepy.nn import arguments
from cubepy.nn import functional as F
from cubepy.nn.module import Module
from cubepy.tensor import Tensor


class _Pad(Module):
    axes = 1
    mode = "constant"
    value: float = 0.0

    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__()
        given = padding if isinstance(padding, (tuple, list)) else (padding,) * (2 * self.axes)
        self.padding = tuple(arguments.size("padding", n, -(2**62)) for n in given)
        if len(self.padding) != 2 * self.axes:
            raise ShapeError(
                f"{type(self).__name__} takes an int or {2 * self.axes} of them, not {padding}"
            )

    def forward(self, input: Any) -> Tensor:
        """(N, C, ...) -> (N, C, ...), or without N; see `functional.pad`."""
        return F.pad(input, self.padding, self.mode, self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}"


class _ConstantPad(_Pad):
    def __init__(self, padding: int | Sequence[int], value: float) -> None:
        super().__init__(padding)
        self.value = arguments.number("value", value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ZeroPad1d(_Pad):
    """Zeros at the ends of the last axis of (N, C, L).

    Example:
        >>> ZeroPad1d(1)([[1.0, 2.0]])
        tensor([[0., 1., 2., 0.]])
    """

    axes = 1


class ZeroPad2d(_Pad):
    """Zeros at the ends of the last two axes of (N, C, H, W).

    Example:
        >>> ZeroPad2d((1, 1, 0, 0))([[[1.0, 2.0]]])
        tensor([[[0., 1., 2., 0.]]])
    """

    axes = 2


class ZeroPad3d(_Pad):
    """Zeros at the ends of the last three axes of (N, C, D, H, W).

    Example:
        >>> ZeroPad3d((1, 1, 0, 0, 0, 0))([[[[1.0, 2.0]]]])
        tensor([[[[0., 1., 2., 0.]]]])
    """

    axes = 3


class ConstantPad1d(_ConstantPad):
    """A number at the ends of the last axis of (N, C, L).

    Example:
        >>> ConstantPad1d(1, 7.0)([[1.0, 2.0]])
        tensor([[7., 1., 2., 7.]])
    """

    axes = 1


class ConstantPad2d(_ConstantPad):
    """A number at the ends of the last two axes of (N, C, H, W).

    Example:
        >>> ConstantPad2d((1, 1, 0, 0), 7.0)([[[1.0, 2.0]]])
        tensor([[[7., 1., 2., 7.]]])
    """

    axes = 2


class ConstantPad3d(_ConstantPad):
    """A number at the ends of the last three axes of (N, C, D, H, W).

    Example:
        >>> ConstantPad3d((1, 1, 0, 0, 0, 0), 7.0)([[[[1.0, 2.0]]]])
        tensor([[[[7., 1., 2., 7.]]]])
    """

    axes = 3


class ReflectionPad1d(_Pad):
    """What lies behind the edge at the ends of the last axis of (N, C, L).

    Example:
        >>> ReflectionPad1d(1)([[1.0, 2.0]])
        tensor([[2., 1., 2., 1.]])
    """

    axes = 1
    mode = "reflect"


class ReflectionPad2d(_Pad):
    """What lies behind the edge at the ends of the last two axes of (N, C, H, W).

    Example:
        >>> ReflectionPad2d((1, 1, 0, 0))([[[1.0, 2.0]]])
        tensor([[[2., 1., 2., 1.]]])
    """

    axes = 2
    mode = "reflect"


class ReflectionPad3d(_Pad):
    """What lies behind the edge at the ends of the last three axes of (N, C, D, H, W).

    Example:
        >>> ReflectionPad3d((1, 1, 0, 0, 0, 0))([[[[1.0, 2.0]]]])
        tensor([[[[2., 1., 2., 1.]]]])
    """

    axes = 3
    mode = "reflect"


class ReplicationPad1d(_Pad):
    """The edge again at the ends of the last axis of (N, C, L).

    Example:
        >>> ReplicationPad1d(1)([[1.0, 2.0]])
        tensor([[1., 1., 2., 2.]])
    """

    axes = 1
    mode = "replicate"


class ReplicationPad2d(_Pad):
    """The edge again at the ends of the last two axes of (N, C, H, W).

    Example:
        >>> ReplicationPad2d((1, 1, 0, 0))([[[1.0, 2.0]]])
        tensor([[[1., 1., 2., 2.]]])
    """

    axes = 2
    mode = "replicate"


class ReplicationPad3d(_Pad):
    """The edge again at the ends of the last three axes of (N, C, D, H, W).

    Example:
        >>> ReplicationPad3d((1, 1, 0, 0, 0, 0))([[[[1.0, 2.0]]]])
        tensor([[[[1., 1., 2., 2.]]]])
    """

    axes = 3
    mode = "replicate"


class CircularPad1d(_Pad):
    """What is at the other end at the ends of the last axis of (N, C, L).

    Example:
        >>> CircularPad1d(1)([[1.0, 2.0]])
        tensor([[2., 1., 2., 1.]])
    """

    axes = 1
    mode = "circular"


class CircularPad2d(_Pad):
    """What is at the other end at the ends of the last two axes of (N, C, H, W).

    Example:
        >>> CircularPad2d((1, 1, 0, 0))([[[1.0, 2.0]]])
        tensor([[[2., 1., 2., 1.]]])
    """

    axes = 2
    mode = "circular"


class CircularPad3d(_Pad):
    """What is at the other end at the ends of the last three axes of (N, C, D, H, W).

    Example:
        >>> CircularPad3d((1, 1, 0, 0, 0, 0))([[[[1.0, 2.0]]]])
        tensor([[[[2., 1., 2., 1.]]]])
    """

    axes = 3
    mode = "circular"

"""What layers are made with: sizes, shapes, numbers, switches and paths, looked at where they are
given.

A wrong one would otherwise fail later, in another place, or be silently something else.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cubepy.errors import ArgumentError, LaunchError, ShapeError
from cubepy.kernels.entry.arguments import number_of, whole
from cubepy.kernels.entry.options import is_flag, shown
from cubepy.lang.dtypes import f32, float_for
from cubepy.tensor import Tensor


def size(name: str, value: Any, least: int = 0) -> int:
    """An integer of at least `least`.

    Raises:
        ArgumentError: it is no integer.
        ShapeError: it is smaller.

    Example:
        >>> size("in_features", -1)
        Traceback (most recent call last):
            ...
        cubepy.errors.ShapeError: in_features must be at least 0, not -1
    """
    if isinstance(value, bool):
        raise ArgumentError(f"{name} must be an int, not {value}")
    return whole(value, name, least)


def shape(name: str, value: Any) -> tuple[int, ...]:
    """The lengths that an integer or a sequence of integers stands for.

    Raises:
        ArgumentError: it is neither.
        ShapeError: there is none, or one is negative.

    Example:
        >>> shape("normalized_shape", 8), shape("normalized_shape", [4, 8])
        ((8,), (4, 8))
    """
    lengths = value if isinstance(value, (tuple, list)) else (value,)
    if not lengths:
        raise ShapeError(f"{name} must have at least one axis, but it is empty")
    return tuple(size(name, n) for n in lengths)


def number(name: str, value: Any, least: float = -math.inf, most: float = math.inf) -> float:
    """A number from `least` to `most`.

    Raises:
        ArgumentError: it is no number.
        LaunchError: it lies outside, or is NaN.

    Example:
        >>> number("eps", "small")
        Traceback (most recent call last):
            ...
        cubepy.errors.ArgumentError: eps must be a number, not 'small'
    """
    if isinstance(value, bool):
        raise ArgumentError(f"{name} must be a number, not {value}")
    found = number_of(value, name)
    if not least <= found <= most:
        allowed = f"at least {least:g}" if most == math.inf else f"from {least:g} to {most:g}"
        raise LaunchError(f"{name} must be {allowed}, not {value}")
    return found


def numbers(name: str, value: Any, count: int) -> list[float]:
    """Several numbers.

    Raises:
        ArgumentError: something else, or not as many.

    Example:
        >>> numbers("betas", (0.9, 0.5), 2)
        [0.9, 0.5]
    """
    if not isinstance(value, (tuple, list)) or len(value) != count:
        raise ArgumentError(f"{name} are {count} numbers, not {shown(value)}")
    return [number(f"{name}[{n}]", one) for n, one in enumerate(value)]


def flag(name: str, value: Any) -> bool:
    """True or False.

    Raises:
        ArgumentError: it is something else.

    Example:
        >>> flag("bias", 1)
        True
    """
    if not is_flag(value):
        raise ArgumentError(f"{name} must be True or False, not {shown(value)}")
    return bool(value)


def path(name: str, value: Any) -> Path:
    """Where a file is.

    Raises:
        ArgumentError: it is neither a text nor a path.

    Example:
        >>> path("path", None)
        Traceback (most recent call last):
            ...
        cubepy.errors.ArgumentError: path must be a text or a pathlib.Path, not None
    """
    if not isinstance(value, (str, os.PathLike)):
        raise ArgumentError(f"{name} must be a text or a pathlib.Path, not {shown(value)}")
    return Path(value)


def widened(x: Tensor) -> Tensor:
    """Narrow floats in f32, for what takes several steps: nothing is rounded, and no square
    overflows, in between. Integers and booleans are floats, too: a difference may be beyond them.

    Example:
        >>> import cubepy as cb
        >>> widened(cb.tensor([1.0], "f16")).dtype, widened(cb.tensor([1], "u8")).dtype
        (cb.f32, cb.f32)
    """
    wide = float_for(x.dtype) if x.dtype.bits == 64 else f32
    return x if x.dtype is wide else x.astype(wide)


def in_place(given: Any, made: Tensor, inplace: Any) -> Tensor:
    """What a function gives; where `inplace` says so, a tensor that it was given has it, too.

    Example:
        >>> import cubepy as cb
        >>> x = cb.tensor([1.0])
        >>> in_place(x, x * 2, True) is x, x
        (True, tensor([2.]))
    """
    if inplace is False or not flag("inplace", inplace) or not isinstance(given, Tensor):
        return made
    return given.assign_(made)  # type: ignore[no-any-return]


def tensors(values: Any) -> list[Any]:
    """A tensor, or several, such as parameters, in a list.

    Raises:
        ArgumentError: something else.

    Example:
        >>> import cubepy as cb
        >>> tensors(cb.tensor([1.0]))
        [tensor([1.])]
    """
    several = not isinstance(values, Tensor) and isinstance(values, Iterable)
    given = list(values) if several else [values]
    for one in given:
        if not isinstance(one, Tensor):
            raise ArgumentError(
                f"parameters are tensors, not {shown(one)}", hint="give model.parameters()"
            )
    return given

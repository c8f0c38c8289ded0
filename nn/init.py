"""First values of parameters, drawn as PyTorch's modules draw them, from one seeded generator;
functions that end with `_` give them to a tensor.

Example:
    >>> from cubepy import nn
    >>> nn.init.manual_seed(0).random() == nn.init.manual_seed(0).random()
    True
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

from cubepy.nn.filling import (
    calculate_gain,
    constant_,
    dirac_,
    eye_,
    kaiming_normal_,
    kaiming_uniform_,
    normal_,
    ones_,
    orthogonal_,
    sparse_,
    trunc_normal_,
    uniform_,
    xavier_normal_,
    xavier_uniform_,
    zeros_,
)
from cubepy.nn.seeds import dropout_generator, generator, manual_seed
from cubepy.tensor import Tensor, as_tensor
from cubepy.tensor.storage import HOST, Dense

__all__ = [
    "calculate_gain",
    "constant",
    "constant_",
    "dirac_",
    "dropout_generator",
    "eye_",
    "generator",
    "kaiming_normal_",
    "kaiming_uniform_",
    "linear_bound",
    "manual_seed",
    "normal",
    "normal_",
    "ones_",
    "orthogonal_",
    "skip",
    "sparse_",
    "trunc_normal_",
    "uniform",
    "uniform_",
    "xavier_bound",
    "xavier_normal_",
    "xavier_uniform_",
    "zeros_",
]

_skipping: ContextVar[Callable[[tuple[int, ...]], Tensor] | None] = ContextVar(
    "cubepy_nn_skip_init", default=None
)


@contextmanager
def skip(memory: bool = True) -> Iterator[None]:
    """Leave parameters uninitialised, which is quicker when they are loaded right afterwards.

    Args:
        memory: whether they have memory; without it they have shapes, until each is given another
            tensor (`Parameter.take_over_`).

    Example:
        >>> from cubepy import nn
        >>> with skip():
        ...     layer = nn.Linear(4096, 4096)
    """
    token = _skipping.set(_memory if memory else _shape_alone)
    try:
        yield
    finally:
        _skipping.reset(token)


def _memory(shape: tuple[int, ...]) -> Tensor:
    return as_tensor(np.empty(shape, np.float32))


def _shape_alone(shape: tuple[int, ...]) -> Tensor:
    """An array of the host of one number that says to be many, and cannot be written."""
    try:
        return Tensor(Dense(np.broadcast_to(np.zeros((), np.float32), shape), HOST))
    except ValueError as error:  # more elements than an address has numbers for
        raise MemoryError(f"a parameter of the shape {shape}: {error}") from None


def uniform(shape: tuple[int, ...], bound: float) -> Tensor:
    """f32 values in [-bound, bound).

    Example:
        >>> float(abs(uniform((100,), 0.5).numpy()).max()) <= 0.5
        True
    """
    skipped = _skipping.get()
    if skipped is not None:
        return skipped(shape)
    return as_tensor(
        ((generator().random(shape, np.float32) * 2 - 1) * np.float32(bound)).astype(np.float32)
    )


def normal(shape: tuple[int, ...], std: float = 1.0) -> Tensor:
    """f32 values of a normal distribution around 0.

    Example:
        >>> normal((2, 3)).shape
        (2, 3)
    """
    skipped = _skipping.get()
    if skipped is not None:
        return skipped(shape)
    return as_tensor(generator().standard_normal(shape, np.float32) * np.float32(std))


def linear_bound(fan_in: int) -> float:
    """The bound of a linear layer's weight and bias: kaiming_uniform with a = sqrt(5).

    Example:
        >>> linear_bound(100)
        0.1
    """
    return 1 / math.sqrt(fan_in) if fan_in > 0 else 0.0


def xavier_bound(fan_in: int, fan_out: int) -> float:
    """The bound of xavier_uniform.

    Example:
        >>> xavier_bound(3, 3)
        1.0
    """
    return math.sqrt(6 / (fan_in + fan_out))


def constant(shape: tuple[int, ...], value: float) -> Tensor:
    """f32, all of one value.

    Example:
        >>> constant((2,), 0.5)
        tensor([0.5, 0.5])
    """
    if _skipping.get() is _shape_alone:
        return _shape_alone(shape)
    return as_tensor(np.full(shape, value, np.float32))

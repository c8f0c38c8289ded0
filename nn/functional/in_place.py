"""Activations that give their tensor its next value, under PyTorch's names: `f_(x)` is
`f(x, inplace=True)`.
"""

from __future__ import annotations

from typing import Any

from cubepy.nn.functional import activations, noise
from cubepy.tensor import Tensor


def relu_(input: Any) -> Tensor:
    """`relu(input, inplace=True)`

    Example:
        >>> import cubepy as cb
        >>> x = cb.tensor([-1.0, 2.0])
        >>> relu_(x) is x, x
        (True, tensor([0., 2.]))
    """
    return activations.relu(input, inplace=True)


def elu_(input: Any, alpha: float = 1.0) -> Tensor:
    """`elu(input, alpha, inplace=True)`

    Example:
        >>> elu_([0.0, 2.0])
        tensor([0., 2.])
    """
    return activations.elu(input, alpha, inplace=True)


def celu_(input: Any, alpha: float = 1.0) -> Tensor:
    """`celu(input, alpha, inplace=True)`

    Example:
        >>> celu_([0.0, 2.0])
        tensor([0., 2.])
    """
    return activations.celu(input, alpha, inplace=True)


def selu_(input: Any) -> Tensor:
    """`selu(input, inplace=True)`

    Example:
        >>> selu_([0.0])
        tensor([0.])
    """
    return activations.selu(input, inplace=True)


def leaky_relu_(input: Any, negative_slope: float = 0.01) -> Tensor:
    """`leaky_relu(input, negative_slope, inplace=True)`

    Example:
        >>> leaky_relu_([-1.0, 2.0], 0.5)
        tensor([-0.5,  2. ])
    """
    return activations.leaky_relu(input, negative_slope, inplace=True)


def hardtanh_(input: Any, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """`hardtanh(input, min_val, max_val, inplace=True)`

    Example:
        >>> hardtanh_([-3.0, 0.5])
        tensor([-1. ,  0.5])
    """
    return activations.hardtanh(input, min_val, max_val, inplace=True)


def threshold_(input: Any, threshold: float, value: float) -> Tensor:
    """`threshold(input, threshold, value, inplace=True)`

    Example:
        >>> threshold_([0.1, 2.0], 1.0, -5.0)
        tensor([-5.,  2.])
    """
    return activations.threshold(input, threshold, value, inplace=True)


def rrelu_(
    input: Any, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False
) -> Tensor:
    """`rrelu(input, lower, upper, training, inplace=True)`

    Example:
        >>> rrelu_([-1.0, 2.0], 0.5, 0.5)
        tensor([-0.5,  2. ])
    """
    return noise.rrelu(input, lower, upper, training, inplace=True)
